//! What an admitted call holds: it assumes "abandoned" until it is told otherwise.

use std::fmt;
use std::time::Duration;

use super::handle::Breaker;
use super::ticket::{End as TicketEnd, Ticket};
use crate::clock::Moment;
use crate::error::{ConfigError, Kind, Name};
use crate::policy::{Call, End, Guard};
use crate::run::Fate;
use crate::verdict::Verdict;

/// The admission of one call that is not run through a chain; from [`Breaker::try_acquire`]. Says how the call ended;
/// dropped, the call was abandoned: nothing is counted while the breaker is closed, and a trial opens it again.
#[must_use = "a permit that is dropped counts as an abandoned call"]
pub struct Permit {
    breaker: Breaker,
    ticket: Option<Ticket>,
}

impl Permit {
    pub(super) fn new(breaker: Breaker, ticket: Ticket) -> Permit {
        Permit { breaker, ticket: Some(ticket) }
    }

    /// Whether the call is a trial of a half-open breaker.
    #[must_use]
    pub fn is_trial(&self) -> bool {
        self.ticket.is_some_and(Ticket::is_trial)
    }

    /// The dependency answered.
    pub fn success(self) {
        self.settle(TicketEnd::Success);
    }

    /// The dependency failed.
    pub fn failure(self) {
        self.settle(TicketEnd::Failure);
    }

    /// The call says nothing about the dependency: a trial gives its place back.
    pub fn ignore(self) {
        self.settle(TicketEnd::Nothing);
    }

    /// The call ended with this verdict.
    pub fn record(self, verdict: Verdict) {
        self.settle(end_of_verdict(verdict));
    }

    fn settle(mut self, end: TicketEnd) {
        self.end(end);
    }

    fn end(&mut self, end: TicketEnd) {
        if let Some(ticket) = self.ticket.take() {
            self.breaker.core().settle(ticket, end, self.breaker.now());
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.end(TicketEnd::Abandoned);
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit").field("is_trial", &self.is_trial()).finish_non_exhaustive()
    }
}

/// A circuit breaker refused a call.
#[derive(Clone, Debug, PartialEq)]
pub struct Rejected {
    name: Option<Name>,
    retry_after: Option<Duration>,
    config: Option<ConfigError>,
}

impl Rejected {
    pub(super) fn new(name: Option<Name>, retry_after: Option<Duration>, config: Option<ConfigError>) -> Rejected {
        Rejected { name, retry_after, config }
    }

    /// How long every call will be refused, if it is known. It is not known while trials are running.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
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
            None => Kind::CircuitOpen { retry_after: self.retry_after }.fmt(f),
        }
    }
}

impl std::error::Error for Rejected {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.config.as_ref().map(|config| config as _)
    }
}

/// The admission of one call of a chain. Dropped, it asks the scopes around it why.
pub(super) struct Held<'a, 'run, E> {
    breaker: &'a Breaker,
    call: Call<'run, E>,
    ticket: Ticket,
    /// How often the operation had been started when the permit was given.
    started: u16,
}

impl<'a, 'run, E> Held<'a, 'run, E> {
    #[inline]
    pub(super) fn new(breaker: &'a Breaker, ticket: Ticket, call: Call<'run, E>) -> Held<'a, 'run, E> {
        Held { breaker, call, ticket, started: call.scope().started() }
    }

    /// Says how the call ended. Gives the breaker back if the result may outlive the run.
    #[inline]
    pub(super) fn settle(self, verdict: Verdict) -> Option<&'a Breaker> {
        let (breaker, call) = (self.breaker, self.call);
        let end = end_of(call, verdict);
        breaker.core().settle(self.ticket, end, self.ended_at(end));
        #[expect(clippy::mem_forget, reason = "it is settled, and holds nothing else")]
        std::mem::forget(self);
        call.streams().then_some(breaker)
    }

    /// A success may be counted at the time of its start, which is known already. Whatever may change the state is worth a
    /// look at the clock: the operation may have taken long within one poll.
    #[inline]
    fn ended_at(&self, end: TicketEnd) -> Moment {
        if end == TicketEnd::Success && !self.ticket.is_trial() {
            self.call.now()
        } else {
            self.call.scope().core.look()
        }
    }

    #[cold]
    fn abandon(&self) {
        let scope = self.call.scope();
        let end = match scope.fate(self.call.number(), self.started) {
            Fate::Failed => TicketEnd::Failure,
            Fate::NeverStarted | Fate::LostRace => TicketEnd::Nothing,
            Fate::Abandoned => TicketEnd::Abandoned,
        };
        self.breaker.core().settle(self.ticket, end, scope.core.look());
    }
}

impl<E> Drop for Held<'_, '_, E> {
    fn drop(&mut self) {
        self.abandon();
    }
}

/// Counts a failure that shows only after the run, such as a body that breaks off.
pub(super) struct LateFailure(Breaker);

impl LateFailure {
    pub(super) fn new(breaker: Breaker) -> LateFailure {
        LateFailure(breaker)
    }
}

impl Guard for LateFailure {
    fn end(&mut self, end: End) {
        match end {
            End::Failed | End::TimedOut => self.0.record(Verdict::Transient),
            End::Complete | End::Cancelled | End::Dropped => {}
        }
    }
}

/// What the end of a call means. An error that arrives when the run is being ended from outside is that end's doing, unless
/// it is an answer or a refusal.
#[inline]
fn end_of<E>(call: Call<'_, E>, verdict: Verdict) -> TicketEnd {
    if (verdict.is_failure() || verdict == Verdict::Ignored) && call.ended().is_some() {
        return TicketEnd::Abandoned;
    }
    end_of_verdict(verdict)
}

/// The breaker's columns of the table at [`Verdict`].
#[inline]
pub(super) fn end_of_verdict(verdict: Verdict) -> TicketEnd {
    match verdict {
        Verdict::Success | Verdict::Permanent => TicketEnd::Success,
        Verdict::Transient | Verdict::Fatal => TicketEnd::Failure,
        Verdict::Throttled { retry_after } => TicketEnd::Throttled(retry_after),
        Verdict::Ignored | Verdict::Rejected { .. } => TicketEnd::Nothing,
    }
}
