//! Lets one thread at a time put a change into effect, without a lock: what takes effect may wake or drop what is the user's.
//!
//! Who wants a change stores it first, somewhere, and then passes. The first to pass works; whoever comes meanwhile counts itself
//! and goes, and the worker begins anew before it leaves. So after the last one has come, somebody has begun to work; if
//! that work panics, what others have come for takes effect with the next one.
//!
//! # Orderings
//! The count is all that is agreed on. Who counts itself does so with `Release`, and the worker leaves by a swap that has
//! acquired every count that it has seen; one that it has not seen makes the swap fail. So what was stored before a count is
//! seen by the work that begins after it.

use crate::sync::{AtomicU64, Ordering};

#[derive(Debug)]
pub(crate) struct Turnstile {
    /// Those who have come since the worker began, and itself; zero if nobody works.
    come: AtomicU64,
}

impl Turnstile {
    /// Works, unless another thread does, which then works once more.
    ///
    /// # Errors
    /// Those of the last work, if it was done here.
    pub(crate) fn pass<E>(&self, work: impl Fn() -> Result<(), E>) -> Result<(), E> {
        let before = self.come.fetch_add(1, Ordering::AcqRel);
        if before > 0 {
            return Ok(());
        }
        let worker = Worker(self);
        let mut come = 1;
        loop {
            let done = work();
            match self.come.compare_exchange(come, 0, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => {
                    #[expect(clippy::mem_forget, reason = "it has left already, and another one may have come")]
                    std::mem::forget(worker);
                    return done;
                }
                Err(more) => come = more,
            }
        }
    }
}

impl Default for Turnstile {
    fn default() -> Turnstile {
        Turnstile { come: AtomicU64::new(0) }
    }
}

/// Leaves also if the work panics: then it is the next one to come who works.
struct Worker<'a>(&'a Turnstile);

impl Drop for Worker<'_> {
    fn drop(&mut self) {
        self.0.come.store(0, Ordering::Release);
    }
}

#[cfg(all(test, not(steadfast_loom)))]
mod tests {
    use std::cell::Cell;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    #[test]
    fn one_that_comes_during_the_work_goes_and_the_work_is_done_again() {
        let turnstile = Turnstile::default();
        let done = Cell::new(0);
        let passed = turnstile.pass(|| {
            done.set(done.get() + 1);
            if done.get() < 3 {
                turnstile.pass(|| -> Result<(), ()> { panic!("somebody works already") })?;
            }
            Ok::<_, ()>(())
        });
        assert_eq!((passed, done.get()), (Ok(()), 3));
    }

    #[test]
    fn work_that_panics_leaves_the_way_free() {
        let turnstile = Turnstile::default();
        let work = || -> Result<(), ()> { panic!("on purpose") };
        assert!(catch_unwind(AssertUnwindSafe(|| turnstile.pass(work))).is_err());
        assert_eq!(turnstile.pass(|| Err(7)), Err(7));
    }
}

#[cfg(all(test, steadfast_loom))]
mod loom_models {
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicUsize;
    use loom::thread;

    use super::*;

    #[test]
    fn loom_work_is_done_alone_and_the_newest_change_takes_effect() {
        loom::model(|| {
            let shared =
                Arc::new((Turnstile::default(), AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0)));
            let change = |shared: &(Turnstile, AtomicUsize, AtomicUsize, AtomicUsize)| {
                let (turnstile, wanted, effective, working) = shared;
                wanted.fetch_add(1, Ordering::Relaxed);
                let passed: Result<(), ()> = turnstile.pass(|| {
                    assert_eq!(working.fetch_add(1, Ordering::Relaxed), 0, "alone");
                    effective.store(wanted.load(Ordering::Relaxed), Ordering::Relaxed);
                    working.fetch_sub(1, Ordering::Relaxed);
                    Ok(())
                });
                assert_eq!(passed, Ok(()));
            };
            let other = thread::spawn({
                let shared = Arc::clone(&shared);
                move || change(&shared)
            });
            change(&shared);
            other.join().expect("a model thread does not panic");
            assert_eq!(shared.2.load(Ordering::Relaxed), 2);
        });
    }
}
