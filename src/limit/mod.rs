//! Limits on what a dependency is asked to do: how often ([`RateLimiter`]), and how much at a time ([`Bulkhead`]).
//!
//! Both are handles: clones share state, and one limit serves calls of any result type. Both can be used without a chain:
//! `try_acquire` and `acquire`. Callers that have to wait do so in the order in which they came, in a queue with a bound, and
//! one that leaves (cancelled, out of time, dropped) leaves no trace: not in the balance, not in the queue, not in the permits.
//!
//! A caller that waits is admitted by its own poll. A future that is kept and not polled therefore holds up those behind it,
//! as in every fair queue.

mod bulkhead;
mod caller;
#[cfg(feature = "serde")]
pub(crate) mod document {
    //! What files may say about limits.
    pub(crate) use super::bulkhead::document::BulkheadDocument;
    pub(crate) use super::rate_limiter::document::RateDocument;
}
mod label;
mod line;
mod rate_limiter;

pub use self::bulkhead::{
    Bulkhead, BulkheadConfig, BulkheadPermit, DEFAULT_BULKHEAD_QUEUE, DEFAULT_BULKHEAD_WAIT, MAX_PERMITS,
};
pub use self::rate_limiter::{DEFAULT_RATE_QUEUE, MAX_FILL_TIME, MAX_RATE, RateLimiter, RateLimiterConfig};
use crate::clock::Moment;
use crate::error::{Error, Kind, Name};
use crate::event::What;
use crate::policy::{Call, Outcome};

/// The outcome of a call that a limit refuses.
#[cold]
fn refuse<T, E>(call: Call<'_, E>, kind: Kind, name: Option<Name>) -> Outcome<T, E> {
    call.emit(|| What::Rejected { kind });
    let mut error = Error::refused(kind);
    error.set_name(name);
    Outcome::rejected(error)
}

/// Whether a call that waits may not go on: something outside is about to end it. It stays pending, and whoever ends it does
/// so in this same poll: a run and its limits look after what is inside of them.
fn is_over<E>(call: Call<'_, E>, now: Moment) -> bool {
    now >= call.scope().deadline || call.ended().is_some()
}
