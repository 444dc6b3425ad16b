//! The kinds of events.

use std::time::Duration;

use crate::cancel::Cause;
use crate::error::Kind;
use crate::error::stopped::Stopped;
use crate::transition::Transition;
use crate::verdict::Verdict;

/// What happened.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum What {
    /// A run begins. One that is refused at once, because the executor is closed or the context cancelled, has this event and
    /// [`RunFinished`](What::RunFinished).
    RunStarted,
    /// The operation was started once more.
    AttemptStarted,
    /// The operation ended and was judged, by itself and by the [judging policies](crate::judge) around it.
    AttemptFinished {
        /// The judgement that every policy outside reads.
        verdict: Verdict,
    },
    /// The operation was dropped before its end, or panicked.
    AttemptAbandoned {
        /// Why.
        why: CutOff,
    },
    /// Another attempt will be made.
    RetryScheduled {
        /// The wait before it.
        delay: Duration,
        /// The judgement on the attempt before.
        verdict: Verdict,
    },
    /// A [`Timeout`](crate::Timeout) fired.
    TimedOut {
        /// Its limit.
        limit: Duration,
    },
    /// A [`Hedge`](crate::Hedge) starts one more lane: the one of this event.
    HedgeStarted,
    /// The lane of this event has decided a try that has more than one.
    HedgeWon,
    /// The lane of this event still ran when another one decided, and is dropped.
    HedgeLost,
    /// A [`Fallback`](crate::Fallback) steps in.
    FellBack {
        /// What it replaces.
        error: Kind,
    },
    /// A [`Chaos`](crate::Chaos) changes what comes of the try of this event.
    ChaosInjected,
    /// The call has changed the state of a [`Breaker`](crate::Breaker).
    Transition(Transition),
    /// A policy refused the call.
    Rejected {
        /// What kind of policy: "breaker", "bulkhead", "rate_limiter", or what a policy of your own says.
        by: &'static str,
        /// What it said.
        kind: Kind,
    },
    /// The call waits in line for a limit: a "bulkhead" or a "rate_limiter".
    Queued {
        /// What kind of policy.
        by: &'static str,
    },
    /// The call has waited in line, and goes on.
    Admitted {
        /// What kind of policy.
        by: &'static str,
        /// How long it has waited.
        waited: Duration,
    },
    /// An operator has changed settings of this executor while calls went on.
    Reconfigured {
        /// Of what: "standard" is the [standard chain](crate::standard).
        by: &'static str,
    },
    /// The run is over.
    RunFinished {
        /// How it ended.
        end: RunEnd,
        /// Why no further attempt was made; `None` if nobody was there any more to decide that.
        stopped: Option<Stopped>,
        /// How often the operation was started.
        attempts: u32,
        /// The time since the run started.
        elapsed: Duration,
    },
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RunEnd {
    /// The caller has got a value, which is worth so much. It need not be a success: a value that stays bad after the last attempt
    /// is returned as it is.
    Value(Verdict),
    /// The caller has got an error.
    Error(Kind),
    /// The caller has dropped the run, or something other than its operation has panicked under it.
    Dropped,
    /// The operation panicked.
    Panicked,
}

impl RunEnd {
    /// What became of the run, as one word for metrics and traces: the [verdict](Verdict::as_str) on a value, the
    /// [kind](Kind::as_str) of an error, "dropped" or "panicked".
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            RunEnd::Value(verdict) => verdict.as_str(),
            RunEnd::Error(kind) => kind.as_str(),
            RunEnd::Dropped => "dropped",
            RunEnd::Panicked => "panicked",
        }
    }

    /// Whether the dependency answered what was asked, or that it will not: a value that is worth no other attempt.
    #[must_use]
    pub fn is_success(self) -> bool {
        matches!(self, RunEnd::Value(verdict) if verdict.is_answer())
    }
}

/// Why an attempt was abandoned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CutOff {
    /// A limit on it, or on several attempts, has passed.
    TimedOut,
    /// Another lane of a hedge was faster.
    LostRace,
    /// The run was ended from outside.
    Ended(Cause),
    /// The caller has dropped the run.
    Dropped,
    /// The operation panicked.
    Panicked,
}

impl CutOff {
    /// "timed_out", "lost_race", "cancelled", "deadline_exceeded", "shut_down", "dropped" or "panicked".
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            CutOff::TimedOut => "timed_out",
            CutOff::LostRace => "lost_race",
            CutOff::Ended(Cause::Cancelled) => "cancelled",
            CutOff::Ended(Cause::DeadlineExceeded) => "deadline_exceeded",
            CutOff::Ended(Cause::ShutDown) => "shut_down",
            CutOff::Dropped => "dropped",
            CutOff::Panicked => "panicked",
        }
    }
}
