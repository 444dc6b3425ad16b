//! Layers for servers: a rate limit for each client, so many requests at a time, and deadlines that are passed on.
//!
//! They are tower layers around any service of `http` requests and responses, so they fit axum, tonic and hyper alike, over
//! HTTP/1 and HTTP/2. A request is answered in its own terms: one whose content type is `application/grpc` in those of gRPC.
//!
//! | layer | refuses | HTTP | gRPC |
//! |---|---|---|---|
//! | [`RateLimitLayer`] | more than the rate of the request's [`Key`] | 429, `Retry-After`: the exact time | RESOURCE_EXHAUSTED, pushback |
//! | [`BulkheadLayer`] | more than so many at a time | 503, `Retry-After`: [1 s](DEFAULT_RETRY_AFTER) unless set | UNAVAILABLE, pushback |
//! | [`DeadlineLayer`] | what takes longer than its client waits | 504 | DEADLINE_EXCEEDED, also in the trailers of a stream |
//! | any of them, misconfigured | everything; ask `check()` when the server starts | 500 | INTERNAL |
//!
//! `Retry-After` is in whole seconds, rounded up. The pushback of gRPC is `grpc-retry-pushback-ms`, in milliseconds, rounded up;
//! -1, never, for what weighs more than the limit ever has. A refusal has no body. It has the
//! [`Refusal`](crate::Refusal) in its extensions, so that a layer outside can write a body of your own, count it, or log it.
//!
//! # Example: axum
//! ```
//! # #[cfg(feature = "axum")]
//! # fn example() -> Result<(), steadfast::ConfigError> {
//! use std::net::SocketAddr;
//! use std::time::Duration;
//! use axum::{Extension, Router, routing::get};
//! use steadfast::limit::RateLimiterConfig;
//! use steadfast::server::{BulkheadLayer, DeadlineLayer, Key, RateLimitLayer};
//! use steadfast::{Bulkhead, Context, Keyed, RateLimiter};
//!
//! let limits = Keyed::<RateLimiter>::new(RateLimiterConfig::per_second(10).burst(20));
//! let rate_limit = RateLimitLayer::new(limits, Key::connect_info());
//! let at_a_time = BulkheadLayer::new(Bulkhead::new(100));
//! let deadline = DeadlineLayer::new().default_limit(Duration::from_secs(10));
//! rate_limit.check()?;
//!
//! // What the client has left, for the calls that answering it takes: `executor.run_with(&cx, …)`.
//! let handler = |Extension(cx): Extension<Context>| async move { format!("{:?} left", cx.remaining()) };
//! let app: Router = Router::new().route("/", get(handler)).layer(at_a_time).layer(rate_limit).layer(deadline);
//! let service = app.into_make_service_with_connect_info::<SocketAddr>();
//! // axum::serve(listener, service).await
//! # drop(service);
//! # Ok(())
//! # }
//! # #[cfg(feature = "axum")]
//! # example().unwrap();
//! ```
//!
//! # Order
//! The last layer that is added to an axum `Router` is the outermost; in tower's `ServiceBuilder` and tonic's `Server::builder()` it
//! is the first. From the outside in: deadline, rate limit, bulkhead. Then the deadline covers the waits, a request that waits
//! is not waited for longer than its client does, and who comes too often takes no permit.
//!
//! # What a client that leaves leaves behind
//! Nothing. A server drops the work for a client that has gone: hyper does as soon as the stream (HTTP/2) or the connection
//! (HTTP/1) is closed. A request that waits is then out of line at once, one that is served gives its permit back, and its
//! context is cancelled. Over HTTP/1 hyper sees the end of a connection only once it has read the request to its end; a client
//! that leaves in the middle of an upload is noticed by whoever reads that.
//!
//! # Ready and called
//! Every decision is made when a request is there, in `call`. Being ready reserves nothing here, and says no more than that the
//! service inside is ready: its back-pressure passes through. The instance that was polled ready is the one that is called.
//! A request that waits takes that instance along, with whatever it has reserved, and leaves a clone. So a layer whose requests may wait
//! goes inside of one that reserves in `poll_ready`, such as tower's `ConcurrencyLimit`, and not around it: there the waiting would
//! hold the places of all others.
//!
//! # tonic
//! `tonic::transport::Server::builder().layer(…)`. The address of the peer is in its `TcpConnectInfo`:
//!
//! ```
//! use steadfast::server::Key;
//! use tonic::transport::server::TcpConnectInfo;
//!
//! let key = Key::address(|head| head.extensions.get::<TcpConnectInfo>()?.remote_addr().map(|peer| peer.ip()));
//! # assert!(key.check().is_ok());
//! ```
//!
//! tonic reads `grpc-timeout` as well, starts its own timer a moment earlier, and answers CANCELLED with it. Where that comes
//! first depends on a millisecond, and few clients wait for either answer.
//!
//! # Testing
//! The layers run on the clock that they are given. On [`Clock::manual`](crate::Clock) (feature `test-util`) limits and waits take
//! no time, also in a test with a real server.

mod answer;
mod asked;
mod body;
mod bulkhead;
mod deadline;
mod gate;
mod key;
mod rate_limit;
mod service;

pub use self::body::Body;
pub use self::bulkhead::{BulkheadLayer, DEFAULT_RETRY_AFTER};
pub use self::deadline::DeadlineLayer;
pub use self::key::{DEFAULT_IPV6_PREFIX, Key};
pub use self::rate_limit::{MAX_KEY_LEN, RateLimitLayer};
pub use self::service::{Guarded, ResponseFuture};
