//! The standard chain as its users hold it.

use std::fmt;
use std::mem;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::config::StandardConfig;
use super::live::Live;
use super::numbers::{Numbers, WORDS};
use crate::breaker::Breaker;
use crate::budget::Budget;
use crate::clock::Clock;
use crate::error::ConfigError;
use crate::limit::{Bulkhead, RateLimiter};
use crate::policy::{Call, Next, Outcome, Policy, Settings, Site};
use crate::retry::Retry;
use crate::snapshot::PolicySnapshot;
use crate::sync::{Mutex, lock};
use crate::timeout::Timeout;
use crate::turnstile::Turnstile;

/// The recommended chain: see [`standard`](crate::standard), and [`Executor::standard`](crate::Executor::standard), which builds an
/// executor around one.
///
/// A handle: clones share state and numbers. The parts that have state can be used by themselves, to open the breaker by hand,
/// say; what their own `reconfigure` changes is overridden by that of the chain.
#[derive(Clone)]
#[must_use = "a policy does nothing until it is part of a chain"]
pub struct StandardChain(Arc<Parts>);

struct Parts {
    bulkhead: Bulkhead,
    breaker: Breaker,
    /// Made when there first is a limit, and kept then: its balance outlasts a time without one.
    rate_limiter: OnceLock<RateLimiter>,
    budget: Option<Budget>,
    /// Those of the parts without state.
    numbers: Live<WORDS>,
    /// The newest settings, which are in effect or about to be.
    present: Mutex<Arc<StandardConfig>>,
    changes: Turnstile,
    checked: Result<(), ConfigError>,
    /// For a rate limiter that is made later.
    clock: OnceLock<Clock>,
}

/// The policies of one run.
type Chain<'a> = (&'a Bulkhead, Timeout, Retry, &'a Breaker, Option<&'a RateLimiter>, Timeout);

impl StandardChain {
    /// A chain with these numbers. Those that cannot work are refused where it is used: building an executor fails, a run ends
    /// with [`Kind::Misconfigured`](crate::error::Kind::Misconfigured).
    pub fn new(config: StandardConfig) -> StandardChain {
        let checked = config.check();
        // Whoever refuses to run has no use for numbers that cannot work.
        let config = if checked.is_ok() { config } else { StandardConfig::default() };
        let rate_limiter = OnceLock::new();
        if let Some(rate) = &config.rate_limit {
            rate_limiter.get_or_init(|| RateLimiter::new(rate.clone()));
        }
        StandardChain(Arc::new(Parts {
            bulkhead: Bulkhead::with(config.bulkhead.clone()),
            breaker: Breaker::new(config.breaker.clone()),
            rate_limiter,
            budget: config.budget.clone().map(Budget::with),
            numbers: Live::new(Numbers::pack(&config)),
            present: Mutex::new(Arc::new(config)),
            changes: Turnstile::default(),
            checked,
            clock: OnceLock::new(),
        }))
    }

    /// Changes every number while calls go on. A call that runs keeps the limits and the retry that it began with, all of one set
    /// of numbers; what calls share (breaker, limits, budget) goes by the new ones from the next decision on. What was counted,
    /// saved up, and queued for stays.
    ///
    /// What cannot be changed: the window of the breaker and the form of the budget, since there is nothing to compare their
    /// counts with, and whether there is a budget.
    ///
    /// If another thread changes the numbers at this moment, it may be the one that puts these into effect, just after this
    /// returns.
    ///
    /// ```
    /// use steadfast::Executor;
    /// use steadfast::limit::BulkheadConfig;
    /// use steadfast::standard::StandardConfig;
    ///
    /// let billing = Executor::standard("billing").build()?;
    /// billing.reconfigure(StandardConfig::default().bulkhead(BulkheadConfig::new(50)))?;
    /// assert_eq!(billing.policies().bulkhead().permits(), 50);
    ///
    /// let refused = billing.reconfigure(StandardConfig::default().bulkhead(BulkheadConfig::new(0))).unwrap_err();
    /// assert_eq!(refused.to_string(), "bulkhead.permits = 0: must be from 1 to 2,147,483,647");
    /// assert_eq!(billing.policies().bulkhead().permits(), 50);
    /// # Ok::<_, steadfast::ConfigError>(())
    /// ```
    ///
    /// # Errors
    /// If a number cannot work, or cannot be changed. Nothing has changed then.
    pub fn reconfigure(&self, config: StandardConfig) -> Result<(), ConfigError> {
        self.check_change(&config)?;
        let before = mem::replace(&mut *lock(&self.0.present), Arc::new(config));
        // Under no lock: listeners are the user's.
        drop(before);
        self.0.changes.pass(|| self.0.apply(&self.present()))
    }

    /// The newest numbers.
    pub fn config(&self) -> StandardConfig {
        StandardConfig::clone(&self.present())
    }

    /// The breaker, to watch it and for commands by hand.
    pub fn breaker(&self) -> &Breaker {
        &self.0.breaker
    }

    /// The bulkhead.
    pub fn bulkhead(&self) -> &Bulkhead {
        &self.0.bulkhead
    }

    /// The rate limiter, if there is a limit now.
    #[must_use]
    pub fn rate_limiter(&self) -> Option<&RateLimiter> {
        self.0.rate_limiter.get().filter(|_| Numbers::unpack(&self.0.numbers.read()).is_rate_limited)
    }

    /// The budget of an executor with this chain, unless it was given another.
    #[must_use]
    pub fn budget(&self) -> Option<&Budget> {
        self.0.budget.as_ref()
    }

    /// Whether it could take these numbers. What the answer depends on never changes.
    pub(crate) fn check_change(&self, to: &StandardConfig) -> Result<(), ConfigError> {
        self.0.checked.clone()?;
        to.check()?;
        self.0.breaker.check_change(&to.breaker).map_err(|refused| refused.within("breaker.rule"))?;
        match (&self.0.budget, &to.budget) {
            (Some(present), Some(next)) => present.check_change(next).map_err(|refused| refused.within("budget")),
            (None, None) => Ok(()),
            (_, next) => {
                let value = if next.is_some() { "on" } else { "off" };
                Err(ConfigError::new("budget", value, "cannot be turned on or off while the executor runs"))
            }
        }
    }

    fn present(&self) -> Arc<StandardConfig> {
        Arc::clone(&lock(&self.0.present))
    }
}

impl Parts {
    /// Puts numbers into effect that were checked, so that no part refuses them. One thread at a time.
    fn apply(&self, config: &StandardConfig) -> Result<(), ConfigError> {
        self.breaker.reconfigure(config.breaker.clone())?;
        self.bulkhead.reconfigure(config.bulkhead.clone())?;
        if let (Some(budget), Some(next)) = (&self.budget, &config.budget) {
            budget.reconfigure(next.clone())?;
        }
        if let Some(rate) = &config.rate_limit {
            let limiter = self.rate_limiter.get_or_init(|| RateLimiter::new(rate.clone()));
            self.clock.get().map_or(Ok(()), |clock| limiter.bind(clock.clone()))?;
            limiter.reconfigure(rate.clone())?;
        }
        self.numbers.store(&Numbers::pack(config));
        Ok(())
    }

    /// The policies of a run that begins now.
    #[inline]
    fn chain(&self) -> Chain<'_> {
        let Numbers { total_timeout, attempt_timeout, is_rate_limited, retry } = Numbers::unpack(&self.numbers.read());
        let rate_limiter = if is_rate_limited { self.rate_limiter.get() } else { None };
        let (total, attempt) = (Timeout::new(total_timeout), Timeout::new(attempt_timeout));
        (&self.bulkhead, total, retry, &self.breaker, rate_limiter, attempt)
    }
}

impl Settings for StandardChain {
    fn validate(&self, site: &mut Site<'_>) -> Result<(), ConfigError> {
        self.0.checked.clone()?;
        self.0.chain().validate(site)?;
        self.0.clock.get_or_init(|| site.clock().clone());
        Ok(())
    }

    fn limit(&self, inner: Option<Duration>) -> Option<Duration> {
        self.0.chain().limit(inner)
    }

    fn snapshots(&self, all: &mut Vec<PolicySnapshot>) {
        self.0.chain().snapshots(all);
    }
}

impl<T: Send, E: Send + fmt::Debug> Policy<T, E> for StandardChain {
    #[inline]
    fn run<N: Next<T, E>>(&self, call: Call<'_, E>, next: N) -> impl Future<Output = Outcome<T, E>> + Send {
        async move {
            // In the frame of the run, which is what keeps it to one set of numbers.
            let chain = self.0.chain();
            chain.run(call, next).await
        }
    }
}

impl fmt::Debug for StandardChain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("StandardChain").field(&self.0.chain()).finish()
    }
}
