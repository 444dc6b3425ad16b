//! The permit of a call: what it makes of being dropped, when it takes the time, and what it leaves in the tail.

use std::future::ready;
use std::sync::{Arc, Mutex};

use steadfast::breaker::{AbandonedTrial, Breaker, State};
use steadfast::error::Kind;
use steadfast::operation::Operation;
use steadfast::policy::{Call, End, Next, Outcome, Policy, Reason, Settings, Tail};
use steadfast::{Attempt, CancellationToken, Error, Executor, Hedge, Retry, Timeout, Verdict, try_do, try_op};

use crate::breakers::{
    Bench, Closed, GivesUp, OPEN_TIME, Queue, Races, Trial, consecutive, counting, effects, effects_of, hangs_for_ever,
    panic_of, panics,
};
use crate::support::{Script, err, hangs, ms, secs};

/// Runs a call through a policy that drops it after a second.
fn dropped_for(reason: Option<Reason>) -> (Closed, Trial) {
    effects(|bench| {
        let error = bench.through((GivesUp(reason), &bench.breaker), |_| hangs_for_ever()).unwrap_err();
        assert_eq!((error.kind(), error.attempts()), (Kind::Overloaded, 1));
    })
}

#[test]
fn each_reason_to_drop_a_running_call_counts_as_what_it_is() {
    assert_eq!(dropped_for(Some(Reason::TimedOut)), (Closed::Failure, Trial::Reopened));
    assert_eq!(dropped_for(Some(Reason::Cancelled)), (Closed::Nothing, Trial::Reopened));
    assert_eq!(dropped_for(Some(Reason::DeadlineExceeded)), (Closed::Nothing, Trial::Reopened));
    assert_eq!(dropped_for(Some(Reason::ShutDown)), (Closed::Nothing, Trial::Reopened));
    assert_eq!(dropped_for(Some(Reason::LostRace)), (Closed::Nothing, Trial::PlaceBack));
    assert_eq!(dropped_for(None), (Closed::Nothing, Trial::Reopened), "as if the caller had dropped it");
}

#[test]
fn a_limit_that_passes_before_the_operation_starts_gives_the_place_back() {
    let waits = |bench: &Bench| {
        let chain = (GivesUp(Some(Reason::TimedOut)), &bench.breaker, Queue(secs(9)));
        assert_eq!(bench.through(chain, async |_| Ok::<_, ()>(())).unwrap_err().attempts(), 0);
    };
    assert_eq!(effects(waits), (Closed::Nothing, Trial::PlaceBack));
    // The caller who has enough of waiting is a caller who gave up.
    let waits = |bench: &Bench| {
        let chain = (GivesUp(None), &bench.breaker, Queue(secs(9)));
        assert_eq!(bench.through(chain, async |_| Ok::<_, ()>(())).unwrap_err().attempts(), 0);
    };
    assert_eq!(effects(waits), (Closed::Nothing, Trial::Reopened));
}

#[test]
fn the_nearest_reason_counts() {
    // The race is lost a second after its start; the limit around it would have come later.
    let call = |bench: &Bench| {
        let chain = (Timeout::secs(2), GivesUp(Some(Reason::LostRace)), &bench.breaker);
        bench.through(chain, |_| hangs_for_ever()).unwrap_err();
    };
    assert_eq!(effects(call), (Closed::Nothing, Trial::PlaceBack));
    let call = |bench: &Bench| {
        let chain = (Timeout::millis(500), GivesUp(Some(Reason::LostRace)), &bench.breaker);
        assert!(bench.through(chain, |_| hangs_for_ever()).unwrap_err().is_timeout());
    };
    assert_eq!(effects(call), (Closed::Failure, Trial::Reopened), "the limit was first");
}

#[test]
fn a_limit_of_the_whole_run_fails_the_first_attempt_alone() {
    let first = |bench: &Bench| {
        let chain = (Timeout::secs(3), Retry::fixed(secs(1)), &bench.breaker);
        assert!(bench.through(chain, |_| hangs_for_ever()).unwrap_err().is_timeout());
    };
    assert_eq!(effects(first), (Closed::Failure, Trial::Reopened), "it had all of the time");

    let bench = Bench::closed(counting());
    let script = Script::new(&bench.clock, [err::<(), _>("down"), hangs()]);
    let chain = (Timeout::secs(3), Retry::fixed(secs(1)), &bench.breaker);
    let error = bench.through(chain, |_| script.call_plain()).unwrap_err();
    assert_eq!((error.is_timeout(), error.attempts(), error.last()), (true, 2, Some(&"down")));
    assert_eq!(bench.counted(), (1, 1), "the second had what the first had left, and is abandoned");
}

#[test]
fn a_limit_of_the_whole_run_abandons_a_trial_that_is_a_later_attempt() {
    for (then, trial) in [(AbandonedTrial::Reopen, State::Open), (AbandonedTrial::Release, State::HalfOpen)] {
        let bench = Bench::closed(consecutive(1).open_for(secs(5)).abandoned_trial(then));
        let script = Script::new(&bench.clock, [err::<(), _>("down"), hangs()]);
        let chain = (Timeout::secs(9), Retry::fixed(secs(6)), &bench.breaker);
        assert!(bench.through(chain, |_| script.call_plain()).unwrap_err().is_timeout());
        assert_eq!((script.calls(), bench.breaker.state()), (vec![secs(0), secs(6)], trial));
    }
}

#[test]
fn a_limit_of_the_attempt_fails_every_attempt() {
    let bench = Bench::closed(counting());
    let chain = (Retry::fixed(secs(1)).max_attempts(2), Timeout::secs(3), &bench.breaker);
    assert_eq!(bench.through(chain, |_| hangs_for_ever()).unwrap_err().attempts(), 2);
    assert_eq!(bench.counted(), (2, 2), "no retry lies between the limit and the breaker");
}

#[test]
fn a_limit_that_passes_in_the_wait_between_two_attempts_counts_nothing_more() {
    let bench = Bench::closed(counting());
    let chain = (GivesUp(Some(Reason::TimedOut)), Retry::fixed(secs(60)), &bench.breaker);
    bench.through(chain, async |_| Err::<(), _>("down")).unwrap_err();
    assert_eq!(bench.counted(), (1, 1));
}

#[test]
fn a_panic_counts_as_a_failure_whatever_else_is_going_on() {
    let in_a_task = |bench: &Bench| {
        let chain = (Timeout::secs(5), Retry::fixed(secs(1)), &bench.breaker, Timeout::secs(3));
        assert_eq!(
            panic_of(|| drop(bench.through(chain, async |_| panics::<Result<(), ()>>()))),
            "the operation's own"
        );
    };
    assert_eq!(effects(in_a_task), (Closed::Failure, Trial::Reopened));
}

#[test]
fn the_panic_of_one_try_is_not_that_of_the_next() {
    // A policy catches the panic and calls again; the second try is abandoned.
    struct Catches;
    impl Settings for Catches {}
    impl<T: Send, E: Send> Policy<T, E> for Catches {
        async fn run<N: Next<T, E>>(&self, call: Call<'_, E>, next: N) -> Outcome<T, E> {
            use futures::FutureExt;
            let first = std::panic::AssertUnwindSafe(next.call(call)).catch_unwind().await;
            assert!(first.is_err());
            next.call(call).await
        }
    }
    let bench = Bench::closed(counting());
    let calls = Script::new(&bench.clock, [err::<(), _>("panics"), hangs()]);
    let chain = (GivesUp(None), Catches, &bench.breaker);
    let run = bench.through(chain, async |_| calls.call_plain().await.map_err(|_| panics::<()>()));
    run.unwrap_err();
    assert_eq!((calls.calls().len(), bench.counted()), (2, (1, 1)));
}

#[test]
fn a_panic_that_was_caught_is_not_that_of_a_try_that_never_starts() {
    // A policy turns the panic into a failure; the next try waits for a place of its own until its limit passes.
    struct Catches;
    impl Settings for Catches {}
    impl<T: Send, E: Send + Default> Policy<T, E> for Catches {
        async fn run<N: Next<T, E>>(&self, call: Call<'_, E>, next: N) -> Outcome<T, E> {
            use futures::FutureExt;
            let tried = std::panic::AssertUnwindSafe(next.call(call)).catch_unwind().await;
            tried.unwrap_or_else(|_| Outcome::failed(E::default(), Verdict::Transient))
        }
    }
    let second_waits = || Slow(std::sync::atomic::AtomicU32::new(0));
    for lane in [false, true] {
        let bench = Bench::closed(counting());
        let hedge = lane.then(|| Hedge::after(secs(3_600)));
        let chain =
            (hedge, Retry::fixed(secs(1)).max_attempts(2), Catches, Timeout::secs(1), &bench.breaker, second_waits());
        let run = bench.through(chain, async |_| panics::<Result<(), u32>>());
        assert_eq!(run.unwrap_err().kind(), Kind::TimedOut { limit: secs(1) });
        assert_eq!(bench.counted(), (1, 1), "the panic alone");
    }
}

/// Lets the first call through at once, and keeps each later one waiting.
struct Slow(std::sync::atomic::AtomicU32);

impl Settings for Slow {}

impl<T: Send, E: Send> Policy<T, E> for Slow {
    async fn run<N: Next<T, E>>(&self, call: Call<'_, E>, next: N) -> Outcome<T, E> {
        if self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed) > 0 {
            call.clock().sleep(secs(60)).await;
        }
        next.call(call).await
    }
}

#[test]
fn a_thread_that_unwinds_for_its_own_reasons_does_not_blame_the_dependency() {
    let call = |bench: &Bench| {
        let run = || {
            let mut run = tokio_test::task::spawn(try_do(&bench.cx, |_| hangs_for_ever(), &bench.breaker));
            tokio_test::assert_pending!(run.poll());
            panics::<()>();
        };
        panic_of(run);
    };
    assert_eq!(effects(call), (Closed::Nothing, Trial::Reopened), "the run was dropped by its caller");
}

#[test]
fn a_lost_race_between_two_operations_counts_the_winner() {
    let config = counting().trials(2);
    let (closed, _) = effects_of(config, |bench| {
        let script = Script::new(&bench.clock, [hangs(), err::<(), _>("down").after(secs(1))]);
        bench.through((Races, &bench.breaker), |_| script.call_plain()).unwrap_err();
    });
    assert_eq!(closed, [Closed::Failure]);
}

#[test]
fn a_cancelled_context_takes_no_place() {
    let bench = Bench::half_open(counting());
    let token = CancellationToken::new();
    token.cancel();
    let cancelled = bench.cx.clone().with_token(token);
    let late = bench.cx.clone().with_timeout(secs(0));
    for (cx, kind) in [(cancelled, Kind::Cancelled), (late, Kind::DeadlineExceeded)] {
        let error = bench.clock.block_on(try_do(&cx, async |_| Ok::<_, ()>(()), &bench.breaker)).unwrap_err();
        assert_eq!((error.kind(), error.attempts()), (kind, 0));
    }
    assert_eq!((bench.breaker.counts().rejected, bench.after_trial()), (0, Trial::PlaceBack));
}

#[test]
fn a_run_that_was_never_polled_takes_no_place() {
    let bench = Bench::half_open(counting());
    drop(try_do(&bench.cx, |_| hangs_for_ever(), &bench.breaker));
    assert_eq!(bench.after_trial(), Trial::PlaceBack);
}

#[test]
fn the_open_time_begins_when_the_failure_is_there_although_the_operation_blocked() {
    let bench = Bench::closed(consecutive(1));
    let blocks = |_| {
        bench.clock.advance(secs(40));
        ready(Err::<(), _>("down"))
    };
    bench.run(blocks).unwrap_err();
    assert_eq!((bench.breaker.state(), bench.breaker.remaining_open()), (State::Open, OPEN_TIME));
    bench.clock.advance(OPEN_TIME);
    bench.run(blocks).unwrap_err();
    assert_eq!(bench.after_trial(), Trial::Reopened);
}

/// An operation whose result outlives the run.
struct Opens(Verdict);

impl Operation<&'static str, ()> for Opens {
    async fn call(&self, _: Attempt) -> Outcome<&'static str, ()> {
        Outcome::new(Ok("a stream"), self.0)
    }

    fn streams(&self) -> bool {
        true
    }
}

/// Takes the tail of every outcome, as an adapter does that holds it until the stream ends.
#[derive(Clone, Default)]
struct Holds(Arc<Mutex<Vec<Tail>>>);

impl Settings for Holds {}

impl<T: Send, E: Send> Policy<T, E> for Holds {
    async fn run<N: Next<T, E>>(&self, call: Call<'_, E>, next: N) -> Outcome<T, E> {
        let mut outcome = next.call(call).await;
        self.0.lock().unwrap().push(outcome.tail_mut().take());
        outcome
    }
}

/// Opens a stream through the breaker, and gives what the breaker left behind.
fn open_stream(bench: &Bench) -> Tail {
    let holds = Holds::default();
    let run = try_op(&bench.cx, Opens(Verdict::Success), (holds.clone(), &bench.breaker));
    assert_eq!(bench.clock.block_on(run).unwrap(), "a stream");
    let tail = holds.0.lock().unwrap().pop().unwrap();
    assert!(!tail.is_empty());
    tail
}

#[test]
fn a_stream_that_fails_late_is_counted_then() {
    let late = [(End::Failed, 1), (End::TimedOut, 1), (End::Complete, 0), (End::Cancelled, 0), (End::Dropped, 0)];
    for (end, failures) in late {
        let bench = Bench::closed(counting());
        let tail = open_stream(&bench);
        assert_eq!(bench.counted(), (1, 0), "it was opened");
        tail.end(end);
        assert_eq!(bench.counted(), (1 + failures, failures), "{end:?}");
    }
    let bench = Bench::closed(counting());
    drop(open_stream(&bench));
    assert_eq!(bench.counted(), (1, 0), "nobody says why it was dropped");
}

#[test]
fn a_stream_that_opens_ends_the_trial_and_may_fail_later() {
    let bench = Bench::half_open(consecutive(2));
    let streams = [open_stream(&bench), open_stream(&bench), open_stream(&bench)];
    assert_eq!(bench.breaker.state(), State::Closed, "others are admitted while it is open");
    bench.succeed();
    let [one, two, three] = streams;
    one.end(End::Failed);
    assert_eq!(bench.breaker.state(), State::Closed);
    two.end(End::Failed);
    assert_eq!(bench.breaker.state(), State::Open, "failures that show late open it");
    bench.clock.advance(OPEN_TIME);
    three.end(End::Failed);
    assert_eq!(bench.after_trial(), Trial::PlaceBack, "and are no evidence while it is half-open");
}

#[test]
fn a_result_that_ends_with_its_run_leaves_nothing_behind() {
    let bench = Bench::closed(counting());
    let holds = Holds::default();
    bench.through((holds.clone(), &bench.breaker), async |_| Ok::<_, ()>(())).unwrap();
    assert!(holds.0.lock().unwrap().iter().all(Tail::is_empty));
}

#[test]
fn a_stream_that_a_retry_gives_up_is_not_counted_twice() {
    let bench = Bench::closed(counting());
    let chain = (Retry::immediate().max_attempts(2), &bench.breaker);
    assert_eq!(bench.clock.block_on(try_op(&bench.cx, Opens(Verdict::Transient), chain)).unwrap(), "a stream");
    assert_eq!(bench.counted(), (2, 2));
}

#[test]
fn every_way_out_gives_the_place_back_in_the_end() {
    // Whatever happened to it, a breaker is half-open again after the open time.
    let bench = Bench::half_open(consecutive(1));
    let executor = Executor::builder("x")
        .policies((Retry::immediate(), bench.breaker.clone()))
        .clock(&bench.clock)
        .build()
        .unwrap();
    for _ in 0..3 {
        let mut run = tokio_test::task::spawn(executor.run(|_| hangs_for_ever()));
        tokio_test::assert_pending!(run.poll());
        bench.clock.advance(ms(1));
        drop(run);
        assert_eq!(bench.after_trial(), Trial::Reopened);
        bench.clock.advance(OPEN_TIME);
    }
    let error: Option<Error<()>> = bench.clock.block_on(executor.run(async |_| Ok(()))).err();
    assert!(error.is_none() && Breaker::state(&bench.breaker) == State::Closed);
}
