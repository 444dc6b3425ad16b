//! Trials: that no trial wedges a half-open breaker, that verdicts of earlier periods change nothing, and how the states
//! follow one another.

use std::sync::Mutex;
use std::time::Duration;

use steadfast::breaker::{Breaker, Cause, Permit, State};
use steadfast::chain::BoxPolicy;
use steadfast::error::Kind;
use steadfast::operation::{Fault, Operation, faults};
use steadfast::policy::{Outcome, Policy};
use steadfast::{Attempt, CancellationToken, Executor, Retry, Timeout, Verdict, try_do, try_op};

use crate::breakers::{
    Bench, Closed, OPEN_TIME, Trial, consecutive, counting, effects, hangs_for_ever, logging, panic_of, panics,
};
use crate::policies::Refuses;
use crate::support::{beside, ms, secs};

/// A half-open breaker and its only trial, which has just begun.
fn with_trial(config: steadfast::breaker::BreakerConfig) -> (Bench, Permit) {
    let bench = Bench::half_open(config);
    let trial = bench.breaker.try_acquire().unwrap();
    assert!(trial.is_trial());
    (bench, trial)
}

#[test]
fn a_trial_that_never_reports_wedges_nothing() {
    let (config, log) = logging(consecutive(1));
    let (bench, trial) = with_trial(config);
    let granted = bench.clock.now();
    bench.clock.advance(OPEN_TIME - ms(1));
    assert_eq!((bench.breaker.state(), bench.is_refused()), (State::HalfOpen, true));
    bench.clock.advance(ms(1));
    assert_eq!(bench.breaker.state(), State::Open, "it has expired, whether or not a call has looked");
    assert_eq!(bench.breaker.remaining_open(), OPEN_TIME);
    bench.clock.advance(secs(10));
    assert_eq!(
        bench.breaker.try_acquire().unwrap_err().retry_after(),
        Some(OPEN_TIME - secs(10)),
        "from the expiry on"
    );
    let expired = log.entries().pop().unwrap();
    assert_eq!((expired.cause, expired.at), (Cause::TrialExpired, granted + OPEN_TIME));
    bench.clock.advance(OPEN_TIME - secs(10));
    bench.succeed();
    assert_eq!(bench.breaker.state(), State::Closed);
    drop(trial);
}

#[test]
fn the_late_verdict_of_an_expired_trial_changes_nothing() {
    type End = fn(Permit);
    let ends: [End; 4] = [Permit::success, Permit::failure, Permit::ignore, drop];
    for end in ends {
        let (bench, stale) = with_trial(consecutive(1));
        bench.clock.advance(OPEN_TIME * 2);
        let trial = bench.breaker.try_acquire().unwrap();
        end(stale);
        assert_eq!(bench.breaker.state(), State::HalfOpen);
        assert!(bench.is_refused(), "the place of the newer trial is still taken");
        trial.success();
        assert_eq!(bench.breaker.state(), State::Closed);
    }
}

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
fn an_expired_trial_that_answers_late_still_answers_its_caller() {
    let bench = Bench::half_open(consecutive(1));
    let clock = bench.clock.clock();
    let slow = async |_| {
        clock.sleep(OPEN_TIME * 2).await;
        Ok::<_, ()>("late")
    };
    let look = async {
        clock.sleep(OPEN_TIME).await;
        assert!(bench.breaker.try_acquire().is_err());
    };
    let run = try_do(&bench.cx, slow, &bench.breaker);
    assert_eq!(bench.clock.block_on(beside(look, run)).unwrap(), "late");
    assert_eq!(bench.breaker.state(), State::HalfOpen, "and does not close the breaker");
}

#[test]
fn a_panicking_trial_reopens_and_the_panic_goes_on() {
    let (config, log) = logging(consecutive(1));
    let bench = Bench::half_open(config);
    assert_eq!(panic_of(|| drop(bench.run(async |_| panics::<Result<(), ()>>()))), "the operation's own");
    assert_eq!(log.entries().pop().unwrap().cause, Cause::TrialFailed);
    assert_eq!(bench.after_trial(), Trial::Reopened);
    bench.clock.advance(OPEN_TIME);
    bench.succeed();
    assert_eq!(bench.breaker.state(), State::Closed);
}

#[test]
fn an_operation_with_a_stream_is_no_trial_for_longer_than_it_takes_to_open_it() {
    let bench = Bench::half_open(consecutive(1));
    let open = bench.run(async |_| Ok::<_, ()>(futures::stream::pending::<()>())).unwrap();
    assert_eq!(bench.breaker.state(), State::Closed);
    bench.succeed();
    drop(open);
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
fn four_failures_in_five_never_make_five_in_a_row() {
    let bench = Bench::closed(consecutive(5));
    for _ in 0..100 {
        (0..4).for_each(|_| bench.fail());
        bench.succeed();
    }
    assert_eq!(bench.breaker.state(), State::Closed);
}

#[test]
fn states_are_called_as_operators_know_them() {
    let bench = Bench::closed(consecutive(1));
    assert_eq!(bench.breaker.state().to_string(), "closed");
    bench.trip();
    assert_eq!(bench.breaker.state().to_string(), "open");
    bench.clock.advance(OPEN_TIME);
    assert_eq!(bench.breaker.state().to_string(), "half-open");
}

#[test]
fn each_transition_happens_where_it_should() {
    let bench = Bench::closed(consecutive(2).trials(2).successes_to_close(2));
    bench.fail();
    bench.succeed();
    bench.fail();
    assert_eq!(bench.breaker.state(), State::Closed);
    bench.fail();
    assert_eq!(bench.breaker.state(), State::Open);
    bench.clock.advance(OPEN_TIME);
    let (one, two) = (bench.breaker.try_acquire().unwrap(), bench.breaker.try_acquire().unwrap());
    assert!(bench.is_refused());
    one.success();
    assert_eq!(bench.breaker.state(), State::HalfOpen);
    two.success();
    assert_eq!(bench.breaker.state(), State::Closed);
    assert_eq!(bench.breaker.counts().consecutive_failures, 0, "it begins anew");
    bench.fail();
    assert_eq!(bench.breaker.state(), State::Closed);
}

#[test]
fn a_success_of_an_earlier_period_cannot_reset_newer_failures() {
    let bench = Bench::closed(consecutive(2));
    let old = bench.breaker.try_acquire().unwrap();
    bench.trip();
    bench.clock.advance(OPEN_TIME);
    bench.succeed();
    bench.fail();
    old.success();
    assert_eq!(bench.breaker.counts().consecutive_failures, 1);
    bench.fail();
    assert_eq!(bench.breaker.state(), State::Open);
}

#[test]
fn a_success_of_an_earlier_period_cannot_close_an_open_breaker() {
    let bench = Bench::closed(consecutive(1));
    let old = bench.breaker.try_acquire().unwrap();
    bench.trip();
    old.success();
    assert_eq!((bench.breaker.state(), bench.breaker.remaining_open()), (State::Open, OPEN_TIME));
}

#[test]
fn exactly_one_trial_runs_at_a_time() {
    let bench = Bench::half_open(consecutive(1));
    let calls = Mutex::new(0);
    let call = async |_| {
        *calls.lock().unwrap() += 1;
        hangs_for_ever().await
    };
    let mut runs: Vec<_> = (0..10).map(|_| tokio_test::task::spawn(try_do(&bench.cx, call, &bench.breaker))).collect();
    let refused = runs.iter_mut().filter_map(|run| match run.poll() {
        std::task::Poll::Ready(result) => Some(result.unwrap_err().is_circuit_open()),
        std::task::Poll::Pending => None,
    });
    assert_eq!((refused.filter(|open| *open).count(), *calls.lock().unwrap()), (9, 1));
}

#[test]
fn a_cancelled_trial_reopens_and_the_cancellation_reaches_the_caller() {
    let bench = Bench::half_open(consecutive(1));
    let token = CancellationToken::new();
    let cx = bench.cx.clone().with_token(token.clone());
    let chain = (Retry::immediate(), &bench.breaker);
    let mut run = tokio_test::task::spawn(try_do(&cx, |_| hangs_for_ever(), chain));
    tokio_test::assert_pending!(run.poll());
    bench.clock.advance(secs(3));
    token.cancel();
    assert!(tokio_test::assert_ready!(run.poll()).unwrap_err().is_cancelled());
    assert_eq!(bench.after_trial(), Trial::Reopened);
    assert!(bench.is_refused());
    bench.clock.advance(OPEN_TIME);
    bench.succeed();
    assert_eq!(bench.breaker.state(), State::Closed, "a later trial is eligible");
}

#[test]
fn giving_up_a_closed_call_leaves_the_failures_as_they_were() {
    let bench = Bench::closed(consecutive(2));
    bench.fail();
    drop(bench.breaker.try_acquire().unwrap());
    assert_eq!(bench.breaker.counts().consecutive_failures, 1, "neither one more nor none");
    bench.fail();
    assert_eq!(bench.breaker.state(), State::Open);
}

#[test]
fn pressure_on_this_side_is_no_outage_of_the_other() {
    let full = |bench: &Bench| {
        let chain = (&bench.breaker, Refuses::after(0));
        bench.through(chain, async |_| Ok::<_, ()>(())).unwrap_err();
    };
    assert_eq!(effects(full), (Closed::Nothing, Trial::PlaceBack));
    let no_socket = |bench: &Bench| {
        bench.run(faults(async |_| Err::<(), _>(Fault::Ignored("no file descriptor")))).unwrap_err();
    };
    assert_eq!(effects(no_socket), (Closed::Nothing, Trial::PlaceBack));
}

#[test]
fn an_answer_of_404_shows_that_the_dependency_is_there() {
    let call = |bench: &Bench| {
        let error = bench.run(faults(async |_| Err::<(), _>(Fault::Permanent(404)))).unwrap_err();
        assert_eq!((error.kind(), error.last()), (Kind::Failed, Some(&404)));
    };
    assert_eq!(effects(call), (Closed::Success, Trial::Succeeded));
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
