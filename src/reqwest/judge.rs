//! What an answer, or the lack of one, is worth. Pure: nothing here looks at a clock or at the network.

use std::error::Error as StdError;
use std::io;
use std::time::Duration;

use http::StatusCode;

use super::causes::causes;
use super::error::{BodyError, GivenUp};
use crate::verdict::Verdict;

/// The verdict on an answer, given the pause that it asks for. Below 400 a pause means nothing: a 202 says with it when to
/// look again.
pub(super) fn status(status: StatusCode, retry_after: Option<Duration>) -> Verdict {
    if status < StatusCode::BAD_REQUEST {
        return Verdict::Success;
    }
    match status {
        StatusCode::TOO_MANY_REQUESTS => Verdict::Throttled { retry_after },
        _ if retry_after.is_some() => Verdict::Throttled { retry_after },
        StatusCode::REQUEST_TIMEOUT => Verdict::Transient,
        StatusCode::NOT_IMPLEMENTED => Verdict::Permanent,
        _ if status.is_server_error() => Verdict::Transient,
        _ => Verdict::Permanent,
    }
}

/// The verdict on an exchange that ended without an answer, or in the middle of one.
pub(super) fn error(error: &reqwest::Error) -> Verdict {
    if error.is_builder() {
        return Verdict::Ignored;
    }
    if error.is_redirect() {
        return Verdict::Permanent;
    }
    if let Some(code) = error.status() {
        return status(code, None);
    }
    let (connecting, answered) = (error.is_connect(), is_of_a_response(error));
    match causes(error).filter_map(|cause| sign(cause, answered)).min() {
        Some(Sign::OwnBody | Sign::GivenUp) => Verdict::Ignored,
        Some(Sign::Calm) => Verdict::Throttled { retry_after: None },
        Some(Sign::Distrust | Sign::TooLarge) => Verdict::Permanent,
        Some(Sign::Broken) => Verdict::Transient,
        None if connecting || error.is_timeout() => Verdict::Transient,
        // reqwest calls every failure of a response body one of decoding. Without a broken connection behind it, it is.
        None if error.is_decode() => Verdict::Permanent,
        None if error.is_body() => Verdict::Ignored,
        None => Verdict::Transient,
    }
}

/// Whether the error proves that the dependency got nothing of the request. A timeout, a reset and an incomplete message
/// prove nothing.
///
/// What is proved is that the *last* request of a chain of redirects was not sent: reqwest does not say whether it has
/// followed one.
///
/// Nor does anything that befalls the body of a response, which is there already: HTTP/2 resets streams and connections in the
/// middle of one with the same words.
pub(super) fn nothing_was_sent(error: &reqwest::Error) -> bool {
    !is_of_a_response(error) && (error.is_connect() || causes(error).any(was_not_processed))
}

/// Whether the answer was there, and its body failed.
fn is_of_a_response(error: &reqwest::Error) -> bool {
    error.is_decode() || error.is_body()
}

fn was_not_processed(cause: &(dyn StdError + 'static)) -> bool {
    if let Some(error) = cause.downcast_ref::<hyper::Error>() {
        error.is_canceled()
    } else if let Some(error) = cause.downcast_ref::<h2::Error>() {
        let refused = error.is_reset() && error.reason() == Some(h2::Reason::REFUSED_STREAM);
        error.is_remote() && (refused || error.is_go_away())
    } else {
        false
    }
}

/// What one cause says. Of several the first in this order counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Sign {
    /// The user's own request body failed.
    OwnBody,
    /// The caller, the executor or the caller's deadline ended a body.
    GivenUp,
    /// A body is larger than it may be, and would be again.
    TooLarge,
    /// The server wants less of everything.
    Calm,
    /// The handshake failed: a certificate that is not trusted, on either side, or something that is not TLS.
    Distrust,
    /// The connection broke or stalled.
    Broken,
}

fn sign(cause: &(dyn StdError + 'static), answered: bool) -> Option<Sign> {
    if let Some(error) = cause.downcast_ref::<BodyError>() {
        Some(match error.why() {
            GivenUp::Outside(_) => Sign::GivenUp,
            GivenUp::Stalled(_) | GivenUp::TooSlow(_) => Sign::Broken,
            GivenUp::TooLarge(_) => Sign::TooLarge,
        })
    } else if let Some(error) = cause.downcast_ref::<hyper::Error>() {
        // hyper says "user" of failures of its own too, such as a connection whose task is gone; those have no cause.
        let is_of_own_body = error.is_user() && (error.source().is_some() || error.is_body_write_aborted());
        Some(if is_of_own_body { Sign::OwnBody } else { Sign::Broken })
    } else if let Some(error) = cause.downcast_ref::<h2::Error>() {
        Some(h2_sign(error))
    } else {
        io_sign(cause.downcast_ref::<io::Error>()?.kind(), answered)
    }
}

fn h2_sign(error: &h2::Error) -> Sign {
    if error.is_remote() && error.reason() == Some(h2::Reason::ENHANCE_YOUR_CALM) {
        Sign::Calm
    } else if error.is_reset() && !error.is_remote() && !error.is_library() {
        // A stream whose response is still waited for is reset from here only if the body that it sends has failed.
        Sign::OwnBody
    } else {
        Sign::Broken
    }
}

/// With TLS 1.3 a server refuses the certificate of a client when that is connected already and waits for its answer. In the
/// body of an answer the same kind is that of data which cannot be decompressed.
fn io_sign(kind: io::ErrorKind, answered: bool) -> Option<Sign> {
    use io::ErrorKind as K;
    match kind {
        K::InvalidData if !answered => Some(Sign::Distrust),
        K::ConnectionReset | K::ConnectionAborted | K::BrokenPipe | K::NotConnected => Some(Sign::Broken),
        K::UnexpectedEof | K::TimedOut => Some(Sign::Broken),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use reqwest::{Body, Response};

    use super::*;
    use crate::cancel::Cause;

    const PAUSE: Option<Duration> = Some(Duration::from_secs(7));

    /// What reading a response ends with whose body fails with `cause`.
    fn reading(cause: impl Into<Box<dyn StdError + Send + Sync>>) -> reqwest::Error {
        let failing = futures::stream::iter([Err::<bytes::Bytes, _>(cause.into())]);
        let response = Response::from(http::Response::new(Body::wrap_stream(failing)));
        response.bytes().now_or_never().unwrap().unwrap_err()
    }

    #[test]
    fn an_answer_is_worth_what_its_status_says() {
        for code in [100, 200, 202, 204, 301, 304] {
            let code = StatusCode::from_u16(code).unwrap();
            assert_eq!(status(code, None), Verdict::Success, "{code}");
            assert_eq!(status(code, PAUSE), Verdict::Success, "{code} with Retry-After");
        }
        for code in [408, 500, 502, 503, 504, 507, 529] {
            assert_eq!(status(StatusCode::from_u16(code).unwrap(), None), Verdict::Transient, "{code}");
        }
        for code in [400, 401, 403, 404, 409, 422, 501] {
            assert_eq!(status(StatusCode::from_u16(code).unwrap(), None), Verdict::Permanent, "{code}");
        }
        let throttled = Verdict::Throttled { retry_after: PAUSE };
        for code in [403, 408, 413, 429, 500, 501, 503] {
            assert_eq!(status(StatusCode::from_u16(code).unwrap(), PAUSE), throttled, "{code} with Retry-After");
        }
        assert_eq!(status(StatusCode::TOO_MANY_REQUESTS, None), Verdict::Throttled { retry_after: None });
    }

    #[test]
    fn a_body_that_broke_off_is_no_decoding_error() {
        for kind in [io::ErrorKind::ConnectionReset, io::ErrorKind::UnexpectedEof, io::ErrorKind::TimedOut] {
            assert_eq!(error(&reading(io::Error::from(kind))), Verdict::Transient, "{kind:?}");
            let hidden = io::Error::other(io::Error::other(io::Error::from(kind)));
            assert_eq!(error(&reading(hidden)), Verdict::Transient, "{kind:?}, wrapped");
        }
        assert_eq!(error(&reading(h2::Error::from(h2::Reason::INTERNAL_ERROR))), Verdict::Transient);
        assert_eq!(error(&reading("not gzip")), Verdict::Permanent);
        assert_eq!(error(&reading(io::Error::from(io::ErrorKind::InvalidData))), Verdict::Permanent);
    }

    #[test]
    fn a_body_that_was_given_up_is_worth_what_it_was_given_up_for() {
        for cause in [Cause::Cancelled, Cause::ShutDown, Cause::DeadlineExceeded] {
            let given_up = BodyError::new(GivenUp::Outside(cause), 1);
            assert_eq!(error(&reading(given_up)), Verdict::Ignored, "{cause:?}");
        }
        for slow in [GivenUp::Stalled(Duration::from_secs(30)), GivenUp::TooSlow(Duration::from_secs(60))] {
            assert_eq!(error(&reading(BodyError::new(slow, 1))), Verdict::Transient, "{slow:?}");
        }
        assert_eq!(error(&reading(BodyError::new(GivenUp::TooLarge(7), 1))), Verdict::Permanent);
    }

    #[test]
    fn a_handshake_that_was_not_understood_is_permanent() {
        assert_eq!(io_sign(io::ErrorKind::InvalidData, false), Some(Sign::Distrust));
        assert_eq!(io_sign(io::ErrorKind::InvalidData, true), None);
        assert_eq!(io_sign(io::ErrorKind::UnexpectedEof, false), Some(Sign::Broken));
    }

    #[test]
    fn builder_errors_are_of_this_sides_making() {
        let request = reqwest::Client::new().get("http://no such host/").build();
        assert_eq!(error(&request.unwrap_err()), Verdict::Ignored);
    }

    #[test]
    fn a_broken_body_proves_nothing_about_the_request() {
        assert!(!nothing_was_sent(&reading(io::Error::from(io::ErrorKind::ConnectionReset))));
        assert!(!nothing_was_sent(&reading(h2::Error::from(h2::Reason::REFUSED_STREAM))), "not from the server");
    }
}
