//! A rolling window of counts: a ring of packed words, one for each bucket of time, without a lock.
//!
//! # The word
//!
//! Every word is `epoch: 32 | count: 32`. The epoch says *which* bucket the count belongs to:
//!
//! ```text
//! tick  = now / width                               bucket number since the clock's origin
//! slot  = tick mod n                                which word of the ring
//! epoch = tick + generation * 4n   (low 32 bits)    what the word must carry to be counted
//! ```
//!
//! A record is one compare-and-swap on one word. The same epoch counts one more. An older epoch becomes `(epoch, 1)`:
//! this *is* the rotation, there is no other, so a window that nobody touched for years is up to date after one
//! record. A newer epoch means that the bucket has moved on, and the record is dropped. Counts saturate.
//!
//! # Generations
//!
//! An owner that starts its count afresh (a breaker that closes) raises its generation and clears nothing. `4n` is a
//! multiple of `n`, so the slots stay where they are; it is more than the `n` epochs of one window, so whatever an
//! earlier generation wrote, or still writes late, has an epoch outside of every window of the later one. A record
//! therefore needs no second look at the generation, and there is no moment at which a half-cleared ring can be seen.
//! (The clock must not step back by more than `3n` buckets for that. It is monotonic; smaller steps only count a record
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

use crate::clock::{Moment, nanos};
use crate::sync::{AtomicU64, Ordering, model_fence};

/// How time is cut into buckets.
#[derive(Debug)]
pub(crate) struct Geometry {
    width: Width,
    buckets: Buckets,
}

impl Geometry {
    /// `buckets` buckets of `width` each. The owner has checked both: 1 to 3,600 of at least a millisecond.
    pub(crate) fn new(buckets: u32, width: Duration) -> Self {
        Geometry { width: Width::new(nanos(width)), buckets: Buckets::new(u64::from(buckets)) }
    }

    /// The bucket in which `generation` counts what happens at `now`.
    #[inline]
    pub(crate) fn bucket(&self, now: Moment, generation: u64) -> Bucket {
        let tick = self.width.tick(now.nanos());
        let generations_apart = self.buckets.count.wrapping_mul(4).wrapping_mul(generation);
        Bucket { epoch: tick.wrapping_add(generations_apart) as u32, slot: self.buckets.slot(tick) as usize }
    }

    pub(crate) fn buckets(&self) -> usize {
        self.buckets.count as usize
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

    pub(crate) fn buckets(&self) -> usize {
        self.words.len()
    }

    /// Counts one event in `bucket`, which comes from a geometry of this ring's size: see [`count`].
    #[inline]
    pub(crate) fn add(&self, bucket: Bucket, is_current: impl Fn() -> bool) -> Added {
        count(&self.words[bucket.slot], bucket, is_current)
    }

    /// [`add`](Ring::add) after [`add_to_present`](Ring::add_to_present).
    pub(crate) fn add_otherwise(&self, bucket: Bucket, undone: Undone, is_current: impl Fn() -> bool) -> Added {
        count_otherwise(&self.words[bucket.slot], bucket.epoch, undone, is_current)
    }

    /// Counts one event, unless its word belongs to another bucket, or another thread is quicker.
    #[inline]
    pub(crate) fn add_to_present(&self, bucket: Bucket) -> Result<(), Undone> {
        count_in_present(&self.words[bucket.slot], bucket)
    }

    /// The events in the window that ends with the bucket of `epoch`.
    pub(crate) fn sum(&self, epoch: u32) -> Sum {
        let mut sum = Sum::default();
        sum.take_in(&self.words, epoch, self.words.len() as u32);
        sum
    }
}

/// The same counts, in several rings that lie on cache lines of their own: threads that write different lanes do not
/// disturb each other.
#[derive(Debug)]
pub(crate) struct Lanes {
    lines: Box<[Line]>,
    lines_a_lane: usize,
    /// One less than a power of two.
    last_lane: usize,
    buckets: usize,
}

/// 128 bytes, since processors fetch lines of 64 bytes in pairs.
#[derive(Debug)]
#[repr(align(128))]
struct Line([AtomicU64; WORDS_A_LINE]);

impl Lanes {
    /// So many lanes of `buckets` words each; at least one, and rounded up to a power of two, by which a thread's lane is found
    /// without a division.
    pub(crate) fn new(lanes: usize, buckets: usize) -> Self {
        let (lanes, lines_a_lane) = (lanes.max(1).next_power_of_two(), buckets.div_ceil(WORDS_A_LINE).max(1));
        let line = |_| Line(std::array::from_fn(|_| AtomicU64::new(0)));
        Lanes { lines: (0..lanes * lines_a_lane).map(line).collect(), lines_a_lane, last_lane: lanes - 1, buckets }
    }

    /// Counts one event in `bucket`, in the lane of `thread`, a number of any size.
    pub(crate) fn add_otherwise(
        &self,
        thread: usize,
        bucket: Bucket,
        undone: Undone,
        is_current: impl Fn() -> bool,
    ) -> Added {
        count_otherwise(self.word(thread, bucket), bucket.epoch, undone, is_current)
    }

    /// [`Ring::add_to_present`], in the lane of `thread`.
    #[inline]
    pub(crate) fn add_to_present(&self, thread: usize, bucket: Bucket) -> Result<(), Undone> {
        count_in_present(self.word(thread, bucket), bucket)
    }

    #[inline]
    fn word(&self, thread: usize, bucket: Bucket) -> &AtomicU64 {
        let line = (thread & self.last_lane) * self.lines_a_lane + bucket.slot / WORDS_A_LINE;
        &self.lines[line].0[bucket.slot % WORDS_A_LINE]
    }

    /// Adds the events of all lanes in the window that ends with the bucket of `epoch`.
    pub(crate) fn add_to(&self, sum: &mut Sum, epoch: u32) {
        for line in &self.lines {
            sum.take_in(&line.0, epoch, self.buckets as u32);
        }
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

impl Sum {
    fn take_in(&mut self, words: &[AtomicU64], epoch: u32, buckets: u32) {
        for word in words {
            let word = word.load(Ordering::SeqCst);
            let (its_epoch, count) = (epoch_of(word), count_of(word));
            let ahead = its_epoch.wrapping_sub(epoch);
            if epoch.wrapping_sub(its_epoch) < buckets {
                self.count += u64::from(count);
            } else if count != 0 && ahead < AHEAD {
                self.ahead = self.ahead.max(ahead);
            }
        }
    }
}

/// What became of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Added {
    /// It is counted.
    Counted,
    /// It is counted, and other threads were quicker this many times.
    Contended(u64),
    /// The bucket has moved on; it is not counted.
    Late,
}

/// Why a record is not made yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Undone {
    /// Another thread was quicker.
    Lost,
    /// The word belongs to another bucket, or it is full.
    Otherwise,
}

impl Undone {
    /// How often another thread was quicker.
    fn lost(self) -> u64 {
        u64::from(self == Undone::Lost)
    }
}

/// Counts one event in the word of its bucket.
///
/// `is_current` is asked only if the word belongs to another bucket: is the generation still the present one?
#[inline]
fn count(word: &AtomicU64, bucket: Bucket, is_current: impl Fn() -> bool) -> Added {
    match count_in_present(word, bucket) {
        Ok(()) => Added::Counted,
        Err(undone) => count_otherwise(word, bucket.epoch, undone, is_current),
    }
}

#[inline]
fn count_in_present(word: &AtomicU64, bucket: Bucket) -> Result<(), Undone> {
    let seen = word.load(Ordering::Relaxed);
    if epoch_of(seen) != bucket.epoch || count_of(seen) == u32::MAX {
        Err(Undone::Otherwise)
    } else if swap(word, seen, seen + 1) {
        Ok(())
    } else {
        Err(Undone::Lost)
    }
}

/// The general form of a record: another thread was quicker, or the word belongs to another bucket, or it is full.
#[cold]
#[inline(never)]
fn count_otherwise(word: &AtomicU64, epoch: u32, undone: Undone, is_current: impl Fn() -> bool) -> Added {
    let mut lost = undone.lost();
    loop {
        let seen = word.load(Ordering::Relaxed);
        let (its_epoch, count) = (epoch_of(seen), count_of(seen));
        let next = if its_epoch == epoch {
            if count == u32::MAX {
                return Added::Counted;
            }
            seen + 1
        } else if (count != 0 && its_epoch.wrapping_sub(epoch) < AHEAD) || !is_current() {
            return Added::Late;
        } else {
            u64::from(epoch) << 32 | 1
        };
        if swap(word, seen, next) {
            return if lost == 0 { Added::Counted } else { Added::Contended(lost) };
        }
        lost += 1;
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

/// What a time is divided by to find its tick, as a multiplication and a shift.
///
/// With `2ˢ⁻¹ < w <= 2ˢ` and `m = ceil(2⁶³⁺ˢ / w)`, the product `n * m / 2⁶³⁺ˢ` exceeds `n / w` by less than `n / 2⁶³⁺ˢ`. For
/// `n < 2⁶³` that is less than `1 / w`, too little to reach the next whole number: the quotient is exact. From `n = 2⁶³` on, after
/// 292 years, a bucket may begin a nanosecond early. Ticks never fall while the time rises.
#[derive(Debug)]
struct Width {
    multiplier: u64,
    /// Beyond the low half of the product.
    shift: u32,
}

impl Width {
    /// Of so many nanoseconds; of one, whose multiplier does not fit, it is two.
    fn new(nanos: u64) -> Self {
        let nanos = nanos.max(2);
        // `s - 1`.
        let shift = (nanos - 1).ilog2();
        let multiplier = (1u128 << (64 + shift)).div_ceil(u128::from(nanos));
        Width { multiplier: multiplier as u64, shift }
    }

    #[inline]
    fn tick(&self, nanos: u64) -> u64 {
        high_half(nanos, self.multiplier) >> self.shift
    }
}

/// What a tick is divided by to find its slot, which is the rest: by two multiplications, without the quotient.
///
/// With `f = ceil(2⁶⁴ / n)`, the low half of `tick * f` is the fraction of `tick / n` and less than `tick / 2⁶⁴` more. Times `n`
/// it is the rest, and exact as long as that excess is less than `1 / n`: for `n <= 3,600`, while `tick < 2⁵²`. The ticks of
/// buckets of a millisecond stay below 2⁴⁵. Whatever the numbers are, it is less than `n`.
#[derive(Debug)]
struct Buckets {
    count: u64,
    /// Of one bucket it is 2⁶⁴, which wraps to 0, as each rest is.
    fraction: u64,
}

impl Buckets {
    /// So many; zero is taken as one.
    fn new(count: u64) -> Self {
        let count = count.max(1);
        Buckets { count, fraction: (u64::MAX / count).wrapping_add(1) }
    }

    #[inline]
    fn slot(&self, tick: u64) -> u64 {
        high_half(tick.wrapping_mul(self.fraction), self.count)
    }
}

#[inline]
fn high_half(one: u64, other: u64) -> u64 {
    ((u128::from(one) * u128::from(other)) >> 64) as u64
}

/// (The models have few words, since each costs them time.)
const WORDS_A_LINE: usize = if cfg!(steadfast_loom) { 2 } else { 16 };

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
            assert_eq!(ring.add(geometry.bucket(seconds(second), 0), || true), Added::Counted);
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
            assert_eq!(ring.add(bucket, || true), Added::Counted);
            assert_eq!(ring.sum(bucket.epoch()).count, 1, "after {idle} s");
        }
    }

    #[test]
    fn a_record_for_a_bucket_that_moved_on_is_dropped() {
        let (geometry, ring) = ring();
        let (late, present) = (geometry.bucket(seconds(100), 0), geometry.bucket(seconds(110), 0));
        assert_eq!(ring.add(present, || true), Added::Counted);
        assert_eq!(ring.add(late, || true), Added::Late);
        assert_eq!(ring.sum(present.epoch()).count, 1);
    }

    #[test]
    fn a_record_for_an_earlier_bucket_that_is_still_there_counts_there() {
        let (geometry, ring) = ring();
        assert_eq!(ring.add(geometry.bucket(seconds(105), 0), || true), Added::Counted);
        assert_eq!(ring.add(geometry.bucket(seconds(104), 0), || true), Added::Counted);
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
        assert_eq!(ring.add(bucket, || true), Added::Counted);
        assert_eq!(ring.add(geometry.bucket(seconds(109), 0), || true), Added::Late);
        assert_eq!(ring.sum(bucket.epoch()).count, 1);
    }

    #[test]
    fn a_record_from_thousands_of_generations_ago_replaces_nothing() {
        let (geometry, ring) = ring();
        let bucket = geometry.bucket(seconds(100), 10_000);
        assert_eq!(ring.add(bucket, || true), Added::Counted);
        assert_eq!(ring.add(geometry.bucket(seconds(100), 0), || false), Added::Late);
        assert_eq!(ring.sum(bucket.epoch()).count, 1);
    }

    #[test]
    fn an_untouched_word_takes_any_epoch() {
        let (geometry, ring) = ring();
        let bucket = geometry.bucket(seconds((1 << 32) - 5), 0);
        assert_eq!(ring.add(bucket, || true), Added::Counted);
        assert_eq!(ring.sum(bucket.epoch()).count, 1);
    }

    #[test]
    fn a_word_that_was_lapped_is_replaced() {
        let (geometry, ring) = ring();
        ring.add(geometry.bucket(seconds(100_000), 0), || true);
        let lapped = geometry.bucket(seconds(100_000 + (1 << 32) - 100_000), 0);
        assert_eq!(ring.add(lapped, || true), Added::Counted);
        assert_eq!(ring.sum(lapped.epoch()).count, 1);
    }

    #[test]
    fn counts_saturate() {
        let (geometry, ring) = ring();
        let bucket = geometry.bucket(seconds(100), 0);
        let full = u64::from(bucket.epoch) << 32 | u64::from(u32::MAX);
        ring.words[bucket.slot].store(full, Ordering::Relaxed);
        assert_eq!(ring.add(bucket, || true), Added::Counted);
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

    fn near(value: u64) -> impl Iterator<Item = u64> {
        (-2..=2).map(move |off| value.wrapping_add_signed(off))
    }

    fn near_powers_of_two() -> impl Iterator<Item = u64> {
        (0..64).map(|bit| 1u64 << bit).chain([0, 3, 10, 3_600, 1_000_000, 30 * SECOND]).flat_map(near)
    }

    #[test]
    fn ticks_are_quotients_for_292_years_and_at_most_a_nanosecond_early_later() {
        for nanos in near_powers_of_two().filter(|&nanos| nanos >= 2) {
            let width = Width::new(nanos);
            let multiples = near((u64::MAX / nanos) * nanos).chain(near(nanos.wrapping_mul(12_345)));
            for now in near_powers_of_two().chain(multiples) {
                let expected =
                    if now < 1 << 63 { now / nanos..=now / nanos } else { now / nanos..=now.saturating_add(1) / nanos };
                assert!(expected.contains(&width.tick(now)), "{now} / {nanos}");
            }
        }
    }

    #[test]
    fn slots_are_rests() {
        for count in near_powers_of_two().filter(|count| (1..=3_600).contains(count)).chain(1..100) {
            let buckets = Buckets::new(count);
            let multiples = near(((1 << 52) / count) * count).chain(near(count * 12_345));
            for tick in near_powers_of_two().chain(multiples).filter(|&tick| tick < 1 << 52) {
                assert_eq!(buckets.slot(tick), tick % count, "{tick} % {count}");
            }
        }
    }

    #[test]
    fn lanes_count_what_one_ring_counts() {
        for buckets in [1, 10, 16, 17, 100] {
            let geometry = Geometry::new(buckets, Duration::from_secs(1));
            let (ring, lanes) = (Ring::new(buckets as usize), Lanes::new(4, buckets as usize));
            for number in 0..500 {
                let bucket = geometry.bucket(seconds(1_000 + number / 3), 0);
                ring.add(bucket, || true);
                let thread = number as usize * 7;
                if let Err(undone) = lanes.add_to_present(thread, bucket) {
                    lanes.add_otherwise(thread, bucket, undone, || true);
                }
                let mut sum = Sum::default();
                lanes.add_to(&mut sum, bucket.epoch());
                assert_eq!(sum, ring.sum(bucket.epoch()), "{buckets} buckets, record {number}");
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
