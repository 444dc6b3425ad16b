//! The service: it asks its dependency for a price, through the standard chain, and has an old price for when that is down.

use std::sync::Arc;
use std::time::Duration;

use metrics_exporter_prometheus::PrometheusHandle;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use steadfast::event::Event;
use steadfast::metrics::{self, Metrics};
use steadfast::registry::{Registry, RegistryConfig};
use steadfast::snapshot::ExecutorSnapshot;
use steadfast::standard::StandardChain;
use steadfast::{Clock, Error, Executor, Fallback};

use crate::dependency::{Dependency, Unavailable};
use crate::history::History;

/// Clones are the same service.
#[derive(Clone)]
pub(crate) struct Service(Arc<Shared>);

struct Shared {
    dependency: Dependency,
    pricing: Executor<StandardChain>,
    history: Arc<History>,
    prometheus: PrometheusHandle,
}

/// What a caller gets.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Price {
    /// From the dependency.
    Fresh(u32),
    /// From yesterday: better than none.
    Old(u32),
}

impl Service {
    /// The recorder has to be installed already: metrics keep the handles that they get from it.
    pub(crate) fn new(seed: u64, prometheus: PrometheusHandle) -> Result<Service, Box<dyn std::error::Error>> {
        let config: RegistryConfig = toml::from_str(include_str!("chain.toml"))?;
        let history = Arc::<History>::default();
        let told = Arc::clone(&history);
        let registry = Registry::with(config, move |builder| {
            let told = Arc::clone(&told);
            builder.seed(seed).observe(Metrics::new()).observe(move |event: &Event| told.on_event(event))
        })?;
        let pricing = registry.get_or_create(PRICING)?;
        Ok(Service(Arc::new(Shared { dependency: Dependency::new(seed), pricing, history, prometheus })))
    }

    /// Asks for a price. If the breaker is open there is an old one at once; any other failure is one.
    pub(crate) async fn price(&self) -> Result<Price, Error<Unavailable>> {
        let old = Fallback::value(Price::Old(OLD_PRICE)).when(|error: &Error<Unavailable>| error.is_circuit_open());
        let ask = |_| async { self.0.dependency.price().await.map(Price::Fresh) };
        self.0.pricing.around(old).run(ask).await
    }

    /// Calls itself as customers would, fifty times a second, whether or not the earlier calls have ended.
    pub(crate) async fn serve_customers(self, seed: u64) {
        let clock = Clock::tokio();
        let mut dice = SmallRng::seed_from_u64(seed);
        let mut next = clock.now();
        loop {
            next = next + BETWEEN_CUSTOMERS.mul_f64(dice.random_range(0.5..1.5));
            clock.sleep_until(next).await;
            let service = self.clone();
            tokio::spawn(async move { service.price().await });
        }
    }

    /// Looks at the figures a few times a second, so that the page has a past to show.
    pub(crate) async fn keep_history(self) {
        let clock = Clock::tokio();
        loop {
            // Not to a moment: after a late sample the next one would be short, and a call in it look like a burst.
            clock.sleep(SAMPLE_EVERY).await;
            self.0.history.sample(self.playing(), self.phase(), &self.snapshot());
            // Histograms are kept as single values until they are looked at, or this is called.
            self.0.prometheus.run_upkeep();
        }
    }

    /// The figures in the text format of Prometheus. Gauges are as old as the last `record`, so they are asked for now.
    pub(crate) fn figures(&self) -> String {
        metrics::record(&self.snapshot());
        self.0.prometheus.render()
    }

    pub(crate) fn snapshot(&self) -> ExecutorSnapshot {
        self.0.pricing.snapshot()
    }

    pub(crate) fn history(&self) -> &History {
        &self.0.history
    }

    pub(crate) fn playing(&self) -> Duration {
        self.0.dependency.playing()
    }

    /// What is happening to the dependency.
    pub(crate) fn phase(&self) -> &'static str {
        self.0.dependency.phase().name
    }

    /// Ends all calls.
    pub(crate) fn shutdown(&self) {
        self.0.pricing.shutdown();
    }
}

const PRICING: &str = "pricing";
const OLD_PRICE: u32 = 18_49;
const BETWEEN_CUSTOMERS: Duration = Duration::from_millis(20);
const SAMPLE_EVERY: Duration = Duration::from_millis(200);
