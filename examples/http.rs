//! One HTTP call: three tries with exponential backoff and jitter, Retry-After honoured, 2 s for each try, and a breaker
//! that all calls of the client share. The whole program; the README shows it without these lines.

use steadfast::{Breaker, Executor, Retry, Timeout, reqwest::Client};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let policies = (Retry::exponential(), Breaker::default(), Timeout::secs(2));
    let api = Executor::builder("api").policies(policies).build()?;
    let http = Client::build(reqwest::Client::builder(), api)?;
    match http.get("http://127.0.0.1:8080/").send().await {
        Ok(response) => println!("{}: {}", response.status(), response.text().await?),
        Err(error) => println!("{error}"),
    }
    Ok(())
}
