//! A service in an outage, and what an operator sees of it: a live page, and figures for Prometheus.
//!
//! ```sh
//! cargo run --release --features full --example dashboard -- --serve 127.0.0.1:8080
//! ```
//!
//! and open <http://127.0.0.1:8080/>. The dependency of the service is healthy, slow, erroring, dead and healed, again and again
//! ([`script`]); its calls go through the standard chain with the numbers of `chain.toml`, and when the breaker is open customers get
//! an old price. Without `--serve` it plays the outage once, in 13 s, says how it went, and ends.
//!
//! What one would take from it: [`service`], which puts together the chain, the observers and the fallback, and the two lines of
//! `Service::figures`, which are all that Prometheus needs.

mod dependency;
mod history;
mod options;
mod script;
mod service;
mod web;

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use steadfast::{CancellationToken, Clock};
use tokio::net::TcpListener;

use crate::history::Tally;
use crate::options::{HELP, Options};
use crate::service::Service;

#[tokio::main]
async fn main() -> ExitCode {
    let options = match Options::parse(std::env::args().skip(1)) {
        Ok(Some(options)) => options,
        Ok(None) => {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Err(problem) => {
            eprintln!("dashboard: {problem}\n\n{HELP}");
            return ExitCode::from(2);
        }
    };
    match run(&options).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("dashboard: {problem}");
            ExitCode::FAILURE
        }
    }
}

async fn run(options: &Options) -> Result<(), Box<dyn Error>> {
    let address = options.address();
    let listener = TcpListener::bind(address).await.map_err(|error| format!("cannot listen at {address}: {error}"))?;
    let seed = options.seed.unwrap_or(DEFAULT_SEED);
    let service = Service::new(seed, install_recorder()?)?;
    println!("http://{}/", listener.local_addr()?);

    let end = CancellationToken::new();
    let web = axum::serve(listener, web::router(service.clone())).with_graceful_shutdown(end.clone().cancelled_owned());
    let web = tokio::spawn(web.into_future());
    let customers = tokio::spawn(service.clone().serve_customers(seed));
    let history = tokio::spawn(service.clone().keep_history());

    if options.serve.is_some() {
        println!("/metrics is for Prometheus; Ctrl-C ends it");
        tokio::signal::ctrl_c().await?;
    } else {
        play_once(&service).await;
    }
    customers.abort();
    history.abort();
    service.shutdown();
    end.cancel();
    tokio::select! {
        served = web => served??,
        () = Clock::tokio().sleep(FOR_OPEN_PAGES) => {}
    }
    Ok(())
}

/// Installs the recorder that all metrics of the program go to.
fn install_recorder() -> Result<PrometheusHandle, Box<dyn Error>> {
    // Without buckets a histogram would become a summary, which cannot be added up over several machines.
    let recorder = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &SECONDS)?
        .set_buckets_for_metric(Matcher::Suffix("_attempts".to_owned()), &ATTEMPTS)?
        .build_recorder();
    let handle = recorder.handle();
    metrics::set_global_recorder(recorder)?;
    Ok(handle)
}

/// Waits for the end of the script and says how it goes.
async fn play_once(service: &Service) {
    println!("\nthe dependency is   calls   fresh     old  nothing  attempts  breaker");
    let clock = Clock::tokio();
    let began = clock.now();
    let (mut until, mut before) = (began, Tally::default());
    for phase in &script::SCRIPT {
        until = until + phase.lasts;
        clock.sleep_until(until).await;
        let now = service.history().seen().totals;
        let [calls, fresh, old] = [now.calls - before.calls, now.fresh - before.fresh, now.old - before.old];
        let (attempts, state) = (now.attempts - before.attempts, history::breaker_state(&service.snapshot()));
        let (name, nothing) = (phase.name, calls - fresh - old);
        println!("{name:<17} {calls:>7} {fresh:>7} {old:>7} {nothing:>8} {attempts:>9}  {state}");
        before = now;
    }
    println!("\nsome of what Prometheus sees:");
    let figures = service.figures();
    let shown = |line: &&str| SHOWN.iter().any(|name| line.starts_with(name));
    figures.lines().filter(shown).for_each(|line| println!("{line}"));
}

const DEFAULT_SEED: u64 = 7;

/// How long a page that is being loaded may hold up the end.
const FOR_OPEN_PAGES: Duration = Duration::from_secs(1);

/// Buckets: of times, which have to be seen between a few milliseconds and the limit of a call, and of attempts.
const SECONDS: [f64; 10] = [0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0, 2.0];
const ATTEMPTS: [f64; 4] = [0.0, 1.0, 2.0, 3.0];

const SHOWN: [&str; 3] = ["steadfast_runs_total", "steadfast_breaker_state", "steadfast_breaker_transitions_total"];
