//! What the tests of the layers for servers share: requests, handlers, bodies, and servers on loopback.

#![expect(clippy::unwrap_used, reason = "the helpers of a test may say in one word that something went wrong")]

use std::convert::Infallible;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use bytes::Bytes;
use futures::channel::mpsc::{UnboundedSender, unbounded};
use http::{HeaderName, Request, Response};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use steadfast::clock::{Clock, ManualClock};
use steadfast::limit::RateLimiterConfig;
use steadfast::server::{Body, BulkheadLayer, DeadlineLayer, Key, RateLimitLayer};
use steadfast::{Bulkhead, Keyed, RateLimiter};
use tokio_test::task::Spawn;
use tower::{Service, ServiceExt};

use crate::reqwest_server::{Http1, Http2, Protocol, Server};

pub(crate) const API_KEY: HeaderName = HeaderName::from_static("x-api-key");
pub(crate) const TIMEOUT: HeaderName = HeaderName::from_static("x-request-timeout");

pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A body that a handler gives.
pub(crate) type Given = BoxBody<Bytes, BoxError>;

pub(crate) fn get() -> Request<()> {
    Request::new(())
}

pub(crate) fn get_with(name: HeaderName, value: &str) -> Request<()> {
    let mut request = get();
    request.headers_mut().insert(name, value.parse().unwrap());
    request
}

/// A request of gRPC.
pub(crate) fn grpc() -> Request<()> {
    get_with(http::header::CONTENT_TYPE, "application/grpc+proto")
}

pub(crate) fn hello() -> Response<Given> {
    Response::new(Full::new(Bytes::from("hello")).map_err(|never| match never {}).boxed())
}

/// A body that the test sends.
pub(crate) fn stream() -> (UnboundedSender<Result<Frame<Bytes>, BoxError>>, Response<Given>) {
    let (sender, receiver) = unbounded();
    (sender, Response::new(BodyExt::boxed(StreamBody::new(receiver))))
}

pub(crate) fn data(text: &'static str) -> Result<Frame<Bytes>, BoxError> {
    Ok(Frame::data(Bytes::from(text)))
}

/// Counts its calls and says hello.
#[derive(Clone, Default)]
pub(crate) struct Handler(Arc<AtomicUsize>);

impl Handler {
    pub(crate) fn calls(&self) -> usize {
        self.0.load(SeqCst)
    }
}

impl<B> Service<Request<B>> for Handler {
    type Response = Response<Given>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Response<Given>, Infallible>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Infallible>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<B>) -> Self::Future {
        self.0.fetch_add(1, SeqCst);
        std::future::ready(Ok(hello()))
    }
}

/// A service that answers with what `answer` gives.
pub(crate) fn answers<B, F, Fut>(
    answer: F,
) -> impl Service<
    Request<B>,
    Response = Response<Given>,
    Error = Infallible,
    Future = impl Future<Output = Result<Response<Given>, Infallible>> + Send,
> + Clone
+ Send
+ Sync
+ 'static
where
    B: Send + 'static,
    F: Fn(Request<B>) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Response<Given>> + Send + 'static,
{
    tower::service_fn(move |request| {
        let answer = answer(request);
        async move { Ok::<_, Infallible>(answer.await) }
    })
}

/// A limit for each API key.
pub(crate) fn rate_limit(clock: &ManualClock, config: RateLimiterConfig) -> (Keyed<RateLimiter>, RateLimitLayer) {
    let limits = Keyed::<RateLimiter>::new(config);
    (limits.clone(), RateLimitLayer::new(limits, Key::header(API_KEY)).clock(clock))
}

/// One token each second, and one at a time.
pub(crate) fn slow_rate() -> RateLimiterConfig {
    RateLimiterConfig::per_second(1).burst(1)
}

pub(crate) fn bulkhead_layer(clock: &ManualClock, bulkhead: &Bulkhead) -> BulkheadLayer {
    BulkheadLayer::new(bulkhead.clone()).clock(clock)
}

pub(crate) fn deadline_layer(clock: &ManualClock) -> DeadlineLayer {
    DeadlineLayer::new().seconds_header(TIMEOUT).clock(clock)
}

/// Polls a service ready and calls it, as servers do.
pub(crate) fn call<S, B>(service: &mut S, request: Request<B>) -> Spawn<S::Future>
where
    S: Service<Request<B>, Error: std::fmt::Debug>,
{
    now(&mut tokio_test::task::spawn(poll_fn(|cx| service.poll_ready(cx))));
    tokio_test::task::spawn(service.call(request))
}

/// The response to a request that does not have to wait.
pub(crate) fn answer<S, B, R>(service: &mut S, request: Request<B>) -> R
where
    S: Service<Request<B>, Response = R, Error: std::fmt::Debug>,
{
    now(&mut call(service, request))
}

/// What a future gives that does not have to wait.
pub(crate) fn now<F, R, E: std::fmt::Debug>(task: &mut Spawn<F>) -> R
where
    F: Future<Output = Result<R, E>>,
{
    match task.poll() {
        std::task::Poll::Ready(result) => result.unwrap(),
        std::task::Poll::Pending => unreachable!("it waits"),
    }
}

/// Status and `Retry-After`.
pub(crate) fn seen<B>(response: &Response<B>) -> (u16, Option<&str>) {
    (response.status().as_u16(), header(response, "retry-after"))
}

/// gRPC's status and pushback.
pub(crate) fn seen_grpc<B>(response: &Response<B>) -> (Option<&str>, Option<&str>) {
    assert_eq!(response.status(), 200, "gRPC says it in `grpc-status`");
    (header(response, "grpc-status"), header(response, "grpc-retry-pushback-ms"))
}

pub(crate) fn header<'a, B>(response: &'a Response<B>, name: &str) -> Option<&'a str> {
    response.headers().get(name).map(|value| value.to_str().unwrap())
}

/// The next frame of a body that has it.
pub(crate) fn frame(body: &mut Body<Given>) -> Option<Result<Frame<Bytes>, BoxError>> {
    let mut task = tokio_test::task::spawn(body.frame());
    match task.poll() {
        std::task::Poll::Ready(frame) => frame,
        std::task::Poll::Pending => unreachable!("it waits"),
    }
}

/// A server of hyper's around a service, with the address of the peer in the extensions of each request.
pub(crate) async fn serve<S, B>(protocol: Protocol, service: S) -> Server
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Clone + Send + Sync + 'static,
    S::Future: Send,
    B: http_body::Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    Server::raw(move |stream, _| {
        let (service, peer) = (service.clone(), stream.peer_addr().unwrap());
        let service = service_fn(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(peer);
            service.clone().oneshot(request)
        });
        let io = TokioIo::new(stream);
        async move {
            match protocol {
                Http1 => drop(http1::Builder::new().serve_connection(io, service).await),
                Http2 => drop(http2::Builder::new(TokioExecutor::new()).serve_connection(io, service).await),
            }
        }
    })
    .await
}

/// A clock at which some time has passed already, as on any machine.
pub(crate) fn clock() -> ManualClock {
    let clock = Clock::manual();
    clock.advance(Duration::from_millis(1_234));
    clock
}
