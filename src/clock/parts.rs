//! An instant in parts: seconds and nanoseconds, without a subtraction in std.

use std::hash::{Hash, Hasher};
use std::time::{Duration, Instant};

/// What an instant hands to whoever hashes it: so many seconds, and then so many nanoseconds, since an origin of its own.
///
/// To turn an instant into a number one has to subtract another one, which std does out of line and with a result in memory: 4
/// of the 32 ns that a reading of the tokio clock takes, on each call that needs the time. Its hash is made in line. What is
/// hashed is nobody's promise, so [`are_seen`] finds out by experiment, and who is told no subtracts.
#[derive(Default)]
pub(super) struct Parts {
    secs: u64,
    nanos: u32,
    seen: Seen,
}

/// Which parts have come so far.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Seen {
    #[default]
    None,
    Seconds,
    Both,
    Otherwise,
}

impl Parts {
    /// The nanoseconds of an instant since its origin; `None` if there are no such parts, or for centuries that nobody lives to see.
    #[inline]
    pub(super) fn nanos(instant: Instant) -> Option<u64> {
        let mut parts = Parts::default();
        instant.hash(&mut parts);
        let fits = parts.seen == Seen::Both && parts.secs < MOST_SECONDS;
        fits.then(|| parts.secs * 1_000_000_000 + u64::from(parts.nanos))
    }

    #[inline]
    fn seconds(&mut self, secs: u64) {
        self.secs = secs;
        self.seen = if self.seen == Seen::None { Seen::Seconds } else { Seen::Otherwise };
    }
}

impl Hasher for Parts {
    #[inline]
    fn write_i64(&mut self, secs: i64) {
        self.seconds(secs as u64);
    }

    #[inline]
    fn write_u64(&mut self, secs: u64) {
        self.seconds(secs);
    }

    #[inline]
    fn write_u32(&mut self, nanos: u32) {
        self.nanos = nanos;
        self.seen = if self.seen == Seen::Seconds { Seen::Both } else { Seen::Otherwise };
    }

    fn write(&mut self, _: &[u8]) {
        self.seen = Seen::Otherwise;
    }

    fn finish(&self) -> u64 {
        0
    }
}

/// Whether parts of instants differ by what the instants differ by.
pub(super) fn are_seen(instant: Instant) -> bool {
    let differs_by = |time: Duration| {
        let later = instant.checked_add(time).and_then(Parts::nanos);
        let apart = Parts::nanos(instant).zip(later).and_then(|(first, second)| second.checked_sub(first));
        apart.map(u128::from) == Some(time.as_nanos())
    };
    let day = Duration::from_secs(24 * 60 * 60);
    let times = [Duration::ZERO, Duration::from_nanos(1), Duration::from_nanos(999_999_999), Duration::from_secs(1)];
    times.into_iter().chain([day, day * 36_500 + Duration::from_nanos(1_234_567_890)]).all(differs_by)
}

/// Three centuries: room for a machine's age, and for a sum of two.
const MOST_SECONDS: u64 = 300 * 365 * 24 * 60 * 60;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn start() -> Instant {
        crate::clock::system::instant().into_std()
    }

    /// If this fails, std hashes its instants in another way: the tokio clock still works, and costs more.
    #[test]
    fn std_shows_the_parts() {
        assert!(are_seen(start()));
    }

    proptest! {
        #[test]
        fn they_differ_by_what_the_instants_differ_by(secs in 0..3_000_000_000_u64, nanos in 0..1_000_000_000_u32) {
            let (first, apart) = (start(), Duration::new(secs, nanos));
            let between = Parts::nanos(first + apart).unwrap() - Parts::nanos(first).unwrap();
            prop_assert_eq!(u128::from(between), apart.as_nanos());
        }
    }

    #[test]
    fn what_is_not_two_parts_in_their_order_is_none() {
        let seen = |hash: fn(&mut Parts)| {
            let mut parts = Parts::default();
            hash(&mut parts);
            parts.seen == Seen::Both
        };
        assert!(seen(|parts| (1_i64, 2_u32).hash(parts)));
        assert!(seen(|parts| (1_u64, 2_u32).hash(parts)));
        assert!(!seen(|parts| 1_u64.hash(parts)));
        assert!(!seen(|parts| (2_u32, 1_u64).hash(parts)));
        assert!(!seen(|parts| (1_u64, 1_u64, 2_u32).hash(parts)));
        assert!(!seen(|parts| (1_u64, 2_u32, 3_u32).hash(parts)));
        assert!(!seen(|parts| (1_u64, 2_u32, 3_u8).hash(parts)));
    }
}
