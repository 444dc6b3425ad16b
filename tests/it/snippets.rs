//! The first page of the documentation, to the letter: what a user writes.

use std::fmt;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

type AnyResult<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

#[derive(Debug)]
struct Unavailable;

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("unavailable")
    }
}

impl std::error::Error for Unavailable {}

impl Unavailable {
    fn is_transient(&self) -> bool {
        true
    }
}

async fn fetch_user(id: u32) -> Result<u32, Unavailable> {
    Ok(id)
}

/// A client whose calls take the time by which they have to be done.
struct Punctual;

impl Punctual {
    async fn invoice(&self, id: u32, deadline: Option<steadfast::clock::Deadline>) -> Result<u32, Unavailable> {
        assert!(deadline.is_some(), "the timeout's");
        Ok(id)
    }
}

struct Plain;

impl Plain {
    async fn invoice(&self, id: u32) -> Result<u32, Unavailable> {
        Ok(id)
    }
}

#[rustfmt::skip]
#[expect(clippy::redundant_closure_for_method_calls, reason = "it is what a user writes")]
async fn once_and_per_dependency(id: u32) -> AnyResult<[u32; 4]> {
    let client = Punctual;

    use std::time::Duration;
    use steadfast::{Breaker, Context, Executor, Retry, Timeout, op, try_do};

    // Once: a context, an operation, policies from the outside in.
    let cx = Context::new().with_timeout(Duration::from_secs(10));
    let user = try_do(&cx, |_| fetch_user(7), (Retry::exponential(), Timeout::new(Duration::from_secs(2)))).await?;

    // Per dependency: build once, clone freely, share across tasks.
    let billing = Executor::builder("billing")
        .policies((Retry::exponential(), Breaker::default(), Timeout::new(Duration::from_secs(2))))
        .build()?;
    let invoice = billing.run(|attempt| client.invoice(id, attempt.deadline())).await?;
    let first = invoice;
    let client = Plain;
    let invoice = billing.run_with(&cx, |_| client.invoice(id)).await?;
    let second = invoice;
    let invoice = billing.run_op(op(|_| client.invoice(id)).retry_if(|e| e.is_transient())).await?;

    Ok([user, first, second, invoice])
}

#[tokio::test(start_paused = true)]
async fn one_call_and_one_executor_per_dependency() {
    assert_eq!(once_and_per_dependency(8).await.unwrap(), [7, 8, 8, 8]);
}

type Report = serde_json::Value;

#[rustfmt::skip]
async fn the_http_line(url: &str) -> AnyResult<Report> {
    use std::time::Duration;
    use steadfast::{Breaker, Executor, Retry, Timeout};

    let billing = Executor::builder("billing")
        .policies((Retry::exponential(), Breaker::default(), Timeout::new(Duration::from_secs(2))))
        .build()?;

    // reqwest: the same executor around a client; the body stays readable, guarded and cancellable.
    let http = steadfast::reqwest::Client::new(reqwest::Client::new(), billing);
    let report: Report = http.get(url).send().await?.json().await?;      // a real reqwest::Response

    Ok(report)
}

#[tokio::test]
async fn a_client_with_a_body() {
    let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/report", server.local_addr().unwrap());
    let answer = async {
        let (mut connection, _) = server.accept().await.unwrap();
        let mut request = vec![0; 4096];
        let read = connection.read(&mut request).await.unwrap();
        assert!(request[..read].starts_with(b"GET /report "));
        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 11\r\n\r\n{\"total\":7}";
        connection.write_all(answer).await.unwrap();
        connection
    };
    let (report, _connection) = tokio::join!(the_http_line(&url), answer);
    assert_eq!(report.unwrap()["total"], 7);
}
