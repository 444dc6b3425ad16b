//! Whether another try follows, and after what time.

use std::ops::ControlFlow;
use std::time::Duration;

use super::pause::Pause;
use super::tries::Tries;
use super::{Jitter, OnLongWait, OnRejection, Retry, RetryEvent};
use crate::error::{Error, Kind, Limit};
use crate::event::What;
use crate::outcome::{Mark, Outcome};
use crate::policy::{Call, Next};
use crate::run::Stopped;
use crate::shield::shielded;
use crate::verdict::Verdict;

impl Retry {
    /// Ends the run with the outcome, or says what to wait for.
    pub(super) fn decide<T: Send, E: Send + std::fmt::Debug, N: Next<T, E>>(
        &self,
        tries: &mut Tries<'_, E>,
        next: N,
        outcome: Outcome<T, E>,
    ) -> ControlFlow<Box<Outcome<T, E>>, Pause<T>> {
        let (call, ruling) = (tries.call, outcome.ruling);
        let stop = |why, outcome| {
            call.frame().stop(why);
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
        if matches!(self.schedule.jitter, Jitter::Decorrelated) {
            call.frame().set_wait(self.address(), wait);
        }
        ControlFlow::Continue(self.pause(call, wait, outcome))
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
    #[inline(always)]
    fn wait<E>(&self, tries: &Tries<'_, E>, verdict: Verdict) -> Result<Duration, Limit> {
        let call = tries.call;
        let core = call.scope().core;
        let unit = || core.rng().unit();
        let asked = |asked: Duration, most: Duration| asked.saturating_add(core.rng().up_to((asked / 10).min(most)));
        // An inner retry begins anew with each try of an outer one.
        let goes_on = matches!(self.schedule.jitter, Jitter::Decorrelated) && tries.made > 1;
        let before = if goes_on { call.frame().wait_before(self.address()) } else { Duration::ZERO };
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

    #[inline]
    fn announce<T, E: std::fmt::Debug>(&self, call: Call<'_, E>, delay: Duration, outcome: &Outcome<T, E>) {
        if call.is_observed() || self.on_retry.is_some() {
            self.announce_slow(call, delay, outcome);
        }
    }

    #[cold]
    #[inline(never)]
    fn announce_slow<T, E: std::fmt::Debug>(&self, call: Call<'_, E>, delay: Duration, outcome: &Outcome<T, E>) {
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
    #[inline(always)]
    fn pause<T, E>(&self, call: Call<'_, E>, wait: Duration, outcome: Outcome<T, E>) -> Pause<T> {
        let Outcome { result, ruling, tail } = outcome;
        let (value, error) = match result {
            Ok(value) => (Some(value), None),
            Err(error) => (None, Some(error)),
        };
        call.frame().go_on_after(ruling, error, call.tries(), self.keep_errors);
        Pause { wait, value, tail }
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

/// How the operation refuses an attempt that the caller does not allow any more.
const USED_UP: Kind = Kind::Exhausted { by: Limit::Attempts };

/// The most that is added to a pause that a dependency asked for, so that its callers do not come back together.
const MAX_RETRY_AFTER_SPREAD: Duration = Duration::from_secs(1);
