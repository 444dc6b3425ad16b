//! gRPC, as a chain around a service sees it: how a request is sent, judged, repeated, and how its answer is handed out.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use tonic::Status;
use tonic::body::Body;

use super::attempt::announce;
use super::body::{Answer, Late};
use super::deadline;
use super::judge::{self, Codes};
use super::unary::read;
use crate::attempt::Attempt;
use crate::cancel::Cancellation;
use crate::clock::{Clock, Deadline};
use crate::context::Context;
use crate::drive::Ended;
use crate::error::{BoxError, Error};
use crate::executor::Stopped;
use crate::http::{Guarded, Limits, NotRepeated, Rules, did_nothing};
use crate::policy::{End, Outcome};
use crate::tower::{Protocol, Replay, Report, Requests, Template, Whole};
use crate::verdict::Verdict;

/// What the layer knows of the methods of a service.
#[derive(Clone, Default)]
pub struct Grpc {
    unary: Option<Methods>,
    once: Option<Methods>,
    codes: Codes,
}

/// Which methods, by their path.
type Methods = Arc<dyn Fn(&str) -> bool + Send + Sync>;

impl Grpc {
    pub(super) fn unary(mut self, methods: impl Fn(&str) -> bool + Send + Sync + 'static) -> Grpc {
        self.unary = Some(Arc::new(methods));
        self
    }

    pub(super) fn once(mut self, methods: impl Fn(&str) -> bool + Send + Sync + 'static) -> Grpc {
        self.once = Some(Arc::new(methods));
        self
    }

    pub(super) fn codes(mut self, codes: Codes) -> Grpc {
        self.codes = codes;
        self
    }
}

/// A call, as all of its attempts are made from it.
#[expect(unnameable_types, reason = "nothing but the layer has one")]
pub struct Ask {
    template: Template<Whole<Replay<Body>>>,
    merged: Cancellation,
    /// Whether it has one answer, which is read within the attempt.
    is_unary: bool,
    /// Whether it must not reach the server twice.
    is_once: bool,
}

impl Requests<Request<Body>> for Grpc {
    type Template = Ask;
    type Request = Request<Body>;

    /// The context in the extensions of the request, and the time limit that the request announces.
    fn context(&self, request: &Request<Body>) -> Context {
        let cx = request.extensions().get::<Context>().cloned().unwrap_or_default();
        match deadline::decode(request.headers()) {
            Some(limit) => cx.with_timeout(limit),
            None => cx,
        }
    }

    fn template(&self, request: Request<Body>, merged: &dyn Fn() -> Cancellation) -> Ask {
        let says = |methods: &Option<Methods>| methods.as_ref().is_some_and(|says| says(request.uri().path()));
        let (is_unary, is_once) = (says(&self.unary), says(&self.once));
        Ask { template: Template::new(Whole(request.map(Replay::new))), merged: merged(), is_unary, is_once }
    }

    fn make(&self, ask: &Ask, attempt: &Attempt) -> Option<Request<Body>> {
        let Whole(request) = ask.template.make()?;
        let mut request = request.map(Body::new);
        // A server may end a stream by the limit, which of the limits around an attempt only the caller's deadline does here.
        let left = if ask.is_unary { attempt.remaining() } else { ask.merged.deadline().map(Deadline::remaining) };
        announce(request.headers_mut(), attempt, left);
        request.extensions_mut().insert(attempt.clone());
        Some(request)
    }
}

impl<B> Protocol<Request<Body>, Response<B>, Status> for Grpc
where
    B: http_body::Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    type Answer = Response<Body>;
    type Response = Response<Body>;

    const STREAMS: bool = true;

    async fn receive(
        &self,
        ask: &Ask,
        answer: Result<Response<B>, Status>,
        _: &Clock,
    ) -> Outcome<Response<Body>, Status> {
        let mut response = match answer {
            Ok(response) => response,
            Err(status) => {
                let verdict = judge::status(&status);
                return Outcome::failed(status, verdict);
            }
        };
        if let Some(verdict) = self.codes.headers(response.headers()) {
            judge::say_expired(response.headers_mut());
            return Outcome::new(Ok(response.map(Body::new)), verdict);
        }
        match response.status() {
            // Something on the way has cut it off, or it would have said a status.
            StatusCode::OK if http_body::Body::is_end_stream(response.body()) => {
                Outcome::new(Ok(response.map(Body::new)), self.codes.missing())
            }
            StatusCode::OK if ask.is_unary => read_unary(response, &self.codes).await,
            status => Outcome::new(Ok(response.map(Body::new)), self.codes.http(status)),
        }
    }

    fn repeat(&self, ask: &Ask, after: Option<&Outcome<Response<Body>, Status>>) -> Result<(), &'static str> {
        ask.template.can_make(after.is_none())?;
        let was_sent = after.is_none_or(|outcome| !did_nothing(outcome, Response::status, judge::was_not_sent));
        if ask.is_once && was_sent { Err(ONCE) } else { Ok(()) }
    }

    /// Its stream is reset; other calls on the connection go on.
    async fn discard(&self, answer: Response<Body>, _: &Clock) {
        drop(answer);
    }

    fn finish(
        &self,
        ask: Ask,
        ended: Ended<Response<Body>, Status>,
        clock: &Clock,
    ) -> Result<Response<Body>, Error<Status>> {
        let mut response = ended.result?;
        if let Stopped::NotRepeatable(why) = ended.stopped {
            response.extensions_mut().insert(NotRepeated(why));
        }
        response.extensions_mut().insert(ask.merged.clone());
        let is_judged = response.headers().contains_key(Status::GRPC_STATUS) || response.status() != StatusCode::OK;
        let is_whole = response.extensions_mut().remove::<AllHere>().is_some();
        let (head, body) = response.into_parts();
        if is_whole || http_body::Body::is_end_stream(&body) {
            ended.tail.end(End::Complete);
            return Ok(Response::from_parts(head, body));
        }
        let limits = Limits::default().within(ended.tail.limit());
        let rules = Rules { cancellation: ask.merged, clock: clock.clone(), limits, attempts: ended.attempts };
        let late = Late { codes: self.codes.clone(), is_judged };
        let guarded = Answer(Guarded::new(body, rules, ended.tail, late));
        Ok(Response::from_parts(head, Body::new(guarded)))
    }
}

impl Report<Status> for Grpc {
    type Error = Status;

    fn report(&self, error: Error<Status>) -> Status {
        error.into()
    }
}

/// In the extensions of a response: all of its body is here.
#[derive(Clone, Copy)]
struct AllHere;

async fn read_unary<B>(response: Response<B>, codes: &Codes) -> Outcome<Response<Body>, Status>
where
    B: http_body::Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    let (mut head, body) = response.into_parts();
    match read(body, UNARY_BYTES, codes).await {
        Ok((body, verdict)) => {
            if verdict.is_some() {
                head.extensions.insert(AllHere);
            }
            Outcome::new(Ok(Response::from_parts(head, Body::new(body))), verdict.unwrap_or(Verdict::Success))
        }
        Err(status) => {
            let verdict = judge::status(&status);
            Outcome::failed(status, verdict)
        }
    }
}

impl fmt::Debug for Ask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ask").field("is_unary", &self.is_unary).field("is_once", &self.is_once).finish_non_exhaustive()
    }
}

impl fmt::Debug for Grpc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Grpc { unary, once, codes: _ } = self;
        f.debug_struct("Grpc").field("unary", &unary.is_some()).field("once", &once.is_some()).finish_non_exhaustive()
    }
}

const ONCE: &str = "the call must not be made twice, and the server may have got it";

/// The longest answer that is read within its attempt: the longest message that tonic decodes, unless told otherwise, with its
/// prefix.
const UNARY_BYTES: usize = 4 * 1024 * 1024 + 4 * 1024;
