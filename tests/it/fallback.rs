//! What a caller gets in the place of a failure, and when it does not.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use steadfast::breaker::{BreakerConfig, State, TripRule};
use steadfast::chain::BoxPolicy;
use steadfast::error::{Kind, Limit};
use steadfast::event::{RunEnd, What};
use steadfast::executor::Stopped;
use steadfast::judge::{classify, retry_if};
use steadfast::operation::{Fault, Operation};
use steadfast::policy::{Call, Next, Outcome, Policy, Settings};
use steadfast::{
    Attempt, Breaker, CancellationToken, Classified, ConfigError, Error, Executor, Fallback, Hedge, Retry, Timeout,
    Verdict, fallback, faults, op, try_do, try_op,
};

use crate::policies::{Probe, Refuses};
use crate::support::{
    Recorder, Script, at_rest, ends, err, exhausted, hangs, ms, ok, permanent, scenario, secs, throttled, timed_out,
};

type Word = &'static str;

/// A fallback that counts how often it steps in, and ends as it is told after `takes`.
fn counting<'a>(
    calls: &'a AtomicU32,
    clock: &steadfast::clock::ManualClock,
    takes: Duration,
    end: Result<Word, Word>,
) -> impl Policy<Word, Word> + 'a {
    let clock = clock.clock();
    fallback(move |_: &Error<Word>| {
        calls.fetch_add(1, Relaxed);
        let wait = clock.sleep(takes);
        async move {
            wait.await;
            end
        }
    })
}

#[test]
fn a_value_and_a_function_replace_an_error() {
    let seen = scenario(|| (Fallback::value("stale"), Retry::immediate())).typed([err::<Word, Word>("down")]);
    assert_eq!((seen.result, seen.calls.len()), (Ok("stale"), 3));
    let function = || (fallback(|_| async { Ok("stale") }), Retry::immediate());
    let seen = scenario(function).typed([err::<Word, Word>("down")]);
    assert_eq!((seen.result, seen.calls.len()), (Ok("stale"), 3));
}

#[test]
fn the_function_sees_the_error_that_the_caller_would_get() {
    let (clock, _) = at_rest();
    let noted = Mutex::new(Vec::new());
    let note = fallback(|error: &Error<Word>| {
        let line = (error.kind(), error.attempts(), error.last().copied(), error.elapsed(), error.verdict());
        noted.lock().unwrap().push((line, error.to_string()));
        async { Ok("stale") }
    });
    let script = Script::new(&clock, [err::<Word, _>("first"), err("second"), err("third")]);
    let billing = Executor::builder("billing").policies((note, Retry::fixed(secs(1)))).clock(&clock).build().unwrap();
    assert_eq!(clock.block_on(billing.run(|_| script.call_plain())).unwrap(), "stale");
    let line = (exhausted(Limit::Attempts), 3, Some("third"), secs(2), Verdict::Transient);
    let text = "billing: gave up: no attempts left (after 3 attempts; last error: third)".to_owned();
    assert_eq!(*noted.lock().unwrap(), [(line, text)]);
}

#[test]
fn a_success_needs_none() {
    let (clock, cx) = at_rest();
    let calls = AtomicU32::new(0);
    let policies = (counting(&calls, &clock, Duration::ZERO, Ok("stale")), Retry::immediate());
    assert_eq!(clock.block_on(try_do(&cx, |_| async { Ok("fresh") }, policies)).unwrap(), "fresh");
    assert_eq!(calls.into_inner(), 0);
}

#[test]
fn every_error_is_replaced_unless_a_predicate_says_no() {
    let steps = [permanent("no such user"), ends(Err(Fault::Ignored("no file"))), ends(Err(Fault::Fatal("corrupt")))];
    for step in steps {
        let seen = scenario(|| Fallback::value("stale")).typed([step]);
        assert_eq!(seen.result, Ok("stale"));
    }
    let only = || (Fallback::value("stale").when(|error: &Error<Word>| error.is_exhausted()), Retry::immediate());
    let seen = scenario(only).typed([permanent::<Word, Word>("no such user")]);
    assert_eq!((seen.kind(), seen.last()), (Kind::Failed, Some("no such user")));
    assert_eq!(scenario(only).typed([err::<Word, Word>("down")]).result, Ok("stale"));
}

/// Behaviour of a value that is judged a failure: 500 is replaced, 400 is an answer.
#[test]
fn a_bad_value_is_replaced_and_an_answer_is_not() {
    let judge = || {
        classify(|result: &Result<u16, Error<Word>>| match result {
            Ok(500..) => Verdict::Transient,
            Ok(429) => Verdict::Throttled { retry_after: Some(secs(60)) },
            Ok(400..) => Verdict::Permanent,
            Ok(_) => Verdict::Success,
            Err(_) => Verdict::Transient,
        })
    };
    let chain = || (Fallback::value(0), Retry::immediate(), judge());
    for (status, shown, calls) in [(200, 200, 1), (400, 400, 1), (429, 0, 1), (500, 0, 3)] {
        let seen = scenario(chain).typed([ok::<u16, Word>(status)]);
        assert_eq!((seen.result, seen.calls.len()), (Ok(shown), calls), "{status}");
    }
}

#[test]
fn a_function_learns_why_a_bad_value_was_the_last() {
    let (clock, cx) = at_rest();
    for (verdict, kind, pause, text) in [
        (Verdict::Transient, exhausted(Limit::Attempts), None, "gave up: no attempts left (after 3 attempts)"),
        (Verdict::Fatal, Kind::Failed, None, "failed (after 1 attempt)"),
        (
            Verdict::Throttled { retry_after: Some(secs(60)) },
            exhausted(Limit::RetryAfter),
            Some(secs(60)),
            "gave up: the dependency asked for too long a pause (after 1 attempt)",
        ),
    ] {
        let noted = Mutex::new(None);
        let note = fallback(|error: &Error<Word>| {
            let seen = (error.kind(), error.last().copied(), error.retry_after(), error.verdict(), error.to_string());
            *noted.lock().unwrap() = Some(seen);
            async { Ok(0) }
        });
        let policies = (note, Retry::immediate(), classify(move |_: &Result<u16, Error<Word>>| verdict));
        assert_eq!(clock.block_on(try_do(&cx, |_| async { Ok(503) }, policies)).unwrap(), 0);
        assert_eq!(noted.into_inner().unwrap(), Some((kind, None, pause, verdict, text.to_owned())));
    }
}

/// An operation with values that want to be given up with care.
#[derive(Default)]
struct Careful(AtomicU32);

impl Operation<u16, Word> for Careful {
    async fn call(&self, _: Attempt) -> Outcome<u16, Word> {
        Outcome::new(Ok(503), Verdict::Transient)
    }

    async fn discard(&self, value: u16) {
        assert_eq!(value, 503);
        self.0.fetch_add(1, Relaxed);
        std::future::pending::<()>().await;
    }
}

#[test]
fn the_bad_value_is_given_up_and_nobody_waits_for_that() {
    let (_, cx) = at_rest();
    let operation = Careful::default();
    struct Borrowed<'a>(&'a Careful);
    impl Operation<u16, Word> for Borrowed<'_> {
        fn call(&self, attempt: Attempt) -> impl Future<Output = Outcome<u16, Word>> + Send {
            self.0.call(attempt)
        }
        fn discard(&self, value: u16) -> impl Future<Output = ()> + Send {
            self.0.discard(value)
        }
    }
    let run = try_op(&cx, Borrowed(&operation), Fallback::value(0));
    let polled = tokio_test::task::spawn(run).poll();
    assert!(matches!(polled, std::task::Poll::Ready(Ok(0))), "{polled:?}");
    assert_eq!(operation.0.load(Relaxed), 1);
}

#[test]
fn a_fallback_that_fails_says_so_and_what_it_was_for() {
    let (clock, cx) = at_rest();
    let policies = (fallback(|_| async { Err(NotThere("cache")) }), Retry::fixed(secs(1)));
    let error = clock.block_on(try_do(&cx, |_| async { Err::<Word, _>(NotThere("host")) }, policies)).unwrap_err();
    assert_eq!((error.kind(), error.attempts(), error.elapsed()), (Kind::Failed, 3, secs(2)));
    assert_eq!(error.last(), Some(&NotThere("cache")));
    let original = error.original().unwrap();
    assert_eq!((original.kind(), original.last()), (exhausted(Limit::Attempts), Some(&NotThere("host"))));
    assert_eq!(
        format!("{:#}", anyhow::Error::from(error)),
        "the fallback failed too: no cache (after 3 attempts): \
         gave up: no attempts left (after 3 attempts; last error: no host)"
    );
}

#[derive(Debug, PartialEq, thiserror::Error)]
#[error("no {0}")]
struct NotThere(Word);

#[test]
fn what_a_fallback_gives_is_ignored_outside_of_it_and_a_failure_stays_one() {
    let probe = Probe::default();
    let outer = probe.clone();
    let chain = move || (Retry::fixed(secs(1)), outer.clone(), Fallback::value("stale"));
    let seen = scenario(chain).typed([err::<Word, Word>("down")]);
    assert_eq!((seen.result, seen.calls.len()), (Ok("stale"), 1), "retry(fallback): once");
    assert!(probe.verdicts().iter().all(|verdict| *verdict == Verdict::Ignored));

    let probe = Probe::default();
    let outer = probe.clone();
    let chain = move || (Retry::immediate(), outer.clone(), fallback(|_| async { Err("no cache") }));
    let seen = scenario(chain).typed([err::<Word, Word>("down")]);
    assert_eq!((seen.kind(), seen.last(), seen.calls.len()), (exhausted(Limit::Attempts), Some("no cache"), 3));
    assert!(probe.verdicts().iter().all(|verdict| *verdict == Verdict::Transient), "as without it");
}

#[test]
fn it_sees_the_right_error_of_each_policy_inside() {
    let kinds = Mutex::new(Vec::new());
    let note = || {
        fallback(|error: &Error<Word>| {
            kinds.lock().unwrap().push(error.kind());
            async { Ok("stale") }
        })
    };
    let seen = scenario(|| (note(), Refuses::after(0))).typed([ok::<Word, Word>("never asked")]);
    assert_eq!((seen.result, seen.calls.len()), (Ok("stale"), 0), "an open breaker");
    let seen = scenario(|| (note(), Timeout::secs(2))).typed([hangs::<Word, Word>()]);
    assert_eq!((seen.result, seen.took), (Ok("stale"), secs(2)));
    let seen = scenario(|| (note(), Hedge::after(secs(1)))).typed([err::<Word, Word>("down").after(secs(3))]);
    assert_eq!((seen.result, seen.calls.len(), seen.took), (Ok("stale"), 2, secs(4)));
    let seen = scenario(|| (note(), Timeout::secs(2))).typed([err::<Word, Word>("down")]);
    assert_eq!((seen.result, seen.took), (Ok("stale"), secs(0)), "it fails before the limit");
    let mut kinds = kinds.into_inner().unwrap();
    kinds.dedup();
    assert_eq!(kinds, [Refuses::KIND, timed_out(secs(2)), Kind::Failed]);
}

#[test]
fn the_last_error_is_there_when_a_breaker_opens_in_the_middle() {
    let (clock, cx) = at_rest();
    let breaker = Breaker::new(BreakerConfig::default().rule(TripRule::consecutive(2)));
    let last = Mutex::new(None);
    let note = fallback(|error: &Error<Word>| {
        *last.lock().unwrap() = Some((error.is_circuit_open(), error.last().copied(), error.attempts()));
        async { Ok("stale") }
    });
    let policies = (note, Retry::immediate().max_attempts(5), breaker);
    assert_eq!(clock.block_on(try_do(&cx, |_| async { Err("down") }, policies)).unwrap(), "stale");
    assert_eq!(last.into_inner().unwrap(), Some((true, Some("down"), 2)));
}

#[test]
fn a_limit_outside_covers_the_fallback_and_one_inside_does_not() {
    let (clock, cx) = at_rest();
    let calls = AtomicU32::new(0);
    let slow = || counting(&calls, &clock, secs(5), Ok("stale"));
    let start = clock.now();
    let run = try_do(&cx, |_| async { Err("down") }, (Timeout::secs(2), slow()));
    assert_eq!(clock.block_on(run).unwrap_err().kind(), timed_out(secs(2)));
    assert_eq!(clock.now().since(start), secs(2));
    let run = try_do(&cx, |_| async { Err("down") }, (slow(), Timeout::secs(2)));
    assert_eq!((clock.block_on(run).unwrap(), clock.now().since(start)), ("stale", secs(7)));
    assert_eq!(calls.load(Relaxed), 2);
    // The operation hangs: the limit ends it, and what is inside of the limit with it.
    let hangs = |_| std::future::pending::<Result<Word, Word>>();
    let run = try_do(&cx, hangs, (Timeout::secs(2), slow()));
    assert_eq!(clock.block_on(run).unwrap_err().kind(), timed_out(secs(2)));
    assert_eq!(calls.load(Relaxed), 2, "it never runs");
}

#[test]
fn fallback_on_caller_cancel() {
    let calls = AtomicU32::new(0);
    let step_in = || {
        fallback(|_: &Error<Word>| {
            calls.fetch_add(1, Relaxed);
            async { Ok("the second provider") }
        })
    };
    let chain = || (step_in(), Retry::exponential(), Breaker::default());
    let hanging = scenario(chain).cancelled_at(ms(50)).typed([hangs::<Word, Word>()]);
    assert_eq!((hanging.kind(), hanging.took), (Kind::Cancelled, ms(50)));
    // The operation notices it first, or the caller leaves during a wait.
    let noticing = scenario(chain).cancelled_at(ms(50)).typed([err::<Word, _>("cancelled").after(ms(50))]);
    assert_eq!((noticing.kind(), noticing.took), (Kind::Cancelled, ms(50)));
    let slow = || (step_in(), Retry::fixed(secs(10)));
    let waiting = scenario(slow).cancelled_at(secs(2)).typed([err::<Word, _>("down")]);
    assert_eq!((waiting.kind(), waiting.last(), waiting.took), (Kind::Cancelled, Some("down"), secs(2)));
    let late = scenario(step_in).context(|cx| cx.with_timeout(secs(1))).typed([err::<Word, _>("down").after(secs(1))]);
    assert_eq!((late.kind(), late.took), (Kind::DeadlineExceeded, secs(1)));
    assert_eq!(calls.load(Relaxed), 0);

    // A deadline that has not passed yet is no cancellation: the caller waits.
    let soon = scenario(slow).context(|cx| cx.with_timeout(secs(5))).typed([err::<Word, _>("down")]);
    assert_eq!((soon.result, soon.took), (Ok("the second provider"), secs(0)));
}

#[test]
fn an_executor_that_is_shut_down_gives_no_fallback() {
    let (clock, _) = at_rest();
    let calls = AtomicU32::new(0);
    let policies = (counting(&calls, &clock, Duration::ZERO, Ok("stale")), Retry::immediate());
    let executor = Executor::builder("search").policies(policies).clock(&clock).build().unwrap();
    let run = executor.run(|_| {
        executor.shutdown();
        async { Err("the socket is closed") }
    });
    assert_eq!(clock.block_on(run).unwrap_err().kind(), Kind::ShutDown);
    assert_eq!(clock.block_on(executor.run(|_| async { Ok("fresh") })).unwrap_err().kind(), Kind::ShutDown);
    assert_eq!(calls.load(Relaxed), 0);
}

#[test]
fn a_fallback_that_runs_is_cancelled_like_everything_else() {
    let (clock, cx) = at_rest();
    let (calls, token) = (AtomicU32::new(0), CancellationToken::new());
    let cx = cx.with_token(token.clone());
    let mut run =
        tokio_test::task::spawn(try_do(&cx, |_| async { Err("down") }, counting(&calls, &clock, secs(9), Ok("stale"))));
    assert!(run.poll().is_pending());
    assert_eq!((calls.load(Relaxed), clock.sleepers()), (1, 1));
    token.cancel();
    assert!(run.is_woken());
    let std::task::Poll::Ready(Err(error)) = run.poll() else { panic!("it goes on") };
    assert_eq!((error.kind(), error.last()), (Kind::Cancelled, Some(&"down")));
    drop(run);
    assert_eq!(clock.sleepers(), 0);
}

#[test]
fn a_panic_of_the_operation_is_no_failure_to_replace() {
    let (clock, cx) = at_rest();
    let calls = AtomicU32::new(0);
    let chain = counting(&calls, &clock, Duration::ZERO, Ok("stale"));
    let run = try_do(&cx, |_| async { panic!("the operation's own") as Result<Word, Word> }, chain);
    assert!(catch_unwind(AssertUnwindSafe(|| clock.block_on(run))).is_err());
    assert_eq!(calls.load(Relaxed), 0);
}

/// Says that it is set up in a way that cannot work.
struct Broken;

impl Settings for Broken {}

impl<T: Send, E: Send> Policy<T, E> for Broken {
    async fn run<N: Next<T, E>>(&self, _: Call<'_, E>, _: N) -> Outcome<T, E> {
        Outcome::rejected(Error::misconfigured(ConfigError::new("n", 0, "must be positive")))
    }
}

#[test]
fn it_does_not_hide_settings_that_cannot_work() {
    let seen = scenario(|| (Fallback::value("stale"), Broken)).typed([ok::<Word, Word>("fresh")]);
    assert_eq!(seen.kind(), Kind::Misconfigured);
}

#[test]
fn a_judge_outside_of_it_comes_too_late_and_is_refused() {
    let builder = Executor::builder("search").policies((retry_if(|_: &Word| true), Fallback::value("stale")));
    assert!(builder.build().unwrap_err().to_string().contains("outside of Fallback"));
}

#[test]
fn it_fits_boxed_chains_and_goes_around_an_erased_executor() {
    let (clock, cx) = at_rest();
    let boxed: Vec<BoxPolicy<Word, Word>> =
        vec![BoxPolicy::new(Fallback::value("stale")), BoxPolicy::new(Retry::immediate())];
    assert_eq!(clock.block_on(try_do(&cx, |_| async { Err("down") }, boxed)).unwrap(), "stale");
    let lone = BoxPolicy::<Word, Word>::new((fallback(|_| async { Ok("stale") }), Retry::immediate()));
    assert_eq!(clock.block_on(try_do(&cx, |_| async { Err("down") }, Some(lone))).unwrap(), "stale");

    let breaker = Breaker::new(BreakerConfig::default().rule(TripRule::consecutive(3)));
    let policies = (Retry::immediate(), breaker.clone());
    let shop: Executor = Executor::builder("shop").policies(policies).clock(&clock).build().unwrap().erase();
    let titles = shop.around(Fallback::value(vec!["stale"]));
    assert_eq!(clock.block_on(titles.run(|_| async { Err::<Vec<Word>, _>("down") })).unwrap(), vec!["stale"]);
    assert_eq!(breaker.state(), State::Open);
    let price = shop.around(fallback(|error: &Error<Word>| {
        let is_open = error.is_circuit_open();
        async move { if is_open { Ok(7) } else { Err("no price") } }
    }));
    assert_eq!(clock.block_on(price.run_with(&cx, |_| async { Ok(8) })).unwrap(), 7);
    assert_eq!(clock.block_on(price.run_op_with(&cx, op(|_| async { Ok(8) }))).unwrap(), 7);
    let zero = shop.around(Timeout::new(Duration::ZERO));
    let refused = clock.block_on(zero.run(|_| async { Ok::<_, Word>(8) })).unwrap_err();
    assert_eq!((refused.kind(), refused.attempts()), (Kind::Misconfigured, 0));
}

#[test]
fn breaker_without_fallback_stuck() {
    let recovers_after = |with_fallback: bool| {
        let (clock, cx) = at_rest();
        let breaker = Breaker::new(BreakerConfig::default().rule(TripRule::consecutive(2)).open_for(secs(30)));
        let down = AtomicU32::new(1);
        let policies = (with_fallback.then(|| Fallback::value("stale")), breaker.clone());
        let start = clock.now();
        let mut recovered = None;
        for second in 0..60 {
            if second == 10 {
                down.store(0, Relaxed);
            }
            let answer = clock.block_on(try_do(
                &cx,
                |_| async { if down.load(Relaxed) == 1 { Err("down") } else { Ok("fresh") } },
                &policies,
            ));
            if answer.is_ok_and(|answer| answer == "fresh") {
                recovered = recovered.or(Some(clock.now().since(start)));
            }
            clock.advance(secs(1));
        }
        assert_eq!(breaker.state(), State::Closed);
        recovered
    };
    assert_eq!(recovers_after(true), recovers_after(false));
    assert_eq!(recovers_after(true), Some(secs(31)));
}

#[test]
fn an_observer_is_told_and_a_report_says_why_no_more_was_tried() {
    let (clock, _) = at_rest();
    let recorder = Recorder::default();
    let policies = (Fallback::value("stale"), Retry::immediate().max_attempts(2));
    let builder = Executor::builder("search").policies(policies).clock(&clock).observe(recorder.clone());
    let executor = builder.build().unwrap();
    let report = clock.block_on(executor.run_report(op(|_| async { Err::<Word, _>("down") })));
    assert_eq!((report.result.unwrap(), report.attempts), ("stale", 2));
    assert_eq!(report.stopped, Stopped::Limit(Limit::Attempts));
    let events = recorder.events();
    let stepped_in = (1, What::FellBack { error: exhausted(Limit::Attempts) });
    let (end, stopped) = (RunEnd::Value(Verdict::Ignored), Some(report.stopped));
    let finished = (2, What::RunFinished { end, stopped, attempts: 2, elapsed: Duration::ZERO });
    assert_eq!(events[events.len() - 2..], [stepped_in, finished]);
}

#[test]
fn marked_errors_reach_it_without_their_marks() {
    let (clock, cx) = at_rest();
    let words = fallback(|error: &Error<Word>| {
        let word = error.last().copied();
        async move { word.ok_or("nothing was said") }
    });
    let run = try_do(&cx, faults(|_| async { Err::<Word, _>(Fault::Throttled("busy", None)) }), words);
    assert_eq!(clock.block_on(run).unwrap(), "busy");
    let seen = scenario(|| (Fallback::value("stale"), Retry::fixed(secs(1))))
        .typed([throttled::<Word, Word>("busy", secs(99))]);
    assert_eq!((seen.result, seen.took), (Ok("stale"), secs(0)));
}
