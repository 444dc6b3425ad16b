//! All executors of a program, by the name of the dependency, from one configuration.

mod config;
#[cfg(feature = "serde")]
mod document;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

pub use self::config::RegistryConfig;
use self::config::part;
use crate::error::ConfigError;
use crate::executor::{Builder, Executor};
use crate::snapshot::ExecutorSnapshot;
use crate::standard::StandardChain;
use crate::sync::{Mutex, lock};
use crate::turnstile::Turnstile;

/// Executors with the [standard chain](crate::standard) by the name of the dependency: made once, found everywhere, listed, watched
/// and changed together.
///
/// A handle: clones are the same registry. Executors are made from the configuration, and for other names from its defaults
/// when they are first asked for; none is ever taken out.
///
/// **Names are those of dependencies**, from code and configuration. A name from input (a host, a user) would make a new executor
/// for whatever comes; for those there is [`Keyed`](crate::Keyed). A program can use [`MAX_NAMES`](crate::error::MAX_NAMES)
/// different ones.
///
/// ```
/// use steadfast::registry::{Registry, RegistryConfig};
/// use steadfast::standard::StandardConfig;
/// use std::time::Duration;
///
/// # let clock = steadfast::clock::Clock::manual();
/// let quick = StandardConfig::default().attempt_timeout(Duration::from_millis(500));
/// let config = RegistryConfig::default().executor("search", quick);
/// let registry = Registry::from_config(config)?;
/// # let quick = StandardConfig::default();
/// # let (config, on) = (RegistryConfig::default().executor("search", quick), clock.clone());
/// # let registry = Registry::with(config, move |builder| builder.clock(&on))?;
/// let search = registry.get_or_create("search")?;
/// # clock.block_on(async {
/// assert_eq!(search.run(|_| async { Ok::<_, String>(3) }).await.unwrap(), 3);
/// # });
/// assert_eq!(registry.names(), ["search"]);
/// assert_eq!(registry.snapshot()[0].name, "search");
/// # Ok::<_, steadfast::ConfigError>(())
/// ```
#[derive(Clone)]
pub struct Registry(Arc<Shared>);

struct Shared {
    /// What every executor gets beside its settings.
    prepare: Box<Prepare>,
    state: Mutex<State>,
    changes: Turnstile,
}

type Prepare = dyn Fn(Builder<StandardChain>) -> Builder<StandardChain> + Send + Sync;

/// Executors that are in it were made from its configuration, or are about to be changed to it.
struct State {
    config: Arc<RegistryConfig>,
    executors: BTreeMap<&'static str, Executor<StandardChain>>,
}

impl Registry {
    /// Makes an executor for each dependency that `config` names, on the default clock and without observers.
    ///
    /// # Errors
    /// The first setting that cannot work, with the dependency that it belongs to.
    pub fn from_config(config: RegistryConfig) -> Result<Registry, ConfigError> {
        Registry::with(config, |builder| builder)
    }

    /// [`from_config`](Registry::from_config) for executors that need more: each is built as `prepare` leaves its builder, with a
    /// clock, a seed, observers.
    ///
    /// # Errors
    /// As [`from_config`](Registry::from_config), and what building an executor says.
    pub fn with(
        config: RegistryConfig,
        prepare: impl Fn(Builder<StandardChain>) -> Builder<StandardChain> + Send + Sync + 'static,
    ) -> Result<Registry, ConfigError> {
        config.check()?;
        let state = State { config: Arc::new(config), executors: BTreeMap::new() };
        let shared = Shared { prepare: Box::new(prepare), state: Mutex::new(state), changes: Turnstile::default() };
        let registry = Registry(Arc::new(shared));
        for name in registry.config().executors.keys() {
            registry.get_or_create(name)?;
        }
        Ok(registry)
    }

    /// The executor of the dependency `name`, if there is one.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<Executor<StandardChain>> {
        lock(&self.0.state).executors.get(name).cloned()
    }

    /// The executor of the dependency `name`. If there is none it is made, from the defaults of the configuration; of several
    /// threads that ask at the same moment all get the same one.
    ///
    /// # Errors
    /// If the name cannot be one, or an executor cannot be built.
    pub fn get_or_create(&self, name: &str) -> Result<Executor<StandardChain>, ConfigError> {
        loop {
            let config = {
                let state = lock(&self.0.state);
                if let Some(known) = state.executors.get(name) {
                    return Ok(known.clone());
                }
                Arc::clone(&state.config)
            };
            // Under no lock: `prepare` is the user's.
            let made = self.make(name, &config)?;
            let mut state = lock(&self.0.state);
            if Arc::ptr_eq(&config, &state.config) {
                let kept = state.executors.entry(made.name()).or_insert_with(|| made.clone()).clone();
                drop(state);
                return Ok(kept);
            }
        }
    }

    /// The names of the executors that there are, in alphabetical order.
    #[must_use]
    pub fn names(&self) -> Vec<&'static str> {
        lock(&self.0.state).executors.keys().copied().collect()
    }

    /// The executors that there are, in the alphabetical order of their names.
    #[must_use]
    pub fn executors(&self) -> Vec<Executor<StandardChain>> {
        lock(&self.0.state).executors.values().cloned().collect()
    }

    /// The state of all of them, as data: see [`snapshot`](crate::snapshot).
    #[must_use]
    pub fn snapshot(&self) -> Vec<ExecutorSnapshot> {
        self.executors().iter().map(Executor::snapshot).collect()
    }

    /// The configuration in effect, or about to be.
    pub fn config(&self) -> Arc<RegistryConfig> {
        Arc::clone(&lock(&self.0.state).config)
    }

    /// Changes all executors to another configuration, while calls go on: see
    /// [`StandardChain::reconfigure`](crate::standard::StandardChain::reconfigure) for what stays. Executors for names that are new
    /// in it are made; those that it names no more go by its defaults.
    ///
    /// Either all of it is taken or nothing. If another thread changes the configuration at this moment, it may be the one that
    /// puts this one into effect, just after this returns.
    ///
    /// ```
    /// use steadfast::registry::{Registry, RegistryConfig};
    /// use steadfast::standard::StandardConfig;
    /// use std::time::Duration;
    ///
    /// let registry = Registry::from_config(RegistryConfig::default().executor("billing", StandardConfig::default()))?;
    /// let bad = StandardConfig::default().attempt_timeout(Duration::ZERO);
    /// let refused = registry.reload(RegistryConfig::default().executor("billing", bad)).unwrap_err();
    /// assert_eq!(refused.to_string(), "executors.billing.attempt_timeout = 0s: must be longer than zero");
    /// # Ok::<_, steadfast::ConfigError>(())
    /// ```
    ///
    /// # Errors
    /// The first setting that cannot work, or cannot be changed, with the dependency that it belongs to. Nothing has changed then.
    pub fn reload(&self, config: RegistryConfig) -> Result<(), ConfigError> {
        config.check()?;
        let missing = config.executors.keys().filter(|name| self.get(name).is_none());
        let made = missing.map(|name| self.make(name, &config)).collect::<Result<Vec<_>, _>>()?;
        let mut state = lock(&self.0.state);
        // One that another thread has made in the meantime is looked at like those that were there.
        for (name, executor) in &state.executors {
            executor.policies().check_change(config.of(name)).map_err(|refused| refused.within(&part(name)))?;
        }
        for executor in &made {
            state.executors.entry(executor.name()).or_insert_with(|| executor.clone());
        }
        let before = std::mem::replace(&mut state.config, Arc::new(config));
        drop(state);
        drop(before);
        self.0.changes.pass(|| self.apply())
    }

    fn make(&self, name: &str, config: &RegistryConfig) -> Result<Executor<StandardChain>, ConfigError> {
        let builder = Executor::standard(name).config(config.of(name).clone());
        (self.0.prepare)(builder).build().map_err(|refused| refused.within(&part(name)))
    }

    /// Changes all executors to the configuration, which was checked.
    fn apply(&self) -> Result<(), ConfigError> {
        let config = self.config();
        self.executors().iter().try_for_each(|executor| executor.reconfigure(config.of(executor.name()).clone()))
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry").field("executors", &self.names()).finish_non_exhaustive()
    }
}
