//! A body outlives the policies that let its response through: none that has done its work ends it, and what the caller
//! brought still does. Every combination of protocol, token and chain, against real servers; time is the manual clock's.

use reqwest::{Error as ReqwestError, Response};
use std::sync::Arc;
use steadfast::clock::{Clock, ManualClock};
use steadfast::policy::{Call, Guard, Next, Outcome, Policy, Settings};
use steadfast::reqwest::{Error, ResponseExt};
use steadfast::{Breaker, CancellationToken, Context, Retry, Timeout};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::reqwest_server::{
    Http1, Http2, Protocol, Server, Trickle, client, settle, settle_briefly, trickling, until,
};
use crate::support::secs;

/// A bulkhead such as a user may write: its permit travels with the body.
#[derive(Clone)]
struct Places(Arc<Semaphore>);

struct Place(Option<OwnedSemaphorePermit>);

impl Places {
    fn new(n: usize) -> Places {
        Places(Arc::new(Semaphore::new(n)))
    }

    fn free(&self) -> usize {
        self.0.available_permits()
    }
}

impl Settings for Places {}

impl<T: Send, E: Send> Policy<T, E> for Places {
    async fn run<N: Next<T, E>>(&self, call: Call<'_, E>, next: N) -> Outcome<T, E> {
        let permit = Arc::clone(&self.0).acquire_owned().await.unwrap();
        let mut outcome = next.call(call).await;
        if call.streams() && outcome.result.is_ok() {
            outcome.tail_mut().push(Place(Some(permit)));
        }
        outcome
    }
}

impl Guard for Place {
    fn end(&mut self, _: steadfast::policy::End) {
        self.0 = None;
    }
}

/// Limits that never fire, alone, with retries around and inside, and with everything.
#[derive(Clone, Copy, Debug)]
enum Chain {
    Timeout,
    Retry,
    All,
}

impl Chain {
    fn client(self, protocol: Protocol, clock: &ManualClock, places: &Places) -> steadfast::reqwest::Client {
        let (limit, places) = (Timeout::secs(5), places.clone());
        match self {
            Chain::Timeout => client(protocol, clock, (places, limit)),
            Chain::Retry => client(protocol, clock, (places, Retry::exponential(), limit)),
            Chain::All => {
                client(protocol, clock, (Timeout::secs(20), Retry::exponential(), Breaker::default(), places, limit))
            }
        }
    }
}

/// A response whose body the test sends.
struct Case {
    name: String,
    clock: ManualClock,
    places: Places,
    token: Option<CancellationToken>,
    server: Server,
    trickle: Trickle,
    http: steadfast::reqwest::Client,
    response: Response,
    /// How many tasks there were before the client.
    tasks: usize,
}

impl Case {
    async fn begin(protocol: Protocol, with_token: bool, chain: Chain) -> Case {
        let (clock, places) = (Clock::manual(), Places::new(1));
        let (server, trickle) = trickling(protocol, &[]).await;
        let tasks = tasks();
        let http = chain.client(protocol, &clock, &places);
        let token = with_token.then(CancellationToken::new);
        let cx = token.iter().cloned().fold(Context::new(), Context::with_token);
        let response = http.get(server.url()).context(&cx).send().await.unwrap();
        assert_eq!(clock.sleepers(), 0, "the limits have done their work");
        let name = format!("{protocol:?}, token: {with_token}, {chain:?}");
        Case { name, clock, places, token, server, trickle, http, response, tasks }
    }

    /// Nothing of the request is left, while the client is still there; and then nothing of the client.
    async fn everything_is_free(self, protocol: Protocol) {
        let Case { name, clock, places, server, trickle, http, response, tasks: before, .. } = self;
        drop(response);
        assert_eq!((places.free(), clock.sleepers()), (1, 0), "{name}");
        until(|| trickle.is_given_up()).await;
        if protocol == Http1 {
            until(|| server.open() == 0).await;
        }
        drop(http);
        until(|| server.open() == 0 && tasks() == before).await;
    }
}

fn tasks() -> usize {
    Handle::current().metrics().num_alive_tasks()
}

async fn in_all_cases<F: Future<Output = ()>>(test: impl Fn(Case, Protocol) -> F) {
    for protocol in [Http1, Http2] {
        for with_token in [true, false] {
            for chain in [Chain::Timeout, Chain::Retry, Chain::All] {
                test(Case::begin(protocol, with_token, chain).await, protocol).await;
            }
        }
    }
}

#[tokio::test]
async fn unfired_timeout_kills_body_of_a_mebibyte_that_trickles() {
    in_all_cases(async |case, _| {
        let Case { name, clock, places, response, trickle, server, .. } = case;
        let cancellation = response.cancellation().unwrap().clone();
        assert_eq!(places.free(), 0, "{name}: the permit travels with the body");
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
        assert_eq!((places.free(), clock.sleepers(), server.received()), (1, 0, 1), "{name}");
    })
    .await;
}

#[tokio::test]
async fn the_caller_ends_the_body_in_the_middle_at_once() {
    in_all_cases(async |mut case, protocol| {
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
        assert_eq!(case.places.free(), 1, "while the response is still held");
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
        settle().await;
        assert_eq!((case.server.open(), case.places.free()), (1, 0), "{}", case.name);
        case.everything_is_free(protocol).await;
    })
    .await;
}

#[tokio::test]
async fn permit_and_body_lifetime() {
    for protocol in [Http1, Http2] {
        let (clock, places) = (Clock::manual(), Places::new(1));
        let server = Server::start(protocol, |n| async move {
            if n % 3 == 0 {
                return std::future::pending().await;
            }
            let (trickle, reply) = crate::reqwest_server::trickle();
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
                assert_eq!(places.free(), 0);
                sent.abort();
                assert!(sent.await.unwrap_err().is_cancelled());
            } else {
                let mut response = http.get(server.url()).send().await.unwrap();
                assert_eq!(response.chunk().await.unwrap().unwrap(), "body");
                if run % 3 == 2 {
                    while response.chunk().await.unwrap().is_some() {}
                } else {
                    assert_eq!(places.free(), 0, "held during the stream");
                    drop(response);
                }
            }
            assert_eq!(places.free(), 1, "{protocol:?}, run {run}");
        }
        assert_eq!(clock.sleepers(), 0);
    }
}
