//! The client under test: limits, timeouts, retry, hedge and breaker in one chain, HTTP/1 and HTTP/2, and callers that leave.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{Either, select};
use reqwest::Response;
use steadfast::breaker::{BreakerConfig, TripRule};
use steadfast::budget::BudgetConfig;
use steadfast::error::Kind;
use steadfast::event::Event;
use steadfast::limit::{BulkheadConfig, RateLimiterConfig};
use steadfast::reqwest::{BodyTimeout, Client as Http, Error, RequestBuilder};
use steadfast::{
    Breaker, Budget, Bulkhead, CancellationToken, Clock, Context, Executor, Hedge, RateLimiter, Retry, Timeout,
};

use crate::AnyResult;
use crate::faults::{Dice, Fault, Injected};
use crate::ledger::{Call, Ledger, Story};
use crate::server::{ALLOWED, CALL, SIZE, number, pattern};

type Chain = (Bulkhead, Timeout, Retry, Hedge, Breaker, RateLimiter, Timeout);

pub(crate) struct Client {
    pub(crate) executor: Executor<Chain>,
    pub(crate) bulkhead: Bulkhead,
    pub(crate) breaker: Breaker,
    pub(crate) limiter: RateLimiter,
    pub(crate) budget: Budget,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) story: Arc<Story>,
    injected: Arc<Injected>,
    url: String,
    http: [Http; 2],
}

impl Client {
    pub(crate) fn new(url: String, injected: Arc<Injected>) -> AnyResult<Client> {
        let story = Arc::<Story>::default();
        let bulkhead = Bulkhead::with(Client::bulkhead_config());
        let breaker = Breaker::new(Client::breaker_config());
        let limiter = RateLimiter::new(Client::limiter_config());
        let budget = Budget::with(Client::budget_config());
        let policies = (
            bulkhead.clone(),
            Timeout::secs(4).covering_body(),
            Retry::exponential().base(ms(10)).cap(ms(200)).max_retry_after(Duration::from_secs(2)),
            Hedge::percentile(0.95).floor(ms(20)).ceiling(ms(100)).window(Duration::from_secs(5)),
            breaker.clone(),
            limiter.clone(),
            Timeout::millis(300),
        );
        let told = Arc::clone(&story);
        let executor = Executor::builder("soak")
            .policies(policies)
            .budget(budget.clone())
            .observe(move |event: &Event| told.note(event))
            .build()?;
        let settings = || reqwest::Client::builder().no_proxy().pool_max_idle_per_host(16);
        let limits = BodyTimeout::new().idle(ms(400));
        let http1 = Http::build(settings().http1_only(), executor.clone())?.body_timeout(limits).slice_uploads(true);
        let http2 = Http::build(settings().http2_prior_knowledge(), executor.clone())?.body_timeout(limits);
        let ledger = Arc::default();
        let http = [http1, http2];
        Ok(Client { executor, bulkhead, breaker, limiter, budget, ledger, story, injected, url, http })
    }

    /// Makes one call, perhaps as one of the callers that make trouble, and says how it ended: `None` if it did not.
    pub(crate) async fn call(&self, dice: &mut Dice, trouble: bool) -> Option<&'static str> {
        let call = self.ledger.begin();
        let fault = if trouble { Fault::of_caller(dice) } else { None };
        let token = CancellationToken::new();
        // In trouble some may not be repeated. Without it all may: a connection that was spoilt before is no reason to fail.
        let is_once = trouble && dice.percent(12);
        let attempts =
            if trouble { u32::try_from(1 + dice.below(MOST_ATTEMPTS.into())).unwrap_or(1) } else { MOST_ATTEMPTS };
        let mut cx = Context::new().with_token(token.clone()).with_max_attempts(attempts);
        if fault == Some(Fault::ShortDeadline) {
            cx = cx.with_timeout(dice.millis(1, 60));
        }
        let allowed = if is_once { 1 } else { attempts };
        let request = self.request(&call, is_once, dice).header(ALLOWED, allowed).context(&cx);
        let after = dice.millis(0, 60);
        let ended = {
            let exchange = pin!(exchange(&call, request, fault == Some(Fault::SlowReader)));
            match fault {
                Some(Fault::Dropped) => match select(exchange, pin!(sleep(after))).await {
                    Either::Left((how, _)) => Some(how),
                    Either::Right(_) => {
                        self.injected.count(Fault::Dropped);
                        Some("given up")
                    }
                },
                Some(Fault::Cancelled) => match select(exchange, pin!(sleep(after))).await {
                    Either::Left((how, _)) => Some(how),
                    Either::Right(((), exchange)) => {
                        self.injected.count(Fault::Cancelled);
                        token.cancel();
                        within(PATIENCE, exchange).await
                    }
                },
                _ => within(PATIENCE, exchange).await,
            }
        };
        if let (Some(fault @ (Fault::ShortDeadline | Fault::SlowReader)), Some(how)) = (fault, ended)
            && (how == ANSWERED || how.contains("deadline") || how.starts_with("body"))
        {
            self.injected.count(fault);
        }
        if let Some(how) = ended {
            call.end(how);
        }
        ended
    }

    fn request(&self, call: &Call, is_once: bool, dice: &mut Dice) -> RequestBuilder {
        let http = &self.http[usize::from(dice.percent(50))];
        if !is_once && dice.percent(86) {
            return http.get(&self.url).header(CALL, call.number);
        }
        let body = vec![b'x'; usize::try_from(dice.below(32 * 1024)).unwrap_or(0)];
        let upload = http.post(&self.url).header(CALL, call.number).header(SIZE, body.len()).body(body);
        upload.idempotent(!is_once)
    }

    pub(crate) fn bulkhead_config() -> BulkheadConfig {
        BulkheadConfig::new(48).queue(32).max_wait(ms(200))
    }

    pub(crate) fn breaker_config() -> BreakerConfig {
        let rule = TripRule::failure_rate(0.5).window(10, ms(100)).or(TripRule::consecutive(10));
        BreakerConfig::default().rule(rule).open_for(ms(100)).trials(3)
    }

    pub(crate) fn limiter_config() -> RateLimiterConfig {
        RateLimiterConfig::per_second(4_000).max_wait(ms(100)).queue(64)
    }

    /// In flight, so that whatever a run holds of it is seen at the end.
    pub(crate) fn budget_config() -> BudgetConfig {
        BudgetConfig::concurrent(0.3)
    }
}

/// Sends a request, reads the answer, and says how it ended.
async fn exchange(call: &Call, request: RequestBuilder, slowly: bool) -> &'static str {
    let sending = call.send();
    let sent = request.send().await;
    sending.end(&sent);
    match sent {
        Ok(response) => read(call, response, slowly).await.unwrap_or_else(|error| of_body(error.kind())),
        Err(error) => error.kind().as_str(),
    }
}

async fn read(call: &Call, mut response: Response, slowly: bool) -> Result<&'static str, Error> {
    let is_good = response.status().is_success();
    let size = response.content_length().unwrap_or(0);
    let mut is_right = number(response.headers(), CALL) == call.number;
    let mut read = 0;
    while let Some(chunk) = response.chunk().await? {
        read += chunk.len() as u64;
        is_right &= chunk.iter().all(|byte| *byte == pattern(call.number));
        if slowly {
            sleep(ms(5)).await;
        }
    }
    Ok(match is_good {
        true if is_right && read == size => ANSWERED,
        true => WRONG,
        false => "refused by the server",
    })
}

fn of_body(kind: Kind) -> &'static str {
    match kind {
        Kind::TimedOut { .. } => "body timed out",
        Kind::DeadlineExceeded => "body past the deadline",
        Kind::Cancelled => "body cancelled",
        Kind::ShutDown => "body shut down",
        _ => "body broken off",
    }
}

/// What a future gives, unless it takes longer.
pub(crate) async fn within<F: Future>(limit: Duration, future: F) -> Option<F::Output> {
    match select(pin!(future), pin!(sleep(limit))).await {
        Either::Left((output, _)) => Some(output),
        Either::Right(_) => None,
    }
}

pub(crate) fn sleep(time: Duration) -> impl Future<Output = ()> {
    Clock::tokio().sleep(time)
}

pub(crate) const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

pub(crate) const ANSWERED: &str = "answered";

/// An answer, but not the one to this request.
pub(crate) const WRONG: &str = "wrong answer";

/// The most that a caller allows: retries and hedges together.
const MOST_ATTEMPTS: u32 = 5;

/// Far longer than all limits of the chain together.
const PATIENCE: Duration = Duration::from_secs(20);
