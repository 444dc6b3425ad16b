//! Why a body was ended before its own end.

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::time::Duration;

use crate::cancel::Cause;
use crate::error::Kind;

/// Why the guard of a response body ended it: what a reader of the body gets, or the cause of it.
///
/// With reqwest it stays in the chain of sources of the `reqwest::Error` that the reader gets, whose `is_timeout` answers true
/// for a body that was ended by a time limit; `steadfast::reqwest::Error` finds it there.
#[derive(Debug)]
pub struct BodyError {
    why: GivenUp,
    attempts: u32,
    timed_out: Option<io::Error>,
}

/// What a body was given up for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GivenUp {
    /// The caller, the executor or the caller's deadline ended it.
    Outside(Cause),
    /// There was no data for this long.
    Stalled(Duration),
    /// It was not over after this long.
    TooSlow(Duration),
    /// It has more bytes than may be buffered.
    TooLarge(usize),
}

impl BodyError {
    pub(crate) fn new(why: GivenUp, attempts: u32) -> BodyError {
        let error = BodyError { why, attempts, timed_out: None };
        let timed_out = matches!(error.kind(), Kind::TimedOut { .. } | Kind::DeadlineExceeded);
        BodyError { timed_out: timed_out.then(|| io::ErrorKind::TimedOut.into()), ..error }
    }

    /// Why the body was ended: [`Kind::Cancelled`], [`Kind::ShutDown`], [`Kind::DeadlineExceeded`], [`Kind::TimedOut`] for
    /// one that took too long, or [`Kind::Failed`] for one that is larger than may be buffered.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self.why {
            GivenUp::Outside(cause) => cause.into(),
            GivenUp::Stalled(limit) | GivenUp::TooSlow(limit) => Kind::TimedOut { limit },
            GivenUp::TooLarge(_) => Kind::Failed,
        }
    }

    pub(crate) fn why(&self) -> GivenUp {
        self.why
    }

    /// How many attempts the request took.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.attempts
    }
}

impl fmt::Display for BodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.why {
            GivenUp::Outside(cause) => write!(f, "response body given up: {}", Kind::from(cause)),
            GivenUp::Stalled(limit) => write!(f, "no data of the response body for {limit:?}"),
            GivenUp::TooSlow(limit) => write!(f, "response body not complete after {limit:?}"),
            GivenUp::TooLarge(limit) => write!(f, "response body larger than {limit} bytes"),
        }
    }
}

impl StdError for BodyError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.timed_out.as_ref().map(|error| error as _)
    }
}
