//! A steady load, and what became of its calls.

use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use steadfast::{Clock, clock::Moment};
use tokio::task::{JoinError, JoinSet};

use crate::client::Client;
use crate::script;

/// How many calls are started in a second.
pub(crate) const RATE: u32 = 100;

/// One call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    /// When it was started, since the start of the script.
    pub(crate) started: Duration,
    /// How long its caller waited, for an answer or for an error.
    pub(crate) took: Duration,
    pub(crate) ok: bool,
}

/// All that is known of one of the two clients.
pub(crate) struct Side {
    pub(crate) samples: Vec<Sample>,
    /// When its requests arrived at the server, since the start of the script.
    pub(crate) arrivals: Vec<Duration>,
}

impl Side {
    /// The calls that were started in this time.
    pub(crate) fn started_between(&self, from: Duration, to: Duration) -> Vec<Sample> {
        self.samples.iter().filter(|sample| (from..to).contains(&sample.started)).copied().collect()
    }

    pub(crate) fn arrived_between(&self, from: Duration, to: Duration) -> usize {
        self.arrivals.iter().filter(|at| (from..to).contains(at)).count()
    }

    pub(crate) fn per_call(&self) -> f64 {
        self.arrivals.len() as f64 / self.samples.len().max(1) as f64
    }
}

/// The calls that have ended, in that order.
#[derive(Default)]
pub(crate) struct Record(Mutex<Vec<Sample>>);

impl Record {
    pub(crate) fn succeeded_between(&self, from: Duration, to: Duration) -> usize {
        let ended = |sample: &&Sample| (from..to).contains(&(sample.started + sample.took));
        self.samples().iter().filter(ended).filter(|sample| sample.ok).count()
    }

    pub(crate) fn take(&self) -> Vec<Sample> {
        mem::take(&mut self.samples())
    }

    fn samples(&self) -> MutexGuard<'_, Vec<Sample>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Starts calls at a fixed rate from `begin` on for as long as the script takes, and waits for all of them. A call is
/// started when its time has come, whatever became of those before it: users do not wait for each other.
pub(crate) async fn drive<C: Client>(client: C, begin: Moment, record: &Arc<Record>) -> Result<(), JoinError> {
    let clock = Clock::tokio();
    let interval = Duration::from_secs(1) / RATE;
    let mut due = Duration::ZERO;
    let mut calls = JoinSet::new();
    while due < script::length() {
        clock.sleep_until(begin + due).await;
        calls.spawn(call(client.clone(), begin, Arc::clone(record)));
        due += interval;
    }
    while let Some(ended) = calls.join_next().await {
        ended?;
    }
    Ok(())
}

async fn call<C: Client>(client: C, begin: Moment, record: Arc<Record>) {
    let clock = Clock::tokio();
    let start = clock.now();
    let ok = client.call().await;
    record.samples().push(Sample { started: start.since(begin), took: clock.now().since(start), ok });
}

/// The time within which this share of the calls had ended; zero if there were none.
pub(crate) fn quantile(samples: &[Sample], share: f64) -> Duration {
    let mut times: Vec<_> = samples.iter().map(|sample| sample.took).collect();
    times.sort_unstable();
    let rank = (times.len() as f64 * share).ceil() as usize;
    times.get(rank.saturating_sub(1)).copied().unwrap_or_default()
}

/// The share of the calls that succeeded, 0 to 1; none without a call.
pub(crate) fn success(samples: &[Sample]) -> Option<f64> {
    let ok = samples.iter().filter(|sample| sample.ok).count();
    (!samples.is_empty()).then(|| ok as f64 / samples.len() as f64)
}
