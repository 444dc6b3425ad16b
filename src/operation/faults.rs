//! Errors that say what they are worth at the place where they arise.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use pin_project::pin_project;

use crate::attempt::Attempt;
use crate::outcome::Outcome;
use crate::verdict::Verdict;

/// An error of an operation, marked with what it is worth. The marker never reaches the caller.
///
/// A plain error becomes `Transient` through `?`; [`FaultExt`] marks one otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault<E> {
    /// The dependency failed; another attempt may help.
    Transient(E),
    /// The dependency failed; another attempt must not be made.
    Fatal(E),
    /// The dependency answered; another attempt cannot change the answer.
    Permanent(E),
    /// The dependency is alive and asks for less, for as long as given.
    Throttled(E, Option<Duration>),
    /// A local error that says nothing about the dependency.
    Ignored(E),
}

impl<E> From<E> for Fault<E> {
    fn from(error: E) -> Fault<E> {
        Fault::Transient(error)
    }
}

impl<E> Fault<E> {
    fn judged<T>(self) -> Outcome<T, E> {
        match self {
            Fault::Transient(error) => Outcome::failed(error, Verdict::Transient),
            Fault::Fatal(error) => Outcome::failed(error, Verdict::Fatal),
            Fault::Permanent(error) => Outcome::failed(error, Verdict::Permanent),
            Fault::Throttled(error, retry_after) => Outcome::failed(error, Verdict::Throttled { retry_after }),
            Fault::Ignored(error) => Outcome::failed(error, Verdict::Ignored),
        }
    }
}

/// For a function that is not async, whose errors say what they are worth:
/// `executor.run_blocking(|_| Outcome::from(read().permanent()))`.
impl<T, E> From<Result<T, Fault<E>>> for Outcome<T, E> {
    #[inline]
    fn from(answer: Result<T, Fault<E>>) -> Outcome<T, E> {
        match answer {
            Ok(value) => Outcome::success(value),
            Err(fault) => fault.judged(),
        }
    }
}

/// Marks the error of any `Result` with what it is worth, converting it on the way.
pub trait FaultExt<T, X>: Sized {
    /// The dependency failed; another attempt may help. What `?` does by itself.
    ///
    /// # Errors
    /// The error, marked.
    fn transient<E: From<X>>(self) -> Result<T, Fault<E>>;

    /// The dependency failed; another attempt must not be made.
    ///
    /// # Errors
    /// The error, marked.
    fn fatal<E: From<X>>(self) -> Result<T, Fault<E>>;

    /// The dependency answered; another attempt cannot change the answer.
    ///
    /// # Errors
    /// The error, marked.
    fn permanent<E: From<X>>(self) -> Result<T, Fault<E>>;

    /// The dependency asks to be left alone for `retry_after`, or for a while if that is `None`.
    ///
    /// # Errors
    /// The error, marked.
    fn throttled<E: From<X>>(self, retry_after: impl Into<Option<Duration>>) -> Result<T, Fault<E>>;

    /// A local error that says nothing about the dependency.
    ///
    /// # Errors
    /// The error, marked.
    fn ignored<E: From<X>>(self) -> Result<T, Fault<E>>;
}

impl<T, X> FaultExt<T, X> for Result<T, X> {
    fn transient<E: From<X>>(self) -> Result<T, Fault<E>> {
        self.map_err(|error| Fault::Transient(error.into()))
    }

    fn fatal<E: From<X>>(self) -> Result<T, Fault<E>> {
        self.map_err(|error| Fault::Fatal(error.into()))
    }

    fn permanent<E: From<X>>(self) -> Result<T, Fault<E>> {
        self.map_err(|error| Fault::Permanent(error.into()))
    }

    fn throttled<E: From<X>>(self, retry_after: impl Into<Option<Duration>>) -> Result<T, Fault<E>> {
        self.map_err(|error| Fault::Throttled(error.into(), retry_after.into()))
    }

    fn ignored<E: From<X>>(self) -> Result<T, Fault<E>> {
        self.map_err(|error| Fault::Ignored(error.into()))
    }
}

/// Lets a closure say what its errors are worth: it returns `Result<T, Fault<E>>`, its caller gets plain `E`s.
///
/// ```
/// # use steadfast::{Context, Retry, try_do};
/// use steadfast::operation::{Fault, FaultExt, faults};
///
/// # let clock = steadfast::clock::Clock::manual();
/// # clock.block_on(async {
/// # let cx = Context::new().with_clock(&clock);
/// let parse = faults(|_| async { "seven".parse::<u32>().permanent() });
/// let error: steadfast::Error<std::num::ParseIntError> = try_do(&cx, parse, Retry::exponential()).await.unwrap_err();
/// assert_eq!(error.attempts(), 1);
/// # });
/// ```
pub fn faults<T, E, F, Fut>(f: F) -> impl Fn(Attempt) -> Faults<Fut>
where
    F: Fn(Attempt) -> Fut,
    Fut: Future<Output = Result<T, Fault<E>>>,
{
    move |attempt| Faults { future: f(attempt) }
}

/// The future of a closure behind [`faults`].
#[pin_project]
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct Faults<F> {
    #[pin]
    future: F,
}

impl<T, E, F: Future<Output = Result<T, Fault<E>>>> Future for Faults<F> {
    type Output = Outcome<T, E>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Outcome<T, E>> {
        self.project().future.poll(cx).map(Outcome::from)
    }
}
