//! A bucket among others that are made from the same settings.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::config::{RateLimiterConfig, Weight};
use super::gate::Gate;
use super::gcra::Rate;
use super::handle::RateLimiter;
use crate::clock::{Clock, Moment};
use crate::error::ConfigError;
use crate::keyed::Member;
use crate::keyed::member::sealed::{Sealed, Standing};

/// One bucket, and what it shares with others of its kind. What an admission needs lies side by side.
#[repr(C)]
pub(super) struct Bucket {
    pub(super) family: Arc<Family>,
    pub(super) gate: Gate,
    /// In nanoseconds. By itself: a call that takes an old one is as good as one that came a moment earlier.
    pub(super) max_wait: AtomicU64,
    /// The most that may wait at a time; by itself too.
    pub(super) most: AtomicU64,
    /// Whether its settings are not those of the family any more: 0 or 1.
    pub(super) own: AtomicU64,
}

impl Bucket {
    pub(super) fn fill_at(&self, rate: Rate) {
        // The clock is the user's, and not asked under a lock.
        let clock = &self.family.clock;
        if !self.gate.reconfigure(rate, clock.get().map(Clock::now), || clock.get().is_none()) {
            // Somebody has just bound it, or calls come through a policy that has kept the limiter from being bound.
            self.gate.reconfigure(rate, Some(<RateLimiter as Member>::now(&self.family)), || false);
        }
    }
}

/// What limiters that are made from the same settings share.
#[expect(unnameable_types, reason = "a part of the sealed `Member`")]
pub struct Family {
    rate: Rate,
    max_wait: Duration,
    most: usize,
    pub(super) weight: Weight,
    /// Set by the first use, and never changed: moments of different clocks cannot be compared.
    pub(super) clock: OnceLock<Clock>,
    pub(super) checked: Result<(), ConfigError>,
}

impl Sealed for RateLimiter {}

impl Member for RateLimiter {
    const KIND: &'static str = "rate_limiter";

    type Config = RateLimiterConfig;
    type Family = Arc<Family>;

    fn family(config: RateLimiterConfig) -> Arc<Family> {
        let (rate, checked) = match config.rate() {
            Ok(rate) => (rate, Ok(())),
            Err(refused) => (Rate::NOTHING, Err(refused)),
        };
        let RateLimiterConfig { max_wait, queue, weight, .. } = config;
        Arc::new(Family { rate, max_wait, most: queue, weight, clock: OnceLock::new(), checked })
    }

    fn join(family: &Arc<Family>, _: Option<&Arc<str>>) -> RateLimiter {
        let bucket = Bucket {
            family: Arc::clone(family),
            gate: Gate::new(family.rate),
            max_wait: AtomicU64::new(nanos(family.max_wait)),
            most: AtomicU64::new(family.most as u64),
            own: AtomicU64::new(0),
        };
        RateLimiter::of(bucket)
    }

    /// A limiter that was never used is full at any time, and stays unbound.
    fn now(family: &Arc<Family>) -> Moment {
        family.clock.get().map_or_else(|| Clock::tokio().now(), Clock::now)
    }

    fn standing(&self, now: Moment) -> Standing {
        let standing = self.bucket().gate.standing(now);
        if self.bucket().own.load(Relaxed) == 1 { standing.max(Standing::Idle) } else { standing }
    }

    fn is_held(&self) -> bool {
        Arc::strong_count(self.bucket()) > 1
    }
}

impl fmt::Debug for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RateLimiter")
    }
}

/// More than 584 years is for ever.
pub(super) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
