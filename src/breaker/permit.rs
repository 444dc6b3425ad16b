//! What an admitted call that is not run through a chain holds: it assumes "abandoned" until it is told otherwise.

use std::borrow::Borrow;
use std::fmt;
use std::mem;
use std::time::Duration;

use super::handle::Breaker;
use super::ticket::{End, Refused, Ticket};
use crate::clock::Moment;
use crate::error::{ConfigError, Kind, Name};
use crate::verdict::Verdict;

/// The admission of one call that is not run through a chain; from [`Breaker::try_acquire`], which can be moved anywhere, or from
/// [`Breaker::try_acquire_ref`], which borrows the breaker. Says how the call ended; dropped, the call was abandoned: nothing is
/// counted while the breaker is closed, and a trial opens it again.
#[must_use = "a permit that is dropped counts as an abandoned call"]
pub struct Permit<B: Borrow<Breaker> = Breaker> {
    breaker: B,
    /// `SETTLED` once the call has ended.
    ticket: Ticket,
    /// `NEVER` if it did not matter, when the permit was given, how long the call takes.
    timed_from: Moment,
}

impl<B: Borrow<Breaker>> Permit<B> {
    #[inline]
    pub(super) fn new(breaker: B, ticket: Ticket, timed_from: Moment) -> Permit<B> {
        Permit { breaker, ticket, timed_from }
    }

    /// Whether the call is a trial of a half-open breaker.
    #[must_use]
    pub fn is_trial(&self) -> bool {
        self.ticket.is_trial()
    }

    /// The dependency answered.
    // Always inline, and so are those below: a permit that is handed to a function is copied, and waits for its own writes.
    #[inline(always)]
    pub fn success(mut self) {
        let ticket = mem::replace(&mut self.ticket, Ticket::SETTLED);
        let breaker = self.breaker.borrow();
        if !breaker.core().success_changes_nothing(ticket) {
            succeed_now(breaker, ticket, self.timed_from);
        }
    }

    /// The dependency failed.
    #[inline(always)]
    pub fn failure(self) {
        self.end(End::Failure);
    }

    /// The call says nothing about the dependency: a trial gives its place back.
    pub fn ignore(self) {
        self.end(End::Nothing);
    }

    /// The call ended with this verdict.
    #[inline(always)]
    pub fn record(self, verdict: Verdict) {
        match End::of(verdict) {
            End::Success => self.success(),
            end => self.end(end),
        }
    }

    pub(super) fn breaker(&self) -> &Breaker {
        self.breaker.borrow()
    }

    #[inline(always)]
    fn end(mut self, end: End) {
        let ticket = mem::replace(&mut self.ticket, Ticket::SETTLED);
        settle_now(self.breaker.borrow(), ticket, end, self.timed_from);
    }
}

impl<B: Borrow<Breaker>> Drop for Permit<B> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.ticket != Ticket::SETTLED {
            settle_now(self.breaker.borrow(), self.ticket, End::Abandoned, self.timed_from);
        }
    }
}

impl<B: Borrow<Breaker>> fmt::Debug for Permit<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit").field("is_trial", &self.is_trial()).finish_non_exhaustive()
    }
}

/// A circuit breaker refused a call.
#[derive(Clone, Debug, PartialEq)]
pub struct Rejected {
    name: Option<Name>,
    kind: Kind,
    config: Option<ConfigError>,
}

impl Rejected {
    pub(super) fn refused(name: Option<Name>, refused: Refused) -> Rejected {
        Rejected { name, kind: refused.kind(), config: None }
    }

    pub(super) fn misconfigured(name: Option<Name>, config: ConfigError) -> Rejected {
        Rejected { name, kind: Kind::Misconfigured, config: Some(config) }
    }

    /// Why: the circuit is open, the dependency asked for a pause, or a setting cannot work.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// How long every call will be refused, if it is known. It is not known while trials are running.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self.kind {
            Kind::CircuitOpen { retry_after } | Kind::RateLimited { retry_after } => retry_after,
            _ => None,
        }
    }

    /// The name of the breaker, if it has one.
    #[must_use]
    pub fn breaker(&self) -> Option<&'static str> {
        self.name.map(Name::as_str)
    }

    /// The setting for which the breaker refuses every call, if it has one that cannot work.
    #[must_use]
    pub fn config(&self) -> Option<&ConfigError> {
        self.config.as_ref()
    }
}

impl fmt::Display for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(name) = self.name {
            write!(f, "{name}: ")?;
        }
        match &self.config {
            Some(config) => write!(f, "circuit breaker misconfigured: {config}"),
            None => self.kind.fmt(f),
        }
    }
}

/// Without a source: `Display` shows the setting that was refused, see [`config`](Rejected::config).
impl std::error::Error for Rejected {}

// One call, so that nothing has to be saved for a second one.
#[inline(never)]
fn succeed_now(breaker: &Breaker, ticket: Ticket, timed_from: Moment) {
    if !ticket.is_of_closed() || !timed_from.is_never() {
        settle_now(breaker, ticket, End::Success, timed_from);
    } else if !breaker.core().succeed_quietly(ticket, || breaker.now()) {
        look_now(breaker, ticket);
    }
}

#[cold]
#[inline(never)]
fn look_now(breaker: &Breaker, ticket: Ticket) {
    breaker.core().look_at(ticket, breaker.now());
}

// Of a permit the parts: a function that sees the whole one keeps it in memory, and it is moved there and back.
#[cold]
#[inline(never)]
fn settle_now(breaker: &Breaker, ticket: Ticket, end: End, timed_from: Moment) {
    let began = (!timed_from.is_never()).then_some(timed_from);
    settle(breaker, ticket, end, began, breaker.now());
}

/// Says how a call ended, and when; and when it began, if it matters how long it took.
pub(super) fn settle(breaker: &Breaker, ticket: Ticket, end: End, began: Option<Moment>, ended: Moment) {
    let core = breaker.core();
    if began.is_some_and(|began| core.is_slow(ended.since(began))) {
        core.settle_slow(ticket, end, ended);
    } else {
        core.settle(ticket, end, ended);
    }
}
