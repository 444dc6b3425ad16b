//! The seam: what a policy is, and what it sees of the rest of the chain.

use std::pin::pin;
use std::task::{Context as TaskContext, Waker};
use std::time::Duration;

use crate::clock::Clock;
use crate::error::ConfigError;
pub use crate::outcome::{End, Guard, Outcome, Tail};
pub use crate::run::{Call, Frame, Reason};
use crate::shield::shielded;
use crate::snapshot::PolicySnapshot;

/// Decides what happens to a call: run it, run it again, refuse it, give it up.
///
/// A policy calls the rest of the chain through `next` as often as it sees fit, and hands an [`Outcome`] outwards. It may
/// be dropped at every await, and must then give back whatever it holds.
///
/// ```
/// use steadfast::policy::{Call, Next, Outcome, Policy, Settings};
///
/// /// Prints how every try ended.
/// struct Trace;
///
/// impl Settings for Trace {}
///
/// impl<T: Send, E: Send> Policy<T, E> for Trace {
///     async fn run<N: Next<T, E>>(&self, call: Call<'_, E>, next: N) -> Outcome<T, E> {
///         let outcome = next.call(call).await;
///         println!("try {} ended as {:?}", call.number(), outcome.verdict());
///         outcome
///     }
/// }
/// # let clock = steadfast::clock::Clock::manual();
/// # clock.block_on(async {
/// # let cx = steadfast::Context::new().with_clock(&clock);
/// let answer = steadfast::try_do(&cx, |_| async { Ok::<_, String>(42) }, Trace).await;
/// assert_eq!(answer.unwrap(), 42);
/// # });
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a policy for an operation that ends with `Result<{T}, {E}>`",
    label = "not a policy for this operation",
    note = "policies are `Retry`, `Hedge`, `Timeout`, `Breaker`, the judging ones such as `retry_if(..)`, and tuples, `Option`s, `Arc`s and references of them",
    note = "a policy that holds a closure over `&E` fits only operations whose error is that `E`",
    note = "`Retry` needs an error that is `Debug`, and both types must be `Send`"
)]
pub trait Policy<T, E>: Settings + Send + Sync {
    /// Runs one call through this policy and the rest of the chain.
    fn run<N: Next<T, E>>(&self, call: Call<'_, E>, next: N) -> impl Future<Output = Outcome<T, E>> + Send;
}

/// What a policy says of itself before anything runs. All methods have a default, so that a policy without settings
/// writes `impl Settings for Mine {}`.
pub trait Settings {
    /// Refuses settings that cannot work, and a place in the chain that cannot.
    ///
    /// # Errors
    /// The first setting that is refused.
    fn validate(&self, site: &mut Site<'_>) -> Result<(), ConfigError> {
        let _ = site;
        Ok(())
    }

    /// The longest time that a call through this policy may run, if the rest of the chain runs for at most `inner`; `None`
    /// if there is no bound.
    fn limit(&self, inner: Option<Duration>) -> Option<Duration> {
        inner
    }

    /// Adds what can be seen of this policy to `all`, in which those outside of it are already. Default: nothing. A policy
    /// that holds others forwards it to them.
    ///
    /// ```
    /// # use std::sync::atomic::{AtomicU64, Ordering};
    /// use steadfast::policy::Settings;
    /// use steadfast::snapshot::{CustomSnapshot, PolicySnapshot};
    ///
    /// struct Counter { calls: AtomicU64 }
    ///
    /// impl Settings for Counter {
    ///     fn snapshots(&self, all: &mut Vec<PolicySnapshot>) {
    ///         let calls = self.calls.load(Ordering::Relaxed) as f64;
    ///         all.push(PolicySnapshot::Custom(CustomSnapshot { policy: "counter", values: vec![("calls", calls)] }));
    ///     }
    /// }
    /// # let mut all = Vec::new();
    /// # Counter { calls: AtomicU64::new(3) }.snapshots(&mut all);
    /// # assert_eq!(all.len(), 1);
    /// ```
    fn snapshots(&self, all: &mut Vec<PolicySnapshot>) {
        let _ = all;
    }
}

/// The place of a policy in a chain, as it is validated from the outside in.
#[derive(Debug)]
pub struct Site<'a> {
    clock: &'a Clock,
    judged: Option<&'static str>,
}

impl<'a> Site<'a> {
    pub(crate) fn new(clock: &'a Clock) -> Site<'a> {
        Site { clock, judged: None }
    }

    /// The clock that the chain will run on.
    #[must_use]
    pub fn clock(&self) -> &'a Clock {
        self.clock
    }

    /// A judging policy stands here: policies that read its verdict must be outside of it.
    pub fn judges(&mut self, name: &'static str) {
        self.judged = Some(name);
    }

    /// The policy here reads verdicts, so no judging policy may be outside of it.
    ///
    /// # Errors
    /// If a judging policy is outside: its verdict would come too late.
    pub fn reads_verdicts(&self, policy: &'static str) -> Result<(), ConfigError> {
        match self.judged {
            None => Ok(()),
            Some(judge) => {
                let value = format_args!("outside of {policy}");
                Err(ConfigError::new(judge, value, "judging policies belong inside of those that read the verdict"))
            }
        }
    }
}

/// The rest of the chain, as a policy sees it: a small handle, passed by value.
pub trait Next<T, E>: Copy + Send + Sync {
    /// Runs the rest of the chain once. To be made when it is about to be polled: what is inside may take the time of its
    /// beginning.
    ///
    /// Calls that run side by side are each to be made [`within`](Call::within) a [`Frame::inside`] of its own, the first one too.
    fn call(self, call: Call<'_, E>) -> impl Future<Output = Outcome<T, E>> + Send;

    /// Whether the operation may be sent again after `after`, or beside a running one if that is `None`. Asked by a retry
    /// before it waits and by a hedge before it starts a lane.
    ///
    /// # Errors
    /// The reason why not, for errors and reports.
    fn repeat(self, after: Option<&Outcome<T, E>>) -> Result<(), &'static str>;

    /// The longest time that the rest of the chain may run, if it is bounded.
    fn limit(self) -> Option<Duration>;

    /// Gives up a value that the caller will not get, in whatever way the operation likes to (draining a response, say).
    fn discard(self, value: T) -> impl Future<Output = ()> + Send;
}

/// Gives up a value while what holds it is dropped: what is not done in one poll is not done, and a panic goes no further.
pub(crate) fn discard_now<T, E>(next: impl Next<T, E>, value: T) {
    shielded(|| {
        let _dropped = pin!(next.discard(value)).poll(&mut TaskContext::from_waker(Waker::noop()));
    });
}

/// A policy and the rest of the chain after it.
pub(crate) struct Link<'a, P, N> {
    pub(crate) policy: &'a P,
    pub(crate) next: N,
}

impl<P, N: Copy> Clone for Link<'_, P, N> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}

impl<P, N: Copy> Copy for Link<'_, P, N> {}

impl<T, E, P: Policy<T, E>, N: Next<T, E>> Next<T, E> for Link<'_, P, N> {
    #[inline(always)]
    fn call(self, call: Call<'_, E>) -> impl Future<Output = Outcome<T, E>> + Send {
        self.policy.run(call, self.next)
    }

    #[inline]
    fn repeat(self, after: Option<&Outcome<T, E>>) -> Result<(), &'static str> {
        self.next.repeat(after)
    }

    fn limit(self) -> Option<Duration> {
        self.policy.limit(self.next.limit())
    }

    #[inline]
    fn discard(self, value: T) -> impl Future<Output = ()> + Send {
        self.next.discard(value)
    }
}
