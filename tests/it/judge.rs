//! Judging: by policies innermost in the chain, by `op`'s adapters, by marked errors.

use std::io;
use std::time::Duration;

use steadfast::error::{Kind, Limit};
use steadfast::executor::Stopped;
use steadfast::judge::{Judge, attempts_for, by_error, classify, judged_by, retry_after, retry_if};
use steadfast::operation::Fault;
use steadfast::{Classified, Error, Executor, Retry, Timeout, Verdict, op, try_do, try_op};

use crate::policies::Probe;
use crate::support::{
    Script, WAYS, at_rest, ends, err, exhausted, hangs, ms, ok, permanent, scenario, secs, throttled,
};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Status {
    Busy,
    Gone,
    Reset,
}

use Status::{Busy, Gone, Reset};

#[test]
fn a_plain_error_is_taken_to_be_worth_another_attempt() {
    let probe = Probe::default();
    let inner = probe.clone();
    scenario(move || (Retry::immediate(), inner.clone())).everywhere([err::<(), _>(Gone)]);
    assert_eq!(probe.verdicts(), [Verdict::Transient; 3 * WAYS]);
}

#[test]
fn retry_if_decides_for_every_policy_outside() {
    let probe = Probe::default();
    let middle = probe.clone();
    let chain = move || (Retry::immediate(), middle.clone(), retry_if(|status: &Status| *status != Gone));
    let seen = scenario(chain).typed([err(Reset), err(Gone), ok(())]);
    assert_eq!((seen.kind(), seen.last(), seen.calls.len()), (Kind::Failed, Some(Gone), 2));
    assert_eq!(probe.verdicts()[..2], [Verdict::Transient, Verdict::Permanent]);
}

#[test]
fn retry_if_makes_throttled_permanent_too_and_cannot_bring_back_what_is_permanent() {
    let never = || (Retry::immediate(), retry_if(|_: &Status| false));
    let seen = scenario(never).typed([throttled(Busy, secs(1)), ok(())]);
    assert_eq!((seen.kind(), seen.calls.len()), (Kind::Failed, 1));
    let always = || (Retry::immediate(), retry_if(|_: &Status| true));
    for fault in [Fault::Permanent(Gone), Fault::Fatal(Gone), Fault::Ignored(Gone)] {
        let seen = scenario(always).typed([ends(Err(fault)), ok(())]);
        assert_eq!((seen.kind(), seen.calls.len()), (Kind::Failed, 1));
    }
}

#[test]
fn a_hint_in_the_error_becomes_the_wait() {
    let hint = |status: &Status| (*status == Busy).then_some(secs(9));
    let chain = move || (Retry::fixed(secs(1)), retry_after(hint));
    let seen = scenario(chain).typed([err(Reset), err(Busy), ok(())]);
    assert_eq!(seen.calls[1], secs(1));
    assert!((secs(9)..=ms(9_900)).contains(&(seen.calls[2] - seen.calls[1])));
}

#[test]
fn a_value_can_be_judged_bad_and_is_returned_if_it_stays_so() {
    let judge = |result: &Result<u16, Error<Status>>| match result {
        Ok(200) => Verdict::Success,
        Ok(404) => Verdict::Permanent,
        Ok(429) => Verdict::Throttled { retry_after: Some(secs(3)) },
        Ok(_) | Err(_) => Verdict::Transient,
    };
    let chain = move || (Retry::fixed(secs(1)), classify(judge));
    let recovers = scenario(chain).typed([ok::<_, Status>(503), ok(503), ok(200)]);
    assert_eq!((recovers.result, recovers.calls.len()), (Ok(200), 3));
    let stays = scenario(chain).typed([ok::<_, Status>(500), ok(501), ok(502), ok(200)]);
    assert_eq!((stays.result, stays.calls.len()), (Ok(502), 3));
    let answered = scenario(chain).typed([ok::<_, Status>(404), ok(200)]);
    assert_eq!((answered.result, answered.calls.len()), (Ok(404), 1));
    let waits = scenario(chain).typed([ok::<_, Status>(429), ok(200)]);
    assert!(waits.took >= secs(3));
}

#[test]
fn an_error_can_be_judged_a_success_and_is_returned_as_an_error() {
    let chain = || (Retry::immediate(), classify(|_: &Result<(), Error<Status>>| Verdict::Success));
    let seen = scenario(chain).typed([err(Gone), ok(())]);
    assert_eq!((seen.kind(), seen.last(), seen.failure().attempts), (Kind::Failed, Some(Gone), 1));
}

#[test]
fn classify_sees_the_limit_of_a_timeout_inside() {
    let judge = |result: &Result<(), Error<Status>>| match result {
        Err(error) if error.is_timeout() => Verdict::Fatal,
        _ => Verdict::Success,
    };
    let chain = move || (Retry::immediate(), classify(judge), Timeout::secs(1));
    let seen = scenario(chain).typed([hangs(), ok(())]);
    assert_eq!((seen.calls.len(), seen.took), (1, secs(1)));
}

struct Patient;

impl Judge<(), Status> for Patient {
    fn judge(&self, result: &Result<(), Error<Status>>) -> Verdict {
        match result.as_ref().map_err(Error::last) {
            Ok(()) => Verdict::Success,
            Err(Some(Gone)) => Verdict::Permanent,
            Err(_) => Verdict::Transient,
        }
    }
}

/// A chain with a judgement, in a struct field.
struct Service {
    executor: Executor<(Retry, steadfast::judge::Judged<steadfast::judge::JudgedBy<Patient>>)>,
}

#[test]
fn a_judge_can_be_named_in_a_struct_field() {
    let (clock, _) = at_rest();
    let builder = Executor::builder("named").policies((Retry::immediate(), judged_by(Patient)));
    let service = Service { executor: builder.clock(&clock).build().unwrap() };
    let script = Script::new(&clock, [err(Reset), err(Gone), ok(())]);
    let error = clock.block_on(service.executor.run(|_| script.call_plain())).unwrap_err();
    assert_eq!((error.last(), error.attempts()), (Some(&Gone), 2));
}

#[test]
fn errors_that_know_their_verdict_are_asked() {
    let (clock, cx) = at_rest();
    let attempts = |kind: io::ErrorKind| {
        let run = try_do(&cx, |_| async move { Err::<(), _>(io::Error::from(kind)) }, (Retry::immediate(), by_error()));
        clock.block_on(run).unwrap_err().attempts()
    };
    assert_eq!(attempts(io::ErrorKind::ConnectionReset), 3);
    assert_eq!(attempts(io::ErrorKind::NotFound), 1);
    assert_eq!(attempts(io::ErrorKind::InvalidInput), 1);
}

impl Classified for Status {
    fn verdict(&self) -> Verdict {
        match self {
            Busy => Verdict::Throttled { retry_after: None },
            Gone => Verdict::Permanent,
            Reset => Verdict::Transient,
        }
    }
}

#[test]
fn a_users_error_can_know_its_verdict_too() {
    let chain = || (Retry::fixed(secs(1)), by_error());
    let seen = scenario(chain).typed([err(Reset), err(Busy), err(Gone), ok(())]);
    assert_eq!((seen.kind(), seen.last(), seen.calls.len()), (Kind::Failed, Some(Gone), 3));
}

#[test]
fn attempts_for_limits_one_kind_of_error_and_leaves_others_alone() {
    let chain = || (Retry::immediate().max_attempts(9), attempts_for(2, |status: &Status| *status == Busy));
    let seen = scenario(chain).typed([err(Reset), err(Busy), err(Reset), err(Busy), ok(())]);
    assert_eq!((seen.kind(), seen.last(), seen.calls.len()), (Kind::Failed, Some(Busy), 4));
    let others = scenario(chain).typed([err(Busy), err(Reset), err(Reset), err(Reset), ok(())]);
    assert_eq!((others.result, others.calls.len()), (Ok(()), 5));
}

#[test]
fn the_error_that_uses_up_attempts_for_is_not_counted_by_a_breaker() {
    let probe = Probe::default();
    let middle = probe.clone();
    let chain = move || (Retry::immediate().max_attempts(9), middle.clone(), attempts_for(2, |_: &Status| true));
    scenario(chain).typed([err::<(), _>(Busy)]);
    assert_eq!(probe.verdicts()[..2], [Verdict::Transient, Verdict::Ignored]);
}

#[test]
fn attempts_for_counts_within_one_run() {
    let (clock, _) = at_rest();
    let chain = (Retry::immediate().max_attempts(9), attempts_for(2, |_: &Status| true));
    let executor = Executor::builder("runs").policies(chain).unbudgeted().clock(&clock).build().unwrap();
    for _ in 0..3 {
        let error = clock.block_on(executor.run(|_| async { Err::<(), _>(Busy) })).unwrap_err();
        assert_eq!(error.attempts(), 2);
    }
}

#[test]
fn a_limit_of_no_attempts_for_an_error_is_refused() {
    let refused = Executor::builder("none").policies((Retry::immediate(), attempts_for(0, |_: &Status| true))).build();
    assert_eq!(refused.unwrap_err().field(), "attempts_for");
    let (clock, cx) = at_rest();
    let none = op(|_| async { Err::<(), _>(Busy) }).attempts_for(0, |_| true);
    let error = clock.block_on(try_op(&cx, none, Retry::immediate())).unwrap_err();
    assert_eq!((error.kind(), error.attempts()), (Kind::Misconfigured, 0));
}

#[test]
fn a_judging_policy_outside_of_one_that_reads_verdicts_is_refused() {
    let misplaced = [
        Executor::builder("a").policies((retry_if(|_: &Status| true), Retry::immediate())).build().map(drop),
        Executor::builder("b").policies((by_error(), Timeout::secs(1), Retry::immediate())).build().map(drop),
        Executor::builder("c")
            .policies((Timeout::secs(1), (judged_by(Patient), Some(Retry::immediate()))))
            .build()
            .map(drop),
        Executor::builder("d")
            .policies((
                Retry::immediate(),
                classify(|_: &Result<(), Error<Status>>| Verdict::Success),
                &Retry::immediate(),
            ))
            .build()
            .map(drop),
    ];
    let fields: Vec<_> = misplaced.map(|refused| refused.unwrap_err().field()).into();
    assert_eq!(fields, ["retry_if", "by_error", "judged_by", "classify"]);

    let (clock, cx) = at_rest();
    let run = try_do(&cx, |_| async { Ok::<_, Status>(()) }, (retry_if(|_: &Status| true), Retry::immediate()));
    let error = clock.block_on(run).unwrap_err();
    assert_eq!((error.kind(), error.attempts()), (Kind::Misconfigured, 0));
    assert!(error.to_string().contains("retry_if"), "{error}");
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self:?}")
    }
}

#[test]
fn op_has_the_same_rules_with_types_inferred() {
    let (clock, cx) = at_rest();
    let attempts = |operation_attempts: Result<(), Error<Status>>| operation_attempts.unwrap_err().attempts();
    let retry = || Retry::immediate().max_attempts(9);

    let rule = op(|_| async { Err::<(), _>(Gone) }).retry_if(|status| *status != Gone);
    assert_eq!(attempts(clock.block_on(try_op(&cx, rule, retry()))), 1);
    let rule = op(|_| async { Err::<(), _>(Busy) }).attempts_for(2, |status| *status == Busy);
    assert_eq!(attempts(clock.block_on(try_op(&cx, rule, retry()))), 2);
    let rule = op(|_| async { Err::<(), _>(Busy) }).classify(|_| Verdict::Fatal);
    assert_eq!(attempts(clock.block_on(try_op(&cx, rule, retry()))), 1);

    let start = clock.now();
    let rule = op(|attempt| async move { if attempt.is_retry() { Ok(7) } else { Err(Busy) } })
        .retry_after(|status| (*status == Busy).then_some(secs(5)));
    assert_eq!(clock.block_on(try_op(&cx, rule, retry())).unwrap(), 7);
    assert!(clock.now().since(start) >= secs(5));
}

#[test]
fn rules_of_op_apply_in_the_order_in_which_they_are_written() {
    let (clock, cx) = at_rest();
    let first_refuses = op(|_| async { Err::<(), _>(Busy) }).retry_if(|_| false).retry_after(|_| Some(Duration::ZERO));
    let error = clock.block_on(try_op(&cx, first_refuses, Retry::immediate())).unwrap_err();
    assert_eq!((error.kind(), error.attempts()), (Kind::Failed, 1));
    let first_hints = op(|_| async { Err::<(), _>(Busy) }).retry_after(|_| Some(Duration::ZERO)).retry_if(|_| true);
    let error = clock.block_on(try_op(&cx, first_hints, Retry::immediate())).unwrap_err();
    assert_eq!((error.kind(), error.attempts()), (exhausted(Limit::Attempts), 3));
}

#[test]
fn a_report_says_that_attempts_for_forbade_more() {
    let (clock, cx) = at_rest();
    let executor =
        Executor::builder("report").policies(Retry::immediate().max_attempts(9)).clock(&clock).build().unwrap();
    let operation = op(|_| async { Err::<(), _>(Busy) }).attempts_for(2, |_| true);
    let report = clock.block_on(executor.run_report_with(&cx, operation));
    assert_eq!((report.stopped, report.attempts), (Stopped::Forbidden, 2));
}

#[test]
fn a_marked_error_outranks_the_default_judgement() {
    let seen = scenario(Retry::immediate).everywhere([permanent::<(), _>(Busy)]);
    assert_eq!(seen.calls.len(), 1);
    let plain = scenario(Retry::immediate).everywhere([err::<(), _>(Busy)]);
    assert_eq!(plain.calls.len(), 3);
}
