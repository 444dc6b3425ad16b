//! Requests that may be needed more than once.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

use super::shelf::Shelf;
use crate::http::NO_COPY;

/// A request, or the body of one, that can be copied for another attempt, at least sometimes.
///
/// Everything that is `Clone` can be copied always. A body that cannot be cloned becomes one that can, up to a bound, with
/// [`Replay`](super::Replay).
pub trait CloneRequest: Sized {
    /// A copy that says the same from its beginning, or `None` if there is none to be had (any more). It is made for each
    /// attempt; without one, the first attempt gets the request itself, and there is no other.
    fn try_clone(&self) -> Option<Self>;

    /// Whether a copy is to be had now. It may end while a body is sent, and is asked before each further attempt.
    ///
    /// # Errors
    /// The reason why not, for errors and reports.
    fn can_clone(&self) -> Result<(), &'static str>;
}

impl<T: Clone> CloneRequest for T {
    fn try_clone(&self) -> Option<T> {
        Some(self.clone())
    }

    fn can_clone(&self) -> Result<(), &'static str> {
        Ok(())
    }
}

/// What the requests of all attempts of a call are made from.
#[expect(unnameable_types, reason = "only the sealed traits of the adapter name it")]
pub struct Template<R> {
    /// The request, or the reason why there is none any more: the first attempt has got it.
    request: Shelf<Result<R, &'static str>>,
    /// Whether an attempt has got its request.
    used: AtomicBool,
}

impl<R: CloneRequest> Template<R> {
    pub(crate) fn new(request: R) -> Template<R> {
        Template { request: Shelf::new(Ok(request)), used: AtomicBool::new(false) }
    }

    /// The request of one attempt: a copy, or for the first the request itself, if it cannot be copied.
    pub(crate) fn make(&self) -> Option<R> {
        // Relaxed: all attempts of a run are polled in one task.
        let is_first = !self.used.swap(true, Ordering::Relaxed);
        let request = self.request.take()?;
        let (kept, copy) = match request {
            Ok(request) => match request.try_clone() {
                None if is_first => (Err(request.can_clone().err().unwrap_or(NO_COPY)), Some(request)),
                copy => (Ok(request), copy),
            },
            gone => (gone, None),
        };
        self.request.put(kept);
        copy
    }

    /// Whether another attempt would get a request. `beside` an attempt that runs it has to be a copy; after one that has
    /// not got as far as its request, it need not be.
    pub(crate) fn can_make(&self, beside: bool) -> Result<(), &'static str> {
        if !beside && !self.used.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.request.lend(|kept| kept.as_ref().map_err(|why| *why)?.can_clone()).unwrap_or(Err(NO_COPY))
    }
}

impl<R> fmt::Debug for Template<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Template").field("used", &self.used).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    const GONE: &str = "it is gone";

    /// Can be copied for as long as it says so.
    struct Fleeting<'a>(&'a Cell<bool>);

    impl CloneRequest for Fleeting<'_> {
        fn try_clone(&self) -> Option<Self> {
            self.0.get().then_some(Fleeting(self.0))
        }

        fn can_clone(&self) -> Result<(), &'static str> {
            if self.0.get() { Ok(()) } else { Err(GONE) }
        }
    }

    #[test]
    fn only_the_first_attempt_may_move_what_cannot_be_cloned() {
        let clonable = Cell::new(false);
        let template = Template::new(Fleeting(&clonable));
        assert_eq!(template.can_make(false), Ok(()), "nobody has it yet");
        assert_eq!(template.can_make(true), Err(GONE));
        assert!(template.make().is_some() && template.make().is_none());
        assert_eq!(template.can_make(false), Err(GONE), "for the reason that it was moved for");
    }

    #[test]
    fn an_attempt_after_the_first_never_takes_the_template_itself() {
        let clonable = Cell::new(true);
        let template = Template::new(Fleeting(&clonable));
        assert!(template.make().is_some());
        assert_eq!(template.can_make(true), Ok(()));
        clonable.set(false);
        assert_eq!(template.can_make(false), Err(GONE));
        assert!(template.make().is_none());
        clonable.set(true);
        assert!(template.make().is_some(), "it is still there");
    }
}
