//! What is said about a request beside reqwest's own settings.

use std::sync::Arc;

use http::HeaderMap;
use reqwest::Body;

use crate::clock::Clock;
use crate::error::ConfigError;
use crate::http::{BodyTimeout, DEFAULT_IDLE_LIMIT, Limits, is_event_stream};

/// What is said about a request, by its client and by itself.
#[derive(Clone, Default)]
pub(super) struct Options {
    pub(super) client: ClientOptions,
    /// What the caller says about sending it twice.
    pub(super) idempotent: Option<bool>,
    /// Makes a body for each attempt.
    pub(super) body: Option<MakeBody>,
    pub(super) body_timeout: BodyTimeout,
    /// Whether the response may rest for as long as it likes.
    pub(super) streaming: bool,
    /// The most bytes of a body that is read within the attempt.
    pub(super) buffered: Option<usize>,
}

/// What is said about all requests of a client; some of it can be changed for one of them.
#[derive(Clone, Copy, Default)]
pub(super) struct ClientOptions {
    pub(super) body_timeout: BodyTimeout,
    pub(super) slice_uploads: bool,
    pub(super) per_host: bool,
}

pub(super) type MakeBody = Arc<dyn Fn() -> Body + Send + Sync>;

impl Options {
    pub(super) fn of_client(client: ClientOptions) -> Options {
        Options { client, ..Options::default() }
    }

    pub(super) fn check(&self) -> Result<(), ConfigError> {
        self.body_timeout.check()?;
        self.client.body_timeout.check()
    }

    /// The limits of a body that is read by the caller. A stream that is quiet is not one that hangs: what is meant for all
    /// requests is not meant for it.
    pub(super) fn limits(&self, headers: &HeaderMap, clock: &Clock) -> Limits {
        if self.streaming || is_event_stream(headers) {
            self.body_timeout.begin(None, clock)
        } else {
            self.limits_within_attempt(clock)
        }
    }

    /// The limits of a body that is buffered: whoever waits for all of it does not expect a stream.
    pub(super) fn limits_within_attempt(&self, clock: &Clock) -> Limits {
        self.body_timeout.or(self.client.body_timeout).begin(Some(DEFAULT_IDLE_LIMIT), clock)
    }
}
