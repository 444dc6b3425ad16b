//! What a limit ends, when, and who wins at the same instant.

use std::future::{pending, poll_fn};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::Poll;
use std::time::Duration;

use futures::future::join_all;
use steadfast::error::{Kind, Limit};
use steadfast::event::What;
use steadfast::{Context, Executor, Retry, Timeout, try_do};
use tokio::sync::{Semaphore, oneshot};

use crate::support::{Recorder, at_rest, beside, err, exhausted, hangs, ms, ok, scenario, secs, timed_out};

#[test]
fn what_is_fast_enough_is_untouched() {
    let seen = scenario(|| Timeout::secs(2)).everywhere([ok::<_, ()>(7).after(ms(1_999))]);
    assert_eq!((seen.result, seen.took), (Ok(7), ms(1_999)));
    let seen = scenario(|| Timeout::secs(2)).everywhere([err::<(), _>("down").after(secs(1))]);
    assert_eq!((seen.kind(), seen.last(), seen.took), (Kind::Failed, Some("down"), secs(1)));
}

#[test]
fn what_is_too_slow_ends_at_the_limit() {
    let seen = scenario(|| Timeout::secs(2)).everywhere([ok::<_, ()>(7).after(secs(9))]);
    assert_eq!((seen.kind(), seen.took), (timed_out(secs(2)), secs(2)));
    assert_eq!((seen.last(), seen.failure().attempts), (None, 1));
}

#[test]
fn remaining_timeout_zero_means_infinite() {
    let chain = || (Timeout::millis(100), Retry::immediate());
    let steps = [err("first").after(ms(95)), err("second").after(ms(99)), err("third").after(ms(99)), ok(())];
    let seen = scenario(chain).everywhere(steps);
    assert_eq!((seen.kind(), seen.took), (timed_out(ms(100)), ms(100)));
    assert_eq!((seen.calls, seen.result.unwrap_err().last), (vec![ms(0), ms(95)], Some("first")));

    let (clock, cx) = at_rest();
    let run = try_do(&cx, |_| async { Ok::<_, ()>(()) }, Timeout::secs(0));
    let error = clock.block_on(run).unwrap_err();
    assert_eq!((error.kind(), error.attempts()), (Kind::Misconfigured, 0));
    assert_eq!(Executor::builder("zero").policies(Timeout::millis(0)).build().unwrap_err().field(), "timeout");
}

#[test]
fn a_computed_limit_of_zero_ends_at_the_first_await() {
    let zero = || Timeout::with(|_| Duration::ZERO);
    let seen = scenario(zero).everywhere([hangs::<(), ()>()]);
    assert_eq!((seen.kind(), seen.took), (timed_out(secs(0)), secs(0)));
    let ready = scenario(zero).everywhere([ok::<_, ()>(7)]);
    assert_eq!(ready.result, Ok(7), "what needs no await is not cut off");
}

#[test]
fn the_longest_duration_means_never() {
    for limit in [Timeout::new(Duration::MAX), Timeout::with(|_| Duration::MAX)] {
        let seen = scenario(move || limit.clone()).everywhere([ok::<_, ()>(7).after(secs(1 << 33))]);
        assert_eq!(seen.result, Ok(7));
    }
}

#[test]
fn queued_past_its_timeout() {
    let (clock, cx) = at_rest();
    let (capacity, calls, now) = (Semaphore::new(1), AtomicU32::new(0), clock.clock());
    let start = clock.now();
    let task = || async {
        let run = try_do(
            &cx,
            async |_| {
                let _place = capacity.acquire().await.map_err(|_| "closed")?;
                calls.fetch_add(1, Ordering::Relaxed);
                now.sleep(secs(9)).await;
                Ok::<_, &str>(())
            },
            Timeout::secs(10),
        );
        (run.await.map_err(|error| error.kind()), clock.now().since(start))
    };
    let ends = clock.block_on(join_all([task(), task(), task()]));
    let timed_out = (Err(timed_out(secs(10))), secs(10));
    assert_eq!(ends, [(Ok(()), secs(9)), timed_out, timed_out]);
    let begun = calls.load(Ordering::Relaxed);
    clock.advance(secs(60));
    assert_eq!(calls.load(Ordering::Relaxed), begun, "nothing begins afterwards");
}

#[test]
fn blocking_work_ignores_timeout() {
    let (clock, _) = at_rest();
    let recorder = Recorder::default();
    let builder = Executor::builder("blocking").policies(Timeout::millis(100));
    let executor = builder.clock(&clock).observe(recorder.clone()).build().unwrap();
    let (finish, finished) = oneshot::channel();
    let finished = tokio::sync::Mutex::new(finished);
    // The other end is a thread, say: it goes on, and nobody is there to hear of it.
    let run = executor.run(async |_| (&mut *finished.lock().await).await.map_err(|_| "the work was dropped"));
    let error = clock.block_on(run).unwrap_err();
    assert_eq!(error.kind(), timed_out(ms(100)));
    let seen = recorder.events();
    finish.send("too late").unwrap();
    clock.advance(secs(1));
    assert_eq!(recorder.events(), seen, "the late result is no event");
}

#[test]
fn real_error_masked_by_timeout() {
    for _ in 0..1000 {
        let failed = scenario(|| Timeout::millis(100)).typed([err::<(), _>("custom").after(ms(100))]);
        assert_eq!((failed.kind(), failed.last()), (Kind::Failed, Some("custom")));
    }
    let done = scenario(|| Timeout::millis(100)).everywhere([ok::<_, ()>(7).after(ms(100))]);
    assert_eq!(done.result, Ok(7));
}

#[test]
fn a_result_at_the_limit_is_one_event_and_a_limit_is_one_too() {
    let whats = |takes| {
        let (clock, _) = at_rest();
        let recorder = Recorder::default();
        let builder = Executor::builder("events").policies(Timeout::millis(100));
        let executor = builder.clock(&clock).observe(recorder.clone()).build().unwrap();
        let now = clock.clock();
        let _ = clock.block_on(executor.run(async |_| {
            now.sleep(takes).await;
            Err::<(), _>("custom")
        }));
        let all = recorder.events();
        let ends = |(_, what): &(u32, What)| matches!(what, What::AttemptFinished { .. } | What::TimedOut { .. });
        all.into_iter().filter(ends).map(|(_, what)| what).collect::<Vec<_>>()
    };
    let verdict = steadfast::Verdict::Transient;
    assert_eq!(whats(ms(100)), [What::AttemptFinished { verdict }]);
    assert_eq!(whats(ms(101)), [What::TimedOut { limit: ms(100) }]);
}

#[test]
fn a_limit_fires_although_the_operation_blocked_in_its_first_poll() {
    let (clock, cx) = at_rest();
    let run = try_do(
        &cx,
        async |_| {
            clock.advance(secs(5));
            pending::<Result<(), ()>>().await
        },
        Timeout::secs(2),
    );
    let start = clock.now();
    assert_eq!(clock.block_on(run).unwrap_err().kind(), timed_out(secs(2)));
    assert_eq!(clock.now().since(start), secs(5));
}

#[test]
fn a_blocking_operation_that_ends_late_keeps_its_result() {
    let (clock, cx) = at_rest();
    let run = try_do(
        &cx,
        async |_| {
            clock.advance(secs(5));
            Ok::<_, ()>("late")
        },
        Timeout::secs(2),
    );
    assert_eq!(clock.block_on(run).unwrap(), "late");
}

#[test]
fn each_attempt_has_its_own_limit_inside_of_a_retry() {
    let chain = || (Retry::fixed(secs(10)), Timeout::secs(2));
    let seen = scenario(chain).everywhere([hangs(), hangs(), ok::<_, ()>(7)]);
    assert_eq!((seen.result, seen.calls), (Ok(7), vec![secs(0), secs(12), secs(24)]));
    let waiting = scenario(chain).everywhere([err("down"), ok(7)]);
    assert_eq!(waiting.result, Ok(7), "a wait longer than the limit is no attempt");
}

#[test]
fn a_limit_outside_of_a_retry_covers_attempts_and_waits() {
    let blocked = scenario(|| (Timeout::secs(3), Retry::fixed(secs(1)))).everywhere([err("down"), hangs::<(), _>()]);
    assert_eq!((blocked.kind(), blocked.took, blocked.last()), (timed_out(secs(3)), secs(3), Some("down")));
    let waiting = scenario(|| (Timeout::secs(3), Retry::fixed(secs(9)))).everywhere([err::<(), _>("down")]);
    assert_eq!((waiting.kind(), waiting.took), (exhausted(Limit::Deadline), secs(0)), "no wait in vain");
}

#[test]
fn the_shorter_of_two_nested_limits_fires() {
    let inner = scenario(|| (Timeout::secs(9), Timeout::secs(2))).everywhere([hangs::<(), ()>()]);
    assert_eq!((inner.kind(), inner.took), (timed_out(secs(2)), secs(2)));
    let outer = scenario(|| (Timeout::secs(2), Timeout::secs(9))).everywhere([hangs::<(), ()>()]);
    assert_eq!((outer.kind(), outer.took), (timed_out(secs(2)), secs(2)));
    let both = || (Timeout::secs(7), Retry::immediate().max_attempts(9), Timeout::secs(2));
    let seen = scenario(both).everywhere([hangs::<(), ()>()]);
    assert_eq!((seen.kind(), seen.took, seen.calls.len()), (timed_out(secs(7)), secs(7), 4));
}

#[test]
fn a_limit_is_computed_for_each_try() {
    let growing = || (Retry::immediate(), Timeout::with(|attempt| secs(attempt.number().into())));
    let seen = scenario(growing).everywhere([hangs::<(), ()>()]);
    assert_eq!((seen.calls, seen.took), (vec![secs(0), secs(1), secs(3)], secs(6)));
    assert_eq!(seen.result.unwrap_err().kind, timed_out(secs(3)));
}

#[test]
fn the_operation_sees_the_nearest_limit() {
    let (clock, cx) = at_rest();
    let cx = cx.with_timeout(secs(60));
    let remaining = |policies: Vec<Timeout>| {
        let policies = policies.into_iter().map(steadfast::chain::BoxPolicy::new).collect::<Vec<_>>();
        let run = try_do(&cx, |attempt| async move { Ok::<_, ()>(attempt.remaining()) }, policies);
        clock.block_on(run).unwrap()
    };
    assert_eq!(remaining(vec![]), Some(secs(60)));
    assert_eq!(remaining(vec![Timeout::secs(9), Timeout::secs(2)]), Some(secs(2)));
    assert_eq!(remaining(vec![Timeout::secs(2), Timeout::secs(9)]), Some(secs(2)));
    assert_eq!(remaining(vec![Timeout::secs(90)]), Some(secs(60)));
    let plain = Context::new();
    let unlimited = try_do(&plain, |attempt| async move { Ok::<_, ()>(attempt.deadline().is_none()) }, ());
    assert!(clock.block_on(unlimited).unwrap());
}

#[test]
fn a_context_for_an_attempt_ends_with_it() {
    let (clock, cx) = at_rest();
    let cx = cx.with_timeout(secs(60));
    let run = try_do(
        &cx,
        async |attempt| {
            let inner = cx.for_attempt(&attempt);
            try_do(&inner, |_| pending::<Result<(), ()>>(), ()).await.map_err(|error| (inner.remaining(), error.kind()))
        },
        Timeout::secs(2),
    );
    let error = clock.block_on(run).unwrap_err();
    // The inner run and the limit end at the same instant; the inner one has its result ready.
    assert_eq!(error.into_last(), Some((Some(secs(0)), Kind::DeadlineExceeded)));
}

#[test]
fn what_is_cut_off_is_dropped_before_the_caller_goes_on() {
    struct Flag(Arc<AtomicBool>);
    impl Drop for Flag {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let (clock, cx) = at_rest();
    let dropped = Arc::new(AtomicBool::new(false));
    let run = try_do(
        &cx,
        |_| {
            let flag = Flag(Arc::clone(&dropped));
            async move {
                pending::<()>().await;
                drop(flag);
                Ok::<_, ()>(())
            }
        },
        Timeout::secs(1),
    );
    let flag_when_done = clock.block_on(async {
        run.await.unwrap_err();
        dropped.load(Ordering::Relaxed)
    });
    assert!(flag_when_done);
}

#[test]
fn timeout_completion_race_double_report() {
    // Each call ends at, just before or just after the limit; whoever wins, there is one outcome.
    let (clock, _) = at_rest();
    let recorder = Recorder::default();
    let builder = Executor::builder("race").policies(Timeout::millis(5));
    let executor = builder.clock(&clock).observe(recorder.clone()).build().unwrap();
    let now = clock.clock();
    let runs = (0..3_000_u64).map(|n| {
        let now = &now;
        executor.run(move |_| async move {
            now.sleep(ms(4 + n % 3)).await;
            Ok::<_, ()>(())
        })
    });
    let results = clock.block_on(join_all(runs));
    let (done, late) = results.iter().partition::<Vec<_>, _>(|result| result.is_ok());
    assert_eq!((done.len(), late.len()), (2_000, 1_000));
    let count = |matching: fn(&What) -> bool| recorder.events().iter().filter(|(_, what)| matching(what)).count();
    assert_eq!(count(|what| matches!(what, What::AttemptFinished { .. })), 2_000);
    assert_eq!(count(|what| matches!(what, What::TimedOut { .. })), 1_000);
    assert_eq!(count(|what| matches!(what, What::RunFinished { .. })), 3_000);
}

#[test]
fn a_limit_that_passed_while_nobody_polled_fires_at_the_next_poll() {
    let (clock, cx) = at_rest();
    let mut run = tokio_test::task::spawn(try_do(&cx, |_| pending::<Result<(), ()>>(), Timeout::secs(2)));
    assert!(run.poll().is_pending());
    clock.advance(secs(60));
    assert!(run.is_woken());
    let Poll::Ready(Err(error)) = run.poll() else { panic!("the limit has passed") };
    assert_eq!((error.kind(), error.elapsed()), (timed_out(secs(2)), secs(60)));
}

#[test]
fn an_operation_that_wakes_itself_for_ever_is_cut_off_all_the_same() {
    let (clock, cx) = at_rest();
    let advance = clock.clone();
    let busy = move |_| {
        let advance = advance.clone();
        poll_fn(move |cx| {
            advance.advance(ms(1));
            cx.waker().wake_by_ref();
            Poll::<Result<(), ()>>::Pending
        })
    };
    let run = try_do(&cx, busy, Timeout::secs(1));
    let error = clock.block_on(beside(pending(), run)).unwrap_err();
    assert_eq!((error.kind(), error.elapsed()), (timed_out(secs(1)), secs(1)));
}

#[test]
fn a_limit_that_covers_a_body_is_a_plain_limit_where_there_is_none() {
    let limit = Timeout::secs(2).covering_body();
    assert_eq!(format!("{limit:?} {:?}", Timeout::secs(2)), "Timeout(2s, covering the body) Timeout(2s)");
    let seen = scenario(|| Timeout::secs(2).covering_body()).everywhere([hangs::<(), &str>()]);
    assert_eq!((seen.kind(), seen.took), (timed_out(secs(2)), secs(2)));
    let seen = scenario(|| Timeout::secs(2).covering_body()).everywhere([ok::<_, &str>(7).after(secs(1))]);
    assert_eq!((seen.result, seen.took), (Ok(7), secs(1)));
}
