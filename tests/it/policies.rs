//! Policies that only tests have: one that refuses, one that records what a breaker in its place would see.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use steadfast::error::Kind;
use steadfast::policy::{Call, Next, Outcome, Policy, Settings};
use steadfast::{Error, Verdict};

/// Refuses some of its calls as an open circuit breaker does.
pub(crate) struct Refuses {
    calls: AtomicU32,
    from: u32,
    to: u32,
    kind: Kind,
}

impl Refuses {
    pub(crate) const PAUSE: Duration = Duration::from_secs(60);
    pub(crate) const KIND: Kind = Kind::CircuitOpen { retry_after: Some(Refuses::PAUSE) };

    /// Admits `admitted` calls and none after them.
    pub(crate) fn after(admitted: u32) -> Refuses {
        Refuses::between(admitted, u32::MAX)
    }

    /// Refuses the calls with the indices `from..to`.
    pub(crate) fn between(from: u32, to: u32) -> Refuses {
        Refuses { calls: AtomicU32::new(0), from, to, kind: Refuses::KIND }
    }

    pub(crate) fn without_hint(self) -> Refuses {
        let kind = Kind::CircuitOpen { retry_after: None };
        Refuses { kind, ..self }
    }
}

impl Settings for Refuses {}

impl<T: Send, E: Send> Policy<T, E> for Refuses {
    async fn run<N: Next<T, E>>(&self, call: Call<'_, E>, next: N) -> Outcome<T, E> {
        let index = self.calls.fetch_add(1, Ordering::Relaxed);
        if (self.from..self.to).contains(&index) {
            return Outcome::rejected(Error::refused(self.kind));
        }
        next.call(call).await
    }
}

/// How one call through a [`Probe`] ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum End {
    Judged(Verdict),
    Dropped,
}

/// Records how the calls through it end, as a breaker in its place would see them.
#[derive(Clone, Default)]
pub(crate) struct Probe(Arc<Mutex<Vec<End>>>);

impl Probe {
    pub(crate) fn ends(&self) -> Vec<End> {
        self.0.lock().unwrap().clone()
    }

    /// What it saw, if all calls came to an end.
    pub(crate) fn verdicts(&self) -> Vec<Verdict> {
        let judged = |end| match end {
            End::Judged(verdict) => verdict,
            End::Dropped => panic!("a call was dropped"),
        };
        self.ends().into_iter().map(judged).collect()
    }
}

impl Settings for Probe {}

impl<T: Send, E: Send> Policy<T, E> for Probe {
    async fn run<N: Next<T, E>>(&self, call: Call<'_, E>, next: N) -> Outcome<T, E> {
        let mut permit = Permit { probe: self, end: End::Dropped };
        let outcome = next.call(call).await;
        permit.end = End::Judged(outcome.verdict());
        outcome
    }
}

/// Assumes the worst until told otherwise, as everything that is acquired does.
struct Permit<'a> {
    probe: &'a Probe,
    end: End,
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.probe.0.lock().unwrap().push(self.end);
    }
}
