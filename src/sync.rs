//! Atomics and the mutex: from `std`, or from `loom` when the models are checked.
//!
//! The switch is `--cfg steadfast_loom` and not the customary `--cfg loom`, because other crates in the build (tokio
//! above all) react to that one by leaving out most of what they have.

use std::sync::PoisonError;

#[cfg(steadfast_loom)]
pub(crate) use loom::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicU64, fence},
};
#[cfg(not(steadfast_loom))]
pub(crate) use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicU64, fence},
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
