//! The options and tests of nodivbyzero/try, in our own terms.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use steadfast::error::{Kind, Limit};
use steadfast::judge::{attempts_for, retry_after, retry_if};
use steadfast::operation::{Fault, FaultExt};
use steadfast::retry::Jitter;
use steadfast::{Context, Error, Executor, Retry, Timeout, faults, op, try_do};

use crate::support::{
    Script, at_rest, ends, err, exhausted, hangs, ms, ok, permanent, scenario, secs, throttled, timed_out,
};

fn waits(calls: &[Duration]) -> Vec<Duration> {
    calls.windows(2).map(|pair| pair[1] - pair[0]).collect()
}

#[test]
fn success_and_generics() {
    assert_eq!(scenario(Retry::exponential).everywhere([ok::<_, ()>(7)]).result, Ok(7));
    assert_eq!(scenario(Retry::exponential).everywhere([ok::<_, String>(vec!["a"])]).result, Ok(vec!["a"]));
    assert_eq!(scenario(Retry::exponential).everywhere([err("once"), ok(())]).result, Ok(()));
}

#[test]
fn attempts_of_zero_are_refused_and_not_mended() {
    assert_eq!(Retry::exponential().max_attempts(0).check().unwrap_err().field(), "max_attempts");
    assert!(Retry::exponential().max_attempts(1).check().is_ok());
    let one = scenario(|| Retry::exponential().max_attempts(1)).everywhere([err::<(), _>("down")]);
    assert_eq!((one.calls.len(), one.took), (1, secs(0)));
}

#[test]
fn settings_that_were_mended_there_are_refused_here() {
    assert_eq!(Retry::exponential().base(secs(60)).check().unwrap_err().field(), "base");
    assert_eq!(Timeout::new(Duration::ZERO).check().unwrap_err().field(), "timeout");
    for factor in [f64::NAN, f64::INFINITY, -1.0, 0.5] {
        assert_eq!(Retry::exponential().factor(factor).check().unwrap_err().field(), "factor");
    }
    assert_eq!(Retry::fixed(secs(1)).factor(2.0).check().unwrap_err().field(), "factor");
    for share in [f64::NAN, -0.1, 1.1] {
        assert_eq!(Retry::exponential().jitter(Jitter::Proportional(share)).check().unwrap_err().field(), "jitter");
    }
    assert_eq!(Retry::exponential().max_elapsed(secs(0)).check().unwrap_err().field(), "max_elapsed");
}

#[test]
fn infinite_retry_succeeds_eventually_and_stops_on_cancel_and_on_permanent() {
    let unlimited = || Retry::fixed(secs(1)).unlimited();
    let mut steps = vec![err("down"); 50];
    steps.push(ok("up"));
    assert_eq!(scenario(unlimited).everywhere(steps).result, Ok("up"));
    let cancelled = scenario(unlimited).cancelled_at(ms(10_500)).everywhere([err::<(), _>("down")]);
    assert_eq!((cancelled.kind(), cancelled.calls.len()), (Kind::Cancelled, 11));
    let stopped = scenario(unlimited).everywhere([err("down"), permanent::<(), _>("gone")]);
    assert_eq!((stopped.kind(), stopped.last(), stopped.calls.len()), (Kind::Failed, Some("gone"), 2));
}

#[test]
fn delays_double_up_to_the_maximum() {
    let retry = || Retry::exponential().base(ms(100)).cap(ms(500)).jitter(Jitter::None).max_attempts(6);
    let seen = scenario(retry).everywhere([err::<(), _>("down")]);
    assert_eq!(waits(&seen.calls), [100, 200, 400, 500, 500].map(ms));
}

#[test]
fn tiny_and_large_initial_delays_do_not_panic() {
    for base in [Duration::ZERO, Duration::from_nanos(1), secs(1_000_000)] {
        let retry = move || Retry::exponential().base(base).cap(Duration::MAX);
        assert_eq!(scenario(retry).everywhere([err::<(), _>("down")]).calls.len(), 3);
    }
}

#[test]
fn full_and_equal_jitter_keep_to_their_windows() {
    let drawn = |jitter| {
        let retry = move || Retry::exponential().base(ms(100)).cap(ms(100)).jitter(jitter).max_attempts(300);
        waits(&scenario(retry).everywhere([err::<(), _>("down")]).calls)
    };
    let full = drawn(Jitter::Full);
    assert!(full.iter().all(|wait| *wait <= ms(100)) && full.iter().any(|wait| *wait < ms(20)));
    let equal = drawn(Jitter::Equal);
    assert!(equal.iter().all(|wait| (ms(50)..=ms(100)).contains(wait)), "never above the delay");
    assert!(equal.iter().any(|wait| *wait > ms(90)) && equal.iter().any(|wait| *wait < ms(60)));
}

#[test]
fn max_jitter_caps_what_a_draw_takes_away() {
    let drawn = |jitter, most| {
        let retry = Retry::exponential().base(ms(100)).cap(ms(100)).jitter(jitter).max_attempts(300).max_jitter(most);
        waits(&scenario(move || retry.clone()).everywhere([err::<(), _>("down")]).calls)
    };
    let within = |waits: Vec<Duration>, least| waits.iter().all(|wait| (least..=ms(100)).contains(wait));
    assert!(within(drawn(Jitter::Full, ms(10)), ms(90)));
    assert!(within(drawn(Jitter::Equal, ms(10)), ms(90)), "the base is kept");
    let larger = drawn(Jitter::Full, secs(9));
    assert!(larger.iter().any(|wait| *wait < ms(20)), "larger than the delay: no effect");
}

#[test]
fn retry_if_stops_with_the_error_it_refuses() {
    let chain = || (Retry::immediate(), retry_if(|code: &u16| *code >= 500));
    let seen = scenario(chain).typed([err::<(), _>(503), err(404), err(503)]);
    assert_eq!((seen.kind(), seen.last(), seen.calls.len()), (Kind::Failed, Some(404), 2));
}

#[test]
fn permanent_beats_retry_if() {
    let chain = || (Retry::immediate(), retry_if(|_: &&str| true));
    let seen = scenario(chain).typed([permanent::<(), _>("gone")]);
    assert_eq!((seen.kind(), seen.calls.len()), (Kind::Failed, 1));
}

#[test]
fn attempts_for_an_error_end_before_the_global_ones_and_spend_them_too() {
    let chain = || (Retry::immediate().max_attempts(5), attempts_for(2, |error: &&str| *error == "a"));
    let first = scenario(chain).typed([err::<(), _>("a")]);
    assert_eq!((first.kind(), first.calls.len()), (Kind::Failed, 2));
    let mixed = scenario(chain).typed([err::<(), _>("a"), err("b")]);
    assert_eq!((mixed.kind(), mixed.calls.len()), (exhausted(Limit::Attempts), 5));
    let one = || (Retry::immediate(), attempts_for(1, |error: &&str| *error == "a"));
    assert_eq!(scenario(one).typed([err::<(), _>("a")]).calls.len(), 1, "1 is no retry");
}

#[test]
fn attempts_for_several_targets_are_counted_apart() {
    let of = |name: &'static str, n| attempts_for(n, move |error: &&str| *error == name);
    let chain = move || (Retry::immediate().max_attempts(20), of("a", 2), of("b", 3));
    let seen = scenario(chain).typed([err::<(), _>("b"), err("a"), err("b"), err("c"), err("b"), ok(())]);
    assert_eq!((seen.last(), seen.calls.len()), (Some("b"), 5));
    let seen = scenario(chain).typed([err::<(), _>("b"), err("a"), err("b"), err("c"), err("a"), ok(())]);
    assert_eq!((seen.last(), seen.calls.len()), (Some("a"), 5));
}

#[test]
fn only_the_first_target_that_matches_counts_an_error() {
    let (clock, cx) = at_rest();
    // Written from the inside out in an `op`, and from the outside in as policies.
    let operation = op(|_| async { Err::<(), _>("a") }).attempts_for(4, |_| true).attempts_for(2, |_| true);
    let error = clock.block_on(steadfast::try_op(&cx, operation, Retry::immediate().max_attempts(9))).unwrap_err();
    assert_eq!(error.attempts(), 4);
    let all = |n| attempts_for(n, |_: &&str| true);
    let chain = move || (Retry::immediate().max_attempts(9), all(2), all(4));
    assert_eq!(scenario(chain).typed([err::<(), _>("a")]).calls.len(), 4);
}

#[test]
fn attempts_for_sees_through_wrapped_errors() {
    let (clock, cx) = at_rest();
    let is_refused = |error: &anyhow::Error| {
        error.chain().any(|cause| {
            cause.downcast_ref::<std::io::Error>().is_some_and(|io| io.kind() == std::io::ErrorKind::ConnectionRefused)
        })
    };
    let refused = || Err::<(), _>(std::io::Error::from(std::io::ErrorKind::ConnectionRefused));
    let operation =
        op(|_| async move { refused().map_err(|io| anyhow::Error::from(io).context("fetching the invoice")) });
    let run = steadfast::try_op(&cx, operation.attempts_for(2, is_refused), Retry::immediate().max_attempts(9));
    assert_eq!(clock.block_on(run).unwrap_err().attempts(), 2);
}

#[test]
fn an_attempt_limit_is_tried_again_a_fast_one_is_not_touched_and_the_parent_stops_the_loop() {
    let chain = || (Retry::fixed(secs(1)), Timeout::secs(2));
    assert_eq!(scenario(chain).everywhere([hangs(), ok::<_, ()>(7)]).result, Ok(7));
    assert_eq!(scenario(chain).everywhere([ok::<_, ()>(7).after(secs(1))]).calls.len(), 1);
    assert_eq!(scenario(chain).everywhere([hangs::<(), ()>()]).kind(), timed_out(secs(2)));
    let parent = scenario(chain).context(|cx| cx.with_timeout(secs(4))).everywhere([hangs::<(), ()>()]);
    assert_eq!((parent.kind(), parent.took), (Kind::DeadlineExceeded, secs(4)));
}

#[test]
fn a_delay_function_replaces_the_backoff() {
    let linear = || Retry::custom(|n, _| secs(u64::from(n))).max_attempts(5);
    let seen = scenario(linear).everywhere([err::<(), _>("down")]);
    assert_eq!(waits(&seen.calls), [1, 2, 3, 4].map(secs));
}

#[test]
fn retry_after_takes_precedence_over_backoff_and_delay_function() {
    for retry in [Retry::fixed(secs(60)).cap(secs(60)), Retry::custom(|_, _| secs(20))] {
        let seen = scenario(move || retry.clone()).everywhere([throttled("busy", secs(3)), ok(())]);
        assert!((secs(3)..=ms(3_300)).contains(&seen.took), "{:?}", seen.took);
    }
    let wrapped = || {
        (Retry::fixed(secs(9)), retry_after(|error: &String| error.strip_prefix("busy for ")?.parse().ok().map(secs)))
    };
    let seen = scenario(wrapped).typed([err("busy for 3".to_owned()), ok(())]);
    assert!((secs(3)..=ms(3_300)).contains(&seen.took));
}

#[test]
fn on_retry_is_told_attempt_error_and_delay_but_not_of_the_last_attempt() {
    let (clock, cx) = at_rest();
    let told = Arc::new(Mutex::new(Vec::new()));
    let listener = Arc::clone(&told);
    let retry = Retry::fixed(secs(1)).on_retry(move |event| {
        let error = format!("{:?}", event.error.unwrap());
        listener.lock().unwrap().push((event.attempt, event.delay, error));
    });
    let run = try_do(&cx, |attempt| async move { Err::<(), _>(attempt.number()) }, retry);
    clock.block_on(run).unwrap_err();
    assert_eq!(*told.lock().unwrap(), [(1, secs(1), "1".to_owned()), (2, secs(1), "2".to_owned())]);
}

#[test]
fn all_errors_are_kept_on_demand_and_none_but_the_last_by_default() {
    let numbered = || (1..=3).map(err::<(), u32>).collect::<Vec<_>>();
    let default = scenario(Retry::immediate).everywhere(numbered());
    assert_eq!((default.last(), default.failure().history.len()), (Some(3), 0));
    let all = scenario(|| Retry::immediate().keep_errors(usize::MAX)).everywhere(numbered());
    assert_eq!(all.failure().history, [1, 2, 3]);
    let mut steps = numbered();
    steps[1] = permanent(2);
    let stopped = scenario(|| Retry::immediate().keep_errors(9)).everywhere(steps);
    assert_eq!((stopped.kind(), stopped.failure().history.clone()), (Kind::Failed, vec![1, 2]));
}

#[test]
fn a_cancelled_run_returns_the_errors_so_far() {
    let run = scenario(|| Retry::fixed(secs(1)).keep_errors(9)).cancelled_at(ms(1_500));
    let seen = run.everywhere([err::<(), _>(1), err(2)]);
    assert_eq!((seen.kind(), seen.failure().history.clone()), (Kind::Cancelled, vec![1, 2]));
}

#[test]
fn the_history_is_bounded_under_unlimited_retries() {
    let mut steps: Vec<_> = (1..=1_000).map(err::<(), u32>).collect();
    steps.push(permanent(1_001));
    let seen = scenario(|| Retry::immediate().unlimited().keep_errors(3)).everywhere(steps);
    assert_eq!(seen.failure().history, [999, 1_000, 1_001]);
}

#[test]
fn the_permanent_marker_never_reaches_the_caller() {
    let (clock, cx) = at_rest();
    let run = try_do(&cx, faults(|_| async { Err::<(), _>(std::fmt::Error).permanent() }), Retry::immediate());
    let error: Error<std::fmt::Error> = clock.block_on(run).unwrap_err();
    assert_eq!(error.into_last(), Some(std::fmt::Error));
    let marked: Fault<&str> = "plain".into();
    assert_eq!(marked, Fault::Transient("plain"));
}

#[test]
fn a_cancelled_error_carries_both_what_ended_it_and_the_last_error() {
    let (clock, cx) = at_rest();
    let script = Script::new(&clock, [err::<(), _>("down")]);
    let run = try_do(&cx, |_| script.call_plain(), Retry::fixed(secs(10)).unlimited());
    let mut run = tokio_test::task::spawn(run);
    assert!(run.poll().is_pending());
    drop(run);
    let cx = cx.with_timeout(secs(25)).with_token(steadfast::CancellationToken::new());
    let cancel = async {
        clock.clock().sleep(secs(5)).await;
        cx.token().unwrap().cancel();
    };
    let run = try_do(&cx, |_| script.call_plain(), Retry::fixed(secs(10)).unlimited());
    let error = clock.block_on(crate::support::beside(cancel, run)).unwrap_err();
    assert_eq!(error.to_string(), "cancelled (after 1 attempt; last error: down)");
}

#[test]
fn a_client_has_defaults_that_a_call_can_change() {
    let (clock, _) = at_rest();
    let client = Executor::builder("client")
        .policies(Retry::immediate().max_attempts(5))
        .unbudgeted()
        .clock(&clock)
        .build()
        .unwrap();
    let attempts = |cx: &Context| {
        let run = client.run_with(cx, |_| async { Err::<(), _>("down") });
        clock.block_on(run).unwrap_err().attempts()
    };
    assert_eq!(attempts(&client.context()), 5);
    assert_eq!(attempts(&client.context().with_max_attempts(2)), 2);
    assert_eq!(attempts(&client.context()), 5, "a call's own setting does not stay");
}

#[test]
fn an_error_of_the_operation_that_looks_like_a_cancellation_is_an_ordinary_one() {
    let seen = scenario(Retry::immediate).everywhere([err("context cancelled"), ends(Ok(7))]);
    assert_eq!((seen.result, seen.calls.len()), (Ok(7), 2));
}
