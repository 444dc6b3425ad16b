//! A time limit on what is inside.

#[cfg(feature = "serde")]
mod document;

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use pin_project::pin_project;

use crate::attempt::Attempt;
use crate::clock::{Moment, nanos};
use crate::error::{ConfigError, Error, Kind};
use crate::event::What;
use crate::policy::{Call, Frame, Next, Outcome, Policy, Reason, Settings, Site, Tail};
use crate::run::Alarm;
use crate::snapshot::{PolicySnapshot, TimeoutSnapshot};
use crate::verdict::Verdict;

/// Gives up on what is inside of it after a time: inside of a [`Retry`](crate::Retry) on one attempt, outside on the whole.
///
/// What is inside is *dropped*, so an operation is cut off at its next await. A synchronous piece of work cannot be cut off,
/// and neither can work that the operation has spawned, unless it uses
/// [`with_token`](crate::operation::with_token). A result that is ready in the poll in which the limit is seen wins.
///
/// A limit that is reached is a [`Verdict::Transient`] outcome with [`Kind::TimedOut`]; before the operation was started
/// (in a queue of an inner policy) it is [`Verdict::Rejected`], since the dependency had no part in it.
///
/// It costs nothing but a reading of the clock until the operation is first pending; of several limits around one attempt
/// only the nearest registers a timer.
///
/// ```
/// # use std::time::Duration;
/// # use steadfast::{Context, Timeout, error::Kind, try_do};
/// # let clock = steadfast::clock::Clock::manual();
/// # clock.block_on(async {
/// # let cx = Context::new().with_clock(&clock);
/// let limit = Duration::from_secs(2);
/// let never = try_do(&cx, |_| std::future::pending::<Result<(), String>>(), Timeout::new(limit));
/// assert_eq!(never.await.unwrap_err().kind(), Kind::TimedOut { limit });
/// # });
/// ```
#[derive(Clone)]
#[must_use = "a policy does nothing until it is part of a chain"]
pub struct Timeout(Limit);

#[derive(Clone)]
enum Limit {
    Fixed(Nanos),
    By { limit: Arc<dyn Fn(&Attempt) -> Duration + Send + Sync>, covers_body: bool },
}

impl Timeout {
    /// Gives up after `limit`, which must not be zero; `Duration::MAX`, or more than 292 years, means never.
    pub const fn new(limit: Duration) -> Timeout {
        Timeout(Limit::Fixed(Nanos::of(limit)))
    }

    /// Gives up after `n` seconds.
    pub const fn secs(n: u64) -> Timeout {
        Timeout::new(Duration::from_secs(n))
    }

    /// Gives up after `n` milliseconds.
    pub const fn millis(n: u64) -> Timeout {
        Timeout::new(Duration::from_millis(n))
    }

    /// Gives up after a time that is computed for each call: longer for retries, say. Zero gives up at the first await;
    /// `Duration::MAX` never. A panic in `limit` reaches the caller.
    pub fn with(limit: impl Fn(&Attempt) -> Duration + Send + Sync + 'static) -> Timeout {
        Timeout(Limit::By { limit: Arc::new(limit), covers_body: false })
    }

    /// Covers the body of the response too, where the result of the operation is one: a body that is not read to its end in
    /// time ends with [`Kind::TimedOut`], and is a failure for the breakers inside and around it. Default: the limit has
    /// done its work when the response is there, and never ends its body.
    ///
    /// It does nothing for operations whose result ends with the run.
    pub const fn covering_body(mut self) -> Timeout {
        match &mut self.0 {
            Limit::Fixed(limit) => *limit = limit.covering_body(),
            Limit::By { covers_body, .. } => *covers_body = true,
        }
        self
    }

    /// Refuses a limit that cannot work.
    ///
    /// # Errors
    /// If the limit is zero.
    pub fn check(&self) -> Result<(), ConfigError> {
        match self.0 {
            Limit::Fixed(limit) if limit.get().is_zero() => {
                Err(ConfigError::new("timeout", "0 s", "must be longer than zero"))
            }
            Limit::Fixed(_) | Limit::By { .. } => Ok(()),
        }
    }

    /// Its limit, as data for operators.
    #[must_use]
    pub fn snapshot(&self) -> TimeoutSnapshot {
        let limit = match self.0 {
            Limit::Fixed(limit) => Some(limit.get()),
            Limit::By { .. } => None,
        };
        TimeoutSnapshot { limit, covers_body: self.covers_body() }
    }

    fn covers_body(&self) -> bool {
        match self.0 {
            Limit::Fixed(limit) => limit.covers_body(),
            Limit::By { covers_body, .. } => covers_body,
        }
    }

    #[inline(always)]
    fn limit_of<E>(&self, call: Call<'_, E>) -> Nanos {
        match &self.0 {
            Limit::Fixed(limit) => *limit,
            Limit::By { limit, covers_body } => {
                let limit = Nanos::of(limit(&call.attempt()));
                if *covers_body { limit.covering_body() } else { limit }
            }
        }
    }
}

impl Settings for Timeout {
    fn validate(&self, _: &mut Site<'_>) -> Result<(), ConfigError> {
        self.check()
    }

    fn limit(&self, inner: Option<Duration>) -> Option<Duration> {
        match self.0 {
            Limit::Fixed(limit) if !limit.is_endless() => {
                let limit = limit.get();
                Some(inner.map_or(limit, |inner| inner.min(limit)))
            }
            Limit::Fixed(_) | Limit::By { .. } => inner,
        }
    }

    fn snapshots(&self, all: &mut Vec<PolicySnapshot>) {
        all.push(PolicySnapshot::Timeout(self.snapshot()));
    }
}

impl<T: Send, E: Send> Policy<T, E> for Timeout {
    #[inline(always)]
    fn run<N: Next<T, E>>(&self, call: Call<'_, E>, next: N) -> impl Future<Output = Outcome<T, E>> + Send {
        let limit = self.limit_of(call);
        async move {
            let at = limit.after(call.now());
            let frame = Frame::around(call, at);
            // What is inside is dropped at the end of this statement, after the scope was told why.
            let raced = Limited {
                inner: next.call(call.within(&frame)),
                alarm: Alarm::new(&frame.scope, frame.scope.alarm_at(at)),
            }
            .await;
            match raced {
                Some(mut outcome) => {
                    if limit.covers_body() && call.streams() && outcome.result.is_ok() && !at.is_never() {
                        outcome.tail = cover_body(outcome.tail, at, limit.get());
                    }
                    outcome
                }
                None => {
                    let verdict = if frame.was_started() { STARTED } else { NOT_STARTED };
                    Outcome::new(Err(timed_out(call, limit.get())), verdict)
                }
            }
        }
    }
}

/// A limit, and whether it covers what outlives its run, such as the body of a response: in half the room of a `Duration`, since
/// every future of a chain carries it. More than 292 years is for ever, `Duration::MAX`.
#[derive(Clone, Copy)]
struct Nanos(u64);

impl Nanos {
    const FOR_EVER: u64 = u64::MAX >> 1;
    const COVERS_BODY: u64 = !Nanos::FOR_EVER;

    const fn of(limit: Duration) -> Nanos {
        let nanos = nanos(limit);
        Nanos(if nanos < Nanos::FOR_EVER { nanos } else { Nanos::FOR_EVER })
    }

    const fn covering_body(self) -> Nanos {
        Nanos(self.0 | Nanos::COVERS_BODY)
    }

    #[inline]
    fn covers_body(self) -> bool {
        self.0 & Nanos::COVERS_BODY != 0
    }

    #[inline]
    fn is_endless(self) -> bool {
        self.nanos() == Nanos::FOR_EVER
    }

    fn get(self) -> Duration {
        if self.is_endless() { Duration::MAX } else { Duration::from_nanos(self.nanos()) }
    }

    /// `NEVER` for a limit that is for ever: then the alarm has nothing to wait for.
    #[inline]
    fn after(self, begun: Moment) -> Moment {
        if self.is_endless() { Moment::NEVER } else { Moment::from_nanos(begun.nanos().saturating_add(self.nanos())) }
    }

    #[inline]
    fn nanos(self) -> u64 {
        self.0 & Nanos::FOR_EVER
    }
}

/// The error of a limit that was reached. Not the outcome: a cold function that returns one keeps it in memory on the path
/// that is not cold.
#[cold]
#[inline(never)]
fn timed_out<E>(call: Call<'_, E>, limit: Duration) -> Error<E> {
    call.emit(|| What::TimedOut { limit });
    Error::refused(Kind::TimedOut { limit })
}

/// What a limit is worth that was reached: the dependency had its time, or it was never asked.
const STARTED: Verdict = Verdict::Transient;
const NOT_STARTED: Verdict = Verdict::Rejected { retry_after: None };

/// Leaves the limit behind for the body of the response. The tail alone: see [`timed_out`].
#[cold]
#[inline(never)]
fn cover_body(mut tail: Tail, at: Moment, limit: Duration) -> Tail {
    tail.end_at(at, limit);
    tail
}

/// Races what is inside against the alarm, a ready result first.
#[pin_project]
struct Limited<'run, F> {
    #[pin]
    inner: F,
    #[pin]
    alarm: Alarm<'run>,
}

impl<F: Future> Future for Limited<'_, F> {
    type Output = Option<F::Output>;

    #[inline(always)]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<F::Output>> {
        let this = self.project();
        let scope = this.alarm.scope();
        let core = scope.core;
        let beside = core.look_inside();
        if let Poll::Ready(outcome) = this.inner.poll(cx) {
            // The timers beside it are not told of again: that costs one more timer at most, where somebody goes on to wait.
            return Poll::Ready(Some(outcome));
        }
        let polled = this.alarm.poll(cx, core.armed()).map(|()| {
            scope.give_up(Reason::TimedOut);
            None
        });
        core.look_outside(beside);
        polled
    }
}

impl fmt::Debug for Timeout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let covering = if self.covers_body() { ", covering the body" } else { "" };
        match &self.0 {
            Limit::Fixed(limit) => write!(f, "Timeout({:?}{covering})", limit.get()),
            Limit::By { .. } => write!(f, "Timeout(computed{covering})"),
        }
    }
}
