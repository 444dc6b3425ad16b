//! What a cause says about the connection, for clients on hyper: whether it broke, and what that proves.

use std::error::Error as StdError;
use std::io;

use crate::verdict::Verdict;

/// Whether the cause proves that the dependency got nothing of a request that has no answer: a connection that was closed
/// before it was used again, a stream that the server refused or excluded with GOAWAY.
pub(crate) fn was_not_processed(cause: &(dyn StdError + 'static)) -> bool {
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
pub(crate) enum Sign {
    /// The user's own request body failed.
    OwnBody,
    /// The server wants less of everything.
    Calm,
    /// The handshake failed: a certificate that is not trusted, on either side, or something that is not TLS.
    Distrust,
    /// The connection broke or stalled.
    Broken,
}

impl Sign {
    pub(crate) fn verdict(self) -> Verdict {
        match self {
            Sign::OwnBody => Verdict::Ignored,
            Sign::Calm => Verdict::Throttled { retry_after: None },
            Sign::Distrust => Verdict::Permanent,
            Sign::Broken => Verdict::Transient,
        }
    }
}

/// What the cause says, if it is one of a network client. `answered`: of an answer that was there, and broke off.
pub(crate) fn sign(cause: &(dyn StdError + 'static), answered: bool) -> Option<Sign> {
    if let Some(error) = cause.downcast_ref::<hyper::Error>() {
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
    use super::*;

    #[test]
    fn a_handshake_that_was_not_understood_is_permanent() {
        assert_eq!(io_sign(io::ErrorKind::InvalidData, false), Some(Sign::Distrust));
        assert_eq!(io_sign(io::ErrorKind::InvalidData, true), None);
        assert_eq!(io_sign(io::ErrorKind::UnexpectedEof, false), Some(Sign::Broken));
    }
}
