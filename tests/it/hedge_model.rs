//! Hedging against models of a dependency: what it does for the tail, what it costs, and that it cannot make an overload.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures::future::join_all;
use steadfast::clock::{ManualClock, Moment};
use steadfast::{Budget, Executor, Hedge, Timeout};

use crate::support::{Dice, at_rest, ms};

/// Lognormal with a median of 10 ms and a sigma of 0.5; one call in a hundred stalls and takes ten times as long.
fn latency(dice: &Dice) -> Duration {
    let stall = if dice.unit() < 0.01 { 10.0 } else { 1.0 };
    Duration::from_secs_f64(0.010 * (0.5 * dice.normal()).exp() * stall)
}

/// The mean of [`latency`].
const MEAN: f64 = 0.010 * 1.133_148 * 1.09;

struct Measured {
    latencies: Vec<Duration>,
    /// Hedges for each call.
    extra: f64,
}

impl Measured {
    fn new(mut latencies: Vec<Duration>, attempts: u32) -> Measured {
        latencies.sort_unstable();
        let extra = f64::from(attempts) / latencies.len() as f64 - 1.0;
        Measured { latencies, extra }
    }

    /// In milliseconds.
    fn percentile(&self, p: f64) -> f64 {
        self.latencies[(self.latencies.len() as f64 * p) as usize].as_secs_f64() * 1000.0
    }
}

fn executor(clock: &ManualClock, hedge: Option<Hedge>, budget: Option<Budget>) -> Executor<Option<Hedge>> {
    let builder = Executor::builder("model").policies(hedge).clock(clock);
    match budget {
        Some(budget) => builder.budget(budget),
        None => builder.unbudgeted(),
    }
    .build()
    .unwrap()
}

/// Independent replicas: every attempt takes its own time, whatever else is going on. One call after the other.
fn replicas(hedge: Option<Hedge>, budget: Option<Budget>) -> Measured {
    let (clock, _) = at_rest();
    let (dice, attempts) = (Dice::new(7), AtomicU32::new(0));
    let executor = executor(&clock, hedge, budget);
    let latencies = (0..CALLS).map(|_| {
        let begun = clock.now();
        let run = executor.run(|_| {
            attempts.fetch_add(1, Ordering::Relaxed);
            let answered = clock.clock().sleep(latency(&dice));
            async move {
                answered.await;
                Ok::<_, ()>(())
            }
        });
        clock.block_on(run).unwrap();
        clock.now().since(begun)
    });
    let latencies = latencies.collect();
    Measured::new(latencies, attempts.into_inner())
}

const CALLS: usize = 30_000;

#[test]
fn at_p95_the_extra_load_is_a_twentieth_and_the_tail_is_cut_threefold() {
    let without = replicas(None, None);
    let hedged = replicas(Some(Hedge::percentile(0.95)), None);
    assert!((0.04..=0.055).contains(&hedged.extra), "{}", hedged.extra);
    let (before, after) = (without.percentile(0.999), hedged.percentile(0.999));
    assert!(before >= 3.0 * after, "p99.9 {before} ms without, {after} ms with");
    assert!(hedged.percentile(0.99) < 0.8 * without.percentile(0.99));
    assert!((hedged.percentile(0.5) / without.percentile(0.5) - 1.0).abs() < 0.05);
}

#[test]
fn the_extra_load_follows_the_percentile() {
    for (p, least, most) in [(0.9, 0.085, 0.115), (0.98, 0.012, 0.025)] {
        let hedged = replicas(Some(Hedge::percentile(p)), None);
        assert!((least..=most).contains(&hedged.extra), "p{p}: {}", hedged.extra);
    }
}

/// Some calls hang wherever they are sent, until the limit of each attempt ends them. If those were left out, a fifth of the others would
/// be hedged besides.
#[test]
fn calls_that_hang_in_every_lane_do_not_raise_the_extra_load_above_the_percentile() {
    let (clock, _) = at_rest();
    let (dice, attempts) = (Dice::new(7), AtomicU32::new(0));
    let chain = (Hedge::percentile(0.8), Timeout::secs(1));
    let executor = Executor::builder("model").policies(chain).clock(&clock).unbudgeted().build().unwrap();
    for _ in 0..CALLS {
        let hangs = dice.unit() < 0.08;
        let run = executor.run(|_| {
            attempts.fetch_add(1, Ordering::Relaxed);
            let answered = clock.clock().sleep(if hangs { Duration::MAX } else { latency(&dice) });
            async move {
                answered.await;
                Ok::<_, ()>(())
            }
        });
        assert_eq!(clock.block_on(run).is_err(), hangs);
    }
    let extra = f64::from(attempts.into_inner()) / CALLS as f64 - 1.0;
    assert!((0.12..=0.2).contains(&extra), "{extra}");
}

#[test]
fn the_default_budget_does_not_stand_in_the_way_of_p95() {
    let hedged = replicas(Some(Hedge::percentile(0.95)), Some(Budget::default()));
    assert!(hedged.extra > 0.04 && hedged.percentile(0.999) < 70.0);
}

/// Ten servers, each with a queue of its own. What was sent to one is worked off, whether or not anybody waits for it.
struct Servers {
    clock: ManualClock,
    dice: Dice,
    free_at: Mutex<[Moment; 10]>,
    attempts: AtomicU32,
}

impl Servers {
    async fn serve(&self) -> Result<(), ()> {
        self.attempts.fetch_add(1, Ordering::Relaxed);
        let (server, takes) = ((self.dice.unit() * 10.0) as usize, latency(&self.dice));
        let done = {
            let mut free_at = self.free_at.lock().unwrap();
            free_at[server] = free_at[server].max(self.clock.now()) + takes;
            free_at[server]
        };
        self.clock.clock().sleep_until(done).await;
        Ok(())
    }
}

/// Calls at random times (a Poisson process) that keep the servers busy for a share of `utilisation`.
fn loaded(utilisation: f64, hedge: Option<Hedge>, budget: Option<Budget>) -> Measured {
    let (clock, _) = at_rest();
    let executor = executor(&clock, hedge, budget);
    let free_at = Mutex::new([clock.now(); 10]);
    let servers = Servers { clock: clock.clone(), dice: Dice::new(7), free_at, attempts: AtomicU32::new(0) };
    let (dice, rate) = (Dice::new(11), utilisation * 10.0 / MEAN);
    let mut at = clock.now();
    let runs = (0..ARRIVALS).map(|_| {
        at = at + Duration::from_secs_f64(-(1.0 - dice.unit()).ln() / rate);
        let (clock, executor, servers) = (&clock, &executor, &servers);
        async move {
            clock.clock().sleep_until(at).await;
            executor.run(|_| servers.serve()).await.unwrap();
            clock.now().since(at)
        }
    });
    let latencies = clock.block_on(join_all(runs));
    Measured::new(latencies, servers.attempts.into_inner())
}

const ARRIVALS: usize = 12_000;

/// A twentieth of the calls.
fn budget() -> Option<Budget> {
    Some(Budget::ratio(0.05))
}

#[test]
fn a_budget_keeps_a_fixed_delay_from_hedging_a_loaded_dependency_to_death() {
    let hedge = || Some(Hedge::after(ms(30)));
    let without = loaded(0.6, None, None).percentile(0.99);
    let hedged = loaded(0.6, hedge(), None);
    assert!(hedged.extra > 0.5 && hedged.percentile(0.99) > 5.0 * without, "without a budget the model collapses");
    let within = loaded(0.6, hedge(), budget());
    assert!(within.extra <= 0.052, "{}", within.extra);
    assert!(within.percentile(0.99) < 1.2 * without, "{} ms, {without} ms without", within.percentile(0.99));
}

#[test]
fn a_budget_keeps_a_percentile_from_following_an_overload_up() {
    let hedge = || Some(Hedge::percentile(0.95));
    let without = loaded(0.8, None, None).percentile(0.99);
    let within = loaded(0.8, hedge(), budget());
    assert!(within.extra <= 0.052, "{}", within.extra);
    assert!(within.percentile(0.99) < 1.2 * without, "{} ms, {without} ms without", within.percentile(0.99));
}
