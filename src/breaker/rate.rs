//! The failure rate over a rolling window, decided as if it were evaluated on every record, without a lock and with one
//! shared write for a success.
//!
//! Successes and failures have a ring each ([`crate::window`] has the words, their epochs and generations). The rule is
//! `calls >= minimum && failures / calls >= threshold`. Evaluating it on every record would make each success read
//! every other thread's words. One more word avoids that without changing a single decision:
//!
//! ```text
//! seen = epoch: 32 | enough: 1 | successes: 31
//! ```
//!
//! "In the window that ends with this epoch there were, at some moment, so many successes; and if `enough`, there were
//! the minimum of calls and the rule was not met." Within an epoch counts only grow (an event is neither taken back nor
//! leaves the window before a later epoch begins), so whatever was once stored stays true for its epoch.
//!
//! # Deciding
//!
//! * **Success**: count it. If `seen` is of this epoch and `enough`, done: one more success can only lower the rate of
//!   a rule that was not met. Otherwise check.
//! * **Failure**: count it, and add up the failures. If `seen` is of this epoch and the rate is below the threshold
//!   even with the successes seen then, done: there are at least as many now. Otherwise check.
//! * **Check**: add up the failures, *then* the successes. If one of the rings has a later bucket, start again with
//!   that one: old words may be gone, and the later window holds this record too. (So for a clock that steps back, no
//!   time passes.) If the rule is met, trip. Otherwise add up the failures again, and store `seen`: with `enough` only
//!   if there is the minimum of calls and no failure came in between.
//!
//! So a success checks below the minimum and once in each bucket, which is also when a rule can become true because old
//! successes left the window.
//!
//! # No trip is false
//!
//! The two sums of a check are not one snapshot. Their successes lie between those there were when the failures had
//! been added up and those there are at the end, so at some moment between there were exactly as many; and at that
//! moment there were at least the failures of the first sum. A rule that is met by the sums was met then. (In the other
//! order, new failures would be held against old successes.) That no success was missing because its bucket was just
//! rotated away is what looking for later buckets is for.
//!
//! # No trip is missed in quiet
//!
//! Claim: when all recorders of an epoch are done and no later one has begun, the rule is not met by the final counts
//! unless one of them tripped.
//!
//! A recorder swaps its own word and then reads those of the others, all `SeqCst`, so all of it is in one total order
//! and of any two recorders the later one sees the earlier one's record. Let F be the last failure in that order. What
//! it added up has all failures and some of the successes.
//!
//! 1. If F stopped at the successes seen, the final rate is below the threshold as well.
//! 2. If F checked and saw the minimum of calls, the rate it saw is at least the final one: it tripped, or the final
//!    counts do not meet the rule.
//! 3. Otherwise F saw too few calls. Let S be the last success. If S checked, then the later one of S and F saw
//!    everything. If S did not, some check C had stored `enough`. If C's second reading had F, its first one had too,
//!    since they were equal; then C's failures were all there are and its rate at least the final one, so C would have
//!    tripped where the final counts do. If not, C's readings all precede F's swap, so F saw at least C's calls, which
//!    were enough: a contradiction.
//!
//! If F or S belongs to an earlier bucket, the first record of this one found a `seen` of another epoch and checked.
//! (A failure that is late for its own bucket and stops at the successes seen then is looked at by the next failure, or
//! the first record of the next bucket.) Without the second reading, step 3 fails: C might add up the failures, miss F,
//! and count successes that F missed.
//!
//! `seen` itself is `Relaxed`: it only has to be true, which does not depend on what else its reader can see. A slow
//! thread that overwrites it with less costs a check, not a decision. Verdicts of an earlier generation may do the
//! same; what they decide is put to the state word, under the lock, and refused there.

use crate::clock::Moment;
use crate::sync::{AtomicU64, Ordering, model_fence};
use crate::window::{Bucket, Geometry, Ring};

use super::rule::RateRule;

/// A rate rule as a breaker evaluates it.
#[derive(Debug)]
pub(super) struct RateSettings {
    threshold: f64,
    minimum_calls: u64,
    geometry: Geometry,
}

impl RateSettings {
    pub(super) fn new(rule: &RateRule) -> Self {
        RateSettings {
            threshold: rule.rate,
            minimum_calls: u64::from(rule.minimum_calls),
            geometry: Geometry::new(rule.buckets, rule.width),
        }
    }

    /// Whether the failures are this share of the calls. A division, since it rounds like the threshold did when it was
    /// written down: 55 / 100 is the number that "0.55" is, whereas 0.55 * 100 is more than 55.
    fn reached(&self, totals: Totals) -> bool {
        totals.failures as f64 / totals.calls() as f64 >= self.threshold
    }

    fn met(&self, totals: Totals) -> bool {
        totals.calls() >= self.minimum_calls && self.reached(totals)
    }
}

/// What a window holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Totals {
    pub(super) failures: u64,
    pub(super) successes: u64,
}

impl Totals {
    pub(super) fn calls(self) -> u64 {
        self.failures + self.successes
    }
}

/// The counts of one breaker for its rate rule.
#[derive(Debug)]
pub(super) struct FailureRate {
    seen: AtomicU64,
    successes: Ring,
    failures: Ring,
}

impl FailureRate {
    /// Without a rule nothing is allocated.
    pub(super) fn new(rule: Option<&RateSettings>) -> Self {
        let buckets = rule.map_or(0, |rule| rule.geometry.buckets());
        FailureRate { seen: AtomicU64::new(0), successes: Ring::new(buckets), failures: Ring::new(buckets) }
    }

    /// Counts a success and says whether the rule is met.
    #[inline]
    pub(super) fn success(
        &self,
        rule: &RateSettings,
        generation: u64,
        now: Moment,
        is_current: impl Fn() -> bool,
    ) -> bool {
        let bucket = rule.geometry.bucket(now, generation);
        if !self.successes.add(bucket, is_current) {
            return false;
        }
        let seen = Seen(self.seen.load(Ordering::Relaxed));
        if seen.is_enough_for(bucket) {
            return false;
        }
        self.check(rule, bucket)
    }

    /// Counts a failure and says whether the rule is met.
    pub(super) fn failure(
        &self,
        rule: &RateSettings,
        generation: u64,
        now: Moment,
        is_current: impl Fn() -> bool,
    ) -> bool {
        let bucket = rule.geometry.bucket(now, generation);
        if !self.failures.add(bucket, is_current) {
            return false;
        }
        let seen = Seen(self.seen.load(Ordering::Relaxed));
        if let Some(successes) = seen.successes_in(bucket) {
            let failures = self.failures.sum(bucket.epoch()).count;
            if !rule.reached(Totals { failures, successes }) {
                return false;
            }
        }
        self.check(rule, bucket)
    }

    /// What the window of `generation` holds at `now`.
    pub(super) fn totals(&self, rule: &RateSettings, generation: u64, now: Moment) -> Totals {
        self.read(rule.geometry.bucket(now, generation).epoch()).1
    }

    #[cold]
    #[inline(never)]
    fn check(&self, rule: &RateSettings, bucket: Bucket) -> bool {
        let (epoch, totals) = self.read(bucket.epoch());
        if rule.met(totals) {
            return true;
        }
        model_fence();
        let unchanged = self.failures.sum(epoch).count == totals.failures;
        let enough = unchanged && totals.calls() >= rule.minimum_calls;
        self.seen.store(Seen::new(epoch, enough, totals.successes).0, Ordering::Relaxed);
        false
    }

    /// The window that ends with `epoch`, or with the latest one that has begun: its end and what it holds.
    ///
    /// The failures first: see the module.
    fn read(&self, mut epoch: u32) -> (u32, Totals) {
        loop {
            let failures = self.failures.sum(epoch);
            let successes = self.successes.sum(epoch);
            let ahead = failures.ahead.max(successes.ahead);
            if ahead == 0 {
                return (epoch, Totals { failures: failures.count, successes: successes.count });
            }
            epoch = epoch.wrapping_add(ahead);
        }
    }
}

/// What a check has found out: see the module.
#[derive(Clone, Copy)]
struct Seen(u64);

impl Seen {
    fn new(epoch: u32, enough: bool, successes: u64) -> Self {
        let enough = if enough { ENOUGH } else { 0 };
        Seen(u64::from(epoch) << 32 | enough | successes.min(MOST_SUCCESSES))
    }

    #[inline]
    fn is_enough_for(self, bucket: Bucket) -> bool {
        self.is_of(bucket) && self.0 & ENOUGH != 0
    }

    fn successes_in(self, bucket: Bucket) -> Option<u64> {
        self.is_of(bucket).then_some(self.0 & MOST_SUCCESSES)
    }

    #[inline]
    fn is_of(self, bucket: Bucket) -> bool {
        (self.0 >> 32) as u32 == bucket.epoch()
    }
}

const ENOUGH: u64 = 1 << 31;
const MOST_SUCCESSES: u64 = ENOUGH - 1;

#[cfg(all(test, not(steadfast_loom)))]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::time::Duration;

    use super::*;
    use crate::breaker::rule::TripRule;

    const NOW: Moment = Moment::from_nanos(3_600_000_000_000);

    fn settings(rule: TripRule) -> RateSettings {
        RateSettings::new(rule.rate().expect("a rate rule"))
    }

    #[test]
    fn the_threshold_is_compared_exactly() {
        for (hundredths, rate) in [(55, 0.55), (7, 0.07), (29, 0.29), (57, 0.57), (10, 0.1), (100, 1.0)] {
            let rule = settings(TripRule::failure_rate(rate));
            let totals = |failures| Totals { failures, successes: 100 - failures };
            assert!(rule.met(totals(hundredths)), "{rate}");
            assert!(!rule.met(totals(hundredths - 1)), "{rate}");
        }
    }

    #[test]
    fn an_empty_window_meets_no_rule() {
        let rule = settings(TripRule::failure_rate(f64::MIN_POSITIVE).minimum_calls(1));
        assert!(!rule.met(Totals::default()));
        assert!(!rule.reached(Totals::default()));
    }

    #[test]
    fn a_healthy_window_is_not_checked_again_in_its_bucket() {
        let rule = settings(TripRule::default().minimum_calls(2));
        let rate = FailureRate::new(Some(&rule));
        let success = || assert!(!rate.success(&rule, 0, NOW, || true));
        (0..2).for_each(|_| success());
        let seen = rate.seen.load(Ordering::Relaxed);
        assert!(Seen(seen).is_enough_for(rule.geometry.bucket(NOW, 0)));
        (0..100).for_each(|_| success());
        assert_eq!(rate.seen.load(Ordering::Relaxed), seen);
    }

    /// At every moment at most one call of three has failed. A long ring leaves the other thread time between the sums.
    #[test]
    fn a_snapshot_errs_towards_a_lower_rate() {
        let rule = settings(TripRule::failure_rate(0.5).window(3_600, Duration::from_secs(1)));
        let rate = FailureRate::new(Some(&rule));
        let bucket = rule.geometry.bucket(NOW, 0);
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..200_000 {
                    rate.successes.add(bucket, || true);
                    rate.successes.add(bucket, || true);
                    rate.failures.add(bucket, || true);
                }
                done.store(true, Ordering::Relaxed);
            });
            while !done.load(Ordering::Relaxed) {
                let (_, totals) = rate.read(bucket.epoch());
                assert!(totals.failures * 2 <= totals.successes, "{totals:?}");
            }
        });
        let (_, totals) = rate.read(bucket.epoch());
        assert_eq!(totals, Totals { failures: 200_000, successes: 400_000 });
    }
}
