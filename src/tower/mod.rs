//! tower: a layer that puts a chain around any [`Service`](tower_service::Service).
//!
//! ```
//! use steadfast::{Executor, Retry, Timeout, error::{BoxError, Opaque}, tower::Layer};
//! use tower::{Service, ServiceBuilder, ServiceExt};
//!
//! # let clock = steadfast::clock::Clock::manual();
//! # clock.block_on(async {
//! let search = Executor::builder("search").policies((Retry::exponential(), Timeout::secs(2)));
//! # let search = search.clock(&clock);
//! let mut service = ServiceBuilder::new()
//!     .layer(Layer::new(search.build()?))
//!     .concurrency_limit(8)
//!     .service_fn(|query: String| async move {
//!         if query.is_empty() { Err("busy") } else { Ok(format!("all about {query}")) }
//!     });
//! let found = service.ready().await?.call("tides".to_owned()).await?;
//! assert_eq!(found, "all about tides");
//!
//! let error: BoxError = service.ready().await?.call(String::new()).await.unwrap_err();
//! let error = error.downcast_ref::<steadfast::Error<Opaque>>().unwrap();
//! assert_eq!(error.attempts(), 3);
//! # Ok::<_, BoxError>(())
//! # }).unwrap();
//! ```
//!
//! The chain is any [`Executor`](crate::Executor), typed or [erased](crate::Executor::erase), and does here what it does
//! anywhere else; the layer adds no policy of its own. One executor may be behind layers, clients and closures at once.
//!
//! # Which layer goes where
//! What is outside of the layer sees one call, what is inside of it sees every attempt: a concurrency limit inside counts
//! attempts, outside calls. tower's `Timeout` outside counts neither the time in which a service gets ready, nor does it say
//! to the chain why a call is given up, so its breaker takes such calls for abandoned ones; a [`Timeout`](crate::Timeout) in the
//! chain, or a deadline in the [`Context`](crate::Context), does.
//!
//! # Readiness
//! Back-pressure passes through: the service is ready when the one inside is. The instance that was polled ready is the one
//! that the first attempt calls, and every further attempt polls a clone of its own; see [`Service`]. Policies decide in the
//! call, never in `poll_ready`: an open breaker refuses calls at once, and a full bulkhead has a line of its own.
//!
//! tower's `LoadShed` outside of a limit has a fault that no layer in between can mend: an instance that was asked, was not
//! ready and is kept holds on to its turn. A [`Bulkhead`](crate::Bulkhead) refuses without one.
//!
//! # What the caller brings
//! A [`Context`](crate::Context) with a deadline, a token or a key comes with each request: from a function
//! ([`Layer::with_context`]), or for HTTP from the extensions of the request.
//!
//! # Errors
//! An error is a [`BoxError`](crate::error::BoxError) that holds an [`Error`](crate::Error)`<`[`Opaque`](crate::error::Opaque)`>`,
//! as above, or with [`Layer::typed`] an `Error` of the error of the service inside. What the service inside says in
//! `poll_ready` is an `Error` too.
//!
//! Every error is taken to be worth another attempt, but for one that comes from a chain further inside, which knows better.
//! **Say which errors are permanent**, with a judging policy innermost in the chain, or with [`Layer::judge`] where the
//! executor is erased.
//!
//! # Requests that are sent again
//! A request has to be [copied](CloneRequest) for that. Whatever is `Clone` can be; of a request that cannot, the first
//! attempt gets the request itself, and there is no other. The answer to such a call is that of the one attempt.
//!
//! # HTTP
//! [`Layer::http`], or [`Http`] with settings, is for `http::Request` and `http::Response`:
//!
//! | what came | verdict |
//! |---|---|
//! | below 400 | `Success`, whatever its headers say |
//! | 429; any other 4xx or 5xx with a Retry-After that makes sense | `Throttled` |
//! | 408, 5xx other than 501 | `Transient` |
//! | 501, other 4xx | `Permanent` |
//! | an error | `Transient`, unless judged |
//!
//! | request | answered 429, or nothing was sent | any other failure |
//! |---|---|---|
//! | GET, HEAD, OPTIONS, TRACE, PUT, DELETE | again | again |
//! | POST, PATCH, any other | again | not again |
//! | with an `Idempotency-Key`, or [`Idempotent(true)`](Idempotent) in its extensions | again | again |
//! | [`Idempotent(false)`](Idempotent) in its extensions | again | not again |
//! | with a body that cannot be copied (any more) | not again | not again |
//!
//! Which errors prove that nothing was sent is said by [`Http::unsent_if`]. A failing response is returned as one: the last of
//! several, with its body, and with [`not_repeated`](ResponseExt::not_repeated) if it was worth another attempt but got none
//! for these reasons. A response that is given up is read to its end within the wait, if it is short and not HTTP/2, so that
//! its connection can be used again.
//!
//! Bodies that are `Clone` (`Full<Bytes>`, `String`) are copied. One that is not is wrapped into a [`Replay`], which remembers
//! up to 64 KiB while it is sent for the first time; a longer one is sent once, whole.
//!
//! The response has a [`Body`] around its own: it ends when the caller's token, deadline or the executor's shutdown ask for it,
//! or after 30 s without data ([`Http::body_timeout`]; `text/event-stream` has no limit), and holds what the chain has left to
//! it to its end: the permit of a [`Bulkhead`](crate::Bulkhead), the record of a late failure in a [`Breaker`](crate::Breaker), a
//! [`Timeout`](crate::Timeout) that [covers it](crate::Timeout::covering_body). Its merged token is
//! [`cancellation`](ResponseExt::cancellation).
//!
//! The request of each attempt has its [`Attempt`](crate::Attempt) in the extensions, for services inside that pass a deadline
//! on or number their attempts.

mod body;
mod clone_request;
mod exchange;
mod http;
mod instances;
mod layer;
mod plain;
mod protocol;
mod replay;
mod service;
mod shelf;
mod wrap;

pub use self::body::Body;
pub use self::clone_request::CloneRequest;
#[cfg(feature = "tonic")]
pub(crate) use self::clone_request::Template;
#[cfg(feature = "tonic")]
pub(crate) use self::http::Whole;
pub use self::http::{Http, Idempotent};
pub use self::layer::Layer;
pub use self::plain::Plain;
#[cfg(feature = "tonic")]
pub(crate) use self::protocol::{Protocol, Report, Requests};
pub use self::replay::{DEFAULT_REPLAY_LIMIT, Replay};
pub use self::service::Service;
pub use self::wrap::{Ruled, Typed, WithContext};
pub use crate::http::{BodyError, BodyTimeout, DEFAULT_IDLE_LIMIT, NotRepeated, ResponseExt};
