//! Public bug reports of other breakers, restated as tests.

use std::sync::Barrier;
use std::sync::atomic::AtomicUsize;
use std::thread;

use super::listening::{entries, logging};
use super::*;

/// Exactly one trial of 64 callers that arrive together.
#[test]
fn half_open_stampede() {
    const CALLERS: usize = 64;
    for _ in 0..20 {
        let core = breaker(consecutive(1));
        call(&core, End::Failure, at(0));
        let (barrier, granted) = (Barrier::new(CALLERS), AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..CALLERS {
                scope.spawn(|| {
                    barrier.wait();
                    if acquire(&core, at(30_000)).is_ok() {
                        granted.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(granted.into_inner(), 1);
        assert_eq!(core.counts(at(30_000)).rejected, CALLERS as u64 - 1);
    }
}

#[test]
fn first_probe_not_counted() {
    let core = breaker(consecutive(1).trials(3).successes_to_close(3));
    call(&core, End::Failure, at(0));
    let answers = (0..10).map(|_| acquire(&core, at(30_000))).collect::<Vec<_>>();
    assert_eq!(answers.iter().map(Result::is_ok).collect::<Vec<_>>()[..4], [true, true, true, false]);
    assert_eq!(answers.iter().filter(|answer| answer.is_err()).count(), 7);
    for (number, trial) in answers.into_iter().flatten().enumerate() {
        assert_eq!(core.state(at(30_000)), State::HalfOpen, "after {number}");
        core.settle(trial, End::Success, at(30_000));
    }
    assert_eq!(core.state(at(30_000)), State::Closed);
}

/// (That a permit cannot be settled twice is the permit's part.)
#[test]
fn permits_grow_on_release() {
    let core = breaker(consecutive(1).trials(2).successes_to_close(100));
    let closed = acquire(&core, at(0)).expect("closed");
    call(&core, End::Failure, at(0));
    let first = acquire(&core, at(30_000)).expect("due");
    let _second = acquire(&core, at(30_000)).expect("due");
    for end in [End::Success, End::Nothing, End::Throttled(None), End::Abandoned, End::Failure] {
        core.settle(closed, end, at(30_000));
        core.record(end, at(30_000));
        assert_eq!(acquire(&core, at(30_000)), refused(None), "no place was taken by a {end:?}");
    }
    core.settle(first, End::Success, at(30_000));
    let admitted = (0..10).filter(|_| acquire(&core, at(30_000)).is_ok()).count();
    assert_eq!(admitted, 1, "one of two places was given back");
}

#[test]
fn stale_half_open_result() {
    let config = consecutive(1).trials(2).successes_to_close(2).open_for(Duration::from_secs(5));
    let core = breaker(config.trial_deadline(Duration::from_secs(60)));
    call(&core, End::Failure, at(0));
    let a = acquire(&core, at(5_000)).expect("era 1");
    let b = acquire(&core, at(5_000)).expect("era 1");
    core.settle(b, End::Failure, at(5_100));
    assert_eq!(core.state(at(5_100)), State::Open);
    let c = acquire(&core, at(10_100)).expect("era 2");
    let d = acquire(&core, at(10_100)).expect("era 2");
    core.settle(a, End::Success, at(25_000));
    assert_eq!(core.state(at(25_000)), State::HalfOpen);
    assert_eq!(acquire(&core, at(25_000)), refused(None), "E finds two places in use");
    core.settle(c, End::Success, at(25_000));
    assert_eq!(core.state(at(25_000)), State::HalfOpen);
    core.settle(d, End::Success, at(25_000));
    assert_eq!(core.state(at(25_000)), State::Closed);
}

#[test]
fn closed_era_result_decides_half_open() {
    for late in [End::Success, End::Failure] {
        let core = breaker(rate(10).open_for(Duration::from_secs(1)));
        let mut calls = (0..100).map(|_| acquire(&core, at(0)).expect("closed")).collect::<Vec<_>>();
        calls.drain(..10).for_each(|ticket| core.settle(ticket, End::Failure, at(0)));
        let probe = acquire(&core, at(1_000)).expect("due");
        for ticket in calls.drain(..45) {
            core.settle(ticket, late, at(1_000));
            assert_eq!(core.state(at(1_000)), State::HalfOpen, "{late:?}");
        }
        core.settle(probe, End::Success, at(1_000));
        for ticket in calls {
            core.settle(ticket, late, at(1_000));
        }
        assert_eq!(core.state(at(1_000)), State::Closed, "{late:?}");
        assert_eq!(core.counts(at(1_000)).calls, 0, "{late:?}");
    }
}

#[test]
fn late_success_clears_open_deadline() {
    let core = breaker(consecutive(1));
    let (first, second) = (acquire(&core, at(0)).expect("closed"), acquire(&core, at(0)).expect("closed"));
    core.settle(first, End::Failure, at(1_000));
    core.settle(second, End::Success, at(2_000));
    assert_eq!(core.state(at(30_999)), State::Open);
    assert_eq!(core.state(at(31_000)), State::HalfOpen);
    assert!(acquire(&core, at(31_000)).is_ok());
}

#[test]
fn late_failures_reopen_again() {
    let (config, log) = logging(consecutive(2).open_for(Duration::from_secs(5)));
    let core = breaker(config);
    let calls = (0..10).map(|_| acquire(&core, at(0)).expect("closed")).collect::<Vec<_>>();
    let mut probe = None;
    for (second, ticket) in (1..).zip(calls) {
        core.settle(ticket, End::Failure, at(second * 1_000));
        match second {
            1 => assert_eq!(core.state(at(1_000)), State::Closed),
            2..7 => assert_eq!(core.remaining_open(at(second * 1_000)), Duration::from_secs(7 - second)),
            7 => probe = Some(acquire(&core, at(7_000)).expect("due")),
            _ => assert_eq!(core.state(at(second * 1_000)), State::HalfOpen),
        }
    }
    let opened = entries(&log).into_iter().filter(|change| change.to == State::Open);
    assert_eq!(opened.map(|change| change.at).collect::<Vec<_>>(), [at(2_000)]);
    core.settle(probe.expect("granted at 7 s"), End::Success, at(10_000));
    assert_eq!(core.state(at(10_000)), State::Closed);
}

/// 100 callers on a clock that they move themselves, half a millisecond a call; the backend flips every 20 ms for 5 s. From 200 ms
/// after that on all calls pass. (A caller may be held up between its look at the clock and the end of its call, for longer than the
/// others take to get there; so everybody's last bad call has ended before anybody goes on.)
#[test]
fn close_and_open_race() {
    const CALLERS: usize = 100;
    let rule = TripRule::failure_rate(0.5).window(10, Duration::from_millis(5)).minimum_calls(10);
    let core = breaker(BreakerConfig::default().rule(rule).open_for(Duration::from_millis(50)));
    let (clock, barrier) = (AtomicU64::new(0), Barrier::new(CALLERS));
    let passed_at_the_end = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..CALLERS {
            scope.spawn(|| {
                barrier.wait();
                let mut has_seen_it_get_well = false;
                loop {
                    let micros = clock.fetch_add(500, Ordering::SeqCst);
                    let now = Moment::from_nanos(micros * 1_000);
                    let stays_good = micros >= 5_000_000;
                    if stays_good && !has_seen_it_get_well {
                        has_seen_it_get_well = true;
                        barrier.wait();
                    }
                    let good = stays_good || (micros / 20_000) % 2 == 0;
                    let ticket = acquire(&core, now);
                    if let Ok(ticket) = ticket {
                        core.settle(ticket, if good { End::Success } else { End::Failure }, now);
                    }
                    if micros >= 5_200_000 {
                        passed_at_the_end.fetch_add(usize::from(ticket.is_ok()), Ordering::Relaxed);
                        return;
                    }
                }
            });
        }
    });
    let end = at(5_300);
    assert_eq!((core.state(end), core.remaining_open(end)), (State::Closed, Duration::ZERO));
    assert_eq!(passed_at_the_end.into_inner(), CALLERS);
    assert!(core.word().generation() > 30, "it opened and closed before");
}

#[test]
fn idle_window_keeps_old_buckets() {
    const SECOND: u64 = 1_000;
    for idle in [10 * SECOND, 25 * SECOND, 10 * 31_536_000 * SECOND, 100 * 31_536_000 * SECOND] {
        let core = breaker(rate(20));
        (0..10).for_each(|second| core.record(End::Success, at(second * SECOND)));
        assert_eq!(core.counts(at(9 * SECOND)).calls, 10);
        let later = at(9 * SECOND + idle);
        assert_eq!(core.counts(later).calls, 0);
        core.record(End::Failure, later);
        assert_eq!(core.counts(later).calls, 1, "after {idle} ms");
    }
}

#[test]
fn rotation_never_catches_up() {
    const YEARS: u64 = 10 * 31_536_000_000;
    let window = |buckets, width| {
        let rule = TripRule::failure_rate(0.5).window(buckets, Duration::from_millis(width));
        breaker(rate(20).rule(rule))
    };
    let core = window(3, 40_000);
    core.record(End::Success, at(0));
    (0..5).for_each(|second| core.record(End::Failure, at(600_000 + second * 1_000)));
    assert_eq!((core.counts(at(604_000)).calls, core.counts(at(604_000)).failures), (5, 5));

    let core = window(10, 1);
    core.record(End::Success, at(0));
    core.record(End::Failure, at(YEARS));
    assert_eq!((core.counts(at(YEARS)).calls, core.counts(at(YEARS)).failures), (1, 1));
}

/// "So many errors within so much time" is neither rule. The nearest: a share of everything, in a window that forgets.
#[test]
fn sparse_errors_open() {
    let rule = TripRule::failure_rate(1.0).window(5, Duration::from_secs(1)).minimum_calls(3);
    let core = breaker(rate(3).rule(rule));
    for second in [0, 5, 6] {
        call(&core, End::Failure, at(second * 1_000));
    }
    assert_eq!(core.state(at(6_000)), State::Closed);
    assert_eq!(core.counts(at(6_000)).failures, 2);
    call(&core, End::Failure, at(7_000));
    assert_eq!(core.state(at(7_000)), State::Open);
}

#[test]
fn tumbling_window_exaggerates() {
    let core = breaker(rate(100));
    for milli in 1_000..10_000 {
        core.record(End::Success, at(milli));
    }
    for milli in 10_000..11_000 {
        core.record(if milli < 10_100 { End::Success } else { End::Failure }, at(milli));
        assert_eq!(core.state(at(milli)), State::Closed);
    }
    let counts = core.counts(at(10_999));
    assert_eq!((counts.calls, counts.failures), (10_000, 900));
}

/// There is no wall clock here to step; the monotonic one goes back by two milliseconds.
#[test]
fn wall_clock_step() {
    let core = breaker(consecutive(1));
    call(&core, End::Failure, at(10_000));
    assert_eq!(core.remaining_open(at(9_998)), OPEN_TIME, "none of it has passed");
    assert_eq!(acquire(&core, at(9_998)), refused(Some(OPEN_TIME)));
    assert_eq!(core.state(at(40_000)), State::HalfOpen);
    let trial = acquire(&core, at(40_000)).expect("due");
    core.settle(trial, End::Throttled(Some(OPEN_TIME)), at(40_000));
    assert_eq!(acquire(&core, at(39_998)), refused(Some(OPEN_TIME)));

    let core = breaker(rate(3));
    core.record(End::Failure, at(10_000));
    core.record(End::Failure, at(9_998));
    assert_eq!(core.counts(at(9_998)).failures, 2);
    core.record(End::Failure, at(10_000));
    assert_eq!(core.state(at(9_998)), State::Open);
}

#[test]
fn half_open_needs_a_timer() {
    let core = breaker(consecutive(1).open_for(Duration::from_secs(5)));
    call(&core, End::Failure, at(0));
    assert_eq!(core.state(at(4_999)), State::Open);
    assert_eq!(core.state(at(10_000)), State::HalfOpen);
    assert!(acquire(&core, at(10_000)).is_ok());
}

/// The lost trial is heard of as abandoned (here), or never (`an_expired_trial_reopens_counted_from_the_expiry`).
#[test]
fn cancelled_probe_sticks() {
    let core = breaker(consecutive(1).open_for(Duration::from_secs(5)));
    call(&core, End::Failure, at(0));
    let probe = acquire(&core, at(7_000)).expect("due");
    core.settle(probe, End::Abandoned, at(8_000));
    assert_eq!(acquire(&core, at(8_100)), refused(Some(Duration::from_millis(4_900))));
    call(&core, End::Success, at(13_000));
    assert_eq!(core.state(at(13_000)), State::Closed);
}

/// The trials decide, whatever the window asks for; lost ones are replaced.
#[test]
fn min_calls_above_permitted_probes() {
    let config = rate(100).trials(10).successes_to_close(10).abandoned_trial(AbandonedTrial::Release);
    let core = breaker(config.open_for(Duration::from_secs(10)));
    (0..100).for_each(|_| core.record(End::Failure, at(0)));
    let probes = (0..10).map(|_| acquire(&core, at(10_000)).expect("due")).collect::<Vec<_>>();
    for (number, probe) in probes.into_iter().enumerate() {
        core.settle(probe, if number < 2 { End::Abandoned } else { End::Success }, at(10_000));
    }
    assert_eq!(core.state(at(10_000)), State::HalfOpen);
    call(&core, End::Success, at(10_000));
    call(&core, End::Success, at(10_000));
    assert_eq!(core.state(at(10_000)), State::Closed);
}

#[test]
fn local_rejection_uses_up_probes() {
    let core = breaker(consecutive(1).trials(3).successes_to_close(3));
    call(&core, End::Failure, at(0));
    (0..5).for_each(|_| call(&core, End::Nothing, at(30_000)));
    assert_eq!(core.counts(at(30_000)), Counts::default());
    let probes = (0..3).map(|_| acquire(&core, at(30_000)).expect("three places")).collect::<Vec<_>>();
    probes.into_iter().for_each(|probe| core.settle(probe, End::Success, at(30_000)));
    assert_eq!(core.state(at(30_000)), State::Closed);
}
