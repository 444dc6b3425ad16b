//! The outermost frame of a run: begins it, and ends it with what only the run knows.

mod race;

use std::mem;
use std::time::Duration;

use self::race::{Race, Seat};
use crate::attempt::Attempt;
use crate::cancel::Cause;
use crate::context::Context;
use crate::error::{ConfigError, Error};
use crate::event::{Observers, RunEnd};
use crate::operation::{Answer, Function, Leaf, Operation};
use crate::outcome::{Mark, Ruling, Tail};
use crate::policy::{Call, Outcome, Policy, Site};
use crate::run::{Core, Frame, Last, Scope, Setup, Stopped};
use crate::verdict::Verdict;

/// Runs an operation once through `policies`, the first being the outermost.
///
/// The operation is a closure that is called for every attempt. Its `Ok` is a success and any `Err` is taken to be worth
/// another attempt: **tell it which errors are permanent**, see [`operation`](crate::operation).
///
/// For more than one call to the same dependency build an [`Executor`](crate::Executor).
///
/// ```
/// use std::time::Duration;
/// use steadfast::{Context, Retry, Timeout, try_do};
///
/// # let clock = steadfast::clock::Clock::manual();
/// # clock.block_on(async {
/// # let cx = Context::new().with_clock(&clock);
/// let policies = (Retry::exponential(), Timeout::secs(2));
/// let answer = try_do(&cx, |attempt| async move {
///     if attempt.is_retry() { Ok("at last") } else { Err("busy") }
/// }, policies).await;
/// assert_eq!(answer.unwrap(), "at last");
/// # });
/// ```
///
/// # Errors
/// An [`Error`] that says why there is no result. Settings that cannot work end the run with
/// [`Kind::Misconfigured`](crate::error::Kind::Misconfigured) before anything is started. An already cancelled context runs
/// nothing either.
///
/// # Panics
/// On the default clock, if something has to wait outside of a tokio runtime with a timer. A panic of the operation reaches
/// the caller.
///
/// # Cancel safety
/// Dropping the future drops the running attempt and gives everything back: permits, places, timers.
#[inline(always)]
pub fn try_do<T, E, F, Fut, P>(cx: &Context, f: F, policies: P) -> impl Future<Output = Result<T, Error<E>>>
where
    T: Send,
    E: Send,
    F: Fn(Attempt) -> Fut + Sync,
    Fut: Future<Output: Answer<T, E>> + Send,
    P: Policy<T, E>,
{
    try_op(cx, Function(f), policies)
}

/// [`try_do`] for an operation that has more to say than a closure: see [`op`](crate::op) and [`Operation`].
///
/// # Errors
/// As [`try_do`].
///
/// # Cancel safety
/// As [`try_do`].
#[inline(always)]
pub fn try_op<T, E, O, P>(cx: &Context, operation: O, policies: P) -> impl Future<Output = Result<T, Error<E>>>
where
    T: Send,
    E: Send,
    O: Operation<T, E>,
    P: Policy<T, E>,
{
    async move {
        if let Err(refused) = policies.validate(&mut Site::new(cx.clock())) {
            return Err(Error::misconfigured(refused));
        }
        let setup = Setup {
            name: None,
            clock: cx.clock().clone(),
            rng: None,
            observers: Observers::default(),
            life: None,
            budget: None,
        };
        drive(&setup, cx, operation, &policies).await
    }
}

/// What came of a run, with more detail than its result.
#[allow(unnameable_types, unreachable_pub, reason = "the sealed traits of adapters name it, where there are any")]
#[derive(Debug)]
pub struct Ended<T, E> {
    pub(crate) result: Result<T, Error<E>>,
    #[cfg_attr(
        not(any(feature = "reqwest", feature = "tower")),
        allow(dead_code, reason = "only adapters hold what outlives a run")
    )]
    pub(crate) tail: Tail,
    pub(crate) stopped: Stopped,
    pub(crate) attempts: u32,
    pub(crate) elapsed: Duration,
}

/// What a caller of [`drive`] wants of it: all, or the result alone. A mapping future around it would be one more layer.
pub(crate) trait Finish<T, E> {
    fn finish(core: &Core<'_>, frame: &Frame<'_, E>, outcome: Outcome<T, E>) -> Self;
}

/// Runs an operation through a chain that was validated.
// A block that captures its arguments: an `async fn` would store each of them twice.
#[inline(always)]
pub(crate) fn drive<'a, T, E, O, P, R>(
    setup: &'a Setup,
    cx: &'a Context,
    operation: O,
    policies: &P,
) -> impl Future<Output = R>
where
    T: Send,
    E: Send,
    O: Operation<T, E>,
    P: Policy<T, E>,
    R: Finish<T, E>,
{
    let core = Core::new(setup, cx);
    async move {
        let ending = Ending(&core);
        let ended = {
            let last = Last::new();
            let frame = Frame { scope: Scope::root(&core), last: &last };
            if let Some(error) = begin(&core, &frame, || operation.check()) {
                R::finish(&core, &frame, Outcome::new(Err(error), Verdict::Ignored))
            } else {
                // The chain is dropped at the end of this statement, after the scope was told why.
                let raced = Race {
                    chain: policies.run(Call::first(&frame, operation.streams()), Leaf(&operation)),
                    seat: Seat::new(&frame.scope),
                }
                .await;
                match raced {
                    Some(outcome) => R::finish(&core, &frame, outcome),
                    None => R::finish(&core, &frame, Outcome::new(Err(given_up(&frame)), Verdict::Ignored)),
                }
            }
        };
        ending.was_told();
        ended
    }
}

/// The error of a run that was ended from outside: before it began, or while its chain was pending. (Cold functions return
/// errors, which are a word, and not outcomes: one that does keeps the outcome in memory on the path that is not cold.)
#[cold]
#[inline(never)]
fn ended<E>(frame: &Frame<'_, E>, cause: Cause) -> Error<E> {
    frame.stop(Stopped::Ended(cause));
    Error::refused(cause.into())
}

/// [`ended`] while its chain was pending.
#[cold]
#[inline(never)]
fn given_up<E>(frame: &Frame<'_, E>) -> Error<E> {
    let cause = frame.scope.cause().expect("a chain is given up by its seat, which says why");
    ended(frame, cause)
}

/// Begins the run, or says why it may not. An already cancelled context runs nothing and takes nothing.
#[inline(always)]
fn begin<E>(core: &Core<'_>, frame: &Frame<'_, E>, check: impl Fn() -> Result<(), ConfigError>) -> Option<Error<E>> {
    let open = core.life().is_none_or(|life| life.is_open());
    if open && core.starts_plain() && check().is_ok() {
        return None;
    }
    begin_slow(core, frame, check)
}

#[cold]
#[inline(never)]
fn begin_slow<E>(
    core: &Core<'_>,
    frame: &Frame<'_, E>,
    check: impl Fn() -> Result<(), ConfigError>,
) -> Option<Error<E>> {
    core.begin();
    if core.life().is_some_and(|life| !life.is_open()) {
        return Some(ended(frame, Cause::ShutDown));
    }
    if core.context.max_attempts() == Some(0) {
        let config = ConfigError::new("Context::with_max_attempts", 0, "must be at least 1");
        return Some(Error::misconfigured(config));
    }
    if let Err(config) = check() {
        return Some(Error::misconfigured(config));
    }
    core.ended().map(|cause| ended(frame, cause))
}

impl<T, E> Finish<T, E> for Result<T, Error<E>> {
    #[inline(always)]
    fn finish(core: &Core<'_>, frame: &Frame<'_, E>, outcome: Outcome<T, E>) -> Self {
        let Outcome { result, ruling, tail: _ } = outcome;
        match result {
            Ok(value) => {
                if core.has_to_tell() {
                    succeed(core, frame, ruling);
                }
                Ok(value)
            }
            Err(mut error) => {
                close(core, frame, Some(&mut error), ruling);
                Err(error)
            }
        }
    }
}

impl<T, E> Finish<T, E> for Ended<T, E> {
    fn finish(core: &Core<'_>, frame: &Frame<'_, E>, outcome: Outcome<T, E>) -> Self {
        let Outcome { mut result, ruling, tail } = outcome;
        let Closed { stopped, attempts, elapsed } = close(core, frame, result.as_mut().err(), ruling);
        Ended { result, tail, stopped, attempts, elapsed }
    }
}

/// Tells of the end of a run that nobody has finished: everything that it held is gone before this.
struct Ending<'a>(&'a Core<'a>);

impl Ending<'_> {
    /// The run was finished, which leaves nothing to tell.
    #[inline(always)]
    #[expect(clippy::mem_forget, reason = "it has nothing to give back: it only runs where nobody has told")]
    fn was_told(self) {
        mem::forget(self);
    }
}

impl Drop for Ending<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.0.has_to_tell() {
            self.0.finish_dropped();
        }
    }
}

/// A run has ended well of which somebody has to be told.
#[cold]
#[inline(never)]
fn succeed<E>(core: &Core<'_>, frame: &Frame<'_, E>, ruling: Ruling) {
    if core.is_observed() {
        close(core, frame, None, ruling);
    } else {
        core.end();
    }
}

/// What only the run knows of its end.
struct Closed {
    stopped: Stopped,
    attempts: u32,
    elapsed: Duration,
}

/// Fills in what only the run knows, and tells the observers.
#[cold]
#[inline(never)]
fn close<E>(core: &Core<'_>, frame: &Frame<'_, E>, mut error: Option<&mut Error<E>>, ruling: Ruling) -> Closed {
    let (attempts, verdict) = (core.attempts(), ruling.verdict());
    // A refusal has taken no time that would be worth a look at the clock, and the end of an observed attempt had one.
    let has_looked = attempts == 0 || core.is_observed();
    let elapsed = if has_looked { core.elapsed_before_poll() } else { core.elapsed() };
    let mut stopped = frame.stopped();
    if let Some(error) = &mut error {
        // A failure that arrives together with the caller's cancellation is that cancellation, as far as the caller cares.
        if !verdict.is_answer()
            && verdict != Verdict::Ignored
            && let Some(cause) = core.ended()
        {
            error.set_kind(cause.into());
            stopped = Some(Stopped::Ended(cause));
        }
        error.set_attempts(attempts);
        error.set_name(core.setup.name);
        error.set_ruling(ruling);
        frame.attach_to(error);
        if elapsed > Duration::ZERO {
            error.set_elapsed(elapsed);
        }
    }
    let stopped = stopped.unwrap_or(match (ruling.mark(), verdict) {
        (Mark::Stop, _) => Stopped::Forbidden,
        (_, Verdict::Rejected { .. }) => Stopped::Rejected,
        _ => Stopped::Settled,
    });
    core.end();
    let end = || error.map_or_else(|| RunEnd::Value(ruling.verdict()), |error| RunEnd::Error(error.kind()));
    core.finish(end, Some(stopped), attempts, elapsed);
    Closed { stopped, attempts, elapsed }
}
