//! A large body that is read long after the policies have let its headers through, with a progress bar. Ctrl-C cancels it in
//! the middle, and the program says so.
//!
//! ```sh
//! cargo run --release --features full --example download                   # 64 MiB from a server of its own
//! cargo run --release --features full --example download -- http://…       # something else
//! ```

use std::io::{self, Write};
use std::time::Duration;

use bytes::Bytes;
use futures::stream;
use http_body_util::StreamBody;
use hyper::body::Frame;
use hyper::service::service_fn;
use hyper::{Response, server::conn::http1};
use hyper_util::rt::TokioIo;
use steadfast::reqwest::{Client, Error};
use steadfast::{CancellationToken, Clock, Context, Executor, Retry, Timeout};
use tokio::net::TcpListener;

type AnyResult<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

#[tokio::main]
async fn main() -> AnyResult<()> {
    let url = match std::env::args().nth(1) {
        Some(url) => url,
        None => serve().await?,
    };
    // The limit is on the headers: the body takes longer, and may. One that stalls is given up after 30 s.
    let policies = (Retry::exponential(), Timeout::millis(500));
    let media = Executor::builder("media").policies(policies).build()?;
    let http = Client::build(reqwest::Client::builder(), media)?;

    let ctrl_c = CancellationToken::new();
    tokio::spawn({
        let ctrl_c = ctrl_c.clone();
        async move {
            if tokio::signal::ctrl_c().await.is_ok() {
                ctrl_c.cancel();
            }
        }
    });
    match download(&http, &Context::new().with_token(ctrl_c), &url).await {
        Ok(bytes) => println!("\n{bytes} bytes"),
        Err(error) if error.is_cancelled() => println!("\ncancelled; the server has been told"),
        Err(error) => println!("\n{error}"),
    }
    Ok(())
}

/// Reads all of the body, chunk by chunk, and gives the number of its bytes.
async fn download(http: &Client, cx: &Context, url: &str) -> Result<u64, Error> {
    let mut response = http.get(url).context(cx).send().await?.error_for_status()?;
    let total = response.content_length();
    let mut read = 0;
    while let Some(chunk) = response.chunk().await? {
        let before = read;
        read += chunk.len() as u64;
        if before / MEBIBYTE < read / MEBIBYTE {
            draw(read, total);
        }
    }
    Ok(read)
}

/// The bar, in the place of the last one.
fn draw(read: u64, total: Option<u64>) {
    let mebibytes = read / MEBIBYTE;
    match total.filter(|total| *total > 0) {
        Some(total) => {
            let full = usize::try_from(read * WIDTH / total).unwrap_or(0);
            print!("\r[{:<width$}] {mebibytes} MiB", "#".repeat(full), width = WIDTH as usize);
        }
        None => print!("\r{mebibytes} MiB"),
    }
    // A bar that cannot be drawn is no reason to stop.
    let _ = io::stdout().flush();
}

/// Serves 64 MiB to whoever asks, over three seconds, and gives the address.
async fn serve() -> io::Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/", listener.local_addr()?);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let service = service_fn(async |_| {
                let body = StreamBody::new(stream::unfold(0, slow_mebibyte));
                Response::builder().header("content-length", SIZE * MEBIBYTE).body(body)
            });
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
        }
    });
    Ok(url)
}

async fn slow_mebibyte(sent: u64) -> Option<(io::Result<Frame<Bytes>>, u64)> {
    if sent == SIZE {
        return None;
    }
    Clock::tokio().sleep(Duration::from_millis(3000 / SIZE)).await;
    Some((Ok(Frame::data(Bytes::from_static(&[0; MEBIBYTE as usize]))), sent + 1))
}

const MEBIBYTE: u64 = 1 << 20;

/// In mebibytes.
const SIZE: u64 = 64;

/// Of the bar.
const WIDTH: u64 = 40;
