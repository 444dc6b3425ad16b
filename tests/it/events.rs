//! What an observer sees of a run, in which order.

use std::future::pending;

use steadfast::error::{Kind, Limit};
use steadfast::event::{Event, What};
use steadfast::{CancellationToken, Executor, Retry, Timeout, Verdict};

use crate::policies::Refuses;
use crate::support::{Recorder, Script, Step, at_rest, err, exhausted, hangs, ok, permanent, secs};

fn observed(steps: Vec<Step<i32, &'static str>>) -> Vec<(u32, What)> {
    let (clock, _) = at_rest();
    let recorder = Recorder::default();
    let builder = Executor::builder("observed").policies((Retry::fixed(secs(1)), Timeout::secs(2)));
    let executor = builder.clock(&clock).observe(recorder.clone()).build().unwrap();
    let script = Script::new(&clock, steps);
    let _ = clock.block_on(executor.run(steadfast::faults(|_| script.call())));
    recorder.events()
}

fn finished(verdict: Verdict) -> What {
    What::AttemptFinished { verdict }
}

fn run_finished(error: Option<Kind>, attempts: u32, elapsed: u64) -> What {
    What::RunFinished { error, attempts, elapsed: secs(elapsed) }
}

fn retry(verdict: Verdict) -> What {
    What::RetryScheduled { delay: secs(1), verdict }
}

#[test]
fn a_success_is_four_events() {
    let expected = [
        (1, What::RunStarted),
        (1, What::AttemptStarted),
        (1, finished(Verdict::Success)),
        (1, run_finished(None, 1, 0)),
    ];
    assert_eq!(observed(vec![ok(7)]), expected);
}

#[test]
fn retries_and_limits_are_told_in_order() {
    let seen = observed(vec![err("down"), hangs(), ok(7)]);
    let expected = [
        (1, What::RunStarted),
        (1, What::AttemptStarted),
        (1, finished(Verdict::Transient)),
        (1, retry(Verdict::Transient)),
        (2, What::AttemptStarted),
        (2, What::TimedOut { limit: secs(2) }),
        (2, retry(Verdict::Transient)),
        (3, What::AttemptStarted),
        (3, finished(Verdict::Success)),
        (3, run_finished(None, 3, 4)),
    ];
    assert_eq!(seen, expected);
}

#[test]
fn the_last_attempt_schedules_no_retry() {
    let seen = observed(vec![err("down")]);
    let retries = seen.iter().filter(|(_, what)| matches!(what, What::RetryScheduled { .. })).count();
    assert_eq!(retries, 2);
    assert_eq!(seen.last().unwrap().1, run_finished(Some(exhausted(Limit::Attempts)), 3, 2));
    let permanent = observed(vec![permanent("gone")]);
    assert_eq!(permanent[2..], [(1, finished(Verdict::Permanent)), (1, run_finished(Some(Kind::Failed), 1, 0))]);
}

#[test]
fn events_name_the_executor() {
    let (clock, _) = at_rest();
    let recorder = Recorder::default();
    let executor = Executor::builder("billing").clock(&clock).observe(recorder.clone()).build().unwrap();
    clock.block_on(executor.erase().run(|_| async { Ok::<_, ()>(()) })).unwrap();
    let names =
        |event: &Event| event.executor.map(steadfast::error::Name::as_str) == Some("billing") && event.hedge == 0;
    assert!(recorder.whole_events().iter().all(names));
}

#[test]
fn several_observers_see_the_same_in_the_order_in_which_they_were_added() {
    let (clock, _) = at_rest();
    let (first, second) = (Recorder::default(), Recorder::default());
    let order = Recorder::default();
    let (a, b) = (order.clone(), order.clone());
    let executor = Executor::builder("several")
        .observe(first.clone())
        .observe(move |event: &Event| steadfast::event::Observer::on_event(&a, event))
        .observe(second.clone())
        .observe(move |event: &Event| steadfast::event::Observer::on_event(&b, event))
        .clock(&clock)
        .build()
        .unwrap();
    clock.block_on(executor.run(|_| async { Ok::<_, ()>(()) })).unwrap();
    assert_eq!(first.events(), second.events());
    let both = first.events().into_iter().flat_map(|event| [event.clone(), event]);
    assert_eq!(order.events(), both.collect::<Vec<_>>());
}

#[test]
fn a_cancelled_run_is_finished_and_its_attempt_is_not() {
    let (clock, cx) = at_rest();
    let recorder = Recorder::default();
    let executor = Executor::builder("cancelled").clock(&clock).observe(recorder.clone()).build().unwrap();
    let token = CancellationToken::new();
    let cx = cx.with_token(token.clone());
    let mut run = tokio_test::task::spawn(executor.run_with(&cx, |_| pending::<Result<(), ()>>()));
    assert!(run.poll().is_pending());
    token.cancel();
    assert!(run.is_woken() && run.poll().is_ready());
    let expected = [(1, What::RunStarted), (1, What::AttemptStarted), (1, run_finished(Some(Kind::Cancelled), 1, 0))];
    assert_eq!(recorder.events(), expected);
}

#[test]
fn a_run_that_its_caller_drops_has_no_end() {
    let (clock, _) = at_rest();
    let recorder = Recorder::default();
    let executor = Executor::builder("dropped").clock(&clock).observe(recorder.clone()).build().unwrap();
    let mut run = tokio_test::task::spawn(executor.run(|_| pending::<Result<(), ()>>()));
    assert!(run.poll().is_pending());
    drop(run);
    assert_eq!(recorder.events(), [(1, What::RunStarted), (1, What::AttemptStarted)]);
}

#[test]
fn a_rejected_call_starts_no_attempt() {
    let (clock, _) = at_rest();
    let recorder = Recorder::default();
    let builder = Executor::builder("rejected").policies((Retry::immediate(), Refuses::after(0)));
    let executor = builder.clock(&clock).observe(recorder.clone()).build().unwrap();
    clock.block_on(executor.run(|_| async { Ok::<_, ()>(()) })).unwrap_err();
    let seen = recorder.events();
    assert_eq!(seen.first(), Some(&(1, What::RunStarted)));
    assert_eq!(seen.last(), Some(&(1, run_finished(Some(Refuses::KIND), 0, 0))));
    assert!(!seen.iter().any(|(_, what)| matches!(what, What::AttemptStarted | What::RetryScheduled { .. })));
}

#[test]
fn an_observer_may_use_the_executor() {
    let (clock, _) = at_rest();
    let shared: std::sync::Arc<std::sync::OnceLock<Executor>> = std::sync::Arc::default();
    let seen = std::sync::Arc::clone(&shared);
    let builder = Executor::builder("reentrant").observe(move |event: &Event| {
        if event.what == What::AttemptStarted {
            seen.get().unwrap().shutdown();
        }
    });
    let executor = builder.clock(&clock).build().unwrap();
    assert!(shared.set(executor.erase()).is_ok());
    let error = clock.block_on(executor.run(|_| pending::<Result<(), ()>>())).unwrap_err();
    assert_eq!(error.kind(), Kind::ShutDown);
}
