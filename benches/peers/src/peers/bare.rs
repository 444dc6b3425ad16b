//! The operations alone, polled in the same way: what has to be there in any case.

use super::{ATTEMPTS, Can, Peer};
use crate::harness::{Work, poll_each, size_of_future};
use crate::operation::{Failure, fail_every_tenth, pending_once, succeed, succeed_every_third};

pub struct Bare;

impl Peer for Bare {
    fn name(&self) -> &'static str {
        "bare future"
    }

    fn package(&self) -> Option<&'static str> {
        None
    }

    fn lacks(&self) -> &'static str {
        "nothing around the call"
    }

    fn nothing(&self) -> Can<Work> {
        successes()
    }

    fn chain(&self) -> Can<Work> {
        successes()
    }

    fn breaker_window(&self) -> Can<Work> {
        successes()
    }

    fn breaker_failures(&self) -> Can<Work> {
        Ok(Work::new(|_, calls| poll_each(calls, fail_every_tenth)))
    }

    fn breaker_consecutive(&self) -> Can<Work> {
        successes()
    }

    fn breaker_open(&self) -> Can<Work> {
        Ok(Work::new(|lane, calls| lane.await_each(calls, async || Err::<u64, _>(Failure))))
    }

    fn retry_success(&self) -> Can<Work> {
        successes()
    }

    fn retry_failures(&self) -> Can<Work> {
        Ok(Work::new(|lane, calls| lane.await_each(calls, three_tries)))
    }

    fn timeout_ready(&self) -> Can<Work> {
        successes()
    }

    fn timeout_pending(&self) -> Can<Work> {
        Ok(Work::new(|_, calls| poll_each(calls, pending_once)))
    }

    fn hedge_ready(&self) -> Can<Work> {
        successes()
    }

    fn rate_limiter(&self) -> Can<Work> {
        successes()
    }

    fn rate_limiter_keyed(&self) -> Can<Work> {
        successes()
    }

    fn bulkhead(&self) -> Can<Work> {
        successes()
    }

    fn bulkhead_chain(&self) -> Can<Work> {
        successes()
    }

    fn chain_future(&self) -> Can<usize> {
        Ok(size_of_future(succeed))
    }
}

fn successes() -> Can<Work> {
    Ok(Work::new(|_, calls| poll_each(calls, succeed)))
}

async fn three_tries() -> Result<u64, Failure> {
    let mut result = succeed_every_third().await;
    for _ in 1..ATTEMPTS {
        if result.is_ok() {
            break;
        }
        result = succeed_every_third().await;
    }
    result
}
