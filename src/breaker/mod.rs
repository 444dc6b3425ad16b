//! A circuit breaker: while a dependency fails, calls are refused at once, and a single trial finds out when it is back.
//!
//! * [`Breaker`] is the handle: clones share state, and one breaker serves calls of any result type.
//! * [`BreakerConfig`] is the settings, [`TripRule`] when it opens.
//! * [`Permit`] is for calls that are not run through a chain.
//!
//! The [`guide`] has the states and their changes, how to choose numbers, and when a breaker does harm.

mod config;
mod count_window;
#[cfg(feature = "serde")]
pub(crate) mod document;
mod family;
#[doc = include_str!("guide.md")]
pub mod guide {}
mod half_open;
mod handle;
mod held;
mod keyed;
mod listeners;
mod needs;
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
mod witness;

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project::pin_project;

pub use self::config::{
    AbandonedTrial, BreakerConfig, DEFAULT_OPEN_JITTER, DEFAULT_OPEN_TIME, DEFAULT_SUCCESSES_TO_CLOSE, DEFAULT_TRIALS,
};
pub use self::handle::Breaker;
use self::held::{Held, TurnedAway};
pub use self::permit::{Permit, Rejected};
pub use self::rule::{
    DEFAULT_BUCKET_WIDTH, DEFAULT_BUCKETS, DEFAULT_FAILURE_RATE, DEFAULT_FAILURE_THRESHOLD, DEFAULT_MINIMUM_CALLS,
    DEFAULT_SLOW_CALL, MAX_BUCKETS, MAX_COUNT_WINDOW, MIN_BUCKET_WIDTH, TripRule,
};
pub use self::stream::GuardedStream;
pub use self::transition::{Cause, Counts, State, Transition};
use crate::policy::{Call, Next, Outcome, Policy, Tail};

impl<T: Send, E: Send> Policy<T, E> for Breaker {
    #[inline(always)]
    fn run<N: Next<T, E>>(&self, call: Call<'_, E>, next: N) -> impl Future<Output = Outcome<T, E>> + Send {
        Guarded { start: N::call, rest: Rest::Ahead(next), permit: Held::none(self, call) }
    }
}

/// One call through a breaker: asks for admission when it is first polled, and settles the permit with what the rest of the
/// chain ends with.
// By hand, and nothing in it is ever moved: a struct that was just written and is then copied costs more than all the rest.
#[pin_project]
struct Guarded<'a, 'run, E, N, S, F> {
    /// Makes the future, whose type has no name.
    start: S,
    #[pin]
    rest: Rest<N, F>,
    /// Dropped after what is inside: it learns of its end when all of that is gone.
    permit: Held<'a, 'run, E>,
}

/// The rest of the chain: what is needed only before the admission shares its place with what is needed only after it.
#[pin_project(project = RestProjection)]
enum Rest<N, F> {
    Ahead(N),
    Running(#[pin] F),
}

impl<'run, T, E, N, S, F> Future for Guarded<'_, 'run, E, N, S, F>
where
    N: Next<T, E>,
    S: Fn(N, Call<'run, E>) -> F,
    F: Future<Output = Outcome<T, E>>,
{
    type Output = Outcome<T, E>;

    #[inline(always)]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Outcome<T, E>> {
        let mut this = self.project();
        if let RestProjection::Ahead(next) = this.rest.as_mut().project() {
            let next = *next;
            match this.permit.acquire(|| next.limit()) {
                Ok(call) => this.rest.set(Rest::Running((this.start)(next, call))),
                Err(TurnedAway { error, ruling }) => {
                    return Poll::Ready(Outcome { result: Err(error), ruling, tail: Tail::default() });
                }
            }
        }
        // Always there: it was set just above.
        let RestProjection::Running(inner) = this.rest.as_mut().project() else { return Poll::Pending };
        let Outcome { result, ruling, mut tail } = ready!(inner.poll(cx));
        this.permit.settle(ruling);
        if this.permit.lives_on() && result.is_ok() && !ruling.verdict().is_failure() {
            tail = this.permit.watch(tail);
        }
        Poll::Ready(Outcome { result, ruling, tail })
    }
}
