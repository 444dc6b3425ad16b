//! What can be seen of a circuit breaker. Its states and counts are here, and not with the breaker, so that modules below the
//! policies can speak of them.

use std::fmt;
use std::time::Duration;

#[cfg(feature = "serde")]
use super::seconds;

/// A circuit breaker at a moment, from [`Breaker::snapshot`](crate::Breaker::snapshot).
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct BreakerSnapshot {
    /// Its own name, if it has one.
    pub name: Option<&'static str>,
    /// The state.
    pub state: State,
    /// How long it will still refuse every call; zero unless it is open, `MAX` if that is for ever.
    #[cfg_attr(feature = "serde", serde(rename = "remaining_open_seconds", serialize_with = "seconds::serialize"))]
    pub remaining_open: Duration,
    /// What it has counted in this state.
    pub counts: Counts,
}

/// What a circuit breaker does with calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "kebab-case"))]
#[non_exhaustive]
pub enum State {
    /// Calls go through and are counted.
    Closed,
    /// Calls are refused.
    Open,
    /// The open time is over: a few calls go through as trials, all others are refused.
    HalfOpen,
    /// By hand: calls are refused, until [`release`](crate::Breaker::release).
    Isolated,
    /// By hand: calls go through, and nothing is counted.
    Disabled,
    /// By hand: calls go through and are counted, and no rule opens the breaker.
    MetricsOnly,
}

impl State {
    /// The name that operators know: "closed", "open", "half-open", "isolated", "disabled", "metrics-only".
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            State::Closed => "closed",
            State::Open => "open",
            State::HalfOpen => "half-open",
            State::Isolated => "isolated",
            State::Disabled => "disabled",
            State::MetricsOnly => "metrics-only",
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// What a breaker has counted in its present state.
///
/// While closed: the calls in the window of time, or else in the window of calls; zero without either. While half-open:
/// the trials with a verdict. While open, isolated or disabled: nothing; but where trials have run out of time and no call has
/// come since, which makes the change, still those trials.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Counts {
    /// Calls that succeeded or failed. Those that say nothing about the dependency are not among them.
    pub calls: u64,
    /// Calls that failed. While half-open a slow trial is one of them.
    pub failures: u64,
    /// Calls that took at least as long as a slow call does, under a slow rule. Those that were given up after that time
    /// are among them.
    pub slow: u64,
    /// Of the slow calls, those that were given up, by their caller or as the loser of a hedge. They are not among the
    /// `calls`, since nobody knows how they would have ended.
    pub slow_given_up: u64,
    /// Failures in a row. While closed they are counted by the consecutive rule only, and zero without it.
    pub consecutive_failures: u64,
    /// Successes in a row. Counted while half-open only: a closed breaker writes nothing that all successes share.
    pub consecutive_successes: u64,
    /// Calls refused since the breaker was made or reset, in whatever state.
    pub rejected: u64,
}

impl Counts {
    /// The share of failures, 0 to 1; none without a call.
    #[must_use]
    pub fn rate(&self) -> Option<f64> {
        (self.calls > 0).then(|| self.failures as f64 / self.calls as f64)
    }

    /// The share of slow calls, 0 to 1; none without a call whose time is known.
    #[must_use]
    pub fn slow_rate(&self) -> Option<f64> {
        let timed = self.calls + self.slow_given_up;
        (timed > 0).then(|| self.slow as f64 / timed as f64)
    }
}

#[cfg(all(test, not(steadfast_loom)))]
mod tests {
    use super::*;

    #[test]
    fn states_have_the_names_that_operators_know() {
        let names = [State::Closed, State::Open, State::HalfOpen].map(|state| state.to_string());
        assert_eq!(names, ["closed", "open", "half-open"]);
        let by_hand = [State::Isolated, State::Disabled, State::MetricsOnly].map(State::as_str);
        assert_eq!(by_hand, ["isolated", "disabled", "metrics-only"]);
        assert_eq!(format!("{:>6}", State::Open), "  open");
    }

    #[test]
    fn nothing_has_no_rate() {
        assert_eq!((Counts::default().rate(), Counts::default().slow_rate()), (None, None));
        let counts = Counts { calls: 20, failures: 11, ..Counts::default() };
        assert_eq!((counts.rate(), counts.slow_rate()), (Some(0.55), Some(0.0)));
    }

    #[test]
    fn calls_that_were_given_up_have_a_share_in_the_slow_rate_only() {
        let counts = Counts { calls: 16, failures: 8, slow: 5, slow_given_up: 4, ..Counts::default() };
        assert_eq!((counts.rate(), counts.slow_rate()), (Some(0.5), Some(0.25)));
    }
}
