//! Refusals in the terms of HTTP and of gRPC.

use std::fmt::Write;
use std::time::Duration;

use http::header::{CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode};

use super::body::Body;
use super::gate::Hold;
use crate::error::{Kind, Refusal};

/// How a request wants to be answered.
#[derive(Clone, Debug)]
pub(super) struct Form {
    /// The content type of a request of gRPC, which is that of its answer.
    grpc: Option<HeaderValue>,
    is_head: bool,
}

impl Form {
    pub(super) fn of(head: &Parts) -> Form {
        let content_type = head.headers.get(CONTENT_TYPE).filter(|value| is_grpc(value.as_bytes()));
        Form { grpc: content_type.cloned(), is_head: head.method == Method::HEAD }
    }

    pub(super) fn is_grpc(&self) -> bool {
        self.grpc.is_some()
    }

    /// The response of the service, with what its request holds until it has ended.
    pub(super) fn guard<B: http_body::Body>(&self, response: Response<B>, mut hold: Hold) -> Response<Body<B>> {
        let is_bodiless = self.is_head || BODILESS.contains(&response.status());
        let left = response.headers().get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        response.map(|body| {
            hold.begin_body();
            if is_bodiless || body.is_end_stream() {
                // Nothing of it will be asked for.
                hold.complete();
                return Body::new(body, Hold::Nothing, left, self.has_trailers());
            }
            Body::new(body, hold, left, self.has_trailers())
        })
    }

    /// Whether the client reads trailers. Those of gRPC-Web are in the body, where only its own proxy can write them.
    fn has_trailers(&self) -> bool {
        let is_web = |value: &HeaderValue| value.as_bytes().get(GRPC.len()) == Some(&b'-');
        self.grpc.as_ref().is_some_and(|value| !is_web(value))
    }

    /// The answer to a request that is refused, with the refusal in its extensions.
    pub(super) fn refuse<B: http_body::Body>(&self, refusal: Refusal) -> Response<Body<B>> {
        let mut response = Response::new(Body::empty());
        match &self.grpc {
            Some(content_type) => {
                *response.headers_mut() = trailers(&refusal);
                response.headers_mut().insert(CONTENT_TYPE, content_type.clone());
            }
            None => {
                *response.status_mut() = meaning(refusal.kind()).0;
                if let Some(wait) = refusal.retry_after() {
                    response.headers_mut().insert(RETRY_AFTER, whole_seconds(wait).into());
                }
            }
        }
        response.extensions_mut().insert(refusal);
        response
    }
}

/// The status of gRPC that a refusal stands for: the headers of an answer without messages, or the trailers of one that is
/// broken off.
pub(super) fn trailers(refusal: &Refusal) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(4);
    let code = meaning(refusal.kind()).1;
    headers.insert(GRPC_STATUS, HeaderValue::from(code));
    // What is wrong with the settings of a server is not its clients' business.
    let message = if code == INTERNAL { "misconfigured".to_owned() } else { refusal.to_string() };
    if let Ok(message) = HeaderValue::try_from(percent_encoded(&message)) {
        headers.insert(GRPC_MESSAGE, message);
    }
    match (refusal.kind(), refusal.retry_after()) {
        (_, Some(wait)) => drop(headers.insert(PUSHBACK, HeaderValue::from(whole_millis(wait)))),
        // It will never be let in.
        (Kind::RateLimited { .. }, None) => drop(headers.insert(PUSHBACK, HeaderValue::from_static("-1"))),
        _ => {}
    }
    headers
}

/// The statuses of HTTP and of gRPC.
fn meaning(kind: Kind) -> (StatusCode, u16) {
    match kind {
        Kind::RateLimited { .. } => (StatusCode::TOO_MANY_REQUESTS, RESOURCE_EXHAUSTED),
        Kind::DeadlineExceeded | Kind::TimedOut { .. } => (StatusCode::GATEWAY_TIMEOUT, DEADLINE_EXCEEDED),
        Kind::Misconfigured => (StatusCode::INTERNAL_SERVER_ERROR, INTERNAL),
        Kind::Cancelled => (StatusCode::SERVICE_UNAVAILABLE, CANCELLED),
        _ => (StatusCode::SERVICE_UNAVAILABLE, UNAVAILABLE),
    }
}

/// Whether a content type is `application/grpc`, with or without a codec, or `application/grpc-web`.
fn is_grpc(content_type: &[u8]) -> bool {
    let Some((name, rest)) = content_type.split_at_checked(GRPC.len()) else { return false };
    name.eq_ignore_ascii_case(GRPC) && matches!(rest.first(), None | Some(b'+' | b'-' | b';' | b' '))
}

/// Rounded up: a client that comes when it was told to is not early.
fn whole_seconds(wait: Duration) -> u64 {
    wait.as_secs().saturating_add(u64::from(wait.subsec_nanos() > 0))
}

/// Rounded up too, and no more than what clients read: 32 bits with a sign.
fn whole_millis(wait: Duration) -> i32 {
    i32::try_from(wait.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX)
}

/// As gRPC wants its messages: what is not printable ASCII, and `%`, in hexadecimal.
fn percent_encoded(message: &str) -> String {
    let mut encoded = String::with_capacity(message.len());
    for byte in message.bytes() {
        match byte {
            b' '..=b'~' if byte != b'%' => encoded.push(char::from(byte)),
            _ => {
                // Writing to a string cannot fail.
                let _ = write!(encoded, "%{byte:02X}");
            }
        }
    }
    encoded
}

/// Answers whose headers are all, whatever they say of a length.
const BODILESS: [StatusCode; 2] = [StatusCode::NO_CONTENT, StatusCode::NOT_MODIFIED];

const GRPC: &[u8] = b"application/grpc";

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
/// How long a client of gRPC has to wait before it tries again; negative: it should not.
const PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");

const CANCELLED: u16 = 1;
const DEADLINE_EXCEEDED: u16 = 4;
const RESOURCE_EXHAUSTED: u16 = 8;
const INTERNAL: u16 = 13;
const UNAVAILABLE: u16 = 14;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_rounded_up() {
        let cases = [(0, 0), (1, 1), (999_999_999, 1), (1_000_000_000, 1), (1_000_000_001, 2), (2_500_000_000, 3)];
        for (nanos, seconds) in cases {
            assert_eq!(whole_seconds(Duration::from_nanos(nanos)), seconds, "{nanos} ns");
        }
        assert_eq!(whole_seconds(Duration::MAX), u64::MAX);
    }

    #[test]
    fn milliseconds_are_rounded_up_and_fit_into_32_bits() {
        let cases = [(0, 0), (1, 1), (1_000_000, 1), (1_000_001, 2), (250_000_000, 250)];
        for (nanos, millis) in cases {
            assert_eq!(whole_millis(Duration::from_nanos(nanos)), millis, "{nanos} ns");
        }
        assert_eq!(whole_millis(Duration::from_secs(3_000_000)), i32::MAX);
        assert_eq!(whole_millis(Duration::MAX), i32::MAX);
    }

    #[test]
    fn grpc_is_told_by_the_content_type() {
        for yes in ["application/grpc", "application/grpc+proto", "Application/GRPC;x", "application/grpc-web-text"] {
            assert!(is_grpc(yes.as_bytes()), "{yes}");
        }
        for no in ["", "application/json", "application/grpcx", "application/gr", "text/plain; application/grpc"] {
            assert!(!is_grpc(no.as_bytes()), "{no}");
        }
    }

    #[test]
    fn messages_are_percent_encoded() {
        assert_eq!(percent_encoded("rate limited, free in 1.5 s"), "rate limited, free in 1.5 s");
        assert_eq!(percent_encoded("50 % für\n"), "50 %25 f%C3%BCr%0A");
    }
}
