//! Judging policies: what an outcome is worth, said once, innermost, for every policy around it.

use std::time::Duration;

use self::sealed::Judgement;
use crate::error::{ConfigError, Error, Kind};
use crate::outcome::Mark;
use crate::policy::{Call, Next, Outcome, Policy, Settings, Site};
use crate::verdict::{Classified, Verdict};

/// Says with a predicate which errors are worth another attempt: `false` makes a `Transient` or `Throttled` outcome
/// `Permanent`, for retries, breakers and hedges alike.
///
/// ```
/// # use steadfast::{Context, Retry, judge::retry_if, try_do};
/// # let clock = steadfast::clock::Clock::manual();
/// # clock.block_on(async {
/// # let cx = Context::new().with_clock(&clock);
/// let policies = (Retry::exponential(), retry_if(|code: &u16| *code >= 500));
/// let error = try_do(&cx, |_| async { Err::<(), u16>(404) }, policies).await.unwrap_err();
/// assert_eq!(error.attempts(), 1);
/// # });
/// ```
pub fn retry_if<E, F: Fn(&E) -> bool>(predicate: F) -> Judged<RetryIf<F>> {
    Judged::new("retry_if", RetryIf(predicate))
}

/// Reads from an error how long the dependency wants to be left alone: `Some` makes a `Transient` outcome `Throttled`.
pub fn retry_after<E, F: Fn(&E) -> Option<Duration>>(hint: F) -> Judged<RetryAfter<F>> {
    Judged::new("retry_after", RetryAfter(hint))
}

/// Allows at most `n` attempts of one run to end with an error of this kind. The `n`-th ends the run, whatever else would
/// be allowed, and is not counted by a circuit breaker. Of several, the innermost that matches counts an error.
pub fn attempts_for<E, F: Fn(&E) -> bool>(n: u32, kind: F) -> Judged<AttemptsFor<F>> {
    Judged { refused: AttemptsFor::<F>::refuse(n), ..Judged::new("attempts_for", AttemptsFor { n, kind }) }
}

/// Judges every result with a function, values too.
///
/// ```
/// # use steadfast::{Context, Error, Retry, Verdict, judge::classify, try_do};
/// # let clock = steadfast::clock::Clock::manual();
/// # clock.block_on(async {
/// # let cx = Context::new().with_clock(&clock);
/// let judge = classify(|result: &Result<u16, Error<String>>| match result {
///     Ok(503) => Verdict::Transient,
///     Ok(_) => Verdict::Success,
///     Err(_) => Verdict::Transient,
/// });
/// let status = try_do(&cx, |attempt| async move { Ok(if attempt.is_retry() { 200 } else { 503 }) },
///     (Retry::exponential(), judge)).await;
/// assert_eq!(status.unwrap(), 200);
/// # });
/// ```
pub fn classify<T, E, F: Fn(&Result<T, Error<E>>) -> Verdict>(judge: F) -> Judged<Classify<F>> {
    Judged::new("classify", Classify(judge))
}

/// Judges every result with a [`Judge`], a type that can be named where a closure cannot: in the type of a struct field.
pub fn judged_by<J>(judge: J) -> Judged<JudgedBy<J>> {
    Judged::new("judged_by", JudgedBy(judge))
}

/// Judges errors by what they know of themselves, see [`Classified`].
#[must_use]
pub fn by_error() -> Judged<ByError> {
    Judged::new("by_error", ByError)
}

/// Judges results; see [`judged_by`].
pub trait Judge<T, E>: Send + Sync {
    /// What the result is worth.
    fn judge(&self, result: &Result<T, Error<E>>) -> Verdict;
}

/// A policy that judges what comes from inside of it. Made by the functions of this module; it belongs inside of every
/// policy that reads verdicts, and building an executor refuses another place.
#[derive(Clone, Debug)]
pub struct Judged<J> {
    name: &'static str,
    judgement: J,
    refused: Option<ConfigError>,
}

/// See [`retry_if`].
#[derive(Clone, Copy, Debug)]
pub struct RetryIf<F>(pub(crate) F);

/// See [`retry_after`].
#[derive(Clone, Copy, Debug)]
pub struct RetryAfter<F>(pub(crate) F);

/// See [`attempts_for`].
#[derive(Clone, Copy, Debug)]
pub struct AttemptsFor<F> {
    pub(crate) n: u32,
    pub(crate) kind: F,
}

/// See [`classify`].
#[derive(Clone, Copy, Debug)]
pub struct Classify<F>(pub(crate) F);

/// See [`judged_by`].
#[derive(Clone, Copy, Debug)]
pub struct JudgedBy<J>(J);

/// See [`by_error`].
#[derive(Clone, Copy, Debug)]
pub struct ByError;

impl<J> Judged<J> {
    fn new(name: &'static str, judgement: J) -> Judged<J> {
        Judged { name, judgement, refused: None }
    }

    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        self.refused.clone().map_or(Ok(()), Err)
    }
}

impl<J> Settings for Judged<J> {
    fn validate(&self, site: &mut Site<'_>) -> Result<(), ConfigError> {
        site.judges(self.name);
        self.check()
    }
}

impl<T: Send, E: Send, J: Judgement<T, E>> Policy<T, E> for Judged<J> {
    async fn run<N: Next<T, E>>(&self, call: Call<'_, E>, next: N) -> Outcome<T, E> {
        let _tells = call.tell_if_dropped();
        let outcome = next.call(call.as_judged()).await;
        let mut untold = call.untold(outcome.ruling);
        let outcome = self.judgement.revise(call, outcome);
        if let Some(end) = &mut untold {
            end.ruling = outcome.ruling;
        }
        outcome
    }
}

pub(crate) mod sealed {
    use crate::policy::{Call, Outcome};

    /// Revises an outcome: the one seam under the judging policies and the adapters of [`op`](crate::operation::op). An
    /// outcome that must stop is not worth another thought, and is left alone.
    #[expect(unnameable_types, reason = "sealed: users bring a `Judge` or a closure")]
    pub trait Judgement<T, E>: Send + Sync {
        /// The outcome with the verdict that it is worth.
        fn revise(&self, call: Call<'_, E>, outcome: Outcome<T, E>) -> Outcome<T, E>;
    }
}

/// A judging policy, where an adapter has no place for a policy.
impl<T, E, J: Judgement<T, E>> Judgement<T, E> for Judged<J> {
    fn revise(&self, call: Call<'_, E>, outcome: Outcome<T, E>) -> Outcome<T, E> {
        self.judgement.revise(call, outcome)
    }
}

/// No judgement.
impl<T, E> Judgement<T, E> for () {
    #[inline]
    fn revise(&self, _: Call<'_, E>, outcome: Outcome<T, E>) -> Outcome<T, E> {
        outcome
    }
}

/// One judgement after the other.
impl<T, E, A: Judgement<T, E>, B: Judgement<T, E>> Judgement<T, E> for (A, B) {
    #[inline]
    fn revise(&self, call: Call<'_, E>, outcome: Outcome<T, E>) -> Outcome<T, E> {
        self.1.revise(call, self.0.revise(call, outcome))
    }
}

impl<T, E, F: Fn(&E) -> bool + Send + Sync> Judgement<T, E> for RetryIf<F> {
    fn revise(&self, _: Call<'_, E>, mut outcome: Outcome<T, E>) -> Outcome<T, E> {
        if let Some(error) = said(&outcome)
            && !(self.0)(error)
        {
            outcome.set_verdict(Verdict::Permanent);
        }
        outcome
    }
}

impl<T, E, F: Fn(&E) -> Option<Duration> + Send + Sync> Judgement<T, E> for RetryAfter<F> {
    fn revise(&self, _: Call<'_, E>, mut outcome: Outcome<T, E>) -> Outcome<T, E> {
        if let Some(error) = said(&outcome)
            && let Some(wait) = (self.0)(error)
        {
            outcome.set_verdict(Verdict::Throttled { retry_after: Some(wait) });
        }
        outcome
    }
}

impl<F> AttemptsFor<F> {
    pub(crate) fn refuse(n: u32) -> Option<ConfigError> {
        (n == 0).then(|| ConfigError::new("attempts_for", n, "must be at least 1"))
    }
}

impl<T, E, F: Fn(&E) -> bool + Send + Sync> Judgement<T, E> for AttemptsFor<F> {
    fn revise(&self, call: Call<'_, E>, mut outcome: Outcome<T, E>) -> Outcome<T, E> {
        let matches = outcome.mark() == Mark::None && said(&outcome).is_some_and(|error| (self.kind)(error));
        if matches {
            outcome.set_mark(Mark::Counted);
            let address = std::ptr::from_ref(self).addr();
            if call.frame().count(address) >= self.n {
                outcome.set_verdict(Verdict::Ignored);
                outcome.set_mark(Mark::Stop);
            }
        }
        outcome
    }
}

impl<T, E, F: Fn(&Result<T, Error<E>>) -> Verdict + Send + Sync> Judgement<T, E> for Classify<F> {
    fn revise(&self, _: Call<'_, E>, outcome: Outcome<T, E>) -> Outcome<T, E> {
        judge_anew(outcome, &self.0)
    }
}

impl<T, E, J: Judge<T, E>> Judgement<T, E> for JudgedBy<J> {
    fn revise(&self, _: Call<'_, E>, outcome: Outcome<T, E>) -> Outcome<T, E> {
        judge_anew(outcome, |result| self.0.judge(result))
    }
}

impl<T, E: Classified> Judgement<T, E> for ByError {
    fn revise(&self, _: Call<'_, E>, mut outcome: Outcome<T, E>) -> Outcome<T, E> {
        if let Some(error) = said(&outcome) {
            outcome.set_verdict(error.verdict());
        }
        outcome
    }
}

fn judge_anew<T, E>(mut outcome: Outcome<T, E>, judge: impl Fn(&Result<T, Error<E>>) -> Verdict) -> Outcome<T, E> {
    if !outcome.is_stopped() {
        outcome.set_verdict(judge(&outcome.result));
    }
    outcome
}

/// The operation's own error, if the outcome is one that the operation has thought worth another attempt.
fn said<T, E>(outcome: &Outcome<T, E>) -> Option<&E> {
    let open = !outcome.is_stopped() && matches!(outcome.verdict(), Verdict::Transient | Verdict::Throttled { .. });
    let error = outcome.result.as_ref().err().filter(|error| open && error.kind() == Kind::Failed)?;
    error.last()
}
