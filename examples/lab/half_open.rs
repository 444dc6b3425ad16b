//! `lab half-open`: whether a half-open breaker closes on a backend that answers well with a probability of `p`.
//!
//! A breaker is opened by hand, its time passes, and calls come one after another until it is closed or open again.

use std::time::Duration;

use steadfast::breaker::{BreakerConfig, State};
use steadfast::clock::Clock;
use steadfast::{Breaker, Executor};

use crate::axis::Axis;
use crate::dice::Dice;
use crate::figure::{Figure, Form, Panel};
use crate::load::Down;
use crate::record::share;
use crate::report::{Check, Report};
use crate::setting::Setting;
use crate::table::Table;

pub(crate) fn run(setting: &Setting) -> Report {
    let rounds = setting.pick([100_000, 20_000, 500]);
    let cells: Vec<_> = WAYS.iter().flat_map(|way| CHANCES.iter().map(move |&p| (way, p))).collect();
    let results = setting.map("half-open", &cells, |&(way, p)| closes(way, p, rounds, setting.seed));
    let rows: Vec<_> = results.chunks(CHANCES.len()).collect();
    Report { tables: vec![table(&rows)], figures: vec![figure(&rows)], checks: checks(&rows, rounds) }
}

struct Way {
    name: &'static str,
    config: fn(BreakerConfig) -> BreakerConfig,
    /// Trials, and how many of them may fail.
    trials: u32,
    failures: u32,
}

const WAYS: [Way; 4] = [
    Way { name: "1 trial, the default", config: |config| config, trials: 1, failures: 0 },
    Way { name: "3 of 3", config: |config| config.trials(3).successes_to_close(3), trials: 3, failures: 0 },
    Way { name: "10, fewer than half fail", config: |config| config.trial_rate(10, 0.5), trials: 10, failures: 4 },
    Way { name: "10, fewer than a fifth fail", config: |config| config.trial_rate(10, 0.2), trials: 10, failures: 1 },
];

impl Way {
    /// The exact probability.
    fn exact(&self, p: f64) -> f64 {
        let all = self.trials as i32;
        let term = |failed: i32| {
            let ways = (0..failed).fold(1.0, |ways, n| ways * f64::from(all - n) / f64::from(n + 1));
            ways * p.powi(all - failed) * (1.0 - p).powi(failed)
        };
        (0..=self.failures as i32).map(term).sum()
    }
}

/// The share of half-open rounds that close the breaker.
fn closes(way: &Way, p: f64, rounds: usize, seed: u64) -> f64 {
    let clock = Clock::manual();
    let open_for = Duration::from_secs(1);
    let breaker = Breaker::new((way.config)(BreakerConfig::default().open_for(open_for)));
    let builder = Executor::builder("backend").policies(breaker.clone()).clock(&clock);
    let executor = builder.build().expect("these settings can work");
    let mut dice = Dice::new(seed, 0);
    let mut closed = 0;
    for _ in 0..rounds {
        breaker.force_open();
        clock.advance(open_for);
        while breaker.state() == State::HalfOpen {
            let well = dice.chance(p);
            // What it came to is what the breaker makes of it.
            let _ = clock.block_on(executor.run(|_| async { if well { Ok(()) } else { Err(Down) } }));
        }
        closed += usize::from(breaker.state() == State::Closed);
    }
    share(closed, rounds)
}

fn table(rows: &[&[f64]]) -> Table {
    let title = "How likely it is that one half-open round closes the breaker";
    let mut table = Table::new(
        "half-open",
        title,
        &["trials", "share of answers that are well", "share of rounds that close", "exact share"],
    );
    for (way, row) in WAYS.iter().zip(rows) {
        for (p, share) in CHANCES.iter().zip(*row) {
            table.row([way.name.to_owned(), format!("{p:.1}"), format!("{share:.3}"), format!("{:.3}", way.exact(*p))]);
        }
    }
    table
}

fn figure(rows: &[&[f64]]) -> Figure {
    let well = Axis::linear("share of answers that are well", 0.0, 1.0);
    let mut panel = Panel::new(
        "rounds that close the breaker",
        well,
        Axis::linear("share; lines: exact, dots: simulated", 0.0, 1.0),
    );
    for (index, (way, row)) in WAYS.iter().zip(rows).enumerate() {
        panel.add(index, Form::Line, (0..=50).map(|at| f64::from(at) / 50.0).map(|p| (p, way.exact(p))).collect());
        panel.add(index, Form::Dots, CHANCES.iter().copied().zip(row.iter().copied()).collect());
    }
    Figure::new(
        "half-open",
        "What trials find out",
        "a half-open breaker on a backend that answers well only sometimes",
    )
    .legend(WAYS.iter().map(|way| way.name))
    .panel(panel)
}

fn checks(rows: &[&[f64]], rounds: usize) -> Vec<Check> {
    let off = WAYS
        .iter()
        .zip(rows)
        .flat_map(|(way, row)| CHANCES.iter().zip(*row).map(|(&p, share)| (share - way.exact(p)).abs()));
    let most = off.fold(0.0, f64::max);
    // Five standard deviations of a share of a half.
    let chance = 2.5 / (rounds as f64).sqrt();
    vec![Check::new(
        "the breaker closes as often as the binomials say",
        format!("off by {most:.4} at most"),
        most < chance,
    )]
}

const CHANCES: [f64; 9] = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9];
