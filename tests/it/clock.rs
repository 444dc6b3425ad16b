//! What a run costs in timers and in readings of the clock.

use std::future::pending;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use futures::FutureExt;
use steadfast::clock::{Clock, TimeSource};
use steadfast::policy::Policy;
use steadfast::{CancellationToken, Context, Executor, Hedge, Retry, Timeout, try_do};

use crate::support::{at_rest, err, ms, ok, pending_times, scenario, secs};

/// A clock that counts what is asked of it, and that tests move.
#[derive(Clone, Default)]
struct Counting(Arc<Counts>);

#[derive(Default)]
struct Counts {
    millis: AtomicU64,
    reads: AtomicUsize,
    sleeps: AtomicUsize,
}

impl TimeSource for Counting {
    fn now(&self) -> Duration {
        self.0.reads.fetch_add(1, Ordering::Relaxed);
        ms(self.0.millis.load(Ordering::Relaxed))
    }

    fn sleep_until(&self, at: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        self.0.sleeps.fetch_add(1, Ordering::Relaxed);
        self.0.millis.fetch_max(at.as_millis() as u64, Ordering::Relaxed);
        Box::pin(std::future::ready(()))
    }

    fn wall(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH
    }
}

/// How often a run reads the clock and asks it for a timer, through an executor and through `try_do`.
fn asked<P: Policy<(), ()>>(policies: impl Fn() -> P, failures: u32) -> (usize, usize) {
    let source = Counting::default();
    let clock = Clock::custom(source.clone());
    let cx = Context::new().with_clock(&clock);
    let operation =
        |attempt: steadfast::Attempt| async move { if attempt.number() > failures { Ok(()) } else { Err(()) } };
    let counts = || (source.0.reads.swap(0, Ordering::Relaxed), source.0.sleeps.swap(0, Ordering::Relaxed));
    counts();
    try_do(&cx, operation, policies()).now_or_never().unwrap().unwrap();
    let by_try_do = counts();
    let executor = Executor::builder("counted").policies(policies()).unbudgeted().clock(&clock).build().unwrap();
    counts();
    executor.run(operation).now_or_never().unwrap().unwrap();
    assert_eq!(counts(), by_try_do);
    by_try_do
}

#[test]
fn retry_alone_never_reads_the_clock() {
    assert_eq!(asked(|| (), 0), (0, 0));
    assert_eq!(asked(Retry::exponential, 0), (0, 0));
    assert_eq!(asked(Retry::immediate, 2), (0, 0), "a wait of zero needs no time either");
}

#[test]
fn limits_share_one_reading_of_the_clock() {
    assert_eq!(asked(|| Timeout::secs(1), 0), (1, 0));
    assert_eq!(asked(|| (Retry::exponential(), Timeout::secs(1)), 0), (1, 0));
    assert_eq!(asked(|| (Timeout::secs(9), Retry::exponential().max_elapsed(secs(5)), Timeout::secs(1)), 0), (1, 0));
}

#[test]
fn each_attempt_reads_the_clock_anew() {
    assert_eq!(asked(|| (Retry::immediate(), Timeout::secs(1)), 1), (2, 0));
    assert_eq!(asked(|| (Retry::immediate(), Timeout::secs(1)), 2), (3, 0));
}

#[test]
fn a_hedge_that_follows_latencies_reads_the_clock_before_and_after_and_others_do_not() {
    assert_eq!(asked(|| Hedge::after(secs(1)), 0), (0, 0));
    assert_eq!(asked(|| Hedge::with(|_| None), 0), (0, 0));
    assert_eq!(asked(|| Hedge::percentile(0.9), 0), (2, 0));
}

#[test]
fn a_wait_asks_for_one_timer() {
    let (_, sleeps) = asked(|| Retry::fixed(secs(1)), 2);
    assert_eq!(sleeps, 2);
}

#[test]
fn an_attempt_sees_the_time_at_its_own_start() {
    // The first attempt blocks for a second within the very poll in which the second one starts.
    let (clock, cx) = at_rest();
    let run = try_do(
        &cx,
        async |attempt| {
            if attempt.is_retry() {
                return Ok(attempt.remaining());
            }
            clock.advance(secs(1));
            Err("down")
        },
        (Retry::immediate(), Timeout::secs(5)),
    );
    assert_eq!(clock.block_on(run).unwrap(), Some(secs(5)));
}

/// The timers of a run that was polled once and is pending.
fn sleepers<P: Policy<(), ()>>(change: impl Fn(Context) -> Context, policies: P) -> usize {
    let (clock, cx) = at_rest();
    let cx = change(cx);
    let executor = Executor::builder("sleepers").policies(policies).clock(&clock).build().unwrap();
    let mut run = tokio_test::task::spawn(executor.run_with(&cx, |_| pending::<Result<(), ()>>()));
    assert!(run.poll().is_pending());
    let first = clock.sleepers();
    assert!(run.poll().is_pending());
    assert_eq!(clock.sleepers(), first, "another poll adds none");
    drop(run);
    assert_eq!(clock.sleepers(), 0);
    first
}

#[test]
fn nested_limits_need_one_timer() {
    let plain = |cx: Context| cx;
    let deadline = |limit| move |cx: Context| cx.with_timeout(secs(limit));
    assert_eq!(sleepers(plain, ()), 0);
    assert_eq!(sleepers(plain, Retry::exponential()), 0);
    assert_eq!(sleepers(plain, Timeout::secs(2)), 1);
    assert_eq!(sleepers(deadline(60), ()), 1);
    for context in [1, 2, 9, 60] {
        for outer in [2, 9, 30] {
            for inner in [2, 3, 9, 50] {
                let chain = (Timeout::secs(outer), Retry::exponential(), Timeout::secs(inner));
                assert_eq!(sleepers(deadline(context), chain), 1, "{context}, {outer}, {inner}");
            }
        }
    }
    assert_eq!(sleepers(|cx| cx.with_token(CancellationToken::new()), Timeout::secs(2)), 1);
    assert_eq!(sleepers(plain, Timeout::new(Duration::MAX)), 0);
}

#[test]
fn each_attempt_and_each_wait_has_one_timer_of_its_own() {
    let (clock, cx) = at_rest();
    let cx = cx.with_timeout(secs(60));
    let chain = (Timeout::secs(50), Retry::fixed(secs(1)).max_attempts(5), Timeout::secs(2));
    let executor = Executor::builder("one timer").policies(chain).unbudgeted().clock(&clock).build().unwrap();
    let mut run = tokio_test::task::spawn(executor.run_with(&cx, |_| pending::<Result<(), ()>>()));
    let mut polls = 0;
    while run.poll().is_pending() {
        assert_eq!(clock.sleepers(), 1, "after {polls} polls");
        assert!(clock.advance_to_next());
        polls += 1;
    }
    assert_eq!((polls, clock.sleepers()), (9, 0));
}

#[test]
fn a_ready_operation_registers_no_timer() {
    let (clock, cx) = at_rest();
    let cx = cx.with_timeout(secs(60));
    let run = try_do(
        &cx,
        async |_| {
            assert_eq!(clock.sleepers(), 0);
            Ok::<_, ()>(7)
        },
        (Timeout::secs(9), Timeout::secs(2)),
    );
    assert_eq!(clock.block_on(run).unwrap(), 7);
}

#[test]
fn an_operation_that_was_pending_gives_its_timer_back() {
    let (clock, cx) = at_rest();
    let mut run = tokio_test::task::spawn(try_do(
        &cx,
        async |_| {
            pending_times(1).await;
            Ok::<_, ()>(7)
        },
        Timeout::secs(2),
    ));
    assert!(run.poll().is_pending());
    assert_eq!(clock.sleepers(), 1);
    assert!(run.poll().is_ready());
    assert_eq!(clock.sleepers(), 0, "although the future is still there");
}

#[test]
fn a_wait_of_zero_registers_no_timer_and_is_not_pending() {
    let (_, cx) = at_rest();
    let operation = |attempt: steadfast::Attempt| async move { if attempt.is_retry() { Ok(7) } else { Err("down") } };
    for retry in [Retry::immediate(), Retry::fixed(secs(0)), Retry::custom(|_, _| Duration::ZERO)] {
        let mut run = tokio_test::task::spawn(try_do(&cx, operation, retry));
        assert!(run.poll().is_ready());
    }
}

#[tokio::test(start_paused = true)]
async fn the_default_clock_follows_a_paused_runtime() {
    let cx = Context::new().with_timeout(secs(60));
    let start = cx.clock().now();
    let chain = (Retry::fixed(secs(1)), Timeout::secs(2));
    let error = try_do(&cx, |_| pending::<Result<(), ()>>(), chain).await.unwrap_err();
    let took = cx.clock().now().since(start);
    assert!((secs(8)..secs(8) + ms(50)).contains(&took), "{took:?}");
    assert_eq!(error.attempts(), 3);
}

#[test]
fn a_source_that_steps_back_neither_fires_early_nor_panics() {
    let source = Counting::default();
    source.0.millis.store(10_000, Ordering::Relaxed);
    let clock = Clock::custom(source.clone());
    let cx = Context::new().with_clock(&clock);
    let run = try_do(
        &cx,
        async |_| {
            source.0.millis.store(2_000, Ordering::Relaxed);
            Err::<(), _>("down")
        },
        (Retry::immediate().max_elapsed(secs(5)), Timeout::secs(1)),
    );
    let error = run.now_or_never().unwrap().unwrap_err();
    assert_eq!((error.attempts(), error.elapsed()), (3, secs(0)));
}

#[test]
fn extreme_times_do_not_overflow() {
    let far = || {
        (
            Timeout::new(Duration::MAX),
            Retry::fixed(Duration::MAX).max_elapsed(Duration::MAX),
            Timeout::new(Duration::from_secs(u64::MAX)),
        )
    };
    let seen = scenario(far).context(|cx| cx.with_timeout(Duration::MAX - ms(1))).everywhere([ok::<_, ()>(7)]);
    assert_eq!(seen.result, Ok(7));
    let long = || (Timeout::new(Duration::from_secs(u64::MAX / 2)), Retry::fixed(secs(1 << 33)));
    let seen = scenario(long).everywhere([err("down"), ok(7)]);
    assert_eq!(seen.took, secs(1 << 33));
}
