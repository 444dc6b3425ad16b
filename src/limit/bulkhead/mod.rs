//! A limit on how much at a time: a number of permits, one for each call.

mod config;
#[cfg(feature = "serde")]
pub(super) mod document;
mod handle;
mod permit;
mod permits;
mod wait;

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project::pin_project;

pub use self::config::{BulkheadConfig, DEFAULT_BULKHEAD_QUEUE, DEFAULT_BULKHEAD_WAIT, MAX_PERMITS};
pub use self::handle::Bulkhead;
pub use self::permit::BulkheadPermit;
use self::permit::Held;
use self::wait::wait;
use super::{By, is_over, queue, refuse};
use crate::error::{Full, Kind};
use crate::policy::{Call, Next, Outcome, Policy};
use crate::run::Alarm;

impl<T: Send, E: Send> Policy<T, E> for Bulkhead {
    #[inline(always)]
    fn run<N: Next<T, E>>(&self, call: Call<'_, E>, next: N) -> impl Future<Output = Outcome<T, E>> + Send {
        Guarded { start: N::call, hold: Bulkhead::hold, stage: Stage::Fresh { bulkhead: self, call, next } }
    }
}

/// One call through a bulkhead: takes a permit when it is first polled, or waits for one, and holds it until the rest of the
/// chain has ended.
// By hand: what is needed only before the admission shares its place with what is needed only after it.
#[pin_project]
struct Guarded<'a, 'run, E, N, S, F, H, W> {
    /// Makes the future of the rest of the chain, whose type has no name.
    start: S,
    /// Makes that of a wait.
    hold: H,
    #[pin]
    stage: Stage<'a, 'run, E, N, F, W>,
}

#[pin_project(project = StageProjection, project_replace = StageReplaced)]
enum Stage<'a, 'run, E, N, F, W> {
    Fresh {
        bulkhead: &'a Bulkhead,
        call: Call<'run, E>,
        next: N,
    },
    Waits {
        bulkhead: &'a Bulkhead,
        call: Call<'run, E>,
        next: N,
        wait: W,
    },
    /// The fields are dropped in this order: the permit is given back when everything inside is gone.
    Admitted {
        #[pin]
        inner: F,
        held: Held<'a>,
        streams: bool,
    },
    Over,
}

impl<'a, 'run, T, E, N, S, F, H, W> Future for Guarded<'a, 'run, E, N, S, F, H, W>
where
    N: Next<T, E>,
    S: Fn(N, Call<'run, E>) -> F,
    F: Future<Output = Outcome<T, E>>,
    H: Fn(&'a Bulkhead, Call<'run, E>) -> W,
    W: Future<Output = Result<(), Full>> + Unpin,
{
    type Output = Outcome<T, E>;

    #[inline(always)]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Outcome<T, E>> {
        let mut this = self.project();
        loop {
            let (bulkhead, call, next) = match this.stage.as_mut().project() {
                StageProjection::Admitted { inner, .. } => {
                    let outcome = ready!(inner.poll(cx));
                    return Poll::Ready(match this.stage.project_replace(Stage::Over) {
                        StageReplaced::Admitted { held, streams: true, .. } => keep(held, outcome),
                        _ => outcome,
                    });
                }
                StageProjection::Fresh { bulkhead, call, next } => {
                    let (bulkhead, call, next) = (*bulkhead, *call, *next);
                    if !bulkhead.shared_permits().try_take() {
                        if !bulkhead.may_wait() {
                            return Poll::Ready(bulkhead.refuse(call, Full::Queue));
                        }
                        let wait = (this.hold)(bulkhead, call);
                        this.stage.set(Stage::Waits { bulkhead, call, next, wait });
                        continue;
                    }
                    (bulkhead, call, next)
                }
                StageProjection::Waits { bulkhead, call, next, wait } => {
                    if let Err(why) = ready!(Pin::new(wait).poll(cx)) {
                        return Poll::Ready(bulkhead.refuse(*call, why));
                    }
                    (*bulkhead, *call, *next)
                }
                // Polled again after its end.
                StageProjection::Over => return Poll::Pending,
            };
            let held = Held::taken(bulkhead.shared_permits());
            this.stage.set(Stage::Admitted { inner: (this.start)(next, call), held, streams: call.streams() });
        }
    }
}

impl Bulkhead {
    /// A call that got no permit at once: waits in line, or is refused. Boxed: what only such a call needs must not make the
    /// future of every call larger.
    #[cold]
    fn hold<E: Send>(&self, call: Call<'_, E>) -> Pin<Box<impl Future<Output = Result<(), Full>> + Send>> {
        Box::pin(async move {
            let core = call.scope().core;
            let timer = Alarm::new(call.scope(), core.look() + self.max_wait());
            let wait = wait(self.shared_permits(), self.queue(), || is_over(call, core.look()), timer);
            queue(call, self.by(), wait).await
        })
    }

    #[cold]
    fn refuse<T, E>(&self, call: Call<'_, E>, why: Full) -> Outcome<T, E> {
        refuse(call, Kind::BulkheadFull { why }, self.by())
    }

    fn by(&self) -> By {
        By { policy: "bulkhead", name: self.name() }
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
