//! What a hedge does for the tail of a dependency, and what it costs: `cargo run --release --all-features --example hedge`.
//!
//! A backend answers in some 10 ms, but stalls for a second once in a hundred calls. The same calls are made without a hedge,
//! with hedges of a fixed delay and of a percentile, and with budgets. Then the backend gets slow as a whole: every call
//! outlasts a fixed delay and is hedged, which is the last thing that such a backend needs, unless a budget bounds it.
//!
//! It runs on a manual clock, so an hour of calls takes a second or two.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use steadfast::clock::{Clock, ManualClock};
use steadfast::{Budget, Executor, Hedge};

fn main() {
    println!("{CALLS} calls, one after the other; 1 of 100 stalls for a second\n");
    table(Duration::from_millis(10));
    println!("\nThe same, with a backend that takes 60 ms instead of 10\n");
    table(Duration::from_millis(60));
}

fn table(median: Duration) {
    println!("{:34} {:>8} {:>8} {:>8} {:>8} {:>10}", "", "p50", "p95", "p99", "p99.9", "extra load");
    let fixed = || Some(Hedge::after(Duration::from_millis(40)));
    let percentile = || Some(Hedge::percentile(0.95));
    row("no hedge", median, None, None);
    row("after 40 ms", median, fixed(), None);
    row("after 40 ms, budget of 5 %", median, fixed(), Some(Budget::ratio(0.05)));
    row("at the 95th percentile", median, percentile(), None);
    row("at the 95th percentile, 5 %", median, percentile(), Some(Budget::ratio(0.05)));
    row("at the 95th percentile, 2 %", median, percentile(), Some(Budget::ratio(0.02)));
}

/// Makes all calls in one way, and prints what came of them.
fn row(name: &str, median: Duration, hedge: Option<Hedge>, budget: Option<Budget>) {
    let clock = Clock::manual();
    let builder = Executor::builder("backend").policies(hedge).clock(&clock);
    let builder = match budget {
        Some(budget) => builder.budget(budget),
        None => builder.unbudgeted(),
    };
    let executor = builder.build().expect("these settings can work");
    let backend = Backend { clock: clock.clone(), median, calls: AtomicU64::new(0) };
    let mut latencies: Vec<Duration> = (0..CALLS)
        .map(|_| {
            let begun = clock.now();
            clock.block_on(executor.run(|_| backend.call())).expect("it always answers");
            clock.now().since(begun)
        })
        .collect();
    latencies.sort_unstable();
    let percentile = |p: f64| latencies[(latencies.len() as f64 * p) as usize].as_secs_f64() * 1000.0;
    let [p50, p95, p99, p999] = [0.5, 0.95, 0.99, 0.999].map(percentile);
    let extra = 100.0 * (backend.calls.load(Ordering::Relaxed) as f64 / latencies.len() as f64 - 1.0);
    println!("{name:34} {p50:5.1} ms {p95:5.1} ms {p99:5.0} ms {p999:5.0} ms {extra:8.1} %");
}

/// A service with replicas that do not hinder each other.
struct Backend {
    clock: ManualClock,
    median: Duration,
    calls: AtomicU64,
}

impl Backend {
    async fn call(&self) -> Result<(), std::convert::Infallible> {
        let takes = self.latency(self.calls.fetch_add(1, Ordering::Relaxed));
        self.clock.clock().sleep(takes).await;
        Ok(())
    }

    fn latency(&self, call: u64) -> Duration {
        let dice = Dice(Cell::new(call.wrapping_mul(0xD129_0B26_39A7_4B15)));
        if dice.unit() < 0.01 { Duration::from_secs(1) } else { self.median.mul_f64(spread(&dice)) }
    }
}

/// Around 1: a lognormal with a sigma of 0.3, the normal being the sum of twelve even draws.
fn spread(dice: &Dice) -> f64 {
    let normal = (0..12).map(|_| dice.unit()).sum::<f64>() - 6.0;
    (0.3 * normal).exp()
}

/// Numbers that the seed decides (SplitMix64): every row sees the same stalls.
struct Dice(Cell<u64>);

impl Dice {
    fn unit(&self) -> f64 {
        self.0.set(self.0.get().wrapping_add(0x9E37_79B9_7F4A_7C15));
        let mixed = (self.0.get() ^ self.0.get() >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((mixed ^ mixed >> 31) >> 11) as f64 / (1_u64 << 53) as f64
    }
}

const CALLS: usize = 50_000;
