//! What steadfast costs beside the crates that people use today: the same calls, in one process, in turn.
//!
//! ```sh
//! cargo bench -p peers -- --quick
//! ```
//!
//! `README.md` says what is measured and how to read it.

mod report;
mod targets;
mod cases;
mod peers;
mod operation;
mod harness;

use std::fs;
use std::process::ExitCode;

use harness::Effort;

fn main() -> ExitCode {
    let options = match Options::parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(wrong) => {
            eprintln!("{wrong}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let results = cases::measure(options.effort, &options.filter);
    let targets = targets::check(&results);
    print!("{}", report::markdown(&results, &targets));
    if let Some(file) = options.json
        && let Err(error) = fs::write(&file, report::json(&results, &targets))
    {
        eprintln!("{file}: {error}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

struct Options {
    effort: Effort,
    /// Where to write the figures to.
    json: Option<String>,
    /// Cases whose name contains this; all if it is empty.
    filter: String,
}

impl Options {
    fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Options, String> {
        let mut options = Options { effort: Effort::FULL, json: None, filter: String::new() };
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--quick" => options.effort = Effort::QUICK,
                "--json" => options.json = Some(arguments.next().ok_or("--json needs the name of a file")?),
                // Cargo says so to every benchmark.
                "--bench" => {}
                flag if flag.starts_with('-') => return Err(format!("{flag} is not known")),
                _ => options.filter = argument,
            }
        }
        Ok(options)
    }
}

const USAGE: &str = "peers [--quick] [--json FILE] [part of the name of a case]";
