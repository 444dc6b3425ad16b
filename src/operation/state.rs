//! An operation that needs `&mut` of something for as long as it runs.

use std::fmt;
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{Answer, Operation};
use crate::attempt::Attempt;
use crate::error::{ConfigError, Error};
use crate::outcome::Outcome;

/// The future of an operation that borrows its state.
pub type StateFuture<'a, A> = Pin<Box<dyn Future<Output = A> + Send + 'a>>;

/// An operation with exclusive use of some state: one try at a time, and therefore never hedged.
///
/// ```
/// # use steadfast::{Context, Retry, operation::with_state, try_op};
/// # let clock = steadfast::clock::Clock::manual();
/// # clock.block_on(async {
/// # let cx = Context::new().with_clock(&clock);
/// let mut tries = Vec::new();
/// let count = with_state(&mut tries, |tries, attempt| Box::pin(async move {
///     tries.push(attempt.number());
///     if tries.len() < 3 { Err("not yet") } else { Ok(()) }
/// }));
/// try_op(&cx, count, Retry::exponential()).await.unwrap();
/// assert_eq!(tries, [1, 2, 3]);
/// # });
/// ```
pub fn with_state<T, E, S, A, F>(state: &mut S, f: F) -> WithState<'_, S, F>
where
    S: Send,
    A: Answer<T, E>,
    F: for<'a> Fn(&'a mut S, Attempt) -> StateFuture<'a, A> + Sync,
{
    WithState { state: Mutex::new(Some(state)), f }
}

/// See [`with_state`].
#[must_use = "an operation does nothing until it is run"]
pub struct WithState<'s, S, F> {
    /// Taken out for the length of a try, so that no lock is held while user code runs. Nothing runs beside it.
    state: Mutex<Option<&'s mut S>>,
    f: F,
}

impl<T, E, S, A, F> Operation<T, E> for WithState<'_, S, F>
where
    S: Send,
    A: Answer<T, E>,
    F: for<'a> Fn(&'a mut S, Attempt) -> StateFuture<'a, A> + Sync,
{
    async fn call(&self, attempt: Attempt) -> Outcome<T, E> {
        let mut taken = Taken { state: self.lock().take(), home: &self.state };
        match &mut taken.state {
            Some(state) => (self.f)(state, attempt).await.judged(),
            // Only a policy that starts a second try without asking `repeat` gets here.
            None => Outcome::rejected(Error::misconfigured(ConfigError::new(
                "with_state",
                "a second try beside the first",
                "a policy must ask whether the operation may be repeated",
            ))),
        }
    }

    fn repeat(&self, after: Option<&Outcome<T, E>>) -> Result<(), &'static str> {
        after.map(|_| ()).ok_or("its state is in use by the running try")
    }
}

impl<'s, S, F> WithState<'s, S, F> {
    fn lock(&self) -> MutexGuard<'_, Option<&'s mut S>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S, F> fmt::Debug for WithState<'_, S, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WithState").finish_non_exhaustive()
    }
}

/// The state, out of its home for one try; it returns however the try ends.
struct Taken<'a, 's, S> {
    state: Option<&'s mut S>,
    home: &'a Mutex<Option<&'s mut S>>,
}

impl<S> Drop for Taken<'_, '_, S> {
    fn drop(&mut self) {
        if let Some(state) = self.state.take() {
            *self.home.lock().unwrap_or_else(PoisonError::into_inner) = Some(state);
        }
    }
}
