//! Tasks whose wakers panic: foreign code that runs wherever somebody is woken. The panic goes to the hook and no further, nothing is
//! lost by it, and everybody else is woken all the same.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context as TaskContext, Poll, Wake, Waker};

use steadfast::clock::Sleep;
use steadfast::limit::{Bulkhead, BulkheadConfig, RateLimiterConfig};
use steadfast::{Executor, RateLimiter};
use tokio_test::task::spawn;
use tokio_test::{assert_pending, assert_ready_ok};

use crate::support::{at_rest, mins, ms, secs};

/// Panics whenever it is woken.
#[derive(Default)]
struct Bomb(AtomicUsize);

impl Wake for Bomb {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
        panic!("the waker's own");
    }
}

impl Bomb {
    fn woken(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// Polls a future with a waker that panics, and gives it.
fn poll_armed<F: Future>(future: Pin<&mut F>) -> (Arc<Bomb>, Poll<F::Output>) {
    let bomb = Arc::new(Bomb::default());
    let polled = future.poll(&mut TaskContext::from_waker(&Waker::from(Arc::clone(&bomb))));
    (bomb, polled)
}

/// The first in line takes its permit and wakes the next one, since there is another: the permit that it has taken is not lost.
#[test]
fn a_waker_that_panics_loses_no_permit_of_a_bulkhead() {
    let (clock, _) = at_rest();
    let bulkhead = Bulkhead::with(BulkheadConfig::new(2).queue(4).max_wait(mins(1)));
    bulkhead.bind(&clock).unwrap();
    let held = [bulkhead.try_acquire().unwrap(), bulkhead.try_acquire().unwrap()];
    let mut first = spawn(bulkhead.acquire());
    assert_pending!(first.poll());
    let mut second = pin!(bulkhead.acquire());
    let (bomb, polled) = poll_armed(second.as_mut());
    assert!(polled.is_pending());
    drop(held);
    assert!(first.is_woken());
    let permit = assert_ready_ok!(first.poll());
    assert_eq!((bomb.woken(), bulkhead.in_flight(), bulkhead.queued()), (1, 1, 1));
    drop(permit);
    assert!(poll_armed(second).1.is_ready(), "it is polled for another reason");
    assert_eq!((bulkhead.in_flight(), bulkhead.queued()), (0, 0));
}

/// By whoever gives its permit back, leaves the line, or changes the number of permits.
#[test]
fn a_waker_that_panics_does_not_reach_who_makes_room() {
    let (clock, _) = at_rest();
    let bulkhead = Bulkhead::with(BulkheadConfig::new(1).queue(4).max_wait(mins(1)));
    bulkhead.bind(&clock).unwrap();
    let makes_room: [&dyn Fn(); 2] = [&|| (), &|| bulkhead.resize(2).unwrap()];
    for make_room in makes_room {
        bulkhead.resize(1).unwrap();
        let held = bulkhead.try_acquire().unwrap();
        let mut waiting = Box::pin(bulkhead.acquire());
        let (bomb, _) = poll_armed(waiting.as_mut());
        let mut behind = spawn(bulkhead.acquire());
        assert_pending!(behind.poll());
        make_room();
        drop(held);
        assert_eq!((bomb.woken(), bulkhead.queued()), (1, 2));
        drop(waiting);
        assert!(behind.is_woken(), "it is the first now, and there is room");
        let _permit = assert_ready_ok!(behind.poll());
    }
    assert_eq!((bulkhead.in_flight(), bulkhead.queued()), (0, 0));
}

#[test]
fn a_waker_that_panics_costs_no_token_of_a_rate_limiter() {
    let (clock, _) = at_rest();
    let limiter = RateLimiter::new(RateLimiterConfig::per_second(10).burst(1).max_wait(mins(1)));
    limiter.bind(&clock).unwrap();
    limiter.try_acquire().unwrap();
    let mut first = spawn(limiter.acquire());
    assert_pending!(first.poll());
    let mut second = Box::pin(limiter.acquire());
    let (bomb, _) = poll_armed(second.as_mut());
    let mut third = spawn(limiter.acquire());
    assert_pending!(third.poll());
    clock.advance(ms(100));
    assert_ready_ok!(first.poll());
    assert_eq!((bomb.woken(), limiter.queued()), (1, 2), "admitted, and the next one was told");
    drop(second);
    assert!(third.is_woken());
    assert_pending!(third.poll());
    clock.advance(ms(100));
    assert_ready_ok!(third.poll());
}

/// The new rate makes the wait of all too long: each of them is told, whatever the first does.
#[test]
fn a_waker_that_panics_keeps_nobody_from_hearing_of_a_new_rate() {
    let (clock, _) = at_rest();
    let limiter = RateLimiter::new(RateLimiterConfig::per_second(10).burst(1).max_wait(secs(1)));
    limiter.bind(&clock).unwrap();
    limiter.try_acquire().unwrap();
    let mut armed = [Box::pin(limiter.acquire()), Box::pin(limiter.acquire())];
    let bombs = armed.each_mut().map(|waiting| poll_armed(waiting.as_mut()).0);
    let mut last = spawn(limiter.acquire());
    assert_pending!(last.poll());
    limiter.reconfigure(RateLimiterConfig::per(1, secs(3600)).max_wait(secs(1))).unwrap();
    assert_eq!(bombs.map(|bomb| bomb.woken()), [1, 1]);
    assert!(last.is_woken());
    assert_eq!(limiter.queued(), 0);
}

#[test]
fn a_waker_that_panics_keeps_no_run_from_being_shut_down() {
    let (clock, _) = at_rest();
    let executor = Executor::builder("bomb").clock(&clock).build().unwrap();
    let hang = || executor.run(|_| std::future::pending::<Result<(), ()>>());
    let mut armed = pin!(hang());
    let (bomb, _) = poll_armed(armed.as_mut());
    let mut other = spawn(hang());
    assert_pending!(other.poll());
    let mut first_to_drain = Box::pin(executor.drained());
    let (draining, _) = poll_armed(first_to_drain.as_mut());
    let mut drained = spawn(executor.drained());
    assert_pending!(drained.poll());
    executor.shutdown();
    assert!(bomb.woken() == 1 && other.is_woken());
    assert!(other.poll().is_ready() && poll_armed(armed).1.is_ready());
    drop(other);
    assert_eq!(draining.woken(), 1);
    assert!(drained.is_woken(), "who waits behind the one that panics is told too");
    assert!(drained.poll().is_ready());
}

#[test]
fn a_waker_that_panics_keeps_no_sleeper_of_a_manual_clock_from_waking() {
    let (clock, _) = at_rest();
    let mut armed = Box::pin(clock.clock().sleep(secs(1)));
    let (bomb, _) = poll_armed(armed.as_mut());
    let mut other = spawn(clock.clock().sleep(secs(1)));
    assert_pending!(other.poll());
    clock.advance(secs(1));
    assert!(bomb.woken() == 1 && other.is_woken());
}

/// Panics when it is dropped: as the last of its clones, which is the one that somebody keeps.
struct Throws;

impl Throws {
    fn waker() -> Waker {
        Waker::from(Arc::new(Throws))
    }
}

impl Wake for Throws {
    fn wake(self: Arc<Self>) {
        panic!("nobody wakes it");
    }
}

impl Drop for Throws {
    fn drop(&mut self) {
        panic!("the waker's own");
    }
}

/// A waker that is dropped because a newer one takes its place.
#[test]
fn a_waker_that_panics_when_it_is_dropped_loses_nothing_either() {
    let (clock, _) = at_rest();
    let bulkhead = Bulkhead::with(BulkheadConfig::new(1).queue(4).max_wait(mins(1)));
    bulkhead.bind(&clock).unwrap();
    let held = bulkhead.try_acquire().unwrap();
    let mut waiting = Box::pin(bulkhead.acquire());
    let mut poll = |waker: Waker| waiting.as_mut().poll(&mut TaskContext::from_waker(&waker)).is_ready();
    assert!(!poll(Throws::waker()));
    assert!(!poll(Waker::noop().clone()));
    drop(held);
    assert!(poll(Waker::noop().clone()));
    drop(waiting);
    assert_eq!((bulkhead.in_flight(), bulkhead.queued()), (0, 0));
}

/// Because of a newer one, or because nobody sleeps any more.
#[test]
fn a_waker_that_panics_when_it_is_dropped_does_not_reach_who_sleeps_on_a_manual_clock() {
    let (clock, _) = at_rest();
    let sleep = || Box::pin(clock.clock().sleep(secs(1)));
    let poll = |sleep: &mut Pin<Box<Sleep>>, waker: Waker| {
        sleep.as_mut().poll(&mut TaskContext::from_waker(&waker)).is_ready()
    };
    let (mut polled_again, mut given_up) = (sleep(), sleep());
    assert!(!poll(&mut polled_again, Throws::waker()) && !poll(&mut given_up, Throws::waker()));
    assert!(!poll(&mut polled_again, Waker::noop().clone()));
    drop(given_up);
    assert_eq!(clock.sleepers(), 1);
    clock.advance(secs(1));
    assert!(poll(&mut polled_again, Waker::noop().clone()));
}
