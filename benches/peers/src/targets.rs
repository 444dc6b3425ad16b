//! What steadfast promises to cost, and whether it does.

use crate::cases::{
    BREAKER_CONSECUTIVE, BREAKER_OPEN, BREAKER_WINDOW, BULKHEAD, CHAIN, CHAIN_ERASED, CHAIN_OBSERVED, CHAIN_TRACING,
    Case, FUTURE, HEDGE_READY, MEMORY, On, Quantity, RATE_LIMITER, RATE_LIMITER_KEYED, RETRY_FAILURES, RETRY_SUCCESS,
    Results, TIMEOUT_PENDING, TIMEOUT_READY,
};
use crate::harness::Cost;
use crate::peers::steadfast::{FAST_CLOCK, TOKIO_CLOCK};
use crate::peers::{backon, failsafe, governor, recloser, seatbelt, steadfast_two_steps as two_steps, tokio};

/// One promise, and what became of it in this run.
pub struct Checked {
    pub case: &'static str,
    pub on: On,
    pub subject: &'static str,
    /// What is bounded, such as "x seatbelt".
    pub unit: String,
    pub figures: Figures,
    pub bound: f64,
}

/// What a promise is judged by, and what helps to judge the judgement.
pub struct Figures {
    /// If it is a time, by the smallest means on one thread, and by the medians on two. This decides.
    ///
    /// On one thread whatever else goes on can only make a mean larger; and it does so unevenly: what shares a core with us slows
    /// those who keep it busy, and not those who wait for a clock. On two threads the smallest mean may be one of threads that were
    /// not busy at the same time.
    pub measured: f64,
    /// The same by the medians, where those do not decide.
    pub by_medians: Option<f64>,
    /// The time that would just keep the promise.
    pub bound_ns: Option<f64>,
}

impl Checked {
    pub fn is_met(&self) -> bool {
        self.figures.measured <= self.bound
    }
}

/// All promises that this run has the figures for.
pub fn check(results: &Results) -> Vec<Checked> {
    TARGETS.iter().filter_map(|target| target.check(results)).collect()
}

struct Target {
    subject: &'static str,
    on: On,
    what: What,
    bound: f64,
}

enum What {
    /// The time, as a multiple of the best of these.
    Of(&'static Case, &'static [&'static str]),
    /// The time, as a multiple of its own on one thread.
    OfOneThread(&'static Case),
    /// The time, as a multiple of its own on as many threads that share nothing but the machine.
    OfThreadsApart(&'static Case),
    /// The time, in ns more than that of the other case.
    MoreThan(&'static Case, &'static Case),
    Allocations(&'static Case),
    Bytes(&'static Quantity),
}

impl Target {
    fn check(&self, results: &Results) -> Option<Checked> {
        let cost = |case, on, peer| results.cost(case, on, peer);
        let own = |case| cost(case, self.on, self.subject);
        let (case, unit, figures) = match self.what {
            What::Of(case, peers) => {
                let others = peers.iter().filter_map(|peer| Some((peer, cost(case, self.on, peer)?)));
                let (best, other) = others.min_by(|a, b| self.decides()(a.1).total_cmp(&self.decides()(b.1)))?;
                (case.name, format!("× {best}"), self.ratio(own(case)?, other))
            }
            What::OfOneThread(case) => {
                let alone = cost(case, On::OneThread, self.subject)?;
                (case.name, "× itself on one thread".to_owned(), self.ratio(own(case)?, alone))
            }
            What::OfThreadsApart(case) => {
                let apart = cost(case, On::TwoThreadsApart, self.subject)?;
                (case.name, "× two that share nothing".to_owned(), self.ratio(own(case)?, apart))
            }
            What::MoreThan(case, other) => {
                (case.name, format!("ns more than {}", other.name), self.difference(own(case)?, own(other)?))
            }
            What::Allocations(case) => (case.name, "allocations".to_owned(), Figures::counted(own(case)?.allocations)),
            What::Bytes(quantity) => {
                (quantity.name, "bytes".to_owned(), Figures::counted(results.bytes(quantity, self.subject)?))
            }
        };
        Some(Checked { case, on: self.on, subject: self.subject, unit, figures, bound: self.bound })
    }

    fn ratio(&self, own: &Cost, other: &Cost) -> Figures {
        let by = |ns: fn(&Cost) -> f64| ns(own) / ns(other);
        Figures {
            measured: by(self.decides()),
            by_medians: (self.on == On::OneThread).then(|| by(median)),
            bound_ns: Some(self.bound * self.decides()(other)),
        }
    }

    fn difference(&self, own: &Cost, other: &Cost) -> Figures {
        let by = |ns: fn(&Cost) -> f64| ns(own) - ns(other);
        Figures {
            measured: by(self.decides()),
            by_medians: (self.on == On::OneThread).then(|| by(median)),
            bound_ns: Some(self.bound + self.decides()(other)),
        }
    }

    fn decides(&self) -> fn(&Cost) -> f64 {
        if self.on == On::OneThread { min } else { median }
    }
}

fn min(cost: &Cost) -> f64 {
    cost.min_ns
}

fn median(cost: &Cost) -> f64 {
    cost.median_ns
}

impl Figures {
    fn counted(n: f64) -> Figures {
        Figures { measured: n, by_medians: None, bound_ns: None }
    }
}

const fn on_tokio_clock(what: What, bound: f64) -> Target {
    Target { subject: TOKIO_CLOCK, on: On::OneThread, what, bound }
}

const fn on_fast_clock(what: What, bound: f64) -> Target {
    Target { subject: FAST_CLOCK, on: On::OneThread, what, bound }
}

const fn in_two_steps(what: What, bound: f64) -> Target {
    Target { subject: two_steps::TOKIO_CLOCK, on: On::OneThread, what, bound }
}

const fn in_two_steps_on_fast_clock(what: What, bound: f64) -> Target {
    Target { subject: two_steps::FAST_CLOCK, on: On::OneThread, what, bound }
}

const fn on_two_threads(target: Target) -> Target {
    Target { on: On::TwoThreads, ..target }
}

static TARGETS: [Target; 41] = [
    on_tokio_clock(What::Of(&CHAIN, &[seatbelt::NAME]), 0.5),
    on_fast_clock(What::Of(&CHAIN, &[seatbelt::NAME]), 0.25),
    on_tokio_clock(What::Allocations(&CHAIN), 0.0),
    on_fast_clock(What::Allocations(&CHAIN), 0.0),
    on_two_threads(on_tokio_clock(What::OfOneThread(&CHAIN), 1.2)),
    on_two_threads(on_fast_clock(What::OfOneThread(&CHAIN), 1.2)),
    on_two_threads(on_tokio_clock(What::OfThreadsApart(&CHAIN), 1.2)),
    on_two_threads(on_fast_clock(What::OfThreadsApart(&CHAIN), 1.2)),
    on_tokio_clock(What::Allocations(&CHAIN_ERASED), 2.0),
    on_tokio_clock(What::MoreThan(&CHAIN_OBSERVED, &CHAIN), 10.0),
    on_tokio_clock(What::MoreThan(&CHAIN_TRACING, &CHAIN), 3.0),
    on_fast_clock(What::MoreThan(&CHAIN_TRACING, &CHAIN), 3.0),
    on_tokio_clock(What::Of(&BREAKER_WINDOW, &[failsafe::NAME]), 0.45),
    on_fast_clock(What::Of(&BREAKER_WINDOW, &[failsafe::NAME]), 0.22),
    on_two_threads(on_tokio_clock(What::OfOneThread(&BREAKER_WINDOW), 1.2)),
    on_two_threads(on_fast_clock(What::OfOneThread(&BREAKER_WINDOW), 1.2)),
    on_two_threads(on_tokio_clock(What::OfThreadsApart(&BREAKER_WINDOW), 1.2)),
    on_two_threads(on_fast_clock(What::OfThreadsApart(&BREAKER_WINDOW), 1.2)),
    on_tokio_clock(What::Of(&BREAKER_CONSECUTIVE, &[failsafe::NAME]), 0.5),
    on_tokio_clock(What::Of(&BREAKER_OPEN, &[recloser::NAME, failsafe::NAME]), 0.7),
    // As the peers are used: without an executor, whose frame is no part of a breaker.
    in_two_steps(What::Of(&BREAKER_WINDOW, &[failsafe::NAME]), 0.45),
    in_two_steps_on_fast_clock(What::Of(&BREAKER_WINDOW, &[failsafe::NAME]), 0.22),
    on_two_threads(in_two_steps(What::OfOneThread(&BREAKER_WINDOW), 1.2)),
    on_two_threads(in_two_steps_on_fast_clock(What::OfOneThread(&BREAKER_WINDOW), 1.2)),
    on_two_threads(in_two_steps(What::OfThreadsApart(&BREAKER_WINDOW), 1.2)),
    on_two_threads(in_two_steps_on_fast_clock(What::OfThreadsApart(&BREAKER_WINDOW), 1.2)),
    in_two_steps(What::Of(&BREAKER_CONSECUTIVE, &[failsafe::NAME]), 0.5),
    in_two_steps(What::Of(&BREAKER_OPEN, &[recloser::NAME, failsafe::NAME]), 0.7),
    on_tokio_clock(What::Of(&RETRY_SUCCESS, &[backon::NAME]), 1.8),
    on_tokio_clock(What::Of(&RETRY_FAILURES, &[seatbelt::NAME]), 1.0),
    on_tokio_clock(What::Of(&TIMEOUT_READY, &[tokio::NAME]), 1.0),
    on_fast_clock(What::Of(&TIMEOUT_READY, &[seatbelt::NAME]), 0.6),
    on_tokio_clock(What::Of(&TIMEOUT_PENDING, &[tokio::NAME]), 1.25),
    on_tokio_clock(What::Of(&HEDGE_READY, &[tokio::NAME]), 0.3),
    on_tokio_clock(What::Of(&RATE_LIMITER, &[governor::STD_CLOCK]), 1.1),
    on_fast_clock(What::Of(&RATE_LIMITER, &[governor::QUANTA_CLOCK]), 1.1),
    on_tokio_clock(What::Of(&RATE_LIMITER_KEYED, &[governor::STD_CLOCK]), 1.3),
    on_fast_clock(What::Of(&RATE_LIMITER_KEYED, &[governor::QUANTA_CLOCK]), 1.3),
    on_tokio_clock(What::Of(&BULKHEAD, &[tokio::NAME]), 0.6),
    on_tokio_clock(What::Bytes(&FUTURE), 528.0),
    on_tokio_clock(What::Bytes(&MEMORY), 360.0),
];
