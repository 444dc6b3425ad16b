//! Time for a thread without a runtime: that of a clock, whose sleeps park the thread.

use std::collections::BTreeMap;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant, SystemTime};

use super::signal::Signal;
use super::{Clock, Custom, Kind, Moment, ORIGIN_AGE, TimeSource};
use crate::shield::{discard, wake_all};

/// A clock for a future that this thread runs to its end.
///
/// Sleeps of the tokio and of the fast clock need a runtime, so they are replaced. A manual clock moves on by itself, as in
/// [`ManualClock::block_on`](super::ManualClock::block_on). A custom one sleeps as it always does.
pub(crate) struct Parked {
    clock: Clock,
    timers: Option<Arc<Timers>>,
}

impl Parked {
    pub(crate) fn new(clock: &Clock) -> Parked {
        let base = clock.base();
        match &base.0 {
            #[cfg(any(test, feature = "test-util"))]
            Kind::Manual(_) => Parked { clock: base.clone(), timers: None },
            Kind::Custom(_) => Parked { clock: base.clone(), timers: None },
            _ => {
                let timers = Arc::new(Timers::of_this_thread());
                let source = Box::new(Parking { base: base.clone(), timers: Arc::clone(&timers) });
                let clock = Clock(Kind::Custom(Arc::new(Custom { source, base: Some(base.clone()) })));
                Parked { clock, timers: Some(timers) }
            }
        }
    }

    /// Equal to the clock that it was made from.
    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Runs a future that takes its time from [`clock`](Parked::clock). The thread sleeps while that is pending.
    pub(crate) fn block_on<F: Future>(&self, future: F) -> F::Output {
        #[cfg(any(test, feature = "test-util"))]
        if let Kind::Manual(hand) = &self.clock.0 {
            return super::ManualClock::of(hand).block_on(future);
        }
        let signal = Arc::new(Signal::here());
        let waker = Waker::from(Arc::clone(&signal));
        let mut future = pin!(future);
        loop {
            if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                return output;
            }
            while !signal.take() {
                match &self.timers {
                    Some(timers) => timers.park(),
                    None => thread::park(),
                }
            }
        }
    }
}

/// The same *now* as `base`.
struct Parking {
    base: Clock,
    timers: Arc<Timers>,
}

impl TimeSource for Parking {
    fn now(&self) -> Duration {
        self.base.now().since(Moment::from_nanos(ORIGIN_AGE))
    }

    fn sleep_until(&self, at: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let at = Moment::from_nanos(ORIGIN_AGE) + at;
        let timers = Arc::clone(&self.timers);
        Box::pin(Timer { base: self.base.clone(), timers, at, round: None })
    }

    fn wall(&self) -> SystemTime {
        self.base.wall()
    }
}

/// What sleeps on the thread: by the system's time, which passes while the thread is parked.
struct Timers {
    thread: Thread,
    waiting: Mutex<Waiting>,
}

/// The wakers are foreign code: they are called and dropped outside of the lock only.
#[derive(Default)]
struct Waiting {
    wakers: BTreeMap<Key, Waker>,
    next_id: u64,
}

/// By time, then in the order in which the sleeps began.
type Key = (Instant, u64);

impl Timers {
    fn of_this_thread() -> Timers {
        Timers { thread: thread::current(), waiting: Mutex::default() }
    }

    /// Wakes what is due, or parks the thread until something is or until it is unparked.
    fn park(&self) {
        let next = self.lock().wakers.first_key_value().map(|(key, _)| *key);
        let Some(key) = next else {
            return thread::park();
        };
        let left = key.0.saturating_duration_since(instant());
        if !left.is_zero() {
            return thread::park_timeout(left);
        }
        let due = self.lock().wakers.remove(&key);
        wake_all(due);
    }

    fn key(&self, due: Instant) -> Key {
        let mut waiting = self.lock();
        waiting.next_id += 1;
        (due, waiting.next_id)
    }

    fn set(&self, key: Key, waker: Waker) {
        let unused = self.lock().wakers.insert(key, waker);
        // The thread does not know of it yet if it is parked.
        if unused.is_none() && thread::current().id() != self.thread.id() {
            self.thread.unpark();
        }
        discard(unused);
    }

    fn remove(&self, key: Key) {
        let unused = self.lock().wakers.remove(&key);
        discard(unused);
    }

    /// A panic under the lock leaves nothing half done.
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One sleep.
struct Timer {
    base: Clock,
    timers: Arc<Timers>,
    at: Moment,
    round: Option<Round>,
}

/// What a sleep waits for now.
#[derive(Clone, Copy)]
struct Round {
    key: Key,
    begun: Moment,
}

impl Future for Timer {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let now = self.base.now();
        if now >= self.at {
            self.leave();
            return Poll::Ready(());
        }
        if let Some(round) = self.round.filter(|round| round.key.0 <= instant()) {
            self.leave();
            // The thread has waited for as long as was left. A clock that does not show it stands still: one of a paused
            // runtime, which this thread keeps from going on.
            if now == round.begun {
                return Poll::Ready(());
            }
        }
        let round = match self.round {
            Some(round) => round,
            None => {
                let due = instant() + self.at.since(now).min(LONGEST_ROUND);
                Round { key: self.timers.key(due), begun: now }
            }
        };
        self.round = Some(round);
        self.timers.set(round.key, cx.waker().clone());
        Poll::Pending
    }
}

impl Timer {
    fn leave(&mut self) {
        if let Some(round) = self.round.take() {
            self.timers.remove(round.key);
        }
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        self.leave();
    }
}

#[expect(clippy::disallowed_methods, reason = "this is where a parked thread measures")]
fn instant() -> Instant {
    Instant::now()
}

/// A moment can be 584 years away, which not every platform's `Instant` reaches.
const LONGEST_ROUND: Duration = Duration::from_secs(365 * 24 * 60 * 60);

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    const MILLISECOND: Duration = Duration::from_millis(1);

    #[test]
    fn a_parked_clock_is_the_one_that_it_was_made_from() {
        let parked = Parked::new(&Clock::tokio());
        assert_eq!(parked.clock(), &Clock::tokio());
        assert_eq!(&Clock::tokio(), parked.clock());
        assert_ne!(parked.clock(), &Clock::from(Clock::manual()));
        assert_eq!(format!("{:?}", parked.clock()), "Clock::Tokio");
        let (before, between, after) = (Clock::tokio().now(), parked.clock().now(), Clock::tokio().now());
        assert!(before <= between && between <= after, "the same moments");
        assert_eq!(Parked::new(parked.clock()).clock(), &Clock::tokio());
    }

    #[test]
    fn a_sleep_needs_no_runtime_and_is_never_early() {
        for clock in [
            Clock::tokio(),
            #[cfg(feature = "fast-clock")]
            Clock::fast(),
        ] {
            let parked = Parked::new(&clock);
            let at = clock.now() + MILLISECOND;
            parked.block_on(parked.clock().sleep_until(at));
            assert!(clock.now() >= at, "{clock:?}");
            assert!(parked.timers.unwrap().lock().wakers.is_empty());
        }
    }

    /// Which are due when is not up to this thread alone, so they are all due, and set in another order.
    #[test]
    fn sleeps_end_in_order() {
        struct Rings(usize, Arc<Mutex<Vec<usize>>>);
        impl std::task::Wake for Rings {
            fn wake(self: Arc<Self>) {
                self.1.lock().unwrap().push(self.0);
            }
        }
        let (timers, rung) = (Timers::of_this_thread(), Arc::default());
        let now = instant();
        for nanos in [3, 1, 2, 1] {
            let number = timers.lock().wakers.len();
            let key = timers.key(now - Duration::from_nanos(10 - nanos));
            timers.set(key, Waker::from(Arc::new(Rings(number, Arc::clone(&rung)))));
        }
        (0..4).for_each(|_| timers.park());
        assert_eq!(*rung.lock().unwrap(), [1, 3, 2, 0]);
    }

    #[test]
    fn a_sleep_that_is_dropped_leaves_nothing() {
        let parked = Parked::new(&Clock::tokio());
        let clock = parked.clock().clone();
        parked.block_on(async {
            let mut long = pin!(clock.sleep(Duration::MAX / 2));
            let begun = std::future::poll_fn(|cx| Poll::Ready(long.as_mut().poll(cx)));
            assert!(begun.await.is_pending());
            let sleeps = [3, 1, 2].map(|millis| clock.sleep(millis * MILLISECOND));
            futures::future::join_all(sleeps).await;
        });
        assert!(parked.timers.unwrap().lock().wakers.is_empty());
    }

    /// Because of a newer one, or because nobody sleeps any more.
    #[test]
    fn a_waker_that_panics_when_it_is_dropped_goes_no_further() {
        struct Throws;
        impl std::task::Wake for Throws {
            fn wake(self: Arc<Self>) {}
        }
        impl Drop for Throws {
            fn drop(&mut self) {
                panic!("the waker's own");
            }
        }
        let timers = Timers::of_this_thread();
        let key = timers.key(instant());
        timers.set(key, Waker::from(Arc::new(Throws)));
        timers.set(key, Waker::from(Arc::new(Throws)));
        timers.remove(key);
        assert!(timers.lock().wakers.is_empty());
    }

    /// As `FuturesUnordered` does: it polls only what was woken.
    #[test]
    fn what_is_due_is_woken_by_its_own_waker() {
        use futures::StreamExt;
        let parked = Parked::new(&Clock::tokio());
        let mut sleeps: futures::stream::FuturesUnordered<_> =
            (1..=3).map(|millis| parked.clock().sleep(millis * MILLISECOND)).collect();
        parked.block_on(async { while sleeps.next().await.is_some() {} });
    }

    #[test]
    fn another_thread_can_wake_it_and_start_a_sleep_on_it() {
        let parked = Parked::new(&Clock::tokio());
        let clock = parked.clock().clone();
        let (tell, told) = futures::channel::oneshot::channel();
        let slept = Arc::new(AtomicBool::new(false));
        thread::scope(|scope| {
            let slept = Arc::clone(&slept);
            scope.spawn(move || {
                // Polled here, and waited for by the parked thread.
                let mut sleep = Box::pin(clock.sleep(MILLISECOND));
                assert!(sleep.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
                slept.store(true, Ordering::Release);
                tell.send(sleep).map_err(drop).unwrap();
            });
            parked.block_on(async { told.await.unwrap().await });
        });
        assert!(slept.load(Ordering::Acquire));
    }

    /// Its runtime cannot move it on, since this thread is that of the runtime.
    #[tokio::test(start_paused = true)]
    async fn a_clock_that_stands_still_does_not_hang_it() {
        let parked = Parked::new(&Clock::tokio());
        let now = Clock::tokio().now();
        parked.block_on(parked.clock().sleep(MILLISECOND));
        assert_eq!(Clock::tokio().now(), now);
    }
}
