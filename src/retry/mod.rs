//! Another attempt, after a wait, for outcomes that are worth one.

mod backoff;
mod config;
mod decide;
#[cfg(feature = "serde")]
pub(crate) mod document;
mod jitter;
mod pause;
mod tries;
mod words;

use std::marker::PhantomData;
use std::ops::ControlFlow;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project::pin_project;

pub use self::backoff::{Backoff, DEFAULT_BASE, DEFAULT_CAP, DEFAULT_FACTOR};
pub use self::config::{DEFAULT_MAX_ATTEMPTS, DEFAULT_MAX_RETRY_AFTER, OnLongWait, OnRejection, Retry, RetryEvent};
pub use self::jitter::Jitter;
use self::pause::Pause;
use self::tries::Tries;
pub(crate) use self::words::RETRY_WORDS;
use crate::cancel::Cause;
use crate::error::{Error, Kind, Limit};
use crate::outcome::{Mark, Ruling};
use crate::policy::{Call, Next, Outcome, Policy, Tail};
use crate::run::Stopped;
use crate::verdict::Verdict;

impl<T: Send, E: Send + std::fmt::Debug> Policy<T, E> for Retry {
    #[inline(always)]
    fn run<N: Next<T, E>>(&self, call: Call<'_, E>, next: N) -> impl Future<Output = Outcome<T, E>> + Send {
        Trying {
            retry: self,
            next,
            start: N::call,
            pause: Pause::wait,
            tries: Tries::new(self, call),
            stage: Stage::Running(next.call(call)),
            value: PhantomData,
        }
    }
}

/// One call through a retry: try after try, and the waits between them.
// By hand: an `async` block would move each outcome once more, and check at its end what it has left to drop.
#[pin_project]
struct Trying<'a, 'run, T, E, N, S, F, P, W> {
    retry: &'a Retry,
    next: N,
    /// Makes a try, whose type has no name.
    start: S,
    /// Makes a wait.
    pause: P,
    #[pin]
    stage: Stage<F, W>,
    /// Dropped after the stage: what was drawn is given back once what it was drawn for is gone.
    tries: Tries<'run, E>,
    value: PhantomData<fn() -> T>,
}

#[pin_project(project = StageProjection)]
enum Stage<F, W> {
    Running(#[pin] F),
    /// Between two tries, with what is left of the wait.
    Waiting(Wait<W>),
}

impl<'run, T, E, N, S, F, P, W> Future for Trying<'_, 'run, T, E, N, S, F, P, W>
where
    T: Send,
    E: Send + std::fmt::Debug,
    N: Next<T, E>,
    S: Fn(N, Call<'run, E>) -> F,
    F: Future<Output = Outcome<T, E>>,
    P: Fn(Pause<T>, Call<'run, E>, N) -> W,
    W: Future<Output = ()>,
{
    type Output = Outcome<T, E>;

    #[inline(always)]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Outcome<T, E>> {
        loop {
            let ended = if let StageProjection::Running(running) = self.as_mut().project().stage.project() {
                let outcome = ready!(running.poll(cx));
                if outcome.ruling.is_final() {
                    self.project().tries.settle();
                    return Poll::Ready(outcome);
                }
                self.as_mut().decide(outcome)
            } else {
                ready!(self.as_mut().wait(cx))
            };
            if let Some(outcome) = ended {
                return Poll::Ready(*outcome);
            }
        }
    }
}

impl<'run, T, E, N, S, F, P, W> Trying<'_, 'run, T, E, N, S, F, P, W>
where
    T: Send,
    E: Send + std::fmt::Debug,
    N: Next<T, E>,
    S: Fn(N, Call<'run, E>) -> F,
    P: Fn(Pause<T>, Call<'run, E>, N) -> W,
    W: Future<Output = ()>,
{
    /// Ends the run with what it gives back, or waits for the next try; or begins it, where there is nothing to wait for.
    // Whole, and then in pieces: the pieces travel in registers, and a value that was moved whole leaves no place in the future.
    #[inline(always)]
    fn decide(self: Pin<&mut Self>, outcome: Outcome<T, E>) -> Option<Box<Outcome<T, E>>> {
        let Outcome { result, ruling, tail } = outcome;
        self.decide_slow(result, ruling, tail)
    }

    /// Out of line: the success path has no part in it. The outcome is boxed, here and below, for the sake of that path: what a
    /// function returns in memory is kept in memory there too.
    #[cold]
    #[inline(never)]
    fn decide_slow(
        mut self: Pin<&mut Self>,
        result: Result<T, Error<E>>,
        ruling: Ruling,
        tail: Tail,
    ) -> Option<Box<Outcome<T, E>>> {
        let mut this = self.as_mut().project();
        // The try is over, and gives back what it holds, before anything is decided.
        this.stage.set(Stage::Waiting(Wait(None)));
        let call = this.tries.call;
        match this.retry.decide(this.tries, *this.next, Outcome { result, ruling, tail }) {
            ControlFlow::Break(outcome) => {
                this.tries.finish();
                Some(outcome)
            }
            ControlFlow::Continue(pause) if pause.is_empty() => self.go_on(),
            ControlFlow::Continue(pause) => {
                let wait = (this.pause)(pause, call, *this.next);
                this.stage.set(Stage::Waiting(Wait(Some(Box::pin(wait)))));
                None
            }
        }
    }

    /// Waits, and begins the next try; or ends the run with what it gives back.
    #[cold]
    #[inline(never)]
    fn wait(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Box<Outcome<T, E>>>> {
        let mut this = self.as_mut().project();
        if let StageProjection::Waiting(Wait(wait)) = this.stage.as_mut().project() {
            if let Some(left) = wait {
                ready!(left.as_mut().poll(cx));
            }
            *wait = None;
        }
        if this.tries.is_over() {
            // Polled after its end, which nobody may do: that must not start another try.
            return Poll::Pending;
        }
        Poll::Ready(self.go_on())
    }

    /// Begins the next try, or ends the run: what has passed by now, and has not when the wait began?
    #[inline(always)]
    fn go_on(self: Pin<&mut Self>) -> Option<Box<Outcome<T, E>>> {
        let mut this = self.project();
        let call = this.tries.call;
        let ended = if let Some(cause) = call.ended() {
            call.frame().stop(Stopped::Ended(cause));
            Some(ended(cause))
        } else {
            this.tries.passed().map(|limit| too_late(call, limit))
        };
        if ended.is_some() {
            this.tries.finish();
        } else {
            this.tries.go_on();
            this.stage.set(Stage::Running((this.start)(*this.next, this.tries.call)));
        }
        ended
    }
}

/// The time before the next try. Boxed: what only a failed try needs must not make the future of every call larger.
struct Wait<W>(Option<Pin<Box<W>>>);

impl<W> Drop for Wait<W> {
    // Taken out, so that there is nothing left for the compiler to drop where there is no wait.
    #[inline(always)]
    fn drop(&mut self) {
        if let Some(wait) = self.0.take() {
            give_up(wait);
        }
    }
}

#[cold]
#[inline(never)]
fn give_up<W>(wait: Pin<Box<W>>) {
    drop(wait);
}

/// The outcome of a wait that has ended too late for another try; worth what the last one was.
#[cold]
#[inline(never)]
fn too_late<T, E>(call: Call<'_, E>, limit: Limit) -> Box<Outcome<T, E>> {
    call.frame().stop(Stopped::Limit(limit));
    let mut error = Error::refused(Kind::Exhausted { by: limit });
    call.attach_last(&mut error);
    Box::new(Outcome::new(Err(error), call.frame().verdict().unwrap_or(Verdict::Transient)))
}

/// The outcome of a run that was ended during the wait.
#[cold]
#[inline(never)]
fn ended<T, E>(cause: Cause) -> Box<Outcome<T, E>> {
    let mut outcome = Box::new(Outcome::new(Err(Error::refused(cause.into())), Verdict::Ignored));
    outcome.set_mark(Mark::Ended);
    outcome
}
