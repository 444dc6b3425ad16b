//! Operations with more to say than a closure: state, tokens, nested chains, values that are given up with care.

use std::sync::Mutex;
use std::time::Duration;

use steadfast::error::Kind;
use steadfast::executor::Stopped;
use steadfast::operation::{Fault, Operation, nested, with_state, with_token};
use steadfast::policy::{Call, Frame, Next, Outcome, Policy, Reason, Settings};
use steadfast::{Attempt, CancellationToken, Context, Executor, Retry, Timeout, Verdict, faults, try_do, try_op};

use crate::support::{Script, at_rest, err, ms, ok, pending_times, secs};

#[test]
fn with_state_lends_its_state_to_one_try_at_a_time() {
    let (clock, cx) = at_rest();
    let mut log = Vec::new();
    let operation = with_state(&mut log, |log, attempt| {
        Box::pin(async move {
            pending_times(1).await;
            log.push(attempt.number());
            if log.len() < 3 { Err("not yet") } else { Ok(log.len()) }
        })
    });
    assert_eq!(clock.block_on(try_op(&cx, operation, Retry::exponential())).unwrap(), 3);
    assert_eq!(log, [1, 2, 3]);
}

#[test]
fn the_state_comes_back_from_a_try_that_was_cut_off() {
    let (clock, cx) = at_rest();
    let mut tries = 0;
    let operation = with_state(&mut tries, |tries, _| {
        Box::pin(async move {
            *tries += 1;
            if *tries < 2 { std::future::pending().await } else { Ok::<_, ()>(*tries) }
        })
    });
    let run = try_op(&cx, operation, (Retry::immediate(), Timeout::secs(1)));
    assert_eq!(clock.block_on(run).unwrap(), 2);
}

/// Starts two tries at once, without asking whether it may.
struct Impatient;

impl Settings for Impatient {}

impl<T: Send, E: Send> Policy<T, E> for Impatient {
    async fn run<N: Next<T, E>>(&self, call: Call<'_, E>, next: N) -> Outcome<T, E> {
        let (first, second) = (Frame::inside(call), Frame::inside(call));
        let (held, other) = tokio::join!(next.call(call.within(&first)), next.call(call.within(&second)));
        first.give_up(Reason::LostRace);
        drop(held);
        other
    }
}

#[test]
fn a_second_try_beside_the_first_is_refused_its_state() {
    let (clock, cx) = at_rest();
    let mut calls = 0;
    let operation = with_state(&mut calls, |calls, _| {
        Box::pin(async move {
            *calls += 1;
            pending_times(1).await;
            Ok::<_, ()>(())
        })
    });
    let repeat: Result<(), &str> = Operation::<(), ()>::repeat(&operation, None);
    assert!(repeat.is_err());
    let error = clock.block_on(try_op(&cx, operation, Impatient)).unwrap_err();
    assert_eq!((error.kind(), calls), (Kind::Misconfigured, 1));
}

#[tokio::test(start_paused = true)]
async fn a_token_is_cancelled_when_the_attempt_is_abandoned_and_not_when_it_completes() {
    let cx = Context::new();
    let tokens = Mutex::new(Vec::new());
    let operation = with_token(|attempt: Attempt, token: CancellationToken| {
        tokens.lock().unwrap().push(token);
        async move {
            match attempt.number() {
                1 => std::future::pending().await,
                2 => Err("down"),
                _ => Ok(()),
            }
        }
    });
    try_do(&cx, operation, (Retry::exponential(), Timeout::secs(1))).await.unwrap();
    let cancelled: Vec<bool> = tokens.lock().unwrap().iter().map(CancellationToken::is_cancelled).collect();
    assert_eq!(cancelled, [true, false, false]);
}

#[test]
fn an_operation_may_run_another_chain() {
    let (clock, cx) = at_rest();
    let inner = Executor::builder("inner").policies(Retry::immediate().max_attempts(2)).clock(&clock).build().unwrap();
    let script = Script::new(&clock, [err("down"), err("down"), err("down"), ok(7)]);
    let outer = nested(|_| inner.run(|_| script.call_plain()));
    assert_eq!(clock.block_on(try_op(&cx, outer, Retry::fixed(secs(1)))).unwrap(), 7);
    assert_eq!(script.calls(), [0, 0, 1, 1].map(secs));
}

#[test]
fn what_an_inner_chain_judged_final_stays_final() {
    let (clock, cx) = at_rest();
    let inner = Executor::builder("inner").policies(Retry::immediate()).clock(&clock).build().unwrap();
    let inner = &inner;
    let outer = nested(|_| inner.run(faults(|_| async { Err::<(), _>(Fault::Permanent("gone")) })));
    let error = clock.block_on(try_op(&cx, outer, Retry::fixed(secs(1)))).unwrap_err();
    assert_eq!((error.kind(), error.last(), error.attempts()), (Kind::Failed, Some(&"gone"), 1));
    assert_eq!(error.policy(), Some("inner"));
}

/// An operation with a value that has to be given up carefully.
struct Responses<'a> {
    script: Script<u16, ()>,
    given_up: &'a Mutex<Vec<(u16, Duration)>>,
    draining: Duration,
    clock: steadfast::Clock,
    repeatable: bool,
}

impl Operation<u16, ()> for Responses<'_> {
    async fn call(&self, _: Attempt) -> Outcome<u16, ()> {
        match self.script.call_plain().await {
            Ok(200) => Outcome::success(200),
            Ok(status) => Outcome::new(Ok(status), Verdict::Transient),
            Err(error) => Outcome::failed(error, Verdict::Transient),
        }
    }

    fn repeat(&self, after: Option<&Outcome<u16, ()>>) -> Result<(), &'static str> {
        assert!(after.is_some_and(|outcome| outcome.result.is_ok()), "asked by a retry, after a try");
        if self.repeatable { Ok(()) } else { Err("it cannot be cloned") }
    }

    async fn discard(&self, value: u16) {
        let at = self.script.elapsed();
        self.clock.sleep(self.draining).await;
        self.given_up.lock().unwrap().push((value, at));
    }
}

fn drained(draining: Duration, wait: Duration) -> (u16, Vec<(u16, Duration)>, Vec<Duration>) {
    let (clock, cx) = at_rest();
    let given_up = Mutex::new(Vec::new());
    let script = Script::new(&clock, [ok(500), ok(501), ok(502), ok(200)]);
    let responses = Responses { script, given_up: &given_up, draining, clock: clock.clock(), repeatable: true };
    let mut calls = Vec::new();
    let value = {
        let operation = &responses;
        let run = try_op(&cx, Borrowed(operation), Retry::fixed(wait));
        let value = clock.block_on(run).unwrap();
        calls.extend(operation.script.calls());
        value
    };
    drop(responses);
    (value, given_up.into_inner().unwrap(), calls)
}

/// An operation that is looked at afterwards.
struct Borrowed<'a, O>(&'a O);

impl<O: Operation<u16, ()>> Operation<u16, ()> for Borrowed<'_, O> {
    fn call(&self, attempt: Attempt) -> impl Future<Output = Outcome<u16, ()>> + Send {
        self.0.call(attempt)
    }

    fn repeat(&self, after: Option<&Outcome<u16, ()>>) -> Result<(), &'static str> {
        self.0.repeat(after)
    }

    fn discard(&self, value: u16) -> impl Future<Output = ()> + Send {
        self.0.discard(value)
    }
}

#[test]
fn every_value_that_is_given_up_is_discarded_and_never_the_one_returned() {
    let (value, given_up, calls) = drained(secs(0), secs(1));
    assert_eq!((value, given_up), (502, vec![(500, secs(0)), (501, secs(1))]));
    assert_eq!(calls, [0, 1, 2].map(secs));
}

#[test]
fn a_value_is_discarded_within_the_wait_and_not_beyond_it() {
    let within = drained(ms(400), secs(1));
    assert_eq!(within.2, [0, 1, 2].map(secs), "the wait is no longer for it");
    let too_slow = drained(secs(9), secs(1));
    assert_eq!((too_slow.1, too_slow.2), (vec![], [0, 1, 2].map(secs).to_vec()));
    let without_wait = drained(ms(4), secs(0));
    assert_eq!((without_wait.1.len(), without_wait.2), (2, [0, 4, 8].map(ms).to_vec()));
    let too_slow_without_wait = drained(secs(1), secs(0));
    assert_eq!((too_slow_without_wait.1, too_slow_without_wait.2), (vec![], [0, 5, 10].map(ms).to_vec()));
}

#[test]
fn an_operation_that_cannot_be_sent_again_is_not() {
    let (clock, _) = at_rest();
    let given_up = Mutex::new(Vec::new());
    let script = Script::new(&clock, [ok(500), ok(200)]);
    let responses =
        Responses { script, given_up: &given_up, draining: secs(0), clock: clock.clock(), repeatable: false };
    let executor = Executor::builder("once").policies(Retry::exponential()).clock(&clock).build().unwrap();
    let report = clock.block_on(executor.run_report_with(&executor.context(), responses));
    assert_eq!((report.result.unwrap(), report.attempts), (500, 1));
    assert_eq!(report.stopped, Stopped::NotRepeatable("it cannot be cloned"));
    assert!(given_up.into_inner().unwrap().is_empty());
}

#[test]
fn an_erased_chain_asks_and_discards_with_the_value_itself() {
    let (clock, cx) = at_rest();
    let given_up = Mutex::new(Vec::new());
    let script = Script::new(&clock, [ok(500), ok(501), ok(200)]);
    let responses =
        Responses { script, given_up: &given_up, draining: secs(0), clock: clock.clock(), repeatable: true };
    let executor = Executor::builder("erased").policies(Retry::fixed(secs(1))).clock(&clock).build().unwrap().erase();
    assert_eq!(clock.block_on(executor.run_op_with(&cx, responses)).unwrap(), 200);
    assert_eq!(given_up.into_inner().unwrap(), [(500, secs(0)), (501, secs(1))]);
}
