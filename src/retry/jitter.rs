//! Jitter: how far below its computed length a wait may end up.
//!
//! Jitter only ever shortens. The cap is applied to the delay first, so no draw is above the cap, and delays that
//! have reached the cap are still spread below it.

use std::time::Duration;

/// How a wait is spread, so that callers which failed together do not come back together.
///
/// `d` is the delay that the [`Backoff`](super::Backoff) computed, after the cap, and `U(a, b)` a uniform draw
/// between `a` and `b`. No jitter makes a wait longer than `d` ([`Decorrelated`], which has no `d`, never longer than
/// the cap), and `max_jitter` limits what any of them may take away. The default is [`Full`].
///
/// Full, equal and decorrelated jitter are those of the AWS Architecture Blog, [Exponential Backoff And
/// Jitter](https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/).
///
/// [`Full`]: Jitter::Full
/// [`Decorrelated`]: Jitter::Decorrelated
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Jitter {
    /// Waits exactly `d`. Callers that failed at the same moment also retry at the same moment.
    None,
    /// Waits `U(0, d)`: the widest spread, and among the fewest calls under contention in the AWS simulation. A
    /// single wait can be close to zero.
    #[default]
    Full,
    /// Waits `d/2 + U(0, d/2)`: at least half of the delay is kept.
    Equal,
    /// Takes away at most this share of the delay, in `0.0..=1.0`: waits `U((1 - f) * d, d)`. `0.0` is
    /// [`Jitter::None`] and `1.0` is [`Jitter::Full`].
    Proportional(f64),
    /// Waits `U(base, min(cap, 3 * previous))`, where `previous` is the wait before and `base` for the first retry:
    /// the growth is random too.
    ///
    /// It grows from the base alone, so it goes with a fixed or an exponential backoff (whose factor it does not use)
    /// and is refused with any other. AWS applies the cap to the draw; here it bounds the range of the draw, because
    /// otherwise two of three waits after one at the cap are exactly the cap again.
    Decorrelated,
}

impl Jitter {
    /// The shortest wait that this jitter makes of one that may last up to `longest`.
    pub(super) fn shortest(self, longest: Duration, base: Duration) -> Duration {
        match self {
            Self::None => longest,
            Self::Full => Duration::ZERO,
            Self::Equal => longest - longest / 2,
            Self::Proportional(share) => longest.saturating_sub(scale(longest, share)),
            Self::Decorrelated => base.min(longest),
        }
    }
}

/// The longest decorrelated wait after `previous`, before the cap.
///
/// A `previous` below `base` counts as `base`: there was no wait yet, or the dependency asked for a shorter one.
pub(super) fn decorrelated_longest(base: Duration, previous: Duration) -> Duration {
    previous.max(base).saturating_mul(DECORRELATED_GROWTH)
}

/// A wait between `shortest` and `longest`; `unit` is drawn only if the two differ.
pub(super) fn between(shortest: Duration, longest: Duration, unit: impl FnOnce() -> f64) -> Duration {
    let span = longest.saturating_sub(shortest);
    if span.is_zero() {
        return longest;
    }
    shortest + scale(span, unit()).min(span)
}

/// `duration * by` to the nearest nanosecond, between zero and [`Duration::MAX`].
///
/// Below 2^52 ns (52 days) rounding hides the last bit of `by`, so whole multiples come out exact on every platform.
pub(super) fn scale(duration: Duration, by: f64) -> Duration {
    // A nanosecond count above 2^53 does not survive the way through a float.
    if duration.is_zero() || by == 1.0 {
        return duration;
    }
    let nanos = (duration.as_nanos() as f64 * by).round() as u128;
    Duration::from_nanos_u128(nanos.min(Duration::MAX.as_nanos()))
}

/// How much longer than the wait before a decorrelated wait may be; the figure of the AWS article.
const DECORRELATED_GROWTH: u32 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    const ALMOST_ONE: f64 = 1.0 - f64::EPSILON / 2.0;

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// The waits that the lowest, the middle and the highest draw make of 100 ms (base 10 ms).
    fn waits_of_100_ms(jitter: Jitter) -> [Duration; 3] {
        let shortest = jitter.shortest(millis(100), millis(10));
        [0.0, 0.5, ALMOST_ONE].map(|unit| between(shortest, millis(100), || unit))
    }

    #[test]
    fn each_jitter_spreads_over_its_own_range() {
        let none = waits_of_100_ms(Jitter::None);
        let full = waits_of_100_ms(Jitter::Full);
        let equal = waits_of_100_ms(Jitter::Equal);
        let fifth = waits_of_100_ms(Jitter::Proportional(0.2));
        let decorrelated = waits_of_100_ms(Jitter::Decorrelated);
        assert_eq!(none, [millis(100); 3]);
        assert_eq!(full, [millis(0), millis(50), millis(100)]);
        assert_eq!(equal, [millis(50), millis(75), millis(100)]);
        assert_eq!(fifth, [millis(80), millis(90), millis(100)]);
        assert_eq!(decorrelated, [millis(10), millis(55), millis(100)]);
    }

    #[test]
    fn proportional_runs_from_none_to_full() {
        let nothing = Jitter::Proportional(0.0);
        let everything = Jitter::Proportional(1.0);
        assert_eq!(waits_of_100_ms(nothing), waits_of_100_ms(Jitter::None));
        assert_eq!(waits_of_100_ms(everything), waits_of_100_ms(Jitter::Full));
    }

    #[test]
    fn equal_jitter_keeps_at_least_half_of_an_odd_delay() {
        let three = Duration::from_nanos(3);
        assert_eq!(Jitter::Equal.shortest(three, three), Duration::from_nanos(2));
    }

    #[test]
    fn full_jitter_is_the_default() {
        assert_eq!(Jitter::default(), Jitter::Full);
    }

    #[test]
    fn nothing_is_drawn_where_there_is_nothing_to_spread() {
        let wait = between(millis(5), millis(5), || panic!("drew a number"));
        assert_eq!(wait, millis(5));
    }

    #[test]
    fn a_draw_outside_of_its_range_stays_inside_the_wait() {
        for unit in [-1.0, 1.0, 7.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            let wait = between(millis(5), millis(9), || unit);
            assert!((millis(5)..=millis(9)).contains(&wait), "{unit}: {wait:?}");
        }
    }

    #[test]
    fn the_longest_duration_is_spread_without_overflow() {
        assert_eq!(between(Duration::ZERO, Duration::MAX, || 0.0), Duration::ZERO);
        let highest = between(Duration::ZERO, Duration::MAX, || ALMOST_ONE);
        assert!(highest > Duration::MAX / 2);
    }

    #[test]
    fn scaling_saturates_and_keeps_zero() {
        assert_eq!(scale(Duration::ZERO, f64::INFINITY), Duration::ZERO);
        assert_eq!(scale(millis(1), f64::INFINITY), Duration::MAX);
        assert_eq!(scale(millis(1), f64::NAN), Duration::ZERO);
        assert_eq!(scale(millis(1), -1.0), Duration::ZERO);
    }

    #[test]
    fn scaling_by_one_keeps_what_a_float_cannot_hold() {
        let odd = Duration::new(u64::MAX / 3, 1);
        assert_eq!(scale(odd, 1.0), odd);
    }

    #[test]
    fn scaling_ignores_the_last_bit_of_the_power() {
        let below_eight = 8.0_f64.next_down();
        assert_eq!(scale(millis(100), below_eight), millis(800));
    }
}
