//! Deterministic simulation: random chains between random clients and a random backend, on the manual clock, decided by a seed.
//!
//! A seed decides everything: the policies and their settings, how many clients there are and what they want, when the backend is
//! slow, fails, hangs, panics, asks for patience or cannot be reached, when the clock jumps, and what an operator does meanwhile.
//! While that runs, what the policies promise is checked: see [`watch`] for each policy, [`run`] for each run, [`story`] for
//! its events, and [`World::settle`] for what is left at the end.
//!
//! ```sh
//! STEADFAST_SEEDS=10000 cargo test --release --all-features --test it simulation    # more of them
//! STEADFAST_SEED=4711 cargo test --all-features --test it simulation                # one again
//! ```

mod backend;
mod client;
mod run;
mod story;
mod watch;
mod world;

use std::env;
use std::thread;

use self::world::{Reached, World};

#[test]
fn simulation_promises_hold_for_every_seed() {
    let (seeds, is_default) = seeds();
    let mut reached = Reached::default();
    let count = seeds.end - seeds.start;
    for seed in seeds {
        let _on_failure = Repeat(seed);
        let world = World::new(seed);
        world.play();
        let broken = world.broken();
        assert!(broken.is_empty(), "promises are broken.\n{}\n{}", world.describe(), broken.join("\n"));
        reached.add(&world);
    }
    println!("simulation: {count} seeds: {reached:?}");
    if is_default {
        reached.assert_far_enough();
    }
}

#[test]
fn simulation_of_one_seed_is_always_the_same() {
    for seed in 0..20 {
        let tell = || {
            let world = World::new(seed);
            world.play();
            world.trace()
        };
        assert_eq!(tell(), tell(), "seed {seed}");
    }
}

/// Says how to repeat a simulation that fails, in whatever way.
struct Repeat(u64);

impl Drop for Repeat {
    fn drop(&mut self) {
        if thread::panicking() {
            let Repeat(seed) = self;
            eprintln!("seed {seed}: `STEADFAST_SEED={seed} cargo test --all-features --test it simulation` repeats it");
        }
    }
}

/// The seeds to run, and whether nobody has asked for others.
fn seeds() -> (std::ops::Range<u64>, bool) {
    let number =
        |name| env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name}={text}: not a number")));
    match (number("STEADFAST_SEED"), number("STEADFAST_SEEDS")) {
        (Some(seed), _) => (seed..seed + 1, false),
        (None, Some(count)) => (0..count, false),
        (None, None) => (0..DEFAULT_SEEDS, true),
    }
}

/// A few seconds' worth in a debug build.
const DEFAULT_SEEDS: u64 = 1_500;
