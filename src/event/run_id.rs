//! Which run an event belongs to.

use std::cell::Cell;
use std::fmt;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Tells one observed run of the program from another. It says nothing of their order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RunId(NonZeroU64);

impl RunId {
    /// One that no other run has had. Threads take them in blocks, since one counter would be written by every run of all
    /// threads.
    pub(crate) fn next() -> RunId {
        static BLOCKS: AtomicU64 = AtomicU64::new(0);
        thread_local! {
            static LAST: Cell<u64> = const { Cell::new(0) };
        }
        let fresh =
            |last: u64| if last.is_multiple_of(BLOCK) { BLOCKS.fetch_add(1, Relaxed) * BLOCK + 1 } else { last + 1 };
        let id = LAST.with(|last| {
            last.set(fresh(last.get()));
            last.get()
        });
        RunId::new(id).unwrap_or(RunId(NonZeroU64::MIN))
    }

    #[inline]
    pub(crate) fn new(id: u64) -> Option<RunId> {
        NonZeroU64::new(id).map(RunId)
    }

    /// The number.
    #[must_use]
    pub fn get(self) -> u64 {
        self.0.get()
    }
}

impl fmt::Debug for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RunId({})", self.0)
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// How many a thread takes at a time.
const BLOCK: u64 = 1024;

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::thread;

    use super::*;

    #[test]
    fn no_two_runs_have_the_same_id_on_any_threads() {
        let take = || (0..3 * BLOCK).map(|_| RunId::next()).collect::<Vec<_>>();
        let threads: Vec<_> = (0..4).map(|_| thread::spawn(take)).collect();
        let ids: Vec<_> = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
        assert_eq!(ids.iter().collect::<HashSet<_>>().len(), 4 * 3 * BLOCK as usize);
    }
}
