//! The numbers that closed calls are held against, in atomics, so that they can be changed under load.
//!
//! One writer at a time (it holds the lock of its [`Family`](super::family::Family)) makes the version odd, stores the
//! numbers and makes it even again. A reader who found the same even version before and after has numbers that belong
//! together. The numbers are loaded `Acquire` and stored `Release`: whoever sees a new one sees the odd version that was
//! stored before it, or a later one, when it looks at the version again. A reader who was disturbed does not spin; it
//! takes the lock.
//!
//! The paths of a call that need one number only load just that one, and the version with it: whatever they decide
//! to do about it is decided again, under the lock of the breaker, if the version is another one by then.

use std::time::Duration;

use super::rule::TripRule;
use super::totals::Totals;
use super::transition::Cause;
use crate::clock::nanos;
use crate::sync::{AtomicU64, Ordering};

/// The numbers of one version.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Thresholds {
    pub(super) version: u64,
    /// Of each rate that is not watched, infinity: no share reaches it.
    failure_rate: f64,
    slow_rate: f64,
    /// What makes a call slow; `u64::MAX` if nothing does.
    slow_call: u64,
    minimum_calls: u64,
    count_rate: f64,
    count_minimum: u64,
    streak: StreakRule,
    /// Whether there are predicates to ask.
    asks: bool,
}

/// The consecutive rule: how many failures, and how often there was no such rule before. Failures from before a time
/// without the rule are not counted to those after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StreakRule {
    /// Zero if there is no such rule.
    pub(super) failures: u32,
    pub(super) era: u32,
}

impl Thresholds {
    pub(super) fn new(rule: &TripRule) -> Thresholds {
        let unwatched = f64::INFINITY;
        let count = rule.window_of_calls();
        Thresholds {
            version: 0,
            failure_rate: rule.failure_share().unwrap_or(unwatched),
            slow_rate: rule.slow().map_or(unwatched, |slow| slow.rate),
            slow_call: rule.slow().map_or(u64::MAX, |slow| nanos(slow.call)),
            minimum_calls: rule.window_of_time().map_or(u64::MAX, |window| u64::from(window.minimum_calls)),
            count_rate: count.map_or(unwatched, |count| count.rate),
            count_minimum: count.map_or(u64::MAX, |count| u64::from(count.minimum_calls())),
            streak: StreakRule { failures: rule.consecutive_failures().unwrap_or(0), era: 0 },
            asks: rule.has_predicates(),
        }
    }

    /// Which of the rates that are watched over the time window is reached, if the window holds the minimum of calls.
    pub(super) fn met(&self, totals: Totals) -> Option<Cause> {
        if self.has_failures(totals) {
            Some(Cause::FailureRate)
        } else if self.is_slow(totals) {
            Some(Cause::SlowRate)
        } else {
            None
        }
    }

    /// Whether more successes can only make the rates lower.
    pub(super) fn has_enough(&self, totals: Totals) -> bool {
        totals.calls() >= self.minimum_calls
    }

    /// Whether so many failures among so many calls, or among more, are too few for the failure rate.
    pub(super) fn is_below_failure_rate(&self, totals: Totals) -> bool {
        !reached(totals.failures, totals.calls(), self.failure_rate)
    }

    pub(super) fn count_window_met(&self, failures: u64, calls: u64) -> bool {
        calls >= self.count_minimum && reached(failures, calls, self.count_rate)
    }

    pub(super) fn count_minimum(&self) -> u64 {
        self.count_minimum
    }

    pub(super) fn has_slow_rule(&self) -> bool {
        self.slow_rate.is_finite()
    }

    pub(super) fn asks(&self) -> bool {
        self.asks
    }

    pub(super) fn streak(&self) -> StreakRule {
        self.streak
    }

    fn has_failures(&self, totals: Totals) -> bool {
        totals.calls() >= self.minimum_calls && reached(totals.failures, totals.calls(), self.failure_rate)
    }

    fn is_slow(&self, totals: Totals) -> bool {
        totals.timed_calls() >= self.minimum_calls && reached(totals.all_slow(), totals.timed_calls(), self.slow_rate)
    }
}

/// The present numbers of a family of breakers.
#[derive(Debug)]
pub(super) struct LiveThresholds {
    /// Odd while the numbers are being changed.
    version: AtomicU64,
    failure_rate: AtomicU64,
    slow_rate: AtomicU64,
    slow_call: AtomicU64,
    minimum_calls: AtomicU64,
    count_rate: AtomicU64,
    count_minimum: AtomicU64,
    /// `era: 32 | failures: 32`.
    streak: AtomicU64,
    asks: AtomicU64,
}

impl LiveThresholds {
    pub(super) fn new(first: &Thresholds) -> LiveThresholds {
        LiveThresholds {
            version: AtomicU64::new(first.version),
            failure_rate: AtomicU64::new(first.failure_rate.to_bits()),
            slow_rate: AtomicU64::new(first.slow_rate.to_bits()),
            slow_call: AtomicU64::new(first.slow_call),
            minimum_calls: AtomicU64::new(first.minimum_calls),
            count_rate: AtomicU64::new(first.count_rate.to_bits()),
            count_minimum: AtomicU64::new(first.count_minimum),
            streak: AtomicU64::new(first.streak.pack()),
            asks: AtomicU64::new(u64::from(first.asks)),
        }
    }

    #[inline]
    pub(super) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    #[inline]
    pub(super) fn streak(&self) -> StreakRule {
        StreakRule::unpack(self.streak.load(Ordering::Acquire))
    }

    /// What makes a call slow, if anything does.
    #[inline]
    pub(super) fn slow_call(&self) -> Option<Duration> {
        let nanos = self.slow_call.load(Ordering::Acquire);
        (nanos != u64::MAX).then(|| Duration::from_nanos(nanos))
    }

    /// The numbers, unless they are being changed.
    pub(super) fn read(&self) -> Option<Thresholds> {
        let version = self.version();
        let number = |atomic: &AtomicU64| atomic.load(Ordering::Acquire);
        let rate = |atomic: &AtomicU64| f64::from_bits(number(atomic));
        let thresholds = Thresholds {
            version,
            failure_rate: rate(&self.failure_rate),
            slow_rate: rate(&self.slow_rate),
            slow_call: number(&self.slow_call),
            minimum_calls: number(&self.minimum_calls),
            count_rate: rate(&self.count_rate),
            count_minimum: number(&self.count_minimum),
            streak: self.streak(),
            asks: number(&self.asks) != 0,
        };
        (version.is_multiple_of(2) && self.version() == version).then_some(thresholds)
    }

    /// Changes all numbers. Only the holder of the family's lock may.
    pub(super) fn store(&self, next: &Thresholds) {
        let version = self.version();
        let before = self.streak();
        let returns = before.failures == 0 && next.streak.failures != 0;
        let streak = StreakRule { era: before.era.wrapping_add(u32::from(returns)), ..next.streak };
        let store = |atomic: &AtomicU64, value: u64| atomic.store(value, Ordering::Release);
        store(&self.version, version + 1);
        store(&self.failure_rate, next.failure_rate.to_bits());
        store(&self.slow_rate, next.slow_rate.to_bits());
        store(&self.slow_call, next.slow_call);
        store(&self.minimum_calls, next.minimum_calls);
        store(&self.count_rate, next.count_rate.to_bits());
        store(&self.count_minimum, next.count_minimum);
        store(&self.streak, streak.pack());
        store(&self.asks, u64::from(next.asks));
        store(&self.version, version + 2);
    }
}

impl StreakRule {
    #[inline]
    pub(super) fn is_set(self) -> bool {
        self.failures != 0
    }

    /// What failures in a row carry to belong together: grows with the generation, and with every return of the rule.
    #[inline]
    pub(super) fn tag(self, generation: u64) -> u64 {
        generation.wrapping_add(u64::from(self.era))
    }

    fn pack(self) -> u64 {
        u64::from(self.era) << 32 | u64::from(self.failures)
    }

    #[inline]
    fn unpack(word: u64) -> StreakRule {
        StreakRule { failures: word as u32, era: (word >> 32) as u32 }
    }
}

/// Whether so many are at least this share of all. A division, since it rounds like the threshold did when it was written
/// down: 55 / 100 is the number that "0.55" is, whereas 0.55 * 100 is more than 55.
pub(super) fn reached(some: u64, all: u64, rate: f64) -> bool {
    some as f64 / all as f64 >= rate
}
