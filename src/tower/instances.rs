//! The instances of the service inside that the attempts of one call use.

use super::shelf::Shelf;

/// The instance that was polled ready, for the first attempt, and clones of it for all others.
///
/// A clone is not ready, whatever it was made of: each attempt after the first polls its own.
pub(crate) struct Instances<S>(Shelf<Instance<S>>);

/// One instance.
pub(crate) struct Instance<S> {
    pub(crate) service: S,
    pub(crate) is_ready: bool,
}

impl<S: Clone> Instances<S> {
    /// `ready` has been polled ready.
    pub(crate) fn new(ready: S) -> Instances<S> {
        Instances(Shelf::new(Instance { service: ready, is_ready: true }))
    }

    /// An instance for one attempt: the ready one for the first that asks, and clones after it. `None` while another
    /// attempt is in the middle of its call, which takes no time within one task.
    pub(crate) fn next(&self) -> Option<Instance<S>> {
        let instance = self.0.take()?;
        if instance.is_ready {
            return Some(instance);
        }
        let service = instance.service.clone();
        self.0.put(instance);
        Some(Instance { service, is_ready: false })
    }

    /// Keeps the instance that has been ready, to make clones of. All others are done with.
    pub(crate) fn called(&self, instance: Instance<S>) {
        if instance.is_ready {
            self.0.put(Instance { is_ready: false, ..instance });
        }
    }

    /// Gives back what the ready instance has reserved, if no attempt has used it: for calls that wait before their first
    /// attempt.
    pub(crate) fn release(&self) {
        if let Some(instance) = self.0.take() {
            let instance = if instance.is_ready {
                Instance { service: instance.service.clone(), is_ready: false }
            } else {
                instance
            };
            self.0.put(instance);
        }
    }
}
