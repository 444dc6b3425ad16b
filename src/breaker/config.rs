use std::time::Duration;

use super::listeners::Listeners;
use super::rule::TripRule;
use super::transition::Transition;
use crate::error::ConfigError;

/// The settings of a circuit breaker: plain data with a default for everything.
///
/// The setters take anything; [`check`](BreakerConfig::check) says what is wrong.
///
/// ```
/// use std::time::Duration;
/// use steadfast::breaker::{BreakerConfig, TripRule};
///
/// let config = BreakerConfig::default()
///     .rule(TripRule::failure_rate(0.25).minimum_calls(100))
///     .open_for(Duration::from_secs(5))
///     .trials(3)
///     .successes_to_close(3);
/// assert!(config.check().is_ok());
/// assert!(config.open_for(Duration::ZERO).check().is_err());
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct BreakerConfig {
    pub(super) rule: TripRule,
    pub(super) open_for: Duration,
    pub(super) trials: u32,
    pub(super) successes_to_close: u32,
    pub(super) trial_deadline: Option<Duration>,
    pub(super) abandoned_trial: AbandonedTrial,
    pub(super) listeners: Listeners,
}

impl BreakerConfig {
    /// Sets when the breaker opens. Default: half of at least 20 calls in ten seconds failed.
    #[must_use]
    pub fn rule(mut self, rule: TripRule) -> Self {
        self.rule = rule;
        self
    }

    /// Sets how long an open breaker refuses every call before it lets trials through. Default:
    /// [`DEFAULT_OPEN_TIME`]; more than zero. `Duration::MAX` means for ever.
    #[must_use]
    pub fn open_for(mut self, time: Duration) -> Self {
        self.open_for = time;
        self
    }

    /// Sets how many trials may run at the same time while the breaker is half-open; other calls are refused.
    /// Default: [`DEFAULT_TRIALS`]; at least 1.
    #[must_use]
    pub fn trials(mut self, trials: u32) -> Self {
        self.trials = trials;
        self
    }

    /// Sets how many trials must succeed before the breaker closes. A failed one re-opens it at once. Default:
    /// [`DEFAULT_SUCCESSES_TO_CLOSE`]; at least 1; may be more than run at the same time.
    #[must_use]
    pub fn successes_to_close(mut self, successes: u32) -> Self {
        self.successes_to_close = successes;
        self
    }

    /// Sets how long a trial may take. When all the trials that may run have been running for longer, nobody will hear
    /// of them, and the breaker re-opens, counted from that moment. Default: the open time; more than zero.
    ///
    /// Where the policies inside the breaker limit a call to more than this, it is that limit and a second.
    #[must_use]
    pub fn trial_deadline(mut self, deadline: Duration) -> Self {
        self.trial_deadline = Some(deadline);
        self
    }

    /// Sets what becomes of a half-open breaker whose trial was abandoned by its caller. Default:
    /// [`AbandonedTrial::Reopen`].
    #[must_use]
    pub fn abandoned_trial(mut self, then: AbandonedTrial) -> Self {
        self.abandoned_trial = then;
        self
    }

    /// Adds a listener that is told of every change of state, after the change and outside of every lock.
    ///
    /// The listeners of one breaker run one at a time and in the order of the changes, on whichever thread caused one
    /// of them; the call that did so waits for them, so they should be quick. They may use the breaker. A panic in one
    /// goes to the panic hook and no further: the call, the other listeners and later changes are not affected.
    ///
    /// ```
    /// use steadfast::breaker::BreakerConfig;
    ///
    /// let config = BreakerConfig::default()
    ///     .on_transition(|change| println!("billing: {} -> {}", change.from, change.to));
    /// assert!(config.check().is_ok());
    /// ```
    #[must_use]
    pub fn on_transition(mut self, listener: impl Fn(Transition) + Send + Sync + 'static) -> Self {
        self.listeners.add(listener);
        self
    }

    /// Says whether these settings make a breaker.
    ///
    /// # Errors
    ///
    /// The first setting that is out of its range, with the rule that it breaks.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.rule.check()?;
        check_time("open_for", self.open_for)?;
        check_count("trials", self.trials)?;
        check_count("successes_to_close", self.successes_to_close)?;
        self.trial_deadline.map_or(Ok(()), |deadline| check_time("trial_deadline", deadline))
    }

    /// How long a trial may take: as set, or as the policies inside need, whichever is longer.
    pub(super) fn time_for_trial(&self, inner_limit: Option<Duration>) -> Duration {
        let asked = self.trial_deadline.unwrap_or(self.open_for);
        inner_limit.map_or(asked, |limit| asked.max(limit.saturating_add(TRIAL_MARGIN)))
    }

    /// How many trials of one half-open period may end without a verdict.
    pub(super) fn tolerated_without_verdict(&self) -> u32 {
        self.trials.saturating_mul(WITHOUT_VERDICT_PER_TRIAL)
    }
}

impl Default for BreakerConfig {
    fn default() -> Self {
        BreakerConfig {
            rule: TripRule::default(),
            open_for: DEFAULT_OPEN_TIME,
            trials: DEFAULT_TRIALS,
            successes_to_close: DEFAULT_SUCCESSES_TO_CLOSE,
            trial_deadline: None,
            abandoned_trial: AbandonedTrial::default(),
            listeners: Listeners::default(),
        }
    }
}

/// What becomes of a half-open breaker whose trial was abandoned: its caller cancelled it or ran out of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AbandonedTrial {
    /// The breaker re-opens for the whole open time. Callers who give up are, more often than not, a sign of a
    /// dependency that does not answer.
    #[default]
    Reopen,
    /// The place is given back and the next call is a trial. For callers that cancel for reasons of their own.
    Release,
}

fn check_time(field: &'static str, time: Duration) -> Result<(), ConfigError> {
    if time.is_zero() {
        return Err(ConfigError::new(field, format_args!("{time:?}"), "must be more than zero"));
    }
    Ok(())
}

fn check_count(field: &'static str, count: u32) -> Result<(), ConfigError> {
    if count == 0 {
        return Err(ConfigError::new(field, count, "must be at least 1"));
    }
    Ok(())
}

/// How long a breaker stays open: 30 s, time for a restart or a failover, and short enough for nobody to intervene.
pub const DEFAULT_OPEN_TIME: Duration = Duration::from_secs(30);

/// How many trials run at the same time: 1. A dependency that comes back is spared a crowd.
pub const DEFAULT_TRIALS: u32 = 1;

/// How many trials must succeed: 1. The window catches what one lucky answer conceals.
pub const DEFAULT_SUCCESSES_TO_CLOSE: u32 = 1;

/// What a trial gets beyond the limit of the policies inside, so that their verdict is there before it expires.
const TRIAL_MARGIN: Duration = Duration::from_secs(1);

/// Trials without a verdict, for each that may run at a time, after which a period is given up: 10. Local trouble is
/// no reason to open, but calls that keep reaching a dependency and say nothing about it are no recovery either.
const WITHOUT_VERDICT_PER_TRIAL: u32 = 10;

#[cfg(all(test, not(steadfast_loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_valid() {
        assert!(BreakerConfig::default().check().is_ok());
    }

    #[test]
    fn zeroes_are_refused_by_name() {
        let base = BreakerConfig::default;
        let cases = [
            (base().open_for(Duration::ZERO), "open_for"),
            (base().trials(0), "trials"),
            (base().successes_to_close(0), "successes_to_close"),
            (base().trial_deadline(Duration::ZERO), "trial_deadline"),
            (base().rule(TripRule::consecutive(0)), "consecutive"),
        ];
        for (config, field) in cases {
            assert_eq!(config.check().expect_err(field).field(), field);
        }
    }

    #[test]
    fn the_largest_settings_are_valid() {
        let config = BreakerConfig::default()
            .open_for(Duration::MAX)
            .trials(u32::MAX)
            .successes_to_close(u32::MAX)
            .trial_deadline(Duration::MAX);
        assert!(config.check().is_ok());
        assert_eq!(config.tolerated_without_verdict(), u32::MAX);
        assert_eq!(config.time_for_trial(Some(Duration::MAX)), Duration::MAX);
    }

    #[test]
    fn a_trial_may_take_as_long_as_the_inner_limit_and_a_second() {
        let seconds = Duration::from_secs;
        let config = BreakerConfig::default().open_for(seconds(5));
        assert_eq!(config.time_for_trial(None), seconds(5));
        assert_eq!(config.time_for_trial(Some(seconds(4))), seconds(5));
        assert_eq!(config.time_for_trial(Some(seconds(9))), seconds(10));
        assert_eq!(config.trial_deadline(seconds(2)).time_for_trial(None), seconds(2));
    }
}
