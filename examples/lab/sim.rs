//! A world in which time passes by itself: thousands of tasks on one manual clock and one thread.
//!
//! The clock jumps from one timer to the next, and tasks that are woken at one moment go on in the order in which they began to
//! wait. So the same seed gives the same result. An event costs less than a microsecond, whatever the number of clients.

use std::cell::RefCell;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use steadfast::clock::{Clock, ManualClock, Moment};

/// The tasks, and the clock that they run on.
pub(crate) struct Sim {
    hand: ManualClock,
    time: Time,
    /// Those that have not been polled yet.
    new: RefCell<Vec<Task>>,
}

type Task = Pin<Box<dyn Future<Output = ()>>>;

impl Sim {
    pub(crate) fn new() -> Rc<Sim> {
        let hand = Clock::manual();
        let time = Time { clock: hand.clock(), begin: hand.now() };
        Rc::new(Sim { hand, time, new: RefCell::default() })
    }

    pub(crate) fn time(&self) -> &Time {
        &self.time
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.time.clock
    }

    /// Adds a task, which is polled when [`run`](Sim::run) is.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        self.new.borrow_mut().push(Box::pin(task));
    }

    /// Runs all tasks, those that they add included, until the last one has ended or the time has come.
    pub(crate) fn run(&self, until: Duration) {
        let mut running = FuturesUnordered::new();
        let mut end = pin!(self.time.until(until));
        self.hand.block_on(poll_fn(|cx| match self.poll_all(&mut running, cx) {
            Poll::Pending => end.as_mut().poll(cx),
            Poll::Ready(()) => Poll::Ready(()),
        }));
        self.new.take();
    }

    fn poll_all(&self, running: &mut FuturesUnordered<Task>, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            running.extend(self.new.borrow_mut().drain(..));
            let polled = running.poll_next_unpin(cx);
            let added = !self.new.borrow().is_empty();
            match polled {
                Poll::Ready(None) if !added => return Poll::Ready(()),
                Poll::Pending if !added => return Poll::Pending,
                _ => {}
            }
        }
    }
}

/// The time since the beginning of the world, for tasks and servers.
#[derive(Clone)]
pub(crate) struct Time {
    clock: Clock,
    begin: Moment,
}

impl Time {
    pub(crate) fn now(&self) -> Duration {
        self.clock.now().since(self.begin)
    }

    pub(crate) async fn sleep(&self, time: Duration) {
        self.clock.sleep(time).await;
    }

    pub(crate) async fn until(&self, at: Duration) {
        self.clock.sleep_until(self.begin + at).await;
    }
}

/// What operations share has to be `Sync`, though there is one thread.
pub(crate) fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
