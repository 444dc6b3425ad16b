//! A layer that gives every request its deadline, and tells the handler of it.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::HeaderName;
use http::request::Parts;
use tokio_util::sync::CancellationToken;
use tower_layer::Layer;

use super::asked::Asked;
use super::gate::{Admission, Gate, Hold};
use super::service::Guarded;
use crate::clock::{Clock, Deadline, Sleep};
use crate::context::Context as Caller;
use crate::error::{ConfigError, Kind, Refusal};

/// Gives every request a deadline, the client's own or a default, answers 504 (gRPC: DEADLINE_EXCEEDED) when it passes, and puts a
/// [`Context`](crate::Context) into the extensions of the request, for the calls that the handler makes.
///
/// That context has the deadline, and a token that is cancelled when the request is given up: its client has gone, its
/// deadline has passed, its body has failed. It is not cancelled by a response that comes to its end, so that work which a
/// handler has spawned may go on. A context that is there already (of a layer outside, or of yours) is kept, with the earlier
/// of the two deadlines and a token of its own.
///
/// An answer that is ready when the deadline passes is given. So a handler whose calls end with the same deadline may be first
/// to say so, and should say it in the same way.
///
/// A request of gRPC says with `grpc-timeout` how long its client waits, and the limit covers all of the response: a stream
/// that is not over by then ends with DEADLINE_EXCEEDED in its trailers. For HTTP there is no standard; name the
/// [header](DeadlineLayer::seconds_header) that your clients or your proxy send. There the limit ends with the headers, unless it
/// is [`covering_body`](DeadlineLayer::covering_body). A value that makes no sense is as good as none.
///
/// ```
/// use std::time::Duration;
/// use http::HeaderName;
/// use steadfast::server::DeadlineLayer;
///
/// let layer = DeadlineLayer::new()
///     .seconds_header(HeaderName::from_static("x-request-timeout"))
///     .default_limit(Duration::from_secs(10))
///     .longest(Duration::from_secs(60));
/// assert!(layer.check().is_ok());
/// ```
#[derive(Clone, Debug)]
#[must_use = "a layer does nothing until it is around a service"]
pub struct DeadlineLayer {
    asked: Asked,
    default: Duration,
    longest: Duration,
    covers_body: bool,
    clock: Clock,
}

impl DeadlineLayer {
    /// A layer that reads `grpc-timeout`, and gives other requests no limit until it is told to.
    pub fn new() -> DeadlineLayer {
        let (default, longest) = (Duration::MAX, Duration::MAX);
        DeadlineLayer { asked: Asked::Nowhere, default, longest, covers_body: false, clock: Clock::tokio() }
    }

    /// Reads the time that a client waits from a header, in seconds: `2` or `0.25`.
    pub fn seconds_header(mut self, name: HeaderName) -> DeadlineLayer {
        self.asked = Asked::Seconds(name);
        self
    }

    /// Reads the time that a client waits from a header, in whole milliseconds.
    pub fn millis_header(mut self, name: HeaderName) -> DeadlineLayer {
        self.asked = Asked::Millis(name);
        self
    }

    /// Computes the time for each request; `None` is the default. A panic reaches the server.
    ///
    /// Of this and the headers what is said last is asked. A `grpc-timeout` comes before any of them.
    pub fn limit_by(mut self, limit: impl Fn(&Parts) -> Option<Duration> + Send + Sync + 'static) -> DeadlineLayer {
        self.asked = Asked::By(Arc::new(limit));
        self
    }

    /// Sets the time for requests that do not say one. Default: `Duration::MAX`, no limit. More than zero.
    pub fn default_limit(mut self, limit: Duration) -> DeadlineLayer {
        self.default = limit;
        self
    }

    /// Sets the most that a request gets, whatever it asks for. Default: `Duration::MAX`, whatever it asks for. More than zero.
    pub fn longest(mut self, limit: Duration) -> DeadlineLayer {
        self.longest = limit;
        self
    }

    /// Lets the limit go on while the body of the response is sent, also over HTTP, where it then breaks the body off. Default:
    /// only in gRPC.
    pub fn covering_body(mut self) -> DeadlineLayer {
        self.covers_body = true;
        self
    }

    /// Measures with `clock`. Default: [`Clock::tokio`].
    pub fn clock(mut self, clock: impl Into<Clock>) -> DeadlineLayer {
        self.clock = clock.into();
        self
    }

    /// Says whether the layer can work. One that cannot answers every request with 500 (gRPC: INTERNAL).
    ///
    /// # Errors
    /// The first setting that is out of its range.
    pub fn check(&self) -> Result<(), ConfigError> {
        for (field, limit) in [("default_limit", self.default), ("longest", self.longest)] {
            if limit.is_zero() {
                return Err(ConfigError::new(field, "0 s", "must be longer than zero"));
            }
        }
        Ok(())
    }
}

impl Default for DeadlineLayer {
    /// [`DeadlineLayer::new`].
    fn default() -> DeadlineLayer {
        DeadlineLayer::new()
    }
}

impl<S> Layer<S> for DeadlineLayer {
    type Service = Guarded<S>;

    fn layer(&self, inner: S) -> Guarded<S> {
        let limits = Limits { checked: self.check(), layer: self.clone() };
        Guarded::new(inner, Gate::Deadline(Arc::new(limits)))
    }
}

/// The limits in front of a service.
#[derive(Debug)]
pub(super) struct Limits {
    layer: DeadlineLayer,
    checked: Result<(), ConfigError>,
}

impl Limits {
    pub(super) fn admit(&self, head: &mut Parts, is_grpc: bool) -> Admission {
        if let Err(refused) = &self.checked {
            return Admission::refused(Refusal::misconfigured(refused.clone(), None));
        }
        let DeadlineLayer { asked, default, longest, covers_body, clock } = &self.layer;
        let limit = asked.limit(head, is_grpc).unwrap_or(*default).min(*longest);
        let outer = head.extensions.remove::<Caller>().unwrap_or_default();
        let cx = outer.with_clock(clock).with_timeout(limit);
        let token = cx.token().map_or_else(CancellationToken::new, CancellationToken::child_token);
        let cx = cx.with_token(token.clone());
        let running = Running::new(cx.deadline(), token, *covers_body || is_grpc);
        head.extensions.insert(cx);
        match running.is_over() {
            Some(refusal) => Admission::refused(refusal),
            None => Admission::Admitted(Hold::Deadline(running)),
        }
    }
}

/// A request under way. Dropped, it has been given up, and says so to those who work for it.
#[derive(Debug)]
pub(super) struct Running {
    deadline: Option<Deadline>,
    /// Made when the response is pending for the first time.
    timer: Option<Pin<Box<Sleep>>>,
    /// `None` once the response is complete.
    token: Option<CancellationToken>,
    covers_body: bool,
}

impl Running {
    fn new(deadline: Option<Deadline>, token: CancellationToken, covers_body: bool) -> Running {
        Running { deadline, timer: None, token: Some(token), covers_body }
    }

    pub(super) fn is_over(&self) -> Option<Refusal> {
        self.deadline.as_ref().filter(|deadline| deadline.has_passed()).map(|_| exceeded())
    }

    pub(super) fn poll_over(&mut self, cx: &mut Context<'_>) -> Poll<Refusal> {
        let Some(deadline) = &self.deadline else { return Poll::Pending };
        let timer = self.timer.get_or_insert_with(|| Box::pin(deadline.clock().sleep_until(deadline.at())));
        timer.as_mut().poll(cx).map(|()| exceeded())
    }

    pub(super) fn begin_body(&mut self) {
        if !self.covers_body {
            self.deadline = None;
            self.timer = None;
        }
    }

    pub(super) fn complete(mut self) {
        self.token = None;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(token) = self.token.take() {
            token.cancel();
        }
    }
}

fn exceeded() -> Refusal {
    Refusal::of(Kind::DeadlineExceeded, None)
}
