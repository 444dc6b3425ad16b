//! Streams, whose failures show long after the call that opened them.

use std::borrow::Borrow;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures::Stream;
use pin_project::pin_project;

use super::handle::Breaker;
use super::permit::Permit;
use crate::verdict::Verdict;

impl Breaker {
    /// Records the errors of a stream that was opened by a call through this breaker.
    ///
    /// That the stream could be opened was the verdict on the call, and ended a trial: a healthy stream that lasts for days
    /// keeps no place, and neither does one that its caller drops. What fails later is recorded out of band, like
    /// [`record`](Breaker::record), and so opens a closed breaker by its rule.
    ///
    /// `classify` says what an error is worth; [`Classified::verdict`](crate::Classified::verdict) fits errors that know.
    /// `Transient` and `Fatal` are failures, `Throttled` may pause the breaker, and all else is not about the dependency's
    /// connection and says nothing. Items are not counted: a stream of thousands is one call.
    ///
    /// ```
    /// use std::io::{Error, ErrorKind};
    /// use futures::{StreamExt, stream};
    /// use steadfast::{Breaker, Classified};
    ///
    /// # let clock = steadfast::clock::Clock::manual();
    /// # clock.block_on(async {
    /// let breaker = Breaker::default();
    /// # breaker.bind(&clock).unwrap();
    /// let items = stream::iter([Ok(1), Err(Error::from(ErrorKind::ConnectionReset)), Err(ErrorKind::NotFound.into())]);
    /// let seen = breaker.guard_stream(items, Classified::verdict).count().await;
    /// assert_eq!((seen, breaker.counts().failures), (3, 1));
    /// # });
    /// ```
    pub fn guard_stream<S, T, E, F>(&self, stream: S, classify: F) -> GuardedStream<S, F>
    where
        S: Stream<Item = Result<T, E>>,
        F: Fn(&E) -> Verdict,
    {
        GuardedStream { stream, classify, breaker: self.clone() }
    }
}

impl<B: Borrow<Breaker>> Permit<B> {
    /// The stream was opened: ends the call as a success, and records what fails later, as
    /// [`Breaker::guard_stream`] does.
    pub fn guard_stream<S, T, E, F>(self, stream: S, classify: F) -> GuardedStream<S, F>
    where
        S: Stream<Item = Result<T, E>>,
        F: Fn(&E) -> Verdict,
    {
        let guarded = self.breaker().guard_stream(stream, classify);
        self.success();
        guarded
    }
}

/// A stream whose errors are recorded by a circuit breaker; from [`Breaker::guard_stream`].
#[pin_project]
#[must_use = "streams do nothing unless polled"]
pub struct GuardedStream<S, F> {
    #[pin]
    stream: S,
    classify: F,
    breaker: Breaker,
}

impl<S, F> GuardedStream<S, F> {
    /// The stream, no longer guarded.
    pub fn into_inner(self) -> S {
        self.stream
    }
}

impl<S, T, E, F> Stream for GuardedStream<S, F>
where
    S: Stream<Item = Result<T, E>>,
    F: Fn(&E) -> Verdict,
{
    type Item = Result<T, E>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<T, E>>> {
        let this = self.project();
        let item = ready!(this.stream.poll_next(cx));
        if let Some(Err(error)) = &item {
            let verdict = (this.classify)(error);
            if verdict.is_failure() || matches!(verdict, Verdict::Throttled { .. }) {
                this.breaker.record(verdict);
            }
        }
        Poll::Ready(item)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.stream.size_hint()
    }
}

impl<S: fmt::Debug, F> fmt::Debug for GuardedStream<S, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GuardedStream")
            .field("stream", &self.stream)
            .field("breaker", &self.breaker)
            .finish_non_exhaustive()
    }
}
