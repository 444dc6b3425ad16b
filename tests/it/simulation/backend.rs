//! The dependency: it is well for a while, and then it is not.

use std::future::pending;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use steadfast::Attempt;
use steadfast::clock::{ManualClock, Moment};
use steadfast::operation::Fault;

use super::run::Run;
use super::world::Notes;
use crate::support::{Dice, ms, pending_times, secs};

pub(super) struct Backend {
    dice: Dice,
    clock: ManualClock,
    notes: Arc<Notes>,
    /// What it is like from a moment on.
    phases: Vec<(Moment, Phase)>,
    running: Arc<()>,
    runs: AtomicU64,
    attempts: AtomicU64,
    extra: AtomicU64,
    hedges: AtomicU64,
    next_id: AtomicU64,
}

/// An error of the backend.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Trouble {
    pub(super) id: u64,
    pub(super) special: bool,
}

/// How often the operation was started.
#[derive(Debug)]
pub(super) struct Counts {
    /// Runs that have started it at all.
    pub(super) runs: u64,
    pub(super) attempts: u64,
    /// As a retry or a hedge.
    pub(super) extra: u64,
    pub(super) hedges: u64,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    Well,
    Slow,
    Failing,
    /// Nothing answers.
    Partition,
    Throttling,
    /// Everything, in turn.
    Flaky,
}

/// What one call ends with.
#[derive(Clone, Copy, Debug)]
enum End {
    Ok,
    Transient,
    Special,
    Fatal,
    Permanent,
    Ignored,
    Throttled,
    Panic,
    Never,
}

impl Backend {
    pub(super) fn random(dice: &Dice, clock: &ManualClock, notes: &Arc<Notes>) -> Backend {
        let phases = [Phase::Well, Phase::Slow, Phase::Failing, Phase::Partition, Phase::Throttling, Phase::Flaky];
        let phases = [&phases[..], &[Phase::Well, Phase::Failing, Phase::Flaky]].concat();
        let mut from = clock.now();
        let phases = (0..30).map(|_| {
            let phase = (from, dice.pick(&phases));
            from = from + dice.between(ms(200), secs(8));
            phase
        });
        let phases = phases.collect();
        let own = Dice::new((dice.unit() * 1e15) as u64);
        let (running, runs, attempts, extra, hedges, next_id) = Default::default();
        Backend {
            dice: own,
            clock: clock.clone(),
            notes: Arc::clone(notes),
            phases,
            running,
            runs,
            attempts,
            extra,
            hedges,
            next_id,
        }
    }

    /// One call, for the attempt of a run.
    pub(super) async fn call(&self, run: Arc<Run>, attempt: Attempt) -> Result<u64, Fault<Trouble>> {
        let _running = Arc::clone(&self.running);
        let id = self.next_id.fetch_add(1, Relaxed);
        let is_first = run.attempt_starts(&self.notes, &attempt);
        self.count(is_first, &attempt);
        let end = self.take_time().await;
        run.attempt_ends(&self.notes);
        self.notes.trace((id, end));
        let trouble = Trouble { id, special: matches!(end, End::Special) };
        match end {
            End::Ok => {
                run.succeeds(id);
                return Ok(id);
            }
            End::Panic => resume_unwind(Box::new(Thrown)),
            End::Never => pending().await,
            _ => {}
        }
        run.fails(&self.notes, trouble);
        Err(match end {
            End::Fatal => Fault::Fatal(trouble),
            End::Permanent => Fault::Permanent(trouble),
            End::Ignored => Fault::Ignored(trouble),
            End::Throttled => {
                let patience = self.dice.chance(0.8).then(|| self.dice.between(ms(0), secs(6)));
                Fault::Throttled(trouble, patience)
            }
            _ => Fault::Transient(trouble),
        })
    }

    /// Lets the time pass that a call takes now, and says how it ends.
    async fn take_time(&self) -> End {
        let (takes, end) = self.now().decide(&self.dice);
        if self.dice.chance(0.05) {
            // It blocks its thread.
            self.notes.jump(self.dice.between(ms(0), secs(2)));
        }
        if self.dice.chance(0.2) {
            pending_times(1).await;
        }
        self.clock.clock().sleep(takes).await;
        if self.dice.chance(0.02) {
            self.notes.jump(self.dice.between(ms(0), secs(2)));
        }
        if matches!(end, End::Never) {
            pending::<()>().await;
        }
        end
    }

    fn count(&self, is_first: bool, attempt: &Attempt) {
        let extra = attempt.is_retry() || attempt.is_hedge();
        self.runs.fetch_add(u64::from(is_first), Relaxed);
        self.attempts.fetch_add(1, Relaxed);
        self.extra.fetch_add(u64::from(extra), Relaxed);
        self.hedges.fetch_add(u64::from(attempt.is_hedge()), Relaxed);
        self.notes.reach(|reached| {
            reached.attempts += 1;
            reached.retries += u64::from(attempt.is_retry());
            reached.hedges += u64::from(attempt.is_hedge());
        });
    }

    fn now(&self) -> Phase {
        let now = self.clock.now();
        self.phases.iter().rev().find(|(from, _)| *from <= now).map_or(Phase::Well, |(_, phase)| *phase)
    }

    /// How many operations there are now.
    pub(super) fn running(&self) -> usize {
        Arc::strong_count(&self.running) - 1
    }

    pub(super) fn counts(&self) -> Counts {
        let counts = [&self.runs, &self.attempts, &self.extra, &self.hedges];
        let [runs, attempts, extra, hedges] = counts.map(|count| count.load(Relaxed));
        Counts { runs, attempts, extra, hedges }
    }
}

impl Phase {
    fn decide(self, dice: &Dice) -> (Duration, End) {
        let soon = if dice.chance(0.3) { Duration::ZERO } else { dice.between(ms(1), ms(100)) };
        let failure =
            dice.pick(&[End::Transient, End::Transient, End::Special, End::Fatal, End::Permanent, End::Ignored]);
        match self {
            Phase::Well if dice.chance(0.05) => (soon, failure),
            Phase::Well => (soon, End::Ok),
            Phase::Slow => (dice.between(ms(100), secs(6)), if dice.chance(0.2) { failure } else { End::Ok }),
            Phase::Failing if dice.chance(0.2) => (dice.between(ms(1), secs(2)), failure),
            Phase::Failing => (soon, dice.pick(&[End::Transient, End::Transient, End::Special])),
            Phase::Partition => (soon, End::Never),
            Phase::Throttling => (soon, dice.pick(&[End::Throttled, End::Throttled, End::Ok])),
            Phase::Flaky => {
                let ends = [End::Ok, End::Transient, End::Throttled, End::Panic, End::Never, End::Transient, failure];
                (dice.between(ms(0), secs(1)), dice.pick(&ends))
            }
        }
    }
}

/// What an operation panics with; not with `panic!`, which would be printed.
pub(super) struct Thrown;
