//! failsafe: a breaker. Its window is an exponential average of the success rate and a sum over five slices of time.

use std::any::Any;

use failsafe::backoff::{self, Constant};
use failsafe::failure_policy::{self, ConsecutiveFailures, SuccessRateOverTimeWindow};
use failsafe::futures::CircuitBreaker;
use failsafe::{Config, StateMachine};

use super::{CONSECUTIVE, Can, FAILURE_RATE, MINIMUM_CALLS, OPEN_FOR, Peer, WINDOW};
use crate::harness::{Work, poll_each};
use crate::operation::{fail_every_tenth, succeed, succeed_unless_down, trip};

pub const NAME: &str = "failsafe";

pub struct Failsafe;

impl Peer for Failsafe {
    fn name(&self) -> &'static str {
        NAME
    }

    fn package(&self) -> Option<&'static str> {
        Some(NAME)
    }

    fn lacks(&self) -> &'static str {
        "a breaker only"
    }

    fn breaker_window(&self) -> Can<Work> {
        let breaker = window();
        Ok(Work::new(move |_, calls| poll_each(calls, || breaker.call(succeed()))))
    }

    fn breaker_failures(&self) -> Can<Work> {
        let breaker = window();
        Ok(Work::new(move |_, calls| poll_each(calls, || breaker.call(fail_every_tenth()))))
    }

    fn breaker_consecutive(&self) -> Can<Work> {
        let breaker = consecutive();
        Ok(Work::new(move |_, calls| poll_each(calls, || breaker.call(succeed()))))
    }

    /// Opened by failures in a row: its average moves with time, not with calls. Open is open, whatever counted.
    fn breaker_open(&self) -> Can<Work> {
        let breaker = consecutive();
        trip(|| breaker.call(succeed_unless_down()));
        Ok(Work::new(move |lane, calls| lane.await_each(calls, || breaker.call(succeed_unless_down()))))
    }

    fn breakers(&self, n: u64) -> Can<Box<dyn Any>> {
        let breakers = (0..n).map(|_| {
            let breaker = window();
            poll_each(1, || breaker.call(succeed()));
            breaker
        });
        Ok(Box::new(breakers.collect::<Vec<_>>()))
    }
}

pub fn window() -> StateMachine<SuccessRateOverTimeWindow<Constant>, ()> {
    let open = backoff::constant(OPEN_FOR);
    let policy = failure_policy::success_rate_over_time_window(1.0 - FAILURE_RATE, MINIMUM_CALLS, WINDOW, open);
    Config::new().failure_policy(policy).build()
}

fn consecutive() -> StateMachine<ConsecutiveFailures<Constant>, ()> {
    let policy = failure_policy::consecutive_failures(CONSECUTIVE, backoff::constant(OPEN_FOR));
    Config::new().failure_policy(policy).build()
}
