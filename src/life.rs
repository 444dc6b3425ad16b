//! How an executor ends: it is open, then closed, then shut down, and it knows which of its runs are still waiting.

use std::future::poll_fn;
use std::mem;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use slab::Slab;

use crate::shield::{discard, wake_all};
use crate::sync::{AtomicU8, Mutex, MutexGuard, Ordering, lock, thread_slot};

/// The life of an executor, shared with its runs and with the bodies that outlive them.
///
/// # Orderings
/// A run that is about to wait first puts its waker into a shard, under the shard's lock, and then looks at `state`;
/// `shut_down` first stores `state` and then visits every shard under its lock. Of the two critical sections one comes
/// first: if it is the run's, `shut_down` finds the waker; if it is `shut_down`'s, the lock makes the store visible to the
/// run. No wake-up is lost, and no ordering stronger than the lock's own is needed. The look at `state` when a run starts
/// promises nothing to anybody else, so it is relaxed.
///
/// `close`, `shut_down` and `leave` each change one thing, `state` or a shard, then look at `state` and at every shard under its
/// lock, and tell those in `idle` if the executor is closed and nobody waits. One of them does:
/// * Who leaves and finds another one still there has looked into that shard before the other one's removal. So the other one left
///   later, and sees whatever the first has seen. Who is the last to leave finds nobody.
/// * If `close` finds nobody, it tells. If it finds somebody, it has looked into that shard before the removal, so whoever leaves it
///   sees the stored state, and so do all who leave after that one.
///
/// `drained` puts its waker into `idle` under the lock and then looks. Whoever tells takes the wakers under that lock: after
/// that, and the waker is found, or before it, and then `drained` sees all that the other one has seen: it is closed, and who
/// waits by now has come since and will leave.
#[derive(Default)]
pub(crate) struct Life {
    state: AtomicU8,
    shards: [Shard; SHARDS],
    /// Those who wait for the last waiting run of a closed executor.
    idle: Shard,
}

/// The wakers of the waiting runs of some threads. They are foreign code: they are cloned, called and dropped outside of the
/// lock only. A line of its own, so that threads do not disturb one another.
#[derive(Default)]
#[repr(align(128))]
struct Shard(Mutex<Slab<Waker>>);

impl Life {
    /// Whether new runs are admitted.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.state.load(Ordering::Relaxed) == OPEN
    }

    #[inline]
    pub(crate) fn is_shut_down(&self) -> bool {
        self.state.load(Ordering::Relaxed) == SHUT_DOWN
    }

    /// Refuses new runs from now on.
    pub(crate) fn close(&self) {
        self.state.fetch_max(CLOSED, Ordering::Relaxed);
        self.tell_if_idle();
    }

    /// Refuses new runs, and ends those that wait.
    pub(crate) fn shut_down(&self) {
        self.state.store(SHUT_DOWN, Ordering::Relaxed);
        for shard in &self.shards {
            wake_all(shard.take());
        }
        self.tell_if_idle();
    }

    /// Waits until the executor is closed and none of its runs is waiting.
    pub(crate) async fn drained(&self) {
        let mut place = Waits { idle: &self.idle, key: None };
        poll_fn(|cx| {
            // First the waker and then the look, as at a shutdown.
            place.register(cx.waker());
            if self.is_idle() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    fn is_idle(&self) -> bool {
        !self.is_open() && self.waiting() == 0
    }

    fn tell_if_idle(&self) {
        if self.is_idle() {
            wake_all(self.idle.take());
        }
    }

    /// Ready once the executor is shut down; until then the task is woken when it is. Takes a slot at the first call, which
    /// its owner gives back with [`leave`](Life::leave).
    pub(crate) fn poll_shut_down(&self, slot: &mut Slot, cx: &mut Context<'_>) -> Poll<()> {
        let waker = cx.waker();
        if !slot.is_taken() {
            let (shard, waker) = (thread_slot() % SHARDS, waker.clone());
            let key = self.shards[shard].lock().insert(waker);
            *slot = Slot::new(shard, key);
        } else {
            let (shard, key) = (&self.shards[slot.shard()], slot.key());
            let is_known = shard.lock()[key].will_wake(waker);
            if !is_known {
                let waker = waker.clone();
                let unused = mem::replace(&mut shard.lock()[key], waker);
                discard(unused);
            }
        }
        if self.is_shut_down() { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Gives a slot back, if it is one.
    #[cold]
    pub(crate) fn leave(&self, slot: Slot) {
        if !slot.is_taken() {
            return;
        }
        let waker = self.shards[slot.shard()].lock().remove(slot.key());
        discard(waker);
        self.tell_if_idle();
    }

    /// How many runs and bodies are waiting.
    pub(crate) fn waiting(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }
}

impl Shard {
    /// The wakers of all that are in it, and who stay in it.
    fn take(&self) -> Vec<Waker> {
        let take = |(_, waker): (usize, &mut Waker)| mem::replace(waker, Waker::noop().clone());
        self.lock().iter_mut().map(take).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Slab<Waker>> {
        lock(&self.0)
    }
}

/// One who waits for an executor to be idle.
struct Waits<'a> {
    idle: &'a Shard,
    key: Option<usize>,
}

impl Waits<'_> {
    fn register(&mut self, waker: &Waker) {
        let waker = waker.clone();
        let mut wakers = self.idle.lock();
        match self.key {
            Some(key) => {
                let unused = mem::replace(&mut wakers[key], waker);
                drop(wakers);
                discard(unused);
            }
            None => self.key = Some(wakers.insert(waker)),
        }
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        if let Some(key) = self.key.take() {
            let waker = self.idle.lock().remove(key);
            discard(waker);
        }
    }
}

/// Where the waker of a waiting run is kept; nowhere by default. One word, `(key + 1) × SHARDS + shard`, since most runs never wait.
#[derive(Clone, Copy)]
pub(crate) struct Slot(NonZeroUsize);

impl Slot {
    fn new(shard: usize, key: usize) -> Slot {
        Slot(NonZeroUsize::MIN.saturating_add((key + 1) * SHARDS + shard - 1))
    }

    #[inline]
    pub(crate) fn is_taken(self) -> bool {
        self.0.get() >= SHARDS
    }

    fn shard(self) -> usize {
        self.0.get() % SHARDS
    }

    fn key(self) -> usize {
        self.0.get() / SHARDS - 1
    }
}

impl Default for Slot {
    #[inline]
    fn default() -> Slot {
        Slot(NonZeroUsize::MIN)
    }
}

/// A place among the waiting of an executor, if there is one; empty until the first [`poll`](Place::poll), given back on
/// drop.
pub(crate) struct Place<'a> {
    life: Option<&'a Arc<Life>>,
    slot: Slot,
}

impl<'a> Place<'a> {
    pub(crate) fn new(life: Option<&'a Arc<Life>>) -> Place<'a> {
        Place { life, slot: Slot::default() }
    }

    /// See [`Life::poll_shut_down`]. Never ready without an executor.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.life.map_or(Poll::Pending, |life| life.poll_shut_down(&mut self.slot, cx))
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if let Some(life) = self.life {
            life.leave(self.slot);
        }
    }
}

const SHARDS: usize = 4;

const OPEN: u8 = 0;
const CLOSED: u8 = 1;
const SHUT_DOWN: u8 = 2;

#[cfg(all(test, steadfast_loom))]
mod loom_models;

#[cfg(all(test, not(steadfast_loom)))]
mod tests {
    use std::task::Waker;

    use super::*;

    #[test]
    fn a_place_is_taken_once_and_given_back() {
        let life = Arc::new(Life::default());
        let mut cx = Context::from_waker(Waker::noop());
        let mut place = Place::new(Some(&life));
        assert_eq!(life.waiting(), 0);
        assert!(place.poll(&mut cx).is_pending());
        assert!(place.poll(&mut cx).is_pending());
        assert_eq!(life.waiting(), 1);
        drop(place);
        assert_eq!(life.waiting(), 0);
    }

    #[test]
    fn shutting_down_wakes_the_waiting() {
        let life = Arc::new(Life::default());
        let mut waiting = tokio_test::task::spawn(std::future::poll_fn({
            let mut place = Place::new(Some(&life));
            move |cx| place.poll(cx)
        }));
        assert!(waiting.poll().is_pending());
        life.close();
        assert!(!waiting.is_woken());
        life.shut_down();
        assert!(waiting.is_woken());
        assert!(waiting.poll().is_ready());
    }

    #[test]
    fn drained_resolves_when_the_last_place_is_given_back() {
        let life = Arc::new(Life::default());
        let mut drained = tokio_test::task::spawn(life.drained());
        assert!(drained.poll().is_pending());
        let mut place = Place::new(Some(&life));
        assert!(place.poll(&mut Context::from_waker(Waker::noop())).is_pending());
        life.close();
        assert!(drained.poll().is_pending());
        drop(place);
        assert!(drained.is_woken());
        assert!(drained.poll().is_ready());
    }
}
