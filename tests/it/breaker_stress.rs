//! Real threads against a backend that comes and goes, with calls that are dropped and calls that panic. Time is a shared
//! manual clock that one of the threads moves.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use steadfast::breaker::{AbandonedTrial, BreakerConfig, Cause, Permit, State, Transition, TripRule};
use steadfast::policy::{Call, Next, Outcome, Policy, Settings};
use steadfast::{Retry, try_do};

use crate::breakers::{Bench, consecutive, logging, panics};
use crate::support::{ms, pending_times, secs};

const THREADS: u64 = 8;
const OPEN: Duration = Duration::from_millis(15);

/// Milliseconds, each with a call of the thread that moves the clock.
const STEPS: u64 = 1_500;

/// Milliseconds for which the backend is good, and then bad.
const FLIP: u64 = 70;

/// How trials ended, by those who made them, and how many of them there are now.
#[derive(Default)]
struct Trials {
    running: AtomicU32,
    most: AtomicU32,
    succeeded: AtomicU64,
    failed: AtomicU64,
    abandoned: AtomicU64,
}

impl Trials {
    fn begin(&self) {
        let running = self.running.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(running, Ordering::SeqCst);
    }

    fn end(&self, how: &AtomicU64) {
        self.running.fetch_sub(1, Ordering::SeqCst);
        how.fetch_add(1, Ordering::SeqCst);
    }
}

/// Inside of the breaker: keeps the books on its trials, from just after the admission until just before the verdict.
struct Books<'a>(&'a Trials);

impl Settings for Books<'_> {}

impl<T: Send, E: Send> Policy<T, E> for Books<'_> {
    async fn run<N: Next<T, E>>(&self, call: Call<'_, E>, next: N) -> Outcome<T, E> {
        if !call.is_trial() {
            return next.call(call).await;
        }
        let mut entry = Entry { trials: self.0, how: &self.0.abandoned };
        self.0.begin();
        let panicking = AssertUnwindSafe(next.call(call));
        let outcome = match futures::FutureExt::catch_unwind(panicking).await {
            Ok(outcome) => outcome,
            Err(panic) => {
                entry.how = &self.0.failed;
                std::panic::resume_unwind(panic);
            }
        };
        entry.how = if outcome.verdict().is_failure() { &self.0.failed } else { &self.0.succeeded };
        outcome
    }
}

struct Entry<'a> {
    trials: &'a Trials,
    how: &'a AtomicU64,
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        self.trials.end(self.how);
    }
}

/// A sequence that a seed repeats.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

/// Raises a flag when it is dropped, by a panic as well.
struct Raises<'a>(&'a AtomicBool);

impl Drop for Raises<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// What is about to be done.
#[derive(Clone, Copy, PartialEq)]
enum Turn {
    Call,
    Step,
}

struct Storm {
    bench: Bench,
    healthy: AtomicBool,
    trials: Trials,
}

impl Storm {
    /// One call, in one of the ways of making one, with one of its ends.
    fn call(&self, dice: &mut Dice) {
        let (how, end) = (dice.roll(2), dice.roll(10));
        let unwound = catch_unwind(AssertUnwindSafe(|| match how {
            0 => self.in_two_steps(end),
            _ => self.through_a_chain(end),
        }));
        assert_eq!(unwound.is_err(), unwound.is_err_and(|panic| panic.is::<&'static str>()), "only its own panics");
    }

    fn in_two_steps(&self, end: u64) {
        let Ok(permit) = self.bench.breaker.try_acquire() else { return };
        let is_trial = permit.is_trial();
        if is_trial {
            self.trials.begin();
        }
        thread::yield_now();
        let healthy = self.healthy.load(Ordering::SeqCst);
        let (how, finish): (_, fn(Permit)) = match end {
            // Dropped by whoever has it, or by a panic.
            0 => (&self.trials.abandoned, drop),
            1 => (&self.trials.abandoned, |_permit| panics()),
            _ if healthy => (&self.trials.succeeded, Permit::success),
            _ => (&self.trials.failed, Permit::failure),
        };
        if is_trial {
            self.trials.end(how);
        }
        finish(permit);
    }

    fn through_a_chain(&self, end: u64) {
        let operation = async |_| {
            pending_times(1).await;
            match end {
                1 => panics(),
                _ if self.healthy.load(Ordering::SeqCst) => Ok(()),
                _ => Err("down"),
            }
        };
        let chain = (Retry::immediate().max_attempts(2), &self.bench.breaker, Books(&self.trials));
        let mut run = tokio_test::task::spawn(try_do(&self.bench.cx, operation, chain));
        while run.poll().is_pending() {
            thread::yield_now();
            if end == 0 {
                return;
            }
        }
    }

    /// Threads that call, while one of them moves the clock by a millisecond with each of its calls, and the backend is good
    /// and bad by turns. `with` is around each call, and around each step of the clock.
    fn rage(&self, with: impl Fn(Turn, &mut dyn FnMut()) + Sync) {
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            for seed in 1..THREADS {
                let (done, with) = (&done, &with);
                scope.spawn(move || {
                    let mut dice = Dice(seed);
                    while !done.load(Ordering::Relaxed) {
                        with(Turn::Call, &mut || self.call(&mut dice));
                    }
                });
            }
            let _ends_with_this_one = Raises(&done);
            let mut dice = Dice(0);
            for step in 0..STEPS {
                self.healthy.store((step / FLIP).is_multiple_of(2), Ordering::SeqCst);
                with(Turn::Step, &mut || self.bench.clock.advance(ms(1)));
                with(Turn::Call, &mut || self.call(&mut dice));
            }
        });
        assert_eq!(self.trials.running.load(Ordering::SeqCst), 0);
    }

    /// It is good now, and stays so. Within one open time every call passes, whatever was before.
    fn heals(&self) {
        self.healthy.store(true, Ordering::SeqCst);
        self.bench.clock.advance(OPEN);
        let needed = self.bench.breaker.counts().calls;
        (0..3).for_each(|_| drop(self.bench.run(async |_| Ok::<_, ()>(()))));
        assert_eq!(self.bench.breaker.state(), State::Closed, "after {needed} trials before");
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| (0..200).for_each(|_| self.bench.breaker.try_acquire().unwrap().success()));
            }
        });
        assert_eq!((self.bench.breaker.state(), self.bench.breaker.counts().failures), (State::Closed, 0));
    }
}

fn storm(config: BreakerConfig) -> (Storm, impl Fn() -> Vec<Transition>) {
    let (config, log) = logging(config);
    let storm = Storm { bench: Bench::closed(config), healthy: AtomicBool::new(true), trials: Trials::default() };
    (storm, move || log.entries())
}

/// How often the breaker changes in one storm is up to the scheduler of the machine, so there are as many as it takes.
fn until_often_changed(log: impl Fn() -> Vec<Transition>, storm: impl Fn()) {
    let storms = (0..100).take_while(|_| log().len() <= 20).map(|_| storm()).count();
    assert!(log().len() > 20, "{} transitions in {storms} storms", log().len());
}

/// Each begins where the last one ended, by a cause that leads from the one state to the other.
fn assert_chain(log: &[Transition]) {
    assert_eq!(log[0].from, State::Closed);
    assert!(log.windows(2).all(|pair| pair[0].to == pair[1].from && pair[0].at <= pair[1].at));
    for change in log {
        let expected = match change.cause {
            Cause::FailureRate | Cause::ConsecutiveFailures => (State::Closed, State::Open),
            Cause::OpenTimeOver => (State::Open, State::HalfOpen),
            Cause::TrialsSucceeded => (State::HalfOpen, State::Closed),
            _ => (State::HalfOpen, State::Open),
        };
        assert_eq!((change.from, change.to), expected, "{:?}", change.cause);
    }
}

fn times(log: &[Transition], cause: Cause) -> u64 {
    log.iter().filter(|change| change.cause == cause).count() as u64
}

#[test]
fn each_change_is_told_once_and_each_trial_decides_once() {
    // No trial expires here, so that of each one it is known who ended it.
    let rule = TripRule::consecutive(3).or(TripRule::failure_rate(0.5).window(10, ms(10)).minimum_calls(10));
    let config = consecutive(1).rule(rule).open_for(OPEN).trial_deadline(secs(1 << 30));
    let (storm, log) = storm(config);
    until_often_changed(&log, || storm.rage(|_, act| act()));
    let log = log();
    assert_chain(&log);
    assert_eq!(log.last().unwrap().to == State::Closed, storm.bench.breaker.state() == State::Closed);
    let Trials { most, succeeded, failed, abandoned, .. } = &storm.trials;
    assert_eq!(most.load(Ordering::SeqCst), 1, "trials at a time");
    let [succeeded, failed, abandoned] = [succeeded, failed, abandoned].map(|count| count.load(Ordering::SeqCst));
    let told = [Cause::TrialsSucceeded, Cause::TrialFailed, Cause::TrialAbandoned].map(|cause| times(&log, cause));
    assert_eq!(told, [succeeded, failed, abandoned]);
    let periods = times(&log, Cause::OpenTimeOver);
    let decided = told.iter().sum::<u64>();
    assert!(periods == decided || periods == decided + 1, "{periods} and {decided}");
    storm.heals();
}

#[test]
fn several_trials_are_never_more_than_allowed() {
    // Time stands while calls run, so that no trial outlives its period.
    let config = consecutive(3).open_for(OPEN).trials(3).successes_to_close(3);
    let (storm, log) = storm(config.abandoned_trial(AbandonedTrial::Release));
    let time = RwLock::new(());
    until_often_changed(&log, || {
        storm.rage(|turn, act| {
            let (_moves, _stands) = match turn {
                Turn::Step => (Some(time.write().unwrap()), None),
                Turn::Call => (None, Some(time.read().unwrap())),
            };
            act();
        });
    });
    assert_chain(&log());
    let most = storm.trials.most.load(Ordering::SeqCst);
    assert!((1..=3).contains(&most), "{most} trials at a time");
    storm.heals();
}

#[test]
fn trials_that_expire_among_the_others_wedge_nothing() {
    let config = consecutive(3).open_for(OPEN).trial_deadline(ms(5)).trials(2).successes_to_close(2);
    let (storm, log) = storm(config);
    until_often_changed(&log, || storm.rage(|_, act| act()));
    let log = log();
    assert!(log.windows(2).all(|pair| pair[0].to == pair[1].from));
    storm.heals();
}
