//! One request as an operation: how it is sent, judged, repeated and given up.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use http::Method;
use reqwest::{Client, Request, Response};

use super::options::{MakeBody, Options};
use super::response::{Complete, split};
use super::{buffer, judge, upload};
use crate::attempt::Attempt;
use crate::cancel::Cancellation;
use crate::clock::Clock;
use crate::error::{ConfigError, Error};
use crate::http::{NO_COPY, Repeat, Rules, answer, did_nothing, discard};
use crate::operation::Operation;
use crate::policy::Outcome;
use crate::verdict::Verdict;

/// Sends one request as often as it is asked to.
pub(super) struct Exchange<'a> {
    client: Client,
    request: Template,
    repeat: Repeat,
    limit: Option<Duration>,
    options: &'a Options,
    clock: Clock,
    is_head: bool,
    /// How often it was sent, for errors.
    sent: AtomicU32,
}

/// The request that attempts are made from.
enum Template {
    Copied(Request),
    /// With a body that is made for each attempt.
    Made(Request, MakeBody),
    /// With a body that can only be moved. `None` once it was.
    Moved(Mutex<Option<Request>>),
}

impl<'a> Exchange<'a> {
    /// `clock` gives the dates that pauses are counted from.
    pub(super) fn new(client: Client, mut request: Request, options: &'a Options, clock: Clock) -> Exchange<'a> {
        if options.body.is_some() {
            *request.body_mut() = None;
        }
        Exchange {
            client,
            is_head: request.method() == Method::HEAD,
            repeat: Repeat::of(request.method(), request.headers(), options.idempotent),
            limit: request.timeout().copied(),
            request: Template::new(request, options.body.clone()),
            options,
            clock,
            sent: AtomicU32::new(0),
        }
    }

    async fn send(&self, mut request: Request) -> Outcome<Response, reqwest::Error> {
        if self.options.client.slice_uploads {
            upload::slice(&mut request);
        }
        let attempts = self.sent.fetch_add(1, Relaxed).saturating_add(1);
        let mut response = match self.client.execute(request).await {
            Ok(response) => response,
            Err(error) => {
                let verdict = judge::error(&error);
                return Outcome::failed(error, verdict);
            }
        };
        let verdict = answer(response.status(), response.headers(), || self.clock.wall());
        if self.is_head || self.options.buffered.is_some() {
            response.extensions_mut().insert(Complete);
        }
        match self.options.buffered {
            None => Outcome::new(Ok(response), verdict),
            Some(most) => self.buffer(response, most, verdict, attempts).await,
        }
    }

    /// A failure that the status tells of already is worth no more and no less if its body fails too.
    async fn buffer(
        &self,
        response: Response,
        most: usize,
        verdict: Verdict,
        attempts: u32,
    ) -> Outcome<Response, reqwest::Error> {
        // The run ends on what asks for its end; the body only has limits.
        let cancellation = Cancellation::new(None, None, None);
        let limits = self.options.limits_within_attempt(&self.clock);
        let rules = Rules { cancellation, clock: self.clock.clone(), limits, attempts };
        match buffer::buffer(response, most, rules).await {
            Ok(response) => Outcome::new(Ok(response), verdict),
            Err(error) => {
                let verdict = if verdict == Verdict::Success { judge::error(&error) } else { verdict };
                Outcome::new(Err(error.into()), verdict)
            }
        }
    }
}

impl Operation<Response, reqwest::Error> for Exchange<'_> {
    /// The body outlives the run, unless it is read within.
    fn streams(&self) -> bool {
        self.options.buffered.is_none()
    }

    fn check(&self) -> Result<(), ConfigError> {
        self.options.check()
    }

    async fn call(&self, _: Attempt) -> Outcome<Response, reqwest::Error> {
        match self.request.make() {
            Some(request) => self.send(request).await,
            None => sent_already(),
        }
    }

    fn repeat(&self, after: Option<&Outcome<Response, reqwest::Error>>) -> Result<(), &'static str> {
        // A body that can only be moved is there as long as no attempt has got it, which a refused one has not.
        if let Template::Moved(kept) = &self.request
            && (after.is_none() || kept.lock().unwrap_or_else(PoisonError::into_inner).is_none())
        {
            return Err(NO_COPY);
        }
        let nothing = |after| did_nothing(after, Response::status, judge::nothing_was_sent);
        self.repeat.allowed(|| after.is_some_and(nothing))
    }

    fn limit(&self) -> Option<Duration> {
        self.limit
    }

    async fn discard(&self, response: Response) {
        let version = response.version();
        discard(version, split(response).1, &self.clock).await;
    }
}

impl Template {
    fn new(request: Request, body: Option<MakeBody>) -> Template {
        match (request.try_clone(), body) {
            (Some(copy), Some(body)) => Template::Made(copy, body),
            (Some(copy), None) => Template::Copied(copy),
            (None, _) => Template::Moved(Mutex::new(Some(request))),
        }
    }

    fn make(&self) -> Option<Request> {
        match self {
            Template::Copied(request) => request.try_clone(),
            Template::Made(request, body) => {
                let mut request = request.try_clone()?;
                *request.body_mut() = Some(body());
                Some(request)
            }
            Template::Moved(request) => request.lock().unwrap_or_else(PoisonError::into_inner).take(),
        }
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
