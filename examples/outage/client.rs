//! The two clients. Both may try three times, and wait at most a second for each answer.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use reqwest::Response;
use steadfast::breaker::{BreakerConfig, State, TripRule};
use steadfast::clock::Moment;
use steadfast::{Breaker, ConfigError, Executor, Retry, Timeout};

/// Makes one call; a clone is the same client.
pub(crate) trait Client: Clone + Send + Sync + 'static {
    /// Whether there was an answer to use.
    fn call(&self) -> impl Future<Output = bool> + Send;
}

/// What is written first: try again at once, twice.
#[derive(Clone)]
pub(crate) struct Naive {
    http: reqwest::Client,
    url: String,
}

impl Naive {
    pub(crate) fn new(url: String) -> reqwest::Result<Naive> {
        let http = reqwest::Client::builder().no_proxy().timeout(PATIENCE).build()?;
        Ok(Naive { http, url })
    }
}

impl Client for Naive {
    async fn call(&self) -> bool {
        for _ in 0..TRIES {
            if let Ok(response) = self.http.get(&self.url).send().await
                && is_usable(response).await
            {
                return true;
            }
        }
        false
    }
}

/// The same, through a chain.
#[derive(Clone)]
pub(crate) struct Steadfast {
    http: steadfast::reqwest::Client,
    url: String,
    breaker: Breaker,
    changes: Arc<Mutex<Vec<Change>>>,
}

/// A change of the breaker's state, at a time since the start of the script.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Change {
    pub(crate) at: Duration,
    pub(crate) to: State,
}

impl Steadfast {
    pub(crate) fn new(url: String, begin: Moment) -> Result<Steadfast, Box<dyn std::error::Error>> {
        let changes = Arc::<Mutex<Vec<Change>>>::default();
        let breaker = Breaker::new(breaker_config().on_transition({
            let changes = Arc::clone(&changes);
            move |change| lock(&changes).push(Change { at: change.at.since(begin), to: change.to })
        }));
        let http = reqwest::Client::builder().no_proxy().retry(reqwest::retry::never()).build()?;
        let http = steadfast::reqwest::Client::new(http, executor(breaker.clone())?);
        Ok(Steadfast { http, url, breaker, changes })
    }

    pub(crate) fn breaker(&self) -> &Breaker {
        &self.breaker
    }

    /// What the breaker went through, oldest first.
    pub(crate) fn changes(&self) -> Vec<Change> {
        lock(&self.changes).clone()
    }
}

impl Client for Steadfast {
    async fn call(&self) -> bool {
        match self.http.get(&self.url).send().await {
            Ok(response) => is_usable(response).await,
            Err(_) => false,
        }
    }
}

/// The defaults, but for three things. The outage is scaled down, so the times of breaker and backoff are too; at a hundred
/// calls a second, ten failures in a row say enough; and there is no budget for retries, as there is none for those of the naive
/// client: while the server throttles, it would have most calls take no for an answer.
fn executor(breaker: Breaker) -> Result<Executor<(Retry, Breaker, Timeout)>, ConfigError> {
    let retry = Retry::exponential().base(Duration::from_millis(100)).max_attempts(TRIES);
    Executor::builder("example").policies((retry, breaker, Timeout::new(PATIENCE))).unbudgeted().build()
}

fn breaker_config() -> BreakerConfig {
    BreakerConfig::default()
        .rule(TripRule::failure_rate(0.5).or(TripRule::consecutive(10)))
        .open_for(Duration::from_millis(500))
}

async fn is_usable(response: Response) -> bool {
    response.status().is_success() && response.bytes().await.is_ok()
}

fn lock(changes: &Mutex<Vec<Change>>) -> std::sync::MutexGuard<'_, Vec<Change>> {
    changes.lock().unwrap_or_else(PoisonError::into_inner)
}

const TRIES: u32 = 3;
const PATIENCE: Duration = Duration::from_secs(1);
