//! Changes of a circuit breaker's state. Here, and not with the breaker, so that events can tell of them.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::Moment;
use crate::snapshot::{Counts, State};

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
    /// For a breaker that opens: how long it will refuse calls, from `at` on.
    pub open_for: Option<Duration>,
    /// The key of the breaker in its [`Keyed`](crate::Keyed), if it is in one.
    pub key: Option<Arc<str>>,
}

/// Why a breaker changed its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Cause {
    /// Closed to open: the share of failures in a window, of time or of calls.
    FailureRate,
    /// Closed to open: the share of slow calls in the window.
    SlowRate,
    /// Closed to open: failures in a row.
    ConsecutiveFailures,
    /// Closed to open: a [`should_trip`](crate::breaker::TripRule::should_trip) said so.
    ShouldTrip,
    /// Open to half-open: the open time is over and a call came.
    OpenTimeOver,
    /// Half-open to closed: enough trials succeeded.
    TrialsSucceeded,
    /// Half-open to open: a trial failed or was slow, or too large a share of them did.
    TrialFailed,
    /// Half-open to open: the caller gave up on a trial.
    TrialAbandoned,
    /// Half-open to open: all the trials that may run had no verdict in time.
    TrialExpired,
    /// Half-open to open: too many trials ended without a verdict.
    TrialsWithoutVerdict,
    /// [`force_open`](crate::Breaker::force_open).
    ForcedOpen,
    /// [`force_close`](crate::Breaker::force_close).
    ForcedClosed,
    /// [`reset`](crate::Breaker::reset).
    Reset,
    /// [`isolate`](crate::Breaker::isolate).
    Isolated,
    /// [`disable`](crate::Breaker::disable).
    Disabled,
    /// [`metrics_only`](crate::Breaker::metrics_only).
    MetricsOnly,
    /// [`release`](crate::Breaker::release).
    Released,
}

impl Cause {
    /// Its name in metrics and traces: "failure_rate", "trial_failed" and so on.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Cause::FailureRate => "failure_rate",
            Cause::SlowRate => "slow_rate",
            Cause::ConsecutiveFailures => "consecutive_failures",
            Cause::ShouldTrip => "should_trip",
            Cause::OpenTimeOver => "open_time_over",
            Cause::TrialsSucceeded => "trials_succeeded",
            Cause::TrialFailed => "trial_failed",
            Cause::TrialAbandoned => "trial_abandoned",
            Cause::TrialExpired => "trial_expired",
            Cause::TrialsWithoutVerdict => "trials_without_verdict",
            Cause::ForcedOpen => "forced_open",
            Cause::ForcedClosed => "forced_closed",
            Cause::Reset => "reset",
            Cause::Isolated => "isolated",
            Cause::Disabled => "disabled",
            Cause::MetricsOnly => "metrics_only",
            Cause::Released => "released",
        }
    }
}
