//! How snapshots are serialized where deriving does not say it: times as seconds, pairs as a map.

use std::time::Duration;

use serde::ser::{SerializeMap, Serializer};

/// Seconds, or nothing if it is for ever.
pub(super) fn serialize<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    if *time == Duration::MAX { serializer.serialize_none() } else { serializer.serialize_f64(time.as_secs_f64()) }
}

pub(super) fn serialize_some<S: Serializer>(time: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    serialize(&time.unwrap_or(Duration::MAX), serializer)
}

pub(super) fn serialize_map<S: Serializer>(pairs: &[(&'static str, f64)], serializer: S) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(Some(pairs.len()))?;
    for (name, value) in pairs {
        map.serialize_entry(name, value)?;
    }
    map.end()
}
