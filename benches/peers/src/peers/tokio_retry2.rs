//! tokio-retry2: a retry.

use std::time::Duration;

use tokio_retry2::strategy::{ExponentialBackoff, FixedInterval};
use tokio_retry2::{Retry, RetryError};

use super::{ATTEMPTS, BASE_DELAY, Can, Peer};
use crate::harness::{Work, poll_each};
use crate::operation::{succeed, succeed_every_third};

pub const NAME: &str = "tokio-retry2";

pub struct TokioRetry2;

impl Peer for TokioRetry2 {
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
        let delays = || ExponentialBackoff::from_millis(2).factor(BASE_DELAY.as_millis() as u64 / 2).take(RETRIES);
        let action = async || succeed().await.map_err(RetryError::transient);
        Ok(Work::new(move |_, calls| poll_each(calls, || Retry::spawn(delays(), action))))
    }

    fn retry_failures(&self) -> Can<Work> {
        let delays = || FixedInterval::new(Duration::ZERO).take(RETRIES);
        let action = async || succeed_every_third().await.map_err(RetryError::transient);
        Ok(Work::new(move |lane, calls| lane.await_each(calls, || Retry::spawn(delays(), action))))
    }
}

const RETRIES: usize = ATTEMPTS as usize - 1;
