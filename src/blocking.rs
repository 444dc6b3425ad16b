//! Chains around code that is not async, on threads without a runtime.

use std::sync::{Mutex, PoisonError};

use crate::attempt::Attempt;
use crate::clock::{Clock, Parked};
use crate::context::Context;
use crate::drive::{Ended, Finish, drive};
use crate::error::{ConfigError, Error};
use crate::executor::{Executor, Report};
use crate::operation::{Answer, Operation};
use crate::policy::{Call, Outcome, Policy};
use crate::run::Setup;

impl<P> Executor<P> {
    /// Runs a function that is not async through the chain, on this thread, which sleeps while the chain waits. No runtime is
    /// needed; tokens, shutdown and places in queues wake it.
    ///
    /// The time is that of the executor's clock, and its state is shared with the runs of [`run`](Executor::run): one breaker
    /// serves both. A manual clock moves on by itself while the thread waits, as in
    /// [`ManualClock::block_on`](crate::clock::ManualClock::block_on); a [custom](crate::Clock::custom) one sleeps as it does.
    ///
    /// ```
    /// # use steadfast::{Breaker, Executor, Retry, Timeout};
    /// # let clock = steadfast::clock::Clock::manual();
    /// let policies = (Retry::exponential(), Breaker::default());
    /// let billing = Executor::builder("billing").policies(policies).clock(&clock).build().unwrap();
    /// let mut lines = ["busy", "busy", "invoice 7"].into_iter();
    /// let invoice = billing.run_blocking(|_| match lines.next() {
    ///     Some("busy") | None => Err("busy"),
    ///     Some(line) => Ok(line),
    /// });
    /// assert_eq!(invoice.unwrap(), "invoice 7");
    /// ```
    ///
    /// # What is different
    /// A function that runs cannot be cut off. A limit that passes, a token that is cancelled and a shutdown are noticed when it
    /// has returned, and before and during the waits between its attempts: a result that comes too late is returned, and counts
    /// as slow where a breaker looks at that. What has a limit of its own should be told
    /// [`Attempt::remaining`]. It is never hedged. What a policy of your own, or a [`fallback`](crate::fallback()), awaits must
    /// not need a runtime.
    ///
    /// Within a runtime it blocks the thread of a worker, as any blocking call does: use it in `tokio::task::spawn_blocking`, or
    /// [`run`](Executor::run).
    ///
    /// # Errors
    /// As [`run`](Executor::run).
    pub fn run_blocking<T, E, A, F>(&self, f: F) -> Result<T, Error<E>>
    where
        T: Send,
        E: Send,
        A: Answer<T, E>,
        F: FnMut(Attempt) -> A + Send,
        P: Policy<T, E>,
    {
        self.block(&Context::new(), f)
    }

    /// [`run_blocking`](Executor::run_blocking) with what the caller brings: a deadline, a token, limits for this call.
    ///
    /// # Errors
    /// As [`run`](Executor::run). An already cancelled context runs nothing.
    pub fn run_blocking_with<T, E, A, F>(&self, cx: &Context, f: F) -> Result<T, Error<E>>
    where
        T: Send,
        E: Send,
        A: Answer<T, E>,
        F: FnMut(Attempt) -> A + Send,
        P: Policy<T, E>,
    {
        self.block(cx, f)
    }

    /// [`run_blocking_with`](Executor::run_blocking_with), and says, beside the result, how often the function was tried and
    /// why no further attempt was made.
    pub fn run_blocking_report<T, E, A, F>(&self, cx: &Context, f: F) -> Report<T, E>
    where
        T: Send,
        E: Send,
        A: Answer<T, E>,
        F: FnMut(Attempt) -> A + Send,
        P: Policy<T, E>,
    {
        let ended: Ended<T, E> = self.block(cx, f);
        Report { result: ended.result, attempts: ended.attempts, elapsed: ended.elapsed, stopped: ended.stopped }
    }

    fn block<T, E, A, F, R>(&self, cx: &Context, f: F) -> R
    where
        T: Send,
        E: Send,
        A: Answer<T, E>,
        F: FnMut(Attempt) -> A + Send,
        P: Policy<T, E>,
        R: Finish<T, E>,
    {
        let (setup, policies) = self.parts();
        let parked = Parked::new(&setup.clock);
        let operation = Blocking { function: Mutex::new(Some(f)), clock: setup.clock.clone() };
        let setup = Setup { clock: parked.clock().clone(), ..setup.clone() };
        parked.block_on(drive(&setup, cx, operation, policies))
    }
}

/// A function that is not async as an operation.
struct Blocking<F> {
    /// Taken out for the length of a try, so that no lock is held while user code runs. Nothing runs beside it.
    function: Mutex<Option<F>>,
    /// What the function sees: it may hand on a deadline to somebody who can sleep otherwise.
    clock: Clock,
}

impl<F> Blocking<F> {
    fn set(&self, function: Option<F>) -> Option<F> {
        std::mem::replace(&mut *self.function.lock().unwrap_or_else(PoisonError::into_inner), function)
    }
}

impl<T, E, A, F> Operation<T, E> for Blocking<F>
where
    T: Send,
    E: Send,
    A: Answer<T, E>,
    F: FnMut(Attempt) -> A + Send,
{
    async fn call(&self, attempt: Attempt) -> Outcome<T, E> {
        let Some(mut function) = self.set(None) else {
            // Only a policy that starts a second try without asking `repeat` gets here.
            return Outcome::rejected(Error::misconfigured(ConfigError::new(
                "run_blocking",
                "a second try beside the first",
                "a policy must ask whether the operation may be repeated",
            )));
        };
        let outcome = function(attempt.on(&self.clock)).judged();
        self.set(Some(function));
        outcome
    }

    /// The time has gone on within this poll.
    fn judge(&self, call: Call<'_, E>, outcome: Outcome<T, E>) -> Outcome<T, E> {
        call.scope().core.forget_now();
        outcome
    }

    fn repeat(&self, after: Option<&Outcome<T, E>>) -> Result<(), &'static str> {
        after.map(|_| ()).ok_or("it runs on the thread of its caller, one try at a time")
    }
}
