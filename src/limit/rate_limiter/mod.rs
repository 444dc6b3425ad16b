//! A limit on how often: so many calls in a time, with a burst after a pause.

mod config;
#[cfg(feature = "serde")]
pub(super) mod document;
mod gate;
mod gcra;
mod handle;
mod member;
mod wait;

use std::ops::ControlFlow;
use std::pin::Pin;
use std::time::Duration;

pub use self::config::{DEFAULT_RATE_QUEUE, MAX_FILL_TIME, MAX_RATE, RateLimiterConfig};
use self::gate::{Asked, Held};
pub use self::handle::RateLimiter;
use self::wait::{Waits, wait};
use super::{By, is_over, queue, refuse};
use crate::clock::Moment;
use crate::error::Kind;
use crate::policy::{Call, Next, Outcome, Policy};
use crate::run::Alarm;

impl<T: Send, E: Send> Policy<T, E> for RateLimiter {
    #[inline(always)]
    fn run<N: Next<T, E>>(&self, call: Call<'_, E>, next: N) -> impl Future<Output = Outcome<T, E>> + Send {
        async move {
            let weight = self.weight().of(call.context());
            if let Err(held) = self.pass(weight, || call.now()) {
                let waited = match self.hold(call, weight, held) {
                    ControlFlow::Continue(wait) => wait.await,
                    ControlFlow::Break(at_once) => at_once,
                };
                if let Err(retry_after) = waited {
                    return refuse(call, Kind::RateLimited { retry_after }, self.by());
                }
            }
            next.call(call).await
        }
    }
}

impl RateLimiter {
    /// A call that was not admitted at once: what becomes of it, or its wait in line. That is boxed: what only such a call needs
    /// must not make the future of every call larger.
    #[cold]
    fn hold<'a, E: Send>(
        &'a self,
        call: Call<'a, E>,
        weight: u64,
        held: Held,
    ) -> ControlFlow<Waited, Pin<Box<impl Future<Output = Waited> + Send>>> {
        let now = call.scope().core.look();
        let until = self.wait_until(now, call.scope().deadline);
        if !self.may_wait(held, until, now) {
            return ControlFlow::Break(self.settle(held, weight, now));
        }
        let wait = wait(self.gate(), Asked { weight, until }, self.most(), InRun(call));
        ControlFlow::Continue(Box::pin(queue(call, self.by(), wait)))
    }

    fn by(&self) -> By {
        By { policy: "rate_limiter", name: self.name() }
    }
}

/// How a wait ended: with the tokens, or with the time for which it would have to go on; `None` is for ever.
type Waited = Result<(), Option<Duration>>;

/// A call of a run: whatever ends the run ends its wait.
struct InRun<'run, E>(Call<'run, E>);

impl<'run, E> Waits for InRun<'run, E> {
    type Sleep = Alarm<'run>;

    fn now(&self) -> Moment {
        self.0.scope().core.look()
    }

    fn is_over(&self, now: Moment) -> bool {
        is_over(self.0, now)
    }

    fn sleep_until(&self, at: Moment) -> Alarm<'run> {
        Alarm::new(self.0.scope(), at)
    }
}
