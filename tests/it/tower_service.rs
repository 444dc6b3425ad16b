//! A tower service that holds its callers to the contract, and counts what they do.

#![expect(clippy::panic, reason = "the helpers of a test may say in one word that something went wrong")]

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll};

use steadfast::operation::Fault;
use tower::Service;

/// Panics when it is called without having been polled ready, and its clones are not ready whatever they are made of: as
/// tower's own limits and buffers are. What it reserves for an instance is given back when that is called or dropped.
pub(crate) struct Strict<F> {
    answer: F,
    ready: Arc<dyn Fn(usize) -> Poll<Result<(), &'static str>> + Send + Sync>,
    /// Whether an instance that is not ready asks to be polled again at once.
    wakes: bool,
    log: Arc<Log>,
    reserved: Option<Held>,
}

/// What has been seen of all clones.
#[derive(Debug, Default)]
pub(crate) struct Log {
    polls: AtomicUsize,
    calls: AtomicUsize,
    reserved: Arc<AtomicUsize>,
    in_flight: Arc<AtomicUsize>,
    most: AtomicUsize,
}

impl Log {
    /// How often an instance was asked whether it is ready.
    pub(crate) fn polls(&self) -> usize {
        self.polls.load(SeqCst)
    }

    pub(crate) fn calls(&self) -> usize {
        self.calls.load(SeqCst)
    }

    /// How many instances have reserved something.
    pub(crate) fn reserved(&self) -> usize {
        self.reserved.load(SeqCst)
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.load(SeqCst)
    }

    /// How many calls were in flight at one time, at most.
    pub(crate) fn most(&self) -> usize {
        self.most.load(SeqCst)
    }
}

/// One of something that is counted.
pub(crate) struct Held(Arc<AtomicUsize>);

impl Held {
    fn one_of(count: &Arc<AtomicUsize>) -> Held {
        count.fetch_add(1, SeqCst);
        Held(Arc::clone(count))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

impl<F> Strict<F> {
    /// Always ready when asked, and answers with what `answer` gives.
    pub(crate) fn new(answer: F) -> Strict<F> {
        Strict { answer, ready: Arc::new(|_| Poll::Ready(Ok(()))), wakes: false, log: Arc::default(), reserved: None }
    }

    /// Says to the `n`-th question of all, from 1, whether an instance is ready.
    pub(crate) fn ready(
        mut self,
        ready: impl Fn(usize) -> Poll<Result<(), &'static str>> + Send + Sync + 'static,
    ) -> Strict<F> {
        self.ready = Arc::new(ready);
        self
    }

    /// What is not ready asks to be polled again at once.
    pub(crate) fn wakes(mut self) -> Strict<F> {
        self.wakes = true;
        self
    }

    pub(crate) fn log(&self) -> Arc<Log> {
        Arc::clone(&self.log)
    }
}

impl<F: Clone> Clone for Strict<F> {
    fn clone(&self) -> Strict<F> {
        let (ready, log) = (Arc::clone(&self.ready), Arc::clone(&self.log));
        Strict { answer: self.answer.clone(), ready, wakes: self.wakes, log, reserved: None }
    }
}

impl<R, F, Fut, T, E> Service<R> for Strict<F>
where
    F: Fn() -> Fut,
    Fut: Future<Output = Result<T, E>> + Send + 'static,
    E: Unready,
{
    type Response = T;
    type Error = E;
    type Future = Pin<Box<dyn Future<Output = Result<T, E>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), E>> {
        let polls = self.log.polls.fetch_add(1, SeqCst) + 1;
        let polled = (self.ready)(polls);
        assert!(polls < 100_000, "it is asked without being woken");
        if polled.is_pending() && self.wakes {
            cx.waker().wake_by_ref();
        }
        if polled == Poll::Ready(Ok(())) && self.reserved.is_none() {
            self.reserved = Some(Held::one_of(&self.log.reserved));
        }
        polled.map_err(E::unready)
    }

    fn call(&mut self, _: R) -> Self::Future {
        if self.reserved.take().is_none() {
            panic!("called without being polled ready");
        }
        self.log.calls.fetch_add(1, SeqCst);
        let held = Held::one_of(&self.log.in_flight);
        self.log.most.fetch_max(self.log.in_flight(), SeqCst);
        let answer = (self.answer)();
        Box::pin(async move {
            let _held = held;
            answer.await
        })
    }
}

/// An error that can say that a service cannot be made ready.
pub(crate) trait Unready {
    fn unready(why: &'static str) -> Self;
}

impl Unready for &'static str {
    fn unready(why: &'static str) -> &'static str {
        why
    }
}

impl Unready for tower::BoxError {
    fn unready(why: &'static str) -> tower::BoxError {
        why.into()
    }
}

impl<E> Unready for Fault<E> {
    fn unready(why: &'static str) -> Fault<E> {
        panic!("not ready: {why}")
    }
}
