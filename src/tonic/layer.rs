//! A chain around the channel of a client.

use std::fmt;

use tonic::Code;

use super::judge::Codes;
use super::protocol::Grpc;
use super::statuses::Statuses;
use crate::executor::{Erased, Executor};
use crate::tower;
use crate::verdict::Verdict;

/// Puts the chain of an [`Executor`] around a `tonic::transport::Channel`, or any service that answers tonic's
/// requests, for clients that are generated already. What it does to a call is on the page of the [module](crate::tonic).
///
/// It is a tower layer, for `ServiceBuilder`; [`around`](Layer::around) is the same without one. The executor stays shared: its
/// state, and its end, are those of its other clones.
///
/// ```
/// use steadfast::{Breaker, Executor, Retry, tonic::Layer};
///
/// let users = Executor::builder("users").policies((Retry::exponential(), Breaker::default())).build()?;
/// let layer = Layer::new(users)
///     .unary(|path| path != "/users.Users/Watch")
///     .once(|path| path == "/users.Users/Invite");
/// # drop(layer);
/// # Ok::<_, steadfast::ConfigError>(())
/// ```
#[must_use = "a layer does nothing until it is put around a service"]
pub struct Layer<P = Erased> {
    executor: Executor<P>,
    grpc: Grpc,
}

/// A service with a chain around it, from [`Layer`]. With an [erased](Executor::erase) executor the type of a client is
/// `UsersClient<Service<Channel>>`.
pub type Service<S, P = Erased> = tower::Service<Statuses<S>, P, Grpc>;

impl<P> Layer<P> {
    /// Around all methods, none of which is known to be unary.
    pub fn new(executor: Executor<P>) -> Layer<P> {
        Layer { executor, grpc: Grpc::default() }
    }

    /// Says which methods, by their path (`/package.Service/Method`), have one answer. It is read to its end within the attempt,
    /// up to 4 MiB, so that a status in the trailers is retried and the limit of an attempt covers all of it. Default: none.
    ///
    /// A stream for which it says yes is held back until it has ended or 4 MiB are there.
    pub fn unary(mut self, methods: impl Fn(&str) -> bool + Send + Sync + 'static) -> Layer<P> {
        self.grpc = self.grpc.unary(methods);
        self
    }

    /// Says which methods, by their path, must not reach the server twice: they are sent again only if it is certain that nothing
    /// was sent, and never hedged. Default: none.
    pub fn once(mut self, methods: impl Fn(&str) -> bool + Send + Sync + 'static) -> Layer<P> {
        self.grpc = self.grpc.once(methods);
        self
    }

    /// Says what a code of this service is worth, where the [table](crate::tonic) is not right; `None` is what the table says.
    /// What befell the connection has no code, and a pushback of the server is obeyed on top.
    ///
    /// ```
    /// use steadfast::{Executor, Retry, Verdict, tonic::Layer};
    /// use tonic::Code;
    ///
    /// let ledger = Executor::builder("ledger").policies(Retry::exponential()).build()?;
    /// // Its transactions may be repeated as they are.
    /// let layer = Layer::new(ledger).codes(|code| (code == Code::Aborted).then_some(Verdict::Transient));
    /// # drop(layer);
    /// # Ok::<_, steadfast::ConfigError>(())
    /// ```
    pub fn codes(mut self, verdict: impl Fn(Code) -> Option<Verdict> + Send + Sync + 'static) -> Layer<P> {
        self.grpc = self.grpc.codes(Codes::new(verdict));
        self
    }

    /// The service with the chain around it.
    pub fn around<S>(&self, service: S) -> Service<S, P> {
        let layer = tower::Layer::new(self.executor.clone()).protocol(self.grpc.clone());
        tower_layer::Layer::layer(&layer, Statuses(service))
    }
}

impl<S, P> tower_layer::Layer<S> for Layer<P> {
    type Service = Service<S, P>;

    fn layer(&self, service: S) -> Service<S, P> {
        self.around(service)
    }
}

impl<P> Clone for Layer<P> {
    fn clone(&self) -> Self {
        Layer { executor: self.executor.clone(), grpc: self.grpc.clone() }
    }
}

impl<P> fmt::Debug for Layer<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Layer").field("executor", &self.executor.name()).field("grpc", &self.grpc).finish()
    }
}
