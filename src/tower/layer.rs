//! The layer: a chain, and what it has to know of the requests and answers that go through it.

use std::fmt;
use std::sync::Arc;

use super::http::Http;
use super::plain::Plain;
use super::service::Service;
use super::wrap::{Ruled, Typed, WithContext};
use crate::context::Context;
use crate::executor::{Erased, Executor};
use crate::judge::Judged;

/// Puts the chain of an [`Executor`] around a tower service.
///
/// `P` is the chain, and `K` what has to be known of the requests and answers: [`Plain`] for any, [`Http`] for HTTP.
///
/// ```
/// use std::convert::Infallible;
/// use steadfast::{Executor, Retry, tower::Layer};
/// use tower::{ServiceBuilder, ServiceExt, service_fn};
///
/// # let clock = steadfast::clock::Clock::manual();
/// # clock.block_on(async {
/// let billing = Executor::builder("billing").policies(Retry::exponential()).clock(&clock).build()?;
/// let invoices = ServiceBuilder::new()
///     .layer(Layer::new(billing))
///     .service_fn(|id: u32| async move { Ok::<_, Infallible>(format!("invoice {id}")) });
/// assert_eq!(invoices.oneshot(7).await?, "invoice 7");
/// # Ok::<_, Box<dyn std::error::Error + Send + Sync>>(())
/// # }).unwrap();
/// ```
#[must_use = "a layer does nothing until it is put around a service"]
pub struct Layer<P = Erased, K = Plain> {
    executor: Executor<P>,
    protocol: K,
}

impl<P> Layer<P> {
    /// Requests and answers of any type. The executor stays shared: its state, and its end, are those of its other clones.
    pub fn new(executor: Executor<P>) -> Layer<P> {
        Layer { executor, protocol: Plain }
    }

    /// HTTP requests and responses: the same as `Layer::new(executor).protocol(Http::new())`.
    pub fn http(executor: Executor<P>) -> Layer<P, Http> {
        Layer::new(executor).protocol(Http::new())
    }

    /// Requests and answers of the kind that `protocol` knows.
    pub fn protocol<K>(self, protocol: K) -> Layer<P, K> {
        Layer { executor: self.executor, protocol }
    }
}

impl<P, K> Layer<P, K> {
    /// Judges what an attempt ends with by a rule of [`judge`](crate::judge), where the chain has none: an erased executor
    /// cannot hold one. Of several they apply in the order in which they are written.
    ///
    /// ```
    /// use steadfast::{Executor, Retry, judge::retry_if, tower::Layer};
    /// use tower::{ServiceBuilder, ServiceExt};
    ///
    /// # let clock = steadfast::clock::Clock::manual();
    /// # clock.block_on(async {
    /// let search = Executor::builder("search").policies(Retry::exponential()).clock(&clock).build().unwrap().erase();
    /// let layer = Layer::new(search).judge(retry_if(|error: &String| error != "no such page")).typed();
    /// let service = ServiceBuilder::new()
    ///     .layer(layer)
    ///     .service_fn(|_: u32| async { Err::<(), _>("no such page".to_owned()) });
    /// assert_eq!(service.oneshot(7).await.unwrap_err().attempts(), 1);
    /// # });
    /// ```
    pub fn judge<J>(self, judgement: Judged<J>) -> Layer<P, Ruled<K, J>> {
        Layer { executor: self.executor, protocol: Ruled { protocol: self.protocol, judgement } }
    }

    /// Takes what the caller brings (a deadline, a token, a key) from each request. Default: a plain context; for HTTP, the
    /// [`Context`] in the extensions of the request if there is one.
    ///
    /// ```
    /// use std::time::Duration;
    /// use steadfast::{Context, Executor, tower::Layer};
    /// # struct Query { budget: Duration }
    ///
    /// let search = Executor::builder("search").build()?;
    /// let layer = Layer::new(search).with_context(|query: &Query| Context::new().with_timeout(query.budget));
    /// # drop(layer);
    /// # Ok::<_, steadfast::ConfigError>(())
    /// ```
    pub fn with_context<Req, F>(self, context: F) -> Layer<P, WithContext<K, F>>
    where
        F: Fn(&Req) -> Context + Send + Sync + 'static,
    {
        Layer { executor: self.executor, protocol: WithContext { protocol: self.protocol, context } }
    }

    /// Keeps the type of the errors: the service ends with an [`Error`](crate::Error) of the error of the service inside.
    /// Default: a [`BoxError`](crate::error::BoxError) that holds an `Error` of an [`Opaque`](crate::error::Opaque), as most
    /// of tower's layers do.
    pub fn typed(self) -> Layer<P, Typed<K>> {
        Layer { executor: self.executor, protocol: Typed(self.protocol) }
    }
}

impl<S, P, K: Clone> tower_layer::Layer<S> for Layer<P, K> {
    type Service = Service<S, P, K>;

    fn layer(&self, inner: S) -> Service<S, P, K> {
        Service::new(inner, self.executor.clone(), Arc::new(self.protocol.clone()))
    }
}

impl<P, K: Clone> Clone for Layer<P, K> {
    fn clone(&self) -> Self {
        Layer { executor: self.executor.clone(), protocol: self.protocol.clone() }
    }
}

impl<P, K> fmt::Debug for Layer<P, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Layer").field("executor", &self.executor.name()).finish_non_exhaustive()
    }
}
