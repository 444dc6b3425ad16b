//! What can be seen of a breaker, by operators and by listeners. Nothing here changes it.

use std::time::Duration;

use super::{Cold, Core, Kind, Word};
use crate::breaker::config::BreakerConfig;
use crate::breaker::totals::Totals;
use crate::breaker::transition::{Counts, State};
use crate::clock::Moment;
use crate::keyed::member::sealed::Standing;
use crate::sync::{Ordering, lock};

impl Core {
    /// The state that a call at `now` would find, made or yet to be made: half-open as soon as a trial is due. (What settings that
    /// were changed make of trials that ended before is found by the next call.)
    pub(crate) fn state(&self, now: Moment) -> State {
        self.outlook(now).0
    }

    /// How long calls will be refused because the breaker is open: zero in the other states, for ever while isolated.
    pub(crate) fn remaining_open(&self, now: Moment) -> Duration {
        self.outlook(now).1
    }

    /// What is counted in the present state.
    pub(crate) fn counts(&self, now: Moment) -> Counts {
        let word = self.word();
        if word.kind().counts() {
            // No lock: an overtaken look sees the window of a period that is just over.
            return self.counts_closed(word, now);
        }
        let cold = self.cold();
        self.counts_locked(&cold, now)
    }

    /// The state at `now` and how long it will be open.
    fn outlook(&self, now: Moment) -> (State, Duration) {
        let word = self.word();
        if word.is_closed() {
            return (State::Closed, Duration::ZERO);
        }
        let config = self.family.config();
        let (rare, cold) = (self.rare(), self.cold());
        let word = self.word_locked(&cold);
        match word.kind() {
            Kind::Open if rare.until() > now => (State::Open, rare.time_left(now).unwrap_or(Duration::MAX)),
            Kind::Open => (State::HalfOpen, Duration::ZERO),
            Kind::HalfOpen => outlook_of_trials(&config, &cold, now),
            Kind::Isolated => (State::Isolated, Duration::MAX),
            Kind::Closed | Kind::Paused | Kind::MetricsOnly | Kind::Disabled => (word.state(), Duration::ZERO),
        }
    }

    /// What a map of breakers must know of one that is not closed; none for one that is. Asked under the map's lock, so no
    /// settings of the user's may be dropped here.
    pub(in crate::breaker) fn standing_by_state(&self, now: Moment) -> Option<Standing> {
        if self.word().is_closed() {
            return None;
        }
        let cold = self.cold();
        let is_expired = || self.family.read_config(|config| cold.half_open.expired(config, now).is_some());
        match self.word_locked(&cold).kind() {
            Kind::Closed => None,
            Kind::Paused if self.rare().until() <= now => None,
            Kind::Isolated => Some(Standing::Pinned),
            Kind::HalfOpen if cold.half_open.has_trials() && !is_expired() => Some(Standing::Pinned),
            Kind::Paused | Kind::Open | Kind::HalfOpen | Kind::MetricsOnly | Kind::Disabled => Some(Standing::Engaged),
        }
    }

    /// Whether one that is closed knows of any call that still counts, or of openings in a row. Asked under a map's lock too, so a
    /// window of calls is not read as a whole.
    pub(in crate::breaker) fn remembers(&self, now: Moment) -> bool {
        let word = self.word();
        let in_time =
            self.place(word, now).map(|place| self.tally.read(place.bucket().epoch(), &self.family.thresholds()).1);
        let Counts { calls, slow, consecutive_failures, .. } = self.counts_of(word, in_time.unwrap_or_default());
        let are_in_a_row = |cold: &Cold| self.family.read_config(|config| cold.times.are_in_a_row(config, now));
        calls + slow + consecutive_failures > 0
            || self.count_window.as_ref().is_some_and(|window| window.holds_calls())
            || self.rare.get().is_some_and(|rare| are_in_a_row(&lock(&rare.cold)))
    }

    /// Whether it has counted anything, or changed its state. Of rows nobody counts the successes: a breaker that counts those
    /// alone, and has seen no failure, passes for one that was never used.
    pub(in crate::breaker) fn was_used(&self) -> bool {
        let has_counted = self.count_window.as_ref().is_some_and(|window| window.was_used());
        self.word() != Word::FIRST || self.streak.was_used() || self.tally.was_used() || has_counted
    }

    pub(super) fn counts_locked(&self, cold: &Cold, now: Moment) -> Counts {
        let word = self.word_locked(cold);
        if word.kind().counts() {
            return self.counts_closed(word, now);
        }
        let counts = if word.kind() == Kind::HalfOpen { cold.half_open.counts() } else { Counts::default() };
        Counts { rejected: self.rejected(), ..counts }
    }

    pub(super) fn rejected(&self) -> u64 {
        self.rare.get().map_or(0, |rare| rare.rejected.load(Ordering::Relaxed))
    }

    fn counts_closed(&self, word: Word, now: Moment) -> Counts {
        let thresholds = self.family.thresholds();
        let totals = match (self.place(word, now), &self.count_window) {
            (Some(place), _) => self.tally.read(place.bucket().epoch(), &thresholds).1,
            (None, Some(window)) => {
                let held = window.read();
                Totals { failures: held.failures, successes: held.calls - held.failures, ..Totals::default() }
            }
            (None, None) => Totals::default(),
        };
        Counts { rejected: self.rejected(), ..self.counts_of(word, totals) }
    }

    /// The counts of a closed period whose window holds `totals`.
    pub(super) fn counts_of(&self, word: Word, totals: Totals) -> Counts {
        let streak = self.family.live().streak();
        let in_a_row = if streak.is_set() { self.streak.failures(streak.tag(word.generation())) } else { 0 };
        Counts {
            calls: totals.calls(),
            failures: totals.failures,
            slow: totals.all_slow(),
            slow_given_up: totals.given_up,
            consecutive_failures: u64::from(in_a_row),
            ..Counts::default()
        }
    }
}

/// An expired period is open, as soon as somebody looks, and that may be over as well.
fn outlook_of_trials(config: &BreakerConfig, cold: &Cold, now: Moment) -> (State, Duration) {
    let Some(expiry) = cold.half_open.expired(config, now) else { return (State::HalfOpen, Duration::ZERO) };
    let span = cold.times.next(config, expiry);
    let until = expiry + span;
    if until > now { (State::Open, until.since(now).min(span)) } else { (State::HalfOpen, Duration::ZERO) }
}
