use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use super::transition::Transition;
use crate::shield::shielded;

/// Who is told of transitions.
#[derive(Clone, Default)]
pub(super) struct Listeners(Vec<Arc<dyn Fn(Transition) + Send + Sync>>);

impl Listeners {
    pub(super) fn add(&mut self, listener: impl Fn(Transition) + Send + Sync + 'static) {
        self.0.push(Arc::new(listener));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Tells every listener. A panic has been through the panic hook when it is caught here, and ends here: the caller
    /// is in the middle of someone's request, or is unwinding already.
    pub(super) fn tell(&self, transition: &Transition) {
        for listener in &self.0 {
            shielded(|| listener(transition.clone()));
        }
    }
}

impl fmt::Debug for Listeners {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} listeners", self.0.len())
    }
}

/// Transitions that the listeners have not heard of, in the order in which they happened.
///
/// Guarded by the lock under which the transitions happen, which is what puts them in order. Whoever leaves that lock
/// with something in the queue becomes its drainer, unless there is one: so the listeners run one at a time, and a
/// listener that causes a transition finds it delivered after its own return instead of within itself.
#[derive(Debug, Default)]
pub(super) struct TransitionQueue {
    waiting: VecDeque<Transition>,
    draining: bool,
}

impl TransitionQueue {
    pub(super) fn push(&mut self, transition: Transition) {
        self.waiting.push_back(transition);
    }

    /// Makes the caller the drainer if one is needed. It must then take transitions until there are none.
    pub(super) fn start_draining(&mut self) -> bool {
        let needed = !self.draining && !self.waiting.is_empty();
        self.draining |= needed;
        needed
    }

    /// The next transition for the drainer, who is released by `None`.
    pub(super) fn next(&mut self) -> Option<Transition> {
        let next = self.waiting.pop_front();
        self.draining = next.is_some();
        next
    }
}
