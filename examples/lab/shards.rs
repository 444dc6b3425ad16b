//! `lab shards`: a service of shards, one of which is dead, and a breaker for the whole of it. After Marc Brooker, "Will circuit breakers
//! solve my problems?" (2022).
//!
//! 200 calls a second, each for one shard by chance, for ten minutes; a call of the dead shard fails at once.

use std::time::Duration;

use steadfast::breaker::{BreakerConfig, TripRule};
use steadfast::clock::Clock;
use steadfast::{Breaker, Context, Executor, Keyed};

use crate::axis::Axis;
use crate::dice::Dice;
use crate::figure::{Figure, Form, Panel};
use crate::load::Down;
use crate::record::{mean, share};
use crate::report::{Check, Report};
use crate::setting::Setting;
use crate::table::Table;

pub(crate) fn run(setting: &Setting) -> Report {
    let (calls, seeds) = setting.pick([(120_000, 5), (60_000, 1), (8_000, 1)]);
    let cells: Vec<_> = WAYS.iter().flat_map(|way| SHARDS.iter().map(move |&shards| (way, shards))).collect();
    let results = setting.map("shards", &cells, |&(way, shards)| {
        let worlds: Vec<_> = (0..seeds).map(|seed| partial_outage(way, shards, calls, setting.seed_of(seed))).collect();
        let of = |value: fn(&Seen) -> f64| mean(&worlds.iter().map(value).collect::<Vec<_>>());
        Seen { available: of(|seen| seen.available), refused: of(|seen| seen.refused) }
    });
    let rows: Vec<_> = results.chunks(SHARDS.len()).collect();
    Report { tables: vec![table(&rows)], figures: vec![figure(&rows)], checks: checks(&rows) }
}

struct Way {
    name: &'static str,
    config: fn() -> BreakerConfig,
    /// A breaker for each shard.
    keyed: bool,
    /// The availability of a plain simulation, for each of [`SHARDS`].
    reference: Option<[f64; 3]>,
}

const WAYS: [Way; 5] = [
    Way {
        name: "one, 10 % of 100 calls in 30 s, open 5 s",
        config: ten_percent,
        keyed: false,
        reference: Some([0.950, 0.338, 0.066]),
    },
    Way {
        name: "one, 50 % of 100 calls, open 60 s",
        config: || counting(0.5),
        keyed: false,
        reference: Some([0.950, 0.899, 0.801]),
    },
    Way {
        name: "one, 10 % of 100 calls, open 60 s",
        config: || counting(0.1),
        keyed: false,
        reference: Some([0.245, 0.004, 0.004]),
    },
    Way { name: "one, the default", config: BreakerConfig::default, keyed: false, reference: None },
    Way {
        name: "one for each shard, 50 % of 20 in 10 s, open 5 s",
        config: half,
        keyed: true,
        reference: Some([0.950, 0.899, 0.801]),
    },
];

/// Polly's default.
fn ten_percent() -> BreakerConfig {
    let rule = TripRule::failure_rate(0.1).window(10, Duration::from_secs(3)).minimum_calls(100);
    BreakerConfig::default().rule(rule).open_for(Duration::from_secs(5))
}

/// resilience4j's default is at 50 %.
fn counting(rate: f64) -> BreakerConfig {
    BreakerConfig::default()
        .rule(TripRule::count_window(100, rate))
        .open_for(Duration::from_secs(60))
        .trial_rate(10, rate)
}

fn half() -> BreakerConfig {
    BreakerConfig::default().open_for(Duration::from_secs(5))
}

#[derive(Clone, Copy)]
struct Seen {
    /// Of all calls, those that succeeded.
    available: f64,
    /// Those that a breaker refused.
    refused: f64,
}

fn partial_outage(way: &Way, shards: usize, calls: usize, seed: u64) -> Seen {
    let clock = Clock::manual();
    let chain = if way.keyed {
        (None, Some(Keyed::<Breaker>::new((way.config)())))
    } else {
        (Some(Breaker::new((way.config)())), None)
    };
    let executor = Executor::builder("service").policies(chain).clock(&clock).build().expect("these settings can work");
    let contexts: Vec<_> = (0..shards).map(|shard| Context::new().with_key(format!("shard {shard}"))).collect();
    let mut dice = Dice::new(seed, 0);
    let (mut succeeded, mut refused) = (0, 0);
    for _ in 0..calls {
        clock.advance(dice.exponential(Duration::from_millis(5)));
        let shard = dice.below(shards);
        let answer = || if shard == 0 { Err(Down) } else { Ok(()) };
        let ended = clock.block_on(executor.run_with(&contexts[shard], |_| async { answer() }));
        succeeded += usize::from(ended.is_ok());
        refused += usize::from(ended.is_err_and(|error| error.is_rejection()));
    }
    Seen { available: share(succeeded, calls), refused: share(refused, calls) }
}

fn table(rows: &[&[Seen]]) -> Table {
    let title = "Share of calls that succeed, and that a breaker refuses, with one shard dead";
    let mut table =
        Table::new("shards", title, &["breaker", "shards, one dead", "available", "reference", "refused", "possible"]);
    for (way, row) in WAYS.iter().zip(rows) {
        for (at, (shards, seen)) in SHARDS.iter().zip(*row).enumerate() {
            let reference = way.reference.map_or_else(String::new, |known| format!("{:.3}", known[at]));
            let possible = 1.0 - 1.0 / *shards as f64;
            let cells =
                [format!("{:.3}", seen.available), reference, format!("{:.3}", seen.refused), format!("{possible:.3}")];
            table.row([way.name.to_owned(), shards.to_string()].into_iter().chain(cells));
        }
    }
    table
}

fn figure(rows: &[&[Seen]]) -> Figure {
    let dead = Axis::names("shards that are dead", &["1 of 20", "1 of 10", "1 of 5"]);
    let mut panel = Panel::new("calls that succeed", dead, Axis::linear("share of all", 0.0, 1.0));
    for (index, row) in rows.iter().enumerate() {
        panel.add(
            index,
            Form::Bars,
            row.iter().enumerate().map(|(place, seen)| (place as f64, seen.available)).collect(),
        );
    }
    Figure::new(
        "shards",
        "One dead shard, and a breaker",
        "200 calls a second for ten minutes, each for one shard by chance",
    )
    .legend(WAYS.iter().map(|way| way.name))
    .panel(panel)
}

fn checks(rows: &[&[Seen]]) -> Vec<Check> {
    let [one, halves, counted, keyed] =
        [0, 1, 2, 4].map(|way: usize| [0, 1, 2].map(|at: usize| rows[way][at].available));
    let said = |[twenty, ten, five]: [f64; 3]| {
        format!("{twenty:.3}, {ten:.3} and {five:.3} succeed with 1 of 20, 10 and 5 dead")
    };
    vec![
        Check::new(
            "one breaker at 10 % makes one dead shard of ten or of five an outage of most calls, and one of twenty not",
            said(one),
            one[0] >= 0.94 && one[1] < 0.5 && one[2] < 0.2,
        ),
        Check::new(
            "over the last hundred calls and for a minute, one of twenty is an outage, too",
            said(counted),
            counted.iter().all(|available| *available < 0.5),
        ),
        Check::new(
            "one at 50 % stays closed, and one for each shard costs next to nothing",
            format!("{}; for each shard {}", said(halves), said(keyed)),
            [halves, keyed].iter().all(|way| way.iter().zip(SHARDS).all(|(share, n)| *share >= 0.99 - 1.0 / n as f64)),
        ),
    ]
}

/// One of so many is dead.
const SHARDS: [usize; 3] = [20, 10, 5];
