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
mod rollover;
mod parts;
mod peers;
mod operation;
mod harness;
mod counting;

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
    match &options.instead {
        Some(Instead::List) => {
            print!("{}", cases::list());
            return ExitCode::SUCCESS;
        }
        Some(Instead::Count { case, subject, calls }) => {
            return match cases::count(case, subject, *calls) {
                Ok(()) => ExitCode::SUCCESS,
                Err(reason) => {
                    eprintln!("{case}, {subject}: {reason}");
                    ExitCode::FAILURE
                }
            };
        }
        None => {}
    }
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
    instead: Option<Instead>,
}

/// What is done instead of measuring times, for `instructions.py`.
enum Instead {
    List,
    Count { case: String, subject: String, calls: u64 },
}

impl Options {
    fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Options, String> {
        let mut options = Options { effort: Effort::FULL, json: None, filter: String::new(), instead: None };
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--quick" => options.effort = Effort::QUICK,
                "--json" => options.json = Some(arguments.next().ok_or("--json needs the name of a file")?),
                "--list" => options.instead = Some(Instead::List),
                "--count" => {
                    let mut next = || arguments.next().ok_or("--count needs a case, a subject and a number of calls");
                    let (case, subject, calls) = (next()?, next()?, next()?);
                    let calls = calls.parse().map_err(|_| format!("{calls} is not a number of calls"))?;
                    options.instead = Some(Instead::Count { case, subject, calls });
                }
                // Cargo says so to every benchmark.
                "--bench" => {}
                flag if flag.starts_with('-') => return Err(format!("{flag} is not known")),
                _ => options.filter = argument,
            }
        }
        Ok(options)
    }
}

const USAGE: &str =
    "peers [--quick] [--json FILE] [part of the name of a case]\npeers --list\npeers --count CASE SUBJECT CALLS";
