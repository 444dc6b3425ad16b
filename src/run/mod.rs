//! One run: what its policies and attempts share, on the stack of the task that runs it.
//!
//! The atomics in this module are cells. A run is polled by one task at a time, so nothing races on them; they are atomic
//! only so that a run may move between threads, and relaxed because the task's own hand-over orders them.

mod alarm;
mod call;
mod last;
mod scope;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

pub(crate) use self::alarm::Alarm;
pub use self::call::Call;
pub(crate) use self::last::Last;
pub use self::last::Stopped;
pub(crate) use self::scope::{Fate, Scope};
pub use self::scope::{Frame, Reason};
use crate::cancel::Cause;
use crate::clock::{Clock, Moment};
use crate::context::Context;
use crate::error::Name;
use crate::event::{Event, Observers, What};
use crate::life::Life;
use crate::rng::Rng;

/// What everything in one run shares, whatever its types.
pub(crate) struct Core<'run> {
    pub(crate) clock: &'run Clock,
    pub(crate) context: &'run Context,
    pub(crate) observers: &'run Observers,
    pub(crate) rng: &'run Rng,
    pub(crate) life: Option<&'run Arc<Life>>,
    pub(crate) name: Option<Name>,
    /// The deadline of the context, on `clock`.
    pub(crate) deadline: Moment,
    /// Whether an adapter keeps the tail of the outcome for a result that outlives the run.
    pub(crate) streams: bool,
    /// The time of this poll of the run, once something has asked: time stands still within a poll, so that the whole
    /// chain reads the clock at most once. `NEVER` before that.
    now: AtomicU64,
    /// The first time that anything asked for; `NEVER` before that.
    start: AtomicU64,
    /// The nearest timer that was found waiting in this poll: an outer limit that is not nearer needs none of its own.
    armed: AtomicU64,
    /// The highest number of a try whose operation was started.
    tries: AtomicU32,
}

impl<'run> Core<'run> {
    #[inline]
    pub(crate) fn new(
        clock: &'run Clock,
        context: &'run Context,
        observers: &'run Observers,
        rng: &'run Rng,
        life: Option<&'run Arc<Life>>,
        name: Option<Name>,
    ) -> Core<'run> {
        Core {
            clock,
            context,
            observers,
            rng,
            life,
            name,
            deadline: context.deadline_on(clock),
            streams: false,
            now: AtomicU64::new(UNKNOWN),
            start: AtomicU64::new(UNKNOWN),
            armed: AtomicU64::new(UNKNOWN),
            tries: AtomicU32::new(0),
        }
    }

    /// For a result that outlives the run.
    pub(crate) fn streaming(mut self) -> Core<'run> {
        self.streams = true;
        self
    }

    /// A new poll of the run begins.
    #[inline]
    pub(crate) fn begin_poll(&self) {
        self.forget_now();
        self.armed.store(UNKNOWN, Relaxed);
    }

    /// The time of this poll.
    #[inline]
    pub(crate) fn now(&self) -> Moment {
        let now = self.now.load(Relaxed);
        if now == UNKNOWN {
            self.look()
        } else {
            Moment::from_nanos(now)
        }
    }

    /// Reads the clock, also if this poll has done so already.
    #[inline]
    pub(crate) fn look(&self) -> Moment {
        let now = self.clock.now();
        self.now.store(now.nanos(), Relaxed);
        if self.start.load(Relaxed) == UNKNOWN {
            self.start.store(now.nanos(), Relaxed);
        }
        now
    }

    /// The next question for the time reads the clock: the operation may have taken long within this poll.
    #[inline]
    pub(crate) fn forget_now(&self) {
        self.now.store(UNKNOWN, Relaxed);
    }

    /// The time since the first look at the clock, zero if there was none.
    pub(crate) fn elapsed(&self) -> Duration {
        match self.start.load(Relaxed) {
            UNKNOWN => Duration::ZERO,
            start => self.look().since(Moment::from_nanos(start)),
        }
    }

    /// Whether something outside asks the run to end: the caller, the executor, the deadline.
    #[inline]
    pub(crate) fn ended(&self) -> Option<Cause> {
        if self.is_quiet() && !self.life.is_some_and(|life| life.is_shut_down()) {
            None
        } else {
            self.ended_slow()
        }
    }

    /// Whether the caller brought nothing that can end the run.
    #[inline]
    pub(crate) fn is_quiet(&self) -> bool {
        self.deadline.is_never() && self.context.is_plain()
    }

    #[cold]
    fn ended_slow(&self) -> Option<Cause> {
        if self.context.token().is_some_and(|token| token.is_cancelled()) {
            Some(Cause::Cancelled)
        } else if self.life.is_some_and(|life| life.is_shut_down()) {
            Some(Cause::ShutDown)
        } else if !self.deadline.is_never() && self.look() >= self.deadline {
            Some(Cause::DeadlineExceeded)
        } else {
            None
        }
    }

    #[inline]
    pub(crate) fn emit(&self, attempt: u32, hedge: u32, what: impl FnOnce() -> What) {
        if !self.observers.is_empty() {
            self.tell(attempt, hedge, what());
        }
    }

    #[cold]
    fn tell(&self, attempt: u32, hedge: u32, what: What) {
        self.observers.tell(&Event {
            executor: self.name,
            attempt,
            hedge,
            what,
        });
    }

    /// The nearest timer that was found waiting since [`look_inside`](Core::look_inside).
    #[inline]
    pub(crate) fn armed(&self) -> Moment {
        Moment::from_nanos(self.armed.load(Relaxed))
    }

    /// A frame is about to poll what is inside of it: timers beside it do not count there. To be given to
    /// [`look_outside`](Core::look_outside) afterwards.
    #[inline]
    pub(crate) fn look_inside(&self) -> Moment {
        let beside = self.armed();
        self.armed.store(UNKNOWN, Relaxed);
        beside
    }

    /// The timers beside the frame count again.
    #[inline]
    pub(crate) fn look_outside(&self, beside: Moment) {
        self.arm(beside);
    }

    fn arm(&self, at: Moment) {
        self.armed.store(self.armed().min(at).nanos(), Relaxed);
    }

    /// The timer for `at` is gone. Forgets a little too much if another one waits for the same moment, which costs a
    /// timer and loses nothing.
    fn disarm(&self, at: Moment) {
        if self.armed() == at {
            self.armed.store(UNKNOWN, Relaxed);
        }
    }
}

const UNKNOWN: u64 = u64::MAX;
