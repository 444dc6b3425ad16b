//! One request as an operation: how it is sent, judged, repeated and given up.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures::future::select;
use reqwest::{Client, Request, Response, Version};

use super::repeat::Repeat;
use super::{judge, retry_after};
use crate::attempt::Attempt;
use crate::clock::Clock;
use crate::error::{ConfigError, Error};
use crate::operation::Operation;
use crate::policy::Outcome;
use crate::verdict::Verdict;

/// Sends one request as often as it is asked to.
pub(super) struct Exchange {
    client: Client,
    request: Template,
    repeat: Repeat,
    limit: Option<Duration>,
    clock: Clock,
}

/// The request that attempts are made from.
enum Template {
    Copied(Request),
    /// With a body that can only be moved. `None` once it was.
    Moved(Mutex<Option<Request>>),
}

impl Exchange {
    /// `clock` gives the dates that pauses are counted from. `idempotent` is what the caller says, if anything.
    pub(super) fn new(client: Client, request: Request, idempotent: Option<bool>, clock: Clock) -> Exchange {
        Exchange {
            client,
            repeat: Repeat::of(&request, idempotent),
            limit: request.timeout().copied(),
            request: Template::new(request),
            clock,
        }
    }

    fn judged(&self, answer: Result<Response, reqwest::Error>) -> Outcome<Response, reqwest::Error> {
        match answer {
            Ok(response) if response.status().as_u16() < 400 => Outcome::success(response),
            Ok(response) => {
                let pause = retry_after::retry_after(response.headers(), self.clock.wall());
                let verdict = judge::status(response.status(), pause);
                Outcome::new(Ok(response), verdict)
            }
            Err(error) => {
                let verdict = judge::error(&error);
                Outcome::failed(error, verdict)
            }
        }
    }
}

impl Operation<Response, reqwest::Error> for Exchange {
    /// The body outlives the run.
    fn streams(&self) -> bool {
        true
    }

    async fn call(&self, _: Attempt) -> Outcome<Response, reqwest::Error> {
        match self.request.make() {
            Some(request) => self.judged(self.client.execute(request).await),
            None => sent_already(),
        }
    }

    fn repeat(&self, after: Option<&Outcome<Response, reqwest::Error>>) -> Result<(), &'static str> {
        self.repeat.allowed(after)
    }

    fn limit(&self) -> Option<Duration> {
        self.limit
    }

    /// Reads what is left of a short response, so that its connection can serve the next attempt. A long one costs less to
    /// break off, and over HTTP/2 a stream can end without its connection.
    async fn discard(&self, response: Response) {
        let long = response.content_length().is_some_and(|length| length > DRAIN_BYTES);
        if long || response.version() >= Version::HTTP_2 {
            return;
        }
        let drain = std::pin::pin!(drain(response));
        select(drain, std::pin::pin!(self.clock.sleep(DRAIN_TIME))).await;
    }
}

impl Template {
    fn new(request: Request) -> Template {
        match request.try_clone() {
            Some(copy) => Template::Copied(copy),
            None => Template::Moved(Mutex::new(Some(request))),
        }
    }

    fn make(&self) -> Option<Request> {
        match self {
            Template::Copied(request) => request.try_clone(),
            Template::Moved(request) => request.lock().unwrap_or_else(PoisonError::into_inner).take(),
        }
    }
}

async fn drain(mut response: Response) {
    let mut read = 0;
    while read <= DRAIN_BYTES
        && let Ok(Some(chunk)) = response.chunk().await
    {
        read += chunk.len() as u64;
    }
}

/// A policy has called again without asking whether it may.
#[cold]
fn sent_already() -> Outcome<Response, reqwest::Error> {
    let config = ConfigError::new(
        "the request body",
        "a stream",
        "can be sent once: a policy must ask `Next::repeat` before it calls again",
    );
    Outcome::new(Err(Error::misconfigured(config)), Verdict::Ignored).stop()
}

/// The most that is read of a response that is given up: what usually is under way already, since servers and kernels
/// buffer about as much. More is cheaper to break off.
const DRAIN_BYTES: u64 = 64 * 1024;

/// The longest time that a response is read for after it was given up: about the time that a new connection with TLS
/// takes, which is all that can be saved.
const DRAIN_TIME: Duration = Duration::from_millis(50);
