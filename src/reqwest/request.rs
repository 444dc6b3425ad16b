//! A request in the making.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Version};
use reqwest::{Body, Response};
use serde::Serialize;

use super::client::{Client, Job};
use super::error::Error;
use super::options::Options;
use crate::context::Context;
use crate::executor::Executor;
use crate::http::BodyTimeout;
use crate::policy::Policy;

/// A request in the making, from the methods of a [`Client`]. It has the setters of [`reqwest::RequestBuilder`] that are
/// used most; [`map`](RequestBuilder::map) reaches the others.
///
/// Whatever is set holds for every attempt.
#[must_use = "a request does nothing until it is sent"]
pub struct RequestBuilder {
    http: Client,
    inner: reqwest::RequestBuilder,
    cx: Context,
    options: Options,
}

impl RequestBuilder {
    pub(super) fn new(http: Client, inner: reqwest::RequestBuilder, options: Options) -> RequestBuilder {
        RequestBuilder { http, inner, cx: Context::new(), options }
    }

    /// Adds a header. One that is not valid is an error of [`send`](RequestBuilder::send).
    pub fn header<K, V>(self, name: K, value: V) -> RequestBuilder
    where
        HeaderName: TryFrom<K, Error: Into<http::Error>>,
        HeaderValue: TryFrom<V, Error: Into<http::Error>>,
    {
        self.map(|inner| inner.header(name, value))
    }

    /// Adds headers, in the place of those with the same names.
    pub fn headers(self, headers: HeaderMap) -> RequestBuilder {
        self.map(|inner| inner.headers(headers))
    }

    /// Authenticates with a name and a password.
    pub fn basic_auth(self, name: impl fmt::Display, password: Option<impl fmt::Display>) -> RequestBuilder {
        self.map(|inner| inner.basic_auth(name, password))
    }

    /// Authenticates with a bearer token.
    pub fn bearer_auth(self, token: impl fmt::Display) -> RequestBuilder {
        self.map(|inner| inner.bearer_auth(token))
    }

    /// Sends `body`. One that is a stream can be sent only once: such a request is not repeated, and its response says so
    /// with [`NotRepeated`](super::NotRepeated).
    pub fn body(self, body: impl Into<Body>) -> RequestBuilder {
        self.without_maker().map(|inner| inner.body(body))
    }

    /// Sends for each attempt the body that `make` gives, in the place of any other. A body that is a stream can be sent again
    /// that way.
    ///
    /// ```no_run
    /// # async fn example(http: steadfast::reqwest::Client) -> Result<(), steadfast::reqwest::Error> {
    /// use reqwest::Body;
    /// use futures::stream;
    ///
    /// let rows = || Body::wrap_stream(stream::iter((0..3).map(|row| Ok::<_, std::io::Error>(format!("{row}\n")))));
    /// http.put("https://reports.example/7").body_with(rows).send().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// All of them should hold the same: the server may get any. A panic in `make` reaches the caller.
    ///
    /// # Multipart forms
    /// A form of reqwest, `map(|inner| inner.multipart(form))`, is a stream, and goes out once. `body_with` does not go with
    /// it: each form has a boundary of its own, and the headers keep that of the first, and its length. A form that may be
    /// sent again is put together before:
    ///
    /// ```no_run
    /// # async fn example(http: steadfast::reqwest::Client) -> Result<(), steadfast::reqwest::Error> {
    /// use futures::TryStreamExt;
    ///
    /// // With the feature `multipart` of reqwest.
    /// let form = reqwest::multipart::Form::new().text("title", "seven");
    /// let kind = format!("multipart/form-data; boundary={}", form.boundary());
    /// let chunks: Vec<bytes::Bytes> = form.into_stream().try_collect().await?;
    /// http.put("https://media.example/7").header("content-type", kind).body(chunks.concat()).send().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn body_with<B: Into<Body>>(mut self, make: impl Fn() -> B + Send + Sync + 'static) -> RequestBuilder {
        self.options.body = Some(Arc::new(move || make().into()));
        self
    }

    /// Sends `value` as JSON.
    pub fn json(self, value: &(impl Serialize + ?Sized)) -> RequestBuilder {
        self.without_maker().map(|inner| inner.json(value))
    }

    /// Sends `fields` as a form, URL-encoded.
    pub fn form(self, fields: &(impl Serialize + ?Sized)) -> RequestBuilder {
        self.without_maker().map(|inner| inner.form(fields))
    }

    /// Adds `pairs` to the query of the URL.
    pub fn query(self, pairs: &(impl Serialize + ?Sized)) -> RequestBuilder {
        self.map(|inner| inner.query(pairs))
    }

    /// Sets reqwest's own limit, which covers each attempt and the body of the one that is returned, and is measured with
    /// tokio's clock. Default: that of the client.
    ///
    /// A [`Timeout`](crate::Timeout) in the chain covers an attempt up to its headers, [`body_timeout`] what comes after them,
    /// and the deadline of a [`context`](RequestBuilder::context) everything.
    ///
    /// [`body_timeout`]: RequestBuilder::body_timeout
    pub fn timeout(self, limit: Duration) -> RequestBuilder {
        self.map(|inner| inner.timeout(limit))
    }

    /// Asks for a version of HTTP.
    pub fn version(self, version: Version) -> RequestBuilder {
        self.map(|inner| inner.version(version))
    }

    /// Does with reqwest's own builder whatever has no method here: `multipart`, for example, whose form goes out once. A body
    /// that is set in this way gives way to one of [`body_with`](RequestBuilder::body_with), whichever was set last; headers
    /// that came with it stay, see there.
    ///
    /// ```no_run
    /// # async fn example(http: steadfast::reqwest::Client) -> Result<(), steadfast::reqwest::Error> {
    /// let response = http.get("https://billing.example/7").map(|inner| inner.header("x-tenant", "7")).send().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn map(mut self, change: impl FnOnce(reqwest::RequestBuilder) -> reqwest::RequestBuilder) -> RequestBuilder {
        self.inner = change(self.inner);
        self
    }

    /// Brings a deadline, a token, limits for this call. Deadline and token cover the body of the response too. Default: a
    /// plain context.
    pub fn context(mut self, cx: &Context) -> RequestBuilder {
        self.cx = cx.clone();
        self
    }

    /// Says whether the request may be sent again although the server may have acted on it already. Default: by its method
    /// and headers, see the [module](crate::reqwest).
    pub fn idempotent(mut self, idempotent: bool) -> RequestBuilder {
        self.options.idempotent = Some(idempotent);
        self
    }

    /// Limits the body of the response, also if that is a stream. Default: the limits of the client, and none for streams.
    ///
    /// A limit that cannot work ends the request with [`Kind::Misconfigured`](crate::error::Kind::Misconfigured).
    pub fn body_timeout(mut self, limits: BodyTimeout) -> RequestBuilder {
        self.options.body_timeout = limits;
        self
    }

    /// Says that the response is a stream, which may be quiet for as long as it likes: it has no limits but those of
    /// [`body_timeout`](RequestBuilder::body_timeout) and the deadline of the [`context`](RequestBuilder::context). For
    /// long polls, logs that are followed, and the like; `text/event-stream` needs no word.
    pub fn streaming(mut self) -> RequestBuilder {
        self.options.streaming = true;
        self
    }

    /// Reads the body of the response within the attempt, up to `most` bytes, so that whatever covers an attempt covers the
    /// body: a [`Timeout`](crate::Timeout), a retry of a body that breaks off, a breaker. The response then has all of its
    /// body, and reading it does not wait. Default: the body is read by the caller.
    ///
    /// A body that has more bytes is an error that is not worth another attempt. One that breaks off or stalls is worth
    /// what its status is worth, and another attempt if that was a success.
    pub fn buffered(mut self, most: usize) -> RequestBuilder {
        self.options.buffered = Some(most);
        self
    }

    /// Sends a body that is in memory in slices, or in one piece; see [`Client::slice_uploads`]. Default: that of the client.
    pub fn slice_uploads(mut self, slice: bool) -> RequestBuilder {
        self.options.client.slice_uploads = slice;
        self
    }

    /// Sends the request through the chain.
    ///
    /// # Errors
    /// There is no response, and the error says why. A response with a status of failure is a response: the last one is
    /// returned, with its body, and [`error_for_status`](Response::error_for_status) makes an error of it.
    ///
    /// # Cancel safety
    /// Dropping the future drops the running attempt and gives back what the chain holds. The server may have got the
    /// request.
    pub async fn send(self) -> Result<Response, Error> {
        let (client, request) = self.inner.build_split();
        let job = Job::new(client, request?, self.options);
        self.http.run(&self.cx, job).await
    }
}

impl RequestBuilder {
    /// Of several bodies the last one counts.
    fn without_maker(mut self) -> RequestBuilder {
        self.options.body = None;
        self
    }
}

impl fmt::Debug for RequestBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

/// Sends the requests of a plain [`reqwest::Client`] through a chain.
pub trait RequestBuilderExt {
    /// Sends the request through the chain of `executor`, as a [`Client`] would: with the same judgement, and with a
    /// response whose body is guarded.
    ///
    /// ```no_run
    /// use steadfast::reqwest::RequestBuilderExt;
    /// # async fn example(client: reqwest::Client, search: steadfast::Executor) -> Result<(), steadfast::reqwest::Error> {
    /// let cx = steadfast::Context::new();
    /// let found = client.get("https://search.example/?q=7").send_with(&search, &cx).await?.text().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`RequestBuilder::send`].
    ///
    /// # Cancel safety
    /// As [`RequestBuilder::send`].
    fn send_with<P>(self, executor: &Executor<P>, cx: &Context) -> impl Future<Output = Result<Response, Error>> + Send
    where
        P: Policy<Response, reqwest::Error>;
}

impl RequestBuilderExt for reqwest::RequestBuilder {
    async fn send_with<P>(self, executor: &Executor<P>, cx: &Context) -> Result<Response, Error>
    where
        P: Policy<Response, reqwest::Error>,
    {
        let (client, request) = self.build_split();
        Job::new(client, request?, Options::default()).run(executor, cx).await
    }
}
