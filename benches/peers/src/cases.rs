//! What is measured: the cases that take time, and the quantities of memory.

use std::io::Write;

use crate::harness::{Cost, Effort, Threads, Work, enter_runtime, heap_of};
use crate::peers::{Can, Peer, all};

/// Calls of one kind, timed.
pub struct Case {
    /// What a filter on the command line is compared with.
    pub name: &'static str,
    pub group: &'static str,
    pub title: &'static str,
    /// How many of the calls succeed, or something else was measured than meant.
    share: f64,
    set_up: fn(&dyn Peer) -> Can<Work>,
}

/// Bytes, counted.
pub struct Quantity {
    pub name: &'static str,
    pub title: &'static str,
    count: fn(&dyn Peer) -> Can<f64>,
}

/// All that a run has found.
pub struct Results {
    pub effort: Effort,
    pub timed: Vec<Timed>,
    pub counted: Vec<Counted>,
}

/// What a case costs a subject, on one thread and on two, or why it cannot express it.
pub struct Timed {
    pub case: &'static Case,
    pub peer: &'static str,
    pub costs: Can<[Cost; 2]>,
}

pub struct Counted {
    pub quantity: &'static Quantity,
    pub peer: &'static str,
    pub bytes: Can<f64>,
}

impl Results {
    pub fn cost(&self, case: &Case, threads: usize, peer: &str) -> Option<&Cost> {
        let timed = self.timed.iter().find(|timed| timed.case.name == case.name && timed.peer == peer)?;
        timed.costs.as_ref().ok()?.get(threads - 1)
    }

    pub fn bytes(&self, quantity: &Quantity, peer: &str) -> Option<f64> {
        let counted =
            self.counted.iter().find(|counted| counted.quantity.name == quantity.name && counted.peer == peer)?;
        counted.bytes.ok()
    }
}

/// Measures every case and quantity whose name contains `filter`.
pub fn measure(effort: Effort, filter: &str) -> Results {
    let _entered = enter_runtime();
    let peers = all();
    let threads = Threads::start(2);
    let cases = CASES.iter().filter(|case| case.name.contains(filter));
    let timed = cases.flat_map(|case| time(case, &peers, &threads, effort)).collect();
    let quantities = QUANTITIES.iter().filter(|quantity| quantity.name.contains(filter));
    let counted = quantities.flat_map(|quantity| count(quantity, &peers)).collect();
    Results { effort, timed, counted }
}

fn time(case: &'static Case, peers: &[Box<dyn Peer>], threads: &Threads, effort: Effort) -> Vec<Timed> {
    say(case.name);
    let mut refused = Vec::new();
    let mut works = Vec::new();
    for peer in peers {
        match (case.set_up)(peer.as_ref()) {
            Ok(work) => works.push((peer.name(), work)),
            Err(reason) => refused.push(Timed { case, peer: peer.name(), costs: Err(reason) }),
        }
    }
    let one = threads.measure(&works, 1, effort, case.share);
    let two = threads.measure(&works, 2, effort, case.share);
    let costs = one.into_iter().zip(two);
    let timed = works.iter().zip(costs).map(|((peer, _), (one, two))| Timed { case, peer, costs: Ok([one, two]) });
    timed.chain(refused).collect()
}

fn count(quantity: &'static Quantity, peers: &[Box<dyn Peer>]) -> Vec<Counted> {
    say(quantity.name);
    let counted = peers.iter().map(|peer| {
        let bytes = (quantity.count)(peer.as_ref());
        Counted { quantity, peer: peer.name(), bytes }
    });
    counted.collect()
}

/// Tells whoever waits how far it is. The report alone goes to stdout.
fn say(name: &str) {
    let _nobody_waits = writeln!(std::io::stderr(), "{name} …");
}

fn per_breaker(peer: &dyn Peer) -> Can<f64> {
    let mut made = Ok(());
    let (bytes, _) = heap_of(|| peer.breakers(BREAKERS).map_err(|reason| made = Err(reason)));
    made.map(|()| bytes as f64 / BREAKERS as f64)
}

pub static CASES: [&Case; 11] = [
    &CHAIN,
    &CHAIN_ERASED,
    &CHAIN_OBSERVED,
    &BREAKER_WINDOW,
    &BREAKER_FAILURES,
    &BREAKER_CONSECUTIVE,
    &BREAKER_OPEN,
    &RETRY_SUCCESS,
    &RETRY_FAILURES,
    &TIMEOUT_READY,
    &TIMEOUT_PENDING,
];

pub static QUANTITIES: [&Quantity; 2] = [&FUTURE, &MEMORY];

pub static CHAIN: Case = Case {
    name: "chain",
    group: CHAINS,
    title: "retry + breaker (time window) + timeout, success",
    share: 1.0,
    set_up: |peer| peer.chain(),
};

pub static CHAIN_ERASED: Case = Case {
    name: "chain-erased",
    group: CHAINS,
    title: "the same, its type erased",
    share: 1.0,
    set_up: |peer| peer.chain_erased(),
};

pub static CHAIN_OBSERVED: Case = Case {
    name: "chain-observed",
    group: CHAINS,
    title: "the same, one observer",
    share: 1.0,
    set_up: |peer| peer.chain_observed(),
};

pub static BREAKER_WINDOW: Case = Case {
    name: "breaker-window",
    group: BREAKERS_ALONE,
    title: "closed, time window, success",
    share: 1.0,
    set_up: |peer| peer.breaker_window(),
};

pub static BREAKER_FAILURES: Case = Case {
    name: "breaker-failures",
    group: BREAKERS_ALONE,
    title: "closed, time window, 10 % failures",
    share: 0.9,
    set_up: |peer| peer.breaker_failures(),
};

pub static BREAKER_CONSECUTIVE: Case = Case {
    name: "breaker-consecutive",
    group: BREAKERS_ALONE,
    title: "closed, failures in a row, success",
    share: 1.0,
    set_up: |peer| peer.breaker_consecutive(),
};

pub static BREAKER_OPEN: Case = Case {
    name: "breaker-open",
    group: BREAKERS_ALONE,
    title: "open, refusal",
    share: 0.0,
    set_up: |peer| peer.breaker_open(),
};

pub static RETRY_SUCCESS: Case = Case {
    name: "retry-success",
    group: RETRIES,
    title: "around a success",
    share: 1.0,
    set_up: |peer| peer.retry_success(),
};

pub static RETRY_FAILURES: Case = Case {
    name: "retry-failures",
    group: RETRIES,
    title: "two failures, then a success, no delay",
    share: 1.0,
    set_up: |peer| peer.retry_failures(),
};

pub static TIMEOUT_READY: Case = Case {
    name: "timeout-ready",
    group: TIMEOUTS,
    title: "around a future that is ready",
    share: 1.0,
    set_up: |peer| peer.timeout_ready(),
};

pub static TIMEOUT_PENDING: Case = Case {
    name: "timeout-pending",
    group: TIMEOUTS,
    title: "around one that is pending once",
    share: 1.0,
    set_up: |peer| peer.timeout_pending(),
};

pub static FUTURE: Quantity = Quantity {
    name: "future",
    title: "future of the chain, with what is allocated to make it",
    count: |peer| peer.chain_future().map(|bytes| bytes as f64),
};

pub static MEMORY: Quantity =
    Quantity { name: "memory", title: "one of 100,000 breakers, each used once: handle and heap", count: per_breaker };

const CHAINS: &str = "Chain";
const BREAKERS_ALONE: &str = "Breaker";
const RETRIES: &str = "Retry";
const TIMEOUTS: &str = "Timeout";

const BREAKERS: u64 = 100_000;
