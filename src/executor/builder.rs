//! How an executor is put together.

#[cfg(feature = "tracing")]
use std::any::Any;
use std::sync::Arc;

use super::{Executor, Shared};
use crate::budget::Budget;
use crate::clock::Clock;
use crate::error::{ConfigError, Name};
use crate::event::{Observer, Observers};
use crate::life::Life;
use crate::policy::{Settings, Site};
use crate::rng::Rng;
use crate::run::Setup;
#[cfg(feature = "tracing")]
use crate::tracing::Tracing;

/// Builds an [`Executor`]; from [`Executor::builder`].
#[derive(Debug)]
#[must_use = "a builder does nothing until it is built"]
pub struct Builder<P> {
    name: Result<Name, ConfigError>,
    clock: Clock,
    rng: Option<Rng>,
    observers: Observers,
    budget: Option<Budget>,
    policies: P,
}

impl Builder<()> {
    pub(super) fn new(name: &str) -> Builder<()> {
        Builder {
            name: Name::new(name),
            clock: Clock::tokio(),
            rng: None,
            observers: Observers::default(),
            budget: Some(Budget::default()),
            policies: (),
        }
    }
}

impl<P> Builder<P> {
    /// The policies, from the outside in. Default: none. A plain closure's errors are all taken to be worth another
    /// attempt: **tell the chain which are permanent**, with a judging policy innermost or with
    /// [`op`](crate::op) or [`faults`](crate::operation::faults) at the operation.
    pub fn policies<Q>(self, policies: Q) -> Builder<Q> {
        let Builder { name, clock, rng, observers, budget, policies: _ } = self;
        Builder { name, clock, rng, observers, budget, policies }
    }

    /// The clock of every run and every policy. Default: [`Clock::tokio`].
    pub fn clock(mut self, clock: impl Into<Clock>) -> Builder<P> {
        self.clock = clock.into();
        self
    }

    /// Draws all jitter from one source seeded with `seed`. Default: unseeded.
    pub fn seed(mut self, seed: u64) -> Builder<P> {
        self.rng = Some(Rng::seeded(seed));
        self
    }

    /// Tells `observer` of what happens in every run. May be called several times; they are told in that order. Default:
    /// nobody, and then no event is built.
    pub fn observe(mut self, observer: impl Observer) -> Builder<P> {
        #[cfg(feature = "tracing")]
        if (&observer as &dyn Any).is::<Tracing>() {
            self.observers.push_tracing(Arc::new(observer));
            return self;
        }
        self.observers.push(Arc::new(observer));
        self
    }

    /// Bounds the retries and hedges of all runs together, and of those of other executors that are given a clone. Default:
    /// [`Budget::default`], of this executor alone.
    pub fn budget(mut self, budget: Budget) -> Builder<P> {
        self.budget = Some(budget);
        self
    }

    /// Leaves retries and hedges to the policies: during an outage every run makes all the attempts that it may.
    pub fn unbudgeted(mut self) -> Builder<P> {
        self.budget = None;
        self
    }

    /// Builds the executor.
    ///
    /// # Errors
    /// The first setting that cannot work: the name, then the budget, then each policy from the outside in; or a budget or a
    /// policy that keeps to another clock.
    pub fn build(self) -> Result<Executor<P>, ConfigError>
    where
        P: Settings,
    {
        let Builder { name, clock, rng, observers, budget, policies } = self;
        let name = name?;
        if let Some(budget) = &budget {
            budget.check()?;
        }
        policies.validate(&mut Site::new(&clock))?;
        // Last, so that a chain that is refused leaves a shared budget to others.
        if let Some(budget) = &budget {
            budget.bind(&clock)?;
        }
        let life = Arc::new(Life::default());
        let setup = Setup { name: Some(name), clock, rng, observers, life: Some(Arc::clone(&life)), budget };
        Ok(Executor(Arc::new(Shared { name, life, setup, policies })))
    }
}

#[cfg(all(test, feature = "tracing", not(steadfast_loom)))]
mod tests {
    use std::future::{pending, ready};
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    use std::sync::{Mutex, MutexGuard, PoisonError};

    use ::tracing::level_filters::LevelFilter;
    use ::tracing::subscriber::with_default;
    use ::tracing::{Dispatch, Subscriber};
    use tracing_subscriber::Registry;
    use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

    use super::*;
    use crate::event::{Audience, Event, What};
    use crate::policy::{Call, Next, Outcome, Policy};

    /// `tracing` has one level for all threads, which stays as it is after a subscriber is gone, and is computed when the next one
    /// comes: here one that wants nothing. Nobody else touches it until what this gives is dropped.
    fn without_subscriber() -> MutexGuard<'static, ()> {
        static TURN: Mutex<()> = Mutex::new(());
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        drop(Dispatch::new(Registry::default().with(LevelFilter::OFF)));
        assert_eq!(LevelFilter::current(), LevelFilter::OFF);
        turn
    }

    /// Counts what a subscriber is told, an observer sees, or a run builds.
    #[derive(Clone, Default)]
    struct Counter(Arc<AtomicUsize>);

    impl Counter {
        fn add(&self) {
            self.0.fetch_add(1, Relaxed);
        }

        fn take(&self) -> usize {
            self.0.swap(0, Relaxed)
        }

        fn is_subscribed(&self, run: impl FnOnce()) {
            with_default(Registry::default().with(self.clone()), run);
        }
    }

    impl<S: Subscriber> Layer<S> for Counter {
        fn on_event(&self, _: &::tracing::Event<'_>, _: Context<'_, S>) {
            self.add();
        }
    }

    impl Observer for Counter {
        fn on_event(&self, _: &Event) {
            self.add();
        }
    }

    impl Settings for Counter {}

    impl<T: Send, E: Send> Policy<T, E> for Counter {
        async fn run<N: Next<T, E>>(&self, call: Call<'_, E>, next: N) -> Outcome<T, E> {
            call.emit(|| {
                self.add();
                What::HedgeStarted
            });
            next.call(call).await
        }
    }

    fn builder() -> Builder<()> {
        Executor::builder("billing")
    }

    fn run<P: Policy<(), ()> + Settings>(builder: Builder<P>) {
        let executor = builder.build().expect("the settings are valid");
        tokio_test::block_on(executor.run(|_| ready(Ok::<_, ()>(())))).expect("the operation succeeds");
    }

    #[test]
    fn only_an_executor_with_nothing_but_tracing_need_not_ask_its_observers() {
        let audience = |builder: Builder<()>| builder.observers.audience();
        let closure = |_: &Event| {};
        let traced = |builder: Builder<()>| builder.observe(Tracing::new());
        assert_eq!(audience(builder()), Audience::Nobody);
        for builder in [traced(builder()), traced(traced(builder()))] {
            assert_eq!(audience(builder), Audience::Tracing);
        }
        let observed = builder().observe(closure);
        let before = traced(builder().observe(closure));
        let after = traced(builder()).observe(closure);
        let between = traced(traced(builder()).observe(closure));
        for builder in [observed, before, after, between] {
            assert_eq!(audience(builder), Audience::Anybody);
        }
    }

    #[test]
    fn without_a_subscriber_no_event_is_built_for_tracing() {
        let _turn = without_subscriber();
        let (built, told) = (Counter::default(), Counter::default());
        let traced = || builder().policies(built.clone()).observe(Tracing::new());
        for builder in [traced(), traced().observe(Tracing::new())] {
            run(builder);
            assert_eq!(built.take(), 0);
        }
        told.is_subscribed(|| run(traced()));
        assert_eq!((built.take(), told.take()), (1, 4));
        told.is_subscribed(|| run(traced().observe(Tracing::new())));
        assert_eq!((built.take(), told.take()), (1, 8));
    }

    #[test]
    fn an_observer_beside_tracing_sees_everything_without_a_subscriber_too() {
        let _turn = without_subscriber();
        let (seen, told) = (Counter::default(), Counter::default());
        let after = || builder().observe(Tracing::new()).observe(seen.clone());
        let before = || builder().observe(seen.clone()).observe(Tracing::new());
        for builder in [after(), before()] {
            run(builder);
            assert_eq!(seen.take(), 4);
        }
        for builder in [after(), before()] {
            told.is_subscribed(|| run(builder));
            assert_eq!((seen.take(), told.take()), (4, 3));
        }
    }

    #[test]
    fn a_subscriber_is_told_of_the_runs_that_are_first_polled_after_it_came() {
        let _turn = without_subscriber();
        let told = Counter::default();
        let executor = builder().observe(Tracing::new()).build().unwrap();
        let start = || tokio_test::task::spawn(executor.run(|_| pending::<Result<(), ()>>()));
        let (mut early, mut late) = (start(), start());
        assert!(early.poll().is_pending());
        told.is_subscribed(|| {
            assert!(early.poll().is_pending());
            drop(early);
            assert_eq!(told.take(), 0);
            assert!(late.poll().is_pending());
            drop(late);
            assert_eq!(told.take(), 3);
        });
    }
}
