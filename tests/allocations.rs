//! What a call allocates, and what a map of breakers holds, counted on the thread that makes it.

#![expect(clippy::unwrap_used, reason = "helpers of tests say in one word that something went wrong, too")]

use std::future::poll_fn;
use std::hint::black_box;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context as TaskContext, Poll, Waker};
use std::time::{Duration, SystemTime};

use allocation_counter::measure;
use steadfast::breaker::{BreakerConfig, TripRule};
use steadfast::clock::{Clock, TimeSource};
use steadfast::event::Event;
use steadfast::limit::RateLimiterConfig;
use steadfast::policy::Policy;
use steadfast::standard::StandardConfig;
use steadfast::{
    Attempt, Breaker, Bulkhead, Chaos, Context, Error, Executor, Fallback, Hedge, Keyed, RateLimiter, Retry, Timeout,
    Verdict, fallback, faults, op, try_do, try_op,
};

/// How many allocations `work` makes once it has been done before.
fn allocations<R>(mut work: impl FnMut() -> R) -> u64 {
    (0..2).for_each(|_| drop(black_box(work())));
    measure(|| drop(black_box(work()))).count_total
}

/// Polls a future until it is ready: none of those here waits for anything but another poll.
fn finish<F: Future>(future: F) -> F::Output {
    let mut future = std::pin::pin!(future);
    let mut cx = TaskContext::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut cx) {
            return output;
        }
    }
}

/// The chain of the first page, without the breaker.
fn chain() -> (Retry, Timeout) {
    (Retry::exponential(), Timeout::new(Duration::from_secs(2)))
}

async fn answer(_: Attempt) -> Result<u32, String> {
    Ok(7)
}

async fn pending_once(_: Attempt) -> Result<u32, String> {
    let mut polled = false;
    poll_fn(move |_| if std::mem::replace(&mut polled, true) { Poll::Ready(Ok(7)) } else { Poll::Pending }).await
}

fn executor<P: Policy<u32, String>>(policies: P) -> Executor<P> {
    Executor::builder("allocations").policies(policies).clock(Clock::manual()).build().unwrap()
}

#[test]
fn limits_and_known_keys_allocate_nothing() {
    let (limiter, bulkhead) = (RateLimiter::per_second(1_000), Bulkhead::new(10));
    let keyed = Keyed::<RateLimiter>::new(RateLimiterConfig::per_second(1_000));
    let executor = executor((limiter.clone(), bulkhead.clone(), keyed.clone()));
    assert_eq!(allocations(|| finish(executor.run(answer))), 0);
    assert_eq!(allocations(|| finish(executor.run(pending_once))), 0);
    assert_eq!(allocations(|| limiter.try_acquire()), 0);
    assert_eq!(allocations(|| finish(limiter.acquire())), 0);
    assert_eq!(allocations(|| bulkhead.try_acquire()), 0);
    assert_eq!(allocations(|| finish(bulkhead.acquire())), 0);
    assert_eq!(allocations(|| keyed.get("a")), 0);
    let full = Bulkhead::new(1);
    let _busy = full.try_acquire();
    assert_eq!(allocations(|| full.try_acquire()), 0, "nor does a refusal");
    limiter.try_acquire_many(900).unwrap();
    assert_eq!(allocations(|| limiter.try_acquire_many(500)), 0);
}

#[test]
fn the_standard_chain_allocates_nothing() {
    let clock = Clock::manual();
    let standard = Executor::standard("allocations").clock(&clock).build().unwrap();
    assert_eq!(allocations(|| finish(standard.run(answer))), 0);
    standard.reconfigure(StandardConfig::default().total_timeout(Duration::from_secs(40))).unwrap();
    assert_eq!(allocations(|| finish(standard.run(answer))), 0);
}

#[test]
fn a_plain_context_allocates_nothing() {
    assert_eq!(allocations(Context::new), 0);
    let cx = Context::new();
    assert_eq!(allocations(|| cx.clone()), 0);
    assert_eq!(allocations(|| Context::new().with_timeout(Duration::from_secs(1)).once()), 0);
}

#[test]
fn building_a_chain_of_plain_settings_allocates_nothing() {
    assert_eq!(allocations(chain), 0);
}

#[test]
fn a_success_through_try_do_allocates_nothing() {
    let (cx, policies) = (Context::new(), chain());
    assert_eq!(allocations(|| finish(try_do(&cx, answer, &policies)).unwrap()), 0);
    assert_eq!(allocations(|| finish(try_do(&cx, answer, chain())).unwrap()), 0);
    let marked = || faults(|_| async { Ok::<_, steadfast::operation::Fault<String>>(7) });
    assert_eq!(allocations(|| finish(try_do(&cx, marked(), &policies)).unwrap()), 0);
    let ruled = || op(answer).retry_if(|_| true);
    assert_eq!(allocations(|| finish(try_op(&cx, ruled(), &policies)).unwrap()), 0);
}

#[test]
fn a_deadline_costs_no_allocation_unless_it_has_to_be_waited_for() {
    let (cx, policies) = (Context::new().with_timeout(Duration::from_secs(60)), chain());
    assert_eq!(allocations(|| finish(try_do(&cx, answer, &policies)).unwrap()), 0);
}

#[test]
fn a_success_through_an_executor_allocates_nothing() {
    let executor = executor(chain());
    assert_eq!(allocations(|| finish(executor.run(answer)).unwrap()), 0);
    let cx = executor.context();
    assert_eq!(allocations(|| finish(executor.run_with(&cx, answer)).unwrap()), 0);
    assert_eq!(allocations(|| executor.clone()), 0);
}

/// A closed breaker of each kind, one of them with somebody to tell of changes.
fn breakers() -> [Breaker; 3] {
    let config = BreakerConfig::default;
    [config(), config().rule(TripRule::consecutive(5)), config().on_transition(|_| {})].map(Breaker::new)
}

#[test]
fn a_success_through_a_closed_breaker_allocates_nothing() {
    let (retry, timeout) = chain();
    for breaker in breakers() {
        let executor = executor((retry.clone(), breaker, timeout.clone()));
        assert_eq!(allocations(|| finish(executor.run(answer)).unwrap()), 0);
    }
    let cx = Context::new();
    for breaker in breakers() {
        assert_eq!(allocations(|| finish(try_do(&cx, answer, (&retry, &breaker, &timeout))).unwrap()), 0);
        assert_eq!(allocations(|| breaker.try_acquire().unwrap().success()), 0);
    }
}

/// Counts how often it is read.
struct Counted(Arc<AtomicU64>);

impl TimeSource for Counted {
    fn now(&self) -> Duration {
        Duration::from_nanos(self.0.fetch_add(1, Relaxed))
    }

    fn sleep_until(&self, _: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(std::future::pending())
    }

    fn wall(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH
    }
}

#[test]
fn a_fallback_and_a_chaos_that_is_off_cost_a_success_no_allocation_and_no_look_at_the_clock() {
    let reads = Arc::new(AtomicU64::new(0));
    let (retry, timeout) = chain();
    let breaker = || Breaker::new(BreakerConfig::default());
    let off = Chaos::fail(1.0, || "injected".to_owned());
    off.switch().turn_off();
    let with = |policies| {
        let clock = Clock::custom(Counted(Arc::clone(&reads)));
        Executor::builder("allocations").policies(policies).clock(clock).build().unwrap()
    };
    let plain = with((None, (retry.clone(), breaker(), timeout.clone(), None)));
    let value = Fallback::value(8);
    let covered = with((Some(value), (retry.clone(), breaker(), timeout.clone(), Some(off))));
    let cost = |executor: &Executor<_>| {
        let allocated = allocations(|| finish(executor.run(answer)).unwrap());
        let before = reads.load(Relaxed);
        finish(executor.run(answer)).unwrap();
        (allocated, reads.load(Relaxed) - before)
    };
    assert_eq!(cost(&plain), (0, 1));
    assert_eq!(cost(&covered), (0, 1));
    let function = fallback(|_: &Error<String>| async { Ok(8) });
    let around = covered.around(function);
    assert_eq!(allocations(|| finish(around.run(answer)).unwrap()), 0);
}

#[test]
fn a_hedge_allocates_nothing_until_it_starts_another_lane() {
    let hedges = [Hedge::after(Duration::from_secs(1)), Hedge::percentile(0.95), Hedge::with(|_| None)];
    for hedge in hedges {
        let executor = executor((Retry::exponential(), hedge, Timeout::secs(2)));
        assert_eq!(allocations(|| finish(executor.run(answer)).unwrap()), 0);
    }
    let never = executor((Retry::exponential(), Hedge::after(Duration::MAX)));
    assert_eq!(allocations(|| finish(never.run(pending_once)).unwrap()), 0);
    let cx = Context::new();
    let at_once = Hedge::after(Duration::ZERO);
    assert_eq!(allocations(|| finish(try_do(&cx, answer, &at_once)).unwrap()), 0);
    assert_eq!(
        allocations(|| finish(try_do(&cx, pending_once, &at_once)).unwrap()),
        2,
        "the lane, and the list of lanes"
    );
}

#[test]
fn an_attempt_and_its_deadline_allocate_nothing() {
    let executor = executor(chain());
    let run = || {
        finish(executor.run(async |attempt| {
            let copy = black_box(attempt.clone());
            Ok::<_, String>(
                copy.number() + u32::from(copy.deadline().is_some()) + u32::from(copy.remaining().is_some()),
            )
        }))
    };
    assert_eq!(allocations(|| assert_eq!(run().unwrap(), 3)), 0);
}

#[test]
fn a_pending_operation_without_a_limit_allocates_nothing_after_warming_up() {
    let retry = executor(Retry::exponential());
    assert_eq!(allocations(|| finish(retry.run(pending_once)).unwrap()), 0);
    let cx = Context::new();
    assert_eq!(allocations(|| finish(try_do(&cx, pending_once, Retry::exponential())).unwrap()), 0);
}

/// The manual clock keeps its timers in a tree, which may allocate a node; tokio's wheel does not.
#[tokio::test(start_paused = true)]
async fn a_pending_operation_under_a_limit_allocates_nothing_of_ours_on_tokios_clock() {
    let executor = Executor::builder("allocations").policies(chain()).build().unwrap();
    assert_eq!(allocations(|| finish(executor.run(pending_once)).unwrap()), 0);
}

/// The first lane waits, and so does the timer of the next one.
#[tokio::test(start_paused = true)]
async fn a_hedge_whose_timer_runs_allocates_nothing_of_ours_on_tokios_clock() {
    for hedge in [Hedge::after(Duration::from_secs(1)), Hedge::with(|_| Some(Duration::from_secs(1)))] {
        let executor =
            Executor::builder("allocations").policies((Retry::exponential(), hedge)).clock(Clock::tokio()).build();
        let executor = executor.unwrap();
        assert_eq!(allocations(|| finish(executor.run(pending_once)).unwrap()), 0);
    }
}

#[test]
fn an_observer_costs_no_allocation_for_any_event() {
    let build = || {
        let chain = (Retry::immediate(), Breaker::default(), Timeout::secs(2));
        Executor::builder("allocations").policies(chain).unbudgeted().clock(Clock::manual())
    };
    let plain = build().build().unwrap();
    let observe = |event: &Event| {
        black_box(event.at);
    };
    let observed = build().observe(observe).build().unwrap();
    assert_eq!(allocations(|| finish(observed.run(answer)).unwrap()), 0);
    let failing = |_: Attempt| async { Err::<u32, _>(()) };
    let without = allocations(|| finish(plain.run(failing)).unwrap_err());
    assert_eq!(allocations(|| finish(observed.run(failing)).unwrap_err()), without);
}

/// Nothing in this process subscribes.
#[cfg(feature = "tracing")]
#[test]
fn tracing_without_a_subscriber_builds_and_allocates_nothing() {
    let builder = Executor::builder("allocations").policies(chain()).clock(Clock::manual());
    let traced = builder.observe(steadfast::tracing::Tracing::new()).build().unwrap();
    assert_eq!(allocations(|| finish(traced.run(answer)).unwrap()), 0);
    assert!(!steadfast::event::Observer::is_enabled(&steadfast::tracing::Tracing::new()));
}

#[cfg(feature = "metrics")]
#[test]
fn metrics_allocate_nothing_once_their_handles_are_there() {
    let builder = Executor::builder("allocations").policies(chain()).clock(Clock::manual());
    let measured = builder.observe(steadfast::metrics::Metrics::new()).build().unwrap();
    // What is remembered of running attempts is in parts, and each run goes to the next one.
    (0..100).for_each(|_| drop(finish(measured.run(answer))));
    assert_eq!(allocations(|| finish(measured.run(answer)).unwrap()), 0);
}

#[test]
fn an_erased_executor_allocates_two_boxes_for_a_success() {
    let erased = executor_for_any(chain()).erase();
    assert!(allocations(|| finish(erased.run(answer)).unwrap()) <= 2);
}

fn executor_for_any<P: Policy<u32, String>>(policies: P) -> Executor<P> {
    executor(policies)
}

#[test]
fn a_list_of_n_boxed_policies_allocates_one_box_more_than_n() {
    use steadfast::chain::BoxPolicy;
    let cx = Context::new();
    for n in 0..5 {
        let list: Vec<BoxPolicy<u32, String>> = (0..n).map(|_| BoxPolicy::new(Timeout::secs(2))).collect();
        let counted = allocations(|| finish(try_do(&cx, answer, &list)).unwrap());
        assert!(counted <= n + 1, "{n} policies: {counted}");
    }
}

#[test]
fn a_value_that_is_larger_than_a_page_is_not_boxed_either() {
    let (cx, policies) = (Context::new(), chain());
    let large = |_| async { Ok::<_, String>([7_u8; 8192]) };
    assert_eq!(allocations(|| finish(try_do(&cx, large, &policies)).unwrap()), 0);
}

/// What a map with a breaker for each of 100,000 keys holds, for each of them, once each had one call that ended like this: the
/// bytes that were asked of the allocator and not given back.
fn bytes_per_key(end: Verdict, capacity: usize) -> f64 {
    const KEYS: u32 = 100_000;
    let mut map = None;
    let held = measure(|| {
        let breakers = Keyed::<Breaker>::with_capacity(BreakerConfig::default(), capacity);
        breakers.bind(Clock::manual()).unwrap();
        for number in 0..KEYS {
            breakers.get(&format!("shard-{number}")).try_acquire().unwrap().record(end);
        }
        map = Some(breakers);
    });
    assert_eq!(map.map(|map| (map.len(), map.evictions())), Some((KEYS as usize, 0)));
    held.bytes_current as f64 / f64::from(KEYS)
}

#[test]
fn a_hundred_thousand_keyed_rate_limiters_take_less_than_breakers() {
    const KEYS: u32 = 100_000;
    let mut map = None;
    let held = measure(|| {
        let limiters = Keyed::<RateLimiter>::with_capacity(RateLimiterConfig::per_second(10), 1_000_000);
        for number in 0..KEYS {
            limiters.get(&format!("shard-{number}")).try_acquire().unwrap();
        }
        map = Some(limiters);
    });
    assert_eq!(map.map(|map| (map.len(), map.evictions())), Some((KEYS as usize, 0)));
    let each = held.bytes_current as f64 / f64::from(KEYS);
    println!("100,000 keys: {each:.0} bytes for each rate limiter that was used");
    assert!(each <= 300.0, "{each} bytes each");
}

#[test]
fn a_hundred_thousand_keyed_breakers_take_at_most_360_bytes_each() {
    let succeeded = bytes_per_key(Verdict::Success, 1_000_000);
    let failed = bytes_per_key(Verdict::Transient, 1_000_000);
    println!("100,000 keys: {succeeded:.0} bytes each after a success, {failed:.0} after a failure");
    // Of the parts of a map that is full, some have more than their share.
    let full = bytes_per_key(Verdict::Success, 100_000);
    println!("100,000 keys: {full:.0} bytes each after a success, in a map that is full");
    assert!(succeeded <= 360.0 && full <= 360.0, "{succeeded} and {full} bytes each");
    assert!(failed <= 440.0, "{failed} bytes each: failures have words of their own");
}
