//! What the library says, apart from the operation's error.

use std::fmt;
use std::time::Duration;

use super::config::ConfigError;
use super::kind::Kind;
use super::name::Name;

/// What the library says of a run that has no result: the half of an [`Error`](super::Error) that does not depend on the
/// operation's error type. A user's own error enum keeps one, see [`Error::flatten`](super::Error::flatten).
#[derive(Clone, Debug, PartialEq)]
pub struct Refusal {
    pub(super) kind: Kind,
    pub(super) attempts: u32,
    pub(super) elapsed: Duration,
    pub(super) policy: Option<Name>,
    /// The pause that the dependency asked for and that was too long; what a kind says for itself is in the kind.
    pub(super) asked: Option<Duration>,
    pub(super) config: Option<Box<ConfigError>>,
}

impl Refusal {
    pub(super) const fn new(kind: Kind) -> Refusal {
        Refusal { kind, attempts: 0, elapsed: Duration::ZERO, policy: None, asked: None, config: None }
    }

    /// What a policy says to somebody who asks it without a chain.
    pub(crate) fn of(kind: Kind, policy: Option<Name>) -> Refusal {
        Refusal { policy, ..Refusal::new(kind) }
    }

    /// A policy has a setting that cannot work.
    pub(crate) fn misconfigured(config: ConfigError, policy: Option<Name>) -> Refusal {
        Refusal { config: Some(Box::new(config)), ..Refusal::of(Kind::Misconfigured, policy) }
    }

    /// With the time to stay away that somebody else suggests, where the kind knows none.
    #[cfg(feature = "server")]
    pub(crate) fn asking_for(self, pause: Duration) -> Refusal {
        Refusal { asked: Some(pause), ..self }
    }

    /// Why the run ended.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// How many times the operation was started, hedges included.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    /// The time from the run's first look at the clock to its end; zero if it never had to look.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.elapsed
    }

    /// The name of the policy that refused if it has one, else of the executor.
    #[must_use]
    pub fn policy(&self) -> Option<&'static str> {
        self.policy.map(Name::as_str)
    }

    /// How long to stay away, if it is known. See [`Error::retry_after`](super::Error::retry_after).
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self.kind {
            Kind::CircuitOpen { retry_after } | Kind::RateLimited { retry_after } => retry_after,
            _ => self.asked,
        }
    }

    /// The setting that was refused, if the kind is [`Kind::Misconfigured`].
    #[must_use]
    pub fn config(&self) -> Option<&ConfigError> {
        self.config.as_deref()
    }

    pub(super) fn write_name(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.policy {
            Some(name) => write!(f, "{name}: "),
            None => Ok(()),
        }
    }

    pub(super) fn write(&self, f: &mut fmt::Formatter<'_>, last: Option<&dyn fmt::Display>) -> fmt::Result {
        self.write_name(f)?;
        match &self.config {
            Some(config) => write!(f, "{}: {config}", self.kind)?,
            None => write!(f, "{}", self.kind)?,
        }
        let attempts = self.attempts;
        let plural = if attempts == 1 { "" } else { "s" };
        match last {
            Some(last) => write!(f, " (after {attempts} attempt{plural}; last error: {last})"),
            None if attempts > 0 => write!(f, " (after {attempts} attempt{plural})"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, None)
    }
}

/// Without a source: `Display` shows the setting that was refused, see [`config`](Refusal::config).
impl std::error::Error for Refusal {}
