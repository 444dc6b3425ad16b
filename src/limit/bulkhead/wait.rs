//! A caller that waits for its permit.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use super::permits::{Permits, Step};
use crate::error::Full;
use crate::limit::line::Ticket;

/// Waits until a permit was taken, or until `timer` ends.
///
/// Nothing is taken before the poll in which it ends, nor while `is_over` says that somebody outside is about to end the wait.
/// Dropped, it gives its place in the queue to those behind it.
pub(super) async fn wait(
    permits: &Permits,
    most: usize,
    is_over: impl Fn() -> bool,
    timer: impl Future<Output = ()>,
) -> Result<(), Full> {
    let mut place = Place { permits, ticket: None };
    let mut joined = false;
    let mut timer = pin!(timer);
    poll_fn(|cx| {
        if is_over() {
            return Poll::Pending;
        }
        let waker = cx.waker().clone();
        let step =
            if joined { permits.poll(&mut place.ticket, waker) } else { permits.join(&mut place.ticket, most, waker) };
        joined = true;
        match step {
            Step::Taken => Poll::Ready(Ok(())),
            Step::Full => Poll::Ready(Err(Full::Queue)),
            // A permit that is free at the end of the time is taken.
            Step::Waits => timer.as_mut().poll(cx).map(|()| Err(Full::Wait)),
        }
    })
    .await
}

/// A place in the queue, given up on drop.
struct Place<'a> {
    permits: &'a Permits,
    ticket: Option<Ticket>,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.permits.leave(ticket);
        }
    }
}
