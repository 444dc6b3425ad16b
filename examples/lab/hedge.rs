//! `lab hedge`: what a second request does for the slowest calls, and when it does harm. After "The Tail at Scale" (2013).
//!
//! Without feedback, replicas do not hinder each other: around 10 ms, and one answer in a hundred takes ten times as long. With
//! feedback there are ten servers with a line each, which go on with requests that nobody waits for any more.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use steadfast::clock::Clock;
use steadfast::{Budget, Executor, Hedge};

use crate::axis::Axis;
use crate::dice::Dice;
use crate::figure::{Figure, Form, Panel};
use crate::load::{self, Down, Load, Request, Server};
use crate::record::{mean, quantile, share};
use crate::report::{Check, Report};
use crate::setting::Setting;
use crate::sim::{Sim, Time, lock};
use crate::table::Table;

pub(crate) fn run(setting: &Setting) -> Report {
    let calls = setting.pick([200_000, 40_000, 6_000]);
    let apart = setting.map("hedge", &POINTS, |&point| independent(point, slow_tenfold, calls, setting.seed));
    let both = [Point::None, Point::At(0.95)];
    let stalls =
        setting.map("hedge, stalls of a second", &both, |&point| independent(point, stall, calls, setting.seed));
    let utilisations: &[f64] = setting.pick([&[0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8], &[0.3, 0.6, 0.8], &[0.6]]);
    let served = setting.pick([60_000, 20_000, 3_000]);
    let cells: Vec<_> = FEEDBACK.iter().flat_map(|way| utilisations.iter().map(move |&share| (way, share))).collect();
    let seeds = setting.pick([5, 1, 1]);
    let loaded = setting.map("hedge, with load", &cells, |&(way, share)| {
        Loaded::of((0..seeds).map(|seed| with_load(way, share, served, setting.seed_of(seed))).collect())
    });
    let loaded: Vec<_> = loaded.chunks(utilisations.len()).collect();
    Report {
        tables: vec![table(&apart), stall_table(&stalls), load_table(&loaded, utilisations)],
        figures: vec![figure(&apart), load_figure(&loaded, utilisations)],
        checks: checks(&apart, &stalls, &loaded, utilisations),
    }
}

/// When the second request is made.
#[derive(Clone, Copy, PartialEq)]
enum Point {
    None,
    At(f64),
}

const POINTS: [Point; 6] =
    [Point::None, Point::At(0.5), Point::At(0.9), Point::At(0.95), Point::At(0.98), Point::At(0.99)];

impl Point {
    fn hedge(self) -> Option<Hedge> {
        match self {
            Point::None => None,
            Point::At(share) => Some(Hedge::percentile(share)),
        }
    }

    fn name(self) -> String {
        match self {
            Point::None => "no hedge".to_owned(),
            Point::At(share) => format!("hedge at p{:.0}", share * 100.0),
        }
    }
}

/// Extra load in percent, then p50, p95, p99 and p99.9 in milliseconds, of a plain simulation.
const REFERENCE: [[f64; 5]; 6] = [
    [0.0, 10.1, 23.9, 49.3, 189.0],
    [50.1, 10.1, 19.8, 24.9, 32.9],
    [10.1, 10.0, 23.7, 30.2, 40.3],
    [5.05, 10.1, 23.9, 33.2, 43.3],
    [2.0, 10.1, 24.0, 39.0, 51.3],
    [1.0, 10.0, 23.9, 49.6, 67.2],
];

struct Seen {
    /// Requests beyond one for each call, as a share of calls.
    extra: f64,
    /// Of each call.
    latencies: Vec<Duration>,
}

impl Seen {
    fn at(&self, share: f64) -> f64 {
        millis(quantile(self.latencies.clone(), share))
    }

    /// The share of calls to a hundred backends at once of which at least one takes longer than half a second.
    fn slow_fan_outs(&self) -> f64 {
        let fans = self.latencies.chunks_exact(100);
        let all = fans.len();
        share(fans.filter(|fan| fan.iter().any(|took| *took > Duration::from_millis(500))).count(), all)
    }
}

/// What several worlds of servers with a line have shown: one in a hundred is little to measure, and lines make it less.
struct Loaded {
    /// Means.
    extra: f64,
    p50: f64,
    /// The lowest, the middle and the highest, in milliseconds.
    p99: [f64; 3],
}

impl Loaded {
    fn of(worlds: Vec<Seen>) -> Loaded {
        let of = |value: fn(&Seen) -> f64| -> Vec<_> { worlds.iter().map(value).collect() };
        let mut p99 = of(|seen| seen.at(0.99));
        p99.sort_by(f64::total_cmp);
        let p99 = [p99[0], p99[p99.len() / 2], p99[p99.len() - 1]];
        Loaded { extra: mean(&of(|seen| seen.extra)), p50: mean(&of(|seen| seen.at(0.5))), p99 }
    }
}

/// Calls one after another: replicas that do not hinder each other do not mind how many there are.
fn independent(point: Point, latency: fn(&mut Dice) -> Duration, calls: usize, seed: u64) -> Seen {
    let clock = Clock::manual();
    let builder = Executor::builder("replicas").policies(point.hedge()).unbudgeted();
    let executor = builder.clock(&clock).build().expect("these settings can work");
    let (dice, requests) = (Mutex::new(Dice::new(seed, 0)), AtomicU64::new(0));
    let sleeper = clock.clock();
    let latencies = (0..calls).map(|_| {
        let begun = clock.now();
        let request = |_| async {
            requests.fetch_add(1, Relaxed);
            let takes = latency(&mut lock(&dice));
            sleeper.sleep(takes).await;
            Ok::<_, Down>(())
        };
        clock.block_on(executor.run(request)).expect("it always answers");
        clock.now().since(begun)
    });
    let latencies = latencies.collect();
    Seen { extra: requests.into_inner() as f64 / calls as f64 - 1.0, latencies }
}

fn slow_tenfold(dice: &mut Dice) -> Duration {
    let factor = if dice.chance(0.01) { 10 } else { 1 };
    dice.lognormal(MEDIAN, SIGMA) * factor
}

fn stall(dice: &mut Dice) -> Duration {
    if dice.chance(0.01) { Duration::from_secs(1) } else { dice.lognormal(MEDIAN, SIGMA) }
}

/// A client of the ten servers.
struct Way {
    name: &'static str,
    hedge: fn() -> Option<Hedge>,
    budget: Option<f64>,
    /// p99 of a plain simulation, in milliseconds, at 60, 70 and 80 %; 0 is unknown.
    reference: [f64; 3],
}

const FEEDBACK: [Way; 5] = [
    Way { name: "no hedge", hedge: || None, budget: None, reference: [307.0, 0.0, 487.0] },
    Way { name: "after 30 ms", hedge: || Some(Hedge::after(FIXED)), budget: None, reference: [21_500.0, 0.0, 0.0] },
    Way {
        name: "after 30 ms, budget 5 %",
        hedge: || Some(Hedge::after(FIXED)),
        budget: Some(0.05),
        reference: [328.0, 0.0, 0.0],
    },
    Way { name: "at p95", hedge: || Some(Hedge::percentile(0.95)), budget: None, reference: [0.0, 0.0, 10_960.0] },
    Way {
        name: "at p95, budget 5 %",
        hedge: || Some(Hedge::percentile(0.95)),
        budget: Some(0.05),
        reference: [0.0, 0.0, 489.0],
    },
];

fn with_load(way: &Way, utilisation: f64, calls: u32, seed: u64) -> Seen {
    let sim = Sim::new();
    let builder = Executor::builder("servers").policies((way.hedge)()).clock(sim.clock());
    let builder = match way.budget {
        Some(ratio) => builder.budget(Budget::ratio(ratio).floor(Duration::MAX)),
        None => builder.unbudgeted(),
    };
    let executor = builder.build().expect("these settings can work").erase();
    let lines = Lines { free_at: [Duration::ZERO; SERVERS], seed, dice: Dice::new(seed, 0), requests: 0 };
    let servers = Arc::new(Servers(Mutex::new(lines)));
    let rate = utilisation * SERVERS as f64 / mean_service();
    let until = Duration::from_secs_f64(f64::from(calls) / rate);
    let load = Load { seed, rate: move |_| rate, changes: Vec::new(), until, cut_at: Duration::MAX };
    let record = load::drive(&sim, vec![executor], &servers, load);
    let requests = lock(&servers.0).requests;
    let latencies: Vec<_> = record.calls.iter().map(|call| call.took).collect();
    Seen { extra: requests as f64 / latencies.len() as f64 - 1.0, latencies }
}

/// Servers that do one thing at a time, in the order in which it came.
struct Servers(Mutex<Lines>);

struct Lines {
    free_at: [Duration; SERVERS],
    seed: u64,
    dice: Dice,
    requests: u64,
}

impl Server for Servers {
    async fn request(&self, time: &Time, request: Request) -> Result<(), Down> {
        let done = lock(&self.0).arrived(&request, time.now());
        time.until(done).await;
        Ok(())
    }
}

impl Lines {
    fn arrived(&mut self, request: &Request, now: Duration) -> Duration {
        self.requests += 1;
        // The number of the call decides, so that a hedge knows which server has its original and goes to another one.
        let original = Dice::new(self.seed, ROUTES + request.call).below(SERVERS);
        let server =
            if request.attempt.is_hedge() { (original + 1 + self.dice.below(SERVERS - 1)) % SERVERS } else { original };
        let done = self.free_at[server].max(now) + slow_tenfold(&mut self.dice);
        self.free_at[server] = done;
        done
    }
}

/// In seconds: the mean of the lognormal, with the slow ones.
fn mean_service() -> f64 {
    MEDIAN.as_secs_f64() * libm::exp(SIGMA * SIGMA / 2.0) * 1.09
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

fn table(rows: &[Seen]) -> Table {
    let title = "Independent replicas around 10 ms, one answer in a hundred ten times as slow";
    let head = ["hedge", "from", "extra load, %", "p50, ms", "p95, ms", "p99, ms", "p99.9, ms"];
    let mut table = Table::new("hedge", title, &head);
    for ((point, seen), reference) in POINTS.iter().zip(rows).zip(REFERENCE) {
        let ours = [seen.extra * 100.0, seen.at(0.5), seen.at(0.95), seen.at(0.99), seen.at(0.999)];
        for (from, numbers) in [("here", ours), ("reference", reference)] {
            let [extra, latencies @ ..] = numbers;
            let latencies = latencies.map(|latency| format!("{latency:.1}"));
            table.row([point.name(), from.to_owned(), format!("{extra:.2}")].into_iter().chain(latencies));
        }
    }
    table
}

fn stall_table(rows: &[Seen]) -> Table {
    let title =
        "The same, one answer in a hundred takes a second; calls to a hundred of them at once, over half a second";
    let head = ["hedge", "extra load, %", "p99, ms", "reference p99, ms", "slow fan-outs, %", "reference fan-outs, %"];
    let mut table = Table::new("hedge-stalls", title, &head);
    let known = [("no hedge", "1000", "62.7"), ("hedge at p95", "26", "1.1")];
    for (seen, (name, p99, fans)) in rows.iter().zip(known) {
        let ours = [format!("{:.2}", seen.extra * 100.0), format!("{:.0}", seen.at(0.99))];
        let slow = format!("{:.1}", seen.slow_fan_outs() * 100.0);
        table.row([name.to_owned()].into_iter().chain(ours).chain([p99.to_owned(), slow, fans.to_owned()]));
    }
    table
}

fn load_table(rows: &[&[Loaded]], utilisations: &[f64]) -> Table {
    let title =
        "Ten servers with a line each, which finish what nobody waits for any more; p99 of the middle one of the seeds";
    let head = [
        "hedge",
        "utilisation, %",
        "extra load, %",
        "p50, ms",
        "p99, ms",
        "lowest p99, ms",
        "highest p99, ms",
        "reference p99, ms",
    ];
    let mut table = Table::new("hedge-load", title, &head);
    for (way, row) in FEEDBACK.iter().zip(rows) {
        for (utilisation, seen) in utilisations.iter().zip(*row) {
            let known = [0.6, 0.7, 0.8].iter().position(|known| known == utilisation);
            let known = known.map(|at| way.reference[at]).filter(|known| *known > 0.0);
            let [lowest, middle, highest] = seen.p99;
            let p99 = [Some(middle), Some(lowest), Some(highest), known];
            let cells = [
                format!("{:.0}", utilisation * 100.0),
                format!("{:.1}", seen.extra * 100.0),
                format!("{:.1}", seen.p50),
            ];
            let p99 = p99.map(|ms| ms.map_or_else(String::new, |ms| format!("{ms:.0}")));
            table.row([way.name.to_owned()].into_iter().chain(cells).chain(p99));
        }
    }
    table
}

fn figure(rows: &[Seen]) -> Figure {
    let shares = [0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.985, 0.99, 0.995, 0.998, 0.999];
    let named = [(2.0, "p50"), (10.0, "p90"), (20.0, "p95"), (100.0, "p99"), (1000.0, "p99.9")];
    let axis = Axis::log_with("percentile of the calls", &named);
    let mut panel = Panel::new("how long calls take", axis, Axis::log("ms", 10.0, rows[0].at(0.999)));
    for (index, seen) in rows.iter().enumerate() {
        panel.add(index, Form::Line, shares.iter().map(|&share| (1.0 / (1.0 - share), seen.at(share))).collect());
    }
    let names: Vec<_> = POINTS
        .iter()
        .zip(rows)
        .map(|(point, seen)| format!("{}: +{:.1} %", point.name(), seen.extra * 100.0))
        .collect();
    Figure::new(
        "hedge",
        "A second request for those that take long",
        "independent replicas around 10 ms; 1 of 100 answers takes ten times as long; extra load",
    )
    .legend(names.iter().map(String::as_str))
    .panel(panel)
}

fn load_figure(rows: &[&[Loaded]], utilisations: &[f64]) -> Figure {
    let longest = rows.iter().flat_map(|row| row.iter().map(|seen| seen.p99[1])).fold(100.0, f64::max);
    let (first, last) = (utilisations[0], utilisations[utilisations.len() - 1]);
    let utilisation = Axis::linear("utilisation of the servers without hedges, %", first * 100.0, last * 100.0);
    let mut panel = Panel::new("how long calls take, p99", utilisation, Axis::log("ms", 20.0, longest));
    for (index, row) in rows.iter().enumerate() {
        let points = utilisations.iter().zip(*row).map(|(share, seen)| (share * 100.0, seen.p99[1])).collect();
        panel.add(index, Form::Line, points);
    }
    Figure::new(
        "hedge-load",
        "Hedges that slow down what they are for",
        "ten servers with a line each, which finish what nobody waits for any more",
    )
    .legend(FEEDBACK.iter().map(|way| way.name))
    .panel(panel)
}

fn checks(apart: &[Seen], stalls: &[Seen], loaded: &[&[Loaded]], utilisations: &[f64]) -> Vec<Check> {
    let (none, hedged) = (&apart[0], &apart[3]);
    let sixty = utilisations.iter().position(|share| *share == 0.6).expect("every size has 60 %");
    let [plain, naive, bounded] = [0, 1, 2].map(|way: usize| loaded[way][sixty].p99[1]);
    let mut checks = vec![
        Check::new(
            "a hedge at p95 cuts p99.9 at least threefold, for at most 5.5 % extra load",
            format!("from {:.0} to {:.0} ms for {:.2} %", none.at(0.999), hedged.at(0.999), hedged.extra * 100.0),
            hedged.at(0.999) * 3.0 <= none.at(0.999) && hedged.extra <= 0.055,
        ),
        Check::new(
            "of calls to a hundred at once next to none is slow",
            format!(
                "{:.1} % without, {:.1} % with it",
                stalls[0].slow_fan_outs() * 100.0,
                stalls[1].slow_fan_outs() * 100.0
            ),
            stalls[0].slow_fan_outs() > 0.5 && stalls[1].slow_fan_outs() < 0.05,
        ),
        Check::new(
            "a fixed delay without a budget brings loaded servers down, a budget of 5 % does not let it",
            format!("p99 at 60 %: {plain:.0} ms without hedges, {naive:.0} and {bounded:.0} ms"),
            naive > 4.0 * plain && bounded < 2.0 * plain,
        ),
    ];
    if let Some(eighty) = utilisations.iter().position(|share| *share == 0.8) {
        let [plain, naive, bounded] = [0, 3, 4].map(|way: usize| loaded[way][eighty].p99[1]);
        checks.push(Check::new(
            "at 80 % a hedge at p95 brings them down, too, and with a budget of 5 % it does not",
            format!("p99: {plain:.0} ms without hedges, {naive:.0} and {bounded:.0} ms"),
            naive > 3.0 * plain && bounded < 1.5 * plain,
        ));
    }
    checks
}

const MEDIAN: Duration = Duration::from_millis(10);
const SIGMA: f64 = 0.5;
const FIXED: Duration = Duration::from_millis(30);
const SERVERS: usize = 10;
/// The streams of the dice for the servers of calls: far from all others.
const ROUTES: u64 = 1 << 40;
