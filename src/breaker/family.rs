use std::mem;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use super::config::BreakerConfig;
use super::needs::{LiveNeeds, Needs};
use super::thresholds::{LiveThresholds, Thresholds};
use crate::clock::Clock;
use crate::error::ConfigError;
use crate::shield::discard;
use crate::sync::{Mutex, lock};
use crate::window::Geometry;

/// What the breakers that are made from one configuration share: the settings, of which the windows never change and the
/// rest may be changed at any time, and the clock.
#[derive(Debug)]
#[expect(unnameable_types, reason = "the map of breakers by key shares it, and shows it to nobody")]
pub struct Family {
    /// Of the window of time, if there is one.
    pub(super) geometry: Option<Geometry>,
    /// The size of the window of calls, if there is one.
    pub(super) count_window: Option<u32>,
    /// Whether there are many of them, by key, so that each has to be small.
    pub(super) is_keyed: bool,
    live: LiveThresholds,
    /// Of these, the start changes with the numbers in `live`, and the setup ends with the first use.
    needs: LiveNeeds,
    /// The configuration. Its rule's numbers are those in `live`; they are changed together, under this lock.
    config: Mutex<Arc<BreakerConfig>>,
    checked: Result<(), ConfigError>,
    /// Set by the first use, and never changed: moments of different clocks cannot be compared.
    clock: OnceLock<Clock>,
}

/// A share in the settings. After a change of them it may be the last one, and then what listeners and predicates own is dropped
/// with it: foreign code, in the middle of somebody's call. If it panics, that goes no further.
pub(super) struct Share(Option<Arc<BreakerConfig>>);

impl Deref for Share {
    type Target = BreakerConfig;

    fn deref(&self) -> &BreakerConfig {
        self.0.as_ref().expect("taken out when it is dropped, and not before")
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        discard(self.0.take());
    }
}

impl Family {
    pub(crate) fn new(config: BreakerConfig, is_keyed: bool) -> Family {
        match config.check() {
            Ok(()) => Family::of(config, is_keyed, Ok(())),
            Err(refused) => Family::refused(refused),
        }
    }

    /// One that refuses to be used. Its settings are not those that were refused: they may ask for a window of gigabytes.
    pub(super) fn refused(refused: ConfigError) -> Family {
        Family::of(BreakerConfig::default(), false, Err(refused))
    }

    fn of(config: BreakerConfig, is_keyed: bool, checked: Result<(), ConfigError>) -> Family {
        let window = config.rule.window_of_time();
        let needs = Needs::SETUP
            .and(Needs::START.only_if(config.rule.slow().is_some()))
            .and(Needs::TIME_WINDOW.only_if(window.is_some()))
            .and(Needs::CALL_WINDOW.only_if(config.rule.window_of_calls().is_some()));
        Family {
            geometry: window.map(|window| Geometry::new(window.buckets, window.width)),
            count_window: config.rule.window_of_calls().map(|count| count.calls),
            is_keyed,
            live: LiveThresholds::new(&Thresholds::new(&config.rule)),
            needs: LiveNeeds::new(needs),
            config: Mutex::new(Arc::new(config)),
            checked,
            clock: OnceLock::new(),
        }
    }

    /// The settings for what is off the path of a closed call. A leaf among the locks: a breaker's own may be held.
    pub(super) fn config(&self) -> Share {
        Share(Some(Arc::clone(&lock(&self.config))))
    }

    /// Reads settings without a share in them: that might become the last one, and it is the user's code that goes with it. A
    /// leaf too.
    pub(super) fn read_config<R>(&self, read: impl FnOnce(&BreakerConfig) -> R) -> R {
        read(&lock(&self.config))
    }

    #[inline]
    pub(super) fn live(&self) -> &LiveThresholds {
        &self.live
    }

    #[inline]
    pub(super) fn needs(&self) -> Needs {
        self.needs.load()
    }

    /// The numbers of one version.
    pub(super) fn thresholds(&self) -> Thresholds {
        self.live.read().unwrap_or_else(|| self.thresholds_locked())
    }

    #[cold]
    fn thresholds_locked(&self) -> Thresholds {
        let config = lock(&self.config);
        self.live.read().unwrap_or_else(|| Thresholds::new(&config.rule))
    }

    /// Does something that was decided by the thresholds of `version`, unless they have changed; and they do not change while it
    /// is done. Returns whether it was done.
    pub(super) fn if_current(&self, version: u64, act: impl FnOnce(&BreakerConfig)) -> bool {
        let config = lock(&self.config);
        let is_current = self.live.version() == version;
        if is_current {
            act(&config);
        }
        is_current
    }

    /// Whether the settings can become these, which were checked by themselves.
    pub(super) fn check_change(&self, to: &BreakerConfig) -> Result<(), ConfigError> {
        same_windows(&self.config(), to)
    }

    /// Changes every setting but the windows, at once and for all breakers of the family.
    pub(crate) fn reconfigure(&self, mut config: BreakerConfig) -> Result<(), ConfigError> {
        config.check()?;
        self.checked.clone()?;
        let mut present = lock(&self.config);
        same_windows(&present, &config)?;
        config.inherit(&present);
        self.live.store(&Thresholds::new(&config.rule));
        self.needs.set(Needs::START, config.rule.slow().is_some());
        let before = mem::replace(&mut *present, Arc::new(config));
        drop(present);
        // Under no lock: predicates and listeners are the user's, and so is what they own.
        drop(before);
        Ok(())
    }

    pub(super) fn checked(&self) -> Result<(), ConfigError> {
        self.checked.clone()
    }

    /// Binds to `clock`, or says to which one it is bound.
    pub(super) fn bind(&self, clock: Clock) -> &Clock {
        let clock = self.clock.get_or_init(|| clock);
        self.needs.set(Needs::SETUP, self.checked.is_err());
        clock
    }

    #[inline]
    pub(super) fn clock(&self) -> Option<&Clock> {
        self.clock.get()
    }
}

/// Counts are kept when settings change, so what they are kept in must stay.
fn same_windows(present: &BreakerConfig, next: &BreakerConfig) -> Result<(), ConfigError> {
    let of_time = |config: &BreakerConfig| config.rule.window_of_time().map(|window| (window.buckets, window.width));
    let of_calls = |config: &BreakerConfig| config.rule.window_of_calls().map(|count| count.calls);
    if of_time(present) != of_time(next) {
        let value = match of_time(next) {
            Some((buckets, width)) => format!("{buckets} x {width:?}"),
            None => "none".to_owned(),
        };
        return Err(ConfigError::new("window", value, "cannot be changed while the breaker counts in it"));
    }
    if of_calls(present) != of_calls(next) {
        let value = of_calls(next).map_or("none".to_owned(), |calls| calls.to_string());
        return Err(ConfigError::new("count_window", value, "cannot be changed while the breaker counts in it"));
    }
    Ok(())
}
