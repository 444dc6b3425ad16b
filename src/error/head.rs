//! The part of an error that fits into two words.

use std::time::Duration;

use super::kind::{Full, Kind, Limit};

/// A [`Kind`], packed, and the number of attempts.
pub(super) struct Head {
    /// Nanoseconds of a limit or a wait; [`NO_WAIT`] if there is none.
    wait: u64,
    pub(super) attempts: u32,
    code: Code,
}

/// [`Kind`] without its durations. The tag of an `Option` or `Result` around an error is kept in here, and results are
/// moved through every layer of a chain: with half a word, and no padding beside it, they move as whole words.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
enum Code {
    Failed,
    /// `Failed`, and judged not to be worth another attempt.
    FailedForGood,
    NoAttemptsLeft,
    NoTimeLeft,
    NoTimeBeforeDeadline,
    TooLongAPause,
    NoBudgetLeft,
    TimedOut,
    DeadlineExceeded,
    Cancelled,
    CircuitOpen,
    RateLimited,
    QueueFull,
    WaitedTooLong,
    Overloaded,
    ShutDown,
    Misconfigured,
}

impl Head {
    pub(super) fn new(kind: Kind) -> Head {
        let mut head = Head { wait: NO_WAIT, attempts: 0, code: Code::Failed };
        head.set_kind(kind);
        head
    }

    /// Changes the kind; a kind without a duration of its own keeps the wait that is there.
    pub(super) fn set_kind(&mut self, kind: Kind) {
        let (code, wait) = match kind {
            Kind::Failed => (Code::Failed, None),
            Kind::Exhausted { by: Limit::Attempts } => (Code::NoAttemptsLeft, None),
            Kind::Exhausted { by: Limit::Elapsed } => (Code::NoTimeLeft, None),
            Kind::Exhausted { by: Limit::Deadline } => (Code::NoTimeBeforeDeadline, None),
            Kind::Exhausted { by: Limit::RetryAfter } => (Code::TooLongAPause, None),
            Kind::Exhausted { by: Limit::Budget } => (Code::NoBudgetLeft, None),
            Kind::TimedOut { limit } => (Code::TimedOut, Some(limit)),
            Kind::DeadlineExceeded => (Code::DeadlineExceeded, None),
            Kind::Cancelled => (Code::Cancelled, None),
            Kind::CircuitOpen { retry_after } => (Code::CircuitOpen, retry_after),
            Kind::RateLimited { retry_after } => (Code::RateLimited, retry_after),
            Kind::BulkheadFull { why: Full::Queue } => (Code::QueueFull, None),
            Kind::BulkheadFull { why: Full::Wait } => (Code::WaitedTooLong, None),
            Kind::Overloaded => (Code::Overloaded, None),
            Kind::ShutDown => (Code::ShutDown, None),
            Kind::Misconfigured => (Code::Misconfigured, None),
        };
        self.code = code;
        if let Some(wait) = wait {
            self.set_wait(wait);
        }
    }

    pub(super) fn kind(&self) -> Kind {
        let retry_after = self.wait();
        match self.code {
            Code::Failed | Code::FailedForGood => Kind::Failed,
            Code::NoAttemptsLeft => Kind::Exhausted { by: Limit::Attempts },
            Code::NoTimeLeft => Kind::Exhausted { by: Limit::Elapsed },
            Code::NoTimeBeforeDeadline => Kind::Exhausted { by: Limit::Deadline },
            Code::TooLongAPause => Kind::Exhausted { by: Limit::RetryAfter },
            Code::NoBudgetLeft => Kind::Exhausted { by: Limit::Budget },
            Code::TimedOut => Kind::TimedOut { limit: retry_after.unwrap_or(Duration::MAX) },
            Code::DeadlineExceeded => Kind::DeadlineExceeded,
            Code::Cancelled => Kind::Cancelled,
            Code::CircuitOpen => Kind::CircuitOpen { retry_after },
            Code::RateLimited => Kind::RateLimited { retry_after },
            Code::QueueFull => Kind::BulkheadFull { why: Full::Queue },
            Code::WaitedTooLong => Kind::BulkheadFull { why: Full::Wait },
            Code::Overloaded => Kind::Overloaded,
            Code::ShutDown => Kind::ShutDown,
            Code::Misconfigured => Kind::Misconfigured,
        }
    }

    /// Remembers that an operation's own error was judged not to be worth another attempt.
    pub(super) fn set_final(&mut self) {
        if self.code == Code::Failed {
            self.code = Code::FailedForGood;
        }
    }

    pub(super) fn is_final(&self) -> bool {
        self.code == Code::FailedForGood
    }

    pub(super) fn set_wait(&mut self, wait: Duration) {
        self.wait = u64::try_from(wait.as_nanos()).map_or(NO_WAIT - 1, |nanos| nanos.min(NO_WAIT - 1));
    }

    /// How long to stay away; the limit of a timeout is not that.
    pub(super) fn retry_after(&self) -> Option<Duration> {
        self.wait().filter(|_| self.code != Code::TimedOut)
    }

    fn wait(&self) -> Option<Duration> {
        (self.wait != NO_WAIT).then(|| Duration::from_nanos(self.wait))
    }
}

const NO_WAIT: u64 = u64::MAX;
