//! steadfast, on tokio's clock, which is the default, and on the one that reads the processor's counter.

use std::any::Any;
use std::hint::black_box;
use std::time::Duration;

use steadfast::breaker::{BreakerConfig, TripRule};
use steadfast::event::{Event, Observer};
use steadfast::limit::RateLimiterConfig;
use steadfast::{Breaker, Bulkhead, Clock, Executor, Hedge, Keyed, Policy, RateLimiter, Retry, Timeout};

use super::{BASE_DELAY, CONSECUTIVE, Can, FAILURE_RATE, LIMIT, MINIMUM_CALLS, OPEN_FOR, PERMITS, Peer, RATE, WINDOW};
use crate::harness::{Work, poll_each, size_of_future};
use crate::operation::{
    Failure, KEYS, fail_every_tenth, next_key, pending_once, succeed, succeed_every_third, succeed_unless_down, trip,
};

pub const TOKIO_CLOCK: &str = "steadfast";
pub const FAST_CLOCK: &str = "steadfast, fast clock";

pub struct Steadfast {
    name: &'static str,
    clock: Clock,
}

impl Steadfast {
    pub fn on_tokio_clock() -> Steadfast {
        Steadfast::on(Clock::tokio(), TOKIO_CLOCK)
    }

    pub fn on_fast_clock() -> Steadfast {
        Steadfast::on(Clock::fast(), FAST_CLOCK)
    }

    pub fn on(clock: Clock, name: &'static str) -> Steadfast {
        Steadfast { name, clock }
    }

    /// Successes through a breaker with buckets of this width.
    pub fn rolling(&self, bucket: Duration) -> Can<Work> {
        self.succeed(breaker(window_of(bucket)))
    }

    fn executor<P: Policy<u64, Failure>>(&self, policies: P) -> Executor<P> {
        let builder = Executor::builder("peers").policies(policies).clock(&self.clock);
        builder.build().expect("the settings are valid")
    }

    /// Calls that succeed.
    fn succeed<P: Policy<u64, Failure> + 'static>(&self, policies: P) -> Can<Work> {
        let executor = self.executor(policies);
        Ok(Work::new(move |_, calls| poll_each(calls, || executor.run(|_| succeed()))))
    }

    /// The chain, observed; the calls succeed.
    fn observed(&self, observer: impl Observer) -> Can<Work> {
        let builder = Executor::builder("peers").policies(chain()).clock(&self.clock);
        let executor = builder.observe(observer).build().expect("the settings are valid");
        Ok(Work::new(move |_, calls| poll_each(calls, || executor.run(|_| succeed()))))
    }
}

impl Peer for Steadfast {
    fn name(&self) -> &'static str {
        self.name
    }

    fn package(&self) -> Option<&'static str> {
        Some("steadfast")
    }

    fn lacks(&self) -> &'static str {
        "nothing: it is what is compared"
    }

    fn nothing(&self) -> Can<Work> {
        self.succeed(())
    }

    fn chain(&self) -> Can<Work> {
        self.succeed(chain())
    }

    fn chain_erased(&self) -> Can<Work> {
        let executor = self.executor(chain()).erase();
        Ok(Work::new(move |_, calls| poll_each(calls, || executor.run(|_| succeed()))))
    }

    fn chain_observed(&self) -> Can<Work> {
        self.observed(|event: &Event| {
            black_box(event);
        })
    }

    #[cfg(feature = "tracing")]
    fn chain_tracing(&self) -> Can<Work> {
        self.observed(steadfast::tracing::Tracing::new())
    }

    #[cfg(not(feature = "tracing"))]
    fn chain_tracing(&self) -> Can<Work> {
        Err("takes a build with `--features tracing`")
    }

    fn breaker_window(&self) -> Can<Work> {
        self.succeed(breaker(window()))
    }

    fn breaker_failures(&self) -> Can<Work> {
        let executor = self.executor(breaker(window()));
        Ok(Work::new(move |_, calls| poll_each(calls, || executor.run(|_| fail_every_tenth()))))
    }

    fn breaker_consecutive(&self) -> Can<Work> {
        self.succeed(breaker(TripRule::consecutive(CONSECUTIVE)))
    }

    fn breaker_open(&self) -> Can<Work> {
        let executor = self.executor(breaker(window()));
        trip(|| executor.run(|_| succeed_unless_down()));
        Ok(Work::new(move |lane, calls| lane.await_each(calls, || executor.run(|_| succeed_unless_down()))))
    }

    fn retry_success(&self) -> Can<Work> {
        self.succeed(retry())
    }

    fn retry_failures(&self) -> Can<Work> {
        // A budget, which executors have by default, would not let two of three calls fail for long.
        let builder = Executor::builder("peers").policies(Retry::immediate()).clock(&self.clock).unbudgeted();
        let executor = builder.build().expect("the settings are valid");
        Ok(Work::new(move |lane, calls| lane.await_each(calls, || executor.run(|_| succeed_every_third()))))
    }

    fn timeout_ready(&self) -> Can<Work> {
        self.succeed(Timeout::new(LIMIT))
    }

    fn timeout_pending(&self) -> Can<Work> {
        let executor = self.executor(Timeout::new(LIMIT));
        Ok(Work::new(move |_, calls| poll_each(calls, || executor.run(|_| pending_once()))))
    }

    fn hedge_ready(&self) -> Can<Work> {
        self.succeed(Hedge::after(LIMIT))
    }

    /// In two steps, as governor is used.
    fn rate_limiter(&self) -> Can<Work> {
        let limiter = RateLimiter::per_second(u64::from(RATE));
        limiter.bind(&self.clock).map_err(|_| "it has another clock")?;
        let call = async |limiter: &RateLimiter| {
            limiter.try_acquire().map_err(|_| Failure)?;
            succeed().await
        };
        Ok(Work::new(move |_, calls| poll_each(calls, || call(&limiter))))
    }

    fn rate_limiter_keyed(&self) -> Can<Work> {
        let limiters = Keyed::<RateLimiter>::with_capacity(RateLimiterConfig::per_second(u64::from(RATE)), 4 * KEYS);
        limiters.get("").bind(&self.clock).map_err(|_| "it has another clock")?;
        let keys: Vec<String> = (0..KEYS).map(|key| key.to_string()).collect();
        let call = async |limiters: &Keyed<RateLimiter>, key: &str| {
            limiters.get(key).try_acquire().map_err(|_| Failure)?;
            succeed().await
        };
        poll_each(KEYS as u64, || call(&limiters, &keys[next_key()]));
        Ok(Work::new(move |_, calls| poll_each(calls, || call(&limiters, &keys[next_key()]))))
    }

    /// In two steps, as a semaphore is used.
    fn bulkhead(&self) -> Can<Work> {
        let bulkhead = Bulkhead::new(PERMITS);
        bulkhead.bind(&self.clock).map_err(|_| "it has another clock")?;
        let call = async |bulkhead: &Bulkhead| {
            let _permit = bulkhead.acquire().await.map_err(|_| Failure)?;
            succeed().await
        };
        Ok(Work::new(move |_, calls| poll_each(calls, || call(&bulkhead))))
    }

    fn bulkhead_chain(&self) -> Can<Work> {
        self.succeed(Bulkhead::new(PERMITS))
    }

    fn chain_future(&self) -> Can<usize> {
        let executor = self.executor(chain());
        Ok(size_of_future(|| executor.run(|_| succeed())))
    }

    fn breakers(&self, n: u64) -> Can<Box<dyn Any>> {
        let executor = self.executor(());
        let breakers = Keyed::<Breaker>::with_capacity(config(window()), n as usize);
        for key in 0..n {
            let breaker = breakers.get(&key.to_string());
            let guarded = executor.with(&breaker);
            poll_each(1, || guarded.run(|_| succeed()));
        }
        Ok(Box::new(breakers))
    }
}

fn chain() -> (Retry, Breaker, Timeout) {
    (retry(), breaker(window()), Timeout::new(LIMIT))
}

/// Three attempts are the default.
fn retry() -> Retry {
    Retry::exponential().base(BASE_DELAY)
}

pub fn breaker(rule: TripRule) -> Breaker {
    Breaker::new(config(rule))
}

fn config(rule: TripRule) -> BreakerConfig {
    BreakerConfig::default().rule(rule).open_for(OPEN_FOR)
}

pub fn window() -> TripRule {
    window_of(WINDOW / BUCKETS)
}

/// The window with buckets of another width.
pub fn window_of(bucket: Duration) -> TripRule {
    TripRule::failure_rate(FAILURE_RATE).window(BUCKETS, bucket).minimum_calls(MINIMUM_CALLS)
}

const BUCKETS: u32 = 10;
