//! Permits beside what an operator does, and pauses.

use super::*;

fn trial(config: BreakerConfig) -> (Arc<Core>, Ticket, Moment) {
    let (core, due) = opened(config);
    let ticket = acquire(&core, due).expect("due");
    assert!(ticket.is_trial());
    (core, ticket, due)
}

#[test]
fn loom_a_permit_that_is_dropped_beside_a_forced_close_does_not_open() {
    model(|| {
        let (core, ticket, due) = trial(config(1));
        both(&core, move |core| core.settle(ticket, End::Abandoned, due), |core| core.force_close(due));
        assert_eq!(core.word().state(), State::Closed);
        assert_eq!(core.counts(due).calls, 0);
    });
}

#[test]
fn loom_a_permit_that_is_dropped_beside_a_reset_changes_nothing_after_it() {
    model(|| {
        let (core, ticket, due) = trial(config(1));
        both(&core, move |core| core.settle(ticket, End::Abandoned, due), |core| core.reset(due));
        assert_eq!(core.word().state(), State::Closed);
        assert_eq!(core.counts(due).rejected, 0);
        let again = acquire(&core, due).expect("closed");
        core.settle(again, End::Success, due);
        assert_eq!(core.counts(due).calls, 1);
    });
}

#[test]
fn loom_a_place_is_not_given_back_to_a_later_period() {
    model(|| {
        let (core, ticket, due) = trial(config(1));
        let again = due + OPEN_TIME;
        core.force_open(due);
        let admits = move |core: &Core| assert!(acquire(core, again).is_ok_and(Ticket::is_trial));
        both(&core, move |core| core.settle(ticket, End::Nothing, again), admits);
        assert!(acquire(&core, again).is_err(), "one place");
    });
}

#[test]
fn loom_isolation_outlasts_every_verdict() {
    model(|| {
        let (core, ticket, due) = trial(config(1));
        both(&core, move |core| core.settle(ticket, End::Success, due), |core| core.isolate(due));
        assert_eq!(core.word().state(), State::Isolated);
        assert!(acquire(&core, due).is_err());
    });
}

#[test]
fn loom_a_trip_beside_a_forced_opening_opens_once() {
    model(|| {
        let core = Arc::new(breaker(config(1)));
        let ticket = acquire(&core, bucket(0)).expect("closed");
        let fails = move |core: &Core| core.settle(ticket, End::Failure, bucket(0));
        both(&core, fails, |core| core.force_open(bucket(0)));
        assert_eq!((core.word().state(), core.word().generation()), (State::Open, 1));
    });
}

#[test]
fn loom_a_pause_does_not_undo_a_trip() {
    model(|| {
        let core = Arc::new(breaker(config(1).pause_on_retry_after(OPEN_TIME)));
        let ticket = acquire(&core, bucket(0)).expect("closed");
        let throttled = move |core: &Core| core.settle(ticket, End::Throttled(Some(WIDTH)), bucket(0));
        both(&core, throttled, |core| core.settle(ticket, End::Failure, bucket(0)));
        assert_eq!(core.word().state(), State::Open);
        let refused = acquire(&core, bucket(0)).expect_err("open");
        assert_eq!((refused.retry_after, refused.is_pause), (Some(OPEN_TIME), false));
    });
}

#[test]
fn loom_the_end_of_a_pause_forgets_nothing() {
    model(|| {
        let core = Arc::new(breaker(config(100).pause_on_retry_after(OPEN_TIME)));
        let ticket = acquire(&core, bucket(0)).expect("closed");
        core.settle(ticket, End::Throttled(Some(WIDTH)), bucket(0));
        let over = bucket(1);
        both(
            &core,
            move |core| core.settle(ticket, End::Failure, over),
            |core| {
                assert!(acquire(core, over).is_ok());
            },
        );
        assert_eq!((core.counts(over).failures, core.word().is_closed()), (1, true));
    });
}
