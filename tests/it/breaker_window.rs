//! What a closed breaker counts and for how long; listeners; and what is left of a breaker when it is gone.

use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::{Duration, SystemTime};

use steadfast::breaker::{Breaker, BreakerConfig, Permit, State, TripRule};
use steadfast::clock::{Clock, TimeSource};
use steadfast::error::Kind;
use steadfast::operation::{FaultExt, faults};
use steadfast::policy::{Call, Next, Outcome, Policy, Settings};
use steadfast::{CancellationToken, Context, Executor, Retry, Timeout, Verdict, try_do};

use crate::breakers::{Bench, OPEN_TIME, consecutive, counting, hangs_for_ever, logging, panics};
use crate::support::{at_rest, ms, secs};

/// Opens when half of `minimum_calls` failed within ten seconds.
fn rate(minimum_calls: u32) -> BreakerConfig {
    BreakerConfig::default().rule(TripRule::failure_rate(0.5).minimum_calls(minimum_calls))
}

const YEAR: u64 = 365 * 24 * 3_600;

#[test]
fn idle_window_keeps_old_buckets() {
    for idle in [secs(10), secs(25), secs(10 * YEAR)] {
        let bench = Bench::closed(rate(1_000));
        for _ in 0..10 {
            bench.fail();
            bench.clock.advance(secs(1));
        }
        assert_eq!(bench.counted(), (9, 9), "the first second has left");
        bench.clock.advance(idle);
        assert_eq!(bench.counted(), (0, 0));
        bench.fail();
        assert_eq!(bench.counted(), (1, 1));
    }
}

#[test]
fn rotation_never_catches_up() {
    let rule = TripRule::failure_rate(1.0).window(3, secs(40)).minimum_calls(1_000);
    let bench = Bench::closed(BreakerConfig::default().rule(rule));
    bench.fail();
    bench.clock.advance(secs(600));
    for _ in 0..5 {
        bench.fail();
        bench.clock.advance(secs(1));
    }
    assert_eq!(bench.counted(), (5, 5));

    let narrow = TripRule::failure_rate(1.0).window(10, ms(1)).minimum_calls(1_000);
    let bench = Bench::closed(BreakerConfig::default().rule(narrow));
    // Were the turn as long as the idle time, this would never end.
    for _ in 0..50 {
        bench.clock.advance(secs(10 * YEAR));
        bench.fail();
        assert_eq!(bench.counted(), (1, 1));
    }
}

#[test]
fn sparse_errors_open() {
    let rule = TripRule::failure_rate(1.0).window(5, secs(1)).minimum_calls(3);
    let bench = Bench::closed(BreakerConfig::default().rule(rule));
    bench.fail();
    bench.clock.advance(secs(5));
    bench.fail();
    bench.clock.advance(secs(1));
    bench.fail();
    assert_eq!((bench.breaker.state(), bench.counted()), (State::Closed, (2, 2)));
    bench.fail();
    assert_eq!(bench.breaker.state(), State::Open);
}

#[test]
fn tumbling_window_exaggerates() {
    let bench = Bench::closed(rate(100));
    bench.clock.advance(secs(1));
    let second = |successes, failures| {
        (0..successes).for_each(|_| bench.breaker.record(Verdict::Success));
        (0..failures).for_each(|_| bench.breaker.record(Verdict::Transient));
    };
    for _ in 0..9 {
        second(1_000, 0);
        bench.clock.advance(secs(1));
    }
    second(100, 900);
    assert_eq!((bench.breaker.state(), bench.counted()), (State::Closed, (10_000, 900)));
}

/// A time source whose hand the test holds, and which may step back.
#[derive(Clone, Default)]
struct Steps {
    nanos: Arc<AtomicU64>,
    wall: Arc<AtomicI64>,
}

impl TimeSource for Steps {
    fn now(&self) -> Duration {
        Duration::from_nanos(self.nanos.load(Ordering::Relaxed))
    }

    fn sleep_until(&self, _: Duration) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(std::future::pending())
    }

    fn wall(&self) -> SystemTime {
        let hours = self.wall.load(Ordering::Relaxed);
        SystemTime::UNIX_EPOCH + Duration::from_secs((1_000_000 + hours * 3_600) as u64)
    }
}

#[test]
fn wall_clock_step() {
    for hours in [-1, 1] {
        let steps = Steps::default();
        let breaker = Breaker::new(consecutive(1));
        breaker.bind(Clock::custom(steps.clone())).unwrap();
        breaker.try_acquire().unwrap().failure();
        steps.wall.store(hours, Ordering::Relaxed);
        assert_eq!(breaker.remaining_open(), OPEN_TIME);
        steps.nanos.store(30_000_000_000, Ordering::Relaxed);
        assert_eq!(breaker.state(), State::HalfOpen);
    }
    // The monotonic source itself goes back by 2 ms.
    let steps = Steps::default();
    steps.nanos.store(5_000_000, Ordering::Relaxed);
    let breaker = Breaker::new(consecutive(2));
    breaker.bind(Clock::custom(steps.clone())).unwrap();
    breaker.try_acquire().unwrap().failure();
    steps.nanos.store(3_000_000, Ordering::Relaxed);
    breaker.try_acquire().unwrap().failure();
    steps.nanos.store(1_000_000, Ordering::Relaxed);
    assert_eq!((breaker.state(), breaker.remaining_open()), (State::Open, OPEN_TIME), "no time has passed");
    assert_eq!(breaker.try_acquire().unwrap_err().retry_after(), Some(OPEN_TIME));
}

#[test]
fn half_open_needs_a_timer() {
    let bench = Bench::open(consecutive(1).open_for(secs(5)));
    bench.clock.advance(secs(10));
    assert_eq!((bench.breaker.state(), bench.clock.sleepers()), (State::HalfOpen, 0));
    bench.succeed();
    assert_eq!(bench.breaker.state(), State::Closed);
}

#[test]
fn old_seconds_leave_the_window_one_by_one() {
    // Two calls every two seconds, one of which fails in the first rounds.
    let bench = Bench::closed(BreakerConfig::default().rule(TripRule::failure_rate(0.9).minimum_calls(100)));
    let mut seen = Vec::new();
    for round in 0..8 {
        bench.succeed();
        if round < 3 {
            bench.fail();
        } else {
            bench.succeed();
        }
        seen.push(bench.counted());
        bench.clock.advance(secs(2));
    }
    assert_eq!(seen, [(2, 1), (4, 2), (6, 3), (8, 3), (10, 3), (10, 2), (10, 1), (10, 0)]);
    assert_eq!(bench.breaker.counts().rate(), Some(0.0));
    bench.clock.advance(secs(10));
    assert_eq!(bench.breaker.counts().rate(), None, "nothing is known");
}

#[test]
fn the_success_that_completes_the_minimum_may_open() {
    let bench = Bench::closed(rate(5));
    (0..3).for_each(|_| bench.fail());
    bench.succeed();
    assert_eq!(bench.breaker.state(), State::Closed);
    bench.succeed();
    assert_eq!(bench.breaker.state(), State::Open, "three of five");
}

#[test]
fn refused_calls_are_counted_apart_and_not_in_the_window() {
    let bench = Bench::open(consecutive(1));
    for refused in 1..=3 {
        assert!(bench.is_refused());
        assert_eq!((bench.breaker.counts().rejected, bench.counted()), (refused, (0, 0)));
    }
    bench.clock.advance(OPEN_TIME);
    bench.succeed();
    assert_eq!((bench.breaker.counts().rejected, bench.counted()), (3, (0, 0)));
}

#[test]
fn values_can_be_failures() {
    let bench = Bench::closed(consecutive(2));
    let chain = (
        &bench.breaker,
        steadfast::judge::classify(|result: &Result<bool, _>| match result {
            Ok(false) => Verdict::Transient,
            _ => Verdict::Success,
        }),
    );
    assert!(!bench.through::<_, (), _, _>(&chain, async |_| Ok(false)).unwrap());
    assert!(!bench.through::<_, (), _, _>(&chain, async |_| Ok(false)).unwrap());
    assert_eq!(bench.breaker.state(), State::Open);
}

#[test]
fn of_two_breakers_the_outer_one_does_not_count_the_refusals_of_the_inner_one() {
    let (outer, inner) = (Bench::closed(counting()), Breaker::new(consecutive(1)));
    let chain = (&outer.breaker, &inner);
    outer.through(chain, async |_| Err::<(), _>("down")).unwrap_err();
    for _ in 0..20 {
        assert!(outer.through(chain, async |_| Err::<(), _>("down")).unwrap_err().is_circuit_open());
    }
    assert_eq!((outer.breaker.state(), outer.counted()), (State::Closed, (1, 1)));
}

#[test]
fn failures_while_half_open_do_not_enter_the_next_window() {
    let bench = Bench::half_open(counting().trials(2).successes_to_close(1));
    let (one, two) = (bench.breaker.try_acquire().unwrap(), bench.breaker.try_acquire().unwrap());
    one.success();
    two.failure();
    assert_eq!((bench.breaker.state(), bench.counted()), (State::Closed, (0, 0)));
}

#[test]
fn an_operation_is_counted_once_however_often_it_is_polled() {
    let bench = Bench::closed(counting());
    let polled = AtomicU32::new(0);
    bench
        .run(async |_| {
            crate::support::pending_times(100).await;
            polled.fetch_add(1, Ordering::Relaxed);
            Err::<(), _>(())
        })
        .unwrap_err();
    assert_eq!((polled.into_inner(), bench.counted()), (1, (1, 1)));
}

#[test]
fn callback_reads_breaker_deadlock() {
    let shared: Arc<OnceLock<(Breaker, Context)>> = Arc::default();
    let told = Arc::new(Mutex::new(Vec::new()));
    let (handle, lines) = (Arc::clone(&shared), Arc::clone(&told));
    let config = counting().on_transition(move |change| {
        let (breaker, cx) = handle.get().unwrap();
        let mut run = tokio_test::task::spawn(try_do(cx, async |_| Ok::<_, ()>(()), breaker));
        let admitted = tokio_test::assert_ready!(run.poll()).is_ok();
        lines.lock().unwrap().push((change.to, breaker.state(), breaker.counts().failures, admitted));
    });
    let bench = Bench::closed(config);
    shared.get_or_init(|| (bench.breaker.clone(), bench.cx.clone()));
    (0..3).for_each(|_| bench.fail());
    bench.clock.advance(OPEN_TIME);
    bench.succeed();
    let expected = [
        (State::Open, State::Open, 0, false),
        (State::HalfOpen, State::HalfOpen, 0, false),
        (State::Closed, State::Closed, 0, true),
    ];
    assert_eq!(*told.lock().unwrap(), expected, "it sees the new state");
}

#[test]
fn callback_order_lost() {
    let running = Arc::new(AtomicU32::new(0));
    let guard = Arc::clone(&running);
    let (config, log) = logging(consecutive(1).open_for(ms(1)).trials(2).on_transition(move |_| {
        assert_eq!(guard.fetch_add(1, Ordering::SeqCst), 0, "callbacks overlap");
        thread::yield_now();
        guard.fetch_sub(1, Ordering::SeqCst);
    }));
    let bench = Bench::closed(config);
    thread::scope(|scope| {
        for number in 0..8 {
            let bench = &bench;
            scope.spawn(move || {
                for round in 0..1_000 {
                    let end = if (round + number) % 3 == 0 { Permit::success } else { Permit::failure };
                    bench.breaker.try_acquire().into_iter().for_each(end);
                    bench.clock.advance(ms(1));
                }
            });
        }
    });
    let log = log.entries();
    assert!(log.len() > 100, "{} transitions", log.len());
    assert_eq!(log[0].from, State::Closed);
    assert!(log.windows(2).all(|pair| pair[0].to == pair[1].from));
    assert_eq!(running.load(Ordering::SeqCst), 0, "no listener has panicked");
}

#[test]
fn callback_panics() {
    let (config, log) = logging(consecutive(1).on_transition(|_| panics()));
    let bench = Bench::closed(config);
    let chain = (Retry::immediate().max_attempts(2).on_retry(|_| panics()), &bench.breaker);
    for _ in 0..3 {
        let error = bench.through(&chain, async |_| Err::<(), _>("down")).unwrap_err();
        assert_eq!((error.is_circuit_open(), error.last()), (true, Some(&"down")), "not the panic of a callback");
        assert_eq!(bench.breaker.state(), State::Open, "the change is complete");
        bench.clock.advance(OPEN_TIME);
        bench.succeed();
        assert_eq!(bench.breaker.state(), State::Closed, "the place was freed");
    }
    assert_eq!(log.entries().len(), 9);
}

/// Gives a value instead of an error.
struct Instead;

impl Settings for Instead {}

impl<E: Send> Policy<u32, E> for Instead {
    async fn run<N: Next<u32, E>>(&self, call: Call<'_, E>, next: N) -> Outcome<u32, E> {
        let outcome = next.call(call).await;
        if outcome.result.is_ok() { outcome } else { Outcome::new(Ok(0), Verdict::Ignored) }
    }
}

#[test]
fn breaker_without_fallback_stuck() {
    /// When calls through the chain get through again, if the backend is down for the first ten seconds.
    fn recovers(chain: impl Policy<u32, &'static str>) -> Duration {
        let (clock, cx) = at_rest();
        let start = clock.now();
        loop {
            let now = clock.now().since(start);
            let call = faults(async |_| if now < secs(10) { Err("down").transient() } else { Ok(7) });
            if clock.block_on(try_do(&cx, call, &chain)).is_ok_and(|value| value == 7) {
                return now;
            }
            clock.advance(ms(500));
        }
    }
    let breaker = || Breaker::new(consecutive(2).open_for(secs(4)));
    assert_eq!(recovers(breaker()), recovers((Instead, breaker())));
    assert_eq!(recovers(breaker()), secs(10) + ms(500) * 5);
}

#[test]
fn leftover_timers_after_drop() {
    let (clock, _) = at_rest();
    let alive = Arc::new(());
    for number in 0..10_000 {
        let token = Arc::clone(&alive);
        let breaker = Breaker::new(consecutive(1).on_transition(move |_| assert!(Arc::strong_count(&token) > 1)));
        let chain = (Retry::fixed(secs(1)), breaker, Timeout::secs(2));
        let executor = Executor::builder("short-lived").policies(chain).clock(&clock).build().unwrap();
        let cx = executor.context().with_token(CancellationToken::new()).with_timeout(secs(9));
        match number % 3 {
            0 => {}
            1 => drop(clock.block_on(executor.run_with(&cx, async |_| Ok::<_, Kind>(())))),
            _ => {
                let mut run = tokio_test::task::spawn(executor.run_with(&cx, |_| hangs_for_ever()));
                tokio_test::assert_pending!(run.poll());
                assert_eq!((clock.sleepers(), executor.waiting()), (1, 1));
                drop(run);
                assert_eq!(executor.waiting(), 0);
            }
        }
    }
    assert_eq!((clock.sleepers(), Arc::strong_count(&alive)), (0, 1), "no timer, no breaker and no listener is left");
}

/// However long it took: a success belongs into the bucket in which it ended, like a failure.
#[test]
fn a_success_counts_from_its_end() {
    let bench = Bench::closed(rate(1_000));
    let clock = bench.clock.clock();
    let slow = async |_| {
        clock.sleep(secs(15)).await;
        Ok::<_, ()>(())
    };
    bench.run(slow).unwrap();
    assert_eq!(bench.breaker.counts().calls, 1);
    bench.clock.advance(secs(8));
    assert_eq!(bench.breaker.counts().calls, 1);
}
