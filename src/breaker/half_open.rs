use std::time::Duration;

use super::config::BreakerConfig;
use super::thresholds::reached;
use super::ticket::End;
use super::transition::{Cause, Counts};
use crate::clock::Moment;

/// One half-open period: who may try, and what the trials say. Pure decisions; the owner holds the lock and makes the
/// changes of state.
#[derive(Debug)]
pub(super) struct HalfOpen {
    in_flight: u32,
    successes: u32,
    failures: u32,
    successes_in_a_row: u32,
    failures_in_a_row: u32,
    without_verdict: u32,
    /// When the last of the trials granted so far has had its time.
    expires: Moment,
    /// No trial before this, as a throttled one was told.
    not_before: Moment,
}

/// What a half-open breaker answers to a call.
#[derive(Debug, PartialEq)]
pub(super) enum Admission {
    /// It is a trial and holds a place.
    Trial,
    /// It is refused, and if something is known, for how long.
    Refused(Option<Duration>),
    /// The trials in flight had no verdict by then: re-open.
    Expired(Moment),
    /// With thresholds that were changed since, what the trials said is enough: make that change first.
    Decided(Step),
}

/// What the end of a trial means for the breaker.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Step {
    Stay,
    Close,
    Reopen(Cause),
}

impl HalfOpen {
    pub(super) fn new() -> Self {
        let start = Moment::from_nanos(0);
        HalfOpen {
            in_flight: 0,
            successes: 0,
            failures: 0,
            successes_in_a_row: 0,
            failures_in_a_row: 0,
            without_verdict: 0,
            expires: start,
            not_before: start,
        }
    }

    /// Admits a call as a trial if a place is free.
    pub(super) fn admit(&mut self, config: &BreakerConfig, now: Moment) -> Admission {
        if let Some(expiry) = self.expired(config, now) {
            return Admission::Expired(expiry);
        }
        match self.verdict(config) {
            Step::Stay => {}
            decided => return Admission::Decided(decided),
        }
        if self.not_before > now {
            return Admission::Refused(Some(self.not_before.since(now).min(config.open_for)));
        }
        if !self.has_place(config) {
            return Admission::Refused(None);
        }
        self.in_flight += 1;
        self.extend(now + config.time_for_trial(None));
        Admission::Trial
    }

    /// Lets the period expire no earlier than `moment`.
    pub(super) fn extend(&mut self, moment: Moment) {
        self.expires = self.expires.max(moment);
    }

    /// When the period expired, if it has: all places are taken and each trial has had its time.
    pub(super) fn expired(&self, config: &BreakerConfig, now: Moment) -> Option<Moment> {
        let waits = self.in_flight > 0 && !self.has_place(config);
        (waits && now >= self.expires).then_some(self.expires)
    }

    /// Takes in how a trial of this period ended.
    pub(super) fn settle(&mut self, config: &BreakerConfig, end: End, now: Moment) -> Step {
        self.in_flight = self.in_flight.saturating_sub(1);
        match end {
            End::Success => {
                self.successes = self.successes.saturating_add(1);
                self.successes_in_a_row = self.successes_in_a_row.saturating_add(1);
                self.failures_in_a_row = 0;
                self.verdict(config)
            }
            End::Failure => {
                self.failures = self.failures.saturating_add(1);
                self.failures_in_a_row = self.failures_in_a_row.saturating_add(1);
                self.successes_in_a_row = 0;
                self.verdict(config)
            }
            End::Nothing | End::LostRace => self.place_back(config),
            End::Throttled(wait) => {
                // A wait of nothing is none, even for a clock that steps back.
                if let Some(wait) = wait.filter(|wait| !wait.is_zero()) {
                    self.not_before = self.not_before.max(now + wait.min(config.open_for));
                }
                self.place_back(config)
            }
            End::Abandoned if config.releases_abandoned_trials() => self.place_back(config),
            End::Abandoned => Step::Reopen(Cause::TrialAbandoned),
        }
    }

    /// What the trials have said so far. A share of them decides as soon as those that are missing cannot change it.
    fn verdict(&self, config: &BreakerConfig) -> Step {
        let Some(share) = config.trial_rate else {
            return if self.failures > 0 {
                Step::Reopen(Cause::TrialFailed)
            } else if self.successes >= config.successes_to_close {
                Step::Close
            } else {
                Step::Stay
            };
        };
        let most_failures = share.trials.saturating_sub(self.successes);
        if reached(u64::from(self.failures), u64::from(share.trials), share.rate) {
            Step::Reopen(Cause::TrialFailed)
        } else if !reached(u64::from(most_failures), u64::from(share.trials), share.rate) {
            Step::Close
        } else {
            Step::Stay
        }
    }

    /// Whether another trial may run. With a share to find out, one that has a verdict keeps its place.
    fn has_place(&self, config: &BreakerConfig) -> bool {
        match config.trial_rate {
            None => self.in_flight < config.trials,
            Some(share) => self.in_flight.saturating_add(self.successes).saturating_add(self.failures) < share.trials,
        }
    }

    pub(super) fn has_trials(&self) -> bool {
        self.in_flight > 0
    }

    pub(super) fn counts(&self) -> Counts {
        let (successes, failures) = (u64::from(self.successes), u64::from(self.failures));
        Counts {
            calls: successes + failures,
            failures,
            consecutive_failures: u64::from(self.failures_in_a_row),
            consecutive_successes: u64::from(self.successes_in_a_row),
            ..Counts::default()
        }
    }

    /// The place is free already; a period with too many such ends is given up.
    fn place_back(&mut self, config: &BreakerConfig) -> Step {
        self.without_verdict = self.without_verdict.saturating_add(1);
        if self.without_verdict > config.tolerated_without_verdict() {
            return Step::Reopen(Cause::TrialsWithoutVerdict);
        }
        Step::Stay
    }
}

#[cfg(all(test, not(steadfast_loom)))]
mod tests {
    use super::*;
    use crate::breaker::config::AbandonedTrial;

    const OPEN_TIME: Duration = Duration::from_secs(30);

    fn seconds(count: u64) -> Moment {
        Moment::from_nanos(0) + Duration::from_secs(count)
    }

    fn config() -> BreakerConfig {
        BreakerConfig::default().open_for(OPEN_TIME)
    }

    /// A period with `count` trials, granted one second after the other from second 100 on.
    fn trials(config: &BreakerConfig, count: u64) -> HalfOpen {
        let mut period = HalfOpen::new();
        for number in 0..count {
            assert_eq!(period.admit(config, seconds(100 + number)), Admission::Trial);
        }
        period
    }

    #[test]
    fn as_many_trials_run_as_there_are_places() {
        let config = config().trials(3);
        let mut period = trials(&config, 3);
        assert_eq!(period.admit(&config, seconds(103)), Admission::Refused(None));
        assert_eq!(period.settle(&config, End::Nothing, seconds(104)), Step::Stay);
        assert_eq!(period.admit(&config, seconds(104)), Admission::Trial);
        assert_eq!(period.admit(&config, seconds(104)), Admission::Refused(None));
    }

    #[test]
    fn the_last_success_that_is_needed_closes() {
        let config = config().successes_to_close(2);
        let mut period = trials(&config, 1);
        assert_eq!(period.settle(&config, End::Success, seconds(101)), Step::Stay);
        assert_eq!(period.admit(&config, seconds(101)), Admission::Trial);
        assert_eq!(period.settle(&config, End::Success, seconds(102)), Step::Close);
        assert_eq!(period.counts(), Counts { calls: 2, consecutive_successes: 2, ..Counts::default() });
    }

    #[test]
    fn a_failure_reopens_whatever_came_before() {
        let config = config().trials(2).successes_to_close(2);
        let mut period = trials(&config, 2);
        period.settle(&config, End::Success, seconds(102));
        assert_eq!(period.settle(&config, End::Failure, seconds(102)), Step::Reopen(Cause::TrialFailed));
        let counts = Counts { calls: 2, failures: 1, consecutive_failures: 1, ..Counts::default() };
        assert_eq!(period.counts(), counts);
    }

    #[test]
    fn a_period_expires_when_its_last_trial_has_had_its_time() {
        let config = config().trials(2);
        let period = trials(&config, 2);
        assert_eq!(period.expired(&config, seconds(130)), None);
        assert_eq!(period.expired(&config, seconds(131)), Some(seconds(131)));
    }

    #[test]
    fn a_period_with_a_free_place_does_not_expire() {
        let config = config().trials(2);
        let mut period = trials(&config, 1);
        assert_eq!(period.expired(&config, seconds(1_000)), None);
        assert_eq!(period.admit(&config, seconds(1_000)), Admission::Trial);
        assert_eq!(period.expired(&config, seconds(1_030)), Some(seconds(1_030)));
    }

    #[test]
    fn a_throttled_trial_keeps_others_away_for_as_long_as_asked() {
        let config = config();
        let mut period = trials(&config, 1);
        let asked = Some(Duration::from_secs(7));
        assert_eq!(period.settle(&config, End::Throttled(asked), seconds(101)), Step::Stay);
        let left = Some(Duration::from_secs(6));
        assert_eq!(period.admit(&config, seconds(102)), Admission::Refused(left));
        assert_eq!(period.admit(&config, seconds(108)), Admission::Trial);
    }

    #[test]
    fn a_throttled_trial_keeps_others_away_for_the_open_time_at_most() {
        let config = config();
        let mut period = trials(&config, 1);
        period.settle(&config, End::Throttled(Some(Duration::MAX)), seconds(101));
        assert_eq!(period.admit(&config, seconds(101)), Admission::Refused(Some(OPEN_TIME)));
        assert_eq!(period.admit(&config, seconds(131)), Admission::Trial);
    }

    #[test]
    fn a_throttled_trial_without_a_delay_keeps_nobody_away() {
        let config = config();
        let mut period = trials(&config, 1);
        period.settle(&config, End::Throttled(None), seconds(101));
        assert_eq!(period.admit(&config, seconds(101)), Admission::Trial);
    }

    /// What the trials say, one after the other; the last word, and after how many.
    fn decided(config: &BreakerConfig, trials: &str) -> (Step, usize) {
        let mut period = HalfOpen::new();
        for (number, end) in trials.chars().enumerate() {
            assert_eq!(period.admit(config, seconds(100)), Admission::Trial);
            let end = if end == 'S' { End::Success } else { End::Failure };
            match period.settle(config, end, seconds(100)) {
                Step::Stay => {}
                step => return (step, number + 1),
            }
        }
        (Step::Stay, trials.len())
    }

    /// The half-open lines of failsafe's suite, with the share of failures that re-opens.
    #[test]
    fn a_share_of_the_trials_decides_as_soon_as_it_can() {
        let reopen = Step::Reopen(Cause::TrialFailed);
        let share = |trials, rate| config().trial_rate(trials, rate);
        for (trials, rate, ends, expected) in [
            (3, 2.0 / 3.0, "FS", Step::Stay),
            (3, 2.0 / 3.0, "FSF", reopen),
            (3, 2.0 / 3.0, "FSS", Step::Close),
            (3, 2.0 / 3.0, "SS", Step::Close),
            (4, 0.5, "SFS", Step::Stay),
            (4, 0.5, "SFSF", reopen),
            (4, 0.5, "SFSS", Step::Close),
            (4, 0.75, "FSF", Step::Stay),
            (4, 0.75, "FSFF", reopen),
            (10, 0.5, "FFFFSSSSSS", Step::Close),
            (10, 0.5, "FFFFF", reopen),
            (1, 1.0, "F", reopen),
        ] {
            let (step, after) = decided(&share(trials, rate), ends);
            assert_eq!((step, after), (expected, ends.len()), "{ends} of {trials} at {rate}");
        }
    }

    #[test]
    fn under_a_share_trials_without_a_verdict_are_replaced() {
        let config = config().trial_rate(10, 0.5);
        let mut period = trials(&config, 10);
        assert_eq!(period.admit(&config, seconds(110)), Admission::Refused(None));
        assert_eq!(period.settle(&config, End::Abandoned, seconds(110)), Step::Stay);
        assert_eq!(period.settle(&config, End::Nothing, seconds(110)), Step::Stay);
        for _ in 0..5 {
            assert_eq!(period.settle(&config, End::Success, seconds(110)), Step::Stay);
        }
        assert_eq!(period.admit(&config, seconds(110)), Admission::Trial);
        assert_eq!(period.admit(&config, seconds(110)), Admission::Trial);
        assert_eq!(period.admit(&config, seconds(110)), Admission::Refused(None));
        assert_eq!(period.settle(&config, End::Success, seconds(110)), Step::Close);
    }

    #[test]
    fn thresholds_that_were_lowered_meanwhile_decide_with_the_next_call() {
        let before = config().successes_to_close(5);
        let mut period = trials(&before, 1);
        assert_eq!(period.settle(&before, End::Success, seconds(101)), Step::Stay);
        let after = config().successes_to_close(1);
        assert_eq!(period.admit(&after, seconds(102)), Admission::Decided(Step::Close));
    }

    #[test]
    fn an_abandoned_trial_does_what_the_setting_says() {
        let reopen = Step::Reopen(Cause::TrialAbandoned);
        for (then, step) in [(AbandonedTrial::Reopen, reopen), (AbandonedTrial::Release, Step::Stay)] {
            let config = config().abandoned_trial(then);
            assert_eq!(trials(&config, 1).settle(&config, End::Abandoned, seconds(101)), step);
        }
    }

    #[test]
    fn the_eleventh_end_without_a_verdict_reopens() {
        let config = config().abandoned_trial(AbandonedTrial::Release);
        for end in [End::Nothing, End::Throttled(None), End::Abandoned] {
            let mut period = trials(&config, 1);
            for _ in 0..10 {
                assert_eq!(period.settle(&config, end, seconds(101)), Step::Stay);
                assert_eq!(period.admit(&config, seconds(101)), Admission::Trial);
            }
            let given_up = Step::Reopen(Cause::TrialsWithoutVerdict);
            assert_eq!(period.settle(&config, end, seconds(101)), given_up);
        }
    }
}
