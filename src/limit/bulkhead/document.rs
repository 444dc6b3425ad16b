//! The settings of a bulkhead in a file.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::config::BulkheadConfig;
use crate::document::{self, Document, Span};

/// What a file may say about a [`BulkheadConfig`].
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct BulkheadDocument {
    permits: Option<usize>,
    queue: Option<usize>,
    max_wait: Option<Span>,
}

impl Document for BulkheadDocument {
    type Settings = BulkheadConfig;

    fn over(self, config: BulkheadConfig) -> Result<BulkheadConfig, &'static str> {
        Ok(BulkheadConfig {
            permits: self.permits.unwrap_or(config.permits),
            queue: self.queue.unwrap_or(config.queue),
            max_wait: self.max_wait.map_or(config.max_wait, |span| span.0),
        })
    }

    fn of(config: &BulkheadConfig) -> Result<BulkheadDocument, &'static str> {
        let BulkheadConfig { permits, queue, max_wait } = *config;
        Ok(BulkheadDocument { permits: Some(permits), queue: Some(queue), max_wait: Some(Span(max_wait)) })
    }
}

/// `permits` has no default; what else is not named is as in [`BulkheadConfig::new`].
impl<'de> Deserialize<'de> for BulkheadConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<BulkheadConfig, D::Error> {
        let document = BulkheadDocument::deserialize(deserializer)?;
        let permits = document.permits.ok_or_else(|| D::Error::missing_field("permits"))?;
        document.over(BulkheadConfig::new(permits)).map_err(D::Error::custom)
    }
}

impl Serialize for BulkheadConfig {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        document::write::<BulkheadDocument, S>(self, serializer)
    }
}
