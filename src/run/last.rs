//! What the operation has said so far in a run.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::Frame;
use super::flags::SPOKEN;
use crate::error::Error;
pub use crate::event::Stopped;
use crate::verdict::{Ruling, Verdict};

/// What the failed attempts of a run leave behind: the error of the last one, so that whoever ends the run from outside can attach
/// what the operation has said, and with it what the run has to remember. Empty, and never looked at, in a run whose first attempt
/// succeeds.
///
/// The error stays in the box that it came in: to move the operation's error to a place of its own would take another one.
// The mutex is for `Sync` alone: a run is one task, so it is never contended, and no user code runs under it. It still costs two
// atomic operations, so nobody locks where nothing was said: `SPOKEN` tells.
pub(crate) struct Last<E>(Mutex<Option<Error<E>>>);

impl<E> Last<E> {
    #[inline]
    pub(crate) fn new() -> Last<E> {
        Last(Mutex::new(None))
    }

    fn lock(&self) -> MutexGuard<'_, Option<Error<E>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<E> Frame<'_, E> {
    /// Takes over what a failed attempt said after `at` tries, and keeps the last `keep` errors of the run, or as many as
    /// another retry has asked for.
    pub(crate) fn keep(&self, error: Error<E>, at: u32, keep: usize) {
        let _dropped_outside_of_the_lock = Error::take_over(&mut self.speak(), Some(error), at, keep);
    }

    /// [`keep`](Frame::keep), where another attempt will be made after one that was judged so: see [`go_on`](Frame::go_on).
    #[inline(always)]
    pub(crate) fn go_on_after(&self, ruling: Ruling, error: Option<Error<E>>, at: u32, keep: usize) {
        let mut kept = self.speak();
        let dropped = Error::take_over(&mut kept, error, at, keep);
        if let Some(kept) = &mut *kept {
            kept.set_ruling(ruling);
            kept.set_stopped(None);
        }
        drop(kept);
        drop(dropped);
    }

    /// Counts one more error for the `attempts_for` at `address`, and says how many it has seen.
    pub(crate) fn count(&self, address: usize) -> u32 {
        self.speak().get_or_insert_with(Error::unsaid).count(address)
    }

    /// Remembers the wait of the retry at `address`.
    pub(crate) fn set_wait(&self, address: usize, wait: Duration) {
        self.speak().get_or_insert_with(Error::unsaid).set_wait(address, wait);
    }

    /// The wait of the retry at `address` before this one; zero if it is the first.
    pub(crate) fn wait_before(&self, address: usize) -> Duration {
        self.ask(|kept| kept.wait_before(address)).unwrap_or_default()
    }

    /// What the last failed try was worth.
    pub(crate) fn verdict(&self) -> Option<Verdict> {
        self.ask(|kept| kept.ruling().verdict())
    }

    /// No further attempt is made.
    pub(crate) fn stop(&self, why: Stopped) {
        self.speak().get_or_insert_with(Error::unsaid).set_stopped(Some(why));
    }

    /// Another attempt is made: what a retry further inside has given up for is no longer the reason.
    pub(crate) fn go_on(&self) {
        self.ask(|kept| kept.set_stopped(None));
    }

    /// Why the run made no further attempt, if a retry said so.
    pub(crate) fn stopped(&self) -> Option<Stopped> {
        self.ask(|kept| kept.stopped())?
    }

    /// Attaches the last error and its history to `error`, if it has no operation's error of its own.
    pub(crate) fn attach_to(&self, error: &mut Error<E>) {
        if let Some(attached) = self.ask(Error::take_kept) {
            error.attach(attached);
        }
    }

    /// Moves everything to a run with another error type. What was said there later stays the last error.
    pub(crate) fn hand_over<F>(&self, to: &Frame<'_, F>, map: impl FnMut(E) -> Option<F>) {
        let kept = if self.has_spoken() { self.last.lock().take() } else { None };
        if let Some(kept) = kept {
            let kept = kept.map_kept(map);
            let _dropped_outside_of_the_lock = Error::merge(&mut to.speak(), kept);
        }
    }

    fn has_spoken(&self) -> bool {
        self.scope.core.flags.has(SPOKEN)
    }

    fn speak(&self) -> MutexGuard<'_, Option<Error<E>>> {
        self.scope.core.flags.set(SPOKEN);
        self.last.lock()
    }

    /// Looks at what was said, if anything was.
    fn ask<R>(&self, look: impl FnOnce(&mut Error<E>) -> R) -> Option<R> {
        if self.has_spoken() { self.last.lock().as_mut().map(look) } else { None }
    }
}
