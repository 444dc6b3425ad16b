//! tokio alone: its timeout, and a loop around its sleep.

use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::{ATTEMPTS, Can, LIMIT, Peer};
use crate::harness::{Work, poll_each};
use crate::operation::{Failure, pending_once, succeed, succeed_every_third};

pub const NAME: &str = "tokio";

pub struct Tokio;

impl Peer for Tokio {
    fn name(&self) -> &'static str {
        NAME
    }

    fn package(&self) -> Option<&'static str> {
        Some(NAME)
    }

    fn lacks(&self) -> &'static str {
        "a timeout and a sleep only"
    }

    fn retry_failures(&self) -> Can<Work> {
        Ok(Work::new(|lane, calls| lane.await_each(calls, three_tries)))
    }

    fn timeout_ready(&self) -> Can<Work> {
        Ok(Work::new(|_, calls| poll_each(calls, || timeout(LIMIT, succeed()))))
    }

    fn timeout_pending(&self) -> Can<Work> {
        Ok(Work::new(|_, calls| poll_each(calls, || timeout(LIMIT, pending_once()))))
    }
}

async fn three_tries() -> Result<u64, Failure> {
    let mut result = succeed_every_third().await;
    for _ in 1..ATTEMPTS {
        if result.is_ok() {
            break;
        }
        sleep(Duration::ZERO).await;
        result = succeed_every_third().await;
    }
    result
}
