//! What happens in a run, as data for whoever wants to see it.
//!
//! An [`Observer`] is given to an executor and sees every [`Event`] of its runs. What it can rely on:
//!
//! * **Complete.** A run that starts is finished, also if its caller drops it or its operation panics. Every attempt that starts is
//!   finished or abandoned before its run is finished. (One try at a time, and one for each call, where a policy of your own stands
//!   inside of a [judging](crate::judge) one.)
//! * **In order.** The events of one run come one after another, in the order in which things happened, with times that do not go back unless a clock of
//!   your own does.
//!   Those of different runs may come at the same time, from different threads.
//! * **Harmless.** No lock is held meanwhile, a panic in an observer goes no further, and an observer that blocks holds up its own run
//!   only.
//!
//! Changes that an operator makes by hand belong to no run: a [`Breaker`](crate::Breaker) tells its own
//! [`on_transition`](crate::breaker::BreakerConfig::on_transition) of them, who hear of every transition, whoever caused it.
//!
//! ```
//! use std::sync::{Arc, Mutex};
//! use steadfast::event::{Event, What};
//! use steadfast::{Executor, Retry};
//!
//! # let clock = steadfast::clock::Clock::manual();
//! let delays = Arc::new(Mutex::new(Vec::new()));
//! let seen = Arc::clone(&delays);
//! let search = Executor::builder("search")
//!     .policies(Retry::immediate())
//!     .observe(move |event: &Event| {
//!         if let What::RetryScheduled { delay, .. } = event.what {
//!             seen.lock().unwrap().push((event.attempt, delay));
//!         }
//!     })
//! #   .clock(&clock)
//!     .build()?;
//! # clock.block_on(async {
//! let _busy = search.run(|_| async { Err::<(), _>("busy") }).await;
//! # });
//! assert_eq!(delays.lock().unwrap().iter().map(|seen| seen.0).collect::<Vec<_>>(), [1, 2]);
//! # Ok::<_, steadfast::ConfigError>(())
//! ```

mod run_id;
#[cfg(any(feature = "tracing", feature = "metrics"))]
mod under_way;
mod what;

use std::fmt;
use std::sync::Arc;

#[cfg(feature = "tracing")]
use ::tracing::level_filters::LevelFilter;

pub use self::run_id::RunId;
#[cfg(any(feature = "tracing", feature = "metrics"))]
pub(crate) use self::under_way::UnderWay;
pub use self::what::{CutOff, RunEnd, What};
use crate::clock::Moment;
use crate::error::Name;
pub use crate::error::stopped::Stopped;
use crate::shield::shielded;

/// Something that happened, in a run or to the policies of an executor. Events are built only if somebody observes the executor.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Event {
    /// The name of the executor; `None` in a run of [`try_do`](crate::try_do).
    pub executor: Option<Name>,
    /// The run that it happened in; `None` for what an operator did to the executor.
    pub run: Option<RunId>,
    /// When, on the clock of the executor. Within one poll time stands still, except at the end of an attempt.
    pub at: Moment,
    /// Which try of the run it happened in, from 1; 0 outside of a run.
    pub attempt: u32,
    /// Which lane of a hedged try it happened in; 0 is the first.
    pub hedge: u32,
    /// The name of the policy that it came from, if that is a handle with a name of its own.
    pub policy: Option<Name>,
    /// What happened.
    pub what: What,
}

/// Sees the events of the runs of an executor, one after another for each run, in the task of the run.
///
/// It is called while no lock is held. A panic in it is reported by the panic hook and otherwise ignored: watching never
/// changes a run. It should return quickly, since the run waits for it; hand longer work to a channel.
pub trait Observer: Send + Sync + 'static {
    /// Sees one event.
    fn on_event(&self, event: &Event);

    /// Whether it wants to see the run that is about to start; asked once for each. A run that no observer wants to see builds no
    /// events. Default: always. An observer that says no still sees a run that another one wants.
    fn is_enabled(&self) -> bool {
        true
    }

    /// The span of a run, if it keeps one: the run is polled in it, so that whatever the operation logs belongs to it. Asked at
    /// each poll. Default: none.
    #[cfg(feature = "tracing")]
    #[cfg_attr(docsrs, doc(cfg(feature = "tracing")))]
    fn span(&self, run: RunId) -> Option<Arc<::tracing::Span>> {
        let _ = run;
        None
    }
}

impl<F: Fn(&Event) + Send + Sync + 'static> Observer for F {
    fn on_event(&self, event: &Event) {
        self(event);
    }
}

/// The observers of an executor.
#[derive(Clone, Default)]
pub(crate) struct Observers {
    all: Vec<Arc<dyn Observer>>,
    audience: Audience,
}

/// What is known of observers without asking them: to ask takes a call through a table, and a shield against panics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Audience {
    /// There are none.
    #[default]
    Nobody,
    /// There are some, and [`tracing_is_off`] says of each that it does not want to see a run.
    #[cfg(feature = "tracing")]
    Tracing,
    /// One or more have to be asked.
    Anybody,
}

impl Observers {
    /// One that is asked whether it wants to see a run.
    pub(crate) fn push(&mut self, observer: Arc<dyn Observer>) {
        self.all.push(observer);
        self.audience = Audience::Anybody;
    }

    /// One that wants to see a run unless [`tracing_is_off`].
    #[cfg(feature = "tracing")]
    pub(crate) fn push_tracing(&mut self, observer: Arc<dyn Observer>) {
        self.all.push(observer);
        if self.audience == Audience::Nobody {
            self.audience = Audience::Tracing;
        }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    #[inline]
    pub(crate) fn audience(&self) -> Audience {
        self.audience
    }

    /// Whether one of them wants to see the run that is about to start.
    pub(crate) fn are_enabled(&self) -> bool {
        let mut enabled = false;
        for observer in &self.all {
            shielded(|| enabled |= observer.is_enabled());
        }
        enabled
    }

    /// The span of the run: that of the first observer that keeps one.
    #[cfg(feature = "tracing")]
    pub(crate) fn span(&self, run: RunId) -> Option<Arc<::tracing::Span>> {
        let mut span = None;
        for observer in &self.all {
            if span.is_none() {
                shielded(|| span = observer.span(run));
            }
        }
        span
    }

    pub(crate) fn tell(&self, event: &Event) {
        for observer in &self.all {
            shielded(|| observer.on_event(event));
        }
    }
}

impl fmt::Debug for Observers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} observers", self.all.len())
    }
}

/// Whether no subscriber of `tracing` wants to see anything, mostly because there is none: one load.
#[cfg(feature = "tracing")]
#[inline]
pub(crate) fn tracing_is_off() -> bool {
    LevelFilter::current() == LevelFilter::OFF
}
