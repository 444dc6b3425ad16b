//! Calls through an executor, started by the clock: users do not wait for each other.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use steadfast::{Attempt, Executor};

use crate::dice::{Dice, scaled};
use crate::record::{Ended, Record};
use crate::sim::{Sim, Time};

/// What is called.
pub(crate) trait Server: Send + Sync + 'static {
    /// One request, from where its caller is.
    fn request(&self, time: &Time, request: Request) -> impl Future<Output = Result<(), Down>> + Send;
}

/// Of which call, and which of its attempts.
pub(crate) struct Request {
    /// 0 for the first call, and so on.
    pub(crate) call: u64,
    pub(crate) attempt: Attempt,
}

/// The only error there is.
#[derive(Debug)]
pub(crate) struct Down;

/// When calls are made, and how often.
pub(crate) struct Load<R> {
    pub(crate) seed: u64,
    /// Calls per second at a time: a Poisson process.
    pub(crate) rate: R,
    /// When the rate changes, in order.
    pub(crate) changes: Vec<Duration>,
    /// No call is started after it.
    pub(crate) until: Duration,
    /// And none goes on after this.
    pub(crate) cut_at: Duration,
}

/// Makes all calls of a load. Each one is made by one of the executors, by chance.
pub(crate) fn drive<S: Server>(
    sim: &Rc<Sim>,
    executors: Vec<Executor>,
    server: &Arc<S>,
    load: Load<impl Fn(Duration) -> f64 + 'static>,
) -> Record {
    let log = Rc::new(RefCell::new(Log::default()));
    let cut_at = load.cut_at;
    sim.spawn(arrivals(Rc::clone(sim), executors, Arc::clone(server), load, Rc::clone(&log)));
    sim.run(cut_at);
    let Log { started, ended } = log.take();
    Record::new(started, ended)
}

/// Calls, as they start and end.
#[derive(Default)]
struct Log {
    started: Vec<Duration>,
    ended: Vec<Ended>,
}

async fn arrivals<S: Server>(
    sim: Rc<Sim>,
    executors: Vec<Executor>,
    server: Arc<S>,
    load: Load<impl Fn(Duration) -> f64>,
    log: Rc<RefCell<Log>>,
) {
    let mut dice = Dice::new(load.seed, ARRIVALS);
    let mut at = Duration::ZERO;
    loop {
        at = next_arrival(&load, at, &mut dice);
        if at >= load.until {
            return;
        }
        sim.time().until(at).await;
        let number = log.borrow().started.len() as u64;
        log.borrow_mut().started.push(at);
        let executor = executors[dice.below(executors.len())].clone();
        sim.spawn(call(sim.time().clone(), number, executor, Arc::clone(&server), Rc::clone(&log)));
    }
}

/// A gap ends where the rate changes, and what comes after is drawn anew: a Poisson process has no memory.
fn next_arrival(load: &Load<impl Fn(Duration) -> f64>, mut at: Duration, dice: &mut Dice) -> Duration {
    loop {
        let change = load.changes.iter().copied().find(|change| *change > at).unwrap_or(load.until).min(load.until);
        let arrival = at.saturating_add(scaled(dice.exponential(Duration::from_secs(1)), 1.0 / (load.rate)(at)));
        if arrival < change {
            return arrival;
        }
        at = change;
        if at >= load.until {
            return at;
        }
    }
}

async fn call<S: Server>(time: Time, number: u64, executor: Executor, server: Arc<S>, log: Rc<RefCell<Log>>) {
    let started = time.now();
    let request = |attempt| server.request(&time, Request { call: number, attempt });
    let ok = executor.run(request).await.is_ok();
    let took = time.now() - started;
    log.borrow_mut().ended.push(Ended { started, took, ok });
}

/// The stream of the dice: the same calls for every policy.
const ARRIVALS: u64 = 1_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_is_cut_where_the_rate_changes() {
        let second = Duration::from_secs;
        // One call in a million seconds, until a thousand come in each.
        let rate = |at| if at < second(10) { 1e-6 } else { 1000.0 };
        let load = Load { seed: 0, rate, changes: vec![second(10)], until: second(20), cut_at: second(20) };
        let first = next_arrival(&load, Duration::ZERO, &mut Dice::new(1, 0));
        assert!((second(10)..second(10) + second(1) / 50).contains(&first), "{first:?}");
        let never = Load { seed: 0, rate: |_| 1e-300, changes: Vec::new(), until: second(20), cut_at: second(20) };
        assert_eq!(next_arrival(&never, Duration::ZERO, &mut Dice::new(1, 0)), second(20));
    }
}
