//! Whether a request may be sent more than once. Pure.

use http::{HeaderMap, HeaderName, Method, StatusCode};

use crate::error::Kind;
use crate::policy::Outcome;
use crate::verdict::Verdict;

/// What a request says about being repeated. It is read before the request is sent: an attempt that has no answer has no
/// request to look at either.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Repeat {
    /// Whether twice does no more than once.
    idempotent: bool,
}

impl Repeat {
    /// `declared` is what the caller says, which has the last word.
    pub(crate) fn of(method: &Method, headers: &HeaderMap, declared: Option<bool>) -> Repeat {
        let keyed = headers.get(IDEMPOTENCY_KEY).is_some_and(|key| !key.is_empty());
        Repeat { idempotent: declared.unwrap_or(keyed || method.is_idempotent()) }
    }

    /// Whether the request may be sent again. `did_nothing` says of the last attempt, if that is over, whether it is known
    /// that the dependency has done nothing of what was asked. Only the last one has to be looked at: one before it that had
    /// done something would have allowed no other.
    pub(crate) fn allowed(self, did_nothing: impl FnOnce() -> bool) -> Result<(), &'static str> {
        if self.idempotent || did_nothing() { Ok(()) } else { Err(NOT_IDEMPOTENT) }
    }
}

/// Whether it is known that the dependency has done nothing of what was asked. `code` is the status of an answer, and
/// `was_unsent` whether an error proves that nothing was sent.
pub(crate) fn did_nothing<T, E>(
    outcome: &Outcome<T, E>,
    code: impl FnOnce(&T) -> StatusCode,
    was_unsent: impl FnOnce(&E) -> bool,
) -> bool {
    match &outcome.result {
        Ok(response) => code(response) == StatusCode::TOO_MANY_REQUESTS,
        Err(_) if matches!(outcome.verdict(), Verdict::Rejected { .. }) => true,
        // With any other kind the attached error may be one of an attempt before the last.
        Err(error) if matches!(error.kind(), Kind::Failed | Kind::Exhausted { .. }) => {
            error.last().is_some_and(was_unsent)
        }
        Err(_) => false,
    }
}

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

pub(crate) const NO_COPY: &str = "the request body is a stream, which can be sent only once";

const NOT_IDEMPOTENT: &str = "the request is not idempotent, and the server may have acted on it";

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::HeaderValue;

    use super::*;
    use crate::error::Error;

    /// What a request of this method may do after an outcome.
    fn allowed(method: &Method, after: &Outcome<u16, &'static str>) -> Result<(), &'static str> {
        let did_nothing =
            || did_nothing(after, |code| StatusCode::from_u16(*code).unwrap(), |error| *error == "unsent");
        Repeat::of(method, &HeaderMap::new(), None).allowed(did_nothing)
    }

    fn answered(code: u16, verdict: Verdict) -> Outcome<u16, &'static str> {
        Outcome::new(Ok(code), verdict)
    }

    fn refused(kind: Kind, verdict: Verdict) -> Outcome<u16, &'static str> {
        Outcome::new(Err(Error::refused(kind)), verdict)
    }

    #[test]
    fn idempotent_methods_are_repeated_after_anything() {
        let timed_out = Kind::TimedOut { limit: Duration::from_secs(2) };
        for method in [Method::GET, Method::HEAD, Method::OPTIONS, Method::PUT, Method::DELETE] {
            assert_eq!(Repeat::of(&method, &HeaderMap::new(), None).allowed(|| false), Ok(()));
            assert_eq!(allowed(&method, &answered(503, Verdict::Transient)), Ok(()));
            assert_eq!(allowed(&method, &refused(timed_out, Verdict::Transient)), Ok(()));
        }
    }

    #[test]
    fn others_are_not_unless_the_server_did_nothing() {
        let timed_out = Kind::TimedOut { limit: Duration::from_secs(2) };
        let throttled = Verdict::Throttled { retry_after: None };
        let rejected = Verdict::Rejected { retry_after: None };
        for method in [Method::POST, Method::PATCH, Method::CONNECT, Method::from_bytes(b"MKCOL").unwrap()] {
            assert_eq!(Repeat::of(&method, &HeaderMap::new(), None).allowed(|| false), Err(NOT_IDEMPOTENT));
            assert_eq!(allowed(&method, &answered(503, Verdict::Transient)), Err(NOT_IDEMPOTENT));
            assert_eq!(allowed(&method, &answered(503, throttled)), Err(NOT_IDEMPOTENT));
            assert_eq!(allowed(&method, &refused(timed_out, Verdict::Transient)), Err(NOT_IDEMPOTENT));
            assert_eq!(allowed(&method, &Outcome::failed("reset", Verdict::Transient)), Err(NOT_IDEMPOTENT));
            assert_eq!(allowed(&method, &answered(429, throttled)), Ok(()));
            assert_eq!(allowed(&method, &refused(Kind::Overloaded, rejected)), Ok(()));
            assert_eq!(allowed(&method, &Outcome::failed("unsent", Verdict::Transient)), Ok(()));
        }
    }

    #[test]
    fn a_key_or_the_callers_word_make_a_request_idempotent() {
        let of = |method: Method, key: Option<&'static str>, declared| {
            let headers = key.map(|key| (IDEMPOTENCY_KEY, HeaderValue::from_static(key))).into_iter().collect();
            Repeat::of(&method, &headers, declared).allowed(|| false)
        };
        assert_eq!(of(Method::POST, Some("7e57"), None), Ok(()));
        assert_eq!(of(Method::POST, Some(""), None), Err(NOT_IDEMPOTENT));
        assert_eq!(of(Method::POST, Some("7e57"), Some(false)), Err(NOT_IDEMPOTENT));
        assert_eq!(of(Method::POST, None, Some(true)), Ok(()));
        assert_eq!(of(Method::GET, None, Some(false)), Err(NOT_IDEMPOTENT));
    }
}
