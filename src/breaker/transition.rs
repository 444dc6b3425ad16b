use std::fmt;

use crate::clock::Moment;

/// What a circuit breaker does with calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum State {
    /// Calls go through and are counted.
    Closed,
    /// Calls are refused.
    Open,
    /// The open time is over: a few calls go through as trials, all others are refused.
    HalfOpen,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            State::Closed => "closed",
            State::Open => "open",
            State::HalfOpen => "half-open",
        })
    }
}

/// What a breaker has counted in its present state.
///
/// While closed: the calls in the window of the rate rule, zero without such a rule. While half-open: the trials with a
/// verdict. While open: nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Counts {
    /// Calls that succeeded or failed. Those that say nothing about the dependency are not among them.
    pub calls: u64,
    /// Calls that failed.
    pub failures: u64,
    /// Failures in a row. While closed they are counted by the consecutive rule only, and zero without it.
    pub consecutive_failures: u64,
    /// Successes in a row. Counted while half-open only: a closed breaker writes nothing that all successes share.
    pub consecutive_successes: u64,
    /// Calls refused since the breaker was made, in whatever state.
    pub rejected: u64,
}

impl Counts {
    /// The share of failures, 0 to 1; none without a call.
    #[must_use]
    pub fn rate(&self) -> Option<f64> {
        (self.calls > 0).then(|| self.failures as f64 / self.calls as f64)
    }
}

/// One change of a breaker's state.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Transition {
    /// The state before.
    pub from: State,
    /// The state after.
    pub to: State,
    /// Why.
    pub cause: Cause,
    /// What the breaker had counted in the state that ended.
    pub counts: Counts,
    /// When, on the clock of the breaker. For an expired trial this is the end of its time, which the breaker may have
    /// noticed later.
    pub at: Moment,
}

/// Why a breaker changed its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Cause {
    /// Closed to open: the share of failures in the window.
    FailureRate,
    /// Closed to open: failures in a row.
    ConsecutiveFailures,
    /// Open to half-open: the open time is over and a call came.
    OpenTimeOver,
    /// Half-open to closed: enough trials succeeded.
    TrialsSucceeded,
    /// Half-open to open: a trial failed.
    TrialFailed,
    /// Half-open to open: the caller gave up on a trial.
    TrialAbandoned,
    /// Half-open to open: all the trials that may run had no verdict in time.
    TrialExpired,
    /// Half-open to open: too many trials ended without a verdict.
    TrialsWithoutVerdict,
}

#[cfg(all(test, not(steadfast_loom)))]
mod tests {
    use super::*;

    #[test]
    fn states_have_the_names_that_operators_know() {
        let names = [State::Closed, State::Open, State::HalfOpen].map(|state| state.to_string());
        assert_eq!(names, ["closed", "open", "half-open"]);
        assert_eq!(format!("{:>6}", State::Open), "  open");
    }

    #[test]
    fn nothing_has_no_rate() {
        assert_eq!(Counts::default().rate(), None);
        let counts = Counts { calls: 20, failures: 11, ..Counts::default() };
        assert_eq!(counts.rate(), Some(0.55));
    }
}
