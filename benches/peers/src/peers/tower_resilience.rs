//! tower-resilience: policies as layers of a tower service.

use std::any::Any;
use std::future::poll_fn;
use std::hint::black_box;
use std::time::Duration;

use tower::util::BoxCloneSyncService;
use tower::{Layer, Service, ServiceBuilder, service_fn};
use tower_resilience::circuitbreaker::{
    CircuitBreakerConfigBuilder, CircuitBreakerError, CircuitBreakerLayer, DefaultClassifier, SlidingWindowType,
};
use tower_resilience::retry::{RetryConfigBuilder, RetryLayer};
use tower_resilience::timelimiter::{FixedTimeout, TimeLimiterConfigBuilder, TimeLimiterError, TimeLimiterLayer};

use super::tower::{call, calls_of};
use super::{ATTEMPTS, BASE_DELAY, CONSECUTIVE, Can, FAILURE_RATE, LIMIT, MINIMUM_CALLS, OPEN_FOR, Peer, WINDOW};
use crate::harness::{Work, poll_each, size_of_future};
use crate::operation::{
    Failure, fail_every_tenth, pending_once, succeed, succeed_every_third, succeed_unless_down, trip,
};

pub const NAME: &str = "tower-resilience";

pub struct TowerResilience;

/// What is inside of the retry of the chain fails with this.
type Inner = CircuitBreakerError<TimeLimiterError<Failure>>;

impl Peer for TowerResilience {
    fn name(&self) -> &'static str {
        NAME
    }

    fn package(&self) -> Option<&'static str> {
        Some(NAME)
    }

    fn lacks(&self) -> &'static str {
        "no such policy"
    }

    fn chain(&self) -> Can<Work> {
        Ok(calls_of(chain(retry(), window(), timeout())))
    }

    fn chain_erased(&self) -> Can<Work> {
        Ok(calls_of(BoxCloneSyncService::new(chain(retry(), window(), timeout()))))
    }

    /// Each layer tells about the call that passes it.
    fn chain_observed(&self) -> Can<Work> {
        let retry = retry().on_success(|attempts| {
            black_box(attempts);
        });
        let breaker = window().on_success(|state| {
            black_box(state);
        });
        let timeout = timeout().on_success(|took| {
            black_box(took);
        });
        Ok(calls_of(chain(retry, breaker, timeout)))
    }

    fn breaker_window(&self) -> Can<Work> {
        Ok(calls_of(build(window()).layer(service_fn(|()| succeed()))))
    }

    fn breaker_failures(&self) -> Can<Work> {
        Ok(calls_of(build(window()).layer(service_fn(|()| fail_every_tenth()))))
    }

    fn breaker_consecutive(&self) -> Can<Work> {
        let breaker = breaker().consecutive_failures(CONSECUTIVE as usize);
        Ok(calls_of(build(breaker).layer(service_fn(|()| succeed()))))
    }

    fn breaker_open(&self) -> Can<Work> {
        let mut service = build(window()).layer(service_fn(|()| succeed_unless_down()));
        trip(|| call(&mut service));
        Ok(Work::new(move |lane, calls| {
            let mut service = service.clone();
            lane.await_each(calls, async || {
                // While another thread holds its lock, an open breaker is not ready and sleeps for a millisecond.
                poll_fn(|cx| service.poll_ready(cx)).await?;
                service.call(()).await
            })
        }))
    }

    fn retry_success(&self) -> Can<Work> {
        let retry = RetryLayer::<(), u64, Failure>::builder().max_attempts(ATTEMPTS as usize);
        let retry = retry.exponential_backoff(BASE_DELAY).build();
        Ok(calls_of(retry.layer(service_fn(|()| succeed()))))
    }

    fn retry_failures(&self) -> Can<Work> {
        let retry = RetryLayer::<(), u64, Failure>::builder().max_attempts(ATTEMPTS as usize);
        let retry = retry.fixed_backoff(Duration::ZERO).build();
        let service = retry.layer(service_fn(|()| succeed_every_third()));
        Ok(Work::new(move |lane, calls| {
            let mut service = service.clone();
            lane.await_each(calls, || call(&mut service))
        }))
    }

    fn timeout_ready(&self) -> Can<Work> {
        Ok(calls_of(timeout().build().layer(service_fn(|()| succeed()))))
    }

    fn timeout_pending(&self) -> Can<Work> {
        Ok(calls_of(timeout().build().layer(service_fn(|()| pending_once()))))
    }

    fn chain_future(&self) -> Can<usize> {
        let mut service = chain(retry(), window(), timeout());
        Ok(size_of_future(|| call(&mut service)))
    }

    fn breakers(&self, n: u64) -> Can<Box<dyn Any>> {
        let breakers = (0..n).map(|_| {
            let mut service = build(window()).layer(service_fn(|()| succeed()));
            poll_each(1, || call(&mut service));
            service
        });
        Ok(Box::new(breakers.collect::<Vec<_>>()))
    }
}

fn chain(
    retry: RetryConfigBuilder<(), u64, Inner>,
    breaker: CircuitBreakerConfigBuilder<DefaultClassifier>,
    timeout: TimeLimiterConfigBuilder<FixedTimeout>,
) -> impl Service<(), Response = u64, Error = Inner, Future: Send + 'static> + Clone + Send + Sync + 'static {
    let layers = ServiceBuilder::new().layer(retry.build()).layer(build(breaker)).layer(timeout.build());
    layers.service(service_fn(|()| succeed()))
}

fn retry() -> RetryConfigBuilder<(), u64, Inner> {
    RetryLayer::builder().max_attempts(ATTEMPTS as usize).exponential_backoff(BASE_DELAY)
}

fn window() -> CircuitBreakerConfigBuilder<DefaultClassifier> {
    let builder = breaker().sliding_window_type(SlidingWindowType::TimeBased).sliding_window_duration(WINDOW);
    builder.failure_rate_threshold(FAILURE_RATE).minimum_number_of_calls(MINIMUM_CALLS as usize)
}

fn breaker() -> CircuitBreakerConfigBuilder<DefaultClassifier> {
    CircuitBreakerLayer::builder().wait_duration_in_open(OPEN_FOR)
}

fn build(breaker: CircuitBreakerConfigBuilder<DefaultClassifier>) -> CircuitBreakerLayer<DefaultClassifier> {
    breaker.build().expect("the settings are valid")
}

fn timeout() -> TimeLimiterConfigBuilder<FixedTimeout> {
    TimeLimiterLayer::builder().timeout_duration(LIMIT)
}
