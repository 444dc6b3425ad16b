//! Sequences of calls that the tests of other breakers assert, with what they come to here.

use steadfast::Verdict;
use steadfast::breaker::{Breaker, BreakerConfig, Cause, State, TripRule};

use crate::breakers::{Bench, OPEN_TIME, consecutive, counting, logging};
use crate::support::{ms, secs};

/// After which of the calls, from 1, a closed breaker opens.
fn opens_after(rule: TripRule, ends: &str) -> Option<usize> {
    let bench = Bench::closed(consecutive(1).rule(rule));
    let opened = ends.chars().position(|end| {
        bench.call(end);
        bench.breaker.state() == State::Open
    });
    opened.map(|index| index + 1)
}

/// After which of the trials, from 1, a half-open breaker is decided, and how.
fn decides_after(config: BreakerConfig, ends: &str) -> Option<(usize, State)> {
    let bench = Bench::half_open(config);
    let decided = ends.chars().position(|end| {
        bench.call(end);
        bench.breaker.state() != State::HalfOpen
    });
    decided.map(|index| (index + 1, bench.breaker.state()))
}

#[test]
fn failures_must_be_in_a_row() {
    assert_eq!(opens_after(TripRule::consecutive(1), "SSSF"), Some(4));
    assert_eq!(opens_after(TripRule::consecutive(3), "FSFF"), None);
    assert_eq!(opens_after(TripRule::consecutive(3), "FSFFF"), Some(5));
    assert_eq!(opens_after(TripRule::consecutive(2), &"SF".repeat(50)), None);
}

#[test]
fn half_of_ten_opens_and_is_told_once() {
    let (config, log) = logging(consecutive(1).rule(TripRule::failure_rate(0.5).minimum_calls(10)));
    let bench = Bench::closed(config);
    for _ in 0..5 {
        bench.succeed();
        assert_eq!(bench.breaker.state(), State::Closed);
        bench.fail();
    }
    assert_eq!((bench.breaker.state(), log.entries().len()), (State::Open, 1));
    assert_eq!(opens_after(TripRule::failure_rate(0.5).minimum_calls(10), &"F".repeat(9)), None);
}

#[test]
fn a_window_of_time_forgets_by_the_second() {
    let rule = TripRule::failure_rate(0.5).window(5, secs(1)).minimum_calls(6);
    let bench = Bench::closed(consecutive(1).rule(rule));
    for end in ['S', 'S', 'S', 'F', 'F'] {
        bench.call(end);
        bench.clock.advance(secs(1));
    }
    // The first success has left, so that these are five of the six that it takes.
    bench.fail();
    assert_eq!((bench.breaker.state(), bench.counted()), (State::Closed, (5, 3)));
    bench.fail();
    assert_eq!(bench.breaker.state(), State::Open);
    bench.clock.advance(OPEN_TIME);
    bench.succeed();
    bench.fail();
    bench.clock.advance(secs(5) - ms(1));
    assert_eq!(bench.counted(), (1, 1));
    bench.clock.advance(ms(1));
    assert_eq!(bench.counted(), (0, 0), "empty at exactly that instant");
}

#[test]
fn the_counts_of_a_window_of_calls_are_those_of_its_calls() {
    let bench = Bench::closed(consecutive(1).rule(TripRule::count_window(4, 1.0)));
    let rates = ['F', 'S', 'S', 'S', 'S'].map(|end| {
        bench.call(end);
        (bench.breaker.counts().calls, bench.breaker.counts().rate())
    });
    let expected = [(1, 1.0), (2, 0.5), (3, 1.0 / 3.0), (4, 0.25), (4, 0.0)];
    assert_eq!(rates, expected.map(|(calls, rate)| (calls, Some(rate))));
}

#[test]
fn three_slow_calls_of_five_open_whatever_failed() {
    let rule = TripRule::slow_rate(0.6).slow_call(secs(1)).minimum_calls(5);
    for failures in 0..=3 {
        let (config, log) = logging(consecutive(1).rule(rule.clone()));
        let bench = Bench::closed(config);
        for number in 0..5 {
            let permit = bench.breaker.try_acquire().unwrap();
            if number < 3 {
                bench.clock.advance(secs(1));
            }
            permit.record(if number < failures { Verdict::Transient } else { Verdict::Success });
            assert_eq!(bench.breaker.state() == State::Open, number == 4);
        }
        assert_eq!(log.entries()[0].cause, Cause::SlowRate);
    }
}

#[test]
fn slow_calls_leave_the_window_with_their_second() {
    let rule = TripRule::slow_rate(1.0).slow_call(secs(2)).window(4, secs(1)).minimum_calls(100);
    let bench = Bench::closed(consecutive(1).rule(rule));
    let call = |takes, fails| {
        let permit = bench.breaker.try_acquire().unwrap();
        bench.clock.advance(takes);
        permit.record(if fails { Verdict::Transient } else { Verdict::Success });
    };
    let seen = || {
        let counts = bench.breaker.counts();
        [counts.calls, counts.failures, counts.slow]
    };
    call(secs(2), false);
    call(ms(0), true);
    call(secs(2), true);
    call(ms(0), false);
    assert_eq!(seen(), [4, 2, 2]);
    bench.clock.advance(secs(2));
    assert_eq!(seen(), [2, 1, 1]);
    bench.clock.advance(secs(2));
    assert_eq!(seen(), [0, 0, 0]);
}

#[test]
fn trials_are_decided_as_soon_as_they_can_be() {
    let (closed, open) = (|after| Some((after, State::Closed)), |after| Some((after, State::Open)));
    let share = |trials, rate| consecutive(1).trial_rate(trials, rate);
    // Three failures of three open, so that a single success is enough.
    assert_eq!((decides_after(share(3, 1.0), "FFF"), decides_after(share(3, 1.0), "FS")), (open(3), closed(2)));
    // One of two successes of four has to be there while there are trials left.
    assert_eq!((decides_after(share(4, 0.75), "FFF"), decides_after(share(4, 0.75), "FFSS")), (open(3), closed(4)));
    assert_eq!(decides_after(share(4, 0.75), "FF"), None);
    assert_eq!((decides_after(share(4, 0.5), "FFSS"), decides_after(share(4, 0.5), "FSSS")), (open(2), closed(4)));
    // One failure of trials that must all succeed.
    let three = || consecutive(1).trials(3).successes_to_close(3);
    assert_eq!((decides_after(three(), "SSF"), decides_after(three(), "SSS")), (open(3), closed(3)));
}

#[test]
fn the_closing_tells_what_the_trials_came_to() {
    let (config, log) = logging(consecutive(1).trial_rate(5, 0.5));
    let bench = Bench::half_open(config);
    for end in ['S', 'F', 'S', 'F', 'S'] {
        bench.call(end);
    }
    let closing = log.entries().pop().unwrap();
    assert_eq!((closing.cause, closing.counts.calls, closing.counts.failures), (Cause::TrialsSucceeded, 5, 2));
}

#[test]
fn each_half_open_period_has_all_of_its_places() {
    let bench = Bench::half_open(consecutive(1).trials(4).successes_to_close(4));
    for _ in 0..5 {
        let mut trials: Vec<_> = (0..4).map(|_| bench.breaker.try_acquire().unwrap()).collect();
        assert!(bench.is_refused());
        trials.pop().unwrap().failure();
        bench.clock.advance(OPEN_TIME);
        assert_eq!(bench.breaker.counts().calls, 0);
    }
}

#[test]
fn the_second_opening_lasts_half_as_long_again() {
    let bench = Bench::open(consecutive(1).open_for(secs(5)).open_backoff(1.5, secs(60)));
    bench.clock.advance(secs(5));
    bench.fail();
    bench.clock.advance(secs(6));
    assert_eq!(bench.breaker.try_acquire().unwrap_err().retry_after(), Some(ms(1_500)));
    bench.clock.advance(ms(1_500));
    bench.succeed();
}

#[test]
fn a_breaker_may_begin_in_any_state() {
    type Begin = fn(&Breaker);
    let begins: [(Begin, State); 4] = [
        (Breaker::isolate, State::Isolated),
        (Breaker::force_open, State::Open),
        (Breaker::disable, State::Disabled),
        (Breaker::metrics_only, State::MetricsOnly),
    ];
    for (begin, state) in begins {
        let bench = Bench::closed(counting());
        begin(&bench.breaker);
        assert_eq!(bench.breaker.state(), state);
        let later = if state == State::Open { State::HalfOpen } else { state };
        bench.clock.advance(OPEN_TIME);
        assert_eq!(bench.breaker.state(), later, "an open one follows its open time");
    }
}

#[test]
fn what_is_known_below_the_minimum_is_known() {
    let bench = Bench::closed(BreakerConfig::default());
    assert_eq!(bench.breaker.counts().rate(), None);
    bench.fail();
    assert_eq!((bench.breaker.counts().rate(), bench.breaker.state()), (Some(1.0), State::Closed));
}
