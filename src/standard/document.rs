//! The settings of the standard chain in a file.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::config::StandardConfig;
use crate::breaker::document::BreakerDocument;
use crate::budget::document::BudgetDocument;
use crate::document::{self, Document, OrOff, Span};
use crate::limit::document::{BulkheadDocument, RateDocument};
use crate::retry::document::RetryDocument;

/// What a file may say about a [`StandardConfig`].
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct StandardDocument {
    total_timeout: Option<Span>,
    attempt_timeout: Option<Span>,
    bulkhead: Option<BulkheadDocument>,
    retry: Option<RetryDocument>,
    breaker: Option<BreakerDocument>,
    rate_limit: Option<OrOff<RateDocument>>,
    budget: Option<OrOff<BudgetDocument>>,
}

impl Document for StandardDocument {
    type Settings = StandardConfig;

    fn over(self, mut config: StandardConfig) -> Result<StandardConfig, &'static str> {
        config.total_timeout = self.total_timeout.map_or(config.total_timeout, |span| span.0);
        config.attempt_timeout = self.attempt_timeout.map_or(config.attempt_timeout, |span| span.0);
        if let Some(bulkhead) = self.bulkhead {
            config.bulkhead = bulkhead.over(config.bulkhead)?;
        }
        if let Some(retry) = self.retry {
            config.retry = retry.over(config.retry)?;
        }
        if let Some(breaker) = self.breaker {
            config.breaker = breaker.over(config.breaker)?;
        }
        if let Some(rate) = self.rate_limit {
            config.rate_limit = match (rate, config.rate_limit) {
                (OrOff::Off, _) => None,
                (OrOff::On(rate), None) => Some(rate.alone()?),
                (OrOff::On(rate), Some(base)) => Some(rate.over(base)?),
            };
        }
        if let Some(budget) = self.budget {
            config.budget = match budget {
                OrOff::Off => None,
                OrOff::On(budget) => Some(budget.over(config.budget.unwrap_or_default())?),
            };
        }
        Ok(config)
    }

    fn of(config: &StandardConfig) -> Result<StandardDocument, &'static str> {
        let rate_limit = config.rate_limit.as_ref().map(RateDocument::of).transpose()?;
        let budget = config.budget.as_ref().map(BudgetDocument::of).transpose()?;
        Ok(StandardDocument {
            total_timeout: Some(Span(config.total_timeout)),
            attempt_timeout: Some(Span(config.attempt_timeout)),
            bulkhead: Some(BulkheadDocument::of(&config.bulkhead)?),
            retry: Some(RetryDocument::of(&config.retry)?),
            breaker: Some(BreakerDocument::of(&config.breaker)?),
            rate_limit: Some(OrOff::of(rate_limit)),
            budget: Some(OrOff::of(budget)),
        })
    }
}

/// What is not named is as in [`StandardConfig::default`].
impl<'de> Deserialize<'de> for StandardConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<StandardConfig, D::Error> {
        document::read::<StandardDocument, D>(deserializer, StandardConfig::default())
    }
}

/// Fails if there are functions in it.
impl Serialize for StandardConfig {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        document::write::<StandardDocument, S>(self, serializer)
    }
}
