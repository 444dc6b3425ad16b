//! What the lack of an answer is worth. Pure: nothing here looks at a clock or at the network.

use crate::http::{BodyError, GivenUp, causes, find, sign, status, was_not_processed};
use crate::verdict::Verdict;

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
    // The guard of this answer, and not of another one that is the request's own body.
    if answered && let Some(guard) = find::<BodyError>(error) {
        return given_up(guard.why());
    }
    match causes(error).filter_map(|cause| sign(cause, answered)).min() {
        Some(sign) => sign.verdict(),
        None if connecting || error.is_timeout() => Verdict::Transient,
        // reqwest calls every failure of a response body one of decoding. Without a broken connection behind it, it is.
        None if error.is_decode() => Verdict::Permanent,
        None if error.is_body() => Verdict::Ignored,
        None => Verdict::Transient,
    }
}

fn given_up(why: GivenUp) -> Verdict {
    match why {
        GivenUp::Outside(_) => Verdict::Ignored,
        GivenUp::Stalled(_) | GivenUp::TooSlow(_) => Verdict::Transient,
        GivenUp::TooLarge(_) => Verdict::Permanent,
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

#[cfg(test)]
mod tests {
    use std::error::Error as StdError;
    use std::io;
    use std::time::Duration;

    use futures::FutureExt;
    use reqwest::{Body, Response};

    use super::*;
    use crate::cancel::Cause;

    /// What reading a response ends with whose body fails with `cause`.
    fn reading(cause: impl Into<Box<dyn StdError + Send + Sync>>) -> reqwest::Error {
        let failing = futures::stream::iter([Err::<bytes::Bytes, _>(cause.into())]);
        let response = Response::from(http::Response::new(Body::wrap_stream(failing)));
        response.bytes().now_or_never().unwrap().unwrap_err()
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
