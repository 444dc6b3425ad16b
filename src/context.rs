//! What the caller brings to a run.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::attempt::Attempt;
use crate::clock::{Clock, Deadline, Moment};
use crate::rng::Rng;

/// What a caller brings to a run: a deadline, a token to cancel it with, limits for this call alone, a key, a priority.
///
/// A plain context allocates nothing; clones are cheap. One context serves any number of runs.
///
/// ```
/// use std::time::Duration;
/// use steadfast::{CancellationToken, Context};
///
/// let token = CancellationToken::new();
/// let cx = Context::new().with_timeout(Duration::from_secs(10)).with_token(token.clone());
/// assert!(cx.remaining().unwrap() <= Duration::from_secs(10));
/// ```
#[derive(Clone, Debug)]
pub struct Context {
    clock: Clock,
    /// On `clock`; `NEVER` without a deadline.
    deadline: Moment,
    max_attempts: Option<u32>,
    priority: Priority,
    more: Option<Arc<More>>,
}

/// What few contexts carry.
#[derive(Clone, Debug, Default)]
struct More {
    token: Option<CancellationToken>,
    key: Option<Arc<str>>,
    rng: Option<Rng>,
}

/// How much a call matters when load has to be shed. The default is `Normal`.
///
/// No policy of this crate sheds load by priority yet; custom policies read it with
/// [`Call::context`](crate::policy::Call::context).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Priority {
    /// Work that nobody waits for.
    Background,
    /// Work that can be asked for again later.
    Low,
    /// The usual.
    #[default]
    Normal,
    /// A person waits for it.
    High,
    /// Without it the service does not work.
    Critical,
}

impl Context {
    /// A context that asks for nothing: no deadline, no token.
    #[must_use]
    pub const fn new() -> Context {
        Context {
            clock: Clock::tokio(),
            deadline: Moment::NEVER,
            max_attempts: None,
            priority: Priority::Normal,
            more: None,
        }
    }

    /// Measures with `clock` from now on; a deadline that is there already keeps what is left of it. An executor uses its
    /// own clock and carries the deadline over in the same way.
    #[must_use]
    pub fn with_clock(mut self, clock: impl Into<Clock>) -> Context {
        let clock = clock.into();
        self.deadline = self.deadline_on(&clock);
        self.clock = clock;
        self
    }

    /// Ends every run at most `limit` from now; an earlier deadline stays. `Duration::MAX` means never.
    #[must_use]
    pub fn with_timeout(mut self, limit: Duration) -> Context {
        if limit != Duration::MAX {
            self.deadline = self.deadline.min(self.clock.now() + limit);
        }
        self
    }

    /// Ends every run at `deadline`; an earlier deadline stays. One of another clock counts as "so much is left".
    #[must_use]
    pub fn with_deadline(mut self, deadline: &Deadline) -> Context {
        self.deadline = self.deadline.min(carry_over(deadline.clock(), deadline.at(), &self.clock));
        self
    }

    /// Ends every run when `token` is cancelled.
    #[must_use]
    pub fn with_token(mut self, token: CancellationToken) -> Context {
        self.more_mut().token = Some(token);
        self
    }

    /// Names what the call is about (a host, a shard, a tenant) for keyed policies.
    #[must_use]
    pub fn with_key(mut self, key: impl Into<Arc<str>>) -> Context {
        self.more_mut().key = Some(key.into());
        self
    }

    /// Says how much the call matters. Default: [`Priority::Normal`].
    #[must_use]
    pub fn with_priority(mut self, priority: Priority) -> Context {
        self.priority = priority;
        self
    }

    /// Allows at most `n` attempts, the first one included; the stricter of this and `Retry::max_attempts` wins. A run with
    /// a context that allows none ends with [`Kind::Misconfigured`](crate::error::Kind::Misconfigured). Lanes of a
    /// [`Hedge`](crate::Hedge) count too, also those that have waited for a limit inside of it: one for which no attempt is left by
    /// then is refused.
    #[must_use]
    pub fn with_max_attempts(mut self, n: u32) -> Context {
        self.max_attempts = Some(n);
        self
    }

    /// Allows one attempt: no retry, no hedge. For an operation that must not be sent twice.
    #[must_use]
    pub fn once(self) -> Context {
        self.with_max_attempts(1)
    }

    /// Draws the jitter of every run from a source seeded with `seed`; clones share the source and do not repeat each
    /// other. An executor with a seed of its own keeps that.
    #[must_use]
    pub fn with_seed(mut self, seed: u64) -> Context {
        self.more_mut().rng = Some(Rng::seeded(seed));
        self
    }

    /// This context for calls made inside an attempt: its deadline is the attempt's, if that is earlier.
    #[must_use]
    pub fn for_attempt(&self, attempt: &Attempt) -> Context {
        match attempt.deadline() {
            Some(deadline) => self.clone().with_deadline(&deadline),
            None => self.clone(),
        }
    }

    /// The clock that its deadline is measured with.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// The deadline, if there is one.
    #[must_use]
    pub fn deadline(&self) -> Option<Deadline> {
        (!self.deadline.is_never()).then(|| Deadline::new(self.clock.clone(), self.deadline))
    }

    /// What is left until the deadline, zero if it has passed; `None` without one.
    #[must_use]
    pub fn remaining(&self) -> Option<Duration> {
        self.deadline().map(|deadline| deadline.remaining())
    }

    /// The caller's token, if there is one.
    #[must_use]
    pub fn token(&self) -> Option<&CancellationToken> {
        self.more.as_ref()?.token.as_ref()
    }

    /// What the call is about, for keyed policies.
    #[must_use]
    pub fn key(&self) -> Option<&str> {
        self.more.as_ref()?.key.as_deref()
    }

    /// How much the call matters.
    #[must_use]
    pub fn priority(&self) -> Priority {
        self.priority
    }

    /// The most attempts that the caller allows, if it said so.
    #[must_use]
    pub fn max_attempts(&self) -> Option<u32> {
        self.max_attempts
    }

    /// Whether it asks for nothing that a run has to look after.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        !self.has_more() && self.deadline.is_never() && self.max_attempts.is_none()
    }

    /// Whether it carries what few contexts do, a token among them.
    #[inline]
    pub(crate) fn has_more(&self) -> bool {
        self.more.is_some()
    }

    pub(crate) fn rng(&self) -> Option<&Rng> {
        self.more.as_ref()?.rng.as_ref()
    }

    /// The deadline as a moment of `clock`.
    #[inline]
    pub(crate) fn deadline_on(&self, clock: &Clock) -> Moment {
        if self.deadline.is_never() { self.deadline } else { carry_over(&self.clock, self.deadline, clock) }
    }

    fn more_mut(&mut self) -> &mut More {
        Arc::make_mut(self.more.get_or_insert_default())
    }
}

impl Default for Context {
    fn default() -> Context {
        Context::new()
    }
}

/// What is left until `at` on one clock, as a moment of another: clocks have no common origin.
fn carry_over(from: &Clock, at: Moment, to: &Clock) -> Moment {
    if at.is_never() || from == to { at } else { to.now() + at.since(from.now()) }
}
