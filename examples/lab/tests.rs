//! The claims, at a size that a debug build can bear, and that a seed decides everything.

use std::path::{Path, PathBuf};

use crate::report::Report;
use crate::setting::{Setting, Size};
use crate::{budget, collapse, half_open, hedge, jitter, layers, shards, tune};

const TINY: Setting = Setting { seed: 1, size: Size::Tiny, quiet: true };

/// All claims; and a figure of one machine, which is to be found on every other one, too.
fn holds(report: &Report, (table, begin, rest): (usize, &str, &str)) {
    let failed: Vec<_> = report.checks.iter().filter(|check| !check.holds).map(ToString::to_string).collect();
    assert!(!report.checks.is_empty() && failed.is_empty(), "{failed:?}");
    let table = report.tables[table].csv();
    assert_eq!(table.lines().find_map(|line| line.strip_prefix(begin)), Some(rest), "{table}");
}

/// All that is written, and the check itself: a table of other numbers is another text.
fn written(report: &Report) -> String {
    let tables = report.tables.iter().map(crate::table::Table::csv);
    tables.chain(report.figures.iter().map(crate::figure::Figure::svg)).collect()
}

#[test]
fn full_jitter_needs_at_most_half_the_calls_of_no_backoff() {
    holds(&jitter::run(&TINY), (0, "full,100,", "794,795,4629,4875"));
}

#[test]
fn a_budget_bounds_the_load_of_a_total_outage() {
    holds(&budget::run(&TINY), (0, "10,\"budget 10 %, the default\",", "1.095,,0.9840,"));
}

#[test]
fn budgets_keep_layers_from_multiplying() {
    holds(&layers::run(&TINY), (0, "\"3 attempts, budget 10 %\",5,", "1.64,1.61,1.62,1.09,1.0000"));
}

#[test]
fn three_tries_never_come_back_from_a_spike_and_every_budget_does() {
    holds(&collapse::run(&TINY), (0, "\"breaker 50 %, open 5 s\",10,", "1.008,1.00,1.00,,1,12,12"));
}

#[test]
fn a_hedge_cuts_the_tail_for_little_load() {
    holds(&hedge::run(&TINY), (2, "at p95,60,", "8.8,20.0,154,154,154,"));
}

#[test]
fn one_breaker_for_all_shards_is_an_outage_and_one_for_each_is_not() {
    holds(&shards::run(&TINY), (0, "\"one, 10 % of 100 calls in 30 s, open 5 s\",10,", "0.207,0.338,0.768,0.900"));
}

#[test]
fn half_open_rounds_close_as_often_as_the_binomials_say() {
    holds(&half_open::run(&TINY), (0, "3 of 3,0.7,", "0.366,0.343"));
}

#[test]
fn the_seed_decides_everything() {
    let with = |seed| written(&jitter::run(&Setting { seed, ..TINY }));
    assert_eq!(with(7), with(7));
    assert_ne!(with(7), with(8));
}

#[test]
fn a_chain_from_a_file_meets_a_backend_from_a_file() {
    let backend =
        include_str!("backend.toml").replace("rate = 300", "rate = 30").replace("workers = 20", "workers = 2");
    let files = Files::new("meets");
    // With what the breaker draws, of which a file cannot say the seed.
    let chain = include_str!("chain.toml").replace("open_for = \"2s\"", "open_for = \"2s\", open_jitter = 0.5");
    assert!(chain.contains("open_jitter") && backend.contains("workers = 2 "), "the files have changed");
    let (chain, backend) = (files.write("chain.toml", &chain), files.write("backend.toml", &backend));
    let run = || tune::run(&TINY, Some(&chain), &backend).unwrap();
    let report = run();
    let recovery = report.tables[2].csv();
    let rows: Vec<Vec<_>> = recovery.lines().map(|line| line.split(',').collect()).collect();
    let names = |line: &str| recovery.lines().next() == Some(line);
    assert!(names("event,\"at, s\",\"your chain, s\",\"one try, s\",\"three tries at once, s\""), "{recovery}");
    assert_eq!(rows[2][..2], ["spike", "60"]);
    assert!(rows[2][2].parse::<f64>().is_ok() && rows[2][4] == "not by 120", "{recovery}");
    assert_eq!(written(&report), written(&run()));
}

#[test]
fn files_with_mistakes_are_refused_by_name() {
    let files = Files::new("mistakes");
    let refused = |config: &str, backend: &str| {
        let (chain, server) = (files.write("chain.toml", config), files.write("backend.toml", backend));
        let refused = tune::run(&TINY, Some(&chain), &server).err().unwrap_or_default();
        refused.replace(files.0.to_str().unwrap(), "")
    };
    let backend = include_str!("backend.toml");
    let no_rate = backend.replace("rate = 300", "rate = 0");
    let cases = [
        (
            "attempt_timeout = \"1m\"",
            backend,
            "/chain.toml: attempt_timeout = 60s: must be shorter than the total timeout",
        ),
        ("[retry]\nmax_attempts = 0", backend, "/chain.toml: retry.max_attempts = 0: must be at least 1"),
        ("", &no_rate, "/backend.toml: load.rate = 0: must be from 0.01 to 100,000 calls per second"),
    ];
    for (config, backend, message) in cases {
        assert_eq!(refused(config, backend), message);
    }
    let typing_error = refused("[retry]\nmax_atempts = 3", backend);
    assert!(typing_error.starts_with("/chain.toml: TOML parse error at line 2, column 1"), "{typing_error}");
    assert!(tune::run(&TINY, None, Path::new("no-such-file")).err().unwrap().starts_with("no-such-file: "));
}

/// A folder of its own for each test.
struct Files(PathBuf);

impl Files {
    fn new(name: &str) -> Files {
        let folder = std::env::temp_dir().join(format!("steadfast-lab-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Files(folder)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        std::fs::write(self.0.join(name), text).unwrap();
        self.0.join(name)
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        // One that stays is in the folder for what is left behind.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
