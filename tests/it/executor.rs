//! An executor: its end, its reports, its names, what it adds for one call.

use std::future::pending;
use std::sync::Arc;
use std::task::Poll;

use steadfast::error::{Kind, Limit, Name};
use steadfast::event::Event;
use steadfast::executor::Stopped;
use steadfast::limit::{BulkheadConfig, RateLimiterConfig};
use steadfast::metrics::Metrics;
use steadfast::operation::{Fault, nested};
use steadfast::tracing::Tracing;
use steadfast::{
    Breaker, Bulkhead, CancellationToken, Cause, Context, Executor, Hedge, RateLimiter, Retry, Timeout, faults, op,
    try_op,
};

use crate::policies::Refuses;
use crate::support::{Script, at_rest, beside, err, exhausted, ms, ok, pending_times, secs, timed_out};

fn down(_: steadfast::Attempt) -> std::future::Ready<Result<(), &'static str>> {
    std::future::ready(Err("down"))
}

#[test]
fn clones_and_erased_ones_are_the_same_executor() {
    let (clock, _) = at_rest();
    let executor = Executor::builder("one").policies(Retry::immediate()).clock(&clock).build().unwrap();
    let (clone, erased) = (executor.clone(), executor.erase());
    let erased_twice = erased.erase();
    assert_eq!((clone.name(), erased.name(), erased_twice.name()), ("one", "one", "one"));
    assert_eq!((erased.clock(), erased_twice.clock()), (executor.clock(), executor.clock()));
    assert_eq!(clock.block_on(erased_twice.run(|_| async { Ok::<_, String>(7) })).unwrap(), 7);
    erased_twice.close();
    for error in [
        clock.block_on(executor.run(down)).unwrap_err(),
        clock.block_on(clone.run(down)).unwrap_err(),
        clock.block_on(erased.run(down)).unwrap_err(),
    ] {
        assert_eq!(error.kind(), Kind::ShutDown);
    }
}

#[test]
fn one_executor_serves_operations_of_every_type() {
    let (clock, _) = at_rest();
    let executor =
        Executor::builder("any").policies((Retry::immediate(), Timeout::secs(1))).clock(&clock).build().unwrap();
    let erased = executor.erase();
    clock.block_on(async {
        assert_eq!(executor.run(|_| async { Ok::<_, String>(7) }).await.unwrap(), 7);
        assert_eq!(executor.run(|_| async { Err::<(), _>(8) }).await.unwrap_err().into_last(), Some(8));
        assert_eq!(erased.run(|_| async { Ok::<_, u8>("text") }).await.unwrap(), "text");
        assert_eq!(erased.run(|_| async { Err::<Vec<u8>, _>(9) }).await.unwrap_err().into_last(), Some(9));
    });
}

struct Typed {
    executor: Executor<(Retry, Timeout)>,
}

struct Untyped {
    executor: Executor,
}

#[test]
fn executors_live_in_struct_fields() {
    let (clock, _) = at_rest();
    let builder = Executor::builder("typed").policies((Retry::immediate(), Timeout::secs(1)));
    let typed = Typed { executor: builder.clock(&clock).build().unwrap() };
    let with_closure = Timeout::with(|attempt| secs(attempt.number().into()));
    let builder = Executor::builder("untyped").policies((Retry::immediate(), with_closure));
    let untyped = Untyped { executor: builder.clock(&clock).build().unwrap().erase() };
    assert_eq!(clock.block_on(typed.executor.run(down)).unwrap_err().attempts(), 3);
    assert_eq!(clock.block_on(untyped.executor.run(down)).unwrap_err().attempts(), 3);
}

#[test]
fn a_closed_executor_refuses_new_runs_and_lets_running_ones_end() {
    let (clock, _) = at_rest();
    let executor = Executor::builder("closing").policies(Retry::fixed(secs(1))).clock(&clock).build().unwrap();
    let script = Script::new(&clock, [err("down"), ok(7).after(secs(5))]);
    let mut running = tokio_test::task::spawn(executor.run(|_| script.call_plain()));
    assert!(running.poll().is_pending());
    executor.close();
    assert!(!running.is_woken());
    assert_eq!(clock.block_on(executor.run(down)).unwrap_err().kind(), Kind::ShutDown);
    while !running.is_woken() {
        clock.advance(secs(1));
    }
    assert!(running.poll().is_pending(), "the second attempt has begun");
    clock.advance(secs(5));
    assert!(matches!(running.poll(), Poll::Ready(Ok(7))));
}

#[test]
fn shutdown_wakes_and_ends_running_runs() {
    let (clock, _) = at_rest();
    let executor = Executor::builder("ending").clock(&clock).build().unwrap();
    let mut running = tokio_test::task::spawn(executor.run(|_| pending::<Result<(), ()>>()));
    assert!(running.poll().is_pending());
    executor.shutdown();
    assert!(running.is_woken());
    let Poll::Ready(Err(error)) = running.poll() else { panic!("it was shut down") };
    assert_eq!((error.kind(), error.attempts()), (Kind::ShutDown, 1));
}

#[test]
fn drained_waits_for_the_last_running_run_of_a_closed_executor() {
    let (clock, _) = at_rest();
    let executor = Executor::builder("draining").clock(&clock).build().unwrap();
    let mut drained = tokio_test::task::spawn(executor.drained());
    assert!(drained.poll().is_pending(), "an open executor is not drained");
    let script = Script::new(&clock, [ok::<_, ()>(7).after(secs(5))]);
    let mut runs = [(); 2].map(|()| tokio_test::task::spawn(executor.run(|_| script.call_plain())));
    assert!(runs.iter_mut().all(|run| run.poll().is_pending()));
    assert_eq!(executor.waiting(), 2);
    executor.close();
    assert!(drained.poll().is_pending());
    let [mut first, second] = runs;
    clock.advance(secs(5));
    assert!(first.poll().is_ready());
    drop(first);
    assert!(drained.poll().is_pending());
    drop(second);
    assert!(drained.is_woken());
    assert!(drained.poll().is_ready());
    assert_eq!(executor.waiting(), 0);
}

#[test]
fn a_run_that_ended_does_not_hold_up_the_drain_although_its_future_is_still_there() {
    let (clock, _) = at_rest();
    let executor = Executor::builder("ended").clock(&clock).build().unwrap();
    let mut run = tokio_test::task::spawn(executor.run(|_| async {
        pending_times(1).await;
        Ok::<_, ()>(())
    }));
    assert!(run.poll().is_pending());
    assert!(run.poll().is_ready());
    assert_eq!(executor.waiting(), 0);
    executor.close();
    assert!(tokio_test::task::spawn(executor.drained()).poll().is_ready());
}

#[test]
fn with_adds_an_inner_policy_for_one_call() {
    let (clock, cx) = at_rest();
    let executor = Executor::builder("with").policies(Retry::immediate()).unbudgeted().clock(&clock).build().unwrap();
    let slow = executor.with(Timeout::secs(1));
    let start = clock.now();
    let error = clock.block_on(slow.run(|_| pending::<Result<(), ()>>())).unwrap_err();
    assert_eq!((error.kind(), error.attempts()), (timed_out(secs(1)), 3));
    assert_eq!(clock.now().since(start), secs(3), "inside of the retry");
    let error = clock.block_on(slow.run_with(&cx.clone().once(), |_| pending::<Result<(), ()>>())).unwrap_err();
    assert_eq!(error.attempts(), 1);
    let error = clock.block_on(executor.erase().with(Timeout::secs(1)).run_op_with(&cx, op(down))).unwrap_err();
    assert_eq!(error.kind(), exhausted(Limit::Attempts));
}

#[test]
fn with_refuses_a_policy_whose_settings_or_place_cannot_work() {
    let (clock, cx) = at_rest();
    let judged = (Retry::immediate(), steadfast::judge::retry_if(|_: &&str| true));
    let executor = Executor::builder("with").policies(judged).clock(&clock).build().unwrap();
    for error in [
        clock.block_on(executor.with(Timeout::secs(0)).run(down)).unwrap_err(),
        clock.block_on(executor.with(Retry::immediate()).run_with(&cx, down)).unwrap_err(),
    ] {
        assert_eq!((error.kind(), error.attempts()), (Kind::Misconfigured, 0));
    }
}

#[test]
fn the_last_error_survives_a_limit_of_an_erased_chain_around_a_typed_retry() {
    let (clock, _) = at_rest();
    let erased = Executor::builder("erased").policies(Timeout::secs(3)).clock(&clock).build().unwrap().erase();
    let script = Script::new(&clock, [err::<(), _>("E1"), err("E2").after(secs(9))]);
    let retrying = erased.with(Retry::immediate());
    let error = clock.block_on(retrying.run(|_| script.call_plain())).unwrap_err();
    assert_eq!((error.kind(), error.last()), (timed_out(secs(3)), Some(&"E1")));
}

#[test]
fn the_newest_error_is_the_last_one_in_nested_erased_and_typed_retries() {
    let (clock, _) = at_rest();
    let chain = (Timeout::secs(3), Retry::immediate());
    let erased = Executor::builder("erased").policies(chain).unbudgeted().clock(&clock).build().unwrap().erase();
    // The inner retry gives up on E2; the outer one starts it anew, and E3 is the last error when time is up.
    let script = Script::new(&clock, [err::<(), _>("E1"), err("E2"), err("E3"), err("E4").after(secs(9))]);
    let retrying = erased.with(Retry::immediate().max_attempts(2));
    let error = clock.block_on(retrying.run(|_| script.call_plain())).unwrap_err();
    assert_eq!((error.kind(), error.last()), (timed_out(secs(3)), Some(&"E3")));
}

#[test]
fn the_context_of_an_executor_is_plain_and_on_its_clock() {
    let (clock, _) = at_rest();
    let executor = Executor::builder("context").clock(&clock).build().unwrap();
    let cx = executor.context().with_timeout(secs(3));
    assert_eq!((cx.clock(), cx.remaining()), (&clock.clock(), Some(secs(3))));
    clock.advance(secs(1));
    assert_eq!(cx.remaining(), Some(secs(2)));
}

#[test]
fn errors_carry_the_executors_name() {
    let (clock, cx) = at_rest();
    let executor =
        Executor::builder("billing").policies(Retry::immediate().max_attempts(2)).clock(&clock).build().unwrap();
    let error = clock.block_on(executor.run(down)).unwrap_err();
    assert_eq!(error.policy(), Some("billing"));
    assert_eq!(error.to_string(), "billing: gave up: no attempts left (after 2 attempts; last error: down)");
    assert_eq!(clock.block_on(steadfast::try_do(&cx, down, ())).unwrap_err().policy(), None);
}

#[test]
fn the_innermost_name_stays() {
    let (clock, _) = at_rest();
    let build = |name: &str| Executor::builder(name).clock(&clock).build().unwrap();
    let (inner, outer) = (build("inner"), build("outer"));
    let operation = nested(|_| inner.run(down));
    assert_eq!(clock.block_on(outer.run_op(operation)).unwrap_err().policy(), Some("inner"));
}

#[test]
fn a_name_must_not_be_empty_and_names_are_interned() {
    assert_eq!(Executor::builder("").build().unwrap_err().field(), "name");
    let first = Name::new("interned").unwrap();
    assert_eq!(Name::new(&String::from("interned")).unwrap(), first);
}

#[test]
fn a_builder_names_the_first_setting_that_cannot_work() {
    let refused = Executor::builder("refused").policies((Timeout::secs(0), Retry::immediate().max_attempts(0))).build();
    assert_eq!(refused.unwrap_err().field(), "timeout");
    let nested =
        Executor::builder("refused").policies((Timeout::secs(1), Some(Arc::new(Retry::immediate().factor(f64::NAN)))));
    assert_eq!(nested.build().unwrap_err().field(), "factor");
}

#[test]
fn a_report_says_how_a_run_ended() {
    let (clock, cx) = at_rest();
    let executor =
        Executor::builder("report").policies(Retry::fixed(secs(1)).max_attempts(2)).clock(&clock).build().unwrap();
    let report = |cx: &Context, steps| {
        let script = Script::new(&clock, steps);
        let report = clock.block_on(executor.run_report_with(cx, op(faults(|_| script.call()))));
        (report.stopped, report.attempts, report.result.is_ok())
    };
    assert_eq!(report(&cx, vec![ok(7)]), (Stopped::Settled, 1, true));
    assert_eq!(report(&cx, vec![err("down"), ok(7)]), (Stopped::Settled, 2, true));
    let permanent = crate::support::permanent("gone");
    assert_eq!(report(&cx, vec![permanent]), (Stopped::Settled, 1, false));
    assert_eq!(report(&cx, vec![err("down")]), (Stopped::Limit(Limit::Attempts), 2, false));
    let short = cx.clone().with_timeout(secs(1));
    assert_eq!(report(&short, vec![err("down")]), (Stopped::Limit(Limit::Deadline), 1, false));
    let token = CancellationToken::new();
    token.cancel();
    let cancelled = cx.with_token(token);
    assert_eq!(report(&cancelled, vec![ok(7)]), (Stopped::Ended(Cause::Cancelled), 0, false));
    let late = executor.context().with_timeout(secs(3));
    let slow = err("down").after(secs(9));
    assert_eq!(report(&late, vec![slow]), (Stopped::Ended(Cause::DeadlineExceeded), 1, false));
    executor.shutdown();
    assert_eq!(report(&executor.context(), vec![ok(7)]), (Stopped::Ended(Cause::ShutDown), 0, false));
}

#[test]
fn a_report_tells_rejection_elapsed_and_asked_pauses_apart() {
    let (clock, cx) = at_rest();
    let stopped = |retry: Retry, fault: Fault<&'static str>| {
        let executor = Executor::builder("report").policies(retry).clock(&clock).build().unwrap();
        let operation = op(faults(move |_| {
            let fault = fault.clone();
            async move { Err::<(), _>(fault) }
        }));
        clock.block_on(executor.run_report_with(&cx, operation)).stopped
    };
    let throttled = Fault::Throttled("busy", Some(secs(60)));
    assert_eq!(stopped(Retry::exponential(), throttled), Stopped::Limit(Limit::RetryAfter));
    let elapsed = Retry::fixed(secs(9)).max_elapsed(secs(5));
    assert_eq!(stopped(elapsed, Fault::Transient("down")), Stopped::Limit(Limit::Elapsed));

    for policies in [None, Some(Retry::immediate())] {
        let executor =
            Executor::builder("rejects").policies((policies, Refuses::after(0))).clock(&clock).build().unwrap();
        assert_eq!(clock.block_on(executor.run_report_with(&cx, op(down))).stopped, Stopped::Rejected);
    }
}

#[test]
fn a_report_of_a_run_that_was_cancelled_between_two_attempts_says_so() {
    for wait in [secs(0), secs(5)] {
        let (clock, cx) = at_rest();
        let token = CancellationToken::new();
        let canceller = token.clone();
        let retry = Retry::fixed(wait).on_retry(move |_| canceller.cancel());
        let executor = Executor::builder("between").policies(retry).clock(&clock).build().unwrap();
        let report = clock.block_on(executor.run_report_with(&cx.with_token(token), op(down)));
        assert_eq!((report.stopped, report.attempts), (Stopped::Ended(Cause::Cancelled), 1));
    }
}

#[test]
fn a_report_measures_the_whole_run() {
    let (clock, cx) = at_rest();
    let executor = Executor::builder("measured")
        .policies((Retry::fixed(secs(1)), Timeout::secs(9)))
        .unbudgeted()
        .clock(&clock)
        .build()
        .unwrap();
    let script = Script::new(&clock, [err("down").after(secs(2)), ok(7).after(secs(3))]);
    let report = clock.block_on(executor.run_report_with(&cx, op(|_| script.call_plain())));
    assert_eq!((report.elapsed, report.attempts), (secs(6), 2));
    let error = clock.block_on(executor.run(|_| pending::<Result<(), ()>>())).unwrap_err();
    assert_eq!(error.elapsed(), secs(29));
}

#[test]
fn an_executor_without_policies_adds_nothing() {
    let (clock, cx) = at_rest();
    let executor = Executor::builder("plain").clock(&clock).build().unwrap();
    assert_eq!(clock.block_on(executor.run(|_| async { Ok::<_, ()>(7) })).unwrap(), 7);
    let error = clock.block_on(executor.run(down)).unwrap_err();
    assert_eq!((error.kind(), error.last(), error.attempts()), (Kind::Failed, Some(&"down"), 1));
    let error = clock.block_on(try_op(&cx, op(down), ())).unwrap_err();
    assert_eq!((error.kind(), error.attempts()), (Kind::Failed, 1));
}

#[test]
fn leftover_timers_after_drop() {
    let (clock, cx) = at_rest();
    let cx = cx.with_timeout(secs(60));
    for n in 0..10_000 {
        let chain = (Retry::fixed(secs(1)), Timeout::secs(5));
        let executor = Executor::builder("leftover").policies(chain).clock(&clock).build().unwrap();
        if n % 2 == 0 {
            let mut run = tokio_test::task::spawn(executor.run_with(&cx, |_| pending::<Result<(), ()>>()));
            assert!(run.poll().is_pending());
            assert_eq!(clock.sleepers(), 1);
        }
    }
    assert_eq!(clock.sleepers(), 0);
}

/// A chain of everything that waits, remembers or watches.
fn everything() -> (Retry, Hedge, RateLimiter, Bulkhead, Breaker, Timeout) {
    let limiter = RateLimiter::new(RateLimiterConfig::per_second(1).max_wait(secs(5)));
    let bulkhead = Bulkhead::with(BulkheadConfig::new(1).queue(5));
    (Retry::fixed(secs(1)), Hedge::after(ms(0)), limiter, bulkhead, Breaker::default(), Timeout::secs(5))
}

/// Case `leftover-timers-after-drop`, with everything in the chain and observers around it.
#[test]
fn ten_thousand_executors_leave_no_timer_and_no_observer() {
    let (clock, _) = at_rest();
    let watched = Arc::new(());
    for n in 0..10_000 {
        let alive = Arc::clone(&watched);
        let builder = Executor::builder("leftover").policies(everything()).clock(&clock);
        let builder = builder.observe(move |_: &Event| drop(alive.clone())).observe(Metrics::new());
        let executor = builder.observe(Tracing::new()).build().unwrap();
        if n % 2 == 0 {
            // The first lane runs, the second one waits in line.
            let mut run = tokio_test::task::spawn(executor.run(|_| pending::<Result<(), ()>>()));
            assert!(run.poll().is_pending());
            assert!(clock.sleepers() > 0);
        }
    }
    assert_eq!((clock.sleepers(), Arc::strong_count(&watched)), (0, 1));
}

#[test]
fn ten_thousand_executors_leave_no_task() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        for n in 0..10_000 {
            let executor = Executor::builder("leftover").policies(everything()).build().unwrap();
            if n % 2 == 0 {
                let mut run = tokio_test::task::spawn(executor.run(|_| pending::<Result<(), ()>>()));
                assert!(run.poll().is_pending());
            }
        }
        assert_eq!(tokio::runtime::Handle::current().metrics().num_alive_tasks(), 0);
    });
    // A timer or a task that was left would be waited for, or dropped here with what it holds.
    runtime.shutdown_timeout(std::time::Duration::ZERO);
}

#[test]
fn a_shutdown_in_the_first_poll_is_seen() {
    let (clock, _) = at_rest();
    let executor = Executor::builder("first poll").clock(&clock).build().unwrap();
    let run = executor.run(async |_| {
        executor.shutdown();
        pending::<Result<(), ()>>().await
    });
    assert_eq!(clock.block_on(beside(pending(), run)).unwrap_err().kind(), Kind::ShutDown);
}
