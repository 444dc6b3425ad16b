//! `lab budget`: what bounds retries when a share of all tries fails. After Marc Brooker, "Fixing retries with token buckets and
//! circuit breakers" (2022).
//!
//! Each client makes 10 calls a second for a minute, and has what it needs to itself. A try fails at random, and at once: neither
//! load nor time make a difference, so that only the number of tries is seen.

use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use steadfast::error::Kind;
use steadfast::policy::{Call, Next, Outcome, Policy, Settings};
use steadfast::{Budget, Error, Executor, Retry};

use crate::axis::Axis;
use crate::dice::Dice;
use crate::figure::{Figure, Form, Panel};
use crate::load::Down;
use crate::report::{Check, Report};
use crate::setting::Setting;
use crate::sim::{Sim, lock};
use crate::table::Table;

pub(crate) fn run(setting: &Setting) -> Report {
    let clients = setting.pick([100, 20, 5]);
    let cells: Vec<_> = WAYS.iter().flat_map(|way| RATES.iter().map(move |&rate| (*way, rate))).collect();
    let by_rate = setting
        .map("budget", &cells, |&(way, failures)| load(way, Crowd { clients, each: 10.0 }, failures, setting.seed));
    let (crowds, total): (&[usize], f64) =
        setting.pick([(&[10, 100, 1000], 100.0), (&[10, 100, 1000], 100.0), (&[10, 100], 20.0)]);
    let cells: Vec<_> =
        WAYS.iter().flat_map(|way| crowds.iter().flat_map(move |&n| [0.05, 0.5].map(|rate| (*way, n, rate)))).collect();
    let by_crowd = setting.map("budget, by clients", &cells, |&(way, clients, failures)| {
        load(way, Crowd { clients, each: total / clients as f64 }, failures, setting.seed)
    });
    let (rows, crowd_rows): (Vec<_>, Vec<_>) =
        (by_rate.chunks(RATES.len()).collect(), by_crowd.chunks(2 * crowds.len()).collect());
    Report {
        tables: vec![table(&rows), crowd_table(&crowd_rows, crowds, total)],
        figures: vec![figure(&rows)],
        checks: checks(&rows, &crowd_rows),
    }
}

/// What a client does about failures.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    ThreeRetries,
    Bucket,
    Default,
    BreakerOnRetries,
    NoRetry,
}

const WAYS: [Way; 5] = [Way::ThreeRetries, Way::Bucket, Way::Default, Way::BreakerOnRetries, Way::NoRetry];

impl Way {
    fn name(self) -> &'static str {
        match self {
            Way::ThreeRetries => "3 retries",
            Way::Bucket => "budget 10 %, 5 to begin with",
            Way::Default => "budget 10 %, the default",
            Way::BreakerOnRetries => "breaker 10 % on retries",
            Way::NoRetry => "no retry",
        }
    }

    /// Load and success of a plain simulation of the model, at each of [`KNOWN`].
    fn reference(self) -> Option<[(f64, f64); 6]> {
        Some(match self {
            Way::ThreeRetries => {
                [(1.010, 1.0), (1.053, 1.0), (1.109, 0.9999), (1.246, 0.9981), (1.876, 0.937), (4.0, 0.0)]
            }
            Way::Bucket => {
                [(1.010, 1.0), (1.051, 0.9998), (1.095, 0.9846), (1.106, 0.8821), (1.107, 0.5539), (1.107, 0.0)]
            }
            Way::Default => return None,
            Way::BreakerOnRetries => {
                [(1.010, 0.9999), (1.052, 0.9977), (1.035, 0.9309), (1.001, 0.8022), (1.0, 0.5012), (1.0, 0.0)]
            }
            Way::NoRetry => [(1.0, 0.99), (1.0, 0.95), (1.0, 0.901), (1.0, 0.801), (1.0, 0.503), (1.0, 0.0)],
        })
    }

    /// Success at 5 % and load at 50 % of a plain simulation of a hundred calls a second, where they are known.
    fn reference_of(self, clients: usize) -> [&'static str; 2] {
        match (self, clients) {
            (Way::Bucket, 10) => ["", "1.11"],
            (Way::Bucket, 1000) => ["", "1.65"],
            (Way::BreakerOnRetries, 10) => [".9990", ""],
            (Way::BreakerOnRetries, 100) => [".9807", ""],
            (Way::BreakerOnRetries, 1000) => [".9529", ""],
            _ => ["", ""],
        }
    }

    fn executor(self, sim: &Sim) -> Executor<(Retry, Option<FewFailures>)> {
        let attempts = if self == Way::NoRetry { 1 } else { 4 };
        let gate = (self == Way::BreakerOnRetries).then(FewFailures::default);
        let builder = Executor::builder("server").policies((Retry::immediate().max_attempts(attempts), gate));
        let builder = match self {
            Way::Bucket => builder.budget(Budget::ratio(0.1).cap(5).initial(5).floor(Duration::MAX)),
            Way::Default => builder.budget(Budget::default()),
            Way::ThreeRetries | Way::BreakerOnRetries | Way::NoRetry => builder.unbudgeted(),
        };
        builder.clock(sim.clock()).build().expect("these settings can work")
    }
}

/// A breaker on retries alone, which a chain does not have: a policy of one's own, inside of the retry. It lets retries through
/// while at most a tenth as many tries have failed as calls were made.
#[derive(Default)]
struct FewFailures {
    calls: AtomicU64,
    failures: AtomicU64,
}

impl Settings for FewFailures {}

impl<T: Send, E: Send> Policy<T, E> for FewFailures {
    async fn run<N: Next<T, E>>(&self, call: Call<'_, E>, next: N) -> Outcome<T, E> {
        if !call.is_retry() {
            self.calls.fetch_add(1, Relaxed);
        } else if self.failures.load(Relaxed) * 10 > self.calls.load(Relaxed) {
            return Outcome::rejected(Error::refused(Kind::Overloaded));
        }
        let outcome = next.call(call).await;
        self.failures.fetch_add(u64::from(outcome.result.is_err()), Relaxed);
        outcome
    }
}

#[derive(Clone, Copy)]
struct Crowd {
    clients: usize,
    /// Calls per second of each.
    each: f64,
}

#[derive(Clone, Copy)]
struct Seen {
    /// Tries for each call.
    load: f64,
    success: f64,
}

fn load(way: Way, crowd: Crowd, failures: f64, seed: u64) -> Seen {
    let sim = Sim::new();
    let server = Arc::new(Server { tries: AtomicU64::new(0), dice: Mutex::new(Dice::new(seed, 0)), failures });
    let seen = Rc::new((AtomicU64::new(0), AtomicU64::new(0)));
    for client in 0..crowd.clients {
        let (executor, server, seen, time) =
            (way.executor(&sim), Arc::clone(&server), Rc::clone(&seen), sim.time().clone());
        let mut dice = Dice::new(seed, 1 + client as u64);
        sim.spawn(async move {
            loop {
                time.sleep(dice.exponential(Duration::from_secs(1)).div_f64(crowd.each)).await;
                let ok = executor.run(|_| async { server.answer() }).await.is_ok();
                seen.0.fetch_add(1, Relaxed);
                seen.1.fetch_add(u64::from(ok), Relaxed);
            }
        });
    }
    sim.run(Duration::from_secs(60));
    let calls = seen.0.load(Relaxed).max(1) as f64;
    Seen { load: server.tries.load(Relaxed) as f64 / calls, success: seen.1.load(Relaxed) as f64 / calls }
}

/// Fails at random.
struct Server {
    tries: AtomicU64,
    dice: Mutex<Dice>,
    failures: f64,
}

impl Server {
    fn answer(&self) -> Result<(), Down> {
        self.tries.fetch_add(1, Relaxed);
        if lock(&self.dice).chance(self.failures) { Err(Down) } else { Ok(()) }
    }
}

fn table(rows: &[&[Seen]]) -> Table {
    let title = "Clients of 10 calls a second: tries for each call, and the share of calls that succeed";
    let head = ["failures, %", "client", "load", "reference load", "success", "reference success"];
    let mut table = Table::new("budget", title, &head);
    for (at, rate) in RATES.iter().enumerate() {
        for (way, row) in WAYS.iter().zip(rows) {
            let known = KNOWN.iter().position(|known| known == rate);
            let (load, success) = known
                .and_then(|known| Some(way.reference()?[known]))
                .map_or_else(Default::default, |(load, success)| (format!("{load:.3}"), format!("{success:.4}")));
            let ours = row[at];
            let (ours, share) = (format!("{:.3}", ours.load), format!("{:.4}", ours.success));
            table.row([(rate * 100.0).to_string(), way.name().to_owned(), ours, load, share, success]);
        }
    }
    table
}

fn crowd_table(rows: &[&[Seen]], crowds: &[usize], total: f64) -> Table {
    let title = format!("{total} calls a second in all, from more and smaller clients");
    let head = [
        "clients",
        "client",
        "load at 5 %",
        "success at 5 %",
        "reference success at 5 %",
        "load at 50 %",
        "success at 50 %",
        "reference load at 50 %",
    ];
    let mut table = Table::new("budget-clients", title, &head);
    for (at, clients) in crowds.iter().enumerate() {
        for (way, row) in WAYS.iter().zip(rows) {
            let cells = row[2 * at..2 * at + 2].iter().zip(way.reference_of(*clients)).flat_map(|(seen, known)| {
                [format!("{:.3}", seen.load), format!("{:.4}", seen.success), known.to_owned()]
            });
            table.row([clients.to_string(), way.name().to_owned()].into_iter().chain(cells));
        }
    }
    table
}

fn figure(rows: &[&[Seen]]) -> Figure {
    let failures = || Axis::linear("share of tries that fail, %", 0.0, 100.0);
    let mut load = Panel::new("load on the server", failures(), Axis::linear("tries for each call", 0.0, 4.0));
    let mut success = Panel::new("calls that succeed", failures(), Axis::linear("%", 0.0, 100.0));
    for (index, row) in rows.iter().enumerate() {
        let curve =
            |value: fn(&Seen) -> f64| RATES.iter().zip(*row).map(|(rate, seen)| (rate * 100.0, value(seen))).collect();
        for form in [Form::Line, Form::Dots] {
            load.add(index, form, curve(|seen| seen.load));
            success.add(index, form, curve(|seen| seen.success * 100.0));
        }
    }
    Figure::new("budget", "What bounds retries", "clients of 10 calls a second; tries fail at random")
        .legend(WAYS.map(Way::name))
        .panel(load)
        .panel(success)
}

fn checks(rows: &[&[Seen]], crowds: &[&[Seen]]) -> Vec<Check> {
    let at = |way, rate| {
        let row = WAYS.iter().position(|each| *each == way).expect("all ways have a row");
        let column = RATES.iter().position(|each| *each == rate).expect("all rates have a column");
        rows[row][column]
    };
    let (naive, bucket, default) = (at(Way::ThreeRetries, 1.0), at(Way::Bucket, 1.0), at(Way::Default, 1.0));
    let (few, free) = (at(Way::Bucket, 0.05), at(Way::ThreeRetries, 0.05));
    let gated = at(Way::BreakerOnRetries, 0.1);
    let bucket_row = crowds[WAYS.iter().position(|way| *way == Way::Bucket).expect("all ways have a row")];
    let (big, small) = (bucket_row[1].load, bucket_row[bucket_row.len() - 1].load);
    vec![
        Check::new("three retries are four times the load when everything fails", times(naive.load), naive.load > 3.9),
        Check::new(
            "a budget of 10 % keeps the load of a total outage within 1.15",
            format!("{}, by default {}", times(bucket.load), times(default.load)),
            bucket.load <= 1.15 && default.load <= 1.15,
        ),
        Check::new(
            "and costs next to nothing while 5 % fail",
            format!("{:.4} succeed, {:.4} with three retries", few.success, free.success),
            few.success >= free.success - 0.002,
        ),
        Check::new(
            "what it begins with leaks where clients are many and small",
            format!("half of all tries fail: {} from few clients, {} from many", times(big), times(small)),
            small > 1.2 * big,
        ),
        Check::new(
            "a breaker on retries has given up at 10 % failures where a budget has not",
            format!("{:.3} and {:.3} succeed", gated.success, at(Way::Bucket, 0.1).success),
            gated.success < at(Way::Bucket, 0.1).success,
        ),
    ]
}

fn times(load: f64) -> String {
    format!("{load:.3} times")
}

const RATES: [f64; 12] = [0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0];
/// Those of which there is a reference.
const KNOWN: [f64; 6] = [0.01, 0.05, 0.1, 0.2, 0.5, 1.0];
