//! A percentile of the latencies of the last while, in bounded memory and without a lock.
//!
//! # Bins
//!
//! Latencies are counted in the bins of an HdrHistogram (Gil Tene): in units of 16 µs, one bin a unit for the first sixteen,
//! then sixteen bins for every doubling, up to 68 s. A bin is at most a sixteenth of its latency wide, and within it the
//! estimate is interpolated.
//!
//! # Windows
//!
//! A bin is two words, one for each half of the window; the half that is under way and the one before are counted. Each word is
//! `epoch: 32 | count: 32`, the epoch being the number of its half. A record that finds an older epoch begins with one: this
//! *is* the rotation, nothing has to be cleared. Each word is a number of its own, and an estimate may see one record and miss
//! the one before; accesses are `SeqCst` for the sake of the count beside the bins (`percentile.rs`).
//!
//! # Attempts that were cut off
//!
//! Of an attempt that lost a race, or ran into a limit, is known only that it takes longer than it did. Leaving it out would
//! make the slow look rare, and so would taking its time for its latency. The product-limit estimator (Kaplan and Meier,
//! "Nonparametric Estimation from Incomplete Observations", 1958) is made for this: the share that takes longer than a bin is
//! the product of `1 - ended / at risk` over the bins up to it, where at risk is whatever reached the bin, so that an attempt
//! that was cut off counts as long as it ran and not after that.

use std::time::Duration;

use crate::clock::Moment;
use crate::sync::{
    AtomicU64,
    Ordering::{Relaxed, SeqCst},
};

/// Counts of latencies over a window, from which [`percentile`](Latencies::percentile) estimates.
pub(super) struct Latencies {
    /// Half of the window, in nanoseconds.
    half: u64,
    ended: Bins,
    cut_off: Bins,
}

impl Latencies {
    pub(super) fn new(window: Duration) -> Latencies {
        let half = u64::try_from(window.as_nanos() / 2).unwrap_or(u64::MAX).max(1);
        Latencies { half, ended: Bins::new(), cut_off: Bins::new() }
    }

    /// An attempt took `latency`, and was answered.
    pub(super) fn ended(&self, now: Moment, latency: Duration) {
        self.ended.count(self.epoch(now), bin(latency));
    }

    /// An attempt was cut off after `time`.
    pub(super) fn cut_off(&self, now: Moment, time: Duration) {
        self.cut_off.count(self.epoch(now), bin(time));
    }

    /// The latency that a share of `p` of all attempts does not exceed; `None` with fewer than `least` samples. It is
    /// `Duration::MAX` if so many were cut off that it is longer than any that was seen.
    pub(super) fn percentile(&self, now: Moment, p: f64, least: u32) -> Option<Duration> {
        let epoch = self.epoch(now);
        let mut at_risk = self.samples(now);
        if at_risk < u64::from(least) {
            return None;
        }
        let mut longer = 1.0;
        for bin in 0..BINS {
            let ended = self.ended.read(epoch, bin);
            if ended > 0 {
                let after = longer * (1.0 - ended as f64 / at_risk.max(ended) as f64);
                if 1.0 - after >= p {
                    return Some(within(bin, (longer - (1.0 - p)) / (longer - after)));
                }
                longer = after;
            }
            at_risk = at_risk.saturating_sub(ended + self.cut_off.read(epoch, bin));
        }
        Some(Duration::MAX)
    }

    /// How many attempts are counted.
    pub(super) fn samples(&self, now: Moment) -> u64 {
        let epoch = self.epoch(now);
        (0..BINS).map(|bin| self.ended.read(epoch, bin) + self.cut_off.read(epoch, bin)).sum()
    }

    /// The number of the half that `now` is in.
    fn epoch(&self, now: Moment) -> u32 {
        (now.nanos() / self.half) as u32
    }
}

struct Bins(Box<[AtomicU64]>);

impl Bins {
    fn new() -> Bins {
        Bins((0..2 * BINS).map(|_| AtomicU64::new(0)).collect())
    }

    fn count(&self, epoch: u32, bin: usize) {
        let counted = |word: u64| {
            let (its_epoch, count) = ((word >> 32) as u32, word as u32);
            let behind = epoch.wrapping_sub(its_epoch);
            let count = if behind == 0 { count.saturating_add(1) } else { 1 };
            // A record of the half before, that comes late, finds its word taken.
            (behind < 1 << 31).then_some(u64::from(epoch) << 32 | u64::from(count))
        };
        let _late = self.word(epoch, bin).fetch_update(SeqCst, Relaxed, counted);
    }

    /// What was counted in the half `epoch`, the one before, and in a later one by others who are ahead.
    fn read(&self, epoch: u32, bin: usize) -> u64 {
        let first = epoch.wrapping_sub(1);
        let of = |half: u32| {
            let word = self.word(half, bin).load(SeqCst);
            let is_within = ((word >> 32) as u32).wrapping_sub(first) < 1 << 31;
            if is_within { u64::from(word as u32) } else { 0 }
        };
        of(epoch) + of(first)
    }

    fn word(&self, epoch: u32, bin: usize) -> &AtomicU64 {
        &self.0[2 * bin + (epoch & 1) as usize]
    }
}

/// The bin of a latency; what is longer than the last one is counted there.
fn bin(latency: Duration) -> usize {
    let units = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX) >> UNIT_BITS;
    let doublings = (u64::BITS - units.leading_zeros()).saturating_sub(PRECISION_BITS + 1);
    let bin = ((u64::from(doublings) << PRECISION_BITS) + (units >> doublings)) as usize;
    bin.min(BINS - 1)
}

/// Where a bin begins, in nanoseconds.
fn start(bin: usize) -> u64 {
    let doublings = (bin >> PRECISION_BITS).saturating_sub(1);
    let units = (bin - (doublings << PRECISION_BITS)) as u64;
    units << doublings << UNIT_BITS
}

/// The latency at a `part` of the way through a bin.
fn within(bin: usize, part: f64) -> Duration {
    let (start, end) = (start(bin), start(bin + 1));
    Duration::from_nanos(start + ((end - start) as f64 * part.clamp(0.0, 1.0)) as u64)
}

/// A unit is 2¹⁴ ns, about 16 µs: hedging is for latencies of more than a millisecond.
const UNIT_BITS: u32 = 14;

/// Sixteen bins for every doubling.
const PRECISION_BITS: u32 = 4;

/// Up to 2²² units: 68 s. One for all in the models, whose every access multiplies what there is to check.
const BINS: usize = if cfg!(steadfast_loom) { 1 } else { (22 - PRECISION_BITS as usize + 1) << PRECISION_BITS };

#[cfg(all(test, not(steadfast_loom)))]
mod tests {
    use super::*;
    use crate::rng::Rng;

    fn at(secs: u64) -> Moment {
        Moment::from_nanos(1 << 50) + Duration::from_secs(secs)
    }

    fn ms(millis: f64) -> Duration {
        Duration::from_secs_f64(millis / 1000.0)
    }

    fn minute() -> Latencies {
        Latencies::new(Duration::from_secs(60))
    }

    /// The percentile, in milliseconds.
    fn percentile(latencies: &Latencies, p: f64) -> f64 {
        latencies.percentile(at(0), p, 1).expect("one sample is enough").as_secs_f64() * 1000.0
    }

    #[test]
    fn bins_follow_each_other_without_a_gap() {
        for bin_number in 1..BINS {
            let start = start(bin_number);
            assert_eq!(bin(Duration::from_nanos(start)), bin_number);
            assert_eq!(bin(Duration::from_nanos(start - 1)), bin_number - 1);
        }
        assert_eq!((bin(Duration::ZERO), bin(Duration::MAX)), (0, BINS - 1));
    }

    #[test]
    fn a_bin_is_at_most_a_sixteenth_of_its_latency_wide() {
        for bin in 16..BINS {
            assert!((start(bin + 1) - start(bin)) * 16 <= start(bin), "bin {bin}");
        }
    }

    #[test]
    fn nothing_is_estimated_from_too_few_samples() {
        let latencies = minute();
        (0..99).for_each(|_| latencies.ended(at(0), ms(10.0)));
        assert_eq!(latencies.percentile(at(0), 0.5, 100), None);
        latencies.cut_off(at(0), ms(10.0));
        assert!(latencies.percentile(at(0), 0.5, 100).is_some());
    }

    #[test]
    fn the_first_sample_is_the_estimate_and_so_is_a_constant() {
        let latencies = minute();
        for _ in 0..1000 {
            latencies.ended(at(0), ms(20.0));
            let estimate = percentile(&latencies, 0.95);
            assert!((18.8..21.3).contains(&estimate), "{estimate}");
        }
    }

    #[test]
    fn an_even_spread_is_estimated_within_a_hundredth_of_it() {
        let (latencies, rng) = (minute(), Rng::seeded(7));
        (0..20_000).for_each(|_| latencies.ended(at(0), ms(100.0 * rng.unit())));
        for p in [0.1, 0.5, 0.9, 0.95, 0.99] {
            let estimate = percentile(&latencies, p);
            assert!((estimate - 100.0 * p).abs() < 1.0, "p{p}: {estimate}");
        }
    }

    #[test]
    fn a_normal_spread_is_estimated_within_a_bin() {
        let (latencies, rng) = (minute(), Rng::seeded(7));
        // Twelve even draws add up to one that is nearly normal, with a deviation of one.
        let normal = || (0..12).map(|_| rng.unit()).sum::<f64>() - 6.0;
        (0..20_000).for_each(|_| latencies.ended(at(0), ms(100.0 + 10.0 * normal())));
        for (p, expected) in [(0.1, 87.2), (0.5, 100.0), (0.9, 112.8), (0.95, 116.4), (0.99, 123.3)] {
            let estimate = percentile(&latencies, p);
            assert!((estimate - expected).abs() < expected / 16.0, "p{p}: {estimate}");
        }
    }

    #[test]
    fn nanoseconds_are_told_from_nothing_and_minutes_from_seconds() {
        let latencies = minute();
        latencies.ended(at(0), Duration::from_nanos(7));
        assert!(percentile(&latencies, 0.9) < 0.02);
        let latencies = minute();
        latencies.ended(at(0), Duration::from_secs(600));
        assert!(percentile(&latencies, 0.9) > 60_000.0);
    }

    #[test]
    fn what_is_older_than_the_window_is_forgotten() {
        let latencies = minute();
        let start = at(0).nanos().next_multiple_of(30_000_000_000);
        let later = |secs| Moment::from_nanos(start) + Duration::from_secs(secs);
        (0..100).for_each(|_| latencies.ended(later(0), ms(100.0)));
        (0..100).for_each(|_| latencies.ended(later(30), ms(10.0)));
        let p90 = |secs| latencies.percentile(later(secs), 0.9, 1);
        assert!(p90(59).is_some_and(|estimate| estimate > ms(90.0)));
        assert!(p90(60).is_some_and(|estimate| estimate < ms(11.0)));
        assert_eq!(p90(90), None);
        // A late record of a half that is gone changes nothing.
        latencies.ended(later(0), ms(100.0));
        assert!(p90(60).is_some_and(|estimate| estimate < ms(11.0)));
    }

    /// Two threads on both sides of the end of a half: who is behind must not take for missing what the other has counted.
    #[test]
    fn what_others_have_counted_in_a_later_half_is_seen() {
        let latencies = minute();
        let end_of_half = Moment::from_nanos(at(0).nanos().next_multiple_of(30_000_000_000));
        let before = Moment::from_nanos(end_of_half.nanos() - 1);
        latencies.ended(before, ms(10.0));
        latencies.ended(end_of_half, ms(10.0));
        assert_eq!(latencies.samples(before), 2);
    }

    /// Every attempt over 60 ms is cut off, half of the others at a random time: the quantiles of what they would have
    /// taken are found all the same, where there is anything left to see.
    #[test]
    fn what_was_cut_off_counts_for_as_long_as_it_ran() {
        let (latencies, naive, rng) = (minute(), minute(), Rng::seeded(7));
        for _ in 0..50_000 {
            let latency = 100.0 * rng.unit();
            let cut = if rng.unit() < 0.5 { 60.0 } else { 60.0 * rng.unit() };
            naive.ended(at(0), ms(latency.min(cut)));
            if latency < cut {
                latencies.ended(at(0), ms(latency));
            } else {
                latencies.cut_off(at(0), ms(cut));
            }
        }
        for p in [0.25, 0.5] {
            let (estimate, without) = (percentile(&latencies, p), percentile(&naive, p));
            assert!((estimate / (100.0 * p) - 1.0).abs() < 0.02, "p{p}: {estimate}");
            assert!(without < 90.0 * p, "p{p}: {without}");
        }
        assert_eq!(latencies.percentile(at(0), 0.9, 1), Some(Duration::MAX));
    }
}
