//! A retry without functions as a row of words, for a chain whose numbers change while it is used.

use std::time::Duration;

use super::backoff::{Backoff, Schedule};
use super::config::{OnLongWait, OnRejection, Retry};
use super::jitter::Jitter;
use crate::clock::nanos;
use crate::error::ConfigError;

/// How many words a retry is.
pub(crate) const RETRY_WORDS: usize = 10;

impl Retry {
    /// Refuses a retry that is more than numbers.
    pub(crate) fn check_plain(&self) -> Result<(), ConfigError> {
        if matches!(self.schedule.backoff, Backoff::Custom(_)) {
            return Err(ConfigError::new(
                "backoff",
                "computed",
                "must be one of numbers in a chain that can be changed",
            ));
        }
        if self.on_retry.is_some() {
            let rule = "a chain that can be changed has no listeners of its own: observe the executor instead";
            return Err(ConfigError::new("on_retry", "a listener", rule));
        }
        Ok(())
    }

    pub(crate) fn to_words(&self) -> [u64; RETRY_WORDS] {
        let Schedule { backoff, base, cap, jitter, max_jitter } = &self.schedule;
        let (backoff, factor) = match backoff {
            Backoff::Exponential { factor } => (EXPONENTIAL, *factor),
            Backoff::Fixed => (FIXED, 0.0),
            Backoff::Linear => (LINEAR, 0.0),
            Backoff::Fibonacci => (FIBONACCI, 0.0),
            Backoff::Immediate | Backoff::Custom(_) => (IMMEDIATE, 0.0),
        };
        let (jitter, share) = match jitter {
            Jitter::None => (NONE, 0.0),
            Jitter::Full => (FULL, 0.0),
            Jitter::Equal => (EQUAL, 0.0),
            Jitter::Proportional(share) => (PROPORTIONAL, *share),
            Jitter::Decorrelated => (DECORRELATED, 0.0),
        };
        let caps = u64::from(self.on_long_wait == OnLongWait::Cap);
        let waits = u64::from(self.on_rejection == OnRejection::Wait);
        [
            backoff | jitter << 8 | caps << 16 | waits << 24,
            self.max_attempts.map_or(UNLIMITED, u64::from),
            nanos(*base),
            nanos(*cap),
            f64::to_bits(factor),
            f64::to_bits(share),
            max_jitter.map_or(u64::MAX, nanos),
            nanos(self.max_elapsed),
            nanos(self.max_retry_after),
            self.keep_errors as u64,
        ]
    }

    #[inline]
    pub(crate) fn from_words(words: &[u64; RETRY_WORDS]) -> Retry {
        let [kinds, max_attempts, base, cap, factor, share, max_jitter, max_elapsed, max_retry_after, keep_errors] =
            *words;
        let backoff = match kinds & 0xFF {
            EXPONENTIAL => Backoff::Exponential { factor: f64::from_bits(factor) },
            FIXED => Backoff::Fixed,
            LINEAR => Backoff::Linear,
            FIBONACCI => Backoff::Fibonacci,
            _ => Backoff::Immediate,
        };
        let jitter = match kinds >> 8 & 0xFF {
            NONE => Jitter::None,
            EQUAL => Jitter::Equal,
            PROPORTIONAL => Jitter::Proportional(f64::from_bits(share)),
            DECORRELATED => Jitter::Decorrelated,
            _ => Jitter::Full,
        };
        let max_jitter = (max_jitter != u64::MAX).then(|| Duration::from_nanos(max_jitter));
        Retry {
            schedule: Schedule { backoff, base: duration(base), cap: duration(cap), jitter, max_jitter },
            max_attempts: u32::try_from(max_attempts).ok(),
            max_elapsed: duration(max_elapsed),
            max_retry_after: duration(max_retry_after),
            on_long_wait: if kinds >> 16 & 1 == 0 { OnLongWait::Stop } else { OnLongWait::Cap },
            on_rejection: if kinds >> 24 & 1 == 0 { OnRejection::Stop } else { OnRejection::Wait },
            keep_errors: keep_errors as usize,
            on_retry: None,
            misplaced: None,
        }
    }
}

/// More than 584 years is for ever.
#[inline]
fn duration(nanos: u64) -> Duration {
    if nanos == u64::MAX { Duration::MAX } else { Duration::from_nanos(nanos) }
}

const EXPONENTIAL: u64 = 0;
const FIXED: u64 = 1;
const LINEAR: u64 = 2;
const FIBONACCI: u64 = 3;
const IMMEDIATE: u64 = 4;

const FULL: u64 = 0;
const NONE: u64 = 1;
const EQUAL: u64 = 2;
const PROPORTIONAL: u64 = 3;
const DECORRELATED: u64 = 4;

/// More attempts than a `u32` counts.
const UNLIMITED: u64 = u64::MAX;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_comes_out_the_same() {
        let secs = Duration::from_secs;
        let retries = [
            Retry::exponential(),
            Retry::exponential().factor(1.5).unlimited().cap(Duration::MAX).max_elapsed(secs(7)),
            Retry::fixed(secs(3)).jitter(Jitter::Proportional(0.25)).max_jitter(secs(1)).keep_errors(9),
            Retry::linear(secs(1)).jitter(Jitter::Equal).on_long_wait(OnLongWait::Cap),
            Retry::fibonacci(secs(1)).on_rejection(OnRejection::Wait).max_retry_after(Duration::MAX),
            Retry::decorrelated().max_attempts(u32::MAX),
            Retry::immediate().max_attempts(1).max_retry_after(Duration::ZERO),
        ];
        for retry in retries {
            let again = Retry::from_words(&retry.to_words());
            assert_eq!(format!("{again:?}"), format!("{retry:?}"));
        }
    }

    #[test]
    fn functions_are_refused() {
        let field = |retry: Retry| retry.check_plain().err().map(|refused| refused.field());
        assert_eq!(field(Retry::exponential()), None);
        assert_eq!(field(Retry::custom(|_, _| Duration::ZERO)), Some("backoff"));
        assert_eq!(field(Retry::fixed(Duration::ZERO).on_retry(|_| {})), Some("on_retry"));
    }
}
