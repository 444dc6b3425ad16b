//! Row by row: what each verdict means to a retry, and what a breaker inside of it sees.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use steadfast::error::{Kind, Limit};
use steadfast::operation::Fault;
use steadfast::policy::{Call, Next, Outcome, Policy, Settings};
use steadfast::{Error, Retry, Timeout, Verdict, try_do};

use crate::policies::{End, Probe, Refuses};
use crate::support::{
    ASYNC_WAYS, Script, Seen, Step, WAYS, at_rest, ends, err, exhausted, hangs, ms, ok, scenario, secs, timed_out,
};

/// Runs a step, and a success after it, through a retry around a probe.
fn row(step: Step<&'static str, &'static str>) -> (Seen<&'static str, &'static str>, Vec<Verdict>) {
    let probe = Probe::default();
    let inner = probe.clone();
    let chain = move || (Retry::fixed(secs(1)), inner.clone());
    let seen = scenario(chain).everywhere([step, ok("the second time")]);
    // Each way of running it has recorded the same.
    let verdicts = probe.verdicts();
    let one = verdicts.len() / WAYS;
    assert_eq!(verdicts, verdicts[..one].repeat(WAYS));
    (seen, verdicts[..one].to_vec())
}

fn fault(fault: Fault<&'static str>) -> Step<&'static str, &'static str> {
    ends(Err(fault))
}

#[test]
fn a_success_is_done_and_a_success() {
    let (seen, verdicts) = row(ok("at once"));
    assert_eq!((seen.result, verdicts), (Ok("at once"), vec![Verdict::Success]));
}

#[test]
fn a_permanent_error_is_done_and_an_answer() {
    let (seen, verdicts) = row(fault(Fault::Permanent("no such user")));
    assert_eq!((seen.kind(), seen.last(), seen.calls.len()), (Kind::Failed, Some("no such user"), 1));
    assert_eq!(verdicts, [Verdict::Permanent]);
    assert!(verdicts[0].is_answer() && !verdicts[0].is_failure());
}

#[test]
fn a_transient_error_is_tried_again_and_a_failure() {
    let (seen, verdicts) = row(fault(Fault::Transient("reset")));
    assert_eq!((seen.result, seen.calls), (Ok("the second time"), vec![secs(0), secs(1)]));
    assert_eq!(verdicts, [Verdict::Transient, Verdict::Success]);
    assert!(verdicts[0].is_failure());
}

#[test]
fn an_attempt_limit_that_is_hit_is_transient() {
    let probe = Probe::default();
    let inner = probe.clone();
    let chain = move || (Retry::fixed(secs(1)), inner.clone(), Timeout::secs(3));
    let seen = scenario(chain).everywhere([hangs(), ok::<_, ()>("the second time")]);
    assert_eq!(seen.calls, [secs(0), secs(4)]);
    assert_eq!(probe.verdicts(), [Verdict::Transient, Verdict::Success].repeat(ASYNC_WAYS));
}

#[test]
fn a_panic_goes_on_to_the_caller_and_drops_the_permit() {
    let (clock, cx) = at_rest();
    let probe = Probe::default();
    let chain = (Retry::fixed(secs(1)), probe.clone());
    let run = try_do(&cx, |_| async { panic!("the operation's own") as Result<(), ()> }, chain);
    assert!(catch_unwind(AssertUnwindSafe(|| clock.block_on(run))).is_err());
    assert_eq!(probe.ends(), [End::Dropped], "not tried again");
}

#[test]
fn a_fatal_error_is_done_and_a_failure() {
    let (seen, verdicts) = row(fault(Fault::Fatal("corrupt")));
    assert_eq!((seen.kind(), seen.last(), seen.calls.len()), (Kind::Failed, Some("corrupt"), 1));
    assert_eq!(verdicts, [Verdict::Fatal]);
    assert!(verdicts[0].is_failure());
}

#[test]
fn a_throttled_error_is_tried_again_and_not_before_the_time_asked_for() {
    let pause = secs(5);
    let (seen, verdicts) = row(fault(Fault::Throttled("busy", Some(pause))));
    assert!((pause..=pause + pause / 10).contains(&seen.calls[1]), "{:?}", seen.calls);
    let retry_after = Some(pause);
    assert_eq!(verdicts, [Verdict::Throttled { retry_after }, Verdict::Success]);
    assert!(!verdicts[0].is_failure() && !verdicts[0].is_answer());
}

#[test]
fn an_ignored_error_is_done_and_says_nothing() {
    let (seen, verdicts) = row(fault(Fault::Ignored("no file")));
    assert_eq!((seen.kind(), seen.last(), seen.calls.len()), (Kind::Failed, Some("no file"), 1));
    assert_eq!(verdicts, [Verdict::Ignored]);
    assert!(!verdicts[0].is_failure() && !verdicts[0].is_answer());
}

#[test]
fn a_rejection_by_an_inner_policy_is_done() {
    let probe = Probe::default();
    let inner = probe.clone();
    let chain = move || (Retry::fixed(secs(1)), inner.clone(), Refuses::after(0));
    let seen = scenario(chain).everywhere([ok::<_, ()>("never asked")]);
    assert_eq!((seen.kind(), seen.calls.len(), seen.took), (Refuses::KIND, 0, secs(0)));
    let retry_after = Some(Refuses::PAUSE);
    assert_eq!(probe.verdicts(), [Verdict::Rejected { retry_after }; WAYS]);
}

/// Waits for a place in a local queue before it calls the rest of the chain.
struct Queue(Duration);

impl Settings for Queue {}

impl<T: Send, E: Send> Policy<T, E> for Queue {
    async fn run<N: Next<T, E>>(&self, call: Call<'_, E>, next: N) -> Outcome<T, E> {
        call.clock().sleep(self.0).await;
        next.call(call).await
    }
}

#[test]
fn a_limit_that_is_hit_before_the_operation_started_is_a_rejection() {
    let probe = Probe::default();
    let inner = probe.clone();
    let chain = move || (Retry::fixed(secs(1)), inner.clone(), Timeout::secs(3), Queue(secs(9)));
    let seen = scenario(chain).everywhere([ok::<_, ()>("never asked")]);
    assert_eq!((seen.kind(), seen.calls.len(), seen.took), (timed_out(secs(3)), 0, secs(3)));
    assert_eq!(probe.verdicts(), [Verdict::Rejected { retry_after: None }; WAYS]);
}

#[test]
fn a_call_that_the_caller_ends_is_dropped_and_not_tried_again() {
    let probe = Probe::default();
    let inner = probe.clone();
    let chain = move || (Retry::fixed(secs(1)), inner.clone());
    let run = scenario(chain.clone()).cancelled_at(ms(500));
    let seen = run.everywhere([hangs::<(), ()>()]);
    assert_eq!((seen.kind(), seen.took), (Kind::Cancelled, ms(500)));
    let run = scenario(chain).context(|cx| cx.with_timeout(ms(500)));
    let seen = run.everywhere([hangs::<(), ()>()]);
    assert_eq!((seen.kind(), seen.took), (Kind::DeadlineExceeded, ms(500)));
    assert_eq!(probe.ends(), [End::Dropped; 2 * ASYNC_WAYS]);
}

#[test]
fn a_wait_that_is_not_begun_keeps_the_verdict_of_the_last_attempt() {
    let probe = Probe::default();
    let outer = probe.clone();
    let chain = move || (outer.clone(), Retry::fixed(secs(10)));
    let run = scenario(chain).context(|cx| cx.with_timeout(secs(5)));
    let seen = run.everywhere([err::<(), _>("down")]);
    assert_eq!(seen.kind(), exhausted(Limit::Deadline));
    assert_eq!(probe.verdicts(), [Verdict::Transient; WAYS], "a breaker outside sees the failure");
}

#[test]
fn used_up_attempts_keep_the_verdict_of_the_last_one() {
    let probe = Probe::default();
    let outer = probe.clone();
    let chain = move || (outer.clone(), Retry::immediate());
    let seen = scenario(chain).everywhere([err::<(), _>("down")]);
    assert_eq!(seen.kind(), exhausted(Limit::Attempts));
    assert_eq!(probe.verdicts(), [Verdict::Transient; WAYS]);
}

/// An `Ok` that is judged a failure.
struct Distrust;

impl Settings for Distrust {}

impl<T: Send, E: Send> Policy<T, E> for Distrust {
    async fn run<N: Next<T, E>>(&self, call: Call<'_, E>, next: N) -> Outcome<T, E> {
        let mut outcome = next.call(call).await;
        outcome.set_verdict(Verdict::Transient);
        outcome
    }
}

#[test]
fn a_value_that_stays_bad_is_returned_as_it_is() {
    let seen = scenario(|| (Retry::fixed(secs(1)), Distrust)).everywhere([ok::<_, ()>(1), ok(2), ok(3), ok(4)]);
    assert_eq!((seen.result, seen.took), (Ok(3), secs(2)));
}

#[test]
fn the_dependency_is_not_blamed_for_a_rejection_of_its_own_kind() {
    // A rejection inside of a nested chain travels outwards as one.
    let error = Error::<()>::refused(Refuses::KIND);
    let (clock, cx) = at_rest();
    let script = Script::new(&clock, [ok::<_, ()>(())]);
    let probe = Probe::default();
    let chain = (Retry::immediate(), probe.clone());
    let run = steadfast::try_op(
        &cx,
        steadfast::operation::nested(|_| async {
            script.call_plain().await.map_err(Error::failed)?;
            Err::<(), _>(Error::refused(Refuses::KIND))
        }),
        chain,
    );
    assert_eq!(clock.block_on(run).unwrap_err().kind(), error.kind());
    assert_eq!(script.calls().len(), 1);
    assert!(matches!(probe.verdicts()[..], [Verdict::Rejected { .. }]));
}
