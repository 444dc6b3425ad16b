//! What an error was caused by.

use std::error::Error as StdError;
use std::io;

/// The error and everything that it was caused by, outermost first.
///
/// An [`io::Error`] that wraps another error names that error's *source* as its own, and so skips the error itself: it has
/// to be asked for what it wraps.
pub(crate) fn causes<'a>(error: &'a (dyn StdError + 'static)) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    std::iter::successors(Some(error), |&error| match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
        Some(wrapped) => Some(wrapped as &(dyn StdError + 'static)),
        None => error.source(),
    })
}

/// The outermost cause of type `E`.
pub(crate) fn find<'a, E: StdError + 'static>(error: &'a (dyn StdError + 'static)) -> Option<&'a E> {
    causes(error).find_map(|cause| cause.downcast_ref())
}

#[cfg(test)]
mod tests {
    use std::fmt;

    use super::*;

    #[derive(Debug)]
    struct Outer(io::Error);

    impl fmt::Display for Outer {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("outer")
        }
    }

    impl StdError for Outer {
        fn source(&self) -> Option<&(dyn StdError + 'static)> {
            Some(&self.0)
        }
    }

    #[test]
    fn an_error_wrapped_in_an_io_error_is_found() {
        let reset = io::Error::from(io::ErrorKind::ConnectionReset);
        let error = Outer(io::Error::other(Outer(io::Error::other(reset))));
        assert_eq!(causes(&error).count(), 5);
        let kinds = causes(&error).filter_map(|cause| Some(cause.downcast_ref::<io::Error>()?.kind()));
        assert_eq!(kinds.last(), Some(io::ErrorKind::ConnectionReset));
        assert!(find::<fmt::Error>(&error).is_none());
    }
}
