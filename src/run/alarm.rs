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
pub(crate) struct Alarm<'run> {
    scope: &'run Scope<'run>,
    #[pin]
    timer: Timer,
}

/// Most calls are ready at once, and a timer is large: it is made when it is first waited for.
#[pin_project(project = TimerProjection)]
enum Timer {
    Due(Moment),
    Waiting(#[pin] Sleep),
}

impl<'run> Alarm<'run> {
    #[inline]
    pub(crate) fn new(scope: &'run Scope<'run>, at: Moment) -> Alarm<'run> {
        Alarm { scope, timer: Timer::Due(at) }
    }

    /// The frame that it is the alarm of.
    #[inline]
    pub(crate) fn scope(&self) -> &'run Scope<'run> {
        self.scope
    }

    /// Ready once the moment has come. `inside` is the nearest timer that waits inside of the frame, which has been polled
    /// and found pending just before; `NEVER` if there is none.
    pub(crate) fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>, inside: Moment) -> Poll<()> {
        let mut this = self.project();
        let (at, core) = (this.timer.at(), this.scope.core);
        if inside <= at {
            return Poll::Pending;
        }
        if let Timer::Due(at) = *this.timer {
            this.timer.set(Timer::Waiting(core.clock().sleep_until(at)));
        }
        let waiting = match this.timer.project() {
            TimerProjection::Waiting(sleep) => sleep.poll(cx),
            TimerProjection::Due(_) => Poll::Pending,
        };
        if waiting.is_pending() {
            core.arm(at);
        }
        waiting
    }
}

impl Timer {
    fn at(&self) -> Moment {
        match self {
            Timer::Due(at) => *at,
            Timer::Waiting(sleep) => sleep.at(),
        }
    }
}

/// Waits until the moment, with nothing inside.
impl Future for Alarm<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        Alarm::poll(self, cx, Moment::NEVER)
    }
}

#[pinned_drop]
impl PinnedDrop for Alarm<'_> {
    #[inline(always)]
    fn drop(self: Pin<&mut Self>) {
        if let Timer::Waiting(_) = &self.timer {
            self.give_up();
        }
    }
}

impl Alarm<'_> {
    /// Nobody waits any more.
    // The timer is dropped here, so that where there is none the compiler has nothing left to drop.
    #[cold]
    #[inline(never)]
    fn give_up(self: Pin<&mut Self>) {
        let mut this = self.project();
        let at = this.timer.at();
        this.timer.set(Timer::Due(at));
        this.scope.core.disarm(at);
    }
}
