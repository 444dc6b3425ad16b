//! What observers are told of a run: the two ends of it, and those of its attempts.

use std::time::Duration;

#[cfg(feature = "tracing")]
use super::flags::TRACED;
use super::flags::{Flags, ID, UNTOLD};
use super::{Call, Core, Reason};
use crate::attempt::PLAIN;
use crate::cancel::Cause;
use crate::error::Name;
#[cfg(feature = "tracing")]
use crate::event::tracing_is_off;
use crate::event::{CutOff, Event, RunEnd, RunId, Stopped, What};
use crate::outcome::Ruling;

impl Core<'_> {
    /// Whether anybody wants to see events.
    #[inline]
    pub(crate) fn is_observed(&self) -> bool {
        self.flags.has(ID)
    }

    /// Enters the span of the run, if an observer keeps one, until what it gives is dropped.
    #[cfg(feature = "tracing")]
    #[inline]
    pub(crate) fn enter(&self) -> Option<Entered> {
        if self.is_observed() { self.enter_observed() } else { None }
    }

    #[cfg(feature = "tracing")]
    #[cold]
    fn enter_observed(&self) -> Option<Entered> {
        let span = self.setup.observers.span(self.flags.run()?)?;
        span.with_subscriber(|(id, subscriber)| subscriber.enter(id));
        Some(Entered(span))
    }

    /// [`is_plain`](Core::is_plain) of a run that is about to start, which it may become now.
    #[inline]
    pub(crate) fn starts_plain(&self) -> bool {
        let is_plain = self.is_plain();
        #[cfg(feature = "tracing")]
        let is_plain = is_plain || self.becomes_plain();
        is_plain
    }

    #[cfg(feature = "tracing")]
    #[inline]
    fn becomes_plain(&self) -> bool {
        let is_plain = self.flags.has(TRACED) && tracing_is_off();
        if is_plain {
            self.flags.set(PLAIN);
        }
        is_plain
    }

    /// The run starts.
    #[cold]
    pub(crate) fn begin(&self) {
        if !self.is_plain() && self.setup.observers.are_enabled() {
            self.flags.set_run(Some(RunId::next()));
            self.tell_here(1, 0, None, || What::RunStarted);
        } else if self.context.is_plain() {
            // Nobody wants to see this one, so it is as if there were no observers.
            self.flags.set(PLAIN);
        }
    }

    /// Tells the observers, of whom there are some.
    #[cold]
    pub(super) fn tell(&self, attempt: u32, hedge: u32, policy: Option<Name>, what: impl FnOnce() -> What) {
        self.tell_here(attempt, hedge, policy, what);
    }

    /// [`tell`](Core::tell) of what every run and every attempt has to tell, within the function that knows it: an event is large,
    /// and to hand on what it is made of costs more than to make it.
    #[inline(always)]
    fn tell_here(&self, attempt: u32, hedge: u32, policy: Option<Name>, what: impl FnOnce() -> What) {
        let (executor, run, at) = (self.setup.name, self.flags.run(), self.now());
        self.setup.observers.tell(&Event { executor, run, at, attempt, hedge, policy, what: what() });
    }

    /// The run is over. Nothing is told after this.
    pub(crate) fn finish(
        &self,
        end: impl FnOnce() -> RunEnd,
        stopped: Option<Stopped>,
        attempts: u32,
        elapsed: Duration,
    ) {
        if self.is_observed() {
            let what = || What::RunFinished { end: end(), stopped, attempts, elapsed };
            self.tell_here(self.tries().max(1), 0, None, what);
            self.flags.set_run(None);
        }
    }

    /// The run ends without anybody to finish it.
    #[cold]
    #[inline(never)]
    pub(crate) fn finish_dropped(&self) {
        self.end();
        if !self.is_observed() {
            return;
        }
        let elapsed = self.elapsed();
        let end = if self.has_panicked() { RunEnd::Panicked } else { RunEnd::Dropped };
        self.finish(|| end, None, self.attempts(), elapsed);
    }
}

impl<'run, E> Call<'run, E> {
    fn flags(&self) -> &'run Flags {
        &self.scope().core.flags
    }

    #[cold]
    pub(super) fn attempt_started(&self) {
        self.emit(|| What::AttemptStarted);
    }

    /// The operation has ended, with a verdict that a policy around it may revise: then that policy tells.
    pub(crate) fn attempt_finished(&self, ruling: Ruling) {
        // The operation may have taken long within this poll.
        self.scope().core.look();
        if self.is_judged() {
            self.flags().set(UNTOLD);
        } else {
            self.tell_here(|| What::AttemptFinished { verdict: ruling.verdict() });
        }
    }

    #[inline(always)]
    fn tell_here(&self, what: impl FnOnce() -> What) {
        self.scope().core.tell_here(self.number(), self.hedge(), None, what);
    }

    /// The operation is dropped before its end. One that has panicked was told of.
    #[inline(always)]
    pub(crate) fn attempt_abandoned(&self) {
        if !self.is_plain() {
            self.tell_abandoned();
        }
    }

    #[cold]
    #[inline(never)]
    fn tell_abandoned(&self) {
        let scope = self.scope();
        if !self.is_observed() || scope.has_panicked() {
            return;
        }
        let why = match scope.why() {
            None => CutOff::Dropped,
            Some(Reason::TimedOut) => CutOff::TimedOut,
            Some(Reason::LostRace) => CutOff::LostRace,
            Some(Reason::Cancelled) => CutOff::Ended(Cause::Cancelled),
            Some(Reason::DeadlineExceeded) => CutOff::Ended(Cause::DeadlineExceeded),
            Some(Reason::ShutDown) => CutOff::Ended(Cause::ShutDown),
        };
        scope.core.look();
        self.emit(|| What::AttemptAbandoned { why });
    }

    #[cold]
    fn attempt_panicked(&self) {
        self.scope().mark_panicked();
        if self.is_observed() {
            self.scope().core.look();
            self.emit(|| What::AttemptAbandoned { why: CutOff::Panicked });
        }
    }

    /// Runs a piece of the operation; if it unwinds, the scopes around learn that the operation is to blame.
    #[inline(always)]
    pub(crate) fn blame<R>(&self, piece: impl FnOnce() -> R) -> R {
        let blame = Blame(*self);
        let done = piece();
        #[expect(clippy::mem_forget, reason = "it has nothing to give back: it only runs on unwind")]
        std::mem::forget(blame);
        done
    }

    /// For a policy that goes on to wait after the operation has ended: its end is told now, and not when it has been judged, which may
    /// never come to be.
    pub(crate) fn tell_untold(&self, ruling: Ruling) {
        if self.is_observed() && self.flags().has(UNTOLD) {
            self.flags().clear(UNTOLD);
            self.emit(|| What::AttemptFinished { verdict: ruling.verdict() });
        }
    }

    /// For the outermost policy that judges, as long as it waits for what is inside of it: if that is dropped after the operation has
    /// ended, nobody was told of the end.
    pub(crate) fn tell_if_dropped(&self) -> Unjudged<'run, E> {
        Unjudged(*self)
    }

    /// For the outermost policy that judges: the end of the attempt that nobody was told of, if there is one.
    #[inline]
    pub(crate) fn untold(&self, ruling: Ruling) -> Option<Untold<'run, E>> {
        (self.is_observed() && !self.is_judged() && self.flags().has(UNTOLD)).then(|| {
            self.flags().clear(UNTOLD);
            Untold { call: *self, ruling }
        })
    }
}

/// The span of a run while it is polled: left when it is dropped.
#[cfg(feature = "tracing")]
pub(crate) struct Entered(std::sync::Arc<::tracing::Span>);

#[cfg(feature = "tracing")]
impl Drop for Entered {
    fn drop(&mut self) {
        self.0.with_subscriber(|(id, subscriber)| subscriber.exit(id));
    }
}

/// Forgotten unless the operation unwinds.
struct Blame<'run, E>(Call<'run, E>);

impl<E> Drop for Blame<'_, E> {
    fn drop(&mut self) {
        self.0.attempt_panicked();
    }
}

/// Tells of an attempt that has ended, and that nobody will judge.
pub(crate) struct Unjudged<'run, E>(Call<'run, E>);

impl<E> Drop for Unjudged<'_, E> {
    fn drop(&mut self) {
        if self.0.is_observed() && !self.0.is_judged() && self.0.flags().has(UNTOLD) {
            self.0.flags().clear(UNTOLD);
            self.0.tell_abandoned();
        }
    }
}

/// The end of an attempt that is being judged. Told when it is dropped, also if a judgement panics.
pub(crate) struct Untold<'run, E> {
    call: Call<'run, E>,
    pub(crate) ruling: Ruling,
}

impl<E> Drop for Untold<'_, E> {
    fn drop(&mut self) {
        let ruling = self.ruling;
        self.call.emit(|| What::AttemptFinished { verdict: ruling.verdict() });
    }
}
