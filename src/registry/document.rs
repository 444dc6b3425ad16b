//! The settings of all executors in a file.

use std::collections::BTreeMap;

use serde::de::Error;
use serde::{Deserialize, Deserializer};

use super::config::{RegistryConfig, part};
use crate::document::Document;
use crate::standard::StandardConfig;
use crate::standard::document::StandardDocument;

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct RegistryDocument {
    defaults: StandardDocument,
    executors: BTreeMap<String, StandardDocument>,
}

/// Each executor names what differs from `defaults`, and those what differs from [`StandardConfig::default`].
impl<'de> Deserialize<'de> for RegistryConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<RegistryConfig, D::Error> {
        let document = RegistryDocument::deserialize(deserializer)?;
        let within = |part: &str, why: &str| D::Error::custom(format_args!("{part}: {why}"));
        let defaults = document.defaults.over(StandardConfig::default()).map_err(|why| within("defaults", why))?;
        let mut executors = BTreeMap::new();
        for (name, document) in document.executors {
            let config = document.over(defaults.clone()).map_err(|why| within(&part(&name), why))?;
            executors.insert(name, config);
        }
        Ok(RegistryConfig { defaults, executors })
    }
}
