//! The schedule of a retry: which wait comes before retry `n`.
//!
//! Pure: no clock, no state, and a random number only where a jitter needs one. Whatever the settings, a wait is
//! computed for every `n` up to [`u32::MAX`] and every base and cap up to [`Duration::MAX`], in a bounded number of
//! steps: what overflows is the longest duration, and the cap comes after that.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::error::ConfigError;
use crate::retry::jitter::{self, Jitter};
use crate::verdict::Verdict;

/// How the wait grows from one retry to the next, before jitter.
///
/// `n` counts retries, not attempts: it is 1 for the first retry. The result is never above the cap, and a base of
/// zero stays zero however far it is raised.
#[derive(Clone)]
#[non_exhaustive]
pub enum Backoff {
    /// Waits the base every time.
    Fixed,
    /// Waits `base * n`: 1, 2, 3, 4 times the base.
    Linear,
    /// Waits `base * factor^(n - 1)`: 1, 2, 4, 8 times the base with a factor of 2. The formula of the AWS
    /// Architecture Blog, [Exponential Backoff And
    /// Jitter](https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/).
    Exponential {
        /// How much longer each delay is than the one before; finite and at least 1. Default: [`DEFAULT_FACTOR`].
        factor: f64,
    },
    /// Waits `base * F(n)`, `F` being the Fibonacci numbers: 1, 1, 2, 3, 5 times the base. Grows by about 1.6 from
    /// step to step, after a first repetition.
    Fibonacci,
    /// Does not wait. Nothing is drawn, no timer is used.
    Immediate,
    /// Waits what the function says for retry `n` after an attempt that was judged so. The cap still holds; pass
    /// [`Duration::MAX`] as the cap to leave the function the last word.
    Custom(Arc<CustomDelay>),
}

/// The delay before retry `n` after an attempt with this verdict.
type CustomDelay = dyn Fn(u32, &Verdict) -> Duration + Send + Sync;

impl Backoff {
    /// What an operator calls it.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Fixed => "fixed",
            Self::Linear => "linear",
            Self::Exponential { .. } => "exponential",
            Self::Fibonacci => "fibonacci",
            Self::Immediate => "immediate",
            Self::Custom(_) => "custom",
        }
    }

    /// Whether the delays are multiples of the base, so that a base is looked at at all.
    fn uses_base(&self) -> bool {
        !matches!(self, Self::Immediate | Self::Custom(_))
    }
}

impl fmt::Debug for Backoff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed => f.write_str("Fixed"),
            Self::Linear => f.write_str("Linear"),
            Self::Exponential { factor } => f.debug_struct("Exponential").field("factor", factor).finish(),
            Self::Fibonacci => f.write_str("Fibonacci"),
            Self::Immediate => f.write_str("Immediate"),
            Self::Custom(_) => f.write_str("Custom(..)"),
        }
    }
}

/// The whole schedule: a backoff, its bounds, and the jitter below it.
#[derive(Clone, Debug)]
pub(crate) struct Schedule {
    pub(crate) backoff: Backoff,
    /// The delay before the first retry. Not used by [`Backoff::Immediate`] and [`Backoff::Custom`].
    pub(crate) base: Duration,
    /// No wait is longer than this; [`Duration::MAX`] means that there is no cap.
    pub(crate) cap: Duration,
    pub(crate) jitter: Jitter,
    /// The most that jitter may take away from a delay; `None` means that there is no limit.
    pub(crate) max_jitter: Option<Duration>,
}

impl Schedule {
    /// The un-jittered wait before retry `n`, already capped; 1 is the first retry, and 0 counts as 1.
    pub(crate) fn delay(&self, n: u32, verdict: &Verdict) -> Duration {
        let n = n.max(1);
        let delay = match &self.backoff {
            Backoff::Fixed => self.base,
            Backoff::Linear => self.base.saturating_mul(n),
            Backoff::Exponential { factor } => exponential(self.base, *factor, n),
            Backoff::Fibonacci => fibonacci(self.base, n),
            Backoff::Immediate => Duration::ZERO,
            Backoff::Custom(delay) => delay(n, verdict),
        };
        delay.min(self.cap)
    }

    /// The wait before retry `n`: the cap first, then jitter downwards.
    ///
    /// `previous` is the wait before this one, zero for the first retry; only decorrelated jitter reads it. `unit` is
    /// uniform in `[0, 1)` and drawn at most once.
    #[inline]
    pub(crate) fn wait(&self, n: u32, verdict: &Verdict, previous: Duration, unit: impl FnOnce() -> f64) -> Duration {
        match self.backoff {
            Backoff::Immediate => Duration::ZERO,
            _ => self.wait_some(n, verdict, previous, unit),
        }
    }

    fn wait_some(&self, n: u32, verdict: &Verdict, previous: Duration, unit: impl FnOnce() -> f64) -> Duration {
        let longest = match self.jitter {
            Jitter::Decorrelated => jitter::decorrelated_longest(self.base, previous).min(self.cap),
            _ => self.delay(n, verdict),
        };
        let kept = longest.saturating_sub(self.max_jitter.unwrap_or(Duration::MAX));
        let shortest = self.jitter.shortest(longest, self.base).max(kept);
        jitter::between(shortest, longest, unit)
    }

    /// Refuses settings that have no meaning, or that would have to be mended.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        if let Backoff::Exponential { factor } = self.backoff
            && !(factor.is_finite() && factor >= 1.0)
        {
            let rule = "must be a finite number of at least 1";
            return Err(ConfigError::new("factor", factor, rule));
        }
        if self.backoff.uses_base() && self.base > self.cap {
            let base = format_args!("{:?}", self.base);
            return Err(ConfigError::new("base", base, "must not exceed the cap"));
        }
        self.check_jitter()
    }

    fn check_jitter(&self) -> Result<(), ConfigError> {
        match (self.jitter, &self.backoff) {
            (Jitter::Proportional(share), _) if !(0.0..=1.0).contains(&share) => {
                let rule = "a proportional jitter must be between 0 and 1";
                Err(ConfigError::new("jitter", share, rule))
            }
            (Jitter::Decorrelated, Backoff::Fixed | Backoff::Exponential { .. }) => Ok(()),
            (Jitter::Decorrelated, _) => {
                let rule = "needs a fixed or an exponential backoff: it grows from the base alone";
                Err(ConfigError::new("jitter", "decorrelated", rule))
            }
            _ => Ok(()),
        }
    }
}

/// `base * factor^(n - 1)`.
fn exponential(base: Duration, factor: f64, n: u32) -> Duration {
    // `powf`, because repeated squaring adds up rounding errors: with a factor next to 1 a later delay can come out
    // shorter than an earlier one.
    jitter::scale(base, factor.powf(f64::from(n - 1)))
}

/// `base * F(n)`. A base of at least 1 ns reaches the longest duration in fewer than 140 steps.
fn fibonacci(base: Duration, n: u32) -> Duration {
    let (mut current, mut next) = (base, base);
    for _ in 1..n {
        if current.is_zero() || current == Duration::MAX {
            break;
        }
        (current, next) = (next, current.saturating_add(next));
    }
    current
}

/// The first delay: 200 ms. With full jitter the first retry comes after 100 ms on average: late enough for a dropped
/// connection or a restarted process to be replaced, early enough for somebody who waits for the answer.
pub const DEFAULT_BASE: Duration = Duration::from_millis(200);

/// How much longer each delay is than the one before: 2, the usual doubling. What a caller sends to a dependency that
/// is down halves with every round.
pub const DEFAULT_FACTOR: f64 = 2.0;

/// The longest wait: 30 s. A run without a limit of attempts notices within half a minute that the dependency is
/// back, and with full jitter sends it about four calls a minute until then.
pub const DEFAULT_CAP: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// 1 ns to centuries, with the ends of the range made likely.
    fn any_duration() -> impl Strategy<Value = Duration> {
        prop_oneof![
            Just(Duration::ZERO),
            Just(Duration::from_nanos(1)),
            Just(Duration::MAX),
            (0..10_000_000_000_u64).prop_map(Duration::from_nanos),
            (any::<u64>(), 0..1_000_000_000_u32).prop_map(|(s, ns)| Duration::new(s, ns)),
        ]
    }

    fn any_retry() -> impl Strategy<Value = u32> {
        prop_oneof![0..150_u32, any::<u32>(), Just(u32::MAX)]
    }

    fn any_factor() -> impl Strategy<Value = f64> {
        let next_to_one = (0..1_000_u32).prop_map(|k| 1.0 + f64::from(k) * f64::EPSILON);
        prop_oneof![Just(1.0), Just(2.0), Just(f64::MAX), next_to_one, 1.0..1.000_001, 1.0..10.0]
    }

    fn growing_backoff() -> impl Strategy<Value = Backoff> {
        prop_oneof![
            Just(Backoff::Fixed),
            Just(Backoff::Linear),
            any_factor().prop_map(|factor| Backoff::Exponential { factor }),
            Just(Backoff::Fibonacci),
            Just(Backoff::Immediate),
        ]
    }

    fn any_backoff() -> impl Strategy<Value = Backoff> {
        let custom = any_duration().prop_map(|delay| Backoff::Custom(Arc::new(move |_, _| delay)));
        prop_oneof![5 => growing_backoff(), 1 => custom]
    }

    /// The jitters that shorten the delay of the backoff: all but the decorrelated one.
    fn shortening_jitter() -> impl Strategy<Value = Jitter> {
        prop_oneof![
            Just(Jitter::None),
            Just(Jitter::Full),
            Just(Jitter::Equal),
            (0.0..=1.0).prop_map(Jitter::Proportional),
        ]
    }

    fn any_jitter() -> impl Strategy<Value = Jitter> {
        prop_oneof![4 => shortening_jitter(), 1 => Just(Jitter::Decorrelated)]
    }

    prop_compose! {
        fn any_schedule()(
            backoff in any_backoff(),
            base in any_duration(),
            cap in any_duration(),
            jitter in any_jitter(),
            max_jitter in proptest::option::of(any_duration()),
        ) -> Schedule {
            Schedule { backoff, base, cap, jitter, max_jitter }
        }
    }

    proptest! {
        #[test]
        fn no_schedule_waits_longer_than_its_cap(
            schedule in any_schedule(),
            n in any_retry(),
            previous in any_duration(),
            unit in 0.0..1.0,
        ) {
            prop_assert!(schedule.delay(n, &Verdict::Transient) <= schedule.cap);
            prop_assert!(schedule.wait(n, &Verdict::Transient, previous, || unit) <= schedule.cap);
        }

        #[test]
        fn jitter_takes_away_what_it_may_and_adds_nothing(
            schedule in any_schedule(),
            jitter in shortening_jitter(),
            n in any_retry(),
            unit in 0.0..1.0,
        ) {
            let schedule = Schedule { jitter, ..schedule };
            let delay = schedule.delay(n, &Verdict::Transient);
            let wait = schedule.wait(n, &Verdict::Transient, Duration::ZERO, || unit);
            prop_assert!(wait <= delay);

            let taken = delay - wait;
            let most = match schedule.jitter {
                Jitter::None => Duration::ZERO,
                Jitter::Equal => delay / 2,
                Jitter::Proportional(share) => jitter::scale(delay, share),
                _ => delay,
            };
            prop_assert!(taken <= most.min(schedule.max_jitter.unwrap_or(Duration::MAX)));
        }

        #[test]
        fn decorrelated_waits_lie_between_the_base_and_three_times_the_wait_before(
            base in any_duration(),
            cap in any_duration(),
            previous in any_duration(),
            unit in 0.0..1.0,
        ) {
            let schedule = Schedule { base, cap, ..decorrelated() };
            let wait = schedule.wait(1, &Verdict::Transient, previous, || unit);
            prop_assert!(wait >= base.min(cap));
            prop_assert!(wait <= previous.max(base).saturating_mul(3).min(cap));
        }

        #[test]
        fn delays_never_decrease(
            backoff in growing_backoff(),
            base in any_duration(),
            cap in any_duration(),
            n in any_retry(),
            steps in prop_oneof![Just(1_u32), any::<u32>()],
        ) {
            let schedule = Schedule { backoff, base, cap, ..defaults() };
            let earlier = schedule.delay(n, &Verdict::Transient);
            let later = schedule.delay(n.saturating_add(steps), &Verdict::Transient);
            prop_assert!(earlier <= later, "{earlier:?} then {later:?}");
        }

        #[test]
        fn the_first_delay_is_the_base(backoff in growing_backoff(), base in any_duration()) {
            let schedule = Schedule { backoff, base, ..uncapped() };
            let first = if schedule.backoff.uses_base() { base } else { Duration::ZERO };
            prop_assert_eq!(schedule.delay(1, &Verdict::Transient), first);
        }

        #[test]
        fn a_zero_base_never_waits(
            backoff in growing_backoff(),
            cap in any_duration(),
            n in any_retry(),
            unit in 0.0..1.0,
        ) {
            let schedule = Schedule { backoff, base: Duration::ZERO, cap, ..defaults() };
            let wait = schedule.wait(n, &Verdict::Transient, Duration::ZERO, || unit);
            prop_assert_eq!(wait, Duration::ZERO);
        }

        #[test]
        fn settings_that_pass_the_check_use_a_base_within_the_cap(schedule in any_schedule()) {
            let fits = schedule.base <= schedule.cap || !schedule.backoff.uses_base();
            let pairs = schedule.jitter != Jitter::Decorrelated
                || matches!(schedule.backoff, Backoff::Fixed | Backoff::Exponential { .. });
            prop_assert_eq!(schedule.check().is_ok(), fits && pairs);
        }
    }

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    fn plain(backoff: Backoff, base: Duration, cap: Duration) -> Schedule {
        Schedule { backoff, base, cap, jitter: Jitter::None, max_jitter: None }
    }

    fn doubling(base: Duration, cap: Duration) -> Schedule {
        plain(Backoff::Exponential { factor: DEFAULT_FACTOR }, base, cap)
    }

    fn defaults() -> Schedule {
        Schedule { jitter: Jitter::default(), ..doubling(DEFAULT_BASE, DEFAULT_CAP) }
    }

    fn uncapped() -> Schedule {
        doubling(secs(1), Duration::MAX)
    }

    fn decorrelated() -> Schedule {
        Schedule { jitter: Jitter::Decorrelated, ..defaults() }
    }

    fn delays(schedule: &Schedule, retries: impl IntoIterator<Item = u32>) -> Vec<Duration> {
        let delay = |n| schedule.delay(n, &Verdict::Transient);
        retries.into_iter().map(delay).collect()
    }

    /// The waits for `draws` evenly spaced numbers in `[0, 1)`.
    fn draws(schedule: &Schedule, n: u32, draws: u32) -> Vec<Duration> {
        let unit = |draw| f64::from(draw) / f64::from(draws);
        (0..draws).map(|draw| schedule.wait(n, &Verdict::Transient, Duration::ZERO, || unit(draw))).collect()
    }

    fn refusal(schedule: &Schedule) -> String {
        schedule.check().unwrap_err().to_string()
    }

    #[test]
    fn the_defaults_double_200_ms_up_to_30_s() {
        let schedule = defaults();
        let expected = [200, 400, 800, 1600, 3200, 6400, 12_800, 25_600, 30_000, 30_000];
        assert_eq!(delays(&schedule, 1..=10), expected.map(millis));
        assert_eq!(schedule.check(), Ok(()));
    }

    #[test]
    fn a_backoff_grows_to_its_cap_and_stays_there() {
        let ten = doubling(millis(1), millis(10));
        assert_eq!(delays(&ten, 1..=6), [1, 2, 4, 8, 10, 10].map(millis));
        let thirty = doubling(secs(2), secs(30));
        assert_eq!(delays(&thirty, 1..=5), [2, 4, 8, 16, 30].map(secs));
    }

    #[test]
    fn each_backoff_grows_in_its_own_way() {
        let of = |backoff| delays(&plain(backoff, secs(1), Duration::MAX), 1..=6);
        assert_eq!(of(Backoff::Fixed), [1, 1, 1, 1, 1, 1].map(secs));
        assert_eq!(of(Backoff::Linear), [1, 2, 3, 4, 5, 6].map(secs));
        assert_eq!(of(Backoff::Fibonacci), [1, 1, 2, 3, 5, 8].map(secs));
        assert_eq!(of(Backoff::Immediate), [0; 6].map(secs));
        let half_more = of(Backoff::Exponential { factor: 1.5 });
        assert_eq!(half_more[..4], [1000, 1500, 2250, 3375].map(millis));
    }

    #[test]
    fn a_factor_of_one_is_a_fixed_wait() {
        let odd = Duration::new(u64::MAX / 3, 1);
        let schedule = plain(Backoff::Exponential { factor: 1.0 }, odd, Duration::MAX);
        assert_eq!(delays(&schedule, [1, 2, 100, u32::MAX]), [odd; 4]);
    }

    #[test]
    fn delays_never_decrease_where_repeated_squaring_would() {
        let factor = 1.000000002543749;
        let schedule = plain(Backoff::Exponential { factor }, DEFAULT_BASE, Duration::MAX);
        let delays = delays(&schedule, [(1 << 31) - 1, 1 << 31, (1 << 31) + 1]);
        assert!(delays.is_sorted(), "{delays:?}");
    }

    #[test]
    fn retry_zero_counts_as_the_first() {
        assert_eq!(delays(&uncapped(), [0, 1]), [secs(1); 2]);
    }

    #[test]
    fn a_custom_backoff_is_asked_with_the_retry_and_its_verdict() {
        let throttled = Verdict::Throttled { retry_after: Some(secs(7)) };
        let custom = Backoff::Custom(Arc::new(|n, verdict| match verdict {
            Verdict::Throttled { retry_after } => retry_after.unwrap_or_default(),
            _ => secs(u64::from(n)),
        }));
        let schedule = plain(custom, Duration::ZERO, secs(30));
        assert_eq!(delays(&schedule, 1..=3), [1, 2, 3].map(secs));
        assert_eq!(schedule.delay(1, &throttled), secs(7));
    }

    #[test]
    fn the_cap_bounds_a_custom_backoff_too() {
        let custom = Backoff::Custom(Arc::new(|_, _| Duration::MAX));
        let schedule = plain(custom, DEFAULT_BASE, secs(30));
        assert_eq!(delays(&schedule, [1]), [secs(30)]);
    }

    #[test]
    fn decorrelated_jitter_follows_its_formula() {
        let schedule = Schedule { base: millis(100), cap: secs(1), ..decorrelated() };
        let mut previous = Duration::ZERO;
        let waits = [0.5, 0.5, 0.0, 0.75, 0.5, 0.5].map(|unit| {
            previous = schedule.wait(1, &Verdict::Transient, previous, || unit);
            previous
        });
        // Upper ends of the draws: 300, 600, 1000 (the cap, not 1050), 300, 750, 1000 ms.
        let expected = [200_000, 350_000, 100_000, 250_000, 425_000, 550_000];
        assert_eq!(waits, expected.map(Duration::from_micros));
    }

    #[test]
    fn decorrelated_waits_stay_spread_at_the_cap() {
        let schedule = decorrelated();
        let unit = |draw: u32| f64::from(draw) / 100.0;
        let wait = |draw| schedule.wait(9, &Verdict::Transient, DEFAULT_CAP, || unit(draw));
        let at_the_cap = (0..100).filter(|draw| wait(*draw) == DEFAULT_CAP).count();
        assert_eq!(at_the_cap, 0);
        assert!(wait(99) > secs(29));
    }

    #[test]
    fn max_jitter_limits_what_decorrelated_jitter_takes_away() {
        let schedule = Schedule { max_jitter: Some(millis(50)), ..decorrelated() };
        let lowest = schedule.wait(1, &Verdict::Transient, Duration::ZERO, || 0.0);
        assert_eq!(lowest, millis(550));
    }

    #[test]
    fn a_number_is_drawn_once_for_a_jitter_and_never_without_one() {
        let count = |schedule: &Schedule| {
            let mut drawn = 0;
            schedule.wait(3, &Verdict::Transient, Duration::ZERO, || {
                drawn += 1;
                0.5
            });
            drawn
        };
        let immediate = plain(Backoff::Immediate, DEFAULT_BASE, DEFAULT_CAP);
        assert_eq!(count(&defaults()), 1);
        assert_eq!(count(&decorrelated()), 1);
        assert_eq!(count(&doubling(DEFAULT_BASE, DEFAULT_CAP)), 0);
        assert_eq!(count(&Schedule { jitter: Jitter::Full, ..immediate }), 0);
        assert_eq!(count(&Schedule { max_jitter: Some(Duration::ZERO), ..defaults() }), 0);
    }

    #[test]
    fn a_factor_must_be_finite_and_at_least_one() {
        for factor in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -2.0, 0.99] {
            let schedule = plain(Backoff::Exponential { factor }, secs(1), secs(2));
            let expected = format!("factor = {factor}: must be a finite number of at least 1");
            assert_eq!(refusal(&schedule), expected);
        }
    }

    #[test]
    fn a_proportional_jitter_must_be_a_share() {
        for share in [f64::NAN, f64::INFINITY, -0.1, 1.1] {
            let schedule = Schedule { jitter: Jitter::Proportional(share), ..defaults() };
            let rule = "a proportional jitter must be between 0 and 1";
            assert_eq!(refusal(&schedule), format!("jitter = {share}: {rule}"));
        }
    }

    #[test]
    fn decorrelated_jitter_is_refused_where_it_would_overrule_the_backoff() {
        let custom = Backoff::Custom(Arc::new(|_, _| secs(1)));
        for backoff in [Backoff::Linear, Backoff::Fibonacci, Backoff::Immediate, custom] {
            let schedule = Schedule { backoff, ..decorrelated() };
            let rule = "needs a fixed or an exponential backoff: it grows from the base alone";
            assert_eq!(refusal(&schedule), format!("jitter = decorrelated: {rule}"));
        }
    }

    #[test]
    fn decorrelated_jitter_grows_from_the_base_whatever_the_backoff() {
        let exponential = Backoff::Exponential { factor: 10.0 };
        for backoff in [Backoff::Fixed, exponential] {
            let schedule = Schedule { backoff, ..decorrelated() };
            assert_eq!(schedule.check(), Ok(()));
            let wait = schedule.wait(7, &Verdict::Transient, secs(2), || 0.5);
            assert_eq!(wait, millis(3100));
        }
    }

    #[test]
    fn an_unused_base_may_be_above_the_cap() {
        let custom = Backoff::Custom(Arc::new(|_, _| secs(1)));
        for backoff in [Backoff::Immediate, custom] {
            let schedule = plain(backoff, DEFAULT_BASE, millis(50));
            assert_eq!(schedule.check(), Ok(()), "{schedule:?}");
        }
    }

    // What follows restates public bug reports against other libraries.

    #[test]
    fn backoff_pow_wraps_at_64() {
        let schedule =
            Schedule { jitter: Jitter::Full, max_jitter: Some(millis(50)), ..doubling(millis(100), secs(5)) };
        for n in 1..=200 {
            let waits = draws(&schedule, n, 100);
            let allowed = if n >= 7 { millis(4950)..=secs(5) } else { millis(50)..=secs(5) };
            assert!(waits.iter().all(|wait| allowed.contains(wait)), "retry {n}");
        }
    }

    #[test]
    fn backoff_negative_after_36() {
        let schedule = doubling(millis(100), secs(1));
        let first = [100, 200, 400, 800, 1000].map(millis);
        assert_eq!(delays(&schedule, 1..=5), first);
        assert_eq!(delays(&schedule, [36, 37, 100, u32::MAX]), [secs(1); 4]);
    }

    #[test]
    fn cap_applied_after_overflow() {
        let capped = doubling(secs(1), secs(30));
        assert_eq!(delays(&capped, 33..=36), [secs(30); 4]);

        let delays = delays(&uncapped(), [33, 34, 35, 36, 64, 65, 1000]);
        assert_eq!(delays[..4], [32, 33, 34, 35].map(|power| secs(1 << power)));
        assert_eq!(delays[4..], [secs(1 << 63), Duration::MAX, Duration::MAX]);
    }

    #[test]
    fn fibonacci_and_wrapped_cap() {
        let fibonacci = plain(Backoff::Fibonacci, secs(1), secs(60));
        for (schedule, capped_from) in [(fibonacci, 11), (doubling(secs(1), secs(60)), 7)] {
            let delays = delays(&schedule, 1..=200);
            let (growing, capped) = delays.split_at(capped_from - 1);
            assert!(growing.iter().all(|delay| *delay < secs(60)));
            assert!(capped.iter().all(|delay| *delay == secs(60)));
        }
    }

    #[test]
    fn hot_loop_after_an_hour() {
        let waits = delays(&doubling(millis(250), secs(60)), 1..=199);
        let start_of_the_200th_call: Duration = waits.iter().sum();
        assert_eq!(start_of_the_200th_call, millis(63_750) + secs(191 * 60));
        assert!(waits[8..].iter().all(|wait| *wait == secs(60)));
    }

    #[test]
    fn u32_multiply_overflow() {
        let capped = doubling(secs(1), secs(20));
        assert_eq!(delays(&capped, [33, 65]), [secs(20); 2]);
        assert_eq!(delays(&uncapped(), [33, 65]), [secs(1 << 32), Duration::MAX]);
    }

    #[test]
    fn overflow_path_forgets_cap() {
        let schedule = doubling(secs(2), secs(300));
        assert_eq!(delays(&schedule, [1000, 2_000_000_000]), [secs(300); 2]);
    }

    #[test]
    fn zero_base_becomes_cap() {
        let schedule = doubling(Duration::ZERO, secs(60));
        assert_eq!(delays(&schedule, [1025, 5000]), [Duration::ZERO; 2]);
        assert_eq!(schedule.check(), Ok(()));
    }

    #[test]
    fn timer_clamp_turns_long_into_now() {
        let ten = plain(Backoff::Exponential { factor: 10.0 }, secs(1), Duration::MAX);
        assert_eq!(delays(&ten, [8]), [secs(10_000_000)]);
    }

    #[test]
    fn min_above_max() {
        for jitter in [Jitter::None, Jitter::Full, Jitter::Decorrelated] {
            let schedule = Schedule { jitter, ..doubling(secs(10), secs(5)) };
            assert_eq!(refusal(&schedule), "base = 10s: must not exceed the cap");
            let waits = draws(&schedule, 1, 100);
            assert!(waits.iter().all(|wait| *wait <= secs(5)), "{jitter:?}");
        }
    }

    #[test]
    fn wrong_bound_used() {
        let random = Schedule {
            jitter: Jitter::Full,
            max_jitter: Some(millis(40)),
            ..plain(Backoff::Fixed, millis(50), millis(50))
        };
        let waits = draws(&random, 1, 1000);
        assert!(waits.iter().all(|wait| (millis(10)..=millis(50)).contains(wait)));
        assert!(waits.iter().any(|wait| *wait > millis(40)));

        let growing = doubling(millis(100), secs(1));
        let expected = [100, 200, 400, 800, 1000].map(millis);
        assert_eq!(delays(&growing, 1..=5), expected);
    }

    #[test]
    fn jitter_exceeds_cap() {
        let schedule = Schedule { jitter: Jitter::Proportional(0.5), ..doubling(millis(100), millis(500)) };
        for n in 1..=20 {
            let waits = draws(&schedule, n, 10_000);
            assert!(waits.iter().all(|wait| *wait <= millis(500)), "retry {n}");
        }
    }

    #[test]
    fn jitter_tied_to_min_delay() {
        for jitter in [Jitter::Full, Jitter::Equal, Jitter::Proportional(0.5)] {
            let schedule = Schedule { jitter, ..doubling(millis(100), secs(60)) };
            let waits = draws(&schedule, 20, 1000);
            let spread = *waits.iter().max().unwrap() - *waits.iter().min().unwrap();
            assert!(spread >= secs(10), "{jitter:?}: {spread:?}");
        }
    }
}
