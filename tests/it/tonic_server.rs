//! Real tonic servers on loopback, within the runtime of the test, and what they have seen.

#![expect(clippy::unwrap_used, reason = "the helpers of a test may say in one word that something went wrong")]

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use futures::channel::mpsc::{UnboundedSender, unbounded};
use futures::{StreamExt, stream};
use steadfast::Executor;
use steadfast::clock::ManualClock;
use steadfast::policy::Settings;
use tokio::net::TcpListener;
use tonic::metadata::MetadataMap;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status, Streaming};

use crate::tonic_echo::{EchoClient, EchoServer, Messages};

/// What the server does with a call: an answer, or a status without one (on the wire, "Trailers-Only").
pub(crate) type Reply = Result<Messages, Status>;

/// A call, as the handler of the server sees it.
pub(crate) struct Served {
    /// Which of all calls it is, from 1.
    pub(crate) number: usize,
    pub(crate) path: String,
    pub(crate) messages: Streaming<String>,
}

pub(crate) struct Server {
    address: SocketAddr,
    log: Arc<Log>,
}

#[derive(Default)]
struct Log {
    running: AtomicUsize,
    calls: Mutex<Vec<(String, MetadataMap)>>,
}

impl Server {
    /// Does with each call what `answer` says.
    pub(crate) async fn start<F, Fut>(answer: F) -> Server
    where
        F: Fn(Served) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Reply> + Send + 'static,
    {
        Server::serve(TcpListener::bind("127.0.0.1:0").await.unwrap(), answer)
    }

    pub(crate) fn serve<F, Fut>(listener: TcpListener, answer: F) -> Server
    where
        F: Fn(Served) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Reply> + Send + 'static,
    {
        let address = listener.local_addr().unwrap();
        let log = Arc::new(Log::default());
        let echo = EchoServer::new({
            let log = Arc::clone(&log);
            move |path, request| {
                let (metadata, _, messages) = request.into_parts();
                let number = log.note(&path, metadata);
                let running = Running::new(&log);
                let answer = answer(Served { number, path, messages });
                async move {
                    let _running = running;
                    answer.await
                }
            }
        });
        let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
        tokio::spawn(tonic::transport::Server::builder().serve_with_incoming(echo, incoming));
        Server { address, log }
    }

    /// Answers at once, the `n`-th call, from 1, with `answer(n)`. What the client sends is not waited for.
    pub(crate) async fn quick<F>(answer: F) -> Server
    where
        F: Fn(usize) -> Reply + Send + Sync + 'static,
    {
        Server::start(move |served| std::future::ready(answer(served.number))).await
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// A new connection, which is made when it is needed.
    pub(crate) fn channel(&self) -> Channel {
        channel(self.address)
    }

    pub(crate) fn client(&self) -> EchoClient<Channel> {
        EchoClient::new(self.channel())
    }

    /// How many calls came.
    pub(crate) fn received(&self) -> usize {
        self.log.calls.lock().unwrap().len()
    }

    /// How many calls have no answer yet, and have not been given up.
    pub(crate) fn running(&self) -> usize {
        self.log.running.load(SeqCst)
    }

    /// What each call said with the metadata of this name.
    pub(crate) fn metadata(&self, name: &str) -> Vec<Option<String>> {
        let calls = self.log.calls.lock().unwrap();
        let values = calls.iter().map(|(_, metadata)| metadata.get(name));
        values.map(|value| value.map(|value| value.to_str().unwrap().to_owned())).collect()
    }
}

impl Log {
    fn note(&self, path: &str, metadata: MetadataMap) -> usize {
        let mut calls = self.calls.lock().unwrap();
        calls.push((path.to_owned(), metadata));
        calls.len()
    }
}

struct Running(Arc<Log>);

impl Running {
    fn new(log: &Arc<Log>) -> Running {
        log.running.fetch_add(1, SeqCst);
        Running(Arc::clone(log))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, SeqCst);
    }
}

pub(crate) fn channel(address: SocketAddr) -> Channel {
    Endpoint::from_shared(format!("http://{address}")).unwrap().connect_lazy()
}

/// One message, and OK.
pub(crate) fn text(text: impl Into<String>) -> Reply {
    Ok(stream::iter([Ok(text.into())]).boxed())
}

/// A status and nothing else.
pub(crate) fn fails(code: Code) -> Reply {
    Err(Status::new(code, "the server says so"))
}

/// [`fails`] with `grpc-retry-pushback-ms`.
pub(crate) fn pushes_back(code: Code, pushback: &str) -> Reply {
    let mut metadata = MetadataMap::new();
    metadata.insert("grpc-retry-pushback-ms", pushback.parse().unwrap());
    Err(Status::with_metadata(code, "the server says so", metadata))
}

/// Messages, and then a status in the trailers.
pub(crate) fn fails_late(messages: &[&str], code: Code) -> Reply {
    let messages: Vec<_> = messages.iter().map(|text| Ok((*text).to_owned())).collect();
    Ok(stream::iter(messages).chain(stream::iter([Err(Status::new(code, "in the trailers"))])).boxed())
}

/// An answer whose messages come when the test sends them.
pub(crate) fn feed() -> (Feed, Reply) {
    let (sender, receiver) = unbounded();
    (Feed(sender), Ok(receiver.boxed()))
}

/// The server's end of a stream. The stream ends with OK when it is dropped.
#[derive(Clone)]
pub(crate) struct Feed(UnboundedSender<Result<String, Status>>);

impl Feed {
    pub(crate) fn send(&self, text: impl Into<String>) {
        self.0.unbounded_send(Ok(text.into())).unwrap();
    }

    pub(crate) fn fail(self, code: Code) {
        self.0.unbounded_send(Err(Status::new(code, "in the middle"))).unwrap();
    }

    /// Whether the server has learnt that nobody reads.
    pub(crate) fn is_given_up(&self) -> bool {
        self.0.is_closed()
    }
}

pub(crate) fn executor<P: Settings>(clock: &ManualClock, policies: P) -> Executor<P> {
    Executor::builder("echo").policies(policies).unbudgeted().clock(clock).build().unwrap()
}

/// Moves the time on whenever something waits for it, until `work` is done.
pub(crate) async fn with_time<T: Send + 'static>(
    clock: &ManualClock,
    work: impl Future<Output = T> + Send + 'static,
) -> T {
    let work = tokio::spawn(work);
    while !work.is_finished() {
        for _ in 0..200 {
            tokio::task::yield_now().await;
        }
        if !work.is_finished() {
            clock.advance_to_next();
        }
    }
    work.await.unwrap()
}
