//! governor: a rate limiter, on the clock of std and on that of quanta, which is its default.

use governor::clock::{Clock, MonotonicClock, QuantaClock};
use governor::middleware::NoOpMiddleware;
use governor::state::keyed::DashMapStateStore;
use governor::state::{InMemoryState, NotKeyed};
use governor::{Quota, RateLimiter};

use super::{Can, Peer, RATE};
use crate::harness::{Work, poll_each};
use crate::operation::{Failure, KEYS, next_key, succeed};

pub const STD_CLOCK: &str = "governor";
pub const QUANTA_CLOCK: &str = "governor, quanta";

pub struct Governor<C> {
    name: &'static str,
    clock: C,
}

impl Governor<MonotonicClock> {
    pub fn on_std_clock() -> Governor<MonotonicClock> {
        Governor { name: STD_CLOCK, clock: MonotonicClock }
    }
}

impl Governor<QuantaClock> {
    pub fn on_quanta_clock() -> Governor<QuantaClock> {
        Governor { name: QUANTA_CLOCK, clock: QuantaClock::default() }
    }
}

impl<C: Clock<Instant: Send + Sync> + Clone + Send + Sync + 'static> Peer for Governor<C> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn package(&self) -> Option<&'static str> {
        Some(STD_CLOCK)
    }

    fn lacks(&self) -> &'static str {
        "a rate limiter only"
    }

    fn rate_limiter(&self) -> Can<Work> {
        let limiter: Limiter<C> = RateLimiter::direct_with_clock(quota()?, self.clock.clone());
        Ok(Work::new(move |_, calls| poll_each(calls, || limited(&limiter))))
    }

    fn rate_limiter_keyed(&self) -> Can<Work> {
        let limiter: KeyedLimiter<C> = RateLimiter::dashmap_with_clock(quota()?, self.clock.clone());
        let keys: Vec<String> = (0..KEYS).map(|key| key.to_string()).collect();
        poll_each(KEYS as u64, || limited_by_key(&limiter, &keys[next_key()]));
        Ok(Work::new(move |_, calls| poll_each(calls, || limited_by_key(&limiter, &keys[next_key()]))))
    }
}

type Limiter<C> = RateLimiter<NotKeyed, InMemoryState, C, NoOpMiddleware<<C as Clock>::Instant>>;
type KeyedLimiter<C> = RateLimiter<String, DashMapStateStore<String>, C, NoOpMiddleware<<C as Clock>::Instant>>;

async fn limited<C: Clock>(limiter: &Limiter<C>) -> Result<u64, Failure> {
    limiter.check().map_err(|_| Failure)?;
    succeed().await
}

async fn limited_by_key<C: Clock>(limiter: &KeyedLimiter<C>, key: &String) -> Result<u64, Failure> {
    limiter.check_key(key).map_err(|_| Failure)?;
    succeed().await
}

fn quota() -> Can<Quota> {
    Ok(Quota::per_second(RATE.try_into().map_err(|_| "the rate is zero")?))
}
