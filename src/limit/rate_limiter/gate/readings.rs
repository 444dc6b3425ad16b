//! What a gate tells of itself.

use super::super::gcra::{Balance, Rate};
use super::Gate;
use crate::clock::Moment;
use crate::keyed::member::sealed::Standing;
use crate::sync::{Ordering, lock};

impl Gate {
    /// How many tokens there are.
    pub(in super::super) fn available(&self, now: Moment) -> u64 {
        let queue = lock(&self.queue);
        let (rate, balance) = (self.rate(), Balance(self.balance.load(Ordering::Relaxed)));
        let debt = balance.debt(self.mark(now));
        drop(queue);
        rate.burst.saturating_sub(debt) / rate.interval
    }

    /// The rate, while it is not being changed.
    pub(in super::super) fn current_rate(&self) -> Rate {
        let _unchanged = lock(&self.queue);
        self.rate()
    }

    pub(in super::super) fn queued(&self) -> usize {
        lock(&self.queue).len()
    }

    /// What it would mean to forget this bucket. Its queue is not looked at: who waits in it holds the bucket.
    pub(in super::super) fn standing(&self, now: Moment) -> Standing {
        let (rate, balance) = (self.rate(), Balance(self.balance.load(Ordering::Relaxed)));
        match balance.debt(self.mark(now)) {
            _ if balance.is_unused() => Standing::Unused,
            0 => Standing::Fresh,
            debt if debt.saturating_add(rate.interval) > rate.burst => Standing::Engaged,
            _ => Standing::Idle,
        }
    }
}
