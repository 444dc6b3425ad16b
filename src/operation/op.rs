//! A closure with rules beside it.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use super::{Answer, Function, Operation};
use crate::attempt::Attempt;
use crate::error::{ConfigError, Error};
use crate::judge::sealed::Judgement;
use crate::judge::{AttemptsFor, Classify, RetryAfter, RetryIf};
use crate::outcome::Outcome;
use crate::policy::Call;
use crate::verdict::Verdict;

/// A closure with rules beside it, for [`try_op`](crate::try_op) and [`Executor::run_op`](crate::Executor::run_op).
///
/// The same rules exist as policies in [`judge`](crate::judge), for sharing; here the types are known, so that the
/// closures need no annotation. They apply in the order in which they are written.
///
/// ```
/// # use steadfast::{Context, Retry, op, try_op};
/// # let clock = steadfast::clock::Clock::manual();
/// # clock.block_on(async {
/// # let cx = Context::new().with_clock(&clock);
/// let find = op(|_| async { Err::<(), _>(404) }).retry_if(|status| *status >= 500);
/// assert_eq!(try_op(&cx, find, Retry::exponential()).await.unwrap_err().attempts(), 1);
/// # });
/// ```
pub fn op<T, E, F, Fut>(f: F) -> Op<T, E, F, ()>
where
    F: Fn(Attempt) -> Fut + Sync,
    Fut: Future<Output: Answer<T, E>> + Send,
{
    Op { function: Function(f), judgement: (), refused: None, types: PhantomData }
}

/// See [`op`].
#[must_use = "an operation does nothing until it is run"]
pub struct Op<T, E, F, J> {
    function: Function<F>,
    judgement: J,
    refused: Option<ConfigError>,
    types: PhantomData<fn() -> (T, E)>,
}

impl<T, E, F, J> Op<T, E, F, J> {
    /// Makes errors for which `predicate` is false permanent. See [`judge::retry_if`](crate::judge::retry_if).
    pub fn retry_if<P: Fn(&E) -> bool + Send + Sync>(self, predicate: P) -> Op<T, E, F, (J, RetryIf<P>)> {
        self.judged(RetryIf(predicate))
    }

    /// Reads from an error how long to stay away. See [`judge::retry_after`](crate::judge::retry_after).
    pub fn retry_after<H>(self, hint: H) -> Op<T, E, F, (J, RetryAfter<H>)>
    where
        H: Fn(&E) -> Option<Duration> + Send + Sync,
    {
        self.judged(RetryAfter(hint))
    }

    /// Allows at most `n` attempts of a run to end with this kind of error. See
    /// [`judge::attempts_for`](crate::judge::attempts_for).
    pub fn attempts_for<K>(self, n: u32, kind: K) -> Op<T, E, F, (J, AttemptsFor<K>)>
    where
        K: Fn(&E) -> bool + Send + Sync,
    {
        let op = self.judged(AttemptsFor { n, kind });
        Op { refused: op.refused.or_else(|| AttemptsFor::<K>::refuse(n)), ..op }
    }

    /// Judges every result with a function, values too. See [`judge::classify`](crate::judge::classify).
    pub fn classify<C>(self, judge: C) -> Op<T, E, F, (J, Classify<C>)>
    where
        C: Fn(&Result<T, Error<E>>) -> Verdict + Send + Sync,
    {
        self.judged(Classify(judge))
    }

    fn judged<K>(self, judgement: K) -> Op<T, E, F, (J, K)> {
        Op {
            function: self.function,
            judgement: (self.judgement, judgement),
            refused: self.refused,
            types: PhantomData,
        }
    }
}

impl<T, E, F, Fut, J> Operation<T, E> for Op<T, E, F, J>
where
    F: Fn(Attempt) -> Fut + Sync,
    Fut: Future<Output: Answer<T, E>> + Send,
    J: Judgement<T, E>,
{
    #[inline]
    fn call(&self, attempt: Attempt) -> impl Future<Output = Outcome<T, E>> + Send {
        self.function.call(attempt)
    }

    #[inline]
    fn judge(&self, call: Call<'_, E>, outcome: Outcome<T, E>) -> Outcome<T, E> {
        self.judgement.revise(call, outcome)
    }

    fn check(&self) -> Result<(), ConfigError> {
        self.refused.clone().map_or(Ok(()), Err)
    }
}

impl<T, E, F, J> fmt::Debug for Op<T, E, F, J> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Op").finish_non_exhaustive()
    }
}
