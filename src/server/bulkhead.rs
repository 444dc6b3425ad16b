//! A layer that lets so many requests be served at a time.

use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use tower_layer::Layer;

use super::gate::{Admission, Gate, Hold, caller};
use super::service::Guarded;
use crate::clock::Clock;
use crate::error::{ConfigError, Kind, Refusal};
use crate::limit::Bulkhead;
use crate::policy::{Settings, Site};

/// Lets so many requests be served at a time; others wait in line if the bulkhead has a queue, or are answered 503 with a
/// `Retry-After` (gRPC: UNAVAILABLE with a pushback).
///
/// A request holds its permit to the end of the response's body, or until its client has gone. A body that is empty, or that
/// of an answer to HEAD, has ended with the headers. So has that of an upgrade: connections that speak another protocol
/// afterwards, like WebSockets, are not counted.
///
/// All services under one layer, and under others with the same [`Bulkhead`], share its permits.
///
/// ```
/// use steadfast::{Bulkhead, server::BulkheadLayer};
///
/// let bulkhead = Bulkhead::new(100);
/// let layer = BulkheadLayer::new(bulkhead.clone());
/// assert!(layer.check().is_ok());
/// // Later, for an operator: `bulkhead.in_flight()`, `bulkhead.resize(200)`.
/// assert!(BulkheadLayer::new(Bulkhead::new(0)).check().is_err());
/// ```
#[derive(Clone, Debug)]
#[must_use = "a layer does nothing until it is around a service"]
pub struct BulkheadLayer {
    bulkhead: Bulkhead,
    retry_after: Duration,
    clock: Clock,
}

impl BulkheadLayer {
    /// A layer with the permits and the queue of `bulkhead`.
    pub fn new(bulkhead: Bulkhead) -> BulkheadLayer {
        BulkheadLayer { bulkhead, retry_after: DEFAULT_RETRY_AFTER, clock: Clock::tokio() }
    }

    /// Sets after what time a request that is refused should come again, since nobody knows when a permit will be free.
    /// Default: [`DEFAULT_RETRY_AFTER`]. Seconds (gRPC: milliseconds) are rounded up.
    pub fn retry_after(mut self, pause: Duration) -> BulkheadLayer {
        self.retry_after = pause;
        self
    }

    /// Measures waits with `clock`. Default: [`Clock::tokio`]. A request with a [`Context`](crate::Context) waits on the clock of
    /// that.
    pub fn clock(mut self, clock: impl Into<Clock>) -> BulkheadLayer {
        self.clock = clock.into();
        self
    }

    /// Says whether the layer can work. One that cannot answers every request with 500 (gRPC: INTERNAL).
    ///
    /// # Errors
    /// The first setting of the bulkhead that is out of its range.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.bulkhead.validate(&mut Site::new(&self.clock))
    }
}

impl<S> Layer<S> for BulkheadLayer {
    type Service = Guarded<S>;

    fn layer(&self, inner: S) -> Guarded<S> {
        let BulkheadLayer { bulkhead, retry_after, clock } = self.clone();
        Guarded::new(inner, Gate::Bulkhead(Arc::new(Places { bulkhead, retry_after, clock })))
    }
}

/// The bulkhead in front of a service.
#[derive(Debug)]
pub(super) struct Places {
    bulkhead: Bulkhead,
    retry_after: Duration,
    clock: Clock,
}

impl Places {
    pub(super) fn admit(self: &Arc<Places>, head: &Parts) -> Admission {
        let refusal = match self.bulkhead.try_acquire() {
            Ok(permit) => return Admission::Admitted(Hold::Permit(permit)),
            Err(refusal) => refusal,
        };
        if !self.bulkhead.may_wait() {
            return Admission::refused(self.refused(refusal));
        }
        let (places, cx) = (Arc::clone(self), caller(head, &self.clock));
        Admission::Waits(Box::pin(async move {
            let waited = places.bulkhead.acquire_with(&cx).await;
            waited.map(Hold::Permit).map_err(|refusal| places.refused(refusal))
        }))
    }

    fn refused(&self, refusal: Refusal) -> Refusal {
        match refusal.kind() {
            Kind::BulkheadFull { .. } => refusal.asking_for(self.retry_after),
            _ => refusal,
        }
    }
}

/// After what time a request comes again that found no permit: 1 s, the least that `Retry-After` can say. Whoever knows how
/// long requests take sets more.
pub const DEFAULT_RETRY_AFTER: Duration = Duration::from_secs(1);
