//! Hedges: when a lane starts, which outcome ends the try, and what becomes of the others.

use std::future::pending;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use steadfast::breaker::{Breaker, BreakerConfig, State, TripRule};
use steadfast::clock::{Clock, ManualClock};
use steadfast::error::{Kind, Limit};
use steadfast::event::What;
use steadfast::executor::Stopped;
use steadfast::judge::classify;
use steadfast::limit::{Bulkhead, BulkheadConfig};
use steadfast::operation::{Fault, Operation, faults, with_state, with_token};
use steadfast::policy::Outcome;
use steadfast::{
    Attempt, Budget, CancellationToken, Error, Executor, Hedge, Retry, Timeout, Verdict, op, try_do, try_op,
};

use crate::policies::{End, Probe, Refuses};
use crate::support::{
    Recorder, Script, Step, at_rest, beside, ends, err, hangs, ms, ok, permanent, scenario, secs, throttled, timed_out,
};

/// The delay of most hedges here.
const DELAY: Duration = Duration::from_millis(100);

fn hedge() -> Hedge {
    Hedge::after(DELAY)
}

/// A budget that allows nothing.
fn used_up() -> Budget {
    Budget::ratio(0.0).initial(0).floor(Duration::MAX)
}

// --- when a lane starts

#[test]
fn a_call_that_ends_before_the_delay_is_not_hedged() {
    for took in [ms(0), ms(99), DELAY] {
        let seen = scenario(hedge).everywhere([ok::<_, ()>(7).after(took)]);
        assert_eq!((seen.result, seen.calls, seen.took), (Ok(7), vec![ms(0)], took));
    }
}

#[test]
fn a_slow_call_is_hedged_after_exactly_the_delay() {
    let seen = scenario(hedge).everywhere([hangs::<_, ()>(), ok(7).after(ms(5))]);
    assert_eq!((seen.result, seen.calls, seen.took), (Ok(7), vec![ms(0), DELAY], ms(105)));
}

#[test]
fn hedges_start_one_delay_after_another_up_to_the_most_and_the_first_lane_may_still_win() {
    let seen = scenario(|| hedge().max(2)).everywhere([ok::<_, ()>(0).after(ms(900)), hangs(), hangs(), ok(3)]);
    assert_eq!((seen.result, seen.calls, seen.took), (Ok(0), vec![ms(0), DELAY, 2 * DELAY], ms(900)));
}

#[test]
fn the_third_lane_may_win() {
    let seen = scenario(|| hedge().max(2)).everywhere([hangs::<_, ()>(), hangs(), ok(2)]);
    assert_eq!((seen.result, seen.took), (Ok(2), 2 * DELAY));
    let seen = scenario(|| Hedge::after(Duration::ZERO).max(2)).everywhere([hangs::<_, ()>(), hangs(), ok(2)]);
    assert_eq!((seen.result, seen.calls), (Ok(2), vec![ms(0); 3]), "a delay of zero starts all at once");
}

#[test]
fn a_delay_without_end_starts_the_next_lane_only_after_a_failure() {
    let chain = || Hedge::after(Duration::MAX).max(3);
    let seen = scenario(chain).everywhere([err("E1").after(ms(300)), err("E2").after(ms(200)), ok(7).after(ms(100))]);
    assert_eq!((seen.result, seen.calls, seen.took), (Ok(7), vec![ms(0), ms(300), ms(500)], ms(600)));
}

#[test]
fn a_failure_starts_the_next_lane_without_waiting_for_the_delay() {
    let seen = scenario(hedge).everywhere([err("E1").after(ms(30)), ok(7).after(ms(30))]);
    assert_eq!((seen.result, seen.calls, seen.took), (Ok(7), vec![ms(0), ms(30)], ms(60)));
    let seen = scenario(|| hedge().max(5)).everywhere([err("E"), err("E"), ok(7)]);
    assert_eq!((seen.result, seen.calls, seen.took), (Ok(7), vec![ms(0); 3], ms(0)), "within one poll");
}

#[test]
fn after_a_failure_the_delay_begins_anew() {
    let seen = scenario(|| hedge().max(2)).everywhere([err("E1").after(ms(30)), hangs(), ok(7)]);
    assert_eq!((seen.result, seen.calls), (Ok(7), vec![ms(0), ms(30), ms(130)]));
}

#[test]
fn a_computed_delay_is_asked_for_each_lane_that_starts() {
    let lanes = || {
        Hedge::with(|attempt| match attempt.hedge() {
            0 => Some(ms(20)),
            1 => Some(ms(70)),
            _ => None,
        })
        .max(9)
    };
    let seen = scenario(lanes).everywhere([ok::<_, ()>(7).after(secs(1)), hangs()]);
    assert_eq!((seen.result, seen.calls), (Ok(7), vec![ms(0), ms(20), ms(90)]));
}

#[test]
fn a_computed_delay_of_none_means_no_hedge_even_after_a_failure() {
    let seen = scenario(|| Hedge::with(|_| None)).everywhere([err::<(), _>("E1").after(ms(30)), ok(())]);
    assert_eq!((seen.kind(), seen.last(), seen.took), (Kind::Failed, Some("E1"), ms(30)));
    let seen = scenario(|| Hedge::with(|_| None)).everywhere([ok::<_, ()>(7).after(secs(9)), ok(8)]);
    assert_eq!((seen.result, seen.took), (Ok(7), secs(9)));
}

#[test]
fn a_panic_in_a_computed_delay_reaches_the_caller_and_leaves_nothing() {
    let (clock, cx) = at_rest();
    let chain = Hedge::with(|attempt| if attempt.is_hedge() { panic!("second thoughts") } else { Some(DELAY) }).max(2);
    let run = || clock.block_on(try_do(&cx, |_| pending::<Result<(), ()>>(), &chain));
    assert!(catch_unwind(AssertUnwindSafe(run)).is_err());
    assert_eq!(clock.sleepers(), 0);
}

#[test]
fn the_operation_sees_its_lane() {
    let (clock, cx) = at_rest();
    let seen = Mutex::new(Vec::new());
    let run = try_do(
        &cx,
        |attempt: Attempt| {
            seen.lock().unwrap().push((attempt.number(), attempt.hedge(), attempt.is_hedge(), attempt.is_retry()));
            async { Err::<(), _>("down") }
        },
        (Retry::immediate().max_attempts(2), Hedge::after(DELAY)),
    );
    let error = clock.block_on(run).unwrap_err();
    let seen = seen.into_inner().unwrap();
    assert_eq!(seen, [(1, 0, false, false), (1, 1, true, false), (2, 0, false, true), (2, 1, true, true)]);
    assert_eq!(error.attempts(), 4, "every lane was an attempt");
}

// --- which outcome ends the try

fn fault(fault: Fault<&'static str>) -> Step<u32, &'static str> {
    ends(Err(fault))
}

/// The table at `Hedge`, for a first lane that ends before and after its hedge has started.
#[test]
fn success_permanent_fatal_and_ignored_decide_wherever_they_come_from() {
    let deciding = [ok(7), permanent("E"), fault(Fault::Fatal("E")), fault(Fault::Ignored("E"))];
    for step in deciding {
        let seen = scenario(|| hedge().max(3)).everywhere([step.clone().after(ms(50)), ok(8)]);
        assert_eq!((seen.calls, seen.took), (vec![ms(0)], ms(50)), "{step:?}");
        let seen = scenario(hedge).everywhere([step.clone().after(ms(150)), hangs()]);
        assert_eq!((seen.calls, seen.took), (vec![ms(0), DELAY], ms(150)), "{step:?}");
        let seen = scenario(hedge).everywhere([hangs(), step.clone().after(ms(50))]);
        assert_eq!((seen.calls, seen.took), (vec![ms(0), DELAY], ms(150)), "{step:?}");
    }
}

#[test]
fn a_throttled_lane_is_held_and_nothing_more_starts() {
    let asked = || throttled("busy", secs(30));
    let seen = scenario(|| hedge().max(3)).everywhere([asked().after(ms(50)), ok(8)]);
    assert_eq!((seen.last(), seen.calls.clone(), seen.took), (Some("busy"), vec![ms(0)], ms(50)));
    let seen = scenario(|| hedge().max(3)).everywhere([ok(7).after(ms(500)), asked(), ok(8)]);
    assert_eq!((seen.result, seen.calls, seen.took), (Ok(7), vec![ms(0), DELAY], ms(500)));
}

#[test]
fn a_rejected_lane_is_held_and_nothing_more_starts() {
    let chain = || (hedge().max(3), Refuses::after(1));
    let seen = scenario(chain).everywhere([ok::<_, ()>(7).after(ms(500))]);
    assert_eq!((seen.result, seen.calls, seen.took), (Ok(7), vec![ms(0)], ms(500)));
    let seen = scenario(|| (hedge().max(3), Refuses::after(0))).everywhere([ok::<_, ()>(7)]);
    assert_eq!((seen.kind(), seen.took), (Refuses::KIND, ms(0)), "there was nothing else");
    let seen = scenario(|| (hedge().max(3), Refuses::between(0, 1))).everywhere([ok::<_, ()>(7)]);
    assert_eq!((seen.kind(), seen.calls.len()), (Refuses::KIND, 0), "a refusal starts no hedge");
}

#[test]
fn if_all_lanes_fail_the_lowest_ones_outcome_is_returned_even_if_it_ends_last() {
    let seen = scenario(hedge).everywhere([err::<(), _>("E1").after(ms(500)), err("E2").after(ms(10))]);
    assert_eq!((seen.last(), seen.took, seen.failure().attempts), (Some("E1"), ms(500), 2));
    let seen = scenario(|| hedge().max(2)).everywhere([err::<(), _>("E1").after(ms(10)), err("E2"), err("E3")]);
    assert_eq!((seen.kind(), seen.last(), seen.calls.len()), (Kind::Failed, Some("E1"), 3));
}

#[test]
fn a_rejection_is_returned_only_if_nothing_else_happened() {
    // The first lane is refused late, by a policy inside; its hedge fails.
    let lanes = || (hedge(), Timeout::with(|attempt| if attempt.is_hedge() { secs(9) } else { ms(150) }), Slow);
    let seen = scenario(lanes).everywhere([err::<(), _>("E2")]);
    assert_eq!((seen.kind(), seen.last(), seen.took), (Kind::Failed, Some("E2"), ms(150)));
}

/// Keeps the first lane from its operation.
struct Slow;

impl steadfast::policy::Settings for Slow {}

impl<T: Send, E: Send> steadfast::Policy<T, E> for Slow {
    async fn run<N: steadfast::policy::Next<T, E>>(
        &self,
        call: steadfast::policy::Call<'_, E>,
        next: N,
    ) -> Outcome<T, E> {
        if call.hedge() == 0 {
            pending::<()>().await;
        }
        next.call(call).await
    }
}

/// Case `hedge-first-error-wins`.
#[test]
fn hedge_first_error_wins() {
    let seen = scenario(hedge).everywhere([err("E1").after(ms(120)), ok(7).after(ms(150))]);
    assert_eq!((seen.result, seen.calls, seen.took), (Ok(7), vec![ms(0), DELAY], ms(250)));
}

/// Whoever is good first decides, and a failure decides nothing while another lane runs.
#[test]
fn fast_and_slow_good_and_bad_lanes_in_all_combinations() {
    let lane = |is_fast: bool, is_good: bool, value: u32| {
        let step = if is_good { ok(value) } else { err("E") };
        step.after(if is_fast { ms(10) } else { ms(400) })
    };
    for bits in 0..16 {
        let [first_fast, first_good, second_fast, second_good] = [0, 1, 2, 3].map(|bit| bits >> bit & 1 == 1);
        let steps = [lane(first_fast, first_good, 0), lane(second_fast, second_good, 1)];
        let seen = scenario(hedge).everywhere(steps);
        let first_ends = if first_fast { ms(10) } else { ms(400) };
        let second_starts = DELAY.min(first_ends);
        let second_ends = second_starts + if second_fast { ms(10) } else { ms(400) };
        let good = [(first_good, first_ends, 0), (second_good, second_ends, 1)];
        let first = good.into_iter().filter(|(is_good, ..)| *is_good).min_by_key(|(_, ends, _)| *ends);
        match first {
            Some((_, ends, value)) => assert_eq!((&seen.result, seen.took), (&Ok(value), ends), "{bits:04b}"),
            None => assert_eq!((seen.last(), seen.took), (Some("E"), first_ends.max(second_ends)), "{bits:04b}"),
        }
    }
}

#[test]
fn a_verdict_that_forbids_more_attempts_ends_the_try() {
    let stopping = Stopping(AtomicU32::new(0));
    let (clock, cx) = at_rest();
    let error = clock.block_on(try_op(&cx, &stopping, hedge().max(5))).unwrap_err();
    assert_eq!((error.last(), stopping.0.into_inner()), (Some(&"E"), 1));
}

struct Stopping(AtomicU32);

impl Operation<(), &'static str> for &Stopping {
    async fn call(&self, _: Attempt) -> Outcome<(), &'static str> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Outcome::failed("E", Verdict::Transient).stop()
    }
}

// --- what is never hedged

#[test]
fn a_trial_of_a_half_open_breaker_outside_is_not_hedged() {
    let (clock, cx) = at_rest();
    let breaker = Breaker::new(BreakerConfig::default().rule(TripRule::consecutive(1)).open_for(secs(1)));
    let chain = (breaker.clone(), Hedge::after(DELAY));
    assert!(clock.block_on(try_do(&cx, async |_| Err::<(), _>("down"), &chain)).is_err());
    clock.advance(secs(1));
    let script = Script::new(&clock, [ok::<_, &str>(7).after(ms(500))]);
    assert_eq!(clock.block_on(try_do(&cx, |_| script.call_plain(), &chain)).unwrap(), 7);
    assert_eq!((script.calls().len(), breaker.state()), (1, State::Closed));
    assert_eq!(clock.block_on(try_do(&cx, |_| script.call_plain(), &chain)).unwrap(), 7);
    assert_eq!(script.calls().len(), 3, "hedged again once it is closed");
}

/// Says that it cannot be repeated.
struct Once<'a>(&'a Script<u32, &'static str>);

impl Operation<u32, &'static str> for Once<'_> {
    async fn call(&self, _: Attempt) -> Outcome<u32, &'static str> {
        match self.0.call_plain().await {
            Ok(value) => Outcome::success(value),
            Err(error) => Outcome::failed(error, Verdict::Transient),
        }
    }

    fn repeat(&self, _: Option<&Outcome<u32, &'static str>>) -> Result<(), &'static str> {
        Err("it has no idempotency key")
    }
}

#[test]
fn an_operation_that_cannot_be_repeated_is_not_hedged() {
    let (clock, cx) = at_rest();
    let script = Script::new(&clock, [ok(7).after(ms(500))]);
    let executor = Executor::builder("posts").policies(hedge()).clock(&clock).build().unwrap();
    assert_eq!(clock.block_on(executor.run_op(Once(&script))).unwrap(), 7);
    assert_eq!(clock.block_on(executor.erase().run_op(Once(&script))).unwrap(), 7);
    let failing = Script::new(&clock, [err("E")]);
    assert_eq!(clock.block_on(try_op(&cx, Once(&failing), hedge())).unwrap_err().last(), Some(&"E"));
    assert_eq!((script.calls().len(), failing.calls().len()), (2, 1));
}

#[test]
fn an_operation_with_exclusive_state_is_not_hedged() {
    let (clock, cx) = at_rest();
    let mut calls = 0;
    let sleeper = clock.clock();
    let run = with_state(&mut calls, |calls, _| {
        let sleep = sleeper.sleep(ms(500));
        Box::pin(async move {
            *calls += 1;
            sleep.await;
            Ok::<_, ()>(())
        })
    });
    clock.block_on(try_op(&cx, run, hedge())).unwrap();
    assert_eq!(calls, 1);
}

#[test]
fn a_caller_that_allows_fewer_attempts_gets_fewer_lanes() {
    for most in 1..4 {
        let chain = || (Retry::immediate(), hedge().max(9));
        let failing = scenario(chain).context(move |cx| cx.with_max_attempts(most));
        assert_eq!(failing.everywhere([err::<(), _>("E")]).calls.len(), most as usize);
        let slow = scenario(chain).context(move |cx| cx.with_max_attempts(most));
        assert_eq!(slow.everywhere([ok::<_, ()>(7).after(secs(5))]).calls.len(), most as usize);
    }
}

#[test]
fn nothing_starts_at_or_after_a_limit_around_the_hedge() {
    for limit in [DELAY, ms(99)] {
        let seen = scenario(move || (Timeout::new(limit), hedge())).everywhere([hangs::<(), ()>()]);
        assert_eq!((seen.kind(), seen.calls, seen.took), (timed_out(limit), vec![ms(0)], limit));
    }
}

// --- the budget

/// Case `hedge-budget-kills-primary`.
#[test]
fn hedge_budget_kills_primary() {
    let (clock, cx) = at_rest();
    let script = Script::new(&clock, [ok::<_, ()>(7).after(ms(300))]);
    let executor = Executor::builder("poor").policies(hedge().max(2)).budget(used_up()).clock(&clock).build().unwrap();
    assert_eq!(clock.block_on(executor.run_with(&cx, |_| script.call_plain())).unwrap(), 7);
    assert_eq!((script.calls().len(), script.elapsed(), clock.sleepers()), (1, ms(300), 0));
}

/// Case `hedge-throttled-hangs`.
#[test]
fn hedge_throttled_hangs() {
    let (clock, cx) = at_rest();
    let script = Script::new(&clock, [err::<(), _>("UNAVAILABLE").after(ms(4))]);
    let chain = Hedge::after(secs(5)).max(3);
    let executor = Executor::builder("poor").policies(chain).budget(used_up()).clock(&clock).build().unwrap();
    let cx = cx.with_timeout(secs(15));
    let error = clock.block_on(executor.run_with(&cx, |_| script.call_plain())).unwrap_err();
    assert_eq!((error.kind(), error.last(), error.attempts()), (Kind::Failed, Some(&"UNAVAILABLE"), 1));
    assert_eq!(script.elapsed(), ms(4));
}

#[test]
fn hedges_and_retries_draw_on_one_budget() {
    let (clock, _) = at_rest();
    let budget = Budget::ratio(0.0).initial(3).floor(Duration::MAX);
    let chain = (Retry::immediate().max_attempts(9), Hedge::after(DELAY));
    let executor = Executor::builder("shared").policies(chain).budget(budget.clone()).clock(&clock).build().unwrap();
    let error = clock.block_on(executor.run(async |_| Err::<(), _>("down"))).unwrap_err();
    // Hedge, retry, hedge; the second retry is denied.
    assert_eq!((error.kind(), error.attempts()), (Kind::Exhausted { by: Limit::Budget }, 4));
    assert_eq!(budget.available(), 0);
}

#[test]
fn a_lane_whose_operation_was_never_started_costs_nothing() {
    let (clock, cx) = at_rest();
    let budget = Budget::ratio(0.0).initial(3).floor(Duration::MAX);
    let chain = (hedge(), Refuses::between(1, 2));
    let executor = Executor::builder("refuses").policies(chain).budget(budget.clone()).clock(&clock).build().unwrap();
    let script = Script::new(&clock, [ok::<_, ()>(7).after(ms(300))]);
    for left in [3, 2] {
        clock.block_on(executor.run_with(&cx, |_| script.call_plain())).unwrap();
        assert_eq!(budget.available(), left);
    }
}

#[test]
fn a_budget_that_runs_out_after_some_hedges_leaves_the_running_lanes_alone() {
    let (clock, cx) = at_rest();
    let budget = Budget::ratio(0.0).initial(1).floor(Duration::MAX);
    let builder = Executor::builder("one").policies(hedge().max(3)).budget(budget).clock(&clock);
    let executor = builder.build().unwrap();
    let script = Script::new(&clock, [ok::<_, ()>(7).after(ms(700)), hangs()]);
    assert_eq!(clock.block_on(executor.run_with(&cx, |_| script.call_plain())).unwrap(), 7);
    assert_eq!((script.calls(), script.elapsed()), (vec![ms(0), DELAY], ms(700)));
}

// --- losers

/// Case `hedge-winner-before-hedge-start`: every order of the answer and the timer, many times over.
#[test]
fn hedge_winner_before_hedge_start() {
    let (clock, _) = at_rest();
    let executor = Executor::builder("tie").policies(Hedge::after(ms(85))).unbudgeted().clock(&clock).build().unwrap();
    let mut calls = [0; 3];
    for round in 0..10_000_u64 {
        let takes = ms(84) + Duration::from_nanos(round * 200);
        let script = Script::new(&clock, [ok::<_, ()>(7).after(takes), ok(7).after(takes)]);
        assert_eq!(clock.block_on(executor.run(|_| script.call_plain())).unwrap(), 7);
        calls[script.calls().len() - 1] += 1;
        assert_eq!((clock.sleepers(), executor.waiting()), (0, 0));
    }
    assert_eq!(calls, [5_001, 4_999, 0]);
}

/// Takes a lock of the user's and asks the library something when it is dropped.
struct Nosy<'a> {
    lock: &'a Mutex<u32>,
    breaker: &'a Breaker,
    executor: &'a Executor<(Timeout, Hedge, Breaker)>,
}

impl Drop for Nosy<'_> {
    fn drop(&mut self) {
        *self.lock.lock().unwrap() += 1;
        assert_eq!(self.breaker.state(), State::Closed);
        let _waiting = self.executor.waiting();
    }
}

/// Case `hedge-loser-cancel-deadlock`.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn hedge_loser_cancel_deadlock() {
    let breaker = Breaker::default();
    let chain = (Timeout::secs(1), Hedge::after(Duration::ZERO), breaker.clone());
    let executor = Executor::builder("nosy").policies(chain).unbudgeted().build().unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let (executor, breaker) = (executor.clone(), breaker.clone());
        tasks.spawn(async move {
            for _ in 0..2_500 {
                let lock = Mutex::new(0);
                let run = executor.run(|_| async {
                    let _nosy = Nosy { lock: &lock, breaker: &breaker, executor: &executor };
                    tokio::task::yield_now().await;
                    *lock.lock().unwrap() += 1;
                    Ok::<_, ()>(())
                });
                run.await.unwrap();
                assert_eq!(*lock.lock().unwrap(), 3, "two lanes were dropped, one of them had ended");
            }
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
    assert_eq!(executor.waiting(), 0);
}

#[test]
fn losers_are_dropped_in_the_poll_that_decides() {
    let (clock, cx) = at_rest();
    let probe = Probe::default();
    let chain = (hedge().max(2), probe.clone());
    let script = Script::new(&clock, [hangs::<_, ()>(), hangs(), ok(7)]);
    let mut run = tokio_test::task::spawn(try_do(&cx, |_| script.call_plain(), chain));
    assert!(run.poll().is_pending());
    assert!(clock.advance_to_next() && run.poll().is_pending());
    assert!(clock.advance_to_next() && run.poll().is_ready());
    assert_eq!(probe.ends(), [End::Judged(Verdict::Success), End::Dropped, End::Dropped]);
    assert_eq!(clock.sleepers(), 0);
    drop(run);
}

#[test]
fn a_lane_that_lost_counts_as_nothing_for_a_breaker() {
    let (clock, cx) = at_rest();
    let breaker = Breaker::new(BreakerConfig::default().rule(TripRule::consecutive(1)).open_for(secs(1)).trials(2));
    let chain = (Hedge::after(DELAY), breaker.clone());
    let winning = || Script::new(&clock, [hangs::<_, &str>(), ok(7)]);
    let script = winning();
    clock.block_on(try_do(&cx, |_| script.call_plain(), &chain)).unwrap();
    assert_eq!((breaker.state(), breaker.counts().failures), (State::Closed, 0));
    // Half-open, the trial that lost gives its place back.
    breaker.record(Verdict::Fatal);
    assert_eq!(breaker.state(), State::Open);
    clock.advance(secs(1));
    let script = winning();
    clock.block_on(try_do(&cx, |_| script.call_plain(), &chain)).unwrap();
    assert_eq!(breaker.state(), State::Closed);
}

/// An operation whose bad values must be given up properly.
struct Discarding<'a> {
    script: &'a Script<u32, &'static str>,
    discarded: Mutex<Vec<u32>>,
}

impl Operation<u32, &'static str> for &Discarding<'_> {
    async fn call(&self, _: Attempt) -> Outcome<u32, &'static str> {
        match self.script.call_plain().await {
            Ok(value) if value >= 500 => Outcome::new(Ok(value), Verdict::Transient),
            Ok(value) => Outcome::success(value),
            Err(error) => Outcome::failed(error, Verdict::Transient),
        }
    }

    async fn discard(&self, value: u32) {
        self.discarded.lock().unwrap().push(value);
        pending::<()>().await;
    }
}

#[test]
fn bad_values_that_are_not_returned_are_given_up_and_nobody_waits_for_that() {
    let (clock, cx) = at_rest();
    let executor = Executor::builder("values").policies(hedge().max(2)).unbudgeted().clock(&clock).build().unwrap();
    let erased = executor.erase();
    let all_bad = [ok(500).after(ms(10)), ok(501).after(ms(10)), ok(502)];
    let good_at_last = [ok(500).after(ms(10)), ok(501).after(ms(10)), ok(200)];
    for is_erased in [false, true] {
        for (steps, value, given_up) in [(&all_bad, 500, vec![501, 502]), (&good_at_last, 200, vec![501, 500])] {
            let script = Script::new(&clock, steps.clone());
            let operation = Discarding { script: &script, discarded: Mutex::default() };
            let result = if is_erased {
                clock.block_on(erased.run_op_with(&cx, &operation))
            } else {
                clock.block_on(executor.run_op_with(&cx, &operation))
            };
            assert_eq!((result.unwrap(), script.elapsed()), (value, ms(20)));
            assert_eq!(operation.discarded.into_inner().unwrap(), given_up);
        }
    }
}

#[test]
fn an_error_that_is_held_is_attached_to_whatever_ends_the_run() {
    let seen = scenario(|| (Timeout::secs(1), hedge())).everywhere([err::<(), _>("E1").after(ms(10)), hangs()]);
    assert_eq!((seen.kind(), seen.last()), (timed_out(secs(1)), Some("E1")));
    let cancelled = scenario(hedge).cancelled_at(ms(500));
    let seen = cancelled.everywhere([hangs::<(), _>(), err("E2").after(ms(10))]);
    assert_eq!((seen.kind(), seen.last()), (Kind::Cancelled, Some("E2")));
}

#[test]
fn a_caller_that_cancels_ends_every_lane_and_before_the_delay_the_only_one() {
    for (at, lanes) in [(ms(50), 1), (ms(250), 3)] {
        let probe = Probe::default();
        let in_chain = probe.clone();
        let chain = move || (hedge().max(2), in_chain.clone());
        let seen = scenario(chain).cancelled_at(at).typed([hangs::<(), ()>()]);
        assert_eq!((seen.kind(), seen.calls.len(), seen.took), (Kind::Cancelled, lanes, at));
        // Twice: through `try_do` and through an executor.
        assert_eq!(probe.ends(), vec![End::Dropped; 2 * lanes]);
    }
    let seen = scenario(|| (Timeout::millis(250), hedge().max(2))).everywhere([hangs::<(), ()>()]);
    assert_eq!((seen.kind(), seen.calls.len()), (timed_out(ms(250)), 3));
}

#[test]
fn nothing_starts_for_a_caller_that_has_left() {
    let (clock, cx) = at_rest();
    let token = CancellationToken::new();
    let cx = cx.with_token(token.clone());
    let script = Script::new(&clock, [err::<(), _>("E1").after(ms(10)), ok(())]);
    let cancel = async {
        clock.clock().sleep(ms(10)).await;
        token.cancel();
    };
    let error = clock.block_on(beside(cancel, try_do(&cx, |_| script.call_plain(), hedge()))).unwrap_err();
    assert_eq!((error.kind(), error.last(), script.calls().len()), (Kind::Cancelled, Some(&"E1"), 1));
}

#[test]
fn a_panic_in_one_lane_is_not_blamed_on_another() {
    let (clock, cx) = at_rest();
    let breaker = Breaker::new(BreakerConfig::default().rule(TripRule::consecutive(9)));
    let chain = (Hedge::after(DELAY), breaker.clone());
    let run = try_do(
        &cx,
        |attempt: Attempt| async move {
            if attempt.is_hedge() {
                panic!("boom");
            }
            pending::<Result<(), ()>>().await
        },
        &chain,
    );
    assert!(catch_unwind(AssertUnwindSafe(|| clock.block_on(run))).is_err());
    assert_eq!((breaker.counts().consecutive_failures, clock.sleepers()), (1, 0));
}

/// A guard in every lane, which counts those that live.
struct Alive<'a>(&'a AtomicU32);

impl<'a> Alive<'a> {
    fn new(count: &'a AtomicU32) -> Alive<'a> {
        count.fetch_add(1, Ordering::Relaxed);
        Alive(count)
    }
}

impl Drop for Alive<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Drops a run of several hedged tries after so many polls, and says whether it was still pending.
fn is_pending_when_dropped_after(polls: usize, clock: &ManualClock) -> bool {
    let budget = Budget::concurrent(1.0).min(9);
    let chain = (Retry::fixed(ms(50)), Timeout::millis(400), hedge().max(2), Timeout::secs(9));
    let executor = Executor::builder("dropped").policies(chain).budget(budget.clone()).clock(clock).build().unwrap();
    let (alive, calls) = (AtomicU32::new(0), AtomicU32::new(0));
    let operation = |_| async {
        let _alive = Alive::new(&alive);
        let nth = calls.fetch_add(1, Ordering::Relaxed);
        clock.clock().sleep(ms(60)).await;
        match nth {
            2 | 4 => Err("down"),
            8 => Ok(()),
            _ => pending().await,
        }
    };
    let mut run = tokio_test::task::spawn(executor.run(operation));
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
    drop(run);
    let left = (alive.into_inner(), clock.sleepers(), executor.waiting(), budget.available());
    assert_eq!(left, (0, 0, 0, 9), "dropped after {polls} polls");
    is_pending
}

#[test]
fn a_hedged_run_dropped_at_any_poll_leaves_nothing_behind() {
    let (clock, _) = at_rest();
    let pending_polls = (0..1_000).take_while(|polls| is_pending_when_dropped_after(*polls, &clock)).count();
    assert!(pending_polls > 10, "the scenario has {pending_polls} polls");
}

#[test]
fn work_that_a_loser_has_spawned_is_told_and_that_of_the_winner_goes_on() {
    let (clock, cx) = at_rest();
    let tokens = Mutex::new(Vec::new());
    let operation = with_token(|attempt: Attempt, token| {
        tokens.lock().unwrap().push(token);
        async move { if attempt.is_hedge() { Ok::<_, ()>(()) } else { pending().await } }
    });
    clock.block_on(try_do(&cx, operation, hedge())).unwrap();
    let cancelled: Vec<_> = tokens.into_inner().unwrap().iter().map(CancellationToken::is_cancelled).collect();
    assert_eq!(cancelled, [true, false]);
}

// --- in a chain

#[test]
fn a_retry_inside_of_a_lane_is_the_lanes_own() {
    let seen = scenario(|| (hedge(), Retry::fixed(ms(30)))).everywhere([err("E1"), hangs(), ok(7)]);
    assert_eq!((seen.result, seen.calls), (Ok(7), vec![ms(0), ms(30), ms(100)]));
}

#[test]
fn a_report_does_not_blame_a_retry_in_a_lane_that_lost() {
    let (clock, _) = at_rest();
    let chain = (hedge(), Retry::immediate().max_attempts(2));
    let executor = Executor::builder("report").policies(chain).unbudgeted().clock(&clock).build().unwrap();
    let script = Script::new(&clock, [err("E1"), err("E2"), ok(7)]);
    let report = clock.block_on(executor.run_report(op(|_| script.call_plain())));
    assert_eq!((report.result.unwrap(), report.attempts, report.stopped), (7, 3, Stopped::Settled));
}

#[test]
fn a_try_whose_lanes_have_all_failed_is_tried_again() {
    let chain = || (Retry::fixed(secs(1)), hedge());
    let seen = scenario(chain).everywhere([err("E1").after(ms(10)), err("E2"), ok(7)]);
    assert_eq!((seen.result, seen.calls), (Ok(7), vec![ms(0), ms(10), ms(1010)]));
}

#[test]
fn each_lane_has_its_own_limit_inside() {
    let seen = scenario(|| (hedge(), Timeout::millis(150))).everywhere([hangs::<_, ()>(), ok(7).after(ms(120))]);
    assert_eq!((seen.result, seen.took), (Ok(7), ms(220)));
    let seen = scenario(|| (hedge(), Timeout::millis(150))).everywhere([hangs::<(), ()>()]);
    assert_eq!((seen.kind(), seen.took), (timed_out(ms(150)), ms(250)));
}

#[test]
fn observers_see_lanes_start_win_and_lose() {
    let (clock, cx) = at_rest();
    let recorder = Recorder::default();
    let builder = Executor::builder("observed").policies(hedge().max(2)).unbudgeted();
    let executor = builder.clock(&clock).observe(recorder.clone()).build().unwrap();
    let script = Script::new(&clock, [hangs::<_, ()>(), ok(7).after(ms(150)), hangs()]);
    clock.block_on(executor.run_with(&cx, |_| script.call_plain())).unwrap();
    let hedging: Vec<_> = recorder
        .whole_events()
        .into_iter()
        .filter(|event| matches!(event.what, What::HedgeStarted | What::HedgeWon | What::HedgeLost))
        .map(|event| (event.attempt, event.hedge, event.what))
        .collect();
    let expected = [
        (1, 1, What::HedgeStarted),
        (1, 2, What::HedgeStarted),
        (1, 1, What::HedgeWon),
        (1, 0, What::HedgeLost),
        (1, 2, What::HedgeLost),
    ];
    assert_eq!(hedging, expected);
}

#[test]
fn a_breaker_outside_knows_how_long_a_hedged_call_may_run() {
    use steadfast::policy::Settings;
    let limit = |hedge: Hedge| hedge.limit(Some(secs(2)));
    assert_eq!(limit(Hedge::after(ms(500)).max(2)), Some(secs(3)));
    assert_eq!(limit(Hedge::after(secs(60)).max(2)), Some(secs(6)), "one after the other");
    assert_eq!(limit(Hedge::with(|_| None)), Some(secs(4)));
    assert_eq!(limit(Hedge::percentile(0.9).ceiling(secs(1))), Some(secs(4)), "one after the other in its warm-up");
    assert_eq!(Hedge::after(ms(1)).limit(None), None);
}

// --- percentiles

#[test]
fn a_percentile_hedges_nothing_in_its_warm_up_and_the_slow_after_it() {
    let (clock, cx) = at_rest();
    let hedge = Hedge::percentile(0.9).min_samples(20);
    let run = |takes: u64| {
        let script = Script::new(&clock, [ok::<_, ()>(7).after(ms(takes)), ok(7).after(ms(1))]);
        clock.block_on(try_do(&cx, |_| script.call_plain(), hedge.clone())).unwrap();
        script.calls().len()
    };
    for _ in 0..20 {
        assert_eq!((hedge.delay(), run(1_000)), (None, 1));
    }
    let delay = hedge.delay().unwrap();
    assert!((ms(940)..=ms(1_060)).contains(&delay), "{delay:?}");
    assert_eq!((run(1_000), run(5_000), run(100)), (1, 2, 1));
}

#[test]
fn a_percentile_follows_a_shift_and_forgets() {
    let (clock, cx) = at_rest();
    let hedge = Hedge::percentile(0.5).window(secs(60)).min_samples(20).floor(ms(5)).ceiling(ms(400));
    let run = |takes: u64, times: u64| {
        for _ in 0..times {
            let quick = Timeout::new(Duration::MAX);
            let script = Script::new(&clock, [ok::<_, ()>(7).after(ms(takes))]);
            clock.block_on(try_do(&cx, |_| script.call_plain(), (hedge.clone(), quick))).unwrap();
        }
        clock.advance(secs(2));
        hedge.delay().unwrap()
    };
    assert!((ms(19)..=ms(22)).contains(&run(20, 200)));
    assert_eq!(run(1, 1000), ms(5), "the floor");
    clock.advance(secs(120));
    assert_eq!(run(900, 200), ms(400), "the ceiling");
}

#[test]
fn a_failure_is_no_latency() {
    let (clock, cx) = at_rest();
    let hedge = Hedge::percentile(0.5).min_samples(1);
    for fault in [Fault::Transient("E"), Fault::Fatal("E"), Fault::Ignored("E"), Fault::Throttled("E", None)] {
        let operation = faults(|_| std::future::ready(Err::<(), _>(fault.clone())));
        clock.block_on(try_do(&cx, operation, hedge.clone())).unwrap_err();
        assert_eq!(hedge.delay(), None);
    }
    let missing = faults(|_| async { Err::<(), _>(Fault::Permanent("missing")) });
    clock.block_on(try_do(&cx, missing, hedge.clone())).unwrap_err();
    assert_eq!(hedge.delay(), Some(ms(1)));
}

/// In the recommended order the limit of an attempt is inside of the hedge, and fires in its lane. Four are answered after 10 ms, and of
/// six is known that they take longer than 100 ms: that is the half of them, and more.
#[test]
fn a_lane_that_ran_into_a_limit_of_its_own_takes_longer_than_that() {
    let (clock, cx) = at_rest();
    let cx = cx.once();
    let delay = |p| {
        let hedge = Hedge::percentile(p).min_samples(10).ceiling(secs(9));
        for calls in 0..10 {
            let script = Script::new(&clock, [if calls < 4 { ok::<_, ()>(7).after(ms(10)) } else { hangs() }]);
            let chain = (&hedge, Timeout::new(ms(100)));
            let _ended = clock.block_on(try_do(&cx, |_| script.call_plain(), chain));
        }
        hedge.delay()
    };
    assert!(delay(0.3).is_some_and(|delay| (ms(9)..=ms(11)).contains(&delay)));
    assert_eq!(delay(0.5), Some(secs(9)));
}

#[test]
fn each_lane_that_ran_into_a_limit_is_a_sample_whatever_a_judge_says() {
    for verdict in [Verdict::Transient, Verdict::Permanent, Verdict::Ignored] {
        let (clock, cx) = at_rest();
        let hedge = Hedge::percentile(0.5).min_samples(2).ceiling(secs(9));
        let chain = (&hedge, classify(move |_: &Result<(), Error<()>>| verdict), Timeout::new(ms(100)));
        // Both lanes of one try, or the only one of two.
        for _ in 0..if verdict == Verdict::Transient { 1 } else { 2 } {
            assert_eq!(hedge.delay(), None);
            let run = try_do(&cx, |_| pending::<Result<(), ()>>(), &chain);
            assert_eq!(clock.block_on(run).unwrap_err().kind(), timed_out(ms(100)));
        }
        assert_eq!(hedge.delay(), Some(secs(9)), "{verdict:?}");
    }
}

#[test]
fn a_lane_whose_limit_passed_in_a_queue_is_no_sample() {
    let (clock, cx) = at_rest();
    let hedge = Hedge::percentile(0.5).min_samples(1);
    let bulkhead = Bulkhead::with(BulkheadConfig::new(1).queue(9).max_wait(secs(10)));
    let _held = bulkhead.try_acquire().unwrap();
    let chain = (&hedge, Timeout::new(ms(100)), bulkhead);
    let run = try_do(&cx, |_| std::future::ready(Ok::<_, ()>(7)), chain);
    assert_eq!(clock.block_on(run).unwrap_err().kind(), timed_out(ms(100)));
    assert_eq!(hedge.delay(), None);
}

/// An operation that does not wait takes all of its time within one poll.
#[test]
fn a_latency_is_the_time_from_before_the_first_poll_to_after_the_last() {
    let (clock, cx) = at_rest();
    let is_known_as = |hedge: &Hedge, latency: Duration| {
        let delay = hedge.delay().expect("one sample is enough");
        assert!((latency * 15 / 16..=latency * 17 / 16).contains(&delay), "{delay:?} for {latency:?}");
    };
    let hedge = Hedge::percentile(0.5).min_samples(1);
    let busy = |_| {
        clock.advance(ms(300));
        std::future::ready(Ok::<_, ()>(7))
    };
    clock.block_on(try_do(&cx, busy, &hedge)).unwrap();
    is_known_as(&hedge, ms(300));

    // The first try takes long, fails, and is retried in the same poll.
    let hedge = Hedge::percentile(0.5).min_samples(1);
    let busy_and_slow = async |attempt: Attempt| {
        if attempt.number() == 1 {
            clock.advance(ms(300));
            return Err(());
        }
        clock.clock().sleep(ms(100)).await;
        Ok(7)
    };
    clock.block_on(try_do(&cx, busy_and_slow, (&hedge, Retry::immediate()))).unwrap();
    is_known_as(&hedge, ms(400));
}

#[test]
fn a_percentile_keeps_to_one_clock() {
    let (clock, cx) = at_rest();
    let hedge = Hedge::percentile(0.9);
    clock.block_on(try_do(&cx, async |_| Ok::<_, ()>(()), &hedge)).unwrap();
    let elsewhere = Executor::builder("elsewhere").policies(hedge).clock(Clock::manual()).build();
    assert_eq!(elsewhere.unwrap_err().field(), "clock");
}

// --- settings

#[test]
fn settings_that_cannot_work_are_refused() {
    let refused = [
        (Hedge::after(DELAY).max(0), "max"),
        (Hedge::after(DELAY).max(65_536), "max"),
        (Hedge::after(DELAY).floor(ms(1)), "floor"),
        (Hedge::with(|_| None).window(secs(9)), "window"),
        (Hedge::percentile(0.0), "percentile"),
        (Hedge::percentile(1.0), "percentile"),
        (Hedge::percentile(95.0), "percentile"),
        (Hedge::percentile(f64::NAN), "percentile"),
        (Hedge::percentile(0.9).min_samples(0), "min_samples"),
        (Hedge::percentile(0.9).floor(secs(2)).ceiling(secs(1)), "floor"),
        (Hedge::percentile(0.9).window(ms(999)), "window"),
    ];
    let (clock, cx) = at_rest();
    for (hedge, field) in refused {
        assert_eq!(hedge.check().unwrap_err().field(), field);
        let error = clock.block_on(try_do(&cx, async |_| Ok::<_, ()>(()), hedge)).unwrap_err();
        assert_eq!((error.kind(), error.attempts()), (Kind::Misconfigured, 0));
    }
    for hedge in
        [Hedge::after(Duration::ZERO), Hedge::after(Duration::MAX), Hedge::percentile(0.5), hedge().max(65_535)]
    {
        hedge.check().unwrap();
    }
}

#[test]
fn a_judge_outside_of_a_hedge_is_refused() {
    let chain = (steadfast::judge::by_error(), hedge());
    assert!(Executor::builder("judged").policies(chain).build().is_err());
    let run = op(async |_: Attempt| Err::<(), _>("E")).retry_if(|_| false);
    let (clock, cx) = at_rest();
    assert_eq!(clock.block_on(try_op(&cx, run, hedge())).unwrap_err().attempts(), 1);
}

/// A lane that waits for its turn has not started its attempt yet, and will.
#[test]
fn a_call_that_may_be_made_once_is_not_hedged_while_it_waits_in_line() {
    for (most, lanes) in [(1, 1), (2, 2)] {
        let (clock, cx) = at_rest();
        let cx = cx.with_max_attempts(most);
        let started = AtomicU32::new(0);
        let bulkhead = Bulkhead::with(BulkheadConfig::new(2).queue(9).max_wait(secs(10)));
        let held = [bulkhead.try_acquire().unwrap(), bulkhead.try_acquire().unwrap()];
        let run = try_do(
            &cx,
            async |_| {
                started.fetch_add(1, Ordering::Relaxed);
                clock.clock().sleep(secs(1)).await;
                Ok::<_, ()>(())
            },
            (hedge(), bulkhead.clone()),
        );
        clock
            .block_on(async {
                tokio::join!(run, async {
                    clock.clock().sleep(secs(1)).await;
                    drop(held);
                })
            })
            .0
            .unwrap();
        assert_eq!(started.load(Ordering::Relaxed), lanes);
    }
}

/// Each of two lanes looks whether an attempt is left before it stands in line for it, and only one is.
#[test]
fn of_two_lanes_in_line_for_the_last_attempt_one_gets_it() {
    let (clock, cx) = at_rest();
    let cx = cx.with_max_attempts(3);
    let started = AtomicU32::new(0);
    let bulkhead = Bulkhead::with(BulkheadConfig::new(1).queue(9).max_wait(secs(60)));
    let lanes = (hedge(), Retry::immediate().max_attempts(9), bulkhead.clone());
    let run = try_do(
        &cx,
        async |_| {
            started.fetch_add(1, Ordering::Relaxed);
            clock.clock().sleep(secs(2)).await;
            Err::<(), _>("E")
        },
        lanes,
    );
    let error = clock.block_on(run).unwrap_err();
    assert_eq!((started.load(Ordering::Relaxed), error.attempts()), (3, 3));
    assert_eq!(error.last(), Some(&"E"));
    assert_eq!(bulkhead.in_flight(), 0);
}
