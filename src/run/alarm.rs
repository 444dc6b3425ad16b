//! A timer that is only registered if no nearer one will wake the run anyway.

use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project::{pin_project, pinned_drop};

use super::Scope;
use crate::clock::{Moment, Sleep};

/// Waits for one moment, for one frame of a run.
///
/// Of several limits around one attempt only the nearest needs a timer: whatever it does wakes the run, and then every
/// frame is polled again. Frames are polled from the inside out, so an alarm knows which timers wait inside of it, and
/// registers its own only if it is the nearest.
#[pin_project(PinnedDrop)]
pub(crate) struct Alarm<'a, 'run> {
    scope: &'a Scope<'run>,
    #[pin]
    sleep: Sleep,
}

impl<'a, 'run> Alarm<'a, 'run> {
    #[inline]
    pub(crate) fn new(scope: &'a Scope<'run>, at: Moment) -> Alarm<'a, 'run> {
        Alarm { scope, sleep: scope.core.clock().sleep_until(at) }
    }

    /// The scope of the frame that waits.
    #[inline]
    pub(crate) fn scope(&self) -> &'a Scope<'run> {
        self.scope
    }

    /// Ready once the moment has come. `inside` is the nearest timer that waits inside of the frame, which has been polled
    /// and found pending just before; `NEVER` if there is none.
    pub(crate) fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>, inside: Moment) -> Poll<()> {
        let this = self.project();
        let at = this.sleep.at();
        if inside <= at {
            return Poll::Pending;
        }
        let waiting = this.sleep.poll(cx);
        if waiting.is_pending() {
            this.scope.core.arm(at);
        }
        waiting
    }
}

/// Waits until the moment, with nothing inside.
impl Future for Alarm<'_, '_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        Alarm::poll(self, cx, Moment::NEVER)
    }
}

#[pinned_drop]
impl PinnedDrop for Alarm<'_, '_> {
    #[inline]
    fn drop(self: Pin<&mut Self>) {
        self.scope.core.disarm(self.sleep.at());
    }
}
