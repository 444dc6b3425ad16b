//! A client that sends every request through a chain.

use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;
use http::Method;
use reqwest::{IntoUrl, Request, Response, Url};

use super::error::Error;
use super::operation::Exchange;
use super::options::{ClientOptions, Options};
use super::request::RequestBuilder;
use super::response::{Remains, guard};
use crate::context::Context;
use crate::executor::{Executor, Stopped};
use crate::http::{BodyTimeout, NotRepeated, Rules};
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
/// let http = steadfast::reqwest::Client::build(reqwest::Client::builder(), billing)?;
///
/// let invoice = http.get("https://billing.example/invoices/7").send().await?.text().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use = "a client does nothing until a request is sent"]
pub struct Client {
    client: reqwest::Client,
    chain: Arc<dyn Chain>,
    options: ClientOptions,
}

impl Client {
    /// Sends through `client` what goes through the chain of `executor`. The executor stays shared: its state, and its end,
    /// are those of its other clones.
    pub fn new<P>(client: reqwest::Client, executor: Executor<P>) -> Client
    where
        P: Policy<Response, reqwest::Error> + 'static,
    {
        Client { client, chain: Arc::new(executor), options: ClientOptions::default() }
    }

    /// [`new`](Client::new) with a client that is built here, without the retries that reqwest makes by itself: a request
    /// that an HTTP/2 server has refused comes back to the chain, which counts it, waits and decides.
    ///
    /// ```
    /// use steadfast::{Executor, Retry, reqwest::Client};
    ///
    /// let search = Executor::builder("search").policies(Retry::exponential()).build()?;
    /// let settings = reqwest::Client::builder().user_agent("catalogue/7").no_proxy();
    /// let http = Client::build(settings, search)?;
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`reqwest::ClientBuilder::build`].
    pub fn build<P>(settings: reqwest::ClientBuilder, executor: Executor<P>) -> Result<Client, reqwest::Error>
    where
        P: Policy<Response, reqwest::Error> + 'static,
    {
        Ok(Client::new(settings.retry(reqwest::retry::never()).build()?, executor))
    }

    /// Limits the bodies of all responses but streams. Default: [`BodyTimeout::new`].
    ///
    /// What a request sets itself, with [`RequestBuilder::body_timeout`], comes first. A limit that cannot work ends every
    /// request with [`Kind::Misconfigured`](crate::error::Kind::Misconfigured).
    pub fn body_timeout(mut self, limits: BodyTimeout) -> Client {
        self.options.body_timeout = limits;
        self
    }

    /// Sends bodies that are in memory in slices of 16 KiB. Default: in one piece.
    ///
    /// A body in one piece that an HTTP/1 connection has begun to send is delivered to its end, also if the request is
    /// cancelled or times out in the meantime. In slices it breaks off, with what the connection has taken over already: up
    /// to some hundred KiB, and what the kernel holds. The price is a little work for each slice, and that reqwest does not
    /// follow redirects that ask for the body again (307, 308): it returns them.
    pub fn slice_uploads(mut self, slice: bool) -> Client {
        self.options.slice_uploads = slice;
        self
    }

    /// Gives every request the host and the port of its URL as its [key](Context::key), `billing.example:443`, so that a
    /// [`Keyed`](crate::Keyed) policy in the chain keeps a state of its own for each host. A key in the context of a request
    /// stays as it is. Default: no key.
    ///
    /// ```
    /// use steadfast::{Breaker, Executor, Keyed, Retry, breaker::BreakerConfig, reqwest::Client};
    ///
    /// // Of a thousand hosts one may be down: its calls are refused, those to all others are not.
    /// let breakers = Keyed::<Breaker>::new(BreakerConfig::default());
    /// let crawler = Executor::builder("crawler").policies((Retry::exponential(), breakers.clone())).build()?;
    /// let http = Client::build(reqwest::Client::builder(), crawler)?.per_host();
    /// # assert_eq!(breakers.len(), 0);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// The host is that of the request, also where a redirect leads to another.
    pub fn per_host(mut self) -> Client {
        self.options.per_host = true;
        self
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
        RequestBuilder::new(self.clone(), self.client.request(method, url), Options::of_client(self.options))
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
        self.run(cx, Job::new(self.client.clone(), request, Options::of_client(self.options))).await
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
    options: Options,
}

impl Job {
    pub(super) fn new(client: reqwest::Client, request: Request, options: Options) -> Job {
        Job { client, request, options }
    }

    pub(super) async fn run<P>(self, executor: &Executor<P>, cx: &Context) -> Result<Response, Error>
    where
        P: Policy<Response, reqwest::Error>,
    {
        let Job { client, request, options } = self;
        let keyed = options.client.per_host.then(|| with_host(cx, request.url()));
        let cx = keyed.as_ref().unwrap_or(cx);
        // Before the run: a deadline on another clock is carried over now.
        let cancellation = executor.cancellation(cx);
        let clock = executor.clock();
        let ended = executor.stream(cx, Exchange::new(client, request, &options, clock.clone())).await;
        let mut response = ended.result?;
        if let Stopped::NotRepeatable(why) = ended.stopped {
            response.extensions_mut().insert(NotRepeated(why));
        }
        let limits = options.limits(response.headers(), clock).within(ended.tail.limit());
        let rules = Rules { cancellation, clock: clock.clone(), limits, attempts: ended.attempts };
        Ok(guard(response, Remains { rules, tail: ended.tail }))
    }
}

/// The context of a request to the host of `url`: what a keyed policy has one of for each host. A key that the caller has
/// chosen stays.
fn with_host(cx: &Context, url: &Url) -> Context {
    match (cx.key(), url.host_str()) {
        (None, Some(host)) => match url.port_or_known_default() {
            Some(port) => cx.clone().with_key(format!("{host}:{port}")),
            None => cx.clone().with_key(host),
        },
        _ => cx.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_of_a_request_is_its_host_and_port_and_nothing_else_of_its_url() {
        for (url, key) in [
            ("https://billing.example/invoices/7?page=3", "billing.example:443"),
            ("http://name:password@Billing.Example/", "billing.example:80"),
            ("http://127.0.0.1:8080/", "127.0.0.1:8080"),
            ("http://[::1]:8080/", "[::1]:8080"),
        ] {
            assert_eq!(with_host(&Context::new(), &url.parse().unwrap()).key(), Some(key), "{url}");
        }
        let cx = Context::new().with_key("tenant 7");
        assert_eq!(with_host(&cx, &"http://billing.example/".parse().unwrap()).key(), Some("tenant 7"));
    }
}
