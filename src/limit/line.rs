//! Those who wait, in the order in which they came.

use std::collections::BTreeMap;
use std::task::Waker;

/// A line of waiting callers. It lies under the lock of its owner, who wakes and drops wakers outside of it: they are foreign
/// code.
#[derive(Debug)]
pub(super) struct Line<W> {
    waiting: BTreeMap<u64, Waiter<W>>,
    next: u64,
}

/// A place in a line.
pub(super) type Ticket = u64;

#[derive(Debug)]
pub(super) struct Waiter<W> {
    pub(super) what: W,
    /// `None` once it was taken to be woken.
    waker: Option<Waker>,
}

impl<W> Line<W> {
    pub(super) fn new() -> Line<W> {
        Line { waiting: BTreeMap::new(), next: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Puts somebody at the end.
    pub(super) fn join(&mut self, what: W, waker: Waker) -> Ticket {
        let ticket = self.next;
        self.next += 1;
        self.waiting.insert(ticket, Waiter { what, waker: Some(waker) });
        ticket
    }

    pub(super) fn is_first(&self, ticket: Ticket) -> bool {
        self.waiting.first_key_value().is_some_and(|(&first, _)| first == ticket)
    }

    pub(super) fn get(&self, ticket: Ticket) -> Option<&W> {
        self.waiting.get(&ticket).map(|waiter| &waiter.what)
    }

    /// Replaces the waker, and gives the one back that is not needed any more: the old one, or this one if the place is gone.
    pub(super) fn register(&mut self, ticket: Ticket, waker: Waker) -> Option<Waker> {
        match self.waiting.get_mut(&ticket) {
            Some(waiter) => waiter.waker.replace(waker),
            None => Some(waker),
        }
    }

    /// Takes somebody out, wherever he stands.
    pub(super) fn leave(&mut self, ticket: Ticket) -> Option<Waiter<W>> {
        self.waiting.remove(&ticket)
    }

    /// The waker of the first, to be woken; `None` if that was done and it was not polled since.
    pub(super) fn take_first_waker(&mut self) -> Option<Waker> {
        self.waiting.first_entry()?.get_mut().waker.take()
    }

    /// Takes those out that `stays` refuses, asked from the first to the last.
    pub(super) fn retain(&mut self, mut stays: impl FnMut(&W) -> bool) -> Vec<Waiter<W>> {
        self.waiting.extract_if(.., |_, waiter| !stays(&waiter.what)).map(|(_, waiter)| waiter).collect()
    }
}

impl<W> Waiter<W> {
    /// What wakes it, unless it was woken already.
    pub(super) fn into_waker(self) -> Option<Waker> {
        self.waker
    }
}
