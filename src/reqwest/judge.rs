//! What an answer, or the lack of one, is worth. Pure: nothing here looks at a clock or at the network.

use std::error::Error as StdError;
use std::io;
use std::time::Duration;

use http::StatusCode;

use super::causes::{causes, find};
use super::error::BodyError;
use crate::error::Kind;
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
    // Of several signs the strongest counts, which is the first in the order of `Sign`.
    match causes(error).filter_map(sign).min() {
        Some(Sign::OwnBody) => Verdict::Ignored,
        Some(Sign::GivenUp) => Verdict::Ignored,
        Some(Sign::Calm) => Verdict::Throttled { retry_after: None },
        Some(Sign::Invalid) if error.is_connect() => Verdict::Permanent,
        Some(Sign::Broken) => Verdict::Transient,
        _ if error.is_connect() || error.is_timeout() => Verdict::Transient,
        // reqwest calls every failure of a body one of decoding; without a broken connection behind it, it is one.
        _ if error.is_decode() => Verdict::Permanent,
        _ if error.is_body() => Verdict::Ignored,
        _ => Verdict::Transient,
    }
}

/// Whether the error proves that the dependency got nothing of the request. A timeout, a reset and an incomplete message
/// prove nothing.
///
/// What is proved is that the *last* request of a chain of redirects was not sent: reqwest does not say whether it has
/// followed one.
pub(super) fn nothing_was_sent(error: &reqwest::Error) -> bool {
    error.is_connect() || causes(error).any(was_not_processed)
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

/// What one cause says, the strongest first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Sign {
    /// The user's own request body failed.
    OwnBody,
    /// The caller, the executor or the caller's deadline ended the body.
    GivenUp,
    /// The server wants less of everything.
    Calm,
    /// What arrived cannot be understood; within a handshake that is TLS.
    Invalid,
    /// The connection broke or stalled.
    Broken,
}

fn sign(cause: &(dyn StdError + 'static)) -> Option<Sign> {
    if let Some(error) = cause.downcast_ref::<BodyError>() {
        let stalled = matches!(error.kind(), Kind::TimedOut { .. });
        Some(if stalled { Sign::Broken } else { Sign::GivenUp })
    } else if let Some(error) = cause.downcast_ref::<hyper::Error>() {
        Some(if error.is_user() { Sign::OwnBody } else { Sign::Broken })
    } else if let Some(error) = cause.downcast_ref::<h2::Error>() {
        Some(h2_sign(error))
    } else {
        io_sign(cause.downcast_ref::<io::Error>()?.kind())
    }
}

fn h2_sign(error: &h2::Error) -> Sign {
    if error.is_remote() && error.reason() == Some(h2::Reason::ENHANCE_YOUR_CALM) {
        Sign::Calm
    } else if error.is_reset() && !error.is_remote() && !error.is_library() {
        // hyper resets a stream by itself only when the body that it is to send has failed.
        Sign::OwnBody
    } else {
        Sign::Broken
    }
}

fn io_sign(kind: io::ErrorKind) -> Option<Sign> {
    use io::ErrorKind as K;
    match kind {
        K::InvalidData => Some(Sign::Invalid),
        K::ConnectionReset | K::ConnectionAborted | K::BrokenPipe | K::NotConnected => Some(Sign::Broken),
        K::UnexpectedEof | K::TimedOut => Some(Sign::Broken),
        _ => None,
    }
}
