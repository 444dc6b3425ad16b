use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn at(seconds: u32) -> Moment {
    Moment::from_nanos(1_000_000_000_000) + SECOND * seconds
}

/// One that was put out by a change of the rate may learn of it at a reading of the clock from long ago. It holds no gate
/// closed then, so it must not begin time anew: the era would go on without its balance, and the bucket would be full.
#[test]
fn who_was_put_out_by_a_change_leaves_the_bucket_as_it_is() {
    let gate = Gate::new(Rate::new(1, SECOND, 1).expect("a rate that can work"));
    gate.pass(1, at(100)).expect("full");
    let (mut place, asked) = (None, Asked { weight: 1, until: at(105) });
    let step = gate.join(&mut place, asked, 10, at(100), Waker::noop().clone());
    assert_eq!(step, Step::FirstUntil(at(101)));
    let slower = Rate::new(1, 10 * SECOND, 1).expect("a rate that can work");
    assert!(gate.reconfigure(slower, Some(at(100)), || false));
    assert_eq!((gate.queued(), gate.available(at(100))), (0, 0));

    let step = gate.poll(&mut place, asked, at(50), Waker::noop().clone());
    assert_eq!(step, Step::Refused(Some(10 * SECOND)), "as by an empty bucket");
    assert_eq!(place, None);
    assert_eq!(gate.available(at(100)), 0);
    assert_eq!(gate.pass(1, at(100)), Err(Held::Short(10 * SECOND)));
}
