use std::time::Duration;

use crate::error::ConfigError;

/// When a closed breaker opens.
///
/// A rate rule watches a rolling window of time and opens at a share of failures, once there were enough calls to
/// speak of a share at all. A consecutive rule opens after so many failures in a row, with no notion of time: it is the
/// quicker of the two when everything fails, and blind to anything less. [`or`](TripRule::or) joins them.
///
/// ```
/// use std::time::Duration;
/// use steadfast::breaker::{BreakerConfig, TripRule};
///
/// let rule = TripRule::failure_rate(0.5)
///     .window(10, Duration::from_secs(3))
///     .minimum_calls(50)
///     .or(TripRule::consecutive(10));
/// assert!(BreakerConfig::default().rule(rule).check().is_ok());
///
/// let never_met = TripRule::failure_rate(1.5);
/// assert!(BreakerConfig::default().rule(never_met).check().is_err());
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct TripRule {
    rates: Vec<RateRule>,
    consecutive: Option<u32>,
    /// A setting of the window on a rule that has none.
    misplaced: Option<&'static str>,
}

impl TripRule {
    /// Opens when at least this share of the calls in the window failed: more than 0, at most 1.
    ///
    /// The comparison is `failures / calls >= rate` and exact: 11 failures of 20 calls meet 0.55. The window is
    /// [`DEFAULT_BUCKETS`] buckets of [`DEFAULT_BUCKET_WIDTH`] and the minimum [`DEFAULT_MINIMUM_CALLS`] calls, unless
    /// set otherwise.
    #[must_use]
    pub fn failure_rate(rate: f64) -> Self {
        let rate = RateRule {
            rate,
            buckets: DEFAULT_BUCKETS,
            width: DEFAULT_BUCKET_WIDTH,
            minimum_calls: DEFAULT_MINIMUM_CALLS,
        };
        TripRule { rates: vec![rate], consecutive: None, misplaced: None }
    }

    /// Opens after so many failures without a success between them: at least 1.
    ///
    /// Outcomes that say nothing about the dependency do not break the row. [`DEFAULT_FAILURE_THRESHOLD`] is a common
    /// choice.
    #[must_use]
    pub fn consecutive(failures: u32) -> Self {
        TripRule { rates: Vec::new(), consecutive: Some(failures), misplaced: None }
    }

    /// Sets the window of the rate rule: `buckets` (1 to [`MAX_BUCKETS`]) of `width` (at least [`MIN_BUCKET_WIDTH`]).
    ///
    /// The window moves by one bucket at a time, so it covers between `buckets - 1` and `buckets` widths. It should be
    /// longer than a slow call takes.
    #[must_use]
    pub fn window(mut self, buckets: u32, width: Duration) -> Self {
        self.set("window", |rate| (rate.buckets, rate.width) = (buckets, width));
        self
    }

    /// Sets how many calls the window must hold before the rate rule may open the breaker: at least 1.
    #[must_use]
    pub fn minimum_calls(mut self, calls: u32) -> Self {
        self.set("minimum_calls", |rate| rate.minimum_calls = calls);
        self
    }

    /// Opens when this rule or `other` says so.
    ///
    /// Of two consecutive rules the smaller number counts. There can be one rate rule only, since a breaker has one
    /// window; a second one is an error of [`check`](super::BreakerConfig::check).
    #[must_use]
    pub fn or(mut self, other: TripRule) -> Self {
        self.rates.extend(other.rates);
        self.consecutive = match (self.consecutive, other.consecutive) {
            (Some(mine), Some(its)) => Some(mine.min(its)),
            (mine, its) => mine.or(its),
        };
        self.misplaced = self.misplaced.or(other.misplaced);
        self
    }

    pub(super) fn rate(&self) -> Option<&RateRule> {
        self.rates.first()
    }

    pub(super) fn consecutive_failures(&self) -> Option<u32> {
        self.consecutive
    }

    pub(super) fn check(&self) -> Result<(), ConfigError> {
        if let Some(setting) = self.misplaced {
            return Err(ConfigError::new("rule", setting, "belongs to a rate rule, and there is none"));
        }
        if self.rates.len() > 1 {
            let count = self.rates.len();
            return Err(ConfigError::new("failure_rate", count, "a breaker has one rate rule at most"));
        }
        if self.consecutive == Some(0) {
            return Err(ConfigError::new("consecutive", 0, "must be at least 1"));
        }
        self.rate().map_or(Ok(()), RateRule::check)
    }

    fn set(&mut self, setting: &'static str, change: impl Fn(&mut RateRule)) {
        if self.rates.is_empty() {
            self.misplaced = Some(setting);
        }
        self.rates.iter_mut().for_each(change);
    }
}

impl Default for TripRule {
    /// Half of the calls failed, of at least 20 within ten seconds.
    fn default() -> Self {
        TripRule::failure_rate(DEFAULT_FAILURE_RATE)
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct RateRule {
    pub(super) rate: f64,
    pub(super) buckets: u32,
    pub(super) width: Duration,
    pub(super) minimum_calls: u32,
}

impl RateRule {
    fn check(&self) -> Result<(), ConfigError> {
        if !(self.rate > 0.0 && self.rate <= 1.0) {
            return Err(ConfigError::new("failure_rate", self.rate, "must be above 0 and at most 1"));
        }
        if !(1..=MAX_BUCKETS).contains(&self.buckets) {
            return Err(ConfigError::new("window", self.buckets, "must have 1 to 3600 buckets"));
        }
        if self.width < MIN_BUCKET_WIDTH {
            let width = format_args!("{:?}", self.width);
            return Err(ConfigError::new("window", width, "must have buckets of at least 1 ms"));
        }
        if self.minimum_calls == 0 {
            return Err(ConfigError::new("minimum_calls", 0, "must be at least 1"));
        }
        Ok(())
    }
}

/// The share of failures that opens a breaker: 0.5. Below it more calls succeed than fail, and refusing them all would
/// do more harm than the dependency does.
pub const DEFAULT_FAILURE_RATE: f64 = 0.5;

/// The number of buckets of the window: 10, so that the window moves in steps of a tenth of itself.
pub const DEFAULT_BUCKETS: u32 = 10;

/// The width of a bucket: 1 s. Ten of them react within seconds and gather the minimum of calls at two a second.
pub const DEFAULT_BUCKET_WIDTH: Duration = Duration::from_secs(1);

/// The calls without which there is no rate: 20. With fewer, a handful of unlucky calls looks like an outage.
pub const DEFAULT_MINIMUM_CALLS: u32 = 20;

/// A common number for [`TripRule::consecutive`]: 5. By chance alone, a dependency that fails one call in ten does so
/// five times in a row once in 100,000 calls.
pub const DEFAULT_FAILURE_THRESHOLD: u32 = 5;

/// The most buckets that a window may have: 3,600, an hour of seconds. Each failure adds all of them up.
pub const MAX_BUCKETS: u32 = 3_600;

/// The narrowest bucket: 1 ms, which is less than the time by which threads are late with what they report.
pub const MIN_BUCKET_WIDTH: Duration = Duration::from_millis(1);

#[cfg(all(test, not(steadfast_loom)))]
mod tests {
    use super::*;

    fn refused_field(rule: &TripRule) -> Option<&'static str> {
        rule.check().err().map(|error| error.field())
    }

    #[test]
    fn rates_outside_of_their_range_are_refused() {
        for rate in [f64::NAN, -0.5, -0.0, 0.0, 1.000_001, f64::INFINITY, f64::NEG_INFINITY] {
            assert_eq!(refused_field(&TripRule::failure_rate(rate)), Some("failure_rate"), "{rate}");
        }
        for rate in [f64::MIN_POSITIVE, 0.5, 1.0] {
            assert_eq!(refused_field(&TripRule::failure_rate(rate)), None, "{rate}");
        }
    }

    #[test]
    fn windows_that_hold_nothing_are_refused() {
        let window = |buckets, width| refused_field(&TripRule::default().window(buckets, width));
        assert_eq!(window(0, DEFAULT_BUCKET_WIDTH), Some("window"));
        assert_eq!(window(MAX_BUCKETS + 1, DEFAULT_BUCKET_WIDTH), Some("window"));
        assert_eq!(window(10, Duration::ZERO), Some("window"));
        assert_eq!(window(10, Duration::from_micros(999)), Some("window"));
        assert_eq!(window(1, MIN_BUCKET_WIDTH), None);
        assert_eq!(window(MAX_BUCKETS, Duration::MAX), None);
    }

    #[test]
    fn zero_counts_are_refused() {
        assert_eq!(refused_field(&TripRule::default().minimum_calls(0)), Some("minimum_calls"));
        assert_eq!(refused_field(&TripRule::consecutive(0)), Some("consecutive"));
    }

    #[test]
    fn a_window_on_a_rule_without_one_is_refused() {
        let rule = TripRule::consecutive(5).window(10, DEFAULT_BUCKET_WIDTH);
        assert_eq!(refused_field(&rule), Some("rule"));
        assert_eq!(refused_field(&TripRule::default().or(rule)), Some("rule"));
        let joined = TripRule::consecutive(5).or(TripRule::default()).minimum_calls(3);
        assert_eq!(refused_field(&joined), None);
        assert_eq!(joined.rate().map(|rate| rate.minimum_calls), Some(3));
    }

    #[test]
    fn a_second_rate_is_refused() {
        let rule = TripRule::failure_rate(0.5).or(TripRule::failure_rate(0.9).minimum_calls(5));
        assert_eq!(refused_field(&rule), Some("failure_rate"));
    }

    #[test]
    fn of_two_consecutive_rules_the_smaller_counts() {
        let rule = TripRule::consecutive(7).or(TripRule::consecutive(3));
        assert_eq!(rule, TripRule::consecutive(3));
    }
}
