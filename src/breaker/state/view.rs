//! What can be seen of a breaker, by operators and by listeners. Nothing here changes it.

use std::time::Duration;

use super::{Cold, Core};
use crate::breaker::rate::Totals;
use crate::breaker::transition::{Counts, State};
use crate::clock::Moment;
use crate::sync::{Ordering, lock};

impl Core {
    /// The state that a call at `now` would find, made or yet to be made: half-open as soon as a trial is due.
    pub(crate) fn state(&self, now: Moment) -> State {
        self.outlook(now).0
    }

    /// How long calls will be refused because the breaker is open: zero in the other states.
    pub(crate) fn remaining_open(&self, now: Moment) -> Duration {
        self.outlook(now).1
    }

    /// What is counted in the present state.
    pub(crate) fn counts(&self, now: Moment) -> Counts {
        self.counts_locked(&lock(&self.cold), now)
    }

    /// The state at `now` and how long it will be open.
    fn outlook(&self, now: Moment) -> (State, Duration) {
        if self.word().is_closed() {
            return (State::Closed, Duration::ZERO);
        }
        let cold = lock(&self.cold);
        let config = &self.settings.config;
        let until = match self.word_locked(&cold).state() {
            State::Closed => return (State::Closed, Duration::ZERO),
            State::Open => Some(self.until()),
            State::HalfOpen => cold.half_open.expired(config, now).map(|expiry| expiry + config.open_for),
        };
        match until {
            Some(until) if until > now => (State::Open, self.open_time_left(until, now)),
            _ => (State::HalfOpen, Duration::ZERO),
        }
    }

    pub(super) fn counts_locked(&self, cold: &Cold, now: Moment) -> Counts {
        let word = self.word_locked(cold);
        let counts = match word.state() {
            State::Closed => self.counts_closed(word.generation(), now),
            State::Open => Counts::default(),
            State::HalfOpen => cold.half_open.counts(),
        };
        Counts { rejected: self.rejected.load(Ordering::Relaxed), ..counts }
    }

    fn counts_closed(&self, generation: u64, now: Moment) -> Counts {
        let rate = self.settings.rate.as_ref();
        let totals = rate.map_or_else(Totals::default, |rule| self.rate.totals(rule, generation, now));
        Counts {
            calls: totals.calls(),
            failures: totals.failures,
            consecutive_failures: u64::from(self.streak.failures(generation)),
            ..Counts::default()
        }
    }
}
