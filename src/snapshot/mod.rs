//! What can be seen of executors and policies at a moment, as plain data.
//!
//! [`Executor::snapshot`](crate::Executor::snapshot) gives the state of every policy of its chain, from the outside in, and each
//! policy has a `snapshot` of its own. A snapshot is for operators: a page, a log line, an alarm. It takes locks that calls seldom
//! need and allocates, and nothing is prepared for it while calls run.
//!
//! Each number is right by itself at the moment at which it is read. They are read one after another while calls go on, so
//! numbers of one snapshot need not add up.
//!
//! With the feature `serde` all of it is `Serialize`. Durations become seconds, in fields that end in `_seconds`, and `null` if
//! they are for ever.

mod breaker;
#[cfg(feature = "serde")]
mod seconds;

use std::time::Duration;

pub use self::breaker::{BreakerSnapshot, Counts, State};

/// An executor and its chain, from [`Executor::snapshot`](crate::Executor::snapshot).
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct ExecutorSnapshot {
    /// The name of the dependency.
    pub name: &'static str,
    /// Whether it takes new runs.
    pub lifecycle: Lifecycle,
    /// How many runs, and bodies that have outlived theirs, are waiting for something. A run counts from its first wait on.
    pub waiting: usize,
    /// What bounds retries and hedges, unless it was built without.
    pub budget: Option<BudgetSnapshot>,
    /// The policies that have anything to show, the outermost first.
    pub policies: Vec<PolicySnapshot>,
}

/// How far an executor is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "kebab-case"))]
#[non_exhaustive]
pub enum Lifecycle {
    /// It takes new runs.
    Open,
    /// It refuses new runs and lets running ones end.
    Closed,
    /// It refuses new runs and has ended the running ones.
    ShutDown,
}

/// One policy of a chain. Serialized, the field `policy` says which kind it is: "retry", "rate_limiter" and so on.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(tag = "policy", rename_all = "snake_case"))]
#[non_exhaustive]
pub enum PolicySnapshot {
    /// A [`Retry`](crate::Retry).
    Retry(RetrySnapshot),
    /// A [`Timeout`](crate::Timeout).
    Timeout(TimeoutSnapshot),
    /// A [`Hedge`](crate::Hedge).
    Hedge(HedgeSnapshot),
    /// A [`Breaker`](crate::Breaker).
    Breaker(BreakerSnapshot),
    /// A [`RateLimiter`](crate::RateLimiter).
    RateLimiter(RateLimiterSnapshot),
    /// A [`Bulkhead`](crate::Bulkhead).
    Bulkhead(BulkheadSnapshot),
    /// A [`Keyed`](crate::Keyed) of policies.
    Keyed(KeyedSnapshot),
    /// A policy of one's own, see [`Settings::snapshots`](crate::policy::Settings::snapshots).
    Custom(CustomSnapshot),
}

/// The settings of a retry. It has no state.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct RetrySnapshot {
    /// The most attempts, the first one included; `None` is unlimited.
    pub max_attempts: Option<u32>,
    /// How waits grow: "exponential", "fixed" and so on.
    pub backoff: &'static str,
    /// The wait before the first retry.
    #[cfg_attr(feature = "serde", serde(rename = "base_seconds", serialize_with = "seconds::serialize"))]
    pub base: Duration,
    /// The longest wait.
    #[cfg_attr(feature = "serde", serde(rename = "cap_seconds", serialize_with = "seconds::serialize"))]
    pub cap: Duration,
    /// The time after which no attempt starts; `MAX` is unlimited.
    #[cfg_attr(feature = "serde", serde(rename = "max_elapsed_seconds", serialize_with = "seconds::serialize"))]
    pub max_elapsed: Duration,
}

/// The setting of a timeout. It has no state.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct TimeoutSnapshot {
    /// The limit; `None` if it is computed for each call.
    #[cfg_attr(feature = "serde", serde(rename = "limit_seconds", serialize_with = "seconds::serialize_some"))]
    pub limit: Option<Duration>,
    /// Whether it covers bodies too.
    pub covers_body: bool,
}

/// What a hedge would do now.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct HedgeSnapshot {
    /// How long it waits before the next lane; `None` if that is computed, or a percentile that is not known yet.
    #[cfg_attr(feature = "serde", serde(rename = "delay_seconds", serialize_with = "seconds::serialize_some"))]
    pub delay: Option<Duration>,
    /// How many lanes may be started beside the first.
    pub max: u32,
}

/// The bucket of a rate limiter and those who wait for it.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct RateLimiterSnapshot {
    /// Its own name, if it has one.
    pub name: Option<&'static str>,
    /// How many tokens there are.
    pub available: u64,
    /// How many the bucket holds.
    pub burst: u64,
    /// How many come in each second.
    pub per_second: f64,
    /// How many callers wait.
    pub queued: usize,
}

/// The permits of a bulkhead and those who wait for one.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct BulkheadSnapshot {
    /// Its own name, if it has one.
    pub name: Option<&'static str>,
    /// How many permits there are, free and taken.
    pub permits: usize,
    /// How many are taken: for a while more than there are, after it was made smaller.
    pub in_flight: usize,
    /// How many callers wait.
    pub queued: usize,
}

/// A map of policies by key.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct KeyedSnapshot {
    /// What it has one of for each key: "breaker" or "rate_limiter".
    pub of: &'static str,
    /// How many keys there are.
    pub len: usize,
    /// How many there may be.
    pub capacity: usize,
    /// How many keys have made room for others.
    pub evictions: u64,
}

/// What an executor may still spend on retries and hedges.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct BudgetSnapshot {
    /// "tokens" or "in_flight".
    pub form: &'static str,
    /// The tokens that are there, in fractions; in the in-flight form, how many more retries and hedges may start.
    pub available: f64,
    /// The most tokens that are kept; `None` in the in-flight form.
    pub cap: Option<u32>,
}

/// What a policy of one's own shows of itself.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct CustomSnapshot {
    /// What kind of policy it is.
    #[cfg_attr(feature = "serde", serde(rename = "kind"))]
    pub policy: &'static str,
    /// Its numbers, each with a name.
    #[cfg_attr(feature = "serde", serde(serialize_with = "seconds::serialize_map"))]
    pub values: Vec<(&'static str, f64)>,
}
