//! Everything that may end work from outside, merged: the caller's token, the executor's shutdown, a deadline.

use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use tokio_util::sync::CancellationToken;

use crate::clock::Deadline;
pub use crate::error::stopped::Cause;
use crate::life::{Life, Place};

/// The merged token of a result that outlives its run, such as the body of an HTTP response: cancelled when the caller's
/// token is, when the executor is shut down, or when the deadline of the caller's context passes.
///
/// It is polled and costs no task. No policy that has finished its work ever cancels it: that a
/// [`Timeout`](crate::Timeout) has run does not end what the timeout has let through. Clones are the same token.
#[derive(Clone)]
pub struct Cancellation(Arc<Sources>);

struct Sources {
    own: CancellationToken,
    caller: Option<CancellationToken>,
    life: Option<Arc<Life>>,
    deadline: Option<Deadline>,
}

impl Cancellation {
    #[cfg_attr(
        not(any(feature = "reqwest", feature = "tower")),
        allow(dead_code, reason = "only adapters hold what outlives a run")
    )]
    pub(crate) fn new(
        caller: Option<CancellationToken>,
        life: Option<Arc<Life>>,
        deadline: Option<Deadline>,
    ) -> Cancellation {
        Cancellation(Arc::new(Sources { own: CancellationToken::new(), caller, life, deadline }))
    }

    /// Ends this one piece of work; the caller's own token and other work are not touched.
    pub fn cancel(&self) {
        self.0.own.cancel();
    }

    /// Whether any source asks for an end.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.cause().is_some()
    }

    /// Which source asks for an end, if one does; the caller before the executor before the deadline.
    #[must_use]
    pub fn cause(&self) -> Option<Cause> {
        let sources = &*self.0;
        if sources.own.is_cancelled() || sources.caller.as_ref().is_some_and(CancellationToken::is_cancelled) {
            Some(Cause::Cancelled)
        } else if sources.life.as_ref().is_some_and(|life| life.is_shut_down()) {
            Some(Cause::ShutDown)
        } else if sources.deadline.as_ref().is_some_and(Deadline::has_passed) {
            Some(Cause::DeadlineExceeded)
        } else {
            None
        }
    }

    /// The deadline that is part of it, if the caller's context had one.
    #[must_use]
    pub fn deadline(&self) -> Option<&Deadline> {
        self.0.deadline.as_ref()
    }

    /// Waits until any source asks for an end, and says which. For as long as it waits it counts among what
    /// [`Executor::drained`](crate::Executor::drained) waits for.
    ///
    /// # Cancel safety
    /// Safe: dropping the future leaves nothing behind, and a later call sees the same end.
    pub async fn cancelled(&self) -> Cause {
        let sources = &*self.0;
        let mut own = pin!(sources.own.cancelled());
        let mut caller =
            pin!(futures::future::OptionFuture::from(sources.caller.as_ref().map(|token| token.cancelled())));
        let mut place = Place::new(sources.life.as_ref());
        let timer = sources.deadline.as_ref().map(|deadline| deadline.clock().sleep_until(deadline.at()));
        let mut timer = pin!(futures::future::OptionFuture::from(timer));
        poll_fn(|cx| {
            if own.as_mut().poll(cx).is_ready() || caller.as_mut().poll(cx) == Poll::Ready(Some(())) {
                Poll::Ready(Cause::Cancelled)
            } else if place.poll(cx).is_ready() {
                Poll::Ready(Cause::ShutDown)
            } else if timer.as_mut().poll(cx) == Poll::Ready(Some(())) {
                Poll::Ready(Cause::DeadlineExceeded)
            } else {
                Poll::Pending
            }
        })
        .await
    }
}

impl fmt::Debug for Cancellation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cancellation").field("cause", &self.cause()).finish_non_exhaustive()
    }
}
