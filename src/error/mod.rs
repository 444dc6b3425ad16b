//! One error for the whole chain: what the library says, and what the operation last said.

mod config;
mod kept;
mod kind;
mod name;
mod opaque;
mod refusal;
pub(crate) mod stopped;

use std::fmt;
use std::time::Duration;

pub use self::config::ConfigError;
use self::kept::Memo;
pub use self::kind::{Full, Kind, Limit};
pub use self::name::{MAX_NAMES, Name};
pub use self::opaque::{BoxError, Opaque};
pub use self::refusal::Refusal;
use self::stopped::Stopped;
use crate::verdict::{Classified, Ruling, Verdict};

/// Ends a run that has no result: says why, and keeps the last error of the operation if there was one.
///
/// Whatever a policy does to a call, its caller gets this one type. [`kind`](Error::kind) is for `match`,
/// [`last`](Error::last) is the operation's own error, `Display` is one line to act on:
///
/// ```text
/// billing: circuit breaker open, next trial in 12.4 s (after 2 attempts; last error: connection refused)
/// ```
///
/// That line has the text of the operation's own error, so [`source`](std::error::Error::source) is the cause of *that*: who
/// prints an error and its causes reads each text once. The operation's error itself is [`last`](Error::last).
///
/// # Into other errors
/// `?` takes an `Error<E>` into `anyhow::Error` and `Box<dyn Error + Send + Sync>` as it is, if `E` is a standard error;
/// [`boxed`](Error::boxed) does so for an `E` that is not one (`anyhow::Error`, `BoxError`, `String`);
/// [`flatten`](Error::flatten) gives a plain `E` that can say what a [`Refusal`] says.
///
/// ```
/// # use steadfast::{Context, Retry, error::{Kind, Limit}, try_do};
/// # let clock = steadfast::clock::Clock::manual();
/// # clock.block_on(async {
/// # let cx = Context::new().with_clock(&clock);
/// let run = try_do(&cx, |_| async { Err::<(), _>("no route to host") }, Retry::immediate().max_attempts(2));
/// let error = run.await.unwrap_err();
/// assert_eq!(error.kind(), Kind::Exhausted { by: Limit::Attempts });
/// assert_eq!(error.last(), Some(&"no route to host"));
/// assert_eq!(error.to_string(), "gave up: no attempts left (after 2 attempts; last error: no route to host)");
/// # });
/// ```
// One word: results of whole runs move through every layer of a chain, and a result of a word and an error of a word moves
// in two registers. A refusal costs an allocation for it.
pub struct Error<E>(Box<Inner<E>>);

struct Inner<E> {
    refusal: Refusal,
    /// What the run was worth, for a chain that has this whole run as its operation.
    ruling: Ruling,
    last: Option<E>,
    /// How many tries the run had made when it kept this error.
    at: u32,
    /// Why the run that keeps this error made no further attempt.
    stopped: Option<Stopped>,
    /// What few errors have.
    memo: Option<Box<Memo<E>>>,
}

impl<E> Inner<E> {
    /// Nobody has judged it, and so it is worth what any error is.
    const EMPTY: Inner<E> = Inner {
        refusal: Refusal::new(Kind::Failed),
        ruling: Ruling::TRANSIENT,
        last: None,
        at: 0,
        stopped: None,
        memo: None,
    };
}

impl<E> Error<E> {
    /// The operation ended with `error`.
    #[must_use]
    #[inline]
    pub fn failed(error: E) -> Error<E> {
        Error::new(Some(error))
    }

    /// The library, or a policy of yours, says `kind`; nothing is known of the operation.
    #[must_use]
    #[inline]
    pub fn refused(kind: Kind) -> Error<E> {
        let mut refused = Error::new(None);
        refused.set_kind(kind);
        refused
    }

    /// A setting cannot work.
    #[must_use]
    pub fn misconfigured(config: ConfigError) -> Error<E> {
        let mut error = Error::refused(Kind::Misconfigured);
        error.0.refusal.config = Some(Box::new(config));
        error
    }

    /// `last` is why the run ends.
    // Copied from a constant, and then written where it stands: one that is put together on the stack is copied in other
    // pieces than it was written in, which costs more than the allocation. For the same reason a kind is set afterwards.
    #[inline(never)]
    pub(crate) fn new(last: Option<E>) -> Error<E> {
        let mut inner = Box::new(Inner::EMPTY);
        inner.last = last;
        Error(inner)
    }

    /// Why the run ended.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.0.refusal.kind()
    }

    /// The last error of the operation, if there was one.
    #[must_use]
    pub fn last(&self) -> Option<&E> {
        self.0.last.as_ref()
    }

    /// The last error of the operation, by value.
    #[must_use]
    pub fn into_last(self) -> Option<E> {
        self.0.last
    }

    /// The errors that `Retry::keep_errors(n)` kept, oldest first, the last one included; none without it.
    pub fn history(&self) -> impl Iterator<Item = &E> {
        let history = self.0.memo.iter().filter_map(|memo| memo.history.as_ref());
        history.flat_map(|history| history.iter().chain(&self.0.last))
    }

    /// The error that a [`fallback`](crate::fallback()) was to replace, if this is the fallback's own.
    #[must_use]
    pub fn original(&self) -> Option<&Error<E>> {
        self.0.memo.as_ref()?.original.as_ref()
    }

    /// How many times the operation was started, hedges included.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.0.refusal.attempts()
    }

    /// The time from the run's first look at the clock to its end; zero if it never had to look.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.0.refusal.elapsed()
    }

    /// The name of the policy that refused if it has one, else of the executor.
    #[must_use]
    pub fn policy(&self) -> Option<&'static str> {
        self.0.refusal.policy()
    }

    /// How long to stay away: the time to the next trial or permit, or the pause that the dependency asked for and that
    /// was longer than `Retry::max_retry_after`.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.0.refusal.retry_after()
    }

    /// Whether a [`Timeout`](crate::Timeout) ended the run, or the deadline of its context did.
    #[must_use]
    pub fn is_timeout(&self) -> bool {
        matches!(self.kind(), Kind::TimedOut { .. } | Kind::DeadlineExceeded)
    }

    /// Whether the caller cancelled the run.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.kind() == Kind::Cancelled
    }

    /// Whether an open circuit breaker ended the run. Such an error is not permanent.
    #[must_use]
    pub fn is_circuit_open(&self) -> bool {
        matches!(self.kind(), Kind::CircuitOpen { .. })
    }

    /// Whether a limit ended a run whose last error was worth another attempt.
    #[must_use]
    pub fn is_exhausted(&self) -> bool {
        matches!(self.kind(), Kind::Exhausted { .. })
    }

    /// Whether a policy refused the call: breaker, rate limit, bulkhead, load shedding.
    #[must_use]
    pub fn is_rejection(&self) -> bool {
        self.kind().is_rejection()
    }

    /// What the library says, without the operation's error: `Clone`, `'static` and a standard error.
    #[must_use]
    pub fn refusal(&self) -> Refusal {
        self.0.refusal.clone()
    }

    /// The two halves: what the library says, and the last error of the operation.
    #[must_use]
    pub fn split(self) -> (Refusal, Option<E>) {
        let Inner { refusal, last, .. } = *self.0;
        (refusal, last)
    }

    /// An `E` alone: the operation's error if that is why the run ended, else what `E` makes of the [`Refusal`].
    ///
    /// ```
    /// # use steadfast::{Context, Refusal, Retry, try_do};
    /// #[derive(Debug)]
    /// enum AppError {
    ///     NotFound,
    ///     Unavailable(Refusal),
    /// }
    /// impl From<Refusal> for AppError {
    ///     fn from(refusal: Refusal) -> AppError {
    ///         AppError::Unavailable(refusal)
    ///     }
    /// }
    /// async fn user(cx: &Context) -> Result<String, AppError> {
    ///     let name = try_do(cx, |_| async { Err(AppError::NotFound) }, ()).await.map_err(|error| error.flatten())?;
    ///     Ok(name)
    /// }
    /// # let clock = steadfast::clock::Clock::manual();
    /// # clock.block_on(async {
    /// assert!(matches!(user(&Context::new().with_clock(&clock)).await, Err(AppError::NotFound)));
    /// # });
    /// ```
    #[must_use]
    pub fn flatten(self) -> E
    where
        E: From<Refusal>,
    {
        match self.split() {
            (refusal, Some(last)) if matches!(refusal.kind, Kind::Failed | Kind::Exhausted { .. }) => last,
            (refusal, _) => E::from(refusal),
        }
    }

    /// The same error, its operation's error as a standard error: for `?` where `E` is an `anyhow::Error`, a `BoxError`
    /// or a `String`.
    #[must_use]
    pub fn boxed(self) -> Error<Opaque>
    where
        E: Into<BoxError>,
    {
        self.map(|error| Opaque::new(error.into()))
    }

    /// The same error with the operation's errors changed by `f`.
    #[must_use]
    pub fn map<F>(self, mut f: impl FnMut(E) -> F) -> Error<F> {
        self.map_each(&mut f)
    }

    fn map_each<F>(self, f: &mut dyn FnMut(E) -> F) -> Error<F> {
        let Inner { refusal, ruling, last, at, stopped, memo } = *self.0;
        let memo = memo.map(|memo| memo.map_each(f));
        Error(Box::new(Inner { refusal, ruling, last: last.map(f), at, stopped, memo }))
    }
}

/// What the policies and the run write into an error on its way out.
impl<E> Error<E> {
    pub(crate) fn set_kind(&mut self, kind: Kind) {
        self.0.refusal.kind = kind;
    }

    pub(crate) fn set_retry_after(&mut self, wait: Duration) {
        self.0.refusal.asked = Some(wait);
    }

    /// Remembers the judgement, for a chain that has this whole run as its operation.
    pub(crate) fn set_ruling(&mut self, ruling: Ruling) {
        self.0.ruling = ruling;
    }

    pub(crate) fn set_attempts(&mut self, attempts: u32) {
        self.0.refusal.attempts = attempts;
    }

    /// Names the origin, unless something further inside has named itself.
    pub(crate) fn set_name(&mut self, name: Option<Name>) {
        let policy = &mut self.0.refusal.policy;
        *policy = policy.or(name);
    }

    pub(crate) fn set_elapsed(&mut self, elapsed: Duration) {
        self.0.refusal.elapsed = elapsed;
    }

    pub(crate) fn take_last(&mut self) -> Option<E> {
        self.0.last.take()
    }
}

/// For an operation that runs another chain: its refusals are `Rejected`, cancellation is `Ignored`, and everything else is
/// worth what it was worth there; `Transient` if nobody has judged it.
impl<E> Classified for Error<E> {
    fn verdict(&self) -> Verdict {
        match self.kind() {
            Kind::Failed | Kind::Exhausted { .. } | Kind::TimedOut { .. } => self.0.ruling.verdict(),
            Kind::Cancelled | Kind::DeadlineExceeded | Kind::ShutDown | Kind::Misconfigured => Verdict::Ignored,
            Kind::CircuitOpen { .. } | Kind::RateLimited { .. } | Kind::BulkheadFull { .. } | Kind::Overloaded => {
                Verdict::Rejected { retry_after: self.retry_after() }
            }
        }
    }
}

impl<E: fmt::Debug> fmt::Debug for Error<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { refusal, last, .. } = &*self.0;
        let mut fields = f.debug_struct("Error");
        fields.field("kind", &refusal.kind).field("attempts", &refusal.attempts).field("elapsed", &refusal.elapsed);
        if let Some(name) = refusal.policy {
            fields.field("policy", &name);
        }
        if let Some(config) = &refusal.config {
            fields.field("config", config);
        }
        fields.field("last", last).finish()
    }
}

impl<E: fmt::Display> fmt::Display for Error<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let refusal = &self.0.refusal;
        match (self.last(), self.kind()) {
            (Some(last), Kind::Failed) => {
                refusal.write_name(f)?;
                if self.original().is_some() {
                    f.write_str("the fallback failed too: ")?;
                }
                write!(f, "{last}")?;
                if self.attempts() > 1 { write!(f, " (after {} attempts)", self.attempts()) } else { Ok(()) }
            }
            (last, _) => refusal.write(f, last.map(|last| last as &dyn fmt::Display)),
        }
    }
}

/// The cause of the operation's own error, whose text `Display` shows already; of a fallback's error that which it was to
/// replace.
impl<E: std::error::Error + 'static> std::error::Error for Error<E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self.original() {
            Some(original) => Some(original),
            None => self.last().and_then(std::error::Error::source),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_stays_small() {
        assert_eq!(size_of::<Error<()>>(), size_of::<usize>());
        assert_eq!(size_of::<Error<[u8; 200]>>(), size_of::<usize>());
        assert_eq!(size_of::<Result<u64, Error<String>>>(), 16);
    }

    #[test]
    fn display_is_one_line_to_act_on() {
        let mut error = Error::refused(Kind::CircuitOpen { retry_after: Some(Duration::from_millis(12_400)) });
        error.set_attempts(2);
        error.set_name(Some(Name::new("billing").unwrap()));
        error.0.last = Some("connection refused");
        let line =
            "billing: circuit breaker open, next trial in 12.4 s (after 2 attempts; last error: connection refused)";
        assert_eq!(error.to_string(), line);
        assert_eq!(error.retry_after(), Some(Duration::from_millis(12_400)));
    }

    #[test]
    fn an_operations_own_error_speaks_for_itself() {
        let mut error = Error::failed("not found");
        error.set_attempts(1);
        assert_eq!(error.to_string(), "not found");
        error.set_attempts(3);
        assert_eq!(error.to_string(), "not found (after 3 attempts)");
    }

    #[test]
    fn an_error_of_a_chain_knows_its_verdict() {
        let open = Error::<()>::refused(Kind::CircuitOpen { retry_after: Some(Duration::from_secs(3)) });
        assert_eq!(open.verdict(), Verdict::Rejected { retry_after: Some(Duration::from_secs(3)) });
        assert_eq!(Error::<()>::refused(Kind::Cancelled).verdict(), Verdict::Ignored);
        let mut failed = Error::failed("no");
        assert_eq!(failed.verdict(), Verdict::Transient);
        for verdict in [Verdict::Fatal, Verdict::Permanent, Verdict::Ignored, Verdict::Throttled { retry_after: None }]
        {
            failed.set_ruling(Ruling::of(verdict));
            assert_eq!(failed.verdict(), verdict);
        }
    }

    #[test]
    fn the_first_name_stays() {
        let (inner, outer) = (Name::new("shard-7").unwrap(), Name::new("billing").unwrap());
        let mut error = Error::<()>::refused(Kind::Overloaded);
        error.set_name(None);
        error.set_name(Some(inner));
        error.set_name(Some(outer));
        assert_eq!(error.policy(), Some("shard-7"));
    }

    #[test]
    fn history_includes_the_last_error_and_is_empty_unless_kept() {
        let mut error = Error::failed(3);
        assert_eq!(error.history().count(), 0);
        let mut kept = None;
        for (at, error) in [1, 2].into_iter().enumerate() {
            let _not_kept = Error::take_over(&mut kept, Some(Error::failed(error)), at as u32, 3);
        }
        error.attach(kept.unwrap().take_kept());
        assert_eq!(error.history().copied().collect::<Vec<_>>(), [1, 2, 3]);
        assert_eq!(error.into_last(), Some(3));
    }
}
