//! A layer that lets so many requests in for each key.

use std::sync::Arc;

use http::request::Parts;
use tower_layer::Layer;

use super::gate::{Admission, Gate, Hold, caller};
use super::key::Key;
use super::service::Guarded;
use crate::clock::Clock;
use crate::context::Context;
use crate::error::{ConfigError, Kind, Refusal};
use crate::keyed::Keyed;
use crate::limit::RateLimiter;
use crate::policy::{Settings, Site};

/// Lets requests in at a rate for each [`Key`]; others wait if the limit has a
/// [longest wait](crate::limit::RateLimiterConfig::max_wait), or are answered 429 with the exact time in `Retry-After`, rounded up
/// to seconds (gRPC: RESOURCE_EXHAUSTED with a pushback in milliseconds).
///
/// The map is bounded, whatever clients send as keys: see [`Keyed`] for what makes room, and why a drained bucket goes last.
/// Requests without a key share the limit of the empty key, so that leaving a header out is no way around it. Keys of more than
/// [`MAX_KEY_LEN`] bytes, and those that are no text, are kept as a fingerprint of 33.
///
/// All services under one layer, and under others with the same map, share its limits. If the settings of the limit give
/// requests weights, they count; a function is asked with the request's [`Context`], see
/// [`DeadlineLayer`](super::DeadlineLayer).
///
/// ```
/// use http::HeaderName;
/// use steadfast::limit::RateLimiterConfig;
/// use steadfast::server::{Key, RateLimitLayer};
/// use steadfast::{Keyed, RateLimiter};
///
/// let limits = Keyed::<RateLimiter>::new(RateLimiterConfig::per_second(10).burst(20));
/// let layer = RateLimitLayer::new(limits.clone(), Key::header(HeaderName::from_static("x-api-key")));
/// assert!(layer.check().is_ok());
/// // Later, for an operator: `limits.len()`, `limits.evictions()`.
/// ```
#[derive(Clone, Debug)]
#[must_use = "a layer does nothing until it is around a service"]
pub struct RateLimitLayer {
    limits: Keyed<RateLimiter>,
    key: Key,
    clock: Clock,
}

impl RateLimitLayer {
    /// A layer with one of the `limits` for each `key`.
    pub fn new(limits: Keyed<RateLimiter>, key: Key) -> RateLimitLayer {
        RateLimitLayer { limits, key, clock: Clock::tokio() }
    }

    /// Measures with `clock`. Default: [`Clock::tokio`]. Limits keep to the first clock that uses them.
    pub fn clock(mut self, clock: impl Into<Clock>) -> RateLimitLayer {
        self.clock = clock.into();
        self
    }

    /// Says whether the layer can work. One that cannot answers every request with 500 (gRPC: INTERNAL).
    ///
    /// # Errors
    /// The first setting that is out of its range, of the limits, their map or the key; or if the limits are bound to another
    /// clock. They are bound to this layer's clock by it.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.key.check()?;
        self.limits.validate(&mut Site::new(&self.clock))
    }
}

impl<S> Layer<S> for RateLimitLayer {
    type Service = Guarded<S>;

    fn layer(&self, inner: S) -> Guarded<S> {
        let checked = self.check();
        let RateLimitLayer { limits, key, clock } = self.clone();
        Guarded::new(inner, Gate::Rate(Arc::new(Rates { limits, key, clock, checked })))
    }
}

/// The limits in front of a service.
#[derive(Debug)]
pub(super) struct Rates {
    limits: Keyed<RateLimiter>,
    key: Key,
    clock: Clock,
    checked: Result<(), ConfigError>,
}

impl Rates {
    pub(super) fn admit(&self, head: &Parts) -> Admission {
        if let Err(refused) = &self.checked {
            return Admission::refused(Refusal::misconfigured(refused.clone(), None));
        }
        let limiter = self.limit_of(head);
        let weight = match head.extensions.get() {
            Some(cx) => limiter.weight_of(cx),
            None => limiter.weight_of(&Context::new()),
        };
        let refusal = match limiter.try_acquire_many(weight) {
            Ok(()) => return Admission::Admitted(Hold::Nothing),
            Err(refusal) => refusal,
        };
        if !limiter.has_queue() || !matches!(refusal.kind(), Kind::RateLimited { .. }) {
            return Admission::refused(refusal);
        }
        let cx = caller(head, &self.clock);
        Admission::Waits(Box::pin(async move { limiter.acquire_with(&cx, weight).await.map(|()| Hold::Nothing) }))
    }

    fn limit_of(&self, head: &Parts) -> RateLimiter {
        let Some(key) = self.key.find(head) else { return self.limits.get("") };
        match str::from_utf8(&key) {
            Ok(text) if text.len() <= MAX_KEY_LEN => self.limits.get(text),
            _ => self.limits.get(&self.limits.fingerprint(&key)),
        }
    }
}

/// The longest key that is kept as it is: 64 bytes. Addresses, names and numbers fit; whoever sends longer ones makes the map no
/// larger.
pub const MAX_KEY_LEN: usize = 64;
