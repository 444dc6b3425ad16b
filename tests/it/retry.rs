//! When a retry tries again, what ends it, and what it leaves in the error.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use steadfast::error::{Error, Kind, Limit};
use steadfast::judge::{classify, retry_if};
use steadfast::operation::Fault;
use steadfast::retry::{DEFAULT_MAX_ATTEMPTS, Jitter, OnLongWait, OnRejection};
use steadfast::{Context, Executor, Retry, Timeout, Verdict, try_do};

use crate::policies::Refuses;
use crate::support::{
    Step, at_rest, ends, err, exhausted, hangs, mins, ms, ok, permanent, scenario, secs, throttled, timed_out,
};

fn doubling() -> Retry {
    Retry::exponential().base(secs(1)).jitter(Jitter::None)
}

#[test]
fn the_defaults_are_three_attempts_with_growing_waits() {
    let seen = scenario(|| Retry::exponential().jitter(Jitter::None)).everywhere([err::<(), _>("down")]);
    assert_eq!(seen.calls, [0, 200, 600].map(ms));
    assert_eq!(seen.kind(), exhausted(Limit::Attempts));
    assert_eq!(seen.failure().attempts, DEFAULT_MAX_ATTEMPTS);
    assert_eq!(seen.last(), Some("down"));
}

#[test]
fn a_success_ends_the_run_at_once() {
    let first = scenario(Retry::exponential).everywhere([ok::<_, ()>(7)]);
    assert_eq!((first.result, first.calls.len(), first.took), (Ok(7), 1, secs(0)));
    let third = scenario(Retry::exponential).everywhere([err("down"), err("down"), ok(7)]);
    assert_eq!((third.result, third.calls.len()), (Ok(7), 3));
}

#[test]
fn unlimited_attempts_go_on_until_a_success() {
    let mut steps = vec![err("down"); 5];
    steps.push(ok(()));
    let seen = scenario(|| Retry::exponential().unlimited()).everywhere(steps);
    assert_eq!((seen.result, seen.calls.len()), (Ok(()), 6));
}

#[test]
fn retry_beyond_max_elapsed() {
    let retry = || doubling().cap(secs(5)).unlimited().max_elapsed(secs(15));
    let seen = scenario(retry).everywhere([err::<(), _>("down")]);
    assert_eq!(seen.calls, [0, 1, 3, 7, 12].map(secs));
    assert_eq!(seen.took, secs(12), "it does not sleep first");
    assert_eq!(seen.kind(), exhausted(Limit::Elapsed));
    assert_eq!(seen.last(), Some("down"));
}

#[test]
fn an_attempt_may_start_exactly_at_the_elapsed_limit_and_a_running_one_is_not_cut_off() {
    let retry = || Retry::fixed(secs(5)).unlimited().max_elapsed(secs(10));
    let seen = scenario(retry).everywhere([err::<(), _>("down"), err("down"), err("down").after(secs(3))]);
    assert_eq!((seen.calls, seen.took), (vec![secs(0), secs(5), secs(10)], secs(13)));
}

#[test]
fn stop_before_the_deadline() {
    let expect = |seen: crate::support::Seen<(), &str>, by| {
        assert_eq!(seen.calls, [0, 1, 3].map(secs));
        assert_eq!((seen.took, seen.kind(), seen.last()), (secs(3), exhausted(by), Some("down")));
    };
    let steps = [err::<(), _>("down")];
    let retry = || doubling().unlimited();
    let by_elapsed = scenario(move || retry().max_elapsed(secs(5))).everywhere(steps.clone());
    expect(by_elapsed, Limit::Elapsed);
    let by_timeout = scenario(move || (Timeout::secs(5), retry())).everywhere(steps.clone());
    expect(by_timeout, Limit::Deadline);
    let by_context = scenario(retry).context(|cx| cx.with_timeout(secs(5))).everywhere(steps);
    expect(by_context, Limit::Deadline);
}

#[test]
fn a_wait_that_would_end_with_the_deadline_is_not_begun() {
    let seen = scenario(|| (Timeout::secs(3), doubling().unlimited())).everywhere([err::<(), _>("down")]);
    assert_eq!((seen.calls, seen.took), (vec![secs(0), secs(1)], secs(1)));
}

#[test]
fn elapsed_counts_only_sleeps() {
    let retry = || Retry::fixed(secs(1)).unlimited().max_elapsed(secs(15));
    let seen = scenario(retry).everywhere([err::<(), _>("down").after(secs(10))]);
    assert_eq!((&seen.calls, seen.took), (&vec![secs(0), secs(11)], secs(21)));
    assert_eq!(seen.kind(), exhausted(Limit::Elapsed));
}

#[test]
fn server_delay_vs_hidden_default() {
    let steps = [throttled("busy", mins(30)), ok(())];
    let unlimited = || Retry::exponential().max_retry_after(Duration::MAX);
    let seen = scenario(unlimited).everywhere(steps.clone());
    assert_eq!(seen.result, Ok(()));
    assert!((mins(30)..=mins(30) + secs(1)).contains(&seen.calls[1]), "{:?}", seen.calls);

    let limits: [(fn() -> Retry, Limit); 3] = [
        (Retry::exponential, Limit::RetryAfter),
        (|| Retry::exponential().max_retry_after(mins(15)), Limit::RetryAfter),
        (|| Retry::exponential().max_retry_after(Duration::MAX).max_elapsed(mins(15)), Limit::Elapsed),
    ];
    for (retry, by) in limits {
        let seen = scenario(retry).everywhere(steps.clone());
        assert_eq!((seen.calls.len(), seen.took), (1, secs(0)));
        assert_eq!(seen.kind(), exhausted(by));
        assert_eq!(seen.failure().retry_after, Some(mins(30)), "the wanted delay is readable");
        assert_eq!(seen.last(), Some("busy"));
    }
}

#[test]
fn a_pause_that_was_asked_for_is_waited_for_and_spread_by_a_tenth_at_most() {
    for asked in [ms(10), secs(1), secs(20)] {
        let seen = scenario(|| Retry::immediate().max_attempts(200)).everywhere([throttled::<(), _>("busy", asked)]);
        let waits: Vec<_> = seen.calls.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let most = asked + (asked / 10).min(secs(1));
        assert!(waits.iter().all(|wait| (asked..=most).contains(wait)), "{asked:?}");
        assert!(waits.iter().any(|wait| *wait > asked + (most - asked) / 2), "{asked:?}");
    }
}

#[test]
fn a_pause_of_zero_means_at_once_and_an_unknown_one_is_the_backoff() {
    let retry = || Retry::fixed(secs(2));
    let at_once = scenario(retry).everywhere([throttled("busy", secs(0)), ok(())]);
    assert_eq!(at_once.took, secs(0));
    let unknown = scenario(retry).everywhere([ends(Err(Fault::Throttled("busy", None))), ok(())]);
    assert_eq!(unknown.took, secs(2));
}

#[test]
fn a_pause_at_the_limit_is_granted_and_a_longer_one_can_be_capped() {
    let at_limit = scenario(Retry::exponential).everywhere([throttled("busy", secs(30)), ok(())]);
    assert_eq!(at_limit.took, secs(30));
    let capped = || Retry::exponential().max_retry_after(secs(5)).on_long_wait(OnLongWait::Cap);
    let seen = scenario(capped).everywhere([throttled("busy", secs(60)), ok(())]);
    assert_eq!((seen.result, seen.took), (Ok(()), secs(5)));
}

#[test]
fn zero_attempts_swallows_error() {
    let (clock, cx) = at_rest();
    let none = Retry::exponential().max_attempts(0);
    let run = try_do(&cx, |_| async { Ok::<_, ()>(()) }, none.clone());
    let error = clock.block_on(run).unwrap_err();
    assert_eq!((error.kind(), error.attempts()), (Kind::Misconfigured, 0));
    assert_eq!(error.refusal().config().unwrap().field(), "max_attempts");
    assert!(Executor::builder("none").policies(none).build().is_err());

    let seen = scenario(|| Retry::exponential().unlimited()).everywhere([permanent::<(), _>("gone"), ok(())]);
    assert_eq!((seen.calls.len(), seen.kind(), seen.last()), (1, Kind::Failed, Some("gone")));
    let judged = || (Retry::exponential().unlimited(), retry_if(|error: &&str| *error != "gone"));
    let seen = scenario(judged).typed([err::<(), _>("gone"), ok(())]);
    assert_eq!((seen.calls.len(), seen.kind(), seen.last()), (1, Kind::Failed, Some("gone")));
}

#[test]
fn permanent_marker_leaks() {
    for most in [1, 2, 3] {
        let seen = scenario(move || Retry::immediate().max_attempts(most)).everywhere([permanent::<(), _>("dummy")]);
        assert_eq!((seen.kind(), seen.last(), seen.calls.len()), (Kind::Failed, Some("dummy"), 1));
    }
    let last_allowed =
        scenario(|| Retry::immediate().max_attempts(2)).everywhere([err("down"), permanent::<(), _>("dummy")]);
    assert_eq!((last_allowed.kind(), last_allowed.last()), (Kind::Failed, Some("dummy")));
}

#[test]
fn cancel_hides_last_error() {
    let run = scenario(|| Retry::fixed(secs(10))).cancelled_at(secs(2));
    let seen = run.everywhere([err::<(), _>("E1")]);
    assert_eq!((seen.kind(), seen.last(), seen.took), (Kind::Cancelled, Some("E1"), secs(2)));
}

#[test]
fn retries_an_open_circuit() {
    let chain = || (Retry::exponential().max_attempts(5), Refuses::after(2));
    let seen = scenario(chain).everywhere([err::<(), _>("down")]);
    let wait = seen.calls[1];
    assert_eq!(seen.calls.len(), 2);
    assert!(seen.took >= wait && seen.took <= wait + ms(400), "one more wait, and then at once");
    assert_eq!(seen.kind(), Refuses::KIND);
    assert_eq!((seen.last(), seen.failure().attempts), (Some("down"), 2));
}

#[test]
fn a_rejection_is_waited_for_only_on_demand() {
    let chain = || {
        let retry = Retry::fixed(secs(1)).max_attempts(4).on_rejection(OnRejection::Wait);
        (retry, Refuses::between(1, 2))
    };
    let seen = scenario(chain).everywhere([err("down"), ok(())]);
    assert_eq!(seen.result, Ok(()));
    let refused_at = secs(1);
    let waited = seen.calls[1] - refused_at;
    assert!((Refuses::PAUSE..=Refuses::PAUSE + Refuses::PAUSE / 10).contains(&waited), "{waited:?}");

    let unknown = || {
        let retry = Retry::fixed(secs(1)).max_attempts(4).on_rejection(OnRejection::Wait);
        (retry, Refuses::between(1, 2).without_hint())
    };
    let seen = scenario(unknown).everywhere([err("down"), ok(())]);
    assert_eq!(seen.calls, [secs(0), secs(2)], "one backoff");
}

#[test]
fn the_stricter_of_policy_and_caller_limits_the_attempts() {
    let attempts = |policy: u32, caller: u32| {
        let chain = scenario(move || Retry::immediate().max_attempts(policy));
        let seen = chain.context(move |cx| cx.with_max_attempts(caller)).everywhere([err::<(), _>("down")]);
        assert_eq!(seen.kind(), exhausted(Limit::Attempts));
        seen.calls.len()
    };
    assert_eq!((attempts(5, 2), attempts(2, 5), attempts(3, 1)), (2, 2, 1));
    let unlimited = scenario(|| Retry::immediate().unlimited()).context(|cx| cx.with_max_attempts(7));
    assert_eq!(unlimited.everywhere([err::<(), _>("down")]).calls.len(), 7);
}

#[test]
fn once_means_once_whatever_the_chain_says() {
    let nested = || (Retry::immediate(), Retry::immediate());
    let seen = scenario(nested).context(Context::once).everywhere([err::<(), _>("down")]);
    assert_eq!(seen.calls.len(), 1);
}

#[test]
fn the_callers_limit_holds_for_nested_retries_together() {
    let nested = || (Retry::immediate(), Retry::immediate());
    for most in 1..=9 {
        let run = scenario(nested).context(move |cx| cx.with_max_attempts(most));
        let seen = run.everywhere([err::<(), _>("down")]);
        assert_eq!(seen.calls.len(), most as usize, "at most {most}");
    }
}

#[test]
fn a_caller_that_allows_no_attempt_is_misconfigured() {
    let run = scenario(Retry::immediate).context(|cx| cx.with_max_attempts(0));
    let seen = run.everywhere([ok::<_, ()>(())]);
    assert_eq!((seen.kind(), seen.calls.len()), (Kind::Misconfigured, 0));
}

#[test]
fn nested_retries_multiply() {
    let nested = || (Retry::fixed(secs(1)), Retry::immediate().max_attempts(2));
    let seen = scenario(nested).everywhere([err::<(), _>("down")]);
    assert_eq!(seen.calls, [0, 0, 1, 1, 2, 2].map(secs));
    let seen = scenario(nested).everywhere([err("down"), err("down"), err("down"), ok(())]);
    assert_eq!((seen.result, seen.calls.len()), (Ok(()), 4));
}

#[test]
fn an_error_history_keeps_the_last_n() {
    let numbered = |n: u32| (1..=n).map(err::<(), u32>).collect::<Vec<_>>();
    let history = |keep, failures: Vec<Step<(), u32>>| {
        let most = failures.len() as u32;
        let chain = scenario(move || Retry::immediate().keep_errors(keep).max_attempts(most));
        chain.everywhere(failures).failure().history.clone()
    };
    assert!(history(0, numbered(5)).is_empty(), "none by default");
    assert_eq!(history(1, numbered(5)), [5]);
    assert_eq!(history(3, numbered(5)), [3, 4, 5]);
    assert_eq!(history(9, numbered(5)), [1, 2, 3, 4, 5]);
    assert_eq!(history(3, vec![err(1), permanent(2)]), [1, 2]);
}

#[test]
fn tries_that_say_nothing_are_no_gap_in_the_error_history() {
    let with_limit = || (Retry::immediate().keep_errors(3), Timeout::secs(1));
    let seen = scenario(with_limit).typed([hangs::<(), u32>(), err(2), err(3)]);
    assert_eq!(seen.failure().history, [2, 3], "after one that timed out");
    let seen = scenario(with_limit).typed([hangs::<(), u32>(), permanent(2)]);
    assert_eq!(seen.failure().history, [2], "the last one is part of it");

    let is_bad =
        |result: &Result<u32, Error<u32>>| if result.is_ok() { Verdict::Transient } else { Verdict::Permanent };
    let judged = move || (Retry::immediate().keep_errors(3), classify(is_bad));
    let seen = scenario(judged).typed([ok(1), err(2)]);
    assert_eq!(seen.failure().history, [2], "after a value that was given up");

    let nested =
        || (Retry::immediate().max_attempts(2).keep_errors(3), Retry::immediate().max_attempts(2), Timeout::secs(1));
    let seen = scenario(nested).typed([hangs::<(), u32>(), hangs(), err(3), err(4)]);
    assert_eq!(seen.failure().history, [3, 4], "the retry that keeps most decides");
}

#[test]
fn an_error_history_survives_a_cancelled_wait() {
    let run = scenario(|| Retry::fixed(secs(1)).unlimited().keep_errors(2)).cancelled_at(ms(3_500));
    let seen = run.everywhere([err::<(), _>(1), err(2), err(3), err(4)]);
    assert_eq!((seen.kind(), seen.last()), (Kind::Cancelled, Some(4)));
    assert_eq!(seen.failure().history, [3, 4]);
}

#[test]
fn on_retry_is_told_before_each_wait_and_not_after_the_last_attempt() {
    let (clock, cx) = at_rest();
    let told = Arc::new(Mutex::new(Vec::new()));
    let (listener, reader) = (Arc::clone(&told), clock.clone());
    let start = clock.now();
    let retry = Retry::fixed(secs(2)).max_elapsed(mins(1)).on_retry(move |event| {
        let error = event.error.map(|error| format!("{error:?}"));
        let at = reader.now().since(start);
        listener.lock().unwrap().push((event.attempt, event.delay, event.elapsed, at, error));
    });
    let run = try_do(&cx, |attempt| async move { Err::<(), _>(attempt.number()) }, retry);
    clock.block_on(run).unwrap_err();
    let expected =
        [(1, secs(2), secs(0), secs(0), Some("1".to_owned())), (2, secs(2), secs(2), secs(2), Some("2".to_owned()))];
    assert_eq!(*told.lock().unwrap(), expected);
}

#[test]
fn on_retry_covers_the_time_that_the_attempt_took() {
    let elapsed = Arc::new(Mutex::new(Vec::new()));
    let listener = Arc::clone(&elapsed);
    let retry =
        Retry::fixed(secs(1)).max_elapsed(mins(1)).on_retry(move |event| listener.lock().unwrap().push(event.elapsed));
    scenario(move || retry.clone()).typed([err::<(), _>("down").after(secs(3))]);
    assert_eq!(
        *elapsed.lock().unwrap(),
        [3, 7, 3, 7, 3, 7].map(secs),
        "`try_do`, then an executor, then without async"
    );
}

#[test]
fn a_computed_wait_is_asked_for_once_for_each_retry_and_not_after_a_success() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let listener = Arc::clone(&asked);
    let retry = Retry::custom(move |n, _| {
        listener.lock().unwrap().push(n);
        secs(1)
    });
    let steps = [err("down"), err("down"), ok(7)];
    scenario(move || retry.clone()).typed(steps);
    assert_eq!(*asked.lock().unwrap(), [1, 2].repeat(3), "through `try_do`, through an executor, and without async");
}

#[test]
fn an_attempt_that_hits_its_limit_is_tried_again_and_stays_a_timeout() {
    let chain = || (Retry::fixed(secs(1)), Timeout::secs(2));
    let seen = scenario(chain).everywhere([hangs::<(), ()>()]);
    assert_eq!((&seen.calls, seen.took), (&[0, 3, 6].map(secs).to_vec(), secs(8)));
    assert_eq!((seen.kind(), seen.last()), (timed_out(secs(2)), None));
    let seen = scenario(chain).everywhere([hangs(), hangs(), ok::<_, ()>("late")]);
    assert_eq!((seen.result, seen.calls.len()), (Ok("late"), 3));
}

#[test]
fn a_timeout_after_an_error_carries_that_error() {
    let chain = || (Retry::immediate().max_attempts(2), Timeout::secs(2));
    let seen = scenario(chain).everywhere([err::<(), _>("down"), hangs()]);
    assert_eq!((seen.kind(), seen.last()), (timed_out(secs(2)), Some("down")));
}
