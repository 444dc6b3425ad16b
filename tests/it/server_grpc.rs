//! The layers in front of a real tonic server, called by a real tonic client: refusals as statuses, streams to their end.

#![expect(clippy::unwrap_used, reason = "the helpers of a test may say in one word that something went wrong")]

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes};
use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use futures::future::BoxFuture;
use http::uri::PathAndQuery;
use steadfast::clock::Clock;
use steadfast::limit::{BulkheadConfig, RateLimiterConfig};
use steadfast::server::{Key, RateLimitLayer};
use steadfast::{Bulkhead, Context, Keyed};
use tonic::body::Body;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::server::NamedService;
use tonic::transport::server::{TcpConnectInfo, TcpIncoming};
use tonic::transport::{Channel, Server};
use tonic::{Code, Request, Response, Status};
use tower::{Layer, Service};

use crate::reqwest_server::until;
use crate::server_support::{bulkhead_layer, deadline_layer};
use crate::support::{ms, secs};

/// Messages that are what they are.
#[derive(Clone, Copy)]
struct Plain;

impl Codec for Plain {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Plain;
    type Decoder = Plain;

    fn encoder(&mut self) -> Plain {
        Plain
    }

    fn decoder(&mut self) -> Plain {
        Plain
    }
}

impl Encoder for Plain {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put(item);
        Ok(())
    }
}

impl Decoder for Plain {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(buffer.copy_to_bytes(buffer.remaining())))
    }
}

type Message = Result<Bytes, Status>;

/// `/test.Echo/Say` echoes, `/test.Echo/Hang` never answers, `/test.Echo/Watch` streams what the test sends.
#[derive(Clone, Default)]
struct Echo(Arc<Seen>);

#[derive(Default)]
struct Seen {
    contexts: Mutex<Vec<Option<Context>>>,
    watchers: Mutex<Vec<UnboundedSender<Message>>>,
}

impl Echo {
    fn calls(&self) -> usize {
        self.0.contexts.lock().unwrap().len()
    }

    fn last_context(&self) -> Option<Context> {
        self.0.contexts.lock().unwrap().last().cloned().flatten()
    }

    fn last_watcher(&self) -> UnboundedSender<Message> {
        self.0.watchers.lock().unwrap().last().unwrap().clone()
    }

    fn watch(&self) -> UnboundedReceiver<Message> {
        let (sender, receiver) = unbounded();
        self.0.watchers.lock().unwrap().push(sender);
        receiver
    }
}

impl NamedService for Echo {
    const NAME: &'static str = "test.Echo";
}

impl Service<http::Request<Body>> for Echo {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<http::Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut TaskContext<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        self.0.contexts.lock().unwrap().push(request.extensions().get().cloned());
        let echo = self.clone();
        Box::pin(async move {
            let mut grpc = tonic::server::Grpc::new(Plain);
            let say = |request: Request<Bytes>| async { Ok::<_, Status>(Response::new(request.into_inner())) };
            let watch = |_: Request<Bytes>| std::future::ready(Ok::<_, Status>(Response::new(echo.watch())));
            Ok(match request.uri().path() {
                "/test.Echo/Say" => grpc.unary(tower::service_fn(say), request).await,
                "/test.Echo/Watch" => grpc.server_streaming(tower::service_fn(watch), request).await,
                _ => std::future::pending().await,
            })
        })
    }
}

/// A server of tonic's with a layer around everything, and a client of it.
async fn start<L>(echo: &Echo, layer: L) -> Client
where
    L: Layer<tonic::service::Routes> + Clone + Send + Sync + 'static,
    L::Service: Service<http::Request<Body>, Response = http::Response<steadfast::server::Body<Body>>, Error = Infallible>
        + Clone
        + Send
        + Sync
        + 'static,
    <L::Service as Service<http::Request<Body>>>::Future: Send,
{
    let incoming = TcpIncoming::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = incoming.local_addr().unwrap();
    let router = Server::builder().layer(layer).add_service(echo.clone());
    tokio::spawn(router.serve_with_incoming(incoming));
    let channel = Channel::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap();
    Client(channel)
}

#[derive(Clone)]
struct Client(Channel);

impl Client {
    async fn say(&self, text: &'static str) -> Result<Bytes, Status> {
        self.unary("/test.Echo/Say", Request::new(Bytes::from(text))).await
    }

    async fn hang(&self, limit: Option<Duration>) -> Result<Bytes, Status> {
        let mut request = Request::new(Bytes::new());
        if let Some(limit) = limit {
            request.set_timeout(limit);
        }
        self.unary("/test.Echo/Hang", request).await
    }

    async fn unary(&self, path: &'static str, request: Request<Bytes>) -> Result<Bytes, Status> {
        let mut grpc = tonic::client::Grpc::new(self.0.clone());
        grpc.ready().await.unwrap();
        grpc.unary(request, PathAndQuery::from_static(path), Plain).await.map(Response::into_inner)
    }

    async fn watch(&self, limit: Option<Duration>) -> Result<tonic::Streaming<Bytes>, Status> {
        let mut request = Request::new(Bytes::new());
        if let Some(limit) = limit {
            request.set_timeout(limit);
        }
        let mut grpc = tonic::client::Grpc::new(self.0.clone());
        grpc.ready().await.unwrap();
        let path = PathAndQuery::from_static("/test.Echo/Watch");
        grpc.server_streaming(request, path, Plain).await.map(Response::into_inner)
    }
}

fn pushback(status: &Status) -> Option<&str> {
    status.metadata().get("grpc-retry-pushback-ms").map(|value| value.to_str().unwrap())
}

#[tokio::test]
async fn a_peer_that_comes_too_often_gets_resource_exhausted_with_a_pushback() {
    let clock = Clock::manual();
    let key = Key::address(|head| head.extensions.get::<TcpConnectInfo>()?.remote_addr().map(|peer| peer.ip()));
    let limits = Keyed::new(RateLimiterConfig::per(1, ms(2_500)));
    let echo = Echo::default();
    let client = start(&echo, RateLimitLayer::new(limits.clone(), key).clock(&clock)).await;
    assert_eq!(client.say("one").await.unwrap(), "one");
    clock.advance(ms(100));
    let status = client.say("two").await.unwrap_err();
    assert_eq!((status.code(), pushback(&status)), (Code::ResourceExhausted, Some("2400")));
    assert_eq!(status.message(), "rate limited, free in 2.4 s");
    let status = client.watch(None).await.unwrap_err();
    assert_eq!((status.code(), pushback(&status)), (Code::ResourceExhausted, Some("2400")));
    clock.advance(ms(2_400));
    assert_eq!(client.say("three").await.unwrap(), "three");
    assert_eq!(echo.calls(), 2);
    assert_eq!(limits.keys(), ["127.0.0.1".into()]);
}

#[tokio::test]
async fn a_stream_holds_its_permit_to_its_end_and_others_get_unavailable() {
    let clock = Clock::manual();
    let bulkhead = Bulkhead::new(1);
    let echo = Echo::default();
    let client = start(&echo, bulkhead_layer(&clock, &bulkhead)).await;
    let mut stream = client.watch(None).await.unwrap();
    let watcher = echo.last_watcher();
    watcher.unbounded_send(Ok(Bytes::from("news"))).unwrap();
    assert_eq!(stream.message().await.unwrap().unwrap(), "news");
    let status = client.say("one").await.unwrap_err();
    assert_eq!((status.code(), pushback(&status)), (Code::Unavailable, Some("1000")));
    // Its end, with trailers.
    watcher.unbounded_send(Err(Status::internal("no more"))).unwrap();
    assert_eq!(stream.message().await.unwrap_err().code(), Code::Internal);
    until(|| bulkhead.in_flight() == 0).await;
    // A client that drops it.
    let stream = client.watch(None).await.unwrap();
    assert_eq!(bulkhead.in_flight(), 1);
    drop(stream);
    until(|| bulkhead.in_flight() == 0).await;
    assert_eq!(client.say("two").await.unwrap(), "two");
    until(|| bulkhead.in_flight() == 0).await;
}

#[tokio::test]
async fn a_call_that_is_given_up_leaves_the_queue_at_once() {
    let clock = Clock::manual();
    let bulkhead = Bulkhead::with(BulkheadConfig::new(1).queue(5).max_wait(secs(60)));
    let held = bulkhead.try_acquire().unwrap();
    let echo = Echo::default();
    let client = start(&echo, bulkhead_layer(&clock, &bulkhead)).await;
    let leaves = tokio::spawn({
        let client = client.clone();
        async move { client.say("leaves").await }
    });
    until(|| bulkhead.queued() == 1).await;
    let stays = tokio::spawn(async move { client.say("stays").await });
    until(|| bulkhead.queued() == 2).await;
    leaves.abort();
    until(|| bulkhead.queued() == 1).await;
    drop(held);
    assert_eq!(stays.await.unwrap().unwrap(), "stays");
    assert_eq!(echo.calls(), 1);
}

#[tokio::test]
async fn the_deadline_of_a_call_is_kept_and_passed_on() {
    let clock = Clock::manual();
    let echo = Echo::default();
    let client = start(&echo, deadline_layer(&clock)).await;
    let late = tokio::spawn({
        let client = client.clone();
        async move { client.hang(Some(secs(90))).await }
    });
    until(|| echo.calls() == 1 && clock.sleepers() == 1).await;
    let cx = echo.last_context().unwrap();
    assert_eq!(cx.remaining(), Some(secs(90)));
    clock.advance(secs(90));
    let status = late.await.unwrap().unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::DeadlineExceeded, "deadline exceeded"));
    assert!(cx.token().unwrap().is_cancelled());

    // A client that leaves.
    let leaves = tokio::spawn(async move { client.hang(None).await });
    until(|| echo.calls() == 2).await;
    let cx = echo.last_context().unwrap();
    assert_eq!((cx.remaining(), cx.token().unwrap().is_cancelled()), (None, false));
    leaves.abort();
    cx.token().unwrap().cancelled().await;
}

#[tokio::test]
async fn a_stream_that_outlives_its_deadline_ends_with_deadline_exceeded() {
    let clock = Clock::manual();
    let echo = Echo::default();
    let client = start(&echo, deadline_layer(&clock)).await;
    let mut stream = client.watch(Some(secs(90))).await.unwrap();
    let watcher = echo.last_watcher();
    watcher.unbounded_send(Ok(Bytes::from("news"))).unwrap();
    assert_eq!(stream.message().await.unwrap().unwrap(), "news");
    until(|| clock.sleepers() == 1).await;
    clock.advance(secs(90));
    assert_eq!(stream.message().await.unwrap_err().code(), Code::DeadlineExceeded);
    assert!(watcher.is_closed());
}
