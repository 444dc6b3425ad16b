//! tokio alone: its timeout, a loop around its sleep, a race against it, and its semaphore.

use std::pin::pin;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use super::{ATTEMPTS, Can, LIMIT, PERMITS, Peer};
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
        "a timeout, a sleep and a semaphore only"
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

    fn hedge_ready(&self) -> Can<Work> {
        Ok(Work::new(|_, calls| poll_each(calls, hedged)))
    }

    fn bulkhead(&self) -> Can<Work> {
        let semaphore = Semaphore::new(PERMITS);
        let call = async |semaphore: &Semaphore| {
            let _permit = semaphore.acquire().await.map_err(|_| Failure)?;
            succeed().await
        };
        Ok(Work::new(move |_, calls| poll_each(calls, || call(&semaphore))))
    }
}

/// As it is written by hand: the sleep is made before it is known whether it is needed.
async fn hedged() -> Result<u64, Failure> {
    let mut first = pin!(succeed());
    tokio::select! {
        biased;
        result = &mut first => return result,
        () = sleep(LIMIT) => {}
    }
    tokio::select! {
        biased;
        result = first => result,
        result = succeed() => result,
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
