//! `lab collapse`: a spike of ten seconds, and whether the system comes back. After Marc Brooker's `simple_collapse_sim`, which shows
//! what "Metastable Failures in the Wild" (OSDI 2022) describes.
//!
//! 40 calls a second, 80 for as long as the spike lasts. The server needs a second and a hundredth more for each request that it has,
//! and goes on with those whose caller has given up, which is after three seconds. So 40 a second keep some 70 requests in it, which
//! take 1.7 s each; from 64 a second on everything takes longer than callers wait. Each way through the network takes 0.1 s on
//! average.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use steadfast::breaker::{BreakerConfig, TripRule};
use steadfast::standard::StandardConfig;
use steadfast::{Breaker, Budget, ConfigError, Executor, Retry, Timeout};

use crate::axis::Axis;
use crate::dice::Dice;
use crate::figure::{Figure, Form, Panel};
use crate::load::{self, Down, Load, Request, Server};
use crate::record::{Record, histogram, mean, share};
use crate::report::{Check, Report};
use crate::setting::Setting;
use crate::sim::{Sim, Time, lock};
use crate::table::Table;

pub(crate) fn run(setting: &Setting) -> Report {
    let (spikes, seeds): (&[u64], u64) = setting.pick([(&[5, 10, 15], 10), (&[10], 2), (&[10], 1)]);
    let cells: Vec<_> = (0..WAYS.len())
        .flat_map(|way| spikes.iter().flat_map(move |&spike| (0..seeds).map(move |seed| (way, spike, seed))))
        .collect();
    let worlds = setting.map("collapse", &cells, |&(way, spike, seed)| {
        spike_of(&WAYS[way], Duration::from_secs(spike), setting.seed_of(seed))
    });
    let rows: Vec<_> = worlds.chunks(spikes.len() * seeds as usize).collect();
    let ten = spikes.iter().position(|spike| *spike == 10).expect("every size has a spike of 10 s");
    let ten: Vec<_> = rows.iter().map(|row| &row[ten * seeds as usize..(ten + 1) * seeds as usize]).collect();
    Report { tables: vec![table(&rows, spikes, seeds)], figures: vec![figure(&ten)], checks: checks(&ten) }
}

/// A client.
///
/// The reference is a plain simulation of the model. Two of its budgets are others than ours: for "20 %" it has one over a sliding
/// window, and for "50 to begin with" the bucket of the AWS SDKs, of 500 tokens of which a retry after a timeout costs 10.
struct Way {
    name: &'static str,
    build: fn(&Sim, u64) -> Result<Executor, ConfigError>,
    /// Goodput after spikes of 5, 10 and 15 s.
    reference: &'static str,
    /// Load after spikes of 5, 10 and 15 s, as far as it is known.
    reference_load: &'static str,
    /// Whether something bounds its retries.
    bounded: bool,
    drawn: bool,
}

const fn way(
    name: &'static str,
    reference: &'static str,
    build: fn(&Sim, u64) -> Result<Executor, ConfigError>,
) -> Way {
    Way { name, build, reference, reference_load: "", bounded: true, drawn: false }
}

static WAYS: [Way; 9] = [
    Way {
        bounded: false,
        drawn: true,
        reference_load: "2.2 3.0 3.0",
        ..way("3 tries at once", ".398 .000 .000", |sim, seed| plain(sim, seed, three(), None))
    },
    Way {
        bounded: false,
        drawn: true,
        reference_load: "- 2.8 -",
        ..way("3 tries, U(0, 20 s) and U(0, 40 s)", "1.00 .106 .000", |sim, seed| plain(sim, seed, slow(), None))
    },
    Way {
        drawn: true,
        ..way("budget 10 %, the default", "1.00 1.00 1.00", |sim, seed| {
            plain(sim, seed, three(), Some(Budget::default()))
        })
    },
    way("budget 20 %", "1.00 1.00 1.00", |sim, seed| {
        plain(sim, seed, three(), Some(Budget::ratio(0.2).floor(Duration::MAX)))
    }),
    way("budget 10 %, 50 to begin with", "1.00 1.00 1.00", |sim, seed| {
        plain(sim, seed, three(), Some(Budget::ratio(0.1).cap(50).initial(50)))
    }),
    way("budget 20 % of those in flight", "", |sim, seed| plain(sim, seed, three(), Some(Budget::concurrent(0.2)))),
    Way { bounded: false, drawn: true, ..way("breaker 50 %, open 5 s", "1.00 1.00 1.00", breaker) },
    way("the standard chain", "", standard),
    Way {
        drawn: true,
        ..way("no retries", "1.00 1.00 1.00", |sim, seed| plain(sim, seed, Retry::immediate().max_attempts(1), None))
    },
];

fn three() -> Retry {
    Retry::immediate().max_attempts(3)
}

fn slow() -> Retry {
    Retry::exponential().base(Duration::from_secs(20)).cap(Duration::from_secs(40))
}

fn plain(sim: &Sim, seed: u64, retry: Retry, budget: Option<Budget>) -> Result<Executor, ConfigError> {
    let builder = Executor::builder("server").policies((retry, Timeout::new(PATIENCE))).clock(sim.clock()).seed(seed);
    let builder = match budget {
        Some(budget) => builder.budget(budget),
        None => builder.unbudgeted(),
    };
    Ok(builder.build()?.erase())
}

fn breaker(sim: &Sim, seed: u64) -> Result<Executor, ConfigError> {
    let rule = TripRule::failure_rate(0.5).window(10, Duration::from_secs(1)).minimum_calls(20);
    let breaker = Breaker::new(BreakerConfig::default().rule(rule).open_for(Duration::from_secs(5)));
    let builder = Executor::builder("server").policies((three(), breaker, Timeout::new(PATIENCE))).unbudgeted();
    Ok(builder.clock(sim.clock()).seed(seed).build()?.erase())
}

fn standard(sim: &Sim, seed: u64) -> Result<Executor, ConfigError> {
    let config = StandardConfig::default().attempt_timeout(PATIENCE);
    Ok(Executor::standard("server").config(config).clock(sim.clock()).seed(seed).build()?.erase())
}

/// What one run has shown.
struct World {
    /// For each second: calls that were made, successes, and requests that arrived.
    calls: Vec<f64>,
    good: Vec<f64>,
    sent: Vec<f64>,
    /// Seconds from the end of the spike to the end of the first five in which calls succeed again.
    recovered_after: Option<f64>,
}

impl World {
    /// Successes for each call, when the spike is long gone.
    fn goodput(&self) -> f64 {
        late(&self.good) / late(&self.calls)
    }

    /// Requests for each call, likewise.
    fn load(&self) -> f64 {
        late(&self.sent) / late(&self.calls)
    }
}

fn late(seconds: &[f64]) -> f64 {
    seconds[60..115].iter().sum()
}

fn spike_of(way: &Way, spike: Duration, seed: u64) -> World {
    let sim = Sim::new();
    let executor = (way.build)(&sim, seed).expect("these settings can work");
    let server = Arc::new(Crowded(Mutex::new(State {
        in_flight: BinaryHeap::new(),
        seen: Vec::new(),
        dice: Dice::new(seed, 0),
    })));
    let rate = move |at| if (START..START + spike).contains(&at) { 80.0 } else { 40.0 };
    let record = load::drive(
        &sim,
        vec![executor],
        &server,
        Load { seed, rate, changes: vec![START, START + spike], until: END, cut_at: END },
    );
    let by_second = |times: &mut dyn Iterator<Item = Duration>| histogram(times, SECOND, END.as_secs() as usize);
    let ok = record.calls.iter().filter(|call| call.ok);
    World {
        calls: by_second(&mut record.started.iter().copied()),
        good: by_second(&mut ok.map(|call| call.started + call.took)),
        sent: by_second(&mut lock(&server.0).seen.iter().copied()),
        recovered_after: recovered_after(&record, START + spike),
    }
}

/// Until five seconds are over in which nine of ten calls that end succeed.
fn recovered_after(record: &Record, spike_end: Duration) -> Option<f64> {
    let mut ends: Vec<_> = record.calls.iter().map(|call| (call.started + call.took, call.ok)).collect();
    ends.sort_unstable();
    let well = |till: &Duration| {
        let first = |time| ends.partition_point(|(at, _)| *at < time);
        let ended = &ends[first(*till - FIVE)..first(*till)];
        share(ended.iter().filter(|(_, ok)| *ok).count(), ended.len()) >= 0.9
    };
    let tills = (0..=(END - spike_end - FIVE).as_secs()).map(|second| spike_end + FIVE + second as u32 * SECOND);
    tills.into_iter().find(well).map(|till| (till - spike_end).as_secs_f64())
}

/// Gets slower with everything that it does at a time.
struct Crowded(Mutex<State>);

struct State {
    /// When those that are being worked on will be done, whether or not anybody waits for them.
    in_flight: BinaryHeap<Reverse<Duration>>,
    seen: Vec<Duration>,
    dice: Dice,
}

impl Server for Crowded {
    async fn request(&self, time: &Time, _: Request) -> Result<(), Down> {
        let there = lock(&self.0).way();
        time.sleep(there).await;
        let done = lock(&self.0).arrived(time.now());
        time.until(done).await;
        Ok(())
    }
}

impl State {
    fn way(&mut self) -> Duration {
        self.dice.exponential(SECOND / 10)
    }

    /// When the answer will be back.
    fn arrived(&mut self, now: Duration) -> Duration {
        self.seen.push(now);
        while self.in_flight.peek().is_some_and(|done| done.0 <= now) {
            self.in_flight.pop();
        }
        let done = now + SECOND + (self.in_flight.len() as u32 + 1) * SECOND / 100;
        self.in_flight.push(Reverse(done));
        done + self.way()
    }
}

fn table(rows: &[&[World]], spikes: &[u64], seeds: u64) -> Table {
    let title = format!(
        "40 calls a second, 80 in a spike at 20 s; goodput and load from 60 to 115 s, means of {seeds} seeds; back: from the \
         end of the spike to that of five seconds in which nine of ten calls that end succeed"
    );
    let head = [
        "client",
        "spike, s",
        "goodput",
        "reference goodput",
        "load",
        "reference load",
        "seeds that come back",
        "first back, s",
        "last back, s",
    ];
    let mut table = Table::new("collapse", title, &head);
    for (way, row) in WAYS.iter().zip(rows) {
        for (at, (spike, worlds)) in spikes.iter().zip(row.chunks(seeds as usize)).enumerate() {
            let mean_of = |value: fn(&World) -> f64| mean(&worlds.iter().map(value).collect::<Vec<_>>());
            let place = [5, 10, 15].iter().position(|known| known == spike).unwrap_or(at);
            let known = |numbers: &'static str| {
                numbers.split(' ').nth(place).filter(|known| *known != "-").unwrap_or_default().to_owned()
            };
            let recovered: Vec<_> = recovered(worlds).collect();
            let numbers = [
                format!("{:.3}", mean_of(World::goodput)),
                known(way.reference),
                format!("{:.2}", mean_of(World::load)),
                known(way.reference_load),
            ];
            let back = [f64::min, f64::max].map(|end| {
                recovered.iter().copied().reduce(end).map_or_else(String::new, |after| format!("{after:.0}"))
            });
            let counted = [recovered.len().to_string()].into_iter().chain(back);
            table.row([way.name.to_owned(), spike.to_string()].into_iter().chain(numbers).chain(counted));
        }
    }
    table
}

/// The times of those that came back, and stayed.
fn recovered(worlds: &[World]) -> impl Iterator<Item = f64> {
    worlds.iter().filter(|world| world.goodput() >= 0.9).filter_map(|world| world.recovered_after)
}

fn figure(rows: &[&[World]]) -> Figure {
    let seconds = || Axis::linear("time, s", 0.0, END.as_secs_f64());
    let drawn: Vec<_> = WAYS.iter().zip(rows).filter(|(way, _)| way.drawn).collect();
    let curve = |worlds: &[World], value: fn(&World) -> &[f64]| -> Vec<(f64, f64)> {
        let by_second: Vec<_> = (0..END.as_secs() as usize)
            .map(|second| mean(&worlds.iter().map(|world| value(world)[second]).collect::<Vec<_>>()))
            .collect();
        let smooth = by_second.windows(SMOOTH).enumerate();
        smooth.map(|(from, window)| (from as f64 + SMOOTH as f64 / 2.0, mean(window))).collect()
    };
    let most = drawn
        .iter()
        .flat_map(|(_, worlds)| curve(worlds, |world| &world.sent))
        .map(|(_, rate)| rate)
        .fold(0.0, f64::max);
    let mut good = Panel::new("calls that succeed", seconds(), Axis::linear("per second", 0.0, 80.0));
    let mut sent = Panel::new("requests that reach the server", seconds(), Axis::linear("per second", 0.0, most));
    for panel in [&mut good, &mut sent] {
        panel.shade(20.0, 30.0, "spike");
    }
    for (index, (_, worlds)) in drawn.iter().enumerate() {
        good.add(index, Form::Line, curve(worlds, |world| &world.good));
        sent.add(index, Form::Line, curve(worlds, |world| &world.sent));
    }
    let subtitle = "40 calls a second, 80 for 10 s; the server gets slower with each request that it has; callers wait 3 s for a try";
    Figure::new("collapse", "A spike of ten seconds", subtitle)
        .legend(drawn.iter().map(|(way, _)| way.name))
        .panel(good)
        .panel(sent)
}

fn checks(rows: &[&[World]]) -> Vec<Check> {
    let naive = rows[0].iter().map(World::goodput).fold(0.0, f64::max);
    let back = |way: usize| recovered(rows[way]).count();
    let breaker = WAYS.iter().position(|way| way.name.starts_with("breaker")).expect("there is such a row");
    let broken = recovered(rows[breaker]).fold(0.0, f64::max);
    let bounded: Vec<_> = WAYS.iter().zip(rows).filter(|(way, _)| way.bounded).collect();
    let slowest = bounded.iter().flat_map(|(_, worlds)| recovered(worlds)).fold(0.0, f64::max);
    let all = bounded.iter().all(|(_, worlds)| recovered(worlds).count() == worlds.len());
    vec![
        Check::new(
            "three tries at once never come back from a spike of 10 s",
            format!("at most {:.1} % succeed half a minute later and after", 100.0 * naive),
            rows[0].iter().all(|world| world.recovered_after.is_none()) && naive < 0.1,
        ),
        Check::new(
            "with long waits between the tries hardly ever",
            format!("{} of {} worlds come back", back(1), rows[1].len()),
            back(1) * 5 <= rows[1].len(),
        ),
        Check::new(
            "a breaker over three tries is back within 30 s",
            format!("{} of {} worlds, the last after {broken:.0} s", back(breaker), rows[breaker].len()),
            back(breaker) == rows[breaker].len() && broken <= 30.0,
        ),
        Check::new(
            "every budget, the standard chain, and no retries are back within 30 s",
            format!("all of them: {all}, the last after {slowest:.0} s"),
            all && slowest <= 30.0,
        ),
    ]
}

/// How long a caller waits for a try.
const PATIENCE: Duration = Duration::from_secs(3);
const SECOND: Duration = Duration::from_secs(1);
const FIVE: Duration = Duration::from_secs(5);
const START: Duration = Duration::from_secs(20);
const END: Duration = Duration::from_secs(120);
/// Curves are means of this many seconds.
const SMOOTH: usize = 3;
