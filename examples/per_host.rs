//! One client for many hosts, with a breaker and a rate limit for each: while one host is down, calls to it are refused at
//! once, and calls to the others do not notice. Two servers of its own, one of which fails for a second; it ends by itself.
//!
//! ```sh
//! cargo run --release --features full --example per_host
//! ```

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use hyper::service::service_fn;
use hyper::{Response, StatusCode, server::conn::http1};
use hyper_util::rt::TokioIo;
use steadfast::breaker::{BreakerConfig, TripRule};
use steadfast::limit::RateLimiterConfig;
use steadfast::reqwest::Client;
use steadfast::{Breaker, Clock, Executor, Keyed, RateLimiter, Retry, Timeout};
use tokio::net::TcpListener;

type AnyResult<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

#[tokio::main]
async fn main() -> AnyResult<()> {
    let is_down = Arc::new(AtomicBool::new(true));
    let well = serve(Arc::default()).await?;
    let shaky = serve(Arc::clone(&is_down)).await?;

    // Bounded: at most 8,192 hosts, and those that have nothing to remember make room first.
    let settings = BreakerConfig::default().rule(TripRule::consecutive(5)).open_for(Duration::from_millis(500));
    let breakers = Keyed::<Breaker>::new(settings);
    // Politeness is for each host too: one that is over its rate does not hold back another.
    let rates = Keyed::<RateLimiter>::new(RateLimiterConfig::per_second(50).max_wait(Duration::from_secs(1)));
    let policies = (Retry::fixed(Duration::from_millis(20)), breakers.clone(), rates, Timeout::secs(2));
    let crawler = Executor::builder("crawler").policies(policies).build()?;
    let http = Client::build(reqwest::Client::builder().no_proxy(), crawler)?.per_host();

    println!("{:>6}  {:>8} {:8}  {:>8} {:8}", "", "well", "", "shaky", "");
    for tenth in 0..20 {
        is_down.store(tenth < 10, Relaxed);
        print!("{:>4} ms", 100 * tenth);
        for host in [well, shaky] {
            let answered = match http.get(format!("http://{host}/")).send().await {
                Ok(response) => response.status().as_u16().to_string(),
                Err(error) if error.is_circuit_open() => "refused".to_owned(),
                Err(error) => error.to_string(),
            };
            let state = breakers.peek(&host.to_string()).map(|breaker| breaker.state().to_string());
            print!("  {answered:>8} {:8}", state.unwrap_or_default());
        }
        println!();
        Clock::tokio().sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

/// Answers 503 while it is down, and 200 otherwise.
async fn serve(is_down: Arc<AtomicBool>) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let is_down = Arc::clone(&is_down);
            let service = service_fn(move |_| {
                let mut answer = Response::new(String::new());
                if is_down.load(Relaxed) {
                    *answer.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
                }
                async { Ok::<_, Infallible>(answer) }
            });
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
        }
    });
    Ok(address)
}
