//! Recovery and release: what a stale, a cancelled and a local end of a call mean.
//!
//! A call that local pressure kept from the dependency gives its trial's place back. To open for another open time, as for a
//! call that its caller abandoned, would make the breaker wait for a dependency that nobody has asked.

use std::sync::Mutex;
use std::task::Poll;

use steadfast::breaker::{Cause, State};
use steadfast::error::Kind;
use steadfast::operation::{Fault, faults};
use steadfast::{CancellationToken, Retry, Timeout, try_do};

use crate::breakers::{Bench, Closed, OPEN_TIME, Queue, Trial, consecutive, effects, hangs_for_ever, logging};
use crate::policies::Refuses;
use crate::support::secs;

#[test]
fn a_stale_success_cannot_close_an_open_breaker() {
    let bench = Bench::closed(consecutive(1));
    let old = bench.breaker.try_acquire().unwrap();
    bench.trip();
    old.success();
    assert_eq!((bench.breaker.state(), bench.breaker.remaining_open()), (State::Open, OPEN_TIME));
}

#[test]
fn a_stale_success_cannot_reset_newer_failures() {
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
fn exactly_one_trial_runs_at_a_time() {
    let bench = Bench::half_open(consecutive(1));
    let calls = Mutex::new(0);
    let call = async |_| {
        *calls.lock().unwrap() += 1;
        hangs_for_ever().await
    };
    let mut runs: Vec<_> = (0..10).map(|_| tokio_test::task::spawn(try_do(&bench.cx, call, &bench.breaker))).collect();
    let refused = runs.iter_mut().filter_map(|run| match run.poll() {
        Poll::Ready(result) => Some(result.unwrap_err().is_circuit_open()),
        Poll::Pending => None,
    });
    assert_eq!((refused.filter(|open| *open).count(), *calls.lock().unwrap()), (9, 1));
}

#[test]
fn a_cancelled_trial_reopens_and_the_cancellation_reaches_the_caller() {
    let (config, log) = logging(consecutive(1));
    let bench = Bench::half_open(config);
    let token = CancellationToken::new();
    let cx = bench.cx.clone().with_token(token.clone());
    let chain = (Retry::immediate(), &bench.breaker);
    let mut run = tokio_test::task::spawn(try_do(&cx, |_| hangs_for_ever(), chain));
    tokio_test::assert_pending!(run.poll());
    bench.clock.advance(secs(3));
    token.cancel();
    assert!(tokio_test::assert_ready!(run.poll()).unwrap_err().is_cancelled());
    assert_eq!(log.entries().pop().unwrap().cause, Cause::TrialAbandoned);
    assert_eq!(bench.after_trial(), Trial::Reopened, "for a whole open time");
    assert!(bench.is_refused());
    bench.clock.advance(OPEN_TIME);
    bench.succeed();
    assert_eq!(bench.breaker.state(), State::Closed, "a later trial is eligible");
}

#[test]
fn the_cancelled_owner_of_an_earlier_trial_does_not_reopen_a_later_one() {
    let bench = Bench::half_open(consecutive(1));
    let mut owner = tokio_test::task::spawn(try_do(&bench.cx, |_| hangs_for_ever(), &bench.breaker));
    tokio_test::assert_pending!(owner.poll());
    bench.clock.advance(OPEN_TIME * 2);
    let trial = bench.breaker.try_acquire().unwrap();
    drop(owner);
    assert_eq!(bench.breaker.state(), State::HalfOpen);
    trial.success();
    assert_eq!(bench.breaker.state(), State::Closed);
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
    let no_connection = |bench: &Bench| {
        let chain = (&bench.breaker, Timeout::secs(1), Queue(secs(2)));
        assert_eq!(bench.through(chain, async |_| Ok::<_, ()>(())).unwrap_err().attempts(), 0);
    };
    assert_eq!(effects(no_connection), (Closed::Nothing, Trial::PlaceBack));
}

#[test]
fn an_answer_of_404_shows_that_the_dependency_is_there() {
    let call = |bench: &Bench| {
        let error = bench.run(faults(async |_| Err::<(), _>(Fault::Permanent(404)))).unwrap_err();
        assert_eq!((error.kind(), error.last()), (Kind::Failed, Some(&404)));
    };
    assert_eq!(effects(call), (Closed::Success, Trial::Succeeded));
}
