//! The backend of a file, as a model.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Mutex;
use std::time::Duration;

use super::backend::{Backend, Kind};
use crate::dice::{Dice, scaled};
use crate::load::{Down, Request, Server};
use crate::sim::{Time, lock};

/// Goes on with what it has begun, whether or not its caller still waits: most servers do.
pub(super) struct Described {
    backend: Backend,
    state: Mutex<State>,
}

struct State {
    dice: Dice,
    /// When each worker is done with all that it has.
    workers: BinaryHeap<Reverse<Duration>>,
    /// When those that have arrived will be done.
    in_flight: BinaryHeap<Reverse<Duration>>,
    arrivals: Vec<Duration>,
}

/// What becomes of a request.
enum Fate {
    FailsAt(Duration),
    AnswersAt(Duration),
}

impl Described {
    pub(super) fn new(backend: Backend, seed: u64) -> Described {
        let workers = vec![Reverse(Duration::ZERO); backend.server.workers.unwrap_or_default()];
        let (in_flight, arrivals) = (BinaryHeap::new(), Vec::new());
        let state = State { dice: Dice::new(seed, 0), workers: workers.into(), in_flight, arrivals };
        Described { backend, state: Mutex::new(state) }
    }

    /// When requests arrived.
    pub(super) fn arrivals(&self) -> Vec<Duration> {
        lock(&self.state).arrivals.clone()
    }
}

impl Server for Described {
    async fn request(&self, time: &Time, _: Request) -> Result<(), Down> {
        let fate = lock(&self.state).arrived(&self.backend, time.now());
        match fate {
            Fate::FailsAt(at) => {
                time.until(at).await;
                Err(Down)
            }
            Fate::AnswersAt(at) => {
                time.until(at).await;
                Ok(())
            }
        }
    }
}

impl State {
    fn arrived(&mut self, backend: &Backend, now: Duration) -> Fate {
        self.arrivals.push(now);
        for kind in [Kind::Outage, Kind::Hang] {
            for event in backend.during(now, kind) {
                if self.dice.chance(event.share()) {
                    return Fate::FailsAt(if kind == Kind::Outage { now } else { event.end() });
                }
            }
        }
        while self.in_flight.peek().is_some_and(|done| done.0 <= now) {
            self.in_flight.pop();
        }
        let server = &backend.server;
        if let (Some(workers), Some(queue)) = (server.workers, server.queue)
            && self.in_flight.len() >= workers + queue
        {
            return Fate::FailsAt(now);
        }
        let takes = self.takes(backend, now);
        let begins = match self.workers.pop() {
            Some(Reverse(free)) => free.max(now),
            None => now,
        };
        let done = begins.saturating_add(takes);
        if server.workers.is_some() {
            self.workers.push(Reverse(done));
        }
        self.in_flight.push(Reverse(done));
        if self.dice.chance(server.errors) { Fate::FailsAt(done) } else { Fate::AnswersAt(done) }
    }

    fn takes(&mut self, backend: &Backend, now: Duration) -> Duration {
        let server = &backend.server;
        if self.dice.chance(server.stalls) {
            return server.stall;
        }
        let mut factor = 1.0 + server.slowdown * self.in_flight.len() as f64;
        for event in backend.during(now, Kind::Slow) {
            if self.dice.chance(event.share()) {
                factor *= event.factor();
            }
        }
        scaled(self.dice.lognormal(server.latency, server.spread), factor)
    }
}
