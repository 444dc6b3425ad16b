//! An executor with one more policy, inside of its own or around them, for one call.

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
    pub fn with<Q>(&self, policy: Q) -> With<'_, P, (&P, Q)> {
        With { executor: self, policies: (&self.0.policies, policy) }
    }

    /// Adds an outer policy for one call: a [`Fallback`](crate::Fallback) of the type of this call's result, say, around an
    /// executor that serves calls of many types.
    ///
    /// ```
    /// # use steadfast::{Executor, Fallback, Retry};
    /// # let clock = steadfast::clock::Clock::manual();
    /// # clock.block_on(async {
    /// let search: Executor = Executor::builder("search").policies(Retry::exponential()).clock(&clock).build().unwrap().erase();
    /// let found = search.around(Fallback::value(vec![])).run(|_| async { Err::<Vec<u32>, _>("down") }).await;
    /// assert!(found.unwrap().is_empty());
    /// # });
    /// ```
    pub fn around<Q>(&self, policy: Q) -> With<'_, P, (Q, &P)> {
        With { executor: self, policies: (policy, &self.0.policies) }
    }
}

/// An executor with one more policy, from [`Executor::with`] or [`Executor::around`]. `C` is the chain of its calls.
#[must_use = "it adds a policy to the calls made through it"]
#[derive(Debug)]
pub struct With<'a, P, C> {
    executor: &'a Executor<P>,
    policies: C,
}

impl<P, C: Settings> With<'_, P, C> {
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
        C: Policy<T, E>,
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
        C: Policy<T, E>,
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
        C: Policy<T, E>,
    {
        self.policies.validate(&mut Site::new(self.executor.clock())).map_err(Error::misconfigured)?;
        drive(&self.executor.0.setup, cx, operation, &self.policies).await
    }
}
