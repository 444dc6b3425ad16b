//! A timeout in a file: a time, or a table if it covers bodies too.

use std::fmt;
use std::time::Duration;

use serde::de::value::{MapAccessDeserializer, StrDeserializer};
use serde::de::{Error, MapAccess, Visitor};
use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{Limit, Timeout};
use crate::document::Span;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TimeoutDocument {
    limit: Span,
    #[serde(default)]
    covering_body: bool,
}

/// `"9s"`, or `{ limit = "9s", covering_body = true }`.
impl<'de> Deserialize<'de> for Timeout {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Timeout, D::Error> {
        deserializer.deserialize_any(TextOrTable)
    }
}

/// Fails if the limit is computed.
impl Serialize for Timeout {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Limit::Fixed(limit) if limit.covers_body() => {
                TimeoutDocument { limit: Span(limit.get()), covering_body: true }.serialize(serializer)
            }
            Limit::Fixed(limit) => Span(limit.get()).serialize(serializer),
            Limit::By { .. } => Err(S::Error::custom("a timeout whose limit is computed cannot be written down")),
        }
    }
}

struct TextOrTable;

impl<'de> Visitor<'de> for TextOrTable {
    type Value = Timeout;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a time with its unit, such as \"9s\", or a table with a `limit`")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Timeout, E> {
        Span::deserialize(StrDeserializer::new(text)).map(|span| made(span.0, false))
    }

    fn visit_map<M: MapAccess<'de>>(self, map: M) -> Result<Timeout, M::Error> {
        let TimeoutDocument { limit, covering_body } = Deserialize::deserialize(MapAccessDeserializer::new(map))?;
        Ok(made(limit.0, covering_body))
    }
}

fn made(limit: Duration, covering_body: bool) -> Timeout {
    let timeout = Timeout::new(limit);
    if covering_body { timeout.covering_body() } else { timeout }
}
