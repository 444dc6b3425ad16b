//! Why a run made no further attempt, and what may end it from outside.

use super::{Kind, Limit};

/// Why a run made no further attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stopped {
    /// No policy asked for another attempt: the outcome was a success, or not worth one, or there is no retry.
    Settled,
    /// The outcome was worth another attempt, but something was used up.
    Limit(Limit),
    /// The operation cannot be sent again, for the reason given.
    NotRepeatable(&'static str),
    /// `attempts_for` had seen as many errors of its kind as it allows, or a policy forbade more.
    Forbidden,
    /// A policy refused the attempt.
    Rejected,
    /// The run was ended from outside.
    Ended(Cause),
}

/// Why work was ended from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Cause {
    /// The caller's token, or [`Cancellation::cancel`](crate::Cancellation::cancel).
    Cancelled,
    /// The deadline of the caller's context passed.
    DeadlineExceeded,
    /// The executor was shut down.
    ShutDown,
}

impl From<Cause> for Kind {
    fn from(cause: Cause) -> Kind {
        match cause {
            Cause::Cancelled => Kind::Cancelled,
            Cause::DeadlineExceeded => Kind::DeadlineExceeded,
            Cause::ShutDown => Kind::ShutDown,
        }
    }
}
