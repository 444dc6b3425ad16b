//! The in-flight form of a budget: one atomic word, `runs: 32 | extras: 32`.
//!
//! A draw reads both counts and counts itself in one swap, so that no two of them can both take the last place. All accesses
//! are `Relaxed`: the word guards no other memory, and changes to one word have one order whatever their ordering.

use super::UNIT;
use crate::sync::{AtomicU64, Ordering::Relaxed};

/// How many runs are in flight, and how many retries and hedges in all of them.
pub(super) struct InFlight {
    word: AtomicU64,
    /// In ten-thousandths of the runs. Each of the two by itself: a draw that takes an old one is as good as an earlier one.
    share: AtomicU64,
    min: AtomicU64,
}

impl InFlight {
    pub(super) fn new(share: u32, min: u32) -> InFlight {
        let number = |number: u32| AtomicU64::new(u64::from(number));
        InFlight { word: AtomicU64::new(0), share: number(share), min: number(min) }
    }

    /// What is in flight stays so.
    pub(super) fn reconfigure(&self, share: u32, min: u32) {
        self.share.store(u64::from(share), Relaxed);
        self.min.store(u64::from(min), Relaxed);
    }

    /// A run has made its first attempt.
    pub(super) fn enter(&self) {
        self.word.fetch_add(RUN, Relaxed);
    }

    /// Such a run is over.
    pub(super) fn leave(&self) {
        self.word.fetch_sub(RUN, Relaxed);
    }

    /// Takes a place for a retry or a hedge, if there is one.
    #[must_use]
    pub(super) fn draw(&self) -> bool {
        let drawn = |word| (extras(word) < self.most(word)).then(|| word + 1);
        self.word.fetch_update(Relaxed, Relaxed, drawn).is_ok()
    }

    pub(super) fn give_back(&self) {
        self.word.fetch_sub(1, Relaxed);
    }

    /// How many more places there are.
    pub(super) fn free(&self) -> u32 {
        let word = self.word.load(Relaxed);
        self.most(word).saturating_sub(extras(word))
    }

    fn most(&self, word: u64) -> u32 {
        let share = (word >> 32) * self.share.load(Relaxed) / u64::from(UNIT);
        u32::try_from(share.max(self.min.load(Relaxed))).unwrap_or(u32::MAX)
    }
}

fn extras(word: u64) -> u32 {
    word as u32
}

/// One run, in the word.
const RUN: u64 = 1 << 32;

#[cfg(all(test, not(steadfast_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_fifth_of_the_runs_in_flight_may_be_retries_and_three_always() {
        let budget = InFlight::new(UNIT / 5, 3);
        assert_eq!(budget.free(), 3);
        (0..19).for_each(|_| budget.enter());
        assert_eq!(budget.free(), 3);
        budget.enter();
        assert!((0..4).all(|_| budget.draw()));
        assert!(!budget.draw());
        budget.leave();
        assert_eq!(budget.free(), 0);
        budget.give_back();
        budget.give_back();
        assert_eq!(budget.free(), 1);
    }

    #[test]
    fn other_numbers_leave_what_is_in_flight() {
        let budget = InFlight::new(UNIT, 3);
        assert!((0..3).all(|_| budget.draw()));
        budget.reconfigure(0, 4);
        assert_eq!(budget.free(), 1);
        budget.reconfigure(0, 0);
        assert!(!budget.draw());
        (0..3).for_each(|_| budget.give_back());
        assert_eq!(budget.free(), 0);
    }
}

#[cfg(all(test, steadfast_loom))]
mod loom_models {
    use loom::sync::Arc;
    use loom::thread;

    use super::*;

    #[test]
    fn loom_the_last_place_is_taken_once_and_given_back() {
        loom::model(|| {
            let budget = Arc::new(InFlight::new(UNIT, 1));
            let other = thread::spawn({
                let budget = Arc::clone(&budget);
                move || budget.draw()
            });
            let here = budget.draw();
            let there = other.join().expect("a model thread does not panic");
            assert!(here ^ there);
            budget.give_back();
            assert_eq!(budget.free(), 1);
        });
    }

    #[test]
    fn loom_runs_that_come_and_go_leave_nothing() {
        loom::model(|| {
            let budget = Arc::new(InFlight::new(UNIT, 0));
            let run = |budget: &InFlight| {
                budget.enter();
                // Its own run allows one place, which only the other run can have taken.
                if budget.draw() {
                    budget.give_back();
                }
                budget.leave();
            };
            let other = thread::spawn({
                let budget = Arc::clone(&budget);
                move || run(&budget)
            });
            run(&budget);
            other.join().expect("a model thread does not panic");
            assert_eq!(budget.word.load(Relaxed), 0);
        });
    }
}
