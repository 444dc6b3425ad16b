//! What a caller does with an error: match it, print it, take it apart, hand it on with `?`.

use std::error::Error as StdError;
use std::fmt;

use steadfast::error::{BoxError, Full, Kind, Limit, Opaque, Refusal};
use steadfast::{CancellationToken, ConfigError, Context, Error, Executor, Retry, Timeout, try_do};

use crate::policies::Refuses;
use crate::support::{Script, Step, at_rest, err, exhausted, hangs, ms, ok, permanent, secs, throttled, timed_out};

#[derive(Clone, Debug, PartialEq)]
struct NotFound;

impl fmt::Display for NotFound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no such invoice")
    }
}

impl StdError for NotFound {}

/// The error of a run through a retry of 2 attempts with a limit of 2 s each.
fn error_of<E: Clone + fmt::Debug + Send + Sync + 'static>(steps: Vec<Step<(), E>>) -> Error<E> {
    let (clock, _) = at_rest();
    let chain = (Retry::fixed(secs(1)).max_attempts(2), Timeout::secs(2));
    let executor = Executor::builder("billing").policies(chain).clock(&clock).build().unwrap();
    let script = Script::new(&clock, steps);
    clock.block_on(executor.run(steadfast::faults(|_| script.call()))).unwrap_err()
}

#[test]
fn display_is_one_line_to_act_on() {
    let line = |steps| error_of(steps).to_string();
    assert_eq!(line(vec![permanent(NotFound)]), "billing: no such invoice");
    assert_eq!(line(vec![err(NotFound), permanent(NotFound)]), "billing: no such invoice (after 2 attempts)");
    assert_eq!(
        line(vec![err(NotFound)]),
        "billing: gave up: no attempts left (after 2 attempts; last error: no such invoice)"
    );
    assert_eq!(line(vec![hangs()]), "billing: timed out after 2 s (after 2 attempts)");
    assert_eq!(
        line(vec![err(NotFound), hangs()]),
        "billing: timed out after 2 s (after 2 attempts; last error: no such invoice)"
    );
    assert_eq!(
        line(vec![throttled(NotFound, secs(90))]),
        "billing: gave up: the dependency asked for too long a pause (after 1 attempt; last error: no such invoice)"
    );
}

#[test]
fn display_names_every_way_to_end_a_run() {
    let line = |kind| Error::<NotFound>::refused(kind).to_string();
    let wait = Some(ms(12_400));
    assert_eq!(line(Kind::CircuitOpen { retry_after: wait }), "circuit breaker open, next trial in 12.4 s");
    assert_eq!(line(Kind::CircuitOpen { retry_after: None }), "circuit breaker open");
    assert_eq!(line(Kind::RateLimited { retry_after: wait }), "rate limited, free in 12.4 s");
    assert_eq!(line(Kind::BulkheadFull { why: Full::Queue }), "bulkhead full");
    assert_eq!(line(Kind::DeadlineExceeded), "deadline exceeded");
    assert_eq!(line(exhausted(Limit::Deadline)), "gave up: no time left before the deadline");
    assert_eq!(line(exhausted(Limit::Elapsed)), "gave up: no time left for another attempt");
    assert_eq!(line(Kind::ShutDown), "shut down");
    let config = ConfigError::new("window", 0, "must not be empty");
    assert_eq!(Error::<NotFound>::misconfigured(config).to_string(), "misconfigured: window = 0: must not be empty");
}

#[test]
fn predicates_agree_with_the_kind() {
    let is = |kind| {
        let error = Error::<()>::refused(kind);
        [error.is_timeout(), error.is_cancelled(), error.is_circuit_open(), error.is_exhausted(), error.is_rejection()]
    };
    assert_eq!(is(Kind::Failed), [false; 5]);
    assert_eq!(is(timed_out(secs(1))), [true, false, false, false, false]);
    assert_eq!(is(Kind::DeadlineExceeded), [true, false, false, false, false]);
    assert_eq!(is(Kind::Cancelled), [false, true, false, false, false]);
    assert_eq!(is(Kind::CircuitOpen { retry_after: None }), [false, false, true, false, true]);
    assert_eq!(is(exhausted(Limit::Attempts)), [false, false, false, true, false]);
    for kind in [Kind::RateLimited { retry_after: None }, Kind::BulkheadFull { why: Full::Wait }, Kind::Overloaded] {
        assert_eq!(is(kind), [false, false, false, false, true]);
    }
}

#[test]
fn split_gives_both_halves() {
    let (refusal, last) = error_of(vec![err(NotFound)]).split();
    assert_eq!((refusal.kind(), refusal.attempts(), last), (exhausted(Limit::Attempts), 2, Some(NotFound)));
    assert_eq!((refusal.policy(), refusal.elapsed()), (Some("billing"), secs(1)));
    assert_eq!(refusal.clone(), refusal);
    assert_eq!(refusal.to_string(), "billing: gave up: no attempts left (after 2 attempts)");
    let by_std: Box<dyn StdError + Send + Sync + 'static> = refusal.into();
    assert!(by_std.source().is_none());
}

/// An error with a cause.
#[derive(Debug)]
struct Lookup(NotFound);

impl fmt::Display for Lookup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("lookup failed")
    }
}

impl StdError for Lookup {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(&self.0)
    }
}

/// What a program prints that shows an error and all of its causes.
fn whole(error: impl StdError + Send + Sync + 'static) -> String {
    format!("{:#}", anyhow::Error::from(error))
}

#[test]
fn an_error_and_its_causes_say_each_thing_once() {
    let error = Error::failed(Lookup(NotFound));
    assert_eq!(error.source().unwrap().downcast_ref(), Some(&NotFound), "what the last error was caused by");
    assert_eq!(whole(error), "lookup failed: no such invoice");
    assert_eq!(whole(Error::failed(Lookup(NotFound)).boxed()), "lookup failed: no such invoice");

    let error = error_of(vec![err(NotFound)]);
    let line = "billing: gave up: no attempts left (after 2 attempts; last error: no such invoice)";
    assert!(error.source().is_none(), "the line shows the last error");
    assert_eq!(error.last(), Some(&NotFound));
    assert_eq!(whole(error), line);

    let config = || ConfigError::new("n", 0, "must be positive");
    let misconfigured = Error::<NotFound>::misconfigured(config());
    let line = format!("misconfigured: {}", config());
    assert_eq!((whole(misconfigured.refusal()), whole(misconfigured)), (line.clone(), line));
    assert!(Error::<NotFound>::refused(Kind::Cancelled).source().is_none());
}

#[test]
fn a_question_mark_leads_into_anyhow_and_box_error() {
    let (clock, cx) = at_rest();
    let into_anyhow = async || -> anyhow::Result<()> {
        try_do(&cx, |_| async { Err(NotFound) }, Retry::immediate()).await?;
        Ok(())
    };
    let error = clock.block_on(into_anyhow()).unwrap_err();
    let ours: &Error<NotFound> = error.downcast_ref().unwrap();
    assert_eq!((ours.attempts(), ours.last()), (3, Some(&NotFound)));

    let into_box = async || -> Result<(), Box<dyn StdError + Send + Sync>> {
        try_do(&cx, |_| async { Err(NotFound) }, Retry::immediate()).await?;
        Ok(())
    };
    assert!(clock.block_on(into_box()).unwrap_err().is::<Error<NotFound>>());
}

#[derive(Debug)]
enum AppError {
    NotFound,
    Unavailable(Refusal),
}

impl From<Refusal> for AppError {
    fn from(refusal: Refusal) -> AppError {
        AppError::Unavailable(refusal)
    }
}

#[test]
fn flatten_leads_into_a_users_enum() {
    let (clock, cx) = at_rest();
    let flattened = |cx: Context, retry: Retry| {
        let run = async move { try_do(&cx, |_| async { Err::<(), _>(AppError::NotFound) }, retry).await };
        clock.block_on(run).map_err(Error::flatten).unwrap_err()
    };
    assert!(matches!(flattened(cx.clone(), Retry::immediate().max_attempts(1)), AppError::NotFound));
    assert!(matches!(flattened(cx.clone(), Retry::immediate()), AppError::NotFound), "exhausted: its own error");
    let token = CancellationToken::new();
    token.cancel();
    let cancelled = flattened(cx.with_token(token), Retry::immediate());
    assert!(matches!(cancelled, AppError::Unavailable(refusal) if refusal.kind() == Kind::Cancelled));
}

#[test]
fn flatten_prefers_what_the_library_says_if_that_ended_the_run() {
    let (clock, cx) = at_rest();
    let chain = (Retry::immediate(), Refuses::after(1));
    let run = try_do(&cx, |_| async { Err::<(), _>(AppError::NotFound) }, chain);
    let AppError::Unavailable(refusal) = clock.block_on(run).unwrap_err().flatten() else {
        panic!("the circuit was open")
    };
    assert_eq!((refusal.kind(), refusal.attempts()), (Refuses::KIND, 1));
    assert_eq!(refusal.retry_after(), Some(Refuses::PAUSE));
}

#[test]
fn boxed_makes_a_standard_error_of_errors_that_are_none() {
    fn is_std<T: StdError + Send + Sync + 'static>(error: T) -> T {
        error
    }
    let (clock, cx) = at_rest();
    clock.block_on(async {
        let operation = |_| async { Err::<(), _>(anyhow::anyhow!("from anyhow")) };
        let error = is_std(try_do(&cx, operation, Retry::immediate()).await.unwrap_err().boxed());
        assert_eq!((error.last().unwrap().to_string(), error.attempts()), ("from anyhow".to_owned(), 3));

        let operation = |_| async { Err::<(), _>(String::from("from a string")) };
        let error = is_std(try_do(&cx, operation, ()).await.unwrap_err().boxed());
        assert_eq!(error.to_string(), "from a string");

        let operation = |_| async { Err::<(), BoxError>(NotFound.into()) };
        let error = is_std(try_do(&cx, operation, ()).await.unwrap_err().boxed());
        let opaque: &Opaque = error.last().unwrap();
        assert_eq!(opaque.downcast_ref(), Some(&NotFound));
        assert!(error.into_last().unwrap().into_inner().is::<NotFound>());
    });
}

#[test]
fn a_question_mark_works_inside_of_an_operation_with_a_boxed_error() {
    let (clock, cx) = at_rest();
    let run = try_do(
        &cx,
        async |_| {
            let number: u32 = "seven".parse()?;
            Ok::<_, BoxError>(number)
        },
        Retry::immediate(),
    );
    let error = clock.block_on(run).unwrap_err();
    assert_eq!(error.last().unwrap().to_string(), "invalid digit found in string");
}

#[test]
fn an_error_can_be_mapped_with_its_history() {
    let (clock, cx) = at_rest();
    let retry = Retry::immediate().keep_errors(3);
    let run = try_do(&cx, |attempt| async move { Err::<(), _>(attempt.number()) }, retry);
    let error = clock.block_on(run).unwrap_err().map(|number| number * 10);
    assert_eq!(error.history().copied().collect::<Vec<_>>(), [10, 20, 30]);
    assert_eq!((error.last(), error.attempts(), error.kind()), (Some(&30), 3, exhausted(Limit::Attempts)));
}

#[test]
fn debug_shows_what_is_needed_to_understand_a_test_failure() {
    let text = format!("{:?}", error_of(vec![err(NotFound)]));
    for part in ["Exhausted", "Attempts", "attempts: 2", "billing", "NotFound"] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn the_elapsed_time_of_an_error_is_that_of_the_run() {
    assert_eq!(error_of::<NotFound>(vec![hangs()]).elapsed(), secs(5));
    assert_eq!(error_of(vec![permanent(NotFound)]).elapsed(), secs(0));
    let (clock, cx) = at_rest();
    let script = Script::new(&clock, [ok::<_, ()>(()).after(secs(9))]);
    let error = clock.block_on(try_do(&cx.with_timeout(secs(3)), |_| script.call_plain(), ())).unwrap_err();
    assert_eq!((error.kind(), error.elapsed()), (Kind::DeadlineExceeded, secs(3)));
}
