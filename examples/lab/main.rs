//! The lab.

mod args;
mod axis;
mod budget;
mod collapse;
mod dice;
mod figure;
mod half_open;
mod hedge;
mod jitter;
mod layers;
mod load;
mod parallel;
mod progress;
mod record;
mod report;
mod setting;
mod shards;
mod sim;
mod svg;
mod table;

use std::process::ExitCode;

use crate::args::Args;
use crate::report::Report;
use crate::setting::{Setting, Size};

fn main() -> ExitCode {
    let args = match Args::parse(std::env::args().skip(1)) {
        Ok(args) => args,
        Err(mistake) => {
            eprintln!("lab: {mistake}");
            return ExitCode::from(2);
        }
    };
    match run(&args) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("lab: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<bool, String> {
    let setting =
        Setting { seed: args.seed, size: if args.reduced { Size::Reduced } else { Size::Full }, quiet: false };
    let mut all_hold = true;
    for (_, _, experiment) in EXPERIMENTS.iter().filter(|(name, ..)| args.command == "all" || args.command == *name) {
        let begun = std::time::SystemTime::now();
        let report = experiment(&setting);
        report.print();
        let files = report.write(&args.out).map_err(|error| format!("{}: {error}", args.out.display()))?;
        println!("  {}: {}  {:?}\n", args.out.display(), files.join(", "), begun.elapsed());
        all_hold &= report.holds();
    }
    Ok(all_hold)
}

type Experiment = fn(&Setting) -> Report;

const EXPERIMENTS: [(&str, &str, Experiment); 7] = [
    ("jitter", "", jitter::run),
    ("budget", "", budget::run),
    ("layers", "", layers::run),
    ("collapse", "", collapse::run),
    ("hedge", "", hedge::run),
    ("shards", "", shards::run),
    ("half-open", "", half_open::run),
];
