//! How an executor is put together.

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
