//! What one run promises to its caller.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use steadfast::clock::Moment;
use steadfast::error::Kind;
use steadfast::{Attempt, CancellationToken, Error};

use super::backend::Trouble;
use super::world::{Chain, Notes};

/// One run, as far as it can be seen from outside and from its operation.
pub(super) struct Run {
    pub(super) begun: Moment,
    /// The caller's.
    pub(super) deadline: Option<Moment>,
    pub(super) max_attempts: Option<u32>,
    pub(super) token: CancellationToken,
    shut_down: Arc<AtomicBool>,
    pub(super) chain: Arc<Chain>,
    log: Mutex<Log>,
}

#[derive(Default)]
struct Log {
    attempts: u32,
    successes: Vec<u64>,
    troubles: Vec<Trouble>,
    is_over: bool,
}

impl Run {
    pub(super) fn new(
        chain: &Arc<Chain>,
        begun: Moment,
        limit: Option<Duration>,
        max_attempts: Option<u32>,
        shut_down: &Arc<AtomicBool>,
    ) -> Run {
        let deadline = limit.map(|limit| begun + limit);
        let (token, log) = Default::default();
        Run { begun, deadline, max_attempts, token, shut_down: Arc::clone(shut_down), chain: Arc::clone(chain), log }
    }

    /// The operation is started once more. Whether for the first time.
    pub(super) fn attempt_starts(&self, notes: &Notes, attempt: &Attempt) -> bool {
        let mut log = self.log.lock().unwrap();
        log.attempts += 1;
        let (now, attempts) = (notes.now(), log.attempts);
        notes.expect(!log.is_over, || "an attempt of a run that is over");
        notes.expect(!self.token.is_cancelled(), || "an attempt is started after its run was cancelled");
        notes.expect(!self.shut_down.load(Relaxed), || "an attempt is started after the shutdown");
        let left = attempt.remaining();
        notes.expect(left != Some(Duration::ZERO), || format!("{attempt:?} is started at its deadline or after it"));
        notes.expect(self.deadline.is_none_or(|at| now < at), || "an attempt is started after the caller's deadline");
        notes.expect(attempts <= self.chain.most_attempts, || {
            format!("{attempts} attempts, the policies allow {}", self.chain.most_attempts)
        });
        notes.expect(self.max_attempts.is_none_or(|most| attempts <= most), || {
            format!("{attempts} attempts, the caller allows {:?}", self.max_attempts)
        });
        attempts == 1
    }

    pub(super) fn attempt_ends(&self, notes: &Notes) {
        notes.expect(!self.log.lock().unwrap().is_over, || "an operation of a run that is over was polled");
    }

    pub(super) fn succeeds(&self, id: u64) {
        self.log.lock().unwrap().successes.push(id);
    }

    pub(super) fn fails(&self, notes: &Notes, trouble: Trouble) {
        let mut log = self.log.lock().unwrap();
        log.troubles.push(trouble);
        let special = log.troubles.iter().filter(|trouble| trouble.special).count();
        let most = self.chain.most_special;
        notes.expect(most.is_none_or(|most| special <= most as usize), || {
            format!("{special} special errors, not {most:?}")
        });
    }

    /// The caller has dropped it.
    pub(super) fn is_dropped(&self) {
        self.log.lock().unwrap().is_over = true;
    }

    /// It has come to its end.
    pub(super) fn ends(&self, notes: &Notes, result: &Result<u64, Error<Trouble>>) {
        let mut log = self.log.lock().unwrap();
        log.is_over = true;
        let now = notes.now();
        notes.trace(result);
        if let Some(deadline) = self.deadline {
            let latest = notes.latest(deadline);
            notes.expect(now <= latest, || {
                format!("ends at {now:?}, its deadline is {deadline:?}, at the latest {latest:?}")
            });
        }
        match result {
            Ok(id) => {
                notes.expect(log.successes.contains(id), || format!("{id} was never answered: {:?}", log.successes));
            }
            Err(error) => {
                notes.expect(log.successes.is_empty(), || format!("a success was thrown away for {error:?}"));
                self.ends_with(notes, &log, error);
            }
        }
    }

    fn ends_with(&self, notes: &Notes, log: &Log, error: &Error<Trouble>) {
        let (now, kind) = (notes.now(), error.kind());
        notes.expect(error.attempts() == log.attempts, || format!("{} attempts, not {error:?}", log.attempts));
        notes.expect(error.elapsed() <= now.since(self.begun), || format!("it took longer than it could: {error:?}"));
        notes.expect(error.last().is_none_or(|last| log.troubles.contains(last)), || {
            format!("whose error is {error:?}?")
        });
        let is_so = match kind {
            Kind::Failed | Kind::Exhausted { .. } => !log.troubles.is_empty() || error.last().is_none(),
            Kind::Cancelled => self.token.is_cancelled(),
            Kind::DeadlineExceeded => self.deadline.is_some_and(|at| now >= at),
            Kind::ShutDown => self.shut_down.load(Relaxed),
            Kind::Misconfigured => false,
            _ => true,
        };
        notes.expect(is_so, || format!("that is not so: {error:?}"));
        notes.reach(|reached| {
            reached.deadlines += u64::from(kind == Kind::DeadlineExceeded);
            reached.timeouts += u64::from(matches!(kind, Kind::TimedOut { .. }));
            reached.refused += u64::from(kind.is_rejection());
            reached.exhausted += u64::from(matches!(kind, Kind::Exhausted { .. }));
            reached.shut_down += u64::from(kind == Kind::ShutDown);
        });
    }

    pub(super) fn attempts(&self) -> u32 {
        self.log.lock().unwrap().attempts
    }
}
