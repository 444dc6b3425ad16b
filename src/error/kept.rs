//! An error as its run keeps it: what the last failed try has said, and what the run has to remember beside.

use std::mem;
use std::time::Duration;

use super::stopped::Stopped;
use super::{Error, Inner};
use crate::verdict::Ruling;

/// What few errors have, and what their runs remember beside.
pub(super) struct Memo<E> {
    /// What a fallback was to replace, whose own error this is.
    pub(super) original: Option<Error<E>>,
    /// Errors before the last one, oldest first, if a retry keeps them.
    pub(super) history: Option<Vec<E>>,
    /// How many errors a retry keeps, the last one included; at least 1 where there is a history.
    keep: usize,
    /// The last wait of each retry whose jitter goes on from there, by the retry's address.
    waits: Vec<(usize, Duration)>,
    /// How many errors each `attempts_for` has seen, by its address.
    counted: Vec<(usize, u32)>,
}

/// What an error that leaves the run takes along.
pub(crate) struct Attached<E> {
    last: Option<E>,
    history: Option<Vec<E>>,
    keep: usize,
}

/// What is not kept any more. It is the user's, and dropped where no lock is held.
#[must_use = "it is to be dropped outside of the lock"]
#[expect(dead_code, reason = "it is only dropped")]
pub(crate) struct Dropped<E> {
    error: Option<Error<E>>,
    memo: Option<Box<Memo<E>>>,
    errors: Vec<E>,
}

impl<E> Error<E> {
    /// What stands for the last error of a run that has none, such as one whose tries ended with values.
    pub(crate) fn unsaid() -> Error<E> {
        Error::new(None)
    }

    /// Keeps what the operation has said after `at` tries in the place of what it said before, and the last `keep` errors of the
    /// run, or as many as another retry has asked for. An error in which it says nothing, as when a try has timed out, takes
    /// nobody's place.
    pub(crate) fn take_over(
        slot: &mut Option<Error<E>>,
        mut error: Option<Error<E>>,
        at: u32,
        keep: usize,
    ) -> Dropped<E> {
        let is_said = error.as_ref().is_some_and(|error| error.0.last.is_some());
        let mut memo = None;
        let kept = match slot {
            None => {
                let first = slot.insert(error.take().unwrap_or_else(Error::unsaid));
                // Somebody else's, not that of this run.
                memo = first.0.memo.take();
                first
            }
            Some(kept) => {
                if let Some(error) = error.as_mut().filter(|_| is_said) {
                    mem::swap(&mut kept.0.last, &mut error.0.last);
                }
                kept
            }
        };
        if is_said {
            kept.0.at = at;
        }
        let mut errors = Vec::new();
        let keep = kept.0.memo.as_ref().map_or(keep, |memo| memo.keep.max(keep));
        if keep > 0 {
            let before = error.as_mut().and_then(Error::take_last);
            errors = kept.memo().remember(before, keep);
        }
        Dropped { error, memo, errors }
    }

    /// Takes over what another run has kept, whose errors were of another type. What was said later stays the last error.
    pub(crate) fn merge(kept: &mut Option<Error<E>>, mut other: Error<E>) -> Dropped<E> {
        let Some(kept) = kept else {
            *kept = Some(other);
            return Dropped { error: None, memo: None, errors: Vec::new() };
        };
        kept.0.stopped = other.0.stopped.or(kept.0.stopped);
        if other.0.last.is_some() && other.0.at >= kept.0.at {
            mem::swap(&mut kept.0.last, &mut other.0.last);
            kept.0.at = other.0.at;
        }
        let mut errors = Vec::new();
        if let Some(Memo { history: Some(history), keep, .. }) = other.0.memo.as_deref_mut() {
            let memo = kept.memo();
            memo.keep = *keep;
            errors = memo.history.replace(mem::take(history)).unwrap_or_default();
        }
        Dropped { error: Some(other), memo: None, errors }
    }

    /// What a run has kept, for one whose errors are of another type.
    pub(crate) fn map_kept<F>(self, mut map: impl FnMut(E) -> Option<F>) -> Error<F> {
        let Inner { at, stopped, last, memo, .. } = *self.0;
        let mut kept = Error::unsaid();
        kept.0.at = at;
        kept.0.stopped = stopped;
        kept.0.last = last.and_then(&mut map);
        kept.0.memo = memo.map(|memo| memo.map(None, |history| history.into_iter().filter_map(&mut map).collect()));
        kept
    }

    /// Takes out what an error that leaves the run is to have.
    pub(crate) fn take_kept(&mut self) -> Attached<E> {
        let last = self.0.last.take();
        let (history, keep) = self.0.memo.as_mut().map_or((None, 0), |memo| (memo.history.take(), memo.keep));
        Attached { last, history, keep }
    }

    /// Attaches what the run has kept. An error of the operation that is there already stays the last one, and the history with it
    /// does not grow beyond what the run keeps.
    pub(crate) fn attach(&mut self, Attached { last, history, keep }: Attached<E>) {
        let Some(mut history) = history else {
            self.0.last = self.0.last.take().or(last);
            return;
        };
        if self.0.last.is_some() {
            history.extend(last);
            history.drain(..surplus(&history, keep));
        } else {
            self.0.last = last;
        }
        self.memo().history = Some(history);
    }

    /// The same error as that of a fallback which was to replace `original`.
    pub(crate) fn instead_of(mut self, original: Error<E>) -> Error<E> {
        self.memo().original = Some(original);
        self
    }

    /// Counts one more error for the `attempts_for` at `address`, and says how many it has seen.
    pub(crate) fn count(&mut self, address: usize) -> u32 {
        let seen = entry(&mut self.memo().counted, address);
        *seen = seen.saturating_add(1);
        *seen
    }

    /// Remembers the wait of the retry at `address`.
    pub(crate) fn set_wait(&mut self, address: usize, wait: Duration) {
        *entry(&mut self.memo().waits, address) = wait;
    }

    /// The wait of the retry at `address` before this one; zero if it is the first.
    pub(crate) fn wait_before(&self, address: usize) -> Duration {
        let waits = self.0.memo.iter().flat_map(|memo| &memo.waits);
        waits.into_iter().find(|(retry, _)| *retry == address).map_or(Duration::ZERO, |(_, wait)| *wait)
    }

    /// Why the run made no further attempt, if a retry said so.
    pub(crate) fn stopped(&self) -> Option<Stopped> {
        self.0.stopped
    }

    pub(crate) fn set_stopped(&mut self, why: Option<Stopped>) {
        self.0.stopped = why;
    }

    /// What the try was worth that ended with this.
    pub(crate) fn ruling(&self) -> Ruling {
        self.0.ruling
    }

    fn memo(&mut self) -> &mut Memo<E> {
        self.0.memo.get_or_insert_default()
    }
}

impl<E> Memo<E> {
    pub(super) fn map_each<F>(mut self, f: &mut dyn FnMut(E) -> F) -> Box<Memo<F>> {
        let original = self.original.take().map(|original| original.map_each(f));
        self.map(original, |history| history.into_iter().map(f).collect())
    }

    fn map<F>(self, original: Option<Error<F>>, history: impl FnOnce(Vec<E>) -> Vec<F>) -> Box<Memo<F>> {
        let Memo { original: _, history: errors, keep, waits, counted } = self;
        Box::new(Memo { original, history: errors.map(history), keep, waits, counted })
    }

    /// Puts the error before the last one into the history, of which the last `keep` are kept. Returns those that are too many.
    fn remember(&mut self, before: Option<E>, keep: usize) -> Vec<E> {
        self.keep = keep;
        let history = self.history.get_or_insert_default();
        history.extend(before);
        let surplus = surplus(history, keep);
        history.drain(..surplus).collect()
    }
}

impl<E> Default for Memo<E> {
    fn default() -> Memo<E> {
        Memo { original: None, history: None, keep: 0, waits: Vec::new(), counted: Vec::new() }
    }
}

/// How many of the errors before the last one are too many, where `keep` are kept with it.
fn surplus<E>(history: &[E], keep: usize) -> usize {
    (history.len() + 1).saturating_sub(keep).min(history.len())
}

/// What belongs to `address`, which has nothing at first.
fn entry<V: Default>(entries: &mut Vec<(usize, V)>, address: usize) -> &mut V {
    let at = entries.iter().position(|(other, _)| *other == address).unwrap_or_else(|| {
        entries.push((address, V::default()));
        entries.len() - 1
    });
    &mut entries[at].1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;

    /// A run that has kept one error after another, each after so many tries as it says.
    fn kept(errors: impl IntoIterator<Item = u32>, keep: usize) -> Option<Error<u32>> {
        let mut slot = None;
        for error in errors {
            let _not_kept = Error::take_over(&mut slot, Some(Error::failed(error)), error, keep);
        }
        slot
    }

    fn leave(mut kept: Option<Error<u32>>) -> (Option<u32>, Vec<u32>) {
        let mut error = Error::refused(Kind::Cancelled);
        error.attach(kept.as_mut().unwrap().take_kept());
        let history = error.history().copied().collect();
        (error.into_last(), history)
    }

    #[test]
    fn only_the_last_error_is_kept_unless_asked() {
        let mut kept = kept(1..=5, 0);
        let _not_kept = Error::take_over(&mut kept, None, 6, 0);
        let _not_kept = Error::take_over(&mut kept, Some(Error::refused(Kind::Overloaded)), 7, 0);
        assert_eq!(leave(kept), (Some(5), vec![]));
    }

    #[test]
    fn the_history_keeps_the_last_n_and_stays_flat() {
        let kept = kept(1..=1000, 3);
        let history = kept.as_ref().and_then(|kept| kept.0.memo.as_ref()?.history.as_ref());
        assert_eq!(history.map(|history| (history.len(), history.capacity() < 10)), Some((2, true)));
        assert_eq!(leave(kept), (Some(1000), vec![998, 999, 1000]));
    }

    #[test]
    fn of_several_retries_the_one_that_keeps_most_decides() {
        let mut kept = kept(1..=4, 2);
        let _not_kept = Error::take_over(&mut kept, Some(Error::failed(5)), 5, 0);
        assert_eq!(leave(kept), (Some(5), vec![4, 5]));
    }

    #[test]
    fn what_is_not_kept_is_given_back() {
        let given_back = |keep| {
            let mut kept = kept(1..=3, keep);
            let Dropped { error, errors, .. } = Error::take_over(&mut kept, Some(Error::failed(4)), 4, keep);
            (error.and_then(Error::into_last), errors)
        };
        assert_eq!(given_back(0), (Some(3), vec![]));
        assert_eq!(given_back(2), (None, vec![2]));
    }

    #[test]
    fn what_another_run_has_kept_with_an_error_is_not_this_runs() {
        let mut foreign = Error::refused(Kind::Cancelled);
        foreign.attach(kept(1..=3, 3).unwrap().take_kept());
        let mut kept = None;
        let _not_kept = Error::take_over(&mut kept, Some(foreign), 1, 0);
        assert_eq!(leave(kept), (Some(3), vec![]));
    }

    #[test]
    fn an_error_with_a_history_of_its_own_keeps_it_in_a_run_that_keeps_none() {
        let mut error = Error::refused(Kind::Cancelled);
        error.attach(kept(1..=3, 3).unwrap().take_kept());
        error.attach(kept([4], 0).unwrap().take_kept());
        assert_eq!(error.history().copied().collect::<Vec<_>>(), [1, 2, 3]);
        assert_eq!(error.into_last(), Some(3));
    }

    #[test]
    fn of_two_runs_the_error_that_was_said_later_is_the_last() {
        let merged = |there, handed| {
            let mut there = kept(there, 0);
            let _not_kept = Error::merge(&mut there, kept(handed, 2).unwrap().map_kept(Some));
            leave(there)
        };
        assert_eq!(merged(vec![], vec![1, 2]), (Some(2), vec![1, 2]));
        assert_eq!(merged(vec![1], vec![2, 3]), (Some(3), vec![2, 3]));
        assert_eq!(merged(vec![9], vec![2, 3]), (Some(9), vec![2, 9]));
    }

    #[test]
    fn counters_and_waits_are_kept_apart() {
        let mut kept = Error::<()>::unsaid();
        assert_eq!((kept.count(8), kept.count(8), kept.count(16)), (1, 2, 1));
        kept.set_wait(8, Duration::from_secs(1));
        kept.set_wait(16, Duration::from_secs(2));
        kept.set_wait(8, Duration::from_secs(3));
        let waits = [8, 16, 24].map(|retry| kept.wait_before(retry).as_secs());
        assert_eq!(waits, [3, 2, 0]);
    }
}
