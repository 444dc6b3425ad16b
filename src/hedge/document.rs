//! A hedge in a file.

use serde::de::Error as _;
use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::config::{Delay, Hedge};
use crate::document::Span;

#[derive(Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct HedgeDocument {
    #[serde(skip_serializing_if = "Option::is_none")]
    after: Option<Span>,
    #[serde(skip_serializing_if = "Option::is_none")]
    percentile: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    min_samples: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    floor: Option<Span>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ceiling: Option<Span>,
    #[serde(skip_serializing_if = "Option::is_none")]
    window: Option<Span>,
    max: Option<u32>,
}

/// Either `after` or `percentile`; what else is not named is as in [`Hedge::after`] and [`Hedge::percentile`].
impl<'de> Deserialize<'de> for Hedge {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Hedge, D::Error> {
        let document = HedgeDocument::deserialize(deserializer)?;
        let mut hedge = match (document.after, document.percentile) {
            (Some(delay), None) => Hedge::after(delay.0),
            (None, Some(p)) => Hedge::percentile(p),
            _ => return Err(D::Error::custom("a hedge needs one of `after` and `percentile`")),
        };
        hedge = document.max.into_iter().fold(hedge, Hedge::max);
        hedge = document.min_samples.into_iter().fold(hedge, Hedge::min_samples);
        hedge = document.floor.into_iter().fold(hedge, |hedge, span| hedge.floor(span.0));
        hedge = document.ceiling.into_iter().fold(hedge, |hedge, span| hedge.ceiling(span.0));
        Ok(document.window.into_iter().fold(hedge, |hedge, span| hedge.window(span.0)))
    }
}

/// Fails if the delay is computed.
impl Serialize for Hedge {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.misplaced.is_some() {
            return Err(S::Error::custom("a hedge with a setting that it has no use for cannot be written down"));
        }
        let mut document = HedgeDocument { max: Some(self.most()), ..HedgeDocument::default() };
        match &self.delay {
            Delay::Fixed(delay) => document.after = Some(Span(*delay)),
            Delay::Percentile(percentile) => {
                let settings = &percentile.settings;
                document.percentile = Some(settings.p);
                document.min_samples = Some(settings.min_samples);
                document.floor = Some(Span(settings.floor));
                document.ceiling = Some(Span(settings.ceiling));
                document.window = Some(Span(settings.window));
            }
            Delay::By(_) => return Err(S::Error::custom("a hedge whose delay is computed cannot be written down")),
        }
        document.serialize(serializer)
    }
}
