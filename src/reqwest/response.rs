//! A response whose body is guarded, and what else it carries.

use std::mem;
use std::time::Duration;

use http::HeaderMap;
use http::header::CONTENT_TYPE;
use http_body::Body as _;
use reqwest::{Body, Response, ResponseBuilderExt};

use super::body::{Guarded, Rules};
use crate::cancel::Cancellation;
use crate::clock::Clock;
use crate::policy::{End, Tail};

/// In the extensions of a response: it was worth another attempt, but the request could not be sent again.
///
/// ```
/// use steadfast::reqwest::{NotRepeated, ResponseExt};
///
/// # let mut response = reqwest::Response::from(http::Response::new(""));
/// assert_eq!(response.not_repeated(), None);
/// response.extensions_mut().insert(NotRepeated("the body is a stream"));
/// assert_eq!(response.not_repeated(), Some("the body is a stream"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotRepeated(
    /// Why not.
    pub &'static str,
);

/// What a response says about the run that it comes from.
pub trait ResponseExt {
    /// The merged token of the response: the caller's token, the executor's shutdown and the caller's deadline in one value.
    /// [`cancel`](Cancellation::cancel) ends this body alone. `None` for a response that did not go through a chain.
    ///
    /// For work that is done beside reading the body, or instead of it:
    ///
    /// ```no_run
    /// # use steadfast::reqwest::ResponseExt;
    /// # async fn convert(_: reqwest::Response) {}
    /// # async fn example(http: steadfast::reqwest::Client) -> Result<(), steadfast::reqwest::Error> {
    /// let response = http.get("https://media.example/7").send().await?;
    /// let token = response.cancellation().cloned();
    /// tokio::spawn(convert(response));
    /// // Later, from anywhere:
    /// token.inspect(steadfast::Cancellation::cancel);
    /// # Ok(())
    /// # }
    /// ```
    fn cancellation(&self) -> Option<&Cancellation>;

    /// Why the request was not sent again, if the response was worth another attempt; see [`NotRepeated`].
    fn not_repeated(&self) -> Option<&'static str>;
}

impl ResponseExt for Response {
    fn cancellation(&self) -> Option<&Cancellation> {
        self.extensions().get()
    }

    fn not_repeated(&self) -> Option<&'static str> {
        self.extensions().get().map(|NotRepeated(why)| *why)
    }
}

/// What the run of a response leaves to be done while the body is read.
pub(super) struct Remains {
    pub(super) cancellation: Cancellation,
    pub(super) clock: Clock,
    pub(super) tail: Tail,
    pub(super) attempts: u32,
    /// Whether the request was a HEAD, whose response has no body whatever its headers say.
    pub(super) bodiless: bool,
}

/// The same response around a guarded body.
pub(super) fn guard(response: Response, remains: Remains) -> Response {
    let url = response.url().clone();
    let (mut parts, body) = http::Response::<Body>::from(response).into_parts();
    // reqwest passes the URL in an extension that only its builder can make.
    if let Some(url) = http::response::Builder::new().url(url).extensions_mut() {
        parts.extensions.extend(mem::take(url));
    }
    parts.extensions.insert(remains.cancellation.clone());
    let body = if remains.bodiless || body.is_end_stream() {
        remains.tail.end(End::Complete);
        body
    } else {
        let rules = Rules {
            cancellation: remains.cancellation,
            clock: remains.clock,
            idle: idle_limit(&parts.headers),
            attempts: remains.attempts,
        };
        Body::wrap(Guarded::new(body, rules, remains.tail))
    };
    Response::from(http::Response::from_parts(parts, body))
}

/// A stream of events may rest for as long as nothing happens.
fn idle_limit(headers: &HeaderMap) -> Option<Duration> {
    let kind = headers.get(CONTENT_TYPE).map_or(&b""[..], |value| value.as_bytes());
    let events = kind.get(..EVENT_STREAM.len()).is_some_and(|kind| kind.eq_ignore_ascii_case(EVENT_STREAM));
    (!events).then_some(DEFAULT_IDLE_LIMIT)
}

const EVENT_STREAM: &[u8] = b"text/event-stream";

/// The longest time that a body may stay without data. Long enough for a server that computes in between, short enough
/// that a connection which died without a word is noticed before a person gives up.
pub const DEFAULT_IDLE_LIMIT: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn only_streams_of_events_may_rest() {
        let limit = |kind| idle_limit(&HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(kind))]));
        assert_eq!(limit("text/event-stream"), None);
        assert_eq!(limit("Text/Event-Stream; charset=utf-8"), None);
        assert_eq!(limit("text/plain"), Some(DEFAULT_IDLE_LIMIT));
        assert_eq!(idle_limit(&HeaderMap::new()), Some(DEFAULT_IDLE_LIMIT));
    }
}
