//! The three ways to make a call: once, through an executor for each dependency, and over HTTP.

use std::error::Error;
use std::io;
use std::time::Duration;

use steadfast::{Breaker, Context, Executor, Retry, Timeout, op, try_do};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // Once: a context, an operation, policies from the outside in.
    let cx = Context::new().with_timeout(Duration::from_secs(10));
    let policies = (Retry::exponential(), Timeout::new(Duration::from_secs(2)));
    let user = try_do(&cx, |attempt| fetch_user(7, attempt.number()), policies).await?;
    assert_eq!(user, "user 7, at the second try");

    // Per dependency: build once, clone freely, share across tasks.
    let billing = Executor::builder("billing")
        .policies((Retry::exponential(), Breaker::default(), Timeout::new(Duration::from_secs(2))))
        .build()?;
    assert_eq!(billing.run(|_| invoice(7)).await?, "invoice 7");
    assert_eq!(billing.run_with(&cx, |_| invoice(8)).await?, "invoice 8");

    // Which errors are worth another try is the caller's to say: without it, all of them.
    let missing = billing.run_op(op(|_| invoice(0)).retry_if(|error| error.kind() != io::ErrorKind::NotFound));
    let error = missing.await.expect_err("there is no invoice 0");
    assert_eq!(error.last().map(io::Error::kind), Some(io::ErrorKind::NotFound));
    assert_eq!(error.attempts(), 1);

    // reqwest: the same executor around a client. The first answer is a 503, the second a report.
    let url = serve(["503 Service Unavailable", "200 OK"]).await?;
    let http = steadfast::reqwest::Client::new(reqwest::Client::builder().no_proxy().build()?, billing);
    let report: serde_json::Value = http.get(url).send().await?.json().await?;
    assert_eq!(report["number"], 2);
    println!("{user}; then a report over HTTP: {report}");
    Ok(())
}

async fn fetch_user(id: u32, attempt: u32) -> io::Result<String> {
    match attempt {
        1 => Err(io::ErrorKind::ConnectionReset.into()),
        _ => Ok(format!("user {id}, at the second try")),
    }
}

async fn invoice(id: u32) -> io::Result<String> {
    if id == 0 { Err(io::ErrorKind::NotFound.into()) } else { Ok(format!("invoice {id}")) }
}

/// A server that gives these answers, one for each connection.
async fn serve(answers: [&'static str; 2]) -> io::Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/report", listener.local_addr()?);
    tokio::spawn(async move {
        for (number, status) in (1..).zip(answers) {
            let (mut stream, _) = listener.accept().await?;
            let _request = stream.read(&mut [0; 1024]).await?;
            let body = format!("{{\"number\":{number}}}");
            let head = format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", body.len());
            stream.write_all((head + &body).as_bytes()).await?;
        }
        io::Result::Ok(())
    });
    Ok(url)
}
