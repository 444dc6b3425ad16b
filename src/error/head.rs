//! The part of an error that fits into two words.

use std::time::Duration;

use super::kind::{Full, Kind, Limit};

/// A [`Kind`], packed, and the number of attempts.
pub(super) struct Head {
    /// Nanoseconds of a limit or a wait; [`NO_WAIT`] if there is none.
    wait: u64,
    pub(super) attempts: u32,
    /// Whether the operation's error was judged not to be worth another attempt.
    pub(super) finally: bool,
    code: Code,
}

/// [`Kind`] without its durations, so that an `Option` or `Result` around an error finds room for its tag.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Code {
    Failed,
    Exhausted(Limit),
    TimedOut,
    DeadlineExceeded,
    Cancelled,
    CircuitOpen,
    RateLimited,
    BulkheadFull(Full),
    Overloaded,
    ShutDown,
    Misconfigured,
}

impl Head {
    pub(super) fn new(kind: Kind) -> Head {
        let mut head = Head {
            wait: NO_WAIT,
            attempts: 0,
            finally: false,
            code: Code::Failed,
        };
        head.set_kind(kind);
        head
    }

    /// Changes the kind; a kind without a duration of its own keeps the wait that is there.
    pub(super) fn set_kind(&mut self, kind: Kind) {
        let (code, wait) = match kind {
            Kind::Failed => (Code::Failed, None),
            Kind::Exhausted { by } => (Code::Exhausted(by), None),
            Kind::TimedOut { limit } => (Code::TimedOut, Some(limit)),
            Kind::DeadlineExceeded => (Code::DeadlineExceeded, None),
            Kind::Cancelled => (Code::Cancelled, None),
            Kind::CircuitOpen { retry_after } => (Code::CircuitOpen, retry_after),
            Kind::RateLimited { retry_after } => (Code::RateLimited, retry_after),
            Kind::BulkheadFull { why } => (Code::BulkheadFull(why), None),
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
            Code::Failed => Kind::Failed,
            Code::Exhausted(by) => Kind::Exhausted { by },
            Code::TimedOut => Kind::TimedOut {
                limit: retry_after.unwrap_or(Duration::MAX),
            },
            Code::DeadlineExceeded => Kind::DeadlineExceeded,
            Code::Cancelled => Kind::Cancelled,
            Code::CircuitOpen => Kind::CircuitOpen { retry_after },
            Code::RateLimited => Kind::RateLimited { retry_after },
            Code::BulkheadFull(why) => Kind::BulkheadFull { why },
            Code::Overloaded => Kind::Overloaded,
            Code::ShutDown => Kind::ShutDown,
            Code::Misconfigured => Kind::Misconfigured,
        }
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
