//! Faults that a critical reading has found, each with the test that showed it.

use std::future::{pending, ready};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Context as TaskContext, Poll, Wake, Waker};
use std::time::Duration;

use steadfast::breaker::{Breaker, BreakerConfig, State, TripRule};
use steadfast::error::{Kind, Limit};
use steadfast::event::{CutOff, Event, What};
use steadfast::executor::Stopped;
use steadfast::limit::{BulkheadConfig, RateLimiterConfig};
use steadfast::operation::{Fault, FaultExt, Operation, faults, nested, with_token};
use steadfast::policy::{Call, End, Next, Outcome, Policy, Settings};
use steadfast::retry::{Jitter, OnRejection};
use steadfast::{
    Attempt, Budget, Bulkhead, CancellationToken, Cause, Chaos, Clock, Context, Error, Executor, Hedge, RateLimiter,
    Retry, Timeout, Verdict, fallback, judge, op, try_do, try_op,
};

use tokio_test::assert_pending;
use tokio_test::task::spawn;

use crate::policies::{self, Probe, Refuses};
use crate::support::{Recorder, Script, at_rest, throttled};

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

#[test]
fn nested_retries_with_keep_errors_do_not_panic() {
    let clock = Clock::manual();
    let cx = Context::new().with_clock(&clock);
    let n = AtomicU32::new(0);
    let r = clock.block_on(try_do(
        &cx,
        async |_| Err::<(), u32>(n.fetch_add(1, SeqCst)),
        (Retry::immediate().max_attempts(2).keep_errors(3), Retry::immediate().max_attempts(2)),
    ));
    let e = r.unwrap_err();
    assert_eq!(e.attempts(), 4);
    assert_eq!(e.history().copied().collect::<Vec<_>>(), [1, 2, 3]);
}

#[test]
fn stopped_is_not_stale_after_inner_retry_gave_up() {
    let clock = Clock::manual();
    let ex = Executor::builder("x")
        .policies((Retry::immediate().max_attempts(2), Retry::immediate().max_attempts(2)))
        .clock(&clock)
        .build()
        .unwrap();
    let report = clock.block_on(ex.run_report_with(
        &Context::new(),
        op(|a: Attempt| async move { if a.number() < 3 { Err("no") } else { Ok(()) } }),
    ));
    assert!(report.result.is_ok());
    assert_eq!(report.stopped, Stopped::Settled);
}

#[test]
fn a_fatal_error_of_an_inner_executor_is_a_failure_for_the_outer_breaker() {
    let clock = Clock::manual();
    let cx = Context::new().with_clock(&clock);
    let inner = Executor::builder("inner").clock(&clock).build().unwrap();
    let breaker = Breaker::new(BreakerConfig::default().rule(TripRule::consecutive(1)));
    let f = nested(|_| inner.run(faults(|_| async { Err::<(), _>("db corrupt").fatal::<&str>() })));
    let _ended = clock.block_on(try_op(&cx, f, &breaker)).unwrap_err();
    assert_eq!(breaker.state(), State::Open);
}
#[test]
fn an_ignored_error_of_an_inner_executor_says_nothing_to_the_outer_breaker() {
    let clock = Clock::manual();
    let cx = Context::new().with_clock(&clock);
    let inner = Executor::builder("inner2").clock(&clock).build().unwrap();
    let breaker = Breaker::new(BreakerConfig::default());
    let f = nested(|_| inner.run(faults(|_| async { Err::<(), _>("local").ignored::<&str>() })));
    let _ended = clock.block_on(try_op(&cx, f, &breaker)).unwrap_err();
    assert_eq!(breaker.counts().calls, 0);
}
#[test]
fn a_throttled_error_of_an_inner_executor_is_no_failure_for_the_outer_breaker() {
    let clock = Clock::manual();
    let cx = Context::new().with_clock(&clock);
    let inner = Executor::builder("inner3").clock(&clock).build().unwrap();
    let breaker = Breaker::new(BreakerConfig::default());
    let f = nested(|_| inner.run(faults(|_| async { Err::<(), _>("429").throttled::<&str>(None) })));
    let _ended = clock.block_on(try_op(&cx, f, &breaker)).unwrap_err();
    assert_eq!(breaker.counts().failures, 0);
}

struct Bomb(Mutex<Option<Box<dyn FnOnce() + Send>>>);
impl Wake for Bomb {
    fn wake(self: Arc<Self>) {}
}
impl Drop for Bomb {
    fn drop(&mut self) {
        if let Some(f) = self.0.lock().unwrap().take() {
            f();
        }
    }
}
#[test]
fn a_waker_that_is_replaced_is_dropped_outside_of_the_lock() {
    let (done, wait) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let ex = Executor::builder("y").build().unwrap();
        let e2 = ex.clone();
        let bomb = Waker::from(Arc::new(Bomb(Mutex::new(Some(Box::new(move || {
            let _waiting = e2.waiting();
        }))))));
        let mut run = Box::pin(async { ex.run(|_| std::future::pending::<Result<(), ()>>()).await });
        assert!(run.as_mut().poll(&mut TaskContext::from_waker(&bomb)).is_pending());
        drop(bomb);
        assert!(run.as_mut().poll(&mut TaskContext::from_waker(Waker::noop())).is_pending());
        done.send(()).unwrap();
    });
    wait.recv_timeout(secs(3)).expect("deadlock");
}

#[test]
fn a_run_is_counted_until_its_chain_is_dropped() {
    struct Look(Executor<()>, Arc<AtomicUsize>);
    impl Drop for Look {
        fn drop(&mut self) {
            self.1.store(self.0.waiting(), SeqCst);
        }
    }
    let ex = Executor::builder("z").build().unwrap();
    let seen = Arc::new(AtomicUsize::new(9));
    let mut run = Box::pin(ex.run(|_| {
        let look = Look(ex.clone(), seen.clone());
        async move {
            let _look = look;
            std::future::pending::<Result<(), ()>>().await
        }
    }));
    assert!(run.as_mut().poll(&mut TaskContext::from_waker(Waker::noop())).is_pending());
    assert_eq!(ex.waiting(), 1);
    drop(run);
    assert_eq!(seen.load(SeqCst), 1);
}

#[test]
fn the_name_is_refused_first_and_nothing_is_bound() {
    let clock = Clock::manual();
    let b = Breaker::default();
    let e = Executor::builder("")
        .policies((b.clone(), Retry::immediate().max_attempts(0)))
        .clock(&clock)
        .build()
        .unwrap_err();
    assert_eq!(e.field(), "name");
    assert!(b.bind(Clock::tokio()).is_ok());
}

struct Again;
impl Settings for Again {}
impl<T: Send, E: Send> Policy<T, E> for Again {
    async fn run<N: Next<T, E>>(&self, call: Call<'_, E>, next: N) -> Outcome<T, E> {
        drop(next.call(call).await);
        next.call(call.again()).await
    }
}
#[test]
fn a_refused_run_is_not_finished_without_having_started() {
    let clock = Clock::manual();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = seen.clone();
    let ex = Executor::builder("o")
        .observe(move |e: &Event| log.lock().unwrap().push(e.what.clone()))
        .clock(&clock)
        .build()
        .unwrap();
    ex.close();
    let _ended = clock.block_on(ex.run(|_| async { Ok::<_, ()>(()) }));
    let seen = seen.lock().unwrap();
    let started = seen.iter().filter(|w| matches!(w, What::RunStarted)).count();
    let finished = seen.iter().filter(|w| matches!(w, What::RunFinished { .. })).count();
    assert_eq!(started, finished, "{seen:?}");
}

#[test]
fn shutdown_beats_deadline_everywhere() {
    let clock = Clock::manual();
    let ex = Executor::builder("s").clock(&clock).build().unwrap();
    let cx = ex.context().with_timeout(secs(1));
    let mut run = Box::pin(ex.run_with(&cx, |_| std::future::pending::<Result<(), ()>>()));
    assert!(run.as_mut().poll(&mut TaskContext::from_waker(Waker::noop())).is_pending());
    clock.advance(secs(2));
    ex.shutdown();
    let Poll::Ready(Err(e)) = run.as_mut().poll(&mut TaskContext::from_waker(Waker::noop())) else { panic!() };
    assert_eq!(e.kind(), Kind::ShutDown);
}

#[test]
fn nothing_starts_after_max_elapsed() {
    let clock = Clock::manual();
    let cx = Context::new().with_clock(&clock);
    let n = AtomicU32::new(0);
    let retry = Retry::fixed(secs(1)).max_elapsed(secs(2));
    let mut run = Box::pin(try_do(
        &cx,
        async |_| {
            n.fetch_add(1, SeqCst);
            Err::<(), _>("x")
        },
        retry,
    ));
    assert!(run.as_mut().poll(&mut TaskContext::from_waker(Waker::noop())).is_pending());
    clock.advance(secs(10));
    let _polled = run.as_mut().poll(&mut TaskContext::from_waker(Waker::noop()));
    assert_eq!(n.load(SeqCst), 1);
}
#[test]
fn nothing_starts_after_an_outer_timeout() {
    let clock = Clock::manual();
    let cx = Context::new().with_clock(&clock);
    let n = AtomicU32::new(0);
    let mut run = Box::pin(try_do(
        &cx,
        async |_| {
            n.fetch_add(1, SeqCst);
            Err::<(), _>("x")
        },
        (Timeout::secs(2), Retry::fixed(secs(1))),
    ));
    assert!(run.as_mut().poll(&mut TaskContext::from_waker(Waker::noop())).is_pending());
    clock.advance(secs(10));
    let _polled = run.as_mut().poll(&mut TaskContext::from_waker(Waker::noop()));
    assert_eq!(n.load(SeqCst), 1);
}

#[test]
fn a_bad_name_is_refused_by_try_acquire() {
    let clock = Clock::manual();
    let b = Breaker::default().named("");
    b.bind(&clock).unwrap();
    assert!(b.try_acquire().is_err());
}

#[test]
fn work_of_an_attempt_that_panics_at_once_is_told() {
    let clock = Clock::manual();
    let cx = Context::new().with_clock(&clock);
    let kept = Mutex::new(None);
    let r = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        clock.block_on(try_do(
            &cx,
            with_token(|attempt, token| {
                *kept.lock().unwrap() = Some(token);
                if attempt.number() == 1 {
                    panic!("x")
                }
                async { Ok::<_, ()>(()) }
            }),
            (),
        ))
    }));
    assert!(r.is_err());
    assert!(kept.into_inner().unwrap().unwrap().is_cancelled());
}

#[test]
fn stopped_is_the_cancellation_with_a_bad_value() {
    let clock = Clock::manual();
    let token = CancellationToken::new();
    let cx = Context::new().with_token(token.clone());
    let ex = Executor::builder("q")
        .policies((
            Retry::immediate(),
            Retry::immediate(),
            judge::classify(|_: &Result<u32, Error<()>>| Verdict::Transient),
        ))
        .clock(&clock)
        .build()
        .unwrap();
    let report = clock.block_on(ex.run_report_with(
        &cx,
        op(async |_| {
            token.cancel();
            Ok::<u32, ()>(503)
        }),
    ));
    assert_eq!(report.stopped, Stopped::Ended(Cause::Cancelled));
}

struct BreakOff;
impl Settings for BreakOff {}
impl<T: Send, E: Send> Policy<T, E> for BreakOff {
    async fn run<N: Next<T, E>>(&self, call: Call<'_, E>, next: N) -> Outcome<T, E> {
        let mut o = next.call(call).await;
        o.tail_mut().take().end(End::Failed);
        o
    }
}
struct Streams;
impl Operation<u32, ()> for Streams {
    async fn call(&self, _: Attempt) -> Outcome<u32, ()> {
        Outcome::new(Ok(503), Verdict::Transient)
    }
    fn streams(&self) -> bool {
        true
    }
}
#[test]
fn one_call_is_one_failure_also_if_its_body_breaks_off() {
    let clock = Clock::manual();
    let cx = Context::new().with_clock(&clock);
    let b = Breaker::default();
    let _ended = clock.block_on(try_op(&cx, Streams, (BreakOff, &b)));
    assert_eq!(b.counts().failures, 1);
}

#[test]
fn without_a_deadline_no_deadline_is_blamed() {
    let clock = Clock::manual();
    let cx = Context::new().with_clock(&clock);
    let retry = Retry::custom(|_, _| Duration::MAX).cap(Duration::MAX).max_elapsed(secs(5));
    let e = clock.block_on(try_do(&cx, async |_| Err::<(), _>("x"), retry)).unwrap_err();
    assert_eq!(e.kind(), Kind::Exhausted { by: Limit::Elapsed });
}

#[test]
fn a_try_of_a_custom_policy_gets_its_whole_limit() {
    let clock = Clock::manual();
    let cx = Context::new().with_clock(&clock);
    let left = Mutex::new(Vec::new());
    let _ended = clock.block_on(try_do(
        &cx,
        async |a: Attempt| {
            left.lock().unwrap().push(a.remaining().unwrap());
            clock.advance(secs(3));
            Ok::<_, ()>(())
        },
        (Again, Timeout::secs(2)),
    ));
    assert_eq!(left.into_inner().unwrap(), [secs(2), secs(2)]);
}

/// Found by dropping a run everywhere. Two lanes of a hedge make a second try each, and both have the number 2. That of the first
/// lane had started, so that of the other, which still waited for its permit, was taken for one that had cost its token.
#[test]
fn a_retry_that_waits_for_a_permit_costs_nothing_though_another_lane_makes_a_try_of_the_same_number() {
    let clock = Clock::manual();
    let millis = Duration::from_millis;
    let bulkhead = Bulkhead::with(BulkheadConfig::new(1).queue(2).max_wait(Duration::MAX));
    let policies = (Hedge::after(millis(1)), Retry::immediate().max_attempts(2), bulkhead);
    let budget = Budget::ratio(0.0).initial(8).floor(Duration::MAX);
    let executor = Executor::builder("x").policies(policies).budget(budget.clone()).clock(&clock).build().unwrap();
    let cx = executor.context().with_timeout(millis(5));
    let (time, starts) = (clock.clock(), AtomicU32::new(0));
    let run = executor.run_with(&cx, async |_| {
        starts.fetch_add(1, SeqCst);
        time.sleep(millis(2)).await;
        Err::<(), _>("busy")
    });
    assert_eq!(clock.block_on(run).unwrap_err().kind(), Kind::DeadlineExceeded);
    assert_eq!((starts.load(SeqCst), budget.available()), (3, 8 - 2));
}

/// Found by simulation. What had paid for a try that was refused did not pay for the one after it: an attempt cost two tokens.
#[test]
fn a_try_after_a_refused_one_costs_nothing_more() {
    let millis = Duration::from_millis;
    let waits = || Retry::fixed(millis(5)).jitter(Jitter::None).max_attempts(2).on_rejection(OnRejection::Wait);

    // The hedge has paid for its lane, the bulkhead refuses that lane's first try.
    let budget = Budget::ratio(0.0).initial(8).floor(Duration::MAX);
    let clock = Clock::manual();
    let policies = (Hedge::after(millis(1)), waits(), Bulkhead::new(1));
    let executor = Executor::builder("x").policies(policies).budget(budget.clone()).clock(&clock).build().unwrap();
    let time = clock.clock();
    let run = executor.run(async |attempt: Attempt| {
        if attempt.is_hedge() {
            return Ok(());
        }
        time.sleep(millis(4)).await;
        Err("busy")
    });
    assert!(clock.block_on(run).is_ok());
    assert_eq!(budget.available(), 8 - 1);

    // The outer retry has paid for its second try, whose first try in the inner one is refused.
    let budget = Budget::ratio(0.0).initial(8).floor(Duration::MAX);
    let policies = (waits(), waits(), Refuses::between(2, 3));
    let executor = Executor::builder("x").policies(policies).budget(budget.clone()).clock(&clock).build().unwrap();
    let error = clock.block_on(executor.run(async |_| Err::<(), _>("busy"))).unwrap_err();
    assert_eq!((error.attempts(), budget.available()), (3, 8 - 2));
}

/// Found by simulation. A lane that blocks its thread and then fails asks for the next lane within the same poll, which looked at
/// the time of the beginning of that poll: it was started after the limit around the hedge, and a limit inside of it began early.
#[test]
fn a_hedge_that_is_started_late_knows_the_time() {
    let clock = Clock::manual();
    let cx = Context::new().with_clock(&clock);
    let time = clock.clock();
    let blocks_then_takes = |blocks: u64, takes: u64| {
        let (clock, time) = (&clock, &time);
        move |attempt: Attempt| async move {
            if attempt.is_hedge() {
                time.sleep(Duration::from_millis(takes)).await;
                return Ok(());
            }
            clock.advance(Duration::from_millis(blocks));
            Err("busy")
        }
    };
    let policies = (Timeout::millis(100), Hedge::after(Duration::MAX));
    let error = clock.block_on(try_do(&cx, blocks_then_takes(100, 0), policies)).unwrap_err();
    assert_eq!((error.attempts(), error.last()), (1, Some(&"busy")), "nothing is started after the limit");

    let policies = (Hedge::after(Duration::MAX), Timeout::millis(100));
    assert!(clock.block_on(try_do(&cx, blocks_then_takes(60, 80), policies)).is_ok(), "a lane has all of its own time");
}

/// Goes on to wait after the operation has ended.
struct Lingers(Duration);

impl Settings for Lingers {}

impl<T: Send, E: Send> Policy<T, E> for Lingers {
    async fn run<N: Next<T, E>>(&self, call: Call<'_, E>, next: N) -> Outcome<T, E> {
        let outcome = next.call(call).await;
        if !matches!(outcome.verdict(), Verdict::Rejected { .. }) {
            call.clock().sleep(self.0).await;
        }
        outcome
    }
}

/// How many attempts have started and how many have ended, of those with this number.
fn ends_of(recorder: &Recorder, number: u32) -> (usize, usize) {
    let events = recorder.events();
    let of_attempt = |is_it: fn(&What) -> bool| events.iter().filter(|(at, what)| *at == number && is_it(what)).count();
    let is_end = |what: &What| matches!(what, What::AttemptFinished { .. } | What::AttemptAbandoned { .. });
    (of_attempt(|what| matches!(what, What::AttemptStarted)), of_attempt(is_end))
}

#[test]
fn an_attempt_that_has_ended_inside_of_a_judge_is_told_of_if_the_run_is_dropped() {
    let (clock, _) = at_rest();
    let recorder = Recorder::default();
    let chain = (judge::retry_if(|_: &&str| true), Lingers(secs(5)));
    let executor = Executor::builder("x").policies(chain).clock(&clock).observe(recorder.clone()).build().unwrap();
    let mut run = spawn(executor.run(|_| ready(Err::<(), _>("down"))));
    assert_pending!(run.poll());
    assert_eq!(ends_of(&recorder, 1), (1, 0));
    drop(run);
    assert_eq!(ends_of(&recorder, 1), (1, 1));
}

#[test]
fn no_attempt_ends_that_was_not_started_after_one_that_was_cut_off_inside_of_a_judge() {
    let (clock, _) = at_rest();
    let recorder = Recorder::default();
    let limiter = RateLimiter::new(RateLimiterConfig::per(1, secs(3_600)));
    let chain = (Retry::fixed(secs(1)), Timeout::secs(2), judge::retry_if(|_: &&str| true), Lingers(secs(5)), limiter);
    let executor = Executor::builder("x").policies(chain).clock(&clock).observe(recorder.clone()).build().unwrap();
    let ended = clock.block_on(executor.run(|_| ready(Err::<(), _>("down"))));
    assert!(matches!(ended.unwrap_err().kind(), Kind::RateLimited { .. }));
    assert_eq!((ends_of(&recorder, 1), ends_of(&recorder, 2)), ((1, 1), (0, 0)));
}

struct Value(Arc<AtomicU32>);

impl Value {
    fn new(live: &Arc<AtomicU32>) -> Value {
        live.fetch_add(1, SeqCst);
        Value(Arc::clone(live))
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

/// The most values that there were when an attempt began, of an executor whose chain has no type.
fn most_values<P: Policy<steadfast::executor::AnyValue, steadfast::executor::AnyError> + 'static>(inner: P) -> u32 {
    let (clock, _) = at_rest();
    let (live, most) = (Arc::new(AtomicU32::new(0)), AtomicU32::new(0));
    let run = op(|attempt: Attempt| {
        most.fetch_max(live.load(SeqCst), SeqCst);
        let live = Arc::clone(&live);
        async move {
            if attempt.is_hedge() {
                pending::<()>().await;
            }
            Ok::<_, String>(Value::new(&live))
        }
    })
    .classify(|_| Verdict::Transient);
    let chain = (Retry::immediate().max_attempts(20), Timeout::secs(1), inner);
    let executor = Executor::builder("x").policies(chain).clock(&clock).unbudgeted().build().unwrap().erase();
    let ended = clock.block_on(executor.run_op(run));
    assert!(ended.as_ref().is_err_and(Error::is_timeout), "{:?}", ended.map(|_| ()));
    assert_eq!(live.load(SeqCst), 0);
    most.into_inner()
}

#[test]
fn values_that_are_cut_off_do_not_pile_up_in_an_erased_executor() {
    assert_eq!(most_values(Hedge::after(secs(60))), 1, "the one that the first lane has ended with");
    assert_eq!(most_values(Chaos::delay(1.0, secs(60))), 0);
}

#[test]
fn a_retry_that_waits_for_refusals_does_not_say_how_long_that_may_take() {
    let (clock, cx) = at_rest();
    let limiter = RateLimiter::new(RateLimiterConfig::per(1, secs(600)));
    limiter.bind(&clock).unwrap();
    limiter.try_acquire().unwrap();
    let retry = Retry::fixed(secs(1)).on_rejection(OnRejection::Wait);
    assert_eq!(retry.limit(Some(secs(1))), None);
    assert_eq!(retry.clone().max_elapsed(secs(30)).limit(Some(secs(1))), Some(secs(31)));
    let begun = clock.now();
    clock.block_on(try_do(&cx, |_| ready(Ok::<_, String>(())), (retry, limiter, Timeout::secs(1)))).unwrap();
    assert!(clock.now().since(begun) >= secs(600));
}

#[test]
fn a_limit_does_not_rely_on_a_timer_that_is_gone() {
    let (clock, _) = at_rest();
    let policies = (
        Timeout::secs(10),
        fallback(|_: &Error<&'static str>| pending::<Result<i32, &'static str>>()),
        Hedge::after(Duration::ZERO),
        Retry::fixed(secs(1)),
    );
    let executor = Executor::builder("x").policies(policies).clock(&clock).build().unwrap();
    let mut run = spawn(executor.run(faults(|attempt: Attempt| async move {
        if attempt.is_hedge() { Err(Fault::Fatal("no")) } else { Err(Fault::Throttled("wait", Some(secs(1)))) }
    })));
    assert_pending!(run.poll());
    assert_eq!(clock.sleepers(), 1);
    clock.advance(secs(10));
    assert!(run.is_woken());
    assert!(run.poll().is_ready());
}

#[test]
fn nothing_is_announced_to_a_caller_that_left_during_the_attempt() {
    let (clock, cx) = at_rest();
    let token = CancellationToken::new();
    let cx = cx.with_token(token.clone());
    let told = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&told);
    let retry = Retry::fixed(secs(1)).on_retry(move |_| _ = count.fetch_add(1, SeqCst));
    let executor = Executor::builder("x").policies(retry).clock(&clock).build().unwrap();
    let run = executor.run_with(&cx, |_| {
        token.cancel();
        ready(Err::<(), _>("down"))
    });
    assert!(clock.block_on(run).unwrap_err().is_cancelled());
    assert_eq!(told.load(SeqCst), 0);
}

#[test]
fn when_the_caller_leaves_no_lane_has_lost() {
    let (clock, cx) = at_rest();
    let token = CancellationToken::new();
    let cx = cx.with_token(token.clone());
    let recorder = Recorder::default();
    let builder = Executor::builder("x").policies((Hedge::after(Duration::ZERO), Retry::fixed(secs(1))));
    let executor = builder.unbudgeted().clock(&clock).observe(recorder.clone()).build().unwrap();
    let run = executor.run_with(&cx, |attempt| {
        let token = token.clone();
        async move {
            if attempt.is_hedge() {
                token.cancel();
                return Err::<(), _>("down");
            }
            pending().await
        }
    });
    assert!(clock.block_on(run).unwrap_err().is_cancelled());
    let events = recorder.events();
    let abandoned = |what: &What| if let What::AttemptAbandoned { why } = what { Some(*why) } else { None };
    let abandoned: Vec<CutOff> = events.iter().filter_map(|(_, what)| abandoned(what)).collect();
    assert_eq!(abandoned, [CutOff::Ended(Cause::Cancelled)], "{events:?}");
    assert!(!events.iter().any(|(_, what)| matches!(what, What::HedgeWon | What::HedgeLost)));
}

#[test]
fn a_wait_that_ends_too_late_is_worth_what_the_last_attempt_was() {
    let (clock, cx) = at_rest();
    let probe = Probe::default();
    let chain = (probe.clone(), Retry::fixed(secs(1)).max_elapsed(secs(3)));
    let script = Script::<(), _>::new(&clock, [throttled("busy", secs(2))]);
    let mut run = spawn(try_do(&cx, faults(|_| script.call()), chain));
    assert_pending!(run.poll());
    clock.advance(secs(5));
    assert!(run.poll().is_ready());
    assert_eq!(probe.ends(), [policies::End::Judged(Verdict::Throttled { retry_after: Some(secs(2)) })]);
}

/// Something whose answers outlive their runs: the first is worth another attempt.
struct Rebuilds;

impl Operation<i32, ()> for Rebuilds {
    async fn call(&self, attempt: Attempt) -> Outcome<i32, ()> {
        if attempt.is_retry() { Outcome::success(7) } else { Outcome::new(Ok(503), Verdict::Transient) }
    }

    fn streams(&self) -> bool {
        true
    }
}

#[test]
fn a_permit_is_free_during_the_wait_after_a_value_that_is_given_up() {
    let (clock, _) = at_rest();
    let bulkhead = Bulkhead::new(1);
    let policies = (Retry::fixed(secs(1)), bulkhead.clone());
    let executor = Executor::builder("x").policies(policies).clock(&clock).build().unwrap();
    let mut run = spawn(executor.run_op(Rebuilds));
    assert_pending!(run.poll());
    assert_eq!(bulkhead.in_flight(), 0);
    clock.advance(secs(1));
    assert!(run.poll().is_ready());
    assert_eq!(bulkhead.in_flight(), 0);
}
