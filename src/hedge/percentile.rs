//! The delay of a hedge that follows the latencies.
//!
//! # Warm-up
//!
//! While the delay is unknown, samples are counted beside the bins, so that nobody reads all bins before there are enough. Some
//! may have left the window, so the count may be too high, and then the bins are read in vain, once in a sixtieth of the window.
//! It must not be too low: who reads the bins corrects the count to what it has found there, and keeps what has been added since.
//!
//! * One at a time reads the bins: who has put `BEING_ESTIMATED` into `stale_at`, with `Acquire`. It is taken out with `Release`, so
//!   that the next one does not correct anew what the one before has corrected.
//! * A sample is counted in its bin first and beside it then, with `Release`; the count is read first and the bins then, with
//!   `Acquire`. So what is corrected away as counted was found in the bins, unless it has left the window.
//! * Samples are not counted beside the bins while the delay is known. So it is made unknown first, and the bins are read then;
//!   with a sample it is the other way round, and all four accesses are `SeqCst`: either the sample is found in its bin, or it
//!   finds the delay unknown.

use std::fmt;
use std::sync::OnceLock;
use std::time::Duration;

use super::latency::Latencies;
use crate::clock::{Clock, Moment};
use crate::error::ConfigError;
use crate::sync::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
    model_fence,
};

/// What all clones of one hedge share: the latencies, and the delay that was last read from them.
pub(super) struct Percentile {
    pub(super) settings: PercentileSettings,
    latencies: Latencies,
    /// In nanoseconds; `UNKNOWN` in the warm-up.
    delay: AtomicU64,
    /// When `delay` may be estimated anew; `BEING_ESTIMATED` while somebody does that.
    stale_at: AtomicU64,
    /// How many samples there are in a warm-up, or more. They are not counted while the delay is known.
    samples: AtomicU64,
    /// Set by the first use, and never changed: moments of different clocks cannot be compared.
    clock: OnceLock<Clock>,
}

#[derive(Clone, Debug)]
pub(super) struct PercentileSettings {
    pub(super) p: f64,
    pub(super) min_samples: u32,
    pub(super) floor: Duration,
    pub(super) ceiling: Duration,
    pub(super) window: Duration,
}

impl Percentile {
    pub(super) fn new(settings: PercentileSettings) -> Percentile {
        let latencies = Latencies::new(settings.window);
        let (delay, stale_at, samples) = (AtomicU64::new(UNKNOWN), AtomicU64::new(0), AtomicU64::new(0));
        Percentile { settings, latencies, delay, stale_at, samples, clock: OnceLock::new() }
    }

    /// How long to wait, if enough is known.
    // The words are not one: whoever reads a new `stale_at` with the delay before it waits as long as the call before.
    pub(super) fn delay(&self, now: Moment) -> Option<Duration> {
        let known = self.delay.load(Relaxed);
        if known == UNKNOWN && self.samples.load(Relaxed) < u64::from(self.settings.min_samples) {
            return None;
        }
        let stale_at = self.stale_at.load(Relaxed);
        if now.nanos() < stale_at || !self.may_estimate(stale_at) {
            return (known != UNKNOWN).then(|| Duration::from_nanos(known));
        }
        self.estimate(now)
    }

    /// Whether nobody else does.
    #[cold]
    fn may_estimate(&self, stale_at: u64) -> bool {
        self.stale_at.compare_exchange(stale_at, BEING_ESTIMATED, Acquire, Relaxed).is_ok()
    }

    /// Reads all bins.
    #[cold]
    fn estimate(&self, now: Moment) -> Option<Duration> {
        let PercentileSettings { p, min_samples, floor, ceiling, window } = self.settings;
        let estimate = self.latencies.percentile(now, p, min_samples);
        let delay = estimate.map(|estimate| estimate.max(floor).min(ceiling));
        match delay {
            Some(delay) => self.delay.store(u64::try_from(delay.as_nanos()).unwrap_or(UNKNOWN - 1), Relaxed),
            None => self.begin_warm_up(|| self.latencies.samples(now)),
        }
        self.stale_at.store((now + window / ESTIMATES).nanos(), Release);
        delay
    }

    /// Or goes on with it, when some have left the window since they were counted. `in_bins` reads how many there are.
    fn begin_warm_up(&self, in_bins: impl FnOnce() -> u64) {
        self.delay.store(UNKNOWN, SeqCst);
        model_fence();
        let counted = self.samples.load(Acquire);
        self.samples.fetch_add(in_bins().wrapping_sub(counted), Relaxed);
    }

    /// A lane was answered.
    pub(super) fn answered(&self, now: Moment, latency: Duration) {
        self.latencies.ended(now, latency);
        self.count_in_warm_up();
    }

    /// A lane was given up, or ran into a limit inside of it.
    pub(super) fn cut_off(&self, now: Moment, time: Duration) {
        self.latencies.cut_off(now, time);
        self.count_in_warm_up();
    }

    fn count_in_warm_up(&self) {
        model_fence();
        if self.delay.load(SeqCst) == UNKNOWN {
            self.count();
        }
    }

    fn count(&self) {
        self.samples.fetch_add(1, Release);
    }

    pub(super) fn bind(&self, clock: &Clock) -> Result<(), ConfigError> {
        if self.clock.get_or_init(|| clock.clone()) == clock {
            return Ok(());
        }
        Err(ConfigError::new(
            "clock",
            format_args!("{clock:?}"),
            "a hedge that follows latencies keeps to its first clock",
        ))
    }

    /// The delay now; one that was never used has none.
    pub(super) fn look(&self) -> Option<Duration> {
        self.delay(self.clock.get()?.now())
    }
}

impl PercentileSettings {
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let PercentileSettings { p, min_samples, floor, ceiling, window } = *self;
        if !(p > 0.0 && p < 1.0) {
            return Err(ConfigError::new("percentile", p, "must be a number between 0 and 1"));
        }
        if min_samples == 0 {
            return Err(ConfigError::new("min_samples", 0, "must be at least 1"));
        }
        if floor > ceiling {
            return Err(ConfigError::new("floor", format_args!("{floor:?}"), "must not exceed the ceiling"));
        }
        if window < SHORTEST_WINDOW {
            return Err(ConfigError::new("window", format_args!("{window:?}"), "must be at least 1 s"));
        }
        Ok(())
    }
}

impl fmt::Debug for Percentile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Percentile").field("settings", &self.settings).field("delay", &self.look()).finish()
    }
}

const UNKNOWN: u64 = u64::MAX;

const BEING_ESTIMATED: u64 = u64::MAX;

/// How many estimates are made in one window, at most: each one reads all bins, some 1,200 words.
const ESTIMATES: u32 = 60;

/// The number of a half must not come round while words of it are left: with half a second it takes 68 years.
const SHORTEST_WINDOW: Duration = Duration::from_secs(1);

#[cfg(all(test, steadfast_loom))]
mod loom_models;

#[cfg(all(test, not(steadfast_loom)))]
mod tests {
    use super::*;

    fn at(secs: u64) -> Moment {
        Moment::from_nanos(1 << 50) + Duration::from_secs(secs)
    }

    fn of_a_minute() -> Percentile {
        let (floor, ceiling) = (Duration::ZERO, Duration::from_secs(10));
        Percentile::new(PercentileSettings {
            p: 0.5,
            min_samples: 100,
            floor,
            ceiling,
            window: Duration::from_secs(60),
        })
    }

    fn answer(percentile: &Percentile, now: Moment, times: usize) {
        (0..times).for_each(|_| percentile.answered(now, Duration::from_millis(10)));
    }

    #[test]
    fn the_delay_is_known_with_the_last_sample_that_it_takes() {
        let percentile = of_a_minute();
        answer(&percentile, at(0), 98);
        percentile.cut_off(at(0), Duration::from_millis(10));
        assert_eq!(percentile.delay(at(0)), None);
        answer(&percentile, at(0), 1);
        assert!(percentile.delay(at(0)).is_some());
    }

    /// Reading all bins in each call would cost more than most calls do.
    #[test]
    fn the_bins_are_not_read_before_there_can_be_enough_samples_and_not_more_often_than_so() {
        let percentile = of_a_minute();
        answer(&percentile, at(0), 99);
        // Not counted, as if another had been lost: whoever read the bins would find a hundred.
        percentile.latencies.ended(at(0), Duration::from_millis(10));
        assert_eq!(percentile.delay(at(0)), None);
        // All have left the window, which is found out once, and then there are enough again.
        answer(&percentile, at(0), 1);
        assert_eq!(percentile.delay(at(200)), None);
        assert_eq!(percentile.samples.load(Relaxed), 0);
        answer(&percentile, at(200), 100);
        assert_eq!(percentile.delay(at(200)), None, "not twice within a sixtieth of the window");
        assert!(percentile.delay(at(201)).is_some());
    }

    #[test]
    fn a_delay_that_was_known_is_unknown_once_its_samples_are_gone() {
        let percentile = of_a_minute();
        answer(&percentile, at(0), 500);
        assert!(percentile.delay(at(0)).is_some());
        assert_eq!(percentile.delay(at(200)), None);
        answer(&percentile, at(202), 99);
        assert_eq!(percentile.delay(at(202)), None);
        answer(&percentile, at(202), 1);
        assert!(percentile.delay(at(202)).is_some());
    }

    #[test]
    fn what_is_answered_while_the_bins_are_read_is_not_lost() {
        let percentile = of_a_minute();
        answer(&percentile, at(0), 500);
        assert!(percentile.delay(at(0)).is_some());
        // In the warm-up that begins, and in one that goes on.
        for already in [0, 3] {
            percentile.begin_warm_up(|| {
                let read = percentile.latencies.samples(at(200));
                answer(&percentile, at(200), 3);
                read
            });
            assert_eq!(percentile.samples.load(Relaxed), already + 3);
        }
        answer(&percentile, at(200), 93);
        assert_eq!(percentile.delay(at(200)), None);
        answer(&percentile, at(200), 1);
        assert!(percentile.delay(at(200)).is_some());
    }

    #[test]
    fn one_at_a_time_reads_the_bins() {
        let percentile = of_a_minute();
        answer(&percentile, at(0), 100);
        let known = percentile.delay(at(0));
        assert!(known.is_some() && percentile.may_estimate(at(1).nanos()));
        assert!(!percentile.may_estimate(at(1).nanos()));
        assert_eq!(percentile.delay(at(200)), known, "the one from before, though nothing is left of it");
    }
}
