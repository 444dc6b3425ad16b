//! HTTP with reqwest: a client that sends every request through a chain, and hands out responses whose bodies stay guarded.
//!
//! ```no_run
//! use std::time::Duration;
//! use steadfast::{Context, Executor, Retry, Timeout, reqwest::Client};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
//! let billing = Executor::builder("billing").policies((Retry::exponential(), Timeout::secs(2))).build()?;
//! let http = Client::build(reqwest::Client::builder(), billing)?;
//!
//! let cx = Context::new().with_timeout(Duration::from_secs(10));
//! let response = http.get("https://billing.example/invoices/7").context(&cx).send().await?;
//! let invoice = response.error_for_status()?.text().await?;
//! # Ok(())
//! # }
//! ```
//!
//! What [`send`](RequestBuilder::send) gives is a real [`reqwest::Response`]. A request of a plain reqwest
//! client goes through a chain with [`send_with`](RequestBuilderExt::send_with).
//!
//! # How an exchange is judged
//!
//! | what came | verdict |
//! |---|---|
//! | below 400 | `Success`, whatever its headers say |
//! | 429; any other 4xx or 5xx with a Retry-After that makes sense | `Throttled` |
//! | 408, 5xx other than 501 | `Transient` |
//! | 501, other 4xx | `Permanent` |
//! | the name cannot be resolved, the connection is refused, or breaks in the TLS handshake | `Transient`, nothing was sent |
//! | the connection was closed before it was used again | `Transient`, nothing was sent |
//! | the connection breaks or is reset, before the headers or in the body; the body is shorter than announced | `Transient` |
//! | an answer that is not HTTP, headers that are too large | `Transient` |
//! | a time limit of reqwest, or of the body | `Transient` |
//! | HTTP/2 REFUSED_STREAM, GOAWAY | `Transient`, nothing was sent |
//! | HTTP/2 ENHANCE_YOUR_CALM | `Throttled`; nothing was sent, if with GOAWAY |
//! | TLS: a certificate that is not trusted, on either side, a server that speaks something else (rustls; native-tls does not tell it from a broken connection) | `Permanent` |
//! | a redirect loop | `Permanent` |
//! | a body larger than [`buffered`] allows | `Permanent` |
//! | a body that cannot be decoded | `Permanent` |
//! | a URL or a header that is not valid, a scheme that is not served, a request body that failed | `Ignored` |
//! | the caller, its deadline or a shutdown ended a body | `Ignored` |
//!
//! What a verdict means to a retry and to a breaker is in the table at [`Verdict`](crate::Verdict). A `Throttled` one is no failure
//! of a breaker; with [`pause_on_retry_after`](crate::breaker::BreakerConfig::pause_on_retry_after), which is off by default, the
//! breaker holds back all calls for as long as the server asks, and one for each host ([`Keyed`](crate::Keyed) with
//! [`per_host`](Client::per_host)) those to that host. It suits servers that ask when they are down. One that lets a part of the
//! calls through, and answers 429 to the rest, would serve fewer. A response is always returned as one: if the last of three
//! attempts is answered 503, the caller gets that 503 with its body. An open breaker, a full bulkhead, a timeout or a broken
//! connection is an [`Error`].
//!
//! A body that fails while the caller reads it is not asked for again: the caller has a part of it already. It counts as a
//! failure for the breakers of the chain, unless it was cancelled or dropped. [`buffered`] reads it within the attempt.
//!
//! Retry-After is whole seconds or an HTTP date, which counts from the wall clock of the executor; a date that has passed
//! means at once, and a number too large to read means too long. Anything else is as good as no header. Of several headers
//! the first that makes sense counts.
//!
//! # Which requests are sent again
//!
//! Judgement is one question, repetition another. A request whose exchange was `Transient` or `Throttled` is sent again
//!
//! | request | answered 429, or nothing was sent | any other failure | because |
//! |---|---|---|---|
//! | GET, HEAD, OPTIONS, TRACE, PUT, DELETE | yes | yes | twice does no more than once |
//! | POST, PATCH, any other | yes | no | the server may have acted on it |
//! | with an `Idempotency-Key` | yes | yes | the server promises to look at it |
//! | [`idempotent(true)`](RequestBuilder::idempotent) | yes | yes | the caller says so |
//! | [`idempotent(false)`](RequestBuilder::idempotent), also with a key | yes | no | the caller says so |
//! | the body is a stream, a multipart form for example | no | no | there is nothing left to send; [`body_with`] makes a new one for each attempt |
//!
//! The request decides, also where there is no answer to look at. *Nothing was sent* has to be certain: a timeout, a reset and
//! an incomplete answer prove nothing. So a POST that is answered 503 is a failure for a breaker, and is not sent again. A
//! response that was worth another attempt but got none for these reasons says why with [`ResponseExt::not_repeated`].
//!
//! Each attempt sends the same request: method, headers, body, and the settings of reqwest's own builder.
//!
//! A response that is given up for another attempt is read to its end within the wait, so that its connection can be used
//! again: up to 64 KiB, for at most 50 ms, and at most 5 ms longer than the wait. A longer one is broken off, and over HTTP/2
//! its stream is given up.
//!
//! reqwest does not tell whether it followed a redirect before a connection failed. Where a server answers a POST with a
//! redirect *to another host* and the POST must not be made twice, build the client with
//! `redirect(reqwest::redirect::Policy::none())`. And it repeats requests by itself that an HTTP/2 server has refused:
//! [`Client::build`] turns that off, so that the chain sees every one of them; a client that is built elsewhere needs
//! `retry(reqwest::retry::never())`.
//!
//! # What a time limit covers
//!
//! | limit | attempt up to its headers | waits in between | body |
//! |---|---|---|---|
//! | [`Timeout`] inside a retry | yes | | if [`covering_body`] or [`buffered`] |
//! | [`Timeout`] outside of a retry | yes | yes | if [`covering_body`] or [`buffered`] |
//! | deadline of the [`Context`](crate::Context) | yes | yes | yes |
//! | [`BodyTimeout::idle`], 30 s unless set otherwise | | | without data; of a stream only if the request sets it |
//! | [`BodyTimeout::total`], none unless set | | | yes; of a stream only if the request sets it |
//! | [`timeout`](RequestBuilder::timeout), reqwest's own, on tokio's clock | yes | | yes |
//!
//! A policy that has done its work never ends the body of the response that it has let through. The permit of a
//! [`Bulkhead`](crate::Bulkhead) is held until that body ends, however it ends. A [`Hedge`](crate::Hedge) has done its work when
//! the winner's headers are there: it starts nothing after that, and the requests that have lost are given up in the same
//! moment, over HTTP/1 with their connections, over HTTP/2 with their streams.
//!
//! Streams are `text/event-stream` and what is marked with [`streaming`](RequestBuilder::streaming). Limits are looked at when
//! the body is read or waited for, before the data that is there.
//!
//! # Cancelling a body
//!
//! The caller's token, the executor's shutdown and the caller's deadline end the run, and after it the body: the next read
//! fails, a read that is waiting fails at once, and the connection or the HTTP/2 stream is given up in the same moment. What
//! the reader gets is a `reqwest::Error`; [`Error`] tells from it again what has happened:
//!
//! ```no_run
//! # use steadfast::{CancellationToken, Context};
//! # async fn example(http: steadfast::reqwest::Client, token: CancellationToken) {
//! async fn download(http: &steadfast::reqwest::Client, cx: &Context) -> Result<Vec<u8>, steadfast::reqwest::Error> {
//!     let response = http.get("https://media.example/7").context(cx).send().await?;
//!     Ok(response.bytes().await?.into())
//! }
//!
//! let cx = Context::new().with_token(token);
//! match download(&http, &cx).await {
//!     Ok(film) => println!("{} bytes", film.len()),
//!     Err(error) if error.is_cancelled() => println!("nobody waits for it"),
//!     Err(error) => println!("{error}"),
//! }
//! # }
//! ```
//!
//! The three are one value in the extensions of the response, the merged token of [`ResponseExt::cancellation`]. It tells whether
//! one of them asks for an end and [which](crate::Cancellation::cause), it can be [waited for](crate::Cancellation::cancelled)
//! by work that is done beside the body, and [`cancel`](crate::Cancellation::cancel) ends this body alone:
//!
//! ```no_run
//! # use steadfast::{Cause, reqwest::ResponseExt};
//! # async fn example(http: steadfast::reqwest::Client) -> Result<(), steadfast::reqwest::Error> {
//! let mut response = http.get("https://media.example/7").send().await?;
//! let merged = response.cancellation().cloned().expect("a response of a chain has one");
//! tokio::spawn(async move {
//!     match merged.cancelled().await {
//!         Cause::ShutDown => println!("the program ends: saving what is there"),
//!         cause => println!("given up: {cause:?}"),
//!     }
//! });
//! while let Some(chunk) = response.chunk().await? {
//!     println!("{} bytes", chunk.len());
//! }
//! # Ok(())
//! # }
//! ```
//!
//! A response that is held and not read keeps its connection: it notices its end when it is read or dropped. Nor does
//! [`drained`](crate::Executor::drained) wait for it: a body counts from the first time that its reader has to wait for data, until
//! it ends or is dropped. A program that lets its downloads end before it stops has to wait for their tasks too. Two things are
//! beyond any client: a body in memory that an HTTP/1 connection has begun to send is delivered to its end, unless
//! [`slice_uploads`](Client::slice_uploads) is on; and a server may close an HTTP/2 connection on which many streams are
//! given up, and with it those of other calls.
//!
//! # Testing code that uses it
//!
//! The chain runs on the clock of its executor. Give it one that moves only when the test says so (feature `test-util`), and
//! waits, limits and Retry-After take no time; the server can be real, on loopback:
//!
//! ```
//! # #[cfg(feature = "test-util")]
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! use std::time::Duration;
//! use steadfast::{Clock, Executor, Retry, reqwest::Client};
//! # use tokio::io::{AsyncReadExt, AsyncWriteExt};
//!
//! # let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
//! # let url = format!("http://{}/", listener.local_addr().unwrap());
//! # tokio::spawn(async move {
//! #     let (mut stream, _) = listener.accept().await.unwrap();
//! #     for answer in ["503 Busy\r\nretry-after: 20", "200 OK"] {
//! #         stream.read(&mut [0; 1024]).await.unwrap();
//! #         stream.write_all(format!("HTTP/1.1 {answer}\r\ncontent-length: 0\r\n\r\n").as_bytes()).await.unwrap();
//! #     }
//! # });
//! let clock = Clock::manual();
//! let billing = Executor::builder("billing").policies(Retry::exponential()).clock(&clock).build().unwrap();
//! let http = Client::build(reqwest::Client::builder().no_proxy(), billing).unwrap();
//!
//! // The server at `url` answers 503 with `Retry-After: 20`, and then 200.
//! let start = clock.now();
//! let sent = tokio::spawn(http.get(url).send());
//! while !sent.is_finished() {
//!     // Lets the network run, and moves the time on when something waits for it.
//!     tokio::task::yield_now().await;
//!     if clock.sleepers() > 0 {
//!         clock.advance(Duration::from_secs(1));
//!     }
//! }
//! assert_eq!(sent.await.unwrap().unwrap().status(), 200);
//! assert!(clock.now().since(start).as_secs() >= 20);
//! # }
//! # #[cfg(not(feature = "test-util"))]
//! # fn main() {}
//! ```
//!
//! Do not use the paused clock of tokio for it: it moves on by itself while only sockets are waited for, and fires every limit.
//! reqwest's own timeouts are on tokio's clock, whatever that of the executor is. A response without any server is
//! `reqwest::Response::from(http::Response::new("body"))`: functions that take a response can be tested with it.
//!
//! [`Timeout`]: crate::Timeout
//! [`covering_body`]: crate::Timeout::covering_body
//! [`buffered`]: RequestBuilder::buffered
//! [`body_with`]: RequestBuilder::body_with

mod body;
mod buffer;
mod client;
mod error;
mod judge;
mod operation;
mod options;
mod request;
mod response;
mod upload;

pub use self::client::Client;
pub use self::error::Error;
pub use self::request::{RequestBuilder, RequestBuilderExt};
pub use crate::http::{BodyError, BodyTimeout, DEFAULT_IDLE_LIMIT, NotRepeated, ResponseExt};
