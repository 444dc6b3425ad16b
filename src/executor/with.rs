//! An executor with one more inner policy, for one call.

use super::{Executor, PLAIN};
use crate::attempt::Attempt;
use crate::context::Context;
use crate::drive::drive;
use crate::error::Error;
use crate::operation::{Answer, Function, Operation};
use crate::policy::{Policy, Settings, Site};

impl<P> Executor<P> {
    /// Adds an inner policy for one call.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use steadfast::{Executor, Retry, Timeout};
    /// # let clock = steadfast::clock::Clock::manual();
    /// # clock.block_on(async {
    /// let search = Executor::builder("search").policies(Retry::immediate()).clock(&clock).build().unwrap();
    /// let slow = search.with(Timeout::secs(1)).run(|_| std::future::pending::<Result<(), String>>()).await;
    /// assert!(slow.unwrap_err().is_timeout());
    /// # });
    /// ```
    pub fn with<Q>(&self, policy: Q) -> With<'_, P, Q> {
        With { executor: self, inner: policy }
    }
}

/// An executor with one more inner policy, from [`Executor::with`].
#[must_use = "it adds a policy to the calls made through it"]
#[derive(Debug)]
pub struct With<'a, P, Q> {
    executor: &'a Executor<P>,
    inner: Q,
}

impl<P: Settings, Q: Settings> With<'_, P, Q> {
    /// See [`Executor::run`].
    ///
    /// # Errors
    /// As [`Executor::run`]; settings of the added policy that cannot work end the run before anything is started.
    ///
    /// # Cancel safety
    /// As [`Executor::run`].
    pub async fn run<T, E, F, Fut>(&self, f: F) -> Result<T, Error<E>>
    where
        T: Send,
        E: Send,
        F: Fn(Attempt) -> Fut + Sync,
        Fut: Future<Output: Answer<T, E>> + Send,
        P: Policy<T, E>,
        Q: Policy<T, E>,
    {
        self.run_op_with(&PLAIN, Function(f)).await
    }

    /// See [`Executor::run_with`].
    ///
    /// # Errors
    /// As [`run`](With::run).
    ///
    /// # Cancel safety
    /// As [`Executor::run`].
    pub async fn run_with<T, E, F, Fut>(&self, cx: &Context, f: F) -> Result<T, Error<E>>
    where
        T: Send,
        E: Send,
        F: Fn(Attempt) -> Fut + Sync,
        Fut: Future<Output: Answer<T, E>> + Send,
        P: Policy<T, E>,
        Q: Policy<T, E>,
    {
        self.run_op_with(cx, Function(f)).await
    }

    /// See [`Executor::run_op_with`].
    ///
    /// # Errors
    /// As [`run`](With::run).
    ///
    /// # Cancel safety
    /// As [`Executor::run`].
    pub async fn run_op_with<T, E, O>(&self, cx: &Context, operation: O) -> Result<T, Error<E>>
    where
        T: Send,
        E: Send,
        O: Operation<T, E>,
        P: Policy<T, E>,
        Q: Policy<T, E>,
    {
        let policies = (&self.executor.0.policies, &self.inner);
        policies.validate(&mut Site::new(self.executor.clock())).map_err(Error::misconfigured)?;
        drive(&self.executor.0.setup, cx, operation, &policies).await
    }
}
