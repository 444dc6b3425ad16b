//! Calls through an executor, started by the clock: users do not wait for each other.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use steadfast::{Attempt, Executor};

use crate::dice::Dice;
use crate::record::{Ended, Record};
use crate::sim::{Sim, Time};

/// What is called.
pub(crate) trait Server: Send + Sync + 'static {
    /// One request, from where its caller is.
    fn request(&self, time: &Time, attempt: Attempt) -> impl Future<Output = Result<(), Down>> + Send;
}

/// The only error there is.
#[derive(Debug)]
pub(crate) struct Down;

/// When calls are made, and how often.
pub(crate) struct Load<R> {
    pub(crate) seed: u64,
    /// Calls per second at a time: a Poisson process.
    pub(crate) rate: R,
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
        at += dice.exponential(Duration::from_secs(1)).div_f64((load.rate)(at));
        if at >= load.until {
            return;
        }
        sim.time().until(at).await;
        log.borrow_mut().started.push(at);
        let executor = executors[dice.below(executors.len())].clone();
        sim.spawn(call(sim.time().clone(), executor, Arc::clone(&server), Rc::clone(&log)));
    }
}

async fn call<S: Server>(time: Time, executor: Executor, server: Arc<S>, log: Rc<RefCell<Log>>) {
    let started = time.now();
    let ok = executor.run(|attempt| server.request(&time, attempt)).await.is_ok();
    let took = time.now() - started;
    log.borrow_mut().ended.push(Ended { started, took, ok });
}

/// The stream of the dice: the same calls for every policy.
const ARRIVALS: u64 = 1_000;
