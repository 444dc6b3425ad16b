//! What people put together by hand: backon around failsafe around tokio's timeout.

use backon::Retryable;
use failsafe::futures::CircuitBreaker;
use tokio::time::timeout;

use super::{Can, LIMIT, Peer, backon as retry, failsafe as breaker};
use crate::harness::{Work, poll_each, size_of_future};
use crate::operation::{Failure, succeed};

pub struct Hand;

impl Peer for Hand {
    fn name(&self) -> &'static str {
        "by hand: backon, failsafe, tokio"
    }

    fn package(&self) -> Option<&'static str> {
        None
    }

    fn lacks(&self) -> &'static str {
        "put together for the chain only"
    }

    fn chain(&self) -> Can<Work> {
        let (breaker, backoff) = (breaker::window(), retry::exponential());
        Ok(Work::new(move |_, calls| {
            let attempt = || breaker.call(within_limit());
            poll_each(calls, || attempt.retry(backoff))
        }))
    }

    fn chain_future(&self) -> Can<usize> {
        let (breaker, backoff) = (breaker::window(), retry::exponential());
        Ok(size_of_future(|| (|| breaker.call(within_limit())).retry(backoff)))
    }
}

async fn within_limit() -> Result<u64, Failure> {
    timeout(LIMIT, succeed()).await.unwrap_or(Err(Failure))
}
