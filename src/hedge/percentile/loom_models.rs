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

/// So many samples as it takes have left the window at the time of [`LATER`].
fn forgotten(samples: u32, is_known: bool) -> Arc<Percentile> {
    let percentile = percentile(samples);
    (0..samples).for_each(|_| answer(&percentile, at(0)));
    assert!(!is_known || percentile.delay(at(0)).is_some());
    percentile
}

/// In seconds; more than a window after the start.
const LATER: u64 = 200;

/// Makes an estimate beside so many samples less one as it takes. It finds too few, and the next one has to be enough.
fn estimate_beside(percentile: &Arc<Percentile>, samples: u32, answer_beside: fn(&Percentile)) {
    let others: Vec<_> = (1..samples)
        .map(|_| {
            let percentile = Arc::clone(percentile);
            thread::spawn(move || answer_beside(&percentile))
        })
        .collect();
    assert_eq!(percentile.delay(at(LATER)), None);
    for other in others {
        other.join().expect("a model thread does not panic");
    }
    let counted = percentile.samples.load(Relaxed);
    assert!((samples - 1..2 * samples).contains(&(counted as u32)), "{counted} is too few, or less than none");
    answer(percentile, at(LATER));
    assert!(percentile.delay(at(LATER + 2)).is_some());
}

#[test]
fn loom_no_sample_is_lost_beside_a_warm_up_that_begins() {
    for samples in [2, 3] {
        model(move || estimate_beside(&forgotten(samples, true), samples, |it| answer(it, at(LATER))));
    }
}

#[test]
fn loom_no_sample_is_lost_beside_a_warm_up_that_goes_on() {
    for samples in [2, 3] {
        model(move || estimate_beside(&forgotten(samples, false), samples, |it| answer(it, at(LATER))));
    }
}

/// Without the look at the delay, whose fence in the models would make the count a `Release` whatever it is.
#[test]
fn loom_what_is_corrected_away_was_found_in_the_bins() {
    model(|| {
        estimate_beside(&forgotten(2, false), 2, |percentile| {
            percentile.latencies.ended(at(LATER), Duration::ZERO);
            percentile.count();
        });
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
            let percentile = forgotten(2, is_known);
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

/// The same without the fence of the models, which would make the look at `stale_at` an `Acquire` whatever it is.
#[test]
fn loom_who_may_estimate_knows_what_the_one_before_has_taken_off() {
    model(|| {
        let percentile = forgotten(2, true);
        let other = thread::spawn({
            let percentile = Arc::clone(&percentile);
            move || percentile.delay(at(LATER))
        });
        if percentile.may_estimate(at(LATER + 1).nanos()) {
            assert_eq!(percentile.samples.load(Relaxed), 0);
        }
        other.join().expect("a model thread does not panic");
    });
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
