//! The service: each call is a run of the chain.

use std::fmt;
use std::future::poll_fn;
use std::marker::PhantomData;
use std::mem;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};

use futures::future::BoxFuture;

use super::exchange::Exchange;
use super::instances::Instances;
use super::plain::Plain;
use super::protocol::{Protocol, Report, Requests};
use crate::context::Context;
use crate::error::Error;
use crate::executor::{Erased, Executor};
use crate::policy::Policy;

/// A tower service behind a chain; see [`Layer`](super::Layer), which makes it.
///
/// # Readiness
/// It is ready when the service inside is, and the instance that was polled ready is the one that the first attempt calls.
/// Every further attempt, a retry or a hedge, polls a clone of its own ready first, within the attempt, so that a
/// [`Timeout`](crate::Timeout) covers that wait too. Nothing is called that was not polled ready.
///
/// If the chain makes a call wait before its first attempt, in the line of a rate limit or a bulkhead, what the service
/// inside has reserved for it is given back meanwhile, and the first attempt polls a clone as the others do. Otherwise a call
/// that waits would hold a place inside that the calls before it need to come to their end.
///
/// # Clones
/// A clone shares the chain. The service inside has to be `Clone`, as each attempt needs its own.
pub struct Service<S, P = Erased, K = Plain> {
    inner: S,
    executor: Executor<P>,
    protocol: Arc<K>,
}

impl<S, P, K> Service<S, P, K> {
    pub(super) fn new(inner: S, executor: Executor<P>, protocol: Arc<K>) -> Service<S, P, K> {
        Service { inner, executor, protocol }
    }

    /// The service inside.
    #[must_use]
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// The service inside, without the chain.
    #[must_use]
    pub fn into_inner(self) -> S {
        self.inner
    }
}

impl<S, P, K, Req> tower_service::Service<Req> for Service<S, P, K>
where
    S: tower_service::Service<<K as Requests<Req>>::Request> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Response: Send + 'static,
    S::Error: Send + 'static,
    K: Requests<Req> + Protocol<Req, S::Response, S::Error> + Report<S::Error>,
    P: Policy<<K as Protocol<Req, S::Response, S::Error>>::Answer, S::Error> + 'static,
    Req: 'static,
{
    type Response = <K as Protocol<Req, S::Response, S::Error>>::Response;
    type Error = <K as Report<S::Error>>::Error;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, cx: &mut TaskContext<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx).map_err(|error| self.protocol.report(Error::failed(error)))
    }

    fn call(&mut self, request: Req) -> Self::Future {
        let unready = self.inner.clone();
        let ready = mem::replace(&mut self.inner, unready);
        let (executor, protocol) = (self.executor.clone(), Arc::clone(&self.protocol));
        // Now, and not when the future is first polled: a deadline counts from here.
        let cx = protocol.context(&request);
        let template = protocol.template(request, &|| executor.cancellation(&cx));
        Box::pin(async move {
            let ended = run(&executor, &cx, &*protocol, &template, ready).await;
            let finished = protocol.finish(template, ended, executor.clock());
            finished.map_err(|error| protocol.report(error))
        })
    }
}

type Ended<K, S, Req> = crate::drive::Ended<
    <K as Protocol<
        Req,
        <S as tower_service::Service<<K as Requests<Req>>::Request>>::Response,
        <S as tower_service::Service<<K as Requests<Req>>::Request>>::Error,
    >>::Answer,
    <S as tower_service::Service<<K as Requests<Req>>::Request>>::Error,
>;

async fn run<S, P, K, Req>(
    executor: &Executor<P>,
    cx: &Context,
    protocol: &K,
    template: &K::Template,
    ready: S,
) -> Ended<K, S, Req>
where
    S: tower_service::Service<<K as Requests<Req>>::Request> + Clone + Send,
    S::Future: Send,
    S::Response: Send,
    S::Error: Send,
    K: Requests<Req> + Protocol<Req, S::Response, S::Error>,
    P: Policy<<K as Protocol<Req, S::Response, S::Error>>::Answer, S::Error>,
{
    let instances = &Instances::new(ready);
    let exchange = Exchange { instances, protocol, template, clock: executor.clock(), request: PhantomData };
    let mut run = pin!(executor.stream(cx, exchange));
    let mut was_pending = false;
    poll_fn(|cx| {
        let polled = run.as_mut().poll(cx);
        if polled.is_pending() && !mem::replace(&mut was_pending, true) {
            instances.release();
        }
        polled
    })
    .await
}

impl<S: Clone, P, K> Clone for Service<S, P, K> {
    fn clone(&self) -> Self {
        Service { inner: self.inner.clone(), executor: self.executor.clone(), protocol: Arc::clone(&self.protocol) }
    }
}

impl<S: fmt::Debug, P, K> fmt::Debug for Service<S, P, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service").field("inner", &self.inner).field("executor", &self.executor.name()).finish()
    }
}
