//! Our layer among tower's own, in every order, around services that hold their callers to the contract, fail to get ready or
//! never do: no panic, no place that is lost, nobody who waits for ever, nobody who asks without being woken.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::Poll;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{join_all, select};
use steadfast::clock::Clock;
use steadfast::error::BoxError;
use steadfast::limit::{Bulkhead, BulkheadConfig, RateLimiter, RateLimiterConfig};
use steadfast::retry::Jitter;
use steadfast::tower::Layer;
use steadfast::{Breaker, Executor, Hedge, Retry, Timeout};
use tower::buffer::Buffer;
use tower::limit::ConcurrencyLimit;
use tower::load_shed::LoadShed;
use tower::retry::{Policy, Retry as TowerRetry};
use tower::timeout::Timeout as TowerTimeout;
use tower::util::BoxCloneService;
use tower::{Layer as _, ServiceExt};

use crate::support::{ms, secs};
use crate::tower_service::{Log, Strict};

type Boxed = BoxCloneService<u32, u32, BoxError>;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Part {
    Ours,
    Limit,
    Buffer,
    Shed,
    Timeout,
    Retry,
}

const PARTS: [Part; 6] = [Part::Ours, Part::Limit, Part::Buffer, Part::Shed, Part::Timeout, Part::Retry];

/// Two tries.
#[derive(Clone)]
struct Twice(bool);

impl Policy<u32, u32, BoxError> for Twice {
    type Future = std::future::Ready<()>;

    fn retry(&mut self, _: &mut u32, result: &mut Result<u32, BoxError>) -> Option<std::future::Ready<()>> {
        let again = result.is_err() && !std::mem::replace(&mut self.0, true);
        again.then(|| std::future::ready(()))
    }

    fn clone_request(&mut self, request: &u32) -> Option<u32> {
        Some(*request)
    }
}

fn around(part: Part, inner: Boxed, ours: &Executor) -> Boxed {
    match part {
        Part::Ours => BoxCloneService::new(Layer::new(ours.clone()).layer(inner)),
        Part::Limit => BoxCloneService::new(ConcurrencyLimit::new(inner, 2)),
        Part::Buffer => BoxCloneService::new(Buffer::new(inner, 4)),
        Part::Shed => BoxCloneService::new(LoadShed::new(inner)),
        Part::Timeout => BoxCloneService::new(TowerTimeout::new(inner, secs(5))),
        Part::Retry => BoxCloneService::new(TowerRetry::new(Twice(false), inner)),
    }
}

/// The parts in every order (Heap 1963), from the inside out.
fn orders() -> Vec<Vec<Part>> {
    fn permute(n: usize, parts: &mut Vec<Part>, all: &mut Vec<Vec<Part>>) {
        if n <= 1 {
            all.push(parts.clone());
            return;
        }
        for i in 0..n {
            permute(n - 1, parts, all);
            parts.swap(if n.is_multiple_of(2) { i } else { 0 }, n - 1);
        }
    }
    let mut all = Vec::new();
    permute(PARTS.len(), &mut PARTS.to_vec(), &mut all);
    all
}

/// The chains that take turns.
fn chains() -> Vec<Executor> {
    let retry = || Retry::fixed(ms(10)).jitter(Jitter::None);
    let line = || Bulkhead::with(BulkheadConfig::new(1).queue(100).max_wait(Duration::MAX));
    let rate = RateLimiter::new(RateLimiterConfig::per_second(100).burst(1).max_wait(Duration::MAX));
    let hedge = Hedge::after(ms(2));
    let builder = || Executor::builder("adversary").unbudgeted();
    vec![
        builder().policies((retry(), Timeout::secs(2))).build().unwrap().erase(),
        builder().policies(hedge.clone()).build().unwrap().erase(),
        builder().policies((line(), retry())).build().unwrap().erase(),
        builder().policies((retry(), rate)).build().unwrap().erase(),
        builder().policies((line(), retry(), Breaker::default(), hedge, Timeout::secs(2))).build().unwrap().erase(),
    ]
}

/// A service that takes 3 ms, and fails every third time.
fn service() -> Strict<impl Fn() -> futures::future::BoxFuture<'static, Result<u32, BoxError>> + Clone + Send> {
    let calls = Arc::new(AtomicUsize::new(0));
    Strict::new(move || {
        let call = calls.fetch_add(1, SeqCst) + 1;
        async move {
            Clock::tokio().sleep(ms(3)).await;
            if call.is_multiple_of(3) { Err("reset".into()) } else { Ok(7) }
        }
        .boxed()
    })
}

/// Whatever takes longer is stuck.
async fn within(limit: Duration, future: impl Future<Output = ()>) -> bool {
    let (future, limit) = (std::pin::pin!(future), std::pin::pin!(Clock::tokio().sleep(limit)));
    matches!(select(future, limit).await, futures::future::Either::Left(_))
}

/// The calls of ten callers at once through all parts in this order, and whether all of them came to an end.
async fn crowd(order: &[Part], ours: &Executor, inner: Boxed, patience: Duration) -> (bool, Boxed) {
    let stack = order.iter().fold(inner, |inner, part| around(*part, inner, ours));
    let calls = join_all((0..10).map(|caller| stack.clone().oneshot(caller)));
    let done = within(patience, calls.map(drop)).await;
    (done, stack)
}

fn nothing_is_left(log: &Log) -> bool {
    log.in_flight() == 0 && log.reserved() == 0
}

/// Lets the workers of buffers see that nobody holds them any more.
async fn settle() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn in_every_order_with_towers_layers_nothing_panics_starves_or_is_lost() {
    let chains = chains();
    for (n, order) in orders().iter().enumerate() {
        let ours = &chains[n % chains.len()];
        let inner = service();
        let log = inner.log();
        let (done, stack) = crowd(order, ours, Boxed::new(inner), secs(600)).await;
        assert!(done, "somebody starves: {order:?}, chain {}", n % chains.len());
        assert_eq!(log.in_flight(), 0, "{order:?}");
        // Three in a row: one fails.
        let mut served = 0;
        for caller in 0..3 {
            Clock::tokio().sleep(secs(1)).await;
            let call = stack.clone().oneshot(caller).map(|result| served += u32::from(result.is_ok()));
            assert!(within(secs(600), call).await, "a place is lost: {order:?}, chain {}", n % chains.len());
        }
        assert!(served >= 2, "{served} of 3 calls alone: {order:?}, chain {}", n % chains.len());
        drop(stack);
        settle().await;
        assert!(nothing_is_left(&log), "{order:?}: {log:?}");
        assert!(log.polls() <= 1_000, "{} polls for {} calls: {order:?}", log.polls(), log.calls());
    }
}

#[tokio::test(start_paused = true)]
async fn a_service_that_gets_ready_late_is_asked_when_it_says_so() {
    let chains = chains();
    for (n, order) in orders().iter().enumerate().step_by(7) {
        let inner = service().wakes().ready(|polls| if polls % 3 > 0 { Poll::Pending } else { Poll::Ready(Ok(())) });
        let log = inner.log();
        let (done, stack) = crowd(order, &chains[n % chains.len()], Boxed::new(inner), secs(600)).await;
        assert!(done, "somebody starves: {order:?}, chain {}", n % chains.len());
        drop(stack);
        settle().await;
        assert!(nothing_is_left(&log), "{order:?}: {log:?}");
        assert!(log.polls() <= 3_000, "{} polls for {} calls: {order:?}", log.polls(), log.calls());
    }
}

#[tokio::test(start_paused = true)]
async fn a_service_that_fails_to_get_ready_is_not_asked_for_ever() {
    let chains = chains();
    for (n, order) in orders().iter().enumerate().step_by(7) {
        let inner = service().ready(|polls| Poll::Ready(if polls % 2 > 0 { Err("gone") } else { Ok(()) }));
        let log = inner.log();
        let (done, stack) = crowd(order, &chains[n % chains.len()], Boxed::new(inner), secs(600)).await;
        assert!(done, "somebody starves: {order:?}, chain {}", n % chains.len());
        drop(stack);
        settle().await;
        assert!(nothing_is_left(&log), "{order:?}: {log:?}");
        assert!(log.polls() <= 1_000, "{} polls for {} calls: {order:?}", log.polls(), log.calls());
    }
}

#[tokio::test(start_paused = true)]
async fn a_service_that_is_never_ready_costs_nothing_while_it_is_waited_for() {
    let chains = chains();
    for (n, order) in orders().iter().enumerate().step_by(7) {
        let inner = service().ready(|polls| if polls < 4 { Poll::Ready(Ok(())) } else { Poll::Pending });
        let log = inner.log();
        // Some callers wait until they give up: that is what back-pressure means.
        let (_, stack) = crowd(order, &chains[n % chains.len()], Boxed::new(inner), secs(60)).await;
        drop(stack);
        settle().await;
        assert_eq!(log.in_flight(), 0, "{order:?}");
        assert!(log.polls() <= 1_000, "{} polls for {} calls: {order:?}", log.polls(), log.calls());
    }
}
