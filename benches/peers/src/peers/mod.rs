//! The subjects: steadfast on both of its clocks, its breaker alone, and the others, each set up as its documentation says.
//!
//! A new case is one more method of [`Peer`], and one more function in the file of each peer that can express it.

pub mod backon;
mod bare;
pub mod failsafe;
pub mod governor;
mod hand;
pub mod recloser;
pub mod seatbelt;
pub mod steadfast;
pub mod steadfast_two_steps;
pub mod tokio;
mod tokio_retry2;
mod tower;
mod tower_resilience;

use std::any::Any;
use std::time::Duration;

use crate::harness::Work;

/// What a peer makes of a case, or why it cannot express it.
pub type Can<T> = Result<T, &'static str>;

/// A subject. Each method sets up one case.
pub trait Peer {
    fn name(&self) -> &'static str;

    /// The crate whose version is shown, if it is one of many.
    fn package(&self) -> Option<&'static str>;

    /// Why it cannot express the cases for which it has no method.
    fn lacks(&self) -> &'static str;

    /// What every call costs, whatever the policies are, where they are run by something.
    fn nothing(&self) -> Can<Work> {
        Err(self.lacks())
    }

    /// A retry around a breaker with a window of time around a timeout; the call succeeds.
    fn chain(&self) -> Can<Work> {
        Err(self.lacks())
    }

    /// The same behind one type, whatever the policies are.
    fn chain_erased(&self) -> Can<Work> {
        Err(self.lacks())
    }

    /// The same with somebody who sees every call.
    fn chain_observed(&self) -> Can<Work> {
        Err(self.lacks())
    }

    /// The same with an observer that makes spans, and nobody who wants them.
    fn chain_tracing(&self) -> Can<Work> {
        Err(self.lacks())
    }

    /// A closed breaker that counts in a window of time; the call succeeds.
    fn breaker_window(&self) -> Can<Work> {
        Err(self.lacks())
    }

    /// The same; every tenth call fails.
    fn breaker_failures(&self) -> Can<Work> {
        Err(self.lacks())
    }

    /// A closed breaker that counts failures in a row; the call succeeds.
    fn breaker_consecutive(&self) -> Can<Work> {
        Err(self.lacks())
    }

    /// An open breaker.
    fn breaker_open(&self) -> Can<Work> {
        Err(self.lacks())
    }

    /// Three tries, exponential backoff; the first one succeeds.
    fn retry_success(&self) -> Can<Work> {
        Err(self.lacks())
    }

    /// Three tries without a delay between them; the third one succeeds.
    fn retry_failures(&self) -> Can<Work> {
        Err(self.lacks())
    }

    /// A limit around a call that is ready at once.
    fn timeout_ready(&self) -> Can<Work> {
        Err(self.lacks())
    }

    /// A limit around a call that is pending once.
    fn timeout_pending(&self) -> Can<Work> {
        Err(self.lacks())
    }

    /// A second call after a second, if the first has not answered; it answers at once.
    fn hedge_ready(&self) -> Can<Work> {
        Err(self.lacks())
    }

    /// A limit of a thousand million calls a second: never reached.
    fn rate_limiter(&self) -> Can<Work> {
        Err(self.lacks())
    }

    /// The same for each of ten thousand keys, all of which are known already.
    fn rate_limiter_keyed(&self) -> Can<Work> {
        Err(self.lacks())
    }

    /// At most a thousand calls at a time: never reached.
    fn bulkhead(&self) -> Can<Work> {
        Err(self.lacks())
    }

    /// The same as a part of a chain, or as the layer that it is.
    fn bulkhead_chain(&self) -> Can<Work> {
        Err(self.lacks())
    }

    /// The size of the future of [`chain`](Peer::chain), with what is allocated to make it.
    fn chain_future(&self) -> Can<usize> {
        Err(self.lacks())
    }

    /// So many breakers that count in a window of time, each used for one call that succeeds.
    fn breakers(&self, n: u64) -> Can<Box<dyn Any>> {
        let _ = n;
        Err(self.lacks())
    }
}

pub fn all() -> Vec<Box<dyn Peer>> {
    vec![
        Box::new(bare::Bare),
        Box::new(steadfast::Steadfast::on_tokio_clock()),
        Box::new(steadfast::Steadfast::on_fast_clock()),
        Box::new(steadfast_two_steps::TwoSteps::on_tokio_clock()),
        Box::new(steadfast_two_steps::TwoSteps::on_fast_clock()),
        Box::new(failsafe::Failsafe),
        Box::new(recloser::Recloser),
        Box::new(seatbelt::Seatbelt),
        Box::new(tower_resilience::TowerResilience),
        Box::new(tower::Tower),
        Box::new(backon::Backon),
        Box::new(tokio_retry2::TokioRetry2),
        Box::new(tokio::Tokio),
        Box::new(governor::Governor::on_std_clock()),
        Box::new(governor::Governor::on_quanta_clock()),
        Box::new(hand::Hand),
    ]
}

/// The settings, the same for all: a window of 10 x 1 s that opens at half of at least 20 calls.
const WINDOW: Duration = Duration::from_secs(10);
const FAILURE_RATE: f64 = 0.5;
const MINIMUM_CALLS: u32 = 20;

/// Failures in a row.
const CONSECUTIVE: u32 = 5;

/// Longer than any measurement.
const OPEN_FOR: Duration = Duration::from_secs(3600);

const ATTEMPTS: u32 = 3;
const BASE_DELAY: Duration = Duration::from_millis(100);
const LIMIT: Duration = Duration::from_secs(1);

/// Calls a second that are allowed, and at once: more than any machine makes.
const RATE: u32 = 1_000_000_000;

/// Calls at a time that are allowed: more than there are threads.
const PERMITS: usize = 1_000;
