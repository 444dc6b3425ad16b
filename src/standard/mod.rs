//! The chain that most calls to a dependency should go through, with numbers that can come from a file and change while calls go
//! on.
//!
//! ```text
//! Bulkhead ─► Timeout (the whole) ─► Retry ─► Breaker ─► RateLimiter, if asked ─► Timeout (one attempt) ─► the operation
//! ```
//!
//! * The bulkhead is outside of everything: calls in excess are refused before they take any time.
//! * The total timeout bounds attempts and waits together, whatever their numbers.
//! * The breaker is inside of the retry, so that it sees each attempt, and outside of the attempt's timeout, so that it sees those
//!   that time out.
//! * The rate limit counts attempts, since they are what reaches the dependency. An open breaker refuses before it, so that
//!   nobody waits in line for a refusal; and waiting in line does not take from the time of the attempt.
//!
//! [`StandardConfig`] has the numbers, with a default for each. [`Executor::standard`] builds:
//!
//! ```
//! use steadfast::standard::{StandardChain, StandardConfig};
//! use steadfast::{Executor, Retry};
//! use std::time::Duration;
//!
//! struct Service {
//!     billing: Executor<StandardChain>,
//! }
//!
//! let config = StandardConfig::default().attempt_timeout(Duration::from_secs(2)).retry(Retry::exponential().max_attempts(5));
//! let service = Service { billing: Executor::standard("billing").config(config).build()? };
//! # let _ = service.billing.snapshot();
//! # Ok::<_, steadfast::ConfigError>(())
//! ```

mod chain;
mod config;
#[cfg(feature = "serde")]
pub(crate) mod document;
mod live;
mod numbers;

pub use self::chain::StandardChain;
pub use self::config::{
    DEFAULT_ATTEMPT_TIMEOUT, DEFAULT_BUCKET_WIDTH, DEFAULT_CONSECUTIVE_FAILURES, DEFAULT_OPEN_TIME, DEFAULT_PERMITS,
    DEFAULT_TOTAL_TIMEOUT, StandardConfig,
};
use crate::error::ConfigError;
use crate::event::What;
use crate::executor::{Builder, Executor};

impl Executor {
    /// Begins to build an executor for the dependency `name` with the recommended chain: see [`standard`](crate::standard). Its
    /// numbers are those of [`StandardConfig::default`] unless [`config`](Builder::config) says otherwise.
    ///
    /// ```
    /// use steadfast::Executor;
    ///
    /// # let clock = steadfast::clock::Clock::manual();
    /// # clock.block_on(async {
    /// let billing = Executor::standard("billing")
    /// #   .clock(&clock)
    ///     .build()?;
    /// let invoice = billing.run(|_| async { Ok::<_, String>("invoice 7") }).await;
    /// assert_eq!(invoice.unwrap(), "invoice 7");
    /// # Ok::<_, steadfast::ConfigError>(())
    /// # }).unwrap();
    /// ```
    pub fn standard(name: impl AsRef<str>) -> Builder<StandardChain> {
        with_chain(Executor::builder(name), StandardConfig::default())
    }
}

impl Builder<StandardChain> {
    /// The numbers of the chain and of its budget. Default: [`StandardConfig::default`]. A [`budget`](Builder::budget) that is set
    /// after this takes the place of the one in `config`, and does not change with it.
    pub fn config(self, config: StandardConfig) -> Builder<StandardChain> {
        with_chain(self, config)
    }
}

/// What can be changed of an executor with the standard chain.
impl Executor<StandardChain> {
    /// Changes every number while calls go on: see [`StandardChain::reconfigure`]. The observers are told when it is done.
    ///
    /// # Errors
    /// If a number cannot work, or cannot be changed while the chain runs. Nothing has changed then.
    pub fn reconfigure(&self, config: StandardConfig) -> Result<(), ConfigError> {
        self.policies().reconfigure(config)?;
        self.tell(What::Reconfigured { by: "standard" });
        Ok(())
    }

    /// The numbers that it has now.
    pub fn config(&self) -> StandardConfig {
        self.policies().config()
    }
}

fn with_chain<P>(builder: Builder<P>, config: StandardConfig) -> Builder<StandardChain> {
    let chain = StandardChain::new(config);
    let budget = chain.budget().cloned();
    let builder = builder.policies(chain);
    match budget {
        Some(budget) => builder.budget(budget),
        None => builder.unbudgeted(),
    }
}
