//! What sets a run apart, in one word.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::attempt::PLAIN;
use crate::event::{Audience, RunId};

/// The id of the run while somebody observes it, and six bits: `id: 58 | flags: 6`. The id is 0 if nobody does, before the run
/// starts and after it is finished.
// The bits are the low ones: a mask of them fits into an instruction.
pub(super) struct Flags(AtomicU64);

impl Flags {
    #[inline]
    pub(super) const fn new(audience: Audience, is_plain_otherwise: bool) -> Flags {
        let flags = match audience {
            Audience::Nobody => PLAIN,
            #[cfg(feature = "tracing")]
            Audience::Tracing => TRACED,
            Audience::Anybody => 0,
        };
        Flags(AtomicU64::new(if is_plain_otherwise { flags } else { 0 }))
    }

    #[inline]
    pub(super) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }

    /// Who observes it, if anybody does.
    #[inline]
    pub(super) fn run(&self) -> Option<RunId> {
        RunId::new(self.get() >> ID_SHIFT)
    }

    pub(super) fn set_run(&self, run: Option<RunId>) {
        let id = run.map_or(0, RunId::get) << ID_SHIFT;
        self.0.store(self.get() & !ID | id, Relaxed);
    }

    /// Whether one of these is set.
    #[inline]
    pub(super) fn has(&self, flags: u64) -> bool {
        self.get() & flags != 0
    }

    pub(super) fn set(&self, flag: u64) {
        self.0.store(self.get() | flag, Relaxed);
    }

    pub(super) fn clear(&self, flag: u64) {
        self.0.store(self.get() & !flag, Relaxed);
    }
}

// `PLAIN`, see [`Core::is_plain`](super::Core::is_plain), is the first.

/// The budget has to be told of the end of the run.
pub(super) const IN_FLIGHT: u64 = 1 << 1;

/// An attempt has ended, and a policy that judges it has yet to tell.
pub(super) const UNTOLD: u64 = 1 << 2;

/// The operation of the last attempt has panicked.
pub(super) const PANICKED: u64 = 1 << 3;

/// An attempt has failed, or something has ended the run, and what there is to remember of it is kept: see [`Last`](super::Last).
pub(super) const SPOKEN: u64 = 1 << 4;

/// Would be [`PLAIN`] but for `tracing`, which has nobody to tell most of the time.
#[cfg(feature = "tracing")]
pub(super) const TRACED: u64 = 1 << 5;

/// All above: threads take ids from one counter, in blocks, and no program makes so many runs.
pub(super) const ID: u64 = u64::MAX << ID_SHIFT;

const ID_SHIFT: u32 = 6;
