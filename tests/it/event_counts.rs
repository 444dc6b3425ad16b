//! How many events of each kind there are, in the cases in which other libraries count the calls of their listeners.

use std::future::ready;

use steadfast::breaker::{BreakerConfig, TripRule};
use steadfast::error::{Kind, Limit};
use steadfast::event::{RunEnd, What};
use steadfast::judge::classify;
use steadfast::policy::Policy;
use steadfast::{Breaker, CancellationToken, Error, Executor, Retry, Timeout, Verdict};

use crate::support::{Recorder, Script, Step, at_rest, ends, err, exhausted, ok, permanent, secs};

/// How often an executor has told what.
#[derive(Debug, PartialEq)]
struct Counts {
    attempts: usize,
    retries: usize,
    transitions: usize,
    rejections: usize,
    ends: Vec<RunEnd>,
}

fn counts(policies: impl Policy<i32, &'static str>, steps: Vec<Step<i32, &'static str>>) -> Counts {
    let (clock, _) = at_rest();
    let recorder = Recorder::default();
    let builder = Executor::builder("counts").policies(policies).unbudgeted().clock(&clock);
    let executor = builder.observe(recorder.clone()).build().unwrap();
    let script = Script::new(&clock, steps);
    let _ = clock.block_on(executor.run(steadfast::faults(|_| script.call())));
    count(&recorder)
}

fn count(recorder: &Recorder) -> Counts {
    let whats: Vec<_> = recorder.whole_events().into_iter().map(|event| event.what).collect();
    let of = |is: fn(&What) -> bool| whats.iter().filter(|what| is(what)).count();
    let ends = whats.iter().filter_map(|what| match what {
        What::RunFinished { end, .. } => Some(*end),
        _ => None,
    });
    Counts {
        attempts: of(|what| matches!(what, What::AttemptStarted)),
        retries: of(|what| matches!(what, What::RetryScheduled { .. })),
        transitions: of(|what| matches!(what, What::Transition(_))),
        rejections: of(|what| matches!(what, What::Rejected { .. })),
        ends: ends.collect(),
    }
}

fn breaker() -> Breaker {
    Breaker::new(BreakerConfig::default().rule(TripRule::consecutive(1)).open_for(secs(1)))
}

const SUCCESS: RunEnd = RunEnd::Value(Verdict::Success);

/// Line 139 of the first part, without fallback and cache: each retry is a trial, and four of them fail.
#[test]
fn a_success_after_four_failures_is_four_retries_nine_transitions_and_one_success() {
    let chain = (Retry::fixed(secs(1)).max_attempts(5), breaker());
    let steps = vec![err("down"), err("down"), err("down"), err("down"), ok(7)];
    let expected = Counts { attempts: 5, retries: 4, transitions: 9, rejections: 0, ends: vec![SUCCESS] };
    assert_eq!(counts(chain, steps), expected);
}

/// Line 140 of the first part.
#[test]
fn each_way_to_fail_has_its_own_counts() {
    let failed = |attempts, retries, kind| Counts {
        attempts,
        retries,
        transitions: 0,
        rejections: 0,
        ends: vec![RunEnd::Error(kind)],
    };
    let retry = || Retry::fixed(secs(1));
    assert_eq!(counts(retry(), vec![permanent("gone")]), failed(1, 0, Kind::Failed));
    assert_eq!(counts(retry(), vec![err("down")]), failed(3, 2, exhausted(Limit::Attempts)));
    let fatal = ends(Err(steadfast::operation::Fault::Fatal("broken")));
    assert_eq!(counts(retry(), vec![err("down"), fatal]), failed(2, 1, Kind::Failed));
    let opened = Counts { transitions: 1, ..failed(1, 0, Kind::Failed) };
    assert_eq!(counts(breaker(), vec![err("down")]), opened);
    // The breaker opens at the first attempt, and refuses the second one.
    let refused = RunEnd::Error(Kind::CircuitOpen { retry_after: Some(secs(1)) });
    let refused = Counts { attempts: 1, retries: 1, transitions: 1, rejections: 1, ends: vec![refused] };
    assert_eq!(counts((Retry::immediate(), breaker()), vec![err("down")]), refused);
}

/// Line 141 of the first part: there is one judgement, and a value that it finds bad is no success of the run.
#[test]
fn a_run_whose_value_stays_bad_is_no_success() {
    let judge = || classify(|_: &Result<i32, Error<&'static str>>| Verdict::Transient);
    let bad = counts((Retry::fixed(secs(1)), breaker(), judge()), vec![ok(503)]);
    assert_eq!((bad.attempts, bad.ends.as_slice()), (3, &[RunEnd::Value(Verdict::Transient)][..]));
    assert!(bad.transitions > 0 && !bad.ends[0].is_success());
    assert!(SUCCESS.is_success() && RunEnd::Value(Verdict::Permanent).is_success());
}

/// Line 119 of the second part.
#[test]
fn a_run_that_is_cancelled_before_its_start_has_two_events_at_any_depth() {
    let (clock, cx) = at_rest();
    let recorder = Recorder::default();
    let chain = (Timeout::secs(9), Retry::immediate(), breaker(), Timeout::secs(1));
    let executor = Executor::builder("counts").policies(chain).clock(&clock).observe(recorder.clone()).build().unwrap();
    let token = CancellationToken::new();
    token.cancel();
    let _ = clock.block_on(executor.run_with(&cx.with_token(token), |_| ready(Ok::<_, ()>(7))));
    assert_eq!(recorder.events().len(), 2);
    let ends = vec![RunEnd::Error(Kind::Cancelled)];
    assert_eq!(count(&recorder), Counts { attempts: 0, retries: 0, transitions: 0, rejections: 0, ends });
}
