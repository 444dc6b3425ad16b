//! What the operation has said so far in a run.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use crate::error::Error;
pub use crate::event::Stopped;
use crate::verdict::Verdict;

/// What the failed attempts of a run leave behind: the last error, typed, so that whoever ends the run from outside can
/// attach it. Empty, and never touched, in a run whose first attempt succeeds.
// The mutex is for `Sync` alone: a run is one task, so it is never contended, and no user code runs under it. It still costs
// two atomic operations, so nobody locks what is not there.
pub(crate) struct Last<E>(OnceLock<Box<Mutex<Spoken<E>>>>);

/// See [`Last`].
pub(crate) struct Spoken<E> {
    pub(crate) error: Option<E>,
    /// How many tries the run had made when `error` was kept.
    at: u32,
    /// Errors before `error`, oldest first, if a retry keeps them.
    pub(crate) history: Option<Vec<E>>,
    /// How many errors a retry keeps, the last one included; at least 1 where there is a history.
    keep: usize,
    pub(crate) stopped: Option<Stopped>,
    verdict: Option<Verdict>,
    /// The last wait of each retry whose jitter goes on from there, by the retry's address.
    waits: Vec<(usize, Duration)>,
    /// How many errors each `attempts_for` has seen, by its address.
    counted: Vec<(usize, u32)>,
}

impl<E> Last<E> {
    #[inline]
    pub(crate) fn new() -> Last<E> {
        Last(OnceLock::new())
    }

    /// Takes over what a failed attempt said after `at` tries, and keeps the last `keep` errors of the run, or as many as
    /// another retry has asked for.
    pub(crate) fn keep(&self, error: Option<E>, at: u32, keep: usize) {
        let _dropped_outside_of_the_lock = self.with(|spoken| spoken.take_over(error, at, keep));
    }

    /// [`keep`](Last::keep), where another attempt will be made after one that was worth `verdict`: see [`go_on`](Last::go_on).
    pub(crate) fn go_on_after(&self, verdict: Verdict, error: Option<E>, at: u32, keep: usize) {
        let _dropped_outside_of_the_lock = self.with(|spoken| {
            spoken.verdict = Some(verdict);
            spoken.stopped = None;
            spoken.take_over(error, at, keep)
        });
    }

    /// Counts one more error for the `attempts_for` at `address`, and says how many it has seen.
    pub(crate) fn count(&self, address: usize) -> u32 {
        self.with(|spoken| match spoken.counted.iter_mut().find(|(counter, _)| *counter == address) {
            Some((_, seen)) => {
                *seen = seen.saturating_add(1);
                *seen
            }
            None => {
                spoken.counted.push((address, 1));
                1
            }
        })
    }

    /// Remembers the wait of the retry at `address`.
    pub(crate) fn set_wait(&self, address: usize, wait: Duration) {
        self.with(|spoken| match spoken.waits.iter_mut().find(|(retry, _)| *retry == address) {
            Some((_, before)) => *before = wait,
            None => spoken.waits.push((address, wait)),
        });
    }

    /// The wait of the retry at `address` before this one; zero if it is the first.
    pub(crate) fn wait_before(&self, address: usize) -> Duration {
        let Some(spoken) = self.spoken() else { return Duration::ZERO };
        spoken.waits.iter().find(|(retry, _)| *retry == address).map_or(Duration::ZERO, |(_, wait)| *wait)
    }

    /// What the last failed try was worth.
    pub(crate) fn verdict(&self) -> Option<Verdict> {
        self.spoken()?.verdict
    }

    pub(crate) fn stop(&self, why: Stopped) {
        self.with(|spoken| spoken.stopped = Some(why));
    }

    /// Another attempt is made: what a retry further inside has given up for is no longer the reason.
    pub(crate) fn go_on(&self) {
        if let Some(mut spoken) = self.spoken() {
            spoken.stopped = None;
        }
    }

    /// Attaches the last error and its history to `error`, if it has no operation's error of its own.
    pub(crate) fn attach_to(&self, error: &mut Error<E>) {
        let Some(mut spoken) = self.spoken() else { return };
        let (last, history, keep) = (spoken.error.take(), spoken.history.take(), spoken.keep);
        drop(spoken);
        error.attach(last, history, keep);
    }

    /// Moves everything to a run with another error type. What was said there later stays the last error.
    pub(crate) fn hand_over<F>(&self, to: &Last<F>, mut map: impl FnMut(E) -> Option<F>) {
        let Some(spoken) = self.spoken().map(|mut spoken| std::mem::take(&mut *spoken)) else { return };
        let Spoken { error, at, history, keep, stopped, .. } = spoken;
        let error = error.and_then(&mut map);
        let history = history.map(|history| history.into_iter().filter_map(&mut map).collect());
        let _dropped_outside_of_the_lock = to.with(|there| {
            there.stopped = stopped.or(there.stopped);
            let history_before = history.and_then(|history| {
                there.keep = keep;
                there.history.replace(history)
            });
            let is_newer = error.is_some() && at >= there.at;
            let error_before = if is_newer { std::mem::replace(&mut there.error, error) } else { error };
            (error_before, history_before)
        });
    }

    /// Why the run made no further attempt, if a retry said so.
    pub(crate) fn stopped(&self) -> Option<Stopped> {
        self.spoken()?.stopped
    }

    /// What was said, if anything was.
    fn spoken(&self) -> Option<MutexGuard<'_, Spoken<E>>> {
        Some(self.0.get()?.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn with<R>(&self, change: impl FnOnce(&mut Spoken<E>) -> R) -> R {
        change(&mut self.0.get_or_init(Box::default).lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<E> Drop for Last<E> {
    // Taken out, so that there is nothing left for the compiler to drop where nothing was said.
    #[inline(always)]
    fn drop(&mut self) {
        if let Some(spoken) = self.0.take() {
            forget(spoken);
        }
    }
}

#[cold]
#[inline(never)]
fn forget<E>(spoken: Box<Mutex<Spoken<E>>>) {
    drop(spoken);
}

impl<E> Spoken<E> {
    /// Returns what is not kept any more: the error before this one, or the oldest ones of the history. A try that says nothing
    /// (one that timed out, or ended with a value) says how many are kept all the same.
    fn take_over(&mut self, error: Option<E>, at: u32, keep: usize) -> (Option<E>, Vec<E>) {
        let before = match error {
            Some(error) => {
                self.at = at;
                self.error.replace(error)
            }
            None => None,
        };
        // Of several retries the one that keeps most decides.
        self.keep = self.keep.max(keep);
        if self.keep == 0 {
            return (before, Vec::new());
        }
        let history = self.history.get_or_insert_default();
        history.extend(before);
        let surplus = (history.len() + 1).saturating_sub(self.keep);
        (None, history.drain(..surplus).collect())
    }
}

impl<E> Default for Spoken<E> {
    fn default() -> Self {
        Spoken {
            error: None,
            at: 0,
            history: None,
            keep: 0,
            stopped: None,
            verdict: None,
            waits: Vec::new(),
            counted: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_error_is_kept_unless_asked() {
        let last = Last::new();
        (1..=5).for_each(|error| last.keep(Some(error), error, 0));
        last.keep(None, 6, 0);
        let spoken = std::mem::take(&mut *last.spoken().unwrap());
        assert_eq!((spoken.error, spoken.history), (Some(5), None));
    }

    #[test]
    fn the_history_keeps_the_last_n_and_stays_flat() {
        let last = Last::new();
        (1..=1000).for_each(|error| last.keep(Some(error), error, 3));
        let spoken = std::mem::take(&mut *last.spoken().unwrap());
        assert_eq!((spoken.error, spoken.history), (Some(1000), Some(vec![998, 999])));
    }

    #[test]
    fn nothing_was_said_before_a_first_failure() {
        let last = Last::<()>::new();
        last.go_on();
        assert!(last.spoken().is_none());
        assert_eq!((last.stopped(), last.verdict()), (None, None));
    }

    #[test]
    fn counters_are_kept_apart() {
        let last = Last::<()>::new();
        assert_eq!((last.count(8), last.count(8), last.count(16)), (1, 2, 1));
    }
}
