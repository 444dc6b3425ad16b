//! Keeps a program that calls an unreliable dependency correct, fast and polite: retry, hedge, timeout, circuit breaker, limits
//! and the judgement of outcomes, composed in one chain that shares one clock, one verdict on every outcome and one story of
//! cancellation.
//!
//! # Once: a context, an operation, policies from the outside in
//! ```
//! use std::time::Duration;
//! use steadfast::{Context, Retry, Timeout, try_do};
//!
//! # async fn fetch_user(id: u32) -> Result<u32, std::io::Error> { Ok(id) }
//! # let clock = steadfast::clock::Clock::manual();
//! # clock.block_on(async {
//! let cx = Context::new().with_timeout(Duration::from_secs(10));
//! # let cx = cx.with_clock(&clock);
//! let policies = (Retry::exponential(), Timeout::new(Duration::from_secs(2)));
//! let user = try_do(&cx, |_| fetch_user(7), policies).await?;
//! # assert_eq!(user, 7);
//! # Ok::<_, steadfast::Error<std::io::Error>>(())
//! # }).unwrap();
//! ```
//!
//! # Per dependency: build once, clone freely, share across tasks
//! ```
//! use std::time::Duration;
//! use steadfast::{Breaker, Executor, Retry, Timeout, op};
//!
//! # #[derive(Debug)] struct Down { is_transient: bool }
//! # async fn invoice(id: u32) -> Result<u32, Down> { Ok(id) }
//! # let clock = steadfast::clock::Clock::manual();
//! # clock.block_on(async {
//! let billing = Executor::builder("billing")
//!     .policies((Retry::exponential(), Breaker::default(), Timeout::new(Duration::from_secs(2))))
//! #   .clock(&clock)
//!     .build()?;
//! let first = billing.run(|_| invoice(7)).await;
//! let again = billing.run_op(op(|_| invoice(7)).retry_if(|e| e.is_transient)).await;
//! # assert_eq!((first.unwrap(), again.unwrap()), (7, 7));
//! # Ok::<_, steadfast::ConfigError>(())
//! # }).unwrap();
//! ```
//!
//! # What happens to a call
//! A call goes through the policies from the outside in, ends at the operation, and its [`Outcome`](policy::Outcome) goes
//! back outwards. It is judged once, where it arises; every policy reads that [`Verdict`]. A plain closure's `Ok` is a
//! success and any `Err` is taken to be worth another attempt: **tell the library which errors are permanent**, see
//! [`operation`].
//!
//! The order of policies is what they mean. `(Retry, Breaker, Timeout)` limits and counts every attempt; a `Timeout` outside
//! of the `Retry` limits the whole. A breaker outside of a retry would see only what the retry could not mend.
//!
//! The caller's [`Context`] carries a deadline and a token. Whatever is asked from outside (a cancelled token, a deadline,
//! [`Executor::shutdown`], a dropped future) ends a call in the middle of an attempt or of a wait, gives back what it holds,
//! and attaches the last error of the operation. A success that is ready is never thrown away.
//!
//! # In production
//! The [`guide`] has pages on the order of policies, on choosing numbers, on time limits, on cancelling, on tests, and for those who
//! come from another library.
//!
//! [`Executor::standard`] builds the recommended chain in one line; its numbers can come from a file, and change while calls go
//! on: see [`standard`]. A [`Registry`] has an executor for each dependency, from one configuration.
//! [`Executor::snapshot`] shows what all policies are doing.
//!
//! Code that is not async goes through the same chains with [`Executor::run_blocking`]. What a caller gets in the place of a failure
//! is a [`Fallback`]; what a program does when a dependency fails can be seen before it does with [`Chaos`].
//!
//! # If the compiler says it is not `Fn`
//! An operation is called once for every attempt, so it is a `Fn` closure.
//!
//! * *"closure is `FnOnce` because it moves …"*: drop the `move`, and let the future borrow: `|_| client.get(&url)`.
//! * *"async closure does not implement `Fn` because it captures state"*: `async move |_| …` takes what it captures with it.
//!   Write `async |_| …`, or clone inside: `|_| { let body = body.clone(); async move { … } }`.
//! * *"cannot assign to …, as it is a captured variable in a `Fn` closure"*: count with an atomic, or keep the state with
//!   [`operation::with_state`], which lends it to one attempt at a time.
//!
//! The future of an operation must be `Send`: that is what makes boxed policies, `tokio::spawn` and generic callers
//! possible. Operations that hold an `Rc`, or run on a single-threaded wasm host, are not served.
//!
//! # Time
//! Every policy takes its time from the call, so all of a chain runs on one [`Clock`]: tokio's by default (a paused
//! runtime works), a faster one that reads the processor's counter, one that moves only when a test says so, or your own.
//! The examples on these pages run on a manual clock and take no time.
//!
//! # Features
//! All add, none is on by default: `reqwest` (a client whose responses stay guarded while their bodies are read), `tower` (a layer
//! around any service), `tonic` (gRPC: statuses that know their verdict, and a layer for clients), `server` (layers for hyper, tonic
//! and axum: keyed rate limits, bulkheads, deadlines), `axum` (what takes axum's own types), `tracing` and `metrics` (observers),
//! `serde` (settings from files, [`snapshot`]s as data), `fast-clock` ([`Clock`]`::fast`), `test-util` ([`Clock`]`::manual`), `full`.
#![forbid(unsafe_code)]
#![deny(missing_docs)]
#![cfg_attr(docsrs, feature(doc_cfg))]
// Pages speak of what features add. With all of them, as on docs.rs, each link is checked.
#![cfg_attr(not(feature = "full"), allow(rustdoc::broken_intra_doc_links, reason = "see above"))]

// In the order in which a call meets them; a module imports only modules that are listed below it.
pub mod guide;
#[cfg(feature = "server")]
pub mod server;
#[cfg(feature = "reqwest")]
pub mod reqwest;
#[cfg(feature = "tonic")]
pub mod tonic;
#[cfg(feature = "tower")]
pub mod tower;
#[cfg(any(feature = "reqwest", feature = "tower"))]
#[cfg_attr(
    not(all(feature = "reqwest", feature = "tower")),
    allow(dead_code, unused_imports, reason = "each adapter to HTTP uses a part of it")
)]
mod http;
#[cfg(feature = "metrics")]
pub mod metrics;
pub mod registry;
pub mod standard;
mod blocking;
pub mod executor;
#[cfg(feature = "tracing")]
pub mod tracing;
mod drive;
pub mod chain;
pub mod retry;
pub mod hedge;
pub mod timeout;
pub mod breaker;
pub mod limit;
pub mod fallback;
pub mod chaos;
pub mod operation;
pub mod judge;
pub mod keyed;
pub mod policy;
mod run;
mod outcome;
pub mod event;
mod transition;
mod context;
mod attempt;
mod cancel;
mod life;
pub mod budget;
pub mod snapshot;
pub mod error;
mod verdict;
mod window;
pub mod clock;
mod rng;
mod turnstile;
mod shield;
#[cfg(feature = "serde")]
mod document;
mod sync;

pub use tokio_util::sync::CancellationToken;

pub use self::attempt::Attempt;
pub use self::breaker::Breaker;
pub use self::budget::Budget;
pub use self::cancel::{Cancellation, Cause};
pub use self::chaos::Chaos;
pub use self::clock::Clock;
pub use self::context::{Context, Priority};
pub use self::drive::{try_do, try_op};
pub use self::error::{ConfigError, Error, Refusal};
pub use self::executor::Executor;
pub use self::fallback::{Fallback, fallback};
pub use self::hedge::Hedge;
pub use self::keyed::Keyed;
pub use self::limit::{Bulkhead, RateLimiter};
pub use self::operation::{faults, op};
pub use self::policy::Policy;
pub use self::registry::Registry;
pub use self::retry::Retry;
pub use self::standard::StandardChain;
pub use self::timeout::Timeout;
pub use self::verdict::{Classified, Verdict};
