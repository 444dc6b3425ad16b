//! One value for attempts that run side by side in one task.

use std::sync::{Mutex, PoisonError};

/// A value that attempts take and put back. User code (a `clone`, a `call`, a destructor) sees it only while it is taken, so
/// that no lock is held meanwhile.
///
/// The attempts of a run are polled in one task, one after the other, so whoever looks for the value finds it, unless it was
/// kept for good.
pub(crate) struct Shelf<T>(Mutex<Option<T>>);

impl<T> Shelf<T> {
    pub(crate) fn new(value: T) -> Shelf<T> {
        Shelf(Mutex::new(Some(value)))
    }

    pub(crate) fn take(&self) -> Option<T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// What was there is dropped.
    pub(crate) fn put(&self, value: T) {
        let before = self.0.lock().unwrap_or_else(PoisonError::into_inner).replace(value);
        drop(before);
    }

    /// Shows the value to `look`, if it is there.
    pub(crate) fn lend<R>(&self, look: impl FnOnce(&T) -> R) -> Option<R> {
        let value = self.take()?;
        let seen = look(&value);
        self.put(value);
        Some(seen)
    }
}
