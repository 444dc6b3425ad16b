//! A client that sends every request through a chain.

use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;
use http::Method;
use reqwest::{IntoUrl, Request, Response};

use super::error::Error;
use super::operation::Exchange;
use super::request::RequestBuilder;
use super::response::{NotRepeated, Remains, guard};
use crate::context::Context;
use crate::executor::{Executor, Stopped};
use crate::policy::Policy;

/// A [`reqwest::Client`] that sends every request through the chain of an [`Executor`]. Clones are cheap, and share both.
///
/// It has no type parameter, whatever the chain is made of. What it does to a request, see the [module](crate::reqwest).
///
/// ```no_run
/// use steadfast::{Executor, Retry, Timeout};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
/// let billing = Executor::builder("billing").policies((Retry::exponential(), Timeout::secs(2))).build()?;
/// let http = steadfast::reqwest::Client::new(reqwest::Client::new(), billing);
///
/// let invoice = http.get("https://billing.example/invoices/7").send().await?.text().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Client {
    client: reqwest::Client,
    chain: Arc<dyn Chain>,
}

impl Client {
    /// Sends through `client` what goes through the chain of `executor`. The executor stays shared: its state, and its end,
    /// are those of its other clones.
    pub fn new<P>(client: reqwest::Client, executor: Executor<P>) -> Client
    where
        P: Policy<Response, reqwest::Error> + 'static,
    {
        Client { client, chain: Arc::new(executor) }
    }

    /// Begins a GET request.
    pub fn get(&self, url: impl IntoUrl) -> RequestBuilder {
        self.request(Method::GET, url)
    }

    /// Begins a POST request.
    pub fn post(&self, url: impl IntoUrl) -> RequestBuilder {
        self.request(Method::POST, url)
    }

    /// Begins a PUT request.
    pub fn put(&self, url: impl IntoUrl) -> RequestBuilder {
        self.request(Method::PUT, url)
    }

    /// Begins a PATCH request.
    pub fn patch(&self, url: impl IntoUrl) -> RequestBuilder {
        self.request(Method::PATCH, url)
    }

    /// Begins a DELETE request.
    pub fn delete(&self, url: impl IntoUrl) -> RequestBuilder {
        self.request(Method::DELETE, url)
    }

    /// Begins a HEAD request.
    pub fn head(&self, url: impl IntoUrl) -> RequestBuilder {
        self.request(Method::HEAD, url)
    }

    /// Begins a request of any method. A URL that cannot be parsed is an error of [`send`](RequestBuilder::send).
    pub fn request(&self, method: Method, url: impl IntoUrl) -> RequestBuilder {
        RequestBuilder::new(self.clone(), self.client.request(method, url))
    }

    /// Sends a request that was built elsewhere.
    ///
    /// # Errors
    /// As [`RequestBuilder::send`].
    ///
    /// # Cancel safety
    /// As [`RequestBuilder::send`].
    pub async fn execute(&self, request: Request) -> Result<Response, Error> {
        self.execute_with(&Context::new(), request).await
    }

    /// [`execute`](Client::execute) with what the caller brings: a deadline, a token, limits for this call.
    ///
    /// # Errors
    /// As [`RequestBuilder::send`].
    ///
    /// # Cancel safety
    /// As [`RequestBuilder::send`].
    pub async fn execute_with(&self, cx: &Context, request: Request) -> Result<Response, Error> {
        self.run(cx, Job::new(self.client.clone(), request, None)).await
    }

    pub(super) fn run<'a>(&'a self, cx: &'a Context, job: Job) -> BoxFuture<'a, Result<Response, Error>> {
        self.chain.run(cx, job)
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("executor", &self.chain.name()).finish_non_exhaustive()
    }
}

/// An executor without its type: one box per call, and the chain inside stays static.
trait Chain: Send + Sync {
    fn name(&self) -> &'static str;
    fn run<'a>(&'a self, cx: &'a Context, job: Job) -> BoxFuture<'a, Result<Response, Error>>;
}

impl<P: Policy<Response, reqwest::Error>> Chain for Executor<P> {
    fn name(&self) -> &'static str {
        self.name()
    }

    fn run<'a>(&'a self, cx: &'a Context, job: Job) -> BoxFuture<'a, Result<Response, Error>> {
        Box::pin(job.run(self, cx))
    }
}

/// One request on its way into a chain.
pub(super) struct Job {
    client: reqwest::Client,
    request: Request,
    idempotent: Option<bool>,
}

impl Job {
    pub(super) fn new(client: reqwest::Client, request: Request, idempotent: Option<bool>) -> Job {
        Job { client, request, idempotent }
    }

    pub(super) async fn run<P>(self, executor: &Executor<P>, cx: &Context) -> Result<Response, Error>
    where
        P: Policy<Response, reqwest::Error>,
    {
        // Before the run: a deadline on another clock is carried over now.
        let cancellation = executor.cancellation(cx);
        let clock = executor.clock();
        let bodiless = self.request.method() == Method::HEAD;
        let exchange = Exchange::new(self.client, self.request, self.idempotent, clock.clone());
        let ended = executor.stream(cx, exchange).await;
        let mut response = ended.result?;
        if let Stopped::NotRepeatable(why) = ended.stopped {
            response.extensions_mut().insert(NotRepeated(why));
        }
        let remains =
            Remains { cancellation, clock: clock.clone(), tail: ended.tail, attempts: ended.attempts, bodiless };
        Ok(guard(response, remains))
    }
}
