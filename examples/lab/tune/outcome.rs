//! What came of the calls, as tables and as a picture.

use std::time::Duration;

use super::backend::{Backend, Kind};
use super::{CLIENTS, Client};
use crate::axis::Axis;
use crate::figure::{Figure, Form, Panel};
use crate::record::{Ended, Record, histogram, quantile, share};
use crate::report::Report;
use crate::table::Table;

/// All that is known of one kind of client.
pub(super) struct Outcome {
    pub(super) client: Client,
    pub(super) record: Record,
    /// When requests reached the backend.
    pub(super) arrivals: Vec<Duration>,
    /// For each second, the share of breakers that are open or half-open.
    pub(super) open: Vec<f64>,
}

pub(super) fn report(outcomes: &[Outcome], backend: &Backend) -> Report {
    let mut tables = vec![summary(outcomes, backend), phases(outcomes, backend)];
    if !backend.event.is_empty() {
        tables.push(recovery(outcomes, backend));
    }
    Report { tables, figures: vec![figure(outcomes, backend)], checks: Vec::new() }
}

impl Outcome {
    /// Calls of this time, also those that failed; those that had not ended are failures.
    fn between(&self, from: Duration, to: Duration) -> Vec<Ended> {
        self.record.calls.iter().filter(|call| (from..to).contains(&call.started)).copied().collect()
    }

    /// Requests for each call.
    fn load(&self, from: Duration, to: Duration) -> f64 {
        let within = |times: &[Duration]| times.iter().filter(|at| (from..to).contains(at)).count();
        share(within(&self.arrivals), within(&self.record.started))
    }

    fn cells(&self, from: Duration, to: Duration) -> Vec<String> {
        let calls = self.between(from, to);
        let at = |share| readable(quantile(calls.iter().map(|call| call.took).collect(), share));
        let success = format!("{:.2} %", 100.0 * self.record.success(from, to));
        vec![success, at(0.5), at(0.95), at(0.99), at(0.999), format!("{:.3}", self.load(from, to))]
    }

    /// How long after `end` calls succeed again as they did before `begin`, until `next` at least.
    fn recovers(&self, begin: Duration, end: Duration, next: Duration) -> Option<Duration> {
        let usual = if begin.is_zero() { 1.0 } else { self.record.success(Duration::ZERO, begin) };
        let well = |at: &Duration| {
            let window = (*at + WINDOW).min(next);
            self.record.success(*at, window) >= 0.95 * usual && self.record.success(*at, next) >= 0.9 * usual
        };
        let ends = (0..).map(|step| end + step * STEP).take_while(|at| *at + WINDOW <= next);
        ends.into_iter().find(well).map(|at| at - end)
    }
}

fn summary(outcomes: &[Outcome], backend: &Backend) -> Table {
    let title = "All calls: how many succeed, how long callers wait (failures too), and requests for each call";
    let mut table = Table::new("tune", title, &["", "success", "p50", "p95", "p99", "p99.9", "load"]);
    for outcome in outcomes {
        let cells = outcome.cells(Duration::ZERO, backend.load.duration);
        table.row([outcome.client.name().to_owned()].into_iter().chain(cells));
    }
    table
}

fn phases(outcomes: &[Outcome], backend: &Backend) -> Table {
    let title = "The same, by what befalls the backend";
    let mut table =
        Table::new("tune-phases", title, &["from", "to", "what", "", "success", "p50", "p95", "p99", "p99.9", "load"]);
    let mut edges: Vec<_> = backend.event.iter().flat_map(|event| [event.at, event.end()]).collect();
    edges.extend([Duration::ZERO, backend.load.duration]);
    edges.sort_unstable();
    edges.dedup();
    for edge in edges.windows(2) {
        let (from, to) = (edge[0], edge[1]);
        let what = [Kind::Outage, Kind::Hang, Kind::Slow, Kind::Spike];
        let what: Vec<_> = what.into_iter().filter(|kind| backend.during(from, *kind).next().is_some()).collect();
        let what = what.iter().map(Kind::to_string).collect::<Vec<_>>().join(", ");
        for outcome in outcomes {
            let head = [seconds(from), seconds(to), what.clone(), outcome.client.name().to_owned()];
            table.row(head.into_iter().chain(outcome.cells(from, to)));
        }
    }
    table
}

fn recovery(outcomes: &[Outcome], backend: &Backend) -> Table {
    let title = "Until calls succeed again as before, from the end of what befell the backend";
    let mut head = vec!["event"];
    head.extend(CLIENTS.map(Client::name));
    let mut table = Table::new("tune-recovery", title, &head);
    for event in &backend.event {
        let later = backend.event.iter().map(|other| other.at).filter(|at| *at >= event.end());
        let next = later.min().unwrap_or(backend.load.duration);
        let name = format!("{} at {}", event.kind, seconds(event.at));
        let cells = outcomes.iter().map(|outcome| {
            let after = outcome.recovers(event.at, event.end(), next);
            after.map_or_else(|| format!("not by {}", seconds(next)), seconds)
        });
        table.row([name].into_iter().chain(cells));
    }
    table
}

fn figure(outcomes: &[Outcome], backend: &Backend) -> Figure {
    let duration = backend.load.duration.as_secs_f64();
    let bin = Duration::from_secs_f64((duration / 120.0).ceil().max(1.0));
    let bins = (duration / bin.as_secs_f64()).ceil() as usize;
    let middle = |index: usize| (index as f64 + 0.5) * bin.as_secs_f64();
    let span = |index: usize| (index as u32 * bin, (index as u32 + 1) * bin);
    let time = || Axis::linear("time, s", 0.0, duration);
    let rates: Vec<Vec<f64>> = outcomes
        .iter()
        .map(|outcome| histogram(outcome.arrivals.iter().copied(), bin, bins))
        .map(|counts| counts.into_iter().map(|count| count / bin.as_secs_f64()).collect())
        .collect();
    let most = rates.iter().flatten().copied().fold(1.0, f64::max);
    let mut good = Panel::new("calls that succeed", time(), Axis::linear("% of those made", 0.0, 100.0));
    let mut sent = Panel::new("requests that reach the backend", time(), Axis::linear("per second", 0.0, most));
    let mut open = Panel::new("your breakers that are not closed", time(), Axis::linear("% of clients", 0.0, 100.0));
    let waits: Vec<Vec<(f64, f64)>> = outcomes
        .iter()
        .map(|outcome| {
            let wait = |index| outcome.between(span(index).0, span(index).1).iter().map(|call| call.took).collect();
            (0..bins).map(|index| (middle(index), quantile(wait(index), 0.99).as_secs_f64().max(1e-3))).collect()
        })
        .collect();
    let longest = waits.iter().flatten().map(|point| point.1).fold(0.01, f64::max);
    let shortest = waits.iter().flatten().map(|point| point.1).fold(longest, f64::min);
    let mut wait = Panel::new("how long callers wait, p99", time(), Axis::log("s", shortest, longest));
    for (index, outcome) in outcomes.iter().enumerate() {
        let success = |bin| 100.0 * outcome.record.success(span(bin).0, span(bin).1);
        good.add(index, Form::Line, (0..bins).map(|bin| (middle(bin), success(bin))).collect());
        sent.add(index, Form::Line, rates[index].iter().enumerate().map(|(bin, rate)| (middle(bin), *rate)).collect());
        wait.add(index, Form::Line, waits[index].clone());
    }
    open.add(
        0,
        Form::Line,
        outcomes[0].open.iter().zip(1..).map(|(share, at)| (f64::from(at), share * 100.0)).collect(),
    );
    let mut figure = Figure::new("tune", "A chain and a backend", format!("{} calls a second", backend.load.rate));
    figure = figure.legend(CLIENTS.map(Client::name));
    for mut panel in [good, sent, wait, open] {
        for event in &backend.event {
            panel.shade(event.at.as_secs_f64(), event.end().as_secs_f64(), event.kind.to_string());
        }
        figure = figure.panel(panel);
    }
    figure
}

fn seconds(time: Duration) -> String {
    format!("{} s", (time.as_secs_f64() * 10.0).round() / 10.0)
}

fn readable(time: Duration) -> String {
    let ms = time.as_secs_f64() * 1000.0;
    match ms {
        _ if ms < 10.0 => format!("{ms:.1} ms"),
        _ if ms < 1000.0 => format!("{ms:.0} ms"),
        _ => format!("{:.2} s", ms / 1000.0),
    }
}

/// Over which success is measured after an event, and how finely.
const WINDOW: Duration = Duration::from_secs(3);
const STEP: Duration = Duration::from_millis(500);
