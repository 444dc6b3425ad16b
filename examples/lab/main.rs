//! The lab: what policies do to a system, before they are part of it.
//!
//! Published results about retries, backoff, budgets, hedges and breakers, reproduced with the policies of this crate themselves, and
//! a place to try a chain of one's own against a backend that a file describes. Everything runs on a manual clock, so that minutes
//! with thousands of clients take a moment, and draws from seeds, so that the same seed gives the same result on every machine.
//!
//! ```sh
//! cargo run --release --features full --example lab              # all experiments, smaller; fails if a claim does not hold
//! cargo run --release --features full --example lab -- all       # as in docs/lab.md
//! cargo run --release --features full --example lab -- tune --config chain.toml --backend backend.toml
//! cargo run --release --features full --example lab -- --help
//! ```
//!
//! An experiment prints a table beside the published figures or those of a plain simulation of the same model, and writes what it
//! has found into `target/lab/`: tables and curves as CSV, pictures as SVG. Each module says what it models; `docs/lab.md` shows the
//! pictures, says how to read them, and why a figure differs.
//!
//! * The world: [`sim`] (tasks and time), [`load`] (calls), [`dice`] (chance), [`parallel`] (worlds on all cores).
//! * What is seen: [`record`], [`report`], [`table`], [`figure`] with [`axis`] and [`svg`], [`progress`].
//! * The experiments: [`jitter`], [`budget`], [`layers`], [`collapse`], [`hedge`], [`shards`], [`half_open`], and [`tune`].

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
#[cfg(test)]
mod tests;
mod tune;

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use crate::args::{Args, Command, DEFAULT_OUT, DEFAULT_SEED};
use crate::report::Report;
use crate::setting::{Setting, Size};

fn main() -> ExitCode {
    match Args::parse(std::env::args().skip(1)).and_then(|args| run(&args)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            eprintln!("lab: a claim does not hold");
            ExitCode::FAILURE
        }
        Err(mistake) => {
            eprintln!("lab: {mistake}");
            ExitCode::from(2)
        }
    }
}

/// Whether all claims hold.
fn run(args: &Args) -> Result<bool, String> {
    let setting = |size| Setting { seed: args.seed, size, quiet: false };
    match &args.command {
        Command::Help => {
            print!("{}", help());
            Ok(true)
        }
        Command::Tune { config, backend } => {
            show(&tune::run(&setting(Size::Full), config.as_deref(), backend)?, &args.out)
        }
        Command::Experiments { name, reduced } => {
            let setting = setting(if *reduced { Size::Reduced } else { Size::Full });
            let asked: Vec<_> = EXPERIMENTS.iter().filter(|(known, ..)| name == "all" || name == known).collect();
            if asked.is_empty() {
                return Err(format!("unknown command {name}; --help lists them"));
            }
            let mut all_hold = true;
            for (_, _, experiment) in asked {
                all_hold &= show(&experiment(&setting), &args.out)?;
            }
            Ok(all_hold)
        }
    }
}

/// Writes what was found, and says so. Whether all claims hold.
fn show(report: &Report, out: &Path) -> Result<bool, String> {
    // First, so that whoever pipes the text into `head` has the files all the same.
    let files = report.write(out).map_err(|error| format!("{}: {error}", out.display()))?;
    let mut stdout = io::stdout().lock();
    let printed = report.print(&mut stdout);
    let printed = printed.and_then(|()| writeln!(stdout, "  in {}: {}\n", out.display(), files.join(", ")));
    printed.map_err(|error| format!("standard output: {error}"))?;
    Ok(report.holds())
}

fn help() -> String {
    let mut text = HELP.to_owned();
    for (name, what, _) in EXPERIMENTS {
        text += &format!("  {name:<10} {what}\n");
    }
    let options = OPTIONS.replace("{seed}", &DEFAULT_SEED.to_string()).replace("{out}", DEFAULT_OUT);
    text + &options
}

type Experiment = fn(&Setting) -> Report;

const EXPERIMENTS: [(&str, &str, Experiment); 7] = [
    ("jitter", "kinds of backoff: how many calls a crowd makes until it is done", jitter::run),
    ("budget", "what bounds retries while a share of all tries fails", budget::run),
    ("layers", "services that call services, each with retries of its own", layers::run),
    ("collapse", "a spike of ten seconds, and whether the system comes back", collapse::run),
    ("hedge", "a second request for those that take long, and when it does harm", hedge::run),
    ("shards", "one dead shard, and a breaker for all of them or for each", shards::run),
    ("half-open", "what a few trials find out about a backend", half_open::run),
];

const HELP: &str = "\
What policies do to a system, before they are part of it.

Usage: lab [COMMAND] [OPTIONS]

Without a command: all --reduced. It fails if a claim does not hold.

Commands:
  all        all experiments
";

const OPTIONS: &str = "  \
  tune       a chain from a file against a backend from a file

Options:
  --reduced        less of everything: seconds instead of a minute
  --seed N         of everything that is drawn; the same seed gives the same result [default: {seed}]
  --out DIR        where tables (CSV) and pictures (SVG) go [default: {out}]
  -h, --help       this

Options of tune:
  --backend FILE   server, load and events, as in examples/lab/backend.toml
  --config FILE    what differs from StandardConfig::default(), as in examples/lab/chain.toml
";
