use std::time::Duration;

use crate::breaker::family::Family;
use crate::breaker::half_open::HalfOpen;
use crate::breaker::listeners::TransitionQueue;
use crate::breaker::open_time::OpenTimes;
use crate::clock::{Moment, nanos};
use crate::sync::{AtomicU64, Mutex, Ordering};

/// What a breaker needs that has opened, or paused, at least once.
#[derive(Debug)]
pub(super) struct Rare {
    /// The end of the open time or of the pause, in nanoseconds.
    pub(super) until: AtomicU64,
    /// Their length. What is left of them is never more: before their start, on a clock that stepped back, none has passed.
    pub(super) span: AtomicU64,
    pub(super) rejected: AtomicU64,
    pub(super) cold: Mutex<Cold>,
}

/// What changes of state need.
#[derive(Debug)]
pub(super) struct Cold {
    pub(super) half_open: HalfOpen,
    pub(super) times: OpenTimes,
    pub(super) transitions: TransitionQueue,
}

impl Rare {
    pub(super) fn new(family: &Family) -> Rare {
        // Others may wait for this to be made, so nobody's settings may be dropped here.
        let times = family.read_config(OpenTimes::new);
        let cold = Cold { half_open: HalfOpen::new(), times, transitions: TransitionQueue::default() };
        Rare { until: AtomicU64::new(0), span: AtomicU64::new(0), rejected: AtomicU64::new(0), cold: Mutex::new(cold) }
    }

    pub(super) fn until(&self) -> Moment {
        Moment::from_nanos(self.until.load(Ordering::Relaxed))
    }

    /// For so long from `at` on. Under the lock, and before the word that says so.
    pub(super) fn refuse_for(&self, span: Duration, at: Moment) {
        self.span.store(nanos(span), Ordering::Relaxed);
        self.until.store((at + span).nanos(), Ordering::Relaxed);
    }

    /// How much is left at `now`; none if it is for ever.
    pub(super) fn time_left(&self, now: Moment) -> Option<Duration> {
        let (until, span) = (self.until(), Duration::from_nanos(self.span.load(Ordering::Relaxed)));
        (!until.is_never()).then(|| until.since(now).min(span))
    }
}
