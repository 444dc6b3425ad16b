//! Settings in files. Each kind of settings has a document: what a file may say about it, every part of it optional. What
//! a document does not name stays as it was, so that one document can be laid over another: a file over the defaults, one
//! dependency over what all have.
//!
//! A document refuses what it does not know, and what has no meaning at all. Whether numbers can work is said by the `check` of
//! the settings, so that code and files are held to the same rules.

mod or_off;
mod span;

use serde::de::Error as _;
use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub(crate) use self::or_off::OrOff;
pub(crate) use self::span::Span;

/// What a file may say about settings.
pub(crate) trait Document: Sized {
    type Settings;

    /// The settings with what this document names.
    ///
    /// # Errors
    /// If what it names excludes each other.
    fn over(self, base: Self::Settings) -> Result<Self::Settings, &'static str>;

    /// The document that gives these settings, whatever it is laid over.
    ///
    /// # Errors
    /// If there is none, since they have functions in them.
    fn of(settings: &Self::Settings) -> Result<Self, &'static str>;
}

/// Reads a document and lays it over the settings that there are without it.
pub(crate) fn read<'de, T, D>(deserializer: D, base: T::Settings) -> Result<T::Settings, D::Error>
where
    T: Document + Deserialize<'de>,
    D: Deserializer<'de>,
{
    T::deserialize(deserializer)?.over(base).map_err(D::Error::custom)
}

/// Writes the document of settings.
pub(crate) fn write<T, S>(settings: &T::Settings, serializer: S) -> Result<S::Ok, S::Error>
where
    T: Document + Serialize,
    S: Serializer,
{
    T::of(settings).map_err(S::Error::custom)?.serialize(serializer)
}
