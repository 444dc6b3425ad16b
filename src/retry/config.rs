//! The settings of a retry.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::backoff::{Backoff, DEFAULT_BASE, DEFAULT_CAP, DEFAULT_FACTOR, Schedule};
use super::jitter::Jitter;
use crate::error::ConfigError;
use crate::policy::{Settings, Site};
use crate::snapshot::{PolicySnapshot, RetrySnapshot};
use crate::verdict::Verdict;

/// Runs what is inside of it again if the outcome is worth it, after a growing wait with jitter.
///
/// Outcomes judged `Transient` are tried again after the backoff, `Throttled` ones after the time that the dependency asked
/// for; all else is handed on. Nothing is begun in vain: a wait that could not end before the nearest deadline ends the run
/// at once, with the operation's last error. The error of every failed attempt is kept until the next one, and whatever
/// ends the run carries it.
///
/// | setting | default | |
/// |---|---|---|
/// | [`max_attempts`](Retry::max_attempts) | 3 | the first attempt counts |
/// | backoff | 200 ms, doubled each time | [`exponential`](Retry::exponential) and its siblings |
/// | [`cap`](Retry::cap) | 30 s | the last word on a wait |
/// | [`jitter`](Retry::jitter) | `Full` | downwards from the capped wait |
/// | [`max_elapsed`](Retry::max_elapsed) | none | calls and waits |
/// | [`max_retry_after`](Retry::max_retry_after) | 30 s, then stop | for pauses that the dependency asks for |
/// | [`on_rejection`](Retry::on_rejection) | `Stop` | an open circuit inside ends the run |
///
/// ```
/// # use steadfast::{Clock, Context, Retry, retry::Jitter, try_do};
/// # use std::time::Duration;
/// # let clock = Clock::manual();
/// # clock.block_on(async {
/// # let cx = Context::new().with_clock(&clock);
/// let retry = Retry::exponential().base(Duration::from_millis(100)).jitter(Jitter::None).max_attempts(4);
/// let begun = clock.now();
/// let result = try_do(&cx, |attempt| async move {
///     if attempt.number() < 4 { Err("not yet") } else { Ok("done") }
/// }, retry).await;
/// assert_eq!(result.unwrap(), "done");
/// assert_eq!(clock.now().since(begun), Duration::from_millis(100 + 200 + 400));
/// # });
/// ```
#[derive(Clone)]
#[must_use = "a policy does nothing until it is part of a chain"]
pub struct Retry {
    pub(super) schedule: Schedule,
    /// `None` is unlimited.
    pub(super) max_attempts: Option<u32>,
    /// `MAX` is unlimited.
    pub(super) max_elapsed: Duration,
    pub(super) max_retry_after: Duration,
    pub(super) on_long_wait: OnLongWait,
    pub(super) on_rejection: OnRejection,
    pub(super) keep_errors: usize,
    pub(super) on_retry: Option<OnRetry>,
    /// A setting that the kind of backoff does not have. Boxed: nearly no retry has one, and a run of a standard chain holds a retry.
    pub(super) misplaced: Option<Box<ConfigError>>,
}

type OnRetry = Arc<dyn Fn(&RetryEvent<'_>) + Send + Sync>;

/// What to do when a dependency asks for a longer pause than [`Retry::max_retry_after`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum OnLongWait {
    /// End the run with the outcome; the pause that was asked for is readable from the error. The default: coming back
    /// earlier than asked is what the dependency is trying to prevent.
    #[default]
    Stop,
    /// Wait for `max_retry_after`, and no longer.
    Cap,
}

/// What to do when a policy inside of the retry refuses the call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum OnRejection {
    /// End the run: the refusal is there to keep calls away. The default.
    #[default]
    Stop,
    /// Wait for as long as the policy says plus up to a tenth, or for one backoff if it does not say, and try again.
    Wait,
}

/// What a listener of [`Retry::on_retry`] learns.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct RetryEvent<'a> {
    /// The number of the try that has ended, from 1.
    pub attempt: u32,
    /// The wait before the next one.
    pub delay: Duration,
    /// The judgement on the try.
    pub verdict: Verdict,
    /// The time since the run's first look at the clock.
    pub elapsed: Duration,
    /// The operation's error; `None` for a bad value, a timeout or a rejection.
    pub error: Option<&'a dyn fmt::Debug>,
}

impl Retry {
    /// Waits 200 ms before the first retry and twice as long before each further one, up to 30 s, with full jitter.
    pub fn exponential() -> Retry {
        Retry::new(Backoff::Exponential { factor: DEFAULT_FACTOR }, Jitter::Full)
    }

    /// Waits for the same time before every retry, without jitter.
    pub fn fixed(wait: Duration) -> Retry {
        Retry::new(Backoff::Fixed, Jitter::None).base(wait).cap(DEFAULT_CAP.max(wait))
    }

    /// Waits for `step` before the first retry and `step` longer before each further one, up to 30 s, with full jitter.
    pub fn linear(step: Duration) -> Retry {
        Retry::new(Backoff::Linear, Jitter::Full).base(step)
    }

    /// Waits `base` times 1, 1, 2, 3, 5, 8 and so on, up to 30 s, with full jitter.
    pub fn fibonacci(base: Duration) -> Retry {
        Retry::new(Backoff::Fibonacci, Jitter::Full).base(base)
    }

    /// Waits for a random time between 200 ms and three times the wait before, up to 30 s: `U(base, min(cap, 3 * last))`,
    /// the decorrelated jitter of the AWS Architecture Blog ("Exponential Backoff And Jitter").
    pub fn decorrelated() -> Retry {
        Retry::new(Backoff::Fixed, Jitter::Decorrelated)
    }

    /// Retries at once. Without a wait several clients hit a dependency that is in trouble in step; prefer another one
    /// for anything that is shared. An operation that never waits itself then keeps its thread for all of its attempts.
    pub fn immediate() -> Retry {
        Retry::new(Backoff::Immediate, Jitter::None)
    }

    /// Waits for what `wait` says before retry `n` (1 is the first), given the verdict on the try before; the cap still
    /// holds. It has no part in the judgement. A panic in it reaches the caller.
    pub fn custom(wait: impl Fn(u32, &Verdict) -> Duration + Send + Sync + 'static) -> Retry {
        Retry::new(Backoff::Custom(Arc::new(wait)), Jitter::None)
    }

    fn new(backoff: Backoff, jitter: Jitter) -> Retry {
        Retry {
            schedule: Schedule { backoff, base: DEFAULT_BASE, cap: DEFAULT_CAP, jitter, max_jitter: None },
            max_attempts: Some(DEFAULT_MAX_ATTEMPTS),
            max_elapsed: Duration::MAX,
            max_retry_after: DEFAULT_MAX_RETRY_AFTER,
            on_long_wait: OnLongWait::default(),
            on_rejection: OnRejection::default(),
            keep_errors: 0,
            on_retry: None,
            misplaced: None,
        }
    }

    /// The wait before the first retry, before jitter. Default: 200 ms. Must not exceed the cap.
    pub fn base(mut self, base: Duration) -> Retry {
        self.schedule.base = base;
        self
    }

    /// What each wait of an exponential backoff is multiplied with. Default: 2. At least 1; [`check`](Retry::check) refuses one for another
    /// backoff.
    pub fn factor(mut self, factor: f64) -> Retry {
        match &mut self.schedule.backoff {
            Backoff::Exponential { factor: current } => *current = factor,
            _ => {
                let refused = ConfigError::new("factor", factor, "only an exponential backoff has a factor");
                self.misplaced = Some(Box::new(refused));
            }
        }
        self
    }

    /// The longest wait; jitter only makes waits shorter. Default: 30 s. `Duration::MAX` is no cap.
    pub fn cap(mut self, cap: Duration) -> Retry {
        self.schedule.cap = cap;
        self
    }

    /// How waits are spread. Default: [`Jitter::Full`], but none for `fixed`, `immediate` and `custom`.
    pub fn jitter(mut self, jitter: Jitter) -> Retry {
        self.schedule.jitter = jitter;
        self
    }

    /// The most that jitter may take away from a wait. Default: no limit.
    pub fn max_jitter(mut self, most: Duration) -> Retry {
        self.schedule.max_jitter = Some(most);
        self
    }

    /// The most attempts, the first one included. Default: 3. At least 1.
    pub fn max_attempts(mut self, n: u32) -> Retry {
        self.max_attempts = Some(n);
        self
    }

    /// Tries until something else ends the run: a deadline, a token, [`max_elapsed`](Retry::max_elapsed).
    pub fn unlimited(mut self) -> Retry {
        self.max_attempts = None;
        self
    }

    /// The time, from the start of the first attempt, after which no attempt starts; calls and waits count. A wait that
    /// would cross it is not begun, but an attempt that runs is not cut off: put a [`Timeout`](crate::Timeout) around for
    /// that. Default: no limit. Longer than zero.
    pub fn max_elapsed(mut self, limit: Duration) -> Retry {
        self.max_elapsed = limit;
        self
    }

    /// The longest pause that a dependency may ask for. Default: 30 s. `Duration::MAX` is no limit.
    pub fn max_retry_after(mut self, limit: Duration) -> Retry {
        self.max_retry_after = limit;
        self
    }

    /// What to do if it asks for a longer one. Default: [`OnLongWait::Stop`].
    pub fn on_long_wait(mut self, what: OnLongWait) -> Retry {
        self.on_long_wait = what;
        self
    }

    /// What to do if a policy inside refuses the call. Default: [`OnRejection::Stop`].
    pub fn on_rejection(mut self, what: OnRejection) -> Retry {
        self.on_rejection = what;
        self
    }

    /// Keeps the last `n` errors of a run for [`Error::history`](crate::Error::history). Default: 0, memory stays flat.
    pub fn keep_errors(mut self, n: usize) -> Retry {
        self.keep_errors = n;
        self
    }

    /// Tells `listener` of every retry, before its wait. A panic in it is reported by the panic hook and otherwise ignored.
    pub fn on_retry(mut self, listener: impl Fn(&RetryEvent<'_>) + Send + Sync + 'static) -> Retry {
        self.on_retry = Some(Arc::new(listener));
        self
    }

    /// Its settings, as data for operators.
    #[must_use]
    pub fn snapshot(&self) -> RetrySnapshot {
        let Schedule { backoff, base, cap, .. } = &self.schedule;
        RetrySnapshot {
            max_attempts: self.max_attempts,
            backoff: backoff.name(),
            base: *base,
            cap: *cap,
            max_elapsed: self.max_elapsed,
        }
    }

    /// Refuses settings that cannot work.
    ///
    /// # Errors
    /// If there are no attempts or no time, if the base exceeds the cap, or if a factor is not a number in its range.
    pub fn check(&self) -> Result<(), ConfigError> {
        if self.max_attempts == Some(0) {
            return Err(ConfigError::new("max_attempts", 0, "must be at least 1"));
        }
        if self.max_elapsed.is_zero() {
            return Err(ConfigError::new("max_elapsed", "0 s", "must be longer than zero"));
        }
        self.misplaced.as_deref().cloned().map_or(Ok(()), Err)?;
        self.schedule.check()
    }
}

impl Settings for Retry {
    fn validate(&self, site: &mut Site<'_>) -> Result<(), ConfigError> {
        site.reads_verdicts("Retry")?;
        self.check()
    }

    /// Every attempt as long as it may be, with the longest waits between them. The wait that a refusal names has no bound.
    fn limit(&self, inner: Option<Duration>) -> Option<Duration> {
        let attempt = inner?;
        let pause = self.schedule.cap.max(self.max_retry_after);
        let by_elapsed = self.max_elapsed.saturating_add(attempt);
        let bounded = self.max_attempts.filter(|_| self.on_rejection == OnRejection::Stop);
        let by_attempts = bounded.map_or(Duration::MAX, |n| {
            attempt.saturating_mul(n).saturating_add(pause.saturating_mul(n.saturating_sub(1)))
        });
        Some(by_elapsed.min(by_attempts)).filter(|limit| *limit != Duration::MAX)
    }

    fn snapshots(&self, all: &mut Vec<PolicySnapshot>) {
        all.push(PolicySnapshot::Retry(self.snapshot()));
    }
}

impl fmt::Debug for Retry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Retry")
            .field("schedule", &self.schedule)
            .field("max_attempts", &self.max_attempts)
            .field("max_elapsed", &self.max_elapsed)
            .field("max_retry_after", &self.max_retry_after)
            .field("on_long_wait", &self.on_long_wait)
            .field("on_rejection", &self.on_rejection)
            .field("keep_errors", &self.keep_errors)
            .finish_non_exhaustive()
    }
}

/// Three attempts in all: a retry rarely helps after the second failure, and each one is load on a dependency in trouble.
pub const DEFAULT_MAX_ATTEMPTS: u32 = 3;

/// Half a minute is what a caller that waits will bear; a longer pause is better known to it than slept through.
pub const DEFAULT_MAX_RETRY_AFTER: Duration = Duration::from_secs(30);
