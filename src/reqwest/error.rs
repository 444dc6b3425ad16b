//! What a failed exchange is reported as.

use super::judge;
#[cfg(doc)]
use crate::error::Kind;
use crate::http::{BodyError, find};
use crate::verdict::{Classified, Ruling, Verdict};

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
        let guard = find::<BodyError>(&error).map(|guard| (guard.kind(), guard.attempts()));
        let verdict = judge::error(&error);
        let mut restored = Error::failed(error);
        restored.set_ruling(Ruling::of(verdict));
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
