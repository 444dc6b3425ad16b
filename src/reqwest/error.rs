//! What a failed exchange is reported as.

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::time::Duration;

use super::judge;
use crate::cancel::Cause;
use crate::causes::find;
use crate::error::Kind;
use crate::verdict::{Classified, Verdict};

/// What a request through a chain ends with if there is no response: [`steadfast::Error`](crate::error::Error) around
/// [`reqwest::Error`].
///
/// A `reqwest::Error` from reading a body becomes one with `?`, and says again why the body was ended: its
/// [`kind`](crate::error::Error::kind) is [`Cancelled`](Kind::Cancelled), [`ShutDown`](Kind::ShutDown),
/// [`DeadlineExceeded`](Kind::DeadlineExceeded) or [`TimedOut`](Kind::TimedOut) if the guard of the body ended it, else
/// [`Failed`](Kind::Failed).
///
/// ```no_run
/// # async fn example(http: steadfast::reqwest::Client) {
/// async fn report(http: &steadfast::reqwest::Client) -> Result<String, steadfast::reqwest::Error> {
///     Ok(http.get("https://reports.example/7").send().await?.text().await?)
/// }
///
/// if let Err(error) = report(&http).await && error.is_cancelled() {
///     println!("nobody waits for the report any more");
/// }
/// # }
/// ```
///
/// An error of [`reqwest::Response::error_for_status`] has no headers any more: what is restored from one is judged by the status
/// alone, as if there had been no `Retry-After`.
pub type Error = crate::error::Error<reqwest::Error>;

/// Restores what the guard of the body said.
impl From<reqwest::Error> for Error {
    fn from(error: reqwest::Error) -> Error {
        let guard = find::<BodyError>(&error).map(|guard| (guard.kind(), guard.attempts));
        let verdict = judge::error(&error);
        let mut restored = Error::failed(error);
        restored.set_verdict(verdict);
        if let Some((kind, attempts)) = guard {
            restored.set_kind(kind);
            restored.set_attempts(attempts);
        }
        restored
    }
}

/// Judged as the [module](crate::reqwest) says: connections that cannot be made, break or time out are `Transient`; redirect
/// loops, certificates that are not trusted and bodies that cannot be decoded `Permanent`; errors of the request itself,
/// its own body included, `Ignored`.
impl Classified for reqwest::Error {
    fn verdict(&self) -> Verdict {
        judge::error(self)
    }
}

/// Why the guard of a response body ended it. It is the cause of the [`reqwest::Error`] that the reader gets, and stays in
/// its chain of sources; [`Error`] finds it there.
///
/// [`reqwest::Error::is_timeout`] answers true for a body that was ended by a time limit.
#[derive(Debug)]
pub struct BodyError {
    why: GivenUp,
    attempts: u32,
    timed_out: Option<io::Error>,
}

/// What a body was given up for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GivenUp {
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
    pub(super) fn new(why: GivenUp, attempts: u32) -> BodyError {
        let error = BodyError { why, attempts, timed_out: None };
        let timed_out = matches!(error.kind(), Kind::TimedOut { .. } | Kind::DeadlineExceeded);
        BodyError { timed_out: timed_out.then(|| io::ErrorKind::TimedOut.into()), ..error }
    }

    /// Why the body was ended: [`Kind::Cancelled`], [`Kind::ShutDown`], [`Kind::DeadlineExceeded`], [`Kind::TimedOut`] for
    /// one that took too long, or [`Kind::Failed`] for one that is larger than
    /// [`buffered`](super::RequestBuilder::buffered) allows.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self.why {
            GivenUp::Outside(cause) => cause.into(),
            GivenUp::Stalled(limit) | GivenUp::TooSlow(limit) => Kind::TimedOut { limit },
            GivenUp::TooLarge(_) => Kind::Failed,
        }
    }

    pub(super) fn why(&self) -> GivenUp {
        self.why
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
