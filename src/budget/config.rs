//! The settings of a budget.

use std::fmt;
use std::time::Duration;

use super::in_units;
use crate::error::ConfigError;

/// The settings of a [`Budget`](super::Budget): plain data with a default for everything.
///
/// The setters take anything; [`check`](BudgetConfig::check) says what is wrong.
///
/// ```
/// use steadfast::budget::BudgetConfig;
///
/// let config = BudgetConfig::ratio(0.2).cap(20);
/// assert!(config.check().is_ok());
/// assert_eq!(config.cap(0).check().unwrap_err().field(), "cap");
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct BudgetConfig {
    pub(super) ratio: f64,
    /// The token form's; `None` in the other one.
    pub(super) tokens: Option<TokenSettings>,
    pub(super) min: u32,
    /// A setting that this form does not have.
    pub(super) misplaced: Option<ConfigError>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct TokenSettings {
    pub(super) cap: u32,
    pub(super) initial: u32,
    pub(super) floor: Duration,
}

impl BudgetConfig {
    /// The token form: see [`Budget::ratio`](super::Budget::ratio).
    #[must_use]
    pub fn ratio(ratio: f64) -> BudgetConfig {
        let tokens = TokenSettings { cap: DEFAULT_CAP, initial: DEFAULT_INITIAL, floor: DEFAULT_FLOOR };
        BudgetConfig { ratio, tokens: Some(tokens), min: DEFAULT_MIN, misplaced: None }
    }

    /// The in-flight form: see [`Budget::concurrent`](super::Budget::concurrent).
    #[must_use]
    pub fn concurrent(ratio: f64) -> BudgetConfig {
        BudgetConfig { ratio, tokens: None, min: DEFAULT_MIN, misplaced: None }
    }

    /// The most tokens that are kept for later. Default: [`DEFAULT_CAP`]. From 1 to 400,000.
    #[must_use]
    pub fn cap(self, tokens: u32) -> BudgetConfig {
        self.token_setting("cap", tokens, |settings| settings.cap = tokens)
    }

    /// The tokens to begin with. Default: [`DEFAULT_INITIAL`]. At most the cap.
    #[must_use]
    pub fn initial(self, tokens: u32) -> BudgetConfig {
        self.token_setting("initial", tokens, |settings| settings.initial = tokens)
    }

    /// One token comes back `every` so often. Default: [`DEFAULT_FLOOR`]. At least 1 ms; `Duration::MAX` means never.
    #[must_use]
    pub fn floor(self, every: Duration) -> BudgetConfig {
        self.token_setting("floor", format_args!("{every:?}"), |settings| settings.floor = every)
    }

    /// How many retries and hedges may always be in flight in the in-flight form. Default: [`DEFAULT_MIN`].
    #[must_use]
    pub fn min(mut self, extras: u32) -> BudgetConfig {
        if self.tokens.is_some() {
            self.misplaced = Some(ConfigError::new("min", extras, "only an in-flight budget has one"));
        }
        BudgetConfig { min: extras, ..self }
    }

    fn token_setting(
        mut self,
        field: &'static str,
        value: impl fmt::Display,
        set: impl FnOnce(&mut TokenSettings),
    ) -> BudgetConfig {
        match &mut self.tokens {
            Some(tokens) => set(tokens),
            None => self.misplaced = Some(ConfigError::new(field, value, "only a budget of tokens has one")),
        }
        self
    }

    /// Says whether these settings make a budget.
    ///
    /// # Errors
    /// If the ratio is not a number in its range, or too small to be counted; if there are more tokens to begin with than the
    /// cap; if a setting belongs to the other form.
    pub fn check(&self) -> Result<(), ConfigError> {
        let BudgetConfig { ratio, tokens, misplaced, .. } = self;
        misplaced.clone().map_or(Ok(()), Err)?;
        let most = match tokens {
            Some(tokens) => tokens.check()?,
            None => 1.0,
        };
        if !(0.0..=most).contains(ratio) {
            return Err(ConfigError::new(
                "ratio",
                ratio,
                "must be a number from 0 to the cap, or to 1 of those in flight",
            ));
        }
        if *ratio > 0.0 && in_units(*ratio) == 0 {
            return Err(ConfigError::new("ratio", ratio, "must be 0 or at least 0.0001"));
        }
        Ok(())
    }

    /// Refuses what a budget that counts cannot become: the two forms have nothing in common that could be kept.
    pub(crate) fn check_change(&self, to: &BudgetConfig) -> Result<(), ConfigError> {
        if self.tokens.is_some() == to.tokens.is_some() {
            return Ok(());
        }
        Err(ConfigError::new("form", to.form(), "cannot be changed while the budget counts"))
    }

    pub(super) fn form(&self) -> &'static str {
        if self.tokens.is_some() { "tokens" } else { "in_flight" }
    }
}

impl TokenSettings {
    /// The largest ratio.
    fn check(&self) -> Result<f64, ConfigError> {
        let TokenSettings { cap, initial, floor } = *self;
        if !(1..=LARGEST_CAP).contains(&cap) {
            return Err(ConfigError::new("cap", cap, "must be from 1 to 400,000"));
        }
        if initial > cap {
            return Err(ConfigError::new("initial", initial, "must not exceed the cap"));
        }
        if floor < SHORTEST_FLOOR {
            return Err(ConfigError::new("floor", format_args!("{floor:?}"), "must be at least 1 ms"));
        }
        Ok(f64::from(cap))
    }
}

/// [`BudgetConfig::ratio`] of [`DEFAULT_RATIO`].
impl Default for BudgetConfig {
    fn default() -> BudgetConfig {
        BudgetConfig::ratio(DEFAULT_RATIO)
    }
}

/// What fits into the half of a word that counts the balance.
const LARGEST_CAP: u32 = 400_000;

/// A tick of the floor is a ten-thousandth of this: 100 ns.
const SHORTEST_FLOOR: Duration = Duration::from_millis(1);

/// A tenth more load is what a dependency can bear on its worst day; failures of up to a tenth are still mended.
pub const DEFAULT_RATIO: f64 = 0.1;

/// What a client may save up is what it can send at once after a quiet time.
pub const DEFAULT_CAP: u32 = 10;

/// One run's retries: a thousand clients that start together have two thousand, whatever comes back for their calls.
pub const DEFAULT_INITIAL: u32 = 2;

/// A client of a call an hour may retry too, and one of many calls does not notice.
pub const DEFAULT_FLOOR: Duration = Duration::from_secs(60);

/// As failsafe-go and Envoy have it: a few runs alone may retry.
pub const DEFAULT_MIN: u32 = 3;
