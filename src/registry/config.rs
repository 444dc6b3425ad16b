//! The settings of all executors of a program.

use std::collections::BTreeMap;

use crate::error::ConfigError;
use crate::standard::StandardConfig;

/// The settings of a [`Registry`](super::Registry): those of each dependency by name, and those of all others.
///
/// ```
/// use steadfast::registry::RegistryConfig;
/// use steadfast::standard::StandardConfig;
/// use std::time::Duration;
///
/// let quick = StandardConfig::default().attempt_timeout(Duration::from_millis(500));
/// let config = RegistryConfig::default().executor("search", quick).executor("billing", StandardConfig::default());
/// assert!(config.check().is_ok());
/// ```
///
/// # In a file
/// With the feature `serde`: what `defaults` names holds for all, and each executor names what differs from that.
///
/// ```
/// # #[cfg(feature = "serde")] {
/// use steadfast::registry::RegistryConfig;
///
/// let config: RegistryConfig = serde_json::from_str(r#"{
///     "defaults": { "total_timeout": "20s", "attempt_timeout": "5s" },
///     "executors": {
///         "billing": {},
///         "search": { "attempt_timeout": "500ms", "retry": { "max_attempts": 2 } }
///     }
/// }"#).unwrap();
/// assert!(config.check().is_ok());
///
/// let refused = serde_json::from_str::<RegistryConfig>(r#"{ "executors": { "search": { "retires": {} } } }"#);
/// assert!(refused.unwrap_err().to_string().contains("unknown field `retires`"));
/// # }
/// ```
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[must_use = "settings do nothing until a registry has them"]
pub struct RegistryConfig {
    pub(super) defaults: StandardConfig,
    pub(super) executors: BTreeMap<String, StandardConfig>,
}

impl RegistryConfig {
    /// The settings of dependencies that have none of their own. Default: [`StandardConfig::default`]. What is in `executors`
    /// already stays as it is.
    pub fn defaults(mut self, config: StandardConfig) -> RegistryConfig {
        self.defaults = config;
        self
    }

    /// The settings of the dependency `name`.
    pub fn executor(mut self, name: impl Into<String>, config: StandardConfig) -> RegistryConfig {
        self.executors.insert(name.into(), config);
        self
    }

    /// Says whether all of these settings make executors.
    ///
    /// # Errors
    /// The first one that cannot work, with the dependency that it belongs to.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.each(StandardConfig::check).map(drop)
    }

    /// What can work, and is seldom meant: see [`StandardConfig::warnings`].
    #[must_use]
    pub fn warnings(&self) -> Vec<ConfigError> {
        let found = self.each(|config| Ok(config.warnings())).unwrap_or_default();
        found.into_iter().flat_map(|(part, warnings)| warnings.into_iter().map(move |one| one.within(&part))).collect()
    }

    /// The settings of the dependency `name`.
    pub(super) fn of(&self, name: &str) -> &StandardConfig {
        self.executors.get(name).unwrap_or(&self.defaults)
    }

    /// What `look` says of each of the settings, with the part that they are.
    fn each<R>(
        &self,
        look: impl Fn(&StandardConfig) -> Result<R, ConfigError>,
    ) -> Result<Vec<(String, R)>, ConfigError> {
        let named = self.executors.iter().map(|(name, config)| (part(name), config));
        let all = std::iter::once(("defaults".to_owned(), &self.defaults)).chain(named);
        all.map(|(part, config)| look(config).map_err(|refused| refused.within(&part)).map(|said| (part, said)))
            .collect()
    }
}

/// The part that the settings of the dependency `name` are.
pub(super) fn part(name: &str) -> String {
    format!("executors.{name}")
}
