//! The command line.

use std::net::{Ipv4Addr, SocketAddr};

/// What was asked for.
#[derive(Debug, Default)]
pub(crate) struct Options {
    /// Where to serve until Ctrl-C. Without it the script is played once.
    pub(crate) serve: Option<SocketAddr>,
    /// What all dice are seeded with.
    pub(crate) seed: Option<u64>,
}

impl Options {
    /// Reads the arguments; `None` asks for help.
    pub(crate) fn parse(arguments: impl IntoIterator<Item = String>) -> Result<Option<Options>, String> {
        let mut options = Options::default();
        let mut arguments = arguments.into_iter();
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "-h" | "--help" => return Ok(None),
                "--serve" => set(&mut options.serve, "--serve", arguments.next(), "an address such as 127.0.0.1:8080")?,
                "--seed" => set(&mut options.seed, "--seed", arguments.next(), "a number from 0 to 2^64 - 1")?,
                other => return Err(format!("there is no argument `{other}`")),
            }
        }
        Ok(Some(options))
    }

    /// Where to listen: on a port that is free, if nobody has said.
    pub(crate) fn address(&self) -> SocketAddr {
        self.serve.unwrap_or((Ipv4Addr::LOCALHOST, 0).into())
    }
}

fn set<T: std::str::FromStr>(
    place: &mut Option<T>,
    name: &str,
    value: Option<String>,
    takes: &str,
) -> Result<(), String> {
    let value = value.ok_or_else(|| format!("{name} takes {takes}"))?;
    let read = value.parse().map_err(|_| format!("{name} takes {takes}, not `{value}`"))?;
    match place.replace(read) {
        None => Ok(()),
        Some(_) => Err(format!("{name} is there twice")),
    }
}

pub(crate) const HELP: &str = "\
A service in an outage, and a page that shows what its policies make of it.

usage: dashboard [--serve ADDRESS] [--seed NUMBER]

  --serve ADDRESS   serve until Ctrl-C, for example at 127.0.0.1:8080; port 0 is any free one.
                    Nobody is asked for a password: other machines can look if the address lets them.
  --seed NUMBER     other dice (default: 7)
  -h, --help        this text

Without --serve it plays the outage once, serves meanwhile at a free port of 127.0.0.1, says how it
went and ends. It serves a page at /, the data of the page at /state, figures for Prometheus at
/metrics, and a price at /price.
";
