//! A breaker as plain code: nothing is packed, nothing is lazy, every rule is evaluated on every record, and the calls of
//! a window are a list.

use super::*;
use crate::rng::Rng;
use crate::verdict::Verdict;

/// All settings, in plain numbers: percentages, and times in nanoseconds.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Setting {
    pub(super) percent: Option<u64>,
    pub(super) slow_percent: Option<u64>,
    /// So many failures in the window trip, by a predicate.
    pub(super) most_failures: Option<u64>,
    pub(super) minimum: u64,
    pub(super) buckets: u64,
    pub(super) width: u64,
    /// The window of calls: its size, its percentage and its minimum.
    pub(super) of_calls: Option<(u64, u64, u64)>,
    pub(super) in_a_row: Option<u64>,
    pub(super) open: u64,
    /// The factor and the cap.
    pub(super) backoff: Option<(u64, u64)>,
    pub(super) jitter: f64,
    pub(super) trials: u64,
    pub(super) successes: u64,
    /// How many trials, and which percentage of failures re-opens.
    pub(super) trial_percent: Option<(u64, u64)>,
    pub(super) deadline: Option<u64>,
    pub(super) release: Option<bool>,
    pub(super) pause: Option<u64>,
    pub(super) throttled_as: Option<Verdict>,
}

impl Setting {
    pub(super) fn has_window(&self) -> bool {
        self.percent.is_some() || self.slow_percent.is_some() || self.most_failures.is_some()
    }

    /// What must not change under a breaker.
    pub(super) fn windows(&self) -> (Option<(u64, u64)>, Option<u64>) {
        (self.has_window().then_some((self.buckets, self.width)), self.of_calls.map(|of_calls| of_calls.0))
    }

    fn healthy(&self) -> u64 {
        if self.has_window() { self.buckets * self.width } else { self.open }
    }

    fn releases(&self) -> bool {
        self.release.unwrap_or(self.trial_percent.is_some())
    }
}

#[derive(Debug)]
enum Phase {
    Closed(Window),
    Open { until: u64, span: u64 },
    HalfOpen(Period),
    Isolated,
    Disabled,
    MetricsOnly(Window),
}

#[derive(Debug, Default)]
struct Window {
    /// The bucket and what happened, for each record.
    calls: Vec<(u64, Happened)>,
    /// Whether it failed, for each of all the calls.
    all: Vec<bool>,
    row: u64,
    /// Until when, and for how long it was meant to be.
    pause: Option<(u64, u64)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Happened {
    Success,
    Failure,
    Slow,
    GivenUp,
}

#[derive(Debug, Default)]
struct Period {
    running: u64,
    verdicts: Vec<bool>,
    without: u64,
    expires: u64,
    not_before: u64,
}

#[derive(Debug)]
pub(super) struct Model {
    pub(super) setting: Setting,
    phase: Phase,
    era: usize,
    rejected: u64,
    openings: u32,
    closed_since: Option<u64>,
    rng: Rng,
    draw: f64,
    pub(super) log: Vec<(State, State, Cause, Moment, Option<Duration>)>,
}

/// The era, whether it is a trial, and whether its call is counted at all.
pub(super) type Admitted = (usize, bool, bool);

/// For how long, and whether it is a pause.
pub(super) type Refusal = (Option<u64>, bool);

#[derive(Clone, Copy, Debug)]
pub(super) enum Command {
    ForceOpen,
    ForceClose,
    Reset,
    Isolate,
    Disable,
    MetricsOnly,
    Release,
}

impl Model {
    pub(super) fn new(setting: Setting, seed: u64) -> Self {
        let rng = Rng::seeded(seed);
        let mut model = Model {
            setting,
            phase: Phase::Closed(Window::default()),
            era: 0,
            rejected: 0,
            openings: 0,
            closed_since: None,
            draw: 0.0,
            rng,
            log: Vec::new(),
        };
        model.draw_jitter();
        model
    }

    fn draw_jitter(&mut self) {
        self.draw = self.rng.unit();
    }

    fn state(&self) -> State {
        match self.phase {
            Phase::Closed(_) => State::Closed,
            Phase::Open { .. } => State::Open,
            Phase::HalfOpen(_) => State::HalfOpen,
            Phase::Isolated => State::Isolated,
            Phase::Disabled => State::Disabled,
            Phase::MetricsOnly(_) => State::MetricsOnly,
        }
    }

    fn change(&mut self, phase: Phase, cause: Cause, at: u64, now: u64) {
        let from = self.state();
        let span = if let Phase::Open { span, .. } = phase { Some(Duration::from_nanos(span)) } else { None };
        self.phase = phase;
        self.era += 1;
        let to = self.state();
        if from != to {
            self.log.push((from, to, cause, Moment::from_nanos(at), span));
        }
        match self.phase {
            Phase::Closed(_) | Phase::MetricsOnly(_) => self.closed_since = self.closed_since.or(Some(now)),
            _ => self.closed_since = None,
        }
    }

    /// The open time after so many openings in a row.
    fn span(&self, openings: u32) -> u64 {
        let mut span = self.setting.open;
        if let Some((factor, cap)) = self.setting.backoff {
            for _ in 0..openings {
                span = span.saturating_mul(factor).min(cap);
            }
        }
        let seconds = Duration::from_nanos(span).as_secs_f64() * (1.0 - self.setting.jitter * self.draw);
        if self.setting.jitter == 0.0 { span } else { Duration::from_secs_f64(seconds).as_nanos() as u64 }
    }

    /// Openings in a row before one at `at`.
    fn openings_at(&self, at: u64) -> u32 {
        let healthy = self.closed_since.is_some_and(|since| at.saturating_sub(since) >= self.setting.healthy());
        if healthy { 0 } else { self.openings }
    }

    fn open(&mut self, cause: Cause, at: u64, now: u64) {
        self.openings = self.openings_at(at);
        let span = self.span(self.openings);
        self.openings += 1;
        self.draw_jitter();
        self.change(Phase::Open { until: at.saturating_add(span), span }, cause, at, now);
    }

    /// When the half-open period expired.
    fn expiry(&self, now: u64) -> Option<u64> {
        match &self.phase {
            Phase::HalfOpen(period) if period.running > 0 && !self.has_place(period) && period.expires <= now => {
                Some(period.expires)
            }
            _ => None,
        }
    }

    fn has_place(&self, period: &Period) -> bool {
        match self.setting.trial_percent {
            None => period.running < self.setting.trials,
            Some((trials, _)) => period.running + (period.verdicts.len() as u64) < trials,
        }
    }

    /// The state as it would be after everything that is due, and the open time that is left.
    pub(super) fn outlook(&self, now: u64) -> (State, u64) {
        let (until, span) = match (&self.phase, self.expiry(now)) {
            (Phase::Open { until, span }, _) => (*until, *span),
            (Phase::HalfOpen(_), Some(expiry)) => {
                let span = self.span(self.openings_at(expiry));
                (expiry + span, span)
            }
            (Phase::Isolated, _) => return (State::Isolated, u64::MAX),
            _ => return (self.state(), 0),
        };
        if until > now { (State::Open, (until - now).min(span)) } else { (State::HalfOpen, 0) }
    }

    pub(super) fn acquire(&mut self, now: u64, inner_limit: Option<u64>) -> Result<Admitted, Refusal> {
        let answer = self.admit(now, inner_limit);
        self.rejected += u64::from(answer.is_err());
        answer
    }

    fn admit(&mut self, now: u64, inner_limit: Option<u64>) -> Result<Admitted, Refusal> {
        if let Some(expiry) = self.expiry(now) {
            self.open(Cause::TrialExpired, expiry, now);
        } else {
            // Thresholds may have changed since the last verdict.
            self.decide(now);
        }
        if let Phase::Open { until, span } = self.phase {
            if until > now {
                return Err((Some((until - now).min(span)), false));
            }
            self.change(Phase::HalfOpen(Period::default()), Cause::OpenTimeOver, now, now);
        }
        let time = self.setting.deadline.unwrap_or(self.setting.open);
        let time = inner_limit.map_or(time, |limit| time.max(limit + 1_000_000_000));
        let open = self.setting.open;
        let has_place = matches!(&self.phase, Phase::HalfOpen(period) if self.has_place(period));
        match &mut self.phase {
            Phase::Isolated => Err((None, false)),
            Phase::Disabled => Ok((self.era, false, false)),
            Phase::Closed(window) => match window.pause {
                Some((until, span)) if until > now => Err((Some((until - now).min(span)), true)),
                _ => {
                    window.pause = None;
                    Ok((self.era, false, true))
                }
            },
            Phase::HalfOpen(period) if period.not_before > now => {
                Err((Some((period.not_before - now).min(open)), false))
            }
            Phase::HalfOpen(_) if !has_place => Err((None, false)),
            Phase::HalfOpen(period) => {
                period.running += 1;
                period.expires = period.expires.max(now + time);
                Ok((self.era, true, true))
            }
            Phase::MetricsOnly(_) | Phase::Open { .. } => Ok((self.era, false, true)),
        }
    }

    /// Whether what the trials said so far is enough.
    fn decide(&mut self, now: u64) {
        let Phase::HalfOpen(period) = &self.phase else { return };
        let failures = period.verdicts.iter().filter(|&&failed| failed).count() as u64;
        let successes = period.verdicts.len() as u64 - failures;
        let (reopens, closes) = match self.setting.trial_percent {
            None => (failures > 0, successes >= self.setting.successes),
            Some((trials, percent)) => {
                let reopens = |failures: u64| failures * 100 >= percent * trials;
                (reopens(failures), !reopens(trials.saturating_sub(successes)))
            }
        };
        if reopens {
            self.open(Cause::TrialFailed, now, now);
        } else if closes {
            self.change(Phase::Closed(Window::default()), Cause::TrialsSucceeded, now, now);
        }
    }

    pub(super) fn settle(&mut self, (era, trial, counted): Admitted, end: End, slow: bool, now: u64) {
        if era != self.era || !counted {
            return;
        }
        if !trial {
            return self.count(end, slow, now);
        }
        let slow = slow && end == End::Success;
        let (open, releases) = (self.setting.open, self.setting.releases());
        let most_without = 10 * self.setting.trial_percent.map_or(self.setting.trials, |(trials, _)| trials);
        let end = self.counts_as(end);
        let Phase::HalfOpen(period) = &mut self.phase else {
            unreachable!("a trial of the present era");
        };
        period.running -= 1;
        match end {
            End::Success | End::Failure => {
                period.verdicts.push(slow || end == End::Failure);
                return self.decide(now);
            }
            End::Abandoned if !releases => return self.open(Cause::TrialAbandoned, now, now),
            End::Throttled(Some(wait)) if !wait.is_zero() => {
                period.not_before = period.not_before.max(now + open.min(wait.as_nanos() as u64));
            }
            End::Throttled(_) | End::Nothing | End::Abandoned | End::LostRace => {}
        }
        period.without += 1;
        if period.without > most_without {
            self.open(Cause::TrialsWithoutVerdict, now, now);
        }
    }

    fn counts_as(&self, end: End) -> End {
        match (end, self.setting.throttled_as) {
            (End::Throttled(_), Some(verdict)) => End::of(verdict),
            _ => end,
        }
    }

    pub(super) fn record(&mut self, end: End, now: u64) {
        self.count(end, false, now);
    }

    fn count(&mut self, end: End, slow: bool, now: u64) {
        let counted = self.counts_as(end);
        let pause = self.setting.pause;
        let era = self.era;
        match counted {
            End::Success | End::Failure => {
                // How long a throttled call took says nothing.
                let slow = slow && counted == end;
                self.count_verdict(counted == End::Failure, slow, now);
            }
            End::Abandoned | End::LostRace if slow && self.setting.has_window() => {
                self.put(Happened::GivenUp, now);
                self.evaluate(now);
            }
            _ => {}
        }
        let Phase::Closed(window) = &mut self.phase else { return };
        if let (End::Throttled(Some(wait)), Some(most), true) = (end, pause, era == self.era) {
            let span = most.min(wait.as_nanos() as u64);
            if !wait.is_zero() && window.pause.is_none_or(|(until, _)| now + span > until) {
                window.pause = Some((now + span, span));
            }
        }
    }

    fn count_verdict(&mut self, failed: bool, slow: bool, now: u64) {
        let Some(window) = self.window_mut() else { return };
        window.all.push(failed);
        window.row = if failed { window.row + 1 } else { 0 };
        if self.setting.has_window() {
            let happened = if failed { Happened::Failure } else { Happened::Success };
            if self.put(happened, now) && slow {
                self.put(Happened::Slow, now);
            }
        }
        self.evaluate(now);
    }

    fn window(&self) -> Option<&Window> {
        match &self.phase {
            Phase::Closed(window) | Phase::MetricsOnly(window) => Some(window),
            _ => None,
        }
    }

    fn window_mut(&mut self) -> Option<&mut Window> {
        match &mut self.phase {
            Phase::Closed(window) | Phase::MetricsOnly(window) => Some(window),
            _ => None,
        }
    }

    /// Puts a record into its bucket, unless that has moved on.
    fn put(&mut self, happened: Happened, now: u64) -> bool {
        let Setting { buckets, width, .. } = self.setting;
        let bucket = now / width;
        let Some(window) = self.window_mut() else { return false };
        let moved_on = |&(other, kind): &(u64, Happened)| {
            kind == happened && other > bucket && other % buckets == bucket % buckets
        };
        let fits = !window.calls.iter().any(moved_on);
        if fits {
            window.calls.push((bucket, happened));
        }
        fits
    }

    fn evaluate(&mut self, now: u64) {
        if !matches!(self.phase, Phase::Closed(_)) {
            return;
        }
        let counts = self.counts_of_window(now);
        let Setting { percent, slow_percent, most_failures, minimum, in_a_row, of_calls, .. } = self.setting;
        let timed = counts.calls + counts.slow_given_up;
        let (all, failed) = self.last_calls();
        let cause = if in_a_row.is_some_and(|most| self.window().is_some_and(|window| window.row >= most)) {
            Cause::ConsecutiveFailures
        } else if percent.is_some_and(|least| counts.calls >= minimum && counts.failures * 100 >= least * counts.calls)
        {
            Cause::FailureRate
        } else if slow_percent.is_some_and(|least| timed >= minimum && counts.slow * 100 >= least * timed) {
            Cause::SlowRate
        } else if most_failures.is_some_and(|most| counts.failures >= most) {
            Cause::ShouldTrip
        } else if of_calls.is_some_and(|(_, least, minimum)| all >= minimum && failed * 100 >= least * all) {
            Cause::FailureRate
        } else {
            return;
        };
        self.open(cause, now, now);
    }

    /// Of the window of calls: how many, and how many of them failed.
    fn last_calls(&self) -> (u64, u64) {
        let (Some((size, ..)), Some(window)) = (self.setting.of_calls, self.window()) else { return (0, 0) };
        let last = &window.all[window.all.len().saturating_sub(size as usize)..];
        (last.len() as u64, last.iter().filter(|&&failed| failed).count() as u64)
    }

    /// What is in the window that ends now, or with the latest record if the clock stepped back.
    fn counts_of_window(&self, now: u64) -> Counts {
        let Some(window) = self.window() else { return Counts::default() };
        let latest = window.calls.iter().map(|call| call.0).fold(now / self.setting.width, u64::max);
        let count = |wanted: Happened| {
            let inside = |&&(bucket, kind): &&(u64, Happened)| kind == wanted && bucket + self.setting.buckets > latest;
            window.calls.iter().filter(inside).count() as u64
        };
        let (failures, given_up) = (count(Happened::Failure), count(Happened::GivenUp));
        let calls = failures + count(Happened::Success);
        let slow = count(Happened::Slow) + given_up;
        Counts { calls, failures, slow, slow_given_up: given_up, ..Counts::default() }
    }

    pub(super) fn counts(&self, now: u64) -> Counts {
        let counts = match &self.phase {
            Phase::Closed(window) | Phase::MetricsOnly(window) => {
                let row = if self.setting.in_a_row.is_some() { window.row } else { 0 };
                let counts = if self.setting.has_window() {
                    self.counts_of_window(now)
                } else {
                    let (calls, failures) = self.last_calls();
                    Counts { calls, failures, ..Counts::default() }
                };
                Counts { consecutive_failures: row, ..counts }
            }
            Phase::HalfOpen(period) => {
                let failures = period.verdicts.iter().filter(|&&failed| failed).count() as u64;
                let in_a_row = |wanted| period.verdicts.iter().rev().take_while(|&&failed| failed == wanted).count();
                Counts {
                    calls: period.verdicts.len() as u64,
                    failures,
                    consecutive_failures: in_a_row(true) as u64,
                    consecutive_successes: in_a_row(false) as u64,
                    ..Counts::default()
                }
            }
            Phase::Open { .. } | Phase::Isolated | Phase::Disabled => Counts::default(),
        };
        Counts { rejected: self.rejected, ..counts }
    }

    pub(super) fn obey(&mut self, command: Command, now: u64) {
        let by_hand = matches!(self.phase, Phase::Isolated | Phase::Disabled | Phase::MetricsOnly(_));
        let fresh = || Phase::Closed(Window::default());
        match (command, &self.phase) {
            (Command::Release, _) if by_hand => self.change(fresh(), Cause::Released, now, now),
            (Command::Release, _) | (_, Phase::Isolated) => {}
            (Command::ForceOpen, Phase::Open { .. }) => {
                let span = self.span(self.openings - 1);
                self.draw_jitter();
                self.phase = Phase::Open { until: now.saturating_add(span), span };
            }
            (Command::ForceOpen, _) => self.open(Cause::ForcedOpen, now, now),
            (Command::ForceClose, _) => self.change(fresh(), Cause::ForcedClosed, now, now),
            (Command::Reset, _) => {
                self.change(fresh(), Cause::Reset, now, now);
                (self.openings, self.rejected) = (0, 0);
            }
            (Command::Isolate, _) => self.change(Phase::Isolated, Cause::Isolated, now, now),
            (Command::Disable, Phase::Disabled) | (Command::MetricsOnly, Phase::MetricsOnly(_)) => {}
            (Command::Disable, _) => self.change(Phase::Disabled, Cause::Disabled, now, now),
            (Command::MetricsOnly, _) => {
                self.change(Phase::MetricsOnly(Window::default()), Cause::MetricsOnly, now, now);
            }
        }
    }

    /// Whether the settings were taken.
    pub(super) fn reconfigure(&mut self, next: Setting) -> bool {
        let fits = next.windows() == self.setting.windows();
        if fits {
            if self.setting.in_a_row.is_none()
                && let Some(window) = self.window_mut()
            {
                // Without the rule nothing was counted for it.
                window.row = 0;
            }
            self.setting = next;
        }
        fits
    }
}
