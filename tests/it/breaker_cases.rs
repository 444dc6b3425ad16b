//! Public bug reports of other breakers around their half-open state, restated as tests.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Barrier, Mutex};
use std::thread;

use futures::future::join_all;
use steadfast::breaker::{AbandonedTrial, Breaker, BreakerConfig, Permit, Rejected, State, TripRule};
use steadfast::error::Kind;
use steadfast::operation::nested;
use steadfast::policy::{Call, Next, Outcome, Policy, Settings};
use steadfast::{Retry, Timeout, try_do, try_op};
use tokio::sync::Semaphore;

use crate::breakers::{Bench, OPEN_TIME, Trial, consecutive, counting, hangs_for_ever, logging, panics};
use crate::policies::Refuses;
use crate::support::{Script, at_rest, err, ms, ok, secs};

#[test]
fn cancelled_probe_sticks() {
    for (then, eligible) in [(AbandonedTrial::Reopen, secs(13)), (AbandonedTrial::Release, ms(8_100))] {
        let (clock, cx) = at_rest();
        let start = clock.now();
        let breaker = Breaker::new(consecutive(1).open_for(secs(5)).abandoned_trial(then));
        clock.block_on(try_do(&cx, async |_| Err::<(), _>(()), &breaker)).unwrap_err();
        clock.advance(secs(7));
        let slow = Script::new(&clock, [ok::<_, ()>(()).after(secs(2))]);
        let mut probe = tokio_test::task::spawn(try_do(&cx, |_| slow.call_plain(), &breaker));
        tokio_test::assert_pending!(probe.poll());
        clock.advance(secs(1));
        drop(probe);
        clock.advance(ms(100));
        let healthy = || clock.block_on(try_do(&cx, async |_| Ok::<_, ()>(()), &breaker));
        while let Err(refused) = healthy() {
            clock.advance(refused.retry_after().expect("a time"));
        }
        assert_eq!((clock.now().since(start), breaker.state()), (eligible, State::Closed));
    }
}

/// Takes a permit and returns before it says how the call ended.
fn fails_early(breaker: &Breaker) -> Result<(), Box<dyn std::error::Error>> {
    let permit: Permit = breaker.try_acquire()?;
    "not a number".parse::<u32>()?;
    permit.success();
    Ok(())
}

/// Tries elsewhere if this takes longer than a second.
struct FailsOver;

impl Settings for FailsOver {}

impl<T: Send, E: Send> Policy<T, E> for FailsOver {
    async fn run<N: Next<T, E>>(&self, call: Call<'_, E>, next: N) -> Outcome<T, E> {
        tokio::select! {
            biased;
            outcome = next.call(call) => outcome,
            () = call.clock().sleep(secs(1)) => {
                Outcome::rejected(steadfast::Error::refused(Kind::Overloaded))
            }
        }
    }
}

#[test]
fn probe_slot_lost_on_odd_exits() {
    type Exit = fn(&Bench);
    let exits: [(Exit, Trial); 4] = [
        (
            |bench| {
                let run = try_do(&bench.cx, |_| hangs_for_ever(), &bench.breaker);
                let timer = bench.clock.clock();
                bench.clock.block_on(async {
                    tokio::select! {
                        _ = run => panic!("it hangs"),
                        () = timer.sleep(secs(1)) => {}
                    }
                });
            },
            Trial::Reopened,
        ),
        (|bench| assert!(fails_early(&bench.breaker).is_err()), Trial::Reopened),
        (
            |bench| {
                let (cx, breaker) = (bench.cx.clone(), bench.breaker.clone());
                let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
                let run = async move { try_do(&cx, async |_| panics::<Result<(), ()>>(), breaker).await };
                assert!(runtime.block_on(runtime.spawn(run)).is_err());
            },
            Trial::Reopened,
        ),
        (|bench| drop(bench.through((FailsOver, &bench.breaker), |_| hangs_for_ever())), Trial::Reopened),
    ];
    for (exit, expected) in exits {
        let bench = Bench::half_open(consecutive(1).abandoned_trial(AbandonedTrial::Reopen));
        exit(&bench);
        assert_eq!(bench.after_trial(), expected);
        bench.clock.advance(OPEN_TIME);
        bench.succeed();
        assert_eq!(bench.breaker.state(), State::Closed, "the next call is admitted");
    }
}

#[test]
fn half_open_stampede() {
    // Nine callers that arrive together, and a transport that takes a second.
    let bench = Bench::half_open(consecutive(1));
    let script = Script::new(&bench.clock, [ok::<_, ()>(()).after(secs(1))]);
    let callers = (0..9).map(|_| async {
        let result = try_do(&bench.cx, |_| script.call_plain(), &bench.breaker).await;
        (result.is_ok(), script.elapsed())
    });
    let ends = bench.clock.block_on(join_all(callers));
    assert_eq!(script.calls().len(), 1);
    assert_eq!(ends.iter().filter(|end| **end == (false, secs(0))).count(), 8, "refused at once");

    // The same with threads.
    const CALLERS: usize = 64;
    for _ in 0..20 {
        let bench = Bench::half_open(consecutive(1));
        let (calls, refused, barrier) = (AtomicU32::new(0), AtomicU32::new(0), Barrier::new(CALLERS));
        thread::scope(|scope| {
            for _ in 0..CALLERS {
                scope.spawn(|| {
                    let mut run = tokio_test::task::spawn(try_do(
                        &bench.cx,
                        |_| {
                            calls.fetch_add(1, Ordering::Relaxed);
                            hangs_for_ever()
                        },
                        &bench.breaker,
                    ));
                    barrier.wait();
                    if run.poll().is_ready() {
                        refused.fetch_add(1, Ordering::Relaxed);
                    }
                    barrier.wait();
                });
            }
        });
        assert_eq!((calls.into_inner(), refused.into_inner()), (1, CALLERS as u32 - 1));
    }
}

#[test]
fn first_probe_not_counted() {
    let bench = Bench::half_open(consecutive(1).trials(3).successes_to_close(3));
    let answers = Semaphore::new(0);
    let call = async |_| {
        answers.acquire().await.expect("open").forget();
        Ok::<_, ()>(())
    };
    let mut runs: Vec<_> = (0..10).map(|_| tokio_test::task::spawn(try_do(&bench.cx, call, &bench.breaker))).collect();
    let mut admitted: Vec<_> = runs.iter_mut().filter_map(|run| run.poll().is_pending().then_some(run)).collect();
    assert_eq!(admitted.len(), 3);
    for (number, run) in admitted.iter_mut().enumerate() {
        assert_eq!(bench.breaker.state(), State::HalfOpen, "after {number}");
        answers.add_permits(1);
        tokio_test::assert_ready!(run.poll()).unwrap();
    }
    assert_eq!(bench.breaker.state(), State::Closed);
}

#[test]
fn permits_grow_on_release() {
    // A permit is used up by its verdict, so it cannot be released twice; one that was never a trial releases nothing.
    let config = consecutive(1).trials(2).successes_to_close(100);
    let bench = Bench::closed(config);
    let before = bench.breaker.try_acquire().unwrap();
    bench.trip();
    bench.clock.advance(OPEN_TIME);
    let (first, _second) = (bench.breaker.try_acquire().unwrap(), bench.breaker.try_acquire().unwrap());
    before.success();
    assert!(bench.is_refused());
    first.success();
    let admitted: Vec<_> = (0..10).map(|_| bench.breaker.try_acquire()).filter_map(Result::ok).collect();
    assert_eq!(admitted.len(), 1, "never more than two");
}

#[test]
fn stale_half_open_result() {
    let config = consecutive(1).trials(2).successes_to_close(2).open_for(secs(5)).trial_deadline(secs(60));
    let bench = Bench::half_open(config);
    let clock = &bench.clock;
    let a = Script::new(clock, [ok::<_, ()>("a").after(secs(20))]);
    let mut a = tokio_test::task::spawn(try_do(&bench.cx, |_| a.call_plain(), &bench.breaker));
    tokio_test::assert_pending!(a.poll());
    let b = Script::new(clock, [err::<(), _>("b").after(ms(100))]);
    bench.run(|_| b.call_plain()).unwrap_err();
    assert_eq!(bench.breaker.state(), State::Open);
    clock.advance(secs(5));
    let (c, d) = (bench.breaker.try_acquire().unwrap(), bench.breaker.try_acquire().unwrap());
    clock.advance(ms(14_900));
    assert_eq!(tokio_test::assert_ready!(a.poll()).unwrap(), "a", "its caller gets its answer");
    assert_eq!(bench.breaker.state(), State::HalfOpen);
    assert!(bench.is_refused(), "two places are in use");
    c.success();
    assert_eq!(bench.breaker.state(), State::HalfOpen);
    d.success();
    assert_eq!(bench.breaker.state(), State::Closed);
}

#[test]
fn closed_era_result_decides_half_open() {
    for late in [Permit::success as fn(Permit), Permit::failure] {
        let rule = TripRule::failure_rate(1.0).minimum_calls(10);
        let bench = Bench::closed(BreakerConfig::default().rule(rule).open_for(secs(1)));
        let mut permits: Vec<_> = (0..100).map(|_| bench.breaker.try_acquire().unwrap()).collect();
        permits.drain(..10).for_each(Permit::failure);
        assert_eq!(bench.breaker.state(), State::Open);
        bench.clock.advance(secs(1));
        let probe = bench.breaker.try_acquire().unwrap();
        permits.into_iter().for_each(late);
        assert_eq!((bench.breaker.state(), bench.is_refused()), (State::HalfOpen, true));
        probe.success();
        assert_eq!((bench.breaker.state(), bench.counted()), (State::Closed, (0, 0)), "nor is the next window theirs");
    }
}

#[test]
fn late_success_clears_open_deadline() {
    let bench = Bench::closed(consecutive(1));
    let (one, other) = (bench.breaker.try_acquire().unwrap(), bench.breaker.try_acquire().unwrap());
    one.failure();
    bench.clock.advance(secs(1));
    other.success();
    assert_eq!((bench.breaker.state(), bench.breaker.remaining_open()), (State::Open, secs(29)));
    bench.clock.advance(secs(29));
    assert_eq!(bench.breaker.state(), State::HalfOpen);
    bench.succeed();
}

#[test]
fn late_failures_reopen_again() {
    let (config, log) = logging(consecutive(2).open_for(secs(5)));
    let bench = Bench::closed(config);
    let start = bench.clock.now();
    let calls = (1..=10).map(|second| {
        let script = Script::new(&bench.clock, [err::<(), _>(second).after(secs(second))]);
        let (cx, breaker) = (&bench.cx, &bench.breaker);
        async move { try_do(cx, |_| script.call_plain(), breaker).await }
    });
    bench.clock.block_on(join_all(calls));
    let [opened] = &log.entries()[..] else { panic!("one transition: {:?}", log.entries()) };
    assert_eq!((opened.to, opened.at.since(start)), (State::Open, secs(2)));
    assert_eq!(bench.breaker.state(), State::HalfOpen, "since second 7");
    bench.succeed();
    assert_eq!(bench.breaker.state(), State::Closed);
}

#[test]
fn min_calls_above_permitted_probes() {
    let rule = TripRule::failure_rate(0.5).minimum_calls(100);
    let config = BreakerConfig::default().rule(rule).open_for(secs(10)).trials(10).successes_to_close(10);
    for dropped in [0, 2] {
        let bench = Bench::half_open(config.clone().abandoned_trial(AbandonedTrial::Release));
        let mut probes: Vec<_> = (0..10).map(|_| bench.breaker.try_acquire().unwrap()).collect();
        assert!(bench.is_refused());
        drop(probes.drain(..dropped).collect::<Vec<_>>());
        probes.extend((0..dropped).map(|_| bench.breaker.try_acquire().expect("a replacement")));
        assert!(bench.is_refused());
        probes.into_iter().for_each(Permit::success);
        assert_eq!(bench.breaker.state(), State::Closed, "{dropped} dropped");
    }
}

#[test]
fn nested_same_breaker() {
    // The operation calls through the breaker that it is run through, and finds its own trial in the way.
    let twice = |bench: &Bench| {
        let inner = nested(async |_| try_do(&bench.cx, async |_| Ok::<_, ()>(7), &bench.breaker).await);
        bench.clock.block_on(try_op(&bench.cx, inner, &bench.breaker))
    };
    let (config, log) = logging(counting());
    let bench = Bench::half_open(config);
    let error = twice(&bench).unwrap_err();
    assert_eq!((error.kind(), log.states().last()), (Kind::CircuitOpen { retry_after: None }, Some(&State::HalfOpen)));
    assert_eq!(bench.after_trial(), Trial::PlaceBack, "its own refusal is no failure of the dependency");
    bench.succeed();
    assert_eq!(bench.breaker.state(), State::Closed, "a call that is not nested closes it");
    assert_eq!(twice(&bench).unwrap(), 7);

    let bench = Bench::half_open(counting().trials(2));
    assert_eq!(twice(&bench).unwrap(), 7, "with a place for both it closes in the first period");
    assert_eq!(bench.breaker.state(), State::Closed);
}

#[test]
fn local_rejection_uses_up_probes() {
    let bench = Bench::half_open(consecutive(1).trials(3).successes_to_close(3));
    let chain = (&bench.breaker, Refuses::between(0, 5));
    for _ in 0..5 {
        bench.through(&chain, async |_| Ok::<_, ()>(())).unwrap_err();
        assert_eq!((bench.breaker.state(), bench.breaker.counts().calls), (State::HalfOpen, 0));
    }
    for _ in 0..3 {
        bench.through(&chain, async |_| Ok::<_, ()>(())).unwrap();
    }
    assert_eq!(bench.breaker.state(), State::Closed);
}

#[test]
fn close_and_open_race() {
    // The backend flips, threads call, and time goes on beside them; then the backend stays well.
    let bench = Bench::closed(consecutive(2).open_for(ms(50)).trials(2));
    let (healthy, rounds, stop) = (AtomicBool::new(false), AtomicU32::new(0), AtomicBool::new(false));
    let inconsistent: Mutex<Vec<Rejected>> = Mutex::default();
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    match bench.breaker.try_acquire() {
                        Ok(permit) if healthy.load(Ordering::Relaxed) => permit.success(),
                        Ok(permit) => permit.failure(),
                        Err(rejected) if rejected.retry_after().is_some_and(|wait| wait > ms(50)) => {
                            inconsistent.lock().unwrap().push(rejected);
                        }
                        Err(_) => {}
                    }
                    rounds.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for flip in 0..100 {
            healthy.store(flip % 2 == 0, Ordering::Relaxed);
            let before = rounds.load(Ordering::Relaxed);
            while rounds.load(Ordering::Relaxed) < before + 20 {
                thread::yield_now();
            }
            bench.clock.advance(ms(20));
        }
        healthy.store(true, Ordering::Relaxed);
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(*inconsistent.lock().unwrap(), []);
    bench.clock.advance(ms(50));
    (0..3).for_each(|_| drop(bench.run(async |_| Ok::<_, ()>(()))));
    assert_eq!(bench.breaker.state(), State::Closed);
    (0..20).for_each(|_| bench.succeed());
}

#[test]
fn timeout_completion_race_double_report() {
    // Calls that end at about their limit, on several threads, with the clock going on beside them.
    const CALLS: u32 = 10_000;
    let bench =
        Bench::closed(counting().rule(TripRule::failure_rate(1.0).window(60, secs(60)).minimum_calls(CALLS * 2)));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).build().unwrap();
    let tasks: Vec<_> = (0..CALLS)
        .map(|number| {
            let (cx, breaker, timer) = (bench.cx.clone(), bench.breaker.clone(), bench.clock.clock());
            runtime.spawn(async move {
                // One of four is in time, one never ends, and two depend on who comes first.
                let takes = [ms(4), ms(5), ms(6), std::time::Duration::MAX][number as usize % 4];
                let call = async |_| {
                    timer.sleep(takes).await;
                    Ok::<_, ()>(())
                };
                try_do(&cx, call, (Retry::immediate().max_attempts(1), breaker, Timeout::millis(5))).await
            })
        })
        .collect();
    while !tasks.iter().all(tokio::task::JoinHandle::is_finished) {
        bench.clock.advance(ms(1));
        thread::yield_now();
    }
    let (mut successes, mut timeouts) = (0, 0);
    for task in tasks {
        match runtime.block_on(task).unwrap() {
            Ok(()) => successes += 1,
            Err(error) if error.is_timeout() => timeouts += 1,
            Err(error) => panic!("{error:?}"),
        }
    }
    assert_eq!(successes + timeouts, u64::from(CALLS));
    assert_eq!(bench.counted(), (u64::from(CALLS), timeouts), "each call is counted once, as its caller saw it");
    assert!(successes.min(timeouts) >= u64::from(CALLS) / 4, "{successes} and {timeouts}");
    assert_eq!(bench.clock.sleepers(), 0);
}
