//! What came of the calls, as tables and as a picture.

use std::time::Duration;

use super::backend::{Backend, Kind};
use super::{CLIENTS, Client};
use crate::axis::Axis;
use crate::figure::{Figure, Form, Panel};
use crate::record::{Record, histogram, quantile, share, within};
use crate::report::Report;
use crate::table::Table;

/// All that is known of one kind of client.
pub(super) struct Outcome {
    pub(super) client: Client,
    pub(super) record: Record,
    /// When requests reached the backend.
    pub(super) arrivals: Vec<Duration>,
    /// Seconds, and the share of breakers that are open or half-open then.
    pub(super) open: Vec<(f64, f64)>,
}

pub(super) fn report(outcomes: &[Outcome], backend: &Backend) -> Report {
    let mut tables = vec![summary(outcomes, backend), phases(outcomes, backend)];
    if !backend.event.is_empty() {
        tables.push(recovery(outcomes, backend));
    }
    Report { tables, figures: vec![figure(outcomes, backend)], checks: Vec::new() }
}

impl Outcome {
    /// Requests for each call.
    fn load(&self, from: Duration, to: Duration) -> f64 {
        share(within(&self.arrivals, from, to).len(), within(&self.record.started, from, to).len())
    }

    /// The time within which this share of the calls that were started in a time had ended.
    fn quantile(&self, from: Duration, to: Duration, share: f64) -> Duration {
        quantile(self.record.between(from, to).iter().map(|call| call.took).collect(), share)
    }

    fn cells(&self, from: Duration, to: Duration) -> Vec<String> {
        let at = |share| readable(self.quantile(from, to, share));
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
    let bins = Bins::of(backend.load.duration);
    let good = panel(outcomes, "calls that succeed", "% of those made", &|outcome| {
        bins.curve(|from, to| 100.0 * outcome.record.success(from, to))
    });
    let sent = panel(outcomes, "requests that reach the backend", "per second", &|outcome| {
        let counts = histogram(outcome.arrivals.iter().copied(), bins.width, bins.count);
        let rate = |count: f64| count / bins.width.as_secs_f64();
        (0..).map(|bin| bins.middle(bin)).zip(counts.into_iter().map(rate)).collect()
    });
    let wait = panel(outcomes, "how long callers wait, p99", "s", &|outcome| {
        bins.curve(|from, to| outcome.quantile(from, to, 0.99).as_secs_f64())
    });
    let open = panel(&outcomes[..1], "your breakers that are not closed", "% of clients", &|outcome| {
        outcome.open.iter().map(|(at, share)| (*at, share * 100.0)).collect()
    });
    let mut names = CLIENTS;
    names.sort_by_key(|client| client.colour());
    let subtitle = format!("{} calls a second by {} clients", backend.load.rate, backend.load.clients);
    let mut figure = Figure::new("tune", "A chain and a backend", subtitle).legend(names.map(Client::name));
    for mut panel in [good, sent, wait, open] {
        for event in &backend.event {
            panel.shade(event.at.as_secs_f64(), event.end().as_secs_f64(), event.kind.to_string());
        }
        figure = figure.panel(panel);
    }
    figure
}

/// A curve for each kind of client, over the time.
fn panel(outcomes: &[Outcome], title: &str, unit: &str, curve: &dyn Fn(&Outcome) -> Vec<(f64, f64)>) -> Panel {
    let curves: Vec<_> = outcomes.iter().map(|outcome| (outcome.client.colour(), curve(outcome))).collect();
    let points = || curves.iter().flat_map(|(_, points)| points);
    let last = points().map(|point| point.0).fold(1.0, f64::max);
    let most = points().map(|point| point.1).fold(0.01, f64::max);
    let mut panel = Panel::new(title, Axis::linear("time, s", 0.0, last), Axis::linear(unit, 0.0, most));
    for (colour, points) in curves {
        panel.add(colour, Form::Line, points);
    }
    panel
}

/// Pieces of the time, a whole number of seconds each.
struct Bins {
    width: Duration,
    count: usize,
}

impl Bins {
    fn of(duration: Duration) -> Bins {
        let width = Duration::from_secs((duration.as_secs() / MOST_BINS).max(1));
        Bins { width, count: (duration.as_secs_f64() / width.as_secs_f64()).ceil() as usize }
    }

    /// In seconds.
    fn middle(&self, bin: usize) -> f64 {
        (bin as f64 + 0.5) * self.width.as_secs_f64()
    }

    /// What `value` says of each.
    fn curve(&self, value: impl Fn(Duration, Duration) -> f64) -> Vec<(f64, f64)> {
        (0..self.count)
            .map(|bin| (self.middle(bin), value(bin as u32 * self.width, (bin as u32 + 1) * self.width)))
            .collect()
    }
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

/// About how many points a curve has.
const MOST_BINS: u64 = 120;
