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
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use crate::clock::Moment;
use crate::error::{Error, Kind, Name};
use crate::event::What;
use crate::policy::{Call, Outcome};

/// Which limit does something, for events.
#[derive(Clone, Copy)]
struct By {
    policy: &'static str,
    name: Option<Name>,
}

/// The outcome of a call that a limit refuses.
#[cold]
fn refuse<T, E>(call: Call<'_, E>, kind: Kind, By { policy: by, name }: By) -> Outcome<T, E> {
    call.emit_by(name, || What::Rejected { by, kind });
    let mut error = Error::refused(kind);
    error.set_name(name);
    Outcome::rejected(error)
}

/// Waits in line, and tells of a wait that is not over at once.
async fn queue<E: Send, X: Send>(
    call: Call<'_, E>,
    By { policy: by, name }: By,
    wait: impl Future<Output = Result<(), X>> + Send,
) -> Result<(), X> {
    let mut wait = pin!(wait);
    let mut since = None;
    poll_fn(|cx| {
        let polled = wait.as_mut().poll(cx);
        match (&polled, since) {
            (Poll::Pending, None) if call.is_observed() => {
                since = Some(call.now());
                call.emit_by(name, || What::Queued { by });
            }
            (Poll::Ready(Ok(())), Some(since)) => {
                call.emit_by(name, || What::Admitted { by, waited: call.now().since(since) });
            }
            _ => {}
        }
        polled
    })
    .await
}

/// Whether a call that waits may not go on: something outside is about to end it. It stays pending, and whoever ends it does
/// so in this same poll: a run and its limits look after what is inside of them.
fn is_over<E>(call: Call<'_, E>, now: Moment) -> bool {
    now >= call.scope().deadline || call.ended().is_some()
}
