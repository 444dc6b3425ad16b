//! Which changes of state a call makes.
//!
//! The core of a breaker knows neither calls nor observers, and its listeners hear of the changes that all calls make, perhaps
//! from another thread. What one call does to the state it does on its own thread, within one question to the core; so whoever
//! asks leaves a note for the thread, and finds in it afterwards what was changed.

use std::cell::RefCell;

use super::transition::Transition;

thread_local! {
    /// The changes made so far, while somebody watches.
    static SEEN: RefCell<Option<Vec<Transition>>> = const { RefCell::new(None) };
}

/// Watches the thread until it is dropped.
pub(super) struct Witness {
    /// What is there to be put back: a listener or a predicate may be in the middle of a call of its own.
    before: Option<Vec<Transition>>,
}

impl Witness {
    pub(super) fn new() -> Witness {
        Witness { before: replace(Some(Vec::new())) }
    }

    /// The changes since it was made or asked.
    pub(super) fn take(&mut self) -> Vec<Transition> {
        replace(Some(Vec::new())).unwrap_or_default()
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        replace(self.before.take());
    }
}

/// Whether it is worth while to say what changes.
pub(super) fn is_watching() -> bool {
    // A thread that ends may still drop permits, and has nobody to tell.
    SEEN.try_with(|seen| seen.borrow().is_some()).unwrap_or(false)
}

pub(super) fn see(transition: &Transition) {
    let _nobody_watches = SEEN.try_with(|seen| {
        if let Some(seen) = &mut *seen.borrow_mut() {
            seen.push(transition.clone());
        }
    });
}

/// Does something that is not the doing of the call, whatever it changes.
pub(super) fn blindly(act: impl FnOnce()) {
    let _put_back = Witness { before: replace(None) };
    act();
}

fn replace(with: Option<Vec<Transition>>) -> Option<Vec<Transition>> {
    SEEN.try_with(|seen| seen.replace(with)).unwrap_or_default()
}
