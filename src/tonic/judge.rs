//! What the end of a call is worth. Pure: nothing here looks at a clock or at the network.

use std::error::Error as _;
use std::sync::Arc;

use http::{HeaderMap, HeaderValue, StatusCode};
use tonic::{Code, ConnectError, Status, TimeoutExpired};

use super::pushback::Pushback;
use crate::error::{BoxError, Error};
use crate::http::{Sign, causes, find, sign, was_not_processed};
use crate::verdict::{Classified, Verdict};

/// The verdict on a call that ended with `status`.
///
/// A status that a server has sent has no source. One that was made here for what befell the connection has, and its code says
/// less than that: it depends on the features that tonic was compiled with.
pub(super) fn status(status: &Status) -> Verdict {
    match by_source(status) {
        Some(verdict) => verdict,
        None => with_pushback(code(status.code()), Pushback::read(status.metadata())),
    }
}

/// Whether a tonic server says with a CANCELLED that the limit of `grpc-timeout` has passed.
fn has_expired_there(headers: &HeaderMap) -> bool {
    let says = |name, what: &str| headers.get(name).is_some_and(|value: &HeaderValue| value == what);
    says(Status::GRPC_STATUS, "1") && says(Status::GRPC_MESSAGE, EXPIRED_ENCODED)
}

/// Calls it by its name.
pub(super) fn say_expired(headers: &mut HeaderMap) {
    if has_expired_there(headers) {
        headers.insert(Status::GRPC_STATUS, HeaderValue::from(Code::DeadlineExceeded as u16));
    }
}

/// What the codes of a server are worth, if somebody says otherwise than the table.
#[derive(Clone, Default)]
pub(super) struct Codes(Option<Arc<dyn Fn(Code) -> Option<Verdict> + Send + Sync>>);

impl Codes {
    pub(super) fn new(says: impl Fn(Code) -> Option<Verdict> + Send + Sync + 'static) -> Codes {
        Codes(Some(Arc::new(says)))
    }

    /// The verdict on a call whose headers or trailers have come. `None` if they do not say how it ended.
    pub(super) fn headers(&self, headers: &HeaderMap) -> Option<Verdict> {
        let status = headers.get(Status::GRPC_STATUS)?;
        let code =
            if has_expired_there(headers) { Code::DeadlineExceeded } else { Code::from_bytes(status.as_bytes()) };
        Some(with_pushback(self.code(code), Pushback::of_headers(headers)))
    }

    /// The verdict on an answer that ends without a status, which makes it UNKNOWN: something between here and the server has
    /// cut it off.
    pub(super) fn missing(&self) -> Verdict {
        self.code(Code::Unknown)
    }

    /// The verdict on an answer that is not one of a gRPC server, but of something in front of it: that on the code that
    /// [gRPC gives it](https://github.com/grpc/grpc/blob/master/doc/http-grpc-status-mapping.md).
    pub(super) fn http(&self, status: StatusCode) -> Verdict {
        self.code(match status {
            StatusCode::OK => Code::Ok,
            StatusCode::BAD_REQUEST => Code::Internal,
            StatusCode::UNAUTHORIZED => Code::Unauthenticated,
            StatusCode::FORBIDDEN => Code::PermissionDenied,
            StatusCode::NOT_FOUND => Code::Unimplemented,
            // UNAVAILABLE there, which has no better word for it.
            StatusCode::TOO_MANY_REQUESTS => Code::ResourceExhausted,
            StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT => {
                Code::Unavailable
            }
            _ => Code::Unknown,
        })
    }

    /// OK is OK.
    fn code(&self, which: Code) -> Verdict {
        let said = self.0.as_ref().filter(|_| which != Code::Ok).and_then(|says| says(which));
        said.unwrap_or_else(|| code(which))
    }
}

/// What a code is worth by itself.
fn code(code: Code) -> Verdict {
    match code {
        Code::Ok => Verdict::Success,
        Code::Unavailable | Code::DeadlineExceeded => Verdict::Transient,
        Code::ResourceExhausted => Verdict::Throttled { retry_after: None },
        // The server failed, and may have done a part of what was asked.
        Code::Unknown | Code::Internal | Code::DataLoss => Verdict::Fatal,
        // Not by this caller, who would not be there to see it, and nobody knows by whom.
        Code::Cancelled => Verdict::Ignored,
        Code::InvalidArgument
        | Code::NotFound
        | Code::AlreadyExists
        | Code::PermissionDenied
        | Code::FailedPrecondition
        | Code::Aborted
        | Code::OutOfRange
        | Code::Unimplemented
        | Code::Unauthenticated => Verdict::Permanent,
    }
}

/// A server that pushes back decides when, and whether at all, of what would be asked again.
fn with_pushback(verdict: Verdict, pushback: Option<Pushback>) -> Verdict {
    match (verdict, pushback) {
        (Verdict::Transient | Verdict::Throttled { .. }, Some(Pushback::After(wait))) => {
            Verdict::Throttled { retry_after: Some(wait) }
        }
        (Verdict::Transient, Some(Pushback::Never)) => Verdict::Fatal,
        // No failure, and no second attempt.
        (Verdict::Throttled { .. }, Some(Pushback::Never)) => Verdict::Ignored,
        (verdict, _) => verdict,
    }
}

/// Whether the status proves that the server got nothing of the call.
pub(super) fn was_not_sent(status: &Status) -> bool {
    // With the answer under way, the same words mean something else.
    find::<BrokeOff>(status).is_none()
        && causes(status).any(|cause| cause.is::<ConnectError>() || was_not_processed(cause))
}

/// The status of a call whose answer broke off.
pub(super) fn broke_off(error: impl Into<BoxError>) -> Status {
    let mut status = Status::from_error(error.into());
    let cause = BrokeOff(status.clone());
    status.set_source(Arc::new(cause)).clone()
}

/// The connection, or the server, broke off an answer that was there in part.
#[derive(Debug, thiserror::Error)]
#[error("the answer broke off")]
struct BrokeOff(#[source] Status);

/// Whether a time limit of tonic ended the call, here or at the server: both make a CANCELLED of it, as if the caller had gone.
pub(super) fn has_expired(status: &Status) -> bool {
    let there = status.code() == Code::Cancelled && status.source().is_none() && status.message() == EXPIRED;
    there || find::<TimeoutExpired>(status).is_some()
}

/// The outermost chain that has ended the call says what it was worth, else the connection. What has failed the caller's own messages,
/// which may be those of another call, is not asked for its opinion of this one.
fn by_source(status: &Status) -> Option<Verdict> {
    let connecting = find::<ConnectError>(status).is_some();
    let answered = find::<BrokeOff>(status).is_some();
    let sign = causes(status).filter_map(|cause| sign(cause, answered)).min();
    if sign != Some(Sign::OwnBody)
        && let Some(error) = find::<Error<Status>>(status)
    {
        return Some(error.verdict());
    }
    match sign {
        Some(sign) => Some(sign.verdict()),
        None => (connecting || has_expired(status)).then_some(Verdict::Transient),
    }
}

/// What tonic says of a limit that has passed.
const EXPIRED: &str = "Timeout expired";

/// The same in a header.
const EXPIRED_ENCODED: &str = "Timeout%20expired";

#[cfg(test)]
mod tests {
    use std::error::Error as StdError;
    use std::fmt;
    use std::io;
    use std::sync::Arc;
    use std::time::Duration;

    use tonic::metadata::MetadataMap;

    use super::*;

    /// Every code, as the page of the module shows it.
    const TABLE: [(Code, Verdict); 17] = [
        (Code::Ok, Verdict::Success),
        (Code::Cancelled, Verdict::Ignored),
        (Code::Unknown, Verdict::Fatal),
        (Code::InvalidArgument, Verdict::Permanent),
        (Code::DeadlineExceeded, Verdict::Transient),
        (Code::NotFound, Verdict::Permanent),
        (Code::AlreadyExists, Verdict::Permanent),
        (Code::PermissionDenied, Verdict::Permanent),
        (Code::ResourceExhausted, Verdict::Throttled { retry_after: None }),
        (Code::FailedPrecondition, Verdict::Permanent),
        (Code::Aborted, Verdict::Permanent),
        (Code::OutOfRange, Verdict::Permanent),
        (Code::Unimplemented, Verdict::Permanent),
        (Code::Internal, Verdict::Fatal),
        (Code::Unavailable, Verdict::Transient),
        (Code::DataLoss, Verdict::Fatal),
        (Code::Unauthenticated, Verdict::Permanent),
    ];

    fn status(code: Code, pushback: Option<Pushback>) -> Status {
        let mut metadata = MetadataMap::new();
        if let Some(pushback) = pushback {
            pushback.write(&mut metadata);
        }
        Status::with_metadata(code, "", metadata)
    }

    /// The same status as a client receives it, in headers or in trailers.
    fn received(code: Code, pushback: Option<Pushback>) -> HeaderMap {
        let mut headers = HeaderMap::new();
        status(code, pushback).add_header(&mut headers).unwrap();
        headers
    }

    /// What tonic makes of what befell a connection; its code depends on the features of tonic.
    fn caused(by: impl StdError + Send + Sync + 'static) -> Status {
        let mut status = Status::unknown("transport error");
        status.set_source(Arc::new(Outer(Box::new(by))));
        status
    }

    #[derive(Debug)]
    struct Outer(Box<dyn StdError + Send + Sync>);

    impl fmt::Display for Outer {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("transport error")
        }
    }

    impl StdError for Outer {
        fn source(&self) -> Option<&(dyn StdError + 'static)> {
            Some(&*self.0)
        }
    }

    #[test]
    fn every_code_has_its_verdict() {
        for (number, (code, verdict)) in TABLE.into_iter().enumerate() {
            assert_eq!(code as usize, number, "all seventeen, in order");
            assert_eq!(super::status(&status(code, None)), verdict, "{code:?}");
            assert_eq!(Codes::default().headers(&received(code, None)), Some(verdict), "{code:?} in headers");
        }
    }

    #[test]
    fn a_pause_holds_back_what_would_be_asked_again() {
        let wait = Duration::from_millis(250);
        for (code, alone) in TABLE {
            let verdict = super::status(&status(code, Some(Pushback::After(wait))));
            let would_be_asked_again = matches!(alone, Verdict::Transient | Verdict::Throttled { .. });
            let expected = if would_be_asked_again { Verdict::Throttled { retry_after: Some(wait) } } else { alone };
            assert_eq!(verdict, expected, "{code:?}");
            assert_eq!(
                Codes::default().headers(&received(code, Some(Pushback::After(wait)))),
                Some(expected),
                "{code:?} in headers"
            );
        }
    }

    #[test]
    fn a_server_that_does_not_want_to_be_asked_again_is_not() {
        for (code, alone) in TABLE {
            let verdict = super::status(&status(code, Some(Pushback::Never)));
            let expected = match alone {
                Verdict::Transient => Verdict::Fatal,
                Verdict::Throttled { .. } => Verdict::Ignored,
                other => other,
            };
            assert_eq!(verdict, expected, "{code:?}");
        }
    }

    #[test]
    fn a_code_that_makes_no_sense_is_unknown() {
        for value in [&b""[..], b"17", b"-1", b"ok", b"014", b"\xff"] {
            let received = HeaderMap::from_iter([(Status::GRPC_STATUS, http::HeaderValue::from_bytes(value).unwrap())]);
            assert_eq!(
                Codes::default().headers(&received),
                Some(Verdict::Fatal),
                "{:?}",
                String::from_utf8_lossy(value)
            );
        }
        assert_eq!(Codes::default().headers(&HeaderMap::new()), None);
    }

    #[test]
    fn a_limit_of_tonic_is_no_cancellation() {
        assert_eq!(TimeoutExpired(()).to_string(), EXPIRED);
        let of_a_server = Status::cancelled(EXPIRED);
        let mut headers = HeaderMap::new();
        of_a_server.add_header(&mut headers).unwrap();
        assert_eq!(super::status(&of_a_server), Verdict::Transient);
        assert_eq!(Codes::default().headers(&headers), Some(Verdict::Transient));
        assert_eq!(super::status(&Status::cancelled("by the caller")), Verdict::Ignored);
        assert!(!has_expired(&Status::unavailable(EXPIRED)));
    }

    #[test]
    fn an_answer_of_something_in_front_of_the_server_has_a_verdict() {
        let throttled = Verdict::Throttled { retry_after: None };
        for (code, verdict) in [
            (200, Verdict::Success),
            (400, Verdict::Fatal),
            (401, Verdict::Permanent),
            (403, Verdict::Permanent),
            (404, Verdict::Permanent),
            (429, throttled),
            (500, Verdict::Fatal),
            (502, Verdict::Transient),
            (503, Verdict::Transient),
            (504, Verdict::Transient),
        ] {
            assert_eq!(Codes::default().http(StatusCode::from_u16(code).unwrap()), verdict, "{code}");
        }
    }

    #[test]
    fn a_service_may_mean_something_else_by_its_codes() {
        let codes = Codes::new(|code| (code != Code::NotFound).then_some(Verdict::Transient));
        assert_eq!(codes.headers(&received(Code::Internal, None)), Some(Verdict::Transient));
        assert_eq!(codes.headers(&received(Code::NotFound, None)), Some(Verdict::Permanent), "as the table says");
        assert_eq!(codes.headers(&received(Code::Ok, None)), Some(Verdict::Success), "nobody is asked about it");
        assert_eq!(codes.headers(&received(Code::Internal, Some(Pushback::Never))), Some(Verdict::Fatal));
        assert_eq!((codes.missing(), codes.http(StatusCode::NOT_FOUND)), (Verdict::Transient, Verdict::Transient));
    }

    #[test]
    fn a_connection_says_more_than_the_code_that_is_made_of_it() {
        let reset = h2::Error::from(h2::Reason::REFUSED_STREAM);
        assert_eq!(super::status(&caused(reset)), Verdict::Transient);
        for kind in [io::ErrorKind::ConnectionReset, io::ErrorKind::BrokenPipe, io::ErrorKind::UnexpectedEof] {
            assert_eq!(super::status(&caused(io::Error::from(kind))), Verdict::Transient, "{kind:?}");
        }
        assert_eq!(super::status(&caused(TimeoutExpired(()))), Verdict::Transient);
        let refused = ConnectError(io::Error::from(io::ErrorKind::ConnectionRefused).into());
        assert_eq!(super::status(&caused(refused)), Verdict::Transient);
        let distrusted = ConnectError(io::Error::new(io::ErrorKind::InvalidData, "unknown issuer").into());
        assert_eq!(super::status(&caused(distrusted)), Verdict::Permanent);
        let distrusted_there = io::Error::new(io::ErrorKind::InvalidData, "received fatal alert: CertificateRequired");
        assert_eq!(super::status(&caused(distrusted_there)), Verdict::Permanent, "TLS 1.3 says so late");
        assert_eq!(super::status(&caused(fmt::Error)), Verdict::Fatal, "UNKNOWN, and nothing is known");
    }

    #[test]
    fn only_what_never_left_is_certain_not_to_have_been_sent() {
        let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
        assert!(was_not_sent(&caused(ConnectError(refused.into()))));
        let reset = io::Error::from(io::ErrorKind::ConnectionReset);
        for may_have_been in [
            caused(reset),
            caused(TimeoutExpired(())),
            caused(h2::Error::from(h2::Reason::REFUSED_STREAM)),
            Status::unavailable(""),
            broke_off(caused(ConnectError("of another call".into()))),
        ] {
            assert!(!was_not_sent(&may_have_been), "{may_have_been:?}");
        }
    }
}
