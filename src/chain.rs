//! Chains: how policies are put together, statically and boxed.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::error::ConfigError;
use crate::policy::{Call, Link, Next, Outcome, Policy, Settings, Site};
use crate::snapshot::PolicySnapshot;

/// No policy at all.
impl Settings for () {}

impl<T, E> Policy<T, E> for () {
    #[inline(always)]
    fn run<N: Next<T, E>>(&self, call: Call<'_, E>, next: N) -> impl Future<Output = Outcome<T, E>> + Send {
        next.call(call)
    }
}

/// The first policy is the outermost. A tuple is only a way of writing: it adds no layer.
macro_rules! tuple {
    ($first:ident $(, $rest:ident)*) => {
        impl<$first: Settings $(, $rest: Settings)*> Settings for ($first, $($rest,)*) {
            fn validate(&self, site: &mut Site<'_>) -> Result<(), ConfigError> {
                #[allow(non_snake_case, reason = "a policy is named after its type parameter")]
                let ($first, $($rest,)*) = self;
                $first.validate(site)?;
                $($rest.validate(site)?;)*
                Ok(())
            }

            fn limit(&self, inner: Option<Duration>) -> Option<Duration> {
                #[allow(non_snake_case, reason = "a policy is named after its type parameter")]
                let ($first, $($rest,)*) = self;
                tuple!(@limit inner, $first $(, $rest)*)
            }

            fn snapshots(&self, all: &mut Vec<PolicySnapshot>) {
                #[allow(non_snake_case, reason = "a policy is named after its type parameter")]
                let ($first, $($rest,)*) = self;
                $first.snapshots(all);
                $($rest.snapshots(all);)*
            }
        }

        impl<T, E, $first: Policy<T, E> $(, $rest: Policy<T, E>)*> Policy<T, E> for ($first, $($rest,)*) {
            #[inline(always)]
            fn run<Rest: Next<T, E>>(
                &self,
                call: Call<'_, E>,
                next: Rest,
            ) -> impl Future<Output = Outcome<T, E>> + Send {
                #[allow(non_snake_case, reason = "a policy is named after its type parameter")]
                let ($first, $($rest,)*) = self;
                $first.run(call, tuple!(@link next $(, $rest)*))
            }
        }
    };
    (@link $next:ident) => { $next };
    (@link $next:ident, $first:ident $(, $rest:ident)*) => {
        Link { policy: $first, next: tuple!(@link $next $(, $rest)*) }
    };
    (@limit $inner:ident) => { $inner };
    (@limit $inner:ident, $first:ident $(, $rest:ident)*) => { $first.limit(tuple!(@limit $inner $(, $rest)*)) };
}

tuple!(A);
tuple!(A, B);
tuple!(A, B, C);
tuple!(A, B, C, D);
tuple!(A, B, C, D, F);
tuple!(A, B, C, D, F, G);
tuple!(A, B, C, D, F, G, H);
tuple!(A, B, C, D, F, G, H, I);
tuple!(A, B, C, D, F, G, H, I, J);
tuple!(A, B, C, D, F, G, H, I, J, K);
tuple!(A, B, C, D, F, G, H, I, J, K, L);
tuple!(A, B, C, D, F, G, H, I, J, K, L, M);

/// `None` passes every call through.
impl<P: Settings> Settings for Option<P> {
    fn validate(&self, site: &mut Site<'_>) -> Result<(), ConfigError> {
        self.as_ref().map_or(Ok(()), |policy| policy.validate(site))
    }

    fn limit(&self, inner: Option<Duration>) -> Option<Duration> {
        self.as_ref().map_or(inner, |policy| policy.limit(inner))
    }

    fn snapshots(&self, all: &mut Vec<PolicySnapshot>) {
        self.iter().for_each(|policy| policy.snapshots(all));
    }
}

impl<T, E, P: Policy<T, E>> Policy<T, E> for Option<P> {
    fn run<N: Next<T, E>>(&self, call: Call<'_, E>, next: N) -> impl Future<Output = Outcome<T, E>> + Send {
        match self {
            Some(policy) => futures::future::Either::Left(policy.run(call, next)),
            None => futures::future::Either::Right(next.call(call)),
        }
    }
}

impl<P: Settings + ?Sized> Settings for &P {
    fn validate(&self, site: &mut Site<'_>) -> Result<(), ConfigError> {
        (**self).validate(site)
    }

    fn limit(&self, inner: Option<Duration>) -> Option<Duration> {
        (**self).limit(inner)
    }

    fn snapshots(&self, all: &mut Vec<PolicySnapshot>) {
        (**self).snapshots(all);
    }
}

impl<T, E, P: Policy<T, E>> Policy<T, E> for &P {
    #[inline(always)]
    fn run<N: Next<T, E>>(&self, call: Call<'_, E>, next: N) -> impl Future<Output = Outcome<T, E>> + Send {
        (**self).run(call, next)
    }
}

impl<P: Settings + ?Sized> Settings for Arc<P> {
    fn validate(&self, site: &mut Site<'_>) -> Result<(), ConfigError> {
        (**self).validate(site)
    }

    fn limit(&self, inner: Option<Duration>) -> Option<Duration> {
        (**self).limit(inner)
    }

    fn snapshots(&self, all: &mut Vec<PolicySnapshot>) {
        (**self).snapshots(all);
    }
}

impl<T, E, P: Policy<T, E>> Policy<T, E> for Arc<P> {
    #[inline(always)]
    fn run<N: Next<T, E>>(&self, call: Call<'_, E>, next: N) -> impl Future<Output = Outcome<T, E>> + Send {
        (**self).run(call, next)
    }
}

/// A policy of any type, for chains that are put together at run time.
///
/// A lone one costs two boxes a call; a list of `n` in a `Vec` costs `n + 1`.
///
/// ```
/// # use steadfast::{Context, Retry, Timeout, chain::BoxPolicy, try_do};
/// # let clock = steadfast::clock::Clock::manual();
/// # clock.block_on(async {
/// # let cx = Context::new().with_clock(&clock);
/// let mut policies: Vec<BoxPolicy<u32, String>> = vec![BoxPolicy::new(Timeout::secs(2))];
/// policies.insert(0, BoxPolicy::new(Retry::exponential()));
/// assert_eq!(try_do(&cx, |_| async { Ok(7) }, policies).await.unwrap(), 7);
/// # });
/// ```
pub struct BoxPolicy<T, E>(Box<dyn DynPolicy<T, E>>);

impl<T: Send, E: Send> BoxPolicy<T, E> {
    /// Boxes a policy.
    pub fn new(policy: impl Policy<T, E> + 'static) -> BoxPolicy<T, E> {
        BoxPolicy(Box::new(policy))
    }
}

impl<T, E> std::fmt::Debug for BoxPolicy<T, E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BoxPolicy").finish_non_exhaustive()
    }
}

pub(crate) type BoxFuture<'a, O> = Pin<Box<dyn Future<Output = O> + Send + 'a>>;

/// [`Policy`], fit for `dyn`.
pub(crate) trait DynPolicy<T, E>: Settings + Send + Sync {
    fn run_dyn<'a>(&'a self, call: Call<'a, E>, next: DynNext<'a, T, E>) -> BoxFuture<'a, Outcome<T, E>>
    where
        T: 'a,
        E: 'a;
}

impl<T: Send, E: Send, P: Policy<T, E>> DynPolicy<T, E> for P {
    fn run_dyn<'a>(&'a self, call: Call<'a, E>, next: DynNext<'a, T, E>) -> BoxFuture<'a, Outcome<T, E>>
    where
        T: 'a,
        E: 'a,
    {
        Box::pin(self.run(call, next))
    }
}

/// [`Next`], fit for `dyn`: what follows a boxed policy.
pub(crate) trait ErasedNext<T, E>: Send + Sync {
    fn call_dyn<'a>(&'a self, call: Call<'a, E>) -> BoxFuture<'a, Outcome<T, E>>
    where
        T: 'a,
        E: 'a;
    fn repeat_dyn(&self, after: Option<&Outcome<T, E>>) -> Result<(), &'static str>;
    fn limit_dyn(&self) -> Option<Duration>;
    fn discard_dyn<'a>(&'a self, value: T) -> BoxFuture<'a, ()>
    where
        T: 'a,
        E: 'a;
}

impl<T, E, N: Next<T, E>> ErasedNext<T, E> for N {
    fn call_dyn<'a>(&'a self, call: Call<'a, E>) -> BoxFuture<'a, Outcome<T, E>>
    where
        T: 'a,
        E: 'a,
    {
        Box::pin((*self).call(call))
    }

    fn repeat_dyn(&self, after: Option<&Outcome<T, E>>) -> Result<(), &'static str> {
        (*self).repeat(after)
    }

    fn limit_dyn(&self) -> Option<Duration> {
        (*self).limit()
    }

    fn discard_dyn<'a>(&'a self, value: T) -> BoxFuture<'a, ()>
    where
        T: 'a,
        E: 'a,
    {
        Box::pin((*self).discard(value))
    }
}

/// The rest of a list of boxed policies, and what follows the list.
pub(crate) struct DynNext<'a, T, E> {
    pub(crate) list: &'a [BoxPolicy<T, E>],
    pub(crate) last: &'a dyn ErasedNext<T, E>,
}

impl<T, E> Clone for DynNext<'_, T, E> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T, E> Copy for DynNext<'_, T, E> {}

impl<T: Send, E: Send> Next<T, E> for DynNext<'_, T, E> {
    async fn call(self, call: Call<'_, E>) -> Outcome<T, E> {
        match self.list {
            [] => self.last.call_dyn(call).await,
            [first, list @ ..] => first.0.run_dyn(call, DynNext { list, last: self.last }).await,
        }
    }

    fn repeat(self, after: Option<&Outcome<T, E>>) -> Result<(), &'static str> {
        self.last.repeat_dyn(after)
    }

    fn limit(self) -> Option<Duration> {
        self.list.iter().rev().fold(self.last.limit_dyn(), |inner, policy| policy.0.limit(inner))
    }

    async fn discard(self, value: T) {
        self.last.discard_dyn(value).await;
    }
}

impl<T, E> Settings for BoxPolicy<T, E> {
    fn validate(&self, site: &mut Site<'_>) -> Result<(), ConfigError> {
        self.0.validate(site)
    }

    fn limit(&self, inner: Option<Duration>) -> Option<Duration> {
        self.0.limit(inner)
    }

    fn snapshots(&self, all: &mut Vec<PolicySnapshot>) {
        self.0.snapshots(all);
    }
}

impl<T: Send, E: Send> Policy<T, E> for BoxPolicy<T, E> {
    async fn run<N: Next<T, E>>(&self, call: Call<'_, E>, next: N) -> Outcome<T, E> {
        self.0.run_dyn(call, DynNext { list: &[], last: &next }).await
    }
}

impl<T, E> Settings for Vec<BoxPolicy<T, E>> {
    fn validate(&self, site: &mut Site<'_>) -> Result<(), ConfigError> {
        self.iter().try_for_each(|policy| policy.validate(site))
    }

    fn limit(&self, inner: Option<Duration>) -> Option<Duration> {
        self.iter().rev().fold(inner, |inner, policy| policy.limit(inner))
    }

    fn snapshots(&self, all: &mut Vec<PolicySnapshot>) {
        self.iter().for_each(|policy| policy.snapshots(all));
    }
}

impl<T: Send, E: Send> Policy<T, E> for Vec<BoxPolicy<T, E>> {
    async fn run<N: Next<T, E>>(&self, call: Call<'_, E>, next: N) -> Outcome<T, E> {
        DynNext { list: self, last: &next }.call(call).await
    }
}
