//! The permits of a bulkhead and those who wait for one.
//!
//! # Protocol
//! One word holds how many permits there are, how many are taken, and a bit that says whether anybody waits ([`Word`]). While
//! nobody waits, a permit is taken by one compare-and-swap; it is given back by one subtraction at any time. The bit is set and
//! cleared under the lock of `line` only, and while it is set permits are taken under the lock only, by the first in line: so
//! whoever came first is served first. The number of permits is part of the same word, so no permit is taken by a number that
//! has changed since.
//!
//! No permit is ever assigned to a waiting caller. It is woken, and takes one in its own poll, if there still is one; so who
//! leaves at the same instant has nothing to give back, and hands on no more than the wake-up. Wakers are foreign code: they are
//! called and dropped when the lock is free and everything is as it should be, and a panic in one goes no further.
//!
//! # Orderings
//! * To lose no wake-up takes nothing but the order of changes to the one word. A caller that joins the line first sets the bit
//!   and learns from that same operation how many permits are taken. A permit that was given back before is counted there, and
//!   taken at once; one that is given back after it sees the bit, and its owner goes to the lock, where he finds the caller with
//!   his waker. More permits ([`Permits::resize`]) come under the lock.
//! * A permit is given back with `Release` and taken with `Acquire`, as a lock is: what its last owner did is done for the next.
//!   All changes of the word are read-modify-write operations, so they continue the release sequence of the earlier ones.

use std::task::Waker;

use super::super::line::{Line, Ticket};
use crate::shield::{discard, wake_all};
use crate::sync::{AtomicU64, Mutex, MutexGuard, Ordering, lock};

#[derive(Debug)]
pub(super) struct Permits {
    word: AtomicU64,
    line: Mutex<Line<()>>,
}

/// permits: 31 | taken: 32 | waiting: 1.
#[derive(Clone, Copy)]
struct Word(u64);

impl Word {
    const WAITING: u64 = 1;
    const ONE_TAKEN: u64 = 1 << 1;
    const ONE_PERMIT: u64 = 1 << 33;

    #[inline]
    fn permits(self) -> u64 {
        self.0 >> 33
    }

    /// Fewer than 2^31, also after the number of permits has become less.
    #[inline]
    fn taken(self) -> u64 {
        self.0 >> 1 & 0xFFFF_FFFF
    }

    #[inline]
    fn is_waiting(self) -> bool {
        self.0 & Word::WAITING != 0
    }

    #[inline]
    fn has_room(self) -> bool {
        self.taken() < self.permits()
    }
}

/// What the line says to a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// A permit is taken.
    Taken,
    /// Those before it, or those who have permits, come first.
    Waits,
    /// As many as may wait do.
    Full,
}

impl Permits {
    pub(super) const MOST: u32 = (1 << 31) - 1;

    pub(super) fn new(permits: u32) -> Permits {
        let word = u64::from(permits.min(Permits::MOST)) * Word::ONE_PERMIT;
        Permits { word: AtomicU64::new(word), line: Mutex::new(Line::new()) }
    }

    /// Takes a permit, if there is one and nobody waits.
    #[inline]
    pub(super) fn try_take(&self) -> bool {
        let mut seen = Word(self.word.load(Ordering::Relaxed));
        loop {
            if seen.is_waiting() || !seen.has_room() {
                return false;
            }
            let taken = seen.0 + Word::ONE_TAKEN;
            match self.word.compare_exchange_weak(seen.0, taken, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => seen = Word(now),
            }
        }
    }

    /// Gives a permit back.
    #[inline]
    pub(super) fn give_back(&self) {
        let before = Word(self.word.fetch_sub(Word::ONE_TAKEN, Ordering::Release));
        if before.is_waiting() {
            self.wake_first();
        }
    }

    /// Takes a permit, or puts the caller into `place`, if there are fewer than `most` others.
    pub(super) fn join(&self, place: &mut Option<Ticket>, most: usize, waker: Waker) -> Step {
        let mut waker = Some(waker);
        let step = self.join_locked(place, most, &mut waker);
        discard(waker);
        step
    }

    /// Takes the waker if it is needed.
    fn join_locked(&self, place: &mut Option<Ticket>, most: usize, waker: &mut Option<Waker>) -> Step {
        let mut line = lock(&self.line);
        if line.len() >= most {
            return if line.is_empty() && self.try_take() { Step::Taken } else { Step::Full };
        }
        let seen = Word(self.word.fetch_or(Word::WAITING, Ordering::Relaxed));
        let step = if line.is_empty() && seen.has_room() {
            self.word.fetch_add(Word::ONE_TAKEN, Ordering::Acquire);
            Step::Taken
        } else {
            *place = waker.take().map(|waker| line.join((), waker));
            Step::Waits
        };
        self.let_in(&line);
        step
    }

    /// Looks whether a caller that waits in `place` may have a permit, which takes it out of there.
    pub(super) fn poll(&self, place: &mut Option<Ticket>, waker: Waker) -> Step {
        let Some(ticket) = *place else { return Step::Full };
        let mut line = lock(&self.line);
        let has_room = Word(self.word.load(Ordering::Relaxed)).has_room();
        if !has_room || !line.is_first(ticket) {
            let unneeded = line.register(ticket, waker);
            drop(line);
            discard(unneeded);
            return Step::Waits;
        }
        self.word.fetch_add(Word::ONE_TAKEN, Ordering::Acquire);
        *place = None;
        self.leave_locked(line, ticket);
        discard(waker);
        Step::Taken
    }

    /// Takes a caller out that gives up.
    #[cold]
    pub(super) fn leave(&self, ticket: Ticket) {
        self.leave_locked(lock(&self.line), ticket);
    }

    /// Takes a caller out, and wakes who is the first after it if there is a permit for it. It leaves the lock.
    fn leave_locked(&self, mut line: MutexGuard<'_, Line<()>>, ticket: Ticket) {
        let left = line.leave(ticket);
        self.let_in(&line);
        let next = self.first_to_wake(&mut line);
        drop(line);
        wake_all(next);
        discard(left);
    }

    /// Changes the number of permits. Those that are taken stay taken.
    pub(super) fn resize(&self, permits: u32) {
        let mut line = lock(&self.line);
        let before = Word(self.word.load(Ordering::Relaxed)).permits();
        let after = u64::from(permits.min(Permits::MOST));
        // A difference, modulo 2^64, changes these bits alone: they are the uppermost.
        let difference = after.wrapping_sub(before).wrapping_mul(Word::ONE_PERMIT);
        self.word.fetch_add(difference, Ordering::Relaxed);
        let first = self.first_to_wake(&mut line);
        drop(line);
        wake_all(first);
    }

    #[cold]
    fn wake_first(&self) {
        let first = self.first_to_wake(&mut lock(&self.line));
        wake_all(first);
    }

    /// The waker of the first in line, if there is a permit for it.
    fn first_to_wake(&self, line: &mut Line<()>) -> Option<Waker> {
        let has_room = Word(self.word.load(Ordering::Relaxed)).has_room();
        if has_room { line.take_first_waker() } else { None }
    }

    /// Lets others in without the lock if nobody waits.
    fn let_in(&self, line: &Line<()>) {
        if line.is_empty() {
            self.word.fetch_and(!Word::WAITING, Ordering::Relaxed);
        }
    }

    pub(super) fn permits(&self) -> usize {
        Word(self.word.load(Ordering::Relaxed)).permits() as usize
    }

    pub(super) fn taken(&self) -> usize {
        Word(self.word.load(Ordering::Relaxed)).taken() as usize
    }

    pub(super) fn free(&self) -> usize {
        let word = Word(self.word.load(Ordering::Relaxed));
        word.permits().saturating_sub(word.taken()) as usize
    }

    pub(super) fn waiting(&self) -> usize {
        lock(&self.line).len()
    }
}

#[cfg(all(test, steadfast_loom))]
mod loom_models;
