//! A real HTTP server on loopback that behaves as the script says, and remembers when it was asked.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::RETRY_AFTER;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Response, StatusCode};
use hyper_util::rt::TokioIo;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use steadfast::{Clock, clock::Moment};
use tokio::net::{TcpListener, TcpStream};

use crate::script::{Behaviour, phase_at};

/// A server; clones are the same one. It lives as long as the runtime.
#[derive(Clone)]
pub(crate) struct Server(Arc<Shared>);

struct Shared {
    address: SocketAddr,
    clock: Clock,
    /// When the script starts.
    begin: Moment,
    state: Mutex<State>,
}

struct State {
    /// When each request came, since the start of the script.
    arrivals: Vec<Duration>,
    /// When the next request is let through while throttling.
    free_at: Duration,
    dice: SmallRng,
}

impl Server {
    /// Starts a server on a free port of 127.0.0.1.
    pub(crate) async fn start(begin: Moment) -> io::Result<Server> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let state = State { arrivals: Vec::new(), free_at: Duration::ZERO, dice: SmallRng::seed_from_u64(SEED) };
        let server = Server(Arc::new(Shared {
            address: listener.local_addr()?,
            clock: Clock::tokio(),
            begin,
            state: Mutex::new(state),
        }));
        tokio::spawn(server.clone().accept(listener));
        Ok(server)
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/", self.0.address)
    }

    /// When each request came, since the start of the script.
    pub(crate) fn arrivals(&self) -> Vec<Duration> {
        self.with_state(|state| state.arrivals.clone())
    }

    pub(crate) fn arrived_between(&self, from: Duration, to: Duration) -> usize {
        self.with_state(|state| state.arrivals.iter().filter(|at| (from..to).contains(at)).count())
    }

    async fn accept(self, listener: TcpListener) {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => drop(tokio::spawn(self.clone().serve(stream))),
                Err(error) => {
                    eprintln!("the server cannot accept a connection: {error}");
                    self.0.clock.sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    async fn serve(self, stream: TcpStream) {
        let service = service_fn(|_| async { Ok::<_, Infallible>(self.answer().await) });
        // It fails when a client goes away in the middle, as those do that ran out of patience.
        let _gone = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
    }

    async fn answer(&self) -> Response<Full<Bytes>> {
        let now = self.0.clock.now().since(self.0.begin);
        let work = self.with_state(|state| {
            state.arrivals.push(now);
            QUICKEST + SPREAD.mul_f64(state.dice.random())
        });
        match phase_at(now).behaviour {
            Behaviour::Healthy => self.reply_after(work, StatusCode::OK).await,
            Behaviour::Errors(share) => {
                let failed = self.with_state(|state| state.dice.random_bool(share));
                let status = if failed { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK };
                self.reply_after(work, status).await
            }
            Behaviour::Dead => std::future::pending().await,
            Behaviour::Throttling(interval) => {
                if self.is_admitted(now, interval) {
                    return self.reply_after(work, StatusCode::OK).await;
                }
                let mut reply = self.reply_after(Duration::ZERO, StatusCode::TOO_MANY_REQUESTS).await;
                reply.headers_mut().insert(RETRY_AFTER, 1.into());
                reply
            }
            Behaviour::Slow(time) => self.reply_after(time + work, StatusCode::OK).await,
        }
    }

    fn is_admitted(&self, now: Duration, interval: Duration) -> bool {
        self.with_state(|state| {
            let free = now >= state.free_at;
            if free {
                state.free_at = now + interval;
            }
            free
        })
    }

    async fn reply_after(&self, work: Duration, status: StatusCode) -> Response<Full<Bytes>> {
        self.0.clock.sleep(work).await;
        let mut reply = Response::new(Full::from("{}"));
        *reply.status_mut() = status;
        reply
    }

    fn with_state<R>(&self, look: impl FnOnce(&mut State) -> R) -> R {
        look(&mut self.0.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Both servers roll the same dice.
const SEED: u64 = 7;

/// What a healthy answer takes: between 5 and 15 ms.
const QUICKEST: Duration = Duration::from_millis(5);
const SPREAD: Duration = Duration::from_millis(10);

/// Without a free file descriptor, trying again at once only heats the processor.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
