//! What a rate limiter admits over any stretch of time: with random callers on a clock that steps, and among real threads.

use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::task::{Context as TaskContext, Poll, Waker};
use std::time::{Duration, SystemTime};

use futures::future::{Either, select};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use steadfast::Refusal;
use steadfast::clock::{Clock, ManualClock, Moment, TimeSource};
use steadfast::limit::{RateLimiter, RateLimiterConfig};
use tokio_test::task::{Spawn, spawn};

use crate::support::{at_rest, mins, ms, secs};

/// A source that can be set. Its sleeps end when the manual clock says so.
pub(crate) struct Skewed {
    pub(crate) clock: ManualClock,
    /// In nanoseconds.
    pub(crate) off: Arc<Mutex<i64>>,
}

impl TimeSource for Skewed {
    fn now(&self) -> Duration {
        let nanos = self.clock.now().since(at_rest().0.now()).as_nanos() as i64 + 3_600_000_000_000;
        Duration::from_nanos((nanos + *self.off.lock().unwrap()) as u64)
    }

    fn sleep_until(&self, at: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(self.clock.clock().sleep(at.saturating_sub(self.now())))
    }

    fn wall(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH
    }
}

/// More than one waiter, some of whom leave, at random, while the clock steps and the rate changes: what is admitted keeps to the
/// limit, nobody is lost, and those who stay are served in their order.
///
/// A step back admits nobody earlier: the time is the true one. A step ahead is time that has passed, as far as anybody can tell.
#[test]
fn over_any_stretch_of_time_no_more_is_admitted_than_the_burst_and_the_rate() {
    let config = ProptestConfig {
        cases: 400,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(7),
        ..ProptestConfig::default()
    };
    let steps = prop::collection::vec(step(), 1..200);
    proptest!(config, |(rate in rate(), seed in any::<u64>(), steps in steps, goes_ahead in any::<bool>())| {
        let mut history = History::new(rate, seed);
        for step in steps {
            match step {
                Step::Ahead(_) if !goes_ahead => {}
                step => history.take(step),
            }
        }
        history.end();
        let admitted = &history.admitted;
        let places: Vec<_> = admitted.iter().filter_map(|admission| admission.place).collect();
        prop_assert!(places.is_sorted(), "{:?}", places);
        for (index, first) in admitted.iter().enumerate() {
            let mut sum = 0;
            for last in &admitted[index..] {
                sum += last.weight;
                let most = u128::from(first.burst) * SECOND + last.earned - first.earned;
                prop_assert!(u128::from(sum) * SECOND <= most, "{} tokens from {:?} to {:?}", sum, first, last);
            }
        }
    });
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// The times are in milliseconds.
    Pause(u64),
    Acquire(u64),
    Try(u64),
    Leave(usize),
    Back(u64),
    Ahead(u64),
    Change(Rate),
}

/// So many a second, and so many at once.
#[derive(Clone, Copy, Debug)]
struct Rate {
    tokens: u64,
    burst: u64,
}

impl Rate {
    fn config(self) -> RateLimiterConfig {
        RateLimiterConfig::per_second(self.tokens).burst(self.burst).max_wait(secs(2)).queue(20)
    }
}

fn rate() -> impl Strategy<Value = Rate> {
    (1_u64..40, 1_u64..8).prop_map(|(tokens, burst)| Rate { tokens, burst })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0_u64..400).prop_map(Step::Pause),
        8 => (1_u64..6).prop_map(Step::Acquire),
        2 => (1_u64..6).prop_map(Step::Try),
        2 => any::<usize>().prop_map(Step::Leave),
        // Less than the second for which a limiter takes time to stand still, and more.
        1 => (1_u64..1_000).prop_map(Step::Back),
        1 => (1_000_u64..5_000).prop_map(Step::Back),
        1 => (1_u64..3_000).prop_map(Step::Ahead),
        1 => rate().prop_map(Step::Change),
    ]
}

/// A limiter, its callers, and what it has admitted.
struct History {
    limiter: RateLimiter,
    /// The true time.
    clock: ManualClock,
    off: Arc<Mutex<i64>>,
    order: SmallRng,
    waiting: Vec<Waiter>,
    places: u64,
    admitted: Vec<Admission>,
    rate: Rate,
    /// What the rate has given until now, however full the bucket was: tokens times nanoseconds.
    earned: u128,
}

struct Waiter {
    weight: u64,
    /// From when it was polled and had to wait.
    place: Option<u64>,
    acquire: Spawn<Acquire>,
}

type Acquire = Pin<Box<dyn Future<Output = Result<(), Refusal>>>>;

#[derive(Debug)]
struct Admission {
    earned: u128,
    burst: u64,
    weight: u64,
    place: Option<u64>,
}

impl History {
    fn new(rate: Rate, seed: u64) -> History {
        let (clock, off) = (Clock::manual(), Arc::new(Mutex::new(0)));
        let limiter = RateLimiter::new(rate.config());
        limiter.bind(Clock::custom(Skewed { clock: clock.clone(), off: Arc::clone(&off) })).unwrap();
        let (order, waiting, admitted) = (SmallRng::seed_from_u64(seed), Vec::new(), Vec::new());
        History { limiter, clock, off, order, waiting, places: 0, admitted, rate, earned: 0 }
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Pause(pause) => {
                for left in (0..pause).rev().step_by(7) {
                    self.pass(ms(7).min(ms(left + 1)));
                }
            }
            Step::Acquire(weight) => {
                let (limiter, weight) = (self.limiter.clone(), weight.min(self.rate.burst));
                let acquire: Acquire = Box::pin(async move { limiter.acquire_many(weight).await });
                self.waiting.push(Waiter { weight, place: None, acquire: spawn(acquire) });
                // Several come at the same moment.
                if self.order.random_bool(0.3) {
                    return;
                }
            }
            Step::Try(weight) => {
                let (weight, queued) = (weight.min(self.rate.burst), self.limiter.queued());
                if self.limiter.try_acquire_many(weight).is_ok() {
                    self.admit(weight, None, queued);
                }
            }
            Step::Leave(_) if self.waiting.is_empty() => {}
            Step::Leave(who) => drop(self.waiting.swap_remove(who % self.waiting.len())),
            Step::Back(step) => *self.off.lock().unwrap() -= ms(step).as_nanos() as i64,
            Step::Ahead(step) => {
                *self.off.lock().unwrap() += ms(step).as_nanos() as i64;
                self.earned += ms(step).as_nanos() * u128::from(self.rate.tokens);
            }
            Step::Change(rate) => {
                self.limiter.reconfigure(rate.config()).unwrap();
                self.rate = rate;
            }
        }
        self.settle();
    }

    /// Lets time pass until nobody waits, and the clock has caught up.
    fn end(&mut self) {
        self.settle();
        for _ in 0..10_000 {
            if self.waiting.is_empty() {
                break;
            }
            self.pass(ms(50));
        }
        assert!(self.waiting.is_empty(), "somebody was forgotten");
        self.pass(mins(20));
        let seen = (self.limiter.queued(), self.clock.sleepers(), self.limiter.available());
        assert_eq!(seen, (0, 0, self.rate.burst));
    }

    fn pass(&mut self, time: Duration) {
        self.clock.advance(time);
        self.earned += time.as_nanos() * u128::from(self.rate.tokens);
        self.settle();
    }

    /// Polls those that were woken, or never polled, in any order, until there are none.
    fn settle(&mut self) {
        loop {
            let is_due = |waiter: &Waiter| waiter.place.is_none() || waiter.acquire.is_woken();
            let due: Vec<_> = (0..self.waiting.len()).filter(|&index| is_due(&self.waiting[index])).collect();
            if due.is_empty() {
                break;
            }
            let chosen = self.order.random_range(0..due.len());
            self.poll(due[chosen]);
        }
        assert_eq!(self.limiter.queued(), self.waiting.len());
        assert_eq!(self.clock.sleepers(), usize::from(!self.waiting.is_empty()), "the first sleeps, and nobody else");
    }

    fn poll(&mut self, index: usize) {
        let queued = self.limiter.queued();
        let waiter = &mut self.waiting[index];
        match waiter.acquire.poll() {
            Poll::Pending if waiter.place.is_none() => {
                waiter.place = Some(self.places);
                self.places += 1;
            }
            Poll::Pending => {}
            Poll::Ready(got) => {
                let Waiter { weight, place, .. } = self.waiting.swap_remove(index);
                if got.is_ok() {
                    self.admit(weight, place, queued);
                }
            }
        }
    }

    fn admit(&mut self, weight: u64, place: Option<u64>, queued: usize) {
        assert!(place.is_some() || queued == 0, "it has passed those who wait");
        self.admitted.push(Admission { earned: self.earned, burst: self.rate.burst, weight, place });
    }
}

/// Threads that take and threads that wait and leave, on a real clock. When exactly one was admitted nobody knows, but it was
/// between the moments before and after it: from the first of these to the last is the shortest stretch that surely holds it.
#[test]
fn threads_get_no_more_than_the_limit_together() {
    let limiter = RateLimiter::new(RateLimiterConfig::per_second(50_000).burst(100).max_wait(ms(5)).queue(8));
    let admitted = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let (limiter, admitted) = (&limiter, &admitted);
            scope.spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
                let mine = runtime.block_on(take_and_leave(limiter, thread));
                admitted.lock().unwrap().extend(mine);
            });
        }
    });
    let mut admitted = admitted.into_inner().unwrap();
    admitted.sort_by_key(|stamped| stamped.after);
    assert!(admitted.iter().map(|stamped| stamped.weight).sum::<u64>() >= 100);
    let mut firsts: Vec<_> = admitted.iter().map(|stamped| stamped.before).collect();
    // Each of many is looked at alike, and it takes time with the square of their number.
    let every = firsts.len().div_ceil(4_000);
    firsts.sort();
    for first in firsts.into_iter().step_by(every) {
        let mut sum = 0;
        for last in admitted.iter().filter(|stamped| stamped.before >= first) {
            sum += last.weight;
            let most = 100 * 20_000 + last.after.since(first).as_nanos();
            assert!(u128::from(sum) * 20_000 <= most, "{sum} tokens in {:?}", last.after.since(first));
        }
    }
    assert_eq!(limiter.queued(), 0);
}

/// An admission at some time between two moments.
struct Stamped {
    before: Moment,
    after: Moment,
    weight: u64,
}

/// What one thread gets. Now and then it waits, and every other time of these it leaves.
async fn take_and_leave(limiter: &RateLimiter, thread: u64) -> Vec<Stamped> {
    let clock = Clock::tokio();
    let mut admitted = Vec::new();
    for round in 0..5_000_u64 {
        let weight = 1 + (round + thread) % 3;
        let before = clock.now();
        let got = if round % 50 != 0 {
            limiter.try_acquire_many(weight).is_ok()
        } else {
            let mut waiting = pin!(limiter.acquire_many(weight));
            match waiting.as_mut().poll(&mut TaskContext::from_waker(Waker::noop())) {
                Poll::Ready(got) => got.is_ok(),
                Poll::Pending if round % 100 == 0 => false,
                // So that one whom nobody wakes is a failure, and not a test without an end.
                Poll::Pending => match select(waiting, pin!(clock.sleep(secs(20)))).await {
                    Either::Left((got, _)) => got.is_ok(),
                    Either::Right(_) => panic!("nobody has woken it"),
                },
            }
        };
        if got {
            admitted.push(Stamped { before, after: clock.now(), weight });
        }
    }
    admitted
}

/// While no time passes, nothing is lost between the threads and nothing is given twice.
#[test]
fn threads_get_exactly_the_burst_while_the_clock_stands() {
    for _ in 0..50 {
        let (clock, _) = at_rest();
        let limiter = RateLimiter::new(RateLimiterConfig::per_second(1).burst(1_000));
        limiter.bind(&clock).unwrap();
        let (taken, start) = (AtomicU64::new(0), Barrier::new(4));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    start.wait();
                    while limiter.try_acquire().is_ok() {
                        taken.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!((taken.into_inner(), limiter.available()), (1_000, 0));
    }
}

/// In nanoseconds.
const SECOND: u128 = 1_000_000_000;
