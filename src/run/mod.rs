//! One run: what its policies and attempts share, on the stack of the task that runs it.
//!
//! The atomics in this module are cells. A run is polled by one task at a time, so nothing races on them; they are atomic
//! only so that a run may move between threads, and relaxed because the task's own hand-over orders them.

mod alarm;
mod call;
mod flags;
mod last;
mod scope;
mod watched;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

pub(crate) use self::alarm::Alarm;
pub use self::call::Call;
use self::flags::{Flags, ID, IN_FLIGHT, PANICKED};
pub(crate) use self::last::Last;
pub use self::last::Stopped;
pub(crate) use self::scope::{Fate, Scope};
pub use self::scope::{Frame, Reason};
use crate::attempt::PLAIN;
use crate::budget::Budget;
use crate::cancel::Cause;
use crate::clock::{Clock, Moment};
use crate::context::Context;
use crate::error::Name;
use crate::event::Observers;
use crate::life::Life;
use crate::rng::Rng;

/// What all runs of an executor share, and a run of `try_do` has for itself.
#[derive(Clone)]
pub(crate) struct Setup {
    pub(crate) name: Option<Name>,
    pub(crate) clock: Clock,
    /// `None` draws from the context's source, or from the thread's.
    pub(crate) rng: Option<Rng>,
    pub(crate) observers: Observers,
    pub(crate) life: Option<Arc<Life>>,
    /// What all runs of an executor may spend on retries and hedges.
    pub(crate) budget: Option<Budget>,
}

/// What everything in one run shares, whatever its types.
pub(crate) struct Core<'run> {
    pub(crate) setup: &'run Setup,
    pub(crate) context: &'run Context,
    /// The deadline of the context, on the clock of the setup.
    pub(crate) deadline: Moment,
    /// The highest number of a try whose operation was started.
    tries: AtomicU32,
    /// How often the operation was started, hedges included.
    attempts: AtomicU32,
    /// The time of this poll of the run, once something has asked: time stands still within a poll, so that the whole
    /// chain reads the clock at most once. `NEVER` before that.
    now: AtomicU64,
    /// The first time that anything asked for; `NEVER` before that.
    start: AtomicU64,
    /// The nearest timer that was found waiting in this poll: an outer limit that is not nearer needs none of its own.
    armed: AtomicU64,
    flags: Flags,
}

impl<'run> Core<'run> {
    #[inline]
    pub(crate) fn new(setup: &'run Setup, context: &'run Context) -> Core<'run> {
        Core {
            setup,
            context,
            deadline: context.deadline_on(&setup.clock),
            tries: AtomicU32::new(0),
            attempts: AtomicU32::new(0),
            now: AtomicU64::new(UNKNOWN),
            start: AtomicU64::new(UNKNOWN),
            armed: AtomicU64::new(UNKNOWN),
            flags: Flags::new(setup.observers.audience(), context.is_plain()),
        }
    }

    #[inline]
    pub(crate) fn clock(&self) -> &'run Clock {
        &self.setup.clock
    }

    pub(crate) fn rng(&self) -> &'run Rng {
        self.setup.rng.as_ref().or(self.context.rng()).unwrap_or(Rng::THREAD)
    }

    #[inline]
    pub(crate) fn life(&self) -> Option<&'run Arc<Life>> {
        self.setup.life.as_ref()
    }

    /// The operation is started in try `number`.
    #[inline]
    fn count_attempt(&self, number: u32) {
        if self.attempts() > 0 {
            return self.count_another(number);
        }
        self.tries.store(number, Relaxed);
        self.attempts.store(1, Relaxed);
        if let Some(budget) = self.budget()
            && budget.begin_run()
        {
            self.flags.set(IN_FLIGHT);
        }
    }

    /// [`attempts`](Core::attempts), as scopes and permits remember it.
    #[inline]
    fn starts(&self) -> u16 {
        self.attempts() as u16
    }

    #[cold]
    fn count_another(&self, number: u32) {
        self.tries.store(number.max(self.tries()), Relaxed);
        self.attempts.store(self.attempts().saturating_add(1), Relaxed);
        self.flags.clear(PANICKED);
    }

    fn mark_panicked(&self) {
        self.flags.set(PANICKED);
    }

    /// Whether the operation of the last attempt has panicked.
    fn has_panicked(&self) -> bool {
        self.flags.has(PANICKED)
    }

    /// Whether somebody has to be told of the end of the run.
    #[inline]
    pub(crate) fn has_to_tell(&self) -> bool {
        self.flags.has(ID | IN_FLIGHT)
    }

    /// The run is over, and all that it held was given back.
    #[cold]
    #[inline(never)]
    pub(crate) fn end(&self) {
        if self.flags.has(IN_FLIGHT)
            && let Some(budget) = self.budget()
        {
            self.flags.clear(IN_FLIGHT);
            budget.end_run();
        }
    }

    #[inline]
    pub(crate) fn budget(&self) -> Option<&'run Budget> {
        self.setup.budget.as_ref()
    }

    /// The highest number of a try whose operation was started.
    #[inline]
    pub(crate) fn tries(&self) -> u32 {
        self.tries.load(Relaxed)
    }

    /// How often the operation was started, hedges included.
    #[inline]
    pub(crate) fn attempts(&self) -> u32 {
        self.attempts.load(Relaxed)
    }

    /// A poll of the run is over, and it is pending.
    #[inline]
    pub(crate) fn end_poll(&self) {
        self.forget_now();
        self.armed.store(UNKNOWN, Relaxed);
    }

    /// The time of this poll.
    #[inline]
    pub(crate) fn now(&self) -> Moment {
        let now = self.now.load(Relaxed);
        if now == UNKNOWN { self.look() } else { Moment::from_nanos(now) }
    }

    /// Reads the clock, also if this poll has done so already.
    // Once in the program, and not in each chain.
    #[inline(never)]
    pub(crate) fn look(&self) -> Moment {
        let now = self.clock().now();
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
        self.since_start(Core::look)
    }

    /// [`elapsed`](Core::elapsed) as far as this poll knows: the same, unless something has taken long within it.
    pub(crate) fn elapsed_before_poll(&self) -> Duration {
        self.since_start(Core::now)
    }

    fn since_start(&self, now: impl FnOnce(&Self) -> Moment) -> Duration {
        match self.start.load(Relaxed) {
            UNKNOWN => Duration::ZERO,
            start => now(self).since(Moment::from_nanos(start)),
        }
    }

    /// Whether something outside asks the run to end: the caller, the executor, the deadline.
    #[inline]
    pub(crate) fn ended(&self) -> Option<Cause> {
        if self.is_quiet() && !self.life().is_some_and(|life| life.is_shut_down()) { None } else { self.ended_slow() }
    }

    /// Whether nobody observes the run, and its caller has brought nothing that ends it or limits it: what sets few runs apart
    /// from the others is asked once, and not one by one.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        self.flags.has(PLAIN)
    }

    /// Whether the caller brought nothing that can end the run.
    #[inline]
    pub(crate) fn is_quiet(&self) -> bool {
        self.is_plain() || (self.deadline.is_never() && !self.context.has_more())
    }

    /// Whether the caller allows the operation to be started once more.
    pub(crate) fn may_start(&self) -> bool {
        self.context.max_attempts().is_none_or(|most| self.attempts() < most)
    }

    #[cold]
    fn ended_slow(&self) -> Option<Cause> {
        if self.context.token().is_some_and(CancellationToken::is_cancelled) {
            Some(Cause::Cancelled)
        } else if self.life().is_some_and(|life| life.is_shut_down()) {
            Some(Cause::ShutDown)
        } else if !self.deadline.is_never() && self.look() >= self.deadline {
            Some(Cause::DeadlineExceeded)
        } else {
            None
        }
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

    #[inline]
    fn arm(&self, at: Moment) {
        self.armed.store(self.armed().min(at).nanos(), Relaxed);
    }

    /// The timer for `at` is gone. Forgets a little too much if another one waits for the same moment, which costs a
    /// timer and loses nothing.
    #[inline]
    fn disarm(&self, at: Moment) {
        if self.armed() == at {
            self.armed.store(UNKNOWN, Relaxed);
        }
    }
}

const UNKNOWN: u64 = u64::MAX;
