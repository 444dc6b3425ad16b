#[cfg(feature = "serde")]
pub(super) mod document;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::transition::Counts;
use crate::error::ConfigError;
use crate::shield::shielded;

/// When a closed breaker opens.
///
/// * [`failure_rate`](TripRule::failure_rate) watches a rolling window of time and opens at a share of failures, once there
///   were enough calls to speak of a share at all; [`slow_rate`](TripRule::slow_rate) likewise at a share of slow calls.
/// * [`count_window`](TripRule::count_window) watches the last so many calls, however long ago they were.
/// * [`consecutive`](TripRule::consecutive) opens after so many failures in a row: the quickest when everything fails, and
///   blind to anything less.
/// * [`should_trip`](TripRule::should_trip) asks a function of your own.
///
/// [`or`](TripRule::or) joins them.
///
/// ```
/// use std::time::Duration;
/// use steadfast::breaker::{BreakerConfig, TripRule};
///
/// let rule = TripRule::failure_rate(0.5)
///     .window(10, Duration::from_secs(3))
///     .minimum_calls(50)
///     .or(TripRule::slow_rate(0.8).slow_call(Duration::from_secs(2)))
///     .or(TripRule::consecutive(10));
/// assert!(BreakerConfig::default().rule(rule).check().is_ok());
///
/// let never_met = TripRule::failure_rate(1.5);
/// assert!(BreakerConfig::default().rule(never_met).check().is_err());
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct TripRule {
    failure_rate: Option<f64>,
    slow: Option<SlowRule>,
    predicates: Vec<Predicate>,
    count: Option<CountRule>,
    consecutive: Option<u32>,
    buckets: Option<(u32, Duration)>,
    minimum_calls: Option<u32>,
    /// What the setters could not make sense of.
    problem: Option<ConfigError>,
}

impl TripRule {
    /// Opens when at least this share of the calls in the window failed: more than 0, at most 1.
    ///
    /// The comparison is `failures / calls >= rate` and exact: 11 failures of 20 calls meet 0.55. The window is
    /// [`DEFAULT_BUCKETS`] buckets of [`DEFAULT_BUCKET_WIDTH`] and the minimum [`DEFAULT_MINIMUM_CALLS`] calls, unless
    /// set otherwise.
    #[must_use]
    pub fn failure_rate(rate: f64) -> Self {
        TripRule { failure_rate: Some(rate), ..TripRule::empty() }
    }

    /// Opens when at least this share of the calls in the window were slow, whether they succeeded or failed: more than 0,
    /// at most 1. What is slow is said by [`slow_call`](TripRule::slow_call), [`DEFAULT_SLOW_CALL`] by default; the window
    /// and the minimum are those of the failure rate.
    ///
    /// A call that its caller gave up, or that lost a hedge race, counts as slow if it had run for that long, and as
    /// nothing otherwise. While half-open, a slow trial is a failed one.
    #[must_use]
    pub fn slow_rate(rate: f64) -> Self {
        let slow = SlowRule { rate, call: DEFAULT_SLOW_CALL };
        TripRule { slow: Some(slow), ..TripRule::empty() }
    }

    /// Opens when at least this share of the last `calls` calls failed, more than 0 and at most 1, however long ago they
    /// were. `calls` is 1 to [`MAX_COUNT_WINDOW`]; until there were so many the rule does not open the breaker, unless
    /// [`minimum_calls`](TripRule::minimum_calls) says that fewer will do.
    ///
    /// It costs more than a window of time: every call writes what all calls share.
    #[must_use]
    pub fn count_window(calls: u32, rate: f64) -> Self {
        let count = CountRule { calls, rate, minimum_calls: None };
        TripRule { count: Some(count), ..TripRule::empty() }
    }

    /// Opens after so many failures without a success between them: at least 1.
    ///
    /// Outcomes that say nothing about the dependency do not break the row. [`DEFAULT_FAILURE_THRESHOLD`] is a common
    /// choice.
    #[must_use]
    pub fn consecutive(failures: u32) -> Self {
        TripRule { consecutive: Some(failures), ..TripRule::empty() }
    }

    /// Opens when `predicate` says so of the [`Counts`] of the window of time.
    ///
    /// It is asked after each failure and each slow call, after every call below the minimum of calls, and after the
    /// first call of each bucket: whenever a rule that gets no nearer by a success can become true. The minimum does not
    /// bind it otherwise. It runs outside of every lock, within the call that ended, and may use the breaker. If it panics,
    /// the panic hook is told, and the answer is no.
    ///
    /// ```
    /// use steadfast::breaker::{Breaker, BreakerConfig, TripRule};
    ///
    /// let rule = TripRule::should_trip(|counts| counts.failures >= 10 && counts.rate() >= Some(0.2));
    /// let breaker = Breaker::new(BreakerConfig::default().rule(rule));
    /// ```
    #[must_use]
    pub fn should_trip(predicate: impl Fn(&Counts) -> bool + Send + Sync + 'static) -> Self {
        TripRule { predicates: vec![Predicate(Arc::new(predicate))], ..TripRule::empty() }
    }

    /// Sets the window of time: `buckets` (1 to [`MAX_BUCKETS`]) of `width` (at least [`MIN_BUCKET_WIDTH`]).
    ///
    /// The window moves by one bucket at a time, so it covers between `buckets - 1` and `buckets` widths. It should be
    /// longer than a slow call takes.
    #[must_use]
    pub fn window(mut self, buckets: u32, width: Duration) -> Self {
        if self.has_time_window() {
            self.buckets = Some((buckets, width));
        } else {
            self.misplaced("window", "belongs to a rule with a window of time, and there is none");
        }
        self
    }

    /// Sets how many calls the window must hold before a rate may open the breaker: at least 1, and of a window of calls at
    /// most its size.
    #[must_use]
    pub fn minimum_calls(mut self, calls: u32) -> Self {
        if let Some(count) = &mut self.count {
            count.minimum_calls = Some(calls);
        }
        if self.has_time_window() {
            self.minimum_calls = Some(calls);
        } else if self.count.is_none() {
            self.misplaced("minimum_calls", "belongs to a rule with a window, and there is none");
        }
        self
    }

    /// Sets how long a call takes that is slow: at least this long; more than zero.
    #[must_use]
    pub fn slow_call(mut self, time: Duration) -> Self {
        match &mut self.slow {
            Some(slow) => slow.call = time,
            None => self.misplaced("slow_call", "belongs to a slow rate, and there is none"),
        }
        self
    }

    /// Opens when this rule or `other` says so.
    ///
    /// A breaker has one window of time, with one minimum of calls, for all rules that need one: whichever side has set
    /// them does so for both. Two different windows, and two rules of one kind, are errors of
    /// [`check`](super::BreakerConfig::check); only of two consecutive rules the smaller number counts.
    #[must_use]
    pub fn or(mut self, other: TripRule) -> Self {
        let mut clash = None;
        self.failure_rate = either(self.failure_rate, other.failure_rate, "failure_rate", &mut clash);
        self.slow = either(self.slow, other.slow, "slow_rate", &mut clash);
        self.count = either(self.count, other.count, "count_window", &mut clash);
        self.buckets = common(self.buckets, other.buckets, "window", &mut clash);
        self.minimum_calls = common(self.minimum_calls, other.minimum_calls, "minimum_calls", &mut clash);
        self.consecutive = match (self.consecutive, other.consecutive) {
            (Some(mine), Some(its)) => Some(mine.min(its)),
            (mine, its) => mine.or(its),
        };
        self.predicates.extend(other.predicates);
        self.problem = self.problem.or(other.problem).or(clash);
        self
    }

    /// A rule that is never met.
    fn empty() -> Self {
        TripRule {
            failure_rate: None,
            slow: None,
            predicates: Vec::new(),
            count: None,
            consecutive: None,
            buckets: None,
            minimum_calls: None,
            problem: None,
        }
    }

    fn has_time_window(&self) -> bool {
        self.failure_rate.is_some() || self.slow.is_some() || self.has_predicates()
    }

    fn misplaced(&mut self, setting: &'static str, rule: &'static str) {
        self.problem.get_or_insert_with(|| ConfigError::new("rule", setting, rule));
    }
}

/// What the breaker wants to know of its rule.
impl TripRule {
    pub(super) fn failure_share(&self) -> Option<f64> {
        self.failure_rate
    }

    pub(super) fn slow(&self) -> Option<SlowRule> {
        self.slow
    }

    pub(super) fn window_of_calls(&self) -> Option<CountRule> {
        self.count
    }

    pub(super) fn consecutive_failures(&self) -> Option<u32> {
        self.consecutive
    }

    pub(super) fn window_of_time(&self) -> Option<TimeWindow> {
        let (buckets, width) = self.buckets.unwrap_or((DEFAULT_BUCKETS, DEFAULT_BUCKET_WIDTH));
        let minimum_calls = self.minimum_calls.unwrap_or(DEFAULT_MINIMUM_CALLS);
        self.has_time_window().then_some(TimeWindow { buckets, width, minimum_calls })
    }

    pub(super) fn has_predicates(&self) -> bool {
        !self.predicates.is_empty()
    }

    /// Asks the predicates. User code: under no lock.
    pub(super) fn ask(&self, counts: &Counts) -> bool {
        self.predicates.iter().any(|predicate| predicate.holds(counts))
    }

    pub(super) fn check(&self) -> Result<(), ConfigError> {
        if let Some(problem) = &self.problem {
            return Err(problem.clone());
        }
        if self.consecutive == Some(0) {
            return Err(ConfigError::new("consecutive", 0, "must be at least 1"));
        }
        self.failure_rate.map_or(Ok(()), |rate| check_rate("failure_rate", rate))?;
        self.slow.map_or(Ok(()), SlowRule::check)?;
        self.count.map_or(Ok(()), CountRule::check)?;
        self.window_of_time().map_or(Ok(()), TimeWindow::check)
    }
}

impl Default for TripRule {
    /// Half of the calls failed, of at least 20 within ten seconds.
    fn default() -> Self {
        TripRule::failure_rate(DEFAULT_FAILURE_RATE)
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct TimeWindow {
    pub(super) buckets: u32,
    pub(super) width: Duration,
    pub(super) minimum_calls: u32,
}

impl TimeWindow {
    /// How far it reaches back.
    pub(super) fn length(self) -> Duration {
        self.width.saturating_mul(self.buckets)
    }

    fn check(self) -> Result<(), ConfigError> {
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

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct SlowRule {
    pub(super) rate: f64,
    pub(super) call: Duration,
}

impl SlowRule {
    fn check(self) -> Result<(), ConfigError> {
        check_rate("slow_rate", self.rate)?;
        if self.call.is_zero() {
            return Err(ConfigError::new("slow_call", "0ns", "must be more than zero"));
        }
        Ok(())
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct CountRule {
    pub(super) calls: u32,
    pub(super) rate: f64,
    minimum_calls: Option<u32>,
}

impl CountRule {
    pub(super) fn minimum_calls(self) -> u32 {
        self.minimum_calls.unwrap_or(self.calls)
    }

    fn check(self) -> Result<(), ConfigError> {
        check_rate("count_window", self.rate)?;
        if !(1..=MAX_COUNT_WINDOW).contains(&self.calls) {
            return Err(ConfigError::new("count_window", self.calls, "must be of 1 to 65536 calls"));
        }
        if !(1..=self.calls).contains(&self.minimum_calls()) {
            let rule = "must be at least 1, and not more than the window of calls holds";
            return Err(ConfigError::new("minimum_calls", self.minimum_calls(), rule));
        }
        Ok(())
    }
}

/// A user's own rule.
#[derive(Clone)]
struct Predicate(Arc<dyn Fn(&Counts) -> bool + Send + Sync>);

impl Predicate {
    /// No, if it panics: it may be asked while a permit is dropped by an unwinding thread.
    fn holds(&self, counts: &Counts) -> bool {
        let mut holds = false;
        shielded(|| holds = (self.0)(counts));
        holds
    }
}

impl PartialEq for Predicate {
    fn eq(&self, other: &Predicate) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl fmt::Debug for Predicate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("should_trip")
    }
}

/// What one side has; both is a clash.
fn either<T>(mine: Option<T>, its: Option<T>, setting: &'static str, clash: &mut Option<ConfigError>) -> Option<T> {
    if mine.is_some() && its.is_some() {
        *clash = Some(ConfigError::new("rule", setting, "a breaker has one of them at most"));
    }
    mine.or(its)
}

/// What either side has set, or both alike.
fn common<T: PartialEq>(
    mine: Option<T>,
    its: Option<T>,
    setting: &'static str,
    clash: &mut Option<ConfigError>,
) -> Option<T> {
    if mine.is_some() && its.is_some() && mine != its {
        *clash = Some(ConfigError::new("rule", setting, "a breaker has one window of time, so both sides must agree"));
    }
    mine.or(its)
}

fn check_rate(setting: &'static str, rate: f64) -> Result<(), ConfigError> {
    if !(rate > 0.0 && rate <= 1.0) {
        return Err(ConfigError::new(setting, rate, "must be above 0 and at most 1"));
    }
    Ok(())
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

/// What a call takes that is slow: 10 s, longer than a person waits for an answer. Choose it by what the dependency
/// promises.
pub const DEFAULT_SLOW_CALL: Duration = Duration::from_secs(10);

/// The most calls that a window of calls may hold: 65,536, half a megabyte.
pub const MAX_COUNT_WINDOW: u32 = 65_536;

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
            assert_eq!(refused_field(&TripRule::slow_rate(rate)), Some("slow_rate"), "{rate}");
            assert_eq!(refused_field(&TripRule::count_window(5, rate)), Some("count_window"), "{rate}");
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
        assert_eq!(refused_field(&TripRule::slow_rate(0.5).slow_call(Duration::ZERO)), Some("slow_call"));
    }

    #[test]
    fn a_window_on_a_rule_without_one_is_refused() {
        let rule = TripRule::consecutive(5).window(10, DEFAULT_BUCKET_WIDTH);
        assert_eq!(refused_field(&rule), Some("rule"));
        assert_eq!(refused_field(&TripRule::default().or(rule)), Some("rule"));
        assert_eq!(refused_field(&TripRule::count_window(10, 0.5).window(10, DEFAULT_BUCKET_WIDTH)), Some("rule"));
        assert_eq!(refused_field(&TripRule::default().slow_call(DEFAULT_SLOW_CALL)), Some("rule"));
        let joined = TripRule::consecutive(5).or(TripRule::default()).minimum_calls(3);
        assert_eq!(refused_field(&joined), None);
        assert_eq!(joined.window_of_time().map(|window| window.minimum_calls), Some(3));
    }

    #[test]
    fn two_rules_of_one_kind_are_refused() {
        let twice = [
            TripRule::failure_rate(0.5).or(TripRule::failure_rate(0.9)),
            TripRule::slow_rate(0.5).or(TripRule::slow_rate(0.5)),
            TripRule::count_window(5, 0.5).or(TripRule::count_window(9, 0.5)),
        ];
        for rule in twice {
            assert_eq!(refused_field(&rule), Some("rule"), "{rule:?}");
        }
    }

    #[test]
    fn one_window_serves_all_rules() {
        let second = Duration::from_secs(1);
        let slow = TripRule::slow_rate(0.5);
        let joined = slow.clone().or(TripRule::failure_rate(0.5).window(30, second).minimum_calls(7));
        let window = TimeWindow { buckets: 30, width: second, minimum_calls: 7 };
        assert_eq!((joined.window_of_time(), refused_field(&joined)), (Some(window), None));
        let alike = joined.clone().or(TripRule::should_trip(|_| false).window(30, second));
        assert_eq!(refused_field(&alike), None);
        assert_eq!(refused_field(&joined.or(TripRule::should_trip(|_| false).window(60, second))), Some("rule"));
    }

    #[test]
    fn windows_of_calls_have_a_size_and_a_minimum_within_it() {
        let minimum = |calls, minimum| refused_field(&TripRule::count_window(calls, 0.5).minimum_calls(minimum));
        assert_eq!([minimum(5, 0), minimum(5, 6)], [Some("minimum_calls"); 2]);
        assert_eq!([minimum(5, 1), minimum(5, 5)], [None; 2]);
        for calls in [0, MAX_COUNT_WINDOW + 1] {
            assert_eq!(refused_field(&TripRule::count_window(calls, 0.5)), Some("count_window"));
        }
        assert_eq!(TripRule::count_window(5, 0.5).window_of_calls().map(CountRule::minimum_calls), Some(5));
    }

    #[test]
    fn a_predicate_that_panics_says_no() {
        assert!(!TripRule::should_trip(|_| panic!("a panic of the test")).ask(&Counts::default()));
        assert!(TripRule::should_trip(|counts| counts.calls == 0).ask(&Counts::default()));
    }

    #[test]
    fn of_two_consecutive_rules_the_smaller_counts() {
        let rule = TripRule::consecutive(7).or(TripRule::consecutive(3));
        assert_eq!(rule, TripRule::consecutive(3));
    }
}
