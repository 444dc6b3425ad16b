//! The last n calls, however long ago they were, without a lock: a true ring, of which each place holds one call.
//!
//! # Places
//!
//! `cursor` gives every record a number, from 1 on, that never comes back. The record with number k belongs into the place
//! `k mod n`, and a place says whose it is: `number: 62 | mark: 2`. A record that finds a later number in its place is too
//! late to be among the last n, and leaves it alone. So whatever a place says of a number stays true of that number, and a
//! window that was read place by place is the window of its last number, whoever wrote meanwhile.
//!
//! # Periods
//!
//! A closed period begins at `base`, the number that was the last when it began; what is numbered lower is not in its
//! window. Nothing is cleared. A record looks whether its period is over *after* it has its number, and if so marks its
//! place as void. That is enough: `begin` takes the number with a read-modify-write, so a record that gets a higher one
//! sees (`AcqRel` on both sides) what happened before `begin`, the end of its own period above all. A record looks once
//! before as well, so that a void place needs a thread that was held up between the two while its period ended and the
//! next one began. The window is then one call shorter, for as long as the place is in it.
//!
//! `voids` counts those of the period: `begin` sets it to nothing *before* it takes the number, so that whoever gets a
//! higher one adds to that. (A record with a lower one may add to it too, which costs looks and nothing else.)
//!
//! # Deciding
//!
//! A success can only lower the rate, or leave it, once the window holds the minimum of calls. So the rule is looked at
//! after each failure, after the record that makes the minimum, and once after the thresholds have changed.
//!
//! A look takes the latest number, and reads the places of the last n up to it. One that is not written yet is a call that
//! is not a failure yet; if one was written over, the look starts again with a later number. A rule that is met is met by
//! the calls of that window, whatever those that are still being written will be: no trip is false. (If one of those turns
//! out to be void, the window was a call shorter than it seemed; so with a void under way the minimum may be met a call early.)
//!
//! None is missed in quiet. Records write (`SeqCst`) before they look, so of two the later one in the total order sees both.
//! Let B be the failure in the final window that is written last, and c the number up to which it looked. All failures of
//! the final window are written when B looks; numbers above c are successes. So the window that B sees has at least the
//! failures of the final one, and if it holds the minimum of calls, B tripped where the final rate does. If it does not,
//! the record that makes the minimum has a number above c, so it is a success, and it looks after it has its number, which
//! is after B looked and so after B wrote: it sees what there is. A void that is written last of all is the exception: it
//! raises the rate, and nobody looks. But with a void in the period every record does, so the next one sees it.
//!
//! `failures` counts the failures in all places, of whatever period. It is raised before a failure is written and lowered
//! after one was written over, so it is never too low, and spares most failures the reading of n places.

use crate::sync::{AtomicU64, Ordering, model_fence};

use super::thresholds::Thresholds;

#[derive(Debug)]
pub(super) struct CountWindow {
    cursor: AtomicU64,
    /// Changed under the lock of the breaker only.
    base: AtomicU64,
    failures: AtomicU64,
    /// The version of the thresholds at which a success last looked.
    version: AtomicU64,
    /// Void places that were made in this period. With one, nobody knows which record makes the minimum: then every one looks.
    voids: AtomicU64,
    places: Box<[AtomicU64]>,
}

/// What the window of one moment holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) calls: u64,
    pub(super) failures: u64,
}

impl CountWindow {
    /// The last `calls` calls; the owner has checked the number.
    pub(super) fn new(calls: u32) -> CountWindow {
        CountWindow {
            cursor: AtomicU64::new(0),
            base: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            version: AtomicU64::new(0),
            voids: AtomicU64::new(0),
            places: (0..calls.max(1)).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// Starts with an empty window. Under the lock of the breaker, when a period begins; the one before is over by then.
    pub(super) fn begin(&self) {
        // Before the number is taken: a record that gets a higher one then counts its void on top of this, and none is lost.
        self.voids.store(0, Ordering::Relaxed);
        let last = self.cursor.fetch_add(0, Ordering::AcqRel);
        self.base.store(last, Ordering::Release);
    }

    /// Counts a call and says whether the rule has to be looked at.
    pub(super) fn add(&self, failed: bool, minimum: u64, version: u64, is_current: impl Fn() -> bool) -> bool {
        if !is_current() {
            return false;
        }
        let number = self.cursor.fetch_add(1, Ordering::AcqRel) + 1;
        let mark = if !is_current() {
            self.voids.fetch_add(1, Ordering::SeqCst);
            VOID
        } else if failed {
            FAILURE
        } else {
            SUCCESS
        };
        self.write(number, mark);
        model_fence();
        match mark {
            FAILURE => true,
            SUCCESS => number.wrapping_sub(self.base()) == minimum || self.has_voids() || self.is_new_to(version),
            _ => false,
        }
    }

    /// Whether the present window meets the rule.
    pub(super) fn is_met(&self, thresholds: &Thresholds) -> bool {
        let calls = self.window().count();
        let most = self.failures.load(Ordering::SeqCst).min(calls);
        if !self.has_voids() && !thresholds.count_window_met(most, calls) {
            return false;
        }
        let held = self.read();
        thresholds.count_window_met(held.failures, held.calls)
    }

    /// What the present window holds. A call that is still being written is not a failure yet.
    pub(super) fn read(&self) -> Held {
        loop {
            let window = self.window();
            let mut held = Held { calls: window.count(), failures: 0 };
            if self.read_into(&mut held, window) {
                return held;
            }
        }
    }

    /// Whether the present window holds any call. The first look, at the latest one, mostly says so.
    pub(super) fn holds_calls(&self) -> bool {
        let window = self.window();
        let is_void = |place: u64, number: u64| number_of(place) == number && mark_of(place) == VOID;
        (window.first..=window.last).rev().any(|number| !is_void(self.place(number).load(Ordering::Relaxed), number))
    }

    /// Whether any call was ever counted.
    pub(super) fn was_used(&self) -> bool {
        self.cursor.load(Ordering::Relaxed) > 0
    }

    /// Fails if the window has moved on.
    fn read_into(&self, held: &mut Held, window: Window) -> bool {
        for number in window.first..=window.last {
            let place = self.place(number).load(Ordering::SeqCst);
            if number_of(place) > number {
                return false;
            }
            match place {
                _ if number_of(place) < number => {}
                _ if mark_of(place) == FAILURE => held.failures += 1,
                _ if mark_of(place) == VOID => held.calls -= 1,
                _ => {}
            }
        }
        true
    }

    fn window(&self) -> Window {
        let base = self.base();
        let last = self.cursor.load(Ordering::SeqCst);
        let first = last.saturating_sub(self.places.len() as u64).max(base) + 1;
        Window { first, last }
    }

    fn write(&self, number: u64, mark: u64) {
        let place = self.place(number);
        let mut seen = place.load(Ordering::Relaxed);
        self.failures.fetch_add(u64::from(mark == FAILURE), Ordering::SeqCst);
        loop {
            if number_of(seen) > number {
                self.failures.fetch_sub(u64::from(mark == FAILURE), Ordering::Relaxed);
                return;
            }
            match place.compare_exchange(seen, number << MARK_WIDTH | mark, Ordering::SeqCst, Ordering::Relaxed) {
                Ok(_) => break,
                Err(newer) => seen = newer,
            }
        }
        if mark_of(seen) == FAILURE {
            self.failures.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn has_voids(&self) -> bool {
        self.voids.load(Ordering::SeqCst) != 0
    }

    fn base(&self) -> u64 {
        self.base.load(Ordering::Acquire)
    }

    /// Once for each version, more or less: a look too many does no harm.
    fn is_new_to(&self, version: u64) -> bool {
        let is_new = self.version.load(Ordering::Relaxed) != version;
        if is_new {
            self.version.store(version, Ordering::Relaxed);
        }
        is_new
    }

    fn place(&self, number: u64) -> &AtomicU64 {
        &self.places[(number % self.places.len() as u64) as usize]
    }
}

/// The numbers of the calls in a window; none if `last` is before `first`.
#[derive(Clone, Copy)]
struct Window {
    first: u64,
    last: u64,
}

impl Window {
    fn count(self) -> u64 {
        (self.last + 1).saturating_sub(self.first)
    }
}

fn number_of(place: u64) -> u64 {
    place >> MARK_WIDTH
}

fn mark_of(place: u64) -> u64 {
    place & MARK_BITS
}

const MARK_WIDTH: u32 = 2;
const MARK_BITS: u64 = (1 << MARK_WIDTH) - 1;
const SUCCESS: u64 = 1;
const FAILURE: u64 = 2;
const VOID: u64 = 3;

#[cfg(all(test, not(steadfast_loom)))]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    #[test]
    fn the_window_is_the_last_n_calls() {
        let window = CountWindow::new(4);
        let mut last = VecDeque::new();
        for number in 0..50u32 {
            let failed = number % 3 == 0 || number % 7 == 0;
            window.add(failed, 4, 0, || true);
            last.push_back(failed);
            if last.len() > 4 {
                last.pop_front();
            }
            let failures = last.iter().filter(|&&failed| failed).count() as u64;
            assert_eq!(window.read(), Held { calls: last.len() as u64, failures });
            assert_eq!(window.failures.load(Ordering::Relaxed), failures);
        }
    }

    #[test]
    fn a_period_begins_with_nothing() {
        let window = CountWindow::new(3);
        (0..5).for_each(|_| _ = window.add(true, 3, 0, || true));
        window.begin();
        assert_eq!(window.read(), Held::default());
        assert!(!window.holds_calls() && window.was_used());
        window.add(false, 3, 0, || true);
        assert_eq!(window.read(), Held { calls: 1, failures: 0 });
        assert!(window.holds_calls());
    }

    #[test]
    fn a_call_of_an_earlier_period_is_not_counted() {
        let window = CountWindow::new(3);
        assert!(!window.add(true, 1, 0, || false));
        assert_eq!(window.read(), Held::default());
        assert!(!window.holds_calls() && !window.was_used());
    }

    #[test]
    fn a_period_that_ends_between_leaves_a_void_place() {
        let window = CountWindow::new(3);
        window.add(false, 3, 0, || true);
        let asked = std::cell::Cell::new(0);
        let over = || {
            asked.set(asked.get() + 1);
            asked.get() == 1
        };
        assert!(!window.add(true, 3, 0, over));
        assert_eq!(window.read(), Held { calls: 1, failures: 0 });
        assert!(window.holds_calls(), "one before the void place");
        window.begin();
        asked.set(0);
        assert!(!window.add(true, 3, 0, over));
        assert!(!window.holds_calls(), "a void place is no call");
    }

    #[test]
    fn a_success_looks_when_it_makes_the_minimum_and_when_thresholds_are_new() {
        let window = CountWindow::new(5);
        let looks = |version| window.add(false, 3, version, || true);
        assert_eq!([looks(0), looks(0), looks(0), looks(0)], [false, false, true, false]);
        assert_eq!([looks(2), looks(2)], [true, false]);
    }

    #[test]
    fn a_record_that_was_overtaken_by_a_whole_window_is_dropped() {
        let window = CountWindow::new(2);
        window.write(3, SUCCESS);
        window.write(1, FAILURE);
        assert_eq!(number_of(window.place(1).load(Ordering::Relaxed)), 3);
        assert_eq!(window.failures.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn no_record_of_many_threads_is_lost() {
        let window = CountWindow::new(64);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let window = &window;
                scope.spawn(move || (0..5_000).for_each(|_| _ = window.add(thread == 0, 64, 0, || true)));
            }
        });
        assert_eq!(window.cursor.load(Ordering::Relaxed), 20_000);
        let held = window.read();
        assert_eq!((held.calls, held.failures), (64, window.failures.load(Ordering::Relaxed)));
    }
}
