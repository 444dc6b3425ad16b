//! The protocols under all interleavings of two or three threads, with up to three preemptions
//! (or as many as `LOOM_MAX_PREEMPTIONS` says).
//!
//! `RUSTFLAGS="--cfg steadfast_loom" cargo test --lib --release loom_`

mod by_hand;
mod windows;

use loom::sync::Arc;
use loom::thread;

use super::*;
use crate::breaker::rule::TripRule;
use crate::breaker::transition::State;

const WIDTH: Duration = Duration::from_secs(1);
const OPEN_TIME: Duration = Duration::from_secs(30);

/// Somewhere in the first half of a bucket, buckets after the first.
fn bucket(number: u32) -> Moment {
    Moment::from_nanos(1_000_000_000_000) + WIDTH * number
}

/// Two buckets; half of the calls.
fn config(minimum_calls: u32) -> BreakerConfig {
    let rule = TripRule::failure_rate(0.5).window(2, WIDTH).minimum_calls(minimum_calls);
    BreakerConfig::default().rule(rule).open_for(OPEN_TIME)
}

fn model(check: impl Fn() + Send + Sync + 'static) {
    model_with(3, check);
}

/// With a bound of its own, for models that take too long otherwise.
fn model_with(preemptions: usize, check: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(preemptions));
    builder.check(check);
}

fn breaker(config: BreakerConfig) -> Core {
    Core::new(std::sync::Arc::new(Family::new(config, false)), None)
}

fn acquire(core: &Core, now: Moment) -> Result<Ticket, Refused> {
    core.try_acquire(|| now, || None)
}

/// Settles calls that were admitted before, each list in its own thread; the last list in this one.
fn race(core: &Arc<Core>, mut threads: Vec<Vec<(Ticket, End, Moment)>>) {
    let settle = |core: &Core, ends: Vec<(Ticket, End, Moment)>| {
        for (ticket, end, now) in ends {
            core.settle(ticket, end, now);
        }
    };
    let own = threads.pop().unwrap_or_default();
    let others = threads.into_iter().map(|ends| {
        let core = Arc::clone(core);
        thread::spawn(move || settle(&core, ends))
    });
    let others = others.collect::<Vec<_>>();
    settle(core, own);
    for other in others {
        other.join().expect("a model thread does not panic");
    }
}

/// Runs both at once.
fn both(core: &Arc<Core>, other: impl FnOnce(&Core) + Send + 'static, own: impl FnOnce(&Core)) {
    let its = Arc::clone(core);
    let thread = thread::spawn(move || other(&its));
    own(core);
    thread.join().expect("a model thread does not panic");
}

fn fail_once(core: &Core, now: Moment) {
    let ticket = acquire(core, now).expect("closed");
    core.settle(ticket, End::Failure, now);
}

/// A breaker whose trial is due at the returned moment.
fn opened(config: BreakerConfig) -> (Arc<Core>, Moment) {
    let core = Arc::new(breaker(config));
    fail_once(&core, bucket(0));
    assert_eq!(core.word().state(), State::Open);
    (core, bucket(0) + OPEN_TIME)
}

#[test]
fn loom_records_of_the_same_new_bucket_are_both_counted() {
    model(|| {
        let core = Arc::new(breaker(config(100)));
        let old = acquire(&core, bucket(0)).expect("closed");
        core.settle(old, End::Success, bucket(0));
        race(&core, vec![vec![(old, End::Success, bucket(2))], vec![(old, End::Success, bucket(2))]]);
        assert_eq!(core.counts(bucket(2)).calls, 2);
    });
}

#[test]
fn loom_a_late_record_does_not_undo_the_rotation() {
    model(|| {
        let core = Arc::new(breaker(config(100)));
        let ticket = acquire(&core, bucket(0)).expect("closed");
        core.settle(ticket, End::Failure, bucket(0));
        let (late, present) = ((ticket, End::Failure, bucket(0)), (ticket, End::Failure, bucket(2)));
        race(&core, vec![vec![late], vec![present]]);
        let counts = core.counts(bucket(2));
        assert_eq!((counts.calls, counts.failures), (1, 1));
    });
}

#[test]
fn loom_a_success_that_reaches_the_minimum_beside_a_failure_trips() {
    model(|| {
        let core = Arc::new(breaker(config(2)));
        let ticket = acquire(&core, bucket(0)).expect("closed");
        race(&core, vec![vec![(ticket, End::Failure, bucket(0))], vec![(ticket, End::Success, bucket(0))]]);
        assert_eq!(core.word().state(), State::Open);
    });
}

#[test]
fn loom_two_failures_that_reach_the_minimum_together_trip() {
    model(|| {
        let core = Arc::new(breaker(config(2)));
        let ticket = acquire(&core, bucket(0)).expect("closed");
        let failure = vec![(ticket, End::Failure, bucket(0))];
        race(&core, vec![failure.clone(), failure]);
        assert_eq!(core.word().state(), State::Open);
    });
}

#[test]
fn loom_two_failures_across_the_edge_of_a_bucket_trip() {
    model(|| {
        let core = Arc::new(breaker(config(2)));
        let ticket = acquire(&core, bucket(0)).expect("closed");
        let failure = |number| vec![(ticket, End::Failure, bucket(number))];
        race(&core, vec![failure(0), failure(1)]);
        assert_eq!(core.word().state(), State::Open);
    });
}

#[test]
fn loom_old_failures_are_not_held_against_a_rotated_window() {
    model(|| {
        let core = Arc::new(breaker(config(4)));
        let ticket = acquire(&core, bucket(0)).expect("closed");
        for (end, number) in [(End::Success, 0), (End::Failure, 0), (End::Success, 1), (End::Success, 1)] {
            core.settle(ticket, end, bucket(number));
        }
        let present = vec![(ticket, End::Success, bucket(2))];
        race(&core, vec![vec![(ticket, End::Failure, bucket(1))], present]);
        assert_eq!(core.word().state(), State::Closed, "2 of 5, then 1 of 4");
    });
}

#[test]
fn loom_enough_is_not_stored_past_a_failure() {
    model(|| {
        let core = Arc::new(breaker(config(3)));
        let ticket = acquire(&core, bucket(0)).expect("closed");
        core.settle(ticket, End::Failure, bucket(0));
        let success = vec![(ticket, End::Success, bucket(0))];
        race(&core, vec![success.clone(), success, vec![(ticket, End::Failure, bucket(0))]]);
        assert_eq!(core.word().state(), State::Open, "2 of 4 failed");
    });
}

#[test]
fn loom_old_failures_decide_with_the_first_record_of_a_bucket() {
    model(|| {
        let core = Arc::new(breaker(config(2)));
        let ticket = acquire(&core, bucket(0)).expect("closed");
        for (end, now) in [(End::Success, 0), (End::Success, 0), (End::Success, 0), (End::Failure, 1)] {
            core.settle(ticket, end, bucket(now));
        }
        assert_eq!(core.word().state(), State::Closed, "1 of 4");
        let success = vec![(ticket, End::Success, bucket(2))];
        race(&core, vec![success, vec![(ticket, End::Nothing, bucket(2))]]);
        assert_eq!(core.word().state(), State::Open, "1 of 2");
    });
}

#[test]
fn loom_a_breaker_trips_exactly_once() {
    model(|| {
        let core = Arc::new(breaker(config(1)));
        let ticket = acquire(&core, bucket(0)).expect("closed");
        race(&core, vec![vec![(ticket, End::Failure, bucket(0))], vec![(ticket, End::Failure, bucket(0))]]);
        assert_eq!(core.word(), Word::FIRST.next(Kind::Open));
    });
}

#[test]
fn loom_failures_in_a_row_trip_exactly_once() {
    model(|| {
        let rule = TripRule::consecutive(2);
        let core = Arc::new(breaker(BreakerConfig::default().rule(rule)));
        let failure = vec![(acquire(&core, bucket(0)).expect("closed"), End::Failure, bucket(0))];
        race(&core, vec![failure.clone(), failure.clone(), failure]);
        assert_eq!(core.word(), Word::FIRST.next(Kind::Open));
    });
}

#[test]
fn loom_who_sees_the_breaker_open_sees_until_when() {
    model(|| {
        let core = Arc::new(breaker(config(1)));
        let failing = Arc::clone(&core);
        let other = thread::spawn(move || fail_once(&failing, bucket(0)));
        match acquire(&core, bucket(0)) {
            Ok(ticket) => assert!(!ticket.is_trial(), "the open time has only begun"),
            Err(refused) => assert_eq!(refused.retry_after, Some(OPEN_TIME)),
        }
        other.join().expect("a model thread does not panic");
    });
}

#[test]
fn loom_the_end_of_the_open_time_grants_one_trial() {
    model(|| {
        let (core, due) = opened(config(1));
        let second = Arc::clone(&core);
        let other = thread::spawn(move || acquire(&second, due).is_ok());
        let granted = [acquire(&core, due).is_ok(), other.join().expect("a model thread does not panic")];
        assert_eq!(granted.iter().filter(|&&granted| granted).count(), 1);
    });
}

#[test]
fn loom_a_verdict_beside_the_expiry_counts_once_or_not_at_all() {
    model(|| {
        let (core, due) = opened(config(1));
        let trial = acquire(&core, due).expect("due");
        let expiry = due + OPEN_TIME;
        let again = expiry + OPEN_TIME;
        let other = Arc::clone(&core);
        let verdict = thread::spawn(move || other.settle(trial, End::Success, expiry));
        let next = acquire(&core, again).expect("closed by the verdict, or a new trial after the expiry");
        verdict.join().expect("a model thread does not panic");
        if next.is_trial() {
            assert_eq!(core.word().state(), State::HalfOpen, "the late verdict is of another generation");
            assert!(acquire(&core, again).is_err(), "and has freed no place");
        } else {
            assert_eq!(core.word().state(), State::Closed);
        }
    });
}

#[test]
fn loom_a_verdict_of_an_earlier_generation_stays_outside_of_the_window() {
    model(|| {
        let core = Arc::new(breaker(config(1)));
        let old = acquire(&core, bucket(0)).expect("closed");
        fail_once(&core, bucket(0));
        let now = bucket(0) + OPEN_TIME;
        let trial = acquire(&core, now).expect("due");
        race(&core, vec![vec![(old, End::Failure, now)], vec![(trial, End::Success, now)]]);
        assert_eq!(core.word().state(), State::Closed);
        assert_eq!(core.counts(now).calls, 0);
    });
}

#[test]
fn loom_a_verdict_of_an_earlier_generation_does_not_undo_a_record() {
    model(|| {
        let core = Arc::new(breaker(config(2)));
        let old = acquire(&core, bucket(0)).expect("closed");
        fail_once(&core, bucket(0));
        fail_once(&core, bucket(0));
        let now = bucket(0) + OPEN_TIME;
        core.settle(acquire(&core, now).expect("due"), End::Success, now);
        let new = acquire(&core, now).expect("closed again");
        race(&core, vec![vec![(old, End::Failure, now)], vec![(new, End::Failure, now)]]);
        assert_eq!(core.word().state(), State::Closed);
        assert_eq!(core.counts(now).failures, 1);
    });
}
