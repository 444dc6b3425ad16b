//! The settings of a rate limiter in a file.

use std::time::Duration;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::config::{RateLimiterConfig, Weight};
use crate::document::{self, Document, OrOff, Span};

/// What a file may say about a [`RateLimiterConfig`].
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RateDocument {
    /// The rate, in one of two ways.
    #[serde(skip_serializing_if = "Option::is_none")]
    per_second: Option<u64>,
    per: Option<u64>,
    period: Option<Span>,
    /// Off is the default: as many as come in within the period.
    burst: Option<OrOff<u64>>,
    max_wait: Option<Span>,
    queue: Option<usize>,
    weight: Option<u64>,
}

impl RateDocument {
    /// The settings, where there are none that they could be laid over: a rate has no default.
    pub(crate) fn alone(self) -> Result<RateLimiterConfig, &'static str> {
        if self.per_second.is_none() && (self.per.is_none() || self.period.is_none()) {
            return Err("a rate limiter needs `per_second`, or `per` and `period`");
        }
        self.over(RateLimiterConfig::per_second(1))
    }
}

impl Document for RateDocument {
    type Settings = RateLimiterConfig;

    fn over(self, mut config: RateLimiterConfig) -> Result<RateLimiterConfig, &'static str> {
        match self {
            RateDocument { per_second: Some(n), per: None, period: None, .. } => {
                (config.tokens, config.period) = (n, Duration::from_secs(1));
            }
            RateDocument { per_second: Some(_), .. } => {
                return Err("a rate is `per_second`, or `per` and `period`, and not both");
            }
            RateDocument { per, period, .. } => {
                config.tokens = per.unwrap_or(config.tokens);
                config.period = period.map_or(config.period, |span| span.0);
            }
        }
        if let Some(burst) = self.burst {
            config.burst = burst.get();
        }
        config.max_wait = self.max_wait.map_or(config.max_wait, |span| span.0);
        config.queue = self.queue.unwrap_or(config.queue);
        config.weight = self.weight.map_or(config.weight, Weight::Fixed);
        Ok(config)
    }

    fn of(config: &RateLimiterConfig) -> Result<RateDocument, &'static str> {
        let Weight::Fixed(weight) = config.weight else {
            return Err("a rate limiter that computes weights cannot be written down");
        };
        Ok(RateDocument {
            per_second: None,
            per: Some(config.tokens),
            period: Some(Span(config.period)),
            burst: Some(OrOff::of(config.burst)),
            max_wait: Some(Span(config.max_wait)),
            queue: Some(config.queue),
            weight: Some(weight),
        })
    }
}

/// `per_second`, or `per` and `period`; what else is not named is as in [`RateLimiterConfig::per`].
impl<'de> Deserialize<'de> for RateLimiterConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<RateLimiterConfig, D::Error> {
        RateDocument::deserialize(deserializer)?.alone().map_err(D::Error::custom)
    }
}

/// Fails if the weights of calls are computed.
impl Serialize for RateLimiterConfig {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        document::write::<RateDocument, S>(self, serializer)
    }
}
