//! The layers for servers as services of tower: readiness, back-pressure, reservations.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::task::{Context as TaskContext, Poll};

use futures::future::BoxFuture;
use http::{Request, Response};
use steadfast::clock::ManualClock;
use steadfast::limit::BulkheadConfig;
use steadfast::server::Guarded;
use steadfast::{Bulkhead, CancellationToken};
use tokio_test::task::spawn;
use tower::limit::{ConcurrencyLimit, GlobalConcurrencyLimitLayer};
use tower::{Layer, Service, ServiceBuilder};

use crate::server_support::{
    Given, Handler, answer, answers, bulkhead_layer, call, clock, deadline_layer, get, hello, now, rate_limit,
    slow_rate,
};
use crate::support::secs;

/// Panics if it is called without having been polled ready, and is not ready as a clone.
#[derive(Default)]
struct Probe {
    ready: bool,
    calls: Arc<AtomicUsize>,
}

impl Clone for Probe {
    fn clone(&self) -> Probe {
        Probe { ready: false, calls: Arc::clone(&self.calls) }
    }
}

impl Service<Request<()>> for Probe {
    type Response = Response<Given>;
    type Error = std::convert::Infallible;
    type Future = std::future::Ready<Result<Response<Given>, Self::Error>>;

    fn poll_ready(&mut self, _: &mut TaskContext<'_>) -> Poll<Result<(), Self::Error>> {
        self.ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        assert!(self.ready, "called without having been polled ready");
        self.ready = false;
        self.calls.fetch_add(1, SeqCst);
        std::future::ready(Ok(hello()))
    }
}

/// The same service behind each of the layers, with room for one request at a time.
fn behind_each<S: Clone>(clock: &ManualClock, service: &S) -> [(&'static str, Guarded<S>); 3] {
    let bulkhead = Bulkhead::with(BulkheadConfig::new(1).queue(5));
    [
        ("rate limit", rate_limit(clock, slow_rate().max_wait(secs(10))).1.layer(service.clone())),
        ("bulkhead", bulkhead_layer(clock, &bulkhead).layer(service.clone())),
        ("deadline", deadline_layer(clock).default_limit(secs(60)).layer(service.clone())),
    ]
}

fn poll_ready<S: Service<Request<()>>>(service: &mut S) -> Poll<Result<(), S::Error>> {
    spawn(std::future::poll_fn(|cx| service.poll_ready(cx))).poll()
}

#[test]
fn call_on_unreadied_clone() {
    let clock = clock();
    let probe = Probe::default();
    for (layer, mut service) in behind_each(&clock, &probe) {
        let before = probe.calls.load(SeqCst);
        // One that is let in, and one that may have to wait.
        let first = answer(&mut service, get());
        let mut second = call(&mut service, get());
        let waits = second.poll().is_pending();
        assert_eq!(waits, layer != "deadline", "{layer}");
        // The service goes on while the other waits, in the clone that was left.
        let mut third = call(&mut service, get());
        assert_eq!(third.poll().is_pending(), waits, "{layer}");
        drop(first);
        if waits {
            clock.advance(secs(1));
            drop(now(&mut second));
            clock.advance(secs(1));
            drop(now(&mut third));
        }
        assert_eq!(probe.calls.load(SeqCst) - before, 3, "{layer}");
    }
}

#[test]
fn back_pressure_passes_through() {
    #[derive(Clone)]
    struct Gated(Arc<AtomicBool>);

    impl Service<Request<()>> for Gated {
        type Response = Response<Given>;
        type Error = std::convert::Infallible;
        type Future = std::future::Ready<Result<Response<Given>, Self::Error>>;

        fn poll_ready(&mut self, cx: &mut TaskContext<'_>) -> Poll<Result<(), Self::Error>> {
            if self.0.load(SeqCst) {
                return Poll::Ready(Ok(()));
            }
            cx.waker().wake_by_ref();
            Poll::Pending
        }

        fn call(&mut self, _: Request<()>) -> Self::Future {
            std::future::ready(Ok(hello()))
        }
    }

    let open = Arc::new(AtomicBool::new(false));
    for (layer, mut service) in behind_each(&clock(), &Gated(Arc::clone(&open))) {
        open.store(false, SeqCst);
        let mut ready = spawn(std::future::poll_fn(|cx| service.poll_ready(cx)));
        assert!(ready.poll().is_pending(), "{layer}");
        assert!(ready.is_woken(), "{layer}: by the service inside");
        open.store(true, SeqCst);
        assert!(ready.poll().is_ready(), "{layer}");
    }
}

#[test]
fn ready_error_and_spare_reservation() {
    #[derive(Clone)]
    struct Broken;

    impl Service<Request<()>> for Broken {
        type Response = Response<Given>;
        type Error = &'static str;
        type Future = BoxFuture<'static, Result<Response<Given>, &'static str>>;

        fn poll_ready(&mut self, _: &mut TaskContext<'_>) -> Poll<Result<(), &'static str>> {
            Poll::Ready(Err("the worker is gone"))
        }

        fn call(&mut self, _: Request<()>) -> Self::Future {
            Box::pin(async { Err("called") })
        }
    }

    let clock = clock();
    for (layer, mut service) in behind_each(&clock, &Broken) {
        assert_eq!(poll_ready(&mut service), Poll::Ready(Err("the worker is gone")), "{layer}");
    }
    // What a service inside has reserved for one that does not call goes with it.
    let one = GlobalConcurrencyLimitLayer::new(1).layer(Handler::default());
    for (layer, mut service) in behind_each(&clock, &one) {
        assert!(poll_ready(&mut service).is_ready(), "{layer}");
        let mut other = one.clone();
        let mut ready = spawn(std::future::poll_fn(|cx| Service::<Request<()>>::poll_ready(&mut other, cx)));
        assert!(ready.poll().is_pending(), "{layer}");
        drop(service);
        assert!(ready.is_woken(), "{layer}");
        assert!(ready.poll().is_ready(), "{layer}");
    }
}

#[test]
fn ready_does_not_reserve() {
    let clock = clock();
    let bulkhead = Bulkhead::new(5);
    let end = CancellationToken::new();
    let token = end.clone();
    let pending = answers(move |_| {
        let token = token.clone();
        async move {
            token.cancelled().await;
            hello()
        }
    });
    let service = bulkhead_layer(&clock, &bulkhead).layer(pending);
    let mut clones = vec![service; 50];
    for clone in &mut clones {
        assert!(poll_ready(clone).is_ready());
    }
    assert_eq!(bulkhead.in_flight(), 0);
    let mut running: Vec<_> = clones.iter_mut().map(|clone| spawn(clone.call(get()))).collect();
    assert_eq!(bulkhead.in_flight(), 5, "decided in `call`, before anything is polled");
    let refused = running.iter_mut().skip(5).map(|task| now(task).status()).collect::<Vec<_>>();
    assert_eq!(refused, [503; 45]);
    running.truncate(5);
    drop(running.drain(..2));
    assert_eq!(bulkhead.in_flight(), 3);
    assert!(running.iter_mut().all(|task| task.poll().is_pending()));
    end.cancel();
    running.iter_mut().for_each(|task| drop(now(task)));
    assert_eq!(bulkhead.in_flight(), 0);
}

#[test]
fn idle_ready_service_hoards_permit() {
    let clock = clock();
    let bulkhead = Bulkhead::new(2);
    let service = bulkhead_layer(&clock, &bulkhead).layer(Handler::default());
    let mut idle = [service.clone(), service.clone()];
    for service in &mut idle {
        assert!(poll_ready(service).is_ready());
    }
    assert_eq!(answer(&mut service.clone(), get()).status(), 200);
    drop(idle);
    assert_eq!(bulkhead.available(), 2);
}

#[test]
fn a_service_of_towers_inside_or_outside_loses_no_permit() {
    let clock = clock();
    let bulkhead = Bulkhead::with(BulkheadConfig::new(1).queue(1));
    let handler = Handler::default();
    let ours = bulkhead_layer(&clock, &bulkhead);

    let mut inside = ours.layer(ConcurrencyLimit::new(handler.clone(), 2));
    let held = answer(&mut inside, get());
    let mut waits = call(&mut inside, get());
    assert!(waits.poll().is_pending());
    assert_eq!(answer(&mut inside, get()).status(), 503, "and the instance stays ready for the next");
    drop(waits);
    drop(held);
    assert_eq!(answer(&mut inside, get()).status(), 200);

    let mut outside = ServiceBuilder::new().concurrency_limit(1).layer(ours).service(handler.clone());
    for _ in 0..3 {
        assert_eq!(answer(&mut outside, get()).status(), 200);
    }
    assert_eq!((bulkhead.in_flight(), bulkhead.queued(), handler.calls()), (0, 0, 5));
}

#[tokio::test]
async fn every_order_with_buffer_and_load_shed_works() {
    use tower::ServiceExt as _;
    let clock = clock();
    let (bulkhead, handler) = (Bulkhead::new(1), Handler::default());
    let ours = || bulkhead_layer(&clock, &bulkhead);
    let inner = || handler.clone();
    let mut orders = [
        ServiceBuilder::new().layer(ours()).buffer(2).load_shed().service(inner()).boxed(),
        ServiceBuilder::new().layer(ours()).load_shed().buffer(2).service(inner()).boxed(),
        ServiceBuilder::new().buffer(2).layer(ours()).service(inner()).boxed(),
        ServiceBuilder::new().load_shed().buffer(2).layer(ours()).service(inner()).boxed(),
        ServiceBuilder::new().load_shed().layer(ours()).buffer(2).service(inner()).boxed(),
    ];
    for (number, service) in orders.iter_mut().enumerate() {
        for _ in 0..3 {
            let response = service.ready().await.unwrap().call(get()).await.unwrap();
            assert_eq!((response.status().as_u16(), bulkhead.in_flight()), (200, 1), "order {number}");
        }
        assert_eq!(bulkhead.in_flight(), 0, "order {number}");
    }
    assert_eq!(handler.calls(), 15);
}
