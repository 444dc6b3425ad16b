//! Another attempt, after a wait, for outcomes that are worth one.

mod backoff;
mod config;
#[cfg(feature = "serde")]
pub(crate) mod document;
mod jitter;
mod words;

use std::ops::ControlFlow;
use std::pin::{Pin, pin};
use std::time::Duration;

pub use self::backoff::{Backoff, DEFAULT_BASE, DEFAULT_CAP, DEFAULT_FACTOR};
pub use self::config::{DEFAULT_MAX_ATTEMPTS, DEFAULT_MAX_RETRY_AFTER, OnLongWait, OnRejection, Retry, RetryEvent};
pub use self::jitter::Jitter;
pub(crate) use self::words::RETRY_WORDS;
use crate::cancel::Cause;
use crate::clock::Moment;
use crate::error::{Error, Kind, Limit};
use crate::event::What;
use crate::outcome::{Mark, Ruling};
use crate::policy::{Call, Next, Outcome, Policy, Tail};
use crate::run::{Alarm, Stopped};
use crate::shield::shielded;
use crate::verdict::Verdict;

impl<T: Send, E: Send + std::fmt::Debug> Policy<T, E> for Retry {
    #[inline(always)]
    fn run<N: Next<T, E>>(&self, call: Call<'_, E>, next: N) -> impl Future<Output = Outcome<T, E>> + Send {
        let mut tries = Tries::new(call);
        async move {
            tries.begin(self);
            loop {
                let outcome = next.call(tries.call).await;
                if outcome.ruling.is_final() {
                    return outcome;
                }
                let wait = match self.decide(&mut tries, next, outcome) {
                    ControlFlow::Break(outcome) => return *outcome,
                    ControlFlow::Continue(wait) => wait,
                };
                if let Some(wait) = wait {
                    wait.await;
                }
                if let Some(cause) = tries.call.ended() {
                    tries.call.frame().last.stop(Stopped::Ended(cause));
                    return *ended(cause);
                }
                if let Some(limit) = tries.passed() {
                    return *too_late(tries.call, limit);
                }
                tries.go_on();
            }
        }
    }
}

/// What a retry remembers from one try to the next, and what it holds of the budget.
struct Tries<'run, E> {
    /// The running try, or the one before the wait.
    call: Call<'run, E>,
    /// When nothing may start any more; `NEVER` without `max_elapsed`.
    until: Moment,
    /// How many tries were made, the running one included.
    made: u32,
    /// How often the operation had been started inside of the frame around, before the running try or the one that is waited for.
    started: u16,
    /// Whether that try was drawn from the budget.
    is_drawn: bool,
}

impl<'run, E> Tries<'run, E> {
    #[inline]
    fn new(call: Call<'run, E>) -> Tries<'run, E> {
        Tries { call, until: Moment::NEVER, made: 1, started: 0, is_drawn: false }
    }

    #[inline]
    fn begin(&mut self, retry: &Retry) {
        self.started = self.call.scope().started();
        // More seconds than these no moment has room for.
        if retry.max_elapsed.as_secs() != u64::MAX {
            self.until = self.call.now() + retry.max_elapsed;
        }
    }

    /// Draws on the budget for the next try. Only what is started costs: as long as policies have refused every try, what the first
    /// one was given (nothing, or what an outer retry or a hedge has drawn) is good for the next.
    fn draw(&mut self) -> Result<(), Limit> {
        if !self.has_started() {
            return Ok(());
        }
        self.settle();
        let scope = self.call.scope();
        self.started = scope.started();
        if let Some(budget) = scope.core.budget() {
            if !budget.take(|| scope.core.now()) {
                return Err(Limit::Budget);
            }
            self.is_drawn = true;
        }
        Ok(())
    }

    /// Whether the running try has started the operation. (Its number does not tell: another lane of a hedge may be making a try
    /// of the same number.)
    fn has_started(&self) -> bool {
        self.call.scope().started() != self.started
    }

    /// The wait is over, and the next try begins.
    fn go_on(&mut self) {
        self.call = self.call.again();
    }

    /// Settles what was drawn for a try that is over, or will not be. One whose operation was never started costs nothing.
    #[inline]
    fn settle(&mut self) {
        if self.is_drawn {
            self.settle_slow();
        }
    }

    #[cold]
    fn settle_slow(&mut self) {
        self.is_drawn = false;
        if let Some(budget) = self.call.scope().core.budget() {
            budget.end_extra(self.has_started());
        }
    }

    /// The limit that has passed since the wait was found to end in time: a timer may wake a run late, and another lane of a hedge
    /// may have made the attempt that was left.
    #[cold]
    fn passed(&self) -> Option<Limit> {
        let core = self.call.scope().core;
        if !core.may_start() {
            return Some(Limit::Attempts);
        }
        let deadline = self.call.scope().deadline;
        if self.until.is_never() && deadline.is_never() {
            return None;
        }
        let now = self.call.scope().core.look();
        if !deadline.is_never() && now >= deadline {
            Some(Limit::Deadline)
        } else {
            (now > self.until).then_some(Limit::Elapsed)
        }
    }
}

impl<E> Drop for Tries<'_, E> {
    #[inline]
    fn drop(&mut self) {
        self.settle();
    }
}

/// The time before the next try.
type Wait<F> = Pin<Box<F>>;

impl Retry {
    /// Ends the run with the outcome, or says what to wait for.
    // Whole, and then in pieces: the pieces travel in registers, and a value that was moved whole leaves no place in the future.
    #[inline(always)]
    fn decide<'run, T: Send, E: Send + std::fmt::Debug, N: Next<T, E>>(
        &self,
        tries: &mut Tries<'run, E>,
        next: N,
        outcome: Outcome<T, E>,
    ) -> ControlFlow<Box<Outcome<T, E>>, Option<Wait<impl Future<Output = ()> + Send + use<'run, T, E, N>>>> {
        let Outcome { result, ruling, tail } = outcome;
        self.decide_slow(tries, next, result, ruling, tail)
    }

    /// Out of line: the success path has no part in it. The outcome is boxed, here and below, for the sake of that path: what a
    /// function returns in memory is kept in memory there too.
    #[cold]
    #[inline(never)]
    fn decide_slow<'run, T: Send, E: Send + std::fmt::Debug, N: Next<T, E>>(
        &self,
        tries: &mut Tries<'run, E>,
        next: N,
        result: Result<T, Error<E>>,
        ruling: Ruling,
        tail: Tail,
    ) -> ControlFlow<Box<Outcome<T, E>>, Option<Wait<impl Future<Output = ()> + Send + use<'run, T, E, N>>>> {
        let outcome = Outcome { result, ruling, tail };
        let call = tries.call;
        let last = call.frame().last;
        let stop = |why, outcome| {
            last.stop(why);
            ControlFlow::Break(Box::new(outcome))
        };
        match outcome.mark() {
            Mark::Stop => return stop(Stopped::Forbidden, outcome),
            // A retry inside of this one has said why.
            Mark::Ended => return ControlFlow::Break(Box::new(outcome)),
            Mark::None | Mark::Counted => {}
        }
        if let Some(cause) = call.ended() {
            return stop(Stopped::Ended(cause), outcome.end(cause.into()));
        }
        if matches!(outcome.verdict(), Verdict::Rejected { .. }) && self.on_rejection == OnRejection::Stop {
            let used_up = outcome.result.as_ref().is_err_and(|error| error.kind() == USED_UP);
            let why = if used_up { Stopped::Limit(Limit::Attempts) } else { Stopped::Rejected };
            return stop(why, outcome);
        }
        if self.is_used_up(tries) {
            return stop(Stopped::Limit(Limit::Attempts), exhausted(outcome, Limit::Attempts));
        }
        if let Err(why) = next.repeat(Some(&outcome)) {
            return stop(Stopped::NotRepeatable(why), outcome);
        }
        let verdict = ruling.verdict();
        let wait = self.wait(tries, verdict);
        let wait = match wait.and_then(|wait| tries.draw().map(|()| wait)) {
            Ok(wait) => wait,
            Err(limit) => return stop(Stopped::Limit(limit), self.given_up(outcome, limit)),
        };
        self.announce(call, wait, &outcome);
        tries.made = tries.made.saturating_add(1);
        if self.schedule.jitter == Jitter::Decorrelated {
            last.set_wait(self.address(), wait);
        }
        ControlFlow::Continue(self.pause(call, wait, outcome).begin(call, next))
    }

    /// Whether the policy or the caller allows no further attempt.
    fn is_used_up<E>(&self, tries: &Tries<'_, E>) -> bool {
        let by_policy = self.max_attempts.is_some_and(|most| tries.made >= most);
        // The caller means the whole run, in which other retries and hedges may have a part.
        let made = tries.call.tries().max(tries.call.scope().core.attempts());
        let by_caller = tries.call.context().max_attempts().is_some_and(|most| made >= most);
        by_policy || by_caller
    }

    /// The wait before the next try, or what forbids one.
    fn wait<E>(&self, tries: &Tries<'_, E>, verdict: Verdict) -> Result<Duration, Limit> {
        let call = tries.call;
        let core = call.scope().core;
        let unit = || core.rng().unit();
        let asked = |asked: Duration, most: Duration| asked.saturating_add(core.rng().up_to((asked / 10).min(most)));
        // An inner retry begins anew with each try of an outer one.
        let goes_on = self.schedule.jitter == Jitter::Decorrelated && tries.made > 1;
        let before = if goes_on { call.frame().last.wait_before(self.address()) } else { Duration::ZERO };
        let wait = match verdict {
            Verdict::Throttled { retry_after: Some(pause) } if pause <= self.max_retry_after => {
                asked(pause, MAX_RETRY_AFTER_SPREAD).min(self.max_retry_after)
            }
            Verdict::Throttled { retry_after: Some(_) } => match self.on_long_wait {
                OnLongWait::Stop => return Err(Limit::RetryAfter),
                OnLongWait::Cap => self.max_retry_after,
            },
            Verdict::Rejected { retry_after: Some(pause) } => asked(pause, Duration::MAX),
            _ => self.schedule.wait(tries.made, &verdict, before, unit),
        };
        let deadline = call.scope().deadline;
        if tries.until.is_never() && deadline.is_never() {
            return Ok(wait);
        }
        let next = core.look() + wait;
        if !deadline.is_never() && next >= deadline {
            Err(Limit::Deadline)
        } else if next > tries.until {
            Err(Limit::Elapsed)
        } else {
            Ok(wait)
        }
    }

    /// An outcome that is worth another try but gets none, with the pause that was asked for if that was too long.
    fn given_up<T, E>(&self, outcome: Outcome<T, E>, limit: Limit) -> Outcome<T, E> {
        let mut outcome = exhausted(outcome, limit);
        let verdict = outcome.verdict();
        if let (Err(error), Verdict::Throttled { retry_after: Some(pause) }) = (&mut outcome.result, verdict) {
            error.set_retry_after(pause);
        }
        outcome
    }

    /// Tells one retry of a chain from another.
    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    fn announce<T, E: std::fmt::Debug>(&self, call: Call<'_, E>, delay: Duration, outcome: &Outcome<T, E>) {
        let verdict = outcome.verdict();
        call.emit(|| What::RetryScheduled { delay, verdict });
        if let Some(on_retry) = &self.on_retry {
            let error = outcome.result.as_ref().err().and_then(Error::last);
            let error = error.map(|error| error as &dyn std::fmt::Debug);
            let elapsed = call.scope().core.elapsed();
            shielded(|| on_retry(&RetryEvent { attempt: call.number(), delay, verdict, elapsed, error }));
        }
    }

    /// Moves the error to the run, which may need it, and keeps the value for the operation to give up.
    fn pause<T, E>(&self, call: Call<'_, E>, wait: Duration, outcome: Outcome<T, E>) -> Pause<T> {
        let Outcome { result, ruling, tail } = outcome;
        let (value, error) = match result {
            Ok(value) => (Some(value), None),
            Err(mut error) => (None, error.take_last()),
        };
        call.frame().last.go_on_after(ruling.verdict(), error, call.tries(), self.keep_errors);
        Pause { wait, value, tail }
    }
}

/// The wait before the next try, and the value of the last one if there was one.
struct Pause<T> {
    wait: Duration,
    value: Option<T>,
    /// Dropped when the value is given up: a permit is held for as long as what it was given for.
    tail: Tail,
}

impl<T: Send> Pause<T> {
    /// The wait, unless there is nothing to wait for: a wait of zero registers no timer. Boxed: what only a failed try needs
    /// must not make the future of every call larger.
    fn begin<E: Send, N: Next<T, E>>(
        self,
        call: Call<'_, E>,
        next: N,
    ) -> Option<Wait<impl Future<Output = ()> + Send>> {
        let empty = self.wait.is_zero() && self.value.is_none();
        (!empty).then(|| Box::pin(self.wait(call, next)))
    }

    /// Lets the operation give up the value *within* the wait, and waits for the rest of it.
    async fn wait<E: Send, N: Next<T, E>>(self, call: Call<'_, E>, next: N) {
        let core = call.scope().core;
        let from = core.look();
        let mut alarm = pin!(Alarm::new(call.scope(), from + self.wait.max(LEAST_DISCARD_TIME)));
        if let Some(value) = self.value {
            tokio::select! {
                biased;
                () = next.discard(value) => {}
                () = alarm.as_mut() => return,
            }
        }
        drop(self.tail);
        if !self.wait.is_zero() {
            alarm.set(Alarm::new(call.scope(), from + self.wait));
            alarm.await;
        }
    }
}

/// Says in the error what was used up, if the error is the operation's own; a timeout stays a timeout.
fn exhausted<T, E>(mut outcome: Outcome<T, E>, by: Limit) -> Outcome<T, E> {
    if let Err(error) = &mut outcome.result
        && error.kind() == Kind::Failed
    {
        error.set_kind(Kind::Exhausted { by });
    }
    outcome
}

/// The outcome of a wait that has ended too late for another try; worth what the last one was.
#[cold]
#[inline(never)]
fn too_late<T, E>(call: Call<'_, E>, limit: Limit) -> Box<Outcome<T, E>> {
    let last = call.frame().last;
    last.stop(Stopped::Limit(limit));
    let mut error = Error::refused(Kind::Exhausted { by: limit });
    call.attach_last(&mut error);
    Box::new(Outcome::new(Err(error), last.verdict().unwrap_or(Verdict::Transient)))
}

/// The outcome of a run that was ended during the wait.
#[cold]
#[inline(never)]
fn ended<T, E>(cause: Cause) -> Box<Outcome<T, E>> {
    let mut outcome = Box::new(Outcome::new(Err(Error::refused(cause.into())), Verdict::Ignored));
    outcome.set_mark(Mark::Ended);
    outcome
}

/// How the operation refuses an attempt that the caller does not allow any more.
const USED_UP: Kind = Kind::Exhausted { by: Limit::Attempts };

/// The most that is added to a pause that a dependency asked for, so that its callers do not come back together.
const MAX_RETRY_AFTER_SPREAD: Duration = Duration::from_secs(1);

/// The time that an operation has to give up a value even if the next try is due at once: enough to drain a short
/// response, which saves a new connection.
const LEAST_DISCARD_TIME: Duration = Duration::from_millis(5);
