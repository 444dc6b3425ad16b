//! A chain, built once per dependency and shared.

mod builder;
mod erase;
mod snapshot;
mod with;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub use self::builder::Builder;
pub use self::erase::{AnyError, AnyValue, Erased};
pub use self::with::With;
use crate::attempt::Attempt;
use crate::budget::Budget;
use crate::cancel::Cancellation;
use crate::clock::{Clock, Deadline};
use crate::context::Context;
use crate::drive::{Ended, drive};
use crate::error::{Error, Name};
use crate::event::{Event, What};
use crate::life::Life;
use crate::operation::{Answer, Function, Operation};
use crate::policy::Policy;
use crate::run::Setup;
pub use crate::run::Stopped;

/// A chain of policies for one dependency: built once, cloned freely, shared between tasks. Clones are the same executor.
///
/// It owns a clock, a source of randomness, a name for errors and events, observers, and its own end: see
/// [`close`](Executor::close) and [`shutdown`](Executor::shutdown). One executor serves operations of any result type,
/// as far as its policies do.
///
/// ```
/// use steadfast::{Executor, Retry, Timeout};
///
/// # let clock = steadfast::clock::Clock::manual();
/// # clock.block_on(async {
/// let billing = Executor::builder("billing")
///     .policies((Retry::exponential(), Timeout::secs(2)))
/// #   .clock(&clock)
///     .build()?;
/// let invoice = billing.run(|_| async { Ok::<_, std::io::Error>("invoice 7") }).await;
/// assert_eq!(invoice.unwrap(), "invoice 7");
/// # Ok::<_, steadfast::ConfigError>(())
/// # }).unwrap();
/// ```
///
/// # In a struct field
/// `Executor<(Retry, Breaker, Timeout)>` can be written down. A chain that carries closures cannot:
/// [`erase`](Executor::erase) gives a plain `Executor`.
pub struct Executor<P = Erased>(Arc<Shared<P>>);

struct Shared<P> {
    name: Name,
    life: Arc<Life>,
    setup: Setup,
    policies: P,
}

/// A run with more detail than its result, from [`Executor::run_report`].
#[derive(Debug)]
#[non_exhaustive]
pub struct Report<T, E> {
    /// What the caller of [`Executor::run`] would get.
    pub result: Result<T, Error<E>>,
    /// How often the operation was started.
    pub attempts: u32,
    /// The time from the run's first look at the clock to its end; zero if it never had to look.
    pub elapsed: Duration,
    /// Why no further attempt was made.
    pub stopped: Stopped,
}

impl Executor {
    /// Begins to build an executor for the dependency `name`, with no policies yet.
    pub fn builder(name: impl AsRef<str>) -> Builder<()> {
        Builder::new(name.as_ref())
    }
}

impl<P> Executor<P> {
    /// Runs an operation through the chain.
    ///
    /// The operation is a closure that is called for every attempt. Its `Ok` is a success and any `Err` is taken to be
    /// worth another attempt: **tell it which errors are permanent**, see [`operation`](crate::operation).
    ///
    /// # Errors
    /// An [`Error`] that says why there is no result.
    ///
    /// # Cancel safety
    /// Dropping the future drops the running attempt and gives everything back: permits, places, timers.
    #[inline(always)]
    pub fn run<T, E, F, Fut>(&self, f: F) -> impl Future<Output = Result<T, Error<E>>>
    where
        T: Send,
        E: Send,
        F: Fn(Attempt) -> Fut + Sync,
        Fut: Future<Output: Answer<T, E>> + Send,
        P: Policy<T, E>,
    {
        drive(&self.0.setup, &PLAIN, Function(f), &self.0.policies)
    }

    /// [`run`](Executor::run) with what the caller brings: a deadline, a token, limits for this call.
    ///
    /// # Errors
    /// As [`run`](Executor::run). An already cancelled context runs nothing.
    ///
    /// # Cancel safety
    /// As [`run`](Executor::run).
    #[inline(always)]
    pub fn run_with<'a, T, E, F, Fut>(&'a self, cx: &'a Context, f: F) -> impl Future<Output = Result<T, Error<E>>>
    where
        T: Send,
        E: Send,
        F: Fn(Attempt) -> Fut + Sync,
        Fut: Future<Output: Answer<T, E>> + Send,
        P: Policy<T, E>,
    {
        drive(&self.0.setup, cx, Function(f), &self.0.policies)
    }

    /// [`run`](Executor::run) for an operation with more to say than a closure: see [`op`](crate::op).
    ///
    /// # Errors
    /// As [`run`](Executor::run).
    ///
    /// # Cancel safety
    /// As [`run`](Executor::run).
    #[inline(always)]
    pub fn run_op<T, E, O>(&self, operation: O) -> impl Future<Output = Result<T, Error<E>>>
    where
        T: Send,
        E: Send,
        O: Operation<T, E>,
        P: Policy<T, E>,
    {
        drive(&self.0.setup, &PLAIN, operation, &self.0.policies)
    }

    /// [`run_op`](Executor::run_op) with what the caller brings.
    ///
    /// # Errors
    /// As [`run`](Executor::run).
    ///
    /// # Cancel safety
    /// As [`run`](Executor::run).
    #[inline(always)]
    pub fn run_op_with<'a, T, E, O>(
        &'a self,
        cx: &'a Context,
        operation: O,
    ) -> impl Future<Output = Result<T, Error<E>>>
    where
        T: Send,
        E: Send,
        O: Operation<T, E>,
        P: Policy<T, E>,
    {
        drive(&self.0.setup, cx, operation, &self.0.policies)
    }

    /// Runs an operation and says, beside the result, how often it was tried and why no further attempt was made. A plain
    /// closure goes through [`op`](crate::op).
    ///
    /// ```
    /// # use steadfast::{Executor, Retry, error::Limit, executor::Stopped, op};
    /// # let clock = steadfast::clock::Clock::manual();
    /// # clock.block_on(async {
    /// # let search = Executor::builder("search").policies(Retry::exponential()).clock(&clock).build().unwrap();
    /// let report = search.run_report(op(|_| async { Err::<(), _>("busy") })).await;
    /// assert_eq!((report.attempts, report.stopped), (3, Stopped::Limit(Limit::Attempts)));
    /// # });
    /// ```
    ///
    /// # Cancel safety
    /// As [`run`](Executor::run).
    pub async fn run_report<T, E, O>(&self, operation: O) -> Report<T, E>
    where
        T: Send,
        E: Send,
        O: Operation<T, E>,
        P: Policy<T, E>,
    {
        self.run_report_with(&PLAIN, operation).await
    }

    /// [`run_report`](Executor::run_report) with what the caller brings.
    ///
    /// # Cancel safety
    /// As [`run`](Executor::run).
    pub async fn run_report_with<T, E, O>(&self, cx: &Context, operation: O) -> Report<T, E>
    where
        T: Send,
        E: Send,
        O: Operation<T, E>,
        P: Policy<T, E>,
    {
        let ended: Ended<T, E> = drive(&self.0.setup, cx, operation, &self.0.policies).await;
        Report { result: ended.result, attempts: ended.attempts, elapsed: ended.elapsed, stopped: ended.stopped }
    }

    /// A plain context on the executor's clock, to add to.
    #[must_use]
    pub fn context(&self) -> Context {
        Context::new().with_clock(&self.0.setup.clock)
    }

    /// The policies that it was built with.
    #[must_use]
    pub fn policies(&self) -> &P {
        &self.0.policies
    }

    /// The name of the dependency.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.0.name.as_str()
    }

    /// The clock that every run and every policy of this executor uses.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.0.setup.clock
    }

    /// What bounds its retries and hedges, unless it was built without.
    #[must_use]
    pub fn budget(&self) -> Option<&Budget> {
        self.0.setup.budget.as_ref()
    }

    /// Refuses new runs from now on, with [`Kind::ShutDown`](crate::error::Kind::ShutDown); running ones go on.
    pub fn close(&self) {
        self.0.life.close();
    }

    /// Refuses new runs, and ends the running ones and the bodies that have outlived theirs.
    pub fn shutdown(&self) {
        self.0.life.shut_down();
    }

    /// Waits until the executor is closed and no run is waiting any more.
    ///
    /// A run counts from the first time that it has to wait for something. One whose first poll is under way on another
    /// thread is not known yet; it was admitted before the executor was closed, and may go on to wait.
    ///
    /// A result that outlives its run, such as the body of a response, counts in the same way: from the first time that its
    /// reader has to wait for data, until it ends or is dropped. One that is held and was never waited for does not count.
    /// [`shutdown`](Executor::shutdown) ends it all the same, when it is read next.
    ///
    /// # Cancel safety
    /// Safe: it changes nothing.
    pub async fn drained(&self) {
        self.0.life.drained().await;
    }

    /// How many runs, and bodies that have outlived theirs, are waiting for something.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.0.life.waiting()
    }

    /// Tells the observers of something that is not part of a run.
    pub(crate) fn tell(&self, what: What) {
        let Setup { name, clock, observers, .. } = &self.0.setup;
        if !observers.is_empty() {
            let (executor, at) = (*name, clock.now());
            observers.tell(&Event { executor, run: None, at, attempt: 0, hedge: 0, policy: None, what });
        }
    }

    /// What it runs with, for another way of running.
    pub(crate) fn parts(&self) -> (&Setup, &P) {
        (&self.0.setup, &self.0.policies)
    }

    /// Runs an operation whose result outlives the run: the caller holds the tail until the result ends.
    #[cfg_attr(
        not(any(feature = "reqwest", feature = "tower")),
        allow(dead_code, reason = "only adapters hold what outlives a run")
    )]
    pub(crate) async fn stream<T, E, O>(&self, cx: &Context, operation: O) -> Ended<T, E>
    where
        T: Send,
        E: Send,
        O: Operation<T, E>,
        P: Policy<T, E>,
    {
        drive(&self.0.setup, cx, operation, &self.0.policies).await
    }

    /// The merged token of what outlives a run with this context.
    #[cfg_attr(
        not(any(feature = "reqwest", feature = "tower")),
        allow(dead_code, reason = "only adapters hold what outlives a run")
    )]
    pub(crate) fn cancellation(&self, cx: &Context) -> Cancellation {
        let at = cx.deadline_on(self.clock());
        let deadline = (!at.is_never()).then(|| Deadline::new(self.clock().clone(), at));
        Cancellation::new(cx.token().cloned(), Some(Arc::clone(&self.0.life)), deadline)
    }
}

impl<P> Clone for Executor<P> {
    fn clone(&self) -> Self {
        Executor(Arc::clone(&self.0))
    }
}

impl<P> fmt::Debug for Executor<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Executor").field("name", &self.0.name).finish_non_exhaustive()
    }
}

/// The context of a run whose caller brings none.
static PLAIN: Context = Context::new();
