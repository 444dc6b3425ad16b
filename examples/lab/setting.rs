//! How an experiment is run.

use crate::parallel;
use crate::progress::Progress;

#[derive(Clone, Copy)]
pub(crate) struct Setting {
    /// Of everything that is drawn.
    pub(crate) seed: u64,
    pub(crate) size: Size,
    /// Nobody is told how far it is.
    pub(crate) quiet: bool,
}

/// How much is simulated. The claims are checked at every size.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Size {
    /// What the published figures need.
    Full,
    /// A few seconds for all experiments together, for CI.
    Reduced,
    /// For tests of a debug build.
    #[cfg(test)]
    Tiny,
}

impl Setting {
    /// What belongs to the size: full, reduced and tiny.
    pub(crate) fn pick<T: Copy>(&self, sizes: [T; 3]) -> T {
        sizes[self.size as usize]
    }

    /// The seed of one of several worlds.
    pub(crate) fn seed_of(&self, world: u64) -> u64 {
        self.seed.wrapping_add(world)
    }

    /// What `run` makes of each item, on all cores, in the order of the items.
    pub(crate) fn map<T: Sync, R: Send>(&self, what: &str, items: &[T], run: impl Fn(&T) -> R + Sync) -> Vec<R> {
        parallel::map(&Progress::of(what, self.quiet), items, run)
    }
}
