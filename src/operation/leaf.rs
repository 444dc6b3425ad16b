//! The last link of a chain, which starts the operation, and the adapters from closure to closure.

use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use pin_project::{pin_project, pinned_drop};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{Answer, Operation};
use crate::attempt::Attempt;
use crate::error::{Error, Kind, Limit};
use crate::outcome::{Outcome, Ruling};
use crate::policy::{Call, Next};
use crate::verdict::{Classified, Verdict};

/// The last link of a chain.
pub(crate) struct Leaf<'a, O>(pub(crate) &'a O);

impl<O> Clone for Leaf<'_, O> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}

impl<O> Copy for Leaf<'_, O> {}

impl<'a, T: Send, E: Send, O: Operation<T, E>> Next<T, E> for Leaf<'a, O> {
    #[inline(always)]
    fn call(self, call: Call<'_, E>) -> impl Future<Output = Outcome<T, E>> + Send {
        Try { operation: self.0, call, start: |operation: &'a O, attempt| operation.call(attempt), running: None }
    }

    #[inline]
    fn repeat(self, after: Option<&Outcome<T, E>>) -> Result<(), &'static str> {
        self.0.repeat(after)
    }

    fn limit(self) -> Option<Duration> {
        self.0.limit()
    }

    #[inline]
    fn discard(self, value: T) -> impl Future<Output = ()> + Send {
        self.0.discard(value)
    }
}

/// One try: starts the operation when it is first polled, judges what it ends with, and says so if it unwinds.
// By hand, as few fields as there are: an `async` block would be twice the size, in every chain.
#[pin_project(PinnedDrop)]
struct Try<'a, 'run, E, O, S, F> {
    operation: &'a O,
    call: Call<'run, E>,
    /// Makes the future, whose type has no name.
    start: S,
    /// Taken out at its end if somebody observes the run, who is told of one that is dropped before.
    #[pin]
    running: Option<F>,
}

impl<'a, T, E, O, S, F> Future for Try<'a, '_, E, O, S, F>
where
    O: Operation<T, E>,
    S: Fn(&'a O, Attempt) -> F,
    F: Future<Output = Outcome<T, E>>,
{
    type Output = Outcome<T, E>;

    #[inline(always)]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Outcome<T, E>> {
        let mut this = self.project();
        let call = *this.call;
        if this.running.is_none() {
            if !call.start() {
                return Poll::Ready(Outcome::new(Err(used_up(call)), Verdict::Rejected { retry_after: None }));
            }
            let future = call.blame(|| (this.start)(this.operation, call.attempt()));
            this.running.set(Some(future));
        }
        // Always there: it was set just above, and is taken out only at its end.
        let Some(running) = this.running.as_mut().as_pin_mut() else { return Poll::Pending };
        let outcome = ready!(call.blame(|| running.poll(cx)));
        let Outcome { result, ruling, tail } = this.operation.judge(call, outcome);
        if call.is_observed() {
            finished(call, this.running, ruling);
        }
        Poll::Ready(Outcome { result, ruling, tail })
    }
}

/// The caller allows no further attempt. Retries and hedges look before they begin one; but of two that were begun side by side,
/// and have waited in queues further inside, one may be too many.
#[cold]
#[inline(never)]
fn used_up<E>(call: Call<'_, E>) -> Error<E> {
    let mut error = Error::refused(Kind::Exhausted { by: Limit::Attempts });
    call.attach_last(&mut error);
    error
}

/// Tells the observers. The ruling alone, which fits into a register: a function that sees the outcome, or returns one, keeps it
/// in memory, also where nobody looks.
#[cold]
#[inline(never)]
fn finished<E, F>(call: Call<'_, E>, mut running: Pin<&mut Option<F>>, ruling: Ruling) {
    call.blame(|| running.set(None));
    call.attempt_finished(ruling);
}

#[pinned_drop]
impl<E, O, S, F> PinnedDrop for Try<'_, '_, E, O, S, F> {
    #[inline(always)]
    fn drop(self: Pin<&mut Self>) {
        if self.running.is_some() {
            self.call.attempt_abandoned();
        }
    }
}

/// A closure as an operation.
pub(crate) struct Function<F>(pub(crate) F);

impl<T, E, F, Fut> Operation<T, E> for Function<F>
where
    F: Fn(Attempt) -> Fut + Sync,
    Fut: Future<Output: Answer<T, E>> + Send,
{
    #[inline(always)]
    fn call(&self, attempt: Attempt) -> impl Future<Output = Outcome<T, E>> + Send {
        Judging { future: (self.0)(attempt), types: PhantomData }
    }
}

/// Turns the answer of a closure into an outcome. Named fields and one poll: an `async` block would move the answer twice.
#[pin_project]
struct Judging<F, T, E> {
    #[pin]
    future: F,
    types: PhantomData<fn() -> (T, E)>,
}

impl<T, E, F: Future<Output: Answer<T, E>>> Future for Judging<F, T, E> {
    type Output = Outcome<T, E>;

    #[inline(always)]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Outcome<T, E>> {
        self.project().future.poll(cx).map(Answer::judged)
    }
}

/// Gives the closure a token for work that it spawns: cancelled when the attempt is abandoned (dropped before its end, as by
/// a timeout or a cancelled caller), not when it completes.
///
/// ```
/// # use steadfast::{Context, Timeout, try_do, operation::with_token};
/// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() {
/// let cx = Context::new();
/// let run = try_do(&cx, with_token(|_, token| async move {
///     let work = tokio::spawn(async move { token.cancelled().await; "stopped" });
///     work.await.map_err(|_| "the task died")
/// }), Timeout::millis(50));
/// assert!(run.await.unwrap_err().is_timeout());
/// # }
/// ```
pub fn with_token<F, Fut>(f: F) -> impl Fn(Attempt) -> WithToken<Fut>
where
    F: Fn(Attempt, CancellationToken) -> Fut,
    Fut: Future,
{
    move |attempt| {
        let token = CancellationToken::new();
        // Before the call: a closure that has spawned work may still panic.
        let abandoned = Some(token.clone().drop_guard());
        WithToken { future: f(attempt, token), abandoned }
    }
}

/// The future of a closure behind [`with_token`].
#[pin_project]
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct WithToken<F> {
    #[pin]
    future: F,
    /// Cancels the token when it is dropped; taken out when the attempt completes.
    abandoned: Option<DropGuard>,
}

impl<F: Future> Future for WithToken<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let answer = this.future.poll(cx);
        if answer.is_ready()
            && let Some(guard) = this.abandoned.take()
        {
            guard.disarm();
        }
        answer
    }
}

/// An operation that runs another chain and returns its [`Error`]: refusals of the inner chain are rejections here, its
/// cancellation says nothing, and what it judged final stays final. The caller gets one `Error<E>`, not an error in an error.
///
/// ```
/// # use steadfast::{Context, Executor, Retry, operation::nested, try_op};
/// # let clock = steadfast::clock::Clock::manual();
/// # clock.block_on(async {
/// # let cx = Context::new().with_clock(&clock);
/// let inner = Executor::builder("inner").clock(&clock).build().unwrap();
/// inner.close();
/// let outer = nested(|_| inner.run(|_| async { Ok::<_, String>(7) }));
/// let error = try_op(&cx, outer, Retry::exponential()).await.unwrap_err();
/// assert_eq!((error.attempts(), error.policy()), (1, Some("inner")));
/// # });
/// ```
pub fn nested<T, E, F, Fut>(f: F) -> Nested<F>
where
    F: Fn(Attempt) -> Fut + Sync,
    Fut: Future<Output = Result<T, Error<E>>> + Send,
{
    Nested(f)
}

/// See [`nested`].
#[derive(Clone, Copy, Debug)]
pub struct Nested<F>(F);

impl<T, E, F, Fut> Operation<T, E> for Nested<F>
where
    F: Fn(Attempt) -> Fut + Sync,
    Fut: Future<Output = Result<T, Error<E>>> + Send,
{
    fn call(&self, attempt: Attempt) -> impl Future<Output = Outcome<T, E>> + Send {
        let future = (self.0)(attempt);
        async move {
            match future.await {
                Ok(value) => Outcome::success(value),
                Err(error) => {
                    let verdict = error.verdict();
                    Outcome::new(Err(error), verdict)
                }
            }
        }
    }
}
