//! How often each call has reached the server, in a room of fixed size: what has to be true of few callers at a time can be
//! counted for as long as one likes.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

pub(crate) struct Seen {
    /// The number of a call and how often it came, for the last calls.
    last: Vec<AtomicU64>,
    /// The most requests of one call.
    most: AtomicU64,
    /// Requests that came twice and must not.
    repeated: AtomicU64,
}

impl Seen {
    pub(crate) fn note(&self, call: u64) {
        let place = &self.last[usize::try_from(call).unwrap_or(0) % ROOM];
        let stamp = call << 8;
        let count = |seen: u64| Some(if seen & !0xff == stamp { seen + 1 } else { stamp | 1 });
        let before = place.fetch_update(SeqCst, SeqCst, count).unwrap_or(0);
        let times = count(before).unwrap_or(0) & 0xff;
        self.most.fetch_max(times, SeqCst);
        if is_once(call) && times > 1 {
            self.repeated.fetch_add(1, SeqCst);
        }
    }

    /// The most requests of one call.
    pub(crate) fn most(&self) -> u64 {
        self.most.load(SeqCst)
    }

    /// Requests that came twice although they must not.
    pub(crate) fn repeated(&self) -> u64 {
        self.repeated.load(SeqCst)
    }
}

impl Default for Seen {
    fn default() -> Seen {
        Seen {
            last: (0..ROOM).map(|_| AtomicU64::new(u64::MAX)).collect(),
            most: AtomicU64::new(0),
            repeated: AtomicU64::new(0),
        }
    }
}

/// Of eight calls one is an upload that must not be sent again.
pub(crate) fn is_once(call: u64) -> bool {
    call % 8 == 3
}

/// Far more than there are calls at a time.
const ROOM: usize = 1 << 16;
