//! What became of each call, by its caller and by the events of its run: two accounts that have to agree.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};

use steadfast::event::{Event, RunEnd, What};
use steadfast::reqwest::Error;

pub(crate) type Counts = BTreeMap<&'static str, u64>;

/// The callers' account.
#[derive(Default)]
pub(crate) struct Ledger {
    calls: AtomicU64,
    /// How the sending ended: what the run has to say too.
    sent: Mutex<Counts>,
    /// How the call ended.
    ended: Mutex<Counts>,
}

/// A call that has to end. If it is dropped without an end, nobody knows what became of it: it is lost.
pub(crate) struct Call {
    ledger: Arc<Ledger>,
    pub(crate) number: u64,
}

/// A request on its way. One that is dropped was dropped by the caller.
pub(crate) struct Sending<'a>(Option<&'a Ledger>);

impl Ledger {
    pub(crate) fn begin(self: &Arc<Ledger>) -> Call {
        Call { ledger: Arc::clone(self), number: self.calls.fetch_add(1, SeqCst) }
    }

    pub(crate) fn calls(&self) -> u64 {
        self.calls.load(SeqCst)
    }

    pub(crate) fn ended(&self) -> Counts {
        lock(&self.ended).clone()
    }

    pub(crate) fn sent(&self) -> Counts {
        lock(&self.sent).clone()
    }
}

impl Call {
    pub(crate) fn end(self, how: &'static str) {
        count(&self.ledger.ended, how);
    }

    pub(crate) fn send(&self) -> Sending<'_> {
        Sending(Some(&self.ledger))
    }
}

impl Sending<'_> {
    pub(crate) fn end<T>(mut self, result: &Result<T, Error>) {
        let how = result.as_ref().map_or_else(|error| error.kind().as_str(), |_| VALUE);
        if let Some(ledger) = self.0.take() {
            count(&ledger.sent, how);
        }
    }
}

impl Drop for Sending<'_> {
    fn drop(&mut self) {
        if let Some(ledger) = self.0.take() {
            count(&ledger.sent, "dropped");
        }
    }
}

/// The runs' account, from their events.
#[derive(Default)]
pub(crate) struct Story(Mutex<Told>);

#[derive(Clone, Default)]
pub(crate) struct Told {
    pub(crate) started: u64,
    /// How the runs ended.
    pub(crate) ended: Counts,
    pub(crate) attempts: u64,
    /// As the ends of the runs say.
    pub(crate) attempts_of_runs: u64,
    pub(crate) attempts_ended: u64,
    pub(crate) retries: u64,
    pub(crate) hedges: u64,
    pub(crate) timeouts: u64,
    pub(crate) transitions: u64,
    pub(crate) refusals: u64,
}

impl Story {
    pub(crate) fn told(&self) -> Told {
        lock(&self.0).clone()
    }

    pub(crate) fn note(&self, event: &Event) {
        let mut told = lock(&self.0);
        match &event.what {
            What::RunStarted => told.started += 1,
            What::AttemptStarted => told.attempts += 1,
            What::AttemptFinished { .. } | What::AttemptAbandoned { .. } => told.attempts_ended += 1,
            What::RetryScheduled { .. } => told.retries += 1,
            What::HedgeStarted => told.hedges += 1,
            What::TimedOut { .. } => told.timeouts += 1,
            What::Transition(_) => told.transitions += 1,
            What::Rejected { .. } => told.refusals += 1,
            What::RunFinished { end, attempts, .. } => {
                told.attempts_of_runs += u64::from(*attempts);
                let how = if matches!(end, RunEnd::Value(_)) { VALUE } else { end.as_str() };
                *told.ended.entry(how).or_default() += 1;
            }
            _ => {}
        }
    }
}

fn count(counts: &Mutex<Counts>, what: &'static str) {
    *lock(counts).entry(what).or_default() += 1;
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

const VALUE: &str = "value";
