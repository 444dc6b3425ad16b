//! Slow calls, lanes, the window of calls, and thresholds that change.

use super::*;

fn slow_config(minimum_calls: u32) -> BreakerConfig {
    let rule = TripRule::slow_rate(0.5).slow_call(WIDTH).window(2, WIDTH).minimum_calls(minimum_calls);
    BreakerConfig::default().rule(rule).open_for(OPEN_TIME)
}

fn calls_config(calls: u32) -> BreakerConfig {
    BreakerConfig::default().rule(TripRule::count_window(calls, 0.5)).open_for(OPEN_TIME)
}

#[test]
fn loom_a_slow_call_and_the_one_that_makes_the_minimum_trip() {
    model(|| {
        let core = Arc::new(breaker(slow_config(2)));
        let ticket = acquire(&core, bucket(0)).expect("closed");
        let slow = move |core: &Core| core.settle_slow(ticket, End::Success, bucket(0));
        both(&core, slow, |core| core.settle(ticket, End::Success, bucket(0)));
        assert_eq!(core.word().state(), State::Open);
    });
}

#[test]
fn loom_a_call_that_was_given_up_and_a_slow_one_trip() {
    model(|| {
        let core = Arc::new(breaker(slow_config(2)));
        let ticket = acquire(&core, bucket(0)).expect("closed");
        let given_up = move |core: &Core| core.settle_slow(ticket, End::Abandoned, bucket(0));
        both(&core, given_up, |core| core.settle_slow(ticket, End::Failure, bucket(0)));
        assert_eq!(core.word().state(), State::Open);
    });
}

/// One slow call of two would be enough, but there are never fewer than three calls when there are two of them.
#[test]
fn loom_quick_failures_beside_a_look_make_no_slow_rate() {
    model(|| {
        let core = Arc::new(breaker(slow_config(3)));
        let ticket = acquire(&core, bucket(0)).expect("closed");
        core.settle(ticket, End::Failure, bucket(0));
        let quick = move |core: &Core| core.settle(ticket, End::Failure, bucket(0));
        both(&core, quick, |core| core.settle_slow(ticket, End::Success, bucket(0)));
        assert_eq!(core.word().state(), State::Closed);
    });
}

#[test]
fn loom_nothing_is_lost_while_successes_are_spread() {
    model(|| {
        let core = Arc::new(breaker(config(100)));
        let ticket = acquire(&core, bucket(0)).expect("closed");
        let spreads = move |core: &Core| {
            core.tally.spread();
            core.settle(ticket, End::Success, bucket(0));
        };
        both(&core, spreads, |core| core.settle(ticket, End::Success, bucket(0)));
        assert_eq!(core.counts(bucket(0)).calls, 2);
    });
}

#[test]
fn loom_a_success_in_a_new_lane_makes_the_minimum_beside_a_failure() {
    model(|| {
        let core = Arc::new(breaker(config(2)));
        let ticket = acquire(&core, bucket(0)).expect("closed");
        let spreads = move |core: &Core| {
            core.tally.spread();
            core.settle(ticket, End::Success, bucket(0));
        };
        both(&core, spreads, |core| core.settle(ticket, End::Failure, bucket(0)));
        assert_eq!(core.word().state(), State::Open);
    });
}

#[test]
fn loom_two_failures_that_fill_the_window_of_calls_trip() {
    model(|| {
        let core = Arc::new(breaker(calls_config(2)));
        let ticket = acquire(&core, bucket(0)).expect("closed");
        let failure = vec![(ticket, End::Failure, bucket(0))];
        race(&core, vec![failure.clone(), failure]);
        assert_eq!(core.word().state(), State::Open);
    });
}

#[test]
fn loom_a_success_that_fills_the_window_of_calls_beside_a_failure_trips() {
    model(|| {
        let core = Arc::new(breaker(calls_config(2)));
        let ticket = acquire(&core, bucket(0)).expect("closed");
        race(&core, vec![vec![(ticket, End::Success, bucket(0))], vec![(ticket, End::Failure, bucket(0))]]);
        assert_eq!(core.word().state(), State::Open);
    });
}

/// The last two calls are never both failures, and half of them only while the first is among them.
#[test]
fn loom_a_call_that_left_the_window_is_not_held_against_it() {
    model(|| {
        let rule = TripRule::count_window(2, 1.0);
        let core = Arc::new(breaker(BreakerConfig::default().rule(rule)));
        let ticket = acquire(&core, bucket(0)).expect("closed");
        core.settle(ticket, End::Failure, bucket(0));
        core.settle(ticket, End::Success, bucket(0));
        race(&core, vec![vec![(ticket, End::Success, bucket(0))], vec![(ticket, End::Failure, bucket(0))]]);
        assert_eq!(core.word().state(), State::Closed);
        let counts = core.counts(bucket(0));
        assert_eq!((counts.calls, counts.failures), (2, 1));
    });
}

#[test]
fn loom_a_late_call_does_not_count_in_the_next_window_of_calls() {
    model(|| {
        let core = Arc::new(breaker(calls_config(2)));
        let late = acquire(&core, bucket(0)).expect("closed");
        both(&core, move |core| core.settle(late, End::Failure, bucket(0)), |core| core.force_close(bucket(0)));
        assert_eq!(core.counts(bucket(0)).failures, 0);
        assert_eq!(core.word().state(), State::Closed);
        // Whether the late call has left a void place or none: one of the two calls after it has failed.
        for end in [End::Failure, End::Success] {
            let ticket = acquire(&core, bucket(0)).expect("closed");
            core.settle(ticket, end, bucket(0));
        }
        assert_eq!(core.word().state(), State::Open);
    });
}

/// Each of the two settings alone lets the failure pass.
#[test]
fn loom_thresholds_of_two_versions_do_not_meet() {
    model_with(1, || {
        let core = Arc::new(breaker(rate_config(0.4, 3)));
        let ticket = acquire(&core, bucket(0)).expect("closed");
        core.settle(ticket, End::Success, bucket(0));
        let changes = |core: &Core| core.family().reconfigure(rate_config(0.9, 1)).expect("the same window");
        both(&core, changes, |core| core.settle(ticket, End::Failure, bucket(0)));
        assert_eq!(core.word().state(), State::Closed);
    });
}

#[test]
fn loom_nothing_trips_by_the_thresholds_from_before() {
    model_with(1, || {
        let core = Arc::new(breaker(rate_config(0.5, 2)));
        let ticket = acquire(&core, bucket(0)).expect("closed");
        core.settle(ticket, End::Success, bucket(0));
        let failing = Arc::clone(&core);
        let thread = thread::spawn(move || failing.settle(ticket, End::Failure, bucket(0)));
        core.family().reconfigure(rate_config(1.0, 2)).expect("the same window");
        let was_open_by_then = core.word().state() == State::Open;
        thread.join().expect("a model thread does not panic");
        assert_eq!(core.word().state() == State::Open, was_open_by_then);
    });
}

fn rate_config(rate: f64, minimum_calls: u32) -> BreakerConfig {
    let rule = TripRule::failure_rate(rate).window(2, WIDTH).minimum_calls(minimum_calls);
    BreakerConfig::default().rule(rule).open_for(OPEN_TIME)
}
