use crate::window::Sum;

/// What a window holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Totals {
    pub(super) failures: u64,
    pub(super) successes: u64,
    /// Of the failures and successes.
    pub(super) slow: u64,
    pub(super) given_up: u64,
}

impl Totals {
    pub(super) fn calls(self) -> u64 {
        self.failures + self.successes
    }

    pub(super) fn timed_calls(self) -> u64 {
        self.calls() + self.given_up
    }

    pub(super) fn all_slow(self) -> u64 {
        self.slow + self.given_up
    }

    /// What the second reading of a look has to find unchanged.
    pub(super) fn bad(self) -> (u64, u64) {
        (self.failures, self.all_slow())
    }
}

/// The same as it is read from the rings.
#[derive(Default)]
pub(super) struct Sums {
    pub(super) slow: Sum,
    pub(super) given_up: Sum,
    pub(super) failures: Sum,
    pub(super) successes: Sum,
}

impl Sums {
    /// By how much the furthest of the rings is ahead of the window.
    pub(super) fn ahead(&self) -> u32 {
        self.slow.ahead.max(self.given_up.ahead).max(self.failures.ahead).max(self.successes.ahead)
    }

    pub(super) fn totals(&self) -> Totals {
        Totals {
            failures: self.failures.count,
            successes: self.successes.count,
            slow: self.slow.count,
            given_up: self.given_up.count,
        }
    }
}
