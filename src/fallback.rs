//! Something else in the place of a result that failed.

use std::fmt;
use std::future::poll_fn;
use std::mem;
use std::pin::{Pin, pin};

use futures::future::OptionFuture;

use self::sealed::{Condition, Source};
use crate::error::{ConfigError, Error, Kind};
use crate::event::What;
use crate::outcome::{Ruling, Tail};
use crate::policy::{Call, Next, Outcome, Policy, Settings, Site};
use crate::run::Stopped;
use crate::verdict::Verdict;

/// Gives the caller something else in the place of a failure: a fixed value, or what a function makes of the error.
///
/// It steps in for every error, and for a value that is judged a failure (`Transient`, `Fatal` or `Throttled`, such as the last
/// response with status 503); [`when`](Fallback::when) narrows that. A `Permanent` value, such as a response with status 404,
/// is an answer, and stays.
///
/// It does **not** step in when the caller no longer wants a result: the token of its context is cancelled, its deadline has
/// passed, or the executor is shut down. Nor for settings that cannot work, which it would hide.
///
/// **Write it outermost.** What it gives is [`Verdict::Ignored`] for what is outside of it: a breaker there counts neither a
/// success nor a failure, and a retry there does not try again. A [`Timeout`](crate::Timeout) outside covers the fallback too,
/// and one inside does not.
///
/// ```
/// # use steadfast::{Context, Fallback, Retry, try_do};
/// # let clock = steadfast::clock::Clock::manual();
/// # clock.block_on(async {
/// # let cx = Context::new().with_clock(&clock);
/// let policies = (Fallback::value(vec!["bestsellers"]), Retry::exponential());
/// let shown = try_do(&cx, |_| async { Err("recommendations are down") }, policies).await;
/// assert_eq!(shown.unwrap(), ["bestsellers"]);
/// # });
/// ```
///
/// A fallback has the type of a result, so it fits operations with that result. One executor that serves several kinds of
/// operations is given a fallback for each call with [`Executor::around`](crate::Executor::around).
#[derive(Clone)]
#[must_use = "a policy does nothing until it is part of a chain"]
pub struct Fallback<S, W = Always> {
    source: S,
    when: W,
}

/// Gives the caller what `function` makes of the error, see [`Fallback`].
///
/// The function sees the error as the caller would: with its attempts, its last error, its kind. It looks at it before its
/// future begins: take out of it what the future needs. Of a bad value it sees an error that says why it was the last:
/// [`Kind::Exhausted`], or [`Kind::Failed`] if nothing was used up; the value itself is given up.
///
/// If the fallback fails as well, the caller gets *its* error, with the first one as [`source`](std::error::Error::source) and
/// [`original`](Error::original); it is worth what the first was. A panic in it reaches the caller.
///
/// ```
/// # use steadfast::{Context, Error, Retry, fallback, try_do};
/// # let clock = steadfast::clock::Clock::manual();
/// # async fn read_cache() -> Result<u32, String> { Ok(7) }
/// # clock.block_on(async {
/// # let cx = Context::new().with_clock(&clock);
/// let cached = fallback(|error: &Error<String>| {
///     eprintln!("from the cache, since {error}");
///     read_cache()
/// });
/// let rate = try_do(&cx, |_| async { Err("no route to host".to_owned()) }, (cached, Retry::exponential())).await;
/// assert_eq!(rate.unwrap(), 7);
/// # });
/// ```
pub fn fallback<T, E, F, Fut>(function: F) -> Fallback<Function<F>>
where
    F: Fn(&Error<E>) -> Fut,
    Fut: Future<Output = Result<T, E>>,
{
    Fallback { source: Function(function), when: Always }
}

impl<T> Fallback<Value<T>> {
    /// Gives a clone of `value`, whatever the error.
    pub const fn value(value: T) -> Fallback<Value<T>> {
        Fallback { source: Value(value), when: Always }
    }
}

impl<S> Fallback<S> {
    /// Steps in only for errors for which `predicate` is true; all others reach the caller. Default: for all.
    ///
    /// What an error is worth is its [`verdict`](crate::Classified::verdict). A panic in `predicate` reaches the caller.
    ///
    /// ```
    /// # use steadfast::{Error, Fallback};
    /// let closed = Fallback::value("try again later").when(|error: &Error<String>| error.is_circuit_open());
    /// ```
    pub fn when<E, W: Fn(&Error<E>) -> bool>(self, predicate: W) -> Fallback<S, When<W>> {
        Fallback { source: self.source, when: When(predicate) }
    }
}

/// See [`Fallback::value`].
#[derive(Clone, Copy, Debug)]
pub struct Value<T>(T);

/// See [`fallback`].
#[derive(Clone, Copy, Debug)]
pub struct Function<F>(F);

/// A [`Fallback`] for all errors.
#[derive(Clone, Copy, Debug)]
pub struct Always;

/// See [`Fallback::when`].
#[derive(Clone, Copy, Debug)]
pub struct When<W>(W);

impl<S, W> Settings for Fallback<S, W> {
    fn validate(&self, site: &mut Site<'_>) -> Result<(), ConfigError> {
        site.reads_verdicts("Fallback")
    }
}

impl<T: Send, E: Send, S: Source<T, E>, W: Condition<E>> Policy<T, E> for Fallback<S, W> {
    #[inline(always)]
    fn run<N: Next<T, E>>(&self, call: Call<'_, E>, next: N) -> impl Future<Output = Outcome<T, E>> + Send {
        async move {
            let outcome = next.call(call).await;
            if outcome.ruling.is_success() {
                return outcome;
            }
            self.instead(call, next, outcome).await
        }
    }
}

impl<S, W> Fallback<S, W> {
    /// Boxed and out of line: what only a failure needs must not make the future of every call larger.
    #[cold]
    #[inline(never)]
    fn instead<T, E, N>(
        &self,
        call: Call<'_, E>,
        next: N,
        outcome: Outcome<T, E>,
    ) -> Pin<Box<impl Future<Output = Outcome<T, E>> + Send>>
    where
        T: Send,
        E: Send,
        N: Next<T, E>,
        S: Source<T, E>,
        W: Condition<E>,
    {
        Box::pin(async move {
            match self.failed(call, outcome) {
                Ok(kept) => kept,
                Err(failed) => self.give(call, next, failed).await,
            }
        })
    }

    /// What is to be replaced, unless the outcome is to reach the caller.
    fn failed<T, E: Send>(&self, call: Call<'_, E>, outcome: Outcome<T, E>) -> Result<Outcome<T, E>, Failed<T, E>>
    where
        W: Condition<E>,
    {
        let Outcome { result, ruling, tail } = outcome;
        let verdict = ruling.verdict();
        let keep = |result, tail| Ok(Outcome { result, ruling, tail });
        let is_bad = verdict.is_failure() || matches!(verdict, Verdict::Throttled { .. });
        if call.ended().is_some() {
            return keep(result, tail);
        }
        let (mut error, value) = match result {
            Ok(value) if is_bad => (bad_value(call, verdict), Some(value)),
            Err(error) if error.kind() != Kind::Misconfigured => (error, None),
            kept => return keep(kept, tail),
        };
        call.describe(&mut error, ruling);
        if !self.when.holds(&error) {
            return keep(value.map_or_else(|| Err(error), Ok), tail);
        }
        // What finished policies have left behind belongs to the value that nobody will read.
        drop(tail);
        Err(Failed { error, value, ruling })
    }

    async fn give<T, E, N>(&self, call: Call<'_, E>, next: N, failed: Failed<T, E>) -> Outcome<T, E>
    where
        T: Send,
        E: Send,
        N: Next<T, E>,
        S: Source<T, E>,
    {
        let Failed { error, value, ruling } = failed;
        let kind = error.kind();
        call.emit(|| What::FellBack { error: kind });
        let mut original = Original { call, error };
        let give_up = OptionFuture::from(value.map(|value| next.discard(value)));
        let answer = beside(give_up, self.source.give(&original.error)).await;
        match answer {
            Ok(value) => Outcome::new(Ok(value), Verdict::Ignored),
            Err(own) => {
                let original = mem::replace(&mut original.error, Error::refused(kind));
                let result = Err(Error::failed(own).instead_of(original));
                Outcome { result, ruling, tail: Tail::default() }
            }
        }
    }
}

/// The error that is being replaced. If the fallback is dropped, its run still has the last error of the operation to show.
struct Original<'run, E> {
    call: Call<'run, E>,
    error: Error<E>,
}

impl<E> Drop for Original<'_, E> {
    fn drop(&mut self) {
        let error = mem::replace(&mut self.error, Error::unsaid());
        self.call.frame().keep(error, self.call.tries(), 0);
    }
}

/// The error in the place of a bad value: it says what was used up, if something was.
fn bad_value<E>(call: Call<'_, E>, verdict: Verdict) -> Error<E> {
    let mut error = Error::refused(match call.frame().stopped() {
        Some(Stopped::Limit(by)) => Kind::Exhausted { by },
        _ => Kind::Failed,
    });
    if let Verdict::Throttled { retry_after: Some(pause) } = verdict {
        error.set_retry_after(pause);
    }
    error
}

/// What a fallback is to replace.
struct Failed<T, E> {
    error: Error<E>,
    /// A bad value, if it is one.
    value: Option<T>,
    ruling: Ruling,
}

/// Waits for `answer`, and gives `side` the time that this takes.
async fn beside<R>(side: impl Future, answer: impl Future<Output = R>) -> R {
    let (mut side, mut answer) = (pin!(side), pin!(answer));
    let mut side_runs = true;
    poll_fn(|cx| {
        side_runs = side_runs && side.as_mut().poll(cx).is_pending();
        answer.as_mut().poll(cx)
    })
    .await
}

mod sealed {
    use crate::error::Error;

    /// Where the something else comes from.
    #[expect(unnameable_types, reason = "sealed: users bring a value or a closure")]
    pub trait Source<T, E>: Send + Sync {
        /// Looks at the error, and begins to make what replaces it.
        fn give(&self, error: &Error<E>) -> impl Future<Output = Result<T, E>> + Send;
    }

    /// Which errors it replaces.
    #[expect(unnameable_types, reason = "sealed: users bring a closure, or nothing")]
    pub trait Condition<E>: Send + Sync {
        /// Whether this one.
        fn holds(&self, error: &Error<E>) -> bool;
    }
}

impl<T: Clone + Send + Sync, E: Send> Source<T, E> for Value<T> {
    fn give(&self, _: &Error<E>) -> impl Future<Output = Result<T, E>> + Send {
        std::future::ready(Ok(self.0.clone()))
    }
}

impl<T, E, F, Fut> Source<T, E> for Function<F>
where
    F: Fn(&Error<E>) -> Fut + Send + Sync,
    Fut: Future<Output = Result<T, E>> + Send,
{
    fn give(&self, error: &Error<E>) -> impl Future<Output = Result<T, E>> + Send {
        (self.0)(error)
    }
}

impl<E> Condition<E> for Always {
    fn holds(&self, _: &Error<E>) -> bool {
        true
    }
}

impl<E, W: Fn(&Error<E>) -> bool + Send + Sync> Condition<E> for When<W> {
    fn holds(&self, error: &Error<E>) -> bool {
        (self.0)(error)
    }
}

impl<S, W> fmt::Debug for Fallback<S, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fallback").finish_non_exhaustive()
    }
}
