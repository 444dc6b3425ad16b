//! What a retry remembers from one try to the next, and what it holds of the budget.

use std::time::Duration;

use super::Retry;
use crate::clock::Moment;
use crate::error::Limit;
use crate::policy::Call;

/// What a retry remembers from one try to the next, and what it holds of the budget.
pub(super) struct Tries<'run, E> {
    /// The running try, or the one before the wait.
    pub(super) call: Call<'run, E>,
    /// When nothing may start any more; `NEVER` without `max_elapsed`.
    pub(super) until: Moment,
    /// How many tries were made, the running one included; 0 once none will follow.
    pub(super) made: u32,
    /// How often the operation had been started inside of the frame around, before the running try or the one that is waited for.
    started: u16,
    /// Whether that try was drawn from the budget.
    is_drawn: bool,
}

impl<'run, E> Tries<'run, E> {
    #[inline(always)]
    pub(super) fn new(retry: &Retry, call: Call<'run, E>) -> Tries<'run, E> {
        // More seconds than these no moment has room for.
        let is_endless = retry.max_elapsed.as_secs() == u64::MAX;
        let until = if is_endless { Moment::NEVER } else { until(call, retry.max_elapsed) };
        Tries { call, until, made: 1, started: call.starts(), is_drawn: false }
    }

    /// Draws on the budget for the next try. Only what is started costs: as long as policies have refused every try, what the first
    /// one was given (nothing, or what an outer retry or a hedge has drawn) is good for the next.
    #[inline(always)]
    pub(super) fn draw(&mut self) -> Result<(), Limit> {
        if !self.has_started() {
            return Ok(());
        }
        self.settle();
        let scope = self.call.scope();
        self.started = self.call.starts();
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
    #[inline]
    fn has_started(&self) -> bool {
        self.call.starts() != self.started
    }

    /// The wait is over, and the next try begins.
    #[inline]
    pub(super) fn go_on(&mut self) {
        self.call = self.call.again();
    }

    /// No try will follow.
    pub(super) fn finish(&mut self) {
        self.settle();
        self.made = 0;
    }

    pub(super) fn is_over(&self) -> bool {
        self.made == 0
    }

    /// Settles what was drawn for a try that is over, or will not be. One whose operation was never started costs nothing.
    #[inline]
    pub(super) fn settle(&mut self) {
        if self.is_drawn {
            self.settle_slow();
        }
    }

    #[cold]
    #[inline(never)]
    fn settle_slow(&mut self) {
        self.is_drawn = false;
        if let Some(budget) = self.call.scope().core.budget() {
            budget.end_extra(self.has_started());
        }
    }

    /// The limit that has passed since the wait was found to end in time: a timer may wake a run late, and another lane of a hedge
    /// may have made the attempt that was left.
    #[inline]
    pub(super) fn passed(&self) -> Option<Limit> {
        let scope = self.call.scope();
        let is_limited = !(self.until.is_never() && scope.deadline.is_never() && scope.core.is_plain());
        if is_limited { self.passed_slow() } else { None }
    }

    #[cold]
    #[inline(never)]
    fn passed_slow(&self) -> Option<Limit> {
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
    #[inline(always)]
    fn drop(&mut self) {
        self.settle();
    }
}

#[cold]
#[inline(never)]
fn until<E>(call: Call<'_, E>, max_elapsed: Duration) -> Moment {
    call.now() + max_elapsed
}
