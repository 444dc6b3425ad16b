//! On the way back: how long a breaker stays open, what it makes of dependencies that ask for patience, trials that are
//! decided by their share, and trials that take long.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures::future::join;
use steadfast::breaker::{AbandonedTrial, Breaker, BreakerConfig, Cause, Permit, State};
use steadfast::error::Kind;
use steadfast::operation::{Fault, faults};
use steadfast::{Retry, Timeout, Verdict, try_do};

use crate::breakers::{Bench, OPEN_TIME, consecutive, counting, hangs_for_ever, logging};
use crate::support::{mins, ms, secs};

/// Trips, and lets every trial fail, for so many openings in all.
fn open_times(config: BreakerConfig, openings: usize) -> Vec<Duration> {
    let bench = Bench::closed(config);
    let opening = |_| {
        bench.fail();
        let time = bench.breaker.remaining_open();
        bench.clock.advance(time);
        time
    };
    (0..openings).map(opening).collect()
}

#[test]
fn open_time_does_not_grow() {
    let (config, log) = logging(consecutive(1).open_for(secs(60)).open_backoff(2.0, secs(300)));
    let bench = Bench::closed(config);
    let opening = || {
        bench.fail();
        let time = bench.breaker.remaining_open();
        assert_eq!(log.entries().last().unwrap().open_for, Some(time));
        assert_eq!(bench.breaker.try_acquire().unwrap_err().retry_after(), Some(time));
        bench.clock.advance(time - ms(1));
        assert_eq!(bench.breaker.state(), State::Open);
        bench.clock.advance(ms(1));
        time.as_secs()
    };
    assert_eq!([(); 6].map(|()| opening()), [60, 120, 240, 300, 300, 300]);
    assert_eq!([(); 500].map(|()| opening()), [300; 500]);
    bench.succeed();
    bench.clock.advance(mins(60));
    bench.succeed();
    assert_eq!([(); 2].map(|()| opening()), [60, 120], "it was healthy for an hour");
}

#[test]
fn a_breaker_that_trips_soon_after_it_closed_goes_on_where_it_was() {
    let rule = consecutive(1).open_for(secs(60)).open_backoff(2.0, secs(3_600));
    for (closed_for, next) in [(ms(59_999), 240), (secs(60), 60)] {
        let bench = Bench::closed(rule.clone());
        for _ in 0..2 {
            bench.fail();
            bench.clock.advance(bench.breaker.remaining_open());
        }
        bench.succeed();
        bench.clock.advance(closed_for);
        bench.fail();
        assert_eq!(bench.breaker.remaining_open(), secs(next));
    }
}

#[test]
fn without_backoff_every_open_time_is_the_same() {
    assert_eq!(open_times(consecutive(1), 50), [OPEN_TIME; 50]);
}

#[test]
fn jitter_shortens_the_open_times_and_a_seed_repeats_them() {
    let config = || consecutive(1).open_jitter(0.5).seed(7);
    let times = open_times(config(), 200);
    assert!(times.iter().all(|time| (OPEN_TIME / 2..=OPEN_TIME).contains(time)));
    let distinct: std::collections::BTreeSet<_> = times.iter().collect();
    assert!(distinct.len() > 190, "{} of 200", distinct.len());
    assert!(times.iter().min() < Some(&secs(16)) && times.iter().max() > Some(&secs(29)));
    assert_eq!(open_times(config(), 200), times);
    assert_ne!(open_times(config().seed(8), 200), times);
    assert!(open_times(consecutive(1).open_jitter(1.0), 200).iter().all(|time| !time.is_zero()));
}

#[test]
fn jitter_applies_to_what_the_backoff_makes() {
    let times = open_times(consecutive(1).open_backoff(2.0, OPEN_TIME * 8).open_jitter(0.25).seed(3), 6);
    let most = [1, 2, 4, 8, 8, 8].map(|factor| OPEN_TIME * factor);
    assert!(times.iter().zip(most).all(|(time, most)| *time <= most && *time >= most.mul_f64(0.75)), "{times:?}");
}

/// A dead origin that answers "503, come back in so long" and counts the calls that reach it.
#[derive(Default)]
struct Origin {
    reached: AtomicU32,
}

impl Origin {
    /// A hundred calls a second. What the caller of each one got that was refused.
    fn load(&self, bench: &Bench, lasts: Duration, retry_after: Option<Duration>) -> Vec<Kind> {
        let end = bench.clock.now() + lasts;
        let mut refused = Vec::new();
        while bench.clock.now() < end {
            let answer = bench.run(faults(async |_| {
                self.reached.fetch_add(1, Ordering::Relaxed);
                Err::<(), _>(Fault::Throttled("503", retry_after))
            }));
            let error = answer.unwrap_err();
            if error.is_rejection() {
                refused.push(error.kind());
            }
            bench.clock.advance(ms(10));
        }
        refused
    }

    fn reached(&self) -> u32 {
        self.reached.load(Ordering::Relaxed)
    }
}

#[test]
fn a_dead_origin_that_asks_for_patience_is_left_alone() {
    let (config, log) = logging(counting().pause_on_retry_after(secs(10)));
    let (bench, origin) = (Bench::closed(config), Origin::default());
    let refused = origin.load(&bench, mins(1), Some(secs(1)));
    assert_eq!((origin.reached(), refused.len()), (60, 5_940), "one call a second, of a hundred");
    assert_eq!(refused[0], Kind::RateLimited { retry_after: Some(ms(990)) });
    assert!(refused.iter().all(|kind| matches!(kind, Kind::RateLimited { retry_after: Some(_) })));
    assert_eq!((bench.breaker.state(), log.entries().len()), (State::Closed, 0), "the state stays closed");
    assert_eq!((bench.counted(), bench.breaker.counts().rejected), ((0, 0), 5_940));

    // It is back, and no trial is needed: all of the next calls go through, side by side.
    let permits: Vec<_> = (0..10).map(|_| bench.breaker.try_acquire().unwrap()).collect();
    assert!(permits.iter().all(|permit| !permit.is_trial()));
    permits.into_iter().for_each(Permit::success);
    assert_eq!(bench.counted(), (10, 0));
}

#[test]
fn a_pause_is_no_longer_than_it_may_be_and_off_unless_asked_for() {
    let (bench, origin) = (Bench::closed(counting().pause_on_retry_after(secs(10))), Origin::default());
    origin.load(&bench, mins(1), Some(mins(10)));
    assert_eq!(origin.reached(), 6);
    for (config, retry_after) in [(counting(), Some(secs(1))), (counting().pause_on_retry_after(secs(10)), None)] {
        let (bench, origin) = (Bench::closed(config), Origin::default());
        assert_eq!(origin.load(&bench, secs(2), retry_after), []);
        assert_eq!(origin.reached(), 200);
    }
}

#[test]
fn what_was_under_way_before_a_pause_still_counts() {
    let bench = Bench::closed(counting().pause_on_retry_after(secs(10)));
    let before: Vec<_> = (0..3).map(|_| bench.breaker.try_acquire().unwrap()).collect();
    bench.breaker.record(Verdict::Throttled { retry_after: Some(secs(5)) });
    assert_eq!(bench.breaker.try_acquire().unwrap_err().retry_after(), Some(secs(5)));
    assert_eq!(bench.breaker.remaining_open(), secs(0), "it is not open");
    before.into_iter().for_each(Permit::failure);
    assert_eq!((bench.breaker.state(), bench.breaker.remaining_open()), (State::Open, OPEN_TIME), "and may open it");
}

#[test]
fn a_retry_outside_waits_for_as_long_as_the_pause_lasts() {
    let bench = Bench::closed(counting().pause_on_retry_after(secs(10)));
    let start = bench.clock.now();
    bench.breaker.record(Verdict::Throttled { retry_after: Some(secs(5)) });
    let waits = Retry::immediate().on_rejection(steadfast::retry::OnRejection::Wait);
    bench.through((waits, &bench.breaker), async |_| Ok::<_, ()>(())).unwrap();
    let waited = bench.clock.now().since(start);
    assert!(
        (secs(5)..secs(6)).contains(&waited),
        "{waited:?}: so long, and a little, not to come back with all others"
    );
}

#[test]
fn a_server_that_answers_every_trial_with_retry_after_gets_no_stream_of_trials() {
    let (config, log) = logging(consecutive(1));
    let (bench, origin) = (Bench::half_open(config), Origin::default());
    let refused = origin.load(&bench, mins(10), Some(secs(5)));
    // Eleven trials, five seconds apart, and an open time: 80 s, seven times, and eight trials of the next.
    assert_eq!((origin.reached(), origin.reached() as usize + refused.len()), (7 * 11 + 8, 60_000));
    let reopened: Vec<_> = log.entries().into_iter().skip(2).filter(|change| change.to == State::Open).collect();
    assert_eq!(reopened.len(), 7);
    assert!(reopened.iter().all(|change| change.cause == Cause::TrialsWithoutVerdict));

    // Without a time, or with less than the calls are apart, nothing but their number bounds them.
    for retry_after in [None, Some(secs(0)), Some(ms(1))] {
        let (bench, origin) = (Bench::half_open(consecutive(1)), Origin::default());
        origin.load(&bench, mins(10), retry_after);
        assert!(origin.reached() <= 20 * 11, "{}", origin.reached());
    }
}

#[test]
fn a_throttled_call_may_be_counted_as_something() {
    let throttled = |bench: &Bench| bench.breaker.record(Verdict::Throttled { retry_after: Some(secs(5)) });
    let trial = |verdict| {
        let bench = Bench::half_open(counting().throttled_as(verdict));
        bench.breaker.try_acquire().unwrap().record(Verdict::Throttled { retry_after: Some(secs(5)) });
        bench.breaker.state()
    };
    for (verdict, counted, after_trial) in [
        (Verdict::Transient, (2, 2), State::Open),
        (Verdict::Success, (2, 0), State::Closed),
        (Verdict::Ignored, (0, 0), State::HalfOpen),
        (Verdict::Throttled { retry_after: None }, (0, 0), State::HalfOpen),
    ] {
        let bench = Bench::closed(counting().throttled_as(verdict));
        (0..2).for_each(|_| throttled(&bench));
        assert_eq!((bench.counted(), trial(verdict)), (counted, after_trial), "{verdict:?}");
    }
    // Counted and paused.
    let bench = Bench::closed(counting().throttled_as(Verdict::Transient).pause_on_retry_after(mins(1)));
    throttled(&bench);
    assert_eq!((bench.counted(), bench.breaker.try_acquire().is_err()), ((1, 1), true));
}

/// How trials end, one after the other, and the state after each of them.
fn states_after(config: BreakerConfig, ends: &str) -> String {
    let bench = Bench::half_open(config);
    let state = |end: char| {
        let trial = bench.breaker.try_acquire().unwrap();
        match end {
            'S' => trial.success(),
            'F' => trial.failure(),
            'A' => drop(trial),
            _ => trial.ignore(),
        }
        match bench.breaker.state() {
            State::HalfOpen => '-',
            State::Open => 'O',
            _ => 'C',
        }
    };
    ends.chars().map(state).collect()
}

#[test]
fn by_default_one_trial_decides() {
    assert_eq!(states_after(consecutive(1), "F"), "O");
    assert_eq!(states_after(consecutive(1), "S"), "C");
    let three = || consecutive(1).trials(3).successes_to_close(3);
    assert_eq!(states_after(three(), "SSF"), "--O");
    assert_eq!(states_after(three(), "SSS"), "--C");
    assert_eq!(states_after(three(), "SIS"), "---");
    assert_eq!(states_after(three(), "SA"), "-O");
}

#[test]
fn a_share_of_trials_decides_as_soon_as_the_rest_cannot_change_it() {
    // Two of three failed re-open.
    let two_of_three = || consecutive(1).trial_rate(3, 2.0 / 3.0);
    assert_eq!(states_after(two_of_three(), "FSF"), "--O");
    assert_eq!(states_after(two_of_three(), "FSS"), "--C");
    assert_eq!(states_after(two_of_three(), "FF"), "-O");
    // Three of four must succeed.
    let half_of_four = || consecutive(1).trial_rate(4, 0.5);
    assert_eq!(states_after(half_of_four(), "SFSF"), "---O");
    assert_eq!(states_after(half_of_four(), "SFSS"), "---C");
    assert_eq!(states_after(half_of_four(), "SSS"), "--C");
    // Ends that say nothing are replaced, and those of callers who gave up as well.
    assert_eq!(states_after(half_of_four(), "SAISIAS"), "------C");
    assert_eq!(states_after(half_of_four().abandoned_trial(AbandonedTrial::Reopen), "SA"), "-O");
    assert_eq!(states_after(consecutive(1).trial_rate(1, 1.0), "F"), "O");
}

#[test]
fn with_a_share_there_are_as_many_trials_as_were_asked_for() {
    let bench = Bench::half_open(consecutive(1).trial_rate(4, 0.5));
    let mut trials: Vec<_> = (0..4).map(|_| bench.breaker.try_acquire().unwrap()).collect();
    assert!(bench.is_refused());
    trials.pop().unwrap().failure();
    assert!(bench.is_refused(), "a verdict keeps its place");
    trials.pop().unwrap().ignore();
    trials.push(bench.breaker.try_acquire().expect("a replacement"));
    assert!(bench.is_refused());
    let counts = bench.breaker.counts();
    assert_eq!((counts.calls, counts.failures, counts.consecutive_failures), (1, 1, 1));
    trials.into_iter().for_each(Permit::success);
    assert_eq!((bench.breaker.state(), bench.counted()), (State::Closed, (0, 0)));
}

/// A half-open breaker, whose trial takes so long while others call every second: the state in the end.
fn after_a_long_trial(config: BreakerConfig, limit: Option<Timeout>, takes: Duration) -> State {
    let bench = Bench::half_open(config);
    let clock = bench.clock.clock();
    let slow = async |_| {
        clock.sleep(takes).await;
        Ok::<_, ()>(())
    };
    let others = async {
        for _ in 0..takes.as_secs() - 1 {
            clock.sleep(secs(1)).await;
            assert!(bench.breaker.try_acquire().is_err(), "it is no trial for a second one");
        }
    };
    let chain = (Retry::immediate(), &bench.breaker, limit);
    let (result, ()) = bench.clock.block_on(join(try_do(&bench.cx, slow, chain), others));
    result.unwrap();
    bench.breaker.state()
}

#[test]
fn a_dependency_that_needs_longer_than_the_open_time_still_closes() {
    let config = || consecutive(1).open_for(secs(10));
    assert_eq!(after_a_long_trial(config(), Some(Timeout::secs(20)), secs(12)), State::Closed);
    assert_eq!(after_a_long_trial(config().trial_deadline(secs(15)), None, secs(12)), State::Closed);
    assert_eq!(after_a_long_trial(config(), None, secs(12)), State::Open, "nobody said that it may take so long");
}

#[test]
fn a_trial_that_is_stuck_is_given_up_when_its_limit_is_over() {
    let bench = Bench::half_open(consecutive(1).open_for(secs(10)));
    let chain = (&bench.breaker, Timeout::secs(20));
    let start = bench.clock.now();
    bench.through(chain, |_| hangs_for_ever()).unwrap_err();
    assert_eq!((bench.clock.now().since(start), Breaker::state(&bench.breaker)), (secs(20), State::Open));
}
