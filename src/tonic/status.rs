//! Between what a chain ends with and a [`tonic::Status`].

use std::sync::Arc;

use tonic::{Code, Status};

use super::judge;
use super::pushback::Pushback;
use crate::error::{Error, Kind, Refusal};
use crate::http::find;
use crate::verdict::{Classified, Verdict};

/// Judged as the [module](crate::tonic) says: by what befell the connection, if that is why there is a status, else by the code
/// and what the server says about being asked again.
impl Classified for Status {
    fn verdict(&self) -> Verdict {
        judge::status(self)
    }
}

/// For `?` where a [`Status`] is expected: the server's own status if that is why the run ended, else one that says what the
/// chain says.
///
/// | the chain says | status |
/// |---|---|
/// | `TimedOut`, `DeadlineExceeded` | DEADLINE_EXCEEDED |
/// | `CircuitOpen`, `ShutDown` | UNAVAILABLE |
/// | `RateLimited`, `BulkheadFull`, `Overloaded` | RESOURCE_EXHAUSTED |
/// | `Cancelled` | CANCELLED |
/// | `Misconfigured` | INTERNAL |
///
/// The error is the source of such a status, where [`StatusExt::refusal`] finds it; how long to stay away is in its metadata
/// too, as [`Pushback`].
///
/// ```
/// use steadfast::{Executor, tonic::StatusExt};
/// use tonic::{Code, Status};
///
/// async fn name(users: &Executor) -> Result<String, Status> {
///     Ok(users.run(|_| async { Err(Status::not_found("user 7")) }).await?)
/// }
///
/// # let clock = steadfast::clock::Clock::manual();
/// # clock.block_on(async {
/// let users = Executor::builder("users").clock(&clock).build().unwrap().erase();
/// assert_eq!(name(&users).await.unwrap_err().code(), Code::NotFound);
/// users.close();
/// let refused = name(&users).await.unwrap_err();
/// assert_eq!(refused.code(), Code::Unavailable);
/// assert_eq!(refused.refusal().unwrap().policy(), Some("users"));
/// # });
/// ```
impl From<Error<Status>> for Status {
    fn from(error: Error<Status>) -> Status {
        match (error.kind(), error.last()) {
            (Kind::Failed | Kind::Exhausted { .. }, Some(last)) if judge::has_expired(last) => {
                refused(Code::DeadlineExceeded, error)
            }
            (Kind::Failed | Kind::Exhausted { .. }, Some(last)) => last.clone(),
            (kind, _) => refused(code_of(kind), error),
        }
    }
}

/// What a status says beside its code.
pub trait StatusExt {
    /// What the server says about being asked again, if it says something.
    fn pushback(&self) -> Option<Pushback>;

    /// Whether it is certain that the server got nothing of the call: the connection could not be made, it was closed before it
    /// was used again, or the server refused the stream (REFUSED_STREAM, GOAWAY). For a call that has had no answer; once there
    /// are messages, it says nothing.
    ///
    /// ```
    /// use steadfast::tonic::StatusExt;
    ///
    /// assert!(!tonic::Status::unavailable("the server says so, and may have begun").was_not_sent());
    /// ```
    fn was_not_sent(&self) -> bool;

    /// What a chain says, if the call was ended by one: a limit, an open breaker, a shutdown. `None` for what the server, or the
    /// network, has ended.
    fn refusal(&self) -> Option<Refusal>;
}

impl StatusExt for Status {
    fn pushback(&self) -> Option<Pushback> {
        Pushback::read(self.metadata())
    }

    fn was_not_sent(&self) -> bool {
        judge::was_not_sent(self)
    }

    fn refusal(&self) -> Option<Refusal> {
        find::<Error<Status>>(self).map(Error::refusal)
    }
}

fn code_of(kind: Kind) -> Code {
    match kind {
        Kind::TimedOut { .. } | Kind::DeadlineExceeded => Code::DeadlineExceeded,
        Kind::Cancelled => Code::Cancelled,
        Kind::CircuitOpen { .. } | Kind::ShutDown => Code::Unavailable,
        Kind::RateLimited { .. } | Kind::BulkheadFull { .. } | Kind::Overloaded => Code::ResourceExhausted,
        Kind::Misconfigured => Code::Internal,
        // The operation's own, which has a status to show for it.
        Kind::Failed | Kind::Exhausted { .. } => Code::Unknown,
    }
}

fn refused(code: Code, error: Error<Status>) -> Status {
    let mut status = Status::new(code, error.to_string());
    if let Some(wait) = error.retry_after() {
        Pushback::After(wait).write(status.metadata_mut());
    }
    status.set_source(Arc::new(error));
    status
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tonic::TimeoutExpired;

    use super::*;
    use crate::error::{Full, Limit};

    const SECOND: Duration = Duration::from_secs(1);

    fn refusal(kind: Kind) -> Status {
        Status::from(Error::refused(kind))
    }

    #[test]
    fn what_a_chain_says_has_a_code() {
        let wait = Some(SECOND);
        for (kind, code) in [
            (Kind::TimedOut { limit: SECOND }, Code::DeadlineExceeded),
            (Kind::DeadlineExceeded, Code::DeadlineExceeded),
            (Kind::CircuitOpen { retry_after: wait }, Code::Unavailable),
            (Kind::ShutDown, Code::Unavailable),
            (Kind::RateLimited { retry_after: wait }, Code::ResourceExhausted),
            (Kind::BulkheadFull { why: Full::Queue }, Code::ResourceExhausted),
            (Kind::Overloaded, Code::ResourceExhausted),
            (Kind::Cancelled, Code::Cancelled),
            (Kind::Misconfigured, Code::Internal),
        ] {
            let status = refusal(kind);
            assert_eq!(status.code(), code, "{kind:?}");
            assert_eq!(status.refusal().unwrap().kind(), kind);
            assert_eq!(status.message(), kind.to_string());
        }
    }

    #[test]
    fn how_long_to_stay_away_is_in_the_metadata() {
        let wait = Duration::from_micros(1_500);
        let open = refusal(Kind::CircuitOpen { retry_after: Some(wait) });
        assert_eq!(open.pushback(), Some(Pushback::After(Duration::from_millis(2))));
        assert_eq!(open.refusal().unwrap().retry_after(), Some(wait), "to the nanosecond");
        assert_eq!(refusal(Kind::CircuitOpen { retry_after: None }).pushback(), None);
    }

    #[test]
    fn a_refusal_stays_one_for_the_next_chain() {
        let wait = Some(SECOND);
        let rejected = Verdict::Rejected { retry_after: wait };
        assert_eq!(refusal(Kind::CircuitOpen { retry_after: wait }).verdict(), rejected);
        assert_eq!(refusal(Kind::RateLimited { retry_after: wait }).verdict(), rejected);
        assert_eq!(refusal(Kind::BulkheadFull { why: Full::Wait }).verdict(), Verdict::Rejected { retry_after: None });
        assert_eq!(refusal(Kind::Cancelled).verdict(), Verdict::Ignored);
        assert_eq!(refusal(Kind::TimedOut { limit: SECOND }).verdict(), Verdict::Transient);
    }

    #[test]
    fn the_servers_own_status_stays_as_it_is() {
        let mut error = Error::failed(Status::not_found("user 7"));
        assert_eq!(Status::from(error).message(), "user 7");
        error = Error::failed(Status::unavailable("down"));
        error.set_kind(Kind::Exhausted { by: Limit::Attempts });
        let status = Status::from(error);
        assert_eq!((status.code(), status.message()), (Code::Unavailable, "down"));
        assert_eq!((status.pushback(), status.refusal()), (None, None));
    }

    #[test]
    fn a_time_limit_of_tonic_is_no_cancellation() {
        let expired = Status::from_error(Box::new(TimeoutExpired(())));
        assert_eq!(expired.code(), Code::Cancelled, "tonic says so");
        assert_eq!(expired.verdict(), Verdict::Transient);
        assert_eq!(Status::from(Error::failed(expired)).code(), Code::DeadlineExceeded);
        assert_eq!(Status::cancelled("by the server").verdict(), Verdict::Ignored);
    }
}
