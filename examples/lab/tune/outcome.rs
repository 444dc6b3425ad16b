//! What came of the calls, as tables and as a picture.

use std::fmt;
use std::time::Duration;

use super::backend::{Backend, Event, Kind};
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
        let at = |share| format!("{:.1}", self.quantile(from, to, share).as_secs_f64() * 1000.0);
        let success = format!("{:.2}", 100.0 * self.record.success(from, to));
        vec![success, at(0.5), at(0.95), at(0.99), at(0.999), format!("{:.3}", self.load(from, to))]
    }

    /// How long after `end` calls succeed again as they did before the first event, until `next` at least.
    fn recovers(&self, quiet: Duration, end: Duration, next: Duration) -> Recovery {
        // Later the success before an event may be what an earlier one has left of it.
        if end + WINDOW > next || within(&self.record.started, Duration::ZERO, quiet).is_empty() {
            return Recovery::Unknown;
        }
        let usual = self.record.success(Duration::ZERO, quiet);
        let well = |at: &Duration| {
            self.record.success(*at, *at + WINDOW) >= 0.95 * usual && self.record.success(*at, next) >= 0.9 * usual
        };
        let ends = (0..).map(|step| end + step * STEP).take_while(|at| *at + WINDOW <= next);
        ends.into_iter().find(well).map_or(Recovery::NotBy(next), |at| Recovery::After(at - end))
    }
}

#[derive(Debug, PartialEq)]
enum Recovery {
    After(Duration),
    NotBy(Duration),
    /// There is nothing to compare with, or no time before something else befalls the backend.
    Unknown,
}

impl fmt::Display for Recovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Recovery::After(time) => f.write_str(&seconds(*time)),
            Recovery::NotBy(time) => write!(f, "not by {}", seconds(*time)),
            Recovery::Unknown => f.write_str("n/a"),
        }
    }
}

fn summary(outcomes: &[Outcome], backend: &Backend) -> Table {
    let title = "All calls: how many succeed, how long callers wait (failures too), and requests for each call";
    let mut table = Table::new("tune", title, &[&["client"], CELLS.as_slice()].concat());
    for outcome in outcomes {
        let cells = outcome.cells(Duration::ZERO, backend.load.duration);
        table.row([outcome.client.name().to_owned()].into_iter().chain(cells));
    }
    table
}

fn phases(outcomes: &[Outcome], backend: &Backend) -> Table {
    let title = "The same, by what befalls the backend";
    let head = [&["from, s", "to, s", "what", "client"], CELLS.as_slice()].concat();
    let mut table = Table::new("tune-phases", title, &head);
    for edge in backend.edges().windows(2) {
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
    let title = "Seconds until calls succeed again as before the first event, from the end of what befell the backend";
    let mut head = vec!["event", "at, s"];
    let names = CLIENTS.map(|client| format!("{}, s", client.name()));
    head.extend(names.iter().map(String::as_str));
    let mut table = Table::new("tune-recovery", title, &head);
    let quiet = backend.event.iter().map(|event| event.at).min().unwrap_or(backend.load.duration);
    for event in &backend.event {
        let next = until_next(backend, event);
        let cells = outcomes.iter().map(|outcome| outcome.recovers(quiet, event.end(), next).to_string());
        table.row([event.kind.to_string(), seconds(event.at)].into_iter().chain(cells));
    }
    table
}

/// Until when nothing else befalls the backend after an event: its own end if another one goes on there.
fn until_next(backend: &Backend, event: &Event) -> Duration {
    let later = backend.event.iter().filter(|other| other.end() > event.end());
    later.map(|other| other.at.max(event.end())).min().unwrap_or(backend.load.duration)
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
    ((time.as_secs_f64() * 10.0).round() / 10.0).to_string()
}

/// What [`Outcome::cells`] gives.
const CELLS: [&str; 6] = ["success, %", "p50, ms", "p95, ms", "p99, ms", "p99.9, ms", "load"];

/// Over which success is measured after an event, and how finely.
const WINDOW: Duration = Duration::from_secs(3);
const STEP: Duration = Duration::from_millis(500);

/// About how many points a curve has.
const MOST_BINS: u64 = 120;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Ended;

    fn second(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    /// Ten calls a second for a minute, which succeed where they are said to.
    fn calls(ok: impl Fn(u64) -> bool) -> Outcome {
        let started: Vec<_> = (0..600).map(|n| n * Duration::from_millis(100)).collect();
        let ended = |&started: &Duration| Ended { started, took: Duration::ZERO, ok: ok(started.as_secs()) };
        let record = Record::new(started.clone(), started.iter().map(ended).collect());
        Outcome { client: Client::OneTry, record, arrivals: Vec::new(), open: Vec::new() }
    }

    fn events(times: &[(u64, u64)]) -> Backend {
        let event = |(at, lasts)| format!("[[event]]\nkind = \"outage\"\nat = \"{at}s\"\nfor = \"{lasts}s\"\n");
        let events: String = times.iter().copied().map(event).collect();
        toml::from_str(&format!("[server]\nlatency = \"1ms\"\n[load]\nrate = 10\nduration = \"1m\"\n{events}")).unwrap()
    }

    #[test]
    fn what_an_event_has_left_is_not_what_the_next_one_is_measured_by() {
        // No call succeeds after the first event.
        let outcome = calls(|at| at < 10);
        let seen = |time| outcome.recovers(second(10), second(time), second(60));
        assert_eq!((seen(15), seen(35)), (Recovery::NotBy(second(60)), Recovery::NotBy(second(60))));
        assert_eq!(calls(|at| at != 32).recovers(second(10), second(31), second(60)), Recovery::After(second(2)));
    }

    #[test]
    fn with_an_event_from_the_beginning_on_there_is_nothing_to_compare_with() {
        assert_eq!(calls(|_| true).recovers(second(0), second(5), second(60)), Recovery::Unknown);
    }

    #[test]
    fn what_goes_on_or_follows_at_once_leaves_nothing_to_be_seen() {
        // The first one ends within the second, and that one where the third begins.
        let backend = events(&[(10, 5), (12, 8), (20, 5), (40, 5)]);
        let until: Vec<_> = backend.event.iter().map(|event| until_next(&backend, event).as_secs()).collect();
        assert_eq!(until, [15, 20, 40, 60]);
        let unknown = backend
            .event
            .iter()
            .map(|event| calls(|_| true).recovers(second(10), event.end(), until_next(&backend, event)));
        let unknown: Vec<_> = unknown.map(|found| found == Recovery::Unknown).collect();
        assert_eq!(unknown, [true, true, false, false]);
    }
}
