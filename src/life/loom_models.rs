//! The end of an executor under all interleavings, with up to three preemptions (or as many as `LOOM_MAX_PREEMPTIONS` says).

use std::pin::pin;
use std::sync::Arc as StdArc;
use std::task::Wake;

use loom::sync::Arc;
use loom::thread;

use super::*;
use crate::sync::AtomicU64;

/// Remembers that it was woken.
struct Flag(AtomicU64);

impl Flag {
    fn new() -> StdArc<Flag> {
        StdArc::new(Flag(AtomicU64::new(0)))
    }

    fn is_raised(&self) -> bool {
        self.0.load(Ordering::SeqCst) > 0
    }
}

impl Wake for Flag {
    fn wake(self: StdArc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn model(check: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(3));
    builder.check(check);
}

/// A run that waits.
fn enter(life: &Life, waker: &Waker) -> (Slot, Poll<()>) {
    let mut slot = Slot::default();
    let polled = life.poll_shut_down(&mut slot, &mut Context::from_waker(waker));
    (slot, polled)
}

#[test]
fn loom_a_run_that_begins_to_wait_hears_of_a_shutdown_beside_it() {
    model(|| {
        let life = Arc::new(Life::default());
        let other = Arc::clone(&life);
        let ending = thread::spawn(move || other.shut_down());
        let flag = Flag::new();
        let (slot, polled) = enter(&life, &Waker::from(StdArc::clone(&flag)));
        ending.join().expect("a model thread does not panic");
        assert!(polled.is_ready() || flag.is_raised());
        life.leave(slot);
    });
}

#[test]
fn loom_who_waits_for_the_end_is_told_by_the_last_to_leave_or_by_who_closes() {
    model(|| {
        let life = Arc::new(Life::default());
        let (slot, _) = enter(&life, Waker::noop());
        let (leaving, closing) = (Arc::clone(&life), Arc::clone(&life));
        let leaving = thread::spawn(move || leaving.leave(slot));
        let closing = thread::spawn(move || closing.close());
        let flag = Flag::new();
        let waker = Waker::from(StdArc::clone(&flag));
        let mut drained = pin!(life.drained());
        let polled = drained.as_mut().poll(&mut Context::from_waker(&waker));
        for thread in [leaving, closing] {
            thread.join().expect("a model thread does not panic");
        }
        assert!(polled.is_ready() || flag.is_raised());
        assert!(polled.is_ready() || drained.poll(&mut Context::from_waker(&waker)).is_ready());
    });
}
