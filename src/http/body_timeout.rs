//! How long the body of a response may take.

use std::time::Duration;

use http::HeaderMap;
use http::header::CONTENT_TYPE;

use crate::clock::{Clock, Moment};
use crate::error::ConfigError;

/// Ends the body of a response that takes too long, whatever the policies of the chain have allowed for its headers.
///
/// There are two limits: on the time without data, and on the time from the headers to the end. What ends a body first
/// counts, and the deadline of the caller's [`Context`](crate::Context) ends it in any case. The reader then gets an error
/// of [`Kind::TimedOut`](crate::error::Kind::TimedOut), and the body is a failure for the breakers of the chain.
///
/// A body that is held and not read is not ended, but its next read is: by the limit on the whole in any case, by the other if
/// there is still no data.
///
/// ```
/// use std::time::Duration;
/// # #[cfg(feature = "reqwest")]
/// use steadfast::reqwest::BodyTimeout;
/// # #[cfg(not(feature = "reqwest"))]
/// # use steadfast::tower::BodyTimeout;
///
/// let patient = BodyTimeout::new().idle(Duration::from_secs(120)).total(Duration::from_secs(600));
/// # assert_ne!(patient, BodyTimeout::new());
/// ```
///
/// # Streams
/// A stream that is quiet is not one that hangs. `text/event-stream`, and with reqwest the responses of requests that are
/// marked with `streaming`, have no limits but those that are set on the request itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use = "a limit does nothing until it is given to a client or a request"]
pub struct BodyTimeout {
    idle: Option<Duration>,
    total: Option<Duration>,
}

impl BodyTimeout {
    /// The default limits: [`DEFAULT_IDLE_LIMIT`] without data, and none on the whole.
    pub const fn new() -> BodyTimeout {
        BodyTimeout { idle: None, total: None }
    }

    /// The longest time without data, which must not be zero; `Duration::MAX` means that a body may rest for ever.
    /// Default: [`DEFAULT_IDLE_LIMIT`].
    pub const fn idle(mut self, limit: Duration) -> BodyTimeout {
        self.idle = Some(limit);
        self
    }

    /// The longest time from the headers to the end of the body, which must not be zero; `Duration::MAX` means no limit.
    /// Default: no limit but the caller's deadline.
    pub const fn total(mut self, limit: Duration) -> BodyTimeout {
        self.total = Some(limit);
        self
    }

    /// Refuses limits that cannot work.
    ///
    /// # Errors
    /// If one of them is zero.
    pub fn check(&self) -> Result<(), ConfigError> {
        let rule = "must be longer than zero";
        match (self.idle, self.total) {
            (Some(Duration::ZERO), _) => Err(ConfigError::new("BodyTimeout::idle", "0 s", rule)),
            (_, Some(Duration::ZERO)) => Err(ConfigError::new("BodyTimeout::total", "0 s", rule)),
            _ => Ok(()),
        }
    }

    /// These limits, and those of `other` where these say nothing.
    pub(crate) fn or(self, other: BodyTimeout) -> BodyTimeout {
        BodyTimeout { idle: self.idle.or(other.idle), total: self.total.or(other.total) }
    }

    /// The limits of a body whose headers have come.
    pub(crate) fn begin(self, default_idle: Option<Duration>, clock: &Clock) -> Limits {
        let total = self.total.filter(|limit| *limit != Duration::MAX);
        Limits {
            idle: self.idle.or(default_idle).filter(|limit| *limit != Duration::MAX),
            total: total.map(|limit| (clock.now() + limit, limit)),
        }
    }
}

/// The limits of one body.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Limits {
    /// The longest time without data.
    pub(crate) idle: Option<Duration>,
    /// When the body has to be over, and the limit that says so.
    pub(crate) total: Option<(Moment, Duration)>,
}

impl Limits {
    /// These limits, and one more on the whole.
    pub(crate) fn within(mut self, other: Option<(Moment, Duration)>) -> Limits {
        self.total = self.total.into_iter().chain(other).min_by_key(|(at, _)| *at);
        self
    }
}

/// Whether the body is a stream of events, which may rest for as long as nothing happens.
pub(crate) fn is_event_stream(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).map_or(&b""[..], |value| value.as_bytes());
    kind.get(..EVENT_STREAM.len()).is_some_and(|kind| kind.eq_ignore_ascii_case(EVENT_STREAM))
}

const EVENT_STREAM: &[u8] = b"text/event-stream";

/// The longest time that a body may stay without data. Long enough for a server that computes in between, short enough
/// that a connection which died without a word is noticed before a person gives up.
pub const DEFAULT_IDLE_LIMIT: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn only_streams_of_events_may_rest() {
        let events = |kind| is_event_stream(&HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(kind))]));
        assert!(events("text/event-stream"));
        assert!(events("Text/Event-Stream; charset=utf-8"));
        assert!(!events("text/plain"));
        assert!(!is_event_stream(&HeaderMap::new()));
    }

    #[test]
    fn what_is_set_nearer_counts() {
        let clock = Clock::manual().clock();
        let now = clock.now();
        let client = BodyTimeout::new().idle(5 * SECOND).total(60 * SECOND);
        let request = BodyTimeout::new().total(Duration::MAX);
        let both = request.or(client).begin(Some(DEFAULT_IDLE_LIMIT), &clock);
        assert_eq!(both, Limits { idle: Some(5 * SECOND), total: None });
        let request = BodyTimeout::new().total(SECOND);
        let limits = request.begin(Some(DEFAULT_IDLE_LIMIT), &clock);
        assert_eq!(limits, Limits { idle: Some(DEFAULT_IDLE_LIMIT), total: Some((now + SECOND, SECOND)) });
        let never = BodyTimeout::new().idle(Duration::MAX);
        assert_eq!(never.begin(Some(DEFAULT_IDLE_LIMIT), &clock), Limits::default());
        assert_eq!(BodyTimeout::new().begin(None, &clock), Limits::default());
    }

    #[test]
    fn of_two_limits_on_the_whole_the_earlier_counts() {
        let now = Clock::manual().now();
        let (early, late) = (Some((now + SECOND, SECOND)), Some((now + 2 * SECOND, 2 * SECOND)));
        let limits = |total| Limits { idle: None, total };
        assert_eq!(limits(late).within(early), limits(early));
        assert_eq!(limits(early).within(late), limits(early));
        assert_eq!(limits(None).within(late), limits(late));
        assert_eq!(limits(late).within(None), limits(late));
    }

    #[test]
    fn limits_of_zero_are_refused() {
        assert!(BodyTimeout::new().check().is_ok());
        assert!(BodyTimeout::new().idle(Duration::ZERO).check().is_err());
        assert!(BodyTimeout::new().total(Duration::ZERO).check().is_err());
    }
}
