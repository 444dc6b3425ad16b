use std::collections::BTreeMap;
use std::collections::btree_map::OccupiedEntry;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, SystemTime};

use super::{Clock, Kind, LAST, Moment, ORIGIN_AGE};
use crate::shield::{discard, wake_all};

/// The hand on a manual clock: it stands still, and moves only when the test says so.
///
/// A clone moves the same clock. [`block_on`](ManualClock::block_on) runs a whole scenario in no
/// time at all; [`advance`](ManualClock::advance) steps through one by hand.
///
/// # Example
///
/// ```
/// use std::time::Duration;
/// use steadfast::clock::Clock;
///
/// let clock = Clock::manual();
/// let start = clock.now();
///
/// // An hour passes at once, without a runtime.
/// clock.block_on(clock.clock().sleep(Duration::from_secs(3600)));
/// assert_eq!(clock.now().since(start), Duration::from_secs(3600));
/// ```
#[derive(Clone)]
pub struct ManualClock(Arc<Hand>);

impl ManualClock {
    pub(super) fn new() -> ManualClock {
        ManualClock(Arc::new(Hand(Mutex::new(Face::new()))))
    }

    pub(super) fn of(hand: &Arc<Hand>) -> ManualClock {
        ManualClock(Arc::clone(hand))
    }

    /// The clock that this hand moves, for whatever takes a [`Clock`].
    #[must_use]
    pub fn clock(&self) -> Clock {
        Clock(Kind::Manual(Arc::clone(&self.0)))
    }

    /// The present moment.
    #[must_use]
    pub fn now(&self) -> Moment {
        self.0.now()
    }

    /// Moves the time on by `duration`, and wakes all that has slept long enough, in the order of
    /// their deadlines. The time stands at each sleeper's own deadline while it is woken.
    ///
    /// A wake only tells a task's executor to poll it again. Where one step leads to the next
    /// sleep, advance once per step or use [`block_on`](ManualClock::block_on). Two threads that
    /// advance at once do not add up.
    ///
    /// The clock stops short of [`Moment::NEVER`], some 584 years away.
    pub fn advance(&self, duration: Duration) {
        let target = self.0.now() + duration;
        self.0.move_to(target.min(LAST));
    }

    /// Moves the time on to the next sleeper's deadline and wakes all that are due then. Returns
    /// false, and does nothing, if nothing sleeps.
    pub fn advance_to_next(&self) -> bool {
        let next = self.0.face().timers.keys().next().map(|&(at, _)| at);
        match next {
            Some(at) => {
                self.0.move_to(Moment::from_nanos(at));
                true
            }
            None => false,
        }
    }

    /// How many sleeps wait on this clock: polled at least once, not over yet and not dropped.
    #[must_use]
    pub fn sleepers(&self) -> usize {
        self.0.face().timers.len()
    }

    /// Sets the date and time of [`Clock::wall`], which moves on from there as the clock is
    /// advanced. It begins at 2020-01-01T00:00:00Z. Sleepers notice nothing.
    pub fn set_wall(&self, wall: SystemTime) {
        let mut face = self.0.face();
        face.wall = wall;
        face.wall_set = face.now;
    }
}

impl From<ManualClock> for Clock {
    fn from(manual: ManualClock) -> Clock {
        Clock(Kind::Manual(manual.0))
    }
}

impl From<&ManualClock> for Clock {
    fn from(manual: &ManualClock) -> Clock {
        manual.clock()
    }
}

impl fmt::Debug for ManualClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let face = self.0.face();
        f.debug_struct("ManualClock")
            .field("now", &face.now)
            .field("sleepers", &face.timers.len())
            .finish_non_exhaustive()
    }
}

/// What all clones of one manual clock share.
pub(super) struct Hand(Mutex<Face>);

struct Face {
    now: Moment,
    /// The date at `wall_set`.
    wall: SystemTime,
    wall_set: Moment,
    /// By deadline, then in the order in which the sleeps began. The wakers are foreign code: they
    /// are called and dropped outside of the lock only.
    timers: BTreeMap<(u64, u64), Waker>,
    next_id: u64,
}

impl Face {
    fn new() -> Face {
        let now = Moment::from_nanos(ORIGIN_AGE);
        Face { now, wall: SystemTime::UNIX_EPOCH + YEAR_2020, wall_set: now, timers: BTreeMap::new(), next_id: 0 }
    }
}

impl Hand {
    pub(super) fn now(&self) -> Moment {
        self.face().now
    }

    pub(super) fn wall(&self) -> SystemTime {
        let face = self.face();
        let moved = face.now.since(face.wall_set);
        face.wall.checked_add(moved).unwrap_or(face.wall)
    }

    /// A timer for `at`, which registers itself when it is polled.
    pub(super) fn timer(self: &Arc<Hand>, at: Moment) -> Timer {
        let mut face = self.face();
        let id = face.next_id;
        face.next_id += 1;
        Timer { hand: Arc::clone(self), key: (at.nanos(), id) }
    }

    fn move_to(&self, target: Moment) {
        // Whoever is woken may register a timer that is due as well.
        while let Some(waker) = self.step_to(target) {
            wake_all([waker]);
        }
    }

    /// Moves to the first timer that is due by `target`, and takes it off; or else to `target`.
    fn step_to(&self, target: Moment) -> Option<Waker> {
        let mut face = self.face();
        let due = face.timers.first_entry().filter(|timer| timer.key().0 <= target.nanos());
        let (to, waker) = match due.map(OccupiedEntry::remove_entry) {
            Some(((at, _), waker)) => (Moment::from_nanos(at), Some(waker)),
            None => (target, None),
        };
        // A waker may have moved the clock further than this.
        face.now = face.now.max(to);
        waker
    }

    /// A panic under the lock leaves nothing half done, so a poisoned face is as good as any.
    fn face(&self) -> MutexGuard<'_, Face> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One sleep's place on the clock, given back on drop.
pub(super) struct Timer {
    hand: Arc<Hand>,
    key: (u64, u64),
}

impl Timer {
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let waker = cx.waker().clone();
        let mut face = self.hand.face();
        let is_due = face.now.nanos() >= self.key.0;
        let unused = if is_due {
            [face.timers.remove(&self.key), Some(waker)]
        } else {
            [face.timers.insert(self.key, waker), None]
        };
        drop(face);
        unused.into_iter().for_each(discard);
        if is_due { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        let waker = self.hand.face().timers.remove(&self.key);
        discard(waker);
    }
}

/// 2020-01-01T00:00:00Z, from the Unix epoch.
const YEAR_2020: Duration = Duration::from_secs(1_577_836_800);

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Weak, mpsc};
    use std::task::Wake;

    use super::super::Sleep;
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn poll_once(sleep: Pin<&mut Sleep>, waker: &Waker) -> Poll<()> {
        sleep.poll(&mut Context::from_waker(waker))
    }

    fn boxed(clock: &ManualClock, duration: Duration) -> Pin<Box<Sleep>> {
        Box::pin(clock.clock().sleep(duration))
    }

    /// Runs a closure when it is woken.
    struct OnWake<F>(F);

    impl<F: Fn() + Send + Sync + 'static> Wake for OnWake<F> {
        fn wake(self: Arc<Self>) {
            (self.0)();
        }
    }

    fn on_wake(woken: impl Fn() + Send + Sync + 'static) -> Waker {
        Waker::from(Arc::new(OnWake(woken)))
    }

    #[test]
    fn it_stands_still() {
        let clock = Clock::manual();
        let start = clock.now();
        assert_eq!(clock.now(), start);
        assert_eq!(clock.clock().now(), start);
        assert_eq!(clock.clock().wall(), clock.clock().wall());
    }

    #[test]
    fn a_clone_moves_the_same_clock() {
        let clock = Clock::manual();
        let start = clock.now();
        clock.clone().advance(SECOND);
        assert_eq!(clock.now().since(start), SECOND);
        assert_eq!(Clock::from(clock.clone()).now(), clock.now());
    }

    #[test]
    fn only_a_polled_sleep_is_a_sleeper_and_a_dropped_one_is_none() {
        let clock = Clock::manual();
        let mut sleeps: Vec<_> = (1..=3).map(|n| boxed(&clock, n * SECOND)).collect();
        assert_eq!(clock.sleepers(), 0);
        for sleep in &mut sleeps {
            assert!(poll_once(sleep.as_mut(), Waker::noop()).is_pending());
        }
        assert_eq!(clock.sleepers(), 3);
        sleeps.pop();
        assert_eq!(clock.sleepers(), 2);
        drop(sleeps);
        assert_eq!(clock.sleepers(), 0);
    }

    #[test]
    fn what_needs_no_timer_is_no_sleeper() {
        let clock = Clock::manual();
        let mut zero = boxed(&clock, Duration::ZERO);
        let mut never = boxed(&clock, Duration::MAX);
        assert!(poll_once(zero.as_mut(), Waker::noop()).is_ready());
        assert!(poll_once(never.as_mut(), Waker::noop()).is_pending());
        assert_eq!(clock.sleepers(), 0);
        assert!(!clock.advance_to_next());
    }

    #[test]
    fn a_sleep_ends_at_its_deadline_and_not_before() {
        let clock = Clock::manual();
        let mut sleep = boxed(&clock, SECOND);
        assert!(poll_once(sleep.as_mut(), Waker::noop()).is_pending());
        clock.advance(SECOND - Duration::from_nanos(1));
        assert!(poll_once(sleep.as_mut(), Waker::noop()).is_pending());
        clock.advance(Duration::from_nanos(1));
        assert_eq!(clock.sleepers(), 0);
        assert!(poll_once(sleep.as_mut(), Waker::noop()).is_ready());
    }

    #[test]
    fn another_poll_replaces_the_waker() {
        let clock = Clock::manual();
        let mut sleep = boxed(&clock, SECOND);
        let wakes = Arc::new(AtomicUsize::new(0));
        let mut old: Vec<Weak<_>> = Vec::new();
        for poll in 0..100 {
            let wakes = Arc::clone(&wakes);
            let wake = Arc::new(OnWake(move || {
                wakes.fetch_add(1 + 1_000 * poll, Ordering::Relaxed);
            }));
            old.push(Arc::downgrade(&wake));
            assert!(poll_once(sleep.as_mut(), &Waker::from(wake)).is_pending());
        }
        assert_eq!(clock.sleepers(), 1);
        assert_eq!(old.iter().filter(|waker| waker.strong_count() > 0).count(), 1);

        clock.advance(SECOND);
        assert_eq!(wakes.load(Ordering::Relaxed), 99_001, "the last waker, once");
        assert!(old.iter().all(|waker| waker.strong_count() == 0));
    }

    #[test]
    fn a_dropped_sleep_drops_its_waker_and_is_not_woken() {
        let clock = Clock::manual();
        let wakes = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&wakes);
        let mut sleep = boxed(&clock, SECOND);
        let waker = on_wake(move || {
            counter.fetch_add(1, Ordering::Relaxed);
        });
        assert!(poll_once(sleep.as_mut(), &waker).is_pending());
        drop((sleep, waker));
        assert_eq!(Arc::strong_count(&wakes), 1);
        clock.advance(2 * SECOND);
        assert_eq!(wakes.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn sleepers_are_woken_in_order_each_at_its_own_time() {
        let clock = Clock::manual();
        let start = clock.now();
        let (woken, seen) = mpsc::channel();
        let mut sleeps = Vec::new();
        for (name, seconds) in [("c", 3), ("a", 1), ("late", 9), ("b1", 2), ("b2", 2)] {
            let (woken, reader) = (woken.clone(), clock.clone());
            let mut sleep = boxed(&clock, seconds * SECOND);
            let waker = on_wake(move || {
                woken.send((name, reader.now().since(start).as_secs())).unwrap();
            });
            assert!(poll_once(sleep.as_mut(), &waker).is_pending());
            sleeps.push(sleep);
        }
        clock.advance(5 * SECOND);
        let seen: Vec<_> = seen.try_iter().collect();
        assert_eq!(seen, [("a", 1), ("b1", 2), ("b2", 2), ("c", 3)]);
        assert_eq!(clock.now().since(start), 5 * SECOND);
        assert_eq!(clock.sleepers(), 1);
    }

    #[test]
    fn a_waker_may_use_the_clock_and_move_it() {
        let clock = Clock::manual();
        let start = clock.now();
        let mover = clock.clone();
        let mut sleep = boxed(&clock, SECOND);
        let waker = on_wake(move || {
            assert_eq!(mover.sleepers(), 0);
            mover.advance(10 * SECOND);
        });
        assert!(poll_once(sleep.as_mut(), &waker).is_pending());
        clock.advance(2 * SECOND);
        assert_eq!(clock.now().since(start), 11 * SECOND, "never back to the smaller target");
    }

    #[test]
    fn the_next_step_is_the_nearest_deadline() {
        let clock = Clock::manual();
        let start = clock.now();
        let mut sleeps = [boxed(&clock, 7 * SECOND), boxed(&clock, 4 * SECOND)];
        for sleep in &mut sleeps {
            assert!(poll_once(sleep.as_mut(), Waker::noop()).is_pending());
        }
        assert!(clock.advance_to_next());
        assert_eq!(clock.now().since(start), 4 * SECOND);
        assert!(clock.advance_to_next());
        assert_eq!(clock.now().since(start), 7 * SECOND);
        assert!(!clock.advance_to_next());
        assert_eq!(clock.now().since(start), 7 * SECOND);
    }

    #[test]
    fn it_stops_short_of_never() {
        let clock = Clock::manual();
        let mut far = boxed(&clock, Duration::from_secs(500 * 365 * 24 * 3600));
        let mut never = boxed(&clock, Duration::MAX);
        assert!(poll_once(far.as_mut(), Waker::noop()).is_pending());
        clock.advance(Duration::MAX);
        clock.advance(Duration::MAX);
        assert_eq!(clock.now(), LAST);
        assert!(poll_once(far.as_mut(), Waker::noop()).is_ready());
        assert!(poll_once(never.as_mut(), Waker::noop()).is_pending());
    }

    #[test]
    fn the_date_moves_with_the_time() {
        let manual = Clock::manual();
        let clock = manual.clock();
        let year_2020 = SystemTime::UNIX_EPOCH + Duration::from_secs(1_577_836_800);
        assert_eq!(clock.wall(), year_2020);
        manual.advance(90 * SECOND);
        assert_eq!(clock.wall(), year_2020 + 90 * SECOND);

        let before = manual.now();
        manual.set_wall(SystemTime::UNIX_EPOCH);
        assert_eq!(clock.wall(), SystemTime::UNIX_EPOCH);
        assert_eq!(manual.now(), before);
        manual.advance(SECOND);
        assert_eq!(clock.wall(), SystemTime::UNIX_EPOCH + SECOND);
    }

    #[test]
    fn it_shows_its_time_and_sleepers() {
        let clock = Clock::manual();
        assert!(format!("{clock:?}").contains("sleepers: 0"));
    }
}
