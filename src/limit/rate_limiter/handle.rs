//! The rate limiter as its users hold it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::config::{RateLimiterConfig, Weight};
use super::gate::{Asked, Gate, Held};
use super::member::{Bucket, nanos};
use super::wait::{Alone, wait};
use crate::clock::{Clock, Moment};
use crate::context::Context;
use crate::error::{ConfigError, Kind, Name, Refusal};
use crate::keyed::Member;
use crate::limit::caller::{end, ended};
use crate::limit::label::Label;
use crate::policy::{Settings, Site};
use crate::snapshot::{PolicySnapshot, RateLimiterSnapshot};

/// Admits calls at a rate, and a burst of them after a pause; others wait in line for a while, or are refused with the exact
/// time after which to come again.
///
/// In any stretch of time no more are admitted than the burst and what the rate gives. Whoever asks takes what is there, one
/// after another; a refusal takes nothing, and neither does a caller that stops waiting. A wait that could not end in time (by
/// [`max_wait`](RateLimiterConfig::max_wait), by the deadline of the run, because the queue is full) is not begun. More than
/// the burst at once is never there, and refused at once.
///
/// A handle: clones share the bucket. Inside of a [`Retry`](crate::Retry) it counts every attempt, outside every call. For one
/// limit for each user or host, put it into a [`Keyed`](crate::Keyed).
///
/// ```
/// # use std::time::Duration;
/// # use steadfast::{Context, try_do};
/// use steadfast::limit::{RateLimiter, RateLimiterConfig};
///
/// # let clock = steadfast::clock::Clock::manual();
/// # clock.block_on(async {
/// # let cx = Context::new().with_clock(&clock);
/// let limiter = RateLimiter::new(RateLimiterConfig::per_second(10).burst(2));
/// for _ in 0..2 {
///     try_do(&cx, |_| async { Ok::<_, String>(()) }, &limiter).await.unwrap();
/// }
/// let error = try_do(&cx, |_| async { Ok::<_, String>(()) }, &limiter).await.unwrap_err();
/// assert_eq!(error.retry_after(), Some(Duration::from_millis(100)));
/// # });
/// ```
#[derive(Clone)]
#[must_use = "a policy does nothing until it is part of a chain"]
pub struct RateLimiter {
    bucket: Arc<Bucket>,
    /// Of this handle and its clones.
    label: Label,
}

impl RateLimiter {
    /// A limiter with a full bucket. Settings that cannot work are refused where it is used: building an executor fails, a run
    /// ends with [`Kind::Misconfigured`], and so do [`try_acquire`](RateLimiter::try_acquire) and the like.
    pub fn new(config: RateLimiterConfig) -> RateLimiter {
        RateLimiter::join(&RateLimiter::family(config), None)
    }

    /// A limiter of `n` calls a second that lets `n` go at once after a pause, and refuses others at once.
    pub fn per_second(n: u64) -> RateLimiter {
        RateLimiter::new(RateLimiterConfig::per_second(n))
    }

    /// Names this handle, for errors: without a name they carry that of the executor.
    pub fn named(mut self, name: impl AsRef<str>) -> RateLimiter {
        self.label = Label::new(name.as_ref());
        self
    }

    /// Binds the limiter to `clock`, as the first use does by itself. A run and a context bind it to their own clock; `acquire`
    /// and the like, which have none, to [`Clock::tokio`].
    ///
    /// # Errors
    /// If it is bound to another clock.
    pub fn bind(&self, clock: impl Into<Clock>) -> Result<(), ConfigError> {
        let clock = clock.into();
        let bound = self.bucket.family.clock.get_or_init(|| clock.clone());
        if *bound == clock {
            return Ok(());
        }
        Err(ConfigError::new(
            "clock",
            format_args!("{clock:?}"),
            "a rate limiter keeps to the first clock that uses it",
        ))
    }

    /// Takes one token, if it is there and nobody waits.
    ///
    /// ```
    /// # use std::time::Duration;
    /// use steadfast::RateLimiter;
    ///
    /// let limiter = RateLimiter::per_second(1);
    /// # let clock = steadfast::clock::Clock::manual();
    /// # limiter.bind(&clock).unwrap();
    /// assert!(limiter.try_acquire().is_ok());
    /// let refused = limiter.try_acquire().unwrap_err();
    /// assert_eq!(refused.retry_after(), Some(Duration::from_secs(1)));
    /// ```
    ///
    /// # Errors
    /// [`Kind::RateLimited`] with the time until the token would be there, after those who wait.
    #[inline(always)]
    pub fn try_acquire(&self) -> Result<(), Refusal> {
        if self.admits(1) { Ok(()) } else { self.try_again(1) }
    }

    /// Takes `tokens` tokens, if all of them are there and nobody waits; none otherwise.
    ///
    /// # Errors
    /// As [`try_acquire`](RateLimiter::try_acquire). More than the burst are never there, and there is no time then.
    #[inline]
    pub fn try_acquire_many(&self, tokens: u64) -> Result<(), Refusal> {
        if tokens > 0 && self.admits(tokens) { Ok(()) } else { self.try_again(tokens) }
    }

    /// Takes tokens if they are there and nobody waits. No word on why not: so much is made part of the caller.
    #[inline(always)]
    fn admits(&self, tokens: u64) -> bool {
        // Settings that cannot work make a bucket that holds nothing.
        self.label.is_usable() && self.bucket.gate.admit(tokens, self.now())
    }

    /// Refuses a caller that was not admitted, unless it is now.
    #[cold]
    #[inline(never)]
    fn try_again(&self, tokens: u64) -> Result<(), Refusal> {
        self.check().map_err(|config| Refusal::misconfigured(config, self.name()))?;
        let now = self.now();
        let passed = self.pass(tokens, || now);
        passed.or_else(|held| self.settle(held, tokens, now)).map_err(|wait| self.refusal(wait))
    }

    /// Takes one token, and waits for it in line, for at most [`max_wait`](RateLimiterConfig::max_wait).
    ///
    /// # Errors
    /// At once, with [`Kind::RateLimited`] and the exact time, if it would have to wait for longer.
    ///
    /// # Cancel safety
    /// Dropped, it has taken nothing, and those behind it move up.
    ///
    /// # Panics
    /// On the tokio and fast clocks, if it has to wait outside of a tokio runtime with a timer.
    pub async fn acquire(&self) -> Result<(), Refusal> {
        self.acquire_many(1).await
    }

    /// Takes `tokens` tokens at once, and waits for them in line.
    ///
    /// # Errors
    /// As [`acquire`](RateLimiter::acquire). More than the burst are never there, and there is no time then.
    ///
    /// # Cancel safety
    /// Dropped, it has taken nothing, and those behind it move up.
    ///
    /// # Panics
    /// On the tokio and fast clocks, if it has to wait outside of a tokio runtime with a timer.
    pub async fn acquire_many(&self, tokens: u64) -> Result<(), Refusal> {
        self.acquire_until(tokens, Moment::NEVER, || false).await
    }

    /// [`acquire_many`](RateLimiter::acquire_many) on behalf of a caller: its deadline and its token end the wait, and a wait that
    /// could not end before the deadline is not begun.
    ///
    /// # Errors
    /// As [`acquire_many`](RateLimiter::acquire_many); and [`Kind::DeadlineExceeded`] or [`Kind::Cancelled`] if the caller's
    /// context says so, also where the tokens are there.
    ///
    /// # Cancel safety
    /// Dropped, it has taken nothing, and those behind it move up.
    ///
    /// # Panics
    /// On the tokio and fast clocks, if it has to wait outside of a tokio runtime with a timer.
    pub async fn acquire_with(&self, cx: &Context, tokens: u64) -> Result<(), Refusal> {
        if let Some(kind) = ended(cx) {
            return Err(Refusal::of(kind, self.name()));
        }
        let clock = self.bucket.family.clock.get_or_init(|| cx.clock().clone());
        let deadline = cx.deadline_on(clock);
        tokio::select! {
            biased;
            acquired = self.acquire_until(tokens, deadline, || ended(cx).is_some()) => acquired,
            kind = end(cx) => Err(Refusal::of(kind, self.name())),
        }
    }

    async fn acquire_until(
        &self,
        tokens: u64,
        deadline: Moment,
        is_over: impl Fn() -> bool + Send,
    ) -> Result<(), Refusal> {
        if !self.is_usable() {
            return self.try_again(tokens);
        }
        let Err(held) = self.pass(tokens, || self.now()) else { return Ok(()) };
        let now = self.now();
        let until = self.wait_until(now, deadline);
        let waited = if self.may_wait(held, until, now) {
            let asked = Asked { weight: tokens, until };
            // Boxed: who does not wait has no use for it.
            Box::pin(wait(&self.bucket.gate, asked, self.most(), Alone { limiter: self, is_over })).await
        } else {
            self.settle(held, tokens, now)
        };
        waited.map_err(|wait| self.refusal(wait))
    }

    /// Takes new settings: rate, burst, longest wait and queue; the weights of calls stay. The tokens that are there stay, as far
    /// as the new burst holds them, and those who wait keep their places. Who would now have to wait for longer than it may is
    /// refused at once; a new longest wait is for new callers.
    ///
    /// The member of a [`Keyed`](crate::Keyed) has settings of its own after this, for as long as it is kept.
    ///
    /// # Errors
    /// If the settings cannot work, or a call weighs more than the new burst; then nothing is changed.
    pub fn reconfigure(&self, config: RateLimiterConfig) -> Result<(), ConfigError> {
        let bucket = &*self.bucket;
        bucket.family.checked.clone()?;
        let (max_wait, most) = (nanos(config.max_wait), config.queue as u64);
        let rate = config.weighing(bucket.family.weight.clone()).rate()?;
        bucket.own.store(1, Relaxed);
        bucket.max_wait.store(max_wait, Relaxed);
        bucket.most.store(most, Relaxed);
        bucket.fill_at(rate);
        Ok(())
    }

    /// How many tokens there are.
    #[must_use]
    pub fn available(&self) -> u64 {
        self.bucket.gate.available(<RateLimiter as Member>::now(&self.bucket.family))
    }

    /// How many callers wait.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.bucket.gate.queued()
    }

    /// All of that and the rate, as data.
    #[must_use]
    pub fn snapshot(&self) -> RateLimiterSnapshot {
        let rate = self.bucket.gate.current_rate();
        RateLimiterSnapshot {
            name: self.name().map(Name::as_str),
            available: self.available(),
            burst: rate.tokens(),
            per_second: rate.per_second(),
            queued: self.queued(),
        }
    }

    pub(super) fn of(bucket: Bucket) -> RateLimiter {
        RateLimiter { bucket: Arc::new(bucket), label: Label::default() }
    }

    pub(super) fn bucket(&self) -> &Arc<Bucket> {
        &self.bucket
    }

    /// Takes the tokens if they are there and nobody waits.
    #[inline]
    pub(super) fn pass(&self, tokens: u64, now: impl Fn() -> Moment) -> Result<(), Held> {
        if tokens == 0 { Ok(()) } else { self.bucket.gate.pass(tokens, now()) }
    }

    /// How many tokens a call with this context takes.
    #[cfg(feature = "server")]
    pub(crate) fn weight_of(&self, cx: &Context) -> u64 {
        self.weight().of(cx)
    }

    /// Whether there is a queue.
    #[cfg(feature = "server")]
    pub(crate) fn has_queue(&self) -> bool {
        self.most() > 0
    }

    /// Whether it is worth while to ask the queue: a wait that is too long without others is too long behind them as well.
    pub(super) fn may_wait(&self, held: Held, until: Moment, now: Moment) -> bool {
        match held {
            Held::Short(wait) => now + wait <= until,
            Held::AskQueue => true,
            Held::Never => false,
        }
    }

    /// What becomes of a caller that was not admitted at once and does not wait: it learns how long it would have to.
    pub(super) fn settle(&self, held: Held, weight: u64, now: Moment) -> Result<(), Option<Duration>> {
        match held {
            Held::Short(wait) => Err(Some(wait)),
            Held::AskQueue => self.bucket.gate.try_join(weight, now),
            Held::Never => Err(None),
        }
    }

    pub(super) fn gate(&self) -> &Gate {
        &self.bucket.gate
    }

    pub(super) fn weight(&self) -> &Weight {
        &self.bucket.family.weight
    }

    /// The last moment at which a caller may be admitted. One that is admitted at its deadline is admitted too late.
    pub(super) fn wait_until(&self, now: Moment, deadline: Moment) -> Moment {
        let last = Moment::from_nanos(deadline.nanos().saturating_sub(1));
        (now + self.max_wait()).min(last)
    }

    fn max_wait(&self) -> Duration {
        Duration::from_nanos(self.bucket.max_wait.load(Relaxed))
    }

    /// How many may wait at a time.
    pub(super) fn most(&self) -> usize {
        let most = if self.max_wait().is_zero() { 0 } else { self.bucket.most.load(Relaxed) };
        usize::try_from(most).unwrap_or(usize::MAX)
    }

    pub(super) fn name(&self) -> Option<Name> {
        self.label.name()
    }

    #[cold]
    fn refusal(&self, retry_after: Option<Duration>) -> Refusal {
        Refusal::of(Kind::RateLimited { retry_after }, self.name())
    }

    #[inline]
    fn is_usable(&self) -> bool {
        self.bucket.family.checked.is_ok() && self.label.is_usable()
    }

    /// Whether its settings and its name can work.
    fn check(&self) -> Result<(), ConfigError> {
        match &self.bucket.family.checked {
            Ok(()) => self.label.check(),
            Err(refused) => Err(refused.clone()),
        }
    }

    /// The time on the limiter's clock, which is bound by this.
    #[inline]
    pub(super) fn now(&self) -> Moment {
        self.bucket.family.clock.get().map_or_else(|| self.first_now(), Clock::now)
    }

    #[cold]
    #[inline(never)]
    fn first_now(&self) -> Moment {
        self.clock().now()
    }

    pub(super) fn clock(&self) -> &Clock {
        self.bucket.family.clock.get_or_init(Clock::tokio)
    }
}

impl Settings for RateLimiter {
    fn validate(&self, site: &mut Site<'_>) -> Result<(), ConfigError> {
        self.check()?;
        self.bind(site.clock())
    }

    fn limit(&self, inner: Option<Duration>) -> Option<Duration> {
        inner.map(|inner| inner.saturating_add(self.max_wait()))
    }

    fn snapshots(&self, all: &mut Vec<PolicySnapshot>) {
        all.push(PolicySnapshot::RateLimiter(self.snapshot()));
    }
}

impl fmt::Debug for RateLimiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = f.debug_struct("RateLimiter");
        fields.field("name", &self.name()).field("available", &self.available()).finish_non_exhaustive()
    }
}
