//! What ends a run from outside: the caller's token, its deadline, shutdown, a drop.

use std::future::pending;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Poll;

use steadfast::error::{Kind, Limit};
use steadfast::operation::{FaultExt, faults};
use steadfast::{CancellationToken, Context, Error, Executor, Retry, Timeout, try_do};

use crate::support::{
    Script, at_rest, beside, err, exhausted, hangs, ms, ok, pending_times, permanent, scenario, secs, timed_out,
};

#[test]
fn an_already_cancelled_context_runs_nothing() {
    let seen = scenario(|| (Retry::immediate(), Timeout::secs(1))).cancelled_at(secs(0)).everywhere([ok::<_, ()>(7)]);
    assert_eq!((seen.kind(), seen.calls.len(), seen.failure().attempts), (Kind::Cancelled, 0, 0));
    assert_eq!(seen.last(), None);
}

#[test]
fn a_deadline_that_has_passed_runs_nothing() {
    let run = scenario(Retry::immediate).context(|cx| cx.with_timeout(secs(0)));
    let seen = run.everywhere([ok::<_, ()>(7)]);
    assert_eq!((seen.kind(), seen.calls.len(), seen.took), (Kind::DeadlineExceeded, 0, secs(0)));
}

#[test]
fn an_executor_that_is_shut_down_runs_nothing() {
    let (clock, _) = at_rest();
    let executor = Executor::builder("ended").policies(Retry::immediate()).clock(&clock).build().unwrap();
    executor.shutdown();
    let script = Script::new(&clock, [ok::<_, ()>(7)]);
    let error = clock.block_on(executor.run(|_| script.call_plain())).unwrap_err();
    assert_eq!((error.kind(), error.attempts(), script.calls().len()), (Kind::ShutDown, 0, 0));
}

#[test]
fn a_cancelled_run_shows_no_last_error_if_nothing_ran() {
    let (clock, cx) = at_rest();
    let token = CancellationToken::new();
    token.cancel();
    let cx = cx.with_token(token);
    let run = try_do(&cx, |_| async { Err::<(), _>("never seen") }, Retry::immediate());
    assert_eq!(clock.block_on(run).unwrap_err().to_string(), "cancelled");
}

#[test]
fn cancel_while_the_attempt_runs() {
    // The operation notices by itself at that very instant, with an error of its own.
    let run = scenario(|| Retry::fixed(secs(10))).cancelled_at(secs(1));
    let seen = run.everywhere([err::<(), _>("aborted").after(secs(1))]);
    assert_eq!((seen.kind(), seen.last(), seen.took), (Kind::Cancelled, Some("aborted"), secs(1)));
    // And one that does not notice is dropped.
    let seen = run.everywhere([hangs::<(), ()>()]);
    assert_eq!((seen.kind(), seen.last(), seen.took), (Kind::Cancelled, None, secs(1)));
    assert_eq!(seen.failure().attempts, 1);
}

#[test]
fn cancel_during_the_wait() {
    let run = scenario(|| Retry::fixed(secs(10))).cancelled_at(secs(2));
    let seen = run.everywhere([err::<(), _>("down")]);
    assert_eq!((seen.kind(), seen.calls.len(), seen.took), (Kind::Cancelled, 1, secs(2)));
    assert_eq!(seen.last(), Some("down"));
}

#[test]
fn a_cancellation_in_between_an_attempt_and_its_wait_is_seen() {
    for wait in [secs(0), secs(10)] {
        let (clock, cx) = at_rest();
        let token = CancellationToken::new();
        let canceller = token.clone();
        let retry = Retry::fixed(wait).on_retry(move |_| canceller.cancel());
        let script = Script::new(&clock, [err::<(), _>("down")]);
        let error = clock.block_on(try_do(&cx.with_token(token), |_| script.call_plain(), retry)).unwrap_err();
        assert_eq!((error.kind(), error.last(), error.attempts()), (Kind::Cancelled, Some(&"down"), 1));
        assert_eq!(script.elapsed(), secs(0));
    }
}

#[test]
fn a_cancellation_in_an_inner_wait_carries_the_error_through_an_outer_limit() {
    let chain = || (Timeout::secs(60), Retry::fixed(secs(10)), Timeout::secs(5));
    let seen = scenario(chain).cancelled_at(secs(2)).everywhere([err::<(), _>("down")]);
    assert_eq!((seen.kind(), seen.last(), seen.took), (Kind::Cancelled, Some("down"), secs(2)));
}

#[test]
fn cancellation_seen_as_transient() {
    let run = scenario(|| Retry::fixed(secs(1)).max_attempts(4)).context(|cx| cx.with_timeout(ms(1)));
    let seen = run.everywhere([err::<(), _>("timed out").after(ms(1))]);
    assert_eq!((seen.calls.len(), seen.took), (1, ms(1)));
    assert_eq!((seen.kind(), seen.last()), (Kind::DeadlineExceeded, Some("timed out")));
}

#[test]
fn a_deadline_ends_a_run_at_that_instant() {
    let attempt = scenario(|| Retry::fixed(secs(1))).context(|cx| cx.with_timeout(secs(3)));
    let seen = attempt.everywhere([err("down"), hangs::<(), _>()]);
    assert_eq!((seen.kind(), seen.last(), seen.took), (Kind::DeadlineExceeded, Some("down"), secs(3)));
}

#[test]
fn a_shutdown_ends_a_run_at_that_instant() {
    for steps in [vec![err::<(), _>("down")], vec![err("down"), hangs()]] {
        let (clock, _) = at_rest();
        let executor = Executor::builder("ends").policies(Retry::fixed(secs(2))).clock(&clock).build().unwrap();
        let script = Script::new(&clock, steps);
        let shutdown = async {
            clock.clock().sleep(secs(3)).await;
            executor.shutdown();
        };
        let run = executor.run(|_| script.call_plain());
        let error = clock.block_on(beside(shutdown, run)).unwrap_err();
        assert_eq!((error.kind(), error.last(), script.elapsed()), (Kind::ShutDown, Some(&"down"), secs(3)));
    }
}

#[test]
fn timeout_or_cancel_confused() {
    let chain = || (Retry::immediate().max_attempts(2), Timeout::secs(10));
    let slow = || [ok::<_, ()>(7).after(secs(20))];
    let cancelled = scenario(chain).cancelled_at(secs(1)).everywhere(slow());
    assert_eq!((cancelled.kind(), cancelled.calls.len(), cancelled.took), (Kind::Cancelled, 1, secs(1)));
    let timeout = scenario(chain).everywhere(slow());
    assert_eq!((timeout.kind(), timeout.calls.len(), timeout.took), (timed_out(secs(10)), 2, secs(20)));
    let deadline = scenario(chain).context(|cx| cx.with_timeout(secs(1))).everywhere(slow());
    assert_eq!((deadline.kind(), deadline.calls.len(), deadline.took), (Kind::DeadlineExceeded, 1, secs(1)));
}

#[test]
fn a_ready_answer_is_never_thrown_away() {
    for steps in [[ok("value").after(secs(1))], [permanent("no such user").after(secs(1))]] {
        let expected = steps.clone();
        let by_token = scenario(Retry::immediate).cancelled_at(secs(1)).everywhere(steps.clone());
        let by_deadline = scenario(Retry::immediate).context(|cx| cx.with_timeout(secs(1))).everywhere(steps.clone());
        let by_limit = scenario(|| Timeout::secs(1)).everywhere(steps);
        let alone = scenario(|| ()).everywhere(expected);
        assert_eq!((&by_token, &by_deadline, &by_limit), (&alone, &alone, &alone));
    }
}

#[test]
fn an_answer_that_is_ready_together_with_shutdown_is_returned() {
    let (clock, _) = at_rest();
    let executor = Executor::builder("ends").clock(&clock).build().unwrap();
    let ends = |permanent: bool| {
        let executor = executor.clone();
        async move {
            pending_times(1).await;
            executor.shutdown();
            if permanent { Err("no such user").permanent() } else { Ok("value") }
        }
    };
    let value: Result<_, Error<&str>> = clock.block_on(executor.run(faults(|_| ends(false))));
    assert_eq!(value.unwrap(), "value");
    let fresh = Executor::builder("ends too").clock(&clock).build().unwrap();
    let error: Error<&str> = clock.block_on(fresh.run(faults(|_| ends(true)))).unwrap_err();
    assert_eq!((error.kind(), error.last()), (Kind::Failed, Some(&"no such user")));
}

#[test]
fn a_wait_that_would_cross_the_deadline_is_not_begun() {
    let run = scenario(|| Retry::fixed(secs(10))).context(|cx| cx.with_timeout(secs(5)));
    let seen = run.everywhere([err::<(), _>("down")]);
    assert_eq!((seen.kind(), seen.last(), seen.took), (exhausted(Limit::Deadline), Some("down"), secs(0)));
}

#[test]
fn dropped_future_keeps_retrying() {
    let (clock, cx) = at_rest();
    let script = Script::new(&clock, [err::<(), _>("down")]);
    let mut run = tokio_test::task::spawn(try_do(&cx, |_| script.call_plain(), Retry::fixed(ms(100)).unlimited()));
    for _ in 0..3 {
        assert!(run.poll().is_pending());
        clock.advance(ms(100));
    }
    drop(run);
    clock.advance(secs(10));
    assert_eq!((script.calls().len(), clock.sleepers()), (3, 0));
}

#[test]
fn a_token_of_one_run_does_not_touch_another() {
    let (clock, cx) = at_rest();
    let executor = Executor::builder("two").clock(&clock).build().unwrap();
    let token = CancellationToken::new();
    let cancelled = cx.clone().with_token(token.child_token());
    let slow = async |_| {
        clock.clock().sleep(secs(5)).await;
        Ok::<_, ()>(())
    };
    let runs = async { tokio::join!(executor.run_with(&cancelled, slow), executor.run_with(&cx, slow)) };
    let cancel = async {
        clock.clock().sleep(secs(1)).await;
        token.cancel();
    };
    let (first, second) = clock.block_on(beside(cancel, runs));
    assert_eq!(first.unwrap_err().kind(), Kind::Cancelled);
    assert!(second.is_ok());
}

/// Polls a run `polls` times, drops it, and looks at what it leaves behind. Returns whether it was still pending.
fn is_pending_when_dropped_after(polls: usize) -> bool {
    let (clock, cx) = at_rest();
    let cx = cx.with_timeout(secs(60)).with_token(CancellationToken::new());
    let chain = (Timeout::secs(50), Retry::fixed(secs(1)), Timeout::secs(2));
    let executor = Executor::builder("dropped").policies(chain).unbudgeted().clock(&clock).build().unwrap();
    let erased = executor.erase();
    let calls = AtomicU32::new(0);
    let operation = async |_| {
        pending_times(2).await;
        clock.clock().sleep(ms(500)).await;
        match calls.fetch_add(1, Ordering::Relaxed) {
            0 | 2 => Err("down"),
            1 | 3 => pending().await,
            _ => Ok(()),
        }
    };
    let mut static_run = tokio_test::task::spawn(executor.run_with(&cx, operation));
    let mut erased_run = tokio_test::task::spawn(erased.run_with(&cx, operation));
    let mut pending = true;
    for _ in 0..polls {
        let polled = (static_run.poll(), erased_run.poll());
        pending = matches!(polled, (Poll::Pending, Poll::Pending));
        if !pending {
            break;
        }
        if !static_run.is_woken() {
            assert!(clock.advance_to_next());
        }
    }
    assert_eq!(executor.waiting(), if polls > 0 && pending { 2 } else { executor.waiting() });
    drop((static_run, erased_run));
    assert_eq!((clock.sleepers(), executor.waiting()), (0, 0), "dropped after {polls} polls");
    executor.close();
    let mut drained = tokio_test::task::spawn(executor.drained());
    assert!(drained.poll().is_ready());
    pending
}

#[test]
fn a_run_dropped_at_any_poll_leaves_nothing_behind() {
    let pending_polls = (0..1_000).take_while(|polls| is_pending_when_dropped_after(*polls)).count();
    assert!(pending_polls > 10, "the scenario has {pending_polls} polls");
}

#[test]
fn a_run_that_is_never_polled_does_nothing() {
    let (clock, cx) = at_rest();
    let script = Script::new(&clock, [ok::<_, ()>(7)]);
    drop(try_do(&cx, |_| script.call_plain(), Retry::immediate()));
    let executor = Executor::builder("idle").clock(&clock).build().unwrap();
    drop(executor.run(|_| script.call_plain()));
    assert_eq!((script.calls().len(), executor.waiting()), (0, 0));
}

#[test]
fn a_deadline_of_another_clock_is_carried_over_as_what_is_left() {
    let (abroad, cx) = at_rest();
    abroad.advance(secs(1_000));
    let cx: Context = cx.with_timeout(secs(10));
    abroad.advance(secs(4));
    let (clock, _) = at_rest();
    let executor = Executor::builder("home").clock(&clock).build().unwrap();
    let start = clock.now();
    let error = clock.block_on(executor.run_with(&cx, |_| pending::<Result<(), ()>>())).unwrap_err();
    assert_eq!((error.kind(), clock.now().since(start)), (Kind::DeadlineExceeded, secs(6)));
}

#[test]
fn an_earlier_deadline_stays() {
    let (clock, cx) = at_rest();
    let near = cx.clone().with_timeout(secs(1)).with_timeout(secs(9));
    assert_eq!(near.remaining(), Some(secs(1)));
    let later = cx.clone().with_timeout(secs(9)).deadline().unwrap();
    assert_eq!(cx.with_timeout(secs(2)).with_deadline(&later).remaining(), Some(secs(2)));
    clock.advance(secs(5));
    assert_eq!(near.remaining(), Some(secs(0)));
}
