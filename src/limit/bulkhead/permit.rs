//! What an admitted call holds.

use std::fmt;
use std::sync::Arc;

use super::permits::Permits;
use crate::policy::{End, Guard};

/// A permit of a [`Bulkhead`](super::Bulkhead), given back when it is dropped. It belongs to nobody else and can go anywhere: into
/// a spawned task, into blocking work, into a body.
#[must_use = "a permit that is dropped is given back"]
pub struct BulkheadPermit(Arc<Permits>);

impl BulkheadPermit {
    /// One that was taken already.
    pub(super) fn taken(permits: &Arc<Permits>) -> BulkheadPermit {
        BulkheadPermit(Arc::clone(permits))
    }
}

impl Drop for BulkheadPermit {
    #[inline]
    fn drop(&mut self) {
        self.0.give_back();
    }
}

/// Held by a result that outlives its run; it is dropped as soon as that has ended, however it ended.
impl Guard for BulkheadPermit {
    fn end(&mut self, _: End) {}
}

impl fmt::Debug for BulkheadPermit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BulkheadPermit")
    }
}

/// The permit of a call of a chain, given back when the call ends.
pub(super) struct Held<'a>(&'a Arc<Permits>);

impl<'a> Held<'a> {
    /// One that was taken already.
    #[inline]
    pub(super) fn taken(permits: &'a Arc<Permits>) -> Held<'a> {
        Held(permits)
    }

    /// The same permit, for longer than the call.
    #[cold]
    pub(super) fn into_owned(self) -> BulkheadPermit {
        let owned = BulkheadPermit::taken(self.0);
        #[expect(clippy::mem_forget, reason = "its permit has moved on, and it holds nothing else")]
        std::mem::forget(self);
        owned
    }
}

impl Drop for Held<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.give_back();
    }
}
