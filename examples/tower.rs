//! A chain as a tower layer: around hyper's own client, inside of tower's `ServiceBuilder`, against a server that is busy.
//!
//! ```sh
//! cargo run --features tower --example tower
//! ```

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use http_body_util::{BodyExt, Collected, Full};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::client::legacy::{Client, Error as SendError};
use hyper_util::rt::{TokioExecutor, TokioIo};
use steadfast::tower::{Http, Idempotent, Layer, Replay, ResponseExt};
use steadfast::{Breaker, Executor, Retry, Timeout};
use tokio::net::TcpListener;
use tower::{Service, ServiceBuilder, ServiceExt};

type BoxError = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let (url, received) = busy_server().await?;

    // Once per dependency. What may be sent again is asked of each request; that a connection could not be made proves that
    // nothing was sent.
    let policies = (Retry::exponential().base(Duration::from_millis(20)), Breaker::default(), Timeout::secs(2));
    let invoices = Executor::builder("invoices").policies(policies).build()?;
    let http = Http::new().unsent_if(SendError::is_connect);

    // hyper repeats by itself what it could not send: here the chain decides.
    let client = Client::builder(TokioExecutor::new()).retry_canceled_requests(false).build_http();
    let mut service = ServiceBuilder::new()
        // A body that is remembered while it is sent, up to 64 KiB, can be sent again.
        .map_request(|request: Request<Full<Bytes>>| request.map(Replay::new))
        .layer(Layer::new(invoices).protocol(http))
        // Every attempt takes a place of its own.
        .concurrency_limit(8)
        .service(client);

    // A PUT does no more harm twice: the server is busy once, and then answers.
    let request = Request::put(&url).body(Full::from("paid"))?;
    let response = service.ready().await?.call(request).await?;
    assert_eq!((response.status(), received.load(Relaxed)), (StatusCode::OK, 2));
    println!("PUT: {} after {} requests", response.status(), received.swap(0, Relaxed));
    assert_eq!(response.into_body().collect().await?.to_bytes(), "got \"paid\"");

    // A POST might: the one answer is returned, and says why there was no other.
    let request = Request::post(&url).body(Full::from("paid"))?;
    let response = service.ready().await?.call(request).await?;
    assert_eq!((response.status(), received.load(Relaxed)), (StatusCode::SERVICE_UNAVAILABLE, 1));
    println!("POST: {}, not sent again: {}", response.status(), response.not_repeated().unwrap_or_default());
    received.store(0, Relaxed);

    // Unless the caller knows better.
    let mut request = Request::post(&url).body(Full::from("paid"))?;
    request.extensions_mut().insert(Idempotent(true));
    let response = service.ready().await?.call(request).await?;
    assert_eq!((response.status(), received.load(Relaxed)), (StatusCode::OK, 2));
    println!("POST, idempotent: {} after {} requests", response.status(), received.load(Relaxed));
    Ok(())
}

/// A server that is busy when it has counted none yet.
async fn busy_server() -> Result<(String, Arc<AtomicU32>), BoxError> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/invoices/7", listener.local_addr()?);
    let received = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&received);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let count = Arc::clone(&count);
            let answer = service_fn(move |request| answer(request, Arc::clone(&count)));
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), answer));
        }
    });
    Ok((url, received))
}

async fn answer(request: Request<Incoming>, received: Arc<AtomicU32>) -> Result<Response<Full<Bytes>>, Infallible> {
    let busy = received.fetch_add(1, Relaxed) == 0;
    let body = request.into_body().collect().await.map(Collected::to_bytes).unwrap_or_default();
    let mut response = Response::new(Full::from(format!("got {body:?}").replace("b\"", "\"")));
    if busy {
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    }
    Ok(response)
}
