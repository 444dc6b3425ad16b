//! Gauges, which say how things are: set when somebody asks, from a snapshot.

use std::collections::HashMap;

use ::metrics::gauge;

use super::names;
use crate::snapshot::{BreakerSnapshot, ExecutorSnapshot, PolicySnapshot, State};

/// Sets the gauges of an executor to what its [snapshot](crate::Executor::snapshot) says. To be called before a scrape, or every
/// few seconds: what a gauge says is as old as that.
///
/// ```
/// use steadfast::{Breaker, Executor, metrics};
///
/// # let clock = steadfast::clock::Clock::manual();
/// let billing = Executor::builder("billing").policies(Breaker::default()).clock(&clock).build()?;
/// metrics::record(&billing.snapshot());
/// # Ok::<_, steadfast::ConfigError>(())
/// ```
pub fn record(executor: &ExecutorSnapshot) {
    let of = executor.name;
    gauge!(names::RUNS_WAITING, "executor" => of).set(count(executor.waiting));
    if let Some(budget) = &executor.budget {
        gauge!(names::BUDGET, "executor" => of).set(budget.available);
    }
    let mut labels = Labels::default();
    for policy in &executor.policies {
        record_policy(of, policy, &mut labels);
    }
}

fn record_policy(of: &'static str, policy: &PolicySnapshot, labels: &mut Labels) {
    match policy {
        PolicySnapshot::Breaker(breaker) => record_breaker(of, &labels.next("breaker", breaker.name), breaker),
        PolicySnapshot::Bulkhead(bulkhead) => {
            let policy = labels.next("bulkhead", bulkhead.name);
            let free = bulkhead.permits.saturating_sub(bulkhead.in_flight);
            for (state, permits) in [("free", free), ("in_flight", bulkhead.in_flight)] {
                let policy = policy.clone();
                gauge!(names::PERMITS, "executor" => of, "policy" => policy, "state" => state).set(count(permits));
            }
            queue(of, "bulkhead", policy, bulkhead.queued);
        }
        PolicySnapshot::RateLimiter(limiter) => {
            let policy = labels.next("rate_limiter", limiter.name);
            let tokens = gauge!(names::TOKENS, "executor" => of, "policy" => policy.clone());
            tokens.set(limiter.available as f64);
            queue(of, "rate_limiter", policy, limiter.queued);
        }
        PolicySnapshot::Keyed(keyed) => {
            gauge!(names::KEYED, "executor" => of, "by" => keyed.of).set(count(keyed.len));
        }
        _ => {}
    }
}

/// Of the states of a breaker exactly one is at 1.
fn record_breaker(of: &'static str, policy: &str, breaker: &BreakerSnapshot) {
    for state in STATES {
        let gauge =
            gauge!(names::BREAKER_STATE, "executor" => of, "policy" => policy.to_owned(), "state" => state.as_str());
        gauge.set(if state == breaker.state { 1.0 } else { 0.0 });
    }
    let rate = gauge!(names::FAILURE_RATE, "executor" => of, "policy" => policy.to_owned());
    rate.set(breaker.counts.rate().unwrap_or(0.0));
}

fn queue(of: &'static str, by: &'static str, policy: String, queued: usize) {
    gauge!(names::QUEUE, "executor" => of, "by" => by, "policy" => policy).set(count(queued));
}

/// What tells the policies of one executor apart: their names, or their kinds with a number from the second on.
#[derive(Default)]
struct Labels(HashMap<String, u32>);

impl Labels {
    fn next(&mut self, kind: &'static str, name: Option<&'static str>) -> String {
        let label = name.unwrap_or(kind);
        let seen = self.0.entry(label.to_owned()).or_default();
        *seen += 1;
        if *seen == 1 { label.to_owned() } else { format!("{label}_{seen}") }
    }
}

fn count(n: usize) -> f64 {
    n as f64
}

const STATES: [State; 6] =
    [State::Closed, State::Open, State::HalfOpen, State::Isolated, State::Disabled, State::MetricsOnly];
