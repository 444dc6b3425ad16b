//! Budgets: what a run's retries cost, what is given back, and what becomes of a dependency that is down.

use std::future::pending;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Poll;
use std::time::Duration;

use futures::future::join_all;
use steadfast::breaker::{BreakerConfig, TripRule};
use steadfast::clock::{Clock, ManualClock};
use steadfast::error::{Kind, Limit};
use steadfast::executor::Stopped;
use steadfast::operation::{Operation, faults};
use steadfast::policy::Outcome;
use steadfast::retry::OnRejection;
use steadfast::{Attempt, Breaker, Budget, Classified, Executor, Retry, Timeout, Verdict, op, try_do};

use crate::policies::Refuses;
use crate::support::{Dice, Script, at_rest, err, exhausted, ms, ok, secs, throttled};

/// So many tokens, and no more whatever happens.
fn tokens(n: u32) -> Budget {
    Budget::ratio(0.0).cap(n.max(1)).initial(n).floor(Duration::MAX)
}

async fn down(_: Attempt) -> Result<(), &'static str> {
    Err("down")
}

// --- cases

/// Case `budget-ratio-truncated`.
#[test]
fn budget_ratio_truncated() {
    for (ratio, allowed) in [(0.6, 6), (0.34, 3), (0.9, 9), (0.1, 1)] {
        let budget = Budget::ratio(ratio).initial(0).floor(Duration::MAX);
        (0..10).for_each(|_| drop(budget.first()));
        assert_eq!(budget.available(), allowed, "{ratio}");
        let drawn = (0..10).filter_map(|_| budget.draw()).map(|mut draw| draw.sent()).count();
        assert_eq!(drawn, allowed as usize, "{ratio}");
    }
}

/// Case `budget-not-clamped`. Here a retry is allowed while there is a whole token, not only above half of the cap.
#[test]
fn budget_not_clamped() {
    let (clock, _) = at_rest();
    let chain = Retry::immediate().max_attempts(100);
    let executor = Executor::builder("clamped").policies(chain).clock(&clock).build().unwrap();
    for _ in 0..100_000 {
        clock.block_on(executor.run(async |_| Ok::<_, ()>(()))).unwrap();
    }
    assert_eq!(executor.budget().unwrap().available(), 10);
    assert_eq!(clock.block_on(executor.run(down)).unwrap_err().attempts(), 11);
    // What is left is the tenth of a token that each call adds.
    let attempts = (0..100).map(|_| clock.block_on(executor.run(down)).unwrap_err().attempts());
    assert_eq!(attempts.sum::<u32>(), 110);
}

// --- a run

#[test]
fn a_denied_retry_ends_the_run_with_what_the_last_attempt_said() {
    let (clock, cx) = at_rest();
    let executor = |budget| {
        let chain = (Retry::fixed(secs(1)).max_attempts(9), Timeout::secs(5));
        Executor::builder("poor").policies(chain).budget(budget).clock(&clock).build().unwrap()
    };
    let script = Script::new(&clock, [err::<(), _>("E1"), err("E2"), err("E3")]);
    let report = clock.block_on(executor(tokens(1)).run_report_with(&cx, op(|_| script.call_plain())));
    let error = report.result.unwrap_err();
    assert_eq!((error.kind(), error.last()), (exhausted(Limit::Budget), Some(&"E2")));
    assert_eq!((report.stopped, report.attempts), (Stopped::Limit(Limit::Budget), 2));
    assert_eq!(script.elapsed(), secs(1), "it does not wait for what it will not get");
    assert_eq!(error.verdict(), Verdict::Transient, "a breaker outside sees the failure");

    let error = clock.block_on(executor(tokens(0)).run(|_| pending::<Result<(), ()>>())).unwrap_err();
    assert_eq!(error.kind(), Kind::TimedOut { limit: secs(5) }, "a timeout stays a timeout");
    let busy = Script::new(&clock, [throttled::<(), _>("busy", secs(7))]);
    let error = clock.block_on(executor(tokens(0)).run(faults(|_| busy.call()))).unwrap_err();
    assert_eq!((error.kind(), error.retry_after()), (exhausted(Limit::Budget), Some(secs(7))));
}

struct Unavailable;

impl Operation<u16, ()> for Unavailable {
    async fn call(&self, _: Attempt) -> Outcome<u16, ()> {
        Outcome::new(Ok(503), Verdict::Transient)
    }
}

#[test]
fn a_value_that_stays_bad_is_returned_as_it_is() {
    let (clock, _) = at_rest();
    let builder = Executor::builder("bad").policies(Retry::immediate()).budget(tokens(0));
    let executor = builder.clock(&clock).build().unwrap();
    assert_eq!(clock.block_on(executor.run_op(Unavailable)).unwrap(), 503);
}

#[test]
fn an_executor_has_a_budget_unless_it_is_told_otherwise_and_try_do_has_none() {
    let (clock, cx) = at_rest();
    let builder = || Executor::builder("default").policies(Retry::immediate().max_attempts(9)).clock(&clock);
    assert_eq!(clock.block_on(builder().build().unwrap().run(down)).unwrap_err().attempts(), 3);
    let free = builder().unbudgeted().build().unwrap();
    assert!(free.budget().is_none());
    assert_eq!(clock.block_on(free.run(down)).unwrap_err().attempts(), 9);
    assert_eq!(clock.block_on(try_do(&cx, down, Retry::immediate().max_attempts(9))).unwrap_err().attempts(), 9);
}

#[test]
fn a_budget_is_shared_by_all_that_hold_it() {
    let (clock, _) = at_rest();
    let budget = tokens(6);
    let executor = || {
        let builder = Executor::builder("sharing").policies(Retry::immediate().max_attempts(2)).budget(budget.clone());
        builder.clock(&clock).build().unwrap()
    };
    let (one, two) = (executor(), executor());
    assert_eq!(clock.block_on(one.run(down)).unwrap_err().attempts(), 2);
    assert_eq!(clock.block_on(two.run(down)).unwrap_err().attempts(), 2);
    assert_eq!(clock.block_on(one.clone().run(down)).unwrap_err().attempts(), 2);
    assert_eq!(clock.block_on(two.erase().run(down)).unwrap_err().attempts(), 2);
    assert_eq!(clock.block_on(one.with(Timeout::secs(1)).run(down)).unwrap_err().attempts(), 2);
    assert_eq!((budget.available(), two.budget().unwrap().available()), (1, 1));
}

#[test]
fn the_default_budget_gives_back_a_token_for_ten_calls_or_a_minute() {
    let (clock, _) = at_rest();
    let chain = Retry::immediate().max_attempts(2);
    let executor = Executor::builder("default").policies(chain).clock(&clock).build().unwrap();
    let retries =
        |calls: u32| (0..calls).map(|_| clock.block_on(executor.run(down)).unwrap_err().attempts() - 1).sum::<u32>();
    // Two to begin with; each call that is made adds a tenth before it draws.
    assert_eq!((retries(2), retries(7)), (2, 0));
    assert_eq!((retries(1), retries(9)), (1, 0));
    // Nine tenths are left, and a whole token comes back.
    clock.advance(secs(60));
    assert_eq!((retries(2), retries(8)), (2, 0));
}

// --- what is given back

#[test]
fn a_token_is_given_back_if_no_attempt_follows_the_wait() {
    let (clock, cx) = at_rest();
    let budget = tokens(1);
    let builder = Executor::builder("waits").policies(Retry::fixed(secs(1))).budget(budget.clone());
    let executor = builder.clock(&clock).build().unwrap();
    let mut run = tokio_test::task::spawn(executor.run(down));
    assert!(run.poll().is_pending());
    assert_eq!(budget.available(), 0, "it is taken before the wait");
    drop(run);
    assert_eq!(budget.available(), 1, "the caller left");

    let token = steadfast::CancellationToken::new();
    let cancelled = cx.with_token(token.clone());
    let mut run = tokio_test::task::spawn(executor.run_with(&cancelled, down));
    assert!(run.poll().is_pending());
    token.cancel();
    assert!(matches!(run.poll(), Poll::Ready(Err(error)) if error.kind() == Kind::Cancelled));
    drop(run);
    assert_eq!(budget.available(), 1, "the caller cancelled");

    // The timer wakes the run only after the limit: no attempt is made any more.
    let until = executor.context().with_timeout(ms(1_500));
    let mut run = tokio_test::task::spawn(executor.run_with(&until, down));
    assert!(run.poll().is_pending());
    clock.advance(secs(2));
    assert!(run.poll().is_ready());
    drop(run);
    assert_eq!(budget.available(), 1, "the deadline passed");
}

#[test]
fn a_token_is_used_up_by_an_attempt_that_is_dropped() {
    let (clock, _) = at_rest();
    let budget = tokens(1);
    let builder = Executor::builder("tries").policies(Retry::immediate()).budget(budget.clone());
    let executor = builder.clock(&clock).build().unwrap();
    let mut run = tokio_test::task::spawn(
        executor.run(|attempt| async move { if attempt.is_retry() { pending().await } else { Err::<(), _>("down") } }),
    );
    assert!(run.poll().is_pending());
    drop(run);
    assert_eq!(budget.available(), 0);
}

#[test]
fn a_retry_that_is_refused_before_it_reaches_the_operation_costs_nothing() {
    let (clock, _) = at_rest();
    let budget = tokens(2);
    let retry = Retry::immediate().on_rejection(OnRejection::Wait).max_attempts(9);
    // The second, third and fourth are refused.
    let chain = (retry, Refuses::between(1, 4).without_hint());
    let executor = Executor::builder("refused").policies(chain).budget(budget.clone()).clock(&clock).build().unwrap();
    let script = Script::new(&clock, [err("down"), ok(7)]);
    assert_eq!(clock.block_on(executor.run(|_| script.call_plain())).unwrap(), 7);
    assert_eq!((script.calls().len(), budget.available()), (2, 1));
}

#[test]
fn the_first_attempt_is_free_however_often_it_is_refused() {
    let (clock, _) = at_rest();
    let budget = tokens(0);
    let retry = Retry::immediate().on_rejection(OnRejection::Wait).max_attempts(9);
    let chain = (retry, Refuses::between(0, 3).without_hint());
    let executor = Executor::builder("refused").policies(chain).budget(budget).clock(&clock).build().unwrap();
    assert_eq!(clock.block_on(executor.run(async |_| Ok::<_, ()>(7))).unwrap(), 7);
}

#[test]
fn a_run_that_sends_nothing_adds_nothing() {
    let (clock, _) = at_rest();
    let budget = Budget::ratio(1.0).initial(0).floor(Duration::MAX);
    let breaker = Breaker::new(BreakerConfig::default().rule(TripRule::consecutive(1)));
    let builder = Executor::builder("open").policies((Retry::fixed(secs(1)), breaker)).budget(budget.clone());
    let executor = builder.clock(&clock).build().unwrap();
    for _ in 0..5 {
        clock.block_on(executor.run(down)).unwrap_err();
    }
    // The first call has added a token, and its retry has met the open breaker.
    assert_eq!(budget.available(), 1);
}

// --- in flight

/// Drives a run to its first wait of the kind asked for.
fn start<F: Future>(run: F) -> tokio_test::task::Spawn<F> {
    let mut run = tokio_test::task::spawn(run);
    assert!(run.poll().is_pending());
    run
}

#[test]
fn in_flight_retries_are_a_share_of_the_runs_in_flight() {
    let (clock, _) = at_rest();
    let budget = Budget::concurrent(0.2).min(1);
    let builder = Executor::builder("in flight").policies(Retry::fixed(secs(1))).budget(budget.clone());
    let executor = builder.clock(&clock).build().unwrap();
    let running: Vec<_> = (0..15).map(|_| start(executor.run(|_| pending::<Result<(), &str>>()))).collect();
    assert_eq!(budget.available(), 3);
    let retrying: Vec<_> = (0..3).map(|_| start(executor.run(down))).collect();
    assert_eq!(budget.available(), 0);
    let error = clock.block_on(executor.run(down)).unwrap_err();
    assert_eq!((error.kind(), error.attempts()), (exhausted(Limit::Budget), 1));
    drop(running);
    assert_eq!(budget.available(), 0, "of three runs a fifth is none, and one is always allowed");
    drop(retrying);
    assert_eq!(budget.available(), 1);
}

/// Looks at a budget when it is dropped.
struct Looks<'a>(&'a Budget, &'a std::sync::Mutex<Vec<u32>>);

impl Drop for Looks<'_> {
    fn drop(&mut self) {
        self.1.lock().unwrap().push(self.0.available());
    }
}

#[test]
fn a_retry_that_is_dropped_holds_its_place_until_its_try_is_gone() {
    let (clock, _) = at_rest();
    let budget = Budget::concurrent(0.0).min(1);
    let chain = Retry::fixed(secs(1));
    let builder = Executor::builder("places").policies(chain).budget(budget.clone());
    let executor = builder.clock(&clock).build().unwrap();
    let seen = std::sync::Mutex::default();
    let mut run = start(executor.run(|attempt| {
        let looks = Looks(&budget, &seen);
        async move {
            let _looks = looks;
            if attempt.is_retry() { pending().await } else { Err::<(), _>("down") }
        }
    }));
    clock.advance(secs(2));
    assert!(run.poll().is_pending());
    drop(run);
    assert_eq!(*seen.lock().unwrap(), [1, 0], "the first try holds nothing, the retry its place");
    assert_eq!(budget.available(), 1);
}

#[test]
fn an_in_flight_place_is_given_back_wherever_the_run_is_dropped() {
    let (clock, _) = at_rest();
    let budget = Budget::concurrent(1.0).min(0);
    let dropped_after = |polls: usize| {
        let chain = (Retry::fixed(ms(10)).max_attempts(4), Timeout::millis(30));
        let executor =
            Executor::builder("dropped").policies(chain).budget(budget.clone()).clock(&clock).build().unwrap();
        let calls = AtomicU32::new(0);
        let mut run = tokio_test::task::spawn(executor.run(|_| async {
            clock.clock().sleep(ms(5)).await;
            if calls.fetch_add(1, Ordering::Relaxed) == 1 { pending().await } else { Err::<(), _>("down") }
        }));
        let mut is_pending = true;
        for _ in 0..polls {
            is_pending = run.poll().is_pending();
            if !is_pending {
                break;
            }
            if !run.is_woken() {
                assert!(clock.advance_to_next());
            }
        }
        assert_eq!(calls.load(Ordering::Relaxed) >= 4, !is_pending);
        drop(run);
        // Nothing is left: a run of its own allows one place, and no more than that.
        let (_first, place) = (budget.first(), budget.draw());
        assert!(place.is_some() && budget.draw().is_none(), "dropped after {polls} polls");
        is_pending
    };
    let pending_polls = (0..1_000).take_while(|polls| dropped_after(*polls)).count();
    assert!(pending_polls > 8, "the scenario has {pending_polls} polls");
}

// --- a dependency in trouble

/// How many attempts there were for each call, and the share of calls that succeeded, of clients that make calls a second
/// for a minute, evenly spread and out of step with each other.
fn a_minute(clients: u32, rate: f64, failures: f64, is_budgeted: bool) -> (f64, f64) {
    let (clock, _) = at_rest();
    let dice = Dice::new(7);
    let attempts = AtomicU32::new(0);
    let operation = |_| {
        attempts.fetch_add(1, Ordering::Relaxed);
        let failed = dice.unit() < failures;
        async move { if failed { Err(()) } else { Ok(()) } }
    };
    let executors: Vec<_> = (0..clients).map(|client| executor(&clock, client, is_budgeted)).collect();
    let calls = (60.0 * rate).round() as u32;
    let runs = executors.iter().enumerate().flat_map(|(client, executor)| {
        let (clock, operation) = (&clock, &operation);
        let offset = client as f64 / f64::from(clients);
        (0..calls).map(move |nth| async move {
            let at = Duration::from_secs_f64((f64::from(nth) + offset) / rate);
            clock.clock().sleep(at).await;
            executor.run(operation).await.is_ok()
        })
    });
    let ended = clock.block_on(join_all(runs));
    let succeeded = ended.iter().filter(|ok| **ok).count();
    let made = ended.len() as f64;
    (f64::from(attempts.into_inner()) / made, succeeded as f64 / made)
}

fn executor(clock: &ManualClock, client: u32, is_budgeted: bool) -> Executor<(Retry, Timeout)> {
    let chain = (Retry::exponential(), Timeout::secs(2));
    let builder = Executor::builder("client").policies(chain).clock(clock).seed(client.into());
    if is_budgeted { builder } else { builder.unbudgeted() }.build().unwrap()
}

#[test]
fn a_total_outage_costs_a_dependency_little_more_than_the_calls_themselves() {
    let (load, succeeded) = a_minute(10, 10.0, 1.0, true);
    assert!(load <= 1.15 && succeeded == 0.0, "{load}");
    let (load, _) = a_minute(10, 10.0, 1.0, false);
    assert_eq!(load, 3.0);
}

#[test]
fn a_thousand_small_clients_cannot_start_a_storm_either() {
    let (load, _) = a_minute(1_000, 0.1, 1.0, true);
    assert!(load <= 1.5, "{load}");
}

#[test]
fn single_failures_are_still_mended() {
    let (load, succeeded) = a_minute(10, 10.0, 0.05, true);
    assert!(succeeded >= 0.999 && load < 1.07, "{succeeded} at {load}");
    let (_, without) = a_minute(1_000, 0.1, 0.05, true);
    assert!(without >= 0.999, "{without}");
}

// --- threads

#[test]
fn threads_that_share_a_budget_never_draw_more_than_there_is() {
    let budget = Budget::ratio(0.25).cap(1_000).initial(0).floor(Duration::MAX);
    let drawn = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..1_000 {
                    drop(budget.first());
                    drop(budget.draw());
                    if let Some(mut draw) = budget.draw() {
                        draw.sent();
                        drawn.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    assert_eq!(drawn.into_inner() + budget.available(), 1_000);
}

// --- settings

#[test]
fn settings_that_cannot_work_are_refused() {
    let refused = [
        (Budget::ratio(f64::NAN), "ratio"),
        (Budget::ratio(-0.1), "ratio"),
        (Budget::ratio(f64::INFINITY), "ratio"),
        (Budget::ratio(11.0), "ratio"),
        (Budget::ratio(0.000_01), "ratio"),
        (Budget::ratio(0.1).cap(0), "cap"),
        (Budget::ratio(0.1).cap(400_001), "cap"),
        (Budget::ratio(0.1).cap(1), "initial"),
        (Budget::ratio(0.1).initial(11), "initial"),
        (Budget::ratio(0.1).floor(Duration::ZERO), "floor"),
        (Budget::ratio(0.1).min(3), "min"),
        (Budget::concurrent(1.1), "ratio"),
        (Budget::concurrent(0.2).cap(3), "cap"),
        (Budget::concurrent(0.2).initial(3), "initial"),
        (Budget::concurrent(0.2).floor(secs(1)), "floor"),
    ];
    for (budget, field) in refused {
        assert_eq!(budget.check().unwrap_err().field(), field);
        assert_eq!(Executor::builder("refused").budget(budget).build().unwrap_err().field(), field);
    }
    for budget in [Budget::default(), Budget::ratio(0.0), Budget::ratio(10.0), Budget::concurrent(1.0).min(0)] {
        budget.check().unwrap();
    }
}

#[test]
fn a_budget_keeps_to_one_clock() {
    let (clock, _) = at_rest();
    let budget = Budget::default();
    Executor::builder("here").budget(budget.clone()).clock(&clock).build().unwrap();
    let elsewhere = Executor::builder("there").budget(budget).clock(Clock::manual()).build();
    assert_eq!(elsewhere.unwrap_err().field(), "clock");
}
