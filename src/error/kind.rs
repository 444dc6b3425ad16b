//! Why a run ended without a result.

use std::fmt;
use std::time::Duration;

/// Why a run ended without a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// The operation ended with its own error, and nothing asked for another attempt.
    Failed,
    /// The operation's error was worth another attempt, but something was used up.
    Exhausted {
        /// What was used up.
        by: Limit,
    },
    /// A [`Timeout`](crate::Timeout) ended the attempt, or everything inside of it.
    TimedOut {
        /// The limit that was reached.
        limit: Duration,
    },
    /// The deadline of the caller's [`Context`](crate::Context) passed.
    DeadlineExceeded,
    /// The caller cancelled.
    Cancelled,
    /// A circuit breaker refused the call.
    CircuitOpen {
        /// How long until the breaker admits the next trial, if it is known.
        retry_after: Option<Duration>,
    },
    /// A rate limit refused the call, or a dependency asked for a pause.
    RateLimited {
        /// How long until the call would be admitted, if it is known.
        retry_after: Option<Duration>,
    },
    /// A bulkhead had no free permit.
    BulkheadFull {
        /// What did not help either.
        why: Full,
    },
    /// Load was shed.
    Overloaded,
    /// The executor was closed or shut down.
    ShutDown,
    /// A setting cannot work; nothing was started. [`Refusal::config`](super::Refusal::config) names it.
    Misconfigured,
}

/// What a run had used up when it gave up on an error that was worth another attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Limit {
    /// The number of attempts.
    Attempts,
    /// The time of `Retry::max_elapsed`.
    Elapsed,
    /// The time left until a deadline: the wait before the next attempt could not have ended in time.
    Deadline,
    /// The dependency asked for a longer pause than `Retry::max_retry_after` allows.
    RetryAfter,
    /// The retry budget.
    Budget,
}

/// Why a call could not wait for a permit of a full bulkhead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Full {
    /// Its queue was full too, or it has none.
    Queue,
    /// The call waited in its queue for as long as it may.
    Wait,
}

impl Kind {
    /// Its name in metrics and traces, without what it carries: "failed", "exhausted", "timed_out", "circuit_open" and so on.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Failed => "failed",
            Kind::Exhausted { .. } => "exhausted",
            Kind::TimedOut { .. } => "timed_out",
            Kind::DeadlineExceeded => "deadline_exceeded",
            Kind::Cancelled => "cancelled",
            Kind::CircuitOpen { .. } => "circuit_open",
            Kind::RateLimited { .. } => "rate_limited",
            Kind::BulkheadFull { .. } => "bulkhead_full",
            Kind::Overloaded => "overloaded",
            Kind::ShutDown => "shut_down",
            Kind::Misconfigured => "misconfigured",
        }
    }

    /// Whether a policy refused the call before the operation was started.
    #[must_use]
    pub fn is_rejection(self) -> bool {
        matches!(
            self,
            Kind::CircuitOpen { .. } | Kind::RateLimited { .. } | Kind::BulkheadFull { .. } | Kind::Overloaded
        )
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::Failed => f.write_str("failed"),
            Kind::Exhausted { by } => write!(f, "gave up: {by}"),
            Kind::TimedOut { limit } => write!(f, "timed out after {}", Seconds(*limit)),
            Kind::DeadlineExceeded => f.write_str("deadline exceeded"),
            Kind::Cancelled => f.write_str("cancelled"),
            Kind::CircuitOpen { retry_after: Some(wait) } => {
                write!(f, "circuit breaker open, next trial in {}", Seconds(*wait))
            }
            Kind::CircuitOpen { retry_after: None } => f.write_str("circuit breaker open"),
            Kind::RateLimited { retry_after: Some(wait) } => write!(f, "rate limited, free in {}", Seconds(*wait)),
            Kind::RateLimited { retry_after: None } => f.write_str("rate limited"),
            Kind::BulkheadFull { why: Full::Queue } => f.write_str("bulkhead full"),
            Kind::BulkheadFull { why: Full::Wait } => f.write_str("bulkhead full, waited too long"),
            Kind::Overloaded => f.write_str("overloaded"),
            Kind::ShutDown => f.write_str("shut down"),
            Kind::Misconfigured => f.write_str("misconfigured"),
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Limit::Attempts => "no attempts left",
            Limit::Elapsed => "no time left for another attempt",
            Limit::Deadline => "no time left before the deadline",
            Limit::RetryAfter => "the dependency asked for too long a pause",
            Limit::Budget => "the retry budget is used up",
        })
    }
}

/// A duration as a person reads it: `12.4 s`, `250 ms`, `900 ns`.
pub(super) struct Seconds(pub(super) Duration);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs_f64();
        if seconds >= 1.0 {
            write!(f, "{} s", (seconds * 10.0).round() / 10.0)
        } else if self.0.as_millis() > 0 {
            write!(f, "{} ms", self.0.as_millis())
        } else {
            write!(f, "{} ns", self.0.as_nanos())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_well() {
        assert_eq!(Seconds(Duration::from_millis(12_430)).to_string(), "12.4 s");
        assert_eq!(Seconds(Duration::from_secs(2)).to_string(), "2 s");
        assert_eq!(Seconds(Duration::from_millis(250)).to_string(), "250 ms");
        assert_eq!(Seconds(Duration::from_nanos(900)).to_string(), "900 ns");
    }
}
