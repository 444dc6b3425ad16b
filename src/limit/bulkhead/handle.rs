//! The bulkhead as its users hold it.

use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::config::{BulkheadConfig, check_permits};
use super::permit::BulkheadPermit;
use super::permits::Permits;
use super::wait::wait;
use crate::clock::{Clock, nanos};
use crate::context::Context;
use crate::error::{ConfigError, Full, Kind, Name, Refusal};
use crate::limit::caller::{end, ended};
use crate::limit::label::Label;
use crate::policy::{Settings, Site};
use crate::snapshot::{BulkheadSnapshot, PolicySnapshot};

/// Lets so many calls run at a time; others wait in line for a while, if it has a queue, or are refused at once.
///
/// A call holds its permit until it has ended, or is dropped; a result that outlives the run, such as the body of a response,
/// until that has ended. Permits are given in the order in which callers came, and a caller that stops waiting leaves no trace.
///
/// A handle: clones share the permits. Outside of a [`Retry`](crate::Retry) it holds a permit for all tries and the waits
/// between them; inside, for each try alone.
///
/// ```
/// # use steadfast::{Context, error::Kind, try_do};
/// use steadfast::Bulkhead;
///
/// # let clock = steadfast::clock::Clock::manual();
/// # clock.block_on(async {
/// # let cx = Context::new().with_clock(&clock);
/// let bulkhead = Bulkhead::new(1);
/// let nested = |_| async { try_do(&cx, |_| async { Ok::<_, String>(()) }, &bulkhead).await };
/// let inner = try_do(&cx, nested, &bulkhead).await.unwrap_err();
/// assert!(inner.last().unwrap().is_rejection(), "the only permit is taken");
/// assert_eq!(bulkhead.in_flight(), 0);
/// # });
/// ```
#[derive(Clone)]
#[must_use = "a policy does nothing until it is part of a chain"]
pub struct Bulkhead {
    shared: Arc<Shared>,
    permits: Arc<Permits>,
    /// Of this handle and its clones.
    label: Label,
}

struct Shared {
    /// How many may wait, and for how long in nanoseconds. Each by itself: a call that takes an old one is as good as one that came
    /// a moment earlier.
    queue: AtomicUsize,
    max_wait: AtomicU64,
    /// For callers without a chain and without a context.
    clock: OnceLock<Clock>,
    checked: Result<(), ConfigError>,
}

impl Bulkhead {
    /// A bulkhead of `permits` permits, from 1 to [`MAX_PERMITS`](super::MAX_PERMITS), without a queue. Another number is refused
    /// where it is used, see [`with`](Bulkhead::with).
    pub fn new(permits: usize) -> Bulkhead {
        Bulkhead::with(BulkheadConfig::new(permits))
    }

    /// A bulkhead with these settings. Those that cannot work are refused where it is used: building an executor fails, a run
    /// ends with [`Kind::Misconfigured`], and so do [`try_acquire`](Bulkhead::try_acquire) and the like.
    pub fn with(config: BulkheadConfig) -> Bulkhead {
        let checked = config.check();
        // Without a permit everybody comes to where the settings are looked at.
        let permits = if checked.is_ok() { narrow(config.permits) } else { 0 };
        let (queue, max_wait) = (AtomicUsize::new(config.queue), AtomicU64::new(nanos(config.max_wait)));
        let shared = Shared { queue, max_wait, clock: OnceLock::new(), checked };
        Bulkhead { shared: Arc::new(shared), permits: Arc::new(Permits::new(permits)), label: Label::default() }
    }

    /// Names this handle, for errors: without a name they carry that of the executor.
    pub fn named(mut self, name: impl AsRef<str>) -> Bulkhead {
        self.label = Label::new(name.as_ref());
        self
    }

    /// Measures the waits of [`acquire`](Bulkhead::acquire) with `clock`, if there was none before. Runs and contexts bring
    /// their own clocks, and one bulkhead serves those of any.
    ///
    /// # Errors
    /// If it is bound to another clock; `acquire` binds it to [`Clock::tokio`] if nothing else has.
    pub fn bind(&self, clock: impl Into<Clock>) -> Result<(), ConfigError> {
        let clock = clock.into();
        let bound = self.shared.clock.get_or_init(|| clock.clone());
        if *bound == clock {
            return Ok(());
        }
        Err(ConfigError::new(
            "clock",
            format_args!("{clock:?}"),
            "a bulkhead keeps to the first clock that it is bound to",
        ))
    }

    /// Takes a permit, if there is one and nobody waits.
    ///
    /// ```
    /// use steadfast::Bulkhead;
    ///
    /// let bulkhead = Bulkhead::new(1);
    /// let permit = bulkhead.try_acquire().unwrap();
    /// assert!(bulkhead.try_acquire().is_err());
    /// drop(permit);
    /// assert!(bulkhead.try_acquire().is_ok());
    /// ```
    ///
    /// # Errors
    /// [`Kind::BulkheadFull`] if there is none.
    #[inline]
    pub fn try_acquire(&self) -> Result<BulkheadPermit, Refusal> {
        if self.label.is_usable() && self.permits.try_take() {
            Ok(BulkheadPermit::taken(&self.permits))
        } else {
            self.refuse_now()
        }
    }

    #[cold]
    fn refuse_now(&self) -> Result<BulkheadPermit, Refusal> {
        self.check().map_err(|config| Refusal::misconfigured(config, self.name()))?;
        Err(self.refusal(Kind::BulkheadFull { why: Full::Queue }))
    }

    /// Takes a permit, and waits for one in line, for at most the [longest wait](BulkheadConfig::max_wait).
    ///
    /// # Errors
    /// [`Kind::BulkheadFull`], at once if the queue is full, or after the longest wait.
    ///
    /// # Cancel safety
    /// Dropped, it has taken nothing, and those behind it move up.
    ///
    /// # Panics
    /// On the tokio and fast clocks, if it has to wait outside of a tokio runtime with a timer.
    pub async fn acquire(&self) -> Result<BulkheadPermit, Refusal> {
        if self.label.is_usable() && self.permits.try_take() {
            return Ok(BulkheadPermit::taken(&self.permits));
        }
        if !self.may_wait() {
            return self.refuse_now();
        }
        let clock = self.shared.clock.get_or_init(Clock::tokio);
        let timer = clock.sleep(self.max_wait());
        // Boxed: who does not wait has no use for it.
        let waited = Box::pin(wait(&self.permits, self.queue(), || false, timer)).await;
        self.taken(waited)
    }

    /// [`acquire`](Bulkhead::acquire) on behalf of a caller: its deadline and its token end the wait.
    ///
    /// # Errors
    /// As [`acquire`](Bulkhead::acquire); and [`Kind::DeadlineExceeded`] or [`Kind::Cancelled`] if the caller's context says so,
    /// also where a permit is free.
    ///
    /// # Cancel safety
    /// Dropped, it has taken nothing, and those behind it move up.
    ///
    /// # Panics
    /// On the tokio and fast clocks, if it has to wait outside of a tokio runtime with a timer.
    pub async fn acquire_with(&self, cx: &Context) -> Result<BulkheadPermit, Refusal> {
        if let Some(kind) = ended(cx) {
            return Err(self.refusal(kind));
        }
        if self.label.is_usable() && self.permits.try_take() {
            return Ok(BulkheadPermit::taken(&self.permits));
        }
        if !self.may_wait() {
            return self.refuse_now();
        }
        let timer = cx.clock().sleep(self.max_wait());
        let waited = wait(&self.permits, self.queue(), || ended(cx).is_some(), timer);
        tokio::select! {
            biased;
            waited = waited => self.taken(waited),
            kind = end(cx) => Err(self.refusal(kind)),
        }
    }

    /// Changes the number of permits, from 1 to [`MAX_PERMITS`](super::MAX_PERMITS). If there are more, those who wait get them. If
    /// there are fewer, calls that run keep theirs, and nobody else gets one until enough of them have ended.
    ///
    /// # Errors
    /// If there cannot be as many; then nothing is changed.
    pub fn resize(&self, permits: usize) -> Result<(), ConfigError> {
        self.shared.checked.clone()?;
        check_permits(permits)?;
        self.permits.resize(narrow(permits));
        Ok(())
    }

    /// Takes new settings: the number of permits, as [`resize`](Bulkhead::resize) does, and the queue and the longest wait for callers
    /// that come from now on. Those who wait keep their places and their times. All clones have their settings together.
    ///
    /// # Errors
    /// If the settings cannot work; then nothing is changed.
    pub fn reconfigure(&self, config: BulkheadConfig) -> Result<(), ConfigError> {
        self.shared.checked.clone()?;
        config.check()?;
        self.shared.queue.store(config.queue, Relaxed);
        self.shared.max_wait.store(nanos(config.max_wait), Relaxed);
        self.permits.resize(narrow(config.permits));
        Ok(())
    }

    /// How many permits there are, free and taken.
    #[must_use]
    pub fn permits(&self) -> usize {
        self.permits.permits()
    }

    /// How many permits are free.
    #[must_use]
    pub fn available(&self) -> usize {
        self.permits.free()
    }

    /// How many permits are taken: for a while more than there are, after [`resize`](Bulkhead::resize).
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.permits.taken()
    }

    /// How many callers wait.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.permits.waiting()
    }

    /// All of that, as data.
    #[must_use]
    pub fn snapshot(&self) -> BulkheadSnapshot {
        BulkheadSnapshot {
            name: self.name().map(Name::as_str),
            permits: self.permits(),
            in_flight: self.in_flight(),
            queued: self.queued(),
        }
    }

    pub(super) fn shared_permits(&self) -> &Arc<Permits> {
        &self.permits
    }

    /// Whether there is a queue, and not only because nothing was checked.
    pub(crate) fn may_wait(&self) -> bool {
        self.queue() > 0 && self.shared.checked.is_ok() && self.label.is_usable()
    }

    pub(super) fn queue(&self) -> usize {
        self.shared.queue.load(Relaxed)
    }

    pub(super) fn max_wait(&self) -> Duration {
        match self.shared.max_wait.load(Relaxed) {
            u64::MAX => Duration::MAX,
            nanos => Duration::from_nanos(nanos),
        }
    }

    pub(super) fn name(&self) -> Option<Name> {
        self.label.name()
    }

    fn taken(&self, waited: Result<(), Full>) -> Result<BulkheadPermit, Refusal> {
        match waited {
            Ok(()) => Ok(BulkheadPermit::taken(&self.permits)),
            Err(why) => Err(self.refusal(Kind::BulkheadFull { why })),
        }
    }

    #[cold]
    fn refusal(&self, kind: Kind) -> Refusal {
        Refusal::of(kind, self.name())
    }

    /// Whether its settings and its name can work.
    fn check(&self) -> Result<(), ConfigError> {
        self.shared.checked.clone()?;
        self.label.check()
    }
}

/// A number of permits that was checked.
fn narrow(permits: usize) -> u32 {
    u32::try_from(permits).unwrap_or(Permits::MOST)
}

impl Settings for Bulkhead {
    fn validate(&self, _: &mut Site<'_>) -> Result<(), ConfigError> {
        self.check()
    }

    fn limit(&self, inner: Option<Duration>) -> Option<Duration> {
        let wait = if self.may_wait() { self.max_wait() } else { Duration::ZERO };
        inner.map(|inner| inner.saturating_add(wait))
    }

    fn snapshots(&self, all: &mut Vec<PolicySnapshot>) {
        all.push(PolicySnapshot::Bulkhead(self.snapshot()));
    }
}

impl fmt::Debug for Bulkhead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = f.debug_struct("Bulkhead");
        fields.field("name", &self.name()).field("permits", &self.permits()).field("in_flight", &self.in_flight());
        fields.field("queued", &self.queued()).finish_non_exhaustive()
    }
}
