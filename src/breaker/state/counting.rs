//! Closed: counting, and what opens the breaker or lets it pause.

use std::time::Duration;

use super::{Core, Kind};
use crate::breaker::config::BreakerConfig;
use crate::breaker::tally::{Place, Recorded};
use crate::breaker::thresholds::Thresholds;
use crate::breaker::ticket::{Ticket, Word};
use crate::breaker::totals::Totals;
use crate::breaker::transition::{Cause, Counts};
use crate::breaker::witness;
use crate::clock::Moment;
use crate::sync::Ordering;
use crate::window::{Geometry, Undone};

/// A rule was met, by the thresholds of this version.
struct Trip {
    cause: Cause,
    version: u64,
}

impl Core {
    #[inline]
    pub(super) fn count_success(&self, word: Word, now: impl Fn() -> Moment) {
        if self.add_success(word, &now) != Recorded::Quietly {
            self.look(word, now());
        }
    }

    /// Whether the success of a call of a closed breaker has nothing to change: no window counts it, and it ends no row of
    /// failures.
    #[inline]
    pub(crate) fn success_changes_nothing(&self, ticket: Ticket) -> bool {
        ticket.is_of_no_window() && self.streak.is_over()
    }

    /// Counts the success of a call of a closed breaker, and asks for the time only if it counts by time. If it says no, the rules
    /// have to be [looked at](Core::look_at).
    #[inline]
    pub(crate) fn succeed_quietly(&self, ticket: Ticket, now: impl Fn() -> Moment) -> bool {
        self.add_success(ticket.word(), now) == Recorded::Quietly
    }

    #[cold]
    pub(crate) fn look_at(&self, ticket: Ticket, now: Moment) {
        self.look(ticket.word(), now);
    }

    pub(super) fn count_failure(&self, word: Word, now: Moment) {
        if self.add_failure(word, now) != Recorded::Quietly {
            self.look(word, now);
        }
    }

    /// A slow success or failure.
    #[cold]
    pub(super) fn count_slow(&self, word: Word, failed: bool, now: Moment) {
        let recorded = if failed { self.add_failure(word, now) } else { self.add_success(word, || now) };
        if let Some(place) = self.place(word, now)
            && recorded != Recorded::Late
        {
            self.tally.slow(place, || self.is_current(word));
        }
        self.look(word, now);
    }

    #[cold]
    pub(super) fn count_given_up(&self, word: Word, now: Moment) {
        if let Some(place) = self.place(word, now) {
            self.tally.given_up(place, || self.is_current(word));
            self.look(word, now);
        }
    }

    /// Refuses calls for as long as a dependency asked, if the breaker is to do that.
    #[cold]
    pub(super) fn pause(&self, word: Word, wait: Duration, now: Moment) {
        let Some(most) = self.family.config().pause_on_retry_after else { return };
        let cold = self.cold();
        let present = self.word_locked(&cold);
        if !present.is_same_period(word) || !present.kind().may_trip() || wait.is_zero() {
            return;
        }
        let (rare, span) = (self.rare(), wait.min(most));
        let is_longer = present.kind() == Kind::Closed || now + span > rare.until();
        if is_longer {
            rare.refuse_for(span, now);
            self.state.store(present.within(Kind::Paused).0, Ordering::Release);
        }
    }

    #[inline]
    pub(super) fn place(&self, word: Word, now: Moment) -> Option<Place<'_>> {
        Some(self.place_in(self.family.geometry.as_ref()?, word, now))
    }

    #[inline]
    fn place_in<'a>(&self, geometry: &'a Geometry, word: Word, now: Moment) -> Place<'a> {
        Place { geometry, generation: word.generation(), now, may_spread: !self.family.is_keyed }
    }

    /// Counts under all rules.
    #[inline]
    fn add_success(&self, word: Word, now: impl Fn() -> Moment) -> Recorded {
        if !self.streak.is_over() {
            self.end_row(word);
        }
        match &self.family.geometry {
            Some(geometry) => self.add_success_in_time(geometry, word, now()),
            None => self.add_success_in_calls(word, Recorded::Quietly),
        }
    }

    /// Also a row that no rule counts any more: so it is not found again.
    #[cold]
    #[inline(never)]
    fn end_row(&self, word: Word) {
        self.streak.success(self.family.live().streak().tag(word.generation()));
    }

    /// Counts in the window of time, and in the window of calls if there is one too.
    // One function that calls no other but at its end: nothing has to be saved around it.
    #[inline(never)]
    fn add_success_in_time(&self, geometry: &Geometry, word: Word, now: Moment) -> Recorded {
        let bucket = geometry.bucket(now, word.generation());
        match self.tally.success_in_present(bucket, self.family.live().version()) {
            Ok(recorded) => self.add_success_in_calls(word, recorded),
            Err(undone) => self.add_success_otherwise(geometry, word, now, undone),
        }
    }

    #[inline]
    fn add_success_in_calls(&self, word: Word, in_time: Recorded) -> Recorded {
        if self.count_window.is_none() { in_time } else { self.add_success_to_window_of_calls(word, in_time) }
    }

    #[inline(never)]
    fn add_success_to_window_of_calls(&self, word: Word, in_time: Recorded) -> Recorded {
        sum_up(in_time, self.add_to_window_of_calls(word, false))
    }

    #[cold]
    #[inline(never)]
    fn add_success_otherwise(&self, geometry: &Geometry, word: Word, now: Moment, undone: Undone) -> Recorded {
        let place = self.place_in(geometry, word, now);
        let is_current = || self.is_current(word);
        let in_time = self.tally.success_otherwise(place, undone, self.family.live().version(), is_current);
        self.add_success_in_calls(word, in_time)
    }

    /// Counts under all rules before any of them decides, so that a transition shows the failure that caused it.
    fn add_failure(&self, word: Word, now: Moment) -> Recorded {
        let thresholds = self.family.thresholds();
        let in_a_row = self.add_to_row(word, &thresholds);
        let in_calls = self.count_window.is_some() && self.add_to_window_of_calls(word, true);
        let is_current = || self.is_current(word);
        let in_time = self.place(word, now).map(|place| self.tally.failure(place, &thresholds, is_current));
        sum_up(in_time.unwrap_or(Recorded::Quietly), in_a_row || in_calls)
    }

    fn add_to_row(&self, word: Word, thresholds: &Thresholds) -> bool {
        let streak = thresholds.streak();
        streak.is_set() && self.streak.failure(streak.tag(word.generation())) >= streak.failures
    }

    #[inline(never)]
    fn add_to_window_of_calls(&self, word: Word, failed: bool) -> bool {
        let Some(window) = &self.count_window else { return false };
        let thresholds = self.family.thresholds();
        window.add(failed, thresholds.count_minimum(), thresholds.version, || self.is_current(word))
    }

    /// Looks at all rules, and opens the breaker if one is met.
    #[cold]
    #[inline(never)]
    fn look(&self, word: Word, now: Moment) {
        while word.kind().may_trip()
            && let Some(trip) = self.examine(word, now)
        {
            let mut cold = self.cold();
            let is_over = !self.word_locked(&cold).is_same_period(word);
            let open = |config: &BreakerConfig| self.open(&mut cold, config, trip.cause, now, now);
            let is_decided = is_over || self.family.if_current(trip.version, open);
            self.deliver(cold);
            if is_decided {
                return;
            }
        }
    }

    fn examine(&self, word: Word, now: Moment) -> Option<Trip> {
        let thresholds = self.family.thresholds();
        let cause = self.consecutive_rule(word, &thresholds).or_else(|| self.window_rules(word, now, &thresholds));
        cause.map(|cause| Trip { cause, version: thresholds.version })
    }

    fn consecutive_rule(&self, word: Word, thresholds: &Thresholds) -> Option<Cause> {
        let streak = thresholds.streak();
        let is_met = streak.is_set() && self.streak.failures(streak.tag(word.generation())) >= streak.failures;
        is_met.then_some(Cause::ConsecutiveFailures)
    }

    fn window_rules(&self, word: Word, now: Moment, thresholds: &Thresholds) -> Option<Cause> {
        if let Some(place) = self.place(word, now) {
            let (epoch, totals) = self.tally.read(place.bucket().epoch(), thresholds);
            if let Some(cause) = thresholds.met(totals).or_else(|| self.ask(word, totals, thresholds)) {
                return Some(cause);
            }
            self.tally.note(epoch, totals, thresholds);
        }
        let window = self.count_window.as_ref()?;
        window.is_met(thresholds).then_some(Cause::FailureRate)
    }

    /// Asks the user's own rules: outside of every lock.
    fn ask(&self, word: Word, totals: Totals, thresholds: &Thresholds) -> Option<Cause> {
        if !thresholds.asks() {
            return None;
        }
        let config = self.family.config();
        let counts = Counts { rejected: self.rejected(), ..self.counts_of(word, totals) };
        // What the rule does to other breakers is not the doing of this call.
        let mut is_met = false;
        witness::blindly(|| is_met = config.rule.ask(&counts));
        is_met.then_some(Cause::ShouldTrip)
    }
}

/// What became of a record that the window of time took in like this, and for which another rule has to be looked at or not.
#[inline]
fn sum_up(in_time: Recorded, other_looks: bool) -> Recorded {
    if other_looks && in_time == Recorded::Quietly { Recorded::Looking } else { in_time }
}
