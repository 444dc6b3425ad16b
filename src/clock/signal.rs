//! The wake-up of a thread that waits for a future.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Wake;
use std::thread::{self, Thread};

/// Remembers that the future of a `block_on` was woken, and unparks its thread.
pub(super) struct Signal {
    woken: AtomicBool,
    thread: Thread,
}

impl Signal {
    pub(super) fn here() -> Signal {
        Signal { woken: AtomicBool::new(false), thread: thread::current() }
    }

    pub(super) fn take(&self) -> bool {
        self.woken.swap(false, Ordering::AcqRel)
    }

    #[cfg(any(test, feature = "test-util"))]
    pub(super) fn is_set(&self) -> bool {
        self.woken.load(Ordering::Acquire)
    }

    /// Whether only `block_on` itself still holds it: by name, and in the waker that it polls with.
    #[cfg(any(test, feature = "test-util"))]
    pub(super) fn is_forgotten(self: &Arc<Signal>) -> bool {
        let forgotten = Arc::strong_count(self) == 2;
        // Pairs with the release in the last other owner's drop: what it did before is seen.
        std::sync::atomic::fence(Ordering::Acquire);
        forgotten
    }
}

impl Wake for Signal {
    fn wake(self: Arc<Signal>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Signal>) {
        self.woken.store(true, Ordering::Release);
        self.thread.unpark();
    }
}
