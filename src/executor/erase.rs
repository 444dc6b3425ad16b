//! An executor whose type does not say what its chain is made of.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::{Executor, Shared};
use crate::chain::{DynNext, DynPolicy};
use crate::clock::Moment;
use crate::error::{ConfigError, Error};
use crate::policy::{Call, Next, Outcome, Policy, Settings, Site};
use crate::run::{Frame, Last};
use crate::snapshot::PolicySnapshot;

impl<P> Executor<P>
where
    P: Policy<AnyValue, AnyError> + 'static,
{
    /// The same executor without its type parameter, for struct fields whose chain cannot be written down: it still serves
    /// any result type, and shares its state and its end with this one. Costs two boxes a call.
    ///
    /// A value that a custom policy in the chain drops, rather than give it to
    /// [`Next::discard`], is kept until the run ends.
    ///
    /// Only chains that fit every error type can be erased: one with a judging closure over `&E` cannot.
    ///
    /// ```
    /// use steadfast::{Executor, Retry, Timeout};
    /// use std::time::Duration;
    ///
    /// struct Service {
    ///     search: Executor,
    /// }
    ///
    /// # let clock = steadfast::clock::Clock::manual();
    /// # clock.block_on(async {
    /// let longer = Timeout::with(|attempt| Duration::from_secs(attempt.number().into()));
    /// let search = Executor::builder("search").policies((Retry::exponential(), longer));
    /// # let search = search.clock(&clock);
    /// let service = Service { search: search.build().unwrap().erase() };
    /// assert_eq!(service.search.run(|_| async { Ok::<_, String>(3) }).await.unwrap(), 3);
    /// # });
    /// ```
    #[must_use]
    pub fn erase(&self) -> Executor {
        let Shared { name, life, setup, .. } = &*self.0;
        let policies = Erased(Arc::clone(&self.0) as Arc<dyn DynPolicy<AnyValue, AnyError>>);
        Executor(Arc::new(Shared { name: *name, life: Arc::clone(life), setup: setup.clone(), policies }))
    }
}

/// A chain of some type; see [`Executor::erase`].
///
/// The chain inside is a chain for [`AnyValue`] and [`AnyError`]. Values never move through it: they stay in the caller's
/// frame, and what travels is the number of their slot.
pub struct Erased(Arc<dyn DynPolicy<AnyValue, AnyError>>);

/// The place of a value, seen by an erased chain instead of the value.
#[derive(Debug)]
pub struct AnyValue(usize);

/// An error of some type, as an erased chain sees it.
pub struct AnyError(Box<dyn Holder>);

/// An error in a cell, so that it can be taken out for a moment behind a shared reference.
trait Holder: Send + Sync {
    fn as_any(&self) -> &dyn Any;
    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result;
}

struct Held<E>(Mutex<Option<E>>);

impl<E: fmt::Debug + Send + 'static> Holder for Held<E> {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*lock(&self.0) {
            Some(error) => error.fmt(f),
            None => f.write_str("an error that was taken out"),
        }
    }
}

impl AnyError {
    fn new<E: fmt::Debug + Send + 'static>(error: E) -> AnyError {
        AnyError(Box::new(Held(Mutex::new(Some(error)))))
    }

    /// The error, if it is there: an erased chain serves one type of error in one run, and hands on what it got.
    fn take<E: 'static>(&self) -> Option<E> {
        lock(&self.0.as_any().downcast_ref::<Held<E>>()?.0).take()
    }

    fn put_back<E: 'static>(&self, error: Option<E>) {
        if let Some(held) = self.0.as_any().downcast_ref::<Held<E>>() {
            *lock(&held.0) = error;
        }
    }
}

impl fmt::Debug for AnyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.write(f)
    }
}

impl<P: Settings> Settings for Shared<P> {
    fn validate(&self, site: &mut Site<'_>) -> Result<(), ConfigError> {
        self.policies.validate(site)
    }

    fn limit(&self, inner: Option<Duration>) -> Option<Duration> {
        self.policies.limit(inner)
    }

    fn snapshots(&self, all: &mut Vec<PolicySnapshot>) {
        self.policies.snapshots(all);
    }
}

impl<T, E, P: Policy<T, E>> Policy<T, E> for Shared<P> {
    fn run<N: Next<T, E>>(&self, call: Call<'_, E>, next: N) -> impl Future<Output = Outcome<T, E>> + Send {
        self.policies.run(call, next)
    }
}

impl Settings for Erased {
    fn validate(&self, site: &mut Site<'_>) -> Result<(), ConfigError> {
        self.0.validate(site)
    }

    fn limit(&self, inner: Option<Duration>) -> Option<Duration> {
        self.0.limit(inner)
    }

    fn snapshots(&self, all: &mut Vec<PolicySnapshot>) {
        self.0.snapshots(all);
    }
}

impl<T: Send, E: fmt::Debug + Send + 'static> Policy<T, E> for Erased {
    async fn run<N: Next<T, E>>(&self, call: Call<'_, E>, next: N) -> Outcome<T, E> {
        let slots = Slots::default();
        let last = Last::new();
        let frame = Frame { scope: call.scope_until(Moment::NEVER), last: &last };
        let _hand_over = HandOver { from: &frame, to: call.frame() };
        let inner = Typed { next, slots: &slots, last: call.frame().last };
        let outcome = self.0.run_dyn(call.within(&frame), DynNext { list: &[], last: &inner }).await;
        outcome.map(
            |value| {
                slots
                    .take(&value)
                    .expect("a value stays in its slot until its place comes back, and places are not Clone")
            },
            |error| error.take().expect("an error is taken out only here, and chains cannot make one"),
        )
    }
}

/// The typed rest of the chain, as the erased chain sees it.
struct Typed<'a, T, E, N> {
    next: N,
    slots: &'a Slots<T>,
    last: &'a Last<E>,
}

impl<T, E, N: Copy> Clone for Typed<'_, T, E, N> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T, E, N: Copy> Copy for Typed<'_, T, E, N> {}

impl<T: Send, E: fmt::Debug + Send + 'static, N: Next<T, E>> Next<AnyValue, AnyError> for Typed<'_, T, E, N> {
    async fn call(self, call: Call<'_, AnyError>) -> Outcome<AnyValue, AnyError> {
        let frame = Frame { scope: call.scope_until(Moment::NEVER), last: self.last };
        let outcome = self.next.call(call.within(&frame)).await;
        outcome.map(|value| self.slots.put(value), AnyError::new)
    }

    fn repeat(self, after: Option<&Outcome<AnyValue, AnyError>>) -> Result<(), &'static str> {
        let Some(after) = after else {
            return self.next.repeat(None);
        };
        // The rest of the chain wants to see the outcome typed: value or error leave their place for the question.
        match &after.result {
            Ok(place) => {
                let Some(value) = self.slots.take(place) else {
                    return self.next.repeat(None);
                };
                let typed = Outcome::new(Ok(value), after.verdict());
                let answer = self.next.repeat(Some(&typed));
                if let Ok(value) = typed.result {
                    self.slots.put_back(place, value);
                }
                answer
            }
            Err(error) => {
                let held = error.last();
                let mut typed = Error::new(held.and_then(AnyError::take));
                typed.set_kind(error.kind());
                let mut typed = Outcome::new(Err(typed), after.verdict());
                let answer = self.next.repeat(Some(&typed));
                if let (Some(held), Err(typed)) = (held, &mut typed.result) {
                    held.put_back(typed.take_last());
                }
                answer
            }
        }
    }

    fn limit(self) -> Option<Duration> {
        self.next.limit()
    }

    async fn discard(self, value: AnyValue) {
        if let Some(value) = self.slots.take(&value) {
            self.next.discard(value).await;
        }
    }
}

/// The values of one run, most of which have one; only more than one at a time (a hedge) allocates.
struct Slots<T>(Mutex<Values<T>>);

struct Values<T> {
    first: Option<T>,
    more: Vec<Option<T>>,
}

impl<T> Slots<T> {
    fn put(&self, value: T) -> AnyValue {
        let mut values = lock(&self.0);
        if values.first.is_none() {
            values.first = Some(value);
            return AnyValue(0);
        }
        if let Some(free) = values.more.iter().position(Option::is_none) {
            values.more[free] = Some(value);
            return AnyValue(free + 1);
        }
        values.more.push(Some(value));
        AnyValue(values.more.len())
    }

    fn take(&self, place: &AnyValue) -> Option<T> {
        lock(&self.0).at(place)?.take()
    }

    fn put_back(&self, place: &AnyValue, value: T) {
        if let Some(slot) = lock(&self.0).at(place) {
            *slot = Some(value);
        }
    }
}

impl<T> Values<T> {
    fn at(&mut self, place: &AnyValue) -> Option<&mut Option<T>> {
        match place.0 {
            0 => Some(&mut self.first),
            n => self.more.get_mut(n - 1),
        }
    }
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Slots(Mutex::new(Values { first: None, more: Vec::new() }))
    }
}

/// Moves what the operation has said to the typed run, however the erased one ends.
struct HandOver<'a, E: 'static> {
    from: &'a Frame<'a, AnyError>,
    to: &'a Frame<'a, E>,
}

impl<E: 'static> Drop for HandOver<'_, E> {
    fn drop(&mut self) {
        self.from.hand_over(self.to, |error| error.take());
    }
}

fn lock<T>(cell: &Mutex<T>) -> MutexGuard<'_, T> {
    cell.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for Erased {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Erased").finish_non_exhaustive()
    }
}
