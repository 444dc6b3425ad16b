use std::time::{Duration, Instant};

use super::{Clock, Moment, system};

/// The moment by which something has to be done, together with the clock that it is on.
///
/// A deadline only tells: it stops nothing by itself. It can be handed on to a client or a server
/// that takes a timeout ([`remaining`](Deadline::remaining)) or an instant
/// ([`instant`](Deadline::instant)).
#[derive(Clone, Debug)]
pub struct Deadline {
    clock: Clock,
    at: Moment,
}

impl Deadline {
    pub(crate) fn new(clock: Clock, at: Moment) -> Deadline {
        Deadline { clock, at }
    }

    /// The moment itself, on [`clock`](Deadline::clock); [`Moment::NEVER`] if there is no end.
    #[must_use]
    pub fn at(&self) -> Moment {
        self.at
    }

    /// The clock that the deadline is on.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// The time left: zero when the deadline has passed, `Duration::MAX` if there is no end.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.at.since(self.clock.now())
    }

    /// Whether the deadline has been reached.
    #[must_use]
    pub fn has_passed(&self) -> bool {
        self.clock.now() >= self.at
    }

    /// The deadline as an [`Instant`], for interfaces that want one: the present instant, as tokio
    /// has it, and the time left. A deadline more than 30 years away, or none, gives one in 30
    /// years.
    ///
    /// On a manual or custom clock the result holds only as long as that clock stands still.
    #[must_use]
    pub fn instant(&self) -> Instant {
        system::instant().into_std() + self.remaining().min(FAR)
    }
}

/// Far enough to be no limit, near enough for every platform's `Instant`. Tokio takes as much.
const FAR: Duration = Duration::from_secs(30 * 365 * 24 * 60 * 60);

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn it_counts_down_to_zero_and_stays_there() {
        let clock = Clock::manual();
        let deadline = Deadline::new(clock.clock(), clock.now() + 3 * SECOND);
        assert_eq!(deadline.remaining(), 3 * SECOND);

        clock.advance(2 * SECOND);
        assert_eq!(deadline.remaining(), SECOND);
        assert!(!deadline.has_passed());

        clock.advance(SECOND);
        assert_eq!(deadline.remaining(), Duration::ZERO);
        assert!(deadline.has_passed());

        clock.advance(SECOND);
        assert_eq!(deadline.remaining(), Duration::ZERO);
        assert!(deadline.has_passed());
    }

    #[test]
    fn it_knows_its_clock_and_moment() {
        let clock = Clock::manual();
        let at = clock.now() + SECOND;
        let deadline = Deadline::new(clock.clock(), at);
        assert_eq!(deadline.clock(), &clock.clock());
        assert_eq!(deadline.at(), at);
    }

    #[test]
    fn never_does_not_pass() {
        let clock = Clock::manual();
        let deadline = Deadline::new(clock.clock(), Moment::NEVER);
        clock.advance(Duration::MAX);
        assert_eq!(deadline.remaining(), Duration::MAX);
        assert!(!deadline.has_passed());
        assert!(deadline.instant() > system::instant().into_std());
    }

    #[tokio::test(start_paused = true)]
    async fn its_instant_is_the_time_left_from_tokios_now() {
        let clock = Clock::tokio();
        let deadline = Deadline::new(clock.clone(), clock.now() + 3 * SECOND);
        let instant = system::instant().into_std();
        assert_eq!(deadline.instant(), instant + 3 * SECOND);

        tokio::time::advance(5 * SECOND).await;
        assert_eq!(deadline.instant(), instant + 5 * SECOND);
    }
}
