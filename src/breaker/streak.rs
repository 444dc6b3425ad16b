use crate::sync::{AtomicU64, Ordering};

/// Failures in a row: one word, `generation: 32 | failures: 32`.
///
/// A success reads the word and writes only if there are failures to forget, so a healthy breaker shares no writes. It forgets
/// those of an earlier generation too, though they count no more: so it finds none the next time. The
/// generation in the word makes a later closed period start at zero without a reset, and keeps verdicts of an earlier
/// one out: they find a newer generation and leave it alone, or write an older one, which the later period ignores.
/// (Generations are compared in 32 bits with the half-range rule; 2³¹ changes of state do not fit into a permit's
/// life.)
///
/// Everything is `Relaxed`: the decision is about this word alone, and all writes of one word have one order.
#[derive(Debug)]
pub(super) struct Streak(AtomicU64);

impl Streak {
    pub(super) fn new() -> Self {
        Streak(AtomicU64::new(0))
    }

    /// Whether there is no row that a success would end.
    #[inline]
    pub(super) fn is_over(&self) -> bool {
        failures_of(self.0.load(Ordering::Relaxed)) == 0
    }

    /// Ends the row.
    #[cold]
    pub(super) fn success(&self, generation: u64) {
        let mut seen = self.0.load(Ordering::Relaxed);
        while age(seen, generation) >= 0 && failures_of(seen) != 0 {
            match self.swap(seen, pack(generation, 0)) {
                Ok(_) => return,
                Err(newer) => seen = newer,
            }
        }
    }

    /// Adds to the row and says how long it is; zero if the generation is over.
    pub(super) fn failure(&self, generation: u64) -> u32 {
        let mut seen = self.0.load(Ordering::Relaxed);
        loop {
            let failures = match age(seen, generation) {
                0 => failures_of(seen).saturating_add(1),
                1.. => 1,
                _ => return 0,
            };
            match self.swap(seen, pack(generation, failures)) {
                Ok(_) => return failures,
                Err(newer) => seen = newer,
            }
        }
    }

    /// How long the row is in `generation`.
    pub(super) fn failures(&self, generation: u64) -> u32 {
        let seen = self.0.load(Ordering::Relaxed);
        if age(seen, generation) == 0 { failures_of(seen) } else { 0 }
    }

    pub(super) fn was_used(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }

    fn swap(&self, seen: u64, next: u64) -> Result<u64, u64> {
        self.0.compare_exchange_weak(seen, next, Ordering::Relaxed, Ordering::Relaxed)
    }
}

/// How much older the word is than `generation`; negative if it is newer.
fn age(word: u64, generation: u64) -> i32 {
    (generation as u32).wrapping_sub((word >> 32) as u32) as i32
}

fn pack(generation: u64, failures: u32) -> u64 {
    generation << 32 | u64::from(failures)
}

#[inline]
fn failures_of(word: u64) -> u32 {
    word as u32
}

#[cfg(all(test, not(steadfast_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_success_ends_the_row() {
        let streak = Streak::new();
        assert_eq!([streak.failure(0), streak.failure(0)], [1, 2]);
        streak.success(0);
        assert_eq!(streak.failure(0), 1);
    }

    #[test]
    fn a_success_finds_no_row_of_an_earlier_generation_twice() {
        let streak = Streak::new();
        streak.failure(0);
        streak.success(3);
        assert!(streak.is_over());
        assert_eq!((streak.failure(0), streak.failure(3)), (0, 1));
    }

    #[test]
    fn a_generation_starts_at_zero() {
        let streak = Streak::new();
        streak.failure(0);
        assert_eq!(streak.failures(3), 0);
        assert_eq!(streak.failure(3), 1);
    }

    #[test]
    fn a_verdict_of_an_earlier_generation_changes_nothing() {
        let streak = Streak::new();
        streak.failure(3);
        assert_eq!(streak.failure(0), 0);
        streak.success(0);
        assert_eq!(streak.failures(3), 1);
    }

    #[test]
    fn generations_may_wrap() {
        let last = u64::from(u32::MAX);
        let streak = Streak(AtomicU64::new(pack(last, 0)));
        assert_eq!([streak.failure(last), streak.failure(last), streak.failure(last + 1)], [1, 2, 1]);
        assert_eq!(streak.failure(last), 0);
    }

    #[test]
    fn a_row_without_end_saturates() {
        let streak = Streak(AtomicU64::new(pack(0, u32::MAX)));
        assert_eq!(streak.failure(0), u32::MAX);
    }
}
