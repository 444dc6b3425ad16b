//! The circuit breaker itself: closed, open, half-open, and who may change that.
//!
//! Nothing here waits, reads a clock or runs in the background. Every question brings its own `now`, and what is due
//! (the end of the open time, of a trial's time, of a bucket) happens when the next caller finds it.
//!
//! # State
//!
//! `state` holds a generation and a kind ([`Word`]). It is changed under the lock of `cold` only, by a thread that has
//! read it again under that lock and found the word on which its decision was made. So of several threads that see the
//! same trip, or the same end of the open time, one makes the change; changes have one order; and the queue of
//! transitions, which is filled under the same lock, has that order too. A verdict carries the word under which its
//! call was admitted, so one of an earlier generation is refused by the same comparison. Verdicts of *closed* calls do
//! not even get there: their generation is in the epochs of the words in which they are counted ([`crate::window`],
//! [`super::rate`], [`super::streak`]).
//!
//! # Orderings
//!
//! * `state` is stored with `Release` and loaded with `Acquire`, so that whoever sees an open word sees the `until`
//!   that was written before it, and refuses without the lock. It may also see a later `until`, whose open word is
//!   about to be stored: the call is refused a moment early, by a breaker that is open a moment later.
//! * `until` is `Relaxed` itself. It can only refuse: where it looks over, the lock decides again.
//! * Closed calls publish nothing and read nothing through `state`; half-open is entirely under the lock.
//! * Under the lock, `state` is read `Relaxed`: all its writers held the lock.
//!
//! # Cost
//!
//! A closed call is one load when it is admitted, and when it succeeds one compare-and-swap and one load for a rate
//! rule, one load for a consecutive rule. A refusal by an open breaker is two loads and a count. Whatever changes the
//! state is out of line, and only there are listeners thought of: the thread that made a change delivers it after it
//! has left the lock, so callers of the core never have to.

mod view;

use std::sync::Arc;
use std::time::Duration;

use crate::clock::Moment;
use crate::sync::{AtomicU64, Mutex, MutexGuard, Ordering, lock};

use super::config::BreakerConfig;
use super::half_open::{Admission, HalfOpen, Step};
use super::listeners::TransitionQueue;
use super::rate::{FailureRate, RateSettings};
use super::streak::Streak;
use super::ticket::{End, Refused, Ticket, Word};
use super::transition::{Cause, State, Transition};

/// A circuit breaker without its clock, its calls and its handle.
#[derive(Debug)]
pub(crate) struct Core {
    state: AtomicU64,
    /// The end of the open time, in nanoseconds.
    until: AtomicU64,
    rejected: AtomicU64,
    streak: Streak,
    rate: FailureRate,
    settings: Arc<Settings>,
    cold: Mutex<Cold>,
}

/// What the configuration amounts to; shared by all breakers that are made from it.
#[derive(Debug)]
pub(crate) struct Settings {
    config: BreakerConfig,
    rate: Option<RateSettings>,
    consecutive: Option<u32>,
}

impl Settings {
    pub(crate) fn new(config: BreakerConfig) -> Self {
        let rate = config.rule.rate().map(RateSettings::new);
        let consecutive = config.rule.consecutive_failures();
        Settings { config, rate, consecutive }
    }
}

/// What changes of state need. Everything that is not on the path of a closed call.
#[derive(Debug)]
struct Cold {
    half_open: HalfOpen,
    transitions: TransitionQueue,
}

impl Core {
    /// A closed breaker that has counted nothing, of settings that were checked. Others make a breaker that decides
    /// something or other, but does not panic.
    pub(crate) fn new(config: BreakerConfig) -> Self {
        Core::sharing(Arc::new(Settings::new(config)))
    }

    /// One of many breakers with the same settings.
    pub(crate) fn sharing(settings: Arc<Settings>) -> Self {
        Core {
            state: AtomicU64::new(Word::FIRST.0),
            until: AtomicU64::new(0),
            rejected: AtomicU64::new(0),
            streak: Streak::new(),
            rate: FailureRate::new(settings.rate.as_ref()),
            settings,
            cold: Mutex::new(Cold { half_open: HalfOpen::new(), transitions: TransitionQueue::default() }),
        }
    }

    /// Admits a call that starts at `now`, or refuses it.
    ///
    /// `inner_limit`, the longest run that the policies inside allow, is asked outside of every lock and for a trial
    /// only.
    #[inline]
    pub(crate) fn try_acquire(
        &self,
        now: Moment,
        inner_limit: impl FnOnce() -> Option<Duration>,
    ) -> Result<Ticket, Refused> {
        let word = self.word();
        if word.is_closed() {
            return Ok(Ticket { word });
        }
        let ticket = self.admit(word, now)?;
        if ticket.is_trial() {
            self.allow_time(ticket, now, inner_limit);
        }
        Ok(ticket)
    }

    /// Takes in how the call of `ticket` ended. The end of a call that was admitted in an earlier state changes
    /// nothing.
    ///
    /// `now` is when it ended. For a success it may be somewhat earlier: it only names the bucket.
    #[inline]
    pub(crate) fn settle(&self, ticket: Ticket, end: End, now: Moment) {
        if ticket.is_trial() {
            self.settle_trial(ticket, end, now);
            return;
        }
        match end {
            End::Success => self.count_success(ticket.word, now),
            End::Failure => self.count_failure(ticket.word, now),
            End::Nothing | End::Throttled(_) | End::Abandoned => {}
        }
    }

    /// Counts an end that no ticket belongs to, while closed. In the other states it is not evidence: an open breaker
    /// let nothing through, and a half-open one listens to its trials.
    pub(crate) fn record(&self, end: End, now: Moment) {
        let word = self.word();
        if word.is_closed() {
            self.settle(Ticket { word }, end, now);
        }
    }

    #[inline]
    fn word(&self) -> Word {
        Word(self.state.load(Ordering::Acquire))
    }

    /// For holders of the lock, who cannot be overtaken by a change of state.
    fn word_locked(&self, _: &Cold) -> Word {
        Word(self.state.load(Ordering::Relaxed))
    }

    fn until(&self) -> Moment {
        Moment::from_nanos(self.until.load(Ordering::Relaxed))
    }

    /// Whether `word` is still the state. A hint: it may be over a moment later.
    fn is_current(&self, word: Word) -> bool {
        self.state.load(Ordering::Relaxed) == word.0
    }
}

/// Closed: counting, and the change to open.
impl Core {
    #[inline]
    fn count_success(&self, word: Word, now: Moment) {
        let generation = word.generation();
        if self.settings.consecutive.is_some() {
            self.streak.success(generation);
        }
        if let Some(rule) = &self.settings.rate
            && self.rate.success(rule, generation, now, || self.is_current(word))
        {
            self.trip(word, Cause::FailureRate, now);
        }
    }

    /// Counts under both rules before either decides, so that a transition shows the failure that caused it.
    fn count_failure(&self, word: Word, now: Moment) {
        let generation = word.generation();
        let in_a_row = self.settings.consecutive.is_some_and(|most| self.streak.failure(generation) >= most);
        let rate = self.settings.rate.as_ref();
        let share = rate.is_some_and(|rule| self.rate.failure(rule, generation, now, || self.is_current(word)));
        if in_a_row {
            self.trip(word, Cause::ConsecutiveFailures, now);
        } else if share {
            self.trip(word, Cause::FailureRate, now);
        }
    }

    /// Opens the breaker, unless the closed period of `word` is over.
    #[cold]
    #[inline(never)]
    fn trip(&self, word: Word, cause: Cause, now: Moment) {
        let mut cold = lock(&self.cold);
        if self.word_locked(&cold) == word {
            self.open(&mut cold, cause, now, now);
        }
        self.deliver(cold);
    }
}

/// Open and half-open: admission.
impl Core {
    #[cold]
    #[inline(never)]
    fn admit(&self, word: Word, now: Moment) -> Result<Ticket, Refused> {
        if word.state() == State::Open {
            let until = self.until();
            if until > now {
                return Err(self.refuse_until(until, now));
            }
        }
        let mut cold = lock(&self.cold);
        let answer = self.admit_locked(&mut cold, now);
        self.deliver(cold);
        answer
    }

    /// Makes every change that is due at `now` and answers from the state that is left. An expired period is open, and
    /// half-open again if that is over too; the trials of the new period have not expired, so this ends.
    fn admit_locked(&self, cold: &mut Cold, now: Moment) -> Result<Ticket, Refused> {
        loop {
            let word = self.word_locked(cold);
            match word.state() {
                State::Closed => return Ok(Ticket { word }),
                State::Open => {
                    let until = self.until();
                    if until > now {
                        return Err(self.refuse_until(until, now));
                    }
                    self.change(cold, State::HalfOpen, Cause::OpenTimeOver, now, now);
                    cold.half_open = HalfOpen::new();
                }
                State::HalfOpen => match cold.half_open.admit(&self.settings.config, now) {
                    Admission::Trial => return Ok(Ticket { word }),
                    Admission::Refused(retry_after) => return Err(self.refuse(retry_after)),
                    Admission::Expired(expiry) => self.open(cold, Cause::TrialExpired, expiry, now),
                },
            }
        }
    }

    /// Gives a trial the time that the policies inside may need. If they cannot say because they panic, the operation
    /// was not called, and the trial says nothing.
    #[cold]
    fn allow_time(&self, ticket: Ticket, now: Moment, inner_limit: impl FnOnce() -> Option<Duration>) {
        let mut unwinding = PlaceBack { core: self, ticket: Some(ticket), now };
        let limit = inner_limit();
        unwinding.ticket = None;
        let mut cold = lock(&self.cold);
        if self.word_locked(&cold) == ticket.word {
            cold.half_open.extend(now + self.settings.config.time_for_trial(limit));
        }
    }

    fn refuse_until(&self, until: Moment, now: Moment) -> Refused {
        self.refuse((!until.is_never()).then(|| self.open_time_left(until, now)))
    }

    fn refuse(&self, retry_after: Option<Duration>) -> Refused {
        self.rejected.fetch_add(1, Ordering::Relaxed);
        Refused { retry_after }
    }

    /// Never more than the open time: before its start, on a clock that stepped back, none of it has passed.
    fn open_time_left(&self, until: Moment, now: Moment) -> Duration {
        until.since(now).min(self.settings.config.open_for)
    }
}

/// Half-open: verdicts.
impl Core {
    #[cold]
    #[inline(never)]
    fn settle_trial(&self, ticket: Ticket, end: End, now: Moment) {
        let mut cold = lock(&self.cold);
        if self.word_locked(&cold) == ticket.word {
            match cold.half_open.settle(&self.settings.config, end, now) {
                Step::Stay => {}
                Step::Close => self.change(&mut cold, State::Closed, Cause::TrialsSucceeded, now, now),
                Step::Reopen(cause) => self.open(&mut cold, cause, now, now),
            }
        }
        self.deliver(cold);
    }
}

/// Changes of state. Whoever passes `&mut Cold` has the lock.
impl Core {
    fn open(&self, cold: &mut Cold, cause: Cause, at: Moment, now: Moment) {
        let until = at + self.settings.config.open_for;
        self.until.store(until.nanos(), Ordering::Relaxed);
        self.change(cold, State::Open, cause, at, now);
    }

    fn change(&self, cold: &mut Cold, to: State, cause: Cause, at: Moment, now: Moment) {
        let word = self.word_locked(cold);
        if !self.settings.config.listeners.is_empty() {
            let counts = self.counts_locked(cold, now);
            let from = word.state();
            cold.transitions.push(Transition { from, to, cause, counts, at });
        }
        self.state.store(word.next(to).0, Ordering::Release);
    }

    /// Leaves the lock, and tells the listeners what is in the queue unless another thread is about it.
    fn deliver<'a>(&'a self, mut cold: MutexGuard<'a, Cold>) {
        if !cold.transitions.start_draining() {
            return;
        }
        while let Some(transition) = cold.transitions.next() {
            drop(cold);
            self.settings.config.listeners.tell(&transition);
            cold = lock(&self.cold);
        }
    }
}

/// Gives a trial's place back if it is dropped with the ticket.
struct PlaceBack<'a> {
    core: &'a Core,
    ticket: Option<Ticket>,
    now: Moment,
}

impl Drop for PlaceBack<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            self.core.settle_trial(ticket, End::Nothing, self.now);
        }
    }
}

#[cfg(all(test, steadfast_loom))]
mod loom_models;
#[cfg(all(test, not(steadfast_loom)))]
mod tests;
