//! A limit on how much at a time: a number of permits, one for each call.

mod config;
mod handle;
mod permit;
mod permits;
mod wait;

use std::pin::Pin;

pub use self::config::{BulkheadConfig, DEFAULT_BULKHEAD_QUEUE, DEFAULT_BULKHEAD_WAIT, MAX_PERMITS};
pub use self::handle::Bulkhead;
pub use self::permit::BulkheadPermit;
use self::permit::Held;
use self::wait::wait;
use super::{is_over, refuse};
use crate::error::{Full, Kind};
use crate::policy::{Call, Next, Outcome, Policy};
use crate::run::Alarm;

impl<T: Send, E: Send> Policy<T, E> for Bulkhead {
    #[inline(always)]
    fn run<N: Next<T, E>>(&self, call: Call<'_, E>, next: N) -> impl Future<Output = Outcome<T, E>> + Send {
        async move {
            let permits = self.shared_permits();
            if !permits.try_take() {
                let waited = if self.may_wait() { self.hold(call).await } else { Err(Full::Queue) };
                if let Err(why) = waited {
                    return refuse(call, Kind::BulkheadFull { why }, self.name());
                }
            }
            let held = Held::taken(permits);
            let outcome = next.call(call).await;
            if call.streams() { keep(held, outcome) } else { outcome }
        }
    }
}

impl Bulkhead {
    /// A call that got no permit at once: waits in line, or is refused. Boxed: what only such a call needs must not make the
    /// future of every call larger.
    #[cold]
    fn hold<'a, E: Send>(&'a self, call: Call<'a, E>) -> Pin<Box<impl Future<Output = Result<(), Full>> + Send>> {
        Box::pin(async move {
            let core = call.scope().core;
            let timer = Alarm::new(core, core.look() + self.max_wait());
            wait(self.shared_permits(), self.queue(), || is_over(call, core.look()), timer).await
        })
    }
}

/// A result that outlives the run takes the permit along. One that is an error has ended.
#[cold]
fn keep<T, E>(held: Held<'_>, mut outcome: Outcome<T, E>) -> Outcome<T, E> {
    if outcome.result.is_ok() {
        outcome.tail_mut().push(held.into_owned());
    }
    outcome
}
