//! How many retries and hedges the runs of an executor may make in all.
//!
//! A retry helps a caller and costs the dependency. When few calls fail that is a bargain; when all do, three attempts each
//! are three times the load, on a dependency that is in trouble already. A budget bounds the sum: what is left of it is
//! shared by all runs, so that a storm cannot start, while single failures are still mended.

mod config;
#[cfg(feature = "serde")]
pub(crate) mod document;
mod in_flight;
mod tokens;

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

pub use self::config::{BudgetConfig, DEFAULT_CAP, DEFAULT_FLOOR, DEFAULT_INITIAL, DEFAULT_MIN, DEFAULT_RATIO};
use self::in_flight::InFlight;
use self::tokens::{Numbers, Tokens};
use crate::clock::{Clock, Moment};
use crate::error::ConfigError;
use crate::snapshot::BudgetSnapshot;
use crate::sync::{Mutex, lock};

/// Bounds the retries and hedges of all runs that share it.
///
/// Every executor has one of its own unless told otherwise: [`Budget::default`]. A run whose retry is denied ends with what its
/// last attempt ended with, and its error says [`Limit::Budget`](crate::error::Limit::Budget); a hedge that is denied is not
/// started, and nothing that runs is touched. A run of [`try_do`](crate::try_do) has no budget.
///
/// | | | default |
/// |---|---|---|
/// | [`ratio(r)`](Budget::ratio) | each first attempt adds `r` tokens, each retry or hedge takes one | 0.1 |
/// | [`cap(n)`](Budget::cap) | the most tokens | 10 |
/// | [`initial(n)`](Budget::initial) | those to begin with | 2 |
/// | [`floor(every)`](Budget::floor) | one more comes back every so often | 60 s |
/// | [`concurrent(r)`](Budget::concurrent) | the other form: retries and hedges in flight, as a share of the runs in flight | |
/// | [`min(n)`](Budget::min) | as many are always allowed in that form | 3 |
///
/// A handle: clones share state, and one budget can be given to several executors for one dependency. Each setter gives a
/// budget of its own, so set first and clone then.
///
/// A retry takes its token before it waits, so that a run does not wait for what it will not get. One that is not followed by
/// an attempt is given back: the caller left, a deadline came first, a policy inside refused the call.
///
/// ```
/// # use steadfast::{Budget, Executor, Retry, error::{Kind, Limit}};
/// # let clock = steadfast::clock::Clock::manual();
/// # clock.block_on(async {
/// let budget = Budget::ratio(0.1).initial(1);
/// let search = Executor::builder("search").policies(Retry::exponential()).budget(budget.clone());
/// # let search = search.clock(&clock);
/// let search = search.build()?;
///
/// let error = search.run(|_| async { Err::<(), _>("down") }).await.unwrap_err();
/// assert_eq!(error.attempts(), 2);
/// assert_eq!(error.kind(), Kind::Exhausted { by: Limit::Budget });
/// assert_eq!(error.last(), Some(&"down"));
/// assert_eq!(budget.available(), 0);
/// # Ok::<_, steadfast::ConfigError>(())
/// # }).unwrap();
/// ```
#[derive(Clone)]
#[must_use = "a budget bounds nothing until an executor has it"]
pub struct Budget(Arc<Shared>);

struct Shared {
    form: Form,
    /// What the form was made of. Changed under the lock, together with the numbers in the form.
    config: Mutex<BudgetConfig>,
    /// Set by the first use, and never changed: moments of different clocks cannot be compared.
    clock: OnceLock<Clock>,
}

enum Form {
    Tokens(Tokens),
    InFlight(InFlight),
}

impl Budget {
    /// The token form: each first attempt of a run adds `ratio` tokens, each retry and each hedge takes one. In the long run
    /// there are at most `1 + ratio` attempts for each run, beside what [`floor`](Budget::floor) gives.
    ///
    /// From 0 to the cap; counted in ten-thousandths.
    pub fn ratio(ratio: f64) -> Budget {
        Budget::with(BudgetConfig::ratio(ratio))
    }

    /// The in-flight form, that of failsafe-go and Envoy: at any time the retries and hedges in flight, waits between attempts
    /// included, are at most `ratio` of the runs in flight, but [`min`](Budget::min) always. From 0 to 1; counted in
    /// ten-thousandths.
    ///
    /// It follows load at once and remembers nothing. Every run writes a word that all threads share, twice.
    pub fn concurrent(ratio: f64) -> Budget {
        Budget::with(BudgetConfig::concurrent(ratio))
    }

    /// A budget with these settings. Those that cannot work are refused where it is used: building an executor fails.
    pub fn with(config: BudgetConfig) -> Budget {
        let form = match &config.tokens {
            Some(settings) => Form::Tokens(Tokens::new(Numbers::of(config.ratio, settings), settings.initial)),
            None => Form::InFlight(InFlight::new(in_units(config.ratio), config.min)),
        };
        Budget(Arc::new(Shared { form, config: Mutex::new(config), clock: OnceLock::new() }))
    }

    /// The most tokens that are kept for later. Default: 10. From 1 to 400,000.
    pub fn cap(self, tokens: u32) -> Budget {
        self.changed(|config| config.cap(tokens))
    }

    /// The tokens to begin with. Default: 2. At most the cap. What many clients have to begin with is what they can send at
    /// once, all together.
    pub fn initial(self, tokens: u32) -> Budget {
        self.changed(|config| config.initial(tokens))
    }

    /// One token comes back `every` so often, whatever the traffic, so that a client that makes few calls may retry at all.
    /// Default: 60 s. At least 1 ms; `Duration::MAX` means never.
    pub fn floor(self, every: Duration) -> Budget {
        self.changed(|config| config.floor(every))
    }

    /// How many retries and hedges may always be in flight in the in-flight form. Default: 3.
    pub fn min(self, extras: u32) -> Budget {
        self.changed(|config| config.min(extras))
    }

    fn changed(&self, set: impl FnOnce(BudgetConfig) -> BudgetConfig) -> Budget {
        Budget::with(set(self.config()))
    }

    fn config(&self) -> BudgetConfig {
        lock(&self.0.config).clone()
    }

    /// Refuses settings that cannot work. [`Builder::build`](crate::executor::Builder::build) does so by itself.
    ///
    /// # Errors
    /// If the ratio is not a number in its range, or too small to be counted; if there are more tokens to begin with than the
    /// cap; if a setting belongs to the other form.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.config().check()
    }

    /// Takes new settings, while runs go on. The tokens that are there stay, as far as the new cap holds them, and so does what
    /// is in flight; `initial` is for new budgets. All clones have their settings together.
    ///
    /// ```
    /// use steadfast::Budget;
    /// use steadfast::budget::BudgetConfig;
    ///
    /// let budget = Budget::ratio(0.1).initial(8);
    /// budget.reconfigure(BudgetConfig::ratio(0.2).cap(5))?;
    /// assert_eq!(budget.available(), 5);
    /// # Ok::<_, steadfast::ConfigError>(())
    /// ```
    ///
    /// # Errors
    /// If the settings cannot work, or are those of the other form. Nothing has changed then.
    pub fn reconfigure(&self, config: BudgetConfig) -> Result<(), ConfigError> {
        config.check()?;
        let (now, mut present) = loop {
            // The clock is the user's, and not asked under the lock.
            let bound = self.0.clock.get();
            let now = bound.map_or(Moment::NEVER, Clock::now);
            let present = lock(&self.0.config);
            if bound.is_some() || self.0.clock.get().is_none() {
                break (now, present);
            }
        };
        present.check()?;
        present.check_change(&config)?;
        match (&self.0.form, &config.tokens) {
            (Form::Tokens(tokens), Some(settings)) => tokens.reconfigure(Numbers::of(config.ratio, settings), now),
            (Form::InFlight(counts), _) => counts.reconfigure(in_units(config.ratio), config.min),
            // `check_change` has refused it.
            (Form::Tokens(_), None) => {}
        }
        *present = config;
        Ok(())
    }

    /// Whether its settings can become these. What the answer depends on never changes.
    pub(crate) fn check_change(&self, to: &BudgetConfig) -> Result<(), ConfigError> {
        lock(&self.0.config).check_change(to)
    }

    /// Binds the budget to `clock`, as the first executor does by itself; one that is used without an executor is bound to
    /// [`Clock::tokio`]. The floor counts from this moment on.
    ///
    /// # Errors
    /// If it is bound to another clock.
    pub fn bind(&self, clock: impl Into<Clock>) -> Result<(), ConfigError> {
        let clock = clock.into();
        if *self.clock(&clock) == clock {
            return Ok(());
        }
        Err(ConfigError::new("clock", format_args!("{clock:?}"), "a budget keeps to the first clock that uses it"))
    }

    /// How many retries and hedges would be allowed now, one after the other.
    #[must_use]
    pub fn available(&self) -> u32 {
        match &self.0.form {
            Form::Tokens(tokens) => tokens.balance(self.now_unbound()) / UNIT,
            Form::InFlight(counts) => counts.free(),
        }
    }

    /// What is left of it, as data.
    #[must_use]
    pub fn snapshot(&self) -> BudgetSnapshot {
        match &self.0.form {
            Form::Tokens(tokens) => {
                let available = f64::from(tokens.balance(self.now_unbound())) / f64::from(UNIT);
                BudgetSnapshot { form: "tokens", available, cap: Some(tokens.cap() / UNIT) }
            }
            Form::InFlight(counts) => {
                BudgetSnapshot { form: "in_flight", available: f64::from(counts.free()), cap: None }
            }
        }
    }

    /// Counts a first attempt that is made without an executor; to be held until its run ends.
    pub fn first(&self) -> First<'_> {
        let _ends_with_what_is_returned = self.begin_run();
        First(self)
    }

    /// Takes what one retry or hedge costs, for one that is made without an executor; `None` if there is not enough.
    ///
    /// ```
    /// # use steadfast::Budget;
    /// # let clock = steadfast::clock::Clock::manual();
    /// let budget = Budget::ratio(0.5).initial(0);
    /// # budget.bind(&clock).unwrap();
    /// (0..2).for_each(|_| drop(budget.first()));
    /// let mut retry = budget.draw().expect("two halves are one");
    /// assert!(budget.draw().is_none());
    /// retry.sent();
    /// drop(retry);
    /// assert!(budget.draw().is_none());
    /// ```
    pub fn draw(&self) -> Option<Draw<'_>> {
        self.draw_at(|| self.clock(&Clock::tokio()).now())
    }

    /// [`draw`](Budget::draw) in a run, whose clock is that of the budget.
    pub(crate) fn draw_at(&self, now: impl FnOnce() -> Moment) -> Option<Draw<'_>> {
        // Lazily: a guard that is made for nothing would give back what was not taken.
        self.take(now).then(|| Draw { budget: self, sent: false })
    }

    /// A run makes its first attempt. Returns whether its end has to be told with [`end_run`](Budget::end_run).
    #[inline]
    pub(crate) fn begin_run(&self) -> bool {
        match &self.0.form {
            Form::Tokens(tokens) => {
                tokens.deposit();
                false
            }
            Form::InFlight(counts) => {
                counts.enter();
                true
            }
        }
    }

    /// A run that has made its first attempt is over.
    pub(crate) fn end_run(&self) {
        if let Form::InFlight(counts) = &self.0.form {
            counts.leave();
        }
    }

    /// Takes what a retry or a hedge costs. To be followed by [`end_extra`](Budget::end_extra), also on drop.
    #[must_use]
    pub(crate) fn take(&self, now: impl FnOnce() -> Moment) -> bool {
        match &self.0.form {
            Form::Tokens(tokens) => tokens.draw(now()),
            Form::InFlight(counts) => counts.draw(),
        }
    }

    /// A retry or hedge that was paid for is over, or has not come about.
    pub(crate) fn end_extra(&self, sent: bool) {
        match &self.0.form {
            Form::Tokens(_) if sent => {}
            Form::Tokens(tokens) => tokens.give_back(),
            Form::InFlight(counts) => counts.give_back(),
        }
    }

    /// The time, for a look. A budget that was never used has what it began with, and stays unbound.
    fn now_unbound(&self) -> Moment {
        self.0.clock.get().map_or(Moment::NEVER, Clock::now)
    }

    /// The clock, which is `clock` if this is the first use.
    fn clock(&self, clock: &Clock) -> &Clock {
        if let Some(bound) = self.0.clock.get() {
            return bound;
        }
        let bound = self.0.clock.get_or_init(|| clock.clone());
        if let Form::Tokens(tokens) = &self.0.form {
            let now = bound.now();
            let _unchanged = lock(&self.0.config);
            tokens.begin(now);
        }
        bound
    }
}

/// [`Budget::ratio`] of 0.1: at most 10 tokens, 2 to begin with, one a minute whatever happens.
impl Default for Budget {
    fn default() -> Budget {
        Budget::with(BudgetConfig::default())
    }
}

impl fmt::Debug for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let config = self.config();
        let mut shown = f.debug_struct("Budget");
        shown
            .field("form", &config.form())
            .field("ratio", &config.ratio)
            .field("available", &self.available())
            .finish_non_exhaustive()
    }
}

/// A first attempt, counted by [`Budget::first`], and the run that it begins.
#[derive(Debug)]
#[must_use = "it counts for as long as it is held"]
pub struct First<'a>(&'a Budget);

impl Drop for First<'_> {
    fn drop(&mut self) {
        self.0.end_run();
    }
}

/// What one retry or hedge costs, taken by [`Budget::draw`]. Dropped, it is given back, but for a token whose attempt was
/// [`sent`](Draw::sent).
#[derive(Debug)]
#[must_use = "it is given back when it is dropped"]
pub struct Draw<'a> {
    budget: &'a Budget,
    sent: bool,
}

impl Draw<'_> {
    /// The attempt is made: a token is used up; a place in flight is held until this is dropped.
    pub fn sent(&mut self) {
        self.sent = true;
    }
}

impl Drop for Draw<'_> {
    fn drop(&mut self) {
        self.budget.end_extra(self.sent);
    }
}

/// In ten-thousandths, to the nearest one: 0.1 is exact, as it is not in a float.
fn in_units(ratio: f64) -> u32 {
    (ratio * f64::from(UNIT)).round() as u32
}

/// One token, or the whole of the runs in flight.
const UNIT: u32 = 10_000;
