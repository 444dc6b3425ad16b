//! `lab layers`: services that call services, each with retries of its own, and the last one is down.
//!
//! Each layer is an executor whose operation is a call of the layer below; what that ends with is an error to the layer above, as a
//! status of 503 would be. Calls come one after another.

use std::pin::Pin;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use steadfast::clock::Clock;
use steadfast::{Budget, Executor, Retry};

use crate::axis::Axis;
use crate::dice::Dice;
use crate::figure::{Figure, Form, Panel};
use crate::load::Down;
use crate::report::{Check, Report};
use crate::setting::Setting;
use crate::sim::lock;
use crate::table::Table;

pub(crate) fn run(setting: &Setting) -> Report {
    let calls = setting.pick([20_000, 3_000, 400]);
    let cells: Vec<_> = WAYS.iter().flat_map(|way| (1..=MOST).map(move |layers| (*way, layers))).collect();
    let results = setting.map("layers", &cells, |&(way, layers)| {
        // Without a budget there are few calls to make, all of them the same.
        let dead = if way.ratio.is_some() { calls } else { calls.min(20) };
        [(dead, 1.0), (calls, 0.1)].map(|(calls, failures)| amplify(way, layers, failures, calls, setting.seed))
    });
    let rows: Vec<_> = results.chunks(MOST).collect();
    Report { tables: vec![table(&rows)], figures: vec![figure(&rows)], checks: checks(&rows) }
}

/// What every layer does.
#[derive(Clone, Copy)]
struct Way {
    name: &'static str,
    attempts: u32,
    ratio: Option<f64>,
    /// The load of a dead leaf, for each number of layers.
    expected: fn(i32) -> f64,
    /// Of a plain simulation, where it is known: layers and the load of a dead leaf.
    reference: &'static [(i32, &'static str)],
}

const WAYS: [Way; 4] = [
    Way {
        name: "3 attempts",
        attempts: 3,
        ratio: None,
        expected: |layers| 3_f64.powi(layers),
        reference: &[(5, "243")],
    },
    Way {
        name: "4 attempts",
        attempts: 4,
        ratio: None,
        expected: |layers| 4_f64.powi(layers),
        reference: &[(3, "64")],
    },
    Way {
        name: "3 attempts, budget 10 %",
        attempts: 3,
        ratio: Some(0.1),
        expected: |layers| 1.1_f64.powi(layers),
        reference: &[(3, "1.33"), (5, "1.62")],
    },
    Way {
        name: "3 attempts, budget 20 %",
        attempts: 3,
        ratio: Some(0.2),
        expected: |layers| 1.2_f64.powi(layers),
        reference: &[(3, "1.73"), (5, "2.51")],
    },
];

#[derive(Clone, Copy)]
struct Seen {
    /// Calls of the leaf for each call from outside.
    load: f64,
    success: f64,
}

fn amplify(way: Way, layers: usize, failures: f64, calls: u64, seed: u64) -> Seen {
    let clock = Clock::manual();
    let leaf = Leaf { calls: AtomicU64::new(0), dice: Mutex::new(Dice::new(seed, 0)), failures };
    let layer = |_| {
        let builder = Executor::builder("layer").policies(Retry::immediate().max_attempts(way.attempts)).clock(&clock);
        let builder = match way.ratio {
            Some(ratio) => builder.budget(Budget::ratio(ratio).floor(Duration::MAX)),
            None => builder.unbudgeted(),
        };
        builder.build().expect("these settings can work")
    };
    let executors: Vec<_> = (0..layers).map(layer).collect();
    let succeeded = (0..calls).filter(|_| clock.block_on(call(&executors, &leaf)).is_ok()).count();
    Seen { load: leaf.calls.load(Relaxed) as f64 / calls as f64, success: succeeded as f64 / calls as f64 }
}

/// A call of the outermost of these layers.
fn call<'a>(
    layers: &'a [Executor<Retry>],
    leaf: &'a Leaf,
) -> Pin<Box<dyn Future<Output = Result<(), Down>> + Send + 'a>> {
    Box::pin(async move {
        match layers.split_first() {
            Some((outer, inner)) => outer.run(|_| call(inner, leaf)).await.map_err(|_| Down),
            None => leaf.answer(),
        }
    })
}

struct Leaf {
    calls: AtomicU64,
    dice: Mutex<Dice>,
    failures: f64,
}

impl Leaf {
    fn answer(&self) -> Result<(), Down> {
        self.calls.fetch_add(1, Relaxed);
        if lock(&self.dice).chance(self.failures) { Err(Down) } else { Ok(()) }
    }
}

fn table(rows: &[&[[Seen; 2]]]) -> Table {
    let title = "Layers of retries over a leaf that is dead, and over one that fails at 10 %";
    let head = ["each layer", "layers", "load, dead", "arithmetic", "reference", "load, 10 %", "success, 10 %"];
    let mut table = Table::new("layers", title, &head);
    for (way, row) in WAYS.iter().zip(rows) {
        for (layers, [dead, tenth]) in (1..).zip(*row) {
            let [dead, arithmetic, mended] =
                [dead.load, (way.expected)(layers), tenth.load].map(|load| format!("{load:.2}"));
            let known =
                way.reference.iter().find(|(known, _)| *known == layers).map_or("", |(_, load)| load).to_owned();
            let success = format!("{:.4}", tenth.success);
            table.row([way.name.to_owned(), layers.to_string(), dead, arithmetic, known, mended, success]);
        }
    }
    table
}

fn figure(rows: &[&[[Seen; 2]]]) -> Figure {
    let most = rows.iter().flat_map(|row| row.iter().map(|[dead, _]| dead.load)).fold(1.0, f64::max);
    let places: Vec<_> = (1..=MOST).map(|layers| layers.to_string()).collect();
    let places: Vec<_> = places.iter().map(String::as_str).collect();
    let layers = Axis::names("layers, each with retries of its own", &places);
    let mut panel = Panel::new("load on a dead leaf", layers, Axis::log("calls for each call from outside", 1.0, most));
    for (index, row) in rows.iter().enumerate() {
        let points: Vec<_> = row.iter().enumerate().map(|(place, [dead, _])| (place as f64, dead.load)).collect();
        panel.add(index, Form::Line, points.clone());
        panel.add(index, Form::Dots, points);
    }
    Figure::new("layers", "Retries that multiply", "services that call services, and the last one is down")
        .legend(WAYS.iter().map(|way| way.name))
        .panel(panel)
}

fn checks(rows: &[&[[Seen; 2]]]) -> Vec<Check> {
    let dead = |way: usize, layers: usize| rows[way][layers - 1][0].load;
    vec![
        Check::new("three attempts at five layers are 243 calls", format!("{:.0}", dead(0, 5)), dead(0, 5) == 243.0),
        Check::new("four attempts at three layers are 64", format!("{:.0}", dead(1, 3)), dead(1, 3) == 64.0),
        Check::new("with budgets of 10 % five layers are at most 1.7", format!("{:.2}", dead(2, 5)), dead(2, 5) <= 1.7),
        Check::new("with budgets of 20 % at most 2.6", format!("{:.2}", dead(3, 5)), dead(3, 5) <= 2.6),
        Check::new(
            "with 10 % two layers still mend a leaf that fails at 10 %",
            format!("{:.4} succeed", rows[2][1][1].success),
            rows[2][1][1].success > 0.99,
        ),
    ]
}

const MOST: usize = 5;
