//! The time between two tries.

use std::pin::pin;
use std::time::Duration;

use crate::policy::{Call, Next, Tail};
use crate::run::Alarm;

/// The wait before the next try, and the value of the last one if there was one.
pub(super) struct Pause<T> {
    pub(super) wait: Duration,
    pub(super) value: Option<T>,
    /// Dropped when the value is given up: a permit is held for as long as what it was given for.
    pub(super) tail: Tail,
}

impl<T: Send> Pause<T> {
    /// Whether there is nothing to wait for: a wait of zero registers no timer.
    pub(super) fn is_empty(&self) -> bool {
        self.wait.is_zero() && self.value.is_none()
    }

    /// Lets the operation give up the value *within* the wait, and waits for the rest of it.
    pub(super) async fn wait<E: Send, N: Next<T, E>>(self, call: Call<'_, E>, next: N) {
        let core = call.scope().core;
        let from = core.look();
        let mut alarm = pin!(Alarm::new(call.scope(), from + self.wait.max(LEAST_DISCARD_TIME)));
        if let Some(value) = self.value {
            tokio::select! {
                biased;
                () = next.discard(value) => {}
                () = alarm.as_mut() => return,
            }
        }
        drop(self.tail);
        if !self.wait.is_zero() {
            alarm.set(Alarm::new(call.scope(), from + self.wait));
            alarm.await;
        }
    }
}

/// The time that an operation has to give up a value even if the next try is due at once: enough to drain a short
/// response, which saves a new connection.
const LEAST_DISCARD_TIME: Duration = Duration::from_millis(5);
