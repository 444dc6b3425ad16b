//! The names of all metrics, once.

use ::metrics::{Unit, describe_counter, describe_gauge, describe_histogram};

pub(super) const RUNS: &str = "steadfast_runs_total";
pub(super) const RUNS_IN_PROGRESS: &str = "steadfast_runs_in_progress";
pub(super) const RUN_DURATION: &str = "steadfast_run_duration_seconds";
pub(super) const RUN_ATTEMPTS: &str = "steadfast_run_attempts";
pub(super) const ATTEMPTS: &str = "steadfast_attempts_total";
pub(super) const ATTEMPT_DURATION: &str = "steadfast_attempt_duration_seconds";
pub(super) const RETRIES: &str = "steadfast_retries_total";
pub(super) const HEDGES: &str = "steadfast_hedges_total";
pub(super) const TIMEOUTS: &str = "steadfast_timeouts_total";
pub(super) const REJECTIONS: &str = "steadfast_rejections_total";
pub(super) const FALLBACKS: &str = "steadfast_fallbacks_total";
pub(super) const FAULTS: &str = "steadfast_faults_injected_total";
pub(super) const TRANSITIONS: &str = "steadfast_breaker_transitions_total";
pub(super) const QUEUE_WAIT: &str = "steadfast_queue_wait_seconds";
pub(super) const RECONFIGURATIONS: &str = "steadfast_reconfigurations_total";

// From snapshots.
pub(super) const BREAKER_STATE: &str = "steadfast_breaker_state";
pub(super) const FAILURE_RATE: &str = "steadfast_breaker_failure_rate";
pub(super) const PERMITS: &str = "steadfast_bulkhead_permits";
pub(super) const TOKENS: &str = "steadfast_rate_limiter_tokens";
pub(super) const QUEUE: &str = "steadfast_queue_length";
pub(super) const KEYED: &str = "steadfast_keyed_members";
pub(super) const BUDGET: &str = "steadfast_budget_available";
pub(super) const RUNS_WAITING: &str = "steadfast_runs_waiting";

/// What a metric is, for the table in the guide and for recorders that show help.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Is {
    Counter,
    Gauge,
    Histogram,
}

const TABLE: [(&str, Is, Unit, &str); 23] = [
    (RUNS, Is::Counter, Unit::Count, "Runs that are over."),
    (RUNS_IN_PROGRESS, Is::Gauge, Unit::Count, "Runs that have started and are not over."),
    (RUN_DURATION, Is::Histogram, Unit::Seconds, "From the start of a run to its end."),
    (RUN_ATTEMPTS, Is::Histogram, Unit::Count, "How often a run started its operation."),
    (ATTEMPTS, Is::Counter, Unit::Count, "Attempts that are over."),
    (ATTEMPT_DURATION, Is::Histogram, Unit::Seconds, "From the start of an attempt to its end."),
    (RETRIES, Is::Counter, Unit::Count, "Retries that were decided on."),
    (HEDGES, Is::Counter, Unit::Count, "Hedges that were started, won or lost."),
    (TIMEOUTS, Is::Counter, Unit::Count, "Limits that have passed."),
    (REJECTIONS, Is::Counter, Unit::Count, "Calls that a policy refused."),
    (FALLBACKS, Is::Counter, Unit::Count, "Failures that a fallback stepped in for."),
    (FAULTS, Is::Counter, Unit::Count, "Attempts that chaos changed on purpose."),
    (TRANSITIONS, Is::Counter, Unit::Count, "Changes of a circuit breaker's state."),
    (QUEUE_WAIT, Is::Histogram, Unit::Seconds, "Waits in line that ended with an admission."),
    (RECONFIGURATIONS, Is::Counter, Unit::Count, "Changes of settings through an executor."),
    (BREAKER_STATE, Is::Gauge, Unit::Count, "1 for the state that a circuit breaker is in, 0 for the others."),
    (FAILURE_RATE, Is::Gauge, Unit::Count, "The share of failures in a circuit breaker's window."),
    (PERMITS, Is::Gauge, Unit::Count, "Permits of a bulkhead."),
    (TOKENS, Is::Gauge, Unit::Count, "Tokens of a rate limiter."),
    (QUEUE, Is::Gauge, Unit::Count, "Callers that wait in line."),
    (KEYED, Is::Gauge, Unit::Count, "Keys that have a policy of their own."),
    (BUDGET, Is::Gauge, Unit::Count, "Retries and hedges that the budget would allow now."),
    (RUNS_WAITING, Is::Gauge, Unit::Count, "Runs, and bodies that have outlived theirs, that wait for something."),
];

/// Tells the recorder what each metric means.
pub(super) fn describe() {
    for (name, is, unit, text) in TABLE {
        match is {
            Is::Counter => describe_counter!(name, unit, text),
            Is::Gauge => describe_gauge!(name, unit, text),
            Is::Histogram => describe_histogram!(name, unit, text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_the_guide_has_all_metrics_and_no_other() {
        let rows = include_str!("guide.md").lines().filter(|line| line.starts_with("| `steadfast_"));
        let documented: Vec<_> = rows
            .map(|row| {
                let mut cells = row.split('|').map(|cell| cell.trim().trim_matches('`')).skip(1);
                (cells.next().unwrap().to_owned(), cells.next().unwrap().to_owned())
            })
            .collect();
        let listed = TABLE.map(|(name, is, ..)| (name.to_owned(), format!("{is:?}").to_lowercase()));
        assert_eq!(documented, listed);
    }
}
