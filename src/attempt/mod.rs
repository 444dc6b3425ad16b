//! One try, as the operation sees it.

mod which;

use std::fmt;
use std::time::Duration;

pub(crate) use self::which::{COUNTED, JUDGED, PLAIN, STREAMS, TRIAL, Which};
use crate::clock::{Clock, Deadline, Moment};

/// One try, as the operation sees it: which it is, and how long it may take.
///
/// It is owned and stays true wherever it is moved to. Making one touches no shared memory.
///
/// ```
/// # use steadfast::{Context, Retry, Timeout, try_do};
/// # use std::time::Duration;
/// # let clock = steadfast::clock::Clock::manual();
/// # clock.block_on(async {
/// # let cx = Context::new().with_clock(&clock);
/// let policies = (Retry::immediate(), Timeout::secs(2));
/// let tries = try_do(&cx, |attempt| async move {
///     assert_eq!(attempt.remaining(), Some(Duration::from_secs(2)));
///     if attempt.is_retry() { Ok(attempt.number()) } else { Err("not the first time") }
/// }, policies).await;
/// assert_eq!(tries.unwrap(), 2);
/// # });
/// ```
#[derive(Clone)]
pub struct Attempt {
    clock: Clock,
    /// The nearest enclosing limit, on `clock`; `NEVER` if there is none.
    deadline: Moment,
    which: Which,
}

impl Attempt {
    #[inline]
    pub(crate) fn new(clock: &Clock, deadline: Moment, which: Which) -> Attempt {
        Attempt { clock: clock.clone(), deadline, which }
    }

    /// The same try on a clock that is the same, but may sleep in another way.
    pub(crate) fn on(self, clock: &Clock) -> Attempt {
        Attempt { clock: clock.clone(), ..self }
    }

    /// Which try of the run this is, from 1. A hedge has the number of the try that it hedges.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.which.number()
    }

    /// Which lane of a hedged try this is: 0 for the first, 1 for the first hedge.
    #[must_use]
    pub fn hedge(&self) -> u32 {
        self.which.lane()
    }

    /// Whether the operation was tried before in this run.
    #[must_use]
    pub fn is_retry(&self) -> bool {
        self.number() > 1
    }

    /// Whether this is a hedge of a try that is still running.
    #[must_use]
    pub fn is_hedge(&self) -> bool {
        self.hedge() > 0
    }

    /// When the nearest enclosing limit (a [`Timeout`](crate::Timeout), the deadline of the context) ends this try, for
    /// passing on; `None` without a limit.
    #[must_use]
    pub fn deadline(&self) -> Option<Deadline> {
        (!self.deadline.is_never()).then(|| Deadline::new(self.clock.clone(), self.deadline))
    }

    /// What is left until [`deadline`](Attempt::deadline), zero if it has passed; `None` without a limit. Reads the clock.
    #[must_use]
    pub fn remaining(&self) -> Option<Duration> {
        self.deadline().map(|deadline| deadline.remaining())
    }
}

impl fmt::Debug for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attempt")
            .field("number", &self.number())
            .field("hedge", &self.hedge())
            .field("deadline", &self.deadline())
            .finish_non_exhaustive()
    }
}
