//! The settings of a hedge.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::percentile::{Percentile, PercentileSettings};
use crate::attempt::Attempt;
use crate::clock::Moment;
use crate::error::ConfigError;
use crate::policy::{Settings, Site};
use crate::snapshot::{HedgeSnapshot, PolicySnapshot};

/// Starts the same call once more beside one that takes long, and takes whichever ends first: the slow tail of a dependency
/// with independent replicas is cut off, for a little more load.
///
/// Each try begins with one lane. If it has not ended after the delay, or fails before, the next lane is started, up to
/// [`max`](Hedge::max). The first acceptable outcome ends the try, and the lanes that still run are *dropped* in the same poll:
///
/// | a lane ended as | |
/// |---|---|
/// | `Success`, `Permanent`, `Fatal`, `Ignored` | it decides |
/// | `Transient` | held back; the next lane starts at once |
/// | `Throttled`, `Rejected` | held back; no more lanes are started |
///
/// If no lane is left and none may be started, the try ends at once with the outcome of the lowest lane, or with a rejection if
/// there was nothing else. A value that is not returned is [given up](crate::policy::Next::discard): what can be done about it
/// at once is done, and it is dropped.
///
/// Not hedged are: a trial of a half-open breaker outside of the hedge, an operation that says that it cannot be
/// [repeated](crate::operation::Operation::repeat) or has its state to itself, and a run whose caller allows
/// [one attempt](crate::Context::once). Each hedge draws on the [budget](crate::Budget) of the executor; if that is used up
/// nothing is started, and what runs goes on.
///
/// It belongs inside of a [`Retry`](crate::Retry) and outside of a [`Breaker`](crate::Breaker) and of the attempt's
/// [`Timeout`](crate::Timeout), so that each lane is counted and limited by itself. **The operation may run twice at the same
/// time**: hedge what is idempotent, and what does not write.
///
/// All lanes run in the task of the caller, nothing is spawned, and nothing is allocated until a hedge starts.
///
/// ```
/// # use std::time::Duration;
/// # use steadfast::{Context, Hedge, try_do};
/// # let clock = steadfast::clock::Clock::manual();
/// # let sleeper = clock.clock();
/// # clock.block_on(async {
/// # let cx = Context::new().with_clock(&clock);
/// let hedge = Hedge::after(Duration::from_millis(20));
/// let begun = clock.now();
/// let lane = try_do(&cx, |attempt| {
///     let takes = Duration::from_millis(if attempt.is_hedge() { 5 } else { 800 });
///     let work = sleeper.sleep(takes);
///     async move { work.await; Ok::<_, String>(attempt.hedge()) }
/// }, hedge).await;
/// assert_eq!(lane.unwrap(), 1);
/// assert_eq!(clock.now().since(begun), Duration::from_millis(25));
/// # });
/// ```
#[derive(Clone)]
#[must_use = "a policy does nothing until it is part of a chain"]
pub struct Hedge {
    pub(super) delay: Delay,
    max: u32,
    /// A setting that the kind of delay does not have.
    pub(super) misplaced: Option<ConfigError>,
}

#[derive(Clone)]
pub(super) enum Delay {
    Fixed(Duration),
    By(Arc<Computed>),
    Percentile(Arc<Percentile>),
}

type Computed = dyn Fn(&Attempt) -> Option<Duration> + Send + Sync;

impl Hedge {
    /// Starts the next lane `delay` after the one before. Zero starts all of them at once; `Duration::MAX` starts the next one
    /// only when one has failed.
    pub const fn after(delay: Duration) -> Hedge {
        Hedge::new(Delay::Fixed(delay))
    }

    /// Starts the next lane after the time that a share of `p` of the attempts does not exceed: with 0.95 about one call in
    /// twenty is hedged, however fast the dependency is. `p` is between 0 and 1.
    ///
    /// The latencies are those of the last [`window`](Hedge::window), of attempts that were answered; what is known of lanes that
    /// were dropped or ran into a limit of their own counts too. Until there are [`min_samples`](Hedge::min_samples) only a failure
    /// starts the next lane.
    ///
    /// The hedge is then a handle: clones share what they have seen. Each setter but [`max`](Hedge::max) begins afresh, so set
    /// first and clone then.
    pub fn percentile(p: f64) -> Hedge {
        Hedge::new(Delay::Percentile(Arc::new(Percentile::new(PercentileSettings {
            p,
            min_samples: DEFAULT_MIN_SAMPLES,
            floor: DEFAULT_FLOOR,
            ceiling: Duration::MAX,
            window: DEFAULT_WINDOW,
        }))))
    }

    /// Starts the next lane after what `delay` says, given the lane before; `None` starts no more for this try. A panic in it
    /// reaches the caller.
    pub fn with(delay: impl Fn(&Attempt) -> Option<Duration> + Send + Sync + 'static) -> Hedge {
        Hedge::new(Delay::By(Arc::new(delay)))
    }

    const fn new(delay: Delay) -> Hedge {
        Hedge { delay, max: DEFAULT_MAX, misplaced: None }
    }

    /// How many lanes may be started beside the first. Default: 1. From 1 to 65,535.
    pub const fn max(mut self, hedges: u32) -> Hedge {
        self.max = hedges;
        self
    }

    /// How many samples a percentile takes to be known. Default: 100.
    pub fn min_samples(self, n: u32) -> Hedge {
        self.percentile_setting("min_samples", n, |settings| settings.min_samples = n)
    }

    /// The shortest delay that a percentile may give. Default: 1 ms.
    pub fn floor(self, delay: Duration) -> Hedge {
        self.percentile_setting("floor", format_args!("{delay:?}"), |settings| settings.floor = delay)
    }

    /// The longest delay that a percentile may give. Default: none.
    pub fn ceiling(self, delay: Duration) -> Hedge {
        self.percentile_setting("ceiling", format_args!("{delay:?}"), |settings| settings.ceiling = delay)
    }

    /// Over how long latencies are remembered: for this long at most, and for half of it at least. Default: 60 s. At least 1 s.
    pub fn window(self, window: Duration) -> Hedge {
        self.percentile_setting("window", format_args!("{window:?}"), |settings| settings.window = window)
    }

    fn percentile_setting(
        mut self,
        field: &'static str,
        value: impl fmt::Display,
        set: impl FnOnce(&mut PercentileSettings),
    ) -> Hedge {
        match &self.delay {
            Delay::Percentile(percentile) => {
                let mut settings = percentile.settings.clone();
                set(&mut settings);
                self.delay = Delay::Percentile(Arc::new(Percentile::new(settings)));
            }
            _ => self.misplaced = Some(ConfigError::new(field, value, "only the delay of a percentile has one")),
        }
        self
    }

    /// The delay of the next call, as far as it is known without one: `None` for one that is computed, and for a percentile
    /// in its warm-up.
    #[must_use]
    pub fn delay(&self) -> Option<Duration> {
        match &self.delay {
            Delay::Fixed(delay) => Some(*delay),
            Delay::By(_) => None,
            Delay::Percentile(percentile) => percentile.look(),
        }
    }

    /// What it would do now, as data.
    #[must_use]
    pub fn snapshot(&self) -> HedgeSnapshot {
        HedgeSnapshot { delay: self.delay(), max: self.max }
    }

    /// Refuses settings that cannot work.
    ///
    /// # Errors
    /// If there are no hedges or too many; if a percentile is not a number in its range, has its floor above its ceiling, needs
    /// no samples or remembers nothing; if a setting belongs to a percentile and there is none.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.misplaced.clone().map_or(Ok(()), Err)?;
        if !(1..=MOST_HEDGES).contains(&self.max) {
            return Err(ConfigError::new("max", self.max, "must be from 1 to 65,535"));
        }
        match &self.delay {
            Delay::Percentile(percentile) => percentile.settings.check(),
            Delay::Fixed(_) | Delay::By(_) => Ok(()),
        }
    }

    #[inline]
    pub(super) fn most(&self) -> u32 {
        self.max
    }

    /// The latencies, if it follows them.
    #[inline]
    pub(super) fn latencies(&self) -> Option<&Percentile> {
        match &self.delay {
            Delay::Percentile(percentile) => Some(percentile),
            Delay::Fixed(_) | Delay::By(_) => None,
        }
    }

    /// How long after the start of the lane `before` the next one starts; `None` if none may.
    pub(super) fn delay_after(&self, before: impl FnOnce() -> Attempt, now: Moment) -> Option<Duration> {
        match &self.delay {
            Delay::Fixed(delay) => Some(*delay),
            Delay::By(delay) => delay(&before()),
            Delay::Percentile(percentile) => Some(percentile.delay(now).unwrap_or(Duration::MAX)),
        }
    }
}

impl Settings for Hedge {
    fn validate(&self, site: &mut Site<'_>) -> Result<(), ConfigError> {
        site.reads_verdicts("Hedge")?;
        self.check()?;
        self.latencies().map_or(Ok(()), |percentile| percentile.bind(site.clock()))
    }

    /// Each lane as long as it may be. The next one starts after the delay, or when there is none left.
    fn limit(&self, inner: Option<Duration>) -> Option<Duration> {
        let inner = inner?;
        let apart = match &self.delay {
            Delay::Fixed(delay) => inner.min(*delay),
            // In the warm-up of a percentile too, only the end of one lane may start the next.
            Delay::Percentile(_) | Delay::By(_) => inner,
        };
        Some(inner.saturating_add(apart.saturating_mul(self.max)))
    }

    fn snapshots(&self, all: &mut Vec<PolicySnapshot>) {
        all.push(PolicySnapshot::Hedge(self.snapshot()));
    }
}

impl fmt::Debug for Hedge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Hedge");
        match &self.delay {
            Delay::Fixed(delay) => shown.field("after", delay),
            Delay::By(_) => shown.field("after", &format_args!("computed")),
            Delay::Percentile(percentile) => shown.field("after", percentile),
        };
        shown.field("max", &self.max).finish_non_exhaustive()
    }
}

/// One hedge cuts off nearly all of the tail; a second one helps only where both lanes stall.
pub const DEFAULT_MAX: u32 = 1;

/// With fewer, the slowest twentieth is a handful of calls.
pub const DEFAULT_MIN_SAMPLES: u32 = 100;

/// Shorter than a timer can tell.
pub const DEFAULT_FLOOR: Duration = Duration::from_millis(1);

/// Long enough for a percentile of few calls, short enough to follow a deployment.
pub const DEFAULT_WINDOW: Duration = Duration::from_secs(60);

/// The number of a lane has 16 bits.
const MOST_HEDGES: u32 = u16::MAX as u32;
