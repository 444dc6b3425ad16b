//! tower: retry, timeout and a limit of calls at a time as middleware; the retry policy is written by the user.

use std::task::{Context, Waker};

use tower::limit::ConcurrencyLimit;
use tower::retry::backoff::{Backoff, ExponentialBackoff, ExponentialBackoffMaker, MakeBackoff};
use tower::retry::{Policy, Retry};
use tower::timeout::Timeout;
use tower::util::rng::HasherRng;
use tower::{Service, service_fn};

use super::{ATTEMPTS, BASE_DELAY, Can, LIMIT, PERMITS, Peer};
use crate::harness::{Work, poll_each};
use crate::operation::{Failure, pending_once, succeed, succeed_every_third};

pub const NAME: &str = "tower";

pub struct Tower;

impl Peer for Tower {
    fn name(&self) -> &'static str {
        NAME
    }

    fn package(&self) -> Option<&'static str> {
        Some(NAME)
    }

    fn lacks(&self) -> &'static str {
        "no such policy, or one that works otherwise"
    }

    fn retry_success(&self) -> Can<Work> {
        let longest = BASE_DELAY * 10;
        let maker = ExponentialBackoffMaker::new(BASE_DELAY, longest, 0.5, HasherRng::default());
        let backoff = maker.map_err(|_| "refused the backoff")?.make_backoff();
        let service = Retry::new(Exponential { retries: ATTEMPTS - 1, backoff }, service_fn(|()| succeed()));
        Ok(calls_of(service))
    }

    fn retry_failures(&self) -> Can<Work> {
        let service = Retry::new(Immediate { retries: ATTEMPTS - 1 }, service_fn(|()| succeed_every_third()));
        Ok(Work::new(move |lane, calls| {
            let mut service = service.clone();
            lane.await_each(calls, || call(&mut service))
        }))
    }

    fn timeout_ready(&self) -> Can<Work> {
        Ok(calls_of(Timeout::new(service_fn(|()| succeed()), LIMIT)))
    }

    fn timeout_pending(&self) -> Can<Work> {
        Ok(calls_of(Timeout::new(service_fn(|()| pending_once()), LIMIT)))
    }

    fn bulkhead_chain(&self) -> Can<Work> {
        Ok(calls_of(ConcurrencyLimit::new(service_fn(|()| succeed()), PERMITS)))
    }
}

/// Calls of a service. Each thread has its own clone, as tower asks for, made once a batch.
pub fn calls_of<S>(service: S) -> Work
where
    S: Service<()> + Clone + Send + Sync + 'static,
{
    Work::new(move |_, calls| {
        let mut service = service.clone();
        poll_each(calls, || call(&mut service))
    })
}

/// Asks for readiness first, as a caller has to. All services here are always ready.
pub fn call<S: Service<()>>(service: &mut S) -> S::Future {
    let ready = service.poll_ready(&mut Context::from_waker(Waker::noop()));
    assert!(ready.is_ready(), "a service that waits for nothing was not ready");
    service.call(())
}

/// Tries again after a wait that grows.
#[derive(Clone)]
struct Exponential {
    retries: u32,
    backoff: ExponentialBackoff,
}

impl<T> Policy<(), T, Failure> for Exponential {
    type Future = tokio::time::Sleep;

    fn retry(&mut self, _: &mut (), result: &mut Result<T, Failure>) -> Option<Self::Future> {
        result.as_ref().err()?;
        self.retries = self.retries.checked_sub(1)?;
        Some(self.backoff.next_backoff())
    }

    fn clone_request(&mut self, _: &()) -> Option<()> {
        Some(())
    }
}

/// Tries again at once.
#[derive(Clone)]
struct Immediate {
    retries: u32,
}

impl<T> Policy<(), T, Failure> for Immediate {
    type Future = std::future::Ready<()>;

    fn retry(&mut self, _: &mut (), result: &mut Result<T, Failure>) -> Option<Self::Future> {
        result.as_ref().err()?;
        self.retries = self.retries.checked_sub(1)?;
        Some(std::future::ready(()))
    }

    fn clone_request(&mut self, _: &()) -> Option<()> {
        Some(())
    }
}
