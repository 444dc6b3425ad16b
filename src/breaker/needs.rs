use super::ticket::KIND_WIDTH;
use crate::sync::{AtomicU64, Ordering};

/// What a call needs that a closed breaker lets through, besides a look at the state: a few bits, which a ticket carries next to
/// the kind of its state. So one test tells at the start that there is nothing else to do, and one test at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Needs(pub(super) u64);

impl Needs {
    pub(super) const NOTHING: Needs = Needs(0);

    /// That the settings are checked and a clock is bound, which nobody has done yet.
    pub(super) const SETUP: Needs = Needs(1 << KIND_WIDTH);

    /// The time at its start, since it matters how long it takes.
    pub(super) const START: Needs = Needs(1 << (KIND_WIDTH + 1));

    /// To be counted in a window of time.
    pub(super) const TIME_WINDOW: Needs = Needs(1 << (KIND_WIDTH + 2));

    /// To be counted in a window of calls.
    pub(super) const CALL_WINDOW: Needs = Needs(1 << (KIND_WIDTH + 3));

    /// How many there are.
    pub(super) const WIDTH: u32 = 4;

    pub(super) const fn and(self, other: Needs) -> Needs {
        Needs(self.0 | other.0)
    }

    pub(super) fn only_if(self, is_needed: bool) -> Needs {
        if is_needed { self } else { Needs::NOTHING }
    }

    /// Whether it matters how long calls take.
    #[inline]
    pub(crate) fn start(self) -> bool {
        self.0 & Needs::START.0 != 0
    }

    /// Whether calls are counted in a window of time.
    #[inline]
    pub(crate) fn time_window(self) -> bool {
        self.0 & Needs::TIME_WINDOW.0 != 0
    }
}

/// The present needs of a family of breakers.
///
/// Loaded `Acquire` and stored `Release`, like the numbers that they go with ([`super::thresholds`]): whoever sees that no setup is
/// needed sees the clock.
#[derive(Debug)]
pub(super) struct LiveNeeds(AtomicU64);

impl LiveNeeds {
    pub(super) fn new(first: Needs) -> LiveNeeds {
        LiveNeeds(AtomicU64::new(first.0))
    }

    #[inline]
    pub(super) fn load(&self) -> Needs {
        Needs(self.0.load(Ordering::Acquire))
    }

    /// Says whether there is the need of `what`. Writes only if that is new.
    pub(super) fn set(&self, what: Needs, is_needed: bool) {
        if is_needed == (self.load().0 & what.0 != 0) {
            return;
        }
        if is_needed {
            self.0.fetch_or(what.0, Ordering::Release);
        } else {
            self.0.fetch_and(!what.0, Ordering::Release);
        }
    }
}
