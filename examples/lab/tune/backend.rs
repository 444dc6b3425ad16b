//! What a file may say about a backend, and about the calls that it gets.

use std::fmt;
use std::fs;
use std::path::Path;
use std::time::Duration;

use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use steadfast::ConfigError;

/// A backend, its load, and what befalls it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Backend {
    pub(crate) server: ServerSettings,
    pub(crate) load: LoadSettings,
    #[serde(default)]
    pub(crate) event: Vec<Event>,
}

/// How it answers.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ServerSettings {
    /// The median of what a request takes.
    #[serde(deserialize_with = "time")]
    pub(crate) latency: Duration,
    /// The sigma of the lognormal around it.
    #[serde(default = "some_spread")]
    pub(crate) spread: f64,
    /// How many requests it works on at a time; any number if it is not said.
    pub(crate) workers: Option<usize>,
    /// How many more may wait in line for a worker; the next ones fail at once.
    pub(crate) queue: Option<usize>,
    /// How much longer a request takes for each other one that is there, as a share of the latency.
    #[serde(default)]
    pub(crate) slowdown: f64,
    /// The share of requests that fail, after the usual time.
    #[serde(default)]
    pub(crate) errors: f64,
    /// The share of requests that stall, and for how long.
    #[serde(default)]
    pub(crate) stalls: f64,
    #[serde(default = "a_second", deserialize_with = "time")]
    pub(crate) stall: Duration,
}

/// How it is called.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LoadSettings {
    /// Calls per second, of all clients together.
    pub(crate) rate: f64,
    /// Processes, each with a chain of its own.
    #[serde(default = "one")]
    pub(crate) clients: usize,
    #[serde(deserialize_with = "time")]
    pub(crate) duration: Duration,
}

/// What befalls it for a time.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Event {
    pub(crate) kind: Kind,
    #[serde(deserialize_with = "time")]
    pub(crate) at: Duration,
    #[serde(rename = "for", deserialize_with = "time")]
    pub(crate) lasts: Duration,
    /// Of the requests. All of them if it is not said.
    share: Option<f64>,
    factor: Option<f64>,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    /// Requests fail at once.
    Outage,
    /// Requests get no answer until it is over, and fail then.
    Hang,
    /// Requests take `factor` times as long.
    Slow,
    /// There are `factor` times as many calls.
    Spike,
}

impl Backend {
    /// Reads a file.
    ///
    /// # Errors
    /// What is wrong with it: the file, the field, its value, and the rule.
    pub(crate) fn read(path: &Path) -> Result<Backend, String> {
        let backend: Backend = read(path)?;
        backend.check().map_err(|refused| format!("{}: {refused}", path.display()))?;
        Ok(backend)
    }

    fn check(&self) -> Result<(), ConfigError> {
        self.server.check().map_err(|refused| refused.within("server"))?;
        self.load.check().map_err(|refused| refused.within("load"))?;
        for (index, event) in self.event.iter().enumerate() {
            event.check(self.load.duration).map_err(|refused| refused.within(&format!("event[{index}]")))?;
        }
        let rule = "its spikes and the rate must come to at most 2,000,000 calls together";
        within("event", self.calls().round(), 0.0, MOST_CALLS, rule)
    }

    /// Calls per second at a time.
    pub(crate) fn rate(&self, at: Duration) -> f64 {
        self.load.rate * self.during(at, Kind::Spike).map(Event::factor).product::<f64>()
    }

    /// When events begin and end, and the load too, in order.
    pub(crate) fn edges(&self) -> Vec<Duration> {
        let mut edges: Vec<_> = self.event.iter().flat_map(|event| [event.at, event.end()]).collect();
        edges.extend([Duration::ZERO, self.load.duration]);
        edges.sort_unstable();
        edges.dedup();
        edges
    }

    /// How many there will be, on average.
    fn calls(&self) -> f64 {
        let calls = |edge: &[Duration]| self.rate(edge[0]) * (edge[1] - edge[0]).as_secs_f64();
        self.edges().windows(2).map(calls).sum()
    }

    /// Events of this kind that are under way.
    pub(crate) fn during(&self, at: Duration, kind: Kind) -> impl Iterator<Item = &Event> {
        self.event.iter().filter(move |event| event.kind == kind && (event.at..event.end()).contains(&at))
    }
}

impl ServerSettings {
    fn check(&self) -> Result<(), ConfigError> {
        up_to_a_day("latency", self.latency)?;
        up_to_a_day("stall", self.stall)?;
        within("spread", self.spread, 0.0, 3.0, "must be from 0 to 3")?;
        within("slowdown", self.slowdown, 0.0, 1000.0, "must be from 0 to 1000")?;
        within("errors", self.errors, 0.0, 1.0, "must be a share, from 0 to 1")?;
        within("stalls", self.stalls, 0.0, 1.0, "must be a share, from 0 to 1")?;
        match (self.workers, self.queue) {
            (Some(workers), _) if !(1..=MOST).contains(&workers) => {
                Err(ConfigError::new("workers", workers, "must be from 1 to 1,000,000"))
            }
            (_, Some(queue)) if queue > MOST => Err(ConfigError::new("queue", queue, "must be from 0 to 1,000,000")),
            (None, Some(queue)) => {
                Err(ConfigError::new("queue", queue, "belongs to workers, of which there is no number"))
            }
            _ => Ok(()),
        }
    }
}

impl LoadSettings {
    fn check(&self) -> Result<(), ConfigError> {
        up_to_a_day("duration", self.duration)?;
        within("rate", self.rate, 0.01, 100_000.0, "must be from 0.01 to 100,000 calls per second")?;
        if !(1..=10_000).contains(&self.clients) {
            return Err(ConfigError::new("clients", self.clients, "must be from 1 to 10,000"));
        }
        let calls = self.rate * self.duration.as_secs_f64();
        within("duration", calls.round(), 1.0, MOST_CALLS, "times the rate must be from 1 to 2,000,000 calls")
    }
}

impl Event {
    pub(crate) fn end(&self) -> Duration {
        self.at.saturating_add(self.lasts)
    }

    pub(crate) fn share(&self) -> f64 {
        self.share.unwrap_or(1.0)
    }

    /// That of another kind of event changes nothing.
    pub(crate) fn factor(&self) -> f64 {
        self.factor.unwrap_or(1.0)
    }

    fn check(&self, duration: Duration) -> Result<(), ConfigError> {
        up_to_a_day("for", self.lasts)?;
        if self.end() > duration {
            let rule = "must begin and end within the duration of the load";
            return Err(ConfigError::new("at", format_args!("{:?} for {:?}", self.at, self.lasts), rule));
        }
        match (self.kind, self.share, self.factor) {
            (Kind::Slow | Kind::Spike, _, None) => {
                Err(ConfigError::new("factor", "nothing", "is needed for slow and spike"))
            }
            (Kind::Spike, Some(share), _) => Err(ConfigError::new("share", share, "does not go with spike")),
            (Kind::Outage | Kind::Hang, _, Some(factor)) => {
                Err(ConfigError::new("factor", factor, "goes with slow and spike only"))
            }
            (_, share, factor) => {
                within("share", share.unwrap_or(1.0), 0.0, 1.0, "must be from 0 to 1")?;
                within("factor", factor.unwrap_or(1.0), 0.01, 1000.0, "must be from 0.01 to 1000")
            }
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Outage => "outage",
            Kind::Hang => "hang",
            Kind::Slow => "slow",
            Kind::Spike => "spike",
        })
    }
}

/// A TOML file. What cannot be read is shown with its line.
pub(super) fn read<T: DeserializeOwned>(path: &Path) -> Result<T, String> {
    let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    toml::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))
}

fn up_to_a_day(field: &'static str, time: Duration) -> Result<(), ConfigError> {
    if !time.is_zero() && time <= DAY {
        return Ok(());
    }
    let value = humantime::format_duration(time);
    Err(ConfigError::new(field, value, "must be longer than zero, and at most a day"))
}

/// Not a number is in no range.
fn within(field: &'static str, value: f64, from: f64, to: f64, rule: &'static str) -> Result<(), ConfigError> {
    if (from..=to).contains(&value) { Ok(()) } else { Err(ConfigError::new(field, value, rule)) }
}

/// As in the files of the library: a number with its unit.
fn time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(deserializer)?;
    humantime::parse_duration(&text)
        .map_err(|error| D::Error::custom(format_args!("\"{text}\" is not a time: {error}")))
}

fn some_spread() -> f64 {
    0.3
}

fn a_second() -> Duration {
    Duration::from_secs(1)
}

fn one() -> usize {
    1
}

const MOST: usize = 1_000_000;
const MOST_CALLS: f64 = 2e6;
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "[server]\nlatency = \"20ms\"\n[load]\nrate = 100\nduration = \"1m\"\n";

    fn refused(text: &str) -> String {
        let read = toml::from_str::<Backend>(text).map_err(|error| error.to_string());
        read.and_then(|backend| backend.check().map_err(|error| error.to_string())).err().unwrap_or_default()
    }

    #[test]
    fn little_has_to_be_said() {
        assert_eq!(refused(GOOD), "");
    }

    #[test]
    fn numbers_that_cannot_work_are_named() {
        let cases = [
            (
                "latency = \"20ms\"",
                "latency = \"0s\"",
                "server.latency = 0s: must be longer than zero, and at most a day",
            ),
            ("latency = \"20ms\"", "latency = \"20ms\"\nspread = nan", "server.spread = NaN: must be from 0 to 3"),
            (
                "latency = \"20ms\"",
                "latency = \"20ms\"\nworkers = 0",
                "server.workers = 0: must be from 1 to 1,000,000",
            ),
            ("rate = 100", "rate = -1", "load.rate = -1: must be from 0.01 to 100,000 calls per second"),
            ("\"1m\"", "\"2days\"", "load.duration = 2days: must be longer than zero, and at most a day"),
            ("\"1m\"", "\"10h\"", "load.duration = 3600000: times the rate must be from 1 to 2,000,000 calls"),
        ];
        for (good, bad, message) in cases {
            assert_eq!(refused(&GOOD.replace(good, bad)), message);
        }
    }

    #[test]
    fn events_say_what_goes_with_their_kind() {
        let event = |rest: &str| refused(&format!("{GOOD}[[event]]\nat = \"10s\"\nfor = \"5s\"\n{rest}"));
        assert_eq!(event("kind = \"outage\"\nshare = 0.1"), "");
        assert_eq!(event("kind = \"slow\""), "event[0].factor = nothing: is needed for slow and spike");
        assert_eq!(event("kind = \"hang\"\nfactor = 2"), "event[0].factor = 2: goes with slow and spike only");
        assert_eq!(event("kind = \"outage\"\nshare = 1.5"), "event[0].share = 1.5: must be from 0 to 1");
        let late = refused(&format!("{GOOD}[[event]]\nkind = \"outage\"\nat = \"58s\"\nfor = \"5s\""));
        assert_eq!(late, "event[0].at = 58s for 5s: must begin and end within the duration of the load");
    }

    #[test]
    fn spikes_count_against_the_bound_on_calls() {
        let spike = "[[event]]\nkind = \"spike\"\nfactor = 1000\nat = \"10s\"\nfor = \"15s\"\n";
        let rule = "its spikes and the rate must come to at most 2,000,000 calls together";
        assert_eq!(refused(&format!("{GOOD}{spike}")), "");
        // Where they overlap their factors multiply.
        let twice = refused(&format!("{GOOD}{spike}{}", spike.replace("1000", "2")));
        assert_eq!(twice, format!("event = 3004500: {rule}"));
    }

    #[test]
    fn what_cannot_be_read_is_shown_with_its_line() {
        let typing_error = refused(&GOOD.replace("rate", "rat"));
        assert!(typing_error.contains("line 4") && typing_error.contains("unknown field `rat`"), "{typing_error}");
        let no_unit = refused(&GOOD.replace("1m", "60"));
        assert!(no_unit.contains("line 5") && no_unit.contains("\"60\" is not a time: time unit needed"), "{no_unit}");
        assert!(refused(&GOOD.replace("[load]", "[load]\nkind = 1")).contains("unknown field `kind`"));
    }
}
