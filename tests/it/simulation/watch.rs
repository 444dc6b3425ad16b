//! What each policy promises, watched from both sides of it: by the call that comes, and by the calls that it lets through.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use steadfast::breaker::{BreakerConfig, State, Transition};
use steadfast::clock::Moment;
use steadfast::error::{ConfigError, Kind};
use steadfast::policy::{Call, Next, Outcome, Policy, Settings, Site};
use steadfast::{Breaker, Bulkhead, RateLimiter, Verdict};

use super::backend::Trouble;
use super::world::Notes;

/// A policy between two watches.
pub(super) struct Watch<P> {
    policy: P,
    post: Post,
}

struct Post {
    notes: Arc<Notes>,
    rule: Rule,
}

/// What the policy is, and so what holds.
pub(super) enum Rule {
    Retry(RetryRule),
    Timeout(Duration),
    Hedge { lanes: u32 },
    Breaker(Arc<BreakerWatch>),
    RateLimiter(Arc<LimiterWatch>),
    Bulkhead(Arc<BulkheadWatch>),
}

#[derive(Clone, Copy)]
pub(super) struct RetryRule {
    pub(super) max_attempts: u32,
    pub(super) max_elapsed: Duration,
    pub(super) max_retry_after: Duration,
    /// Whether a longer pause is cut short, and does not end the run.
    pub(super) caps: bool,
}

/// One call of the policy, and what became of the calls inside of it.
struct Tally {
    begun: Moment,
    calls: u32,
    running: u32,
    last: Option<(Moment, Verdict)>,
}

impl<P> Watch<P> {
    pub(super) fn new(policy: P, notes: Arc<Notes>, rule: Rule) -> Watch<P> {
        Watch { policy, post: Post { notes, rule } }
    }
}

impl<P: Settings> Settings for Watch<P> {
    fn validate(&self, site: &mut Site<'_>) -> Result<(), ConfigError> {
        self.policy.validate(site)
    }

    fn limit(&self, inner: Option<Duration>) -> Option<Duration> {
        self.policy.limit(inner)
    }
}

impl<P: Policy<u64, Trouble>> Policy<u64, Trouble> for Watch<P> {
    async fn run<N: Next<u64, Trouble>>(&self, call: Call<'_, Trouble>, next: N) -> Outcome<u64, Trouble> {
        let tally = Mutex::new(Tally { begun: self.post.notes.now(), calls: 0, running: 0, last: None });
        let through = Through { next, post: &self.post, tally: &tally, is_trial: call.is_trial() };
        let outcome = self.policy.run(call, through).await;
        self.post.ends(&tally.lock().unwrap(), &outcome);
        outcome
    }
}

/// The rest of the chain, watched.
struct Through<'a, N> {
    next: N,
    post: &'a Post,
    tally: &'a Mutex<Tally>,
    /// Whether the call was a trial before it came to the policy.
    is_trial: bool,
}

impl<N: Copy> Clone for Through<'_, N> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<N: Copy> Copy for Through<'_, N> {}

impl<N: Next<u64, Trouble>> Next<u64, Trouble> for Through<'_, N> {
    async fn call(self, call: Call<'_, Trouble>) -> Outcome<u64, Trouble> {
        let _inside = self.post.enter(self.tally, call, self.is_trial);
        let outcome = self.next.call(call).await;
        self.tally.lock().unwrap().last = Some((self.post.notes.now(), outcome.verdict()));
        outcome
    }

    fn repeat(self, after: Option<&Outcome<u64, Trouble>>) -> Result<(), &'static str> {
        self.next.repeat(after)
    }

    fn limit(self) -> Option<Duration> {
        self.next.limit()
    }

    async fn discard(self, value: u64) {
        self.next.discard(value).await;
    }
}

/// A call that was let through, until it has ended or is dropped.
struct Inside<'a> {
    post: &'a Post,
    tally: &'a Mutex<Tally>,
    /// Of which state of the breaker it is a trial.
    trial_of: Option<u64>,
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.tally.lock().unwrap().running -= 1;
        match &self.post.rule {
            Rule::Breaker(watch) => watch.leave(self.trial_of),
            Rule::Bulkhead(watch) => drop(watch.inside.fetch_sub(1, Relaxed)),
            _ => {}
        }
    }
}

impl Post {
    /// The policy lets a call through.
    fn enter<'a>(&'a self, tally: &'a Mutex<Tally>, call: Call<'_, Trouble>, was_trial: bool) -> Inside<'a> {
        let (notes, now) = (&*self.notes, self.notes.now());
        let mut guard = tally.lock().unwrap();
        let seen = &mut *guard;
        seen.calls += 1;
        seen.running += 1;
        let (calls, running) = (seen.calls, seen.running);
        let mut trial_of = None;
        let most = match &self.rule {
            Rule::Retry(rule) => {
                notes.expect(running == 1, || "a retry runs two tries at a time");
                rule.goes_on(notes, seen, now);
                rule.max_attempts
            }
            Rule::Hedge { lanes } => {
                let is_trial = call.is_trial();
                notes.expect(!is_trial || calls == 1, || "a trial is hedged");
                *lanes
            }
            Rule::Timeout(_) => 1,
            Rule::Breaker(watch) => {
                trial_of = watch.enter(notes, call.is_trial(), was_trial);
                1
            }
            Rule::RateLimiter(watch) => {
                watch.admitted.lock().unwrap().push(now);
                1
            }
            Rule::Bulkhead(watch) => {
                watch.enter(notes);
                1
            }
        };
        let waited = matches!(self.rule, Rule::RateLimiter(_) | Rule::Bulkhead(_)) && seen.begun < now;
        notes.reach(|reached| reached.queued += u64::from(waited));
        notes.expect(calls <= most, || format!("{calls} calls where {most} are allowed"));
        Inside { post: self, tally, trial_of }
    }

    /// The policy has an outcome.
    fn ends(&self, tally: &Tally, outcome: &Outcome<u64, Trouble>) {
        let (notes, now) = (&*self.notes, self.notes.now());
        let kind = outcome.result.as_ref().err().map(steadfast::Error::kind);
        let refused = tally.calls == 0;
        match &self.rule {
            Rule::Timeout(limit) => {
                let due = tally.begun + *limit;
                let latest = notes.latest(due);
                notes.expect(now <= latest, || {
                    format!("a timeout of {limit:?} ends {:?} after its time", now.since(due))
                });
                let by_itself = kind == Some(Kind::TimedOut { limit: *limit }) && tally.last.is_none();
                notes.expect(!by_itself || now >= due, || {
                    format!("a timeout of {limit:?} fires {:?} too early", due.since(now))
                });
            }
            Rule::Breaker(watch) if refused && matches!(kind, Some(Kind::CircuitOpen { .. })) => {
                let state = watch.breaker.state();
                let is_shut = !matches!(state, State::Closed | State::Disabled | State::MetricsOnly);
                notes.expect(is_shut, || format!("a breaker that is {state} refuses a call"));
            }
            Rule::RateLimiter(watch) if refused && matches!(kind, Some(Kind::RateLimited { .. })) => {
                let (left, queued) = (watch.limiter.available(), watch.limiter.queued());
                notes.expect(left < watch.weight || queued > 0, || {
                    format!("a limiter with {left} tokens refuses a call")
                });
            }
            Rule::Bulkhead(watch) if refused && matches!(kind, Some(Kind::BulkheadFull { .. })) => {
                let (free, queued) = (watch.bulkhead.available(), watch.bulkhead.queued());
                notes.expect(free == 0 || queued > 0, || format!("a bulkhead with {free} free permits refuses a call"));
            }
            _ => {}
        }
    }
}

impl RetryRule {
    /// Another try is right only after an outcome that is worth one, after the pause that was asked for, and in time.
    fn goes_on(&self, notes: &Notes, tally: &Tally, now: Moment) {
        let Some((ended, verdict)) = tally.last else { return };
        let elapsed = now.since(tally.begun);
        notes.expect(elapsed <= self.max_elapsed, || {
            format!("a try {elapsed:?} after the first, not {:?}", self.max_elapsed)
        });
        let pause = match verdict {
            Verdict::Throttled { retry_after: Some(pause) } => {
                let is_short = self.caps || pause <= self.max_retry_after;
                notes.expect(is_short, || format!("a try after a pause of {pause:?}, which is too long"));
                pause.min(self.max_retry_after)
            }
            Verdict::Rejected { retry_after: Some(pause) } => pause,
            Verdict::Transient | Verdict::Throttled { .. } | Verdict::Rejected { .. } => Duration::ZERO,
            other => return notes.broken(format!("another try after {other:?}")),
        };
        let waited = now.since(ended);
        notes.expect(waited >= pause, || format!("a try after {waited:?}, and {pause:?} was asked for"));
    }
}

/// A breaker, and which of the calls that it has let through are trials of which of its states.
pub(super) struct BreakerWatch {
    pub(super) breaker: Breaker,
    /// How many trials may run at a time.
    trials: u32,
    changes: Arc<Changes>,
    running: Mutex<HashMap<u64, u32>>,
}

struct Changes {
    count: AtomicU64,
    last: Mutex<State>,
}

impl BreakerWatch {
    pub(super) fn new(config: BreakerConfig, trials: u32, notes: &Arc<Notes>) -> Arc<BreakerWatch> {
        let changes = Arc::new(Changes { count: AtomicU64::new(0), last: Mutex::new(State::Closed) });
        let (listening, notes) = (Arc::clone(&changes), Arc::clone(notes));
        let config = config.on_transition(move |change| listening.hear(&notes, &change));
        Arc::new(BreakerWatch { breaker: Breaker::new(config), trials, changes, running: Mutex::default() })
    }

    fn enter(&self, notes: &Notes, is_trial: bool, was_trial: bool) -> Option<u64> {
        let state = self.breaker.state();
        if was_trial || !is_trial {
            let is_open = matches!(state, State::Closed | State::Disabled | State::MetricsOnly);
            notes.expect(is_open || was_trial && state == State::HalfOpen, || format!("a call goes through, {state}"));
            return None;
        }
        notes.expect(state == State::HalfOpen, || format!("a trial of a breaker that is {state}"));
        notes.reach(|reached| reached.trials += 1);
        let generation = self.changes.count.load(Relaxed);
        let mut running = self.running.lock().unwrap();
        let trials = running.entry(generation).or_default();
        *trials += 1;
        notes.expect(*trials <= self.trials, || format!("{trials} trials at a time, not {}", self.trials));
        Some(generation)
    }

    fn leave(&self, trial_of: Option<u64>) {
        if let Some(generation) = trial_of {
            *self.running.lock().unwrap().entry(generation).or_default() -= 1;
        }
    }

    /// An operator does something.
    pub(super) fn command(&self, what: u64) {
        match what {
            0 => self.breaker.force_open(),
            1 => self.breaker.force_close(),
            2 => self.breaker.isolate(),
            3 => self.breaker.disable(),
            4 => self.breaker.metrics_only(),
            _ => self.breaker.reset(),
        }
        if what.is_multiple_of(2) {
            self.breaker.release();
        }
    }

    /// Nobody holds a trial any more, so a breaker that is half-open has a place for one.
    pub(super) fn settle(&self, notes: &Notes) {
        let running: u32 = self.running.lock().unwrap().values().sum();
        notes.expect(running == 0, || format!("{running} trials still run"));
        let state = self.breaker.state();
        if let Err(rejected) = self.breaker.try_acquire() {
            let knows_until = rejected.retry_after().is_some();
            notes.expect(knows_until || state == State::Isolated, || {
                format!("{state}, and a trial was lost: {rejected}")
            });
        }
    }
}

impl Changes {
    fn hear(&self, notes: &Notes, change: &Transition) {
        notes.trace((change.from, change.to, change.cause));
        notes.reach(|reached| reached.transitions += 1);
        self.count.fetch_add(1, Relaxed);
        let mut last = self.last.lock().unwrap();
        notes.expect(*last == change.from, || format!("from {} to {} after {}", change.from, change.to, *last));
        *last = change.to;
    }
}

/// A rate limiter, and when it has let calls through.
pub(super) struct LimiterWatch {
    pub(super) limiter: RateLimiter,
    pub(super) interval: Duration,
    pub(super) burst: u64,
    /// What each call takes.
    pub(super) weight: u64,
    pub(super) admitted: Mutex<Vec<Moment>>,
}

impl LimiterWatch {
    /// In every stretch of time no more than the burst and what the rate gives, and no token is lost.
    pub(super) fn settle(&self, notes: &Notes) {
        let admitted = self.admitted.lock().unwrap();
        for (first, from) in admitted.iter().enumerate() {
            for (calls, to) in (1..).zip(&admitted[first..]) {
                let (taken, within) = (calls * self.weight, to.since(*from));
                let most = self.burst + self.tokens(within.as_nanos());
                notes.expect(taken <= most, || format!("{taken} tokens within {within:?}, not {most}"));
            }
        }
        let (now, cost, mut full_at) = (notes.now(), self.interval * self.weight as u32, None);
        for at in &*admitted {
            full_at = Some(full_at.unwrap_or(*at).max(*at) + cost);
        }
        let missing = full_at.map_or(0, |at| self.tokens(at.since(now).as_nanos() + self.interval.as_nanos() - 1));
        let (left, queued) = (self.limiter.available(), self.limiter.queued());
        notes.expect(left == self.burst - missing, || {
            format!("{left} tokens are left of {}, less {missing}", self.burst)
        });
        notes.expect(queued == 0, || format!("{queued} calls wait for tokens"));
    }

    /// How many come in so many nanoseconds.
    fn tokens(&self, nanos: u128) -> u64 {
        (nanos / self.interval.as_nanos()) as u64
    }
}

/// A bulkhead, and how many calls it has let through.
pub(super) struct BulkheadWatch {
    pub(super) bulkhead: Bulkhead,
    queue: usize,
    inside: AtomicUsize,
}

impl BulkheadWatch {
    pub(super) fn new(bulkhead: Bulkhead, queue: usize) -> BulkheadWatch {
        BulkheadWatch { bulkhead, queue, inside: AtomicUsize::new(0) }
    }

    fn enter(&self, notes: &Notes) {
        let inside = self.inside.fetch_add(1, Relaxed) + 1;
        let (permits, taken, queued) = (self.bulkhead.permits(), self.bulkhead.in_flight(), self.bulkhead.queued());
        notes.expect(inside <= permits, || format!("{inside} calls at a time, with {permits} permits"));
        notes.expect(inside <= taken, || format!("{inside} calls hold {taken} permits"));
        notes.expect(queued <= self.queue, || format!("{queued} calls wait where {} may", self.queue));
    }

    pub(super) fn settle(&self, notes: &Notes) {
        let gauges = (self.inside.load(Relaxed), self.bulkhead.in_flight(), self.bulkhead.queued());
        notes.expect(gauges == (0, 0, 0), || format!("{gauges:?} calls inside, permits taken, calls waiting"));
    }
}
