//! Whether a request may be sent more than once. Pure.

use http::{HeaderName, StatusCode};
use reqwest::{Request, Response};

use super::judge;
use crate::error::Kind;
use crate::policy::Outcome;
use crate::verdict::Verdict;

/// What a request says about being repeated. It is read before the request is sent: an attempt that has no answer has no
/// request to look at either.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Repeat {
    /// Whether there is a body, or none, to send again.
    has_copy: bool,
    /// Whether twice does no more than once.
    idempotent: bool,
}

impl Repeat {
    /// `declared` is what the caller says, which has the last word.
    pub(super) fn of(request: &Request, declared: Option<bool>) -> Repeat {
        let keyed = request.headers().get(IDEMPOTENCY_KEY).is_some_and(|key| !key.is_empty());
        Repeat {
            has_copy: request.body().is_none_or(|body| body.as_bytes().is_some()),
            idempotent: declared.unwrap_or(keyed || request.method().is_idempotent()),
        }
    }

    /// Whether the request may be sent again after `after`, or beside a running attempt if that is `None`.
    pub(super) fn allowed(self, after: Option<&Outcome<Response, reqwest::Error>>) -> Result<(), &'static str> {
        if !self.has_copy {
            Err(NO_COPY)
        } else if self.idempotent || after.is_some_and(did_nothing) {
            Ok(())
        } else {
            Err(NOT_IDEMPOTENT)
        }
    }
}

/// Whether it is known that the dependency has done nothing of what was asked.
///
/// Only the last attempt has to be looked at: one before it that had done something would have allowed no other.
fn did_nothing(outcome: &Outcome<Response, reqwest::Error>) -> bool {
    match &outcome.result {
        Ok(response) => response.status() == StatusCode::TOO_MANY_REQUESTS,
        Err(_) if matches!(outcome.verdict, Verdict::Rejected { .. }) => true,
        // With any other kind the attached error may be one of an attempt before the last.
        Err(error) if matches!(error.kind(), Kind::Failed | Kind::Exhausted { .. }) => {
            error.last().is_some_and(judge::nothing_was_sent)
        }
        Err(_) => false,
    }
}

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

const NO_COPY: &str = "the request body is a stream, which can be sent only once";

const NOT_IDEMPOTENT: &str = "the request is not idempotent, and the server may have acted on it";

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::Method;
    use reqwest::{Body, RequestBuilder};

    use super::*;
    use crate::error::Error;

    fn request(method: Method) -> RequestBuilder {
        reqwest::Client::new().request(method, "http://billing.example/7")
    }

    fn repeat(request: RequestBuilder, declared: Option<bool>) -> Repeat {
        Repeat::of(&request.build().unwrap(), declared)
    }

    fn answered(status: u16, verdict: Verdict) -> Outcome<Response, reqwest::Error> {
        let response = http::Response::builder().status(status).body("").unwrap();
        Outcome::new(Ok(Response::from(response)), verdict)
    }

    fn refused(kind: Kind, verdict: Verdict) -> Outcome<Response, reqwest::Error> {
        Outcome::new(Err(Error::refused(kind)), verdict)
    }

    #[test]
    fn idempotent_methods_are_repeated_after_anything() {
        let timed_out = Kind::TimedOut { limit: Duration::from_secs(2) };
        for method in [Method::GET, Method::HEAD, Method::OPTIONS, Method::PUT, Method::DELETE] {
            let repeat = repeat(request(method).body("7"), None);
            assert_eq!(repeat.allowed(None), Ok(()));
            assert_eq!(repeat.allowed(Some(&answered(503, Verdict::Transient))), Ok(()));
            assert_eq!(repeat.allowed(Some(&refused(timed_out, Verdict::Transient))), Ok(()));
        }
    }

    #[test]
    fn others_are_not_unless_the_server_did_nothing() {
        let timed_out = Kind::TimedOut { limit: Duration::from_secs(2) };
        let throttled = Verdict::Throttled { retry_after: None };
        let rejected = Verdict::Rejected { retry_after: None };
        for method in [Method::POST, Method::PATCH, Method::CONNECT, Method::from_bytes(b"MKCOL").unwrap()] {
            let repeat = repeat(request(method), None);
            assert_eq!(repeat.allowed(None), Err(NOT_IDEMPOTENT));
            assert_eq!(repeat.allowed(Some(&answered(503, Verdict::Transient))), Err(NOT_IDEMPOTENT));
            assert_eq!(repeat.allowed(Some(&answered(503, throttled))), Err(NOT_IDEMPOTENT));
            assert_eq!(repeat.allowed(Some(&refused(timed_out, Verdict::Transient))), Err(NOT_IDEMPOTENT));
            assert_eq!(repeat.allowed(Some(&answered(429, throttled))), Ok(()));
            assert_eq!(repeat.allowed(Some(&refused(Kind::Overloaded, rejected))), Ok(()));
        }
    }

    #[test]
    fn a_key_or_the_callers_word_make_a_request_idempotent() {
        let post = |key: &str| request(Method::POST).header("Idempotency-Key", key);
        assert_eq!(repeat(post("7e57"), None).allowed(None), Ok(()));
        assert_eq!(repeat(post(""), None).allowed(None), Err(NOT_IDEMPOTENT));
        assert_eq!(repeat(post("7e57"), Some(false)).allowed(None), Err(NOT_IDEMPOTENT));
        assert_eq!(repeat(request(Method::POST), Some(true)).allowed(None), Ok(()));
        assert_eq!(repeat(request(Method::GET), Some(false)).allowed(None), Err(NOT_IDEMPOTENT));
    }

    #[test]
    fn a_streamed_body_goes_out_once() {
        let stream = Body::wrap_stream(futures::stream::iter([Ok::<_, std::io::Error>("7")]));
        let repeat = repeat(request(Method::PUT).body(stream), Some(true));
        assert_eq!(repeat.allowed(Some(&answered(429, Verdict::Transient))), Err(NO_COPY));
    }
}
