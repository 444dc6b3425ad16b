//! What sets a run apart, in one word.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::event::RunId;

/// The id of the run while somebody observes it, and five bits. The id is 0 if nobody does, before the run starts and after it
/// is finished.
pub(super) struct Flags(AtomicU64);

impl Flags {
    #[inline]
    pub(super) const fn new(is_plain: bool) -> Flags {
        Flags(AtomicU64::new(if is_plain { PLAIN } else { 0 }))
    }

    /// Who observes it, if anybody does.
    #[inline]
    pub(super) fn run(&self) -> Option<RunId> {
        RunId::new(self.0.load(Relaxed) & ID)
    }

    pub(super) fn set_run(&self, run: Option<RunId>) {
        self.0.store(self.0.load(Relaxed) & !ID | run.map_or(0, RunId::get), Relaxed);
    }

    #[inline]
    pub(super) fn has(&self, flag: u64) -> bool {
        self.0.load(Relaxed) & flag != 0
    }

    pub(super) fn set(&self, flag: u64) {
        self.0.store(self.0.load(Relaxed) | flag, Relaxed);
    }

    pub(super) fn clear(&self, flag: u64) {
        self.0.store(self.0.load(Relaxed) & !flag, Relaxed);
    }
}

/// See [`Core::is_plain`](super::Core::is_plain).
pub(super) const PLAIN: u64 = 1 << 59;

/// The budget has to be told of the end of the run.
pub(super) const IN_FLIGHT: u64 = 1 << 60;

/// The run is observed, and was not polled yet.
pub(super) const FRESH: u64 = 1 << 61;

/// An attempt has ended, and a policy that judges it has yet to tell.
pub(super) const UNTOLD: u64 = 1 << 62;

/// The operation of the last attempt has panicked.
pub(super) const PANICKED: u64 = 1 << 63;

/// All below: threads take ids from one counter, in blocks, and no program makes so many runs.
const ID: u64 = PLAIN - 1;
