//! A body outlives the policies that let its response through: none that has done its work ends it, and what the caller
//! brought still does. Every combination of protocol, token and chain, against real servers; time is the manual clock's.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use http::StatusCode;
use reqwest::{Error as ReqwestError, Response};
use steadfast::clock::{Clock, ManualClock};
use steadfast::reqwest::{Error, ResponseExt};
use steadfast::{Breaker, Bulkhead, CancellationToken, Context, Hedge, Retry, Timeout};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

use crate::reqwest_server::{
    Http1, Http2, Protocol, Reply, Server, Trickle, client, settle, settle_briefly, trickle, until,
};
use crate::support::secs;

/// Limits that never fire, alone, with retries around and inside, and with everything.
#[derive(Clone, Copy, Debug)]
enum Chain {
    Timeout,
    Retry,
    All,
    Hedge(Race),
    HedgeInAll(Race),
}

/// What becomes of the hedge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Race {
    /// The first request is answered before it would start.
    Rests,
    /// It starts after its delay, and the first request wins.
    Loses,
    /// It starts after its delay, and wins.
    Wins,
    /// It starts since the first request has failed, with a response that never ends.
    Replaces,
}

const RACES: [Race; 4] = [Race::Rests, Race::Loses, Race::Wins, Race::Replaces];

impl Chain {
    fn all() -> impl Iterator<Item = Chain> {
        let hedged = RACES.into_iter().flat_map(|race| [Chain::Hedge(race), Chain::HedgeInAll(race)]);
        [Chain::Timeout, Chain::Retry, Chain::All].into_iter().chain(hedged)
    }

    fn race(self) -> Race {
        match self {
            Chain::Timeout | Chain::Retry | Chain::All => Race::Rests,
            Chain::Hedge(race) | Chain::HedgeInAll(race) => race,
        }
    }

    fn client(self, protocol: Protocol, clock: &ManualClock, places: &Bulkhead) -> steadfast::reqwest::Client {
        let (limit, hedge, places) = (Timeout::secs(5), Hedge::after(secs(1)), places.clone());
        let around = (Timeout::secs(20), Retry::exponential());
        match self {
            Chain::Timeout => client(protocol, clock, (places, limit)),
            Chain::Retry => client(protocol, clock, (places, Retry::exponential(), limit)),
            Chain::All => client(protocol, clock, (around, Breaker::default(), places, limit)),
            Chain::Hedge(_) => client(protocol, clock, (hedge, places, limit)),
            Chain::HedgeInAll(_) => client(protocol, clock, (around, hedge, Breaker::default(), places, limit)),
        }
    }
}

/// A response whose body the test sends.
struct Case {
    name: String,
    clock: ManualClock,
    /// One for each lane.
    places: Bulkhead,
    token: Option<CancellationToken>,
    server: Server,
    trickle: Trickle,
    losers: Arc<AtomicUsize>,
    http: steadfast::reqwest::Client,
    response: Response,
    /// How many tasks there were before the client.
    tasks: usize,
}

impl Case {
    async fn begin(protocol: Protocol, with_token: bool, chain: Chain) -> Case {
        let (clock, places, name) =
            (Clock::manual(), Bulkhead::new(2), format!("{protocol:?}, token: {with_token}, {chain:?}"));
        let Racing { server, trickle, losers, go } = Racing::start(protocol, chain.race()).await;
        let tasks = tasks();
        let http = chain.client(protocol, &clock, &places);
        let token = with_token.then(CancellationToken::new);
        let cx = token.iter().cloned().fold(Context::new(), Context::with_token);
        let sent = tokio::spawn(http.get(server.url()).context(&cx).send());
        if matches!(chain.race(), Race::Loses | Race::Wins) {
            until(|| server.received() == 1 && clock.sleepers() > 0).await;
            clock.advance(secs(1));
        }
        until(|| server.received() == chain.race().requests()).await;
        go.add_permits(1);
        let response = sent.await.unwrap().unwrap();
        assert_eq!(
            (response.status(), places.in_flight()),
            (StatusCode::OK, 1),
            "{name}: the permit travels with the body"
        );
        assert_eq!(clock.sleepers(), 0, "{name}: the limits have done their work");
        Case { name, clock, places, token, server, trickle, losers, http, response, tasks }
    }

    /// Nothing is left of the requests that have lost, while the body of the winner is still to be read.
    async fn losers_are_gone(&self, protocol: Protocol) {
        until(|| self.losers.load(SeqCst) == 0 && self.server.open() == 1).await;
        if protocol == Http2 {
            assert_eq!(self.server.accepted(), 1, "{}: a stream was reset, not its connection", self.name);
        }
    }

    /// Nothing of the request is left, while the client is still there; and then nothing of the client.
    async fn everything_is_free(self, protocol: Protocol) {
        let Case { name, clock, places, server, trickle, losers, http, response, tasks: before, .. } = self;
        drop(response);
        assert_eq!((places.in_flight(), clock.sleepers()), (0, 0), "{name}");
        until(|| trickle.is_given_up() && losers.load(SeqCst) == 0).await;
        if protocol == Http1 {
            until(|| server.open() == 0).await;
        }
        drop(http);
        until(|| server.open() == 0 && tasks() == before).await;
    }
}

/// A server that answers one request with a body that the test sends, once it may; the other one is to lose.
struct Racing {
    server: Server,
    trickle: Trickle,
    /// How many requests the server still works on that it will not answer with a success.
    losers: Arc<AtomicUsize>,
    go: Arc<Semaphore>,
}

impl Racing {
    async fn start(protocol: Protocol, race: Race) -> Racing {
        let (trickle, won) = trickle();
        let won = Arc::new(std::sync::Mutex::new(Some(won)));
        let (losers, go) = (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
        let server = Server::start(protocol, {
            let (losers, go) = (Arc::clone(&losers), Arc::clone(&go));
            move |n| {
                let won = (n == race.winner()).then(|| won.lock().unwrap().take().unwrap());
                let (losers, go) = (Arc::clone(&losers), Arc::clone(&go));
                async move {
                    match won {
                        Some(won) => go.acquire().await.map(|_| won).unwrap(),
                        None => race.lose(losers).await,
                    }
                }
            }
        });
        Racing { server: server.await, trickle, losers, go }
    }
}

impl Race {
    fn requests(self) -> usize {
        if self == Race::Rests { 1 } else { 2 }
    }

    fn winner(self) -> usize {
        match self {
            Race::Rests | Race::Loses => 1,
            Race::Wins | Race::Replaces => 2,
        }
    }

    /// The answer to the request that is to lose: none, or one that is no success.
    async fn lose(self, losers: Arc<AtomicUsize>) -> Reply {
        let working = Working::begin(losers);
        if self != Race::Replaces {
            return std::future::pending().await;
        }
        let (trickle, mut busy) = trickle();
        *busy.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        trickle.send("busy");
        tokio::spawn(async move {
            while !trickle.is_given_up() {
                tokio::task::yield_now().await;
            }
            drop(working);
        });
        busy
    }
}

/// Counts while it lives.
struct Working(Arc<AtomicUsize>);

impl Working {
    fn begin(all: Arc<AtomicUsize>) -> Working {
        all.fetch_add(1, SeqCst);
        Working(all)
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

fn tasks() -> usize {
    Handle::current().metrics().num_alive_tasks()
}

async fn in_all_cases<F: Future<Output = ()>>(test: impl Fn(Case, Protocol) -> F) {
    for protocol in [Http1, Http2] {
        for with_token in [true, false] {
            for chain in Chain::all() {
                test(Case::begin(protocol, with_token, chain).await, protocol).await;
            }
        }
    }
}

#[tokio::test]
async fn unfired_timeout_kills_body_of_a_mebibyte_that_trickles() {
    in_all_cases(async |case, protocol| {
        case.losers_are_gone(protocol).await;
        let requests = case.server.received();
        let Case { name, clock, places, response, trickle, server, .. } = case;
        let cancellation = response.cancellation().unwrap().clone();
        let reading = tokio::spawn(response.bytes());
        for n in 0..16_u8 {
            // Both limits would be long over.
            clock.advance(secs(10));
            settle_briefly().await;
            trickle.send(vec![n; 64 << 10]);
            settle_briefly().await;
        }
        drop(trickle);
        let bytes = reading.await.unwrap().unwrap();
        assert_eq!(bytes.len(), 1 << 20, "{name}");
        assert!(bytes.chunks(64 << 10).zip(0..).all(|(chunk, n)| chunk.iter().all(|byte| *byte == n)));
        assert!(!cancellation.is_cancelled(), "{name}: no policy that has finished cancels it");
        assert_eq!((places.in_flight(), clock.sleepers()), (0, 0), "{name}");
        assert_eq!(server.received(), requests, "{name}: nothing is hedged once there are headers");
    })
    .await;
}

#[tokio::test]
async fn the_caller_ends_the_body_in_the_middle_at_once() {
    in_all_cases(async |mut case, protocol| {
        case.losers_are_gone(protocol).await;
        case.trickle.send(vec![7; 64 << 10]);
        let mut read = 0;
        while read < 64 << 10 {
            read += case.response.chunk().await.unwrap().unwrap().len();
        }
        // Without a token of its own the caller has the merged one.
        let merged = case.response.cancellation().unwrap().clone();
        let error = {
            let mut reading = tokio_test::task::spawn(case.response.chunk());
            assert!(reading.poll().is_pending(), "{}", case.name);
            match &case.token {
                Some(token) => token.cancel(),
                None => merged.cancel(),
            }
            assert!(reading.is_woken());
            Error::from(now(reading.poll()).unwrap_err())
        };
        assert!(error.is_cancelled(), "{}: {error:?}", case.name);
        until(|| case.trickle.is_given_up()).await;
        assert_eq!(case.places.in_flight(), 0, "while the response is still held");
        case.everything_is_free(protocol).await;
    })
    .await;
}

fn now<T>(poll: std::task::Poll<Result<T, ReqwestError>>) -> Result<T, ReqwestError> {
    match poll {
        std::task::Poll::Ready(answer) => answer,
        std::task::Poll::Pending => panic!("it goes on"),
    }
}

#[tokio::test]
async fn a_response_that_is_dropped_frees_sockets_tasks_and_permits() {
    in_all_cases(async |mut case, protocol| {
        case.trickle.send("begin");
        case.response.chunk().await.unwrap();
        case.losers_are_gone(protocol).await;
        settle().await;
        assert_eq!((case.server.open(), case.places.in_flight()), (1, 1), "{}", case.name);
        case.everything_is_free(protocol).await;
    })
    .await;
}

#[tokio::test]
async fn permit_and_body_lifetime() {
    for protocol in [Http1, Http2] {
        let (clock, places) = (Clock::manual(), Bulkhead::new(1));
        let server = Server::start(protocol, |n| async move {
            if n % 3 == 0 {
                return std::future::pending().await;
            }
            let (trickle, reply) = trickle();
            trickle.send("body");
            if n % 3 == 1 {
                // Never ends; the reader drops it.
                tokio::spawn(async move {
                    while !trickle.is_given_up() {
                        tokio::task::yield_now().await;
                    }
                });
            }
            reply
        })
        .await;
        let http = client(protocol, &clock, (places.clone(), Timeout::secs(5)));
        for run in 1..=999 {
            if run % 3 == 0 {
                // Cancelled before there is a response.
                let sent = tokio::spawn(http.get(server.url()).send());
                until(|| server.received() == run).await;
                assert_eq!(places.in_flight(), 1);
                sent.abort();
                assert!(sent.await.unwrap_err().is_cancelled());
            } else {
                let mut response = http.get(server.url()).send().await.unwrap();
                assert_eq!(response.chunk().await.unwrap().unwrap(), "body");
                if run % 3 == 2 {
                    while response.chunk().await.unwrap().is_some() {}
                } else {
                    assert_eq!(places.in_flight(), 1, "held during the stream");
                    drop(response);
                }
            }
            assert_eq!(places.in_flight(), 0, "{protocol:?}, run {run}");
        }
        assert_eq!(clock.sleepers(), 0);
    }
}
