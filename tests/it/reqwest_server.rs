//! Servers on loopback, within the runtime of the test, and what they have seen.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "the helpers of a test may say in one word that something went wrong"
)]

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures::channel::mpsc::{UnboundedSender, unbounded};
use http::{HeaderMap, Method, Request, Response};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use steadfast::clock::ManualClock;
use steadfast::policy::Settings;
use steadfast::{Executor, reqwest::Client};
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http1,
    Http2,
}

pub(crate) use Protocol::{Http1, Http2};

pub(crate) type Reply = Response<BoxBody<Bytes, io::Error>>;

/// A hyper server, or something that only looks like one.
pub(crate) struct Server {
    address: SocketAddr,
    log: Arc<Log>,
}

#[derive(Default)]
struct Log {
    accepted: AtomicUsize,
    open: AtomicUsize,
    most_open: AtomicUsize,
    requests: Mutex<Vec<Received>>,
}

/// A request, with all of its body.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    pub(crate) method: Method,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Server {
    /// Answers the `n`-th request of all, from 1, with `answer(n)`.
    pub(crate) async fn start<F, Fut>(protocol: Protocol, answer: F) -> Server
    where
        F: Fn(usize) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Reply> + Send + 'static,
    {
        let answer = Arc::new(answer);
        Server::accept(move |stream, log| {
            let answer = Arc::clone(&answer);
            let service = service_fn(move |request: Request<Incoming>| {
                let (log, answer) = (Arc::clone(&log), Arc::clone(&answer));
                async move {
                    let number = log.note(request).await?;
                    hyper::Result::Ok(answer(number).await)
                }
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

    /// Answers at once, the `n`-th request with `answer(n)`.
    pub(crate) async fn quick<F>(protocol: Protocol, answer: F) -> Server
    where
        F: Fn(usize) -> Reply + Send + Sync + 'static,
    {
        Server::start(protocol, move |number| std::future::ready(answer(number))).await
    }

    /// Does with the `n`-th connection, from 1, what `serve` says.
    pub(crate) async fn raw<F, Fut>(serve: F) -> Server
    where
        F: Fn(TcpStream, usize) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        Server::accept(move |stream, log| serve(stream, log.accepted.load(SeqCst))).await
    }

    async fn accept<F, Fut>(serve: F) -> Server
    where
        F: Fn(TcpStream, Arc<Log>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let log = Arc::new(Log::default());
        tokio::spawn({
            let log = Arc::clone(&log);
            async move {
                while let Ok((stream, _)) = listener.accept().await {
                    // Heads and bodies are written separately; waiting for acknowledgements in between takes 40 ms.
                    stream.set_nodelay(true).unwrap();
                    log.accepted.fetch_add(1, SeqCst);
                    let open = log.open.fetch_add(1, SeqCst) + 1;
                    log.most_open.fetch_max(open, SeqCst);
                    let served = serve(stream, Arc::clone(&log));
                    let log = Arc::clone(&log);
                    tokio::spawn(async move {
                        served.await;
                        log.open.fetch_sub(1, SeqCst);
                    });
                }
            }
        });
        Server { address, log }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn requests(&self) -> Vec<Received> {
        self.log.requests.lock().unwrap().clone()
    }

    /// How many requests came.
    pub(crate) fn received(&self) -> usize {
        self.log.requests.lock().unwrap().len()
    }

    /// How many connections were accepted.
    pub(crate) fn accepted(&self) -> usize {
        self.log.accepted.load(SeqCst)
    }

    /// How many connections are open.
    pub(crate) fn open(&self) -> usize {
        self.log.open.load(SeqCst)
    }

    /// How many connections were open at one time, at most.
    pub(crate) fn most_open(&self) -> usize {
        self.log.most_open.load(SeqCst)
    }
}

impl Log {
    async fn note(&self, request: Request<Incoming>) -> hyper::Result<usize> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        let mut requests = self.requests.lock().unwrap();
        requests.push(Received { method: parts.method, headers: parts.headers, body });
        Ok(requests.len())
    }
}

/// An answer with all of its body there.
pub(crate) fn reply(status: u16, body: impl Into<Bytes>) -> Reply {
    let body = Full::new(body.into()).map_err(|never| match never {}).boxed();
    Response::builder().status(status).body(body).unwrap()
}

/// [`reply`] with a header.
pub(crate) fn reply_with(status: u16, name: &'static str, value: &'static str) -> Reply {
    let mut reply = reply(status, "");
    reply.headers_mut().insert(name, value.parse().unwrap());
    reply
}

/// An answer whose body comes when the test sends it. Its length is not announced.
pub(crate) fn trickle() -> (Trickle, Reply) {
    let (sender, receiver) = unbounded();
    (Trickle(sender), Response::new(BodyExt::boxed(StreamBody::new(receiver))))
}

/// The sending end of a body.
#[derive(Clone)]
pub(crate) struct Trickle(UnboundedSender<io::Result<Frame<Bytes>>>);

impl Trickle {
    pub(crate) fn send(&self, data: impl Into<Bytes>) {
        self.0.unbounded_send(Ok(Frame::data(data.into()))).unwrap();
    }

    pub(crate) fn end_with(self, trailers: HeaderMap) {
        self.0.unbounded_send(Ok(Frame::trailers(trailers))).unwrap();
    }

    /// Breaks the body off, and its connection or stream with it.
    pub(crate) fn fail(self) {
        self.0.unbounded_send(Err(io::Error::other("the disk is gone"))).unwrap();
    }

    /// Whether the server has learnt that nobody reads.
    pub(crate) fn is_given_up(&self) -> bool {
        self.0.is_closed()
    }
}

/// A server that answers its first request with a body that the test sends.
pub(crate) async fn trickling(
    protocol: Protocol,
    headers: &'static [(&'static str, &'static str)],
) -> (Server, Trickle) {
    let (trickle, mut reply) = trickle();
    for (name, value) in headers {
        reply.headers_mut().insert(*name, value.parse().unwrap());
    }
    let reply = Mutex::new(Some(reply));
    let server = Server::quick(protocol, move |_| reply.lock().unwrap().take().unwrap()).await;
    (server, trickle)
}

/// A plain client: one idle connection, and no retries of its own.
pub(crate) fn plain(protocol: Protocol) -> ::reqwest::Client {
    let builder = ::reqwest::Client::builder().no_proxy().pool_max_idle_per_host(1).retry(::reqwest::retry::never());
    match protocol {
        Http1 => builder.http1_only().build().unwrap(),
        Http2 => builder.http2_prior_knowledge().build().unwrap(),
    }
}

pub(crate) fn executor<P: Settings>(clock: &ManualClock, policies: P) -> Executor<P> {
    Executor::builder("billing").policies(policies).unbudgeted().clock(clock).build().unwrap()
}

/// A client with a chain on a manual clock.
pub(crate) fn client<P>(protocol: Protocol, clock: &ManualClock, policies: P) -> Client
where
    P: steadfast::Policy<::reqwest::Response, ::reqwest::Error> + 'static,
{
    Client::new(plain(protocol), executor(clock, policies))
}

/// Lets everything else run, the network included, until `done` says so.
pub(crate) async fn until(done: impl Fn() -> bool) {
    for _ in 0..1_000_000 {
        if done() {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("it never happened");
}

/// Lets everything else run, for a few steps of the network.
pub(crate) async fn settle_briefly() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

/// Lets everything else run for a while: long enough for what must not happen.
pub(crate) async fn settle() {
    for _ in 0..2_000 {
        tokio::task::yield_now().await;
    }
}

/// Reads a request: its head, and one byte of body if it announces one.
pub(crate) async fn read_request(stream: &mut TcpStream) {
    if read_head(stream).await.contains("content-length: 1\r\n") {
        let _ = stream.read(&mut [0]).await;
    }
}

/// The head of a request, in lower case. Nothing comes after the end of the connection.
pub(crate) async fn read_head(stream: &mut TcpStream) -> String {
    let mut read = Vec::new();
    let mut byte = [0];
    while !read.ends_with(b"\r\n\r\n") {
        if stream.read(&mut byte).await.unwrap_or(0) == 0 {
            return std::future::pending().await;
        }
        read.push(byte[0]);
    }
    String::from_utf8_lossy(&read).to_lowercase()
}

/// Waits until the preface of HTTP/2 is there and something after it, without taking it.
pub(crate) async fn until_request_is_there(stream: &TcpStream) {
    let mut seen = [0; 256];
    while stream.peek(&mut seen).await.unwrap_or(0) < 100 {
        tokio::task::yield_now().await;
    }
}
