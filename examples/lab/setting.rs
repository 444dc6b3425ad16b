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
    pub(crate) fn pick<T>(&self, full: T, reduced: T, tiny: T) -> T {
        match self.size {
            Size::Full => full,
            Size::Reduced => {
                drop(tiny);
                reduced
            }
            #[cfg(test)]
            Size::Tiny => tiny,
        }
    }

    /// What `run` makes of each item, on all cores, in the order of the items.
    pub(crate) fn map<T: Sync, R: Send>(&self, what: &str, items: &[T], run: impl Fn(&T) -> R + Sync) -> Vec<R> {
        parallel::map(&Progress::of(what, self.quiet), items, run)
    }
}
