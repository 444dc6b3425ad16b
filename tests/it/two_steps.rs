//! The rules of a two-step admission, of outcomes out of band and of each transition, by their users' book.

use std::mem::ManuallyDrop;

use steadfast::breaker::{
    Breaker, BreakerConfig, Cause, Counts, DEFAULT_FAILURE_THRESHOLD, DEFAULT_OPEN_TIME, DEFAULT_TRIALS, Permit,
    Rejected, State, TripRule,
};
use steadfast::error::Kind;
use steadfast::{Keyed, Verdict};

use crate::breakers::{Bench, OPEN_TIME, Trial, consecutive, counting, logging, panic_of, panics};
use crate::support::secs;

#[test]
fn the_defaults_have_names() {
    assert_eq!((DEFAULT_FAILURE_THRESHOLD, DEFAULT_OPEN_TIME, DEFAULT_TRIALS), (5, secs(30), 1));
    assert_eq!(Keyed::<Breaker>::new(BreakerConfig::default()).capacity(), 8_192);
}

#[test]
fn a_breaker_without_settings_is_a_good_one() {
    let bench = Bench::closed(BreakerConfig::default());
    assert_eq!((bench.breaker.state(), bench.breaker.counts()), (State::Closed, Counts::default()));
    (0..19).for_each(|_| bench.fail());
    assert_eq!(bench.breaker.state(), State::Closed);
    bench.fail();
    assert_eq!((bench.breaker.state(), bench.breaker.remaining_open()), (State::Open, DEFAULT_OPEN_TIME));
}

/// The two steps as every user writes them.
fn in_two_steps(breaker: &Breaker, call: impl FnOnce() -> Result<u32, &'static str>) -> Result<u32, String> {
    let permit = breaker.try_acquire().map_err(|rejected| rejected.to_string())?;
    let result = call();
    match &result {
        Ok(_) => permit.success(),
        Err(_) => permit.failure(),
    }
    result.map_err(str::to_owned)
}

#[test]
fn a_refused_call_is_not_made_and_has_no_permit_to_report_with() {
    let bench = Bench::closed(consecutive(2));
    assert_eq!(in_two_steps(&bench.breaker, || Ok(7)), Ok(7));
    for _ in 0..2 {
        assert_eq!(in_two_steps(&bench.breaker, || Err("down")), Err("down".to_owned()));
    }
    let refused = in_two_steps(&bench.breaker, || panic!("it is not asked"));
    assert_eq!(refused, Err("circuit breaker open, next trial in 30 s".to_owned()), "nor is 7 remembered");
    let rejected: Rejected = bench.breaker.try_acquire().unwrap_err();
    assert_eq!(rejected.kind(), Kind::CircuitOpen { retry_after: Some(OPEN_TIME) });
}

#[test]
fn an_admitted_call_reports_exactly_once() {
    // That it is not more than once is for the compiler to see: a report uses the permit up. Nor is it less:
    let bench = Bench::half_open(consecutive(1));
    drop(bench.breaker.try_acquire().unwrap());
    assert_eq!(bench.after_trial(), Trial::Reopened, "a permit that is dropped is a call that was abandoned");

    let bench = Bench::closed(counting());
    let permits: Vec<_> = (0..10).map(|_| bench.breaker.try_acquire().unwrap()).collect();
    permits.into_iter().for_each(Permit::success);
    assert_eq!(bench.counted(), (10, 0));
}

#[test]
fn a_panic_between_the_two_steps_holds_no_place() {
    let bench = Bench::half_open(consecutive(1));
    assert_eq!(panic_of(|| drop(in_two_steps(&bench.breaker, panics))), "the operation's own");
    assert_eq!(bench.after_trial(), Trial::Reopened);
}

#[test]
fn a_permit_that_is_never_reported_wedges_the_breaker_for_one_open_time() {
    let bench = Bench::half_open(consecutive(1));
    let _lost = ManuallyDrop::new(bench.breaker.try_acquire().unwrap());
    bench.clock.advance(OPEN_TIME);
    assert_eq!((bench.breaker.state(), bench.breaker.remaining_open()), (State::Open, OPEN_TIME));
    bench.clock.advance(OPEN_TIME);
    bench.succeed();
    assert_eq!(bench.breaker.state(), State::Closed);
}

#[test]
fn a_late_report_neither_frees_the_place_of_a_newer_trial_nor_decides_it() {
    let bench = Bench::closed(consecutive(1));
    let of_closed = bench.breaker.try_acquire().unwrap();
    bench.trip();
    bench.clock.advance(OPEN_TIME);
    let expired = bench.breaker.try_acquire().unwrap();
    bench.clock.advance(OPEN_TIME * 2);
    let trial = bench.breaker.try_acquire().unwrap();
    expired.success();
    of_closed.failure();
    assert_eq!((bench.breaker.state(), bench.is_refused()), (State::HalfOpen, true));
    trial.failure();
    assert_eq!(bench.after_trial(), Trial::Reopened);
}

#[test]
fn states_are_called_as_operators_know_them() {
    let bench = Bench::closed(consecutive(1));
    let name = || bench.breaker.state().to_string();
    assert_eq!(name(), "closed");
    bench.trip();
    assert_eq!(name(), "open");
    bench.clock.advance(OPEN_TIME);
    assert_eq!(name(), "half-open");
    let by_hand: [fn(&Breaker); 4] = [Breaker::force_close, Breaker::disable, Breaker::metrics_only, Breaker::isolate];
    let names = by_hand.map(|command| {
        command(&bench.breaker);
        name()
    });
    assert_eq!(names, ["closed", "disabled", "metrics-only", "isolated"]);
}

#[test]
fn each_transition_happens_where_it_should() {
    let (config, log) = logging(consecutive(2).trials(2).successes_to_close(2));
    let bench = Bench::closed(config);
    bench.fail();
    bench.succeed();
    bench.fail();
    assert_eq!(bench.breaker.state(), State::Closed, "they must be consecutive");
    bench.fail();
    assert_eq!(bench.breaker.state(), State::Open);
    bench.clock.advance(OPEN_TIME);
    bench.fail();
    assert_eq!(bench.breaker.state(), State::Open, "a trial that fails");
    bench.clock.advance(OPEN_TIME);
    let _never = [(); 2].map(|()| ManuallyDrop::new(bench.breaker.try_acquire().unwrap()));
    bench.clock.advance(OPEN_TIME);
    assert!(bench.is_refused(), "trials that have expired");
    bench.clock.advance(OPEN_TIME);
    let (one, two) = (bench.breaker.try_acquire().unwrap(), bench.breaker.try_acquire().unwrap());
    assert!(bench.is_refused(), "no more trials than that");
    one.success();
    assert_eq!(bench.breaker.state(), State::HalfOpen);
    two.success();
    assert_eq!((bench.breaker.state(), bench.breaker.counts().consecutive_failures), (State::Closed, 0));

    let causes: Vec<_> = log.entries().iter().map(|change| (change.to, change.cause)).collect();
    let expected = [
        (State::Open, Cause::ConsecutiveFailures),
        (State::HalfOpen, Cause::OpenTimeOver),
        (State::Open, Cause::TrialFailed),
        (State::HalfOpen, Cause::OpenTimeOver),
        (State::Open, Cause::TrialExpired),
        (State::HalfOpen, Cause::OpenTimeOver),
        (State::Closed, Cause::TrialsSucceeded),
    ];
    assert_eq!(causes, expected);
}

#[test]
fn four_failures_in_five_never_make_five_in_a_row() {
    let opens_after = |rule: TripRule| {
        let bench = Bench::closed(consecutive(1).rule(rule));
        (0..500).find(|number| {
            bench.call(if number % 5 == 4 { 'S' } else { 'F' });
            bench.breaker.state() == State::Open
        })
    };
    assert_eq!(opens_after(TripRule::consecutive(DEFAULT_FAILURE_THRESHOLD)), None);
    assert_eq!(opens_after(TripRule::default()), Some(19), "the cure is a rate");
}

#[test]
fn what_no_admission_belongs_to_counts_while_closed_only() {
    let bench = Bench::closed(consecutive(2));
    bench.breaker.record(Verdict::Transient);
    bench.breaker.record(Verdict::Success);
    bench.breaker.record(Verdict::Transient);
    assert_eq!(bench.breaker.state(), State::Closed);
    bench.breaker.record(Verdict::Fatal);
    assert_eq!(bench.breaker.state(), State::Open);
    bench.clock.advance(secs(10));
    for verdict in [Verdict::Success, Verdict::Transient] {
        bench.breaker.record(verdict);
        assert_eq!((bench.breaker.state(), bench.breaker.remaining_open()), (State::Open, secs(20)));
    }
    bench.clock.advance(secs(20));
    let trial = bench.breaker.try_acquire().unwrap();
    for verdict in [Verdict::Success, Verdict::Transient, Verdict::Ignored] {
        bench.breaker.record(verdict);
        assert_eq!((bench.breaker.state(), bench.is_refused()), (State::HalfOpen, true));
    }
    trial.success();
    assert_eq!(bench.counted(), (0, 0), "and nothing of it is left");
}

#[test]
fn a_burst_of_failures_out_of_band_cannot_trip_a_breaker_that_recovers() {
    let bench = Bench::half_open(consecutive(2).trials(2).successes_to_close(2));
    bench.succeed();
    (0..100).for_each(|_| bench.breaker.record(Verdict::Transient));
    bench.succeed();
    assert_eq!(bench.breaker.state(), State::Closed);
    bench.breaker.record(Verdict::Transient);
    assert_eq!(bench.breaker.state(), State::Closed, "the row begins anew");
}

const ENDS: usize = 9;

/// Every way in which a call can end, by whoever holds the permit.
fn ends<B: std::borrow::Borrow<Breaker>>() -> [fn(Permit<B>); ENDS] {
    [
        |permit| permit.success(),
        |permit| permit.failure(),
        |permit| permit.ignore(),
        |permit| drop(permit),
        |permit| permit.record(Verdict::Permanent),
        |permit| permit.record(Verdict::Fatal),
        |permit| permit.record(Verdict::Ignored),
        |permit| permit.record(Verdict::Throttled { retry_after: None }),
        |permit| permit.record(Verdict::Rejected { retry_after: None }),
    ]
}

fn slowly() -> BreakerConfig {
    let slow = TripRule::slow_rate(0.5).slow_call(secs(2)).minimum_calls(2);
    BreakerConfig::default().rule(TripRule::consecutive(2).or(slow))
}

#[test]
fn a_permit_that_borrows_ends_a_call_as_one_that_is_owned() {
    let configs: [fn() -> BreakerConfig; 3] = [BreakerConfig::default, || consecutive(2), slowly];
    let starts = [Bench::closed, Bench::half_open, |config| {
        let bench = Bench::closed(config);
        bench.breaker.metrics_only();
        bench
    }];
    for (config, start) in configs.iter().flat_map(|config| starts.iter().map(move |start| (config, start))) {
        for took in [secs(0), secs(3)] {
            for end in 0..ENDS {
                let (one, other) = (start(config()), start(config()));
                let (permit, reference) =
                    (one.breaker.try_acquire().unwrap(), other.breaker.try_acquire_ref().unwrap());
                assert_eq!(permit.is_trial(), reference.is_trial());
                one.clock.advance(took);
                other.clock.advance(took);
                ends()[end](permit);
                ends()[end](reference);
                assert_eq!(one.breaker.snapshot(), other.breaker.snapshot());
            }
        }
    }
}

#[test]
fn a_call_is_timed_if_it_mattered_when_it_began_how_long_it_takes() {
    let quick = || BreakerConfig::default().rule(TripRule::failure_rate(1.0));
    let slow = || quick().rule(TripRule::failure_rate(1.0).or(TripRule::slow_rate(1.0).slow_call(secs(2))));
    let bench = Bench::closed(quick());
    let slow_calls_after = |before: BreakerConfig, under_way: BreakerConfig| {
        bench.breaker.reset();
        bench.breaker.reconfigure(before).unwrap();
        let permit = bench.breaker.try_acquire_ref().unwrap();
        bench.breaker.reconfigure(under_way).unwrap();
        bench.clock.advance(secs(3));
        permit.success();
        let counts = bench.breaker.counts();
        (counts.calls, counts.slow)
    };
    assert_eq!(slow_calls_after(quick(), quick()), (1, 0));
    assert_eq!(slow_calls_after(quick(), slow()), (1, 0), "a rule is for calls that begin after it");
    assert_eq!(slow_calls_after(slow(), slow()), (1, 1));
    assert_eq!(slow_calls_after(slow(), quick()), (1, 0), "no rule, no slow calls");
}

#[test]
fn both_sorts_of_permit_are_refused_alike() {
    let bench = Bench::open(consecutive(1));
    assert_eq!(bench.breaker.try_acquire().unwrap_err(), bench.breaker.try_acquire_ref().unwrap_err());
    let broken = Breaker::new(consecutive(0));
    let refused = broken.try_acquire_ref().unwrap_err();
    assert!(refused.config().is_some(), "{refused}");
    assert_eq!(broken.try_acquire().unwrap_err(), refused);
}

#[test]
fn a_permit_binds_a_breaker_to_its_clock_and_needs_no_time_for_a_rule_that_counts_in_a_row() {
    let breaker = Breaker::new(consecutive(2));
    drop(breaker.try_acquire_ref().unwrap());
    assert!(breaker.bind(steadfast::Clock::tokio()).is_ok());
    assert!(breaker.bind(steadfast::Clock::manual()).is_err(), "the first use has bound it");
}
