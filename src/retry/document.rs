//! A retry in a file.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::backoff::{Backoff, DEFAULT_FACTOR};
use super::config::{OnLongWait, OnRejection, Retry};
use super::jitter::Jitter;
use crate::document::{self, Document, OrOff, Span};

/// What a file may say about a [`Retry`].
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RetryDocument {
    max_attempts: Option<OrOff<u32>>,
    backoff: Option<Kind>,
    #[serde(skip_serializing_if = "Option::is_none")]
    factor: Option<f64>,
    base: Option<Span>,
    cap: Option<Span>,
    jitter: Option<Jitter>,
    max_jitter: Option<OrOff<Span>>,
    max_elapsed: Option<Span>,
    max_retry_after: Option<Span>,
    on_long_wait: Option<OnLongWait>,
    on_rejection: Option<OnRejection>,
    keep_errors: Option<usize>,
}

/// How waits grow, without what they grow by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Exponential,
    Fixed,
    Linear,
    Fibonacci,
    Immediate,
}

impl Kind {
    fn of(backoff: &Backoff) -> Option<Kind> {
        match backoff {
            Backoff::Exponential { .. } => Some(Kind::Exponential),
            Backoff::Fixed => Some(Kind::Fixed),
            Backoff::Linear => Some(Kind::Linear),
            Backoff::Fibonacci => Some(Kind::Fibonacci),
            Backoff::Immediate => Some(Kind::Immediate),
            Backoff::Custom(_) => None,
        }
    }

    /// The backoff, with the jitter that it has by default.
    fn backoff(self) -> (Backoff, Jitter) {
        match self {
            Kind::Exponential => (Backoff::Exponential { factor: DEFAULT_FACTOR }, Jitter::Full),
            Kind::Fixed => (Backoff::Fixed, Jitter::None),
            Kind::Linear => (Backoff::Linear, Jitter::Full),
            Kind::Fibonacci => (Backoff::Fibonacci, Jitter::Full),
            Kind::Immediate => (Backoff::Immediate, Jitter::None),
        }
    }
}

impl Document for RetryDocument {
    type Settings = Retry;

    fn over(self, base: Retry) -> Result<Retry, &'static str> {
        let mut retry = self.schedule_over(base);
        if let Some(most) = self.max_attempts {
            retry.max_attempts = most.get();
        }
        retry.max_elapsed = self.max_elapsed.map_or(retry.max_elapsed, |span| span.0);
        retry.max_retry_after = self.max_retry_after.map_or(retry.max_retry_after, |span| span.0);
        retry.on_long_wait = self.on_long_wait.unwrap_or(retry.on_long_wait);
        retry.on_rejection = self.on_rejection.unwrap_or(retry.on_rejection);
        retry.keep_errors = self.keep_errors.unwrap_or(retry.keep_errors);
        Ok(retry)
    }

    fn of(retry: &Retry) -> Result<RetryDocument, &'static str> {
        let schedule = &retry.schedule;
        let kind = Kind::of(&schedule.backoff).ok_or("a retry whose waits are computed cannot be written down")?;
        if retry.on_retry.is_some() {
            return Err("a retry with a listener cannot be written down");
        }
        if retry.misplaced.is_some() {
            return Err("a retry with a factor that it has no use for cannot be written down");
        }
        let factor = if let Backoff::Exponential { factor } = schedule.backoff { Some(factor) } else { None };
        Ok(RetryDocument {
            max_attempts: Some(OrOff::of(retry.max_attempts)),
            backoff: Some(kind),
            factor,
            base: Some(Span(schedule.base)),
            cap: Some(Span(schedule.cap)),
            jitter: Some(schedule.jitter),
            max_jitter: Some(OrOff::of(schedule.max_jitter.map(Span))),
            max_elapsed: Some(Span(retry.max_elapsed)),
            max_retry_after: Some(Span(retry.max_retry_after)),
            on_long_wait: Some(retry.on_long_wait),
            on_rejection: Some(retry.on_rejection),
            keep_errors: Some(retry.keep_errors),
        })
    }
}

impl RetryDocument {
    fn schedule_over(&self, mut retry: Retry) -> Retry {
        if let Some(kind) = self.backoff
            && Kind::of(&retry.schedule.backoff) != Some(kind)
        {
            (retry.schedule.backoff, retry.schedule.jitter) = kind.backoff();
        }
        if let Some(factor) = self.factor {
            retry = retry.factor(factor);
        }
        let schedule = &mut retry.schedule;
        schedule.base = self.base.map_or(schedule.base, |span| span.0);
        schedule.cap = match self.cap {
            Some(cap) => cap.0,
            // As `Retry::fixed` has it.
            None if self.base.is_some() && self.backoff == Some(Kind::Fixed) => schedule.cap.max(schedule.base),
            None => schedule.cap,
        };
        schedule.jitter = self.jitter.unwrap_or(schedule.jitter);
        if let Some(most) = &self.max_jitter {
            schedule.max_jitter = most.clone().get().map(|span| span.0);
        }
        retry
    }
}

/// What is not named is as in [`Retry::exponential`]; a `backoff` brings the jitter that it has by default.
impl<'de> Deserialize<'de> for Retry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Retry, D::Error> {
        document::read::<RetryDocument, D>(deserializer, Retry::exponential())
    }
}

/// Fails if there are functions in it: computed waits, a listener.
impl Serialize for Retry {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        document::write::<RetryDocument, S>(self, serializer)
    }
}
