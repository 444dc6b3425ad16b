//! How a retry and a breaker inside of it work together, seen from the retry: a policy that refuses stands in for an open
//! breaker, and one that records sees what a breaker in its place would count.

use steadfast::error::Kind;
use steadfast::judge::{attempts_for, retry_after, retry_if};
use steadfast::{CancellationToken, Classified, Error, Retry, Timeout, Verdict, try_do};

use crate::policies::{End, Probe, Refuses};
use crate::support::{ASYNC_WAYS, Script, WAYS, at_rest, err, hangs, ms, ok, permanent, scenario, secs, throttled};

/// What a breaker counts as a failure in the first of the ways of running a scenario.
fn failures(probe: &Probe, runs: usize) -> usize {
    let ends = probe.ends();
    let first = &ends[..ends.len() / runs];
    first.iter().filter(|end| matches!(end, End::Judged(verdict) if verdict.is_failure())).count()
}

#[test]
fn an_open_circuit_ends_the_run_at_once_with_the_last_error_attached() {
    for admitted in 0..4 {
        let chain = move || (Retry::fixed(secs(1)).max_attempts(9), Refuses::after(admitted));
        let seen = scenario(chain).everywhere([err::<(), _>("down")]);
        assert_eq!(seen.kind(), Refuses::KIND);
        assert_eq!(seen.calls.len(), admitted as usize, "no further attempt");
        assert_eq!(seen.took, secs(u64::from(admitted)), "no further wait");
        assert_eq!(seen.last(), (admitted > 0).then_some("down"));
        assert_eq!(seen.failure().retry_after, Some(Refuses::PAUSE), "when to come back");
    }
}

#[test]
fn an_open_circuit_is_a_matchable_error_and_not_a_permanent_one() {
    let (clock, cx) = at_rest();
    let run = try_do(&cx, |_| async { Err::<(), _>("down") }, (Retry::immediate(), Refuses::after(2)));
    let error = clock.block_on(run).unwrap_err();
    assert!(error.is_circuit_open() && error.is_rejection());
    assert!(!error.is_exhausted() && !error.is_timeout() && !error.is_cancelled());
    assert_ne!(error.verdict(), Verdict::Permanent);
    assert_eq!(error.verdict(), Verdict::Rejected { retry_after: Some(Refuses::PAUSE) });
    assert_eq!(error.to_string(), "circuit breaker open, next trial in 60 s (after 2 attempts; last error: down)");
}

#[test]
fn without_an_error_the_message_shows_none() {
    let (clock, cx) = at_rest();
    let run = try_do(&cx, |_| async { Err::<(), _>("never") }, (Retry::immediate(), Refuses::after(0)));
    let error: Error<&str> = clock.block_on(run).unwrap_err();
    assert_eq!((error.to_string(), error.last()), ("circuit breaker open, next trial in 60 s".to_owned(), None));
}

#[test]
fn the_breaker_is_not_asked_if_the_context_is_done() {
    let probe = Probe::default();
    let inner = probe.clone();
    let chain = move || (Retry::immediate(), inner.clone(), Refuses::after(0));
    let seen = scenario(chain).cancelled_at(secs(0)).everywhere([ok::<_, ()>(())]);
    assert_eq!((seen.kind(), probe.ends()), (Kind::Cancelled, vec![]), "cancelled, and not: circuit open");
}

#[test]
fn the_context_is_looked_at_before_the_breaker_at_each_further_attempt() {
    let (clock, cx) = at_rest();
    let token = CancellationToken::new();
    let canceller = token.clone();
    let retry = Retry::immediate().on_retry(move |_| canceller.cancel());
    let cx = cx.with_token(token);
    let run = try_do(&cx, |_| async { Err::<(), _>("down") }, (retry, Refuses::after(1)));
    let error = clock.block_on(run).unwrap_err();
    assert_eq!((error.kind(), error.last()), (Kind::Cancelled, Some(&"down")));
}

#[test]
fn an_error_that_is_not_tried_again_is_no_failure_of_the_dependency() {
    let probe = Probe::default();
    let inner = probe.clone();
    let permanent_error = move || (Retry::immediate(), inner.clone());
    scenario(permanent_error).everywhere([permanent::<(), _>("no such user")]);
    assert_eq!((failures(&probe, WAYS), probe.ends().len()), (0, WAYS));

    let probe = Probe::default();
    let inner = probe.clone();
    let by_predicate = move || (Retry::immediate(), inner.clone(), retry_if(|error: &&str| *error == "reset"));
    scenario(by_predicate).typed([err::<(), _>("reset"), err("no such user")]);
    assert_eq!((failures(&probe, 3), probe.ends().len()), (1, 6));

    let probe = Probe::default();
    let inner = probe.clone();
    let by_budget = move || (Retry::immediate().max_attempts(9), inner.clone(), attempts_for(3, |_: &&str| true));
    scenario(by_budget).typed([err::<(), _>("reset")]);
    assert_eq!((failures(&probe, 3), probe.ends().len()), (2, 9), "the one that uses it up does not count");
}

#[test]
fn a_call_whose_caller_is_gone_is_no_failure() {
    let probe = Probe::default();
    let inner = probe.clone();
    let chain = move || (Retry::immediate(), inner.clone());
    scenario(chain).cancelled_at(secs(1)).everywhere([hangs::<(), ()>()]);
    assert_eq!(probe.ends(), [End::Dropped; ASYNC_WAYS]);
}

#[test]
fn an_attempt_that_hit_its_own_limit_is_a_failure_and_is_tried_again() {
    let probe = Probe::default();
    let inner = probe.clone();
    let chain = move || (Retry::immediate(), inner.clone(), Timeout::secs(1));
    let seen = scenario(chain).everywhere([hangs::<(), ()>()]);
    assert_eq!((seen.calls.len(), failures(&probe, ASYNC_WAYS)), (3, 3));
}

#[test]
fn the_last_attempt_of_a_run_counts_like_any_other() {
    let probe = Probe::default();
    let inner = probe.clone();
    let chain = move || (Retry::immediate().max_attempts(1), inner.clone());
    scenario(chain).everywhere([err::<(), _>("down")]);
    assert_eq!(failures(&probe, WAYS), 1);
}

#[test]
fn an_error_that_carries_retry_after_is_no_failure() {
    let probe = Probe::default();
    let inner = probe.clone();
    let chain = move || (Retry::immediate(), inner.clone());
    let seen = scenario(chain).everywhere([throttled("busy", secs(2)), ok(())]);
    assert!(seen.took >= secs(2));
    assert_eq!(failures(&probe, WAYS), 0);

    let probe = Probe::default();
    let inner = probe.clone();
    let hinted = move || (Retry::immediate(), inner.clone(), retry_after(|_: &&str| Some(secs(2))));
    scenario(hinted).typed([err("busy"), ok(())]);
    assert_eq!(failures(&probe, 3), 0);
}

#[test]
fn a_custom_wait_never_influences_what_counts() {
    let probe = Probe::default();
    let inner = probe.clone();
    let chain = move || (Retry::custom(|_, _| secs(9)), inner.clone());
    let seen = scenario(chain).everywhere([err::<(), _>("down")]);
    assert_eq!((seen.took, failures(&probe, WAYS)), (secs(18), 3));
}

#[test]
fn a_custom_wait_sees_the_verdict_and_gives_way_to_the_dependencys_own_wish() {
    let (clock, cx) = at_rest();
    let retry = Retry::custom(|n, verdict| {
        assert_eq!(*verdict, Verdict::Transient, "a throttled one brings its own wait");
        ms(100 * u64::from(n))
    });
    let script = Script::new(&clock, [err("down"), throttled("busy", secs(5)), ok(())]);
    clock.block_on(try_do(&cx, steadfast::faults(|_| script.call()), retry)).unwrap();
    let calls = script.calls();
    assert_eq!(calls[1], ms(100));
    assert!((secs(5)..=ms(5_500)).contains(&(calls[2] - calls[1])));
}
