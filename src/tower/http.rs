//! HTTP, whatever sends the requests.

use std::fmt;

use http::{Method, Request, Response};

use super::body::Body;
use super::clone_request::{CloneRequest, Template};
use super::plain::failed;
use super::protocol::{Protocol, Report, Requests};
use crate::attempt::Attempt;
use crate::cancel::Cancellation;
use crate::clock::Clock;
use crate::context::Context;
use crate::drive::Ended;
use crate::error::{BoxError, ConfigError, Error};
use crate::executor::Stopped;
use crate::http::{
    BodyTimeout, DEFAULT_IDLE_LIMIT, NotRepeated, Repeat, Rules, answer, did_nothing, discard, has_no_data,
    is_event_stream,
};
use crate::policy::{End, Outcome};

/// HTTP: answers are judged by their status and `Retry-After`, only what may be sent twice is sent twice, and the bodies of
/// responses stay guarded. The tables are on the page of the [module](super).
///
/// ```
/// use steadfast::{Executor, Retry, tower::{Http, Layer}};
///
/// # #[derive(Debug)] struct SendError { is_connect: bool }
/// let billing = Executor::builder("billing").policies(Retry::exponential()).build()?;
/// let http = Http::new().unsent_if(|error: &SendError| error.is_connect);
/// let layer = Layer::new(billing).protocol(http);
/// # drop(layer);
/// # Ok::<_, steadfast::ConfigError>(())
/// ```
#[derive(Clone, Copy)]
#[must_use = "it does nothing until it is given to a layer"]
pub struct Http<U = ()> {
    body_timeout: BodyTimeout,
    unsent: U,
}

impl Http {
    /// HTTP with the usual limits on bodies, and errors that prove nothing.
    pub const fn new() -> Http {
        Http { body_timeout: BodyTimeout::new(), unsent: () }
    }
}

impl<U> Http<U> {
    /// Limits the bodies of all responses but `text/event-stream`. Default: [`BodyTimeout::new`]. A request with a
    /// `BodyTimeout` in its extensions has its own.
    pub fn body_timeout(mut self, limits: BodyTimeout) -> Http<U> {
        self.body_timeout = limits;
        self
    }

    /// Says of which errors it is certain that nothing was sent, such as a connection that could not be made: after those a
    /// request is sent again that otherwise would not be, a POST for example. Default: of none.
    pub fn unsent_if<E, F: Fn(&E) -> bool + Send + Sync + 'static>(self, predicate: F) -> Http<F> {
        Http { body_timeout: self.body_timeout, unsent: predicate }
    }
}

impl Default for Http {
    fn default() -> Http {
        Http::new()
    }
}

/// In the extensions of a request: what the caller says about sending it twice, whatever its method and headers say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Idempotent(
    /// Whether twice does no more than once.
    pub bool,
);

/// What is kept of a request for all its attempts.
#[expect(unnameable_types, reason = "only the sealed traits of the adapter name it")]
pub struct Kept<B> {
    request: Template<Whole<B>>,
    repeat: Repeat,
    is_head: bool,
    body_timeout: BodyTimeout,
    cancellation: Cancellation,
}

/// A request that can be copied if its body can.
pub(crate) struct Whole<B>(pub(crate) Request<B>);

impl<B: CloneRequest> CloneRequest for Whole<B> {
    fn try_clone(&self) -> Option<Whole<B>> {
        let mut copy = Request::new(self.0.body().try_clone()?);
        *copy.method_mut() = self.0.method().clone();
        *copy.uri_mut() = self.0.uri().clone();
        *copy.version_mut() = self.0.version();
        *copy.headers_mut() = self.0.headers().clone();
        *copy.extensions_mut() = self.0.extensions().clone();
        Some(Whole(copy))
    }

    fn can_clone(&self) -> Result<(), &'static str> {
        self.0.body().can_clone()
    }
}

impl<B, U> Requests<Request<B>> for Http<U>
where
    B: CloneRequest + Send + 'static,
    U: Send + Sync + 'static,
{
    type Template = Kept<B>;
    type Request = Request<B>;

    fn context(&self, request: &Request<B>) -> Context {
        request.extensions().get().cloned().unwrap_or_default()
    }

    fn template(&self, request: Request<B>, merged: &dyn Fn() -> Cancellation) -> Kept<B> {
        let declared = request.extensions().get().map(|Idempotent(declared)| *declared);
        Kept {
            repeat: Repeat::of(request.method(), request.headers(), declared),
            is_head: request.method() == Method::HEAD,
            body_timeout: request.extensions().get().copied().unwrap_or_default(),
            request: Template::new(Whole(request)),
            cancellation: merged(),
        }
    }

    fn make(&self, template: &Kept<B>, attempt: &Attempt) -> Option<Request<B>> {
        let Whole(mut request) = template.request.make()?;
        request.extensions_mut().insert(attempt.clone());
        Some(request)
    }

    fn check(&self, template: &Kept<B>) -> Result<(), ConfigError> {
        template.body_timeout.check()?;
        self.body_timeout.check()
    }
}

impl<B, R, E, U> Protocol<Request<B>, Response<R>, E> for Http<U>
where
    B: CloneRequest + Send + 'static,
    R: http_body::Body + Send + 'static,
    E: Send + 'static,
    U: Unsent<E>,
{
    type Answer = Response<R>;
    type Response = Response<Body<R>>;

    const STREAMS: bool = true;

    async fn receive(&self, _: &Kept<B>, result: Result<Response<R>, E>, clock: &Clock) -> Outcome<Response<R>, E> {
        match result {
            Ok(response) => {
                let verdict = answer(response.status(), response.headers(), || clock.wall());
                Outcome::new(Ok(response), verdict)
            }
            Err(error) => failed(error),
        }
    }

    fn repeat(&self, template: &Kept<B>, after: Option<&Outcome<Response<R>, E>>) -> Result<(), &'static str> {
        template.request.can_make(after.is_none())?;
        let nothing = |after| did_nothing(after, Response::status, |error| self.unsent.was_unsent(error));
        template.repeat.allowed(|| after.is_some_and(nothing))
    }

    async fn discard(&self, answer: Response<R>, clock: &Clock) {
        let version = answer.version();
        discard(version, answer.into_body(), clock).await;
    }

    fn finish(
        &self,
        template: Kept<B>,
        ended: Ended<Response<R>, E>,
        clock: &Clock,
    ) -> Result<Response<Body<R>>, Error<E>> {
        let (mut parts, body) = ended.result?.into_parts();
        if let Stopped::NotRepeatable(why) = ended.stopped {
            parts.extensions.insert(NotRepeated(why));
        }
        parts.extensions.insert(template.cancellation.clone());
        let limits = if is_event_stream(&parts.headers) {
            template.body_timeout.begin(None, clock)
        } else {
            template.body_timeout.or(self.body_timeout).begin(Some(DEFAULT_IDLE_LIMIT), clock)
        };
        let limits = limits.within(ended.tail.limit());
        let rules =
            Rules { cancellation: template.cancellation, clock: clock.clone(), limits, attempts: ended.attempts };
        let mut tail = ended.tail;
        if template.is_head || body.is_end_stream() || has_no_data(&body) {
            tail.take().end(End::Complete);
        }
        Ok(Response::from_parts(parts, Body::new(body, rules, tail)))
    }
}

impl<E: Into<BoxError>, U> Report<E> for Http<U> {
    type Error = BoxError;

    fn report(&self, error: Error<E>) -> BoxError {
        error.boxed().into()
    }
}

impl<U> fmt::Debug for Http<U> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http").field("body_timeout", &self.body_timeout).finish_non_exhaustive()
    }
}

impl<B> fmt::Debug for Kept<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kept").field("request", &self.request).field("repeat", &self.repeat).finish_non_exhaustive()
    }
}

/// Which errors prove that nothing was sent.
#[expect(unnameable_types, reason = "sealed: users bring a closure")]
pub trait Unsent<E>: Send + Sync + 'static {
    /// Whether this one does.
    fn was_unsent(&self, error: &E) -> bool;
}

impl<E> Unsent<E> for () {
    fn was_unsent(&self, _: &E) -> bool {
        false
    }
}

impl<E, F: Fn(&E) -> bool + Send + Sync + 'static> Unsent<E> for F {
    fn was_unsent(&self, error: &E) -> bool {
        self(error)
    }
}
