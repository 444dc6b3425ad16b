//! seatbelt: policies as layers of a service, on the clock of tick.

use std::any::Any;
use std::time::Duration;

use layered::{DynamicServiceExt, Execute, Service, Stack};
use seatbelt::breaker::{Breaker, BreakerId, BreakerLayer};
use seatbelt::retry::{Backoff, Retry, RetryLayer};
use seatbelt::timeout::{Timeout, TimeoutLayer};
use seatbelt::{RecoveryInfo, ResilienceContext};
use tick::Clock;

use super::{ATTEMPTS, BASE_DELAY, Can, FAILURE_RATE, LIMIT, MINIMUM_CALLS, OPEN_FOR, Peer, WINDOW};
use crate::harness::{Work, poll_each, size_of_future};
use crate::operation::{
    Failure, fail_every_tenth, pending_once, succeed, succeed_every_third, succeed_unless_down, trip,
};

pub const NAME: &str = "seatbelt";

pub struct Seatbelt;

/// What goes in: which breaker, where there are many.
type Input = u64;
type Output = Result<u64, Failure>;

impl Peer for Seatbelt {
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
        Ok(calls_of(chain()))
    }

    fn chain_erased(&self) -> Can<Work> {
        Ok(calls_of(chain().into_dynamic()))
    }

    fn chain_observed(&self) -> Can<Work> {
        Err("no observers of calls: telemetry goes to tracing or OpenTelemetry")
    }

    fn breaker_window(&self) -> Can<Work> {
        Ok(calls_of((breaker(), Execute::new(|_| succeed())).into_service()))
    }

    fn breaker_failures(&self) -> Can<Work> {
        Ok(calls_of((breaker(), Execute::new(|_| fail_every_tenth())).into_service()))
    }

    fn breaker_consecutive(&self) -> Can<Work> {
        Err("no failures in a row")
    }

    fn breaker_open(&self) -> Can<Work> {
        let service = (breaker(), Execute::new(|_| succeed_unless_down())).into_service();
        trip(|| service.execute(0));
        Ok(Work::new(move |lane, calls| lane.await_each(calls, || service.execute(0))))
    }

    fn retry_success(&self) -> Can<Work> {
        Ok(calls_of((retry(), Execute::new(|_| succeed())).into_service()))
    }

    fn retry_failures(&self) -> Can<Work> {
        let immediate = retry().backoff(Backoff::Constant).base_delay(Duration::ZERO).use_jitter(false);
        let service = (immediate, Execute::new(|_| succeed_every_third())).into_service();
        Ok(Work::new(move |lane, calls| lane.await_each(calls, || service.execute(0))))
    }

    fn timeout_ready(&self) -> Can<Work> {
        Ok(calls_of((timeout(), Execute::new(|_| succeed())).into_service()))
    }

    fn timeout_pending(&self) -> Can<Work> {
        Ok(calls_of((timeout(), Execute::new(|_| pending_once())).into_service()))
    }

    fn chain_future(&self) -> Can<usize> {
        let service = chain();
        Ok(size_of_future(|| service.execute(0)))
    }

    /// Its own map of them.
    fn breakers(&self, n: u64) -> Can<Box<dyn Any>> {
        let keyed = breaker().breaker_id(|key| BreakerId::from(*key));
        let service = (keyed, Execute::new(|_| succeed())).into_service();
        let mut keys = 0..n;
        poll_each(n, || service.execute(keys.next().unwrap_or(0)));
        Ok(Box::new(service))
    }
}

fn calls_of(service: impl Service<Input, Out = Output> + 'static) -> Work {
    Work::new(move |_, calls| poll_each(calls, || service.execute(0)))
}

fn chain() -> impl Service<Input, Out = Output> + 'static {
    (retry(), breaker(), timeout(), Execute::new(|_| succeed())).into_service()
}

fn retry() -> RetryLayer<Input, Output> {
    let layer = Retry::layer("retry", &context()).clone_input().recovery_with(|output, _| recovery(output));
    layer.max_retry_attempts(ATTEMPTS - 1).base_delay(BASE_DELAY)
}

fn breaker() -> BreakerLayer<Input, Output> {
    let layer = Breaker::layer("breaker", &context()).recovery_with(|output, _| recovery(output));
    let layer = layer.rejected_input_error(|_, _| Failure).failure_threshold(FAILURE_RATE as f32);
    layer.min_throughput(MINIMUM_CALLS).sampling_duration(WINDOW).break_duration(OPEN_FOR)
}

fn timeout() -> TimeoutLayer<Input, Output> {
    Timeout::layer("timeout", &context()).timeout_error(|_| Failure).timeout(LIMIT)
}

fn recovery(output: &Output) -> RecoveryInfo {
    match output {
        Ok(_) => RecoveryInfo::never(),
        Err(_) => RecoveryInfo::retry(),
    }
}

fn context() -> ResilienceContext<Input, Output> {
    ResilienceContext::new(Clock::new_tokio())
}
