//! What an admitted call of a chain holds: it assumes "abandoned" until it is told otherwise.

use std::time::Duration;

use super::handle::Breaker;
use super::permit::settle;
use super::ticket::{End as TicketEnd, Refused, Ticket};
use super::witness::Witness;
use crate::clock::Moment;
use crate::error::Error;
use crate::event::What;
use crate::outcome::Ruling;
use crate::policy::{Call, End, Guard, Tail};
use crate::run::Fate;
use crate::verdict::Verdict;

/// What is left to say of a call that was refused.
pub(super) struct TurnedAway<E> {
    pub(super) error: Error<E>,
    pub(super) ruling: Ruling,
}

/// The admission of one call of a chain. Dropped before it was settled, it asks the scopes around it why.
pub(super) struct Held<'a, 'run, E> {
    breaker: &'a Breaker,
    call: Call<'run, E>,
    /// Of an admission that is held; anything otherwise.
    ticket: Ticket,
    /// `NEVER` if it did not matter, when the permit was given, how long the call takes.
    timed_from: Moment,
    /// What [`Call::starts`] said when the permit was given.
    started: u16,
    is_held: bool,
}

impl<'a, 'run, E> Held<'a, 'run, E> {
    /// Nothing is held yet.
    #[inline(always)]
    pub(super) fn none(breaker: &'a Breaker, call: Call<'run, E>) -> Self {
        Held { breaker, call, ticket: Ticket::NONE, timed_from: Moment::NEVER, started: 0, is_held: false }
    }

    /// Asks for admission, and says with which call to go on.
    #[inline(always)]
    pub(super) fn acquire(
        &mut self,
        inner_limit: impl FnOnce() -> Option<Duration>,
    ) -> Result<Call<'run, E>, TurnedAway<E>> {
        let (breaker, call) = (self.breaker, self.call);
        let core = breaker.core();
        let needs = core.needs();
        if needs.start() {
            self.timed_from = call.now();
        } else if needs.time_window() {
            // The end alone counts; but the time that the run takes begins here.
            let _began = call.now();
        }
        self.ticket = match core.pass(needs) {
            Some(ticket) => ticket,
            None => acquire_otherwise(breaker, call, inner_limit)?,
        };
        self.started = call.starts();
        self.is_held = true;
        Ok(if self.ticket.is_trial() { call.as_trial() } else { call })
    }

    /// Says how the call ended.
    #[inline(always)]
    pub(super) fn settle(&mut self, ruling: Ruling) {
        self.is_held = false;
        // Without another look at the clock, if the call was ready at once: time stands still within a poll. Not if it matters how
        // long it took.
        if ruling.is_answer() && self.ticket.is_of_closed() && self.timed_from.is_never() {
            if !self.breaker.core().succeed_quietly(self.ticket, || self.call.now()) {
                self.look();
            }
        } else {
            self.settle_at_end(ruling);
        }
    }

    /// Whether the result may outlive the run.
    #[inline]
    pub(super) fn lives_on(&self) -> bool {
        self.call.streams()
    }

    /// A success has completed something that a rule has to be asked about.
    #[cold]
    #[inline(never)]
    fn look(&self) {
        let _telling = telling(self.breaker, self.call);
        self.breaker.core().look_at(self.ticket, self.call.now());
    }

    /// A result that outlives the run may still fail: leaves somebody behind who tells. (One that is a failure already counts
    /// once.) Of the outcome only the tail: a cold function that sees a whole one keeps it in memory on the path that is not cold.
    #[cold]
    #[inline(never)]
    pub(super) fn watch(&self, mut tail: Tail) -> Tail {
        tail.push(LateFailure(self.breaker.clone()));
        tail
    }

    /// Whatever may change the state is worth a look at the clock: the operation may have taken long within one poll.
    #[cold]
    #[inline(never)]
    fn settle_at_end(&self, ruling: Ruling) {
        let end = end_of(self.call, ruling.verdict());
        let _telling = telling(self.breaker, self.call);
        settle(self.breaker, self.ticket, end, self.timed_from(), self.call.scope().core.look());
    }

    #[cold]
    #[inline(never)]
    fn abandon(&self) {
        let _telling = telling(self.breaker, self.call);
        let scope = self.call.scope();
        let end = match scope.fate(self.call.number(), self.started) {
            Fate::Failed => TicketEnd::Failure,
            Fate::NeverStarted => TicketEnd::Nothing,
            Fate::LostRace => TicketEnd::LostRace,
            Fate::Abandoned => TicketEnd::Abandoned,
        };
        settle(self.breaker, self.ticket, end, self.timed_from(), scope.core.look());
    }

    /// When the call began, if it mattered then how long it takes. A rule on slow calls that came while it was under way is for
    /// those that begin after it, however this one ends.
    fn timed_from(&self) -> Option<Moment> {
        (!self.timed_from.is_never()).then_some(self.timed_from)
    }
}

impl<E> Drop for Held<'_, '_, E> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.is_held {
            self.abandon();
        }
    }
}

/// Out of line, with an answer that fits into registers.
#[cold]
#[inline(never)]
fn acquire_otherwise<E>(
    breaker: &Breaker,
    call: Call<'_, E>,
    inner_limit: impl FnOnce() -> Option<Duration>,
) -> Result<Ticket, TurnedAway<E>> {
    let acquired = {
        let _telling = telling(breaker, call);
        breaker.core().try_acquire(|| call.now(), inner_limit)
    };
    acquired.map_err(|refused| refuse(breaker, call, refused))
}

fn refuse<E>(breaker: &Breaker, call: Call<'_, E>, refused: Refused) -> TurnedAway<E> {
    let kind = refused.kind();
    // By value: what somebody borrows stays in memory, and is copied from there.
    call.emit_by(breaker.name(), move || What::Rejected { by: "breaker", kind });
    let mut error = Error::refused(kind);
    error.set_name(breaker.name());
    TurnedAway { error, ruling: Ruling::of(Verdict::Rejected { retry_after: refused.retry_after }) }
}

/// Until it is dropped, changes of state on this thread are this call's doing. Made for whatever may change the state.
fn telling<'a, 'run, E>(breaker: &'a Breaker, call: Call<'run, E>) -> Option<Telling<'a, 'run, E>> {
    call.is_observed().then(|| Telling { breaker, call, witness: Witness::new() })
}

/// Tells the observers of a call of the changes of state that it has made.
struct Telling<'a, 'run, E> {
    breaker: &'a Breaker,
    call: Call<'run, E>,
    witness: Witness,
}

impl<E> Drop for Telling<'_, '_, E> {
    fn drop(&mut self) {
        for transition in self.witness.take() {
            self.call.emit_by(self.breaker.name(), || What::Transition(transition));
        }
    }
}

/// Counts a failure that shows only after the run, such as a body that breaks off.
struct LateFailure(Breaker);

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
    TicketEnd::of(verdict)
}
