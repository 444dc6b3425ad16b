//! The race of a chain against everything that may end its run from outside.

use std::pin::Pin;
use std::task::{Context as TaskContext, Poll};

use pin_project::pin_project;
use tokio_util::sync::WaitForCancellationFutureOwned;

use crate::cancel::Cause;
use crate::life::Slot;
use crate::run::{Alarm, Core, Scope};

/// Races the chain against the caller's token, the executor's shutdown and the deadline, a ready result first.
#[pin_project]
pub(super) struct Race<'run, F> {
    #[pin]
    pub(super) chain: F,
    /// Dropped after the chain: a run is waiting until all that it holds is given back.
    pub(super) seat: Seat<'run>,
}

impl<F: Future> Future for Race<'_, F> {
    /// `None` if the run was ended from outside; the scope says why. (A cause in its place would share bytes with the value, which
    /// then could not stay in one register.)
    type Output = Option<F::Output>;

    #[inline(always)]
    fn poll(self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<Option<F::Output>> {
        let this = self.project();
        let core = this.seat.scope.core;
        #[cfg(feature = "tracing")]
        let _entered = core.enter();
        if let Poll::Ready(outcome) = this.chain.poll(cx) {
            return Poll::Ready(Some(outcome));
        }
        let ended = this.seat.pending(cx);
        core.end_poll();
        ended.map(|()| None)
    }
}

/// The outermost place of a run.
pub(super) struct Seat<'run> {
    scope: &'run Scope<'run>,
    /// Made when the chain is first pending, which that of most runs never is.
    waits: Option<Waits<'run>>,
}

impl<'run> Seat<'run> {
    #[inline]
    pub(super) fn new(scope: &'run Scope<'run>) -> Seat<'run> {
        Seat { scope, waits: None }
    }

    /// What the chain waits for may never come: looks at, and waits for, everything else that may end the run.
    fn pending(&mut self, cx: &mut TaskContext<'_>) -> Poll<()> {
        let scope = self.scope;
        let waits = self.waits.get_or_insert_with(|| Waits { slot: Slot::default(), watch: None });
        waits.poll(scope, cx).map(|cause| scope.give_up(cause.into()))
    }
}

/// What a run that waits holds: its place among the waiting of the executor, and what its caller brought to end it with.
struct Waits<'run> {
    slot: Slot,
    /// Made only if the caller brought something to watch.
    watch: Option<Pin<Box<Watch<'run>>>>,
}

impl<'run> Waits<'run> {
    fn poll(&mut self, scope: &'run Scope<'run>, cx: &mut TaskContext<'_>) -> Poll<Cause> {
        let core = scope.core;
        if !core.is_quiet() {
            let watch = self.watch.get_or_insert_with(|| Box::pin(Watch::new(scope)));
            if let Poll::Ready(cause) = watch.as_mut().poll(cx, core) {
                // Of several causes at once the same one counts everywhere.
                return Poll::Ready(core.ended().unwrap_or(cause));
            }
        }
        match core.life() {
            Some(life) => life.poll_shut_down(&mut self.slot, cx).map(|()| Cause::ShutDown),
            None => Poll::Pending,
        }
    }
}

impl Drop for Seat<'_> {
    // Taken out, so that there is nothing left for the compiler to drop; and looked at before, since most runs have nothing, and
    // need not write that down.
    #[inline(always)]
    fn drop(&mut self) {
        if self.waits.is_some()
            && let Some(waits) = self.waits.take()
        {
            leave(self.scope, waits);
        }
    }
}

#[cold]
#[inline(never)]
fn leave(scope: &Scope<'_>, waits: Waits<'_>) {
    scope.core.end();
    if let Some(life) = scope.core.life() {
        life.leave(waits.slot);
    }
}

/// What the caller brought to end a pending run with.
#[pin_project]
struct Watch<'run> {
    #[pin]
    token: Option<WaitForCancellationFutureOwned>,
    #[pin]
    alarm: Alarm<'run>,
}

impl<'run> Watch<'run> {
    fn new(scope: &'run Scope<'run>) -> Watch<'run> {
        let core = scope.core;
        let token = core.context.token().map(|token| token.clone().cancelled_owned());
        Watch { token, alarm: Alarm::new(scope, core.deadline) }
    }

    fn poll(self: Pin<&mut Self>, cx: &mut TaskContext<'_>, core: &Core<'_>) -> Poll<Cause> {
        let this = self.project();
        if this.token.as_pin_mut().is_some_and(|token| token.poll(cx).is_ready()) {
            return Poll::Ready(Cause::Cancelled);
        }
        this.alarm.poll(cx, core.armed()).map(|()| Cause::DeadlineExceeded)
    }
}
