use std::ops::Add;
use std::time::Duration;

/// A point in time on one [`Clock`](super::Clock).
///
/// A moment is opaque: nanoseconds since an origin that only its own clock knows. Two moments of
/// the same clock can be compared and subtracted; of two different clocks the answer says nothing.
/// All arithmetic saturates, so that no duration can overflow and a clock that steps back counts
/// as one that stood still.
///
/// # Example
///
/// ```
/// use std::time::Duration;
/// use steadfast::clock::{Clock, Moment};
///
/// let start = Clock::tokio().now();
/// let end = start + Duration::from_secs(3);
///
/// assert!(end > start);
/// assert_eq!(end.since(start), Duration::from_secs(3));
/// assert_eq!(start.since(end), Duration::ZERO);
/// assert_eq!(start + Duration::MAX, Moment::NEVER);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Moment(u64);

impl Moment {
    /// The moment that no clock ever reaches; later than all others.
    pub const NEVER: Moment = Moment(u64::MAX);

    /// The moment `duration` after this one, or [`Moment::NEVER`] where that is too far to express
    /// (more than 584 years from the clock's origin). `Duration::MAX` therefore always means "never".
    ///
    /// `moment + duration` does the same.
    #[inline]
    #[must_use]
    pub const fn saturating_add(self, duration: Duration) -> Moment {
        Moment(self.0.saturating_add(nanos(duration)))
    }

    /// The time from `earlier` to this moment: zero if `earlier` is the later one of the two, and
    /// `Duration::MAX` if this moment is [`Moment::NEVER`].
    #[inline]
    #[must_use]
    pub fn since(self, earlier: Moment) -> Duration {
        if self.is_never() {
            return Duration::MAX;
        }
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// Whether this is [`Moment::NEVER`].
    #[inline]
    #[must_use]
    pub fn is_never(self) -> bool {
        self == Moment::NEVER
    }

    #[inline]
    pub(crate) const fn from_nanos(nanos: u64) -> Moment {
        Moment(nanos)
    }

    #[inline]
    pub(crate) const fn nanos(self) -> u64 {
        self.0
    }
}

impl Add<Duration> for Moment {
    type Output = Moment;

    #[inline]
    fn add(self, duration: Duration) -> Moment {
        self.saturating_add(duration)
    }
}

/// The whole of `duration` in nanoseconds, or `u64::MAX` where it does not fit.
#[inline]
pub(crate) const fn nanos(duration: Duration) -> u64 {
    duration.as_secs().saturating_mul(NANOS_PER_SEC).saturating_add(duration.subsec_nanos() as u64)
}

const NANOS_PER_SEC: u64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_difference_is_what_was_added() {
        let start = Moment::from_nanos(7);
        let odd = Duration::new(3, 141_592_653);
        assert_eq!((start + odd).since(start), odd);
        assert_eq!((start + odd).nanos(), 3_141_592_660);
    }

    #[test]
    fn a_later_moment_is_no_time_ago() {
        let start = Moment::from_nanos(7);
        assert_eq!(start.since(start + SECOND), Duration::ZERO);
        assert_eq!(start.since(Moment::NEVER), Duration::ZERO);
    }

    #[test]
    fn sums_that_do_not_fit_are_never() {
        assert_eq!(Moment::from_nanos(0) + Duration::MAX, Moment::NEVER);
        assert_eq!(Moment::from_nanos(u64::MAX - 1) + SECOND, Moment::NEVER);
        assert_eq!(Moment::NEVER + SECOND, Moment::NEVER);
        assert_eq!(Moment::NEVER + Duration::MAX, Moment::NEVER);
    }

    #[test]
    fn never_is_the_last_moment_and_infinitely_far() {
        let last = Moment::from_nanos(u64::MAX - 1);
        assert!(last < Moment::NEVER);
        assert!(!last.is_never());
        assert!(Moment::NEVER.is_never());
        assert_eq!(Moment::NEVER.since(last), Duration::MAX);
        assert_eq!(Moment::NEVER.since(Moment::NEVER), Duration::MAX);
    }

    #[test]
    fn a_duration_of_more_than_584_years_saturates() {
        assert_eq!(nanos(Duration::from_nanos(u64::MAX)), u64::MAX);
        assert_eq!(nanos(Duration::from_nanos(u64::MAX - 1)), u64::MAX - 1);
        assert_eq!(nanos(Duration::from_secs(u64::MAX / NANOS_PER_SEC + 1)), u64::MAX);
    }
}
