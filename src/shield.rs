//! Calls foreign code that is only told of something, so that a panic in it goes no further: it is reported by the panic hook, and
//! what was to be done after it is done.

use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;

/// Calls a spectator of the caller's. If it panics, the panic hook has reported it, and the run goes on.
pub(crate) fn shielded(spectator: impl FnOnce()) {
    // Nothing of ours is touched inside, so nothing can be seen half-changed after a panic.
    if let Err(reported_by_the_hook) = catch_unwind(AssertUnwindSafe(spectator)) {
        // What was thrown is the user's as well, and may panic once more when it is dropped. That one is not dropped.
        let dropped = catch_unwind(AssertUnwindSafe(|| drop(reported_by_the_hook)));
        #[expect(clippy::mem_forget, reason = "it could panic for ever")]
        mem::forget(dropped);
    }
}

/// Wakes tasks, each of them whatever the wakers of the others do. To be called when all that they may look at is as it should be,
/// and without a lock.
pub(crate) fn wake_all(wakers: impl IntoIterator<Item = Waker>) {
    for waker in wakers {
        shielded(|| waker.wake());
    }
}

/// Drops a waker, or what else is the user's: that is foreign code too.
pub(crate) fn discard<F>(foreign: F) {
    shielded(|| drop(foreign));
}

#[cfg(all(test, not(steadfast_loom)))]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    struct Counts(AtomicUsize);

    impl Wake for Counts {
        fn wake(self: Arc<Self>) {
            assert!(self.0.fetch_add(1, Ordering::Relaxed) > 0, "on purpose, for the first");
        }
    }

    #[test]
    fn all_are_woken_whatever_one_of_them_does() {
        let counts = Arc::new(Counts(AtomicUsize::new(0)));
        wake_all((0..3).map(|_| Waker::from(Arc::clone(&counts))));
        assert_eq!(counts.0.load(Ordering::Relaxed), 3);
    }

    #[test]
    fn what_panics_when_it_is_dropped_is_dropped_quietly() {
        struct Throws;
        impl Drop for Throws {
            fn drop(&mut self) {
                std::panic::panic_any(Throws);
            }
        }
        discard(Some(Throws));
    }
}
