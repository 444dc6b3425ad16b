//! The settings of a budget in a file.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::config::{BudgetConfig, TokenSettings};
use crate::document::{self, Document, Span};

/// What a file may say about a [`BudgetConfig`].
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct BudgetDocument {
    #[serde(skip_serializing_if = "Option::is_none")]
    ratio: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cap: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    initial: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    floor: Option<Span>,
    #[serde(skip_serializing_if = "Option::is_none")]
    concurrent: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    min: Option<u32>,
}

impl Document for BudgetDocument {
    type Settings = BudgetConfig;

    fn over(self, base: BudgetConfig) -> Result<BudgetConfig, &'static str> {
        let mut config = match (self.ratio, self.concurrent) {
            (Some(_), Some(_)) => return Err("a budget has one of `ratio` and `concurrent`"),
            (Some(ratio), None) if base.tokens.is_some() => BudgetConfig { ratio, ..base },
            (Some(ratio), None) => BudgetConfig::ratio(ratio),
            (None, Some(ratio)) if base.tokens.is_none() => BudgetConfig { ratio, ..base },
            (None, Some(ratio)) => BudgetConfig::concurrent(ratio),
            (None, None) => base,
        };
        config = self.cap.into_iter().fold(config, BudgetConfig::cap);
        config = self.initial.into_iter().fold(config, BudgetConfig::initial);
        config = self.floor.into_iter().fold(config, |config, span| config.floor(span.0));
        Ok(self.min.into_iter().fold(config, BudgetConfig::min))
    }

    fn of(config: &BudgetConfig) -> Result<BudgetDocument, &'static str> {
        if config.misplaced.is_some() {
            return Err("a budget with a setting of the other form cannot be written down");
        }
        let ratio = Some(config.ratio);
        Ok(match &config.tokens {
            Some(TokenSettings { cap, initial, floor }) => BudgetDocument {
                ratio,
                cap: Some(*cap),
                initial: Some(*initial),
                floor: Some(Span(*floor)),
                ..BudgetDocument::default()
            },
            None => BudgetDocument { concurrent: ratio, min: Some(config.min), ..BudgetDocument::default() },
        })
    }
}

/// Tokens with a `ratio`, or `concurrent`; what is not named is as in [`BudgetConfig::default`].
impl<'de> Deserialize<'de> for BudgetConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<BudgetConfig, D::Error> {
        document::read::<BudgetDocument, D>(deserializer, BudgetConfig::default())
    }
}

impl Serialize for BudgetConfig {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        document::write::<BudgetDocument, S>(self, serializer)
    }
}
