//! An executor with one more outer policy, for one call.

use super::{Executor, PLAIN};
use crate::attempt::Attempt;
use crate::context::Context;
use crate::drive::drive;
use crate::error::Error;
use crate::operation::{Answer, Function, Operation};
use crate::policy::{Policy, Settings, Site};

impl<P> Executor<P> {
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
    pub fn around<Q>(&self, policy: Q) -> Around<'_, P, Q> {
        Around { executor: self, outer: policy }
    }
}

/// An executor with one more outer policy, from [`Executor::around`].
#[must_use = "it adds a policy to the calls made through it"]
#[derive(Debug)]
pub struct Around<'a, P, Q> {
    executor: &'a Executor<P>,
    outer: Q,
}

impl<P: Settings, Q: Settings> Around<'_, P, Q> {
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
    /// As [`run`](Around::run).
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
    /// As [`run`](Around::run).
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
        let policies = (&self.outer, &self.executor.0.policies);
        policies.validate(&mut Site::new(self.executor.clock())).map_err(Error::misconfigured)?;
        drive(&self.executor.0.setup, cx, operation, &policies).await
    }
}
