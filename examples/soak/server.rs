//! An axum server on loopback, on a runtime of its own, so that it can be killed and started again.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{ConnectInfo, Request, State};
use futures::stream;
use http::{HeaderMap, Method, Response, StatusCode, header};
use steadfast::Clock;
use tokio::runtime::{Builder, Runtime};

use crate::connection::{Counting, Wire};
use crate::faults::{Dice, Fault, Injected};
use crate::seen::Seen;

pub(crate) struct Server {
    address: SocketAddr,
    shared: Arc<Shared>,
    running: Mutex<Option<Runtime>>,
}

pub(crate) struct Shared {
    pub(crate) injected: Arc<Injected>,
    /// Answers in full and at once.
    pub(crate) calm: AtomicBool,
    /// Answers nothing.
    pub(crate) dead: AtomicBool,
    /// Requests whose head has come.
    pub(crate) received: AtomicU64,
    /// Requests whose answer was begun.
    pub(crate) answered: AtomicU64,
    /// Connections that are open.
    pub(crate) connections: Arc<AtomicUsize>,
    /// Requests that are being handled, and bodies that are being sent.
    pub(crate) live: AtomicUsize,
    /// How often each call has come.
    pub(crate) seen: Seen,
    dice: Mutex<Dice>,
}

impl Server {
    pub(crate) fn start(injected: Arc<Injected>) -> io::Result<Server> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            injected,
            calm: AtomicBool::new(false),
            dead: AtomicBool::new(false),
            received: AtomicU64::new(0),
            answered: AtomicU64::new(0),
            connections: Arc::default(),
            live: AtomicUsize::new(0),
            seen: Seen::default(),
            dice: Mutex::new(Dice::new(SEED)),
        });
        let running = Mutex::new(Some(serve(listener, Arc::clone(&shared))?));
        Ok(Server { address, shared, running })
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Kills it, with all connections and all that is being sent, and starts it again after a while.
    pub(crate) async fn restart(&self, down: Duration) -> io::Result<()> {
        self.shared.injected.count(Fault::Restart);
        self.stop().await;
        Clock::tokio().sleep(down).await;
        let listener = TcpListener::bind(self.address)?;
        *self.running.lock().unwrap_or_else(PoisonError::into_inner) = Some(serve(listener, Arc::clone(&self.shared))?);
        Ok(())
    }

    pub(crate) async fn stop(&self) {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner).take();
        // A runtime waits for its threads when it is dropped.
        let _stopped = tokio::task::spawn_blocking(|| drop(running)).await;
    }
}

fn serve(listener: TcpListener, shared: Arc<Shared>) -> io::Result<Runtime> {
    listener.set_nonblocking(true)?;
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let listener = {
        let _within = runtime.enter();
        tokio::net::TcpListener::from_std(listener)?
    };
    let counting = Counting { listener, open: Arc::clone(&shared.connections) };
    let app = Router::new().fallback(answer).with_state(shared);
    let service = app.into_make_service_with_connect_info::<Wire>();
    runtime.spawn(async move { axum::serve(counting, service).await });
    Ok(runtime)
}

async fn answer(
    State(shared): State<Arc<Shared>>,
    ConnectInfo(wire): ConnectInfo<Wire>,
    request: Request,
) -> Response<Body> {
    let live = Live::new(&shared);
    shared.received.fetch_add(1, SeqCst);
    let (head, body) = request.into_parts();
    let call = number(&head.headers, CALL);
    shared.seen.note(call, number(&head.headers, ALLOWED));
    let is_upload = head.method == Method::POST;
    // One that breaks off is a caller that has left.
    let uploaded = to_bytes(body, 1 << 20).await;
    if is_upload && uploaded.is_ok_and(|body| body.len() as u64 != number(&head.headers, SIZE)) {
        return respond(&shared, StatusCode::BAD_REQUEST, Body::empty());
    }
    if shared.dead.load(SeqCst) {
        return std::future::pending().await;
    }
    let (fault, size, pause) = shared.plan();
    if let Some(fault) = fault {
        shared.injected.count(fault);
    }
    Clock::tokio().sleep(pause).await;
    match fault {
        Some(Fault::Error) => return respond(&shared, StatusCode::INTERNAL_SERVER_ERROR, Body::from("not today")),
        Some(Fault::RetryAfter) => {
            let mut refused = respond(&shared, StatusCode::SERVICE_UNAVAILABLE, Body::from("later"));
            refused.headers_mut().insert(header::RETRY_AFTER, 1.into());
            return refused;
        }
        Some(Fault::ResetBeforeHead) => wire.cut(),
        Some(Fault::StallBeforeHead) => return std::future::pending().await,
        Some(Fault::SlowHead) => Clock::tokio().sleep(Duration::from_millis(120)).await,
        _ => {}
    }
    let body = Sending { call, size, sent: 0, fault, wire, _live: live };
    let mut response = respond(&shared, StatusCode::OK, Body::from_stream(stream::unfold(body, Sending::next)));
    response.headers_mut().insert(CALL, call.into());
    response.headers_mut().insert(header::CONTENT_LENGTH, size.into());
    response
}

fn respond(shared: &Shared, status: StatusCode, body: Body) -> Response<Body> {
    shared.answered.fetch_add(1, SeqCst);
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response
}

impl Shared {
    /// What goes wrong with a request, how large the answer is, and how long it takes.
    fn plan(&self) -> (Option<Fault>, u64, Duration) {
        let dice = &mut self.dice.lock().unwrap_or_else(PoisonError::into_inner);
        let fault = if self.calm.load(SeqCst) { None } else { Fault::of_server(dice) };
        (fault, 1 + dice.below(8 * PIECE), dice.millis(0, 8))
    }
}

/// A body on its way.
struct Sending {
    call: u64,
    size: u64,
    sent: u64,
    fault: Option<Fault>,
    wire: Wire,
    _live: Live,
}

impl Sending {
    async fn next(mut self) -> Option<(io::Result<Bytes>, Sending)> {
        if self.sent == self.size {
            return None;
        }
        if self.sent > 0 {
            match self.fault {
                Some(Fault::ResetInBody) => {
                    // Time for what was sent to leave.
                    Clock::tokio().sleep(Duration::from_millis(2)).await;
                    self.wire.cut();
                }
                Some(Fault::Truncated) => return Some((Err(io::Error::other("the disk is gone")), self)),
                Some(Fault::StallInBody) => return std::future::pending().await,
                Some(Fault::SlowBody) => Clock::tokio().sleep(Duration::from_millis(30)).await,
                _ => {}
            }
        }
        let piece = self.piece();
        self.sent += piece;
        let bytes = vec![pattern(self.call); usize::try_from(piece).unwrap_or(0)];
        Some((Ok(bytes.into()), self))
    }

    /// Whoever is to break off in the middle needs one.
    fn piece(&self) -> u64 {
        let most = if self.fault.is_some() { self.size.div_ceil(2) } else { PIECE };
        most.min(self.size - self.sent)
    }
}

/// What the body of a call's answer is made of.
pub(crate) fn pattern(call: u64) -> u8 {
    u8::try_from(call % 251).unwrap_or(0)
}

pub(crate) fn number(headers: &HeaderMap, name: &str) -> u64 {
    headers.get(name).and_then(|value| value.to_str().ok()?.parse().ok()).unwrap_or(u64::MAX)
}

/// Says that something of a request is still there.
struct Live(Arc<Shared>);

impl Live {
    fn new(shared: &Arc<Shared>) -> Live {
        shared.live.fetch_add(1, SeqCst);
        Live(Arc::clone(shared))
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.0.live.fetch_sub(1, SeqCst);
    }
}

/// The number of the call that a request belongs to.
pub(crate) const CALL: &str = "x-soak-call";

/// How many requests that call may send.
pub(crate) const ALLOWED: &str = "x-soak-allowed";

/// The length of an upload.
pub(crate) const SIZE: &str = "x-soak-size";

const PIECE: u64 = 4 * 1024;

const SEED: u64 = 20;
