//! One breaker for each key.

use std::sync::Arc;

use super::config::BreakerConfig;
use super::family::Family;
use super::handle::Breaker;
use super::state::Core;
use crate::clock::{Clock, Moment};
use crate::error::ConfigError;
use crate::keyed::Keyed;
use crate::keyed::member::Member;
use crate::keyed::member::sealed::{Sealed, Standing};

impl Sealed for Breaker {}

/// When a map is full, a breaker that lets calls through, and knows of none under way, goes first; then one with calls under way,
/// then one that is open; one with a trial under way or isolated by hand not at all.
impl Member for Breaker {
    const KIND: &'static str = "breaker";

    type Config = BreakerConfig;
    type Family = Arc<Family>;

    fn family(config: BreakerConfig) -> Arc<Family> {
        Arc::new(Family::new(config, true))
    }

    fn join(family: &Arc<Family>, key: Option<&Arc<str>>) -> Breaker {
        Breaker::of_family(Arc::clone(family), key.cloned())
    }

    fn now(family: &Arc<Family>) -> Moment {
        // Unbound, all of them are new, at any time.
        family.clock().map_or(Moment::from_nanos(0), Clock::now)
    }

    fn standing(&self, now: Moment) -> Standing {
        self.core().standing(now)
    }

    fn is_held(&self) -> bool {
        self.is_shared()
    }
}

/// What all breakers of the map have in common.
impl Keyed<Breaker> {
    /// Changes the settings of all breakers of the map at once, those to come included: see [`Breaker::reconfigure`].
    ///
    /// # Errors
    /// If a setting cannot work, or the windows are others than before. Nothing has changed then.
    pub fn reconfigure(&self, config: BreakerConfig) -> Result<(), ConfigError> {
        self.family().reconfigure(config)
    }

    /// Binds all breakers of the map to `clock`: see [`Breaker::bind`].
    ///
    /// # Errors
    /// If they are bound to another clock.
    pub fn bind(&self, clock: impl Into<Clock>) -> Result<(), ConfigError> {
        self.sample().bind(clock)
    }
}

impl Core {
    /// What the loss of this breaker would mean to a map of them.
    fn standing(&self, now: Moment) -> Standing {
        if let Some(standing) = self.standing_by_state(now) {
            return standing;
        }
        if self.remembers(now) {
            Standing::Idle
        } else if self.was_used() {
            Standing::Fresh
        } else {
            Standing::Unused
        }
    }
}
