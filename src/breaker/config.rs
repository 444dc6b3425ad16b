use std::time::Duration;

use super::listeners::Listeners;
use super::rule::{TimeWindow, TripRule};
use super::transition::Transition;
use crate::error::ConfigError;
use crate::rng::Rng;
use crate::verdict::Verdict;

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
    pub(super) open_backoff: Option<OpenBackoff>,
    pub(super) open_jitter: f64,
    pub(super) rng: Option<Rng>,
    pub(super) trials: u32,
    pub(super) successes_to_close: u32,
    pub(super) trial_rate: Option<TrialRate>,
    pub(super) trial_deadline: Option<Duration>,
    pub(super) abandoned_trial: Option<AbandonedTrial>,
    pub(super) pause_on_retry_after: Option<Duration>,
    pub(super) throttled_as: Option<Verdict>,
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

    /// Lets the open time grow by `factor` (at least 1) with every opening that follows another without a healthy time
    /// between them, up to `cap` (at least the open time): a trial that fails again and again is made less often. The
    /// breaker is healthy again when it has been closed for a whole window (with a rule that has no window of time, for the
    /// open time). Default: the open time does not grow.
    #[must_use]
    pub fn open_backoff(mut self, factor: f64, cap: Duration) -> Self {
        self.open_backoff = Some(OpenBackoff { factor, cap });
        self
    }

    /// Shortens every open time by a random share of up to `share`, 0 to 1, so that the breakers of many processes do not
    /// make their trials together. Default: [`DEFAULT_OPEN_JITTER`].
    #[must_use]
    pub fn open_jitter(mut self, share: f64) -> Self {
        self.open_jitter = share;
        self
    }

    /// Makes the jitter repeatable, for tests and simulations. Breakers that are made from one configuration share the
    /// sequence. Default: nobody can foresee it.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.rng = Some(Rng::seeded(seed));
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

    /// Lets a share decide instead of the first failure: of `trials` trials (at least 1) that may run at the same time, the
    /// breaker re-opens if at least `rate` of them fail (more than 0, at most 1), and closes otherwise, in both cases as
    /// soon as the rest cannot change that. Trials without a verdict are replaced, those that are abandoned among them,
    /// unless [`abandoned_trial`](BreakerConfig::abandoned_trial) says otherwise.
    ///
    /// It takes the place of [`trials`](BreakerConfig::trials) and [`successes_to_close`](BreakerConfig::successes_to_close).
    #[must_use]
    pub fn trial_rate(mut self, trials: u32, rate: f64) -> Self {
        self.trial_rate = Some(TrialRate { trials, rate });
        self
    }

    /// Sets how long a trial may take. When all the trials that may run have been running for longer, nobody will hear
    /// of them, and the breaker re-opens, counted from that moment. Default: the open time, before any backoff; more than
    /// zero.
    ///
    /// Where the policies inside the breaker limit a call to more than this, it is that limit and a second.
    #[must_use]
    pub fn trial_deadline(mut self, deadline: Duration) -> Self {
        self.trial_deadline = Some(deadline);
        self
    }

    /// Sets what becomes of a half-open breaker whose trial was abandoned by its caller. Default:
    /// [`AbandonedTrial::Reopen`], with a [`trial_rate`](BreakerConfig::trial_rate) [`AbandonedTrial::Release`].
    #[must_use]
    pub fn abandoned_trial(mut self, then: AbandonedTrial) -> Self {
        self.abandoned_trial = Some(then);
        self
    }

    /// Lets a closed breaker refuse calls for as long as a throttled one was asked to wait, at most `max` (more than zero):
    /// with [`Kind::RateLimited`](crate::error::Kind::RateLimited), since the dependency is well and only asks for patience.
    /// The state stays closed, and no trial is needed afterwards. Default: calls go on.
    #[must_use]
    pub fn pause_on_retry_after(mut self, max: Duration) -> Self {
        self.pause_on_retry_after = Some(max);
        self
    }

    /// Counts a throttled call as if it had this verdict. `Transient`, for a dependency that throttles when it is about to
    /// fall over, or `Success`, for one with a quota. How long it took does not count.
    /// Default: it is not counted, and a trial gives its place back.
    #[must_use]
    pub fn throttled_as(mut self, verdict: Verdict) -> Self {
        self.throttled_as = Some(verdict);
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
        self.open_backoff.map_or(Ok(()), |backoff| backoff.check(self.open_for))?;
        if !(0.0..=1.0).contains(&self.open_jitter) {
            return Err(ConfigError::new("open_jitter", self.open_jitter, "must be 0 to 1"));
        }
        check_count("trials", self.trials)?;
        check_count("successes_to_close", self.successes_to_close)?;
        self.trial_rate.map_or(Ok(()), TrialRate::check)?;
        self.trial_deadline.map_or(Ok(()), |deadline| check_time("trial_deadline", deadline))?;
        self.pause_on_retry_after.map_or(Ok(()), |max| check_time("pause_on_retry_after", max))
    }

    /// Keeps what settings from a file cannot bring: listeners, and the sequence of the jitter.
    pub(super) fn inherit(&mut self, present: &BreakerConfig) {
        if self.listeners.is_empty() {
            self.listeners = present.listeners.clone();
        }
        if self.rng.is_none() {
            self.rng.clone_from(&present.rng);
        }
    }

    /// How long a trial may take: as set, or as the policies inside need, whichever is longer.
    pub(super) fn time_for_trial(&self, inner_limit: Option<Duration>) -> Duration {
        let asked = self.trial_deadline.unwrap_or(self.open_for);
        inner_limit.map_or(asked, |limit| asked.max(limit.saturating_add(TRIAL_MARGIN)))
    }

    /// How long the breaker has to be closed before an opening is the first again.
    pub(super) fn healthy_window(&self) -> Duration {
        self.rule.window_of_time().map_or(self.open_for, TimeWindow::length)
    }

    /// How far the window of time reaches back, if there is one.
    pub(crate) fn window(&self) -> Option<Duration> {
        self.rule.window_of_time().map(TimeWindow::length)
    }

    /// The places for trials.
    fn places(&self) -> u32 {
        self.trial_rate.map_or(self.trials, |rate| rate.trials)
    }

    pub(super) fn releases_abandoned_trials(&self) -> bool {
        let default = if self.trial_rate.is_some() { AbandonedTrial::Release } else { AbandonedTrial::Reopen };
        self.abandoned_trial.unwrap_or(default) == AbandonedTrial::Release
    }

    /// A share of the jitter, from `[0, 1)`. Drawn without jitter as well, which may be set later.
    pub(super) fn draw_jitter(&self) -> f64 {
        self.rng.as_ref().unwrap_or(Rng::THREAD).unit()
    }

    /// How many trials of one half-open period may end without a verdict.
    pub(super) fn tolerated_without_verdict(&self) -> u32 {
        self.places().saturating_mul(WITHOUT_VERDICT_PER_TRIAL)
    }
}

impl Default for BreakerConfig {
    fn default() -> Self {
        BreakerConfig {
            rule: TripRule::default(),
            open_for: DEFAULT_OPEN_TIME,
            open_backoff: None,
            open_jitter: DEFAULT_OPEN_JITTER,
            rng: None,
            trials: DEFAULT_TRIALS,
            successes_to_close: DEFAULT_SUCCESSES_TO_CLOSE,
            trial_rate: None,
            trial_deadline: None,
            abandoned_trial: None,
            pause_on_retry_after: None,
            throttled_as: None,
            listeners: Listeners::default(),
        }
    }
}

/// What becomes of a half-open breaker whose trial was abandoned: its caller cancelled it or ran out of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum AbandonedTrial {
    /// The breaker re-opens for the whole open time. Callers who give up are, more often than not, a sign of a
    /// dependency that does not answer.
    #[default]
    Reopen,
    /// The place is given back and the next call is a trial. For callers that cancel for reasons of their own.
    Release,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct OpenBackoff {
    pub(super) factor: f64,
    pub(super) cap: Duration,
}

impl OpenBackoff {
    fn check(self, open_for: Duration) -> Result<(), ConfigError> {
        if !(self.factor >= 1.0 && self.factor.is_finite()) {
            return Err(ConfigError::new("open_backoff", self.factor, "must have a factor of at least 1"));
        }
        if self.cap < open_for {
            let cap = format_args!("{:?}", self.cap);
            return Err(ConfigError::new("open_backoff", cap, "must have a cap of at least the open time"));
        }
        Ok(())
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct TrialRate {
    pub(super) trials: u32,
    pub(super) rate: f64,
}

impl TrialRate {
    fn check(self) -> Result<(), ConfigError> {
        check_count("trial_rate", self.trials)?;
        if !(self.rate > 0.0 && self.rate <= 1.0) {
            return Err(ConfigError::new("trial_rate", self.rate, "must be above 0 and at most 1"));
        }
        Ok(())
    }
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

/// The random share of an open time that is taken away: none. One breaker has nobody to keep out of step with.
pub const DEFAULT_OPEN_JITTER: f64 = 0.0;

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
            (base().trial_rate(0, 0.5), "trial_rate"),
            (base().pause_on_retry_after(Duration::ZERO), "pause_on_retry_after"),
        ];
        for (config, field) in cases {
            assert_eq!(config.check().expect_err(field).field(), field);
        }
    }

    #[test]
    fn shares_and_factors_outside_of_their_range_are_refused() {
        let field = |config: BreakerConfig| config.check().err().map(|error| error.field());
        for share in [f64::NAN, -0.1, 1.1, f64::INFINITY] {
            assert_eq!(field(BreakerConfig::default().open_jitter(share)), Some("open_jitter"), "{share}");
            assert_eq!(field(BreakerConfig::default().trial_rate(5, share)), Some("trial_rate"), "{share}");
        }
        for factor in [f64::NAN, 0.99, -2.0, f64::INFINITY] {
            let config = BreakerConfig::default().open_backoff(factor, Duration::MAX);
            assert_eq!(field(config), Some("open_backoff"), "{factor}");
        }
        let below = BreakerConfig::default().open_backoff(2.0, DEFAULT_OPEN_TIME - Duration::from_nanos(1));
        assert_eq!(field(below), Some("open_backoff"));
        let fine = BreakerConfig::default().open_backoff(1.0, DEFAULT_OPEN_TIME).open_jitter(1.0).trial_rate(1, 1.0);
        assert_eq!(field(fine), None);
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
