//! The same call once more, beside one that takes long.

mod config;
#[cfg(feature = "serde")]
mod document;
mod latency;
mod percentile;
mod race;

pub use self::config::{DEFAULT_FLOOR, DEFAULT_MAX, DEFAULT_MIN_SAMPLES, DEFAULT_WINDOW, Hedge};
use self::race::Race;
use crate::budget::Draw;
use crate::clock::Moment;
use crate::policy::{Call, Frame, Next, Outcome, Policy};
use crate::run::Scope;

impl<T: Send, E: Send> Policy<T, E> for Hedge {
    #[inline(always)]
    fn run<N: Next<T, E>>(&self, call: Call<'_, E>, next: N) -> impl Future<Output = Outcome<T, E>> + Send {
        async move {
            // Around all lanes, to say why they are dropped. Each has one of its own inside, which counts: what one of them has started,
            // or whether it has panicked, is not the others' doing.
            let around = Frame::around(call, Moment::NEVER);
            let call = call.within(&around);
            let first = Frame::inside(call);
            let lane = next.call(call.within(&first));
            // The lanes that have lost are dropped at the end of this statement, after the frame was told why.
            Race::new(self, call, next, lane, hedge).await
        }
    }
}

/// A lane beside the first. It holds what it has drawn from the budget.
async fn hedge<T, E, N: Next<T, E>>(call: Call<'_, E>, next: N, draw: Option<Draw<'_>>) -> Outcome<T, E> {
    let frame = Frame::inside(call);
    let _paid = Paid { draw, scope: &frame.scope };
    next.call(call.within(&frame)).await
}

/// Gives back what was drawn for a lane whose operation was never started.
struct Paid<'a, 'run> {
    draw: Option<Draw<'a>>,
    scope: &'a Scope<'run>,
}

impl Drop for Paid<'_, '_> {
    fn drop(&mut self) {
        if self.scope.was_started()
            && let Some(draw) = &mut self.draw
        {
            draw.sent();
        }
    }
}
