//! The frames that may drop what is inside of them, and say why.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, Ordering::Relaxed};

use super::{Call, Core, Last};
use crate::cancel::Cause;
use crate::clock::Moment;

/// What a policy that may end what is inside of it (the run, a timeout, a lane of a hedge) keeps in its own frame: the
/// limit it sets, and why it dropped what was inside.
///
/// A permit that is dropped asks the scopes around it, the nearest first. No clock is compared, and whether the thread is
/// panicking is not asked: a panic of a bystander is not the dependency's fault.
pub(crate) struct Scope<'run> {
    pub(crate) core: &'run Core<'run>,
    up: Option<&'run Scope<'run>>,
    /// The nearest limit at or around this scope.
    pub(crate) deadline: Moment,
    /// The number of the try in which the scope was opened.
    number: u32,
    /// Changes whenever the operation is started inside; 0 before the first time.
    started: AtomicU16,
    reason: AtomicU8,
    panicked: AtomicBool,
}

/// What a policy keeps in its own frame if it may drop what is inside of it, so that permits in there learn why.
///
/// ```
/// use std::pin::pin;
/// use futures::future::{Either, select};
/// use steadfast::policy::{Call, Frame, Next, Outcome, Policy, Reason, Settings};
///
/// /// Runs two tries at once, and takes the one that ends first.
/// struct Twice;
///
/// impl Settings for Twice {}
///
/// impl<T: Send, E: Send> Policy<T, E> for Twice {
///     async fn run<N: Next<T, E>>(&self, call: Call<'_, E>, next: N) -> Outcome<T, E> {
///         let (first, second) = (Frame::inside(call), Frame::inside(call));
///         let lanes = (pin!(next.call(call.within(&first))), pin!(next.call(call.within(&second))));
///         let (outcome, loser) = match select(lanes.0, lanes.1).await {
///             Either::Left((outcome, _)) => (outcome, &second),
///             Either::Right((outcome, _)) => (outcome, &first),
///         };
///         loser.give_up(Reason::LostRace); // before the lanes are dropped
///         outcome
///     }
/// }
/// # let clock = steadfast::clock::Clock::manual();
/// # clock.block_on(async {
/// # let cx = steadfast::Context::new().with_clock(&clock);
/// # assert_eq!(steadfast::try_do(&cx, |_| async { Ok::<_, ()>(7) }, Twice).await.unwrap(), 7);
/// # });
/// ```
pub struct Frame<'run, E> {
    pub(crate) scope: Scope<'run>,
    pub(crate) last: &'run Last<E>,
}

/// Why a frame drops what is inside of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[repr(u8)]
pub enum Reason {
    /// A limit on what is inside has passed.
    TimedOut = 1,
    /// The caller cancelled.
    Cancelled,
    /// The caller's deadline passed.
    DeadlineExceeded,
    /// The executor was shut down.
    ShutDown,
    /// Something else that runs beside it was faster.
    LostRace,
}

impl<'run, E> Frame<'run, E> {
    /// A frame around what `call` runs.
    #[must_use]
    pub fn inside(call: Call<'run, E>) -> Frame<'run, E> {
        Frame::until(call, Moment::NEVER)
    }

    /// A frame that will be given up at `at`: attempts inside see that as their deadline, if no nearer one is around, and
    /// later limits inside rely on it.
    #[must_use]
    #[inline]
    pub fn until(call: Call<'run, E>, at: Moment) -> Frame<'run, E> {
        Frame { scope: call.scope().inside(at, call.number()), last: call.frame().last }
    }

    /// What is inside will be dropped, for `reason`. To be called before it is.
    pub fn give_up(&self, reason: Reason) {
        self.scope.give_up(reason);
    }

    /// Whether the operation was started inside.
    #[must_use]
    pub fn was_started(&self) -> bool {
        self.scope.started() > 0
    }
}

impl<E> fmt::Debug for Frame<'_, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Frame").field("started", &self.scope.started()).finish_non_exhaustive()
    }
}

impl From<Cause> for Reason {
    fn from(cause: Cause) -> Reason {
        match cause {
            Cause::Cancelled => Reason::Cancelled,
            Cause::DeadlineExceeded => Reason::DeadlineExceeded,
            Cause::ShutDown => Reason::ShutDown,
        }
    }
}

/// What a dropped permit learns of its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// The operation panicked, or ran into a limit that was its own.
    Failed,
    /// A limit passed before the operation was started.
    NeverStarted,
    /// Another lane of a hedge was faster.
    LostRace,
    /// Given up from outside: by the caller, its deadline, a shutdown, or a limit around several tries.
    Abandoned,
}

impl<'run> Scope<'run> {
    #[inline]
    pub(crate) fn root(core: &'run Core<'run>) -> Scope<'run> {
        Scope::new(core, None, core.deadline, 1)
    }

    /// A scope inside of this one, opened in try `number`, that ends at `at` or when this one does.
    #[inline]
    pub(crate) fn inside(&'run self, at: Moment, number: u32) -> Scope<'run> {
        Scope::new(self.core, Some(self), self.deadline.min(at), number)
    }

    #[inline]
    fn new(core: &'run Core<'run>, up: Option<&'run Scope<'run>>, deadline: Moment, number: u32) -> Scope<'run> {
        let (started, reason, panicked) = (AtomicU16::new(0), AtomicU8::new(0), AtomicBool::new(false));
        Scope { core, up, deadline, number, started, reason, panicked }
    }

    /// A number that changes whenever the operation is started inside; 0 before the first time.
    #[inline]
    pub(crate) fn started(&self) -> u16 {
        self.started.load(Relaxed)
    }

    /// When a limit of this scope at `at` needs a timer: never, if a nearer limit outside will end everything before.
    // By value: a comparison in the policy itself would borrow `at`, and keep it in the future of every call.
    #[inline]
    pub(crate) fn alarm_at(&self, at: Moment) -> Moment {
        if self.deadline < at { Moment::NEVER } else { at }
    }

    pub(crate) fn give_up(&self, reason: Reason) {
        self.reason.store(reason as u8, Relaxed);
    }

    /// The operation is started once more, in try `number`.
    #[inline]
    pub(super) fn mark_started(&self, number: u32) {
        self.core.count_attempt(number);
        let mut scope = Some(self);
        while let Some(inner) = scope {
            inner.started.store(inner.started().checked_add(1).unwrap_or(1), Relaxed);
            inner.panicked.store(false, Relaxed);
            scope = inner.up;
        }
    }

    /// The operation's own poll unwinds.
    #[cold]
    pub(super) fn mark_panicked(&self) {
        self.around().for_each(|scope| scope.panicked.store(true, Relaxed));
    }

    /// Why a permit of try `number` is being dropped. `started` is what [`started`](Scope::started) said when the permit was
    /// given.
    #[cold]
    pub(crate) fn fate(&self, number: u32, started: u16) -> Fate {
        if self.panicked.load(Relaxed) {
            return Fate::Failed;
        }
        let Some((scope, reason)) = self.around().find_map(|scope| Some((scope, scope.reason()?))) else {
            return Fate::Abandoned;
        };
        match reason {
            Reason::LostRace => Fate::LostRace,
            Reason::TimedOut if self.started() == started => Fate::NeverStarted,
            // A limit that was opened in this same try has no retry between itself and the permit, or is at the run's
            // first try: the operation alone used up its time.
            Reason::TimedOut if scope.number == number => Fate::Failed,
            Reason::TimedOut | Reason::Cancelled | Reason::DeadlineExceeded | Reason::ShutDown => Fate::Abandoned,
        }
    }

    /// Why what is inside was dropped, if a frame around it has said so.
    #[cold]
    pub(super) fn why(&self) -> Option<Reason> {
        self.around().find_map(Scope::reason)
    }

    pub(super) fn has_panicked(&self) -> bool {
        self.panicked.load(Relaxed)
    }

    fn reason(&self) -> Option<Reason> {
        match self.reason.load(Relaxed) {
            reason if reason == Reason::TimedOut as u8 => Some(Reason::TimedOut),
            reason if reason == Reason::Cancelled as u8 => Some(Reason::Cancelled),
            reason if reason == Reason::DeadlineExceeded as u8 => Some(Reason::DeadlineExceeded),
            reason if reason == Reason::ShutDown as u8 => Some(Reason::ShutDown),
            reason if reason == Reason::LostRace as u8 => Some(Reason::LostRace),
            _ => None,
        }
    }

    /// This scope and those around it, the nearest first.
    fn around(&self) -> impl Iterator<Item = &Scope<'run>> {
        std::iter::successors(Some(self), |scope| scope.up)
    }
}
