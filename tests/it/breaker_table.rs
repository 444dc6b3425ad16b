//! Row by row: what each end of a call does to a closed breaker, and to a half-open one whose trial the call is.

use std::sync::atomic::{AtomicU32, Ordering};

use steadfast::breaker::{AbandonedTrial, State};
use steadfast::error::{ConfigError, Kind};
use steadfast::judge::{classify, judged_by, retry_after, retry_if};
use steadfast::operation::faults;
use steadfast::policy::Outcome;
use steadfast::{CancellationToken, Error, Executor, Retry, Timeout, Verdict, op, try_do, try_op};

use crate::breakers::{
    Bench, Closed, OPEN_TIME, Queue, Races, Trial, counting, effects, effects_of, every_fault, every_verdict,
    hangs_for_ever, panic_of, panics,
};
use crate::policies::Refuses;
use crate::support::{ms, secs};

#[test]
fn a_success_is_a_success() {
    assert_eq!(effects(Bench::succeed), (Closed::Success, Trial::Succeeded));
}

#[test]
fn each_fault_of_an_operation_counts_as_in_the_table() {
    for (fault, closed, trial) in every_fault() {
        let call = |bench: &Bench| {
            bench.run(faults(|_| async { Err::<(), _>(fault.clone()) })).unwrap_err();
        };
        assert_eq!(effects(call), (closed, trial), "{fault:?}");
    }
}

#[test]
fn each_verdict_on_a_value_counts_as_in_the_table() {
    for (verdict, closed, trial) in every_verdict() {
        let judge = move |_: &Result<u16, Error<&str>>| verdict;
        let by_policy = |bench: &Bench| {
            let chain = (&bench.breaker, classify(judge));
            assert_eq!(bench.through(chain, |_| async { Ok(200) }).unwrap(), 200, "the value is the caller's");
        };
        assert_eq!(effects(by_policy), (closed, trial), "{verdict:?}");
        let by_operation = |bench: &Bench| {
            let run = try_op(&bench.cx, op(|_| async { Ok(200) }).classify(judge), &bench.breaker);
            assert_eq!(bench.clock.block_on(run).unwrap(), 200);
        };
        assert_eq!(effects(by_operation), (closed, trial), "{verdict:?}");
    }
}

#[test]
fn each_verdict_on_a_permit_counts_as_in_the_table() {
    for (verdict, closed, trial) in every_verdict() {
        let call = |bench: &Bench| bench.breaker.try_acquire().unwrap().record(verdict);
        assert_eq!(effects(call), (closed, trial), "{verdict:?}");
    }
}

#[test]
fn each_verdict_counts_through_an_executor_and_an_erased_one() {
    struct Says(Verdict);
    impl<T, E> steadfast::judge::Judge<T, E> for Says {
        fn judge(&self, _: &Result<T, Error<E>>) -> Verdict {
            self.0
        }
    }
    for (verdict, closed, trial) in every_verdict() {
        for erased in [false, true] {
            let call = |bench: &Bench| {
                let chain = (bench.breaker.clone(), judged_by(Says(verdict)));
                let executor = Executor::builder("table").policies(chain).clock(&bench.clock).build().unwrap();
                let run = async |_| Ok::<_, ()>(7);
                let value = match erased {
                    false => bench.clock.block_on(executor.run(run)),
                    true => bench.clock.block_on(executor.erase().run(run)),
                };
                assert_eq!(value.unwrap(), 7);
            };
            assert_eq!(effects(call), (closed, trial), "{verdict:?}, erased: {erased}");
        }
    }
}

#[test]
fn an_attempt_limit_inside_that_is_hit_is_a_failure() {
    let call = |bench: &Bench| {
        let error = bench.through((&bench.breaker, Timeout::secs(3)), |_| hangs_for_ever()).unwrap_err();
        assert_eq!(error.kind(), Kind::TimedOut { limit: secs(3) });
    };
    assert_eq!(effects(call), (Closed::Failure, Trial::Reopened));
}

#[test]
fn an_attempt_limit_outside_that_is_hit_is_a_failure() {
    let call = |bench: &Bench| {
        let error = bench.through((Timeout::secs(3), &bench.breaker), |_| hangs_for_ever()).unwrap_err();
        assert_eq!(error.kind(), Kind::TimedOut { limit: secs(3) });
    };
    assert_eq!(effects(call), (Closed::Failure, Trial::Reopened));
}

#[test]
fn an_operation_that_panics_is_a_failure_and_the_panic_goes_on() {
    let at_its_start = |bench: &Bench| {
        let run = || drop(bench.run(|_| panics::<std::future::Ready<Result<(), ()>>>()));
        assert_eq!(panic_of(run), "the operation's own");
    };
    assert_eq!(effects(at_its_start), (Closed::Failure, Trial::Reopened));
    let later = |bench: &Bench| {
        let clock = bench.clock.clock();
        let run = || {
            let slow = bench.run(async |_| {
                clock.sleep(secs(1)).await;
                panics::<Result<(), ()>>()
            });
            drop(slow);
        };
        assert_eq!(panic_of(run), "the operation's own");
    };
    assert_eq!(effects(later), (Closed::Failure, Trial::Reopened));
}

#[test]
fn a_panic_that_a_task_catches_is_a_failure_just_the_same() {
    let call = |bench: &Bench| {
        let (cx, breaker) = (bench.cx.clone(), bench.breaker.clone());
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let task = runtime.spawn(async move { try_do(&cx, async |_| panics::<Result<(), ()>>(), breaker).await });
        assert!(runtime.block_on(task).unwrap_err().is_panic());
    };
    assert_eq!(effects(call), (Closed::Failure, Trial::Reopened));
}

#[test]
fn a_throttled_call_counts_nothing_and_delays_the_next_trial() {
    let chain = retry_after(|error: &u64| Some(secs(*error)));
    let throttle = |bench: &Bench, wait: u64| {
        bench.through((&bench.breaker, &chain), async |_| Err::<(), _>(wait)).unwrap_err();
    };
    let bench = Bench::closed(counting());
    throttle(&bench, 9);
    assert_eq!((bench.counted(), bench.breaker.state()), ((0, 0), State::Closed));
    bench.succeed();

    // It asked for 9 s, and for more than the open time.
    for (asked, waits) in [(9, secs(9)), (600, OPEN_TIME)] {
        let bench = Bench::half_open(counting());
        throttle(&bench, asked);
        assert_eq!(bench.breaker.state(), State::HalfOpen, "neither closed nor open");
        assert_eq!(bench.breaker.try_acquire().unwrap_err().retry_after(), Some(waits));
        bench.clock.advance(waits - ms(1));
        let error = bench.run(async |_| Ok::<_, ()>(())).unwrap_err();
        assert_eq!((error.attempts(), error.retry_after()), (0, Some(ms(1))));
        bench.clock.advance(ms(1));
        bench.succeed();
        assert_eq!(bench.breaker.state(), State::Closed);
    }
}

#[test]
fn a_throttled_call_without_a_time_gives_its_place_back_at_once() {
    for retry_after in [None, Some(secs(0))] {
        let bench = Bench::half_open(counting());
        let busy = || async { Outcome::<(), _>::failed("busy", Verdict::Throttled { retry_after }) };
        bench.run(|_| busy()).unwrap_err();
        assert_eq!(bench.after_trial(), Trial::PlaceBack);
    }
}

#[test]
fn a_refusal_by_an_inner_policy_counts_nothing() {
    let call = |bench: &Bench| {
        let error = bench.through((&bench.breaker, Refuses::after(0)), async |_| Ok::<_, ()>(())).unwrap_err();
        assert_eq!((error.kind(), error.attempts()), (Refuses::KIND, 0));
    };
    assert_eq!(effects(call), (Closed::Nothing, Trial::PlaceBack), "not even for the time that it names");
}

#[test]
fn a_limit_that_is_hit_before_the_operation_started_counts_nothing() {
    let inside = |bench: &Bench| {
        let chain = (&bench.breaker, Timeout::secs(3), Queue(secs(9)));
        assert!(bench.through(chain, async |_| Ok::<_, ()>(())).unwrap_err().is_timeout());
    };
    assert_eq!(effects(inside), (Closed::Nothing, Trial::PlaceBack));
    let outside = |bench: &Bench| {
        let chain = (Timeout::secs(3), &bench.breaker, Queue(secs(9)));
        assert!(bench.through(chain, async |_| Ok::<_, ()>(())).unwrap_err().is_timeout());
    };
    assert_eq!(effects(outside), (Closed::Nothing, Trial::PlaceBack));
}

/// Ends a call in the middle of it, in each way that its caller has.
fn give_up(bench: &Bench, how: &str) {
    let executor = Executor::builder("given up").policies(bench.breaker.clone()).clock(&bench.clock).build().unwrap();
    let token = CancellationToken::new();
    let cx = match how {
        "deadline" => executor.context().with_timeout(secs(1)),
        _ => executor.context().with_token(token.clone()),
    };
    let mut run = tokio_test::task::spawn(executor.run_with(&cx, |_| hangs_for_ever()));
    tokio_test::assert_pending!(run.poll());
    bench.clock.advance(secs(1));
    match how {
        "token" => token.cancel(),
        "shutdown" => executor.shutdown(),
        "deadline" => {}
        _ => return drop(run),
    }
    assert!(run.is_woken(), "{how}");
    let error = tokio_test::assert_ready!(run.poll()).unwrap_err();
    let kind = match how {
        "token" => Kind::Cancelled,
        "shutdown" => Kind::ShutDown,
        _ => Kind::DeadlineExceeded,
    };
    assert_eq!(error.kind(), kind);
}

#[test]
fn a_call_that_its_caller_gave_up_counts_nothing_and_reopens() {
    for how in ["token", "deadline", "shutdown", "drop"] {
        assert_eq!(effects(|bench| give_up(bench, how)), (Closed::Nothing, Trial::Reopened), "{how}");
    }
}

#[test]
fn a_call_that_its_caller_gave_up_gives_its_place_back_if_the_setting_says_so() {
    let config = counting().abandoned_trial(AbandonedTrial::Release);
    for how in ["token", "deadline", "shutdown", "drop"] {
        let effects = effects_of(config.clone(), |bench| give_up(bench, how));
        assert_eq!(effects, (vec![Closed::Nothing], Trial::PlaceBack), "{how}");
    }
}

#[test]
fn a_call_that_lost_a_race_counts_nothing_and_gives_its_place_back() {
    let race = |bench: &Bench| {
        let lane = AtomicU32::new(0);
        let run = bench.through((Races, &bench.breaker), async |_| match lane.fetch_add(1, Ordering::Relaxed) {
            0 => hangs_for_ever().await,
            _ => Ok(()),
        });
        run.unwrap();
    };
    let config = counting().trials(2).successes_to_close(2);
    let bench = Bench::closed(config.clone());
    race(&bench);
    assert_eq!(bench.counted(), (1, 0), "the winner");
    let bench = Bench::half_open(config);
    race(&bench);
    assert_eq!((bench.breaker.state(), bench.counted()), (State::HalfOpen, (1, 0)));
    let places = [bench.breaker.try_acquire(), bench.breaker.try_acquire()];
    assert!(places.iter().all(Result::is_ok), "the loser's place is free too");
}

#[test]
fn more_than_ten_ends_without_a_verdict_reopen() {
    for trials in [1, 3] {
        let bench = Bench::half_open(counting().trials(trials));
        let local = faults(async |_| Err::<(), _>(steadfast::operation::Fault::Ignored("local")));
        for _ in 0..10 * trials {
            bench.run(&local).unwrap_err();
            assert_eq!(bench.breaker.state(), State::HalfOpen);
        }
        bench.run(&local).unwrap_err();
        assert_eq!(bench.after_trial(), Trial::Reopened, "{trials} trials");
    }
}

#[test]
fn an_error_that_the_predicate_does_not_try_again_is_an_answer() {
    let call = |bench: &Bench| {
        let chain = (&bench.breaker, retry_if(|code: &u16| *code >= 500));
        assert_eq!(bench.through(chain, async |_| Err::<(), u16>(404)).unwrap_err().last(), Some(&404));
    };
    assert_eq!(effects(call), (Closed::Success, Trial::Succeeded));
}

#[test]
fn a_chain_inside_of_the_breaker_counts_once() {
    let call = |bench: &Bench| {
        let chain = (&bench.breaker, Retry::immediate());
        assert!(bench.through(chain, async |_| Err::<(), _>("down")).unwrap_err().is_exhausted());
    };
    assert_eq!(effects(call), (Closed::Failure, Trial::Reopened));
}

#[test]
fn a_wait_inside_of_the_breaker_that_the_caller_ends_is_abandoned() {
    // The retry inside notices by itself, and its outcome is handed to the breaker.
    let call = |bench: &Bench| {
        let token = CancellationToken::new();
        let canceller = token.clone();
        let retry = Retry::immediate().on_retry(move |_| canceller.cancel());
        let cx = bench.cx.clone().with_token(token);
        let run = try_do(&cx, async |_| Err::<(), _>("down"), (&bench.breaker, retry));
        assert!(bench.clock.block_on(run).unwrap_err().is_cancelled());
    };
    assert_eq!(effects(call), (Closed::Nothing, Trial::Reopened));
}

#[test]
fn an_error_that_comes_with_the_callers_cancellation_is_that_cancellation() {
    for verdict in [Verdict::Transient, Verdict::Fatal, Verdict::Ignored] {
        let call = |bench: &Bench| {
            let token = CancellationToken::new();
            let cx = bench.cx.clone().with_token(token.clone());
            let aborted = async |_| {
                token.cancel();
                Outcome::<(), _>::failed("aborted", verdict)
            };
            let error = bench.clock.block_on(try_do(&cx, aborted, &bench.breaker)).unwrap_err();
            assert_eq!(error.last(), Some(&"aborted"));
        };
        assert_eq!(effects(call), (Closed::Nothing, Trial::Reopened), "{verdict:?}");
    }
}

#[test]
fn an_answer_counts_although_the_caller_has_cancelled() {
    let call = |bench: &Bench| {
        let token = CancellationToken::new();
        let cx = bench.cx.clone().with_token(token.clone());
        let answered = async |_| {
            token.cancel();
            Ok::<_, ()>(7)
        };
        assert_eq!(bench.clock.block_on(try_do(&cx, answered, &bench.breaker)).unwrap(), 7);
    };
    assert_eq!(effects(call), (Closed::Success, Trial::Succeeded));
}

#[test]
fn a_panic_of_a_bystander_is_not_the_dependencys_fault() {
    // A judging policy's closure, inside of the breaker.
    let call = |bench: &Bench| {
        let judge = classify(|_: &Result<(), Error<()>>| panics());
        let run = || drop(bench.through((&bench.breaker, judge), async |_| Ok::<_, ()>(())));
        panic_of(run);
    };
    assert_eq!(effects(call), (Closed::Nothing, Trial::Reopened));
}

#[test]
fn a_run_that_is_refused_for_its_settings_does_not_touch_the_breaker() {
    let bench = Bench::half_open(counting());
    let run = bench.through((&bench.breaker, Timeout::secs(0)), async |_| Ok::<_, ()>(()));
    assert_eq!(run.unwrap_err().refusal().config().map(ConfigError::field), Some("timeout"));
    let cx = bench.cx.clone().with_max_attempts(0);
    let run = try_do(&cx, async |_| Ok::<_, ()>(()), &bench.breaker);
    assert_eq!(bench.clock.block_on(run).unwrap_err().kind(), Kind::Misconfigured);
    assert_eq!(bench.after_trial(), Trial::PlaceBack);
}
