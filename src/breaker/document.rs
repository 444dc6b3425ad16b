//! The settings of a breaker in a file.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::config::{AbandonedTrial, BreakerConfig, OpenBackoff, TrialRate};
use super::rule::document::RuleDocument;
use crate::document::{self, Document, OrOff, Span};
use crate::verdict::Verdict;

/// What a file may say about a [`BreakerConfig`].
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct BreakerDocument {
    open_for: Option<Span>,
    open_jitter: Option<f64>,
    trials: Option<u32>,
    successes_to_close: Option<u32>,
    trial_deadline: Option<OrOff<Span>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    abandoned_trial: Option<AbandonedTrial>,
    pause_on_retry_after: Option<OrOff<Span>>,
    throttled_as: Option<OrOff<CountedAs>>,
    // Tables last, as TOML wants it.
    open_backoff: Option<OrOff<OpenBackoffDocument>>,
    trial_rate: Option<OrOff<TrialRateDocument>>,
    rule: Option<RuleDocument>,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct OpenBackoffDocument {
    factor: f64,
    cap: Span,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TrialRateDocument {
    trials: u32,
    rate: f64,
}

/// The verdicts that mean something for a throttled call.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum CountedAs {
    Success,
    Transient,
    Fatal,
    Permanent,
    Ignored,
}

impl Document for BreakerDocument {
    type Settings = BreakerConfig;

    fn over(self, mut config: BreakerConfig) -> Result<BreakerConfig, &'static str> {
        if let Some(rule) = self.rule {
            config.rule = rule.over(config.rule)?;
        }
        config.open_for = self.open_for.map_or(config.open_for, |span| span.0);
        config.open_jitter = self.open_jitter.unwrap_or(config.open_jitter);
        config.trials = self.trials.unwrap_or(config.trials);
        config.successes_to_close = self.successes_to_close.unwrap_or(config.successes_to_close);
        config.abandoned_trial = self.abandoned_trial.or(config.abandoned_trial);
        if let Some(backoff) = self.open_backoff {
            config.open_backoff =
                backoff.get().map(|backoff| OpenBackoff { factor: backoff.factor, cap: backoff.cap.0 });
        }
        if let Some(rate) = self.trial_rate {
            config.trial_rate = rate.get().map(|rate| TrialRate { trials: rate.trials, rate: rate.rate });
        }
        if let Some(deadline) = self.trial_deadline {
            config.trial_deadline = deadline.get().map(|span| span.0);
        }
        if let Some(most) = self.pause_on_retry_after {
            config.pause_on_retry_after = most.get().map(|span| span.0);
        }
        if let Some(counted) = self.throttled_as {
            config.throttled_as = counted.get().map(CountedAs::verdict);
        }
        Ok(config)
    }

    fn of(config: &BreakerConfig) -> Result<BreakerDocument, &'static str> {
        if !config.listeners.is_empty() {
            return Err("a breaker with listeners cannot be written down");
        }
        if config.rng.is_some() {
            return Err("a breaker with a seed cannot be written down");
        }
        let backoff =
            config.open_backoff.map(|OpenBackoff { factor, cap }| OpenBackoffDocument { factor, cap: Span(cap) });
        let trial_rate = config.trial_rate.map(|TrialRate { trials, rate }| TrialRateDocument { trials, rate });
        let throttled_as = config.throttled_as.map(CountedAs::of).transpose()?;
        Ok(BreakerDocument {
            open_for: Some(Span(config.open_for)),
            open_jitter: Some(config.open_jitter),
            trials: Some(config.trials),
            successes_to_close: Some(config.successes_to_close),
            trial_deadline: Some(OrOff::of(config.trial_deadline.map(Span))),
            abandoned_trial: config.abandoned_trial,
            pause_on_retry_after: Some(OrOff::of(config.pause_on_retry_after.map(Span))),
            throttled_as: Some(OrOff::of(throttled_as)),
            open_backoff: Some(OrOff::of(backoff)),
            trial_rate: Some(OrOff::of(trial_rate)),
            rule: Some(RuleDocument::of(&config.rule)?),
        })
    }
}

impl CountedAs {
    fn of(verdict: Verdict) -> Result<CountedAs, &'static str> {
        match verdict {
            Verdict::Success => Ok(CountedAs::Success),
            Verdict::Transient => Ok(CountedAs::Transient),
            Verdict::Fatal => Ok(CountedAs::Fatal),
            Verdict::Permanent => Ok(CountedAs::Permanent),
            Verdict::Ignored => Ok(CountedAs::Ignored),
            Verdict::Throttled { .. } | Verdict::Rejected { .. } => {
                Err("`throttled_as` can be written down for verdicts that say something else only")
            }
        }
    }

    fn verdict(self) -> Verdict {
        match self {
            CountedAs::Success => Verdict::Success,
            CountedAs::Transient => Verdict::Transient,
            CountedAs::Fatal => Verdict::Fatal,
            CountedAs::Permanent => Verdict::Permanent,
            CountedAs::Ignored => Verdict::Ignored,
        }
    }
}

/// What is not named is as in [`BreakerConfig::default`].
impl<'de> Deserialize<'de> for BreakerConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<BreakerConfig, D::Error> {
        document::read::<BreakerDocument, D>(deserializer, BreakerConfig::default())
    }
}

/// Fails if there are functions in it (listeners, predicates), or a seed.
impl Serialize for BreakerConfig {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        document::write::<BreakerDocument, S>(self, serializer)
    }
}
