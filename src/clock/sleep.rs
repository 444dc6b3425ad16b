use std::fmt;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use pin_project::pin_project;

use super::{Clock, Kind, Moment, custom_time, system};

/// A wait on one clock, made by [`Clock::sleep`] and [`Clock::sleep_until`].
///
/// Nothing is registered before the first poll, and nothing at all for a moment that has passed
/// (ready at once) or for [`Moment::NEVER`] (pending for ever). However far away, the wait ends at
/// its own time, never before it; how much later depends on the timer, tokio's counts whole
/// milliseconds. Polled again after its end it is ready again.
///
/// On the tokio and fast clocks the wait belongs to the runtime that polls it first, which needs
/// its timer enabled.
///
/// # Panics
///
/// On the tokio and fast clocks, when a wait that needs a timer is polled outside of a tokio
/// runtime or in one without a timer.
///
/// # Cancel safety
///
/// Dropping it takes its timer back; nothing else is lost.
#[must_use = "a sleep waits only when it is polled"]
#[pin_project]
pub struct Sleep {
    at: Moment,
    #[pin]
    wait: Wait,
}

impl Sleep {
    pub(super) fn new(clock: Clock, at: Moment) -> Sleep {
        Sleep { at, wait: Wait::Idle(clock) }
    }

    /// When the wait ends.
    #[inline]
    pub(crate) fn at(&self) -> Moment {
        self.at
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut this = self.project();
        loop {
            let next = match this.wait.as_mut().project() {
                Stage::Idle(clock) => Wait::begin(clock, *this.at),
                Stage::Tokio(ticker, timer) => {
                    ready!(timer.poll(cx));
                    // Not over yet if the timer was cut short, or a fast clock is behind tokio's. A
                    // new timer, and not a reset one, lives where the time has just been read.
                    Wait::tokio(*ticker, *this.at)
                }
                #[cfg(any(test, feature = "test-util"))]
                Stage::Manual(timer) => {
                    ready!(timer.poll(cx));
                    Wait::Over
                }
                Stage::Custom(timer) => {
                    let timer = timer.get_mut().unwrap_or_else(PoisonError::into_inner);
                    ready!(timer.as_mut().poll(cx));
                    Wait::Over
                }
                Stage::Never => return Poll::Pending,
                Stage::Over => return Poll::Ready(()),
            };
            this.wait.set(next);
        }
    }
}

impl fmt::Debug for Sleep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sleep")
            .field("at", &self.at)
            .field("over", &matches!(self.wait, Wait::Over))
            .finish_non_exhaustive()
    }
}

#[pin_project(project = Stage)]
enum Wait {
    /// For the first poll.
    Idle(Clock),
    /// For tokio's timer, to look at the time again.
    Tokio(Ticker, #[pin] tokio::time::Sleep),
    /// For a test to move its clock.
    #[cfg(any(test, feature = "test-util"))]
    Manual(super::manual::Timer),
    /// For the user's own source. The mutex is never locked: it makes a wait `Sync`, which bodies of responses have to be.
    Custom(Mutex<Pin<Box<dyn Future<Output = ()> + Send>>>),
    /// For nothing, in vain.
    Never,
    /// For nothing any more.
    Over,
}

impl Wait {
    fn begin(clock: &Clock, at: Moment) -> Wait {
        if at.is_never() {
            return Wait::Never;
        }
        match &clock.0 {
            Kind::Tokio => Wait::tokio(Ticker::Tokio, at),
            #[cfg(feature = "fast-clock")]
            Kind::Fast(_) => Wait::tokio(Ticker::Fast, at),
            _ if clock.now() >= at => Wait::Over,
            #[cfg(any(test, feature = "test-util"))]
            Kind::Manual(hand) => Wait::Manual(hand.timer(at)),
            Kind::Custom(custom) => Wait::Custom(Mutex::new(custom.source.sleep_until(custom_time(at)))),
        }
    }

    #[expect(clippy::disallowed_methods, reason = "this is where the library sleeps")]
    fn tokio(ticker: Ticker, at: Moment) -> Wait {
        let (now, instant) = ticker.now();
        let left = at.since(now);
        if left.is_zero() {
            return Wait::Over;
        }
        let timer = tokio::time::sleep_until(instant + left.min(LONGEST_TIMER));
        Wait::Tokio(ticker, timer)
    }
}

/// The clocks that sleep with tokio's timer.
#[derive(Clone, Copy)]
enum Ticker {
    Tokio,
    #[cfg(feature = "fast-clock")]
    Fast,
}

impl Ticker {
    /// The clock's present moment, and tokio's name for it.
    fn now(self) -> (Moment, tokio::time::Instant) {
        let instant = system::instant();
        let now = match self {
            Ticker::Tokio => system::moment(instant),
            #[cfg(feature = "fast-clock")]
            Ticker::Fast => super::fast::Counter::shared().now(),
        };
        (now, instant)
    }
}

/// Longer waits go through several timers: a moment can be 584 years away, which not every
/// platform's `Instant` reaches, and tokio's timer wheel covers 2.2 years at a time.
const LONGEST_TIMER: Duration = Duration::from_secs(365 * 24 * 60 * 60);

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Waker;
    use std::time::SystemTime;

    use super::super::TimeSource;
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const DAY: Duration = Duration::from_secs(24 * 60 * 60);

    fn poll_once(sleep: Pin<&mut Sleep>) -> Poll<()> {
        sleep.poll(&mut Context::from_waker(Waker::noop()))
    }

    /// Stands at five seconds; counts how often it is asked to sleep, and is asked for `7 s`.
    struct Counting(Arc<AtomicUsize>);

    impl TimeSource for Counting {
        fn now(&self) -> Duration {
            5 * SECOND
        }

        fn sleep_until(&self, at: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
            assert_eq!(at, 7 * SECOND);
            self.0.fetch_add(1, Ordering::Relaxed);
            Box::pin(async {})
        }

        fn wall(&self) -> SystemTime {
            SystemTime::UNIX_EPOCH
        }
    }

    fn counting() -> (Clock, Arc<AtomicUsize>) {
        let asked = Arc::new(AtomicUsize::new(0));
        (Clock::custom(Counting(Arc::clone(&asked))), asked)
    }

    /// Every clock that can be polled here without a runtime.
    fn clocks() -> Vec<Clock> {
        vec![
            Clock::tokio(),
            #[cfg(feature = "fast-clock")]
            Clock::fast(),
            Clock::manual().into(),
            counting().0,
        ]
    }

    #[test]
    fn a_sleep_can_be_sent_and_is_small() {
        fn send<T: Send + 'static>() {}
        send::<Sleep>();
        let tokio = size_of::<tokio::time::Sleep>();
        assert!(size_of::<Sleep>() <= tokio + 16, "{} on {tokio}", size_of::<Sleep>());
    }

    // Outside of a runtime tokio's timers panic, so these show as well that none is made.

    #[test]
    fn no_time_is_over_at_the_first_poll() {
        for clock in clocks() {
            assert!(poll_once(pin!(clock.sleep(Duration::ZERO))).is_ready(), "{clock:?}");
        }
    }

    #[test]
    fn a_moment_that_has_passed_is_over_at_the_first_poll() {
        for clock in clocks() {
            let past = Moment::from_nanos(clock.now().nanos() - 1);
            assert!(poll_once(pin!(clock.sleep_until(past))).is_ready(), "{clock:?}");
        }
    }

    #[test]
    fn never_stays_pending() {
        for clock in clocks() {
            let mut forever = pin!(clock.sleep(Duration::MAX));
            let mut never = pin!(clock.sleep_until(Moment::NEVER));
            for _ in 0..3 {
                assert!(poll_once(forever.as_mut()).is_pending(), "{clock:?}");
                assert!(poll_once(never.as_mut()).is_pending(), "{clock:?}");
            }
        }
    }

    #[test]
    fn a_sleep_can_be_made_outside_of_a_runtime() {
        drop(Clock::tokio().sleep(SECOND));
    }

    #[test]
    fn an_over_sleep_stays_over() {
        for clock in clocks() {
            let mut sleep = pin!(clock.sleep(Duration::ZERO));
            assert!(poll_once(sleep.as_mut()).is_ready());
            assert!(poll_once(sleep.as_mut()).is_ready());
        }
    }

    #[test]
    fn it_shows_its_state() {
        let mut sleep = pin!(Clock::manual().clock().sleep(Duration::ZERO));
        assert!(format!("{sleep:?}").contains("over: false"));
        assert!(poll_once(sleep.as_mut()).is_ready());
        assert!(format!("{sleep:?}").contains("over: true"));
    }

    #[test]
    fn a_custom_source_sleeps_once_and_only_when_it_must() {
        let (clock, asked) = counting();
        assert!(poll_once(pin!(clock.sleep(Duration::ZERO))).is_ready());
        assert!(poll_once(pin!(clock.sleep(Duration::MAX))).is_pending());
        drop(clock.sleep(2 * SECOND));
        assert_eq!(asked.load(Ordering::Relaxed), 0);

        let mut sleep = pin!(clock.sleep(2 * SECOND));
        assert!(poll_once(sleep.as_mut()).is_ready());
        assert!(poll_once(sleep.as_mut()).is_ready());
        assert_eq!(asked.load(Ordering::Relaxed), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn it_takes_as_long_as_it_was_told() {
        let clock = Clock::tokio();
        for millis in [1, 2, 999, 60_000] {
            let duration = Duration::from_millis(millis);
            let start = clock.now();
            clock.sleep(duration).await;
            let slept = clock.now().since(start);
            assert!(slept >= duration && slept <= duration + MILLISECOND, "{slept:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn it_is_never_early_by_a_nanosecond() {
        let clock = Clock::tokio();
        for nanos in [1, 999, 1_000_001, 1_999_999] {
            let at = clock.now() + Duration::from_nanos(nanos);
            clock.sleep_until(at).await;
            assert!(clock.now() >= at);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn far_sleeps_end_at_their_own_time() {
        let clock = Clock::tokio();
        let days = [116, 364, 365, 366, 795, 796, 3 * 365, 10 * 365];
        for duration in days.map(|days| days * DAY) {
            let start = clock.now();
            clock.sleep(duration).await;
            let slept = clock.now().since(start);
            assert!(slept >= duration && slept <= duration + MILLISECOND, "{slept:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn far_sleeps_end_in_order() {
        let clock = Clock::tokio();
        let start = clock.now();
        let ended = std::sync::Mutex::new(Vec::new());
        let sleep = async |days: u32| {
            clock.sleep(days * DAY).await;
            ended.lock().unwrap().push((days, clock.now().since(start).as_secs() / DAY.as_secs()));
        };
        tokio::join!(sleep(3 * 365), sleep(116), sleep(10 * 365), sleep(800), sleep(1));
        let days = [1, 116, 800, 3 * 365, 10 * 365];
        assert_eq!(*ended.lock().unwrap(), days.map(|days| (days, u64::from(days))));
    }

    #[tokio::test(start_paused = true)]
    async fn it_ends_after_a_jump_of_ten_years() {
        let clock = Clock::tokio();
        let mut sleep = pin!(clock.sleep(3 * 365 * DAY));
        assert!(poll_once(sleep.as_mut()).is_pending());
        tokio::time::advance(10 * 365 * DAY).await;
        assert!(poll_once(sleep).is_ready());
    }

    #[tokio::test(start_paused = true)]
    async fn a_dropped_sleep_holds_nothing_up() {
        let clock = Clock::tokio();
        let start = clock.now();
        {
            let mut long = pin!(clock.sleep(DAY));
            assert!(poll_once(long.as_mut()).is_pending());
        }
        clock.sleep(SECOND).await;
        assert!(clock.now().since(start) < 2 * SECOND);
    }

    const MILLISECOND: Duration = Duration::from_millis(1);
}
