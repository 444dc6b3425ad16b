//! A caller that waits for its tokens.

use std::future::poll_fn;
use std::pin::pin;
use std::task::{Poll, ready};
use std::time::Duration;

use super::gate::{Asked, Gate, Step};
use super::handle::RateLimiter;
use crate::clock::{Moment, Sleep};
use crate::limit::line::Ticket;

/// What a wait needs to know of who waits.
pub(super) trait Waits {
    type Sleep: Future<Output = ()> + Send;

    fn now(&self) -> Moment;

    /// Whether somebody outside is about to end the wait; then nothing may be taken any more.
    fn is_over(&self, now: Moment) -> bool;

    fn sleep_until(&self, at: Moment) -> Self::Sleep;
}

/// A caller without a chain.
pub(super) struct Alone<'a, F> {
    pub(super) limiter: &'a RateLimiter,
    pub(super) is_over: F,
}

impl<F: Fn() -> bool> Waits for Alone<'_, F> {
    type Sleep = Sleep;

    fn now(&self) -> Moment {
        self.limiter.now()
    }

    fn is_over(&self, _: Moment) -> bool {
        (self.is_over)()
    }

    fn sleep_until(&self, at: Moment) -> Sleep {
        self.limiter.clock().sleep_until(at)
    }
}

/// Waits until the tokens were taken, or gives the time for which it would have to wait.
///
/// Nothing is taken before the poll in which it ends. Dropped, it gives its place in the queue to those behind it.
pub(super) async fn wait(gate: &Gate, asked: Asked, most: usize, who: impl Waits) -> Result<(), Option<Duration>> {
    let mut place = Place { gate, ticket: None };
    let mut joined = false;
    let mut timer = pin!(None);
    // When it ends, and the reading that its time is counted from.
    let (mut due, mut set_at) = (Moment::NEVER, Moment::NEVER);
    // What a timer says counts, also if the clock is a little behind it.
    let mut reached = Moment::from_nanos(0);
    poll_fn(|cx| {
        loop {
            let read = who.now();
            let now = read.max(reached);
            if who.is_over(now) {
                return Poll::Pending;
            }
            let waker = cx.waker().clone();
            let step = if joined {
                gate.poll(&mut place.ticket, asked, now, waker)
            } else {
                gate.join(&mut place.ticket, asked, most, now, waker)
            };
            joined = true;
            match step {
                Step::Admitted => return Poll::Ready(Ok(())),
                Step::Refused(wait) => return Poll::Ready(Err(wait)),
                Step::Behind => return Poll::Pending,
                Step::FirstUntil(at) => {
                    // Once the clock has stepped back the same moment is later, and the timer that was set for it early.
                    if due != at || read < set_at {
                        timer.set(Some(who.sleep_until(at)));
                        (due, set_at) = (at, read);
                    }
                    if let Some(sleep) = timer.as_mut().as_pin_mut() {
                        ready!(sleep.poll(cx));
                    }
                    timer.set(None);
                    (reached, set_at) = (at, Moment::NEVER);
                }
            }
        }
    })
    .await
}

/// A place in the queue, given up on drop.
struct Place<'a> {
    gate: &'a Gate,
    ticket: Option<Ticket>,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.gate.leave(ticket);
        }
    }
}
