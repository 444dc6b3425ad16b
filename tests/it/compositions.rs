//! What two policies do to a call together: every row of the table in `src/guide/order.md`, under the names of the pair, the outer
//! one first.

use std::future::pending;
use std::sync::Mutex;
use std::time::Duration;

use steadfast::breaker::{BreakerConfig, State, TripRule};
use steadfast::clock::ManualClock;
use steadfast::error::{Full, Kind, Limit};
use steadfast::executor::Stopped;
use steadfast::limit::{BulkheadConfig, RateLimiterConfig};
use steadfast::policy::Policy;
use steadfast::retry::Jitter;
use steadfast::{
    Attempt, Breaker, Bulkhead, Chaos, Clock, Error, Executor, Fallback, Hedge, RateLimiter, Retry, Timeout, fallback,
    op,
};

use crate::support::{exhausted, secs, timed_out};

/// A chain on a clock of its own, without a budget: here the policies alone decide.
struct Pair<P> {
    clock: ManualClock,
    executor: Executor<P>,
    calls: Mutex<Vec<(u64, u32)>>,
}

type Answer = Result<u32, &'static str>;

impl<P: Policy<u32, &'static str>> Pair<P> {
    fn new(policies: P) -> Pair<P> {
        let clock = Clock::manual();
        let builder = Executor::builder("pair").policies(policies).clock(&clock).unbudgeted();
        Pair { executor: builder.build().unwrap(), clock, calls: Mutex::default() }
    }

    /// Runs an operation that takes `takes` and ends with what `end` makes of the attempt.
    async fn call(&self, takes: Duration, end: impl Fn(u32) -> Answer + Sync) -> Result<u32, Error<&'static str>> {
        let start = self.clock.now();
        let operation = |attempt: Attempt| {
            let number = {
                let mut calls = self.calls.lock().unwrap();
                calls.push((self.clock.now().since(start).as_secs(), attempt.hedge()));
                calls.len() as u32
            };
            let (clock, end) = (&self.clock, &end);
            async move {
                if takes == Duration::MAX {
                    pending::<()>().await;
                }
                clock.clock().sleep(takes).await;
                end(number)
            }
        };
        self.executor.run(operation).await
    }

    fn run(&self, takes: Duration, end: impl Fn(u32) -> Answer + Sync) -> Result<u32, Error<&'static str>> {
        self.clock.block_on(self.call(takes, end))
    }

    /// When the operation was started, in seconds.
    fn calls(&self) -> Vec<u64> {
        self.calls.lock().unwrap().iter().map(|&(at, _)| at).collect()
    }

    /// The same with the number of the lane.
    fn lanes(&self) -> Vec<(u64, u32)> {
        self.calls.lock().unwrap().clone()
    }

    /// Runs beside a call that hangs or fails, and looks at the middle of it.
    fn look_at<T>(&self, at: Duration, takes: Duration, end: fn(u32) -> Answer, look: impl FnOnce() -> T) -> T {
        self.clock.block_on(async {
            let call = std::pin::pin!(self.call(takes, end));
            let seen = async {
                self.clock.clock().sleep(at).await;
                look()
            };
            match futures::future::select(call, std::pin::pin!(seen)).await {
                futures::future::Either::Right((seen, _)) => seen,
                futures::future::Either::Left((ended, _)) => panic!("it ended too early: {ended:?}"),
            }
        })
    }
}

const NOW: Duration = Duration::ZERO;
const NEVER: Duration = Duration::MAX;

fn busy(_: u32) -> Answer {
    Err("busy")
}

fn fine(number: u32) -> Answer {
    Ok(number)
}

/// Three attempts, `wait` apart.
fn retry(wait: Duration) -> Retry {
    Retry::fixed(wait).jitter(Jitter::None)
}

/// Opens at two failures in a row, for half a minute.
fn breaker() -> Breaker {
    Breaker::new(BreakerConfig::default().rule(TripRule::consecutive(2)).open_for(secs(30)))
}

/// One that counts, and does not open before twenty calls.
fn counter() -> Breaker {
    Breaker::default()
}

/// A token a minute, `burst` to begin with, and a wait of up to a minute if it is to wait.
fn limiter(burst: u64) -> RateLimiter {
    RateLimiter::new(RateLimiterConfig::per(1, secs(60)).burst(burst))
}

fn patient_limiter() -> RateLimiter {
    RateLimiter::new(RateLimiterConfig::per(1, secs(60)).burst(1).max_wait(secs(60)))
}

fn queue(permits: usize) -> Bulkhead {
    Bulkhead::with(BulkheadConfig::new(permits).queue(1).max_wait(secs(60)))
}

#[test]
fn retry_timeout() {
    let pair = Pair::new((retry(NOW), Timeout::secs(1)));
    let error = pair.run(NEVER, fine).unwrap_err();
    assert_eq!((error.kind(), error.attempts()), (timed_out(secs(1)), 3));
    assert_eq!(pair.calls(), [0, 1, 2]);
}

#[test]
fn timeout_retry() {
    let pair = Pair::new((Timeout::secs(5), retry(secs(2)).unlimited()));
    let error = pair.run(NOW, busy).unwrap_err();
    assert_eq!((error.kind(), error.last()), (exhausted(Limit::Deadline), Some(&"busy")), "no wait beyond the limit");
    assert_eq!(pair.calls(), [0, 2, 4]);

    let pair = Pair::new((Timeout::secs(5), retry(NOW)));
    let error = pair.run(secs(3), busy).unwrap_err();
    assert_eq!((error.kind(), error.last()), (timed_out(secs(5)), Some(&"busy")), "the second try is cut off");
    assert_eq!(pair.calls(), [0, 3]);
}

#[test]
fn retry_breaker() {
    let pair = Pair::new((retry(NOW).max_attempts(5), breaker()));
    let error = pair.run(NOW, busy).unwrap_err();
    assert_eq!(error.kind(), Kind::CircuitOpen { retry_after: Some(secs(30)) });
    assert_eq!((error.last(), pair.calls().len()), (Some(&"busy"), 2));
}

#[test]
fn breaker_retry() {
    let counter = counter();
    let pair = Pair::new((counter.clone(), retry(NOW)));
    assert!(pair.run(NOW, busy).is_err());
    assert_eq!((pair.calls().len(), counter.counts().failures), (3, 1));

    let breaker = breaker();
    let pair = Pair::new((breaker.clone(), retry(NOW)));
    assert!(pair.run(NOW, fine).is_ok());
    breaker.force_open();
    pair.clock.advance(secs(30));
    assert_eq!(pair.run(NOW, |number| if number < 3 { Err("not yet") } else { Ok(number) }).unwrap(), 3);
    assert_eq!(breaker.state(), State::Closed, "a trial of two tries");
}

#[test]
fn retry_hedge() {
    let pair = Pair::new((retry(NOW).max_attempts(2), Hedge::after(secs(1))));
    let error = pair.run(secs(2), busy).unwrap_err();
    assert_eq!((error.kind(), error.attempts()), (exhausted(Limit::Attempts), 4));
    assert_eq!(pair.lanes(), [(0, 0), (1, 1), (3, 0), (4, 1)]);
}

#[test]
fn hedge_retry() {
    let pair = Pair::new((Hedge::after(secs(1)), retry(NOW)));
    assert!(pair.run(secs(2), busy).is_err());
    assert_eq!(pair.lanes(), [(0, 0), (1, 1), (2, 0), (3, 1), (4, 0), (5, 1)]);
}

#[test]
fn retry_rate_limiter() {
    let pair = Pair::new((retry(NOW).max_attempts(5), limiter(2)));
    let error = pair.run(NOW, busy).unwrap_err();
    assert_eq!(error.kind(), Kind::RateLimited { retry_after: Some(secs(60)) });
    assert_eq!((error.last(), pair.calls().len()), (Some(&"busy"), 2));
}

#[test]
fn rate_limiter_retry() {
    let limiter = limiter(2);
    let pair = Pair::new((limiter.clone(), retry(NOW)));
    assert!(pair.run(NOW, busy).is_err());
    assert_eq!((pair.calls().len(), limiter.available()), (3, 1));
}

#[test]
fn retry_bulkhead() {
    let bulkhead = Bulkhead::new(1);
    let pair = Pair::new((retry(secs(10)), bulkhead.clone()));
    assert_eq!(pair.look_at(secs(5), NOW, busy, || bulkhead.in_flight()), 0, "in the wait");
    assert_eq!(pair.look_at(secs(5), NEVER, busy, || bulkhead.in_flight()), 1, "in the try");
}

#[test]
fn bulkhead_retry() {
    let bulkhead = Bulkhead::new(1);
    let pair = Pair::new((bulkhead.clone(), retry(secs(10))));
    assert_eq!(pair.look_at(secs(5), NOW, busy, || bulkhead.in_flight()), 1, "in the wait");
    assert_eq!(bulkhead.in_flight(), 0, "the call was dropped");
}

#[test]
fn retry_retry() {
    let pair = Pair::new((retry(NOW), retry(NOW)));
    let error = pair.run(NOW, busy).unwrap_err();
    assert_eq!((error.attempts(), pair.calls().len()), (9, 9));
}

#[test]
fn breaker_timeout() {
    let counter = counter();
    let pair = Pair::new((counter.clone(), Timeout::secs(1)));
    assert!(pair.run(NEVER, fine).unwrap_err().is_timeout());
    assert_eq!((counter.counts().calls, counter.counts().failures), (1, 1));

    let (counter, bulkhead) = (self::counter(), queue(1));
    let _taken = bulkhead.try_acquire().unwrap();
    let pair = Pair::new((counter.clone(), Timeout::secs(1), bulkhead));
    assert!(pair.run(NOW, fine).unwrap_err().is_timeout());
    assert_eq!((counter.counts().calls, pair.calls().len()), (0, 0), "it passed in a queue of ours");
}

#[test]
fn timeout_breaker() {
    let counter = counter();
    let pair = Pair::new((Timeout::secs(1), counter.clone()));
    assert!(pair.run(NEVER, fine).unwrap_err().is_timeout());
    assert_eq!((counter.counts().calls, counter.counts().failures), (1, 1));

    let counter = self::counter();
    let pair = Pair::new((Timeout::secs(5), retry(NOW), counter.clone()));
    assert!(pair.run(secs(3), busy).unwrap_err().is_timeout());
    assert_eq!((pair.calls().len(), counter.counts().failures), (2, 1), "a second try has not had the whole limit");
}

#[test]
fn breaker_hedge() {
    let counter = counter();
    let pair = Pair::new((counter.clone(), Hedge::after(secs(1))));
    assert_eq!(pair.run(secs(3), fine).unwrap(), 1);
    assert_eq!((pair.calls().len(), counter.counts().calls), (2, 1));

    counter.force_open();
    pair.clock.advance(secs(30));
    assert_eq!(pair.run(secs(3), fine).unwrap(), 3);
    assert_eq!(pair.calls().len(), 3, "a trial has one lane");
}

#[test]
fn hedge_breaker() {
    let counter = counter();
    let pair = Pair::new((Hedge::after(secs(1)), counter.clone()));
    assert_eq!(pair.run(secs(3), fine).unwrap(), 1);
    assert_eq!((pair.calls().len(), counter.counts().calls), (2, 1), "the lane that lost counts nothing");
    assert!(pair.run(secs(3), busy).is_err());
    assert_eq!((counter.counts().calls, counter.counts().failures), (3, 2), "both have failed");
}

#[test]
fn breaker_rate_limiter() {
    let (counter, limiter) = (counter(), limiter(1));
    let pair = Pair::new((counter.clone(), limiter));
    assert!(pair.run(NOW, fine).is_ok());
    assert!(matches!(pair.run(NOW, fine).unwrap_err().kind(), Kind::RateLimited { .. }));
    assert_eq!(counter.counts().calls, 1);

    counter.force_open();
    pair.clock.advance(secs(30));
    assert!(matches!(pair.run(NOW, fine).unwrap_err().kind(), Kind::RateLimited { .. }));
    assert_eq!(counter.state(), State::HalfOpen, "the trial's place is free again");
    pair.clock.advance(secs(60));
    assert!(pair.run(NOW, fine).is_ok());
    assert_eq!(counter.state(), State::Closed);
}

#[test]
fn rate_limiter_breaker() {
    let (limiter, breaker) = (limiter(2), breaker());
    let pair = Pair::new((limiter.clone(), breaker.clone()));
    breaker.force_open();
    assert!(matches!(pair.run(NOW, fine).unwrap_err().kind(), Kind::CircuitOpen { .. }));
    assert_eq!(limiter.available(), 1);
}

#[test]
fn breaker_bulkhead() {
    let (counter, bulkhead) = (counter(), Bulkhead::new(1));
    let _taken = bulkhead.try_acquire().unwrap();
    let pair = Pair::new((counter.clone(), bulkhead));
    assert!(matches!(pair.run(NOW, fine).unwrap_err().kind(), Kind::BulkheadFull { .. }));
    assert_eq!(counter.counts().calls, 0);
}

#[test]
fn bulkhead_breaker() {
    let (bulkhead, breaker) = (queue(1), breaker());
    let taken = bulkhead.try_acquire().unwrap();
    let pair = Pair::new((bulkhead.clone(), breaker.clone()));
    breaker.force_open();
    let (ended, waited) = pair.clock.block_on(async {
        let freed = async {
            pair.clock.clock().sleep(secs(10)).await;
            drop(taken);
        };
        let start = pair.clock.now();
        let (ended, ()) = tokio::join!(pair.call(NOW, fine), freed);
        (ended, pair.clock.now().since(start))
    });
    assert!(matches!(ended.unwrap_err().kind(), Kind::CircuitOpen { .. }));
    assert_eq!(waited, secs(10), "it learned of the circuit when it had a place");
}

#[test]
fn timeout_bulkhead() {
    let bulkhead = queue(1);
    let _taken = bulkhead.try_acquire().unwrap();
    let pair = Pair::new((Timeout::secs(5), bulkhead));
    let report = pair.clock.block_on(pair.executor.run_report(op(|_| async { Ok::<u32, &str>(1) })));
    assert_eq!(report.result.unwrap_err().kind(), timed_out(secs(5)));
    assert_eq!((report.attempts, report.stopped), (0, Stopped::Rejected));
}

#[test]
fn bulkhead_timeout() {
    let bulkhead = queue(1);
    let taken = bulkhead.try_acquire().unwrap();
    let pair = Pair::new((bulkhead, Timeout::secs(5)));
    let ended = pair.clock.block_on(async {
        let freed = async {
            pair.clock.clock().sleep(secs(10)).await;
            drop(taken);
        };
        tokio::join!(pair.call(secs(4), fine), freed).0
    });
    assert_eq!(ended.unwrap(), 1, "fourteen seconds, of which four count");
}

#[test]
fn timeout_rate_limiter() {
    let pair = Pair::new((Timeout::secs(5), patient_limiter()));
    assert!(pair.run(NOW, fine).is_ok());
    let start = pair.clock.now();
    let error = pair.run(NOW, fine).unwrap_err();
    assert_eq!(error.kind(), Kind::RateLimited { retry_after: Some(secs(60)) });
    assert_eq!((pair.calls().len(), pair.clock.now()), (1, start), "it does not wait for what comes too late");
}

#[test]
fn rate_limiter_timeout() {
    let pair = Pair::new((patient_limiter(), Timeout::secs(5)));
    assert!(pair.run(secs(4), fine).is_ok());
    assert_eq!(pair.run(secs(4), fine).unwrap(), 2, "nearly a minute in line, and four seconds that count");
    assert_eq!(pair.calls(), [0, 56]);
}

#[test]
fn timeout_hedge() {
    let pair = Pair::new((Timeout::secs(3), Hedge::after(secs(1))));
    assert_eq!(pair.run(NEVER, fine).unwrap_err().kind(), timed_out(secs(3)));
    assert_eq!(pair.lanes(), [(0, 0), (1, 1)]);
}

#[test]
fn hedge_timeout() {
    let pair = Pair::new((Hedge::after(secs(5)), Timeout::secs(1)));
    assert_eq!(pair.run(NEVER, fine).unwrap_err().kind(), timed_out(secs(1)));
    assert_eq!(pair.lanes(), [(0, 0), (1, 1)], "a lane that is cut off starts the next");
}

#[test]
fn hedge_rate_limiter() {
    let pair = Pair::new((Hedge::after(secs(1)).max(2), limiter(1)));
    assert_eq!(pair.run(secs(5), fine).unwrap(), 1);
    assert_eq!(pair.lanes(), [(0, 0)]);
}

#[test]
fn rate_limiter_hedge() {
    let limiter = limiter(2);
    let pair = Pair::new((limiter.clone(), Hedge::after(secs(1))));
    assert_eq!(pair.run(secs(5), fine).unwrap(), 1);
    assert_eq!((pair.calls().len(), limiter.available()), (2, 1));
}

#[test]
fn hedge_bulkhead() {
    let bulkhead = Bulkhead::new(5);
    let pair = Pair::new((Hedge::after(secs(1)), bulkhead.clone()));
    assert_eq!(pair.look_at(secs(2), NEVER, fine, || bulkhead.in_flight()), 2);
    assert_eq!(bulkhead.in_flight(), 0);
}

#[test]
fn bulkhead_hedge() {
    let bulkhead = Bulkhead::new(5);
    let pair = Pair::new((bulkhead.clone(), Hedge::after(secs(1))));
    assert_eq!(pair.look_at(secs(2), NEVER, fine, || bulkhead.in_flight()), 1);
    assert_eq!(pair.calls().len(), 2);
}

#[test]
fn rate_limiter_bulkhead() {
    let (limiter, bulkhead) = (limiter(2), Bulkhead::new(1));
    let _taken = bulkhead.try_acquire().unwrap();
    let pair = Pair::new((limiter.clone(), bulkhead));
    assert_eq!(pair.run(NOW, fine).unwrap_err().kind(), Kind::BulkheadFull { why: Full::Queue });
    assert_eq!(limiter.available(), 1);
}

#[test]
fn bulkhead_rate_limiter() {
    let bulkhead = Bulkhead::new(1);
    let pair = Pair::new((bulkhead.clone(), patient_limiter()));
    assert!(pair.run(NOW, fine).is_ok());
    assert_eq!(pair.look_at(secs(30), NOW, fine, || bulkhead.in_flight()), 1, "in line for a token");
    assert_eq!((pair.calls().len(), bulkhead.in_flight()), (1, 0));
}

#[test]
fn timeout_timeout() {
    for (outer, inner) in [(3, 1), (1, 3), (1, 1)] {
        let pair = Pair::new((Timeout::secs(outer), Timeout::secs(inner)));
        // Its own sleep is the other one.
        let sleepers = pair.look_at(Duration::from_millis(500), NEVER, fine, || pair.clock.sleepers());
        assert_eq!(sleepers, 1, "{outer} and {inner}");
        assert_eq!(pair.run(NEVER, fine).unwrap_err().kind(), timed_out(secs(1)), "{outer} and {inner}");
    }
}

#[test]
fn hedge_hedge() {
    let pair = Pair::new((Hedge::after(secs(2)), Hedge::after(secs(1))));
    assert_eq!(pair.run(secs(10), fine).unwrap(), 1);
    assert_eq!(pair.calls(), [0, 1, 2, 3]);
}

#[test]
fn rate_limiter_rate_limiter() {
    let outer = limiter(2);
    let pair = Pair::new((outer.clone(), limiter(1)));
    assert!(pair.run(NOW, fine).is_ok());
    assert!(matches!(pair.run(NOW, fine).unwrap_err().kind(), Kind::RateLimited { .. }));
    assert_eq!((pair.calls().len(), outer.available()), (1, 0));
}

#[test]
fn bulkhead_bulkhead() {
    let (outer, inner) = (Bulkhead::new(1), queue(1));
    let _taken = inner.try_acquire().unwrap();
    let pair = Pair::new((outer.clone(), inner.clone()));
    let seen = pair.look_at(secs(5), NOW, fine, || (outer.in_flight(), inner.queued()));
    assert_eq!(seen, (1, 1));
    assert_eq!((outer.in_flight(), inner.queued()), (0, 0));
}

#[test]
fn breaker_breaker() {
    let (counter, breaker) = (counter(), breaker());
    let pair = Pair::new((counter.clone(), breaker.clone()));
    assert!(pair.run(NOW, fine).is_ok());
    breaker.force_open();
    assert!(matches!(pair.run(NOW, fine).unwrap_err().kind(), Kind::CircuitOpen { .. }));
    assert_eq!((counter.counts().calls, counter.state()), (1, State::Closed));
}

#[test]
fn fallback_anything() {
    for (takes, end) in [(NOW, busy as fn(u32) -> Answer), (NEVER, fine)] {
        let seen = Mutex::new(None);
        let instead = |error: &Error<&'static str>| {
            *seen.lock().unwrap() = Some(error.kind());
            async { Ok(0) }
        };
        let pair = Pair::new((fallback(instead), retry(NOW), breaker(), Timeout::secs(1)));
        assert_eq!(pair.run(takes, end).unwrap(), 0);
        let kind = *seen.lock().unwrap();
        assert!(
            matches!(kind, Some(Kind::CircuitOpen { .. } | Kind::Exhausted { .. } | Kind::TimedOut { .. })),
            "{kind:?}"
        );
    }
}

#[test]
fn anything_fallback() {
    let counter = counter();
    let pair = Pair::new((retry(NOW), counter.clone(), Fallback::value(0)));
    assert_eq!(pair.run(NOW, busy).unwrap(), 0);
    assert_eq!((pair.calls().len(), counter.counts().calls), (1, 0), "what a fallback gives says nothing");
}

#[test]
fn chaos_anything() {
    let counter = counter();
    let pair = Pair::new((Chaos::fail(1.0, || "chaos"), counter.clone()));
    assert_eq!(pair.run(NOW, fine).unwrap_err().last(), Some(&"chaos"));
    assert_eq!((pair.calls().len(), counter.counts().calls), (0, 0), "it does not get to what is inside");

    let counter = self::counter();
    let pair = Pair::new((counter.clone(), Chaos::fail(1.0, || "chaos")));
    assert_eq!(pair.run(NOW, fine).unwrap_err().last(), Some(&"chaos"));
    assert_eq!((pair.calls().len(), counter.counts().failures), (0, 1), "the dependency is where it is");
}
