//! The breaker as its users hold it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::config::BreakerConfig;
use super::family::Family;
use super::permit::{Permit, Rejected};
use super::state::Core;
use super::ticket::{End, Ticket};
use super::transition::{Counts, State};
use crate::clock::{Clock, Moment};
use crate::error::{ConfigError, Name};
use crate::policy::{Settings, Site};
use crate::snapshot::{BreakerSnapshot, PolicySnapshot};
use crate::verdict::Verdict;

/// Refuses calls to a dependency that fails, at once and without troubling it, until trials show that it is back.
///
/// Closed, it lets every call through and counts; when its [rule](super::TripRule) is met it opens and refuses every call
/// for its open time; then it is half-open and lets a trial through. A trial that succeeds closes it, with a fresh window;
/// one that fails, or whose caller gave it up, opens it again. Nothing runs in the background: what is due happens when the
/// next call looks. A verdict on a call that was admitted before the last change of state changes nothing.
///
/// A handle: clones share state, so one breaker per dependency is made once and cloned into chains, whatever their result
/// types. It belongs *inside* of a [`Retry`](crate::Retry), so that it sees every attempt, and outside of the attempt's
/// [`Timeout`](crate::Timeout), so that it sees the attempts that time out. What a verdict means to it is in the table at
/// [`Verdict`].
///
/// ```
/// # use std::time::Duration;
/// # use steadfast::{Context, try_do};
/// use steadfast::breaker::{Breaker, BreakerConfig, State, TripRule};
///
/// # let clock = steadfast::clock::Clock::manual();
/// # clock.block_on(async {
/// # let cx = Context::new().with_clock(&clock);
/// let open_for = Duration::from_secs(5);
/// let config = BreakerConfig::default().rule(TripRule::consecutive(2)).open_for(open_for);
/// let breaker = Breaker::new(config);
/// for _ in 0..2 {
///     let _refused = try_do(&cx, |_| async { Err::<(), _>("down") }, &breaker).await;
/// }
/// assert_eq!(breaker.state(), State::Open);
/// let error = try_do(&cx, |_| async { Ok::<_, &str>("never asked") }, &breaker).await.unwrap_err();
/// assert!(error.is_circuit_open() && error.retry_after() == Some(open_for));
///
/// clock.advance(open_for);
/// assert_eq!(try_do(&cx, |_| async { Ok::<_, &str>("back") }, &breaker).await.unwrap(), "back");
/// assert_eq!(breaker.state(), State::Closed);
/// # });
/// ```
#[derive(Clone)]
#[must_use = "a policy does nothing until it is part of a chain"]
pub struct Breaker {
    core: Arc<Core>,
    /// Of this handle and its clones.
    name: Option<Name>,
}

impl Breaker {
    /// A closed breaker. Settings that cannot work are refused where it is used: building an executor fails, a run ends
    /// with [`Kind::Misconfigured`](crate::error::Kind::Misconfigured), and [`try_acquire`](Breaker::try_acquire) rejects.
    pub fn new(config: BreakerConfig) -> Breaker {
        Breaker::of_family(Arc::new(Family::new(config, false)), None)
    }

    /// One of many with the same settings.
    pub(super) fn of_family(family: Arc<Family>, key: Option<Arc<str>>) -> Breaker {
        Breaker { core: Arc::new(Core::new(family, key)), name: None }
    }

    /// Names this handle, for errors: without a name they carry that of the executor. A name that cannot be one is refused
    /// where the breaker is used, like any other setting.
    pub fn named(mut self, name: impl AsRef<str>) -> Breaker {
        match Name::new(name.as_ref()) {
            Ok(name) => self.name = Some(name),
            Err(refused) => self.core = Arc::new(Core::new(Arc::new(Family::refused(refused)), None)),
        }
        self
    }

    /// Binds the breaker to `clock`, as the first use does by itself. A run binds it to the clock of its context or
    /// executor; what has no clock of its own (two-step permits, [`record`](Breaker::record), commands by hand) to
    /// [`Clock::tokio`].
    ///
    /// # Errors
    /// If it is bound to another clock.
    pub fn bind(&self, clock: impl Into<Clock>) -> Result<(), ConfigError> {
        let clock = clock.into();
        if *self.family().bind(clock.clone()) == clock {
            return Ok(());
        }
        Err(ConfigError::new("clock", format_args!("{clock:?}"), "a breaker keeps to the first clock that uses it"))
    }

    /// Asks for admission of one call that is not run through a chain.
    ///
    /// The permit says how the call ended; one that is dropped counts as abandoned.
    ///
    /// ```
    /// # use steadfast::Breaker;
    /// # fn query() -> Result<u32, String> { Ok(7) }
    /// # let clock = steadfast::clock::Clock::manual();
    /// let database = Breaker::default();
    /// # database.bind(&clock).unwrap();
    /// let permit = database.try_acquire().expect("closed");
    /// match query() {
    ///     Ok(_) => permit.success(),
    ///     Err(_) => permit.failure(),
    /// }
    /// assert_eq!(database.counts().calls, 1);
    /// ```
    ///
    /// # Errors
    /// [`Rejected`] while the breaker is open, and while it is half-open and its trials are running.
    #[inline]
    pub fn try_acquire(&self) -> Result<Permit, Rejected> {
        let (ticket, timed_from) = self.admit()?;
        Ok(Permit::new(self.clone(), ticket, timed_from))
    }

    /// [`try_acquire`](Breaker::try_acquire) for a call that ends where it began: the permit borrows the breaker, which spares two
    /// contended atomic operations.
    ///
    /// ```
    /// # use steadfast::Breaker;
    /// # use steadfast::breaker::Rejected;
    /// # async fn ping() -> Result<(), String> { Ok(()) }
    /// async fn check(database: &Breaker) -> Result<bool, Rejected> {
    ///     let permit = database.try_acquire_ref()?;
    ///     let answer = ping().await;
    ///     match &answer {
    ///         Ok(()) => permit.success(),
    ///         Err(_) => permit.failure(),
    ///     }
    ///     Ok(answer.is_ok())
    /// }
    /// # let clock = steadfast::clock::Clock::manual();
    /// # let database = Breaker::default();
    /// # database.bind(&clock).unwrap();
    /// # assert_eq!(clock.block_on(check(&database)), Ok(true));
    /// # assert_eq!(database.counts().calls, 1);
    /// ```
    ///
    /// # Errors
    /// As [`try_acquire`](Breaker::try_acquire).
    #[inline]
    pub fn try_acquire_ref(&self) -> Result<Permit<&Breaker>, Rejected> {
        let (ticket, timed_from) = self.admit()?;
        Ok(Permit::new(self, ticket, timed_from))
    }

    /// Admits a call, and says when it began if that matters.
    #[inline]
    fn admit(&self) -> Result<(Ticket, Moment), Rejected> {
        match self.core().pass_at_once() {
            Some(ticket) => Ok((ticket, Moment::NEVER)),
            None => self.admit_otherwise(),
        }
    }

    #[cold]
    #[inline(never)]
    fn admit_otherwise(&self) -> Result<(Ticket, Moment), Rejected> {
        self.check().map_err(|config| Rejected::misconfigured(self.name(), config))?;
        let (core, now) = (self.core(), self.now());
        let timed_from = if core.needs().start() { now } else { Moment::NEVER };
        match core.try_acquire(|| now, || None) {
            Ok(ticket) => Ok((ticket, timed_from)),
            Err(refused) => Err(Rejected::refused(self.name(), refused)),
        }
    }

    /// Counts an outcome that no admission belongs to, such as a failure in the middle of a stream. It counts only while
    /// the breaker is closed or watches only: in the other states admitted calls alone are evidence.
    pub fn record(&self, verdict: Verdict) {
        self.core().record(End::of(verdict), self.now());
    }

    /// The state. It is half-open as soon as the open time is over, whether or not a call has looked.
    #[must_use]
    pub fn state(&self) -> State {
        self.core().state(self.now_unbound())
    }

    /// What was counted: in the window while closed, of the trials while half-open.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.core().counts(self.now_unbound())
    }

    /// How long the breaker will still refuse every call; zero unless it is open, and `Duration::MAX` if that is for ever
    /// or it is isolated.
    #[must_use]
    pub fn remaining_open(&self) -> Duration {
        self.core().remaining_open(self.now_unbound())
    }

    /// All of that, as data.
    #[must_use]
    pub fn snapshot(&self) -> BreakerSnapshot {
        let (core, now) = (self.core(), self.now_unbound());
        BreakerSnapshot {
            name: self.name().map(Name::as_str),
            state: core.state(now),
            remaining_open: core.remaining_open(now),
            counts: core.counts(now),
        }
    }

    /// Whether its settings can become these. What the answer depends on never changes.
    pub(crate) fn check_change(&self, to: &BreakerConfig) -> Result<(), ConfigError> {
        self.family().check_change(to)
    }

    /// Whether its settings can work.
    fn check(&self) -> Result<(), ConfigError> {
        self.family().checked()
    }

    #[inline]
    pub(super) fn core(&self) -> &Core {
        &self.core
    }

    /// Whether there are other handles.
    pub(super) fn is_shared(&self) -> bool {
        Arc::strong_count(&self.core) > 1
    }

    #[inline]
    fn family(&self) -> &Family {
        self.core.family()
    }

    pub(super) fn name(&self) -> Option<Name> {
        self.name
    }

    /// The time on the breaker's clock, which is bound by this.
    #[inline]
    pub(super) fn now(&self) -> Moment {
        match self.family().clock() {
            Some(clock) => clock.now(),
            None => self.first_now(),
        }
    }

    #[cold]
    #[inline(never)]
    fn first_now(&self) -> Moment {
        self.family().bind(Clock::tokio()).now()
    }

    /// The time, for a look. A breaker that was never used is closed and empty at any time, and stays unbound.
    fn now_unbound(&self) -> Moment {
        self.family().clock().map_or_else(|| Clock::tokio().now(), Clock::now)
    }
}

/// By hand. All of it takes effect at once, and the listeners hear of every change of state that it makes; an isolated breaker
/// obeys nothing but [`release`](Breaker::release).
impl Breaker {
    /// Opens the breaker now, as if its rule had been met. If it is open, its open time begins anew.
    pub fn force_open(&self) {
        self.core().force_open(self.now());
    }

    /// Closes the breaker now, with a fresh window.
    pub fn force_close(&self) {
        self.core().force_close(self.now());
    }

    /// Makes the breaker as new: closed, with a fresh window, no refusals counted and an open time that has not grown.
    pub fn reset(&self) {
        self.core().reset(self.now());
    }

    /// Refuses every call until [`release`](Breaker::release), however long that is.
    pub fn isolate(&self) {
        self.core().isolate(self.now());
    }

    /// Lets every call through and counts none, until [`release`](Breaker::release) or another command.
    pub fn disable(&self) {
        self.core().disable(self.now());
    }

    /// Lets every call through and counts them from now on, but never opens, until [`release`](Breaker::release) or another
    /// command. For finding out what a breaker would have seen.
    pub fn metrics_only(&self) {
        self.core().metrics_only(self.now());
    }

    /// Ends [`isolate`](Breaker::isolate), [`disable`](Breaker::disable) and [`metrics_only`](Breaker::metrics_only): the
    /// breaker is closed, with a fresh window. Has no effect otherwise.
    pub fn release(&self) {
        self.core().release(self.now());
    }

    /// Changes every threshold, rate and time at once, while calls go on; what was counted is kept. It applies from the
    /// next decision on: an open breaker stays open for as long as it was going to be. Breakers of one
    /// [`Keyed`](crate::Keyed) have their settings together.
    ///
    /// The listeners stay, unless `config` brings some, and so does the [`seed`](BreakerConfig::seed).
    ///
    /// ```
    /// use steadfast::breaker::{Breaker, BreakerConfig, State, TripRule};
    ///
    /// let breaker = Breaker::new(BreakerConfig::default().rule(TripRule::failure_rate(0.9)));
    /// # breaker.bind(&steadfast::clock::Clock::manual()).unwrap();
    /// for _ in 0..20 {
    ///     breaker.try_acquire().expect("closed").success();
    ///     breaker.try_acquire().expect("closed").failure();
    /// }
    /// breaker.reconfigure(BreakerConfig::default().rule(TripRule::failure_rate(0.5))).unwrap();
    /// breaker.try_acquire().expect("closed").failure();
    /// assert_eq!(breaker.state(), State::Open);
    /// ```
    ///
    /// # Errors
    /// If a setting cannot work, or the windows are others than before, since there is nothing to compare their counts
    /// with. Nothing has changed then.
    pub fn reconfigure(&self, config: BreakerConfig) -> Result<(), ConfigError> {
        self.family().reconfigure(config)
    }
}

/// [`BreakerConfig::default`]: half of at least 20 calls in ten seconds failed, open for 30 s, one trial.
impl Default for Breaker {
    fn default() -> Breaker {
        Breaker::new(BreakerConfig::default())
    }
}

impl Settings for Breaker {
    fn validate(&self, site: &mut Site<'_>) -> Result<(), ConfigError> {
        site.reads_verdicts("Breaker")?;
        self.check()?;
        self.bind(site.clock())
    }

    fn snapshots(&self, all: &mut Vec<PolicySnapshot>) {
        all.push(PolicySnapshot::Breaker(self.snapshot()));
    }
}

impl fmt::Debug for Breaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Breaker").field("name", &self.name()).field("state", &self.state()).finish_non_exhaustive()
    }
}
