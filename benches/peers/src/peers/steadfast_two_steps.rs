//! steadfast's breaker alone, in two steps: around a future, as failsafe and recloser are used, and without an executor.

use std::time::Duration;

use steadfast::breaker::TripRule;
use steadfast::{Breaker, Clock};

use super::steadfast::{breaker, window, window_of};
use super::{CONSECUTIVE, Can, Peer};
use crate::harness::{Work, poll_each};
use crate::operation::{Failure, fail_every_tenth, succeed, succeed_unless_down, trip};

pub const TOKIO_CLOCK: &str = "steadfast, two steps";
pub const FAST_CLOCK: &str = "steadfast, two steps, fast clock";

pub struct TwoSteps {
    name: &'static str,
    clock: Clock,
}

impl TwoSteps {
    pub fn on_tokio_clock() -> TwoSteps {
        TwoSteps::on(Clock::tokio(), TOKIO_CLOCK)
    }

    pub fn on_fast_clock() -> TwoSteps {
        TwoSteps::on(Clock::fast(), FAST_CLOCK)
    }

    pub fn on(clock: Clock, name: &'static str) -> TwoSteps {
        TwoSteps { name, clock }
    }

    /// Successes through a breaker with buckets of this width.
    pub fn rolling(&self, bucket: Duration) -> Can<Work> {
        self.succeed(window_of(bucket))
    }

    fn breaker(&self, rule: TripRule) -> Can<Breaker> {
        let breaker = breaker(rule);
        breaker.bind(&self.clock).map_err(|_| "it has another clock")?;
        Ok(breaker)
    }

    fn succeed(&self, rule: TripRule) -> Can<Work> {
        let breaker = self.breaker(rule)?;
        Ok(Work::new(move |_, calls| poll_each(calls, || call(&breaker, succeed()))))
    }
}

impl Peer for TwoSteps {
    fn name(&self) -> &'static str {
        self.name
    }

    fn package(&self) -> Option<&'static str> {
        Some("steadfast")
    }

    fn lacks(&self) -> &'static str {
        "the breaker alone"
    }

    fn breaker_window(&self) -> Can<Work> {
        self.succeed(window())
    }

    fn breaker_failures(&self) -> Can<Work> {
        let breaker = self.breaker(window())?;
        Ok(Work::new(move |_, calls| poll_each(calls, || call(&breaker, fail_every_tenth()))))
    }

    fn breaker_consecutive(&self) -> Can<Work> {
        self.succeed(TripRule::consecutive(CONSECUTIVE))
    }

    fn breaker_open(&self) -> Can<Work> {
        let breaker = self.breaker(window())?;
        trip(|| call(&breaker, succeed_unless_down()));
        Ok(Work::new(move |lane, calls| lane.await_each(calls, || call(&breaker, succeed_unless_down()))))
    }
}

/// What failsafe's `call` is.
#[expect(clippy::manual_async_fn, reason = "an `async fn` would store its arguments twice, and failsafe's is by hand")]
fn call(
    breaker: &Breaker,
    future: impl Future<Output = Result<u64, Failure>>,
) -> impl Future<Output = Result<u64, Failure>> {
    async move {
        let permit = breaker.try_acquire_ref().map_err(|_| Failure)?;
        let result = future.await;
        match result {
            Ok(_) => permit.success(),
            Err(_) => permit.failure(),
        }
        result
    }
}
