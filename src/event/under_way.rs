//! What an observer remembers of what is under way.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{Event, RunId};

/// One value for each run, or for each attempt, that is under way. As small as that: what starts also ends.
#[derive(Debug)]
pub(crate) struct UnderWay<V>([Mutex<HashMap<Which, V>>; SHARDS]);

/// A run, and an attempt of it; zeros for the run itself.
type Which = (RunId, u32, u32);

impl<V> UnderWay<V> {
    /// Keeps `value` for the run of the event.
    #[cfg(feature = "tracing")]
    pub(crate) fn run_started(&self, event: &Event, value: V) {
        if let Some(run) = event.run {
            self.shard(run).insert((run, 0, 0), value);
        }
    }

    #[cfg(feature = "tracing")]
    pub(crate) fn run_ended(&self, event: &Event) -> Option<V> {
        let run = event.run?;
        self.shard(run).remove(&(run, 0, 0))
    }

    #[cfg(feature = "tracing")]
    pub(crate) fn of_run(&self, run: RunId) -> Option<V>
    where
        V: Clone,
    {
        self.shard(run).get(&(run, 0, 0)).cloned()
    }

    /// Keeps `value` for the attempt of the event.
    #[cfg(feature = "metrics")]
    pub(crate) fn attempt_started(&self, event: &Event, value: V) {
        if let Some(run) = event.run {
            self.shard(run).insert((run, event.attempt, event.hedge), value);
        }
    }

    #[cfg(feature = "metrics")]
    pub(crate) fn attempt_ended(&self, event: &Event) -> Option<V> {
        let run = event.run?;
        self.shard(run).remove(&(run, event.attempt, event.hedge))
    }

    /// No code of a user runs under its lock: values are put in and taken out.
    fn shard(&self, run: RunId) -> MutexGuard<'_, HashMap<Which, V>> {
        // Threads take ids in blocks, so those that are of different threads are most likely in different shards.
        let shard = (run.get() ^ (run.get() / SHARDS as u64)) as usize % SHARDS;
        self.0[shard].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<V> Default for UnderWay<V> {
    fn default() -> Self {
        UnderWay(std::array::from_fn(|_| Mutex::default()))
    }
}

const SHARDS: usize = 16;
