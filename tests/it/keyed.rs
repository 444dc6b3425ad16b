//! One rate limiter for each key, in a map with a bound.

use std::future::{pending, ready};

use steadfast::clock::{Clock, ManualClock};
use steadfast::error::Kind;
use steadfast::keyed::DEFAULT_CAPACITY;
use steadfast::limit::RateLimiterConfig;
use steadfast::{Breaker, Bulkhead, Context, Executor, Keyed, RateLimiter, Retry, Timeout, try_do};
use tokio_test::task::spawn;
use tokio_test::{assert_pending, assert_ready_ok};

use crate::support::{at_rest, mins, ms, ok, scenario, secs};

/// Limits of a token each second, with a burst of two, for so many keys.
fn limits(capacity: usize) -> (Keyed<RateLimiter>, ManualClock) {
    let clock = Clock::manual();
    let limits = Keyed::with_capacity(RateLimiterConfig::per_second(1).burst(2), capacity);
    let executor = Executor::builder("x").policies(limits.clone()).clock(&clock).build().unwrap();
    drop(executor);
    (limits, clock)
}

/// One call with a key: the time until it would be admitted, or `None` if it was.
fn call(limits: &Keyed<RateLimiter>, clock: &ManualClock, key: &str) -> Option<std::time::Duration> {
    let cx = Context::new().with_clock(clock).with_key(key);
    let run = clock.block_on(try_do(&cx, |_| ready(Ok::<_, ()>(())), limits));
    run.err().map(|error| error.retry_after().unwrap())
}

#[test]
fn every_key_has_a_limit_of_its_own() {
    let (limits, clock) = limits(100);
    for key in ["a", "b", ""] {
        assert_eq!([1, 2, 3].map(|_| call(&limits, &clock, key)), [None, None, Some(secs(1))], "{key}");
    }
    let cx = Context::new().with_clock(&clock);
    let without = clock.block_on(try_do(&cx, |_| ready(Ok::<_, ()>(())), &limits)).unwrap_err();
    assert_eq!(without.kind(), Kind::RateLimited { retry_after: Some(secs(1)) }, "without a key it is the empty one");
    assert_eq!((limits.len(), limits.evictions()), (3, 0));
    assert_eq!(limits.get("a").try_acquire().unwrap_err().retry_after(), Some(secs(1)));
    let seen = scenario(|| Keyed::<RateLimiter>::new(RateLimiterConfig::per_second(1))).everywhere([ok::<_, ()>(7)]);
    assert_eq!((seen.result, seen.took), (Ok(7), secs(0)));
}

/// Case `eviction-skips-empty-key`.
#[test]
fn the_empty_key_makes_room_like_any_other() {
    let (limits, clock) = limits(2);
    for key in ["", "one", "two", "three"] {
        assert_eq!(call(&limits, &clock, key), None);
        assert!(limits.len() <= 2);
    }
    assert!(limits.peek("").is_none() && limits.peek("one").is_none());
    assert_eq!((limits.len(), limits.evictions()), (2, 2));
}

#[test]
fn a_key_that_was_evicted_comes_back_with_a_full_bucket() {
    let (limits, clock) = limits(1);
    assert_eq!([1, 2, 3].map(|_| call(&limits, &clock, "a")), [None, None, Some(secs(1))]);
    assert_eq!(call(&limits, &clock, "b"), None);
    assert_eq!([1, 2, 3].map(|_| call(&limits, &clock, "a")), [None, None, Some(secs(1))]);
    assert_eq!(limits.evictions(), 2);
}

#[test]
fn made_up_keys_do_not_free_one_who_is_held_back() {
    let (limits, clock) = limits(1_000);
    assert_eq!([1, 2, 3].map(|_| call(&limits, &clock, "greedy")), [None, None, Some(secs(1))]);
    for key in 0..20_000 {
        assert_eq!(call(&limits, &clock, &key.to_string()), None);
        assert!(limits.len() <= 1_000);
    }
    assert_eq!(call(&limits, &clock, "greedy"), Some(secs(1)));
    assert!(limits.evictions() >= 19_000);
}

#[test]
fn many_who_are_held_back_are_so_while_others_come() {
    let (limits, clock) = limits(500);
    let user = |number: u32| format!("user-{number}");
    (0..500).for_each(|number| assert_eq!(call(&limits, &clock, &user(number)), None));
    (0..200).for_each(|number| assert_eq!(call(&limits, &clock, &user(number)), None));
    (200..500).for_each(|number| drop(limits.get(&user(number))));
    (0..200).for_each(|number| assert_eq!(call(&limits, &clock, &format!("new-{number}")), None));
    (0..200).for_each(|number| assert_eq!(call(&limits, &clock, &user(number)), Some(secs(1)), "{number}"));
    assert_eq!((limits.len(), limits.evictions()), (500, 200));
}

#[test]
fn a_limit_with_a_call_in_flight_goes_after_those_without() {
    let (limits, clock) = limits(3);
    let cx = Context::new().with_clock(&clock).with_key("in flight");
    let mut run = spawn(try_do(&cx, |_| pending::<Result<(), ()>>(), &limits));
    assert_pending!(run.poll());
    (0..20).for_each(|key| assert_eq!(call(&limits, &clock, &key.to_string()), None));
    assert_eq!(limits.peek("in flight").map(|limit| limit.available()), Some(1));
    assert_eq!((limits.len(), limits.evictions()), (3, 18));
    // When the call is over, its key is the least recently used one.
    drop(run);
    (20..22).for_each(|key| assert_eq!(call(&limits, &clock, &key.to_string()), None));
    assert!(limits.peek("in flight").is_none());
}

#[test]
fn buckets_that_are_full_again_are_cleared_away() {
    let (limits, clock) = limits(1_000);
    (0..900).for_each(|key| assert_eq!(call(&limits, &clock, &format!("once{key}")), None));
    assert_eq!(limits.len(), 900);
    clock.advance(mins(1));
    (0..400).for_each(|key| assert_eq!(call(&limits, &clock, &format!("later{key}")), None));
    assert!(limits.len() <= 600, "{}", limits.len());
    assert_eq!(limits.evictions(), 0, "nothing was lost");
}

#[test]
fn who_waits_keeps_its_bucket_although_its_key_has_left() {
    let clock = Clock::manual();
    let config = RateLimiterConfig::per_second(1).burst(1).max_wait(mins(1));
    let limits = Keyed::<RateLimiter>::with_capacity(config, 1);
    let cx = Context::new().with_clock(&clock).with_key("a");
    clock.block_on(try_do(&cx, |_| ready(Ok::<_, ()>(())), &limits)).unwrap();
    let mut waiting = spawn(try_do(&cx, |_| ready(Ok::<_, ()>(())), &limits));
    assert_pending!(waiting.poll());
    assert_eq!(limits.peek("a").unwrap().queued(), 1);
    drop(limits.remove("a"));
    assert!(limits.is_empty());
    clock.advance(secs(1));
    assert_ready_ok!(waiting.poll());
    assert_eq!(clock.sleepers(), 0);
}

#[test]
fn a_key_can_have_settings_of_its_own() {
    let (limits, clock) = limits(10);
    limits.get("large").reconfigure(RateLimiterConfig::per_second(100)).unwrap();
    assert_eq!(limits.get("large").available(), 100);
    assert_eq!(limits.get("small").available(), 2);
    (0..100).for_each(|_| assert_eq!(call(&limits, &clock, "large"), None));
    (0..8).for_each(|key| assert_eq!(call(&limits, &clock, &key.to_string()), None));
    clock.advance(mins(1));
    // It is full and the least recently used, and yet not equal to a new one: those that are go before it.
    (0..5).for_each(|key| assert_eq!(call(&limits, &clock, &format!("x{key}")), None));
    assert_eq!((limits.len(), limits.evictions()), (10, 5));
    assert_eq!(limits.peek("large").unwrap().available(), 100);
}

#[test]
fn what_cannot_work_is_refused_when_it_is_built() {
    let build = |limits: Keyed<RateLimiter>| Executor::builder("x").policies(limits).build().map(drop);
    let config = RateLimiterConfig::per_second;
    assert_eq!(build(Keyed::new(config(0))).unwrap_err().field(), "per");
    assert_eq!(build(Keyed::with_capacity(config(1), 0)).unwrap_err().field(), "capacity");
    assert_eq!(build(Keyed::with_capacity(config(1), usize::MAX)).unwrap_err().field(), "capacity");
    assert_eq!(build(Keyed::new(config(1))), Ok(()));
    let none = Keyed::<RateLimiter>::with_capacity(config(1), 0);
    assert!(none.get("a").try_acquire().is_ok() && none.is_empty());
    assert_eq!(Keyed::<RateLimiter>::new(config(1)).capacity(), DEFAULT_CAPACITY);
}

#[test]
fn all_keys_are_on_the_clock_of_the_first_use() {
    let (limits, clock) = limits(10);
    assert_eq!(limits.get("a").bind(&clock), Ok(()));
    assert_eq!(limits.get("b").bind(Clock::tokio()).unwrap_err().field(), "clock");
}

/// Case `leftover-timers-after-drop`.
#[test]
fn executors_that_are_dropped_leave_no_timer_behind() {
    let (clock, _) = at_rest();
    for round in 0..10_000 {
        let limits = Keyed::<RateLimiter>::new(RateLimiterConfig::per_second(1).max_wait(mins(1)));
        let chain = (Retry::fixed(secs(1)), limits, Bulkhead::new(1), Breaker::default(), Timeout::secs(5));
        let executor = Executor::builder("x").policies(chain).clock(&clock).build().unwrap();
        let mut first = spawn(executor.run(|_| pending::<Result<(), ()>>()));
        let mut second = spawn(executor.run(|_| pending::<Result<(), ()>>()));
        match round % 3 {
            0 => {}
            1 => assert_pending!(first.poll()),
            _ => {
                assert_pending!(first.poll());
                assert_pending!(second.poll());
                assert_eq!(clock.sleepers(), 2);
            }
        }
    }
    assert_eq!(clock.sleepers(), 0);
    clock.advance(ms(1));
}
