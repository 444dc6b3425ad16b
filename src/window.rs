//! A rolling window of counts: a ring of packed words, one for each bucket of time, without a lock.
//!
//! # The word
//!
//! Every word is `epoch: 32 | count: 32`. The epoch says *which* bucket the count belongs to:
//!
//! ```text
//! tick  = now / width                               bucket number since the clock's origin
//! slot  = tick mod n                                which word of the ring
//! epoch = tick + generation * 2n   (low 32 bits)    what the word must carry to be counted
//! ```
//!
//! A record is one compare-and-swap on one word. The same epoch counts one more. An older epoch becomes `(epoch, 1)`:
//! this *is* the rotation, there is no other, so a window that nobody touched for years is up to date after one
//! record. A newer epoch means that the bucket has moved on, and the record is dropped. Counts saturate.
//!
//! # Generations
//!
//! An owner that starts its count afresh (a breaker that closes) raises its generation and clears nothing. `2n` is a
//! multiple of `n`, so the slots stay where they are; it is more than the `n` epochs of one window, so whatever an
//! earlier generation wrote, or still writes late, has an epoch outside of every window of the later one. A record
//! therefore needs no second look at the generation, and there is no moment at which a half-cleared ring can be seen.
//! (The clock must not step back by more than `n` buckets for that. It is monotonic; smaller steps only count a record
//! in the bucket that it names.)
//!
//! # Wrapping
//!
//! "Newer" is by less than [`AHEAD`] buckets. A word that seems to be farther ahead is an old one that the 32 bits have
//! lapped, and is replaced. So after an idle time within `AHEAD` buckets of 2³² buckets (136 years at one second a
//! bucket, 49 days at one millisecond) up to `AHEAD` buckets of records may be dropped; after any other, none. So that
//! a permit that was held through hundreds of generations is not taken for such a lap, a record asks whether its
//! generation is still the present one before it replaces anything. That question is off the fast path and decides
//! nothing else.
//!
//! # Orderings
//!
//! The swaps, and the loads of a sum, are `SeqCst`. Rules over two rings are decided in Dekker's pattern (write one's
//! own word, then read the others'), and of two recorders at least the one that is later in the single total order has
//! to see both words; `Release` and `Acquire` would allow both to miss the other. On x86-64 the code is the same. The
//! first load of a record and a failed swap are `Relaxed`: their value is only a guess that the swap verifies.

use std::time::Duration;

use crate::clock::Moment;
use crate::sync::{AtomicU64, Ordering, model_fence};

/// How time is cut into buckets.
#[derive(Debug)]
pub(crate) struct Geometry {
    width: Divisor,
    buckets: Divisor,
}

impl Geometry {
    /// `buckets` buckets of `width` each. The owner has checked both; zero is taken as one.
    pub(crate) fn new(buckets: u32, width: Duration) -> Self {
        let width = u64::try_from(width.as_nanos()).unwrap_or(u64::MAX);
        Geometry { width: Divisor::new(width), buckets: Divisor::new(u64::from(buckets)) }
    }

    /// The bucket in which `generation` counts what happens at `now`.
    #[inline]
    pub(crate) fn bucket(&self, now: Moment, generation: u64) -> Bucket {
        let tick = self.width.quotient(now.nanos());
        let slot = self.buckets.remainder(tick);
        let generations_apart = self.buckets.divisor.wrapping_mul(2).wrapping_mul(generation);
        Bucket { epoch: tick.wrapping_add(generations_apart) as u32, slot: slot as usize }
    }

    pub(crate) fn buckets(&self) -> usize {
        self.buckets.divisor as usize
    }
}

/// One bucket of time in one generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bucket {
    epoch: u32,
    slot: usize,
}

impl Bucket {
    #[inline]
    pub(crate) fn epoch(self) -> u32 {
        self.epoch
    }
}

/// Counts of one kind of event, one word a bucket.
#[derive(Debug)]
pub(crate) struct Ring {
    words: Box<[AtomicU64]>,
}

impl Ring {
    /// A ring of `buckets` words; none of them allocates nothing.
    pub(crate) fn new(buckets: usize) -> Self {
        Ring { words: (0..buckets).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Counts one event in `bucket`, which comes from a geometry of this ring's size.
    ///
    /// Returns whether it was counted: not if the bucket has moved on. `is_current` is asked only if the word belongs
    /// to another bucket: is the generation still the present one?
    #[inline]
    pub(crate) fn add(&self, bucket: Bucket, is_current: impl Fn() -> bool) -> bool {
        let word = &self.words[bucket.slot];
        let seen = word.load(Ordering::Relaxed);
        if epoch_of(seen) == bucket.epoch && count_of(seen) != u32::MAX && swap(word, seen, seen + 1) {
            return true;
        }
        add_contended(word, bucket.epoch, is_current)
    }

    /// The events in the window that ends with the bucket of `epoch`.
    pub(crate) fn sum(&self, epoch: u32) -> Sum {
        let buckets = self.words.len() as u32;
        let mut sum = Sum::default();
        for word in &self.words {
            let word = word.load(Ordering::SeqCst);
            let (its_epoch, count) = (epoch_of(word), count_of(word));
            let ahead = its_epoch.wrapping_sub(epoch);
            if epoch.wrapping_sub(its_epoch) < buckets {
                sum.count += u64::from(count);
            } else if count != 0 && ahead < AHEAD {
                sum.ahead = sum.ahead.max(ahead);
            }
        }
        sum
    }
}

/// What a ring holds for one window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sum {
    pub(crate) count: u64,
    /// By how many epochs the ring is ahead of the window: zero unless other recorders have moved on. Then words of the
    /// window may be gone, and its counts are not to be relied on.
    pub(crate) ahead: u32,
}

/// The general form of a record: another thread was quicker, or the word belongs to another bucket, or it is full.
#[cold]
#[inline(never)]
fn add_contended(word: &AtomicU64, epoch: u32, is_current: impl Fn() -> bool) -> bool {
    loop {
        let seen = word.load(Ordering::Relaxed);
        let (its_epoch, count) = (epoch_of(seen), count_of(seen));
        let next = if its_epoch == epoch {
            if count == u32::MAX {
                return true;
            }
            seen + 1
        } else if (count != 0 && its_epoch.wrapping_sub(epoch) < AHEAD) || !is_current() {
            return false;
        } else {
            u64::from(epoch) << 32 | 1
        };
        if swap(word, seen, next) {
            return true;
        }
    }
}

#[inline]
fn swap(word: &AtomicU64, seen: u64, next: u64) -> bool {
    let swapped = word.compare_exchange(seen, next, Ordering::SeqCst, Ordering::Relaxed).is_ok();
    model_fence();
    swapped
}

#[inline]
fn epoch_of(word: u64) -> u32 {
    (word >> 32) as u32
}

#[inline]
fn count_of(word: u64) -> u32 {
    word as u32
}

/// Exact division by a number that is known in advance, by one or two multiplications.
///
/// With `r = floor((2⁶⁴ - 1) / d)`, the estimate `n * r / 2⁶⁴` is at most `n / d` and more than `n / d - 1`, so it is
/// the quotient or one less, and one comparison tells which.
#[derive(Debug)]
struct Divisor {
    divisor: u64,
    reciprocal: u64,
}

impl Divisor {
    fn new(divisor: u64) -> Self {
        let divisor = divisor.max(1);
        Divisor { divisor, reciprocal: u64::MAX / divisor }
    }

    #[inline]
    fn quotient(&self, value: u64) -> u64 {
        let estimate = self.estimate(value);
        estimate + u64::from(value - estimate * self.divisor >= self.divisor)
    }

    #[inline]
    fn remainder(&self, value: u64) -> u64 {
        let rest = value - self.estimate(value) * self.divisor;
        if rest >= self.divisor { rest - self.divisor } else { rest }
    }

    #[inline]
    fn estimate(&self, value: u64) -> u64 {
        ((u128::from(value) * u128::from(self.reciprocal)) >> 64) as u64
    }
}

/// How far ahead a word may be before it is taken for one that the 32 bits have lapped: far more than a thread is
/// ever late by, and a vanishing part of the 2³² epochs.
const AHEAD: u32 = 1 << 16;

#[cfg(all(test, not(steadfast_loom)))]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn seconds(count: u64) -> Moment {
        Moment::from_nanos(count * SECOND)
    }

    /// Ten buckets of a second.
    fn ring() -> (Geometry, Ring) {
        (Geometry::new(10, Duration::from_secs(1)), Ring::new(10))
    }

    #[test]
    fn the_window_is_the_last_n_buckets() {
        let (geometry, ring) = ring();
        for second in 100..115 {
            assert!(ring.add(geometry.bucket(seconds(second), 0), || true));
        }
        let sum = |now| ring.sum(geometry.bucket(seconds(now), 0).epoch()).count;
        assert_eq!([sum(114), sum(115), sum(120), sum(123), sum(124)], [10, 9, 4, 1, 0]);
    }

    #[test]
    fn one_record_after_any_idle_time_is_the_whole_window() {
        let (geometry, ring) = ring();
        let mut now = 0;
        for idle in [10, 25, 3_600, 315_360_000, 3_153_600_000] {
            for _ in 0..10 {
                now += 1;
                ring.add(geometry.bucket(seconds(now), 0), || true);
            }
            now += idle;
            let bucket = geometry.bucket(seconds(now), 0);
            assert!(ring.add(bucket, || true));
            assert_eq!(ring.sum(bucket.epoch()).count, 1, "after {idle} s");
        }
    }

    #[test]
    fn a_record_for_a_bucket_that_moved_on_is_dropped() {
        let (geometry, ring) = ring();
        let (late, present) = (geometry.bucket(seconds(100), 0), geometry.bucket(seconds(110), 0));
        assert!(ring.add(present, || true));
        assert!(!ring.add(late, || true));
        assert_eq!(ring.sum(present.epoch()).count, 1);
    }

    #[test]
    fn a_record_for_an_earlier_bucket_that_is_still_there_counts_there() {
        let (geometry, ring) = ring();
        assert!(ring.add(geometry.bucket(seconds(105), 0), || true));
        assert!(ring.add(geometry.bucket(seconds(104), 0), || true));
        assert_eq!(ring.sum(geometry.bucket(seconds(105), 0).epoch()).count, 2);
        assert_eq!(ring.sum(geometry.bucket(seconds(104), 0).epoch()).count, 1);
    }

    #[test]
    fn a_sum_says_that_the_ring_has_moved_on() {
        let (geometry, ring) = ring();
        for second in [100, 103, 104] {
            ring.add(geometry.bucket(seconds(second), 0), || true);
        }
        let sum = |now| ring.sum(geometry.bucket(seconds(now), 0).epoch());
        assert_eq!(sum(102), Sum { count: 1, ahead: 2 });
        assert_eq!(sum(104), Sum { count: 3, ahead: 0 });
        assert_eq!(sum(150), Sum { count: 0, ahead: 0 });
    }

    #[test]
    fn a_generation_sees_nothing_of_another() {
        let (geometry, ring) = ring();
        for second in 100..110 {
            ring.add(geometry.bucket(seconds(second), 0), || true);
        }
        let bucket = geometry.bucket(seconds(109), 1);
        assert_eq!(ring.sum(bucket.epoch()).count, 0);
        assert!(ring.add(bucket, || true));
        assert!(!ring.add(geometry.bucket(seconds(109), 0), || true));
        assert_eq!(ring.sum(bucket.epoch()).count, 1);
    }

    #[test]
    fn a_record_from_thousands_of_generations_ago_replaces_nothing() {
        let (geometry, ring) = ring();
        let bucket = geometry.bucket(seconds(100), 10_000);
        assert!(ring.add(bucket, || true));
        assert!(!ring.add(geometry.bucket(seconds(100), 0), || false));
        assert_eq!(ring.sum(bucket.epoch()).count, 1);
    }

    #[test]
    fn an_untouched_word_takes_any_epoch() {
        let (geometry, ring) = ring();
        let bucket = geometry.bucket(seconds((1 << 32) - 5), 0);
        assert!(ring.add(bucket, || true));
        assert_eq!(ring.sum(bucket.epoch()).count, 1);
    }

    #[test]
    fn a_word_that_was_lapped_is_replaced() {
        let (geometry, ring) = ring();
        ring.add(geometry.bucket(seconds(100_000), 0), || true);
        let lapped = geometry.bucket(seconds(100_000 + (1 << 32) - 100_000), 0);
        assert!(ring.add(lapped, || true));
        assert_eq!(ring.sum(lapped.epoch()).count, 1);
    }

    #[test]
    fn counts_saturate() {
        let (geometry, ring) = ring();
        let bucket = geometry.bucket(seconds(100), 0);
        let full = u64::from(bucket.epoch) << 32 | u64::from(u32::MAX);
        ring.words[bucket.slot].store(full, Ordering::Relaxed);
        assert!(ring.add(bucket, || true));
        assert_eq!(ring.sum(bucket.epoch()).count, u64::from(u32::MAX));
    }

    #[test]
    fn impossible_geometries_do_not_panic() {
        for (buckets, width) in [(0, Duration::ZERO), (1, Duration::MAX), (u32::MAX, Duration::ZERO)] {
            let geometry = Geometry::new(buckets, width);
            for now in [Moment::from_nanos(0), Moment::from_nanos(u64::MAX)] {
                assert!(geometry.bucket(now, u64::MAX >> 2).slot < geometry.buckets());
            }
        }
    }

    #[test]
    fn division_by_multiplication_is_exact() {
        let near = |value: u64| (-2..=2).map(move |off| value.wrapping_add_signed(off));
        let powers = || (0..64).map(|bit| 1u64 << bit).chain([0, 3, 10, 3_600, 1_000_000, 30 * SECOND]);
        for divisor in powers().flat_map(near).filter(|&divisor| divisor != 0) {
            let fast = Divisor::new(divisor);
            let multiples = near((u64::MAX / divisor) * divisor).chain(near(divisor.wrapping_mul(12_345)));
            for value in powers().flat_map(near).chain(multiples) {
                assert_eq!(fast.quotient(value), value / divisor, "{value} / {divisor}");
                assert_eq!(fast.remainder(value), value % divisor, "{value} % {divisor}");
            }
        }
    }

    #[test]
    fn every_record_of_many_threads_is_counted() {
        let (geometry, ring) = ring();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for second in 0..5_000 {
                        ring.add(geometry.bucket(seconds(100 + second % 10), 0), || true);
                    }
                });
            }
        });
        assert_eq!(ring.sum(geometry.bucket(seconds(109), 0).epoch()).count, 20_000);
    }
}
