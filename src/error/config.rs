//! What is said of a setting that cannot work.

use std::fmt;

/// A setting that was refused: which one, its value, and the rule that it breaks.
///
/// Settings are checked and never silently mended. The fluent setters of a policy cannot fail; its `check()` and
/// [`Builder::build`](crate::executor::Builder::build) return this error, and a run of an unchecked chain ends with
/// [`Kind::Misconfigured`](super::Kind::Misconfigured) before anything was started.
///
/// ```
/// use steadfast::Retry;
///
/// let refused = Retry::exponential().max_attempts(0).check().unwrap_err();
/// assert_eq!(refused.field(), "max_attempts");
/// assert_eq!(refused.to_string(), "max_attempts = 0: must be at least 1");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{within}{dot}{field} = {value}: {rule}", dot = if within.is_empty() { "" } else { "." })]
pub struct ConfigError {
    within: Box<str>,
    field: &'static str,
    value: Box<str>,
    rule: &'static str,
}

impl ConfigError {
    /// Says that `field` has the `value`, against the `rule`. For the checks of policies outside of this crate.
    pub fn new(field: &'static str, value: impl fmt::Display, rule: &'static str) -> ConfigError {
        ConfigError { within: Box::default(), field, value: value.to_string().into(), rule }
    }

    /// Says that the setting is in a part called `part`: "breaker", say, or the name of a dependency.
    ///
    /// ```
    /// use steadfast::ConfigError;
    ///
    /// let refused = ConfigError::new("trials", 0, "must be at least 1").within("breaker").within("billing");
    /// assert_eq!((refused.field(), refused.part()), ("trials", "billing.breaker"));
    /// assert_eq!(refused.to_string(), "billing.breaker.trials = 0: must be at least 1");
    /// ```
    #[must_use]
    pub fn within(mut self, part: &str) -> ConfigError {
        let dot = if self.within.is_empty() { "" } else { "." };
        self.within = format!("{part}{dot}{}", self.within).into();
        self
    }

    /// The part that the setting is in, with dots between parts of parts: "billing.breaker". Empty for settings by themselves.
    #[must_use]
    pub fn part(&self) -> &str {
        &self.within
    }

    /// The name of the setting.
    #[must_use]
    pub fn field(&self) -> &'static str {
        self.field
    }

    /// The value that was refused, as text.
    #[must_use]
    pub fn value(&self) -> &str {
        &self.value
    }

    /// The rule that the value breaks.
    #[must_use]
    pub fn rule(&self) -> &'static str {
        self.rule
    }
}
