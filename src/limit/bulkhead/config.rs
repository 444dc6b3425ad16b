//! The settings of a bulkhead.

use std::time::Duration;

use super::permits::Permits;
use crate::error::ConfigError;

/// The settings of a [`Bulkhead`](super::Bulkhead): plain data. The number of permits has no default; everything else has one.
///
/// The setters take anything; [`check`](BulkheadConfig::check) says what is wrong.
///
/// ```
/// use std::time::Duration;
/// use steadfast::limit::BulkheadConfig;
///
/// let config = BulkheadConfig::new(20).queue(100).max_wait(Duration::from_millis(250));
/// assert!(config.check().is_ok());
/// assert_eq!(BulkheadConfig::new(0).check().unwrap_err().field(), "permits");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BulkheadConfig {
    pub(super) permits: usize,
    pub(super) queue: usize,
    pub(super) max_wait: Duration,
}

impl BulkheadConfig {
    /// At most `permits` calls at a time, from 1 to [`MAX_PERMITS`].
    #[must_use]
    pub const fn new(permits: usize) -> BulkheadConfig {
        BulkheadConfig { permits, queue: DEFAULT_BULKHEAD_QUEUE, max_wait: DEFAULT_BULKHEAD_WAIT }
    }

    /// Sets how many further calls may wait for a permit; others are refused. Default: [`DEFAULT_BULKHEAD_QUEUE`], none.
    #[must_use]
    pub const fn queue(mut self, calls: usize) -> BulkheadConfig {
        self.queue = calls;
        self
    }

    /// Sets how long a call may wait for a permit. Default: [`DEFAULT_BULKHEAD_WAIT`]; more than zero, `Duration::MAX` is for
    /// ever.
    #[must_use]
    pub const fn max_wait(mut self, wait: Duration) -> BulkheadConfig {
        self.max_wait = wait;
        self
    }

    /// Says whether these settings make a bulkhead.
    ///
    /// # Errors
    /// The first setting that is out of its range, with the rule that it breaks.
    pub fn check(&self) -> Result<(), ConfigError> {
        check_permits(self.permits)?;
        if self.max_wait.is_zero() {
            return Err(ConfigError::new("max_wait", "0 s", "must be longer than zero; `queue(0)` lets no call wait"));
        }
        Ok(())
    }
}

pub(super) fn check_permits(permits: usize) -> Result<(), ConfigError> {
    if (1..=MAX_PERMITS).contains(&permits) {
        return Ok(());
    }
    Err(ConfigError::new("permits", permits, "must be from 1 to 2,147,483,647"))
}

/// How many calls may wait: none. Where all permits are taken for long, a queue only makes every call wait; whoever knows
/// that they are taken for moments asks for one.
pub const DEFAULT_BULKHEAD_QUEUE: usize = 0;

/// How long a call may wait, if any may: 1 s, above what a busy moment takes and below what a caller gives up after.
pub const DEFAULT_BULKHEAD_WAIT: Duration = Duration::from_secs(1);

/// The most permits: 2^31 - 1.
pub const MAX_PERMITS: usize = Permits::MOST as usize;
