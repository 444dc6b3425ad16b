//! The counts of a rolling window of time, and when the rules over it have to be looked at: as if they were evaluated on
//! every record, without a lock and with one shared write for a success.
//!
//! Successes, failures, slow calls and slow calls that were given up have a ring each ([`crate::window`] has the words,
//! their epochs and generations). The rules are shares:
//!
//! ```text
//! calls = failures + successes           calls >= minimum && failures / calls      >= failure rate
//! timed = calls + given up               timed >= minimum && (slow + given up) / timed >= slow rate
//! ```
//!
//! Evaluating them on every record would make each success read every other thread's words. One more word avoids that
//! without changing a single decision:
//!
//! ```text
//! seen = epoch: 32 | enough: 1 | version: 7 | successes: 24              (`seen.rs`)
//! ```
//!
//! "In the window that ends with this epoch, and with the thresholds of this version, there were at some moment so many
//! successes; and if `enough`, there were the minimum of calls and no rule was met." Within an epoch counts only grow (an
//! event is neither taken back nor leaves the window before a later epoch begins), so whatever was once stored stays true
//! for its epoch.
//!
//! # Deciding
//!
//! Successes raise no rate. Call what does (a failure, a slow call, one given up) *bad*.
//!
//! * **Success**: count it. If `seen` is of this epoch and version and `enough`, done: one more success can only lower the
//!   rates of rules that were not met. Otherwise look.
//! * **Failure**: count it, and add up the failures. If `seen` is of this epoch and version, the failure rate is not
//!   reached even with the successes seen then (there are at least as many now), and there is no slow rule or `enough` (a
//!   quick failure can only lower the slow rate then), done. Otherwise look. With a predicate to ask, always look.
//! * **Slow**: count the call as a success or a failure *first*, then as slow. Then look.
//! * **Given up**: count it. Then look.
//! * **Look** ([`Tally::read`], the rules, [`Tally::note`]): add up slow and given up, then the failures, *then* the
//!   successes. If one of the rings has a later bucket, start again with that one: old words may be gone, and the later
//!   window holds this record too. (So for a clock that steps back, no time passes.) If a rule is met, trip. Otherwise add
//!   up everything bad again, and store `seen`: with `enough` only if there is the minimum of calls and nothing bad came in
//!   between.
//!
//! So a success looks below the minimum, once in each bucket, which is also when a rule can become true because old
//! successes left the window, and once after the thresholds have changed.
//!
//! # No trip is false
//!
//! The sums of a look are not one snapshot. Their successes lie between those there were when the failures had been added
//! up and those there are at the end, so at some moment t between there were exactly as many; and at that moment there were
//! at least the failures of the sum. A failure rate that is met by the sums was met at t. (In the other order, new failures
//! would be held against old successes.) That no success was missing because its bucket was just rotated away is what
//! looking for later buckets is for.
//!
//! For the slow rate, failures that arrive between are calls as well, and may be quick: so with a slow rule the failures
//! are added up again after the successes, until they are the same. At t there were then exactly the calls of the sum, at
//! least its slow ones (each was counted as a call before it was counted as slow), and perhaps more that were given up,
//! which raise the rate.
//!
//! # No trip is missed in quiet
//!
//! Claim: when all recorders of an epoch are done and no later one has begun, no rule is met by the final counts unless
//! one of them tripped.
//!
//! A recorder swaps its own word and then reads those of the others, all `SeqCst`, so all of it is in one total order and
//! of any two recorders the later one sees the earlier one's record. Take one rule, and let B be the last recorder in that
//! order of what the rule's numerator counts. What B adds up has all of the numerator and some of the other calls.
//!
//! 1. If B stopped at the successes seen, the final failure rate is below the threshold as well.
//! 2. If B looked and saw the minimum of calls, the rate it saw is at least the final one: it tripped, or the final counts
//!    do not meet the rule.
//! 3. Otherwise B saw too few calls. Let X be the last recorder of the other calls. If X looked, then the later one of X
//!    and B saw everything. If X did not, some look L had stored `enough`. If L's second reading had B, its first one had
//!    too, since they were equal; then L's numerator is all there is and its rate at least the final one, so L would have
//!    tripped where the final counts do. If not, L's readings all precede B's swap, so B saw at least L's calls, which were
//!    enough: a contradiction.
//!
//! If B or X belongs to an earlier bucket, the first record of this one found a `seen` of another epoch and looked. (A
//! failure that is late for its own bucket and stops at the successes seen then is looked at by the next failure, or the
//! first record of the next bucket.) Without the second reading, step 3 fails: L might add up the failures, miss B, and
//! count successes that B missed.
//!
//! `seen` itself is `Relaxed`: it only has to be true, which does not depend on what else its reader can see. A slow
//! thread that overwrites it with less costs a look, not a decision. Verdicts of an earlier generation may do the same;
//! what they decide is put to the state word, under the lock, and refused there.
//!
//! # What is not there yet
//!
//! Only the ring of the successes is made with the breaker. The others, and the lanes over which successes are spread once
//! threads have got in each other's way often enough, are made when they are needed. `parts` says which are there. It is
//! `SeqCst` like the words: the bit is set before the first word of a part is swapped, and loaded by a reader after its own
//! swap. A reader that finds no bit precedes the bit, and so the swap, in the total order; the argument above takes it for
//! a reader that found zeroes. (The cells in which the parts are kept order nothing by themselves.) Sums take the ring and
//! the lanes, so spreading loses nothing.

use crate::clock::Moment;
use crate::sync::{AtomicU64, Lazy, Ordering, model_fence, thread_slot};
use crate::window::{Added, Bucket, Geometry, Lanes, Ring, Sum, Undone};

use super::seen::Seen;
use super::thresholds::Thresholds;
use super::totals::{Sums, Totals};

/// The counts of one breaker.
#[derive(Debug)]
pub(super) struct Tally {
    seen: AtomicU64,
    /// `swaps lost to other threads: 61 | lanes: 1 | slow: 1 | failures: 1`.
    parts: AtomicU64,
    successes: Ring,
    rest: Lazy<Rest>,
}

/// What a breaker without failures does not need.
#[derive(Debug)]
struct Rest {
    failures: Ring,
    slow: Lazy<Slow>,
    lanes: Lazy<Lanes>,
}

#[derive(Debug)]
struct Slow {
    calls: Ring,
    given_up: Ring,
}

/// Where and when a record belongs.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) geometry: &'a Geometry,
    pub(super) generation: u64,
    pub(super) now: Moment,
    /// Whether successes may be spread over lanes. One of many breakers has no room for them.
    pub(super) may_spread: bool,
}

/// What became of a record.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Recorded {
    /// Its bucket has moved on, and it is not counted. That is rare enough to look at the rules anyway.
    Late,
    /// No rule can have become true by it.
    Quietly,
    /// The rules have to be looked at.
    Looking,
}

impl Recorded {
    #[inline]
    fn looks(looks: bool) -> Recorded {
        if looks { Recorded::Looking } else { Recorded::Quietly }
    }
}

impl Place<'_> {
    #[inline]
    pub(super) fn bucket(&self) -> Bucket {
        self.geometry.bucket(self.now, self.generation)
    }
}

impl Tally {
    /// Counts in a window of so many buckets; zero allocates nothing, and nothing may be counted.
    pub(super) fn new(buckets: usize) -> Self {
        Tally {
            seen: AtomicU64::new(0),
            parts: AtomicU64::new(0),
            successes: Ring::new(buckets),
            rest: Lazy::new(|| Rest::new(buckets)),
        }
    }

    /// Counts a success, unless it is the first of its bucket, or another thread is in its way.
    #[inline]
    pub(super) fn success_in_present(&self, bucket: Bucket, version: u64) -> Result<Recorded, Undone> {
        match self.lanes() {
            None => self.successes.add_to_present(bucket),
            Some(lanes) => lanes.add_to_present(thread_slot(), bucket),
        }
        .map(|()| self.after_success(bucket, version))
    }

    /// Counts a success that [`success_in_present`](Tally::success_in_present) has not.
    pub(super) fn success_otherwise(
        &self,
        place: Place<'_>,
        undone: Undone,
        version: u64,
        is_current: impl Fn() -> bool,
    ) -> Recorded {
        let bucket = place.bucket();
        let added = match self.lanes() {
            None => self.successes.add_otherwise(bucket, undone, is_current),
            Some(lanes) => lanes.add_otherwise(thread_slot(), bucket, undone, is_current),
        };
        match added {
            Added::Counted => {}
            Added::Contended(lost) => self.contended(lost, place),
            Added::Late => return Recorded::Late,
        }
        self.after_success(bucket, version)
    }

    #[inline]
    fn after_success(&self, bucket: Bucket, version: u64) -> Recorded {
        Recorded::looks(!Seen(self.seen.load(Ordering::Relaxed)).is_enough_for(bucket, version))
    }

    /// Counts a failure.
    pub(super) fn failure(&self, place: Place<'_>, thresholds: &Thresholds, is_current: impl Fn() -> bool) -> Recorded {
        let bucket = place.bucket();
        let failures = self.failures();
        if failures.add(bucket, is_current) == Added::Late {
            return Recorded::Late;
        }
        let seen = Seen(self.seen.load(Ordering::Relaxed));
        let Some(successes) = seen.successes_in(bucket, thresholds.version) else { return Recorded::Looking };
        let slow_rule_may_be_met = thresholds.has_slow_rule() && !seen.is_enough_for(bucket, thresholds.version);
        if thresholds.asks() || slow_rule_may_be_met {
            return Recorded::Looking;
        }
        let failures = failures.sum(bucket.epoch()).count;
        let is_below = thresholds.is_below_failure_rate(Totals { failures, successes, ..Totals::default() });
        Recorded::looks(!is_below)
    }

    /// Counts a slow call that was counted as a success or a failure just before. The rules have to be looked at.
    #[cold]
    pub(super) fn slow(&self, place: Place<'_>, is_current: impl Fn() -> bool) {
        self.slow_calls().calls.add(place.bucket(), is_current);
    }

    /// Counts a slow call that was given up. The rules have to be looked at.
    #[cold]
    pub(super) fn given_up(&self, place: Place<'_>, is_current: impl Fn() -> bool) {
        self.slow_calls().given_up.add(place.bucket(), is_current);
    }

    /// The window that ends with `epoch`, or with the latest one that has begun: its end and what it holds.
    pub(super) fn read(&self, mut epoch: u32, thresholds: &Thresholds) -> (u32, Totals) {
        loop {
            let sums = self.sums(epoch, thresholds.has_slow_rule());
            match sums.ahead() {
                0 => return (epoch, sums.totals()),
                ahead => epoch = epoch.wrapping_add(ahead),
            }
        }
    }

    /// What a look found, where no rule is met: see the module.
    pub(super) fn note(&self, epoch: u32, totals: Totals, thresholds: &Thresholds) {
        model_fence();
        let unchanged = self.sums(epoch, false).totals().bad() == totals.bad();
        let enough = unchanged && thresholds.has_enough(totals);
        let seen = Seen::new(epoch, enough, thresholds.version, totals.successes);
        self.seen.store(seen.0, Ordering::Relaxed);
    }

    pub(super) fn was_used(&self) -> bool {
        self.parts.load(Ordering::Relaxed) != 0 || self.seen.load(Ordering::Relaxed) != 0
    }

    /// Spreads the successes over lanes when other threads have been quicker for long enough.
    #[cold]
    #[inline(never)]
    fn contended(&self, lost: u64, place: Place<'_>) {
        if self.lanes().is_some() {
            return;
        }
        let lost_before = self.parts.fetch_add(lost << LOST, Ordering::Relaxed) >> LOST;
        if place.may_spread && lost_before + lost >= PATIENCE {
            self.spread();
        }
    }

    pub(super) fn spread(&self) {
        let lanes = || Lanes::new(lanes_of_this_machine(), self.successes.buckets());
        self.rest().lanes.get_or_make(lanes);
        self.announce(LANES);
    }

    fn failures(&self) -> &Ring {
        let rest = self.rest();
        self.announce(FAILURES);
        &rest.failures
    }

    fn slow_calls(&self) -> &Slow {
        let slow = self.rest().slow.get_or_make(|| Slow::new(self.successes.buckets()));
        self.announce(SLOW);
        slow
    }

    fn rest(&self) -> &Rest {
        self.rest.get_or_make(|| Rest::new(self.successes.buckets()))
    }

    /// Says that a part is there, which it must be.
    fn announce(&self, bit: u64) {
        if self.parts.load(Ordering::SeqCst) & bit == 0 {
            self.parts.fetch_or(bit, Ordering::SeqCst);
        }
    }

    /// The sums of all rings, in the order that the module asks for.
    fn sums(&self, epoch: u32, until_failures_stand: bool) -> Sums {
        let (slow, given_up) = self.sums_of_slow(epoch);
        let mut failures = self.sum_of_failures(epoch);
        loop {
            let successes = self.sum_of_successes(epoch);
            let before = failures;
            if until_failures_stand {
                failures = self.sum_of_failures(epoch);
            }
            if failures == before {
                return Sums { slow, given_up, failures, successes };
            }
        }
    }

    fn sums_of_slow(&self, epoch: u32) -> (Sum, Sum) {
        let slow = self.existing(SLOW).and_then(|rest| rest.slow.get());
        slow.map_or_else(Default::default, |slow| (slow.calls.sum(epoch), slow.given_up.sum(epoch)))
    }

    fn sum_of_failures(&self, epoch: u32) -> Sum {
        self.existing(FAILURES).map_or_else(Sum::default, |rest| rest.failures.sum(epoch))
    }

    fn sum_of_successes(&self, epoch: u32) -> Sum {
        let mut sum = self.successes.sum(epoch);
        if let Some(lanes) = self.lanes() {
            lanes.add_to(&mut sum, epoch);
        }
        sum
    }

    #[inline]
    fn lanes(&self) -> Option<&Lanes> {
        self.existing(LANES)?.lanes.get()
    }

    /// The rest, if the part of `bit` is in it. The bit first: it is what says so.
    #[inline]
    fn existing(&self, bit: u64) -> Option<&Rest> {
        if self.parts.load(Ordering::SeqCst) & bit == 0 { None } else { self.rest.get() }
    }
}

impl Rest {
    fn new(buckets: usize) -> Rest {
        Rest {
            failures: Ring::new(buckets),
            slow: Lazy::new(|| Slow::new(buckets)),
            lanes: Lazy::new(|| Lanes::new(2, buckets)),
        }
    }
}

impl Slow {
    fn new(buckets: usize) -> Slow {
        Slow { calls: Ring::new(buckets), given_up: Ring::new(buckets) }
    }
}

/// As many lanes as threads can run at a time, up to 8: more make every look dearer.
fn lanes_of_this_machine() -> usize {
    std::thread::available_parallelism().map_or(2, usize::from).clamp(2, 8)
}

const FAILURES: u64 = 1;
const SLOW: u64 = 1 << 1;
const LANES: u64 = 1 << 2;
const LOST: u32 = 3;

/// Swaps lost before successes are spread: 8, since one may be bad luck.
const PATIENCE: u64 = 8;
