//! Atomics, the mutex and what is made when it is first needed: from `std`, or from `loom` when the models are checked.
//!
//! The switch is `--cfg steadfast_loom` and not the customary `--cfg loom`, because other crates in the build (tokio
//! above all) react to that one by leaving out most of what they have.

use std::sync::PoisonError;
#[cfg(not(steadfast_loom))]
use std::sync::atomic::AtomicUsize;

#[cfg(steadfast_loom)]
pub(crate) use loom::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicU8, AtomicU64, fence},
};
#[cfg(not(steadfast_loom))]
pub(crate) use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicU8, AtomicU64, fence},
};

pub(crate) use std::sync::atomic::Ordering;

/// Locks, whether or not a thread panicked while it held the lock.
///
/// No code of a user runs under any lock of this crate, so a panic there leaves nothing half done that the next holder
/// would have to fear.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Tells loom that the `SeqCst` accesses on both sides are in one order, which it does not model by itself.
///
/// loom treats a `SeqCst` access as `AcqRel` and knows a single total order for fences only. Outside of the models
/// this is nothing: there the accesses are `SeqCst` themselves.
#[inline]
pub(crate) fn model_fence() {
    #[cfg(steadfast_loom)]
    loom::sync::atomic::fence(Ordering::SeqCst);
}

/// A small number that differs between threads as long as there are few of them.
#[cfg(not(steadfast_loom))]
#[inline]
pub(crate) fn thread_slot() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static SLOT: usize = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    SLOT.with(|slot| *slot)
}

/// One for all in the models: which lane a thread writes makes no difference to the protocol, and loom has trouble with
/// asking a thread who it is.
#[cfg(steadfast_loom)]
pub(crate) fn thread_slot() -> usize {
    0
}

/// A value that is made when it is first needed, on the heap: until then it costs two words.
///
/// In the models it is made at once: what they check is the flags that say whether there is anything in it.
pub(crate) struct Lazy<T> {
    #[cfg(not(steadfast_loom))]
    cell: std::sync::OnceLock<Box<T>>,
    #[cfg(steadfast_loom)]
    value: Box<T>,
}

impl<T> Lazy<T> {
    #[cfg(not(steadfast_loom))]
    pub(crate) fn new(_: impl FnOnce() -> T) -> Self {
        Lazy { cell: std::sync::OnceLock::new() }
    }

    /// The value, if it was made.
    #[cfg(not(steadfast_loom))]
    #[inline]
    pub(crate) fn get(&self) -> Option<&T> {
        self.cell.get().map(|value| &**value)
    }

    /// The value, made by `make` if it was not there. `make` should be what [`new`](Lazy::new) was given.
    #[cfg(not(steadfast_loom))]
    pub(crate) fn get_or_make(&self, make: impl FnOnce() -> T) -> &T {
        self.cell.get_or_init(|| Box::new(make()))
    }

    #[cfg(steadfast_loom)]
    pub(crate) fn new(make: impl FnOnce() -> T) -> Self {
        Lazy { value: Box::new(make()) }
    }

    #[cfg(steadfast_loom)]
    pub(crate) fn get(&self) -> Option<&T> {
        Some(&self.value)
    }

    #[cfg(steadfast_loom)]
    pub(crate) fn get_or_make(&self, _: impl FnOnce() -> T) -> &T {
        &self.value
    }
}

impl<T: std::fmt::Debug> std::fmt::Debug for Lazy<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Lazy").field(&self.get()).finish()
    }
}
