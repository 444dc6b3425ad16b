//! A boxed error that is a standard error itself.

use std::fmt;

/// The usual boxed error.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Some error of an operation, boxed. Unlike [`BoxError`] it is a standard error, so that an `Error<Opaque>` is one too.
///
/// It shows the boxed error's own text and source; [`into_inner`](Opaque::into_inner) gives it back.
pub struct Opaque(BoxError);

impl Opaque {
    pub(super) fn new(error: BoxError) -> Opaque {
        Opaque(error)
    }

    /// The boxed error.
    #[must_use]
    pub fn into_inner(self) -> BoxError {
        self.0
    }

    /// The boxed error, if it is a `T`.
    #[must_use]
    pub fn downcast_ref<T: std::error::Error + 'static>(&self) -> Option<&T> {
        self.0.downcast_ref()
    }
}

impl fmt::Debug for Opaque {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Display for Opaque {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl std::error::Error for Opaque {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source()
    }
}
