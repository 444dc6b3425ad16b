//! What can be an operation: closures of every kind, and closures that mark their errors.

use std::collections::HashMap;
use std::convert::Infallible;
use std::num::ParseIntError;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use steadfast::error::{Kind, Limit};
use steadfast::operation::{Fault, FaultExt};
use steadfast::{Attempt, Context, Error, Executor, Retry, Timeout, Verdict, faults, try_do};

use crate::support::{at_rest, err, exhausted, ok, scenario, secs};

async fn fetch(id: u32) -> Result<u32, String> {
    if id == 0 { Err("no such id".to_owned()) } else { Ok(id) }
}

#[test]
fn closures_of_every_kind_need_no_annotation() {
    let (clock, cx) = at_rest();
    let (name, ids) = (String::from("billing"), vec![7, 8]);
    clock.block_on(async {
        assert_eq!(try_do(&cx, |_| fetch(7), Retry::exponential()).await.unwrap(), 7);
        assert_eq!(try_do(&cx, async |_| fetch(ids[1]).await, Retry::exponential()).await.unwrap(), 8);
        assert_eq!(try_do(&cx, |_| async { fetch(ids[0]).await }, Retry::exponential()).await.unwrap(), 7);
        let number = try_do(&cx, |attempt| async move { Ok::<_, String>(attempt.number()) }, Retry::exponential());
        assert_eq!(number.await.unwrap(), 1);
        let borrowed = try_do(&cx, |_| async { Ok::<_, Infallible>(name.len()) }, ());
        assert_eq!(borrowed.await.unwrap(), 7);
        let questioned = try_do(
            &cx,
            async |_| {
                let id = fetch(1).await?;
                Ok::<_, String>(id + 1)
            },
            Retry::exponential(),
        );
        assert_eq!(questioned.await.unwrap(), 2);
    });
    drop((name, ids));
}

#[test]
fn a_function_is_an_operation() {
    async fn operation(attempt: Attempt) -> Result<u32, String> {
        fetch(attempt.number()).await
    }
    let (clock, cx) = at_rest();
    assert_eq!(clock.block_on(try_do(&cx, operation, Retry::exponential())).unwrap(), 1);
}

#[test]
fn an_operation_can_change_what_has_interior_mutability() {
    let (clock, cx) = at_rest();
    let (calls, log) = (AtomicU32::new(0), Mutex::new(Vec::new()));
    let run = try_do(
        &cx,
        async |attempt| {
            log.lock().unwrap().push(attempt.number());
            if calls.fetch_add(1, Ordering::Relaxed) < 2 { Err("not yet") } else { Ok(()) }
        },
        Retry::exponential(),
    );
    clock.block_on(run).unwrap();
    assert_eq!(*log.lock().unwrap(), [1, 2, 3]);
}

#[test]
fn the_value_may_borrow_from_around_the_run() {
    let (clock, cx) = at_rest();
    let users = HashMap::from([(7, String::from("Ada"))]);
    let run = try_do(&cx, async |_| users.get(&7).map(String::as_str).ok_or("no such user"), Retry::exponential());
    let name: &str = clock.block_on(run).unwrap();
    assert_eq!(name, "Ada");
}

#[test]
fn an_attempt_says_which_it_is() {
    let (clock, cx) = at_rest();
    let seen = Mutex::new(Vec::new());
    let run = try_do(
        &cx,
        async |attempt| {
            seen.lock().unwrap().push((attempt.number(), attempt.is_retry(), attempt.hedge(), attempt.is_hedge()));
            Err::<(), _>("down")
        },
        Retry::exponential(),
    );
    clock.block_on(run).unwrap_err();
    assert_eq!(*seen.lock().unwrap(), [(1, false, 0, false), (2, true, 0, false), (3, true, 0, false)]);
}

#[tokio::test(start_paused = true)]
async fn a_run_can_be_spawned() {
    let cx = Context::new();
    let spawned = tokio::spawn(async move { try_do(&cx, |_| fetch(7), Retry::exponential()).await });
    assert_eq!(spawned.await.unwrap().unwrap(), 7);

    let executor =
        Executor::builder("spawned").policies((Retry::exponential(), Timeout::secs(2))).unbudgeted().build().unwrap();
    let erased = executor.erase();
    let mut tasks = tokio::task::JoinSet::new();
    for id in 0..8 {
        let executor = executor.clone();
        tasks.spawn(async move { executor.run(|_| fetch(id)).await });
        let erased = erased.clone();
        tasks.spawn(async move { erased.run(async |_| fetch(id).await).await });
    }
    let ended = tasks.join_all().await;
    assert_eq!(ended.iter().filter(|result| result.is_ok()).count(), 14);
    assert!(ended.into_iter().filter_map(Result::err).all(|error| error.attempts() == 3));
}

fn is_send<T: Send>(value: T) -> T {
    value
}

#[test]
fn the_future_of_a_run_is_send_if_the_operation_is() {
    let (clock, cx) = at_rest();
    let text = String::from("borrowed");
    let executor =
        Executor::builder("send").policies((Retry::exponential(), Timeout::secs(2))).clock(&clock).build().unwrap();
    let erased = executor.erase();
    let operation = async |_| Ok::<_, String>(text.len());
    clock.block_on(async {
        is_send(try_do(&cx, operation, (Retry::exponential(), Timeout::secs(1)))).await.unwrap();
        is_send(executor.run(operation)).await.unwrap();
        is_send(executor.run_with(&cx, operation)).await.unwrap();
        is_send(executor.run_op(steadfast::op(operation))).await.unwrap();
        is_send(executor.run_report_with(&cx, steadfast::op(operation))).await.result.unwrap();
        is_send(executor.with(Timeout::secs(1)).run(operation)).await.unwrap();
        is_send(erased.run(operation)).await.unwrap();
        is_send(try_do(&cx, faults(async |_| Ok::<_, Fault<String>>(text.len())), Retry::exponential())).await.unwrap();
    });
}

#[derive(Debug, PartialEq)]
struct Failed(&'static str);

impl From<ParseIntError> for Failed {
    fn from(_: ParseIntError) -> Failed {
        Failed("not a number")
    }
}

impl From<std::io::Error> for Failed {
    fn from(_: std::io::Error) -> Failed {
        Failed("io")
    }
}

#[test]
fn faults_mark_errors_where_they_arise_and_convert_them() {
    let (clock, cx) = at_rest();
    let run = |text: &'static str, broken: bool| {
        let operation = faults(move |_| async move {
            let connected = if broken { Err(std::io::Error::other("reset")) } else { Ok(()) };
            connected.transient()?;
            let number: u32 = text.parse::<u32>().permanent()?;
            Ok(number)
        });
        let result: Result<u32, Error<Failed>> = clock.block_on(try_do(&cx, operation, Retry::exponential()));
        result.map_err(|error| (error.kind(), error.attempts(), error.into_last()))
    };
    assert_eq!(run("7", false), Ok(7));
    assert_eq!(run("seven", false), Err((Kind::Failed, 1, Some(Failed("not a number")))));
    assert_eq!(run("7", true), Err((exhausted(Limit::Attempts), 3, Some(Failed("io")))));
}

#[test]
fn each_mark_is_its_verdict_and_a_question_mark_alone_means_transient() {
    let (clock, cx) = at_rest();
    type Mark = fn(Result<(), &'static str>) -> Result<(), Fault<&'static str>>;
    let verdict = |mark: Mark| {
        let probe = crate::policies::Probe::default();
        let operation = faults(move |_| async move { mark(Err("x")) });
        clock.block_on(try_do(&cx, operation, probe.clone())).unwrap_err();
        probe.verdicts()[0]
    };
    assert_eq!(verdict(FaultExt::transient), Verdict::Transient);
    assert_eq!(verdict(FaultExt::fatal), Verdict::Fatal);
    assert_eq!(verdict(FaultExt::permanent), Verdict::Permanent);
    assert_eq!(verdict(FaultExt::ignored), Verdict::Ignored);
    assert_eq!(verdict(|error| error.throttled(None)), Verdict::Throttled { retry_after: None });
    let retry_after = Some(secs(3));
    assert_eq!(verdict(|error| error.throttled(secs(3))), Verdict::Throttled { retry_after });
    assert_eq!(verdict(|error| Ok(error?)), Verdict::Transient);
}

#[test]
fn zero_sized_results_work() {
    let seen = scenario(Retry::immediate).everywhere([err(()), ok(())]);
    assert_eq!((seen.result, seen.calls.len()), (Ok(()), 2));
}
