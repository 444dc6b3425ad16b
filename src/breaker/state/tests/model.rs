//! A breaker of obvious code: it remembers every call of the present closed period and evaluates the rules on every
//! record. Times are nanoseconds.

use super::*;

#[derive(Clone, Debug)]
pub(super) struct Setting {
    pub(super) percent: Option<u64>,
    pub(super) minimum: u64,
    pub(super) buckets: u64,
    pub(super) width: u64,
    pub(super) in_a_row: Option<u64>,
    pub(super) open: u64,
    pub(super) trials: u64,
    pub(super) successes: u64,
    pub(super) deadline: Option<u64>,
    pub(super) release: bool,
}

#[derive(Debug)]
enum Phase {
    Closed { calls: Vec<(u64, bool)>, row: u64 },
    Open { until: u64 },
    HalfOpen { running: u64, successes: u64, without_verdict: u64, expires: u64, not_before: u64 },
}

#[derive(Debug)]
pub(super) struct Model {
    pub(super) setting: Setting,
    phase: Phase,
    era: usize,
    rejected: u64,
    pub(super) log: Vec<(State, State, Cause, Moment)>,
}

/// The era and whether it is a trial.
pub(super) type Admitted = (usize, bool);

impl Model {
    pub(super) fn new(setting: Setting) -> Self {
        let phase = Phase::Closed { calls: Vec::new(), row: 0 };
        Model { setting, phase, era: 0, rejected: 0, log: Vec::new() }
    }

    fn state(&self) -> State {
        match self.phase {
            Phase::Closed { .. } => State::Closed,
            Phase::Open { .. } => State::Open,
            Phase::HalfOpen { .. } => State::HalfOpen,
        }
    }

    fn change(&mut self, phase: Phase, cause: Cause, at: u64) {
        let from = self.state();
        self.phase = phase;
        self.era += 1;
        self.log.push((from, self.state(), cause, Moment::from_nanos(at)));
    }

    fn open(&mut self, cause: Cause, at: u64) {
        let until = at.saturating_add(self.setting.open);
        self.change(Phase::Open { until }, cause, at);
    }

    /// When the half-open period expired.
    fn expiry(&self, now: u64) -> Option<u64> {
        match self.phase {
            Phase::HalfOpen { running, expires, .. } if running >= self.setting.trials && expires <= now => {
                Some(expires)
            }
            _ => None,
        }
    }

    /// The state as it would be after everything that is due, and the open time that is left.
    pub(super) fn outlook(&self, now: u64) -> (State, u64) {
        let until = match (&self.phase, self.expiry(now)) {
            (Phase::Closed { .. }, _) => return (State::Closed, 0),
            (Phase::Open { until }, _) => *until,
            (Phase::HalfOpen { .. }, Some(expiry)) => expiry + self.setting.open,
            (Phase::HalfOpen { .. }, None) => return (State::HalfOpen, 0),
        };
        if until > now { (State::Open, (until - now).min(self.setting.open)) } else { (State::HalfOpen, 0) }
    }

    pub(super) fn acquire(&mut self, now: u64, inner_limit: Option<u64>) -> Result<Admitted, Option<u64>> {
        if let Some(expiry) = self.expiry(now) {
            self.open(Cause::TrialExpired, expiry);
        }
        if let Phase::Open { until } = self.phase {
            if until > now {
                self.rejected += 1;
                return Err(Some((until - now).min(self.setting.open)));
            }
            let period = Phase::HalfOpen { running: 0, successes: 0, without_verdict: 0, expires: 0, not_before: 0 };
            self.change(period, Cause::OpenTimeOver, now);
        }
        let Phase::HalfOpen { running, expires, not_before, .. } = &mut self.phase else {
            return Ok((self.era, false));
        };
        if *not_before > now {
            self.rejected += 1;
            return Err(Some((*not_before - now).min(self.setting.open)));
        }
        if *running >= self.setting.trials {
            self.rejected += 1;
            return Err(None);
        }
        let asked = self.setting.deadline.unwrap_or(self.setting.open);
        let time = inner_limit.map_or(asked, |limit| asked.max(limit + 1_000_000_000));
        *running += 1;
        *expires = (*expires).max(now + time);
        Ok((self.era, true))
    }

    pub(super) fn settle(&mut self, (era, trial): Admitted, end: End, now: u64) {
        if era != self.era {
            return;
        }
        if !trial {
            return self.record(end, now);
        }
        let Setting { open, trials, successes: needed, release, .. } = self.setting;
        let Phase::HalfOpen { running, successes, without_verdict, not_before, .. } = &mut self.phase else {
            unreachable!("a trial of the present era");
        };
        *running -= 1;
        match end {
            End::Success => {
                *successes += 1;
                if *successes == needed {
                    self.change(Phase::Closed { calls: Vec::new(), row: 0 }, Cause::TrialsSucceeded, now);
                }
                return;
            }
            End::Failure => return self.open(Cause::TrialFailed, now),
            End::Abandoned if !release => return self.open(Cause::TrialAbandoned, now),
            End::Throttled(Some(wait)) if !wait.is_zero() => {
                *not_before = (*not_before).max(now + open.min(wait.as_nanos() as u64));
            }
            End::Throttled(_) | End::Nothing | End::Abandoned => {}
        }
        *without_verdict += 1;
        if *without_verdict > 10 * trials {
            self.open(Cause::TrialsWithoutVerdict, now);
        }
    }

    pub(super) fn record(&mut self, end: End, now: u64) {
        let failed = match end {
            End::Success => false,
            End::Failure => true,
            _ => return,
        };
        let Setting { percent, minimum, in_a_row, buckets, width, .. } = self.setting;
        let Phase::Closed { calls, row } = &mut self.phase else {
            return;
        };
        let bucket = now / width;
        let moved_on =
            |&(other, kind): &(u64, bool)| kind == failed && other > bucket && other % buckets == bucket % buckets;
        if percent.is_some() && !calls.iter().any(moved_on) {
            calls.push((bucket, failed));
        }
        if in_a_row.is_some() {
            *row = if failed { *row + 1 } else { 0 };
        }
        if in_a_row.is_some_and(|most| *row >= most) {
            return self.open(Cause::ConsecutiveFailures, now);
        }
        let (calls, failures) = self.window(now);
        if percent.is_some_and(|percent| calls >= minimum && failures * 100 >= percent * calls) {
            self.open(Cause::FailureRate, now);
        }
    }

    /// The calls and failures in the window that ends now, or with the latest call if the clock stepped back.
    fn window(&self, now: u64) -> (u64, u64) {
        let Phase::Closed { calls, .. } = &self.phase else {
            return (0, 0);
        };
        let latest = calls.iter().map(|call| call.0).fold(now / self.setting.width, u64::max);
        let inside = calls.iter().filter(|call| call.0 + self.setting.buckets > latest);
        (inside.clone().count() as u64, inside.filter(|call| call.1).count() as u64)
    }

    pub(super) fn counts(&self, now: u64) -> Counts {
        let rejected = self.rejected;
        match self.phase {
            Phase::Closed { row, .. } => {
                let (calls, failures) = self.window(now);
                Counts { calls, failures, consecutive_failures: row, consecutive_successes: 0, rejected }
            }
            Phase::Open { .. } => Counts { rejected, ..Counts::default() },
            Phase::HalfOpen { successes, .. } => {
                Counts { calls: successes, consecutive_successes: successes, rejected, ..Counts::default() }
            }
        }
    }
}
