//! What is measured: the cases that take time, and the quantities of memory.

use std::io::Write;

use crate::harness::{
    Answers, Cost, Effort, Group, Subject, Threads, Work, count_instructions, enter_runtime, heap_of,
};
use crate::operation::KEYS;
use crate::parts::{Part, Parts};
use crate::peers::{Can, Peer, all};
use crate::rollover::{self, Rolled};

/// Calls of one kind, timed.
pub struct Case {
    /// What a filter on the command line is compared with.
    pub name: &'static str,
    pub group: &'static str,
    pub title: &'static str,
    answers: Answers,
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
    /// How busy the machine was before, in waiting threads; `None` where the system does not say.
    pub load: Option<f64>,
    pub timed: Vec<Timed>,
    pub rolled: Vec<Rolled>,
    pub counted: Vec<Counted>,
    pub parts: Vec<Part>,
}

/// What a case costs a subject, or why it cannot express it.
pub struct Timed {
    pub case: &'static Case,
    pub peer: &'static str,
    /// On one thread, on two that share one, and on two of which each has its own.
    pub costs: Can<[Cost; 3]>,
}

/// The entries of [`Timed::costs`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum On {
    OneThread,
    TwoThreads,
    TwoThreadsApart,
}

pub struct Counted {
    pub quantity: &'static Quantity,
    pub peer: &'static str,
    pub bytes: Can<f64>,
}

impl Results {
    pub fn cost(&self, case: &Case, threads: On, peer: &str) -> Option<&Cost> {
        let timed = self.timed.iter().find(|timed| timed.case.name == case.name && timed.peer == peer)?;
        timed.costs.as_ref().ok()?.get(threads as usize)
    }

    pub fn bytes(&self, quantity: &Quantity, peer: &str) -> Option<f64> {
        let counted =
            self.counted.iter().find(|counted| counted.quantity.name == quantity.name && counted.peer == peer)?;
        counted.bytes.ok()
    }
}

/// Measures every case and quantity whose name contains `filter`; and the parts in any case, since they say what could be expected.
pub fn measure(effort: Effort, filter: &str) -> Results {
    let load = load();
    let _entered = enter_runtime();
    let peers = all();
    let threads = Threads::start(2);
    let cases: Vec<_> = CASES.into_iter().filter(|case| case.name.contains(filter)).collect();
    let cases: Vec<_> =
        cases.chunk_by(|a, b| a.group == b.group).map(|group| Cases::set_up(group, &peers, &threads)).collect();
    let (timed, parts) = time(cases, &threads, effort);
    let rolled = if rollover::NAME.contains(filter) { roll(&threads, effort) } else { Vec::new() };
    let quantities = QUANTITIES.into_iter().filter(|quantity| quantity.name.contains(filter));
    let counted = quantities.flat_map(|quantity| weigh(quantity, &peers)).collect();
    Results { effort, load, timed, rolled, counted, parts }
}

/// The cases that each subject can express: its name, a tab, and that of the subject.
pub fn list() -> String {
    let _entered = enter_runtime();
    let peers = all();
    let pairs = CASES.iter().flat_map(|case| peers.iter().map(move |peer| (case, peer)));
    let able = pairs.filter(|(case, peer)| (case.set_up)(peer.as_ref()).is_ok());
    able.map(|(case, peer)| format!("{}\t{}\n", case.name, peer.name())).collect()
}

/// Makes calls for a profiler that counts instructions.
pub fn count(case: &str, peer: &str, calls: u64) -> Can<()> {
    let _entered = enter_runtime();
    let case = CASES.into_iter().find(|known| known.name == case).ok_or("there is no such case")?;
    let peers = all();
    let peer = peers.iter().find(|known| known.name() == peer).ok_or("there is no such subject")?;
    count_instructions(&(case.set_up)(peer.as_ref())?, case.answers, calls);
    Ok(())
}

/// All cases and the parts, in several passes.
fn time(mut cases: Vec<Cases>, threads: &Threads, effort: Effort) -> (Vec<Timed>, Vec<Part>) {
    let mut parts = Parts::set_up(threads);
    for pass in 1..=effort.passes {
        say(&format!("pass {pass} of {}", effort.passes));
        for group in cases.iter_mut().map(|cases| &mut cases.group).chain([&mut parts.group]) {
            group.pass(threads, effort.rounds);
        }
    }
    (cases.into_iter().flat_map(|cases| cases.timed(threads)).collect(), parts.costs(threads))
}

/// Cases of one group are compared with each other too, and one thread with two, so they take turns as well.
struct Cases {
    group: Group,
    /// Without the costs of those that can.
    timed: Vec<Timed>,
}

impl Cases {
    fn set_up(cases: &[&'static Case], peers: &[Box<dyn Peer>], threads: &Threads) -> Cases {
        say(cases[0].group);
        let mut timed = Vec::new();
        let mut subjects = Vec::new();
        for (case, peer) in cases.iter().flat_map(|case| peers.iter().map(move |peer| (*case, peer.as_ref()))) {
            let costs = on_threads(case, peer).map(|all| {
                subjects.extend(all);
                [Cost::default(); 3]
            });
            timed.push(Timed { case, peer: peer.name(), costs });
        }
        Cases { group: Group::new(subjects, threads), timed }
    }

    fn timed(self, threads: &Threads) -> Vec<Timed> {
        let Cases { group, mut timed } = self;
        let mut costs = group.costs(threads).into_iter();
        for all in timed.iter_mut().filter_map(|timed| timed.costs.as_mut().ok()) {
            all.fill_with(|| costs.next().unwrap_or_default());
        }
        timed
    }
}

/// One subject for each entry of [`Timed::costs`]: what two threads have shared may stay slower, or larger, ever after.
fn on_threads(case: &Case, peer: &dyn Peer) -> Can<[Subject; 3]> {
    let work = || (case.set_up)(peer);
    let subject = |works| Subject { name: format!("{}: {}", case.name, peer.name()), works, answers: case.answers };
    Ok([vec![work()?], vec![work()?; 2], vec![work()?, work()?]].map(subject))
}

fn roll(threads: &Threads, effort: Effort) -> Vec<Rolled> {
    say(rollover::NAME);
    rollover::measure(threads, effort).expect("the subjects are those of steadfast, which can")
}

fn weigh(quantity: &'static Quantity, peers: &[Box<dyn Peer>]) -> Vec<Counted> {
    say(quantity.name);
    let counted = peers.iter().map(|peer| {
        let bytes = (quantity.count)(peer.as_ref());
        Counted { quantity, peer: peer.name(), bytes }
    });
    counted.collect()
}

/// The mean of the last minute.
fn load() -> Option<f64> {
    std::fs::read_to_string("/proc/loadavg").ok()?.split(' ').next()?.parse().ok()
}

/// Tells whoever waits how far it is. The report alone goes to stdout.
fn say(name: &str) {
    let _nobody_waits = writeln!(std::io::stderr(), "{name} …");
}

fn per_breaker(peer: &dyn Peer) -> Can<f64> {
    let mut made = Ok(());
    let bytes = heap_of(|| peer.breakers(BREAKERS).map_err(|reason| made = Err(reason)));
    made.map(|()| bytes as f64 / BREAKERS as f64)
}

pub static CASES: [&Case; 18] = [
    &NOTHING,
    &CHAIN,
    &CHAIN_ERASED,
    &CHAIN_OBSERVED,
    &CHAIN_TRACING,
    &BREAKER_WINDOW,
    &BREAKER_FAILURES,
    &BREAKER_CONSECUTIVE,
    &BREAKER_OPEN,
    &RETRY_SUCCESS,
    &RETRY_FAILURES,
    &TIMEOUT_READY,
    &TIMEOUT_PENDING,
    &HEDGE_READY,
    &RATE_LIMITER,
    &RATE_LIMITER_KEYED,
    &BULKHEAD,
    &BULKHEAD_CHAIN,
];

pub static QUANTITIES: [&Quantity; 2] = [&FUTURE, &MEMORY];

pub static NOTHING: Case = Case {
    name: "nothing",
    group: CHAINS,
    title: "an executor without policies, success",
    answers: ALL,
    set_up: |peer| peer.nothing(),
};

pub static CHAIN: Case = Case {
    name: "chain",
    group: CHAINS,
    title: "retry + breaker (time window) + timeout, success",
    answers: ALL,
    set_up: |peer| peer.chain(),
};

pub static CHAIN_ERASED: Case = Case {
    name: "chain-erased",
    group: CHAINS,
    title: "the same, its type erased",
    answers: ALL,
    set_up: |peer| peer.chain_erased(),
};

pub static CHAIN_OBSERVED: Case = Case {
    name: "chain-observed",
    group: CHAINS,
    title: "the same, one observer",
    answers: ALL,
    set_up: |peer| peer.chain_observed(),
};

pub static CHAIN_TRACING: Case = Case {
    name: "chain-tracing",
    group: CHAINS,
    title: "the same, observed for `tracing`, which has no subscriber",
    answers: ALL,
    set_up: |peer| peer.chain_tracing(),
};

pub static BREAKER_WINDOW: Case = Case {
    name: "breaker-window",
    group: BREAKERS_ALONE,
    title: "closed, time window, success",
    answers: ALL,
    set_up: |peer| peer.breaker_window(),
};

pub static BREAKER_FAILURES: Case = Case {
    name: "breaker-failures",
    group: BREAKERS_ALONE,
    title: "closed, time window, 10 % failures",
    answers: NINE_OF_TEN,
    set_up: |peer| peer.breaker_failures(),
};

pub static BREAKER_CONSECUTIVE: Case = Case {
    name: "breaker-consecutive",
    group: BREAKERS_ALONE,
    title: "closed, failures in a row, success",
    answers: ALL,
    set_up: |peer| peer.breaker_consecutive(),
};

pub static BREAKER_OPEN: Case = Case {
    name: "breaker-open",
    group: BREAKERS_ALONE,
    title: "open, refusal",
    answers: NONE,
    set_up: |peer| peer.breaker_open(),
};

pub static RETRY_SUCCESS: Case = Case {
    name: "retry-success",
    group: RETRIES,
    title: "around a success",
    answers: ALL,
    set_up: |peer| peer.retry_success(),
};

pub static RETRY_FAILURES: Case = Case {
    name: "retry-failures",
    group: RETRIES,
    title: "two failures, then a success, no delay",
    answers: ALL,
    set_up: |peer| peer.retry_failures(),
};

pub static TIMEOUT_READY: Case = Case {
    name: "timeout-ready",
    group: TIMEOUTS,
    title: "around a future that is ready",
    answers: ALL,
    set_up: |peer| peer.timeout_ready(),
};

pub static TIMEOUT_PENDING: Case = Case {
    name: "timeout-pending",
    group: TIMEOUTS,
    title: "around one that is pending once",
    answers: ALL,
    set_up: |peer| peer.timeout_pending(),
};

pub static HEDGE_READY: Case = Case {
    name: "hedge-ready",
    group: HEDGES,
    title: "fixed delay, around a future that is ready",
    answers: ALL,
    set_up: |peer| peer.hedge_ready(),
};

pub static RATE_LIMITER: Case = Case {
    name: "rate-limiter",
    group: LIMITS,
    title: "a token is there, two steps",
    answers: ALL,
    set_up: |peer| peer.rate_limiter(),
};

pub static RATE_LIMITER_KEYED: Case = Case {
    name: "rate-limiter-keyed",
    group: LIMITS,
    title: "the same for one of 10,000 keys",
    // Each batch goes through all of them, and finds in the caches what the last keys have left there.
    answers: Answers { successes: KEYS as u64, of: KEYS as u64 },
    set_up: |peer| peer.rate_limiter_keyed(),
};

pub static BULKHEAD: Case = Case {
    name: "bulkhead",
    group: LIMITS,
    title: "a permit is there, two steps",
    answers: ALL,
    set_up: |peer| peer.bulkhead(),
};

pub static BULKHEAD_CHAIN: Case = Case {
    name: "bulkhead-chain",
    group: LIMITS,
    title: "the same as a policy or a layer",
    answers: ALL,
    set_up: |peer| peer.bulkhead_chain(),
};

pub static FUTURE: Quantity = Quantity {
    name: "future",
    title: "future of the chain, with what is allocated to make it",
    count: |peer| peer.chain_future().map(|bytes| bytes as f64),
};

pub static MEMORY: Quantity = Quantity {
    name: "memory",
    title: "one of 100,000 breakers, each used once: handle and heap, and of a keyed one the map and the key",
    count: per_breaker,
};

const ALL: Answers = Answers::ALL;
const NINE_OF_TEN: Answers = Answers { successes: 9, of: 10 };
const NONE: Answers = Answers { successes: 0, of: 1 };

const CHAINS: &str = "Chain";
const BREAKERS_ALONE: &str = "Breaker";
const RETRIES: &str = "Retry";
const TIMEOUTS: &str = "Timeout";
const HEDGES: &str = "Hedge";
const LIMITS: &str = "Limits";

const BREAKERS: u64 = 100_000;
