//! Faults on purpose: what a program does when its dependency fails, seen before it does.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::error::ConfigError;
use crate::event::What;
use crate::operation::Answer;
use crate::outcome::Outcome;
use crate::policy::{Call, Next, Policy, Settings, Site, discard_now};
use crate::run::Alarm;
use crate::verdict::Verdict;

/// Makes a share of the calls fail, take longer or end with something else, in the place of a dependency that does.
///
/// **Write it innermost**, so that everything around it sees what it would see of a dependency: an injected error is judged,
/// retried and counted as one of the operation, and an injected delay is cut off by a timeout. The rules of
/// [`op`](crate::op) are part of the operation and do not see what is injected; judging policies outside of it do.
///
/// | | the operation | the caller of the try gets |
/// |---|---|---|
/// | [`fail`](Chaos::fail) | is not run | the error |
/// | [`replace`](Chaos::replace) | is not run | what the function gives |
/// | [`delay`](Chaos::delay) | is run | its own result, so much later |
///
/// What is injected counts as a started attempt. Which calls are hit is drawn from the randomness of the executor, so that a
/// [seed](crate::executor::Builder::seed) repeats it. Several of them in one chain are independent.
///
/// It is a handle: clones share the switch and the rate, which can be changed while calls go on. While it is off, a call costs
/// one look at an atomic.
///
/// ```
/// # use steadfast::{Chaos, Executor, Retry, error::Limit};
/// # let clock = steadfast::clock::Clock::manual();
/// # clock.block_on(async {
/// let outage = Chaos::fail(1.0, || "no route to host");
/// let search = Executor::builder("search").policies((Retry::exponential(), outage.clone())).clock(&clock).build().unwrap();
///
/// let error = search.run(|_| async { Ok(7) }).await.unwrap_err();
/// assert_eq!((error.last(), error.attempts()), (Some(&"no route to host"), 3));
/// assert_eq!(outage.switch().injected(), 3);
///
/// outage.switch().turn_off();
/// assert_eq!(search.run(|_| async { Ok(7) }).await.unwrap(), 7);
/// # });
/// ```
#[derive(Clone)]
#[must_use = "a policy does nothing until it is part of a chain"]
pub struct Chaos<I> {
    switch: Switch,
    injection: I,
}

/// Turns a [`Chaos`] on and off and changes its rate while calls go on; from [`Chaos::switch`].
#[derive(Clone)]
pub struct Switch(Arc<State>);

struct State {
    /// The bits of a number from 0 to 1, or of one that is refused when a chain is built.
    rate: AtomicU64,
    is_on: AtomicBool,
    injected: AtomicU64,
}

impl<F> Chaos<Fail<F>> {
    /// Ends a share of `rate` of the calls with the error that `error` makes, as if the operation had: it is `Transient`. For
    /// an error with another verdict see [`replace`](Chaos::replace). `rate` is from 0, none, to 1, all.
    pub fn fail<E>(rate: f64, error: F) -> Chaos<Fail<F>>
    where
        F: Fn() -> E,
    {
        Chaos::new(rate, Fail(error))
    }
}

impl<F> Chaos<Replace<F>> {
    /// Ends a share of `rate` of the calls with what `answer` makes, a `Result` or an [`Outcome`] with a
    /// verdict of its own, as if the operation had. `rate` is from 0, none, to 1, all.
    ///
    /// ```
    /// # use steadfast::{Chaos, Retry, Verdict, policy::Outcome};
    /// let corrupt = Chaos::replace(0.01, || Outcome::<u32, &str>::failed("corrupt", Verdict::Fatal));
    /// # let policies = (Retry::exponential(), corrupt);
    /// ```
    pub fn replace<A>(rate: f64, answer: F) -> Chaos<Replace<F>>
    where
        F: Fn() -> A,
    {
        Chaos::new(rate, Replace(answer))
    }
}

impl Chaos<Delay> {
    /// Holds back the result of a share of `rate` of the calls for `delay`, on the clock of the call. `rate` is from 0, none, to
    /// 1, all; `Duration::MAX` holds it back for ever, which shows a dependency that does not answer.
    ///
    /// The operation has run by then: a timeout that cuts the delay off loses the answer and not the request.
    pub fn delay(rate: f64, delay: Duration) -> Chaos<Delay> {
        Chaos::new(rate, Delay(delay))
    }
}

impl<I> Chaos<I> {
    fn new(rate: f64, injection: I) -> Chaos<I> {
        let (rate, is_on, injected) = (AtomicU64::new(rate.to_bits()), AtomicBool::new(true), AtomicU64::new(0));
        Chaos { switch: Switch(Arc::new(State { rate, is_on, injected })), injection }
    }

    /// What turns it on and off. It is on at first.
    pub fn switch(&self) -> &Switch {
        &self.switch
    }

    /// Refuses a rate that is none.
    ///
    /// # Errors
    /// If the rate is not a number from 0 to 1.
    pub fn check(&self) -> Result<(), ConfigError> {
        check(self.switch.rate())
    }

    /// Whether this call is one of those that are hit. A call that is being ended is not.
    #[inline]
    fn hits<E>(&self, call: Call<'_, E>) -> bool {
        self.switch.is_on() && self.draws(call)
    }

    #[cold]
    fn draws<E>(&self, call: Call<'_, E>) -> bool {
        let core = call.scope().core;
        // What is injected is an attempt, and counts as one.
        let hit = core.may_start() && call.ended().is_none() && core.rng().unit() < self.switch.rate();
        if hit {
            self.switch.0.injected.fetch_add(1, Relaxed);
            call.emit(|| What::ChaosInjected);
        }
        hit
    }
}

impl Switch {
    /// Injects from now on.
    pub fn turn_on(&self) {
        self.0.is_on.store(true, Relaxed);
    }

    /// Injects nothing from now on. Delays that have begun go on.
    pub fn turn_off(&self) {
        self.0.is_on.store(false, Relaxed);
    }

    /// Whether it injects anything.
    #[must_use]
    #[inline]
    pub fn is_on(&self) -> bool {
        self.0.is_on.load(Relaxed)
    }

    /// Changes the share of calls that are hit.
    ///
    /// # Errors
    /// If `rate` is not a number from 0 to 1; nothing is changed then.
    pub fn set_rate(&self, rate: f64) -> Result<(), ConfigError> {
        check(rate)?;
        self.0.rate.store(rate.to_bits(), Relaxed);
        Ok(())
    }

    /// The share of calls that are hit, from 0 to 1.
    #[must_use]
    pub fn rate(&self) -> f64 {
        f64::from_bits(self.0.rate.load(Relaxed))
    }

    /// How many calls were hit so far.
    #[must_use]
    pub fn injected(&self) -> u64 {
        self.0.injected.load(Relaxed)
    }
}

fn check(rate: f64) -> Result<(), ConfigError> {
    if (0.0..=1.0).contains(&rate) {
        return Ok(());
    }
    Err(ConfigError::new("Chaos::rate", rate, "must be from 0 to 1"))
}

/// See [`Chaos::fail`].
#[derive(Clone, Copy, Debug)]
pub struct Fail<F>(F);

/// See [`Chaos::replace`].
#[derive(Clone, Copy, Debug)]
pub struct Replace<F>(F);

/// See [`Chaos::delay`].
#[derive(Clone, Copy, Debug)]
pub struct Delay(Duration);

impl<I> Settings for Chaos<I> {
    fn validate(&self, _: &mut Site<'_>) -> Result<(), ConfigError> {
        self.check()
    }
}

impl<T: Send, E: Send, F: Fn() -> E + Send + Sync> Policy<T, E> for Chaos<Fail<F>> {
    async fn run<N: Next<T, E>>(&self, call: Call<'_, E>, next: N) -> Outcome<T, E> {
        if !self.hits(call) {
            return next.call(call).await;
        }
        inject(call, || Outcome::failed((self.injection.0)(), Verdict::Transient))
    }
}

impl<T: Send, E: Send, A: Answer<T, E>, F: Fn() -> A + Send + Sync> Policy<T, E> for Chaos<Replace<F>> {
    async fn run<N: Next<T, E>>(&self, call: Call<'_, E>, next: N) -> Outcome<T, E> {
        if !self.hits(call) {
            return next.call(call).await;
        }
        inject(call, || (self.injection.0)().judged())
    }
}

impl<T: Send, E: Send> Policy<T, E> for Chaos<Delay> {
    async fn run<N: Next<T, E>>(&self, call: Call<'_, E>, next: N) -> Outcome<T, E> {
        if !self.hits(call) {
            return next.call(call).await;
        }
        let outcome = next.call(call).await;
        call.tell_untold(outcome.ruling);
        let late = Late { next, outcome: Some(outcome) };
        // By a timer of the run, which knows of nearer ones, and which whatever ends the run drops.
        let until = call.scope().core.look() + self.injection.0;
        pin!(Alarm::new(call.scope(), until)).await;
        late.arrive()
    }
}

/// What the operation has ended with, before the caller of the try gets it. If that is never, its value is given up.
struct Late<T, E, N: Next<T, E>> {
    next: N,
    /// Taken out when it arrives.
    outcome: Option<Outcome<T, E>>,
}

impl<T, E, N: Next<T, E>> Late<T, E, N> {
    fn arrive(mut self) -> Outcome<T, E> {
        self.outcome.take().expect("taken out here alone")
    }
}

impl<T, E, N: Next<T, E>> Drop for Late<T, E, N> {
    fn drop(&mut self) {
        if let Some(Outcome { result: Ok(value), .. }) = self.outcome.take() {
            discard_now(self.next, value);
        }
    }
}

/// An attempt of which the operation knows nothing.
fn inject<T, E>(call: Call<'_, E>, answer: impl FnOnce() -> Outcome<T, E>) -> Outcome<T, E> {
    // Allowed: whoever injects has asked in this same poll.
    call.mark_started();
    let outcome = call.blame(answer);
    if call.is_observed() {
        call.attempt_finished(outcome.ruling);
    }
    outcome
}

impl<I> fmt::Debug for Chaos<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let injection = std::any::type_name::<I>().split('<').next().and_then(|path| path.rsplit("::").next());
        f.debug_struct("Chaos").field("injects", &injection.unwrap_or_default()).field("switch", &self.switch).finish()
    }
}

impl fmt::Debug for Switch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Switch")
            .field("is_on", &self.is_on())
            .field("rate", &self.rate())
            .field("injected", &self.injected())
            .finish()
    }
}
