//! The warm-up under all interleavings, with up to three preemptions (or as many as `LOOM_MAX_PREEMPTIONS` says). The bins are those of
//! `latency.rs`, but for their number.

use loom::sync::Arc;
use loom::thread;

use super::*;

fn model(check: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(3));
    builder.check(check);
}

fn at(secs: u64) -> Moment {
    Moment::from_nanos(1 << 50) + Duration::from_secs(secs)
}

/// Of a minute, and it takes `min_samples`.
fn percentile(min_samples: u32) -> Arc<Percentile> {
    let (floor, ceiling, window) = (Duration::ZERO, Duration::MAX, Duration::from_secs(60));
    Arc::new(Percentile::new(PercentileSettings { p: 0.5, min_samples, floor, ceiling, window }))
}

fn answer(percentile: &Percentile, now: Moment) {
    percentile.answered(now, Duration::ZERO);
}

/// Two samples, which is what it takes, have left the window at the time of [`LATER`].
fn forgotten(is_known: bool) -> Arc<Percentile> {
    let percentile = percentile(2);
    (0..2).for_each(|_| answer(&percentile, at(0)));
    assert!(!is_known || percentile.delay(at(0)).is_some());
    percentile
}

/// In seconds; more than a window after the start.
const LATER: u64 = 200;

/// One sample beside an estimate that finds too few. The next one is what it takes, and has to be enough.
fn is_known_with_the_second_sample(before: &Percentile) {
    assert!((1..=2).contains(&before.samples.load(Relaxed)), "not too few, and not less than none");
    answer(before, at(LATER));
    assert!(before.delay(at(LATER + 2)).is_some());
}

#[test]
fn loom_no_sample_is_lost_beside_a_warm_up_that_begins() {
    model(|| {
        let percentile = forgotten(true);
        let other = thread::spawn({
            let percentile = Arc::clone(&percentile);
            move || answer(&percentile, at(LATER))
        });
        assert_eq!(percentile.delay(at(LATER)), None);
        other.join().expect("a model thread does not panic");
        is_known_with_the_second_sample(&percentile);
    });
}

#[test]
fn loom_no_sample_is_lost_beside_a_warm_up_that_goes_on() {
    model(|| {
        let percentile = forgotten(false);
        let other = thread::spawn({
            let percentile = Arc::clone(&percentile);
            move || answer(&percentile, at(LATER))
        });
        assert_eq!(percentile.delay(at(LATER)), None);
        other.join().expect("a model thread does not panic");
        is_known_with_the_second_sample(&percentile);
    });
}

#[test]
fn loom_samples_of_two_threads_end_a_warm_up() {
    model(|| {
        let percentile = percentile(2);
        let other = thread::spawn({
            let percentile = Arc::clone(&percentile);
            move || answer(&percentile, at(0))
        });
        answer(&percentile, at(0));
        let early = percentile.delay(at(0));
        other.join().expect("a model thread does not panic");
        assert!(early.or_else(|| percentile.delay(at(2))).is_some());
    });
}

/// Who corrects what another has corrected already makes the count less than none.
#[test]
fn loom_what_two_estimates_find_gone_is_taken_off_the_count_once() {
    for is_known in [true, false] {
        model(move || {
            let percentile = forgotten(is_known);
            // The second estimate may be made at once, as soon as the first has ended.
            let other = thread::spawn({
                let percentile = Arc::clone(&percentile);
                move || percentile.delay(at(LATER + 2))
            });
            percentile.delay(at(LATER));
            other.join().expect("a model thread does not panic");
            assert_eq!(percentile.samples.load(Relaxed), 0);
        });
    }
}

#[test]
fn loom_one_of_two_that_find_the_delay_stale_makes_an_estimate() {
    model(|| {
        let percentile = percentile(1);
        let other = thread::spawn({
            let percentile = Arc::clone(&percentile);
            move || percentile.may_estimate(0)
        });
        let here = percentile.may_estimate(0);
        let there = other.join().expect("a model thread does not panic");
        assert!(here ^ there);
    });
}
