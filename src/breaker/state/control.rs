//! What an operator does to a breaker by hand.
//!
//! An isolated breaker obeys nothing but [`release`](Core::release): whoever isolated it must be able to rely on that.

use super::{Cold, Core, Kind};
use crate::breaker::config::BreakerConfig;
use crate::breaker::transition::Cause;
use crate::clock::Moment;
use crate::sync::Ordering;

impl Core {
    /// Opens the breaker now, for the open time that is due; if it is open, that time begins anew.
    pub(crate) fn force_open(&self, now: Moment) {
        self.command(|cold, config, kind| match kind {
            Kind::Isolated => {}
            Kind::Open => self.rare().refuse_for(cold.times.again(config), now),
            _ => self.open(cold, config, Cause::ForcedOpen, now, now),
        });
    }

    /// Closes the breaker, with a fresh window.
    pub(crate) fn force_close(&self, now: Moment) {
        self.close_by_hand(Cause::ForcedClosed, now, |_| {});
    }

    /// As if it were new: closed, with a fresh window, no refusals counted, and no openings in a row.
    pub(crate) fn reset(&self, now: Moment) {
        self.close_by_hand(Cause::Reset, now, |cold| {
            cold.times.reset();
            self.rare().rejected.store(0, Ordering::Relaxed);
        });
    }

    pub(crate) fn isolate(&self, now: Moment) {
        self.enter(Kind::Isolated, Cause::Isolated, now);
    }

    pub(crate) fn disable(&self, now: Moment) {
        self.enter(Kind::Disabled, Cause::Disabled, now);
    }

    pub(crate) fn metrics_only(&self, now: Moment) {
        self.enter(Kind::MetricsOnly, Cause::MetricsOnly, now);
    }

    /// Ends what was begun by hand: closed, with a fresh window.
    pub(crate) fn release(&self, now: Moment) {
        self.command(|cold, config, kind| {
            if matches!(kind, Kind::Isolated | Kind::Disabled | Kind::MetricsOnly) {
                self.change(cold, config, Kind::Closed, Cause::Released, now, now);
            }
        });
    }

    fn close_by_hand(&self, cause: Cause, now: Moment, also: impl FnOnce(&mut Cold)) {
        self.command(|cold, config, kind| {
            if kind != Kind::Isolated {
                self.change(cold, config, Kind::Closed, cause, now, now);
                also(cold);
            }
        });
    }

    fn enter(&self, mode: Kind, cause: Cause, now: Moment) {
        self.command(|cold, config, kind| {
            if kind != Kind::Isolated && kind != mode {
                self.change(cold, config, mode, cause, now, now);
            }
        });
    }

    fn command(&self, change: impl FnOnce(&mut Cold, &BreakerConfig, Kind)) {
        let (config, mut cold) = self.cold_with_config();
        let kind = self.word_locked(&cold).kind();
        change(&mut cold, &config, kind);
        self.deliver(cold);
    }
}
