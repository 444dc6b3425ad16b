//! What became of the calls, and what the server saw of them.

use std::time::Duration;

/// One call that has ended.
#[derive(Clone, Copy)]
pub(crate) struct Ended {
    /// Since the beginning.
    pub(crate) started: Duration,
    pub(crate) took: Duration,
    pub(crate) ok: bool,
}

/// All calls of a run, by when they were started.
pub(crate) struct Record {
    /// Those included that had not ended when the run did.
    pub(crate) started: Vec<Duration>,
    pub(crate) calls: Vec<Ended>,
    /// When those were started that succeeded.
    good: Vec<Duration>,
}

impl Record {
    pub(crate) fn new(started: Vec<Duration>, mut calls: Vec<Ended>) -> Record {
        calls.sort_by_key(|call| call.started);
        let good = calls.iter().filter(|call| call.ok).map(|call| call.started).collect();
        Record { started, calls, good }
    }

    /// The share that succeeded of those that were started in this time, 0 to 1; 0 if there were none.
    pub(crate) fn success(&self, from: Duration, to: Duration) -> f64 {
        share(within(&self.good, from, to).len(), within(&self.started, from, to).len())
    }

    /// Those that were started in this time and have ended.
    pub(crate) fn between(&self, from: Duration, to: Duration) -> &[Ended] {
        let first = |time| self.calls.partition_point(|call| call.started < time);
        &self.calls[first(from)..first(to)]
    }
}

/// Of times in their order, those from `from` on and before `to`.
pub(crate) fn within(times: &[Duration], from: Duration, to: Duration) -> &[Duration] {
    let first = |time| times.partition_point(|at| *at < time);
    &times[first(from)..first(to)]
}

/// The smallest of the times that at least this share of them does not exceed; zero if there are none.
pub(crate) fn quantile(mut times: Vec<Duration>, share: f64) -> Duration {
    let rank = (times.len() as f64 * share).ceil() as usize;
    let index = rank.saturating_sub(1);
    if index >= times.len() {
        return Duration::ZERO;
    }
    *times.select_nth_unstable(index).1
}

/// 0 of 0 is 0.
pub(crate) fn share(some: usize, all: usize) -> f64 {
    some as f64 / all.max(1) as f64
}

/// How many of the times fall into each of `bins` bins of this width.
pub(crate) fn histogram(times: impl Iterator<Item = Duration>, width: Duration, bins: usize) -> Vec<f64> {
    let mut counts = vec![0.0; bins];
    for time in times {
        let bin = (time.as_nanos() / width.as_nanos()) as usize;
        if let Some(count) = counts.get_mut(bin) {
            *count += 1.0;
        }
    }
    counts
}

pub(crate) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}
