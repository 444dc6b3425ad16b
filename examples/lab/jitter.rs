//! `lab jitter`: clients that write one optimistically locked row once each. The simulation of "Exponential Backoff And Jitter" on
//! the AWS Architecture Blog, with our retry in the place of its clients.
//!
//! A try reads the version of the row, comes back, and writes; it fails if another client has written since. Each way through the
//! network takes |N(10, 2)| ms, and the server has no limit but the row.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use steadfast::{Executor, Retry, retry::Jitter};

use crate::axis::Axis;
use crate::dice::Dice;
use crate::figure::{Figure, Form, Panel};
use crate::record::mean;
use crate::report::{Check, Report};
use crate::setting::Setting;
use crate::sim::{Sim, lock};
use crate::table::Table;

pub(crate) fn run(setting: &Setting) -> Report {
    let crowds: &[usize] = setting.pick([&[10, 30, 50, 70, 100, 130, 160, 190], &[10, 50, 100], &[50, 100]]);
    let runs = setting.pick([30, 5, 2]);
    let strategies = strategies();
    let cells: Vec<_> = (0..strategies.len()).flat_map(|s| crowds.iter().map(move |&clients| (s, clients))).collect();
    let results = setting.map("jitter", &cells, |&(strategy, clients)| {
        let worlds: Vec<_> =
            (0..runs).map(|run| contend(&strategies[strategy].retry, clients, setting.seed_of(run))).collect();
        let calls: Vec<_> = worlds.iter().map(|world| world.calls as f64).collect();
        let times: Vec<_> = worlds.iter().map(|world| world.took.as_secs_f64() * 1000.0).collect();
        (mean(&calls), mean(&times))
    });
    let rows: Vec<_> = strategies.iter().zip(results.chunks(crowds.len())).collect();
    Report { tables: vec![table(&rows, crowds)], figures: vec![figure(&rows, crowds)], checks: checks(&rows, crowds) }
}

/// Calls and milliseconds, for each number of clients.
type Cells<'a> = (&'a Strategy, &'a [(f64, f64)]);

struct Strategy {
    name: &'static str,
    retry: Retry,
    /// What a plain simulation of the same model gives at 100 and at 190 clients: calls and milliseconds.
    reference: [(u32, u32); 2],
}

/// The AWS program counts failures from 1, so that its first wait is twice the base of 5 ms. Our jitter never makes a wait longer:
/// a spread of 20 % to both sides of `d` is one of a third below `1.2 d`.
fn strategies() -> Vec<Strategy> {
    let exponential = |factor: f64| {
        let (base, cap) = (BASE.mul_f64(2.0 * factor), CAP.mul_f64(factor));
        Retry::exponential().base(base).cap(cap).unlimited()
    };
    let around = |share: f64| exponential(1.0 + share).jitter(Jitter::Proportional(2.0 * share / (1.0 + share)));
    let strategy = |name, retry, reference| Strategy { name, retry, reference };
    vec![
        strategy("none", Retry::immediate().unlimited(), [(2424, 2028), (7990, 3516)]),
        strategy("exponential", exponential(1.0).jitter(Jitter::None), [(1842, 62_287), (5166, 101_530)]),
        strategy("±20 %", around(0.2), [(839, 9078), (1820, 13_271)]),
        strategy("±25 %", around(0.25), [(813, 8561), (1750, 11_930)]),
        strategy("±50 %", around(0.5), [(731, 6121), (1588, 9568)]),
        strategy("equal", exponential(1.0).jitter(Jitter::Equal), [(813, 6884), (1762, 9509)]),
        strategy("decorrelated", Retry::decorrelated().base(BASE).cap(CAP).unlimited(), [(997, 4623), (2415, 8225)]),
        strategy("full", exponential(1.0), [(795, 4875), (1771, 7612)]),
    ]
}

struct World {
    /// Writes that have arrived.
    calls: usize,
    /// Until the last client was done.
    took: Duration,
}

/// All clients write once.
fn contend(retry: &Retry, clients: usize, seed: u64) -> World {
    let sim = Sim::new();
    let builder = Executor::builder("row").policies(retry.clone()).unbudgeted();
    let executor = builder.clock(sim.clock()).seed(seed).build().expect("these settings can work");
    let row = Arc::new(Mutex::new(Row { version: 0, writes: 0, dice: Dice::new(seed, 1) }));
    let last = Rc::new(Cell::new(Duration::ZERO));
    for _ in 0..clients {
        let (time, executor, row, last) = (sim.time().clone(), executor.clone(), Arc::clone(&row), Rc::clone(&last));
        sim.spawn(async move {
            let write = |_| async {
                let there = lock(&row).way();
                time.sleep(there).await;
                let (version, back_and_there) = lock(&row).read();
                time.sleep(back_and_there).await;
                let (result, back) = lock(&row).write(version);
                time.sleep(back).await;
                result
            };
            executor.run(write).await.expect("it tries until it succeeds");
            last.set(time.now());
        });
    }
    sim.run(Duration::MAX);
    let calls = lock(&row).writes;
    World { calls, took: last.get() }
}

/// The row, and the network around it.
struct Row {
    version: u64,
    writes: usize,
    dice: Dice,
}

#[derive(Debug)]
struct Stale;

impl Row {
    fn way(&mut self) -> Duration {
        Duration::from_secs_f64((0.010 + 0.002 * self.dice.normal()).abs())
    }

    /// The version, and how long it takes until the write arrives.
    fn read(&mut self) -> (u64, Duration) {
        (self.version, self.way() + self.way())
    }

    /// Whether it was the version, and how long it takes until that is known.
    fn write(&mut self, version: u64) -> (Result<(), Stale>, Duration) {
        self.writes += 1;
        let result = if version == self.version { Ok(()) } else { Err(Stale) };
        self.version += u64::from(result.is_ok());
        (result, self.way())
    }
}

fn table(rows: &[Cells<'_>], crowds: &[usize]) -> Table {
    let title = "Clients that write one row each: calls, and time until the last one was done";
    let mut table = Table::new(
        "jitter",
        title,
        &["backoff", "clients", "calls", "reference calls", "time, ms", "reference time, ms"],
    );
    for (strategy, results) in rows {
        for (clients, (calls, time)) in crowds.iter().zip(*results) {
            let known = [100, 190].iter().position(|known| known == clients).map(|at| strategy.reference[at]);
            let [calls_known, time_known] = match known {
                Some((calls, time)) => [calls.to_string(), time.to_string()],
                None => [String::new(), String::new()],
            };
            let ours = [format!("{calls:.0}"), calls_known, format!("{time:.0}"), time_known];
            table.row([strategy.name.to_owned(), clients.to_string()].into_iter().chain(ours));
        }
    }
    table
}

fn figure(rows: &[Cells<'_>], crowds: &[usize]) -> Figure {
    let most = |value: fn(&(f64, f64)) -> f64| {
        rows.iter().flat_map(|(_, results)| results.iter().map(value)).fold(1.0, f64::max)
    };
    let clients = || Axis::linear("clients", 0.0, *crowds.last().expect("there is one") as f64);
    let per_client =
        rows.iter().flat_map(|(_, results)| crowds.iter().zip(*results)).map(|(n, cell)| cell.0 / *n as f64);
    let mut calls = Panel::new(
        "calls that reach the server",
        clients(),
        Axis::log("for each client", 2.0, per_client.fold(1.0, f64::max)),
    )
    .tall();
    let mut times =
        Panel::new("until the last client is done", clients(), Axis::log("s", 0.1, most(|cell| cell.1) / 1000.0));
    for (index, (_, results)) in rows.iter().enumerate() {
        let curve = |value: fn(f64, &(f64, f64)) -> f64| {
            crowds.iter().map(|n| *n as f64).zip(*results).map(|(n, cell)| (n, value(n, cell))).collect()
        };
        calls.add(index, Form::Line, curve(|n, cell| cell.0 / n));
        times.add(index, Form::Line, curve(|_, cell| cell.1 / 1000.0));
    }
    Figure::new(
        "jitter",
        "Clients that write one row",
        "each writes once, and tries again with the backoff named; base 5 ms, cap 2 s",
    )
    .legend(rows.iter().map(|(strategy, _)| strategy.name))
    .panel(calls)
    .panel(times)
}

fn checks(rows: &[Cells<'_>], crowds: &[usize]) -> Vec<Check> {
    let at = crowds.iter().position(|clients| *clients == 100).expect("every size has 100 clients");
    let cell = |name| rows.iter().find(|(strategy, _)| strategy.name == name).expect("there is such a row").1[at];
    let (none, exponential, full, decorrelated) =
        (cell("none"), cell("exponential"), cell("full"), cell("decorrelated"));
    let others = rows.iter().filter(|(strategy, _)| strategy.name != "exponential");
    let next = others.map(|(_, results)| results[at].1).fold(0.0, f64::max);
    vec![
        Check::new(
            "full jitter needs at most half the calls of no backoff, at 100 clients",
            format!("{:.0} and {:.0}", full.0, none.0),
            full.0 <= none.0 / 2.0,
        ),
        Check::new(
            "backoff without jitter is by far the last to be done",
            format!("{:.1} s, the next one {:.1} s", exponential.1 / 1000.0, next / 1000.0),
            exponential.1 > 3.0 * next,
        ),
        Check::new(
            "decorrelated jitter makes more calls than full jitter",
            format!("{:.0} and {:.0}", decorrelated.0, full.0),
            decorrelated.0 > full.0,
        ),
    ]
}

const BASE: Duration = Duration::from_millis(5);
const CAP: Duration = Duration::from_secs(2);
