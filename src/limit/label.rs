//! The name of a handle, if it has one.

use std::sync::Arc;

use crate::error::{ConfigError, Name};

/// The name of a handle and its clones. One word, since there is one in each of 100,000 keyed members, and nearly none has a
/// name.
#[derive(Clone, Debug, Default)]
pub(super) struct Label(Option<Arc<Result<Name, ConfigError>>>);

impl Label {
    pub(super) fn new(text: &str) -> Label {
        Label(Some(Arc::new(Name::new(text))))
    }

    pub(super) fn name(&self) -> Option<Name> {
        self.0.as_ref()?.as_ref().as_ref().ok().copied()
    }

    #[inline]
    pub(super) fn is_usable(&self) -> bool {
        self.0.as_ref().is_none_or(|named| named.is_ok())
    }

    pub(super) fn check(&self) -> Result<(), ConfigError> {
        self.0.as_ref().map_or(Ok(()), |named| named.as_ref().clone().map(drop))
    }
}
