//! A server that protects itself: a rate for each API key, so many requests at a time, and a deadline that it passes on. It calls
//! itself, shows what clients see, and ends by itself.
//!
//! ```sh
//! cargo run --release --features full --example server
//! ```

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use axum::Router;
use axum::extract::Extension;
use axum::routing::get;
use http::{HeaderName, StatusCode};
use reqwest::{Client, RequestBuilder, Response};
use steadfast::limit::RateLimiterConfig;
use steadfast::server::{BulkheadLayer, DeadlineLayer, Key, RateLimitLayer};
use steadfast::{Bulkhead, Clock, Context, Keyed, RateLimiter, Timeout, try_do};
use tokio::net::TcpListener;

type AnyResult<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

const API_KEY: HeaderName = HeaderName::from_static("x-api-key");
const TIMEOUT: HeaderName = HeaderName::from_static("x-request-timeout");

#[tokio::main]
async fn main() -> AnyResult<()> {
    // Six requests a minute for each key, and three at once after a pause; at most 8,192 keys, whatever clients send.
    let limits = Keyed::<RateLimiter>::new(RateLimiterConfig::per(6, Duration::from_secs(60)).burst(3));
    let bulkhead = Bulkhead::new(2);
    let rate_limit = RateLimitLayer::new(limits, Key::header(API_KEY));
    // Who sends no key, and so shares one limit with all others who do not, could be told apart by `Key::connect_info()`.
    let at_a_time = BulkheadLayer::new(bulkhead.clone());
    let deadline = DeadlineLayer::new().seconds_header(TIMEOUT).default_limit(Duration::from_secs(10));
    rate_limit.check()?;
    at_a_time.check()?;
    deadline.check()?;

    let given_up = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&given_up);
    let slow = move |cx: Extension<Context>| ask_database(cx, Arc::clone(&counted));
    let app = Router::new().route("/", get("hello")).route("/film", get(film)).route("/slow", get(slow));
    // The last layer is the outermost: no permit for who comes too often, and the deadline covers all waits.
    let app = app.layer(at_a_time).layer(rate_limit).layer(deadline);

    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", listener.local_addr()?);
    let service = app.into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async move { axum::serve(listener, service).await });

    let http = Client::builder().no_proxy().build()?;
    for (key, status) in [("alice", 200), ("alice", 200), ("alice", 200), ("alice", 429), ("bob", 200)] {
        let response = send(key, http.get(&url)).await?;
        assert_eq!((response.status().as_u16(), limited(&response)), (status, status == 429));
    }

    println!("two films are played, and a third is wanted");
    let films =
        [send("carol", http.get(format!("{url}/film"))).await?, send("dave", http.get(format!("{url}/film"))).await?];
    assert_eq!((films.each_ref().map(|film| film.status().as_u16()), bulkhead.in_flight()), ([200; 2], 2));
    let third = send("erin", http.get(format!("{url}/film"))).await?;
    assert_eq!((third.status().as_u16(), limited(&third)), (503, true));
    drop(films);
    while bulkhead.in_flight() > 0 {
        tokio::task::yield_now().await;
    }

    println!("a client that waits for 50 ms");
    let start = Clock::tokio().now();
    let late = send("frank", http.get(format!("{url}/slow")).header(TIMEOUT, "0.05")).await?;
    assert_eq!(late.status().as_u16(), 504);
    // What the handler has spawned learns of it a moment later.
    while given_up.load(Relaxed) == 0 {
        tokio::task::yield_now().await;
    }
    let took = Clock::tokio().now().since(start);
    println!("its call to the database was given up after {} ms", took.as_millis());
    assert!(took < Duration::from_secs(4), "{took:?}");
    Ok(())
}

async fn send(key: &str, request: RequestBuilder) -> AnyResult<Response> {
    let response = request.header(API_KEY, key).send().await?;
    let after = response.headers().get("retry-after").and_then(|value| value.to_str().ok());
    println!("{key:>8}: {}{}", response.status(), after.map(|s| format!(", again after {s} s")).unwrap_or_default());
    Ok(response)
}

fn limited(response: &Response) -> bool {
    response.headers().contains_key("retry-after")
}

/// A body that goes on for as long as somebody listens.
async fn film() -> axum::body::Body {
    let frames = futures::stream::unfold((), |()| async {
        Clock::tokio().sleep(Duration::from_millis(40)).await;
        Some((Ok::<_, std::io::Error>("frame"), ()))
    });
    axum::body::Body::from_stream(frames)
}

/// A handler that passes on what its client still has: the call ends with the request, not with its own limit.
async fn ask_database(Extension(cx): Extension<Context>, given_up: Arc<AtomicUsize>) -> Result<String, StatusCode> {
    let asked = tokio::spawn(async move {
        let query = |_| async {
            Clock::tokio().sleep(Duration::from_secs(5)).await;
            Ok::<_, std::io::Error>(7)
        };
        let answer = try_do(&cx, query, Timeout::secs(5)).await;
        given_up.fetch_add(usize::from(answer.is_err()), Relaxed);
        answer
    });
    match asked.await {
        Ok(Ok(rows)) => Ok(format!("{rows} rows")),
        // The layer says the same, unless the handler is first.
        _ => Err(StatusCode::GATEWAY_TIMEOUT),
    }
}
