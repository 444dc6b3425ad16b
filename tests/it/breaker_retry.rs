//! A breaker inside of a retry: what counts is what would be tried again, and an open circuit ends the run.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use steadfast::breaker::{Breaker, BreakerConfig, State, TripRule};
use steadfast::error::{Kind, Limit};
use steadfast::judge::{attempts_for, retry_after, retry_if};
use steadfast::operation::{Fault, faults, nested};
use steadfast::retry::OnRejection;
use steadfast::{CancellationToken, Classified, Error, Executor, Retry, Timeout, Verdict, try_do, try_op};

use crate::breakers::{Bench, OPEN_TIME, Trial, consecutive, counting, hangs_for_ever, logging};
use crate::support::{Script, at_rest, beside, err, exhausted, hangs, ms, ok, scenario, secs, throttled};

/// Three attempts a second apart.
fn thrice() -> Retry {
    Retry::fixed(secs(1))
}

#[test]
fn an_open_circuit_in_the_middle_of_a_run_ends_it_at_once() {
    let chain = || (Retry::fixed(ms(100)).max_attempts(5), Breaker::new(consecutive(2).open_for(secs(60))));
    let seen = scenario(chain).everywhere([err::<(), _>("connection refused")]);
    assert_eq!(seen.kind(), Kind::CircuitOpen { retry_after: Some(secs(60) - ms(100)) });
    assert_eq!((seen.last(), seen.failure().attempts), (Some("connection refused"), 2));
    assert_eq!((seen.calls, seen.took), (vec![ms(0), ms(100)], ms(200)), "no attempt and no wait after it");
}

#[test]
fn an_open_circuit_says_so_in_one_line() {
    let bench = Bench::closed(consecutive(2).open_for(ms(12_430)));
    let line = |breaker: Breaker| {
        let executor = Executor::builder("billing").policies((Retry::immediate(), breaker)).clock(&bench.clock);
        let run = executor.build().unwrap();
        let error = bench.clock.block_on(run.run(async |_| Err::<(), _>("connection refused"))).unwrap_err();
        assert!(error.is_circuit_open() && error.is_rejection() && !error.is_exhausted());
        error.to_string()
    };
    let open = "circuit breaker open, next trial in 12.4 s";
    assert_eq!(
        line(bench.breaker.clone()),
        format!("billing: {open} (after 2 attempts; last error: connection refused)")
    );
    assert_eq!(line(bench.breaker.clone()), format!("billing: {open}"), "nothing was tried");
    assert_eq!(line(bench.breaker.clone().named("invoices")), format!("invoices: {open}"));
    let error = bench.run(async |_| Ok::<_, String>(())).unwrap_err();
    assert_eq!((error.to_string(), error.policy()), (open.to_owned(), None));
}

#[test]
fn an_open_circuit_is_not_permanent() {
    let bench = Bench::open(consecutive(1));
    let error: Error<()> = bench.run(async |_| Ok(())).unwrap_err();
    assert_eq!(error.verdict(), Verdict::Rejected { retry_after: Some(OPEN_TIME) });
    // To a retry around an operation that has a breaker inside, it is a rejection, and it can be waited for.
    let tries = AtomicU32::new(0);
    let inside = nested(async |_| {
        tries.fetch_add(1, Ordering::Relaxed);
        try_do(&bench.cx, async |_| Ok::<_, ()>(7), &bench.breaker).await
    });
    let chain = Retry::immediate().on_rejection(OnRejection::Wait);
    assert_eq!(bench.clock.block_on(try_op(&bench.cx, inside, chain)).unwrap(), 7);
    assert_eq!((tries.into_inner(), bench.breaker.state()), (2, State::Closed));
}

#[test]
fn a_retry_waits_for_the_trial_if_it_is_told_to() {
    let bench = Bench::closed(consecutive(2));
    let script = Script::new(&bench.clock, [err("down"), err("down"), ok("back")]);
    let chain = (Retry::immediate().max_attempts(9).on_rejection(OnRejection::Wait), &bench.breaker);
    assert_eq!(bench.through(chain, |_| script.call_plain()).unwrap(), "back");
    let calls = script.calls();
    assert_eq!(calls[..2], [secs(0), secs(0)]);
    assert!((OPEN_TIME..=OPEN_TIME + OPEN_TIME / 10).contains(&calls[2]), "{calls:?}");
    assert_eq!((calls.len(), bench.breaker.state()), (3, State::Closed));
    assert_eq!(bench.breaker.counts().rejected, 1, "it has not asked in between");
}

#[test]
fn a_retry_that_waits_for_a_running_trial_takes_its_own_backoff() {
    let bench = Bench::half_open(consecutive(1));
    let trial = bench.breaker.try_acquire().unwrap();
    let chain = (thrice().max_attempts(9).on_rejection(OnRejection::Wait), &bench.breaker);
    let run = try_do(&bench.cx, async |_| Ok::<_, ()>(bench.clock.now()), chain);
    let start = bench.clock.now();
    let answers = async {
        bench.clock.clock().sleep(ms(2_500)).await;
        trial.success();
    };
    let called = bench.clock.block_on(beside(answers, run)).unwrap();
    assert_eq!(called.since(start), secs(3));
}

#[test]
fn a_wait_for_the_trial_that_the_caller_has_no_time_for_is_not_begun() {
    let bench = Bench::open(consecutive(1));
    let cx = bench.cx.clone().with_timeout(secs(10));
    let chain = (Retry::immediate().on_rejection(OnRejection::Wait), &bench.breaker);
    let start = bench.clock.now();
    let error = bench.clock.block_on(try_do(&cx, async |_| Ok::<_, ()>(()), chain)).unwrap_err();
    assert!(error.is_circuit_open(), "{:?}", error.kind());
    assert_eq!(bench.clock.now(), start);
}

#[test]
fn a_call_beside_a_running_trial_is_refused() {
    let bench = Bench::half_open(consecutive(1));
    let mut trial = tokio_test::task::spawn(try_do(&bench.cx, |_| hangs_for_ever(), (thrice(), &bench.breaker)));
    tokio_test::assert_pending!(trial.poll());
    let error = bench.through((thrice(), &bench.breaker), async |_| Ok::<_, ()>(())).unwrap_err();
    assert_eq!((error.kind(), error.attempts()), (Kind::CircuitOpen { retry_after: None }, 0));
}

#[test]
fn retry_outside_counts_attempts_and_breaker_outside_counts_runs() {
    let bench = Bench::closed(consecutive(1));
    let error = bench.through((thrice(), &bench.breaker), async |_| Err::<(), _>("down")).unwrap_err();
    assert_eq!((error.is_circuit_open(), error.attempts(), bench.breaker.state()), (true, 1, State::Open));

    let bench = Bench::closed(consecutive(1));
    let error = bench.through((&bench.breaker, thrice()), async |_| Err::<(), _>("down")).unwrap_err();
    assert_eq!((error.kind(), error.attempts()), (exhausted(Limit::Attempts), 3));
    assert_eq!((bench.breaker.state(), error.last()), (State::Open, Some(&"down")));
}

#[test]
fn seven_attempts_around_a_breaker_of_three_are_three_calls() {
    let bench = Bench::closed(counting());
    let retry = Retry::immediate().max_attempts(7);
    let error = bench.through((&retry, &bench.breaker), async |_| Err::<(), _>("down")).unwrap_err();
    assert_eq!((error.is_circuit_open(), error.attempts(), bench.breaker.counts().rejected), (true, 3, 1));
}

#[test]
fn a_success_ends_the_row_of_failures() {
    let bench = Bench::closed(consecutive(3));
    let script = Script::new(&bench.clock, [err(()), err(()), ok(())]);
    for _ in 0..10 {
        bench.through((thrice(), &bench.breaker), |_| script.call_plain()).unwrap();
    }
    bench.fail();
    bench.fail();
    assert_eq!(bench.breaker.counts().consecutive_failures, 2);
    bench.fail();
    assert_eq!(bench.breaker.state(), State::Open);
}

#[test]
fn what_is_not_tried_again_is_not_a_failure() {
    type Ends = fn() -> Fault<u16>;
    let ends: [(Ends, u64); 3] =
        [(|| Fault::Permanent(404), 1), (|| Fault::Transient(404), 1), (|| Fault::Ignored(0), 0)];
    for (end, calls) in ends {
        let bench = Bench::closed(counting());
        let chain = (thrice(), &bench.breaker, retry_if(|code: &u16| *code >= 500));
        let error = bench.through(chain, faults(async |_| Err::<(), _>(end()))).unwrap_err();
        assert_eq!((error.kind(), error.attempts()), (Kind::Failed, 1));
        assert_eq!(bench.counted(), (calls, 0));
    }
}

#[test]
fn the_predicate_of_the_retry_is_the_breakers_definition_of_a_failure() {
    let bench = Bench::closed(counting());
    let codes = Script::new(&bench.clock, [err(503), err(404), err::<(), u16>(503)]);
    let chain = (thrice(), &bench.breaker, retry_if(|code: &u16| *code >= 500));
    let error = bench.through(&chain, |_| codes.call_plain()).unwrap_err();
    assert_eq!((error.last(), error.attempts(), bench.counted()), (Some(&404), 2, (2, 1)));
    let error = bench.through(&chain, |_| codes.call_plain()).unwrap_err();
    assert_eq!((error.kind(), codes.calls().len()), (exhausted(Limit::Attempts), 5));
    assert_eq!(bench.breaker.state(), State::Open, "503 three times in a row: the answer 404 has ended the first row");
}

#[test]
fn an_error_whose_own_attempts_are_used_up_is_not_counted() {
    let bench = Bench::closed(counting());
    let own = attempts_for(2, |error: &&str| *error == "locked");
    let chain = (thrice(), &bench.breaker, own);
    let error = bench.through(&chain, async |_| Err::<(), _>("locked")).unwrap_err();
    assert_eq!((error.last(), error.attempts(), bench.counted()), (Some(&"locked"), 2, (1, 1)));
    bench.through(&chain, async |_| Err::<(), _>("locked")).unwrap_err();
    assert_eq!(bench.counted(), (2, 2), "it is a budget of one run");
}

#[test]
fn the_last_attempt_of_a_run_counts_like_the_others() {
    let bench = Bench::closed(counting());
    bench.through((thrice().max_attempts(2), &bench.breaker), async |_| Err::<(), _>("down")).unwrap_err();
    assert_eq!(bench.counted(), (2, 2));
    let cx = bench.cx.clone().once();
    bench.clock.block_on(try_do(&cx, async |_| Err::<(), _>("down"), (thrice(), &bench.breaker))).unwrap_err();
    assert_eq!(bench.breaker.state(), State::Open);
}

#[test]
fn a_caller_who_cancels_is_not_a_failure() {
    let bench = Bench::closed(counting());
    let token = CancellationToken::new();
    let cx = bench.cx.clone().with_token(token.clone());
    let run = try_do(&cx, |_| hangs_for_ever(), (thrice(), &bench.breaker));
    let cancel = async {
        bench.clock.clock().sleep(secs(1)).await;
        token.cancel();
    };
    assert!(bench.clock.block_on(beside(cancel, run)).unwrap_err().is_cancelled());
    assert_eq!(bench.counted(), (0, 0));
}

#[test]
fn an_attempt_that_times_out_is_a_failure_and_is_tried_again() {
    let bench = Bench::closed(consecutive(3));
    let chain = (thrice().max_attempts(9), &bench.breaker, Timeout::secs(2));
    let error = bench.through(chain, |_| hangs_for_ever()).unwrap_err();
    assert_eq!((error.is_circuit_open(), error.attempts()), (true, 3));
}

#[test]
fn an_error_that_carries_retry_after_is_not_a_failure() {
    let bench = Bench::closed(consecutive(1));
    let script = Script::new(&bench.clock, [throttled::<(), _>("busy", secs(5))]);
    let error = bench.through((thrice(), &bench.breaker), faults(|_| script.call())).unwrap_err();
    assert_eq!((error.kind(), script.calls().len()), (exhausted(Limit::Attempts), 3));
    assert_eq!(bench.breaker.state(), State::Closed);
    let chain = (thrice(), &bench.breaker, retry_after(|seconds: &u64| Some(secs(*seconds))));
    bench.through(chain, async |_| Err::<(), u64>(5)).unwrap_err();
    assert_eq!(bench.breaker.state(), State::Closed);
}

#[test]
fn a_delay_function_never_influences_the_breaker() {
    let called = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&called);
    let delays = Retry::custom(move |_, _| {
        count.fetch_add(1, Ordering::Relaxed);
        secs(7)
    });
    let bench = Bench::closed(consecutive(2));
    let error = bench.through((&delays, &bench.breaker), async |_| Err::<(), _>("down")).unwrap_err();
    assert!(error.is_circuit_open(), "its errors count like any others");
    assert_eq!((called.load(Ordering::Relaxed), error.retry_after()), (2, Some(OPEN_TIME - secs(7))));
    // Nor does it bring a trial forward, or put one off.
    bench.clock.advance(OPEN_TIME);
    let error = bench.through((&delays, &bench.breaker), async |_| Err::<(), _>("down")).unwrap_err();
    assert_eq!((error.attempts(), error.retry_after()), (1, Some(OPEN_TIME - secs(7))));
}

#[test]
fn as_many_successes_as_asked_close_and_one_failure_reopens() {
    let (config, log) = logging(consecutive(1).successes_to_close(3));
    let bench = Bench::half_open(config);
    bench.succeed();
    bench.succeed();
    assert_eq!(bench.breaker.state(), State::HalfOpen);
    bench.fail();
    assert_eq!(bench.after_trial(), Trial::Reopened);
    bench.clock.advance(OPEN_TIME);
    bench.succeed();
    bench.succeed();
    assert_eq!(bench.breaker.state(), State::HalfOpen, "the successes of before are forgotten");
    bench.succeed();
    assert_eq!(bench.breaker.state(), State::Closed);
    use State::{Closed, HalfOpen, Open};
    assert_eq!(log.states(), [Open, HalfOpen, Open, HalfOpen, Closed]);
}

#[test]
fn it_is_the_same_breaker_through_a_function_and_a_client() {
    let bench = Bench::closed(consecutive(2));
    let client = Executor::builder("client").policies((thrice(), bench.breaker.clone())).clock(&bench.clock);
    let client = client.build().unwrap();
    bench.fail();
    let error = bench.clock.block_on(client.run(async |_| Err::<(), _>("down"))).unwrap_err();
    assert_eq!((error.is_circuit_open(), error.attempts()), (true, 1));
    assert!(bench.is_refused());
}

#[test]
fn an_hour_without_calls_forgets_failures() {
    let rule = TripRule::failure_rate(0.5).minimum_calls(5);
    let bench = Bench::closed(BreakerConfig::default().rule(rule));
    (0..4).for_each(|_| bench.fail());
    bench.clock.advance(Duration::from_secs(3_600));
    bench.fail();
    assert_eq!((bench.breaker.state(), bench.counted()), (State::Closed, (1, 1)));
}

#[test]
fn one_failure_in_three_opens_by_the_rate_and_never_by_the_row() {
    let by_rate = Bench::closed(BreakerConfig::default().rule(TripRule::failure_rate(0.33).minimum_calls(20)));
    let by_row = Bench::closed(consecutive(2));
    for bench in [&by_rate, &by_row] {
        for call in 0..20 {
            assert_eq!(bench.breaker.state(), State::Closed);
            if call % 3 == 0 { bench.fail() } else { bench.succeed() }
        }
    }
    assert_eq!((by_rate.breaker.state(), by_row.breaker.state()), (State::Open, State::Closed));
}

#[test]
fn two_failures_of_two_calls_are_too_few_to_tell() {
    let bench = Bench::closed(BreakerConfig::default());
    bench.fail();
    bench.fail();
    assert_eq!((bench.breaker.state(), bench.breaker.counts().rate()), (State::Closed, Some(1.0)));
}

#[test]
fn timeout_or_cancel_confused() {
    let chain = |bench: &Bench| (thrice().max_attempts(2), bench.breaker.clone(), Timeout::secs(10));
    let (bench, token) = (Bench::closed(counting()), CancellationToken::new());
    let cx = bench.cx.clone().with_token(token.clone());
    let run = try_do(&cx, |_| hangs_for_ever(), chain(&bench));
    let cancel = async {
        bench.clock.clock().sleep(secs(1)).await;
        token.cancel();
    };
    let error = bench.clock.block_on(beside(cancel, run)).unwrap_err();
    assert_eq!((error.kind(), error.attempts(), bench.counted()), (Kind::Cancelled, 1, (0, 0)));

    let bench = Bench::closed(counting());
    let script = Script::new(&bench.clock, [ok::<_, ()>(()).after(secs(20))]);
    let error = bench.through(chain(&bench), |_| script.call_plain()).unwrap_err();
    assert_eq!(error.kind(), Kind::TimedOut { limit: secs(10) });
    assert_eq!((error.attempts(), bench.counted()), (2, (2, 2)));

    let bench = Bench::closed(counting());
    let cx = bench.cx.clone().with_timeout(secs(1));
    let error = bench.clock.block_on(try_do(&cx, |_| hangs_for_ever(), chain(&bench))).unwrap_err();
    assert_eq!((error.kind(), error.attempts(), bench.counted()), (Kind::DeadlineExceeded, 1, (0, 0)));
}

#[test]
fn retries_an_open_circuit() {
    let (clock, cx) = at_rest();
    let breaker = Breaker::new(consecutive(2).open_for(secs(60)));
    let script = Script::new(&clock, [err::<(), _>("down")]);
    let chain = (Retry::fixed(ms(100)).max_attempts(5), &breaker);
    let error = clock.block_on(try_do(&cx, |_| script.call_plain(), chain)).unwrap_err();
    assert!(error.is_circuit_open() && error.last() == Some(&"down"));
    assert_eq!((script.calls().len(), breaker.counts().rejected, script.elapsed()), (2, 1, ms(200)));
}

#[test]
fn a_run_whose_trial_succeeds_after_a_refusal_elsewhere_goes_on() {
    // Two runs share the breaker; the one that hangs in its trial does not keep the other out for ever.
    let bench = Bench::half_open(consecutive(1));
    let script = Script::new(&bench.clock, [hangs::<(), ()>()]);
    let chain = (thrice(), &bench.breaker, Timeout::secs(5));
    let mut trial = tokio_test::task::spawn(try_do(&bench.cx, |_| script.call_plain(), chain));
    tokio_test::assert_pending!(trial.poll());
    assert!(bench.is_refused());
    bench.clock.advance(secs(5));
    tokio_test::assert_pending!(trial.poll());
    assert_eq!(bench.after_trial(), Trial::Reopened);
}
