//! The one judgement of an outcome, which every policy reads.

mod ruling;

use std::io;
use std::time::Duration;

pub(crate) use self::ruling::{Mark, Ruling};

/// How an attempt ended, as far as policies care. An outcome is judged **once**, where it arises, and every policy around
/// it reads the same verdict.
///
/// | verdict | retry | hedge | breaker, closed | breaker, half-open |
/// |---|---|---|---|---|
/// | `Success` | done | wins | success | success |
/// | `Permanent` | done | wins | success | success |
/// | `Transient` | again | held, the next starts now | failure | opens again |
/// | `Fatal` | done | wins | failure | opens again |
/// | `Throttled` | again, not before | held, starts no more | nothing | gives its place back |
/// | `Ignored` | done | wins | nothing | gives its place back |
/// | `Rejected` | done, see `Retry::on_rejection` | held, starts no more | nothing | gives its place back |
///
/// Whether an operation may be *sent again* is another question: a `POST` that is answered 503 is a failure for the
/// breaker and is not repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// The dependency did what was asked.
    Success,
    /// The dependency failed; another attempt may help. Also an attempt that ran into its limit, or panicked.
    Transient,
    /// The dependency failed; another attempt must not be made.
    Fatal,
    /// The dependency is alive and asks for less.
    Throttled {
        /// When it wants to be asked again.
        retry_after: Option<Duration>,
    },
    /// The dependency answered; another attempt cannot change the answer.
    Permanent,
    /// A local error that says nothing about the dependency.
    Ignored,
    /// A policy inside refused, or a [`Timeout`](crate::Timeout) fired before the operation was started.
    Rejected {
        /// When the policy would admit a call again.
        retry_after: Option<Duration>,
    },
}

impl Verdict {
    /// Whether the dependency answered: `Success` and `Permanent`. A run never throws such an outcome away.
    #[must_use]
    #[inline]
    pub fn is_answer(self) -> bool {
        matches!(self, Verdict::Success | Verdict::Permanent)
    }

    /// Its name in metrics and traces: "success", "transient", "fatal", "throttled", "permanent", "ignored" or "rejected".
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Verdict::Success => "success",
            Verdict::Transient => "transient",
            Verdict::Fatal => "fatal",
            Verdict::Throttled { .. } => "throttled",
            Verdict::Permanent => "permanent",
            Verdict::Ignored => "ignored",
            Verdict::Rejected { .. } => "rejected",
        }
    }

    /// Whether the dependency failed: `Transient` and `Fatal`.
    #[must_use]
    pub fn is_failure(self) -> bool {
        matches!(self, Verdict::Transient | Verdict::Fatal)
    }
}

/// An error that knows its own verdict. [`by_error`](crate::judge::by_error) asks it.
///
/// ```
/// use std::io::{Error, ErrorKind};
/// use steadfast::{Classified, Verdict};
///
/// assert_eq!(Error::from(ErrorKind::ConnectionReset).verdict(), Verdict::Transient);
/// assert_eq!(Error::from(ErrorKind::NotFound).verdict(), Verdict::Permanent);
/// ```
pub trait Classified {
    /// The verdict on an attempt that ended with this error.
    fn verdict(&self) -> Verdict;
}

impl<C: Classified + ?Sized> Classified for &C {
    fn verdict(&self) -> Verdict {
        (**self).verdict()
    }
}

impl<C: Classified + ?Sized> Classified for Box<C> {
    fn verdict(&self) -> Verdict {
        (**self).verdict()
    }
}

/// Connections that break, time out or are not there yet are `Transient`; what the other side answered on purpose
/// (not found, not allowed, already there) is `Permanent`; bad input and missing support are `Ignored`, since they are of
/// this side's making.
impl Classified for io::Error {
    fn verdict(&self) -> Verdict {
        use io::ErrorKind as K;
        match self.kind() {
            K::NotFound | K::PermissionDenied | K::AlreadyExists => Verdict::Permanent,
            K::InvalidInput | K::Unsupported | K::OutOfMemory => Verdict::Ignored,
            K::InvalidData => Verdict::Permanent,
            _ => Verdict::Transient,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn io_errors_know_their_verdict() {
        use io::ErrorKind as K;
        for transient in [K::ConnectionRefused, K::ConnectionReset, K::TimedOut, K::UnexpectedEof, K::BrokenPipe] {
            assert_eq!(io::Error::from(transient).verdict(), Verdict::Transient, "{transient:?}");
        }
        for answered in [K::NotFound, K::PermissionDenied, K::AlreadyExists] {
            assert_eq!(io::Error::from(answered).verdict(), Verdict::Permanent, "{answered:?}");
        }
        assert_eq!(io::Error::from(K::InvalidInput).verdict(), Verdict::Ignored);
    }
}
