//! `lab tune`: a chain from a file against a backend from a file, beside a client without retries and one that tries three times at
//! once.
//!
//! The chain is the standard one, `Executor::standard`, and its file is that of a `StandardConfig`.

mod backend;
mod outcome;
mod server;

use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use steadfast::breaker::State;
use steadfast::standard::StandardConfig;
use steadfast::{Breaker, ConfigError, Executor, Retry, Timeout};

use self::backend::Backend;
use self::outcome::Outcome;
use self::server::Described;
use crate::load::{self, Load};
use crate::record::share;
use crate::report::Report;
use crate::setting::Setting;
use crate::sim::Sim;

/// Reads both files, and runs them. Without a file for the chain it is the default.
///
/// # Errors
/// What is wrong with a file.
pub(crate) fn run(setting: &Setting, config: Option<&Path>, backend: &Path) -> Result<Report, String> {
    let config = config.map_or(Ok(StandardConfig::default()), chain)?;
    let backend = Backend::read(backend)?;
    let outcomes = setting.map("tune", &CLIENTS, |client| simulate(*client, &config, &backend, setting.seed));
    let outcomes = outcomes.into_iter().collect::<Result<Vec<_>, _>>().map_err(|refused| refused.to_string())?;
    Ok(outcome::report(&outcomes, &backend))
}

/// The settings of a file. What can work and is doubtful is told on stderr.
fn chain(path: &Path) -> Result<StandardConfig, String> {
    let config: StandardConfig = backend::read(path)?;
    config.check().map_err(|refused| format!("{}: {refused}", path.display()))?;
    for warning in config.warnings() {
        eprintln!("{}: warning: {warning}", path.display());
    }
    Ok(config)
}

/// Whose calls they are.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Client {
    Chain,
    OneTry,
    ThreeTries,
}

pub(super) const CLIENTS: [Client; 3] = [Client::Chain, Client::OneTry, Client::ThreeTries];

impl Client {
    pub(super) fn name(self) -> &'static str {
        match self {
            Client::Chain => "your chain",
            Client::OneTry => "one try",
            Client::ThreeTries => "three tries at once",
        }
    }

    /// Its place in the legend of the picture.
    pub(super) fn colour(self) -> usize {
        match self {
            Client::ThreeTries => 0,
            Client::Chain => 1,
            Client::OneTry => 2,
        }
    }

    /// An executor for one process, and its breaker.
    fn executor(
        self,
        config: &StandardConfig,
        sim: &Sim,
        seed: u64,
    ) -> Result<(Executor, Option<Breaker>), ConfigError> {
        let attempts = match self {
            Client::Chain => {
                let builder = Executor::standard("backend").config(seeded(config, seed));
                let executor = builder.clock(sim.clock()).seed(seed).build()?;
                let breaker = executor.policies().breaker().clone();
                return Ok((executor.erase(), Some(breaker)));
            }
            Client::OneTry => 1,
            Client::ThreeTries => 3,
        };
        let policies = (Retry::immediate().max_attempts(attempts), Timeout::new(config.attempt_limit()));
        let builder = Executor::builder("backend").policies(policies).unbudgeted();
        Ok((builder.clock(sim.clock()).build()?.erase(), None))
    }
}

/// All calls of the load, by one kind of client.
fn simulate(client: Client, config: &StandardConfig, backend: &Backend, seed: u64) -> Result<Outcome, ConfigError> {
    let sim = Sim::new();
    let processes: Vec<_> = (0..backend.load.clients as u64)
        .map(|process| client.executor(config, &sim, seed.wrapping_add(process)))
        .collect::<Result<_, _>>()?;
    let (executors, breakers): (Vec<_>, Vec<_>) = processes.into_iter().unzip();
    let breakers: Vec<_> = breakers.into_iter().flatten().collect();
    let open = Rc::new(RefCell::new(Vec::new()));
    let until = backend.load.duration;
    sim.spawn(watch(Rc::clone(&sim), breakers, Rc::clone(&open), until));
    let server = Arc::new(Described::new(backend.clone(), seed));
    let (changes, described) = (backend.edges(), backend.clone());
    let rate = move |at| described.rate(at);
    let record = load::drive(&sim, executors, &server, Load { seed, rate, changes, until, cut_at: until + PATIENCE });
    let arrivals = server.arrivals();
    Ok(Outcome { client, record, arrivals, open: open.take() })
}

/// Writes down, now and then, the share of breakers that do not let every call through.
async fn watch(sim: Rc<Sim>, breakers: Vec<Breaker>, open: Rc<RefCell<Vec<(f64, f64)>>>, until: Duration) {
    let pause = Duration::from_secs(1).max(until / LOOKS);
    let mut at = pause;
    while at <= until {
        sim.time().until(at).await;
        let shut = breakers.iter().filter(|breaker| breaker.state() != State::Closed).count();
        open.borrow_mut().push((at.as_secs_f64(), share(shut, breakers.len())));
        at += pause;
    }
}

/// With a breaker whose jitter is repeatable: a file has no seed.
fn seeded(config: &StandardConfig, seed: u64) -> StandardConfig {
    let breaker = config.breaker_config().clone().seed(seed);
    config.clone().breaker(breaker)
}

/// How often the breakers are looked at, at most.
const LOOKS: u32 = 240;

/// How long calls may go on after the last one was made.
const PATIENCE: Duration = Duration::from_secs(600);
