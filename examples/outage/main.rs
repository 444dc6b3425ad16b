//! One outage, two clients: a naive one (three immediate tries) and the same with a chain of `steadfast` around it.
//!
//! Two real HTTP servers on loopback play the same script ([`script::SCRIPT`], 15 s); each client is asked for 100 calls a
//! second, started by the clock whether or not the earlier ones have ended. Prints what happens as it happens, then a table,
//! and draws `target/outage.svg`. The last line is the result as JSON.
//!
//! ```sh
//! cargo run --release --features full --example outage
//! ```
//!
//! It holds about 700 sockets while the server is dead; `ulimit -n` tells how many files a process may open.

mod client;
mod load;
mod plot;
mod script;
mod server;
mod table;

use std::error::Error;
use std::fs;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use steadfast::{Clock, clock::Moment};

use crate::client::{Naive, Steadfast};
use crate::load::{Record, Side};
use crate::script::phase_at;
use crate::server::Server;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let clock = Clock::tokio();
    let begin = clock.now() + Duration::from_millis(100);
    let (for_naive, for_steadfast) = (Server::start(begin).await?, Server::start(begin).await?);
    let naive = Naive::new(for_naive.url())?;
    let steadfast = Steadfast::new(for_steadfast.url(), begin)?;
    let (left, right) = (Arc::new(Record::default()), Arc::new(Record::default()));

    let progress = tokio::spawn({
        let (steadfast, left, right) = (steadfast.clone(), Arc::clone(&left), Arc::clone(&right));
        let (server_left, server_right) = (for_naive.clone(), for_steadfast.clone());
        async move { report(begin, [(&left, &server_left), (&right, &server_right)], &steadfast).await }
    });
    tokio::try_join!(load::drive(naive, begin, &left), load::drive(steadfast.clone(), begin, &right))?;
    progress.await?;

    let naive = Side { samples: left.take(), arrivals: for_naive.arrivals() };
    let with_chain = Side { samples: right.take(), arrivals: for_steadfast.arrivals() };
    let changes = steadfast.changes();
    println!("\n{}", table::render(&naive, &with_chain, &changes));
    fs::create_dir_all("target")?;
    fs::write(PICTURE, plot::render(&naive, &with_chain, &changes))?;
    println!("{PICTURE} shows it.");
    println!("{}", json!({ "naive": figures(&naive), "steadfast": figures(&with_chain) }));
    Ok(())
}

/// A line each second, until the script is over.
async fn report(begin: Moment, sides: [(&Record, &Server); 2], steadfast: &Steadfast) {
    let clock = Clock::tokio();
    println!("                          |   naive, per second   | steadfast, per second |");
    println!("seconds  the server is    |     ok  sent upstream |     ok  sent upstream | breaker");
    for second in 1..=script::length().as_secs() {
        let (from, to) = (Duration::from_secs(second - 1), Duration::from_secs(second));
        clock.sleep_until(begin + to).await;
        let [naive, chain] = sides.map(|(record, server)| {
            format!("{:>6} {:>14}", record.succeeded_between(from, to), server.arrived_between(from, to))
        });
        let phase = phase_at(from).name;
        println!("{second:>7}  {phase:<16} | {naive} | {chain} | {}", steadfast.breaker().state());
    }
    println!("waiting for the last calls");
}

fn figures(side: &Side) -> serde_json::Value {
    let p99 = load::quantile(&side.samples, 0.99);
    json!({
        "calls": side.samples.len(),
        "ok": side.samples.iter().filter(|sample| sample.ok).count(),
        "p99_ms": (p99.as_secs_f64() * 10_000.0).round() / 10.0,
        "upstream": side.arrivals.len(),
    })
}

const PICTURE: &str = "target/outage.svg";
