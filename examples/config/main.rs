//! Executors from a file, and another file while they run.
//!
//! ```sh
//! cargo run --release --features full --example config
//! ```
//!
//! It calls nothing but itself, runs on a manual clock and takes no time.

use steadfast::clock::Clock;
use steadfast::registry::{Registry, RegistryConfig};
use steadfast::snapshot::PolicySnapshot;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let clock = Clock::manual();
    let on = clock.clone();
    let config: RegistryConfig = toml::from_str(include_str!("dependencies.toml"))?;
    let registry = Registry::with(config, move |builder| builder.clock(&on))?;
    println!("from TOML: {}", registry.names().join(", "));

    let search = registry.get_or_create("search")?;
    let outage = |_| async { Err::<u32, _>("connection refused") };
    while search.policies().breaker().remaining_open().is_zero() {
        println!("  {}", clock.block_on(search.run(outage)).expect_err("it is down"));
    }
    println!("  {}", clock.block_on(search.run(outage)).expect_err("it is not even asked"));

    // The same in JSON, with other numbers. What was counted stays: the breaker is still open, and for as long as it was.
    let next = r#"{
        "defaults": { "total_timeout": "10s", "attempt_timeout": "3s" },
        "executors": { "search": { "retry": { "max_attempts": 5 } }, "mail": { "bulkhead": { "permits": 5 } } }
    }"#;
    registry.reload(serde_json::from_str(next)?)?;
    println!("after a reload from JSON: {}", registry.names().join(", "));
    println!("  {}", clock.block_on(search.run(outage)).expect_err("still open"));

    let form =
        toml::from_str::<RegistryConfig>("[executors.search.retry]\nmax_atempts = 3").expect_err("a typing error");
    println!("a file that cannot be read:\n{form}");
    let numbers = toml::from_str("[executors.search]\nattempt_timeout = \"20s\"\ntotal_timeout = \"10s\"")?;
    println!("one that cannot work:\n  {}", registry.reload(numbers).expect_err("too long"));
    let doubtful: RegistryConfig = toml::from_str("[executors.search]\ntotal_timeout = \"10s\"")?;
    doubtful.warnings().iter().for_each(|warning| println!("one that is doubtful:\n  {warning}"));

    println!("what an operator sees:");
    for executor in registry.snapshot() {
        let breaker = executor.policies.iter().find_map(|policy| match policy {
            PolicySnapshot::Breaker(breaker) => Some(breaker.state),
            _ => None,
        });
        println!("  {:8} breaker {}", executor.name, breaker.expect("the standard chain has one"));
    }
    println!("{}", serde_json::to_string_pretty(&search.snapshot())?);
    Ok(())
}
