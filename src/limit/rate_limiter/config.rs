//! The settings of a rate limiter.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::gcra::Rate;
use crate::context::Context;
use crate::error::ConfigError;

/// The settings of a [`RateLimiter`](super::RateLimiter): plain data. A rate has no default; everything else has one.
///
/// The setters take anything; [`check`](RateLimiterConfig::check) says what is wrong.
///
/// ```
/// use std::time::Duration;
/// use steadfast::limit::RateLimiterConfig;
///
/// let config = RateLimiterConfig::per(90, Duration::from_secs(60)).burst(10).max_wait(Duration::from_secs(2));
/// assert!(config.check().is_ok());
/// assert_eq!(config.burst(0).check().unwrap_err().field(), "burst");
/// ```
#[derive(Clone, Debug)]
pub struct RateLimiterConfig {
    pub(super) tokens: u64,
    pub(super) period: Duration,
    pub(super) burst: Option<u64>,
    pub(super) max_wait: Duration,
    pub(super) queue: usize,
    pub(super) weight: Weight,
}

/// How many tokens a call of a chain takes.
#[derive(Clone)]
pub(super) enum Weight {
    Fixed(u64),
    By(Arc<dyn Fn(&Context) -> u64 + Send + Sync>),
}

impl RateLimiterConfig {
    /// `n` calls a second, from 1 to [`MAX_RATE`].
    #[must_use]
    pub fn per_second(n: u64) -> RateLimiterConfig {
        RateLimiterConfig::per(n, Duration::from_secs(1))
    }

    /// `n` calls in each `period`; at least 1, and at most [`MAX_RATE`] a second. They are spread evenly: `per(60, a minute)`
    /// gains one token a second.
    ///
    /// The time for one token is rounded up to eighths of a nanosecond, so a rate of ten million a second is kept to within
    /// 0.13 %, and slower ones more closely.
    #[must_use]
    pub fn per(n: u64, period: Duration) -> RateLimiterConfig {
        let (max_wait, weight) = (Duration::ZERO, Weight::Fixed(1));
        RateLimiterConfig { tokens: n, period, burst: None, max_wait, queue: DEFAULT_RATE_QUEUE, weight }
    }

    /// Sets how many calls may go at once after a pause: the tokens that a bucket holds. Default: the `n` of the rate; at least
    /// 1, and no more than come in within [`MAX_FILL_TIME`].
    ///
    /// In any stretch of time no more than the burst and what the rate gives are admitted; with a burst of 1 calls are spread
    /// out evenly.
    #[must_use]
    pub fn burst(mut self, tokens: u64) -> RateLimiterConfig {
        self.burst = Some(tokens);
        self
    }

    /// Sets how long a call may wait for its tokens. Default: zero, a call that cannot go at once is refused at once. One that
    /// would have to wait for longer is refused at once as well, with the exact wait.
    #[must_use]
    pub fn max_wait(mut self, wait: Duration) -> RateLimiterConfig {
        self.max_wait = wait;
        self
    }

    /// Sets how many calls may wait at a time; others are refused. Default: [`DEFAULT_RATE_QUEUE`]; at least 1 if calls may wait.
    #[must_use]
    pub fn queue(mut self, calls: usize) -> RateLimiterConfig {
        self.queue = calls;
        self
    }

    /// Sets how many tokens a call of a chain takes. Default: 1; at least 1 and at most the burst.
    #[must_use]
    pub fn weight(mut self, tokens: u64) -> RateLimiterConfig {
        self.weight = Weight::Fixed(tokens);
        self
    }

    /// Computes for each call of a chain how many tokens it takes, by what its caller brought. A call of weight 0 is admitted;
    /// one of more than the burst is refused. A panic reaches the caller.
    ///
    /// ```
    /// # use steadfast::limit::RateLimiterConfig;
    /// use steadfast::{Context, Priority};
    ///
    /// let by_priority = |cx: &Context| if cx.priority() < Priority::Normal { 5 } else { 1 };
    /// let config = RateLimiterConfig::per_second(100).weigh_by(by_priority);
    /// assert!(config.check().is_ok());
    /// ```
    #[must_use]
    pub fn weigh_by(mut self, weight: impl Fn(&Context) -> u64 + Send + Sync + 'static) -> RateLimiterConfig {
        self.weight = Weight::By(Arc::new(weight));
        self
    }

    /// Says whether these settings make a rate limiter.
    ///
    /// # Errors
    /// The first setting that is out of its range, with the rule that it breaks.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.rate().map(drop)
    }

    /// Refuses weights: those of calls cannot be changed.
    pub(crate) fn check_weight(&self) -> Result<(), ConfigError> {
        match &self.weight {
            Weight::Fixed(1) => Ok(()),
            weight => {
                let rule = "must be 1 in a chain that can be changed, since the weights of calls cannot";
                Err(ConfigError::new("weight", format_args!("{weight:?}"), rule))
            }
        }
    }

    pub(super) fn weighing(self, weight: Weight) -> RateLimiterConfig {
        RateLimiterConfig { weight, ..self }
    }

    /// The rate, if all settings can work.
    pub(super) fn rate(&self) -> Result<Rate, ConfigError> {
        let refuse = |field, value: &dyn fmt::Display, rule| Err(ConfigError::new(field, value, rule));
        let (tokens, burst) = (self.tokens, self.burst.unwrap_or(self.tokens));
        if tokens == 0 {
            return refuse("per", &tokens, "must be at least 1");
        }
        if self.period.is_zero() {
            return refuse("period", &"0 s", "must be longer than zero");
        }
        if u128::from(tokens) > self.period.as_nanos() {
            return refuse("per", &tokens, "must be at most 1,000,000,000 a second");
        }
        if burst == 0 {
            return refuse("burst", &burst, "must be at least 1");
        }
        let Some(rate) = Rate::new(tokens, self.period, burst) else {
            return refuse("burst", &burst, "must come in within ten years");
        };
        if self.queue == 0 && !self.max_wait.is_zero() {
            return refuse("queue", &0, "must be at least 1 if calls may wait");
        }
        match self.weight {
            Weight::Fixed(0) => refuse("weight", &0, "must be at least 1"),
            Weight::Fixed(weight) if weight > burst => refuse("weight", &weight, "must not be more than the burst"),
            Weight::Fixed(_) | Weight::By(_) => Ok(rate),
        }
    }
}

impl Weight {
    #[inline]
    pub(super) fn of(&self, context: &Context) -> u64 {
        match self {
            Weight::Fixed(tokens) => *tokens,
            Weight::By(weight) => weight(context),
        }
    }
}

impl fmt::Debug for Weight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Weight::Fixed(tokens) => tokens.fmt(f),
            Weight::By(_) => f.write_str("computed"),
        }
    }
}

/// How many calls wait for a rate limiter at a time: 1,000. A bound at all is what matters; one that fills up says that
/// the rate is too low, and waiting will not help.
pub const DEFAULT_RATE_QUEUE: usize = 1_000;

/// The highest rate: a thousand million a second, one in each nanosecond of the clock.
pub const MAX_RATE: u64 = 1_000_000_000;

/// The longest time that a bucket may take to fill: ten years.
pub const MAX_FILL_TIME: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);
