//! The result in figures, phase by phase.

use std::time::Duration;

use steadfast::breaker::State;

use crate::client::Change;
use crate::load::{Sample, Side, quantile, success};
use crate::script;

/// Two lines for each phase, and two for the whole.
pub(crate) fn render(naive: &Side, steadfast: &Side, changes: &[Change]) -> String {
    let mut table = format!("{HEADING}\n{}\n", "-".repeat(HEADING.len() + 8));
    for (from, to, phase) in script::timeline() {
        // What arrives after the end belongs to the last phase, which goes on.
        let until = if to == script::length() { Duration::MAX } else { to };
        let breaker = states(changes, from, to);
        for (name, client, side, breaker) in
            [(phase.name, "naive", naive, String::new()), ("", "steadfast", steadfast, breaker)]
        {
            let upstream = side.arrived_between(from, until);
            table += &row(name, client, &side.started_between(from, to), upstream, &breaker);
        }
    }
    for (name, client, side) in [("all", "naive", naive), ("", "steadfast", steadfast)] {
        table += &row(name, client, &side.samples, side.arrivals.len(), "");
    }
    table
}

fn row(phase: &str, client: &str, samples: &[Sample], upstream: usize, breaker: &str) -> String {
    let calls = samples.len();
    let ok = success(samples).map_or_else(String::new, |share| format!("{:.1} %", share * 100.0));
    let (p50, p99) = (readable(quantile(samples, 0.5)), readable(quantile(samples, 0.99)));
    let per_call = upstream as f64 / calls.max(1) as f64;
    let line = format!(
        "{phase:<16}  {client:<9}  {calls:>5}  {ok:>7}  {p50:>8}  {p99:>8}  {upstream:>8}  {per_call:>8.2}  {breaker}"
    );
    format!("{}\n", line.trim_end())
}

/// The states in which the breaker was in this time, in their order.
fn states(changes: &[Change], from: Duration, to: Duration) -> String {
    let before = changes.iter().rev().find(|change| change.at < from).map_or(State::Closed, |change| change.to);
    let within = changes.iter().filter(|change| (from..to).contains(&change.at)).map(|change| change.to);
    let names: Vec<_> = std::iter::once(before).chain(within).map(|state| state.to_string()).collect();
    names.join(" > ")
}

fn readable(time: Duration) -> String {
    let ms = time.as_secs_f64() * 1000.0;
    if ms < 10.0 {
        format!("{ms:.1} ms")
    } else if ms < 1000.0 {
        format!("{ms:.0} ms")
    } else {
        format!("{:.2} s", ms / 1000.0)
    }
}

const HEADING: &str =
    "phase             client     calls       ok       p50       p99  upstream  per call  state of the breaker";
