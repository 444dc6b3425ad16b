//! An observer for `tracing`: a span for each run, an event for each decision.
//!
//! ```
//! use steadfast::{Executor, Retry, tracing::Tracing};
//!
//! let billing = Executor::builder("billing").policies(Retry::exponential()).observe(Tracing::new()).build()?;
//! # Ok::<_, steadfast::ConfigError>(())
//! ```
//!
//! The span is a child of the one that is current when the run is first polled. The run is polled in it, so whatever the
//! operation logs belongs to it, and an operation that makes spans of its own makes children. Without a subscriber nothing is
//! built: the cost of a run is one look at `tracing`'s level, when it is first polled. (If the executor has other observers too, they
//! are asked as well.)
//!
//! Everything has the target `steadfast`, so `steadfast=debug` is a filter for it.
//!
//! # The span `run`, of level `INFO`
//!
//! | field | |
//! |---|---|
//! | `executor` | the name of the executor |
//! | `run` | the [id](crate::event::RunId) of the run |
//! | `outcome` | at the end, see [`RunEnd::as_str`](crate::event::RunEnd::as_str) |
//! | `attempts` | at the end: how often the operation was started |
//! | `elapsed_ms` | at the end |
//!
//! # Events
//!
//! All of them have `executor`; those of an attempt have `attempt` and `hedge`, the numbers of the try and of the lane; those of a
//! policy with a name of its own have `policy`.
//!
//! | message | level | further fields |
//! |---|---|---|
//! | `attempt started` | `TRACE` | |
//! | `attempt finished` | `DEBUG` | `verdict` |
//! | `attempt abandoned` | `DEBUG`; `ERROR` after a panic | `why` |
//! | `retry scheduled` | `INFO` | `delay_ms`, `verdict` |
//! | `timed out` | `INFO` | `limit_ms` |
//! | `hedge started`, `hedge won`, `hedge lost` | `DEBUG` | |
//! | `fell back` | `INFO` | `error` |
//! | `fault injected` | `DEBUG` | |
//! | `rejected` | `INFO` | `by`, `kind` |
//! | `queued` | `DEBUG` | `by` |
//! | `admitted` | `DEBUG` | `by`, `waited_ms` |
//! | `breaker opened` | `WARN` | `from`, `to`, `cause`, `calls`, `failures`, `key` |
//! | `breaker changed` | `INFO` | the same |
//! | `reconfigured` | `INFO` | `by` |
//! | `run finished` | `DEBUG`; `INFO` if it did not end well | `outcome`, `attempts`, `elapsed_ms` |
//!
//! Errors are not printed: the caller has them, and may hold what must not be logged.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ::tracing::{Level, Span, event, field, span};

use crate::error::Name;
use crate::event::{CutOff, Event, Observer, RunEnd, RunId, UnderWay, What, tracing_is_off};
use crate::snapshot::State;
use crate::transition::Transition;

/// Gives each run a span, and each decision in it an event; see the [module](self).
#[derive(Default)]
pub struct Tracing {
    spans: UnderWay<Arc<Span>>,
}

impl Tracing {
    /// An observer for one executor or more.
    #[must_use]
    pub fn new() -> Tracing {
        Tracing::default()
    }
}

impl fmt::Debug for Tracing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tracing").finish_non_exhaustive()
    }
}

impl Observer for Tracing {
    fn on_event(&self, event: &Event) {
        match event.what {
            What::RunStarted => {
                let span = span_of(event);
                if !span.is_disabled() {
                    self.spans.run_started(event, Arc::new(span));
                }
            }
            What::RunFinished { end, attempts, elapsed, .. } => {
                let span = self.spans.run_ended(event);
                if let Some(span) = &span {
                    let elapsed_ms = millis(elapsed);
                    span.record("outcome", end.as_str()).record("attempts", attempts).record("elapsed_ms", elapsed_ms);
                }
                in_span(span, || finished(event, end, attempts, elapsed));
            }
            _ => in_span(event.run.and_then(|run| self.spans.of_run(run)), || tell(event)),
        }
    }

    fn is_enabled(&self) -> bool {
        !tracing_is_off()
    }

    fn span(&self, run: RunId) -> Option<Arc<Span>> {
        self.spans.of_run(run)
    }
}

fn span_of(event: &Event) -> Span {
    span!(
        target: TARGET,
        Level::INFO,
        "run",
        executor = executor(event),
        run = event.run.map(RunId::get),
        outcome = field::Empty,
        attempts = field::Empty,
        elapsed_ms = field::Empty,
    )
}

/// A run has no span if its subscriber wants none, or came later.
fn in_span(span: Option<Arc<Span>>, tell: impl FnOnce()) {
    match span {
        Some(span) => span.in_scope(tell),
        None => tell(),
    }
}

/// An event of an attempt, with its message and further fields.
macro_rules! attempt {
    ($event:expr, $level:expr, $message:literal $(, $field:ident = $value:expr)*) => {
        event!(
            target: TARGET,
            $level,
            executor = executor($event),
            attempt = $event.attempt,
            hedge = $event.hedge,
            policy = $event.policy.map(Name::as_str),
            $($field = $value,)*
            $message,
        )
    };
}

fn tell(event: &Event) {
    match &event.what {
        What::AttemptStarted => attempt!(event, Level::TRACE, "attempt started"),
        What::AttemptFinished { verdict } => {
            attempt!(event, Level::DEBUG, "attempt finished", verdict = verdict.as_str());
        }
        What::AttemptAbandoned { why: why @ CutOff::Panicked } => {
            attempt!(event, Level::ERROR, "attempt abandoned", why = why.as_str());
        }
        What::AttemptAbandoned { why } => attempt!(event, Level::DEBUG, "attempt abandoned", why = why.as_str()),
        What::RetryScheduled { delay, verdict } => {
            attempt!(event, Level::INFO, "retry scheduled", delay_ms = millis(*delay), verdict = verdict.as_str());
        }
        What::TimedOut { limit } => attempt!(event, Level::INFO, "timed out", limit_ms = millis(*limit)),
        What::HedgeStarted => attempt!(event, Level::DEBUG, "hedge started"),
        What::HedgeWon => attempt!(event, Level::DEBUG, "hedge won"),
        What::HedgeLost => attempt!(event, Level::DEBUG, "hedge lost"),
        What::FellBack { error } => attempt!(event, Level::INFO, "fell back", error = error.as_str()),
        What::ChaosInjected => attempt!(event, Level::DEBUG, "fault injected"),
        What::Rejected { by, kind } => attempt!(event, Level::INFO, "rejected", by = *by, kind = kind.as_str()),
        What::Queued { by } => attempt!(event, Level::DEBUG, "queued", by = *by),
        What::Admitted { by, waited } => {
            attempt!(event, Level::DEBUG, "admitted", by = *by, waited_ms = millis(*waited));
        }
        What::Transition(transition) => changed(event, transition),
        What::Reconfigured { by } => {
            event!(target: TARGET, Level::INFO, executor = executor(event), by = *by, "reconfigured");
        }
        What::RunStarted | What::RunFinished { .. } => {}
    }
}

/// A macro has one level for each place: the two messages are two places.
fn changed(event: &Event, Transition { from, to, cause, counts, key, .. }: &Transition) {
    macro_rules! changed {
        ($level:expr, $message:literal) => {
            attempt!(
                event,
                $level,
                $message,
                from = from.as_str(),
                to = to.as_str(),
                cause = cause.as_str(),
                calls = counts.calls,
                failures = counts.failures,
                key = key.as_deref()
            )
        };
    }
    match to {
        State::Open => changed!(Level::WARN, "breaker opened"),
        _ => changed!(Level::INFO, "breaker changed"),
    }
}

fn finished(event: &Event, end: RunEnd, attempts: u32, elapsed: Duration) {
    let (outcome, elapsed_ms, executor) = (end.as_str(), millis(elapsed), executor(event));
    if end.is_success() {
        event!(target: TARGET, Level::DEBUG, executor, outcome, attempts, elapsed_ms, "run finished");
    } else {
        event!(target: TARGET, Level::INFO, executor, outcome, attempts, elapsed_ms, "run finished");
    }
}

fn executor(event: &Event) -> Option<&'static str> {
    event.executor.map(Name::as_str)
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

const TARGET: &str = "steadfast";
