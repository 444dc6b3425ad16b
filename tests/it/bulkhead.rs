//! The bulkhead: how much runs at a time, who waits, and what becomes of permits.

use std::future::{pending, poll_fn, ready};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context as TaskContext, Poll, Waker};
use std::time::Duration;

use futures::future::join_all;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use steadfast::clock::{Clock, ManualClock};
use steadfast::error::{Full, Kind};
use steadfast::event::What;
use steadfast::limit::{Bulkhead, BulkheadConfig, BulkheadPermit, MAX_PERMITS};
use steadfast::operation::Operation;
use steadfast::policy::{Call, End, Next, Outcome, Policy, Settings, Tail};
use steadfast::{Attempt, CancellationToken, Context, Executor, Retry, Timeout, Verdict, try_do, try_op};
use tokio_test::task::spawn;
use tokio_test::{assert_pending, assert_ready_err, assert_ready_ok};

use crate::policies::Probe;
use crate::support::{Recorder, at_rest, mins, ms, ok, scenario, secs};

const FULL: Kind = Kind::BulkheadFull { why: Full::Queue };
const WAITED: Kind = Kind::BulkheadFull { why: Full::Wait };

fn queueing(permits: usize, queue: usize) -> Bulkhead {
    Bulkhead::with(BulkheadConfig::new(permits).queue(queue).max_wait(mins(1)))
}

/// Starts calls at once, in order, each of which takes so long, and gives for each when it ended or was refused.
fn all_at_once(
    bulkhead: &Bulkhead,
    clock: &ManualClock,
    takes: &[Duration],
) -> Vec<Result<Duration, (Kind, Duration)>> {
    let cx = Context::new().with_clock(clock);
    let start = clock.now();
    let since = || clock.now().since(start);
    let call = async |takes: &Duration| {
        let work = |_| async {
            clock.clock().sleep(*takes).await;
            Ok::<_, ()>(since())
        };
        try_do(&cx, work, bulkhead).await.map_err(|error| (error.kind(), since()))
    };
    clock.block_on(join_all(takes.iter().map(call)))
}

fn assert_all_free(bulkhead: &Bulkhead) {
    assert_eq!((bulkhead.in_flight(), bulkhead.queued(), bulkhead.available()), (0, 0, bulkhead.permits()));
}

/// Lines 112 and 113 of the second part.
#[test]
fn without_a_queue_a_full_bulkhead_refuses_at_once() {
    let seen = scenario(|| Bulkhead::new(1)).everywhere([ok::<_, ()>(7).after(secs(1))]);
    assert_eq!((seen.result, seen.took), (Ok(7), secs(1)));
    let (clock, _) = at_rest();
    let bulkhead = Bulkhead::new(2);
    let runs = all_at_once(&bulkhead, &clock, &[secs(1); 3]);
    assert_eq!(runs, [Ok(secs(1)), Ok(secs(1)), Err((FULL, secs(0)))]);
    assert_all_free(&bulkhead);
}

/// Case `third-task-never-runs`.
#[test]
fn all_who_wait_run_in_their_order() {
    let (clock, _) = at_rest();
    let bulkhead = queueing(1, 2);
    let runs = all_at_once(&bulkhead, &clock, &[secs(1); 3]);
    assert_eq!(runs, [Ok(secs(1)), Ok(secs(2)), Ok(secs(3))]);
    assert_eq!(clock.sleepers(), 0);
    assert_all_free(&bulkhead);
}

/// Case `aborted-queue-entry-holds-slot`.
#[test]
fn who_leaves_the_queue_makes_room_there() {
    let (clock, cx) = at_rest();
    let bulkhead = queueing(1, 2);
    let order = Mutex::new(Vec::new());
    let (order, clock, cx, bulkhead) = (&order, &clock, &cx, &bulkhead);
    let call = |name: &'static str| {
        spawn(Box::pin(async move {
            let work = |_| async {
                order.lock().unwrap().push(name);
                clock.clock().sleep(secs(1)).await;
                Ok::<_, ()>(())
            };
            try_do(cx, work, bulkhead).await
        }))
    };
    let (mut a, mut b, mut c) = (call("a"), call("b"), call("c"));
    assert_pending!(a.poll());
    assert_pending!(b.poll());
    assert_pending!(c.poll());
    assert_eq!(assert_ready_err!(call("refused").poll()).kind(), FULL);
    drop(b);
    let mut d = call("d");
    assert_pending!(d.poll());
    assert_eq!(bulkhead.queued(), 2);
    clock.advance(secs(1));
    assert_ready_ok!(a.poll());
    assert!(c.is_woken() && !d.is_woken());
    assert_pending!(c.poll());
    clock.advance(secs(1));
    assert_ready_ok!(c.poll());
    assert_pending!(d.poll());
    clock.advance(secs(1));
    assert_ready_ok!(d.poll());
    assert_eq!(*order.lock().unwrap(), ["a", "c", "d"]);
    assert_all_free(bulkhead);
}

/// Case `double-release`, and line 117 of the second part.
#[test]
fn a_permit_is_given_back_once_however_a_call_ends() {
    let (clock, cx) = at_rest();
    let bulkhead = Bulkhead::new(1);
    for _ in 0..100 {
        let mut done = spawn(try_do(&cx, |_| ready(Ok::<_, ()>(())), &bulkhead));
        assert_ready_ok!(done.poll());
        assert_eq!(bulkhead.in_flight(), 0);
        drop(done);
        let _failed = clock.block_on(try_do(&cx, |_| ready(Err::<(), _>(())), &bulkhead));
        let mut dropped = spawn(try_do(&cx, |_| pending::<Result<(), ()>>(), &bulkhead));
        assert_pending!(dropped.poll());
        assert_eq!(bulkhead.in_flight(), 1);
        drop(dropped);
        let never_polled = try_do(&cx, |_| ready(Ok::<_, ()>(())), &bulkhead);
        assert_eq!(bulkhead.in_flight(), 0);
        drop(never_polled);
        let panics = std::panic::AssertUnwindSafe(|| {
            let run = try_do(
                &cx,
                |_| async { if clock.sleepers() == 0 { panic!("a test") } else { Ok::<_, ()>(()) } },
                &bulkhead,
            );
            clock.block_on(run)
        });
        std::panic::catch_unwind(panics).unwrap_err();
    }
    assert_all_free(&bulkhead);
    let runs = all_at_once(&bulkhead, &clock, &[secs(1); 5]);
    assert_eq!(runs.iter().filter(|run| run.is_ok()).count(), 1);
}

/// Cases `ready-does-not-reserve` and `idle-ready-service-hoards-permit`: a handle holds nothing, a call does.
#[test]
fn clones_hold_nothing_and_no_more_run_than_there_are_permits() {
    let (clock, cx) = at_rest();
    let bulkhead = queueing(5, 100);
    let clones: Vec<_> = (0..50).map(|_| bulkhead.clone()).collect();
    assert_eq!(bulkhead.available(), 5);
    let polls = AtomicUsize::new(0);
    let work = |_| async {
        polls.fetch_add(1, Ordering::Relaxed);
        clock.clock().sleep(mins(10)).await;
        Ok::<_, ()>(())
    };
    let mut running: Vec<_> = clones.iter().map(|clone| spawn(Box::pin(try_do(&cx, work, clone)))).collect();
    for run in &mut running {
        assert_pending!(run.poll());
        assert!(bulkhead.in_flight() <= 5);
    }
    assert_eq!((polls.load(Ordering::Relaxed), bulkhead.queued()), (5, 45));
    assert!(!running.iter().any(tokio_test::task::Spawn::is_woken), "nobody wakes himself");
    for _ in 0..20 {
        drop(running.remove(0));
        for run in &mut running {
            if run.is_woken() {
                assert_pending!(run.poll());
            }
        }
        assert_eq!(bulkhead.in_flight(), 5);
    }
    assert_eq!((polls.load(Ordering::Relaxed), bulkhead.queued()), (25, 25));
    drop(running);
    assert_all_free(&bulkhead);
}

/// Case `queued-call-runs-after-caller-left`, and line 104 of the first part.
#[test]
fn a_caller_that_gives_up_in_the_queue_starts_nothing() {
    let (clock, cx) = at_rest();
    let bulkhead = queueing(1, 10);
    let busy = bulkhead.try_acquire().unwrap();
    let calls = AtomicUsize::new(0);
    let work = |_| ready(Ok::<_, ()>(calls.fetch_add(1, Ordering::Relaxed)));
    let probe = Probe::default();
    let limited = clock.block_on(try_do(&cx, work, (probe.clone(), Timeout::millis(100), &bulkhead))).unwrap_err();
    assert_eq!(limited.kind(), Kind::TimedOut { limit: ms(100) });
    assert_eq!(probe.verdicts(), [Verdict::Rejected { retry_after: None }]);
    let late = clock.block_on(try_do(&cx.clone().with_timeout(ms(100)), work, &bulkhead)).unwrap_err();
    assert_eq!(late.kind(), Kind::DeadlineExceeded);
    let token = CancellationToken::new();
    let cancellable = cx.clone().with_token(token.clone());
    let mut cancelled = spawn(try_do(&cancellable, work, &bulkhead));
    assert_pending!(cancelled.poll());
    // The permit is there and the caller has left, in the same poll.
    drop(busy);
    token.cancel();
    assert_eq!(assert_ready_err!(cancelled.poll()).kind(), Kind::Cancelled);
    clock.advance(mins(1));
    assert_eq!((calls.load(Ordering::Relaxed), clock.sleepers()), (0, 0));
    assert_all_free(&bulkhead);
}

/// Case `zero-permits-hang`, and line 114 of the second part.
#[test]
fn settings_that_cannot_work_let_nothing_through() {
    let config = BulkheadConfig::new;
    let cases = [
        (config(0), "permits"),
        (config(MAX_PERMITS + 1), "permits"),
        (config(usize::MAX), "permits"),
        (config(1).max_wait(secs(0)), "max_wait"),
    ];
    for (config, field) in cases {
        assert_eq!(config.check().unwrap_err().field(), field);
        let bulkhead = Bulkhead::with(config.queue(10));
        assert_eq!(Executor::builder("x").policies(bulkhead.clone()).build().unwrap_err().field(), field);
        let (clock, cx) = at_rest();
        let run = try_do(&cx, |_| ready(Ok::<_, ()>(())), &bulkhead);
        assert_eq!(clock.block_on(run).unwrap_err().kind(), Kind::Misconfigured);
        let refused = bulkhead.try_acquire().unwrap_err();
        assert_eq!((refused.kind(), refused.config().unwrap().field()), (Kind::Misconfigured, field));
        assert_eq!(clock.block_on(bulkhead.acquire()).unwrap_err().kind(), Kind::Misconfigured);
        assert_eq!(clock.block_on(bulkhead.acquire_with(&cx)).unwrap_err().kind(), Kind::Misconfigured);
        assert_eq!(bulkhead.resize(1).unwrap_err().field(), field);
    }
    let most = Bulkhead::new(MAX_PERMITS);
    let permits: Vec<_> = (0..3).map(|_| most.try_acquire().unwrap()).collect();
    assert_eq!((most.in_flight(), most.available()), (3, MAX_PERMITS - 3));
    drop(permits);
    assert_eq!(most.resize(0).unwrap_err().field(), "permits");
    assert_eq!(most.resize(usize::MAX).unwrap_err().field(), "permits");
    assert_a_name_that_cannot_work_is_refused_everywhere();
}

/// Free or busy, with a queue or without.
fn assert_a_name_that_cannot_work_is_refused_everywhere() {
    let (clock, cx) = at_rest();
    for config in [BulkheadConfig::new(1), BulkheadConfig::new(1).queue(10)] {
        let named = Bulkhead::with(config);
        named.bind(&clock).unwrap();
        let unnamed = named.clone().named("");
        assert_eq!(Executor::builder("x").policies(unnamed.clone()).build().unwrap_err().field(), "name");
        let entries = || {
            let run = try_do(&cx, |_| ready(Ok::<_, ()>(())), &unnamed);
            assert_eq!(clock.block_on(run).unwrap_err().kind(), Kind::Misconfigured);
            let refused = [
                unnamed.try_acquire().unwrap_err(),
                assert_ready_err!(spawn(unnamed.acquire()).poll()),
                assert_ready_err!(spawn(unnamed.acquire_with(&cx)).poll()),
            ];
            for refused in refused {
                assert_eq!((refused.kind(), refused.config().unwrap().field()), (Kind::Misconfigured, "name"));
            }
        };
        entries();
        let busy = named.try_acquire().unwrap();
        entries();
        drop(busy);
        assert_all_free(&named);
    }
}

/// Lines 101 of the first part and 115 of the second.
#[test]
fn a_call_waits_for_as_long_as_it_may() {
    let (clock, cx) = at_rest();
    let bulkhead = Bulkhead::with(BulkheadConfig::new(1).queue(10));
    let start = clock.now();
    let _busy = bulkhead.try_acquire().unwrap();
    let waited = clock.block_on(try_do(&cx, |_| ready(Ok::<_, ()>(())), &bulkhead)).unwrap_err();
    assert_eq!((waited.kind(), clock.now().since(start)), (WAITED, secs(1)), "a second unless told otherwise");
    bulkhead.bind(&clock).unwrap();
    assert_eq!(bulkhead.bind(Clock::tokio()).unwrap_err().field(), "clock");
    assert_eq!(clock.block_on(bulkhead.acquire()).unwrap_err().kind(), WAITED);
    assert_eq!(clock.block_on(bulkhead.acquire_with(&cx)).unwrap_err().kind(), WAITED);
    assert_eq!((clock.now().since(start), bulkhead.queued(), clock.sleepers()), (secs(3), 0, 0));
}

/// Line 102 of the first part.
#[test]
fn a_free_permit_needs_no_wait() {
    let bulkhead = Bulkhead::with(BulkheadConfig::new(1).queue(1).max_wait(Duration::from_nanos(1)));
    let seen = scenario(move || bulkhead.clone()).everywhere([ok::<_, ()>(7)]);
    assert_eq!((seen.result, seen.took), (Ok(7), secs(0)));
}

#[test]
fn a_permit_that_comes_at_the_last_moment_is_taken() {
    let (clock, cx) = at_rest();
    let bulkhead = Bulkhead::with(BulkheadConfig::new(1).queue(1).max_wait(secs(1)));
    let busy = bulkhead.try_acquire().unwrap();
    let mut run = spawn(try_do(&cx, |_| ready(Ok::<_, ()>(7)), &bulkhead));
    assert_pending!(run.poll());
    clock.advance(secs(1));
    drop(busy);
    assert_eq!(assert_ready_ok!(run.poll()), 7);
    assert_all_free(&bulkhead);
}

#[test]
fn a_caller_with_a_context_waits_on_its_clock_and_within_its_limits() {
    let (clock, cx) = at_rest();
    let bulkhead = queueing(1, 10);
    let busy = bulkhead.try_acquire().unwrap();
    let late = clock.block_on(bulkhead.acquire_with(&cx.clone().with_timeout(ms(10)))).unwrap_err();
    assert_eq!(late.kind(), Kind::DeadlineExceeded);
    let token = CancellationToken::new();
    let cancellable = cx.clone().with_token(token.clone());
    let mut waiting = spawn(bulkhead.acquire_with(&cancellable));
    assert_pending!(waiting.poll());
    drop(busy);
    token.cancel();
    assert_eq!(assert_ready_err!(waiting.poll()).kind(), Kind::Cancelled);
    drop(waiting);
    let refused = clock.block_on(bulkhead.acquire_with(&cancellable)).unwrap_err();
    assert_eq!(refused.kind(), Kind::Cancelled, "also where a permit is free");
    let permit = clock.block_on(bulkhead.acquire_with(&cx)).unwrap();
    assert_eq!(bulkhead.in_flight(), 1);
    drop(permit);
    assert_all_free(&bulkhead);
}

/// Line 103 of the first part.
#[test]
fn a_retry_stops_at_a_refusal_and_a_permit_outside_of_it_lasts_for_all_tries() {
    let bulkhead = Bulkhead::new(1);
    let busy = bulkhead.try_acquire().unwrap();
    let inside = bulkhead.clone();
    let run = scenario(move || (Retry::immediate().max_attempts(7), inside.clone())).everywhere([ok::<_, ()>(7)]);
    assert_eq!((run.kind(), run.calls.len()), (FULL, 0));
    drop(busy);
    let (clock, cx) = at_rest();
    let down = |_| ready(Err::<(), _>("down"));
    for (outside, in_the_wait) in [(true, 1), (false, 0)] {
        let retry = Retry::fixed(secs(1)).max_attempts(2);
        let chain = (outside.then_some(&bulkhead), retry, (!outside).then_some(&bulkhead));
        let mut run = spawn(try_do(&cx, down, chain));
        assert_pending!(run.poll());
        assert_eq!(bulkhead.in_flight(), in_the_wait);
        clock.advance(secs(2));
        assert_ready_err!(run.poll());
        assert_all_free(&bulkhead);
    }
}

/// Line 116 of the second part.
#[test]
fn more_permits_let_in_who_waits_and_fewer_take_none_away() {
    let (clock, _) = at_rest();
    let bulkhead = queueing(1, 10);
    bulkhead.bind(&clock).unwrap();
    let first = bulkhead.try_acquire().unwrap();
    let mut waiting: Vec<_> = (0..3).map(|_| spawn(bulkhead.acquire())).collect();
    waiting.iter_mut().for_each(|waiter| assert_pending!(waiter.poll()));
    bulkhead.resize(3).unwrap();
    assert!(waiting[0].is_woken() && !waiting[1].is_woken(), "one wakes the next");
    let second = assert_ready_ok!(waiting[0].poll());
    assert!(waiting[1].is_woken());
    let third = assert_ready_ok!(waiting[1].poll());
    assert!(!waiting[2].is_woken());
    bulkhead.resize(1).unwrap();
    assert_eq!((bulkhead.permits(), bulkhead.in_flight(), bulkhead.available()), (1, 3, 0));
    drop(first);
    drop(second);
    assert!(!waiting[2].is_woken());
    assert_pending!(waiting[2].poll());
    drop(third);
    assert!(waiting[2].is_woken());
    let fourth = assert_ready_ok!(waiting[2].poll());
    drop(fourth);
    assert_all_free(&bulkhead);
}

#[test]
fn a_permit_can_go_anywhere() {
    fn owned<T: Send + Sync + 'static>(_: &T) {}
    let bulkhead = Bulkhead::new(1);
    let permit: BulkheadPermit = bulkhead.try_acquire().unwrap();
    owned(&permit);
    let thread = std::thread::spawn(move || drop(permit));
    thread.join().unwrap();
    assert_all_free(&bulkhead);
    let permit = bulkhead.try_acquire().unwrap();
    drop(bulkhead);
    assert_eq!(format!("{permit:?}"), "BulkheadPermit", "it outlives the bulkhead");
}

/// An operation whose result outlives the run, or an error.
struct Opens(bool);

impl Operation<&'static str, &'static str> for Opens {
    async fn call(&self, _: Attempt) -> Outcome<&'static str, &'static str> {
        if self.0 { Outcome::success("a stream") } else { Outcome::failed("down", Verdict::Transient) }
    }

    fn streams(&self) -> bool {
        true
    }
}

/// Takes the tail of every outcome, as an adapter does that holds it until the stream ends.
#[derive(Clone, Default)]
struct Holds(Arc<Mutex<Vec<Tail>>>);

impl Settings for Holds {}

impl<T: Send, E: Send> Policy<T, E> for Holds {
    async fn run<N: Next<T, E>>(&self, call: Call<'_, E>, next: N) -> Outcome<T, E> {
        let mut outcome = next.call(call).await;
        self.0.lock().unwrap().push(outcome.tail_mut().take());
        outcome
    }
}

#[test]
fn a_result_that_outlives_its_run_keeps_the_permit() {
    let (clock, cx) = at_rest();
    let bulkhead = Bulkhead::new(1);
    for end in [Some(End::Complete), Some(End::Failed), None] {
        let holds = Holds::default();
        clock.block_on(try_op(&cx, Opens(true), (holds.clone(), &bulkhead))).unwrap();
        assert_eq!(bulkhead.in_flight(), 1);
        let tail = holds.0.lock().unwrap().pop().unwrap();
        match end {
            Some(end) => tail.end(end),
            None => drop(tail),
        }
        assert_all_free(&bulkhead);
    }
    // What a retry gives up, a caller without an adapter and an error hold nothing.
    let holds = Holds::default();
    clock.block_on(try_op(&cx, Opens(false), (holds.clone(), &bulkhead))).unwrap_err();
    clock.block_on(try_op(&cx, Opens(true), &bulkhead)).unwrap();
    assert_all_free(&bulkhead);
    clock.block_on(try_do(&cx, |_| ready(Ok::<_, ()>(())), (holds.clone(), &bulkhead))).unwrap();
    assert!(holds.0.lock().unwrap().iter().all(Tail::is_empty));
}

#[test]
fn every_refusal_is_an_event_and_carries_the_name() {
    let (clock, _) = at_rest();
    let recorder = Recorder::default();
    let bulkhead = Bulkhead::new(1).named("pool");
    let builder = Executor::builder("billing").policies(bulkhead.clone()).clock(&clock).observe(recorder.clone());
    let executor = builder.build().unwrap();
    let _busy = bulkhead.try_acquire().unwrap();
    let refused = clock.block_on(executor.run(|_| ready(Ok::<_, String>(())))).unwrap_err();
    assert_eq!(refused.to_string(), "pool: bulkhead full");
    assert_eq!(recorder.events()[1], (1, What::Rejected { by: "bulkhead", kind: FULL }));
    assert_eq!(bulkhead.try_acquire().unwrap_err().to_string(), "pool: bulkhead full");
    assert!(format!("{bulkhead:?}").contains("in_flight: 1"));
}

#[test]
fn a_limit_inside_of_others_makes_the_run_longer_by_its_wait() {
    assert_eq!(queueing(1, 1).limit(Some(secs(2))), Some(secs(62)));
    assert_eq!(Bulkhead::new(1).limit(Some(secs(2))), Some(secs(2)));
    assert_eq!(queueing(1, 1).limit(None), None);
}

#[test]
fn one_bulkhead_serves_runs_on_any_clock() {
    let bulkhead = queueing(1, 1);
    for _ in 0..2 {
        let (clock, _) = at_rest();
        let executor = Executor::builder("x").policies(bulkhead.clone()).clock(&clock).build().unwrap();
        clock.block_on(executor.run(|_| ready(Ok::<_, ()>(())))).unwrap();
    }
}

/// Waiters that are served, run out of time and are dropped, many at the same instant.
#[test]
fn a_thousand_rounds_leave_all_permits_and_no_waiter() {
    let mut rng = SmallRng::seed_from_u64(5);
    for round in 0..1_000 {
        let permits = rng.random_range(1..4);
        let (clock, _) = at_rest();
        let bulkhead = Bulkhead::with(BulkheadConfig::new(permits).queue(6).max_wait(ms(3)));
        bulkhead.bind(&clock).unwrap();
        let mut held: Vec<BulkheadPermit> = Vec::new();
        let mut waiting: Vec<_> = Vec::new();
        for _ in 0..rng.random_range(5..40) {
            for _ in 0..rng.random_range(1..4) {
                match rng.random_range(0..6) {
                    0 | 1 if !held.is_empty() => drop(held.swap_remove(rng.random_range(0..held.len()))),
                    2 if !waiting.is_empty() => drop(waiting.swap_remove(rng.random_range(0..waiting.len()))),
                    3 => bulkhead.resize(rng.random_range(1..5)).unwrap(),
                    _ => waiting.push(spawn(bulkhead.acquire())),
                }
            }
            if rng.random_bool(0.5) {
                clock.advance(ms(1));
            }
            // In any order, as tasks on several threads are; some are late.
            for _ in 0..2 * waiting.len() {
                let chosen = rng.random_range(0..waiting.len().max(1));
                let Some(waiter) = waiting.get_mut(chosen) else { break };
                let room = bulkhead.available();
                match waiter.poll() {
                    Poll::Ready(got) => {
                        assert!(got.is_err() || room > 0, "round {round}: it has got what was not there");
                        held.extend(got.ok());
                        drop(waiting.swap_remove(chosen));
                    }
                    Poll::Pending => {}
                }
            }
            assert_eq!(bulkhead.in_flight(), held.len());
        }
        held.clear();
        if round % 2 == 0 {
            waiting.clear();
        }
        while let Some(chosen) = waiting.iter().position(tokio_test::task::Spawn::is_woken) {
            if waiting[chosen].poll().is_ready() {
                drop(waiting.swap_remove(chosen));
            }
        }
        clock.advance(ms(3));
        waiting
            .iter_mut()
            .for_each(|waiter| assert!(waiter.poll().is_ready(), "round {round}: somebody was forgotten"));
        drop(waiting);
        assert_all_free(&bulkhead);
        assert_eq!(clock.sleepers(), 0);
    }
}

/// Threads that take, wait, leave and give back while the number of permits changes.
#[test]
fn resizing_under_load_never_lets_more_in_than_there_are() {
    let bulkhead = Bulkhead::with(BulkheadConfig::new(8).queue(4).max_wait(mins(1)));
    let (running, stop, done) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let (bulkhead, running, stop, done) = (&bulkhead, &running, &stop, &done);
            scope.spawn(move || {
                let mut rng = SmallRng::seed_from_u64(thread);
                let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
                runtime.block_on(async {
                    while stop.load(Ordering::Relaxed) == 0 {
                        let mut waiting = pin!(bulkhead.acquire());
                        let first = waiting.as_mut().poll(&mut TaskContext::from_waker(Waker::noop()));
                        let permit = match first {
                            Poll::Ready(Ok(permit)) => permit,
                            Poll::Ready(Err(_)) => continue,
                            Poll::Pending if rng.random_bool(0.5) => continue,
                            Poll::Pending => match waiting.await {
                                Ok(permit) => permit,
                                Err(_) => continue,
                            },
                        };
                        running.fetch_add(1, Ordering::SeqCst);
                        done.fetch_add(1, Ordering::Relaxed);
                        if rng.random_bool(0.5) {
                            tokio::task::yield_now().await;
                        }
                        running.fetch_sub(1, Ordering::SeqCst);
                        drop(permit);
                    }
                });
            });
        }
        for round in 0..200_usize {
            let permits = 1 + round % 3;
            bulkhead.resize(permits).unwrap();
            while bulkhead.in_flight() > permits {
                std::thread::yield_now();
            }
            for _ in 0..50 {
                assert!(running.load(Ordering::SeqCst) <= permits);
                std::thread::yield_now();
            }
        }
        stop.store(1, Ordering::Relaxed);
        bulkhead.resize(8).unwrap();
    });
    assert!(done.load(Ordering::Relaxed) > 0);
    assert_all_free(&bulkhead);
}

#[test]
fn dropping_a_run_at_every_poll_gives_everything_back() {
    let (clock, cx) = at_rest();
    let bulkhead = queueing(1, 2);
    for polls in 0..6 {
        let busy = bulkhead.try_acquire().unwrap();
        let work = |_| async {
            clock.clock().sleep(ms(1)).await;
            Ok::<_, ()>(())
        };
        let mut run = Box::pin(try_do(&cx, work, (Timeout::secs(5), &bulkhead)));
        let (mut busy, mut over) = (Some(busy), false);
        let mut left = polls;
        let dropped = poll_fn(|cx| {
            if left == 0 {
                return Poll::Ready(());
            }
            left -= 1;
            if left == 2 {
                busy.take();
            }
            over = over || run.as_mut().poll(cx).is_ready();
            cx.waker().wake_by_ref();
            if left == 0 { Poll::Ready(()) } else { Poll::Pending }
        });
        clock.block_on(dropped);
        drop(run);
        drop(busy);
        assert_eq!(clock.sleepers(), 0);
        assert_all_free(&bulkhead);
    }
}
