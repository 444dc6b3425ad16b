//! The settings of the standard chain.

use std::time::Duration;

use crate::breaker::{BreakerConfig, DEFAULT_BUCKETS, DEFAULT_FAILURE_RATE, DEFAULT_MINIMUM_CALLS, TripRule};
use crate::budget::BudgetConfig;
use crate::error::ConfigError;
use crate::limit::{BulkheadConfig, RateLimiterConfig};
use crate::retry::Retry;

/// The settings of the [standard chain](crate::standard) and of its budget: plain data with a default for everything.
///
/// The setters take anything; [`check`](StandardConfig::check) says what is wrong.
///
/// | setting | default |
/// |---|---|
/// | [`bulkhead`](StandardConfig::bulkhead) | 1,000 calls at a time, no queue |
/// | [`total_timeout`](StandardConfig::total_timeout) | 30 s for all attempts and waits |
/// | [`retry`](StandardConfig::retry) | [`Retry::exponential`]: 3 attempts, 200 ms doubled, full jitter |
/// | [`breaker`](StandardConfig::breaker) | half of at least 20 calls in 30 s failed, or 10 in a row; open for 5 s |
/// | [`rate_limit`](StandardConfig::rate_limit) | none |
/// | [`attempt_timeout`](StandardConfig::attempt_timeout) | 9 s for one attempt |
/// | [`budget`](StandardConfig::budget) | [`BudgetConfig::default`]: a tenth of the calls may be retried |
///
/// ```
/// use steadfast::limit::RateLimiterConfig;
/// use steadfast::standard::StandardConfig;
/// use std::time::Duration;
///
/// let config = StandardConfig::default().rate_limit(RateLimiterConfig::per_second(50));
/// assert!(config.check().is_ok());
///
/// let refused = config.attempt_timeout(Duration::from_secs(40)).check().unwrap_err();
/// assert_eq!(refused.to_string(), "attempt_timeout = 40s: must be shorter than the total timeout");
/// ```
///
/// # In a file
/// With the feature `serde` it is read from any self-describing format (TOML, JSON), and a file names only what differs from the default; times are text with
/// a unit, unknown fields are refused, and "off" takes away what can be absent:
///
/// ```
/// # #[cfg(feature = "serde")] {
/// use steadfast::standard::StandardConfig;
///
/// let config: StandardConfig = serde_json::from_str(r#"{
///     "attempt_timeout": "2s",
///     "retry": { "max_attempts": 5, "base": "50ms" },
///     "breaker": { "open_for": "10s", "rule": { "consecutive": "off" } },
///     "rate_limit": { "per": 90, "period": "1m", "max_wait": "250ms" },
///     "budget": "off"
/// }"#).unwrap();
/// assert!(config.check().is_ok());
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "settings do nothing until a chain has them"]
pub struct StandardConfig {
    pub(super) bulkhead: BulkheadConfig,
    pub(super) total_timeout: Duration,
    pub(super) retry: Retry,
    pub(super) breaker: BreakerConfig,
    pub(super) rate_limit: Option<RateLimiterConfig>,
    pub(super) attempt_timeout: Duration,
    pub(super) budget: Option<BudgetConfig>,
}

impl StandardConfig {
    /// How many calls may run at a time.
    pub fn bulkhead(mut self, config: BulkheadConfig) -> StandardConfig {
        self.bulkhead = config;
        self
    }

    /// The limit on all attempts and waits together. Default: [`DEFAULT_TOTAL_TIMEOUT`]; longer than zero, `Duration::MAX` means
    /// never.
    pub fn total_timeout(mut self, limit: Duration) -> StandardConfig {
        self.total_timeout = limit;
        self
    }

    /// Which outcomes are tried again, how often, and after which waits. Functions (computed waits, a listener) cannot be part
    /// of it, since the numbers may change while calls go on.
    pub fn retry(mut self, retry: Retry) -> StandardConfig {
        self.retry = retry;
        self
    }

    /// When the breaker opens, and for how long. Listeners may be part of it; they stay when other numbers bring none.
    pub fn breaker(mut self, config: BreakerConfig) -> StandardConfig {
        self.breaker = config;
        self
    }

    /// How many attempts may be made in a time; `None` is no limit, the default. Every attempt takes one token.
    pub fn rate_limit(mut self, config: impl Into<Option<RateLimiterConfig>>) -> StandardConfig {
        self.rate_limit = config.into();
        self
    }

    /// The limit on one attempt. Default: [`DEFAULT_ATTEMPT_TIMEOUT`]; longer than zero and shorter than the total limit.
    pub fn attempt_timeout(mut self, limit: Duration) -> StandardConfig {
        self.attempt_timeout = limit;
        self
    }

    /// What bounds the retries of all runs together; `None` leaves them to the policies.
    pub fn budget(mut self, config: impl Into<Option<BudgetConfig>>) -> StandardConfig {
        self.budget = config.into();
        self
    }

    /// The breaker's settings, to add what no file carries (listeners, a seed, predicates) and give them back.
    ///
    /// ```
    /// use steadfast::standard::StandardConfig;
    ///
    /// let config = StandardConfig::default(); // from a file, say
    /// let breaker = config.breaker_config().clone().on_transition(|transition| println!("{transition:?}"));
    /// assert!(config.breaker(breaker).check().is_ok());
    /// ```
    pub fn breaker_config(&self) -> &BreakerConfig {
        &self.breaker
    }

    /// The limit on all attempts and waits together.
    #[must_use]
    pub fn total_limit(&self) -> Duration {
        self.total_timeout
    }

    /// The limit on one attempt.
    #[must_use]
    pub fn attempt_limit(&self) -> Duration {
        self.attempt_timeout
    }

    /// Says whether these settings make a chain: each by itself, and all of them together.
    ///
    /// # Errors
    /// The first setting that is out of its range, or does not go with the others, with its part, its value and the rule.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.bulkhead.check().map_err(|refused| refused.within("bulkhead"))?;
        self.retry.check().and_then(|()| self.retry.check_plain()).map_err(|refused| refused.within("retry"))?;
        self.breaker.check().map_err(|refused| refused.within("breaker"))?;
        let rate_limit = self.rate_limit.as_ref();
        let checked = rate_limit.map_or(Ok(()), |rate| rate.check().and_then(|()| rate.check_weight()));
        checked.map_err(|refused| refused.within("rate_limit"))?;
        self.budget.as_ref().map_or(Ok(()), BudgetConfig::check).map_err(|refused| refused.within("budget"))?;
        self.check_times()
    }

    fn check_times(&self) -> Result<(), ConfigError> {
        let (total, attempt) = (self.total_timeout, self.attempt_timeout);
        for (field, limit) in [("total_timeout", total), ("attempt_timeout", attempt)] {
            if limit.is_zero() {
                return Err(ConfigError::new(field, "0s", "must be longer than zero"));
            }
        }
        if attempt >= total {
            let attempt = format_args!("{attempt:?}");
            return Err(ConfigError::new("attempt_timeout", attempt, "must be shorter than the total timeout"));
        }
        match self.breaker.window() {
            Some(window) if window < attempt => {
                let rule = "must be at least as long as the attempt timeout, or an outage of calls that hang is forgotten \
                            before it is seen";
                Err(ConfigError::new("window", format_args!("{window:?}"), rule).within("breaker.rule"))
            }
            _ => Ok(()),
        }
    }

    /// What can work, and is seldom meant: if all attempts take as long as they may, the total timeout cuts the last ones off.
    ///
    /// ```
    /// use steadfast::standard::StandardConfig;
    /// use std::time::Duration;
    ///
    /// assert!(StandardConfig::default().warnings().is_empty());
    /// let hurried = StandardConfig::default().total_timeout(Duration::from_secs(20));
    /// assert!(hurried.check().is_ok());
    /// assert_eq!(hurried.warnings()[0].field(), "attempt_timeout");
    /// ```
    #[must_use]
    pub fn warnings(&self) -> Vec<ConfigError> {
        let mut warnings = Vec::new();
        let (total, attempt) = (self.total_timeout, self.attempt_timeout);
        // Without a number of attempts the total limit is meant to end them.
        if let Some(most) = self.retry.snapshot().max_attempts
            && attempt.saturating_mul(most) > total
        {
            let value = format_args!("{attempt:?}, {most} times");
            let rule = "is longer than the total timeout, which cuts off the last attempts";
            warnings.push(ConfigError::new("attempt_timeout", value, rule));
        }
        warnings
    }
}

impl Default for StandardConfig {
    fn default() -> StandardConfig {
        let rule = TripRule::failure_rate(DEFAULT_FAILURE_RATE).window(DEFAULT_BUCKETS, DEFAULT_BUCKET_WIDTH);
        let rule = rule.minimum_calls(DEFAULT_MINIMUM_CALLS).or(TripRule::consecutive(DEFAULT_CONSECUTIVE_FAILURES));
        StandardConfig {
            bulkhead: BulkheadConfig::new(DEFAULT_PERMITS),
            total_timeout: DEFAULT_TOTAL_TIMEOUT,
            retry: Retry::exponential(),
            breaker: BreakerConfig::default().rule(rule).open_for(DEFAULT_OPEN_TIME),
            rate_limit: None,
            attempt_timeout: DEFAULT_ATTEMPT_TIMEOUT,
            budget: Some(BudgetConfig::default()),
        }
    }
}

/// How many calls run at a time: 1,000. A bound at all is what matters: it keeps a dependency that hangs from taking all the
/// memory of its callers.
pub const DEFAULT_PERMITS: usize = 1_000;

/// The limit on a whole run: 30 s, what a client or a load balancer in front waits for.
pub const DEFAULT_TOTAL_TIMEOUT: Duration = Duration::from_secs(30);

/// The limit on one attempt: 9 s, so that three of them fit into the total limit, with time for the waits between them.
pub const DEFAULT_ATTEMPT_TIMEOUT: Duration = Duration::from_secs(9);

/// The width of a bucket of the breaker's window: 3 s, so that ten of them remember attempts that hang for as long as they may.
pub const DEFAULT_BUCKET_WIDTH: Duration = Duration::from_secs(3);

/// How many failures in a row open the breaker: 10. A dependency that is down is found out sooner than the window is filled.
pub const DEFAULT_CONSECUTIVE_FAILURES: u32 = 10;

/// How long the breaker stays open: 5 s. One trial in that time is no load, and runs that wait between attempts may still see it
/// close.
pub const DEFAULT_OPEN_TIME: Duration = Duration::from_secs(5);
