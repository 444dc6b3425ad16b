//! The breaker as a handle: settings, clocks, names, two-step permits, what can be seen of it, and listeners.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use steadfast::breaker::{
    Breaker, BreakerConfig, Cause, Counts, DEFAULT_FAILURE_THRESHOLD, DEFAULT_OPEN_TIME, DEFAULT_TRIALS, Rejected,
    State, TripRule,
};
use steadfast::clock::Clock;
use steadfast::error::{ConfigError, Kind, Opaque};
use steadfast::{Context, Error, Executor, Retry, Timeout, Verdict, try_do};

use crate::breakers::{Bench, OPEN_TIME, Trial, consecutive, counting, logging};
use crate::support::{at_rest, ms, secs};

#[test]
fn a_permit_says_how_its_call_ended() {
    let bench = Bench::closed(counting());
    let permit = || bench.breaker.try_acquire().unwrap();
    permit().success();
    permit().failure();
    permit().ignore();
    permit().record(Verdict::Permanent);
    permit().record(Verdict::Fatal);
    drop(permit());
    assert_eq!(bench.counted(), (4, 2));
    assert!(!permit().is_trial());
}

#[test]
fn a_permit_that_is_a_trial_decides() {
    type End = fn(&Bench);
    let ends: [(End, Trial); 4] = [
        (|bench| bench.breaker.try_acquire().unwrap().success(), Trial::Succeeded),
        (|bench| bench.breaker.try_acquire().unwrap().failure(), Trial::Reopened),
        (|bench| bench.breaker.try_acquire().unwrap().ignore(), Trial::PlaceBack),
        (|bench| drop(bench.breaker.try_acquire().unwrap()), Trial::Reopened),
    ];
    for (end, trial) in ends {
        let bench = Bench::half_open(counting());
        end(&bench);
        assert_eq!(bench.after_trial(), trial);
    }
}

#[test]
fn a_permit_outlives_the_handle_and_the_thread_that_it_came_from() {
    let bench = Bench::half_open(counting());
    let watch = bench.breaker.clone();
    let permit = bench.breaker.try_acquire().unwrap();
    assert!(permit.is_trial());
    assert_eq!(format!("{permit:?}"), "Permit { is_trial: true, .. }");
    drop(bench);
    std::thread::spawn(move || permit.success()).join().unwrap();
    assert_eq!(watch.state(), State::Closed);
}

#[test]
fn a_rejection_says_which_breaker_and_for_how_long() {
    let bench = Bench::open(consecutive(1));
    bench.clock.advance(ms(17_600));
    let rejected = bench.breaker.try_acquire().unwrap_err();
    assert_eq!((rejected.retry_after(), rejected.breaker()), (Some(ms(12_400)), None));
    assert_eq!(rejected.to_string(), "circuit breaker open, next trial in 12.4 s");
    let named = bench.breaker.clone().named("invoices").try_acquire().unwrap_err();
    assert_eq!(named.breaker(), Some("invoices"));
    assert_eq!(named.to_string(), "invoices: circuit breaker open, next trial in 12.4 s");
    // It is the line that an error of a chain begins with.
    let error = bench.through(bench.breaker.clone().named("invoices"), async |_| Ok::<_, Opaque>(())).unwrap_err();
    assert_eq!(error.to_string(), named.to_string());
    bench.clock.advance(ms(12_150));
    assert_eq!(bench.breaker.try_acquire().unwrap_err().to_string(), "circuit breaker open, next trial in 250 ms");

    bench.clock.advance(OPEN_TIME);
    let _trial = bench.breaker.try_acquire().unwrap();
    let rejected = bench.breaker.try_acquire().unwrap_err();
    assert_eq!((rejected.to_string(), rejected.retry_after()), ("circuit breaker open".to_owned(), None));
    let as_error: Box<dyn std::error::Error + Send + Sync> = rejected.clone().into();
    assert_eq!(as_error.downcast_ref::<Rejected>(), Some(&rejected));
    assert!(as_error.source().is_none());
}

#[test]
fn a_misconfigured_breaker_refuses_everywhere_and_names_the_setting() {
    let settings: [(BreakerConfig, &str); 6] = [
        (consecutive(1).open_for(Duration::ZERO), "open_for"),
        (consecutive(1).trials(0), "trials"),
        (consecutive(1).successes_to_close(0), "successes_to_close"),
        (consecutive(1).trial_deadline(Duration::ZERO), "trial_deadline"),
        (consecutive(0), "consecutive"),
        (consecutive(1).rule(TripRule::failure_rate(f64::NAN)), "failure_rate"),
    ];
    for (config, field) in settings {
        let (clock, cx) = at_rest();
        let refused = config.check().unwrap_err();
        assert_eq!(refused.field(), field);
        let breaker = Breaker::new(config);
        let built = Executor::builder("x").policies((Retry::immediate(), breaker.clone())).clock(&clock).build();
        assert_eq!(built.unwrap_err(), refused);
        let calls = AtomicU32::new(0);
        let run = try_do(
            &cx,
            async |_| {
                calls.fetch_add(1, Ordering::Relaxed);
                Ok::<_, ()>(())
            },
            (Retry::immediate(), &breaker),
        );
        let error = clock.block_on(run).unwrap_err();
        assert_eq!((error.kind(), error.refusal().config()), (Kind::Misconfigured, Some(&refused)));
        assert_eq!(calls.into_inner(), 0);
        let rejected = breaker.try_acquire().unwrap_err();
        assert_eq!(rejected.config(), Some(&refused));
        assert_eq!(rejected.to_string(), format!("circuit breaker misconfigured: {refused}"));
        assert!(std::error::Error::source(&rejected).is_none(), "it is shown already");
        breaker.record(Verdict::Transient);
        assert_eq!(breaker.clone().state(), breaker.state(), "and nothing panics");
    }
}

#[test]
fn an_empty_name_is_refused_where_the_breaker_is_used() {
    let (clock, cx) = at_rest();
    let breaker = Breaker::default().named("");
    let refused = Executor::builder("x").policies(breaker.clone()).clock(&clock).build().unwrap_err();
    let error = clock.block_on(try_do(&cx, async |_| Ok::<_, ()>(()), breaker)).unwrap_err();
    assert_eq!(error.refusal().config(), Some(&refused));
}

#[test]
fn a_second_clock_is_refused_everywhere() {
    let ((clock, cx), (other, other_cx)) = (at_rest(), at_rest());
    type Bind = fn(&Breaker, &Clock, &Context);
    let binds: [Bind; 3] = [
        |breaker, clock, _| breaker.bind(clock.clone()).unwrap(),
        |breaker, clock, _| {
            drop(Executor::builder("a").policies(breaker.clone()).clock(clock.clone()).build().unwrap());
        },
        |breaker, _, cx| {
            let run = try_do(cx, async |_| Ok::<_, ()>(()), breaker);
            assert!(tokio_test::task::spawn(run).poll().is_ready());
        },
    ];
    for bind in binds {
        let breaker = Breaker::default();
        bind(&breaker, &clock.clock(), &cx);
        let refused = breaker.bind(&other).unwrap_err();
        assert_eq!((refused.field(), refused.rule()), ("clock", "a breaker keeps to the first clock that uses it"));
        let built = Executor::builder("b").policies((Timeout::secs(1), breaker.clone())).clock(&other).build();
        assert_eq!(built.unwrap_err(), refused);
        let error = other.block_on(try_do(&other_cx, async |_| Ok::<_, ()>(()), &breaker)).unwrap_err();
        assert_eq!((error.kind(), error.refusal().config()), (Kind::Misconfigured, Some(&refused)));
        // The first one goes on to be the breaker's.
        breaker.bind(&clock).unwrap();
        clock.block_on(try_do(&cx, async |_| Ok::<_, ()>(()), &breaker)).unwrap();
    }
}

#[test]
fn without_a_run_a_breaker_is_bound_to_the_tokio_clock_by_its_first_permit() {
    let uses: [fn(&Breaker); 2] = [|breaker| drop(breaker.try_acquire()), |breaker| breaker.record(Verdict::Success)];
    for first_use in uses {
        let breaker = Breaker::default();
        first_use(&breaker);
        assert!(breaker.bind(Clock::manual()).is_err());
        breaker.bind(Clock::tokio()).unwrap();
    }
}

#[test]
fn looking_at_a_breaker_does_not_bind_it() {
    let breaker = Breaker::default();
    assert_eq!(
        (breaker.state(), breaker.counts(), breaker.remaining_open()),
        (State::Closed, Counts::default(), secs(0))
    );
    assert_eq!(format!("{breaker:?}"), "Breaker { name: None, state: Closed, .. }");
    breaker.bind(Clock::manual()).unwrap();
}

#[test]
fn one_breaker_serves_executors_of_different_results() {
    let clock = Clock::manual();
    let breaker = Breaker::new(consecutive(2));
    let users =
        Executor::builder("users").policies((Retry::immediate(), breaker.clone())).clock(&clock).build().unwrap();
    let sizes = Executor::builder("sizes").policies(breaker.clone()).clock(&clock).build().unwrap();
    clock.block_on(async {
        let error: Error<u16> = sizes.run(async |_| Err::<u64, _>(503)).await.unwrap_err();
        assert_eq!(error.kind(), Kind::Failed);
        let error = users.run(async |_| Err::<String, _>("down")).await.unwrap_err();
        assert!(error.is_circuit_open() && error.last() == Some(&"down"), "both have failed once");
        let error = sizes.erase().run(async |_| Ok::<_, ()>(7)).await.unwrap_err();
        assert_eq!((error.kind(), error.policy()), (Kind::CircuitOpen { retry_after: Some(OPEN_TIME) }, Some("sizes")));
    });
    assert_eq!(breaker.counts().rejected, 2);
}

#[test]
fn clones_and_their_names_share_one_state() {
    let bench = Bench::closed(consecutive(1));
    let (one, two) = (bench.breaker.clone().named("one"), bench.breaker.clone().named("two"));
    one.try_acquire().unwrap().failure();
    assert_eq!(two.state(), State::Open);
    let names = [&one, &two, &bench.breaker].map(|breaker| breaker.try_acquire().unwrap_err().breaker());
    assert_eq!(names, [Some("one"), Some("two"), None]);
    assert_eq!(bench.breaker.counts().rejected, 3);
    let separate = Breaker::new(consecutive(1));
    assert_eq!(separate.state(), State::Closed, "another breaker of the same settings");
}

#[test]
fn the_remaining_open_time_shrinks_to_nothing() {
    let bench = Bench::closed(consecutive(1));
    assert_eq!(bench.breaker.remaining_open(), secs(0));
    bench.trip();
    for passed in [0, 10, 29] {
        assert_eq!(bench.breaker.remaining_open(), OPEN_TIME - secs(passed));
        assert_eq!(bench.breaker.state(), State::Open);
        bench.clock.advance(match passed {
            0 => secs(10),
            10 => secs(19),
            _ => secs(1) - Duration::from_nanos(1),
        });
    }
    assert_eq!((bench.breaker.remaining_open(), bench.breaker.state()), (Duration::from_nanos(1), State::Open));
    assert!(bench.is_refused());
    bench.clock.advance(Duration::from_nanos(1));
    assert_eq!((bench.breaker.remaining_open(), bench.breaker.state()), (secs(0), State::HalfOpen));
    bench.succeed();
    assert_eq!((bench.breaker.remaining_open(), bench.breaker.state()), (secs(0), State::Closed));
}

#[test]
fn the_defaults_are_those_of_the_documentation() {
    assert_eq!((DEFAULT_FAILURE_THRESHOLD, DEFAULT_OPEN_TIME, DEFAULT_TRIALS), (5, secs(30), 1));
    let bench = Bench::closed(BreakerConfig::default());
    (0..10).for_each(|_| bench.succeed());
    (0..9).for_each(|_| bench.fail());
    assert_eq!((bench.breaker.state(), bench.breaker.counts().rate()), (State::Closed, Some(9.0 / 19.0)));
    bench.fail();
    assert_eq!((bench.breaker.state(), bench.breaker.remaining_open()), (State::Open, secs(30)));
    bench.clock.advance(secs(30));
    let _trial = bench.breaker.try_acquire().unwrap();
    assert!(bench.is_refused(), "one trial at a time");
}

#[test]
fn a_breaker_may_stay_open_for_ever() {
    let bench = Bench::open(consecutive(1).open_for(Duration::MAX));
    bench.clock.advance(secs(1 << 33));
    let error = bench.run(async |_| Ok::<_, Opaque>(())).unwrap_err();
    assert_eq!(error.kind(), Kind::CircuitOpen { retry_after: None });
    assert_eq!(error.to_string(), "circuit breaker open");
    assert_eq!(bench.breaker.state(), State::Open);
}

#[test]
fn a_listener_is_told_of_every_change_in_order_with_what_was_counted() {
    let rate = TripRule::failure_rate(0.5).minimum_calls(4);
    let (config, log) =
        logging(BreakerConfig::default().rule(rate).open_for(OPEN_TIME).trials(2).successes_to_close(2));
    let bench = Bench::closed(config);
    let start = bench.clock.now();
    bench.succeed();
    bench.succeed();
    bench.fail();
    bench.fail();
    assert!(bench.is_refused());
    bench.clock.advance(secs(31));
    bench.succeed();
    bench.fail();
    bench.clock.advance(secs(30));
    bench.succeed();
    bench.succeed();
    let seen: Vec<_> = log.entries().into_iter().map(|change| (change.from, change.to, change.cause)).collect();
    let expected = [
        (State::Closed, State::Open, Cause::FailureRate),
        (State::Open, State::HalfOpen, Cause::OpenTimeOver),
        (State::HalfOpen, State::Open, Cause::TrialFailed),
        (State::Open, State::HalfOpen, Cause::OpenTimeOver),
        (State::HalfOpen, State::Closed, Cause::TrialsSucceeded),
    ];
    assert_eq!(seen, expected);
    let counted = |index: usize| {
        let counts = log.entries()[index].counts;
        (counts.calls, counts.failures, counts.rejected)
    };
    assert_eq!([counted(0), counted(1), counted(2)], [(4, 2, 0), (0, 0, 1), (2, 1, 1)]);
    assert_eq!(log.entries()[4].counts.consecutive_successes, 2);
    let times: Vec<_> = log.entries().iter().map(|change| change.at.since(start)).collect();
    assert_eq!(times, [0, 31, 31, 61, 61].map(secs));
}

#[test]
fn a_breaker_in_a_judged_place_is_refused() {
    let chain = (steadfast::judge::by_error(), Breaker::default());
    let refused: ConfigError = Executor::builder("x").policies(chain).build().unwrap_err();
    assert_eq!((refused.field(), refused.value()), ("by_error", "outside of Breaker"));
}
