//! One try, as policies see it.

use std::fmt;
use std::time::Duration;

use super::{Frame, Scope};
use crate::attempt::{Attempt, COUNTED, JUDGED, PLAIN, STREAMS, TRIAL, Which};
use crate::cancel::Cause;
use crate::clock::{Clock, Deadline, Moment};
use crate::context::Context;
use crate::error::{Error, Name};
use crate::event::What;
use crate::verdict::Ruling;

/// One try, as policies see it: `Copy`, two words, borrows the run.
///
/// It gives a policy the run's clock, its context and its limits, and carries which try this is inwards.
// A pointer and one word of bits: the compiler passes such a pair in two registers.
pub struct Call<'run, E> {
    frame: &'run Frame<'run, E>,
    which: Which,
}

impl<'run, E> Call<'run, E> {
    #[inline]
    pub(crate) fn first(frame: &'run Frame<'run, E>, streams: bool) -> Call<'run, E> {
        Call { frame, which: Which::first(frame.scope.core.flags.get(), streams) }
    }

    /// Which try of the run this is, from 1.
    #[must_use]
    #[inline]
    pub fn number(&self) -> u32 {
        self.which.number()
    }

    /// Which lane of a hedged try this is; 0 is the first.
    #[must_use]
    pub fn hedge(&self) -> u32 {
        self.which.lane()
    }

    /// Whether the operation was tried before in this run.
    #[must_use]
    pub fn is_retry(&self) -> bool {
        self.number() > 1
    }

    /// Whether the call is a trial of a half-open circuit breaker, which must not be multiplied.
    #[must_use]
    pub fn is_trial(&self) -> bool {
        self.which.has(TRIAL)
    }

    /// What the caller brought.
    #[must_use]
    pub fn context(&self) -> &'run Context {
        self.scope().core.context
    }

    /// What the call is about, for keyed policies: [`Context::with_key`].
    #[must_use]
    pub fn key(&self) -> Option<&'run str> {
        self.context().key()
    }

    /// The clock of the run.
    #[must_use]
    pub fn clock(&self) -> &'run Clock {
        self.scope().core.clock()
    }

    /// The name of the executor, if there is one.
    #[must_use]
    pub fn executor(&self) -> Option<Name> {
        self.scope().core.setup.name
    }

    /// The time. All policies of a run that ask within one poll share one reading of the clock.
    #[must_use]
    #[inline]
    pub fn now(&self) -> Moment {
        self.scope().core.now()
    }

    /// When the nearest enclosing limit ends this try; `None` without a limit.
    #[must_use]
    pub fn deadline(&self) -> Option<Deadline> {
        let at = self.scope().deadline;
        (!at.is_never()).then(|| Deadline::new(self.clock().clone(), at))
    }

    /// What is left until [`deadline`](Call::deadline), zero if it has passed; `None` without a limit.
    #[must_use]
    pub fn remaining(&self) -> Option<Duration> {
        let at = self.scope().deadline;
        (!at.is_never()).then(|| at.since(self.scope().core.look()))
    }

    /// Whether something outside asks the run to end. A policy that is about to start or to wait looks here first.
    #[must_use]
    #[inline]
    pub fn ended(&self) -> Option<Cause> {
        self.scope().core.ended()
    }

    /// Whether an adapter will hold the [`Tail`](crate::policy::Tail) of the outcome until a body or stream ends.
    #[must_use]
    #[inline]
    pub fn streams(&self) -> bool {
        self.which.has(STREAMS)
    }

    /// This try as the operation sees it.
    #[must_use]
    #[inline]
    pub fn attempt(&self) -> Attempt {
        let scope = self.scope();
        Attempt::new(scope.core.clock(), scope.deadline, self.which)
    }

    /// The next try after this one: its number is higher than that of any try whose operation was started. It begins with a
    /// new look at the clock, since the try before may have taken long within this poll.
    #[must_use]
    pub fn again(self) -> Call<'run, E> {
        self.scope().core.forget_now();
        let number = self.tries().saturating_add(1);
        Call { which: self.which.with_number(number), ..self }
    }

    /// How many tries the run has made so far, in all of its retries.
    pub(crate) fn tries(&self) -> u32 {
        self.number().max(self.scope().core.tries())
    }

    /// Moves the error of a failed try to the run, which attaches it to whatever ends the run later. At most `keep` errors
    /// stay in the history, see [`Error::history`].
    pub fn keep_last(&self, error: Error<E>, keep: usize) {
        self.frame.keep(error, self.tries(), keep);
    }

    /// Attaches the last error of the run to `error`, if that has no operation's error of its own.
    pub fn attach_last(&self, error: &mut Error<E>) {
        if error.last().is_none() {
            self.frame.attach_to(error);
        }
    }

    /// Writes into an error what the run knows so far, for somebody who looks at it before the run has ended.
    pub(crate) fn describe(&self, error: &mut Error<E>, ruling: Ruling) {
        let core = self.scope().core;
        error.set_attempts(core.attempts());
        error.set_name(core.setup.name);
        error.set_elapsed(core.elapsed());
        error.set_ruling(ruling);
        self.frame.attach_to(error);
    }

    /// Tells the observers of the executor. Without observers `what` is not built. A policy that refuses a call tells them with
    /// [`What::Rejected`]; the attempts, and the run itself, tell of themselves.
    #[inline]
    pub fn emit(&self, what: impl FnOnce() -> What) {
        self.emit_by(None, what);
    }

    /// [`emit`](Call::emit) by a policy that may have a name.
    #[inline]
    pub(crate) fn emit_by(&self, policy: Option<Name>, what: impl FnOnce() -> What) {
        if self.is_observed() {
            self.scope().core.tell(self.number(), self.hedge(), policy, what);
        }
    }

    /// This try inside of `frame`, which may have errors of another type.
    #[must_use]
    #[inline]
    pub fn within<'inner, F>(self, frame: &'inner Frame<'inner, F>) -> Call<'inner, F> {
        let which = if frame.scope.counts() { self.which.with(COUNTED) } else { self.which };
        Call { frame, which }
    }

    /// This try in another lane of a hedge; the number of a lane has 16 bits.
    pub(crate) fn in_lane(self, lane: u32) -> Call<'run, E> {
        Call { which: self.which.with_lane(lane), ..self }
    }

    /// This try as a trial.
    pub(crate) fn as_trial(self) -> Call<'run, E> {
        Call { which: self.which.with(TRIAL), ..self }
    }

    /// This try inside of a policy that judges, and tells of the end of the attempt.
    #[inline]
    pub(crate) fn as_judged(self) -> Call<'run, E> {
        Call { which: self.which.with(JUDGED), ..self }
    }

    #[inline]
    pub(super) fn is_judged(&self) -> bool {
        self.which.has(JUDGED)
    }

    #[inline]
    pub(crate) fn is_observed(&self) -> bool {
        !self.is_plain() && self.scope().core.is_observed()
    }

    /// See [`Core::is_plain`](super::Core::is_plain). Carried along, where no memory has to be read for it.
    #[inline]
    pub(super) fn is_plain(&self) -> bool {
        self.which.has(PLAIN)
    }

    #[inline]
    pub(crate) fn frame(&self) -> &'run Frame<'run, E> {
        self.frame
    }

    #[inline]
    pub(crate) fn scope(&self) -> &'run Scope<'run> {
        &self.frame.scope
    }

    /// The operation is about to be started, unless the caller allows no further attempt.
    #[inline(always)]
    pub(crate) fn start(&self) -> bool {
        let may_start = self.is_plain() || self.scope().core.may_start();
        if may_start {
            self.mark_started();
        }
        may_start
    }

    /// The operation is about to be started.
    #[inline]
    pub(crate) fn mark_started(&self) {
        let scope = self.scope();
        scope.core.count_attempt(self.number());
        if self.which.has(COUNTED) {
            scope.count();
        }
        if self.is_observed() {
            self.attempt_started();
        }
    }

    /// A number that changes whenever the operation is started, by nothing that runs beside this call.
    #[inline]
    pub(crate) fn starts(&self) -> u16 {
        if self.which.has(COUNTED) { self.scope().starts() } else { self.scope().core.starts() }
    }

    /// A scope around what this call runs, which ends at `at`.
    #[inline]
    pub(crate) fn scope_until(&self, at: Moment) -> Scope<'run> {
        self.scope().inside(at, self.number(), self.starts())
    }
}

impl<E> Clone for Call<'_, E> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}

impl<E> Copy for Call<'_, E> {}

impl<E> fmt::Debug for Call<'_, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call").field("number", &self.number()).field("hedge", &self.hedge()).finish_non_exhaustive()
    }
}
