//! backon: a retry.

use std::time::Duration;

use backon::{ConstantBuilder, ExponentialBuilder, Retryable};

use super::{ATTEMPTS, BASE_DELAY, Can, Peer};
use crate::harness::{Work, poll_each};
use crate::operation::{succeed, succeed_every_third};

pub const NAME: &str = "backon";

pub struct Backon;

impl Peer for Backon {
    fn name(&self) -> &'static str {
        NAME
    }

    fn package(&self) -> Option<&'static str> {
        Some(NAME)
    }

    fn lacks(&self) -> &'static str {
        "a retry only"
    }

    fn retry_success(&self) -> Can<Work> {
        let backoff = exponential();
        Ok(Work::new(move |_, calls| poll_each(calls, || succeed.retry(backoff))))
    }

    /// On the sleeper that it brings along, which hands a delay of zero to tokio.
    fn retry_failures(&self) -> Can<Work> {
        let backoff = ConstantBuilder::default().with_delay(Duration::ZERO).with_max_times(ATTEMPTS as usize - 1);
        Ok(Work::new(move |lane, calls| lane.await_each(calls, || succeed_every_third.retry(backoff))))
    }
}

pub fn exponential() -> ExponentialBuilder {
    ExponentialBuilder::default().with_min_delay(BASE_DELAY).with_max_times(ATTEMPTS as usize - 1)
}
