//! All of one simulation: the time, the dice, the chain, and what was found.

use std::fmt::{Debug, Display};
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt;
use futures::future::{Either, select};
use futures::stream::FuturesUnordered;
use steadfast::breaker::{AbandonedTrial, BreakerConfig, TripRule};
use steadfast::chain::BoxPolicy;
use steadfast::clock::{Clock, ManualClock, Moment};
use steadfast::limit::{BulkheadConfig, RateLimiterConfig};
use steadfast::policy::Policy;
use steadfast::retry::{Jitter, OnLongWait, OnRejection};
use steadfast::{Budget, Bulkhead, Hedge, RateLimiter, Retry, Timeout, judge};

use super::backend::{Backend, Trouble};
use super::client::{Client, trouble_makers};
use super::watch::{BreakerWatch, BulkheadWatch, LimiterWatch, RetryRule, Rule, Watch};
use crate::support::{Dice, ms, secs};

/// One simulation.
pub(super) struct World {
    pub(super) dice: Dice,
    pub(super) clock: ManualClock,
    pub(super) backend: Backend,
    pub(super) chain: Arc<Chain>,
    start: Moment,
    notes: Arc<Notes>,
}

/// What the policies of all clients are, and the watches over those that have a state.
#[derive(Default)]
pub(super) struct Chain {
    pub(super) policies: Arc<Vec<BoxPolicy<u64, Trouble>>>,
    pub(super) breakers: Vec<Arc<BreakerWatch>>,
    pub(super) limiters: Vec<Arc<LimiterWatch>>,
    pub(super) bulkheads: Vec<Arc<BulkheadWatch>>,
    /// `None` is without a budget.
    pub(super) budget: Option<(Budget, BudgetRule)>,
    /// The most attempts that the policies allow for a run.
    pub(super) most_attempts: u32,
    /// How many errors of the special kind a run may end with.
    pub(super) most_special: Option<u32>,
    /// How many lanes of a try there may be at a time, in all hedges.
    pub(super) lanes: u32,
    pub(super) hedges: u32,
    /// How many policies may start an operation more than once.
    multipliers: u32,
    text: Vec<String>,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum BudgetRule {
    Tokens { initial: u32, ratio: f64, floor: Duration },
    InFlight { min: u32 },
}

/// What everybody writes to: what was broken, what was done, and when the clock jumped.
pub(super) struct Notes {
    clock: ManualClock,
    broken: Mutex<Vec<String>>,
    /// Times that were jumped over, in order; nobody could act within them.
    jumps: Mutex<Vec<(Moment, Moment)>>,
    trace: AtomicU64,
    pub(super) reached: Mutex<Reached>,
}

/// How far simulations got, so that they cannot silently come to nothing.
#[derive(Debug, Default)]
pub(super) struct Reached {
    pub(super) runs: u64,
    pub(super) attempts: u64,
    pub(super) retries: u64,
    pub(super) hedges: u64,
    pub(super) successes: u64,
    pub(super) panics: u64,
    pub(super) dropped: u64,
    pub(super) cancelled: u64,
    pub(super) deadlines: u64,
    pub(super) timeouts: u64,
    pub(super) refused: u64,
    pub(super) exhausted: u64,
    pub(super) trials: u64,
    pub(super) transitions: u64,
    pub(super) queued: u64,
    pub(super) jumps: u64,
    pub(super) shut_down: u64,
}

impl World {
    pub(super) fn new(seed: u64) -> World {
        let (dice, clock) = (Dice::new(seed), Clock::manual());
        let notes = Arc::new(Notes::new(&clock));
        let chain = Arc::new(Chain::random(&dice, &notes, seed));
        let backend = Backend::random(&dice, &clock, &notes);
        World { start: clock.now(), dice, clock, backend, chain, notes }
    }

    /// Plays it to the end.
    pub(super) fn play(&self) {
        let clients: Vec<Client> = (0..2 + self.dice.below(6)).map(|number| Client::new(self, number)).collect();
        self.clock.block_on(async {
            let all: FuturesUnordered<_> = clients.iter().map(|client| client.live(self)).collect();
            let trouble = std::pin::pin!(trouble_makers(self, &clients));
            match select(all.collect::<Vec<()>>(), trouble).await {
                Either::Left(_) => {}
                Either::Right(_) => self.notes.broken("those who make trouble have come to an end"),
            }
        });
        self.settle(&clients);
    }

    /// Everything has ended: what is left?
    fn settle(&self, clients: &[Client]) {
        let notes = &self.notes;
        notes.expect(self.clock.sleepers() == 0, || format!("{} timers are left", self.clock.sleepers()));
        notes.expect(self.backend.running() == 0, || format!("{} operations live on", self.backend.running()));
        for client in clients {
            let waiting = client.executor.waiting();
            notes.expect(waiting == 0, || format!("{waiting} runs of client {} wait", client.number));
        }
        self.chain.bulkheads.iter().for_each(|watch| watch.settle(notes));
        self.chain.limiters.iter().for_each(|watch| watch.settle(notes));
        self.settle_budget();
        self.chain.breakers.iter().for_each(|watch| watch.settle(notes));
    }

    /// Tokens are conserved: what is left is what there was and came in, less what was spent.
    fn settle_budget(&self) {
        let Some((budget, rule)) = &self.chain.budget else { return };
        let left = f64::from(budget.available());
        let counts = self.backend.counts();
        let (runs, extra, paid) = (counts.runs as f64, counts.extra as f64, (counts.attempts - counts.runs) as f64);
        match *rule {
            BudgetRule::InFlight { min } => {
                self.notes.expect(left == f64::from(min), || format!("{left} places are left of {rule:?}"));
            }
            BudgetRule::Tokens { initial, ratio, floor } => {
                let came = f64::from(initial) + ratio * runs;
                let elapsed = self.clock.now().since(self.start).as_secs_f64();
                let given = if floor == Duration::MAX { 0.0 } else { elapsed / floor.as_secs_f64() };
                let text = || format!("{left} tokens are left after {counts:?} of {rule:?} and {given} from the floor");
                self.notes.expect(paid <= came + given + 1e-6, text);
                self.notes.expect(left <= came + given - paid + 1e-6, text);
                // Known: a lane that starts before the first one has, because that waits for a limit, costs its token as well as what
                // was paid for the try that both are part of.
                let twice = if self.chain.may_refuse() { counts.hedges as f64 } else { 0.0 };
                self.notes.expect(left >= (came - extra - twice - 1e-6).floor(), text);
            }
        }
    }

    /// Moves the time on within one poll, as an operation does that blocks its thread.
    pub(super) fn jump(&self, by: Duration) {
        self.notes.jump(by);
    }

    pub(super) fn notes(&self) -> &Arc<Notes> {
        &self.notes
    }

    pub(super) fn broken(&self) -> Vec<String> {
        self.notes.broken.lock().unwrap().clone()
    }

    pub(super) fn describe(&self) -> String {
        format!("chain: {}", self.chain.text.join(" > "))
    }

    /// A number that says what happened, and when.
    pub(super) fn trace(&self) -> u64 {
        self.notes.trace.load(Relaxed)
    }
}

impl Notes {
    fn new(clock: &ManualClock) -> Notes {
        let (broken, jumps, reached) = Default::default();
        Notes { clock: clock.clone(), broken, jumps, trace: AtomicU64::new(0), reached }
    }

    pub(super) fn now(&self) -> Moment {
        self.clock.now()
    }

    /// Something does not hold.
    pub(super) fn broken(&self, what: impl Display) {
        let mut broken = self.broken.lock().unwrap();
        if broken.len() < 20 {
            broken.push(format!("at {:?}: {what}", self.clock.now()));
        }
    }

    pub(super) fn expect<D: Display>(&self, holds: bool, what: impl FnOnce() -> D) {
        if !holds {
            self.broken(what());
        }
    }

    /// Something has happened.
    pub(super) fn trace(&self, what: impl Debug) {
        let now = self.clock.now();
        let hash = format!("{now:?} {what:?}")
            .bytes()
            .fold(self.trace.load(Relaxed), |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3));
        self.trace.store(hash, Relaxed);
    }

    pub(super) fn reach(&self, count: impl FnOnce(&mut Reached)) {
        count(&mut self.reached.lock().unwrap());
    }

    pub(super) fn jump(&self, by: Duration) {
        let from = self.clock.now();
        self.clock.advance(by);
        let to = self.clock.now();
        self.reach(|reached| reached.jumps += 1);
        let mut jumps = self.jumps.lock().unwrap();
        match jumps.last_mut() {
            Some((_, last)) if *last == from => *last = to,
            _ => jumps.push((from, to)),
        }
    }

    /// When something can happen at the latest that is due at `due`: then, or when a jump over it has ended.
    pub(super) fn latest(&self, due: Moment) -> Moment {
        let jumps = self.jumps.lock().unwrap();
        jumps.iter().find(|(from, to)| *from <= due && due <= *to).map_or(due, |(_, to)| *to)
    }
}

impl Chain {
    fn random(dice: &Dice, notes: &Arc<Notes>, seed: u64) -> Chain {
        let mut chain = Chain { most_attempts: 1, lanes: 1, ..Chain::default() };
        let mut policies = Vec::new();
        for _ in 0..1 + dice.below(6) {
            if let Some(policy) = chain.random_policy(dice, notes, seed) {
                policies.push(policy);
            }
        }
        if dice.chance(0.2) {
            let most = 1 + dice.below(3) as u32;
            chain.most_special = Some(most);
            chain.text.push(format!("attempts_for({most})"));
            policies.push(BoxPolicy::new(judge::attempts_for(most, |trouble: &Trouble| trouble.special)));
        }
        chain.policies = Arc::new(policies);
        chain.budget = random_budget(dice);
        chain.text.push(format!("budget {:?}", chain.budget.as_ref().map(|(_, rule)| rule)));
        chain
    }

    fn random_policy(&mut self, dice: &Dice, notes: &Arc<Notes>, seed: u64) -> Option<BoxPolicy<u64, Trouble>> {
        let notes = Arc::clone(notes);
        match dice.below(7) {
            0 | 6 if self.multipliers < 3 => {
                let (retry, rule) = random_retry(dice);
                self.text.push(format!("{retry:?}"));
                self.multiply(rule.max_attempts);
                Some(watched(retry, notes, Rule::Retry(rule)))
            }
            1 => {
                let limit = dice.between(ms(50), secs(5));
                self.text.push(format!("Timeout({limit:?})"));
                Some(watched(Timeout::new(limit), notes, Rule::Timeout(limit)))
            }
            2 => {
                let (config, trials) = random_breaker(dice, seed);
                self.text.push(format!("Breaker({config:?})"));
                let watch = BreakerWatch::new(config, trials, &notes);
                self.breakers.push(Arc::clone(&watch));
                Some(watched(watch.breaker.clone(), notes, Rule::Breaker(watch)))
            }
            3 if self.multipliers < 3 => {
                let max = 1 + dice.below(2) as u32;
                let delay = dice.between(Duration::ZERO, secs(1));
                let by_percentile = Hedge::percentile(0.5).min_samples(2).ceiling(secs(1));
                let hedge = if dice.chance(0.3) { by_percentile } else { Hedge::after(delay) }.max(max);
                self.text.push(format!("{hedge:?}"));
                self.multiply(1 + max);
                self.lanes *= 1 + max;
                self.hedges += 1;
                Some(watched(hedge, notes, Rule::Hedge { lanes: 1 + max }))
            }
            4 => {
                let (burst, interval) = (1 + dice.below(5), dice.between(ms(10), ms(500)));
                let (queue, weight) = (1 + dice.below(5) as usize, 1 + dice.below(burst));
                let wait = if dice.chance(0.7) { dice.between(ms(1), secs(3)) } else { Duration::ZERO };
                let config =
                    RateLimiterConfig::per(1, interval).burst(burst).max_wait(wait).queue(queue).weight(weight);
                self.text.push(format!("RateLimiter({config:?})"));
                let watch = Arc::new(LimiterWatch {
                    limiter: RateLimiter::new(config),
                    interval,
                    burst,
                    weight,
                    admitted: Mutex::default(),
                });
                self.limiters.push(Arc::clone(&watch));
                Some(watched(watch.limiter.clone(), notes, Rule::RateLimiter(watch)))
            }
            5 => {
                let queue = dice.below(4) as usize;
                let config =
                    BulkheadConfig::new(1 + dice.below(3) as usize).queue(queue).max_wait(dice.between(ms(1), secs(3)));
                self.text.push(format!("Bulkhead({config:?})"));
                let watch = Arc::new(BulkheadWatch::new(Bulkhead::with(config), queue));
                self.bulkheads.push(Arc::clone(&watch));
                Some(watched(watch.bulkhead.clone(), notes, Rule::Bulkhead(watch)))
            }
            _ => None,
        }
    }

    fn multiply(&mut self, by: u32) {
        self.multipliers += 1;
        self.most_attempts *= by;
    }

    /// Whether tries may end, or wait, without having started anything.
    fn may_refuse(&self) -> bool {
        self.has_queues() || !self.breakers.is_empty()
    }

    /// Whether calls may wait for a limit, so that another one may start meanwhile.
    pub(super) fn has_queues(&self) -> bool {
        !self.limiters.is_empty() || !self.bulkheads.is_empty()
    }
}

fn watched(policy: impl Policy<u64, Trouble> + 'static, notes: Arc<Notes>, rule: Rule) -> BoxPolicy<u64, Trouble> {
    BoxPolicy::new(Watch::new(policy, notes, rule))
}

fn random_retry(dice: &Dice) -> (Retry, RetryRule) {
    let base = dice.between(ms(1), ms(500));
    let retry = match dice.below(5) {
        0 => Retry::immediate(),
        1 => Retry::fixed(base),
        2 => Retry::linear(base),
        3 => Retry::decorrelated().base(base),
        _ => Retry::exponential().base(base).jitter(dice.pick(&[Jitter::None, Jitter::Full, Jitter::Equal])),
    };
    let max_attempts = 1 + dice.below(4) as u32;
    let max_elapsed = if dice.chance(0.3) { dice.between(ms(100), secs(10)) } else { Duration::MAX };
    let max_retry_after = dice.between(ms(100), secs(5));
    let caps = dice.chance(0.5);
    let retry = retry.max_attempts(max_attempts).max_elapsed(max_elapsed).max_retry_after(max_retry_after);
    let retry = retry.on_long_wait(if caps { OnLongWait::Cap } else { OnLongWait::Stop });
    let on_rejection = if dice.chance(0.5) { OnRejection::Wait } else { OnRejection::Stop };
    let rule = RetryRule { max_attempts, max_elapsed, max_retry_after, caps };
    (retry.on_rejection(on_rejection).keep_errors(dice.below(3) as usize), rule)
}

fn random_breaker(dice: &Dice, seed: u64) -> (BreakerConfig, u32) {
    let rule = match dice.below(4) {
        0 => TripRule::consecutive(1 + dice.below(4) as u32),
        1 => TripRule::count_window(2 + dice.below(8) as u32, 0.5),
        2 => TripRule::failure_rate(0.4).minimum_calls(2).or(TripRule::slow_rate(0.5).slow_call(secs(1))),
        _ => TripRule::failure_rate(0.5).window(4, secs(1)).minimum_calls(3),
    };
    let trials = 1 + dice.below(3) as u32;
    let config = BreakerConfig::default().rule(rule).open_for(dice.between(ms(100), secs(10))).seed(seed);
    let config = if dice.chance(0.3) {
        config.trial_rate(trials, 0.5)
    } else {
        config.trials(trials).successes_to_close(1 + dice.below(3) as u32)
    };
    let config = if dice.chance(0.3) { config.abandoned_trial(AbandonedTrial::Release) } else { config };
    let config = if dice.chance(0.3) { config.pause_on_retry_after(secs(2)) } else { config };
    let config = if dice.chance(0.3) { config.open_jitter(0.5).open_backoff(2.0, secs(20)) } else { config };
    (config, trials)
}

fn random_budget(dice: &Dice) -> Option<(Budget, BudgetRule)> {
    match dice.below(4) {
        0 => None,
        1 => {
            let min = 1 + dice.below(3) as u32;
            Some((Budget::concurrent(0.2).min(min), BudgetRule::InFlight { min }))
        }
        _ => {
            let initial = dice.below(20) as u32;
            let floor = if dice.chance(0.5) { Duration::MAX } else { dice.between(secs(1), secs(60)) };
            // A cap that is not reached, so that nothing is lost.
            let budget = Budget::ratio(0.1).cap(400_000).initial(initial).floor(floor);
            Some((budget, BudgetRule::Tokens { initial, ratio: 0.1, floor }))
        }
    }
}

impl Dice {
    /// From `0..n`.
    pub(super) fn below(&self, n: u64) -> u64 {
        (self.unit() * n as f64) as u64
    }

    pub(super) fn chance(&self, share: f64) -> bool {
        self.unit() < share
    }

    pub(super) fn pick<T: Copy>(&self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }

    /// In whole milliseconds, so that things coincide.
    pub(super) fn between(&self, least: Duration, most: Duration) -> Duration {
        let (least, most) = (least.as_millis() as u64, most.as_millis() as u64);
        ms(least + self.below(most - least + 1))
    }
}

impl Reached {
    pub(super) fn add(&mut self, world: &World) {
        let other = mem::take(&mut *world.notes.reached.lock().unwrap());
        self.runs += other.runs;
        self.attempts += other.attempts;
        self.retries += other.retries;
        self.hedges += other.hedges;
        self.successes += other.successes;
        self.panics += other.panics;
        self.dropped += other.dropped;
        self.cancelled += other.cancelled;
        self.deadlines += other.deadlines;
        self.timeouts += other.timeouts;
        self.refused += other.refused;
        self.exhausted += other.exhausted;
        self.trials += other.trials;
        self.transitions += other.transitions;
        self.queued += other.queued;
        self.jumps += other.jumps;
        self.shut_down += other.shut_down;
    }

    pub(super) fn assert_far_enough(&self) {
        let least =
            [self.runs / 100, self.retries, self.hedges, self.panics, self.dropped, self.cancelled, self.deadlines];
        let more =
            [self.timeouts, self.refused, self.exhausted, self.trials, self.transitions, self.queued, self.jumps];
        assert!(least.iter().chain(&more).all(|count| *count >= 50), "too little happens: {self:?}");
    }
}
