//! How long a trial may take, and what becomes of a period whose trials say nothing in that time.

use std::time::Duration;

use steadfast::breaker::{Breaker, Cause, State};
use steadfast::chain::BoxPolicy;
use steadfast::error::Kind;
use steadfast::operation::Operation;
use steadfast::policy::{Outcome, Policy};
use steadfast::{Attempt, Executor, Retry, Timeout, try_do, try_op};

use crate::breakers::{Bench, OPEN_TIME, consecutive, counting, hangs_for_ever, logging, with_trial};
use crate::support::{ms, secs};

#[test]
fn a_verdict_before_anyone_saw_the_expiry_still_counts() {
    let (bench, trial) = with_trial(consecutive(1));
    bench.clock.advance(OPEN_TIME * 3);
    trial.success();
    assert_eq!(bench.breaker.state(), State::Closed);
}

#[test]
fn a_trial_deadline_of_its_own_is_kept() {
    for deadline in [secs(3), secs(90)] {
        let (bench, _trial) = with_trial(consecutive(1).trial_deadline(deadline));
        bench.clock.advance(deadline - ms(1));
        assert_eq!(bench.breaker.state(), State::HalfOpen, "{deadline:?}");
        bench.clock.advance(ms(1));
        assert_eq!((bench.breaker.state(), bench.breaker.remaining_open()), (State::Open, OPEN_TIME));
    }
}

#[test]
fn a_period_with_a_free_place_does_not_expire() {
    let (bench, _trial) = with_trial(consecutive(1).trials(2));
    bench.clock.advance(OPEN_TIME * 10);
    assert_eq!(bench.breaker.state(), State::HalfOpen);
    let _second = bench.breaker.try_acquire().unwrap();
    bench.clock.advance(OPEN_TIME - ms(1));
    assert_eq!(bench.breaker.state(), State::HalfOpen, "the last trial has its time");
    bench.clock.advance(ms(1));
    assert_eq!(bench.breaker.state(), State::Open);
}

/// How long a trial that runs through `inside` may take, if it may take only a second otherwise.
fn time_of_trial(inside: impl Policy<(), &'static str>) -> Duration {
    let bench = Bench::half_open(consecutive(1).trial_deadline(secs(1)));
    let start = bench.clock.now();
    let mut run = tokio_test::task::spawn(try_do(&bench.cx, |_| hangs_for_ever(), (&bench.breaker, inside)));
    tokio_test::assert_pending!(run.poll());
    while bench.breaker.state() == State::HalfOpen {
        bench.clock.advance(ms(500));
        assert!(bench.clock.now().since(start) < secs(600), "it never expires");
    }
    bench.clock.now().since(start)
}

#[test]
fn a_trial_has_the_time_that_the_policies_inside_allow_and_a_second() {
    assert_eq!(time_of_trial(()), secs(1));
    assert_eq!(time_of_trial(Timeout::millis(100)), ms(1_500), "1.1 s, seen in steps of half a second");
    assert_eq!(time_of_trial(Timeout::secs(9)), secs(10));
    assert_eq!(time_of_trial((Timeout::secs(9), Timeout::secs(4))), secs(5), "the shorter of two");
    assert_eq!(time_of_trial(Some(Timeout::secs(9))), secs(10));
    assert_eq!(time_of_trial(vec![BoxPolicy::new(Timeout::secs(9))]), secs(10));
    assert_eq!(time_of_trial(Timeout::new(Duration::MAX)), secs(1), "no limit is none");
}

#[test]
fn a_trial_has_the_time_of_a_whole_retry_inside() {
    // Three attempts of 2 s, with at most 30 s between two of them.
    let all = secs(3 * 2 + 2 * 30 + 1);
    assert_eq!(time_of_trial((Retry::exponential(), Timeout::secs(2))), all);
    assert_eq!(time_of_trial((Retry::exponential().max_elapsed(secs(20)), Timeout::secs(2))), secs(23));
    assert_eq!(time_of_trial((Retry::exponential().unlimited(), Timeout::secs(2))), secs(1), "without a bound");
    assert_eq!(time_of_trial((Timeout::secs(5), Retry::exponential())), secs(6));
}

#[test]
fn a_trial_has_the_time_that_the_operation_allows_itself() {
    struct Bounded;
    impl Operation<(), ()> for Bounded {
        async fn call(&self, _: Attempt) -> Outcome<(), ()> {
            std::future::pending().await
        }
        fn limit(&self) -> Option<Duration> {
            Some(secs(40))
        }
    }
    let bench = Bench::half_open(consecutive(1));
    let mut run = tokio_test::task::spawn(try_op(&bench.cx, Bounded, &bench.breaker));
    tokio_test::assert_pending!(run.poll());
    bench.clock.advance(secs(41) - ms(1));
    assert_eq!(bench.breaker.state(), State::HalfOpen);
    bench.clock.advance(ms(1));
    assert_eq!(bench.breaker.state(), State::Open);
}

#[test]
fn a_limit_inside_gives_its_verdict_before_the_trial_expires() {
    let (config, log) = logging(consecutive(1).trial_deadline(secs(1)));
    let bench = Bench::half_open(config);
    bench.through((&bench.breaker, Timeout::secs(60)), |_| hangs_for_ever()).unwrap_err();
    assert_eq!(log.entries().pop().unwrap().cause, Cause::TrialFailed);
}

#[test]
fn a_shut_down_executor_leaves_a_breaker_that_others_can_use() {
    let bench = Bench::half_open(counting());
    let executor = Executor::builder("ends").policies(bench.breaker.clone()).clock(&bench.clock).build().unwrap();
    let mut run = tokio_test::task::spawn(executor.run(|_| hangs_for_ever()));
    tokio_test::assert_pending!(run.poll());
    executor.shutdown();
    assert_eq!(tokio_test::assert_ready!(run.poll()).unwrap_err().kind(), Kind::ShutDown);
    bench.clock.advance(Breaker::remaining_open(&bench.breaker));
    bench.succeed();
    assert_eq!(bench.breaker.state(), State::Closed);
}
