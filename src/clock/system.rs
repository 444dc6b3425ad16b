//! The system's time, as tokio shows it.

use std::sync::OnceLock;
use std::time::SystemTime;

use tokio::time::Instant;

use super::moment::nanos;
use super::parts::{self, Parts};
use super::{Moment, ORIGIN_AGE};

#[inline(never)]
pub(super) fn now() -> Moment {
    moment(instant())
}

/// Tokio's `Instant` and not std's, so that a paused runtime is followed.
#[inline]
#[expect(clippy::disallowed_methods, reason = "this is where the tokio clock reads the time")]
pub(super) fn instant() -> Instant {
    Instant::now()
}

#[expect(clippy::disallowed_methods, reason = "this is where the tokio clock reads the date")]
pub(super) fn wall() -> SystemTime {
    SystemTime::now()
}

/// The origin lies `ORIGIN_AGE` before the anchor. It is not an `Instant` itself, since not every
/// platform can express one from before the machine was started.
#[inline]
pub(super) fn moment(instant: Instant) -> Moment {
    let anchor = ANCHOR.get_or_init(anchor);
    match (anchor.nanos, Parts::nanos(instant.into_std())) {
        (Some(anchor), Some(nanos)) if nanos + ORIGIN_AGE >= anchor => Moment::from_nanos(nanos + ORIGIN_AGE - anchor),
        _ => by_difference(instant, anchor.instant),
    }
}

/// The moment of any instant, also where sums have to saturate.
#[cold]
#[inline(never)]
fn by_difference(instant: Instant, anchor: Instant) -> Moment {
    Moment::from_nanos(match instant.checked_duration_since(anchor) {
        Some(after) => ORIGIN_AGE.saturating_add(nanos(after)),
        None => ORIGIN_AGE.saturating_sub(nanos(anchor.duration_since(instant))),
    })
}

struct Anchor {
    instant: Instant,
    /// By its parts, where these can be seen.
    nanos: Option<u64>,
}

static ANCHOR: OnceLock<Anchor> = OnceLock::new();

/// Std's `Instant` and not tokio's: if the first reading came from a paused runtime that has gone
/// years ahead, time would stand still for all others.
#[cold]
#[expect(clippy::disallowed_methods, reason = "this is where the tokio clock finds its origin")]
fn anchor() -> Anchor {
    let instant = std::time::Instant::now();
    let nanos = if parts::are_seen(instant) { Parts::nanos(instant) } else { None };
    Anchor { instant: Instant::from_std(instant), nanos }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn it_can_be_read_outside_of_a_runtime() {
        let first = now();
        assert!(now() >= first);
        assert!(first.nanos() >= ORIGIN_AGE);
        assert!(wall() > SystemTime::UNIX_EPOCH);
    }

    #[tokio::test(start_paused = true)]
    async fn it_follows_a_paused_runtime() {
        let start = now();
        assert_eq!(now(), start);
        tokio::time::advance(Duration::from_millis(1_234)).await;
        assert_eq!(now().since(start), Duration::from_millis(1_234));
    }

    #[tokio::test(start_paused = true)]
    async fn it_follows_a_paused_runtime_over_ten_years() {
        let ten_years = Duration::from_secs(10 * 365 * 24 * 60 * 60);
        let start = now();
        tokio::time::advance(ten_years).await;
        assert_eq!(now().since(start), ten_years);
    }

    #[test]
    fn instants_before_the_first_reading_have_their_own_moments() {
        now();
        let anchor = ANCHOR.get().unwrap().instant;
        let hour = Duration::from_secs(60 * 60);
        // Machines younger than an hour cannot express the instant on some platforms.
        if let Some(before) = anchor.checked_sub(hour) {
            assert_eq!(moment(anchor).since(moment(before)), hour);
        }
        assert_eq!(moment(anchor + hour).since(moment(anchor)), hour);
    }
    #[test]
    fn parts_and_differences_agree() {
        now();
        let anchor = ANCHOR.get().unwrap().instant;
        let hour = Duration::from_secs(60 * 60);
        let far = [hour * 24 * 365 * 200, hour * 24 * 365 * 290, hour * 24 * 365 * 700];
        for after in (0..100).map(|n| hour / 7 * n).chain(far) {
            let instant = anchor + after;
            assert_eq!(moment(instant), by_difference(instant, anchor), "{after:?} after");
        }
        for before in (0..100).map(|n| hour * n) {
            if let Some(instant) = anchor.checked_sub(before) {
                assert_eq!(moment(instant), by_difference(instant, anchor), "{before:?} before");
            }
        }
    }
}
