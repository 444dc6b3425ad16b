//! recloser: a breaker over a ring of the last calls.

use std::any::Any;

use recloser::AsyncRecloser;

use super::{Can, FAILURE_RATE, OPEN_FOR, Peer};
use crate::harness::{Work, poll_each};
use crate::operation::{succeed, succeed_unless_down, trip};

pub const NAME: &str = "recloser";

pub struct Recloser;

impl Peer for Recloser {
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
        Err("no time window")
    }

    fn breaker_failures(&self) -> Can<Work> {
        Err("no time window")
    }

    fn breaker_consecutive(&self) -> Can<Work> {
        Err("no failures in a row")
    }

    /// Open is open, whatever counted.
    fn breaker_open(&self) -> Can<Work> {
        let breaker = last_calls();
        trip(|| breaker.call(succeed_unless_down()));
        Ok(Work::new(move |lane, calls| lane.await_each(calls, || breaker.call(succeed_unless_down()))))
    }

    /// Breakers that remember the last 100 calls.
    fn breakers(&self, n: u64) -> Can<Box<dyn Any>> {
        let breakers = (0..n).map(|_| {
            let breaker = last_calls();
            poll_each(1, || breaker.call(succeed()));
            breaker
        });
        Ok(Box::new(breakers.collect::<Vec<_>>()))
    }
}

/// 100 calls are the default.
fn last_calls() -> AsyncRecloser {
    let builder = recloser::Recloser::custom().error_rate(FAILURE_RATE as f32).closed_len(100).open_wait(OPEN_FOR);
    AsyncRecloser::from(builder.build())
}
