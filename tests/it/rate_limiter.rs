//! The rate limiter: what it lets through and when, who waits, and what a caller that leaves leaves behind.

use std::collections::VecDeque;
use std::future::ready;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::join_all;
use steadfast::clock::{Clock, ManualClock};
use steadfast::error::Kind;
use steadfast::event::What;
use steadfast::limit::{MAX_FILL_TIME, MAX_RATE, RateLimiter, RateLimiterConfig};
use steadfast::policy::{Call, Next, Outcome, Policy, Settings};
use steadfast::retry::OnRejection;
use steadfast::{CancellationToken, Context, Executor, Priority, Retry, Timeout, Verdict, try_do};
use tokio_test::task::spawn;
use tokio_test::{assert_pending, assert_ready, assert_ready_err, assert_ready_ok};

use crate::policies::Probe;
use crate::rate_limiter_bound::Skewed;
use crate::support::{Recorder, at_rest, mins, ms, ok, scenario, secs};

fn limited(wait: Duration) -> Kind {
    Kind::RateLimited { retry_after: Some(wait) }
}

/// A limiter on a manual clock.
fn limiter(config: RateLimiterConfig) -> (RateLimiter, ManualClock) {
    let (clock, _) = at_rest();
    let limiter = RateLimiter::new(config);
    limiter.bind(&clock).unwrap();
    (limiter, clock)
}

/// Starts so many calls at once, in order, and gives for each when its operation ran, or for how long it was told to stay away
/// and when.
fn all_at_once(
    limiter: &RateLimiter,
    clock: &ManualClock,
    calls: usize,
) -> Vec<Result<Duration, (Duration, Duration)>> {
    let cx = Context::new().with_clock(clock);
    let start = clock.now();
    let since = || clock.now().since(start);
    let call = async |_| {
        let run = try_do(&cx, |_| ready(Ok::<_, ()>(since())), limiter);
        run.await.map_err(|error| (error.retry_after().unwrap(), since()))
    };
    clock.block_on(join_all((0..calls).map(call)))
}

#[test]
fn what_is_there_goes_at_once_and_the_rest_is_refused_with_the_exact_wait() {
    let config = || RateLimiterConfig::per_second(10).burst(3);
    let seen = scenario(|| RateLimiter::new(config())).everywhere([ok::<_, ()>(7)]);
    assert_eq!((seen.result, seen.took), (Ok(7), secs(0)));
    let (limiter, clock) = limiter(config());
    let runs = all_at_once(&limiter, &clock, 5);
    let refused = Err((ms(100), secs(0)));
    assert_eq!(runs, [Ok(secs(0)), Ok(secs(0)), Ok(secs(0)), refused, refused]);
    clock.advance(ms(350));
    assert_eq!(limiter.available(), 3);
    assert_eq!(limiter.try_acquire_many(3), Ok(()));
    assert_eq!(limiter.try_acquire().unwrap_err().retry_after(), Some(ms(100)), "it was full for 50 ms");
}

/// Case `rate-zero-allows-everything`, `nan-passes-less-than-zero-check` and `burst-computation-overflows`: rates are whole
/// numbers, and those that cannot work are refused when they are built and let nothing through when they are not.
#[test]
fn settings_that_cannot_work_let_nothing_through() {
    let config = RateLimiterConfig::per_second;
    let cases = [
        (config(0), "per"),
        (RateLimiterConfig::per(1, secs(0)), "period"),
        (config(u64::MAX), "per"),
        (config(MAX_RATE + 1), "per"),
        (RateLimiterConfig::per(2, Duration::from_nanos(1)), "per"),
        (config(10).burst(0), "burst"),
        (config(1).burst(u64::from(u32::MAX)), "burst"),
        (config(1).burst(u64::MAX), "burst"),
        (RateLimiterConfig::per(1, MAX_FILL_TIME + ms(1)), "burst"),
        (RateLimiterConfig::per(1, Duration::MAX), "burst"),
        (config(10).max_wait(secs(1)).queue(0), "queue"),
        (config(10).weight(0), "weight"),
        (config(10).burst(3).weight(4), "weight"),
    ];
    for (config, field) in cases {
        assert_eq!(config.check().unwrap_err().field(), field, "{config:?}");
        let limiter = RateLimiter::new(config.clone());
        assert_eq!(Executor::builder("x").policies(limiter.clone()).build().unwrap_err().field(), field);
        for _ in 0..1_000 {
            let refused = limiter.try_acquire().unwrap_err();
            assert_eq!((refused.kind(), refused.config().unwrap().field()), (Kind::Misconfigured, field));
        }
        let (clock, cx) = at_rest();
        let refused = clock.block_on(limiter.acquire_with(&cx, 1)).unwrap_err();
        assert_eq!(refused.kind(), Kind::Misconfigured);
        let run = try_do(&cx, |_| async { Ok::<_, ()>(()) }, &limiter);
        assert_eq!(clock.block_on(run).unwrap_err().kind(), Kind::Misconfigured);
        assert!(limiter.reconfigure(RateLimiterConfig::per_second(1)).is_err(), "it never began");
    }
    assert_a_name_that_cannot_work_is_refused_everywhere();
}

/// With tokens and without, with a queue or without.
fn assert_a_name_that_cannot_work_is_refused_everywhere() {
    for wait in [secs(0), secs(10)] {
        let (named, clock) = limiter(RateLimiterConfig::per_second(1).max_wait(wait));
        let cx = Context::new().with_clock(&clock);
        let unnamed = named.clone().named("");
        let built = Executor::builder("x").policies(unnamed.clone()).clock(&clock).build();
        assert_eq!(built.unwrap_err().field(), "name");
        for left in [1, 0] {
            let run = try_do(&cx, |_| ready(Ok::<_, ()>(())), &unnamed);
            assert_eq!(clock.block_on(run).unwrap_err().kind(), Kind::Misconfigured);
            let refused = [
                unnamed.try_acquire().unwrap_err(),
                unnamed.try_acquire_many(1).unwrap_err(),
                assert_ready_err!(spawn(unnamed.acquire()).poll()),
                assert_ready_err!(spawn(unnamed.acquire_many(1)).poll()),
                assert_ready_err!(spawn(unnamed.acquire_with(&cx, 1)).poll()),
            ];
            for refused in refused {
                assert_eq!((refused.kind(), refused.config().unwrap().field()), (Kind::Misconfigured, "name"));
            }
            assert_eq!((named.available(), named.queued()), (left, 0));
            let _taken = named.try_acquire();
        }
    }
}

#[test]
fn the_extremes_that_can_work_do() {
    let most = |config: RateLimiterConfig, burst: u64| {
        let (limiter, clock) = limiter(config);
        assert_eq!(limiter.available(), burst);
        assert_eq!(limiter.try_acquire_many(burst), Ok(()));
        assert_eq!(limiter.available(), 0);
        let wait = limiter.try_acquire().unwrap_err().retry_after().unwrap();
        clock.advance(wait);
        assert_eq!(limiter.try_acquire(), Ok(()));
        wait
    };
    assert_eq!(most(RateLimiterConfig::per_second(MAX_RATE), MAX_RATE), Duration::from_nanos(1));
    assert_eq!(most(RateLimiterConfig::per_second(1_000).burst(u64::from(u32::MAX)), u64::from(u32::MAX)), ms(1));
    assert_eq!(most(RateLimiterConfig::per(1, MAX_FILL_TIME), 1), MAX_FILL_TIME);
    assert_eq!(most(RateLimiterConfig::per(1, secs(86_400)), 1), secs(86_400));
}

/// Case `float-rounding-starves`, and line 95 of the first part: constructors agree.
#[test]
fn every_wait_that_is_named_is_enough() {
    for (tokens, period) in [(3, secs(1)), (7, secs(1)), (1, secs(10)), (1, secs(86_400))] {
        let (limiter, clock) = limiter(RateLimiterConfig::per(tokens, period).burst(1));
        let start = clock.now();
        limiter.try_acquire().unwrap();
        for _ in 0..10_000 {
            clock.advance(limiter.try_acquire().unwrap_err().retry_after().unwrap());
            limiter.try_acquire().unwrap();
        }
        let (took, ideal) = (clock.now().since(start), period * 10_000 / tokens as u32);
        assert!((took.as_secs_f64() / ideal.as_secs_f64() - 1.0).abs() < 0.001, "{took:?}");
    }
    let (minute, second) = (RateLimiterConfig::per(600, mins(1)).burst(1), RateLimiterConfig::per_second(10).burst(1));
    for config in [minute, second] {
        let (limiter, _) = limiter(config);
        limiter.try_acquire().unwrap();
        assert_eq!(limiter.try_acquire().unwrap_err().retry_after(), Some(ms(100)));
    }
}

/// Case `cancelled-reservation-loses-tokens`.
#[test]
fn a_waiter_that_leaves_leaves_no_trace() {
    let (limiter, clock) = limiter(RateLimiterConfig::per_second(10).max_wait(secs(10)));
    for round in 0..1_000 {
        let begun = clock.now();
        limiter.try_acquire_many(10).unwrap();
        let mut first = spawn(limiter.acquire_many(5));
        assert_pending!(first.poll());
        clock.advance(ms(10));
        let mut second = spawn(limiter.acquire_many(5));
        assert_pending!(second.poll());
        assert_eq!(limiter.queued(), 2);
        drop(first);
        assert!(second.is_woken(), "it is the first now");
        assert_pending!(second.poll());
        clock.advance(ms(489));
        assert_pending!(second.poll());
        clock.advance(ms(1));
        assert!(second.is_woken());
        assert_ready_ok!(second.poll());
        assert_eq!(clock.now().since(begun), ms(500), "round {round}");
        assert_eq!((limiter.queued(), clock.sleepers(), limiter.available()), (0, 0, 0));
        clock.advance(secs(1));
    }
}

/// Case `denied-acquire-delays-the-next`.
#[test]
fn a_refusal_changes_nothing() {
    let (limiter, clock) = limiter(RateLimiterConfig::per_second(1).burst(1).max_wait(secs(1)));
    assert_eq!(limiter.try_acquire_many(5).unwrap_err().kind(), Kind::RateLimited { retry_after: None });
    assert_eq!(clock.block_on(limiter.acquire_many(5)).unwrap_err().retry_after(), None);
    assert_eq!(clock.block_on(limiter.acquire()), Ok(()));
    assert_eq!(clock.now(), at_rest().0.now(), "no time has passed");
    for _ in 0..100 {
        assert_eq!(limiter.try_acquire().unwrap_err().retry_after(), Some(secs(1)));
    }
}

/// Case `cycle-rounding-over-admits`: as a bucket has no cycles, three in ten seconds and no more is a burst of one.
#[test]
fn no_more_start_than_the_burst_and_the_rate_allow() {
    let (bursts, clock) = limiter(RateLimiterConfig::per(3, secs(10)).max_wait(secs(12)));
    let runs = all_at_once(&bursts, &clock, 10);
    assert_eq!(runs[..3], [Ok(secs(0)); 3]);
    assert_eq!(runs[5], Ok(secs(10) + Duration::from_nanos(1)), "thirds of a period are rounded up");
    assert_eq!(runs.iter().filter(|run| run.is_err()).count(), 4);
    assert!(runs[6..].iter().all(|run| run.unwrap_err().1 == secs(0)), "at once");

    let (even, clock) = limiter(RateLimiterConfig::per(3, secs(10)).burst(1).max_wait(secs(12)));
    let starts: Vec<_> = all_at_once(&even, &clock, 10).into_iter().flatten().collect();
    assert_eq!(starts.len(), 4);
    assert!(starts.windows(4).all(|four| four[3] - four[0] >= secs(10)), "{starts:?}");
}

/// Case `second-wait-treated-as-admission`.
#[test]
fn a_crowd_starts_at_the_rate() {
    let (limiter, clock) = limiter(RateLimiterConfig::per_second(10).max_wait(secs(20)));
    let runs = all_at_once(&limiter, &clock, 100);
    let starts: Vec<_> = runs.into_iter().map(|run| run.unwrap()).collect();
    assert!(starts.is_sorted(), "in the order in which they came");
    for (index, start) in starts.iter().enumerate() {
        assert_eq!(*start, ms(100) * (index as u32).saturating_sub(9));
    }
    assert_eq!((clock.sleepers(), limiter.queued()), (0, 0));
}

/// Case `only-last-waiter-woken`.
#[test]
fn all_who_wait_run_in_their_order() {
    let (limiter, clock) = limiter(RateLimiterConfig::per_second(1).burst(1).max_wait(secs(60)));
    let runs = all_at_once(&limiter, &clock, 6);
    assert_eq!(runs, [0, 1, 2, 3, 4, 5].map(|second| Ok(secs(second))));
}

#[test]
fn only_the_first_in_line_sleeps() {
    let (limiter, clock) = limiter(RateLimiterConfig::per_second(1).burst(1).max_wait(secs(60)));
    limiter.try_acquire().unwrap();
    let mut waiting: VecDeque<_> = (0..5).map(|_| spawn(limiter.acquire())).collect();
    waiting.iter_mut().for_each(|waiter| assert_pending!(waiter.poll()));
    assert_eq!((limiter.queued(), clock.sleepers()), (5, 1));
    while let Some(mut first) = waiting.pop_front() {
        assert_eq!(limiter.try_acquire().unwrap_err().retry_after(), Some(secs(waiting.len() as u64 + 2)));
        clock.advance(secs(1));
        assert!(first.is_woken() && !waiting.iter().any(tokio_test::task::Spawn::is_woken));
        assert_ready_ok!(first.poll());
        if let Some(next) = waiting.front_mut() {
            assert!(next.is_woken());
            assert_pending!(next.poll());
            assert_eq!(clock.sleepers(), 1);
        }
    }
    assert_eq!((limiter.queued(), clock.sleepers()), (0, 0));
}

/// Case `queue-overflow-bypasses-limit`.
#[test]
fn who_finds_the_queue_full_is_refused() {
    let (limiter, clock) = limiter(RateLimiterConfig::per_second(10).max_wait(mins(1)).queue(100));
    let runs = all_at_once(&limiter, &clock, 1_000);
    let at_once = runs.iter().filter(|run| **run == Ok(secs(0))).count();
    let later = runs.iter().flatten().filter(|start| **start > secs(0)).count();
    let refused = runs.iter().filter(|run| **run == Err((ms(10_100), secs(0)))).count();
    assert_eq!((at_once, later, refused), (10, 100, 890));
}

/// Case `waits-although-hopeless`, and lines 97 of the first part and 104 of the second.
#[test]
fn a_wait_that_is_too_long_is_not_begun() {
    let (limiter, clock) = limiter(RateLimiterConfig::per(1, secs(10)).max_wait(secs(2)));
    limiter.try_acquire().unwrap();
    assert_eq!(all_at_once(&limiter, &clock, 1), [Err((secs(10), secs(0)))]);
    let mut refused = spawn(limiter.acquire());
    assert_eq!(assert_ready_err!(refused.poll()).kind(), limited(secs(10)));
    clock.advance(secs(8));
    // The first may wait for two seconds, those behind it would have to for twelve and more; and are told so.
    let runs = all_at_once(&limiter, &clock, 3);
    assert_eq!(runs, [Ok(secs(2)), Err((secs(12), secs(0))), Err((secs(12), secs(0)))]);
}

#[test]
fn a_wait_that_cannot_end_before_the_deadline_is_not_begun() {
    let config = || RateLimiterConfig::per(1, secs(10)).max_wait(mins(1));
    let (limiter, clock) = limiter(config());
    limiter.try_acquire().unwrap();
    let cx = Context::new().with_clock(&clock);
    let run = |cx: Context, limit: u64| {
        let result = clock.block_on(try_do(&cx, |_| async { Ok::<_, ()>(()) }, (Timeout::secs(limit), &limiter)));
        result.map_err(|error| error.kind())
    };
    assert_eq!(run(cx.clone().with_timeout(secs(10)), 60), Err(limited(secs(10))));
    assert_eq!(run(cx.clone(), 10), Err(limited(secs(10))), "nor a limit of the chain");
    let refused = clock.block_on(limiter.acquire_with(&cx.clone().with_timeout(secs(10)), 1)).unwrap_err();
    assert_eq!(refused.kind(), limited(secs(10)));
    assert_eq!(clock.now(), at_rest().0.now());
    assert_eq!(run(cx.with_timeout(secs(11)), 60), Ok(()));
}

/// Lines 98 of the first part and 108 of the second.
#[test]
fn whatever_ends_the_run_ends_its_wait_and_takes_nothing() {
    let config = || RateLimiterConfig::per(1, secs(10)).max_wait(mins(1));
    let (limiter, clock) = limiter(config());
    let executor = Executor::builder("x").policies(limiter.clone()).clock(&clock).build().unwrap();
    let token = CancellationToken::new();
    let cx = Context::new().with_clock(&clock).with_token(token.clone());
    limiter.try_acquire().unwrap();
    let started = AtomicU64::new(0);
    let operation = |_| ready(Ok::<_, ()>(started.fetch_add(1, Ordering::Relaxed)));
    let mut by_token = spawn(executor.run_with(&cx, operation));
    let mut by_drop = spawn(executor.run(operation));
    let mut alone = spawn(limiter.acquire_with(&cx, 1));
    let mut by_shutdown = spawn(executor.run(operation));
    assert_pending!(by_token.poll());
    assert_pending!(by_drop.poll());
    assert_pending!(alone.poll());
    assert_pending!(by_shutdown.poll());
    clock.advance(secs(10));
    // The tokens are there and the caller has left, in the same poll: nothing is started.
    token.cancel();
    assert_eq!(assert_ready_err!(by_token.poll()).kind(), Kind::Cancelled);
    drop(by_drop);
    assert_eq!(assert_ready_err!(alone.poll()).kind(), Kind::Cancelled);
    executor.shutdown();
    assert_eq!(assert_ready_err!(by_shutdown.poll()).kind(), Kind::ShutDown);
    assert_eq!((started.load(Ordering::Relaxed), limiter.queued(), clock.sleepers()), (0, 0, 0));
    assert_eq!(limiter.try_acquire(), Ok(()));
}

#[test]
fn a_caller_that_has_ended_gets_nothing() {
    let (limiter, clock) = limiter(RateLimiterConfig::per_second(1));
    let cx = Context::new().with_clock(&clock);
    let token = CancellationToken::new();
    token.cancel();
    let refused = clock.block_on(limiter.acquire_with(&cx.clone().with_token(token), 1)).unwrap_err();
    assert_eq!(refused.kind(), Kind::Cancelled);
    let refused = clock.block_on(limiter.acquire_with(&cx.clone().with_timeout(secs(0)), 1)).unwrap_err();
    assert_eq!(refused.kind(), Kind::DeadlineExceeded);
    assert_eq!(clock.block_on(limiter.acquire_with(&cx, 1)), Ok(()));
}

#[test]
fn a_timer_that_is_late_starts_nothing_after_the_deadline() {
    let (limiter, clock) = limiter(RateLimiterConfig::per(1, secs(10)).max_wait(mins(1)));
    limiter.try_acquire().unwrap();
    let cx = Context::new().with_clock(&clock).with_timeout(secs(11));
    let started = AtomicU64::new(0);
    let mut run = spawn(try_do(&cx, |_| ready(Ok::<_, ()>(started.fetch_add(1, Ordering::Relaxed))), &limiter));
    assert_pending!(run.poll());
    clock.advance(secs(12));
    assert_eq!(assert_ready_err!(run.poll()).kind(), Kind::DeadlineExceeded);
    assert_eq!((started.load(Ordering::Relaxed), limiter.available()), (0, 1));
}

#[test]
fn a_limit_that_ends_the_wait_is_no_failure_of_the_dependency() {
    let (limiter, clock) = limiter(RateLimiterConfig::per(1, secs(10)).max_wait(mins(1)));
    limiter.try_acquire().unwrap();
    // The wait is found to end in time, and then the rate becomes slower; the queue knows, the limit comes first.
    let cx = Context::new().with_clock(&clock);
    let probe = Probe::default();
    let chain = (probe.clone(), Timeout::secs(11), &limiter);
    let mut run = spawn(try_do(&cx, |_| async { Ok::<_, ()>(()) }, chain));
    assert_pending!(run.poll());
    clock.advance(secs(11));
    assert_eq!(assert_ready_err!(run.poll()).kind(), Kind::TimedOut { limit: secs(11) });
    assert_eq!(probe.verdicts(), [Verdict::Rejected { retry_after: None }]);
    assert_eq!(limiter.available(), 1);
}

/// Lines 91, 93, 94 and 96 of the first part.
#[test]
fn several_tokens_at_once_wait_as_long_as_one_after_another() {
    for (interval, waits) in [(ms(500), [500, 1_500, 3_000]), (ms(200), [200, 600, 1_200])] {
        let config = RateLimiterConfig::per(1, interval).burst(3).max_wait(mins(1));
        let (limiter, clock) = limiter(config);
        let start = clock.now();
        assert_eq!(clock.block_on(limiter.acquire_many(3)), Ok(()), "the first never wait");
        for (tokens, until) in (1..=3).zip(waits) {
            assert_eq!(clock.block_on(limiter.acquire_many(tokens)), Ok(()));
            assert_eq!(clock.now().since(start), ms(until));
        }
    }
}

/// Lines 103, 105 and 106 of the second part.
#[test]
fn a_pause_gives_no_more_than_the_burst() {
    let (limiter, clock) = limiter(RateLimiterConfig::per_second(10));
    limiter.try_acquire_many(10).unwrap();
    clock.advance(mins(60));
    assert_eq!(limiter.available(), 10);
    limiter.try_acquire_many(10).unwrap();
    assert_eq!(limiter.try_acquire().unwrap_err().retry_after(), Some(ms(100)));
}

#[test]
fn calls_weigh_what_they_are_told_to() {
    let (heavy, clock) = limiter(RateLimiterConfig::per_second(10).weight(5));
    let refused = Err((ms(500), secs(0)));
    assert_eq!(all_at_once(&heavy, &clock, 3), [Ok(secs(0)), Ok(secs(0)), refused]);

    let by_priority = |cx: &Context| match cx.priority() {
        Priority::Critical => 0,
        Priority::Background => 5,
        Priority::Low => 50,
        _ => 1,
    };
    let (limiter, clock) = limiter(RateLimiterConfig::per_second(10).weigh_by(by_priority));
    let call = |priority| {
        let cx = Context::new().with_clock(&clock).with_priority(priority);
        let run = try_do(&cx, |_| async { Ok::<_, ()>(()) }, &limiter);
        clock.block_on(run).map_err(|error| error.retry_after())
    };
    assert_eq!(call(Priority::Background), Ok(()));
    assert_eq!(call(Priority::Low), Err(None), "never as many at once");
    assert_eq!(call(Priority::Normal), Ok(()));
    assert_eq!(call(Priority::Background), Err(Some(ms(100))));
    limiter.try_acquire_many(4).unwrap();
    assert_eq!(call(Priority::Normal), Err(Some(ms(100))));
    assert_eq!(call(Priority::Critical), Ok(()));
    assert_eq!(limiter.try_acquire_many(0), Ok(()));
}

/// Line 109 of the second part.
#[test]
fn new_settings_keep_the_tokens_and_the_places() {
    let (limiter, clock) = limiter(RateLimiterConfig::per(1, secs(10)).burst(10).max_wait(mins(2)));
    limiter.try_acquire_many(4).unwrap();
    limiter.reconfigure(RateLimiterConfig::per_second(1).burst(4).max_wait(secs(3))).unwrap();
    assert_eq!(limiter.available(), 4);
    limiter.try_acquire_many(4).unwrap();
    let mut first = spawn(limiter.acquire_many(2));
    let mut second = spawn(limiter.acquire());
    assert_pending!(first.poll());
    assert_pending!(second.poll());
    assert_eq!(assert_ready_err!(spawn(limiter.acquire()).poll()).retry_after(), Some(secs(4)));
    // Ten times as fast.
    limiter.reconfigure(RateLimiterConfig::per_second(10).burst(4).max_wait(secs(3))).unwrap();
    assert!(first.is_woken());
    assert_pending!(first.poll());
    clock.advance(ms(200));
    assert_ready_ok!(first.poll());
    assert_pending!(second.poll());
    clock.advance(ms(100));
    assert_ready_ok!(second.poll());
    assert_eq!((limiter.queued(), clock.sleepers()), (0, 0));
}

#[test]
fn a_slower_rate_refuses_those_at_once_who_cannot_wait_as_long() {
    let config = |n| RateLimiterConfig::per_second(n).burst(10).max_wait(secs(3));
    let (limiter, _clock) = limiter(config(10));
    limiter.try_acquire_many(10).unwrap();
    let mut waiting: Vec<_> = [1, 5, 1].map(|tokens| spawn(limiter.acquire_many(tokens))).into();
    waiting.iter_mut().for_each(|waiter| assert_pending!(waiter.poll()));
    limiter.reconfigure(config(1)).unwrap();
    assert_eq!(limiter.queued(), 2, "the five tokens would take six seconds");
    assert_pending!(waiting[0].poll());
    assert!(waiting[1].is_woken());
    assert_eq!(assert_ready_err!(waiting[1].poll()).retry_after(), Some(secs(7)), "behind the two others now");
    assert_pending!(waiting[2].poll());
    // And with a burst that cannot hold them they are refused for good.
    let mut five = spawn(limiter.acquire_many(1));
    assert_pending!(five.poll());
    limiter.reconfigure(RateLimiterConfig::per(1, mins(1)).max_wait(secs(3))).unwrap();
    for waiter in waiting.iter_mut().chain([&mut five]).filter(|waiter| waiter.is_woken()) {
        assert_eq!(assert_ready_err!(waiter.poll()).retry_after(), Some(mins(1)));
    }
    assert_eq!(limiter.queued(), 0);
}

#[test]
fn settings_that_cannot_work_change_nothing() {
    let (limiter, _) = limiter(RateLimiterConfig::per_second(10).weight(5));
    assert_eq!(limiter.reconfigure(RateLimiterConfig::per_second(0)).unwrap_err().field(), "per");
    assert_eq!(limiter.reconfigure(RateLimiterConfig::per_second(4)).unwrap_err().field(), "weight");
    assert_eq!(limiter.available(), 10);
    limiter.reconfigure(RateLimiterConfig::per_second(20)).unwrap();
    assert_eq!(limiter.available(), 20, "it was never used, and is full");
}

/// Line 100 of the first part: a refusal is not retried unless the retry is told to wait.
#[test]
fn a_retry_stops_at_a_refusal_or_waits_for_the_named_time() {
    let chain = || RateLimiter::new(RateLimiterConfig::per_second(1).burst(3));
    let err = crate::support::err::<u32, &str>;
    let run = scenario(move || (Retry::immediate().max_attempts(7), chain())).everywhere([err("down")]);
    assert_eq!((run.kind(), run.calls.len(), run.last()), (limited(secs(1)), 3, Some("down")));
    let waits = move || (Retry::immediate().max_attempts(7).on_rejection(OnRejection::Wait), chain());
    let run = scenario(waits).everywhere([err("down"), err("down"), err("down"), ok(7)]);
    assert!(run.result == Ok(7) && run.took >= secs(1) && run.took <= ms(1_100), "{run:?}");
}

/// Line 99 of the first part, 101 and 111 of the second.
#[test]
fn every_refusal_is_an_event_and_carries_the_name() {
    let (clock, _) = at_rest();
    let recorder = Recorder::default();
    let limiter = RateLimiter::new(RateLimiterConfig::per_second(1)).named("quota");
    let builder = Executor::builder("billing").policies(limiter.clone()).clock(&clock).observe(recorder.clone());
    let executor = builder.build().unwrap();
    for _ in 0..3 {
        let _result = clock.block_on(executor.run(|_| async { Ok::<_, ()>(()) }));
    }
    let refused = clock.block_on(executor.run(|_| async { Ok::<_, String>(()) })).unwrap_err();
    assert_eq!(refused.to_string(), "quota: rate limited, free in 1 s");
    let rejected = What::Rejected { by: "rate_limiter", kind: limited(secs(1)) };
    assert_eq!(recorder.events().iter().filter(|(_, what)| *what == rejected).count(), 3);
    assert_eq!(limiter.try_acquire().unwrap_err().to_string(), "quota: rate limited, free in 1 s");
    assert!(format!("{limiter:?}").contains("quota"));
}

#[test]
fn it_keeps_to_its_first_clock() {
    let (limiter, clock) = limiter(RateLimiterConfig::per_second(1));
    assert!(limiter.bind(&clock).is_ok());
    assert_eq!(limiter.bind(Clock::tokio()).unwrap_err().field(), "clock");
    let error = Executor::builder("x").policies(limiter).clock(Clock::tokio()).build().unwrap_err();
    assert_eq!(error.field(), "clock");
    let by_context = RateLimiter::per_second(1);
    assert_eq!(clock.block_on(by_context.acquire_with(&Context::new().with_clock(&clock), 1)), Ok(()));
    assert_eq!(by_context.bind(&clock), Ok(()));
    let unused = RateLimiter::per_second(1);
    unused.reconfigure(RateLimiterConfig::per_second(2)).unwrap();
    assert_eq!((unused.available(), unused.bind(&clock)), (2, Ok(())), "looking and changing do not bind it");
}

#[test]
fn a_limit_inside_of_others_makes_the_run_longer_by_its_wait() {
    let waits = RateLimiter::new(RateLimiterConfig::per_second(1).max_wait(secs(3)));
    use steadfast::policy::Settings;
    assert_eq!(waits.limit(Some(secs(2))), Some(secs(5)));
    assert_eq!(waits.limit(None), None);
}

/// Case `wait-hint-explodes-on-clock-skew`.
#[test]
fn a_clock_that_steps_back_costs_a_burst_at_most() {
    let (manual, off) = (Clock::manual(), Arc::new(Mutex::new(0)));
    let limiter = RateLimiter::new(RateLimiterConfig::per_second(2_000).burst(5_000).max_wait(secs(5)));
    limiter.bind(Clock::custom(Skewed { clock: manual.clone(), off: Arc::clone(&off) })).unwrap();
    (0..8).for_each(|_| limiter.try_acquire().unwrap());
    *off.lock().unwrap() = -1_891_000_000_000;
    let wait = limiter.try_acquire_many(5_000).unwrap_err().retry_after().unwrap();
    assert!(wait <= ms(2_500), "{wait:?}");
    assert_eq!(manual.block_on(limiter.acquire_many(2_000)), Ok(()));
    assert!(manual.now().since(at_rest().0.now()) <= secs(1));
}

/// A timer that was set before the clock stepped back does not end a wait that begins anew.
#[test]
fn a_timer_from_before_a_step_back_admits_nobody_early() {
    let (manual, off) = (Clock::manual(), Arc::new(Mutex::new(0)));
    let config = |n| RateLimiterConfig::per_second(n).burst(1).max_wait(secs(5));
    let limiter = RateLimiter::new(config(10));
    limiter.bind(Clock::custom(Skewed { clock: manual.clone(), off: Arc::clone(&off) })).unwrap();
    limiter.try_acquire().unwrap();
    let mut waiting = spawn(limiter.acquire());
    assert_pending!(waiting.poll());
    // It is to wait for twice as long, and so until the same moment as before.
    *off.lock().unwrap() = -100_000_000;
    limiter.reconfigure(config(5)).unwrap();
    assert!(waiting.is_woken());
    assert_pending!(waiting.poll());
    manual.advance(ms(199));
    assert_pending!(waiting.poll());
    manual.advance(ms(1));
    assert_ready_ok!(waiting.poll());
    assert_eq!(manual.sleepers(), 0);
}

#[test]
fn a_future_that_is_done_stays_out_of_the_way() {
    let (limiter, clock) = limiter(RateLimiterConfig::per_second(1).max_wait(secs(5)));
    limiter.try_acquire().unwrap();
    let mut done = spawn(limiter.acquire());
    assert_pending!(done.poll());
    clock.advance(secs(1));
    assert!(assert_ready!(done.poll()).is_ok());
    drop(done);
    assert_eq!((limiter.queued(), limiter.available()), (0, 0));
}

/// A policy of one's own that has another one inside of it and does not pass on the check of its chain: nothing is bound.
#[test]
fn new_settings_reach_a_limiter_that_was_never_bound() {
    struct Around(RateLimiter);
    impl Settings for Around {}
    impl<T: Send, E: Send> Policy<T, E> for Around {
        async fn run<N: Next<T, E>>(&self, call: Call<'_, E>, next: N) -> Outcome<T, E> {
            self.0.run(call, next).await
        }
    }
    let limiter = RateLimiter::new(RateLimiterConfig::per_second(1));
    let (clock, cx) = at_rest();
    let run = || clock.block_on(try_do(&cx, |_| ready(Ok::<_, ()>(())), Around(limiter.clone())));
    assert!(run().is_ok() && run().is_err());
    limiter.reconfigure(RateLimiterConfig::per_second(5)).unwrap();
    assert_eq!(limiter.snapshot().burst, 5);
}
