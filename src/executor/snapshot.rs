//! What can be seen of an executor.

use super::Executor;
use crate::policy::Settings;
use crate::snapshot::{ExecutorSnapshot, Lifecycle};

impl<P: Settings> Executor<P> {
    /// The state of the executor, its budget and every policy of its chain, as plain data: see [`snapshot`](crate::snapshot).
    ///
    /// ```
    /// use steadfast::breaker::State;
    /// use steadfast::snapshot::PolicySnapshot;
    /// use steadfast::{Breaker, Executor, Retry};
    ///
    /// let billing = Executor::builder("billing").policies((Retry::exponential(), Breaker::default())).build()?;
    /// let seen = billing.snapshot();
    /// assert_eq!((seen.name, seen.waiting, seen.policies.len()), ("billing", 0, 2));
    /// assert!(matches!(&seen.policies[1], PolicySnapshot::Breaker(breaker) if breaker.state == State::Closed));
    /// # Ok::<_, steadfast::ConfigError>(())
    /// ```
    #[must_use]
    pub fn snapshot(&self) -> ExecutorSnapshot {
        let life = &self.0.life;
        let lifecycle = match (life.is_open(), life.is_shut_down()) {
            (true, _) => Lifecycle::Open,
            (false, false) => Lifecycle::Closed,
            (false, true) => Lifecycle::ShutDown,
        };
        let mut policies = Vec::new();
        self.0.policies.snapshots(&mut policies);
        let budget = self.budget().map(crate::budget::Budget::snapshot);
        ExecutorSnapshot { name: self.name(), lifecycle, waiting: self.waiting(), budget, policies }
    }
}
