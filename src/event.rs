//! What happens in a run, as data for whoever wants to see it.

use std::fmt;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use crate::error::{Kind, Name};
use crate::verdict::Verdict;

/// Something that happened in a run. Events are built only if somebody observes the executor.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Event {
    /// The name of the executor; `None` in a run of [`try_do`](crate::try_do).
    pub executor: Option<Name>,
    /// Which try of the run it happened in, from 1.
    pub attempt: u32,
    /// Which lane of a hedged try it happened in; 0 is the first.
    pub hedge: u32,
    /// What happened.
    pub what: What,
}

/// What happened.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum What {
    /// A run begins. One that is refused at once, because the executor is closed or the context cancelled, has this event and
    /// [`RunFinished`](What::RunFinished).
    RunStarted,
    /// The operation was started once more.
    AttemptStarted,
    /// The operation ended and was judged. An attempt that is dropped has no such event.
    AttemptFinished {
        /// The judgement of the operation; a [judging policy](crate::judge) may revise it afterwards.
        verdict: Verdict,
    },
    /// Another attempt will be made.
    RetryScheduled {
        /// The wait before it.
        delay: Duration,
        /// The judgement on the attempt before.
        verdict: Verdict,
    },
    /// A [`Timeout`](crate::Timeout) fired.
    TimedOut {
        /// Its limit.
        limit: Duration,
    },
    /// A [`Hedge`](crate::Hedge) starts one more lane: the one of this event.
    HedgeStarted,
    /// The lane of this event has decided a try that has more than one.
    HedgeWon,
    /// The lane of this event still ran when another one decided, and is dropped.
    HedgeLost,
    /// A [`Fallback`](crate::Fallback) steps in.
    FellBack {
        /// What it replaces.
        error: Kind,
    },
    /// A [`Chaos`](crate::Chaos) changes what comes of the try of this event.
    ChaosInjected,
    /// A policy refused the call.
    Rejected {
        /// What it said.
        kind: Kind,
    },
    /// The run is over. A run that its caller drops has no such event.
    RunFinished {
        /// What the error says, or `None` after a success.
        error: Option<Kind>,
        /// How often the operation was started.
        attempts: u32,
        /// The time since the run's first look at the clock.
        elapsed: Duration,
    },
}

/// Sees the events of the runs of an executor, one after another for each run, in the task of the run.
///
/// It is called while no lock is held. A panic in it is reported by the panic hook and otherwise ignored: watching never
/// changes a run. It should return quickly; hand longer work to a channel.
pub trait Observer: Send + Sync + 'static {
    /// Sees one event.
    fn on_event(&self, event: &Event);
}

impl<F: Fn(&Event) + Send + Sync + 'static> Observer for F {
    fn on_event(&self, event: &Event) {
        self(event);
    }
}

/// The observers of an executor.
#[derive(Clone, Default)]
pub(crate) struct Observers(Vec<Arc<dyn Observer>>);

impl Observers {
    pub(crate) fn push(&mut self, observer: Arc<dyn Observer>) {
        self.0.push(observer);
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn tell(&self, event: &Event) {
        for observer in &self.0 {
            shielded(|| observer.on_event(event));
        }
    }
}

impl fmt::Debug for Observers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} observers", self.0.len())
    }
}

/// Calls a spectator of the caller's. If it panics, the panic hook has reported it, and the run goes on.
pub(crate) fn shielded(spectator: impl FnOnce()) {
    // Nothing of ours is touched inside, so nothing can be seen half-changed after a panic.
    if let Err(reported_by_the_hook) = catch_unwind(AssertUnwindSafe(spectator)) {
        // What was thrown is the user's as well, and may panic once more when it is dropped. That one is not dropped.
        let dropped = catch_unwind(AssertUnwindSafe(|| drop(reported_by_the_hook)));
        #[expect(clippy::mem_forget, reason = "it could panic for ever")]
        mem::forget(dropped);
    }
}
