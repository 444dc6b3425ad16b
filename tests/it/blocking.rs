//! Code that is not async, through the same chains. That it gives the same results as `run` is shown by all scenarios of
//! `support.rs`; here is what is different.

use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use steadfast::breaker::{BreakerConfig, State, TripRule};
use steadfast::clock::Clock;
use steadfast::error::{Kind, Limit};
use steadfast::executor::Stopped;
use steadfast::limit::BulkheadConfig;
use steadfast::operation::{Fault, FaultExt};
use steadfast::policy::{Call, Next, Outcome, Policy, Settings};
use steadfast::{
    Attempt, Breaker, Bulkhead, CancellationToken, Context, Executor, Fallback, Hedge, Retry, Timeout, Verdict,
};

use crate::support::{at_rest, exhausted, ms, secs, timed_out};

type Word = &'static str;

fn executor<P: Settings>(clock: impl Into<Clock>, policies: P) -> Executor<P> {
    Executor::builder("billing").policies(policies).clock(clock).build().unwrap()
}

#[test]
fn a_function_may_change_what_it_captures_and_is_called_once_for_each_try() {
    let (clock, _) = at_rest();
    let start = clock.now();
    let mut tries = Vec::new();
    let answer = executor(&clock, Retry::fixed(secs(1))).run_blocking(|attempt| {
        tries.push((attempt.number(), clock.now().since(start)));
        if tries.len() < 3 { Err("busy") } else { Ok(tries.len()) }
    });
    assert_eq!(answer.unwrap(), 3);
    assert_eq!(tries, [(1, secs(0)), (2, secs(1)), (3, secs(2))]);
}

#[test]
fn errors_say_what_they_are_worth_as_everywhere() {
    let (clock, _) = at_rest();
    let billing = executor(&clock, Retry::fixed(secs(1)));
    let parse = |text: &str| Outcome::from(text.parse::<u32>().permanent());
    let error: steadfast::Error<std::num::ParseIntError> = billing.run_blocking(|_| parse("seven")).unwrap_err();
    assert_eq!((error.kind(), error.attempts()), (Kind::Failed, 1));
    let throttled = || Outcome::<u32, Word>::from(Err(Fault::Throttled("busy", Some(secs(99)))));
    let report = billing.run_blocking_report(&Context::new(), |_| throttled());
    assert_eq!((report.attempts, report.stopped), (1, Stopped::Limit(Limit::RetryAfter)));
    assert_eq!(report.result.unwrap_err().retry_after(), Some(secs(99)));
}

#[test]
fn a_result_that_comes_too_late_is_returned_and_counts_as_slow() {
    let (clock, _) = at_rest();
    let breaker = Breaker::new(BreakerConfig::default().rule(TripRule::slow_rate(1.0).slow_call(secs(2))));
    let billing = executor(&clock, (Retry::immediate(), breaker.clone(), Timeout::secs(3)));
    let late = billing.run_blocking(|attempt| {
        assert_eq!(attempt.remaining(), Some(secs(3)));
        clock.advance(secs(5));
        assert_eq!(attempt.remaining(), Some(Duration::ZERO), "it can look");
        Ok::<_, Word>("late")
    });
    assert_eq!(late.unwrap(), "late");
    assert_eq!((breaker.counts().calls, breaker.counts().slow, breaker.counts().failures), (1, 1, 0));
}

#[test]
fn a_limit_that_passes_is_seen_between_the_attempts() {
    let (clock, _) = at_rest();
    let start = clock.now();
    let billing = executor(&clock, (Timeout::secs(10), Retry::fixed(secs(1)).max_attempts(9)));
    let slow = |_: Attempt| {
        clock.advance(secs(4));
        Err::<(), _>("busy")
    };
    let error = billing.run_blocking(slow).unwrap_err();
    // The second attempt leaves no time for another wait.
    assert_eq!((error.kind(), error.attempts(), error.last()), (exhausted(Limit::Deadline), 2, Some(&"busy")));
    assert_eq!(clock.now().since(start), secs(9));

    let cx = Context::new().with_clock(&clock).with_timeout(secs(5));
    let late = billing.run_blocking_with(&cx, slow).unwrap_err();
    assert_eq!((late.kind(), late.attempts()), (exhausted(Limit::Deadline), 1));
    let too_late = billing.run_blocking_with(&cx, slow).unwrap_err();
    assert_eq!((too_late.kind(), too_late.attempts()), (Kind::DeadlineExceeded, 1), "it failed after its deadline");
    let never = billing.run_blocking_with(&cx, slow).unwrap_err();
    assert_eq!((never.kind(), never.attempts()), (Kind::DeadlineExceeded, 0));
}

#[test]
fn a_limit_ends_a_wait_for_a_place() {
    let (clock, _) = at_rest();
    let places = Bulkhead::with(BulkheadConfig::new(1).queue(1).max_wait(secs(60)));
    let billing = executor(&clock, (Timeout::secs(3), places.clone()));
    let held = places.try_acquire().unwrap();
    let start = clock.now();
    let error = billing.run_blocking(|_| Ok::<(), Word>(())).unwrap_err();
    assert_eq!((error.kind(), error.attempts(), clock.now().since(start)), (timed_out(secs(3)), 0, secs(3)));
    assert_eq!((places.queued(), clock.sleepers()), (0, 0));
    drop(held);
    assert_eq!(billing.run_blocking(|_| Ok::<_, Word>(7)).unwrap(), 7);
}

/// Real threads and real time from here on, of which nothing waits for more than a moment.
fn real<P: Settings>(policies: P) -> Executor<P> {
    executor(Clock::tokio(), policies)
}

#[test]
fn the_default_clock_needs_no_runtime() {
    for clock in [Clock::tokio(), Clock::fast()] {
        let billing = executor(clock.clone(), (Retry::fixed(ms(2)), Breaker::default(), Timeout::secs(60)));
        let start = clock.now();
        let mut calls = 0;
        let answer = billing.run_blocking(|_| {
            calls += 1;
            if calls < 3 { Err("busy") } else { Ok("there") }
        });
        assert_eq!(answer.unwrap(), "there");
        assert!(clock.now().since(start) >= ms(4), "{clock:?}");
    }
}

#[test]
fn a_deadline_that_is_handed_on_can_be_waited_for_elsewhere() {
    let (send, receive) = mpsc::channel();
    let billing = real(Timeout::secs(60));
    billing.run_blocking(|attempt| send.send(attempt.deadline().unwrap()).map_err(drop)).unwrap();
    let deadline = receive.recv().unwrap();
    assert_eq!(deadline.clock(), &Clock::tokio());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async { deadline.clock().sleep(ms(1)).await });
}

#[test]
fn a_token_and_a_shutdown_wake_the_thread() {
    for by_token in [true, false] {
        let billing = real(Retry::fixed(secs(3600)));
        let token = CancellationToken::new();
        let cx = Context::new().with_token(token.clone());
        let (called, was_called) = mpsc::channel();
        let error = thread::scope(|scope| {
            let run = scope.spawn(|| {
                billing.run_blocking_with(&cx, |_| {
                    called.send(()).unwrap();
                    Err::<(), _>("busy")
                })
            });
            was_called.recv().unwrap();
            // It has noticed, or is about to wait and looks then.
            if by_token {
                token.cancel();
            } else {
                billing.shutdown();
            }
            run.join().unwrap().unwrap_err()
        });
        let kind = if by_token { Kind::Cancelled } else { Kind::ShutDown };
        assert_eq!((error.kind(), error.last(), error.attempts()), (kind, Some(&"busy"), 1));
        assert_eq!(billing.waiting(), 0);
    }
}

#[test]
fn a_place_that_becomes_free_wakes_the_thread_that_waits_for_it() {
    let places = Bulkhead::with(BulkheadConfig::new(1).queue(8).max_wait(secs(3600)));
    let billing = real(places.clone());
    let (inside, most) = (AtomicU32::new(0), AtomicU32::new(0));
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..50 {
                    let done = billing.run_blocking(|_| {
                        most.fetch_max(inside.fetch_add(1, Relaxed) + 1, Relaxed);
                        thread::yield_now();
                        inside.fetch_sub(1, Relaxed);
                        Ok::<_, Word>(())
                    });
                    done.unwrap();
                }
            });
        }
    });
    assert_eq!((most.into_inner(), places.in_flight(), places.queued()), (1, 0, 0));
}

/// One breaker, on one clock, for both ways of running.
#[test]
fn state_is_shared_with_runs_that_are_async() {
    let (clock, cx) = at_rest();
    let breaker = Breaker::new(BreakerConfig::default().rule(TripRule::consecutive(2)).open_for(secs(30)));
    let billing = executor(&clock, breaker.clone());
    assert!(billing.run_blocking(|_| Err::<(), _>("down")).is_err());
    assert!(clock.block_on(billing.run_with(&cx, |_| async { Err::<(), _>("down") })).is_err());
    assert_eq!(breaker.state(), State::Open);
    assert!(billing.run_blocking(|_| Ok::<_, Word>(())).unwrap_err().is_circuit_open());
    clock.advance(secs(30));
    assert_eq!(billing.run_blocking(|_| Ok::<_, Word>(7)).unwrap(), 7);
    assert_eq!(breaker.state(), State::Closed);
}

#[tokio::test]
async fn within_a_runtime_it_blocks_its_thread_and_nothing_else() {
    let billing = real((Retry::fixed(ms(1)), Timeout::secs(60)));
    let mut calls = 0;
    let answer = billing.run_blocking(|_| {
        calls += 1;
        if calls < 3 { Err("busy") } else { Ok("there") }
    });
    assert_eq!(answer.unwrap(), "there");
    assert_eq!(billing.run(|_| async { Ok::<_, Word>(7) }).await.unwrap(), 7);
}

#[tokio::test(start_paused = true)]
async fn within_a_runtime_whose_time_stands_still_it_does_not_hang() {
    let billing = real((Timeout::secs(60), Retry::fixed(ms(1))));
    let error = billing.run_blocking(|_| Err::<(), _>("busy")).unwrap_err();
    assert_eq!((error.kind(), error.attempts()), (exhausted(Limit::Attempts), 3));
}

#[test]
fn it_is_never_hedged_and_may_be_repeated() {
    let (clock, _) = at_rest();
    let mut lanes = Vec::new();
    let billing = executor(&clock, (Retry::immediate(), Hedge::after(Duration::ZERO)));
    let error = billing.run_blocking(|attempt| {
        lanes.push((attempt.number(), attempt.hedge()));
        Err::<(), _>("busy")
    });
    assert_eq!((error.unwrap_err().attempts(), lanes), (3, vec![(1, 0), (2, 0), (3, 0)]));
}

/// Calls the rest of the chain from within itself.
struct Doubles;

impl Settings for Doubles {}

impl<T: Send, E: Send> Policy<T, E> for Doubles {
    async fn run<N: Next<T, E>>(&self, call: Call<'_, E>, next: N) -> Outcome<T, E> {
        assert!(next.repeat(None).is_err());
        let outcome = next.call(call).await;
        assert!(next.repeat(Some(&outcome)).is_ok());
        outcome
    }
}

#[test]
fn a_policy_of_ones_own_is_told_that_it_may_not_start_two_at_once() {
    let (clock, _) = at_rest();
    assert_eq!(executor(&clock, Doubles).run_blocking(|_| Ok::<_, Word>(7)).unwrap(), 7);
}

#[test]
fn a_panic_reaches_the_caller_and_everything_is_given_back() {
    let (clock, _) = at_rest();
    let (places, breaker) = (Bulkhead::new(1), Breaker::new(BreakerConfig::default().rule(TripRule::consecutive(1))));
    let billing = executor(&clock, (Retry::immediate(), places.clone(), breaker.clone()));
    let run = || billing.run_blocking(|_| panic!("the function's own") as Result<(), Word>);
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).is_err());
    assert_eq!((places.in_flight(), breaker.state()), (0, State::Open));
}

#[test]
fn a_fallback_and_an_erased_chain_work_too() {
    let (clock, _) = at_rest();
    let shop = executor(&clock, (Fallback::value("stale"), Retry::fixed(secs(1))));
    assert_eq!(shop.run_blocking(|_| Err::<Word, Word>("down")).unwrap(), "stale");
    let erased: Executor = executor(&clock, Retry::fixed(secs(1))).erase();
    assert_eq!(erased.run_blocking(|_| Err::<Word, Word>("down")).unwrap_err().attempts(), 3);
    // What a function keeps for itself need not be fit for another thread.
    let local = erased.run_blocking(|_| Ok::<_, Word>(*Rc::new(7)));
    assert_eq!(local.unwrap(), 7);
}

#[test]
fn a_cancelled_context_and_a_closed_executor_run_nothing() {
    let (clock, cx) = at_rest();
    let billing = executor(&clock, Retry::immediate());
    let token = CancellationToken::new();
    token.cancel();
    let never = |_: Attempt| -> Result<(), Word> { panic!("it runs") };
    let error = billing.run_blocking_with(&cx.with_token(token), never).unwrap_err();
    assert_eq!((error.kind(), error.attempts()), (Kind::Cancelled, 0));
    billing.close();
    assert_eq!(billing.run_blocking(never).unwrap_err().kind(), Kind::ShutDown);
    assert_eq!(Verdict::Ignored, steadfast::Classified::verdict(&error));
}
