//! How often each call has reached the server, in a room of fixed size: what has to be true of few callers at a time can be
//! counted for as long as one likes.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

pub(crate) struct Seen {
    /// The number of a call and how often it came, for the last calls.
    last: Vec<AtomicU64>,
    /// The most requests of one call.
    most: AtomicU64,
    /// Requests beyond those that the call is allowed.
    surplus: AtomicU64,
}

impl Seen {
    /// A request of a call that may have `allowed` of them: with those that nobody here has sent, it would have more.
    pub(crate) fn note(&self, call: u64, allowed: u64) {
        let place = &self.last[usize::try_from(call).unwrap_or(0) % ROOM];
        let stamp = call << 8;
        let count = |seen: u64| Some(if seen & !0xff == stamp { seen + 1 } else { stamp | 1 });
        let before = place.fetch_update(SeqCst, SeqCst, count).unwrap_or(0);
        let times = count(before).unwrap_or(0) & 0xff;
        self.most.fetch_max(times, SeqCst);
        if times > allowed {
            self.surplus.fetch_add(1, SeqCst);
        }
    }

    /// The most requests of one call.
    pub(crate) fn most(&self) -> u64 {
        self.most.load(SeqCst)
    }

    /// Requests beyond those that their call is allowed.
    pub(crate) fn surplus(&self) -> u64 {
        self.surplus.load(SeqCst)
    }
}

impl Default for Seen {
    fn default() -> Seen {
        Seen {
            last: (0..ROOM).map(|_| AtomicU64::new(u64::MAX)).collect(),
            most: AtomicU64::new(0),
            surplus: AtomicU64::new(0),
        }
    }
}

/// Far more than there are calls at a time.
const ROOM: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_more_often_than_it_may_is_seen() {
        let seen = Seen::default();
        for (call, allowed) in [(7, 1), (8, 2), (8, 2), (7, 1), (8, 2), (7 + ROOM as u64, 1)] {
            seen.note(call, allowed);
        }
        assert_eq!((seen.most(), seen.surplus()), (3, 2));
    }
}
