//! The circuit breaker itself: closed, open, half-open, and who may change that.
//!
//! Nothing here waits, reads a clock or runs in the background. Every question brings its own `now`, and what is due
//! (the end of the open time, of a trial's time, of a pause, of a bucket) happens when the next caller finds it.
//!
//! # State
//!
//! `state` holds a generation and a kind ([`Word`]). It is changed under the lock of `cold` only, by a thread that has
//! read it again under that lock and found the generation on which its decision was made. So of several threads that see
//! the same trip, or the same end of the open time, one makes the change; changes have one order; and the queue of
//! transitions, which is filled under the same lock, has that order too. A verdict carries the word under which its
//! call was admitted, so one of an earlier generation is refused by the same comparison. Verdicts of *closed* calls do
//! not even get there: their generation is in the words in which they are counted ([`crate::window`], [`super::tally`],
//! [`super::streak`], [`super::count_window`]).
//!
//! # Orderings
//!
//! * `state` is stored with `Release` and loaded with `Acquire`, so that whoever sees an open or paused word sees the
//!   `until` that was written before it, and refuses without the lock. It may also see a later `until`, whose word is
//!   about to be stored: the call is refused a moment early, by a breaker that refuses a moment later.
//! * `until` and `span` are `Relaxed` themselves. They can only refuse: where they are over, the lock decides again.
//! * Closed calls publish nothing and read nothing through `state`; half-open is entirely under the lock.
//! * What a closed call needs besides ([`super::needs`]) is loaded next to `state` and need not fit it: the windows never change,
//!   and whether calls are timed is a setting, which holds from one moment or another.
//! * Under the lock, `state` is read `Relaxed`: all its writers held the lock.
//!
//! # Thresholds that change
//!
//! A trip carries the version of the thresholds that it was decided by ([`super::thresholds`]). If another version is in
//! force when it has the lock, the lock is left and the rules are looked at again; if not, they cannot change before it is
//! done, since it holds the lock of the family for that. So after `reconfigure` has returned, nothing trips by the numbers from
//! before. Locks are taken in this order: the breaker's, the family's.
//!
//! # Cost
//!
//! A closed call is two loads when it is admitted, the state and what the call needs besides, and when it succeeds one
//! compare-and-swap and a few loads for a window of time, one load for a consecutive rule. A refusal by an open breaker is
//! three loads and a count. Whatever changes the state is out of line, and only there are listeners thought of: the thread
//! that made a change delivers it after it has left the lock, so callers of the core never have to. What a breaker needs
//! only once it has opened is made then.

mod control;
mod counting;
mod rare;
mod view;

use std::sync::Arc;
use std::time::Duration;

use self::rare::{Cold, Rare};
use crate::clock::Moment;
use crate::sync::{AtomicU64, Lazy, MutexGuard, Ordering, lock};
use crate::window::Geometry;

use super::config::BreakerConfig;
use super::count_window::CountWindow;
use super::family::{Family, Share};
use super::half_open::{Admission, HalfOpen, Step};
use super::needs::Needs;
use super::streak::Streak;
use super::tally::Tally;
use super::ticket::{End, Kind, Refused, Ticket, Word};
use super::transition::{Cause, Transition};
use super::witness;

/// A circuit breaker without its calls and its handle.
#[derive(Debug)]
pub(crate) struct Core {
    state: AtomicU64,
    streak: Streak,
    tally: Tally,
    count_window: Option<Box<CountWindow>>,
    rare: Lazy<Rare>,
    family: Arc<Family>,
    key: Option<Arc<str>>,
}

impl Core {
    /// A closed breaker that has counted nothing.
    pub(crate) fn new(family: Arc<Family>, key: Option<Arc<str>>) -> Self {
        let buckets = family.geometry.as_ref().map_or(0, Geometry::buckets);
        Core {
            state: AtomicU64::new(Word::FIRST.0),
            streak: Streak::new(),
            tally: Tally::new(buckets),
            count_window: family.count_window.map(|calls| Box::new(CountWindow::new(calls))),
            rare: Lazy::new(|| Rare::new(&family)),
            family,
            key,
        }
    }

    /// Admits a call that starts `now`, or refuses it.
    ///
    /// While the breaker is closed nobody asks for the time. `inner_limit`, the longest run that the policies inside allow, is
    /// asked outside of every lock and for a trial only.
    #[inline]
    pub(crate) fn try_acquire(
        &self,
        now: impl FnOnce() -> Moment,
        inner_limit: impl FnOnce() -> Option<Duration>,
    ) -> Result<Ticket, Refused> {
        if let Some(ticket) = self.pass(self.needs()) {
            return Ok(ticket);
        }
        let now = now();
        let ticket = self.admit(self.word(), now)?;
        if ticket.is_trial() {
            self.allow_time(ticket, now, inner_limit);
        }
        Ok(ticket)
    }

    /// Admits a call with these needs if the breaker is simply closed.
    #[inline]
    pub(crate) fn pass(&self, needs: Needs) -> Option<Ticket> {
        let ticket = Ticket::new(self.word(), needs);
        ticket.is_of_closed().then_some(ticket)
    }

    /// Admits a call if the breaker is simply closed and in use, and it does not matter when the call starts.
    #[inline]
    pub(crate) fn pass_at_once(&self) -> Option<Ticket> {
        let ticket = self.ticket(self.word());
        ticket.is_of_closed_at_once().then_some(ticket)
    }

    /// Takes in how the call of `ticket` ended. The end of a call that was admitted in an earlier state changes
    /// nothing.
    ///
    /// `now` is when it ended. For a success it may be somewhat earlier: it only names the bucket.
    #[inline]
    pub(crate) fn settle(&self, ticket: Ticket, end: End, now: Moment) {
        if end == End::Success && ticket.is_of_closed() {
            self.count_success(ticket.word(), || now);
        } else {
            self.settle_otherwise(ticket, end, now);
        }
    }

    /// The same for a call that took as long as a slow one does.
    #[cold]
    pub(crate) fn settle_slow(&self, ticket: Ticket, end: End, now: Moment) {
        match end {
            End::Success if ticket.is_trial() => self.settle_otherwise(ticket, End::Failure, now),
            End::Success | End::Failure if ticket.word().kind().counts() => {
                self.count_slow(ticket.word(), end == End::Failure, now);
            }
            End::Abandoned | End::LostRace if ticket.word().kind().counts() => self.count_given_up(ticket.word(), now),
            _ => self.settle_otherwise(ticket, end, now),
        }
    }

    #[inline(never)]
    fn settle_otherwise(&self, ticket: Ticket, end: End, now: Moment) {
        let counted = match end {
            End::Throttled(wait) => self.throttled_as(wait),
            end => end,
        };
        if ticket.is_trial() {
            self.settle_trial(ticket, counted, now);
        } else if ticket.word().kind().counts() {
            match counted {
                End::Success => self.count_success(ticket.word(), || now),
                End::Failure => self.count_failure(ticket.word(), now),
                End::Throttled(_) | End::Nothing | End::Abandoned | End::LostRace => {}
            }
            if let End::Throttled(Some(wait)) = end {
                self.pause(ticket.word(), wait, now);
            }
        }
    }

    /// What the end of a throttled call counts as.
    #[cold]
    fn throttled_as(&self, wait: Option<Duration>) -> End {
        match self.family.config().throttled_as.map(End::of) {
            None | Some(End::Throttled(_)) => End::Throttled(wait),
            Some(end) => end,
        }
    }

    /// Counts an end that no ticket belongs to, while calls are counted in the window. In the other states it is not evidence: an open breaker
    /// let nothing through, and a half-open one listens to its trials.
    pub(crate) fn record(&self, end: End, now: Moment) {
        let word = self.word();
        if word.kind().counts() {
            self.settle(self.ticket(word), end, now);
        }
    }

    /// What calls need now that are let through while it is closed.
    #[inline]
    pub(crate) fn needs(&self) -> Needs {
        self.family.needs()
    }

    #[cold]
    pub(crate) fn is_slow(&self, took: Duration) -> bool {
        self.family.live().slow_call().is_some_and(|slow| took >= slow)
    }

    pub(crate) fn family(&self) -> &Family {
        &self.family
    }

    #[inline]
    fn word(&self) -> Word {
        Word(self.state.load(Ordering::Acquire))
    }

    #[inline]
    fn ticket(&self, word: Word) -> Ticket {
        Ticket::new(word, self.needs())
    }

    /// For holders of the lock, who cannot be overtaken by a change of state.
    fn word_locked(&self, _: &Cold) -> Word {
        Word(self.state.load(Ordering::Relaxed))
    }

    /// Whether the period of `word` still lasts. A hint: it may be over a moment later.
    fn is_current(&self, word: Word) -> bool {
        Word(self.state.load(Ordering::Relaxed)).is_same_period(word)
    }

    fn rare(&self) -> &Rare {
        self.rare.get_or_make(|| Rare::new(&self.family))
    }

    fn cold(&self) -> MutexGuard<'_, Cold> {
        lock(&self.rare().cold)
    }

    /// The lock, and the settings to decide by while it is held: those of now, and not of before it was waited for. Bound in this
    /// order they are dropped after the lock, as they have to be: they may be the last to hold what listeners own.
    fn cold_with_config(&self) -> (Share, MutexGuard<'_, Cold>) {
        let cold = self.cold();
        (self.family.config(), cold)
    }
}

/// Admission where the breaker is not simply closed.
impl Core {
    #[cold]
    #[inline(never)]
    fn admit(&self, word: Word, now: Moment) -> Result<Ticket, Refused> {
        let rare = self.rare();
        match word.kind() {
            Kind::Open | Kind::Paused if rare.until() > now => return Err(self.refuse(word, rare.time_left(now))),
            Kind::MetricsOnly | Kind::Disabled => return Ok(self.ticket(word)),
            Kind::Isolated => return Err(self.refuse(word, None)),
            _ => {}
        }
        let (config, mut cold) = self.cold_with_config();
        let answer = self.admit_locked(&mut cold, &config, now);
        self.deliver(cold);
        answer
    }

    /// Makes every change that is due at `now` and answers from the state that is left. An expired period is open, and
    /// half-open again if that is over too; the trials of the new period have not expired, so this ends.
    fn admit_locked(&self, cold: &mut Cold, config: &BreakerConfig, now: Moment) -> Result<Ticket, Refused> {
        let rare = self.rare();
        loop {
            let word = self.word_locked(cold);
            match word.kind() {
                Kind::Closed | Kind::MetricsOnly | Kind::Disabled => return Ok(self.ticket(word)),
                Kind::Isolated => return Err(self.refuse(word, None)),
                Kind::Open | Kind::Paused if rare.until() > now => return Err(self.refuse(word, rare.time_left(now))),
                Kind::Paused => self.state.store(word.within(Kind::Closed).0, Ordering::Release),
                Kind::Open => {
                    self.change(cold, config, Kind::HalfOpen, Cause::OpenTimeOver, now, now);
                    cold.half_open = HalfOpen::new();
                }
                Kind::HalfOpen => match cold.half_open.admit(config, now) {
                    Admission::Trial => return Ok(self.ticket(word)),
                    Admission::Refused(retry_after) => return Err(self.refuse(word, retry_after)),
                    Admission::Expired(expiry) => self.open(cold, config, Cause::TrialExpired, expiry, now),
                    Admission::Decided(step) => self.follow(cold, config, step, now),
                },
            }
        }
    }

    /// Gives a trial the time that the policies inside may need. If they cannot say because they panic, the operation
    /// was not called, and the trial says nothing.
    #[cold]
    fn allow_time(&self, ticket: Ticket, now: Moment, inner_limit: impl FnOnce() -> Option<Duration>) {
        let mut unwinding = PlaceBack { core: self, ticket: Some(ticket), now };
        let mut limit = None;
        witness::blindly(|| limit = inner_limit());
        unwinding.ticket = None;
        let (config, mut cold) = self.cold_with_config();
        if self.word_locked(&cold) == ticket.word() {
            cold.half_open.extend(now + config.time_for_trial(limit));
        }
    }

    fn refuse(&self, word: Word, retry_after: Option<Duration>) -> Refused {
        self.rare().rejected.fetch_add(1, Ordering::Relaxed);
        Refused { retry_after, is_pause: word.kind() == Kind::Paused }
    }
}

/// Half-open: verdicts.
impl Core {
    #[cold]
    #[inline(never)]
    fn settle_trial(&self, ticket: Ticket, end: End, now: Moment) {
        let (config, mut cold) = self.cold_with_config();
        if self.word_locked(&cold) == ticket.word() {
            let step = cold.half_open.settle(&config, end, now);
            self.follow(&mut cold, &config, step, now);
        }
        self.deliver(cold);
    }
}

/// Changes of state. Whoever passes `&mut Cold` has the lock.
impl Core {
    fn follow(&self, cold: &mut Cold, config: &BreakerConfig, step: Step, now: Moment) {
        match step {
            Step::Stay => {}
            Step::Close => self.change(cold, config, Kind::Closed, Cause::TrialsSucceeded, now, now),
            Step::Reopen(cause) => self.open(cold, config, cause, now, now),
        }
    }

    fn open(&self, cold: &mut Cold, config: &BreakerConfig, cause: Cause, at: Moment, now: Moment) {
        let span = cold.times.open(config, at);
        self.rare().refuse_for(span, at);
        self.change(cold, config, Kind::Open, cause, at, now);
    }

    /// Every change of state comes through here.
    fn change(&self, cold: &mut Cold, config: &BreakerConfig, to: Kind, cause: Cause, at: Moment, now: Moment) {
        let word = self.word_locked(cold);
        let (from, to_state) = (word.state(), to.state());
        if from != to_state && (!config.listeners.is_empty() || witness::is_watching()) {
            let counts = self.counts_locked(cold, now);
            let span = || Duration::from_nanos(self.rare().span.load(Ordering::Relaxed));
            let open_for = (to == Kind::Open).then(span);
            let key = self.key.clone();
            let transition = Transition { from, to: to_state, cause, counts, at, open_for, key };
            witness::see(&transition);
            if !config.listeners.is_empty() {
                cold.transitions.push(transition);
            }
        }
        let word = if to.counts() { self.begin_window(word) } else { word };
        self.state.store(word.next(to).0, Ordering::Release);
        cold.times.enter(to.counts(), now);
    }

    /// Empties the window of calls for the period to come, whose calls are not admitted before that; those of a period that is
    /// just ending must not count any more when it is done. Returns the word that is in force now.
    fn begin_window(&self, word: Word) -> Word {
        let Some(window) = &self.count_window else { return word };
        let between = if word.kind().counts() { word.next(Kind::Disabled) } else { word };
        self.state.store(between.0, Ordering::Release);
        window.begin();
        between
    }

    /// Leaves the lock, and tells the listeners what is in the queue unless another thread is about it.
    fn deliver<'a>(&'a self, mut cold: MutexGuard<'a, Cold>) {
        if !cold.transitions.start_draining() {
            return;
        }
        while let Some(transition) = cold.transitions.next() {
            drop(cold);
            witness::blindly(|| self.family.config().listeners.tell(&transition));
            cold = self.cold();
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
