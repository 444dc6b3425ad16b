//! The numbers of the parts without state, which a run reads once and keeps.

use std::array;
use std::time::Duration;

use super::config::StandardConfig;
use crate::clock::nanos;
use crate::retry::{RETRY_WORDS, Retry};

/// What a run goes by from its start to its end.
#[derive(Clone, Debug)]
pub(super) struct Numbers {
    pub(super) total_timeout: Duration,
    pub(super) attempt_timeout: Duration,
    pub(super) is_rate_limited: bool,
    pub(super) retry: Retry,
}

pub(super) const WORDS: usize = RETRY_WORDS + OWN_WORDS;

const OWN_WORDS: usize = 3;

impl Numbers {
    pub(super) fn pack(config: &StandardConfig) -> [u64; WORDS] {
        let own = [nanos(config.total_timeout), nanos(config.attempt_timeout), u64::from(config.rate_limit.is_some())];
        let retry = config.retry.to_words();
        array::from_fn(|n| if n < OWN_WORDS { own[n] } else { retry[n - OWN_WORDS] })
    }

    #[inline]
    pub(super) fn unpack(words: &[u64; WORDS]) -> Numbers {
        let [total_timeout, attempt_timeout, is_rate_limited, retry @ ..] = words;
        Numbers {
            total_timeout: duration(*total_timeout),
            attempt_timeout: duration(*attempt_timeout),
            is_rate_limited: *is_rate_limited != 0,
            retry: Retry::from_words(retry),
        }
    }
}

/// More than 584 years is for ever.
#[inline]
fn duration(nanos: u64) -> Duration {
    if nanos == u64::MAX { Duration::MAX } else { Duration::from_nanos(nanos) }
}
