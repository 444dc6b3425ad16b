//! A rule in a file.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{CountRule, DEFAULT_SLOW_CALL, SlowRule, TripRule};
use crate::document::{self, Document, OrOff, Span};

/// What a file may say about a [`TripRule`].
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RuleDocument {
    failure_rate: Option<OrOff<f64>>,
    slow_rate: Option<OrOff<f64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    slow_call: Option<Span>,
    consecutive: Option<OrOff<u32>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    minimum_calls: Option<u32>,
    count_window: Option<OrOff<CountDocument>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    window: Option<WindowDocument>,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CountDocument {
    calls: u32,
    rate: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    minimum_calls: Option<u32>,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WindowDocument {
    buckets: u32,
    width: Span,
}

impl Document for RuleDocument {
    type Settings = TripRule;

    fn over(self, mut rule: TripRule) -> Result<TripRule, &'static str> {
        if let Some(rate) = self.failure_rate {
            rule.failure_rate = rate.get();
        }
        if let Some(rate) = self.slow_rate {
            let call = rule.slow.map_or(DEFAULT_SLOW_CALL, |slow| slow.call);
            rule.slow = rate.get().map(|rate| SlowRule { rate, call });
        }
        if let Some(failures) = self.consecutive {
            rule.consecutive = failures.get();
        }
        if let Some(count) = self.count_window {
            let rule_of = |CountDocument { calls, rate, minimum_calls }| CountRule { calls, rate, minimum_calls };
            rule.count = count.get().map(rule_of);
        }
        if !rule.has_time_window() && rule.count.is_none() && rule.consecutive.is_none() {
            return Err("a rule needs one of `failure_rate`, `slow_rate`, `count_window` and `consecutive`");
        }
        if !rule.has_time_window() {
            (rule.buckets, rule.minimum_calls) = (None, None);
        }
        // The setters know where these belong, and `check` says so if there is no such place.
        if let Some(time) = self.slow_call {
            rule = rule.slow_call(time.0);
        }
        if let Some(window) = self.window {
            rule = rule.window(window.buckets, window.width.0);
        }
        match self.minimum_calls {
            Some(_) if !rule.has_time_window() => rule.misplaced("minimum_calls", "belongs to a window of time"),
            Some(calls) => rule.minimum_calls = Some(calls),
            None => {}
        }
        Ok(rule)
    }

    fn of(rule: &TripRule) -> Result<RuleDocument, &'static str> {
        if rule.has_predicates() {
            return Err("a rule that asks a function cannot be written down");
        }
        if rule.problem.is_some() {
            return Err("a rule with a setting that it has no use for cannot be written down");
        }
        let document = |CountRule { calls, rate, minimum_calls }| CountDocument { calls, rate, minimum_calls };
        let time = rule.window_of_time();
        Ok(RuleDocument {
            failure_rate: Some(OrOff::of(rule.failure_rate)),
            slow_rate: Some(OrOff::of(rule.slow.map(|slow| slow.rate))),
            slow_call: rule.slow.map(|slow| Span(slow.call)),
            consecutive: Some(OrOff::of(rule.consecutive)),
            minimum_calls: time.map(|window| window.minimum_calls),
            count_window: Some(OrOff::of(rule.count.map(document))),
            window: time.map(|window| WindowDocument { buckets: window.buckets, width: Span(window.width) }),
        })
    }
}

/// What is not named is not there.
impl<'de> Deserialize<'de> for TripRule {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<TripRule, D::Error> {
        document::read::<RuleDocument, D>(deserializer, TripRule::empty())
    }
}

/// Fails if it asks a function.
impl Serialize for TripRule {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        document::write::<RuleDocument, S>(self, serializer)
    }
}
