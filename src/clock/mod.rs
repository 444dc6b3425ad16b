//! Where the library gets its time from: [`Clock`] owns *now*, *sleep* and the wall clock.
//!
//! | clock | *now* | sleeps with | for |
//! |---|---|---|---|
//! | [`Clock::tokio`] | tokio's clock, the system's monotonic one | tokio's timer | the default; follows a paused test runtime |
//! | `Clock::fast` (feature `fast-clock`) | the processor's time stamp counter | tokio's timer | calls so short that reading the time shows |
//! | `Clock::manual` (feature `test-util`) | stands still until the test moves it | itself | tests without a runtime and without waiting |
//! | [`Clock::custom`] | your [`TimeSource`] | your [`TimeSource`] | simulators, other runtimes |
//!
//! Every clock is monotonic as far as its users can see: differences saturate at zero, so that a
//! source that steps back counts as one that stood still.

#[cfg(any(test, feature = "test-util"))]
mod block_on;
mod deadline;
#[cfg(feature = "fast-clock")]
mod fast;
#[cfg(any(test, feature = "test-util"))]
mod manual;
mod moment;
mod parking;
mod parts;
mod signal;
mod sleep;
mod system;

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

pub use self::deadline::Deadline;
#[cfg(any(test, feature = "test-util"))]
pub use self::manual::ManualClock;
pub use self::moment::Moment;
pub(crate) use self::moment::nanos;
pub(crate) use self::parking::Parked;
pub use self::sleep::Sleep;

/// The source of time of a call: what its policies read, sleep on and date things with.
///
/// A clone is the same clock, and so are any two [`Clock::tokio`]; that is what `==` compares.
/// [`Moment`]s of different clocks have nothing to do with each other.
///
/// # Example
///
/// ```
/// use std::time::Duration;
/// use steadfast::clock::Clock;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let clock = Clock::tokio();
/// let start = clock.now();
/// clock.sleep(Duration::from_secs(5)).await;
///
/// assert!(clock.now().since(start) >= Duration::from_secs(5));
/// # }
/// ```
#[derive(Clone)]
pub struct Clock(Kind);

/// The thin `Arc`s keep a clock at two words, and the choice at one comparison.
#[derive(Clone)]
enum Kind {
    Tokio,
    #[cfg(feature = "fast-clock")]
    Fast(&'static fast::Counter),
    #[cfg(any(test, feature = "test-util"))]
    Manual(Arc<manual::Hand>),
    Custom(Arc<Custom>),
}

struct Custom {
    source: Box<dyn TimeSource>,
    /// The clock that it is, if it only sleeps in another way.
    base: Option<Clock>,
}

impl Clock {
    /// The clock of tokio, and the default: the system's monotonic clock, or a test runtime's
    /// paused one.
    ///
    /// It can be read anywhere; to sleep takes a tokio runtime with its timer enabled.
    #[must_use]
    pub const fn tokio() -> Clock {
        Clock(Kind::Tokio)
    }

    /// A clock that reads the processor's time stamp counter: less than half the cost of
    /// [`Clock::tokio`] for *now*, the same for sleeping.
    ///
    /// The first call measures the counter against the system's clock, which can take 200 ms of
    /// busy waiting: make it at start-up. All fast clocks of a process are one and the same. Where
    /// the processor has no steady counter the system's clock is read instead.
    ///
    /// The counter is measured once and never corrected, so it drifts from the system's clock by
    /// some millionths; and it does not follow a paused runtime.
    ///
    /// # Example
    ///
    /// ```
    /// use steadfast::clock::Clock;
    ///
    /// let clock = Clock::fast();
    /// let start = clock.now();
    /// assert!(clock.now() >= start);
    /// assert_eq!(clock, Clock::fast());
    /// ```
    #[cfg(feature = "fast-clock")]
    #[must_use]
    pub fn fast() -> Clock {
        Clock(Kind::Fast(fast::Counter::shared()))
    }

    /// A new clock that stands still until the test moves it.
    ///
    /// See [`ManualClock`] for how to move it; `Clock::from` gives the clock that policies take.
    #[cfg(any(test, feature = "test-util"))]
    #[must_use]
    pub fn manual() -> ManualClock {
        ManualClock::new()
    }

    /// A clock that reads and sleeps through `source`. Only its clones are equal to it.
    #[must_use]
    pub fn custom(source: impl TimeSource) -> Clock {
        Clock(Kind::Custom(Arc::new(Custom { source: Box::new(source), base: None })))
    }

    /// The present moment.
    #[inline]
    #[must_use]
    pub fn now(&self) -> Moment {
        match &self.0 {
            Kind::Tokio => system::now(),
            #[cfg(feature = "fast-clock")]
            Kind::Fast(counter) => counter.now(),
            #[cfg(any(test, feature = "test-util"))]
            Kind::Manual(hand) => manual_now(hand),
            Kind::Custom(custom) => custom_now(custom),
        }
    }

    /// The present date and time, for what crosses the process's border (HTTP dates). It can jump,
    /// and is never used to measure.
    ///
    /// The tokio and the fast clock give the system's; a manual clock begins at
    /// 2020-01-01T00:00:00Z and moves when it is advanced.
    #[must_use]
    pub fn wall(&self) -> SystemTime {
        match &self.0 {
            Kind::Tokio => system::wall(),
            #[cfg(feature = "fast-clock")]
            Kind::Fast(_) => system::wall(),
            #[cfg(any(test, feature = "test-util"))]
            Kind::Manual(hand) => hand.wall(),
            Kind::Custom(custom) => custom.source.wall(),
        }
    }

    /// Waits for `duration` from now. `Duration::ZERO` is over at the first poll and
    /// `Duration::MAX` never ends; neither registers a timer.
    ///
    /// See [`Sleep`] for what the wait promises.
    pub fn sleep(&self, duration: Duration) -> Sleep {
        self.sleep_until(self.now() + duration)
    }

    /// Waits until `at`. A moment that has passed is over at the first poll and [`Moment::NEVER`]
    /// never ends; neither registers a timer.
    ///
    /// See [`Sleep`] for what the wait promises.
    pub fn sleep_until(&self, at: Moment) -> Sleep {
        Sleep::new(self.clone(), at)
    }

    /// The clock that it is, however it sleeps.
    fn base(&self) -> &Clock {
        match &self.0 {
            Kind::Custom(custom) => custom.base.as_ref().unwrap_or(self),
            _ => self,
        }
    }
}

/// A clone: the same clock.
impl From<&Clock> for Clock {
    fn from(clock: &Clock) -> Clock {
        clock.clone()
    }
}

impl Default for Clock {
    /// [`Clock::tokio`].
    fn default() -> Clock {
        Clock::tokio()
    }
}

impl PartialEq for Clock {
    fn eq(&self, other: &Clock) -> bool {
        match (&self.base().0, &other.base().0) {
            (Kind::Tokio, Kind::Tokio) => true,
            #[cfg(feature = "fast-clock")]
            (Kind::Fast(_), Kind::Fast(_)) => true,
            #[cfg(any(test, feature = "test-util"))]
            (Kind::Manual(one), Kind::Manual(two)) => Arc::ptr_eq(one, two),
            (Kind::Custom(one), Kind::Custom(two)) => Arc::ptr_eq(one, two),
            _ => false,
        }
    }
}

impl Eq for Clock {}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.base().0 {
            Kind::Tokio => "Clock::Tokio",
            #[cfg(feature = "fast-clock")]
            Kind::Fast(_) => "Clock::Fast",
            #[cfg(any(test, feature = "test-util"))]
            Kind::Manual(_) => "Clock::Manual",
            Kind::Custom(_) => "Clock::Custom",
        })
    }
}

/// A user's own time, for [`Clock::custom`].
///
/// All times are durations since the source's own origin, which is its to choose.
///
/// # Example: time without tokio
///
/// ```
/// use std::pin::Pin;
/// use std::time::{Duration, Instant, SystemTime};
/// use steadfast::clock::{Clock, TimeSource};
///
/// struct Threads(Instant);
///
/// impl TimeSource for Threads {
///     fn now(&self) -> Duration {
///         self.0.elapsed()
///     }
///
///     fn sleep_until(&self, at: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
///         let left = at.saturating_sub(self.now());
///         Box::pin(async move {
///             let (done, wait) = tokio::sync::oneshot::channel();
///             std::thread::spawn(move || {
///                 std::thread::sleep(left);
///                 let _ = done.send(());
///             });
///             let _ = wait.await;
///         })
///     }
///
///     fn wall(&self) -> SystemTime {
///         SystemTime::now()
///     }
/// }
///
/// let clock = Clock::custom(Threads(Instant::now()));
/// let start = clock.now();
/// assert!(clock.now() >= start);
/// ```
pub trait TimeSource: Send + Sync + 'static {
    /// The time since the source's origin. It should never fall; if it does, the difference counts
    /// as zero.
    fn now(&self) -> Duration;

    /// A future that ends when [`now`](TimeSource::now) has reached `at`. It may end late, not
    /// early: the library takes its word for it.
    ///
    /// It is asked for when a [`Sleep`] is first polled, and only for a time still to come.
    fn sleep_until(&self, at: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>>;

    /// The present date and time.
    fn wall(&self) -> SystemTime;
}

// Out of line, so that the common clocks are read with nothing to set up.
#[cfg(any(test, feature = "test-util"))]
#[cold]
#[inline(never)]
fn manual_now(hand: &manual::Hand) -> Moment {
    hand.now()
}

/// A source's time as a moment: short of [`Moment::NEVER`], which nothing may reach.
#[cold]
#[inline(never)]
fn custom_now(custom: &Custom) -> Moment {
    let moment = Moment::from_nanos(ORIGIN_AGE) + custom.source.now();
    moment.min(LAST)
}

/// A moment in the source's own terms.
fn custom_time(at: Moment) -> Duration {
    at.since(Moment::from_nanos(ORIGIN_AGE))
}

/// How long ago the origin of a clock lies when it is first read: a day, in nanoseconds.
///
/// A paused tokio clock stands behind the system's, so moments before the first reading must
/// exist; and "a minute ago" can always be expressed, and no present moment is zero.
const ORIGIN_AGE: u64 = 24 * 60 * 60 * 1_000_000_000;

/// The last moment that a clock can reach.
const LAST: Moment = Moment::from_nanos(Moment::NEVER.nanos() - 1);

#[cfg(test)]
mod tests {
    use std::future::ready;
    use std::sync::Mutex;

    use super::*;

    /// Gives the listed times in turn, in milliseconds, and then the last one for ever.
    struct Script(Mutex<Vec<u64>>);

    impl Script {
        fn clock(times: &[u64]) -> Clock {
            Clock::custom(Script(Mutex::new(times.iter().rev().copied().collect())))
        }
    }

    impl TimeSource for Script {
        fn now(&self) -> Duration {
            let mut left = self.0.lock().unwrap();
            let now = if left.len() > 1 { left.pop() } else { left.last().copied() };
            Duration::from_millis(now.unwrap())
        }

        fn sleep_until(&self, _: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
            Box::pin(ready(()))
        }

        fn wall(&self) -> SystemTime {
            SystemTime::UNIX_EPOCH
        }
    }

    #[test]
    fn a_clock_is_two_words_and_can_be_shared() {
        fn shared<T: Send + Sync + Clone + 'static>() {}
        shared::<Clock>();
        assert_eq!(size_of::<Clock>(), 16);
        assert_eq!(size_of::<Moment>(), 8);
    }

    #[test]
    fn equality_is_identity() {
        assert_eq!(Clock::default(), Clock::tokio());

        let custom = Script::clock(&[0]);
        assert_eq!(custom, custom.clone());
        assert_ne!(custom, Script::clock(&[0]));
        assert_ne!(custom, Clock::tokio());

        let manual = Clock::manual();
        assert_eq!(manual.clock(), Clock::from(&manual));
        assert_ne!(manual.clock(), Clock::manual().clock());
    }

    #[test]
    fn a_clock_shows_its_kind() {
        assert_eq!(format!("{:?}", Clock::tokio()), "Clock::Tokio");
        assert_eq!(format!("{:?}", Clock::from(Clock::manual())), "Clock::Manual");
        assert_eq!(format!("{:?}", Script::clock(&[0])), "Clock::Custom");
    }

    #[test]
    fn a_source_that_steps_back_counts_as_standing_still() {
        let clock = Script::clock(&[500, 200, 700]);
        let first = clock.now();
        let second = clock.now();
        assert_eq!(second.since(first), Duration::ZERO);
        assert_eq!(clock.now().since(first), Duration::from_millis(200));
    }

    #[test]
    fn a_source_at_its_origin_is_not_at_zero() {
        assert_eq!(Script::clock(&[0]).now().nanos(), ORIGIN_AGE);
    }

    #[test]
    fn a_source_never_reaches_never() {
        let clock = Script::clock(&[u64::MAX]);
        assert_eq!(clock.now(), LAST);
        assert!(clock.now() < Moment::NEVER);
    }

    #[test]
    fn a_source_is_asked_in_its_own_terms() {
        let clock = Script::clock(&[1_500]);
        assert_eq!(custom_time(clock.now()), Duration::from_millis(1_500));
        assert_eq!(clock.wall(), SystemTime::UNIX_EPOCH);
    }
}
