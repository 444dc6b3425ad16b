//! How a try ended, as it travels outwards through the policies.

use std::fmt;
use std::time::Duration;

use crate::clock::Moment;
use crate::error::{Error, Kind};
use crate::verdict::Verdict;
pub(crate) use crate::verdict::{Mark, Ruling};

/// How a try ended: the result, the one verdict on it, and what travels along.
///
/// A policy hands an outcome on as it is, or makes a new one. The result of a [`Verdict::Success`] need not be `Ok`, and
/// an `Ok` may be a failure (a response with status 503): policies read the verdict.
#[must_use]
pub struct Outcome<T, E> {
    /// What the caller gets if no policy decides otherwise.
    pub result: Result<T, Error<E>>,
    pub(crate) ruling: Ruling,
    pub(crate) tail: Tail,
}

impl<T, E> Outcome<T, E> {
    /// The dependency did what was asked.
    #[inline(always)]
    pub fn success(value: T) -> Outcome<T, E> {
        Outcome::new(Ok(value), Verdict::Success)
    }

    /// The operation ended with `error`, which is worth the `verdict`.
    // All of these inline: the error of a failure is made out of line and comes back in a register. An outcome that came back
    // through memory would be copied, at each layer, in other pieces than it was written in.
    #[inline(always)]
    pub fn failed(error: E, verdict: Verdict) -> Outcome<T, E> {
        Outcome::new(Err(Error::failed(error)), verdict)
    }

    /// A policy refuses the call: nothing was sent.
    #[inline(always)]
    pub fn rejected(error: Error<E>) -> Outcome<T, E> {
        let retry_after = error.retry_after();
        Outcome::new(Err(error), Verdict::Rejected { retry_after })
    }

    /// Any result with any verdict.
    #[inline(always)]
    pub fn new(result: Result<T, Error<E>>, verdict: Verdict) -> Outcome<T, E> {
        Outcome { result, ruling: Ruling::of(verdict), tail: Tail::default() }
    }

    /// The judgement, made where the outcome arose. A wait in it that is longer than eighteen years is for ever, `Duration::MAX`.
    #[must_use]
    #[inline]
    pub fn verdict(&self) -> Verdict {
        self.ruling.verdict()
    }

    /// Judges anew. Whether further attempts are forbidden stays as it was.
    #[inline]
    pub fn set_verdict(&mut self, verdict: Verdict) {
        self.ruling = self.ruling.with_verdict(verdict);
    }

    /// Forbids further attempts in this run, whatever the verdict says.
    #[inline(always)]
    pub fn stop(mut self) -> Outcome<T, E> {
        self.set_mark(Mark::Stop);
        self
    }

    /// Whether further attempts are forbidden.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        matches!(self.mark(), Mark::Stop | Mark::Ended)
    }

    /// What finished policies left behind for the time after the run.
    pub fn tail_mut(&mut self) -> &mut Tail {
        &mut self.tail
    }

    pub(crate) fn mark(&self) -> Mark {
        self.ruling.mark()
    }

    pub(crate) fn set_mark(&mut self, mark: Mark) {
        self.ruling = self.ruling.with_mark(mark);
    }

    /// The same outcome with other types.
    pub(crate) fn map<U, F>(self, value: impl FnOnce(T) -> U, error: impl FnMut(E) -> F) -> Outcome<U, F> {
        let Outcome { result, ruling, tail } = self;
        let result = match result {
            Ok(inner) => Ok(value(inner)),
            Err(inner) => Err(inner.map(error)),
        };
        Outcome { result, ruling, tail }
    }

    /// The run is being ended from outside by `kind`; an error of the operation stays attached, and says nothing about
    /// the dependency any more.
    pub(crate) fn end(mut self, kind: Kind) -> Outcome<T, E> {
        if let Err(error) = &mut self.result {
            error.set_kind(kind);
            self.set_verdict(Verdict::Ignored);
        }
        self.set_mark(Mark::Ended);
        self
    }
}

impl<T: fmt::Debug, E: fmt::Debug> fmt::Debug for Outcome<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outcome")
            .field("result", &self.result)
            .field("verdict", &self.verdict())
            .finish_non_exhaustive()
    }
}

/// What finished policies leave behind for a result that outlives its run, such as the body of a response: permits, recorders
/// of a late failure, a limit that goes on. It is one word, and empty unless an adapter asked with [`Call::streams`].
///
/// It travels with its outcome. A tail that is dropped ends with [`End::Dropped`].
///
/// [`Call::streams`]: crate::policy::Call::streams
#[derive(Default)]
pub struct Tail(Option<Box<Guards>>);

#[derive(Default)]
struct Guards {
    list: Vec<Box<dyn Guard>>,
    /// When the result has to have ended, and the limit that says so.
    limit: Option<(Moment, Duration)>,
}

/// Held until a result that outlives its run has ended.
pub trait Guard: Send + Sync + 'static {
    /// The result has ended. Called once, while no lock is held.
    fn end(&mut self, end: End);
}

/// How a result that outlives its run has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum End {
    /// It was read to its end.
    Complete,
    /// The dependency failed while it was read.
    Failed,
    /// A time limit ended it.
    TimedOut,
    /// The caller or a shutdown ended it.
    Cancelled,
    /// It was dropped before its end.
    Dropped,
}

impl Tail {
    /// Whether nothing was left behind.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Adds a guard, which is told of the end before those that are there already.
    pub fn push(&mut self, guard: impl Guard) {
        self.0.get_or_insert_default().list.push(Box::new(guard));
    }

    /// Ends the result at `at` if it has not ended by itself, and tells its reader that `limit` has passed. Of several the
    /// earliest counts.
    pub fn end_at(&mut self, at: Moment, limit: Duration) {
        let earliest = &mut self.0.get_or_insert_default().limit;
        if earliest.is_none_or(|(earlier, _)| at < earlier) {
            *earliest = Some((at, limit));
        }
    }

    /// When the result has to have ended, and the limit that says so.
    #[cfg_attr(
        not(any(feature = "reqwest", feature = "tower")),
        allow(dead_code, reason = "only adapters hold what outlives a run")
    )]
    pub(crate) fn limit(&self) -> Option<(Moment, Duration)> {
        self.0.as_ref()?.limit
    }

    /// Takes the tail out, to hold it for as long as the result lives.
    #[must_use]
    pub fn take(&mut self) -> Tail {
        Tail(self.0.take())
    }

    /// Tells every guard how the result ended, the outermost policy's first.
    pub fn end(mut self, end: End) {
        if let Some(guards) = self.0.take() {
            guards.end(end);
        }
    }
}

impl Guards {
    #[cold]
    #[expect(clippy::boxed_local, reason = "taken out of its outcome as it is, by its address")]
    fn end(self: Box<Guards>, end: End) {
        for mut guard in self.list.into_iter().rev() {
            guard.end(end);
        }
    }
}

impl Drop for Tail {
    // The box is taken out first: a reference to `self` would keep every outcome in memory, also without a tail.
    #[inline(always)]
    fn drop(&mut self) {
        if let Some(guards) = self.0.take() {
            guards.end(End::Dropped);
        }
    }
}

impl fmt::Debug for Tail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} guards", self.0.as_ref().map_or(0, |guards| guards.list.len()))
    }
}
