//! How a rate limit, a bulkhead and a limit for each user treat a crowd that comes at once.
//!
//! ```sh
//! cargo run --release --features full --example limits
//! ```
//!
//! It runs on a manual clock and takes no time.

use std::time::Duration;

use futures::future::join_all;
use steadfast::clock::{Clock, ManualClock};
use steadfast::limit::{BulkheadConfig, RateLimiterConfig};
use steadfast::{Bulkhead, ConfigError, Context, Error, Executor, Keyed, Policy, RateLimiter};

fn main() -> Result<(), ConfigError> {
    let clock = Clock::manual();

    println!("5 calls a second, 3 at once, and a call waits for at most a second:");
    let rate = RateLimiterConfig::per_second(5).burst(3).max_wait(Duration::from_secs(1));
    crowd(&clock, &Executor::builder("rate").policies(RateLimiter::new(rate)).clock(&clock).build()?, &[""; 12]);

    println!("\n2 calls at a time, each of which takes 100 ms, and 4 may wait:");
    let bulkhead = Bulkhead::with(BulkheadConfig::new(2).queue(4));
    crowd(&clock, &Executor::builder("pool").policies(bulkhead.clone()).clock(&clock).build()?, &[""; 8]);
    assert_eq!(bulkhead.available(), 2, "all permits are back");

    println!("\n2 calls a second for each user:");
    let users = Keyed::<RateLimiter>::new(RateLimiterConfig::per_second(2));
    let executor = Executor::builder("users").policies(users.clone()).clock(&clock).build()?;
    crowd(&clock, &executor, &["ann", "bob", "bob", "bob", "bob", "cid", "ann"]);
    println!("  {} users are known, {} had to make room", users.len(), users.evictions());
    Ok(())
}

/// Starts a call for each user at once, and prints what becomes of it.
fn crowd<P: Policy<Duration, String>>(clock: &ManualClock, executor: &Executor<P>, users: &[&str]) {
    let begun = clock.now();
    let calls = users.iter().map(|&user| async move {
        let cx = Context::new().with_clock(clock).with_key(user);
        let work = |_| async {
            let started = clock.now().since(begun);
            clock.clock().sleep(Duration::from_millis(100)).await;
            Ok::<_, String>(started)
        };
        executor.run_with(&cx, work).await
    });
    let results = clock.block_on(join_all(calls));
    for (number, (user, result)) in (1..).zip(users.iter().zip(results)) {
        println!("  {number:2} {user:4} {}", describe(&result));
    }
}

fn describe(result: &Result<Duration, Error<String>>) -> String {
    match result {
        Ok(started) => format!("started after {} ms", started.as_millis()),
        Err(error) => error.to_string(),
    }
}
