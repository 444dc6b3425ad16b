//! HTTP with reqwest: a client that sends every request through a chain, and hands out responses whose bodies stay guarded.
//!
//! ```no_run
//! use std::time::Duration;
//! use steadfast::{Context, Executor, Retry, Timeout};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
//! let billing = Executor::builder("billing").policies((Retry::exponential(), Timeout::secs(2))).build()?;
//! let http = steadfast::reqwest::Client::new(reqwest::Client::new(), billing);
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
//! | no connection, a broken one, a timeout | `Transient` |
//! | HTTP/2 ENHANCE_YOUR_CALM | `Throttled` |
//! | a redirect loop, a failed TLS handshake, a body that cannot be decoded | `Permanent` |
//! | a request that cannot be built, a request body that failed | `Ignored` |
//!
//! A response is always returned as one: if the last of three attempts is answered 503, the caller gets that 503 with its
//! body. An open breaker, a timeout or a broken connection is an [`Error`].
//!
//! Retry-After is whole seconds or an HTTP date, which counts from the wall clock of the executor; a date that has passed
//! means at once, and a number too large to read means too long. Anything else is as good as no header. Of several headers
//! the first that makes sense counts.
//!
//! # Which requests are sent again
//!
//! Judgement is one question, repetition another. A request whose exchange was worth another attempt is sent again
//!
//! * if its method is idempotent: GET, HEAD, OPTIONS, TRACE, PUT, DELETE;
//! * if it carries an `Idempotency-Key`, which the server promises to look at;
//! * if the caller says so, with [`idempotent(true)`](RequestBuilder::idempotent) (and `false` takes the two above away);
//! * if the server has done nothing: it answered 429, or provably got nothing of the request. That is so if no connection
//!   was made, if the connection was closed before the request was written, and if an HTTP/2 server refused the stream or
//!   closed the connection to it with GOAWAY. A timeout, a reset and an incomplete answer prove nothing.
//!
//! So a POST that is answered 503 is a failure for a breaker, and is not sent again. A request whose body is a stream is
//! sent once, always. A response that was worth another attempt but got none for these reasons says why with
//! [`ResponseExt::not_repeated`].
//!
//! reqwest does not tell whether it followed a redirect before a connection failed. Where a server answers a POST with a
//! redirect *to another host* and the POST must not be made twice, build the client with
//! `redirect(reqwest::redirect::Policy::none())`. And it repeats requests by itself that an HTTP/2 server has refused:
//! build it with `retry(reqwest::retry::never())`, so that the chain sees every one of them.
//!
//! # What a time limit covers
//!
//! | limit | attempt up to its headers | waits in between | body |
//! |---|---|---|---|
//! | [`Timeout`](crate::Timeout) inside a retry | yes | | |
//! | [`Timeout`](crate::Timeout) outside of a retry | yes | yes | |
//! | deadline of the [`Context`](crate::Context) | yes | yes | yes |
//! | [`DEFAULT_IDLE_LIMIT`], without data | | | yes, but not of `text/event-stream` |
//! | [`timeout`](RequestBuilder::timeout), reqwest's own | yes | | yes |
//!
//! A policy that has done its work never ends the body of the response that it has let through.
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
//! The three are one value in the extensions of the response, [`ResponseExt::cancellation`]: to hand on to work that is
//! done with the body, or to end this body alone. A response that is held and not read keeps its connection: it notices
//! its end when it is read or dropped.

mod body;
mod causes;
mod client;
mod error;
mod judge;
mod operation;
mod repeat;
mod request;
mod response;
mod retry_after;

pub use self::client::Client;
pub use self::error::{BodyError, Error};
pub use self::request::{RequestBuilder, RequestBuilderExt};
pub use self::response::{DEFAULT_IDLE_LIMIT, NotRepeated, ResponseExt};
