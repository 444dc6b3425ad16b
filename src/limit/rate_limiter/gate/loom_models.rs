//! The protocol under all interleavings of two or three threads, with up to three preemptions (or as many as
//! `LOOM_MAX_PREEMPTIONS` says).

use std::sync::Arc as StdArc;
use std::task::Wake;

use loom::sync::Arc;
use loom::thread;

use super::*;
use crate::sync::AtomicU64;

const SECOND: Duration = Duration::from_secs(1);

fn at(seconds: u32) -> Moment {
    Moment::from_nanos(1_000_000_000_000) + SECOND * seconds
}

fn per_second(burst: u64) -> Rate {
    Rate::new(1, SECOND, burst).expect("a rate that can work")
}

/// At a moment of a clock that is bound.
fn change(gate: &Gate, rate: Rate, now: Moment) {
    assert!(gate.reconfigure(rate, Some(now), || false));
}

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

const ASKED: Asked = Asked { weight: 1, until: Moment::NEVER };

/// Waits behind one who waits already.
fn behind(gate: &Gate, now: Moment) -> (Option<Ticket>, StdArc<Flag>) {
    let (mut place, flag) = (None, Flag::new());
    let step = gate.join(&mut place, ASKED, 10, now, Waker::from(StdArc::clone(&flag)));
    assert!(place.is_some(), "{step:?}");
    (place, flag)
}

#[test]
fn loom_two_callers_do_not_take_the_same_token() {
    model(|| {
        let gate = Arc::new(Gate::new(per_second(1)));
        let other = Arc::clone(&gate);
        let thread = thread::spawn(move || other.pass(1, at(0)).is_ok());
        let own = gate.pass(1, at(0)).is_ok();
        assert!(own != thread.join().expect("a model thread does not panic"));
    });
}

#[test]
fn loom_a_caller_does_not_pass_one_who_waits() {
    model(|| {
        let gate = Arc::new(Gate::new(per_second(1)));
        gate.pass(1, at(0)).expect("full");
        let other = Arc::clone(&gate);
        let waiting = thread::spawn(move || behind(&other, at(0)));
        let passed = gate.pass(1, at(1)).is_ok();
        let (mut place, flag) = waiting.join().expect("a model thread does not panic");
        let step = gate.poll(&mut place, ASKED, at(1), Waker::from(flag));
        // Either it came first, and is served first, or the other was there before it.
        assert_eq!(step == Step::Admitted, !passed, "{step:?}");
    });
}

#[test]
fn loom_who_leaves_hands_the_first_place_on() {
    model(|| {
        let gate = Arc::new(Gate::new(per_second(1)));
        gate.pass(1, at(0)).expect("full");
        let (first, _) = behind(&gate, at(0));
        let (mut second, flag) = behind(&gate, at(0));
        let other = Arc::clone(&gate);
        let leaving = thread::spawn(move || other.leave(first.expect("it waits")));
        let step = gate.poll(&mut second, ASKED, at(1), Waker::from(StdArc::clone(&flag)));
        leaving.join().expect("a model thread does not panic");
        assert!(step == Step::Admitted || flag.is_raised(), "it is the first, or told so: {step:?}");
        if step == Step::Behind {
            assert_eq!(gate.poll(&mut second, ASKED, at(1), Waker::from(flag)), Step::Admitted);
        }
        assert_eq!(gate.queued(), 0);
        assert_eq!(gate.pass(1, at(2)), Ok(()), "the word lets others in again");
    });
}

#[test]
fn loom_an_admission_beside_a_change_is_by_one_of_the_two_rates() {
    model(|| {
        // Of the old rate a burst of 2 a second each, of the new one 2 in a thousandth of a second: mixed, they would let
        // through what neither does.
        let old = per_second(2);
        let new = Rate::new(1_000, SECOND, 2).expect("a rate that can work");
        let gate = Arc::new(Gate::new(old));
        gate.pass(1, at(0)).expect("full");
        let other = Arc::clone(&gate);
        let changing = thread::spawn(move || change(&other, new, at(0)));
        let passed = gate.pass(2, at(0));
        changing.join().expect("a model thread does not panic");
        assert!(passed.is_err(), "only one token was there, at either rate: {passed:?}");
        assert_eq!(gate.pass(1, at(0)), Ok(()));
        assert!(matches!(gate.pass(1, at(0)), Err(Held::Short(wait)) if wait == Duration::from_millis(1)));
    });
}

/// There and back within one admission: the bucket holds what it held, so the balance could be the very one that the admission
/// has seen, while the rate that it has read is the one in between, which has a token for each thousandth of what is owed.
#[test]
fn loom_an_admission_beside_two_changes_is_by_a_rate_of_its_balance() {
    model(|| {
        let old = per_second(2);
        let between = Rate::new(1_000, SECOND, 2_000).expect("a rate that can work");
        let gate = Arc::new(Gate::new(old));
        gate.pass(1, at(0)).expect("full");
        let other = Arc::clone(&gate);
        let changing = thread::spawn(move || {
            change(&other, between, at(0));
            change(&other, old, at(0));
        });
        let passed = gate.pass(2, at(0));
        changing.join().expect("a model thread does not panic");
        assert!(passed.is_err(), "only one token was there, at either rate: {passed:?}");
        assert_eq!(gate.pass(1, at(0)), Ok(()));
        assert!(matches!(gate.pass(1, at(0)), Err(Held::Short(wait)) if wait == SECOND));
    });
}

/// The same with a bucket that was never used, whose balance says nothing of the time.
#[test]
fn loom_an_admission_beside_two_changes_of_an_unused_bucket_is_by_a_rate_of_its_balance() {
    model(|| {
        let old = per_second(2);
        let between = Rate::new(1_000, SECOND, 2_000).expect("a rate that can work");
        let gate = Arc::new(Gate::new(old));
        let other = Arc::clone(&gate);
        let changing = thread::spawn(move || {
            other.reconfigure(between, None, || true);
            other.reconfigure(old, None, || true)
        });
        let passed = gate.pass(2, at(0));
        let is_back = changing.join().expect("a model thread does not panic");
        // A bucket that was used in between stays at the rate in between, which its balance was counted at.
        let left = match (passed, is_back) {
            (Err(_), true) => 2,
            (Ok(()), true) => 0,
            (_, false) => 1_998,
        };
        assert_eq!(gate.available(at(0)), left, "{passed:?}");
    });
}

/// At either rate the bucket is full: only the cost of the old rate is more than the burst of the new one.
#[test]
fn loom_a_refusal_beside_a_change_is_by_one_of_the_two_rates() {
    model(|| {
        let gate = Arc::new(Gate::new(per_second(1)));
        let other = Arc::clone(&gate);
        let changing = thread::spawn(move || change(&other, Rate::new(1_000, SECOND, 1).expect("works"), at(0)));
        let passed = gate.pass(1, at(0));
        let settled = if passed == Err(Held::AskQueue) { gate.try_join(1, at(0)) } else { Ok(()) };
        changing.join().expect("a model thread does not panic");
        assert!(matches!(passed, Ok(()) | Err(Held::AskQueue)), "{passed:?}");
        assert_eq!(settled, Ok(()));
        assert!(gate.pass(1, at(0)).is_err(), "there was one token");
    });
}

#[test]
fn loom_a_change_of_the_rate_reaches_who_waits() {
    model(|| {
        let gate = Arc::new(Gate::new(per_second(1)));
        gate.pass(1, at(0)).expect("full");
        let other = Arc::clone(&gate);
        let changing = thread::spawn(move || change(&other, Rate::new(1_000, SECOND, 1).expect("works"), at(0)));
        let (mut place, flag) = behind(&gate, at(0));
        let soon = at(0) + Duration::from_millis(1);
        let step = gate.poll(&mut place, ASKED, soon, Waker::from(StdArc::clone(&flag)));
        changing.join().expect("a model thread does not panic");
        assert!(step == Step::Admitted || flag.is_raised(), "{step:?}");
    });
}
