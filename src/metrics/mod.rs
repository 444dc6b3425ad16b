#![doc = include_str!("guide.md")]

mod gauges;
mod handles;
mod names;

use std::fmt;
use std::sync::OnceLock;

pub use self::gauges::record;
use self::handles::Handles;
use crate::clock::Moment;
use crate::error::Name;
use crate::event::{Event, Observer, RunEnd, UnderWay, What};

/// Counts what the runs of an executor do; see the [module](self).
///
/// One for each executor: given to a second one, it has to look handles up by name for that.
#[derive(Default)]
pub struct Metrics {
    handles: OnceLock<Handles>,
    /// When the attempts that are under way have started.
    attempts: UnderWay<Moment>,
}

impl Metrics {
    /// An observer that records with the recorder of the program: that of the thread on which an executor's first event happens.
    #[must_use]
    pub fn new() -> Metrics {
        Metrics::default()
    }

    fn count(&self, event: &Event, handles: &Handles) {
        let policy = |by| event.policy.map_or(by, Name::as_str);
        match &event.what {
            What::RunStarted => handles.in_progress.increment(1.0),
            What::AttemptStarted => self.attempts.attempt_started(event, event.at),
            What::AttemptFinished { verdict } => {
                handles.attempt(verdict.as_str());
                if let Some(began) = self.attempts.attempt_ended(event) {
                    handles.attempt_duration.record(event.at.since(began).as_secs_f64());
                }
            }
            What::AttemptAbandoned { why } => {
                handles.attempt(why.as_str());
                self.attempts.attempt_ended(event);
            }
            What::RetryScheduled { verdict, .. } => handles.retry(verdict.as_str()),
            What::TimedOut { .. } => handles.timeouts.increment(1),
            What::HedgeStarted => handles.hedge("started"),
            // The first lane is not a hedge, and loses to one that is.
            What::HedgeWon if event.hedge > 0 => handles.hedge("won"),
            What::HedgeLost if event.hedge > 0 => handles.hedge("lost"),
            What::HedgeWon | What::HedgeLost => {}
            What::FellBack { error } => handles.fallback(error.as_str()),
            What::ChaosInjected => handles.faults.increment(1),
            What::Transition(change) => {
                handles.transition(policy("breaker"), change.from.as_str(), change.to.as_str());
            }
            What::Rejected { by, kind } => handles.rejection(by, policy(by), kind.as_str()),
            What::Queued { .. } => {}
            What::Admitted { by, waited } => handles.queue_wait(by, policy(by), waited.as_secs_f64()),
            What::Reconfigured { by } => handles.reconfiguration(by),
            What::RunFinished { end, attempts, elapsed, .. } => {
                finish(handles, *end, *attempts, elapsed.as_secs_f64());
            }
        }
    }
}

fn finish(handles: &Handles, end: RunEnd, attempts: u32, seconds: f64) {
    handles.in_progress.decrement(1.0);
    handles.run(end.as_str());
    handles.run_duration(if end.is_success() { "success" } else { "failure" }, seconds);
    handles.run_attempts.record(attempts);
}

impl Observer for Metrics {
    fn on_event(&self, event: &Event) {
        let executor = event.executor.map_or("", Name::as_str);
        if self.handles.get().is_none() {
            // Made before it is kept: a recorder is foreign code.
            let _other_was_first = self.handles.set(Handles::new(executor));
        }
        match self.handles.get() {
            Some(handles) if handles.executor == executor => self.count(event, handles),
            _ => self.count(event, &Handles::new(executor)),
        }
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let executor = self.handles.get().map(|handles| handles.executor);
        f.debug_struct("Metrics").field("executor", &executor).finish_non_exhaustive()
    }
}
