//! [`drop_everywhere`](crate::drop_everywhere) for responses: a request through the adapter to reqwest, and the reading of its body,
//! dropped at every poll in turn. Real servers on loopback; time is the manual clock's.
//!
//! How many polls there are is up to the network, so no two runs of this test have exactly the same points.

use std::time::Duration;

use reqwest::{Error, Response};
use steadfast::breaker::{BreakerConfig, TripRule};
use steadfast::chain::BoxPolicy;
use steadfast::clock::{Clock, ManualClock};
use steadfast::limit::BulkheadConfig;
use steadfast::reqwest::Client;
use steadfast::retry::Jitter;
use steadfast::{Breaker, Bulkhead, CancellationToken, Executor, Hedge, Retry, Timeout};
use tokio_test::task::{Spawn, spawn};

use crate::reqwest_server::{
    Http1, Http2, Protocol, Reply, Server, executor, plain, reply, settle_briefly, trickle, until,
};
use crate::support::{ms, pending_times};

#[tokio::test]
async fn drop_everywhere_a_response_and_its_body() {
    let mut points = 0;
    for protocol in [Http1, Http2] {
        let server = Server::start(protocol, answer).await;
        for chain in [&[Part::Retry, Part::Bulkhead][..], &[Part::Bulkhead, Part::Breaker, Part::Timeout], &Part::ALL] {
            for ending in [Ending::Dropped, Ending::DroppedWoken, Ending::Cancelled, Ending::ShutDown] {
                points += points_of(&server, protocol, chain, ending).await;
            }
        }
    }
    println!("drop everywhere: responses and their bodies: dropped at {points} points");
    assert!(points >= 100, "only {points} points");
}

async fn points_of(server: &Server, protocol: Protocol, chain: &[Part], ending: Ending) -> usize {
    let mut polls = 0;
    loop {
        let stage = Stage::new(protocol, chain);
        let ended = stage.play(server, ending, polls).await;
        stage.check(server, &format!("{protocol:?} {chain:?} {ending:?} after {polls} polls")).await;
        polls += 1;
        if ended {
            return polls;
        }
        assert!(polls < 200, "{protocol:?} {chain:?} does not end");
    }
}

/// Of four requests one is refused at once and one with a body that has to be drained; the others are answered in three pieces.
async fn answer(number: usize) -> Reply {
    pending_times(2).await;
    match number % 4 {
        1 => reply(503, ""),
        3 => reply(503, "not served today ".repeat(100)),
        _ => {
            let (body, reply) = trickle();
            tokio::spawn(async move {
                for piece in ["one", "two", "three"] {
                    settle_briefly().await;
                    if !body.is_given_up() {
                        body.send(piece);
                    }
                }
            });
            reply
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Part {
    Retry,
    Hedge,
    Bulkhead,
    Breaker,
    Timeout,
}

impl Part {
    const ALL: [Part; 5] = [Part::Bulkhead, Part::Retry, Part::Hedge, Part::Breaker, Part::Timeout];
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Ending {
    Dropped,
    DroppedWoken,
    Cancelled,
    ShutDown,
}

struct Stage {
    clock: ManualClock,
    executor: Executor<Vec<BoxPolicy<Response, Error>>>,
    /// Its connections are those of this stage alone.
    http: Client,
    bulkhead: Bulkhead,
    breaker: Breaker,
    token: CancellationToken,
}

impl Stage {
    fn new(protocol: Protocol, chain: &[Part]) -> Stage {
        let clock = Clock::manual();
        let bulkhead = Bulkhead::with(BulkheadConfig::new(2).queue(2));
        let breaker = Breaker::new(BreakerConfig::default().rule(TripRule::consecutive(9)).open_for(OPEN_FOR));
        let policy = |part: &Part| match part {
            Part::Retry => BoxPolicy::new(Retry::fixed(ms(5)).jitter(Jitter::None).max_attempts(2)),
            Part::Hedge => BoxPolicy::new(Hedge::after(ms(10))),
            Part::Bulkhead => BoxPolicy::new(bulkhead.clone()),
            Part::Breaker => BoxPolicy::new(breaker.clone()),
            Part::Timeout => BoxPolicy::new(Timeout::secs(5).covering_body()),
        };
        let executor = executor(&clock, chain.iter().map(policy).collect());
        let http = Client::new(plain(protocol), executor.clone());
        breaker.bind(&clock).unwrap();
        breaker.force_open();
        clock.advance(OPEN_FOR);
        Stage { clock, executor, http, bulkhead, breaker, token: CancellationToken::new() }
    }

    /// Requests and reads for so many polls, and ends it then. Whether there was nothing left to end.
    async fn play(&self, server: &Server, ending: Ending, polls: usize) -> bool {
        let cx = self.executor.context().with_token(self.token.clone());
        let mut reading = spawn(async {
            let Ok(mut response) = self.http.get(server.url()).context(&cx).send().await else { return };
            while let Ok(Some(_)) = response.chunk().await {}
        });
        for poll in 0..polls {
            if poll > 0 {
                self.pass_time(&reading).await;
            }
            if reading.poll().is_ready() {
                return true;
            }
        }
        match ending {
            Ending::Dropped => return false,
            Ending::DroppedWoken if polls > 0 => self.pass_time(&reading).await,
            Ending::DroppedWoken => return false,
            Ending::Cancelled => self.token.cancel(),
            Ending::ShutDown => self.executor.shutdown(),
        }
        if matches!(ending, Ending::Cancelled | Ending::ShutDown) {
            assert!(reading.poll().is_ready(), "{ending:?} after {polls} polls ends nothing");
        }
        false
    }

    /// Lets the network do what it has to, and then the time go on, until the reading is woken.
    async fn pass_time<F: Future>(&self, reading: &Spawn<F>) {
        for _ in 0..5_000 {
            for _ in 0..200 {
                if reading.is_woken() {
                    return;
                }
                tokio::task::yield_now().await;
            }
            self.clock.advance_to_next();
        }
        panic!("nobody wakes it");
    }

    /// All gauges stand where they stood, and all sockets are closed.
    async fn check(self, server: &Server, at: &str) {
        assert_eq!(
            (self.bulkhead.in_flight(), self.bulkhead.queued()),
            (0, 0),
            "{at}: permits and queue of the bulkhead"
        );
        assert_eq!(self.executor.waiting(), 0, "{at}: a run or a body is still waiting");
        assert_eq!(self.clock.sleepers(), 0, "{at}: a timer is left");
        self.clock.advance(OPEN_FOR);
        assert!(self.breaker.try_acquire().is_ok(), "{at}: {:?} admits nobody", self.breaker.state());
        drop(self.http);
        until(|| server.open() == 0).await;
    }
}

/// Longer than any reading takes.
const OPEN_FOR: Duration = Duration::from_secs(3600);
