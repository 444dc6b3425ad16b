//! What an operator does to a breaker by hand, new settings under load, and what an operator sees.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use steadfast::breaker::{Breaker, BreakerConfig, Cause, Counts, State, TripRule};
use steadfast::error::{ConfigError, Kind};
use steadfast::{Classified, Verdict};

use crate::breakers::{Bench, Log, OPEN_TIME, consecutive, counting, logging};
use crate::support::{mins, secs};

const YEAR: Duration = Duration::from_secs(365 * 24 * 3_600);

fn closed(config: BreakerConfig) -> (Bench, Log) {
    let (config, log) = logging(config);
    (Bench::closed(config), log)
}

/// The last transition: from, to and cause.
fn last(log: &Log) -> (State, State, Cause) {
    let change = log.entries().pop().expect("a transition");
    (change.from, change.to, change.cause)
}

#[test]
fn forced_open_it_opens_now_and_goes_on_by_itself() {
    let (bench, log) = closed(counting());
    bench.succeed();
    bench.breaker.force_open();
    assert_eq!(last(&log), (State::Closed, State::Open, Cause::ForcedOpen));
    assert_eq!(log.entries()[0].open_for, Some(OPEN_TIME));
    assert!(bench.is_refused());
    bench.clock.advance(OPEN_TIME);
    bench.succeed();
    assert_eq!((bench.breaker.state(), bench.counted()), (State::Closed, (0, 0)));
}

#[test]
fn forced_open_while_open_its_time_begins_anew_and_nobody_is_told() {
    let (bench, log) = closed(consecutive(1));
    bench.trip();
    bench.clock.advance(secs(20));
    bench.breaker.force_open();
    assert_eq!((bench.breaker.remaining_open(), log.entries().len()), (OPEN_TIME, 1));
}

#[test]
fn forced_open_while_half_open_the_trial_is_stale() {
    let (config, log) = logging(consecutive(1));
    let bench = Bench::half_open(config);
    let trial = bench.breaker.try_acquire().unwrap();
    bench.breaker.force_open();
    assert_eq!(last(&log), (State::HalfOpen, State::Open, Cause::ForcedOpen));
    trial.success();
    assert_eq!((bench.breaker.state(), bench.breaker.remaining_open()), (State::Open, OPEN_TIME));
}

#[test]
fn forced_closed_it_begins_with_a_fresh_window() {
    for (bench, from) in [(Bench::open(counting()), State::Open), (Bench::half_open(counting()), State::HalfOpen)] {
        let trial = bench.breaker.try_acquire();
        assert_eq!(trial.is_ok(), from == State::HalfOpen);
        bench.breaker.force_close();
        drop(trial);
        assert_eq!((bench.breaker.state(), bench.counted()), (State::Closed, (0, 0)), "an old trial says nothing");
        (0..2).for_each(|_| bench.fail());
        assert_eq!((bench.breaker.state(), bench.counted()), (State::Closed, (2, 2)));
        bench.breaker.force_close();
        assert_eq!(bench.counted(), (0, 0), "closing a closed one is harmless, and forgets");
        (0..2).for_each(|_| bench.fail());
        assert_eq!(bench.breaker.state(), State::Closed);
        bench.fail();
        assert_eq!(bench.breaker.state(), State::Open);
    }
}

#[test]
fn an_isolated_breaker_refuses_until_it_is_released() {
    let (bench, log) = closed(counting());
    bench.fail();
    let before = bench.breaker.try_acquire().unwrap();
    bench.breaker.isolate();
    assert_eq!(last(&log), (State::Closed, State::Isolated, Cause::Isolated));
    before.failure();
    for passed in [secs(0), OPEN_TIME, YEAR] {
        bench.clock.advance(passed);
        let rejected = bench.breaker.try_acquire().unwrap_err();
        assert_eq!((rejected.kind(), rejected.retry_after()), (Kind::CircuitOpen { retry_after: None }, None));
        assert_eq!((bench.breaker.state(), bench.breaker.remaining_open()), (State::Isolated, Duration::MAX));
    }
    bench.breaker.release();
    assert_eq!(last(&log), (State::Isolated, State::Closed, Cause::Released));
    assert_eq!(bench.counted(), (0, 0));
    bench.succeed();
}

#[test]
fn an_isolated_breaker_obeys_nothing_but_release() {
    type Command = (&'static str, fn(&Breaker));
    let commands: [Command; 8] = [
        ("force_open", Breaker::force_open),
        ("force_close", Breaker::force_close),
        ("reset", Breaker::reset),
        ("disable", Breaker::disable),
        ("metrics_only", Breaker::metrics_only),
        ("isolate", Breaker::isolate),
        ("record", |breaker| breaker.record(Verdict::Success)),
        ("reconfigure", |breaker| breaker.reconfigure(counting().open_for(secs(1))).unwrap()),
    ];
    for (name, command) in commands {
        let (bench, log) = closed(counting());
        bench.breaker.isolate();
        assert!(bench.is_refused());
        command(&bench.breaker);
        bench.clock.advance(mins(10));
        assert_eq!((bench.breaker.state(), bench.is_refused()), (State::Isolated, true), "{name}");
        assert_eq!((bench.breaker.counts().rejected, log.entries().len()), (2, 1), "{name}");
    }
}

#[test]
fn a_disabled_breaker_lets_all_through_and_counts_none() {
    let (bench, log) = closed(counting());
    bench.trip();
    bench.breaker.disable();
    assert_eq!(last(&log), (State::Open, State::Disabled, Cause::Disabled));
    (0..100).for_each(|_| bench.fail());
    (0..100).for_each(|_| bench.breaker.record(Verdict::Transient));
    assert_eq!((bench.breaker.state(), bench.breaker.counts()), (State::Disabled, Counts::default()));
    bench.breaker.release();
    assert_eq!((last(&log), bench.counted()), ((State::Disabled, State::Closed, Cause::Released), (0, 0)));
    (0..3).for_each(|_| bench.fail());
    assert_eq!(bench.breaker.state(), State::Open, "it watches again");
}

#[test]
fn with_metrics_only_it_counts_what_it_would_have_seen() {
    let (bench, log) = closed(counting());
    (0..2).for_each(|_| bench.fail());
    bench.breaker.metrics_only();
    assert_eq!((last(&log).1, bench.counted()), (State::MetricsOnly, (0, 0)), "from now on");
    (0..10).for_each(|_| bench.fail());
    bench.succeed();
    bench.breaker.record(Verdict::Transient);
    assert_eq!((bench.breaker.state(), bench.counted()), (State::MetricsOnly, (12, 11)));
    bench.breaker.force_open();
    assert_eq!(last(&log), (State::MetricsOnly, State::Open, Cause::ForcedOpen), "another command ends it");
    bench.breaker.metrics_only();
    bench.breaker.release();
    assert_eq!((bench.breaker.state(), bench.counted()), (State::Closed, (0, 0)));
    assert_eq!(log.entries().len(), 4);
}

#[test]
fn a_release_of_what_was_not_held_does_nothing() {
    for bench in [Bench::closed(counting()), Bench::open(counting()), Bench::half_open(counting())] {
        let before = (bench.breaker.state(), bench.breaker.remaining_open(), bench.breaker.counts());
        bench.breaker.release();
        assert_eq!((bench.breaker.state(), bench.breaker.remaining_open(), bench.breaker.counts()), before);
    }
    let bench = Bench::closed(counting());
    bench.fail();
    bench.breaker.release();
    assert_eq!(bench.counted(), (1, 1));
}

#[test]
fn manual_reset_keeps_count() {
    for rule in [TripRule::consecutive(5), TripRule::failure_rate(1.0).minimum_calls(5), TripRule::count_window(5, 1.0)]
    {
        let (bench, log) = closed(BreakerConfig::default().rule(rule).open_for(OPEN_TIME));
        (0..5).for_each(|_| bench.fail());
        assert!(bench.is_refused());
        bench.breaker.reset();
        assert_eq!(last(&log), (State::Open, State::Closed, Cause::Reset));
        assert_eq!(bench.breaker.counts(), Counts::default(), "the refusal is forgotten as well");
        bench.fail();
        bench.clock.advance(secs(1));
        bench.fail();
        assert_eq!(bench.breaker.state(), State::Closed, "two of five, nothing of before");
        (0..3).for_each(|_| bench.fail());
        assert_eq!(bench.breaker.state(), State::Open);
    }
}

#[test]
fn a_reset_forgets_how_often_it_has_opened() {
    let bench = Bench::open(consecutive(1).open_backoff(2.0, mins(60)));
    for expected in [60, 120] {
        bench.clock.advance(bench.breaker.remaining_open());
        bench.fail();
        assert_eq!(bench.breaker.remaining_open(), secs(expected));
    }
    bench.breaker.force_close();
    bench.fail();
    assert_eq!(bench.breaker.remaining_open(), secs(240), "closing does not");
    bench.breaker.reset();
    bench.fail();
    assert_eq!(bench.breaker.remaining_open(), OPEN_TIME);
}

#[test]
fn what_is_not_a_change_of_state_is_not_told() {
    let (bench, log) = closed(counting());
    let commands: [fn(&Breaker); 3] = [Breaker::force_close, Breaker::reset, Breaker::release];
    commands.iter().for_each(|command| command(&bench.breaker));
    (0..3).for_each(|_| bench.breaker.disable());
    (0..3).for_each(|_| bench.breaker.metrics_only());
    (0..3).for_each(|_| bench.breaker.isolate());
    assert_eq!(log.states(), [State::Disabled, State::MetricsOnly, State::Isolated]);
}

#[test]
fn several_breakers_can_be_driven_alike() {
    let benches = [(); 3].map(|()| Bench::closed(counting()));
    let all: Vec<Breaker> = benches.iter().map(|bench| bench.breaker.clone()).collect();
    all.iter().for_each(Breaker::isolate);
    assert!(benches.iter().all(Bench::is_refused));
    all.iter().for_each(Breaker::release);
    benches.iter().for_each(Bench::succeed);
}

/// Case `callback-order-lost`, for commands: listeners hear of one chain of changes, one change at a time.
#[test]
fn commands_of_many_threads_are_told_as_one_chain() {
    let running = Arc::new(AtomicU32::new(0));
    let guard = Arc::clone(&running);
    let (bench, log) = closed(counting().on_transition(move |_| {
        assert_eq!(guard.fetch_add(1, Ordering::SeqCst), 0, "listeners overlap");
        thread::yield_now();
        guard.fetch_sub(1, Ordering::SeqCst);
    }));
    let commands: [fn(&Breaker); 4] = [Breaker::force_open, Breaker::force_close, Breaker::isolate, Breaker::release];
    thread::scope(|scope| {
        for number in 0..8 {
            let breaker = &bench.breaker;
            scope.spawn(move || (0..2_500).for_each(|round| commands[(round + number) % 4](breaker)));
        }
    });
    let log = log.entries();
    assert!(log.len() > 1_000, "{} transitions", log.len());
    assert_eq!(log[0].from, State::Closed);
    assert!(log.windows(2).all(|pair| pair[0].to == pair[1].from));
    assert_eq!(log.last().map(|change| change.to), Some(bench.breaker.state()));
    assert_eq!(running.load(Ordering::SeqCst), 0, "no listener has panicked");
}

fn wide(rate: f64) -> BreakerConfig {
    let rule = TripRule::failure_rate(rate).window(60, secs(60)).minimum_calls(1_000_000);
    BreakerConfig::default().rule(rule)
}

#[test]
fn new_settings_under_load_lose_no_call() {
    const CALLS: u64 = 4_000;
    let (bench, log) = closed(wide(0.5));
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..4)
            .map(|number| {
                let breaker = &bench.breaker;
                scope.spawn(move || {
                    for call in 0..CALLS {
                        let permit = breaker.try_acquire().unwrap();
                        if (call + number) % 4 == 0 { permit.failure() } else { permit.success() }
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            for rate in [0.9, 0.6].into_iter().cycle().take_while(|_| !done.load(Ordering::Relaxed)) {
                bench.breaker.reconfigure(wide(rate).open_for(secs(1)).trials(3)).unwrap();
            }
        });
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!((bench.breaker.state(), bench.counted()), (State::Closed, (4 * CALLS, CALLS)));
    // What was counted is held against the new numbers by the next call.
    let quarter = wide(0.25).rule(TripRule::failure_rate(0.25).window(60, secs(60)).minimum_calls(100));
    bench.breaker.reconfigure(quarter).unwrap();
    bench.fail();
    assert_eq!(last(&log), (State::Closed, State::Open, Cause::FailureRate));
}

#[test]
fn new_times_apply_from_the_next_opening_on() {
    let (bench, log) = closed(consecutive(1));
    bench.trip();
    bench.breaker.reconfigure(consecutive(1).open_for(secs(5))).unwrap();
    assert_eq!(bench.breaker.remaining_open(), OPEN_TIME, "an open breaker stays so for as long as it was going to");
    bench.clock.advance(OPEN_TIME);
    bench.fail();
    assert_eq!(bench.breaker.remaining_open(), secs(5));
    assert_eq!(log.entries().last().unwrap().open_for, Some(secs(5)), "and the listeners stay");
}

#[test]
fn new_numbers_decide_trials_that_were_made_before() {
    let bench = Bench::half_open(consecutive(1).trials(3).successes_to_close(3));
    (0..2).for_each(|_| bench.succeed());
    assert_eq!(bench.breaker.state(), State::HalfOpen);
    bench.breaker.reconfigure(consecutive(1).successes_to_close(2)).unwrap();
    assert!(!bench.breaker.try_acquire().unwrap().is_trial(), "two were enough");
    assert_eq!(bench.breaker.state(), State::Closed);
}

#[test]
fn another_window_is_refused_and_nothing_changes() {
    let config = |rule: TripRule| BreakerConfig::default().rule(rule).open_for(secs(1));
    let rate = TripRule::failure_rate(0.5);
    let refusals = [
        (rate.clone().window(20, secs(1)), "window = 20 x 1s: cannot be changed while the breaker counts in it"),
        (rate.clone().window(10, secs(2)), "window = 10 x 2s: cannot be changed while the breaker counts in it"),
        (TripRule::consecutive(5), "window = none: cannot be changed while the breaker counts in it"),
        (
            rate.clone().or(TripRule::count_window(5, 0.5)),
            "count_window = 5: cannot be changed while the breaker counts in it",
        ),
        (TripRule::failure_rate(1.5), "failure_rate = 1.5: must be above 0 and at most 1"),
    ];
    let (bench, log) = closed(BreakerConfig::default());
    (0..19).for_each(|_| bench.fail());
    for (rule, text) in refusals {
        let refused: ConfigError = bench.breaker.reconfigure(config(rule)).unwrap_err();
        assert_eq!(refused.to_string(), text);
    }
    bench.fail();
    assert_eq!((last(&log).2, bench.breaker.remaining_open()), (Cause::FailureRate, OPEN_TIME));
    let narrower = config(rate.minimum_calls(3).or(TripRule::consecutive(2)));
    bench.breaker.reconfigure(narrower).expect("the same window with other numbers, and one more rule without one");
}

#[test]
fn a_breaker_whose_settings_cannot_work_is_not_cured_by_new_ones() {
    let breaker = Breaker::new(consecutive(0));
    let refused = breaker.reconfigure(consecutive(1)).unwrap_err();
    assert_eq!(refused.field(), "consecutive");
    assert_eq!(breaker.try_acquire().unwrap_err().config(), Some(&refused));
}

#[test]
fn listeners_hear_each_command_and_for_how_long_it_opens() {
    let (bench, log) = closed(consecutive(1));
    let commands: [fn(&Breaker); 9] = [
        Breaker::force_open,
        Breaker::force_close,
        Breaker::metrics_only,
        Breaker::disable,
        Breaker::reset,
        Breaker::disable,
        Breaker::release,
        Breaker::isolate,
        Breaker::release,
    ];
    commands.iter().for_each(|command| command(&bench.breaker));
    let told: Vec<_> = log.entries().into_iter().map(|change| (change.cause, change.open_for, change.key)).collect();
    let expected = [
        (Cause::ForcedOpen, Some(OPEN_TIME)),
        (Cause::ForcedClosed, None),
        (Cause::MetricsOnly, None),
        (Cause::Disabled, None),
        (Cause::Reset, None),
        (Cause::Disabled, None),
        (Cause::Released, None),
        (Cause::Isolated, None),
        (Cause::Released, None),
    ];
    assert_eq!(told, expected.map(|(cause, open_for)| (cause, open_for, None)));
}

#[test]
fn what_an_operator_reads() {
    let bench = Bench::closed(consecutive(1));
    let named = bench.breaker.clone().named("ledger");
    assert_eq!(format!("{named:?}"), r#"Breaker { name: Some("ledger"), state: Closed, .. }"#);
    bench.breaker.isolate();
    assert_eq!(format!("{:?}", bench.breaker), "Breaker { name: None, state: Isolated, .. }");
    assert_eq!(named.try_acquire().unwrap_err().to_string(), "ledger: circuit breaker open");
    bench.breaker.release();
    let permit = bench.breaker.try_acquire().unwrap();
    assert_eq!(format!("{permit:?}"), "Permit { is_trial: false, .. }");
    let stream = permit.guard_stream(futures::stream::empty::<std::io::Result<()>>(), Classified::verdict);
    let text = format!("{stream:?}");
    assert!(text.starts_with("GuardedStream { stream: Empty") && text.ends_with("state: Closed, .. }, .. }"), "{text}");
    let config = format!("{:?}", consecutive(1).on_transition(|_| {}));
    assert!(config.contains("consecutive: Some(1)") && config.contains("listeners: 1 listeners"), "{config}");
    assert_eq!(format!("{:>12}|{:<9}|", State::HalfOpen, State::Open), "   half-open|open     |");
    let paused = Bench::closed(counting().pause_on_retry_after(secs(9)));
    paused.breaker.record(Verdict::Throttled { retry_after: Some(secs(9)) });
    assert_eq!(
        paused.breaker.try_acquire().unwrap_err().to_string(),
        Kind::RateLimited { retry_after: Some(secs(9)) }.to_string()
    );
}
