mod cases;
mod histories;
mod listening;
mod model;

use super::*;
use crate::breaker::config::AbandonedTrial;
use crate::breaker::rule::TripRule;
use crate::breaker::transition::{Counts, State};

const OPEN_TIME: Duration = Duration::from_secs(30);

/// `millis` after the origin of the clock.
fn at(millis: u64) -> Moment {
    Moment::from_nanos(millis * 1_000_000)
}

/// Opens for 30 s after `failures` in a row.
fn consecutive(failures: u32) -> BreakerConfig {
    BreakerConfig::default().rule(TripRule::consecutive(failures)).open_for(OPEN_TIME)
}

/// Opens for 30 s when half of `minimum_calls` within ten seconds failed.
fn rate(minimum_calls: u32) -> BreakerConfig {
    let rule = TripRule::failure_rate(0.5).minimum_calls(minimum_calls);
    BreakerConfig::default().rule(rule).open_for(OPEN_TIME)
}

fn breaker(config: BreakerConfig) -> Core {
    Core::new(Arc::new(Family::new(config, false)), None)
}

fn acquire(core: &Core, now: Moment) -> Result<Ticket, Refused> {
    core.try_acquire(|| now, || None)
}

/// A call that is admitted and ends at once.
#[track_caller]
fn call(core: &Core, end: End, now: Moment) {
    let ticket = acquire(core, now).expect("admitted");
    core.settle(ticket, end, now);
}

/// A breaker that opened at zero and has its first trial running since the end of the open time.
fn with_trial(config: BreakerConfig) -> (Core, Ticket) {
    let core = breaker(config);
    call(&core, End::Failure, at(0));
    let trial = acquire(&core, at(30_000)).expect("due");
    assert!(trial.is_trial());
    (core, trial)
}

fn refused(retry_after: Option<Duration>) -> Result<Ticket, Refused> {
    Err(Refused { retry_after, is_pause: false })
}

#[test]
fn a_closed_breaker_counts_successes_and_failures() {
    let core = breaker(rate(20));
    for end in [End::Success, End::Success, End::Failure] {
        call(&core, end, at(0));
    }
    let counts = core.counts(at(0));
    assert_eq!((counts.calls, counts.failures, counts.rate()), (3, 1, Some(1.0 / 3.0)));
}

#[test]
fn a_closed_breaker_does_not_count_what_says_nothing() {
    let core = breaker(rate(1).rule(TripRule::default().minimum_calls(1).or(TripRule::consecutive(1))));
    for end in [End::Nothing, End::Throttled(Some(OPEN_TIME)), End::Throttled(None), End::Abandoned] {
        call(&core, end, at(0));
    }
    assert_eq!(core.state(at(0)), State::Closed);
    assert_eq!(core.counts(at(0)), Counts::default());
}

#[test]
fn the_rate_rule_opens_with_the_failure_that_reaches_the_share() {
    let core = breaker(rate(20));
    (0..10).for_each(|_| call(&core, End::Success, at(0)));
    (0..9).for_each(|_| call(&core, End::Failure, at(0)));
    assert_eq!(core.state(at(0)), State::Closed);
    call(&core, End::Failure, at(0));
    assert_eq!(core.state(at(0)), State::Open);
}

#[test]
fn the_rate_rule_opens_with_the_success_that_reaches_the_minimum() {
    let core = breaker(rate(20));
    (0..10).for_each(|_| call(&core, End::Failure, at(0)));
    (0..9).for_each(|_| call(&core, End::Success, at(0)));
    assert_eq!(core.state(at(0)), State::Closed);
    call(&core, End::Success, at(0));
    assert_eq!(core.state(at(0)), State::Open);
}

#[test]
fn the_rate_rule_opens_when_old_successes_leave_the_window() {
    let core = breaker(rate(4));
    (0..5).for_each(|_| call(&core, End::Success, at(0)));
    (0..4).for_each(|_| call(&core, End::Failure, at(5_000)));
    call(&core, End::Success, at(9_999));
    assert_eq!(core.state(at(9_999)), State::Closed, "4 of 10");
    call(&core, End::Success, at(10_000));
    assert_eq!(core.state(at(10_000)), State::Open, "4 of 6");
}

#[test]
fn the_consecutive_rule_opens_with_the_last_failure_of_the_row() {
    let core = breaker(consecutive(3));
    for end in [End::Failure, End::Failure, End::Success, End::Failure, End::Nothing, End::Failure] {
        call(&core, end, at(0));
    }
    assert_eq!(core.state(at(0)), State::Closed);
    assert_eq!(core.counts(at(0)).consecutive_failures, 2);
    call(&core, End::Failure, at(0));
    assert_eq!(core.state(at(0)), State::Open);
}

#[test]
fn of_two_rules_either_opens() {
    let both = || breaker(rate(20).rule(TripRule::default().or(TripRule::consecutive(5))));
    let all_fail = both();
    (0..5).for_each(|_| call(&all_fail, End::Failure, at(0)));
    assert_eq!(all_fail.state(at(0)), State::Open);
    let half_fail = both();
    for _ in 0..10 {
        assert_eq!(half_fail.state(at(0)), State::Closed);
        call(&half_fail, End::Failure, at(0));
        call(&half_fail, End::Success, at(0));
    }
    assert_eq!(half_fail.state(at(0)), State::Open);
}

#[test]
fn an_open_breaker_refuses_until_the_open_time_is_over() {
    let core = breaker(consecutive(1));
    call(&core, End::Failure, at(1_000));
    for (now, left) in [(1_000, 30_000), (2_500, 28_500), (30_999, 1)] {
        let left = Duration::from_millis(left);
        assert_eq!(acquire(&core, at(now)), refused(Some(left)));
        assert_eq!((core.state(at(now)), core.remaining_open(at(now))), (State::Open, left));
    }
    assert_eq!(core.counts(at(30_999)), Counts { rejected: 3, ..Counts::default() });
    assert_eq!((core.state(at(31_000)), core.remaining_open(at(31_000))), (State::HalfOpen, Duration::ZERO));
    assert!(acquire(&core, at(31_000)).expect("due").is_trial());
}

#[test]
fn a_breaker_that_opens_for_ever_knows_no_next_trial() {
    let core = breaker(consecutive(1).open_for(Duration::MAX));
    call(&core, End::Failure, at(0));
    let late = Moment::from_nanos(u64::MAX - 1);
    assert_eq!(acquire(&core, late), refused(None));
    assert_eq!(core.remaining_open(late), Duration::MAX);
    assert_eq!(core.state(late), State::Open);
}

#[test]
fn a_successful_trial_closes_and_the_window_is_fresh() {
    let (core, trial) = with_trial(rate(1));
    core.settle(trial, End::Success, at(30_000));
    assert_eq!(core.state(at(30_000)), State::Closed);
    assert_eq!(core.counts(at(30_000)), Counts::default());
    call(&core, End::Success, at(30_000));
    assert_eq!(core.counts(at(30_000)).calls, 1);
}

#[test]
fn a_failed_trial_reopens_for_the_whole_open_time() {
    let (core, trial) = with_trial(consecutive(1));
    core.settle(trial, End::Failure, at(31_000));
    assert_eq!(core.state(at(31_000)), State::Open);
    assert_eq!(acquire(&core, at(31_000)), refused(Some(OPEN_TIME)));
    assert!(acquire(&core, at(61_000)).is_ok());
}

#[test]
fn a_trial_that_says_nothing_gives_its_place_back() {
    for end in [End::Nothing, End::Throttled(None)] {
        let (core, trial) = with_trial(consecutive(1));
        assert_eq!(acquire(&core, at(30_000)), refused(None));
        core.settle(trial, end, at(30_000));
        assert_eq!(core.state(at(30_000)), State::HalfOpen);
        assert!(acquire(&core, at(30_000)).expect("the place is free").is_trial());
    }
}

#[test]
fn a_throttled_trial_delays_the_next_one() {
    let (core, trial) = with_trial(consecutive(1));
    core.settle(trial, End::Throttled(Some(Duration::from_secs(5))), at(30_000));
    assert_eq!(core.state(at(30_000)), State::HalfOpen);
    assert_eq!(acquire(&core, at(31_000)), refused(Some(Duration::from_secs(4))));
    assert!(acquire(&core, at(35_000)).is_ok());
}

#[test]
fn an_abandoned_trial_reopens_unless_it_is_released() {
    let (core, trial) = with_trial(consecutive(1));
    core.settle(trial, End::Abandoned, at(31_000));
    assert_eq!(core.remaining_open(at(31_000)), OPEN_TIME);

    let (core, trial) = with_trial(consecutive(1).abandoned_trial(AbandonedTrial::Release));
    core.settle(trial, End::Abandoned, at(31_000));
    assert_eq!(core.state(at(31_000)), State::HalfOpen);
    assert!(acquire(&core, at(31_000)).is_ok());
}

#[test]
fn more_than_ten_ends_without_a_verdict_for_each_place_reopen() {
    let (core, trial) = with_trial(consecutive(1).trials(2));
    core.settle(trial, End::Nothing, at(30_000));
    (1..20).for_each(|_| call(&core, End::Nothing, at(30_000)));
    assert_eq!(core.state(at(30_000)), State::HalfOpen);
    call(&core, End::Nothing, at(30_000));
    assert_eq!(core.state(at(30_000)), State::Open);
    assert!(acquire(&core, at(60_000)).is_ok(), "a new period starts to count at zero");
    assert_eq!(core.state(at(60_000)), State::HalfOpen);
}

#[test]
fn an_expired_trial_reopens_counted_from_the_expiry() {
    let (core, trial) = with_trial(consecutive(1).trial_deadline(Duration::from_secs(10)));
    assert_eq!(acquire(&core, at(39_999)), refused(None));
    assert_eq!(core.state(at(45_000)), State::Open, "for whoever asks");
    assert_eq!(core.remaining_open(at(45_000)), Duration::from_secs(25));
    assert_eq!(acquire(&core, at(45_000)), refused(Some(Duration::from_secs(25))));
    core.settle(trial, End::Success, at(46_000));
    assert_eq!(core.state(at(46_000)), State::Open, "the verdict came too late");
    assert!(acquire(&core, at(70_000)).is_ok());
}

#[test]
fn an_expiry_whose_open_time_is_over_as_well_is_a_new_period_at_once() {
    let (core, lost) = with_trial(consecutive(1));
    assert_eq!(core.state(at(90_000)), State::HalfOpen);
    let trial = acquire(&core, at(90_000)).expect("a new period");
    core.settle(lost, End::Success, at(90_000));
    assert_eq!(acquire(&core, at(90_000)), refused(None), "the lost trial has no place to give back");
    core.settle(trial, End::Success, at(90_000));
    assert_eq!(core.state(at(90_000)), State::Closed);
}

#[test]
fn a_verdict_that_nobody_waited_for_still_counts() {
    let (core, trial) = with_trial(consecutive(1));
    core.settle(trial, End::Success, at(500_000));
    assert_eq!(core.state(at(500_000)), State::Closed);
}

#[test]
fn a_trial_does_not_expire_within_the_inner_limit_and_a_second() {
    let core = breaker(consecutive(1).trial_deadline(Duration::from_secs(10)));
    call(&core, End::Failure, at(0));
    let trial = core.try_acquire(|| at(30_000), || Some(Duration::from_secs(60)));
    assert!(trial.is_ok());
    assert_eq!(acquire(&core, at(90_999)), refused(None));
    assert_eq!(acquire(&core, at(91_000)), refused(Some(OPEN_TIME)));
}

#[test]
fn the_inner_limit_is_asked_for_trials_only() {
    let core = breaker(consecutive(1));
    let unasked = || -> Option<Duration> { unreachable!("no trial") };
    let first = core.try_acquire(|| at(0), unasked).expect("closed");
    core.settle(first, End::Failure, at(0));
    assert!(core.try_acquire(|| at(1), unasked).is_err());
    assert!(core.try_acquire(|| at(30_000), || Some(OPEN_TIME)).is_ok());
    assert!(core.try_acquire(|| at(30_001), unasked).is_err());
}

#[test]
fn an_inner_limit_that_panics_gives_the_place_back() {
    let core = breaker(consecutive(1));
    call(&core, End::Failure, at(0));
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        core.try_acquire(|| at(30_000), || std::panic::resume_unwind(Box::new("no limit")))
    }));
    assert!(panic.is_err());
    assert_eq!(core.state(at(30_000)), State::HalfOpen);
    assert!(acquire(&core, at(30_000)).is_ok());
}

#[test]
fn an_inner_limit_may_ask_the_breaker() {
    let core = breaker(consecutive(1));
    call(&core, End::Failure, at(0));
    let asked = core.try_acquire(
        || at(30_000),
        || {
            assert_eq!(core.state(at(30_000)), State::HalfOpen);
            None
        },
    );
    assert!(asked.is_ok());
}

#[test]
fn records_out_of_band_count_while_closed_only() {
    let core = breaker(rate(2));
    core.record(End::Success, at(0));
    core.record(End::Abandoned, at(0));
    assert_eq!(core.counts(at(0)).calls, 1);
    core.record(End::Failure, at(0));
    assert_eq!(core.state(at(0)), State::Open);

    let (core, trial) = with_trial(consecutive(1));
    for end in [End::Failure, End::Success, End::Nothing] {
        core.record(end, at(30_000));
        assert_eq!(core.state(at(30_000)), State::HalfOpen);
        assert_eq!(acquire(&core, at(30_000)), refused(None));
    }
    core.settle(trial, End::Success, at(30_000));
    assert_eq!(core.counts(at(30_000)), Counts { rejected: 3, ..Counts::default() });
}

#[test]
fn unchecked_settings_do_not_panic() {
    let rules = [
        TripRule::failure_rate(f64::NAN).window(0, Duration::ZERO).minimum_calls(0),
        TripRule::failure_rate(-1.0).window(u32::from(u16::MAX), Duration::MAX),
        TripRule::consecutive(0),
    ];
    for rule in rules {
        let zero = Duration::ZERO;
        let config = BreakerConfig::default().rule(rule).open_for(zero).trials(0).successes_to_close(0);
        assert!(config.check().is_err());
        let core = breaker(config.trial_deadline(zero).trials(1));
        for (now, end) in [(0, End::Success), (1, End::Failure), (2, End::Success), (3, End::Nothing)] {
            if let Ok(ticket) = acquire(&core, at(now)) {
                core.settle(ticket, end, at(now));
            }
        }
    }
}

/// A word for the state, one for failures in a row, six for the windows, two for what comes with the first opening, one
/// for the settings and two for the key; the successes of ten buckets are another 80 bytes.
#[test]
fn a_breaker_is_small_until_it_fails() {
    assert_eq!((size_of::<Core>(), size_of::<Ticket>()), (112, 8));
}
