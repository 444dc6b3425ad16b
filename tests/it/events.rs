//! What an observer sees of a run, in which order.

use std::future::{pending, ready};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use steadfast::breaker::{BreakerConfig, State, TripRule};
use steadfast::error::{Kind, Limit};
use steadfast::event::{CutOff, Event, Observer, RunEnd, Stopped, What};
use steadfast::judge::{classify, retry_if};
use steadfast::limit::BulkheadConfig;
use steadfast::policy::{Call, Next, Outcome, Policy, Settings};
use steadfast::standard::StandardConfig;
use steadfast::{Breaker, Bulkhead, CancellationToken, Cause, Error, Executor, Hedge, Retry, Timeout, Verdict};

use crate::policies::Refuses;
use crate::support::{Recorder, Script, Step, at_rest, err, exhausted, hangs, ms, ok, permanent, secs};

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

fn run_finished(end: RunEnd, stopped: Stopped, attempts: u32, elapsed: u64) -> What {
    What::RunFinished { end, stopped: Some(stopped), attempts, elapsed: secs(elapsed) }
}

const SUCCEEDED: RunEnd = RunEnd::Value(Verdict::Success);

fn abandoned(why: CutOff) -> What {
    What::AttemptAbandoned { why }
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
        (1, run_finished(SUCCEEDED, Stopped::Settled, 1, 0)),
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
        (2, abandoned(CutOff::TimedOut)),
        (2, What::TimedOut { limit: secs(2) }),
        (2, retry(Verdict::Transient)),
        (3, What::AttemptStarted),
        (3, finished(Verdict::Success)),
        (3, run_finished(SUCCEEDED, Stopped::Settled, 3, 4)),
    ];
    assert_eq!(seen, expected);
}

#[test]
fn the_last_attempt_schedules_no_retry() {
    let seen = observed(vec![err("down")]);
    let retries = seen.iter().filter(|(_, what)| matches!(what, What::RetryScheduled { .. })).count();
    assert_eq!(retries, 2);
    assert_eq!(
        seen.last().unwrap().1,
        run_finished(RunEnd::Error(exhausted(Limit::Attempts)), Stopped::Limit(Limit::Attempts), 3, 2)
    );
    let permanent = observed(vec![permanent("gone")]);
    let end = run_finished(RunEnd::Error(Kind::Failed), Stopped::Settled, 1, 0);
    assert_eq!(permanent[2..], [(1, finished(Verdict::Permanent)), (1, end)]);
}

/// Tells the observers of something, and counts how often it was made.
struct Tells(Arc<AtomicU32>);

impl Settings for Tells {}

impl<T: Send, E: Send> Policy<T, E> for Tells {
    async fn run<N: Next<T, E>>(&self, call: Call<'_, E>, next: N) -> Outcome<T, E> {
        call.emit(|| {
            self.0.fetch_add(1, Ordering::Relaxed);
            What::HedgeStarted
        });
        next.call(call).await
    }
}

#[test]
fn without_an_observer_no_event_is_made() {
    let (clock, _) = at_rest();
    let made = Arc::new(AtomicU32::new(0));
    let builder = || Executor::builder("events").policies(Tells(Arc::clone(&made))).clock(&clock);
    let call = |executor: &Executor<Tells>| clock.block_on(executor.run(|_| async { Ok::<_, ()>(7) })).unwrap();
    call(&builder().build().unwrap());
    assert_eq!(made.load(Ordering::Relaxed), 0);
    call(&builder().observe(|_: &Event| {}).build().unwrap());
    assert_eq!(made.load(Ordering::Relaxed), 1);
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
fn a_cancelled_run_is_finished_and_its_attempt_abandoned() {
    let (clock, cx) = at_rest();
    let recorder = Recorder::default();
    let executor = Executor::builder("cancelled").clock(&clock).observe(recorder.clone()).build().unwrap();
    let token = CancellationToken::new();
    let cx = cx.with_token(token.clone());
    let mut run = tokio_test::task::spawn(executor.run_with(&cx, |_| pending::<Result<(), ()>>()));
    assert!(run.poll().is_pending());
    token.cancel();
    assert!(run.is_woken() && run.poll().is_ready());
    let expected = [
        (1, What::RunStarted),
        (1, What::AttemptStarted),
        (1, abandoned(CutOff::Ended(Cause::Cancelled))),
        (1, run_finished(RunEnd::Error(Kind::Cancelled), Stopped::Ended(Cause::Cancelled), 1, 0)),
    ];
    assert_eq!(recorder.events(), expected);
}

#[test]
fn a_run_that_its_caller_drops_is_finished_too() {
    let (clock, _) = at_rest();
    let recorder = Recorder::default();
    let executor = Executor::builder("dropped").clock(&clock).observe(recorder.clone()).build().unwrap();
    let mut run = tokio_test::task::spawn(executor.run(|_| pending::<Result<(), ()>>()));
    assert!(run.poll().is_pending());
    clock.advance(secs(3));
    drop(run);
    let expected = [
        (1, What::RunStarted),
        (1, What::AttemptStarted),
        (1, abandoned(CutOff::Dropped)),
        (1, What::RunFinished { end: RunEnd::Dropped, stopped: None, attempts: 1, elapsed: secs(3) }),
    ];
    assert_eq!(recorder.events(), expected);
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
    let end = run_finished(RunEnd::Error(Refuses::KIND), Stopped::Rejected, 0, 0);
    assert_eq!(seen.last(), Some(&(1, end)));
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

#[test]
fn a_judging_policy_has_the_last_word_on_an_attempt() {
    let (clock, _) = at_rest();
    let recorder = Recorder::default();
    // Inside of a judgement an attempt is finished only once, also if two judge it.
    let judges = (Timeout::secs(9), retry_if(|error: &&str| *error != "gone"), classify(|_| Verdict::Transient));
    let builder = Executor::builder("judged").policies((Retry::immediate(), judges)).clock(&clock);
    let executor = builder.observe(recorder.clone()).build().unwrap();
    let _ = clock.block_on(executor.run(|_| async { Err::<(), _>("gone") }));
    let seen = recorder.events();
    assert_eq!(seen[1..3], [(1, What::AttemptStarted), (1, finished(Verdict::Permanent))]);
    assert_eq!(seen.len(), 4);
}

#[test]
fn a_limit_inside_of_a_judgement_makes_no_second_end() {
    let (clock, _) = at_rest();
    let recorder = Recorder::default();
    let judge = classify(|_: &Result<(), Error<()>>| Verdict::Fatal);
    let builder = Executor::builder("judged").policies((judge, Timeout::secs(2))).clock(&clock);
    let executor = builder.observe(recorder.clone()).build().unwrap();
    let _ = clock.block_on(executor.run(|_| pending::<Result<(), ()>>()));
    let ends = [(1, abandoned(CutOff::TimedOut)), (1, What::TimedOut { limit: secs(2) })];
    assert_eq!(recorder.events()[2..4], ends);
    assert_eq!(recorder.events().len(), 5);
}

#[test]
fn an_attempt_whose_judgement_panics_is_finished_with_its_own_verdict() {
    let (clock, _) = at_rest();
    let recorder = Recorder::default();
    let judge = retry_if(|_: &&str| panics());
    let executor = Executor::builder("judged").policies(judge).clock(&clock).observe(recorder.clone()).build().unwrap();
    let run = || clock.block_on(executor.run(|_| async { Err::<(), _>("down") }));
    assert!(catch_unwind(AssertUnwindSafe(run)).is_err());
    let end = What::RunFinished { end: RunEnd::Dropped, stopped: None, attempts: 1, elapsed: secs(0) };
    assert_eq!(recorder.events()[2..], [(1, finished(Verdict::Transient)), (1, end)]);
}

#[test]
fn an_operation_that_panics_at_any_place_is_one_abandoned_attempt() {
    let (clock, _) = at_rest();
    let recorder = Recorder::default();
    let executor = Executor::builder("panics").clock(&clock).observe(recorder.clone()).build().unwrap();
    let now = clock.clock();
    let in_the_call = || clock.block_on(executor.run(|_| -> std::future::Ready<Result<(), ()>> { panics() }));
    let in_a_later_poll = || {
        clock.block_on(executor.run(async |_| {
            now.sleep(secs(1)).await;
            panics::<Result<(), ()>>()
        }))
    };
    let runs: [&dyn Fn() -> Result<(), Error<()>>; 2] = [&in_the_call, &in_a_later_poll];
    for (run, elapsed) in runs.into_iter().zip([0, 1]) {
        let before = recorder.events().len();
        assert!(catch_unwind(AssertUnwindSafe(run)).is_err());
        let end = What::RunFinished { end: RunEnd::Panicked, stopped: None, attempts: 1, elapsed: secs(elapsed) };
        let expected = [(1, What::RunStarted), (1, What::AttemptStarted), (1, abandoned(CutOff::Panicked)), (1, end)];
        assert_eq!(recorder.events()[before..], expected);
    }
}

/// Without a word from the panic hook.
fn panics<T>() -> T {
    resume_unwind(Box::new("its own"))
}

#[test]
fn lanes_that_lose_are_abandoned_for_that_reason() {
    let (clock, _) = at_rest();
    let recorder = Recorder::default();
    let builder = Executor::builder("lanes").policies(Hedge::after(ms(10))).unbudgeted().clock(&clock);
    let executor = builder.observe(recorder.clone()).build().unwrap();
    let script = Script::new(&clock, [hangs::<_, ()>(), ok(7)]);
    clock.block_on(executor.run(|_| script.call_plain())).unwrap();
    let lanes: Vec<_> = recorder.whole_events().into_iter().map(|event| (event.hedge, event.what)).collect();
    let expected = [
        (0, What::RunStarted),
        (0, What::AttemptStarted),
        (1, What::HedgeStarted),
        (1, What::AttemptStarted),
        (1, finished(Verdict::Success)),
        (1, What::HedgeWon),
        (0, What::HedgeLost),
        (0, abandoned(CutOff::LostRace)),
    ];
    assert_eq!(lanes[..8], expected);
}

#[test]
fn a_wait_in_line_is_told_with_its_length_and_the_name_of_the_line() {
    let (clock, _) = at_rest();
    let recorder = Recorder::default();
    let bulkhead = Bulkhead::with(BulkheadConfig::new(1).queue(5)).named("pool");
    let builder = Executor::builder("waits").policies(bulkhead.clone()).clock(&clock);
    let executor = builder.observe(recorder.clone()).build().unwrap();
    let permit = bulkhead.try_acquire().unwrap();
    let mut run = tokio_test::task::spawn(executor.run(|_| ready(Ok::<_, ()>(()))));
    assert!(run.poll().is_pending());
    clock.advance(secs(3));
    drop(permit);
    assert!(run.poll().is_ready());
    let waits = [(1, What::Queued { by: "bulkhead" }), (1, What::Admitted { by: "bulkhead", waited: secs(3) })];
    assert_eq!(recorder.events()[1..3], waits);
    let named = |event: &Event| event.policy.map(steadfast::error::Name::as_str) == Some("pool");
    assert!(recorder.whole_events()[1..3].iter().all(named));
}

/// Sees the runs that start while it is switched on.
#[derive(Clone, Default)]
struct Switched(Arc<AtomicBool>, Recorder);

impl Observer for Switched {
    fn on_event(&self, event: &Event) {
        self.1.on_event(event);
    }

    fn is_enabled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

#[test]
fn an_observer_that_is_switched_off_sees_no_run_that_starts_meanwhile() {
    let (clock, _) = at_rest();
    let observer = Switched::default();
    let executor = Executor::builder("switched").clock(&clock).observe(observer.clone()).build().unwrap();
    let run = || clock.block_on(executor.run(|_| ready(Ok::<_, ()>(())))).unwrap();
    run();
    assert!(observer.1.events().is_empty());
    observer.0.store(true, Ordering::Relaxed);
    run();
    assert_eq!(observer.1.events().len(), 4);
}

#[test]
fn an_observer_that_blocks_holds_up_its_own_run_only() {
    let (clock, _) = at_rest();
    let (blocked, let_go) = (std::sync::Barrier::new(2), std::sync::Barrier::new(2));
    let gates = Arc::new((blocked, let_go));
    let (theirs, runs) = (Arc::clone(&gates), AtomicU32::new(0));
    let bulkhead = Bulkhead::new(2);
    let chain = (Retry::immediate(), bulkhead.clone(), Timeout::secs(2));
    let builder = Executor::builder("blocks").policies(chain).clock(&clock).observe(move |event: &Event| {
        if event.what == What::AttemptStarted && runs.fetch_add(1, Ordering::Relaxed) == 0 {
            theirs.0.wait();
            theirs.1.wait();
        }
    });
    let executor = builder.build().unwrap();
    let run = || clock.block_on(executor.run(|_| ready(Ok::<_, ()>(7)))).unwrap();
    std::thread::scope(|scope| {
        let first = scope.spawn(run);
        gates.0.wait();
        // The first run stands in its observer, and holds nothing that another one would need but its permit.
        assert_eq!(bulkhead.in_flight(), 1);
        assert!((0..100).all(|_| run() == 7));
        gates.1.wait();
        assert_eq!(first.join().unwrap(), 7);
    });
}

#[test]
fn a_change_of_settings_is_told_outside_of_any_run() {
    let (clock, _) = at_rest();
    let recorder = Recorder::default();
    let executor = Executor::standard("billing").clock(&clock).observe(recorder.clone()).build().unwrap();
    let config = StandardConfig::default();
    assert!(executor.reconfigure(config.clone().attempt_timeout(secs(0))).is_err());
    assert!(recorder.events().is_empty(), "nothing has changed");
    executor.reconfigure(config.attempt_timeout(secs(1))).unwrap();
    let events = recorder.whole_events();
    assert_eq!((events.len(), &events[0].what), (1, &What::Reconfigured { by: "standard" }));
    assert_eq!((events[0].run, events[0].attempt), (None, 0));
}

/// Commands on a handle concern all executors that have it, of which the handle knows none: its listeners hear of them.
#[test]
fn a_transition_is_told_to_the_observers_of_the_call_that_made_it() {
    let (clock, _) = at_rest();
    let heard = Arc::new(AtomicU32::new(0));
    let hears = Arc::clone(&heard);
    let config = BreakerConfig::default().rule(TripRule::consecutive(1)).open_for(secs(5));
    let listener = move |_| {
        hears.fetch_add(1, Ordering::Relaxed);
    };
    let breaker = Breaker::new(config.on_transition(listener)).named("ledger");
    let observed = |name| {
        let recorder = Recorder::default();
        let builder = Executor::builder(name).policies(breaker.clone()).clock(&clock);
        (builder.observe(recorder.clone()).build().unwrap(), recorder)
    };
    let ((first, by_first), (second, by_second)) = (observed("first"), observed("second"));
    let transitions = |recorder: &Recorder| {
        let changes = recorder.whole_events().into_iter().filter_map(|event| match event.what {
            What::Transition(change) => {
                Some((event.policy.map(steadfast::error::Name::as_str), change.from, change.to))
            }
            _ => None,
        });
        changes.collect::<Vec<_>>()
    };
    clock.block_on(first.run(|_| ready(Err::<(), _>("down")))).unwrap_err();
    clock.advance(secs(5));
    clock.block_on(second.run(|_| ready(Ok::<_, ()>(7)))).unwrap();
    breaker.isolate();
    let ledger = Some("ledger");
    assert_eq!(transitions(&by_first), [(ledger, State::Closed, State::Open)]);
    let by_trial = [(ledger, State::Open, State::HalfOpen), (ledger, State::HalfOpen, State::Closed)];
    assert_eq!(transitions(&by_second), by_trial);
    assert_eq!(heard.load(Ordering::Relaxed), 4);
}

/// A listener that changes the state does so by itself: it is not the doing of the call that told it.
#[test]
fn what_a_listener_does_to_a_breaker_is_not_told_as_the_calls_doing() {
    let (clock, _) = at_rest();
    let cell = Arc::new(std::sync::OnceLock::<Breaker>::new());
    let closes = Arc::clone(&cell);
    let config = BreakerConfig::default().rule(TripRule::consecutive(1)).on_transition(move |change| {
        if change.to == State::Open {
            closes.get().unwrap().force_close();
        }
    });
    let breaker = Breaker::new(config);
    assert!(cell.set(breaker.clone()).is_ok());
    let recorder = Recorder::default();
    let builder = Executor::builder("listens").policies(breaker.clone()).clock(&clock);
    let executor = builder.observe(recorder.clone()).build().unwrap();
    clock.block_on(executor.run(|_| ready(Err::<(), _>("down")))).unwrap_err();
    assert_eq!(breaker.state(), State::Closed);
    let told = recorder.events().into_iter().filter(|(_, what)| matches!(what, What::Transition(_)));
    assert_eq!(told.count(), 1);
}
