//! What goes wrong, how often it was made to, and the dice.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

/// Something that is made to go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    // By the server, for one request.
    Error,
    RetryAfter,
    ResetBeforeHead,
    ResetInBody,
    Truncated,
    StallBeforeHead,
    StallInBody,
    SlowHead,
    SlowBody,
    // By the caller, for one call.
    Dropped,
    Cancelled,
    ShortDeadline,
    SlowReader,
    // By the operator, for all calls.
    Restart,
    Reconfigured,
    ForcedOpen,
    Isolated,
}

impl Fault {
    const ALL: [Fault; 17] = [
        Fault::Error,
        Fault::RetryAfter,
        Fault::ResetBeforeHead,
        Fault::ResetInBody,
        Fault::Truncated,
        Fault::StallBeforeHead,
        Fault::StallInBody,
        Fault::SlowHead,
        Fault::SlowBody,
        Fault::Dropped,
        Fault::Cancelled,
        Fault::ShortDeadline,
        Fault::SlowReader,
        Fault::Restart,
        Fault::Reconfigured,
        Fault::ForcedOpen,
        Fault::Isolated,
    ];

    /// Of a hundred requests, so many.
    const OF_SERVER: [(Fault, u32); 9] = [
        (Fault::Error, 5),
        (Fault::RetryAfter, 2),
        (Fault::ResetBeforeHead, 2),
        (Fault::ResetInBody, 2),
        (Fault::Truncated, 2),
        (Fault::StallBeforeHead, 2),
        (Fault::StallInBody, 2),
        (Fault::SlowHead, 4),
        (Fault::SlowBody, 4),
    ];

    /// Of a hundred calls, so many.
    const OF_CALLER: [(Fault, u32); 4] =
        [(Fault::Dropped, 8), (Fault::Cancelled, 6), (Fault::ShortDeadline, 4), (Fault::SlowReader, 4)];

    /// Often enough for the few seconds of a run without arguments: each of the others takes its turn.
    pub(crate) fn is_frequent(self) -> bool {
        Fault::OF_SERVER.into_iter().chain(Fault::OF_CALLER).any(|(frequent, _)| frequent == self)
    }

    pub(crate) fn of_server(dice: &mut Dice) -> Option<Fault> {
        dice.one_of(&Fault::OF_SERVER)
    }

    pub(crate) fn of_caller(dice: &mut Dice) -> Option<Fault> {
        dice.one_of(&Fault::OF_CALLER)
    }
}

/// How often each fault was injected.
#[derive(Default)]
pub(crate) struct Injected([AtomicU64; Fault::ALL.len()]);

impl Injected {
    pub(crate) fn count(&self, fault: Fault) {
        self.0[fault as usize].fetch_add(1, Relaxed);
    }

    pub(crate) fn total(&self) -> u64 {
        self.0.iter().map(|count| count.load(Relaxed)).sum()
    }

    /// The faults that never were.
    pub(crate) fn missing(&self) -> Vec<Fault> {
        Fault::ALL.into_iter().filter(|fault| self.0[*fault as usize].load(Relaxed) == 0).collect()
    }

    /// "Error 12, Truncated 7" and so on.
    pub(crate) fn by_kind(&self) -> String {
        let counts = Fault::ALL.iter().zip(&self.0).map(|(fault, count)| format!("{fault:?} {}", count.load(Relaxed)));
        counts.collect::<Vec<_>>().join(", ")
    }
}

/// Seeded, so that two runs of the soak draw the same, though not at the same moments.
pub(crate) struct Dice(SmallRng);

impl Dice {
    pub(crate) fn new(seed: u64) -> Dice {
        Dice(SmallRng::seed_from_u64(seed))
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0.random_range(0..end)
    }

    pub(crate) fn percent(&mut self, share: u64) -> bool {
        self.below(100) < share
    }

    pub(crate) fn millis(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_millis(self.0.random_range(from..to))
    }

    fn one_of(&mut self, weighted: &[(Fault, u32)]) -> Option<Fault> {
        let mut drawn = self.0.random_range(0..100_u32);
        for &(fault, weight) in weighted {
            if drawn < weight {
                return Some(fault);
            }
            drawn -= weight;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_stand_at_their_own_places() {
        for (place, fault) in Fault::ALL.into_iter().enumerate() {
            assert_eq!(fault as usize, place);
        }
    }
}
