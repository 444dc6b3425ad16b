//! When a closed breaker opens: each trip rule, with calls that take their time.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use steadfast::breaker::{Breaker, BreakerConfig, Cause, Counts, State, TripRule};
use steadfast::{Retry, Timeout, Verdict, try_do};

use crate::breakers::{Bench, Log, OPEN_TIME, Races, Trial, hangs_for_ever, logging, panics};
use crate::support::{mins, ms, secs};

/// What makes a call slow in these tests.
const SLOW: Duration = Duration::from_secs(2);

/// Opens when half of at least four calls take two seconds or more.
fn slow_rule() -> TripRule {
    TripRule::slow_rate(0.5).slow_call(SLOW).window(10, secs(60)).minimum_calls(4)
}

fn with_rule(rule: TripRule) -> (Bench, Log) {
    let (config, log) = logging(BreakerConfig::default().rule(rule).open_for(OPEN_TIME));
    (Bench::closed(config), log)
}

/// Calls, failures, slow ones, and of those the ones that were given up.
fn counted(bench: &Bench) -> [u64; 4] {
    let counts = bench.breaker.counts();
    [counts.calls, counts.failures, counts.slow, counts.slow_given_up]
}

/// Why it has opened, if it has.
fn cause(log: &Log) -> Option<Cause> {
    log.entries().last().filter(|change| change.to == State::Open).map(|change| change.cause)
}

/// A call that ends after so long.
fn call(bench: &Bench, takes: Duration, end: Result<(), &'static str>) {
    let clock = bench.clock.clock();
    let run = bench.run(async |_| {
        clock.sleep(takes).await;
        end
    });
    assert_eq!(run.is_ok(), end.is_ok());
}

/// A call that its caller gives up after so long.
fn give_up(bench: &Bench, after: Duration) {
    let mut run = tokio_test::task::spawn(try_do(&bench.cx, |_| hangs_for_ever(), &bench.breaker));
    tokio_test::assert_pending!(run.poll());
    bench.clock.advance(after);
    drop(run);
}

#[test]
fn slow_calls_open_whether_they_succeed_or_fail() {
    for end in [Ok(()), Err("down")] {
        let (bench, log) = with_rule(slow_rule());
        call(&bench, ms(1_999), Ok(()));
        call(&bench, ms(1_999), Err("quick"));
        call(&bench, SLOW, end);
        assert_eq!((bench.breaker.state(), counted(&bench)[2]), (State::Closed, 1), "below the minimum");
        call(&bench, SLOW, end);
        assert_eq!((bench.breaker.state(), cause(&log)), (State::Open, Some(Cause::SlowRate)));
        let counts = log.entries()[0].counts;
        assert_eq!((counts.calls, counts.slow, counts.slow_rate()), (4, 2, Some(0.5)));
    }
}

#[test]
fn a_rule_on_slow_calls_is_for_those_that_begin_under_it() {
    let window = |rule: TripRule| rule.window(10, secs(60)).minimum_calls(100);
    let failures = || window(TripRule::failure_rate(0.5));
    let (bench, _) = with_rule(failures());
    let clock = bench.clock.clock();
    let mut runs = [Ok(()), Err("down")].map(|end| {
        let clock = clock.clone();
        let slowly = move |_| {
            let clock = clock.clone();
            async move {
                clock.sleep(SLOW).await;
                end
            }
        };
        let breaker = bench.breaker.clone();
        let cx = bench.cx.clone();
        tokio_test::task::spawn(async move { try_do(&cx, slowly, &breaker).await.is_ok() })
    });
    for run in &mut runs {
        tokio_test::assert_pending!(run.poll());
    }
    let both = failures().or(window(TripRule::slow_rate(0.5).slow_call(SLOW)));
    bench.breaker.reconfigure(BreakerConfig::default().rule(both)).unwrap();
    bench.clock.advance(SLOW);
    assert_eq!(runs.each_mut().map(|run| tokio_test::assert_ready!(run.poll())), [true, false]);
    assert_eq!(counted(&bench), [2, 1, 0, 0], "neither was timed");
    call(&bench, SLOW, Ok(()));
    assert_eq!(counted(&bench), [3, 1, 1, 0]);
}

#[test]
fn a_slow_failure_is_both() {
    let (bench, _) = with_rule(slow_rule().minimum_calls(100).or(TripRule::failure_rate(1.0)));
    call(&bench, secs(3), Err("down"));
    call(&bench, secs(3), Ok(()));
    call(&bench, ms(1), Err("down"));
    assert_eq!(counted(&bench), [3, 2, 2, 0]);
}

#[test]
fn quick_calls_lower_the_slow_rate() {
    let (bench, _) = with_rule(slow_rule());
    (0..4).for_each(|_| call(&bench, ms(1), Err("quick")));
    for _ in 0..100 {
        call(&bench, SLOW, Ok(()));
        (0..2).for_each(|_| call(&bench, ms(1), Ok(())));
    }
    assert_eq!(bench.breaker.state(), State::Closed, "one in three");
}

#[test]
fn a_call_that_is_given_up_counts_if_it_was_slow_by_then() {
    let (bench, log) = with_rule(slow_rule());
    (0..20).for_each(|_| give_up(&bench, ms(1_999)));
    assert_eq!(counted(&bench), [0; 4], "nobody knows");
    (0..3).for_each(|_| give_up(&bench, SLOW));
    assert_eq!(counted(&bench), [0, 0, 3, 3], "and how it would have ended is not known either");
    assert_eq!((bench.breaker.counts().rate(), bench.breaker.counts().slow_rate()), (None, Some(1.0)));
    give_up(&bench, SLOW);
    assert_eq!(cause(&log), Some(Cause::SlowRate), "a dependency whose callers give up has its breaker open");
}

#[test]
fn the_loser_of_a_race_counts_if_it_was_slow() {
    let race = |bench: &Bench, winner: Duration| {
        let (lane, clock) = (AtomicU32::new(0), bench.clock.clock());
        let run = bench.through((Races, &bench.breaker), async |_| match lane.fetch_add(1, Ordering::Relaxed) {
            0 => hangs_for_ever().await,
            _ => {
                clock.sleep(winner).await;
                Ok(())
            }
        });
        run.unwrap();
    };
    let (bench, log) = with_rule(slow_rule());
    race(&bench, ms(1_999));
    assert_eq!(counted(&bench), [1, 0, 0, 0]);
    race(&bench, SLOW);
    assert_eq!(counted(&bench), [2, 0, 2, 1], "both lanes, of which one has an end");
    race(&bench, SLOW);
    assert_eq!(cause(&log), Some(Cause::SlowRate));
}

#[test]
fn a_limit_that_is_hit_is_a_slow_failure() {
    let (bench, _) = with_rule(slow_rule());
    bench.through((&bench.breaker, Timeout::secs(2)), |_| hangs_for_ever()).unwrap_err();
    bench.through((Timeout::secs(3), &bench.breaker), |_| hangs_for_ever()).unwrap_err();
    bench.through((&bench.breaker, Timeout::secs(1)), |_| hangs_for_ever()).unwrap_err();
    assert_eq!(counted(&bench), [3, 3, 2, 0]);
}

#[test]
fn what_the_breaker_is_around_is_what_is_timed() {
    // Two quick attempts and the wait between them are slow to a breaker outside of the retry only.
    for (breaker_outside, slow) in [(true, [1, 0, 1, 0]), (false, [2, 1, 0, 0])] {
        let (bench, _) = with_rule(slow_rule());
        let tries = AtomicU32::new(0);
        let operation = async |_| if tries.fetch_add(1, Ordering::Relaxed) == 0 { Err("once") } else { Ok(()) };
        let retry = Retry::fixed(secs(5));
        match breaker_outside {
            true => bench.through((&bench.breaker, retry), operation).unwrap(),
            false => bench.through((retry, &bench.breaker), operation).unwrap(),
        }
        assert_eq!(counted(&bench), slow);
    }
}

#[test]
fn permits_and_calls_that_block_are_timed_as_well() {
    let (bench, _) = with_rule(slow_rule());
    let permit = bench.breaker.try_acquire().unwrap();
    bench.clock.advance(SLOW);
    permit.success();
    bench
        .run(async |_| {
            bench.clock.advance(SLOW);
            Ok::<_, ()>(())
        })
        .unwrap();
    assert_eq!(counted(&bench), [2, 0, 2, 0]);
    bench.breaker.record(Verdict::Success);
    assert_eq!(counted(&bench), [3, 0, 2, 0], "what came out of band took no time that is known");
}

#[test]
fn a_slow_trial_is_a_failed_one() {
    for (takes, after) in [(ms(1_999), Trial::Succeeded), (SLOW, Trial::Reopened)] {
        let (config, log) = logging(BreakerConfig::default().open_for(OPEN_TIME));
        let bench = Bench::half_open(config.rule(slow_rule().or(TripRule::consecutive(1))));
        call(&bench, takes, Ok(()));
        assert_eq!(bench.after_trial(), after);
        let expected = if after == Trial::Succeeded { Cause::TrialsSucceeded } else { Cause::TrialFailed };
        assert_eq!(log.entries().last().unwrap().cause, expected);
    }
}

#[test]
fn without_a_slow_rule_no_call_is_slow() {
    let (bench, _) = with_rule(TripRule::default());
    call(&bench, mins(10), Ok(()));
    give_up(&bench, ms(1));
    call(&bench, mins(1), Ok(()));
    assert_eq!(bench.breaker.counts().slow, 0);
}

/// The ends of calls, in a window of calls: after how many of them it opens.
fn opens_after(rule: TripRule, ends: &str) -> Option<usize> {
    let (bench, log) = with_rule(rule);
    let opened = ends.chars().position(|end| {
        bench.clock.advance(mins(30));
        bench.call(end);
        bench.breaker.state() == State::Open
    });
    assert_eq!(opened.is_some(), cause(&log) == Some(Cause::FailureRate));
    opened.map(|index| index + 1)
}

#[test]
fn a_window_of_calls_opens_by_the_last_so_many_however_long_ago() {
    assert_eq!(opens_after(TripRule::count_window(3, 2.0 / 3.0), "FSF"), Some(3));
    assert_eq!(opens_after(TripRule::count_window(4, 0.75), &"FS".repeat(50)), None, "two of four");
    assert_eq!(opens_after(TripRule::count_window(5, 0.6), "FFFSS"), Some(5), "a success that completes it may open");
    assert_eq!(opens_after(TripRule::count_window(5, 0.6), "SSSSSSSSFFF"), Some(11), "old successes leave");
    assert_eq!(opens_after(TripRule::count_window(5, 0.6), "SFFSSSSFFSSSSFSSFSF"), None, "and so do old failures");
    // It slides by one call at a time: no five that begin anywhere are missed.
    assert_eq!(opens_after(TripRule::count_window(5, 0.6), "SSSSFFSFSSS"), Some(8));
}

#[test]
fn a_window_of_calls_may_open_before_it_is_full() {
    let rule = TripRule::count_window(100, 0.5);
    assert_eq!(opens_after(rule.clone(), &"F".repeat(120)), Some(100));
    assert_eq!(opens_after(rule.clone().minimum_calls(10), &"F".repeat(120)), Some(10));
    assert_eq!(opens_after(rule.minimum_calls(1), "F"), Some(1));
}

#[test]
fn a_window_of_calls_counts_what_says_something() {
    let (bench, _) = with_rule(TripRule::count_window(10, 1.0));
    bench.fail();
    bench.succeed();
    (0..50).for_each(|_| give_up(&bench, secs(1)));
    (0..50).for_each(|_| bench.breaker.try_acquire().unwrap().ignore());
    assert_eq!(bench.counted(), (2, 1));
    (0..9).for_each(|_| bench.fail());
    assert_eq!((bench.counted(), bench.breaker.state()), ((10, 9), State::Closed), "the first failure has left");
    bench.fail();
    assert_eq!(bench.breaker.state(), State::Open);
}

#[test]
fn a_predicate_decides_by_the_counts() {
    let (bench, log) = with_rule(TripRule::should_trip(|counts| counts.failures >= 10 && counts.rate() >= Some(0.2)));
    (0..41).for_each(|_| bench.succeed());
    (0..10).for_each(|_| bench.fail());
    assert_eq!(bench.breaker.state(), State::Closed, "10 of 51");
    bench.fail();
    assert_eq!(cause(&log), Some(Cause::ShouldTrip), "11 of 52");
    let counts = log.entries()[0].counts;
    assert_eq!((counts.calls, counts.failures), (52, 11));
}

#[test]
fn a_predicate_may_use_the_breaker_and_a_panic_of_it_says_no() {
    let handle: Arc<OnceLock<Breaker>> = Arc::default();
    let seen = Arc::clone(&handle);
    let uses = TripRule::should_trip(move |counts: &Counts| {
        let breaker = seen.get().unwrap();
        breaker.try_acquire().unwrap().ignore();
        breaker.state() == State::Closed && breaker.counts().failures == counts.failures && counts.failures == 3
    });
    let (bench, log) = with_rule(uses.or(TripRule::should_trip(|_| panics())));
    handle.get_or_init(|| bench.breaker.clone());
    bench.fail();
    bench.fail();
    assert_eq!(bench.breaker.state(), State::Closed);
    bench.fail();
    assert_eq!(cause(&log), Some(Cause::ShouldTrip));
}

#[test]
fn any_of_several_rules_opens_and_is_named() {
    let rule = || {
        let rates = slow_rule().minimum_calls(10).or(TripRule::failure_rate(0.8));
        let rows = TripRule::consecutive(5).or(TripRule::count_window(40, 0.5));
        rates.or(rows).or(TripRule::should_trip(|counts| counts.calls == 7 && counts.failures + counts.slow == 0))
    };
    type Calls = fn(&Bench);
    let calls: [(Calls, Cause); 5] = [
        (|bench| (0..5).for_each(|_| bench.fail()), Cause::ConsecutiveFailures),
        (
            |bench| {
                for number in 0..10 {
                    bench.call(if number == 4 || number == 8 { 'S' } else { 'F' });
                }
            },
            Cause::FailureRate,
        ),
        (|bench| (0..10).for_each(|_| call(bench, SLOW, Ok(()))), Cause::SlowRate),
        (|bench| (0..7).for_each(|_| bench.succeed()), Cause::ShouldTrip),
        // One every ten minutes: the window of time never holds enough.
        (
            |bench| {
                for number in 0..40 {
                    bench.call(if number % 2 == 0 { 'S' } else { 'F' });
                    bench.clock.advance(mins(10));
                }
            },
            Cause::FailureRate,
        ),
    ];
    for (number, (calls, expected)) in calls.into_iter().enumerate() {
        let (bench, log) = with_rule(rule());
        calls(&bench);
        assert_eq!(cause(&log), Some(expected), "{number}");
    }
}
