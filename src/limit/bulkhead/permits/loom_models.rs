//! The protocol under all interleavings of two or three threads, with up to three preemptions (or as many as
//! `LOOM_MAX_PREEMPTIONS` says).

use std::sync::Arc as StdArc;
use std::task::Wake;

use loom::sync::Arc;
use loom::thread;

use super::*;

fn model(check: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(3));
    builder.check(check);
}

/// Remembers that it was woken.
struct Flag(AtomicU64);

impl Flag {
    fn new() -> StdArc<Flag> {
        StdArc::new(Flag(AtomicU64::new(0)))
    }

    fn is_raised(&self) -> bool {
        self.0.load(Ordering::SeqCst) > 0
    }
}

impl Wake for Flag {
    fn wake(self: StdArc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn join(permits: &Permits) -> (Step, Option<Ticket>, StdArc<Flag>) {
    let (mut place, flag) = (None, Flag::new());
    let step = permits.join(&mut place, 10, Waker::from(StdArc::clone(&flag)));
    (step, place, flag)
}

fn poll(permits: &Permits, place: &mut Option<Ticket>) -> Step {
    permits.poll(place, Waker::noop().clone())
}

fn assert_all_free(permits: &Permits, number: u64) {
    let word = Word(permits.word.load(Ordering::SeqCst));
    assert_eq!((word.permits(), word.taken(), word.is_waiting()), (number, 0, false));
    assert!(lock(&permits.line).is_empty());
}

#[test]
fn loom_a_permit_is_taken_once_and_given_back_once() {
    model(|| {
        let permits = Arc::new(Permits::new(1));
        let other = Arc::clone(&permits);
        let thread = thread::spawn(move || {
            let taken = other.try_take();
            if taken {
                assert_eq!(other.taken(), 1);
                other.give_back();
            }
        });
        if permits.try_take() {
            assert_eq!(permits.taken(), 1);
            permits.give_back();
        }
        thread.join().expect("a model thread does not panic");
        assert_all_free(&permits, 1);
    });
}

#[test]
fn loom_who_joins_while_a_permit_is_given_back_takes_it_or_is_woken() {
    model(|| {
        let permits = Arc::new(Permits::new(1));
        assert!(permits.try_take());
        let other = Arc::clone(&permits);
        let giving = thread::spawn(move || other.give_back());
        let (step, mut place, flag) = join(&permits);
        giving.join().expect("a model thread does not panic");
        if step == Step::Waits {
            assert!(flag.is_raised());
            assert_eq!(poll(&permits, &mut place), Step::Taken);
        }
        permits.give_back();
        assert_all_free(&permits, 1);
    });
}

#[test]
fn loom_a_caller_does_not_pass_one_who_waits() {
    model(|| {
        let permits = Arc::new(Permits::new(1));
        assert!(permits.try_take());
        let (step, mut place, flag) = join(&permits);
        assert_eq!(step, Step::Waits);
        let other = Arc::clone(&permits);
        let giving = thread::spawn(move || other.give_back());
        assert!(!permits.try_take(), "the permit is that of the first in line");
        giving.join().expect("a model thread does not panic");
        assert!(flag.is_raised());
        assert_eq!(poll(&permits, &mut place), Step::Taken);
    });
}

#[test]
fn loom_who_leaves_as_the_permit_comes_hands_the_wake_up_on() {
    model(|| {
        let permits = Arc::new(Permits::new(1));
        assert!(permits.try_take());
        let (_, first, _) = join(&permits);
        let (_, mut second, flag) = join(&permits);
        let (giver, leaver) = (Arc::clone(&permits), Arc::clone(&permits));
        let giving = thread::spawn(move || giver.give_back());
        let leaving = thread::spawn(move || leaver.leave(first.expect("it waits")));
        giving.join().expect("a model thread does not panic");
        leaving.join().expect("a model thread does not panic");
        assert!(flag.is_raised(), "the second is the first now, and there is a permit");
        assert_eq!(poll(&permits, &mut second), Step::Taken);
        permits.give_back();
        assert_all_free(&permits, 1);
    });
}

#[test]
fn loom_the_first_leaves_or_takes_and_the_second_gets_the_other_permit() {
    model(|| {
        let permits = Arc::new(Permits::new(2));
        assert!(permits.try_take() && permits.try_take());
        let (_, mut first, _) = join(&permits);
        let (_, mut second, flag) = join(&permits);
        let giver = Arc::clone(&permits);
        let giving = thread::spawn(move || {
            giver.give_back();
            giver.give_back();
        });
        let taken = poll(&permits, &mut first) == Step::Taken;
        giving.join().expect("a model thread does not panic");
        if !taken {
            assert_eq!(poll(&permits, &mut first), Step::Taken, "both are free now");
        }
        assert!(flag.is_raised(), "the first has told the second, or the giver has");
        assert_eq!(poll(&permits, &mut second), Step::Taken);
        permits.give_back();
        permits.give_back();
        assert_all_free(&permits, 2);
    });
}

#[test]
fn loom_no_permit_is_taken_by_a_number_that_has_changed() {
    model(|| {
        let permits = Arc::new(Permits::new(2));
        assert!(permits.try_take());
        let other = Arc::clone(&permits);
        let resizing = thread::spawn(move || {
            other.resize(1);
            // From now on nobody else gets one: what is taken now was taken before.
            other.taken()
        });
        let taken = permits.try_take();
        let at_resize = resizing.join().expect("a model thread does not panic");
        assert_eq!(permits.taken(), 1 + usize::from(taken));
        assert!(at_resize == 1 + usize::from(taken), "taken after there was only one");
    });
}

#[test]
fn loom_more_permits_reach_who_waits() {
    model(|| {
        let permits = Arc::new(Permits::new(1));
        assert!(permits.try_take());
        let other = Arc::clone(&permits);
        let resizing = thread::spawn(move || other.resize(2));
        let (step, mut place, flag) = join(&permits);
        resizing.join().expect("a model thread does not panic");
        if step == Step::Waits {
            assert!(flag.is_raised());
            assert_eq!(poll(&permits, &mut place), Step::Taken);
        }
        permits.give_back();
        permits.give_back();
        assert_all_free(&permits, 2);
    });
}
