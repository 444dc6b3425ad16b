use std::sync::OnceLock;

use super::{Moment, ORIGIN_AGE};

/// The processor's time stamp counter, measured against the system's clock.
///
/// Its time never meets std's or tokio's `Instant`: a sleep converts what is left, not the moment.
pub(super) struct Counter {
    quanta: quanta::Clock,
    /// The raw reading that lies `ORIGIN_AGE` after the origin.
    anchor: u64,
    /// How many nanoseconds `SPAN` of the raw units are. By ourselves, since quanta would look up at each reading once more
    /// whether it counts in nanoseconds.
    nanos: u64,
}

impl Counter {
    /// The counter of the process; the first call measures it, for up to 200 ms.
    pub(super) fn shared() -> &'static Counter {
        static SHARED: OnceLock<Counter> = OnceLock::new();
        SHARED.get_or_init(|| {
            let quanta = quanta::Clock::new();
            let anchor = quanta.raw();
            let nanos = quanta.delta_as_nanos(0, SPAN);
            Counter { quanta, anchor, nanos }
        })
    }

    #[inline]
    pub(super) fn now(&self) -> Moment {
        // The counters of two processors may differ a little, and this one be that of another than the anchor.
        let elapsed = self.quanta.raw().saturating_sub(self.anchor);
        let elapsed = (u128::from(elapsed) * u128::from(self.nanos)) >> SPAN.ilog2();
        // No process lives for the centuries that it would take to overflow.
        Moment::from_nanos(ORIGIN_AGE.wrapping_add(elapsed as u64))
    }
}

/// Some minutes at least: to round them to a nanosecond is nothing beside the drift of the counter.
const SPAN: u64 = 1 << 40;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::Clock;
    use super::*;

    #[test]
    fn the_process_has_one_counter() {
        assert!(std::ptr::eq(Counter::shared(), Counter::shared()));
        assert_eq!(Clock::fast(), Clock::fast().clone());
        assert_ne!(Clock::fast(), Clock::tokio());
    }

    #[test]
    fn it_moves_forward_from_a_day_after_its_origin() {
        let counter = Counter::shared();
        let first = counter.now();
        assert!(first.nanos() >= ORIGIN_AGE);
        while counter.now() == first {}
        assert!(counter.now() > first);
    }

    /// Each clock is read inside and outside of the other, so that a preempted test still holds.
    #[tokio::test]
    async fn it_goes_as_fast_as_the_system() {
        let (fast, system) = (Clock::fast(), Clock::tokio());
        let outer_start = system.now();
        let start = fast.now();
        let inner_start = system.now();
        fast.sleep(Duration::from_millis(5)).await;
        let inner = system.now().since(inner_start);
        let slept = fast.now().since(start);
        let outer = system.now().since(outer_start);

        assert!(slept >= Duration::from_millis(5));
        assert!(slept >= inner.mul_f64(0.99), "{slept:?} in {inner:?}");
        assert!(slept <= outer.mul_f64(1.01), "{slept:?} in {outer:?}");
    }

    #[tokio::test]
    async fn a_sleep_is_never_early_on_its_own_clock() {
        let clock = Clock::fast();
        let at = clock.now() + Duration::from_micros(100);
        clock.sleep_until(at).await;
        assert!(clock.now() >= at);
    }
}
