//! Faults on purpose: how often they are injected, and that a chain cannot tell them from real ones.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use steadfast::breaker::{BreakerConfig, State, TripRule};
use steadfast::chain::BoxPolicy;
use steadfast::error::{Kind, Limit};
use steadfast::event::What;
use steadfast::judge::retry_if;
use steadfast::policy::{Outcome, Policy};
use steadfast::{Breaker, CancellationToken, Chaos, ConfigError, Executor, Hedge, Retry, Timeout, Verdict, try_do};

use crate::policies::Probe;
use crate::support::{Recorder, Script, at_rest, exhausted, ms, ok, secs, timed_out};

type Word = &'static str;

/// Which of `calls` calls are hit.
fn hits(executor: &Executor<impl Policy<bool, ()>>, clock: &steadfast::clock::ManualClock, calls: usize) -> Vec<bool> {
    (0..calls).map(|_| clock.block_on(executor.run(|_| async { Ok::<_, ()>(false) })).unwrap()).collect()
}

fn seeded<P: Policy<bool, ()>>(seed: u64, policies: P) -> (steadfast::clock::ManualClock, Executor<P>) {
    let (clock, _) = at_rest();
    let executor = Executor::builder("chaos").policies(policies).clock(&clock).seed(seed).build().unwrap();
    (clock, executor)
}

#[test]
fn rate_0_never_injects_and_rate_1_always() {
    for (rate, expected) in [(0.0, false), (1.0, true)] {
        let (clock, executor) = seeded(7, Chaos::replace(rate, || Ok::<_, ()>(true)));
        assert!(hits(&executor, &clock, 1_000).into_iter().all(|hit| hit == expected), "{rate}");
    }
}

#[test]
fn the_rate_is_the_share_of_calls_that_are_hit() {
    for rate in [0.01, 0.3, 0.9] {
        let chaos = Chaos::replace(rate, || Ok::<_, ()>(true));
        let (clock, executor) = seeded(7, chaos.clone());
        let hit = hits(&executor, &clock, 10_000).into_iter().filter(|hit| *hit).count();
        // Five standard deviations of a fair draw.
        let most = 5.0 * (10_000.0 * rate * (1.0 - rate)).sqrt();
        assert!((hit as f64 - 10_000.0 * rate).abs() < most, "{rate}: {hit}");
        assert_eq!(chaos.switch().injected(), hit as u64);
    }
}

#[test]
fn the_seed_of_the_executor_decides_which() {
    let which = |seed| {
        let (clock, executor) = seeded(seed, Chaos::replace(0.3, || Ok::<_, ()>(true)));
        hits(&executor, &clock, 200)
    };
    assert_eq!(which(7), which(7));
    assert_ne!(which(7), which(8));
}

#[test]
fn a_rate_that_is_none_is_refused_when_it_is_built_and_when_it_is_changed() {
    for rate in [f64::NAN, -0.1, -f64::MIN_POSITIVE, 1.000_001, f64::INFINITY, f64::NEG_INFINITY] {
        let chaos = Chaos::fail(rate, || "down");
        assert!(chaos.check().is_err(), "{rate}");
        let refused = Executor::builder("chaos").policies(Chaos::delay(rate, secs(1))).build().unwrap_err();
        assert!(refused.to_string().contains("Chaos::rate"), "{refused}");
        let (clock, cx) = at_rest();
        let error = clock.block_on(try_do(&cx, |_| async { Ok::<(), Word>(()) }, chaos)).unwrap_err();
        assert_eq!((error.kind(), error.attempts()), (Kind::Misconfigured, 0));

        let chaos = Chaos::fail(0.5, || "down");
        assert!(chaos.switch().set_rate(rate).is_err());
        assert_eq!(chaos.switch().rate().to_bits(), 0.5_f64.to_bits(), "{rate}: nothing is changed");
    }
    for rate in [0.0, -0.0, f64::MIN_POSITIVE, 1.0] {
        assert_eq!(Chaos::fail(rate, || "down").check(), Ok::<(), ConfigError>(()), "{rate}");
    }
}

#[test]
fn it_is_switched_and_tuned_while_calls_go_on_by_any_clone() {
    let chaos = Chaos::replace(1.0, || Ok::<_, ()>(true));
    let switch = chaos.clone().switch().clone();
    let (clock, executor) = seeded(7, chaos);
    assert_eq!(hits(&executor, &clock, 2), [true, true]);
    switch.turn_off();
    assert!(!switch.is_on());
    assert_eq!(hits(&executor, &clock, 2), [false, false]);
    switch.turn_on();
    assert_eq!(hits(&executor, &clock, 1), [true]);
    switch.set_rate(0.0).unwrap();
    assert_eq!(hits(&executor, &clock, 2), [false, false]);
    switch.set_rate(1.0).unwrap();
    assert_eq!((hits(&executor, &clock, 1), switch.injected()), (vec![true], 4));
}

#[test]
fn an_injected_error_is_one_of_the_operation() {
    let (clock, _) = at_rest();
    let (probe, recorder, runs) = (Probe::default(), Recorder::default(), AtomicU32::new(0));
    let breaker = Breaker::new(BreakerConfig::default().rule(TripRule::consecutive(3)));
    let policies = (Retry::immediate(), breaker.clone(), probe.clone(), Chaos::fail(1.0, || "down"));
    let builder = Executor::builder("search").policies(policies).clock(&clock).observe(recorder.clone());
    let executor = builder.build().unwrap();
    let error = clock
        .block_on(executor.run(|_| {
            runs.fetch_add(1, Relaxed);
            async { Ok::<u32, Word>(7) }
        }))
        .unwrap_err();
    assert_eq!((error.kind(), error.last(), error.attempts()), (exhausted(Limit::Attempts), Some(&"down"), 3));
    assert_eq!(probe.verdicts(), [Verdict::Transient; 3]);
    assert_eq!((breaker.state(), runs.into_inner()), (State::Open, 0), "the operation is not run");
    let one_try = [What::ChaosInjected, What::AttemptStarted, What::AttemptFinished { verdict: Verdict::Transient }];
    let events: Vec<_> = recorder.events().into_iter().map(|(_, what)| what).collect();
    assert_eq!(events[1..4], one_try);
}

#[test]
fn a_replacement_brings_its_own_verdict_and_a_judge_outside_revises_it() {
    let (clock, cx) = at_rest();
    let fatal = Chaos::replace(1.0, || Outcome::<u32, Word>::failed("corrupt", Verdict::Fatal));
    let error = clock.block_on(try_do(&cx, |_| async { Ok(7) }, (Retry::immediate(), fatal))).unwrap_err();
    assert_eq!((error.kind(), error.attempts()), (Kind::Failed, 1));
    let judged = (Retry::immediate(), retry_if(|error: &Word| *error != "gone"), Chaos::fail(1.0, || "gone"));
    let error = clock.block_on(try_do(&cx, |_| async { Ok(7) }, judged)).unwrap_err();
    assert_eq!((error.kind(), error.attempts()), (Kind::Failed, 1));
}

#[test]
fn a_delay_holds_the_answer_back_on_the_clock_of_the_call() {
    let (clock, cx) = at_rest();
    let start = clock.now();
    let script = Script::new(&clock, [ok::<Word, Word>("late").after(secs(1))]);
    let run = try_do(&cx, |_| script.call_plain(), Chaos::delay(1.0, secs(3)));
    assert_eq!((clock.block_on(run).unwrap(), clock.now().since(start)), ("late", secs(4)));
    assert_eq!(script.calls(), [secs(0)], "the operation has run by then");
}

#[test]
fn a_delay_is_cut_off_like_a_slow_dependency() {
    let (clock, cx) = at_rest();
    let probe = Probe::default();
    let policies = (Retry::fixed(secs(1)), probe.clone(), Timeout::secs(2), Chaos::delay(1.0, secs(60)));
    let start = clock.now();
    let error = clock.block_on(try_do(&cx, |_| async { Ok::<u32, Word>(7) }, policies)).unwrap_err();
    assert_eq!((error.kind(), error.attempts(), clock.now().since(start)), (timed_out(secs(2)), 3, secs(8)));
    assert_eq!(probe.verdicts(), [Verdict::Transient; 3], "the dependency had its time");
    assert_eq!(clock.sleepers(), 0);

    let forever = (Timeout::secs(2), Chaos::delay(1.0, Duration::MAX));
    let error = clock.block_on(try_do(&cx, |_| async { Ok::<u32, Word>(7) }, forever)).unwrap_err();
    assert_eq!(error.kind(), timed_out(secs(2)));
}

#[test]
fn a_delay_ends_with_its_caller() {
    let (clock, cx) = at_rest();
    let token = CancellationToken::new();
    let cx = cx.with_token(token.clone());
    let mut run =
        tokio_test::task::spawn(try_do(&cx, |_| async { Err::<u32, _>("late") }, Chaos::delay(1.0, secs(60))));
    assert!(run.poll().is_pending());
    assert_eq!(clock.sleepers(), 1);
    token.cancel();
    assert!(run.is_woken());
    let std::task::Poll::Ready(Err(error)) = run.poll() else { panic!("it goes on") };
    assert_eq!(error.kind(), Kind::Cancelled);
    drop(run);
    assert_eq!(clock.sleepers(), 0);
}

#[test]
fn nothing_is_injected_into_a_run_that_is_being_ended() {
    let (clock, cx) = at_rest();
    let (token, chaos) = (CancellationToken::new(), Chaos::fail(1.0, || "injected"));
    let cx = cx.with_token(token.clone());
    token.cancel();
    let error = clock.block_on(try_do(&cx, |_| async { Ok::<u32, Word>(7) }, chaos.clone())).unwrap_err();
    assert_eq!((error.kind(), chaos.switch().injected()), (Kind::Cancelled, 0));
}

#[test]
fn a_hedge_hides_a_delay_of_one_lane() {
    let (clock, _) = at_rest();
    let slow = Chaos::delay(0.5, secs(60));
    let policies = (Hedge::after(ms(20)), slow.clone());
    let executor = Executor::builder("search").policies(policies).clock(&clock).seed(7).unbudgeted().build().unwrap();
    let start = clock.now();
    for _ in 0..20 {
        clock.block_on(executor.run(|_| async { Ok::<_, Word>(7) })).unwrap();
    }
    let injected = slow.switch().injected() as u32;
    assert!(injected > 5, "{injected}");
    // Both lanes of a call are hit now and then; all others take no longer than the hedge.
    let waited = clock.now().since(start);
    assert!(waited < injected / 2 * secs(60), "{waited:?} for {injected}");
}

#[test]
fn several_are_independent_and_fit_every_kind_of_chain() {
    let (clock, cx) = at_rest();
    let both = (Chaos::delay(1.0, secs(1)), Chaos::fail(1.0, || "down"));
    let start = clock.now();
    let boxed: Vec<BoxPolicy<u32, Word>> = vec![BoxPolicy::new(Retry::immediate()), BoxPolicy::new(both)];
    let error = clock.block_on(try_do(&cx, |_| async { Ok(7) }, boxed)).unwrap_err();
    assert_eq!((error.last(), clock.now().since(start)), (Some(&"down"), secs(3)));

    let policies = (Retry::immediate(), Chaos::delay(1.0, secs(1)));
    let erased: Executor = Executor::builder("search").policies(policies).clock(&clock).build().unwrap().erase();
    let start = clock.now();
    assert_eq!(clock.block_on(erased.run(|_| async { Ok::<_, Word>(7) })).unwrap(), 7);
    assert_eq!(clock.now().since(start), secs(1));
    let outage = erased.with(Chaos::fail(1.0, || "down"));
    assert_eq!(clock.block_on(outage.run(|_| async { Ok(7) })).unwrap_err().last(), Some(&"down"));
}

#[test]
fn it_shows_what_it_does() {
    let shown = format!("{:?}", Chaos::delay(0.5, secs(1)));
    assert_eq!(shown, r#"Chaos { injects: "Delay", switch: Switch { is_on: true, rate: 0.5, injected: 0 } }"#);
}

/// A policy that judges is told of the operation's end in the same poll, or never: here a limit passes meanwhile.
#[test]
fn an_attempt_that_is_delayed_has_an_end_for_observers() {
    let (clock, _) = at_rest();
    let recorder = Recorder::default();
    let policies = (Timeout::millis(50), retry_if(|_: &&str| true), Chaos::delay(1.0, secs(1)));
    let builder = Executor::builder("delayed").policies(policies).clock(&clock).observe(recorder.clone());
    let executor = builder.build().unwrap();
    assert!(clock.block_on(executor.run(|_| async { Ok::<_, &str>(7) })).unwrap_err().is_timeout());
    let told: Vec<_> = recorder.events().into_iter().map(|(_, what)| what).collect();
    let finished = What::AttemptFinished { verdict: Verdict::Success };
    assert_eq!(told.iter().filter(|what| **what == finished).count(), 1, "{told:?}");
    assert!(matches!(told[..], [.., What::TimedOut { .. }, What::RunFinished { .. }]), "{told:?}");
}
