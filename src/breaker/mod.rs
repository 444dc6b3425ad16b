//! A circuit breaker: while a dependency fails, calls are refused at once, and a single trial finds out when it is back.
//!
//! * [`Breaker`] is the handle: clones share state, and one breaker serves calls of any result type.
//! * [`BreakerConfig`] is the settings, [`TripRule`] when it opens.
//! * [`Permit`] is for calls that are not run through a chain.
//!
//! The [`guide`] has the states and their changes, how to choose numbers, and when a breaker does harm.

mod config;
mod count_window;
mod family;
#[doc = include_str!("guide.md")]
pub mod guide {}
mod half_open;
mod handle;
mod keyed;
mod listeners;
mod open_time;
mod permit;
mod rule;
mod seen;
mod state;
mod streak;
mod stream;
mod tally;
mod thresholds;
mod ticket;
mod totals;
mod transition;

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project::pin_project;

pub use self::config::{
    AbandonedTrial, BreakerConfig, DEFAULT_OPEN_JITTER, DEFAULT_OPEN_TIME, DEFAULT_SUCCESSES_TO_CLOSE, DEFAULT_TRIALS,
};
pub use self::handle::Breaker;
use self::permit::{Held, LateFailure};
pub use self::permit::{Permit, Rejected};
pub use self::rule::{
    DEFAULT_BUCKET_WIDTH, DEFAULT_BUCKETS, DEFAULT_FAILURE_RATE, DEFAULT_FAILURE_THRESHOLD, DEFAULT_MINIMUM_CALLS,
    DEFAULT_SLOW_CALL, MAX_BUCKETS, MAX_COUNT_WINDOW, MIN_BUCKET_WIDTH, TripRule,
};
pub use self::stream::GuardedStream;
pub use self::transition::{Cause, Counts, State, Transition};
use crate::error::Error;
use crate::event::What;
use crate::policy::{Call, Next, Outcome, Policy};

impl<T: Send, E: Send> Policy<T, E> for Breaker {
    #[inline(always)]
    fn run<N: Next<T, E>>(&self, call: Call<'_, E>, next: N) -> impl Future<Output = Outcome<T, E>> + Send {
        Guarded { start: N::call, stage: Stage::Fresh { breaker: self, call, next } }
    }
}

/// One call through a breaker: asks for admission when it is first polled, and settles the permit with what the rest of the
/// chain ends with.
// By hand: what is needed only before the admission shares its place with what is needed only after it.
#[pin_project]
struct Guarded<'a, 'run, E, N, S, F> {
    /// Makes the future, whose type has no name.
    start: S,
    #[pin]
    stage: Stage<'a, 'run, E, N, F>,
}

#[pin_project(project = StageProjection, project_replace = StageReplaced)]
enum Stage<'a, 'run, E, N, F> {
    Fresh {
        breaker: &'a Breaker,
        call: Call<'run, E>,
        next: N,
    },
    /// The fields are dropped in this order: the permit learns of its end when everything inside is gone.
    Admitted {
        #[pin]
        inner: F,
        permit: Held<'a, 'run, E>,
    },
    Settled,
}

impl<'a, 'run, T, E, N, S, F> Future for Guarded<'a, 'run, E, N, S, F>
where
    N: Next<T, E>,
    S: Fn(N, Call<'run, E>) -> F,
    F: Future<Output = Outcome<T, E>>,
{
    type Output = Outcome<T, E>;

    #[inline(always)]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Outcome<T, E>> {
        let mut this = self.project();
        if let StageProjection::Fresh { breaker, call, next } = this.stage.as_mut().project() {
            let (breaker, call, next) = (*breaker, *call, *next);
            let ticket = match breaker.core().try_acquire(call.now(), || next.limit()) {
                Ok(ticket) => ticket,
                Err(refused) => return Poll::Ready(breaker.refuse(call, refused)),
            };
            let permit = Held::new(breaker, ticket, call);
            let call = if ticket.is_trial() { call.as_trial() } else { call };
            this.stage.set(Stage::Admitted { inner: (this.start)(next, call), permit });
        }
        // Always admitted here, unless it is polled again after its end.
        let StageProjection::Admitted { inner, .. } = this.stage.as_mut().project() else { return Poll::Pending };
        let outcome = ready!(inner.poll(cx));
        if let StageReplaced::Admitted { permit, .. } = this.stage.project_replace(Stage::Settled)
            && let Some(breaker) = permit.settle(outcome.verdict)
        {
            return Poll::Ready(breaker.watch_tail(outcome));
        }
        Poll::Ready(outcome)
    }
}

impl Breaker {
    #[cold]
    fn refuse<T, E>(&self, call: Call<'_, E>, refused: ticket::Refused) -> Outcome<T, E> {
        let kind = refused.kind();
        call.emit(|| What::Rejected { kind });
        let mut error = Error::refused(kind);
        error.set_name(self.name());
        Outcome::rejected(error)
    }

    /// A result that outlives the run may still fail: leaves somebody behind who tells. One that is a failure already counts
    /// once.
    #[cold]
    fn watch_tail<T, E>(&self, mut outcome: Outcome<T, E>) -> Outcome<T, E> {
        if outcome.result.is_ok() && !outcome.verdict.is_failure() {
            outcome.tail_mut().push(LateFailure::new(self.clone()));
        }
        outcome
    }
}
