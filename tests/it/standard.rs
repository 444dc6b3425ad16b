//! The standard chain: its order, its numbers, and that they can be changed while calls go on.

use std::future::pending;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use steadfast::breaker::{BreakerConfig, State, TripRule};
use steadfast::budget::BudgetConfig;
use steadfast::clock::ManualClock;
use steadfast::error::{Kind, Limit};
use steadfast::limit::{BulkheadConfig, RateLimiterConfig};
use steadfast::operation::Fault;
use steadfast::retry::Jitter;
use steadfast::standard::StandardConfig;
use steadfast::{Budget, ConfigError, Context, Error, Executor, Retry, StandardChain, faults, try_do};

use crate::support::{Script, at_rest, err, exhausted, hangs, ms, ok, pending_times, permanent, secs, timed_out};

fn built(clock: &ManualClock, config: StandardConfig) -> Executor<StandardChain> {
    Executor::standard("standard").config(config).clock(clock).seed(7).build().unwrap()
}

fn refusal(executor: &Executor<StandardChain>, config: StandardConfig) -> String {
    executor.reconfigure(config).unwrap_err().to_string()
}

async fn down(_: steadfast::Attempt) -> Result<(), &'static str> {
    Err("down")
}

struct Service {
    billing: Executor<StandardChain>,
}

#[test]
fn one_line_builds_it_and_it_fits_into_a_field() {
    let (clock, _) = at_rest();
    let service = Service { billing: Executor::standard("billing").clock(&clock).build().unwrap() };
    assert_eq!(clock.block_on(service.billing.run(|_| async { Ok::<_, String>(7) })).unwrap(), 7);
    assert_eq!(service.billing.name(), "billing");
}

#[test]
fn the_default_chain_is_the_documented_one() {
    let (clock, _) = at_rest();
    let executor = built(&clock, StandardConfig::default());
    let seen = serde_json::to_value(executor.snapshot()).unwrap();
    let kinds = seen["policies"].as_array().unwrap().iter().map(|policy| policy["policy"].as_str().unwrap());
    assert_eq!(kinds.collect::<Vec<_>>(), ["bulkhead", "timeout", "retry", "breaker", "timeout"]);
    assert_eq!(seen["policies"][0]["permits"], 1000);
    assert_eq!(
        (&seen["policies"][1]["limit_seconds"], &seen["policies"][4]["limit_seconds"]),
        (&30.0.into(), &9.0.into())
    );
    assert_eq!((&seen["policies"][2]["max_attempts"], &seen["policies"][2]["base_seconds"]), (&3.into(), &0.2.into()));
    assert_eq!((&seen["budget"]["form"], &seen["budget"]["cap"]), (&"tokens".into(), &10.into()));
    assert_eq!(StandardConfig::default().check(), Ok(()));
    assert!(StandardConfig::default().warnings().is_empty());
}

#[test]
fn attempts_and_the_whole_have_limits_of_their_own() {
    let (clock, _) = at_rest();
    let retry = Retry::fixed(ms(500)).max_attempts(9);
    let executor = built(&clock, StandardConfig::default().retry(retry).budget(None));
    let script = Script::new(&clock, [hangs::<(), ()>()]);
    let error = clock.block_on(executor.run(|_| script.call_plain())).unwrap_err();
    assert_eq!((error.kind(), error.attempts()), (timed_out(secs(30)), 4));
    assert_eq!(script.calls(), [ms(0), ms(9_500), ms(19_000), ms(28_500)]);
}

#[test]
fn ten_failures_in_a_row_open_the_breaker_for_five_seconds() {
    let (clock, _) = at_rest();
    let executor = built(&clock, StandardConfig::default().retry(Retry::immediate().max_attempts(1)));
    for _ in 0..10 {
        assert_eq!(executor.policies().breaker().state(), State::Closed);
        let _failed = clock.block_on(executor.run(down));
    }
    let error = clock.block_on(executor.run(down)).unwrap_err();
    assert_eq!(error.kind(), Kind::CircuitOpen { retry_after: Some(secs(5)) });
    clock.advance(secs(5));
    assert_eq!(clock.block_on(executor.run(|_| async { Ok::<_, String>(7) })).unwrap(), 7);
}

#[test]
fn the_rate_limit_counts_attempts_and_an_open_breaker_asks_it_for_nothing() {
    let (clock, _) = at_rest();
    let rate = RateLimiterConfig::per(4, secs(3600));
    let config = StandardConfig::default().retry(Retry::immediate()).rate_limit(rate).budget(None);
    let executor = built(&clock, config.breaker(BreakerConfig::default().rule(TripRule::consecutive(3))));
    let error = clock.block_on(executor.run(down)).unwrap_err();
    assert_eq!(error.attempts(), 3);
    let limiter = executor.policies().rate_limiter().unwrap();
    assert_eq!(limiter.available(), 1);
    assert!(clock.block_on(executor.run(down)).unwrap_err().is_circuit_open());
    assert_eq!(limiter.available(), 1);
}

#[test]
fn the_first_setting_that_cannot_work_is_named_when_it_is_built() {
    let bad = StandardConfig::default().breaker(BreakerConfig::default().open_for(Duration::ZERO));
    let refused = Executor::standard("bad").config(bad.clone()).build().unwrap_err();
    assert_eq!((refused.part(), refused.field()), ("breaker", "open_for"));
    let (clock, cx) = at_rest();
    let run = try_do(&cx, down, StandardChain::new(bad.clone()));
    assert_eq!(clock.block_on(run).unwrap_err().kind(), Kind::Misconfigured);
    assert!(StandardChain::new(bad).reconfigure(StandardConfig::default()).is_err(), "what was refused stays refused");
}

#[test]
fn functions_have_no_place_in_numbers_that_change() {
    let part = |retry| StandardConfig::default().retry(retry).check().unwrap_err().to_string();
    assert!(part(Retry::custom(|_, _| secs(1))).starts_with("retry.backoff = computed"));
    assert!(part(Retry::exponential().on_retry(|_| {})).starts_with("retry.on_retry = a listener"));
    let weighing = RateLimiterConfig::per_second(5).weigh_by(|_| 1);
    let refused = StandardConfig::default().rate_limit(weighing).check().unwrap_err();
    assert_eq!((refused.part(), refused.field()), ("rate_limit", "weight"));
}

#[test]
fn every_number_changes_at_once() {
    let (clock, _) = at_rest();
    let executor = built(&clock, StandardConfig::default());
    let next = StandardConfig::default()
        .bulkhead(BulkheadConfig::new(7).queue(3).max_wait(ms(20)))
        .total_timeout(secs(8))
        .attempt_timeout(secs(2))
        .retry(Retry::fixed(ms(100)).max_attempts(5))
        .rate_limit(RateLimiterConfig::per_second(50).burst(20))
        .budget(BudgetConfig::ratio(0.5).cap(40).initial(0))
        .breaker(BreakerConfig::default().open_for(secs(60)).rule(TripRule::failure_rate(0.9).window(10, secs(3))));
    executor.reconfigure(next.clone()).unwrap();
    let changed = serde_json::to_value(executor.snapshot()).unwrap();
    let mut fresh = serde_json::to_value(built(&clock, next.clone()).snapshot()).unwrap();
    // The two tokens that were there stay; a new budget has none.
    fresh["budget"]["available"] = 2.0.into();
    assert_eq!(changed, fresh);
    assert_eq!(format!("{:?}", executor.config()), format!("{next:?}"));
}

#[test]
fn what_was_counted_saved_up_and_queued_for_stays() {
    let (clock, _) = at_rest();
    let config = |n: u32| {
        let rule = TripRule::failure_rate(0.5).window(10, secs(3)).minimum_calls(n).or(TripRule::consecutive(n));
        StandardConfig::default()
            .bulkhead(BulkheadConfig::new(1).queue(5).max_wait(secs(60)))
            .retry(Retry::immediate().max_attempts(2))
            .rate_limit(RateLimiterConfig::per(10, secs(3600)))
            .budget(BudgetConfig::ratio(0.0).initial(5).floor(Duration::MAX).cap(n))
            .breaker(BreakerConfig::default().rule(rule))
    };
    let executor = built(&clock, config(100));
    // Three runs of two attempts each.
    for _ in 0..3 {
        let error = clock.block_on(executor.run(down)).unwrap_err();
        assert_eq!(error.attempts(), 2);
    }
    let mut running = tokio_test::task::spawn(executor.run(|_| pending::<Result<(), &str>>()));
    let mut queued = tokio_test::task::spawn(executor.run(|_| async { Ok::<_, &str>(()) }));
    assert!(running.poll().is_pending() && queued.poll().is_pending());
    let chain = executor.policies();
    let seen = || {
        let (breaker, limiter) = (chain.breaker().counts(), chain.rate_limiter().unwrap());
        let (held, queued) = (chain.bulkhead().in_flight(), chain.bulkhead().queued());
        let budget = executor.budget().unwrap().available();
        (breaker.failures, breaker.consecutive_failures, limiter.available(), held, queued, budget)
    };
    assert_eq!(seen(), (6, 6, 3, 1, 1, 2));
    executor.reconfigure(config(50)).unwrap();
    assert_eq!(seen(), (6, 6, 3, 1, 1, 2));
    drop(running);
    assert!(queued.is_woken(), "its place in the queue is as good as before");
    assert!(matches!(queued.poll(), std::task::Poll::Ready(Ok(()))));
    executor.reconfigure(config(7)).unwrap();
    assert_eq!(seen(), (6, 0, 2, 0, 0, 2));
    let _seventh = clock.block_on(executor.run(down));
    assert_eq!(chain.breaker().state(), State::Open, "seven of eight, of which six were before the changes");
}

#[test]
fn a_bad_change_changes_nothing_and_says_what_is_wrong() {
    let (clock, _) = at_rest();
    let executor = built(&clock, StandardConfig::default());
    let before = executor.snapshot();
    let base = || StandardConfig::default().bulkhead(BulkheadConfig::new(3)).total_timeout(secs(20));
    for (bad, said) in [
        (base().attempt_timeout(secs(20)), "attempt_timeout = 20s: must be shorter than the total timeout"),
        (base().retry(Retry::exponential().max_attempts(0)), "retry.max_attempts = 0: must be at least 1"),
        (base().rate_limit(RateLimiterConfig::per_second(0)), "rate_limit.per = 0: must be at least 1"),
        (base().breaker(BreakerConfig::default()), "breaker.rule.window = 10 x 1s: cannot be changed while"),
        (base().budget(None), "budget = off: cannot be turned on or off while the executor runs"),
        (base().budget(BudgetConfig::concurrent(0.1)), "budget.form = in_flight: cannot be changed while"),
    ] {
        let refused = refusal(&executor, bad);
        assert!(refused.starts_with(said), "{refused}");
        assert_eq!(executor.snapshot(), before);
        assert_eq!(format!("{:?}", executor.config()), format!("{:?}", StandardConfig::default()));
    }
    let unbudgeted = built(&clock, StandardConfig::default().budget(None));
    assert!(refusal(&unbudgeted, StandardConfig::default()).starts_with("budget = on"));
}

#[test]
fn a_run_keeps_the_numbers_that_it_began_with() {
    let (clock, _) = at_rest();
    let retry = |n| Retry::fixed(secs(1)).max_attempts(n);
    let executor = built(&clock, StandardConfig::default().retry(retry(2)).budget(None));
    let script = Script::new(&clock, [err::<(), _>("E1"), err("E2"), ok(())]);
    let mut run = tokio_test::task::spawn(executor.run(|_| script.call_plain()));
    assert!(run.poll().is_pending());
    let next = StandardConfig::default().retry(retry(5)).total_timeout(ms(10)).attempt_timeout(ms(5)).budget(None);
    executor.reconfigure(next.clone()).unwrap();
    clock.advance(secs(1));
    assert!(run.is_woken());
    let std::task::Poll::Ready(Err(error)) = run.poll() else { panic!("two attempts") };
    assert_eq!((error.kind(), error.attempts()), (exhausted(Limit::Attempts), 2));
    let error = clock.block_on(executor.run(|_| pending::<Result<(), ()>>())).unwrap_err();
    assert_eq!((error.kind(), error.attempts()), (timed_out(ms(5)), 1), "a new run goes by the new ones");
}

#[test]
fn a_rate_limit_comes_and_goes_and_keeps_its_balance() {
    let (clock, _) = at_rest();
    let none = StandardConfig::default().retry(Retry::immediate().max_attempts(1));
    let limited = none.clone().rate_limit(RateLimiterConfig::per(2, secs(3600)));
    let executor = built(&clock, none.clone());
    let call = || clock.block_on(executor.run(|_| async { Ok::<_, String>(()) })).map_err(|error| error.kind());
    assert!(executor.policies().rate_limiter().is_none());
    executor.reconfigure(limited.clone()).unwrap();
    assert_eq!(executor.policies().rate_limiter().unwrap().available(), 2);
    assert_eq!((call(), call()), (Ok(()), Ok(())));
    assert!(matches!(call(), Err(Kind::RateLimited { .. })));
    executor.reconfigure(none).unwrap();
    assert_eq!(call(), Ok(()));
    assert_eq!(executor.snapshot().policies.len(), 5);
    executor.reconfigure(limited).unwrap();
    assert!(matches!(call(), Err(Kind::RateLimited { .. })), "what was used up is used up");
    clock.advance(secs(1800));
    assert_eq!(call(), Ok(()));
}

#[test]
fn clones_and_erased_executors_change_together_and_listeners_stay() {
    let (clock, _) = at_rest();
    let opened = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&opened);
    let listening = |rule| BreakerConfig::default().rule(rule);
    let breaker = listening(TripRule::consecutive(50)).on_transition(move |_| {
        count.fetch_add(1, Relaxed);
    });
    let config = StandardConfig::default().retry(Retry::immediate().max_attempts(1));
    let executor = built(&clock, config.clone().breaker(breaker));
    let (clone, erased) = (executor.clone(), executor.erase());
    clone.reconfigure(config.breaker(listening(TripRule::consecutive(1)))).unwrap();
    let _failed = clock.block_on(erased.run(down));
    assert_eq!(executor.policies().breaker().state(), State::Open);
    assert_eq!(opened.load(Relaxed), 1);
}

#[test]
fn a_budget_of_ones_own_does_not_change_with_the_chain() {
    let (clock, _) = at_rest();
    let shared = Budget::ratio(0.1).initial(1);
    let executor = Executor::standard("shared").budget(shared.clone()).clock(&clock).build().unwrap();
    executor.reconfigure(StandardConfig::default().budget(BudgetConfig::ratio(1.0).cap(1000))).unwrap();
    assert_eq!(shared.snapshot().cap, Some(10));
    assert_eq!(executor.budget().unwrap().snapshot().cap, Some(10));
}

/// Numbers of which a call can tell that they belong together: as many errors are kept as there are attempts.
fn matched(n: u32, permits: usize, rate: u64) -> StandardConfig {
    let never = TripRule::failure_rate(1.0).window(10, secs(3)).minimum_calls(u32::MAX);
    StandardConfig::default()
        .bulkhead(BulkheadConfig::new(permits).queue(permits).max_wait(secs(u64::from(n))))
        .retry(Retry::immediate().max_attempts(n).keep_errors(n as usize).jitter(Jitter::None))
        .rate_limit(RateLimiterConfig::per(rate, secs(1_000)).burst(BURST))
        .budget(BudgetConfig::ratio(0.0).floor(Duration::MAX).cap(BUDGET).initial(BUDGET))
        .breaker(BreakerConfig::default().rule(never).open_for(secs(u64::from(n))))
}

const BURST: u64 = 400_000;
const BUDGET: u32 = 400_000;
const CALLS: usize = 4_000;
const THREADS: usize = 3;

#[test]
fn reloading_under_load_loses_no_permit_and_forgets_no_count() {
    let (clock, _) = at_rest();
    let executor = built(&clock, matched(2, THREADS, 1_000));
    let (attempts, firsts, mixed) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let (ready, left) = (Barrier::new(THREADS + 1), AtomicUsize::new(THREADS));
    let reloads = thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                ready.wait();
                for n in 0..CALLS {
                    let run = executor.run(|attempt| {
                        attempts.fetch_add(1, Relaxed);
                        firsts.fetch_add(u64::from(attempt.number() == 1), Relaxed);
                        async move {
                            pending_times(n % 2).await;
                            Err::<(), _>("down")
                        }
                    });
                    let error = clock.block_on(run).unwrap_err();
                    mixed.fetch_add(u64::from(is_mixed(&error)), Relaxed);
                }
                left.fetch_sub(1, Relaxed);
            });
        }
        ready.wait();
        let mut reloads = 0;
        while left.load(Relaxed) > 0 || reloads < 2_000 {
            let next = if reloads % 2 == 0 { matched(5, 9, 500) } else { matched(2, THREADS, 1_000) };
            executor.reconfigure(next).unwrap();
            reloads += 1;
            thread::yield_now();
        }
        reloads
    });
    assert!(reloads >= 2_000, "{reloads}");
    assert_eq!(mixed.load(Relaxed), 0, "a run had numbers of two configurations");
    let (attempts, firsts) = (attempts.load(Relaxed), firsts.load(Relaxed));
    assert_eq!(firsts, (THREADS * CALLS) as u64);
    let chain = executor.policies();
    let (held, queued) = (chain.bulkhead().in_flight(), chain.bulkhead().queued());
    assert_eq!((held, queued), (0, 0));
    assert_eq!(chain.breaker().counts().calls, attempts, "the clock stands still, so nothing leaves the window");
    assert_eq!(chain.rate_limiter().unwrap().available(), BURST - attempts);
    assert_eq!(u64::from(executor.budget().unwrap().available()), u64::from(BUDGET) - (attempts - firsts));
}

fn is_mixed(error: &Error<&'static str>) -> bool {
    let made = error.attempts() as usize;
    error.kind() != exhausted(Limit::Attempts) || ![2, 5].contains(&made) || error.history().count() != made
}

#[test]
fn several_threads_that_change_the_numbers_leave_those_of_one() {
    let (clock, _) = at_rest();
    let executor = built(&clock, matched(2, 2, 1_000));
    thread::scope(|scope| {
        for n in 2..6_u32 {
            let executor = &executor;
            scope.spawn(move || {
                for _ in 0..500 {
                    executor.reconfigure(matched(n, n as usize, 1_000)).unwrap();
                }
            });
        }
    });
    let config = executor.config();
    let n = (2..6_u32).find(|n| format!("{config:?}") == format!("{:?}", matched(*n, *n as usize, 1_000))).unwrap();
    assert_eq!(executor.policies().bulkhead().permits(), n as usize);
    let error = clock.block_on(executor.run(down)).unwrap_err();
    assert_eq!((error.attempts(), error.history().count()), (n, n as usize));
}

#[test]
fn a_change_within_a_change_takes_effect() {
    let (clock, _) = at_rest();
    let executor = built(&clock, StandardConfig::default());
    let weak = executor.clone();
    // A listener that is dropped by the change makes another one.
    struct Again(Executor<StandardChain>);
    impl Drop for Again {
        fn drop(&mut self) {
            self.0.reconfigure(StandardConfig::default().bulkhead(BulkheadConfig::new(5))).unwrap();
        }
    }
    let again = Again(weak);
    let rule = || TripRule::failure_rate(0.5).window(10, secs(3));
    let listening = BreakerConfig::default().rule(rule()).on_transition(move |_| {
        again.0.close();
    });
    executor.reconfigure(StandardConfig::default().breaker(listening)).unwrap();
    let other = BreakerConfig::default().rule(rule()).on_transition(drop);
    executor.reconfigure(StandardConfig::default().breaker(other)).unwrap();
    assert_eq!(executor.policies().bulkhead().permits(), 5);
}

#[test]
fn a_permanent_error_is_an_answer_as_in_every_chain() -> Result<(), ConfigError> {
    let (clock, _) = at_rest();
    let executor = built(&clock, StandardConfig::default());
    let script = Script::new(&clock, [permanent::<(), _>("gone")]);
    let cx = Context::new().with_clock(&clock);
    let error = clock.block_on(executor.run_with(&cx, faults(|_| script.call()))).unwrap_err();
    assert_eq!((error.attempts(), error.last()), (1, Some(&"gone")));
    let fault = |_| async { Err::<(), _>(Fault::Fatal("broken")) };
    assert_eq!(clock.block_on(executor.run(faults(fault))).unwrap_err().attempts(), 1);
    executor.reconfigure(StandardConfig::default())
}
