//! The frames that may drop what is inside of them, and say why.

use std::fmt;
use std::sync::atomic::{AtomicU8, AtomicU16, Ordering::Relaxed};

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
    /// If the scope counts, how often the operation was started inside, and 0 only before the first time. If not, what
    /// [`Call::starts`] said when the scope was opened.
    started: AtomicU16,
    /// Whether other tries may run beside what is inside. What is started inside is counted here then. Without such a scope there
    /// is one try at a time, and the run alone counts: a success has the fewer places to write to.
    counts: bool,
    /// A [`Reason`], and [`PANICKED`] if the scope counts and the operation that was started last in it has.
    said: AtomicU8,
}

/// What a policy keeps in its own frame if it may drop what is inside of it, so that permits in there learn why; and if it runs
/// several tries side by side, one for each of them, so that what is started in one of them is not taken for the doing of another.
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
    pub fn until(call: Call<'run, E>, at: Moment) -> Frame<'run, E> {
        let mut frame = Frame::around(call, at);
        frame.scope.counts = true;
        frame.scope.started = AtomicU16::new(0);
        frame
    }

    /// [`until`](Frame::until), where no other try runs beside what is inside.
    #[inline]
    pub(crate) fn around(call: Call<'run, E>, at: Moment) -> Frame<'run, E> {
        Frame { scope: call.scope_until(at), last: call.frame().last }
    }

    /// What is inside will be dropped, for `reason`. To be called before it is.
    pub fn give_up(&self, reason: Reason) {
        self.scope.give_up(reason);
    }

    /// Whether the operation was started inside.
    #[must_use]
    pub fn was_started(&self) -> bool {
        self.scope.was_started()
    }
}

impl<E> fmt::Debug for Frame<'_, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Frame").field("was_started", &self.was_started()).finish_non_exhaustive()
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
        Scope::new(core, None, core.deadline, 1, 0)
    }

    /// A scope inside of this one, opened in try `number` when so much was `started`, that ends at `at` or when this one does.
    #[inline]
    pub(super) fn inside(&'run self, at: Moment, number: u32, started: u16) -> Scope<'run> {
        Scope::new(self.core, Some(self), self.deadline.min(at), number, started)
    }

    #[inline]
    fn new(
        core: &'run Core<'run>,
        up: Option<&'run Scope<'run>>,
        deadline: Moment,
        number: u32,
        started: u16,
    ) -> Scope<'run> {
        let (started, said) = (AtomicU16::new(started), AtomicU8::new(0));
        Scope { core, up, deadline, number, started, counts: false, said }
    }

    #[inline]
    pub(super) fn counts(&self) -> bool {
        self.counts
    }

    /// See [`Call::starts`].
    #[cold]
    pub(super) fn starts(&self) -> u16 {
        self.counting().next().map_or(self.core.starts(), |scope| scope.started.load(Relaxed))
    }

    /// Whether the operation was started inside.
    pub(crate) fn was_started(&self) -> bool {
        let before = if self.counts { 0 } else { self.started.load(Relaxed) };
        self.starts() != before
    }

    /// When a limit of this scope at `at` needs a timer: never, if a nearer limit outside will end everything before.
    // By value: a comparison in the policy itself would borrow `at`, and keep it in the future of every call.
    #[inline]
    pub(crate) fn alarm_at(&self, at: Moment) -> Moment {
        if self.deadline < at { Moment::NEVER } else { at }
    }

    pub(crate) fn give_up(&self, reason: Reason) {
        self.said.store(self.said.load(Relaxed) & PANICKED | reason as u8, Relaxed);
    }

    /// The operation is started once more, in a scope that counts or inside of one.
    #[cold]
    pub(super) fn count(&self) {
        for scope in self.counting() {
            scope.started.store(scope.started.load(Relaxed).checked_add(1).unwrap_or(1), Relaxed);
            scope.said.store(scope.said.load(Relaxed) & !PANICKED, Relaxed);
        }
    }

    /// The operation's own poll unwinds.
    #[cold]
    pub(super) fn mark_panicked(&self) {
        self.core.mark_panicked();
        self.counting().for_each(|scope| scope.said.store(scope.said.load(Relaxed) | PANICKED, Relaxed));
    }

    /// Why a permit of try `number` is being dropped. `started` is what [`Call::starts`] said when the permit was given.
    #[cold]
    pub(crate) fn fate(&self, number: u32, started: u16) -> Fate {
        // A panic that somebody has caught stays in mind until the next start, which the permit may not have come to.
        if self.has_panicked() && self.starts() != started {
            return Fate::Failed;
        }
        let Some((scope, reason)) = self.around().find_map(|scope| Some((scope, scope.reason()?))) else {
            return Fate::Abandoned;
        };
        match reason {
            Reason::LostRace => Fate::LostRace,
            Reason::TimedOut if self.starts() == started => Fate::NeverStarted,
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

    /// What the run was ended by from outside, if this is its outermost scope and it was.
    pub(crate) fn cause(&self) -> Option<Cause> {
        match self.reason()? {
            Reason::Cancelled => Some(Cause::Cancelled),
            Reason::DeadlineExceeded => Some(Cause::DeadlineExceeded),
            Reason::ShutDown => Some(Cause::ShutDown),
            Reason::TimedOut | Reason::LostRace => None,
        }
    }

    /// Whether the operation that was started last has, of those that may be meant.
    pub(super) fn has_panicked(&self) -> bool {
        match self.counting().next() {
            Some(scope) => scope.said.load(Relaxed) & PANICKED != 0,
            None => self.core.has_panicked(),
        }
    }

    fn reason(&self) -> Option<Reason> {
        match self.said.load(Relaxed) & !PANICKED {
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

    /// Those of them that count.
    fn counting(&self) -> impl Iterator<Item = &Scope<'run>> {
        self.around().filter(|scope| scope.counts)
    }
}

/// Above all reasons.
const PANICKED: u8 = 1 << 7;
