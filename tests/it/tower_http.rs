//! The tower layer for HTTP: judgement, repetition, and bodies that stay guarded. The services are functions.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use http::{HeaderMap, Method, Request, Response, StatusCode, Version};
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Body as _, Frame};
use steadfast::breaker::{BreakerConfig, TripRule};
use steadfast::clock::{Clock, ManualClock};
use steadfast::error::{Kind, Limit};
use steadfast::limit::Bulkhead;
use steadfast::policy::Settings;
use steadfast::retry::Jitter;
use steadfast::tower::{Body, BodyError, BodyTimeout, Http, Idempotent, Layer, Replay, ResponseExt};
use steadfast::{Attempt, Breaker, CancellationToken, Cause, Context, Error, Executor, Hedge, Policy, Retry, Timeout};
use tower::util::BoxCloneService;
use tower::{Layer as _, ServiceExt};

use crate::support::{exhausted, ms, secs};

type Sent = Result<Frame<Bytes>, io::Error>;
type Trickling = StreamBody<UnboundedReceiver<Sent>>;
type Req = Request<Full<Bytes>>;
type Answer = Result<Response<Full<Bytes>>, &'static str>;

fn executor<P: Settings>(clock: &ManualClock, policies: P) -> Executor<P> {
    Executor::builder("billing").policies(policies).unbudgeted().clock(clock).build().unwrap()
}

fn request(method: Method) -> Req {
    let body = Full::new(Bytes::from("7"));
    Request::builder().method(method).uri("http://billing.example/7").body(body).unwrap()
}

fn status(code: u16) -> Answer {
    Ok(Response::builder().status(code).body(Full::default()).unwrap())
}

fn with_pause(code: u16, pause: &'static str) -> Answer {
    status(code).map(|mut response| {
        response.headers_mut().insert("retry-after", pause.parse().unwrap());
        response
    })
}

type Inner = BoxCloneService<Req, Response<Full<Bytes>>, &'static str>;

/// A service that answers its `n`-th request, from 1, with `answer(n)`, and the requests that it got.
fn answering(answer: impl Fn(usize) -> Answer + Clone + Send + 'static) -> (Inner, Arc<Mutex<Vec<Req>>>) {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let requests = Arc::clone(&seen);
    let service = tower::service_fn(move |request: Req| {
        let mut requests = requests.lock().unwrap();
        requests.push(request);
        std::future::ready(answer(requests.len()))
    });
    (BoxCloneService::new(service), seen)
}

/// Three tries, one and two seconds apart.
fn retry() -> Retry {
    Retry::linear(secs(1)).jitter(Jitter::None)
}

struct Seen {
    result: Result<Response<Body<Full<Bytes>>>, Error<&'static str>>,
    attempts: usize,
    took: Duration,
}

impl Seen {
    fn status(&self) -> u16 {
        self.result.as_ref().unwrap().status().as_u16()
    }

    fn not_repeated(&self) -> Option<&'static str> {
        self.result.as_ref().unwrap().not_repeated()
    }
}

/// What comes of one request whose `n`-th attempt is answered with `answer(n)`.
fn send(request: Req, answer: impl Fn(usize) -> Answer + Clone + Send + 'static) -> Seen {
    let clock = Clock::manual();
    let (inner, requests) = answering(answer);
    let service = Layer::http(executor(&clock, retry())).typed().layer(inner);
    let start = clock.now();
    let result = clock.block_on(service.oneshot(request));
    let attempts = requests.lock().unwrap().len();
    Seen { result, attempts, took: clock.now().since(start) }
}

// --- what is sent again, and why

#[test]
fn an_answer_is_judged_by_its_status() {
    for code in [200, 202, 301, 400, 404, 501] {
        let seen = send(request(Method::GET), move |_| status(code));
        assert_eq!((seen.status(), seen.attempts, seen.not_repeated()), (code, 1, None));
    }
    for code in [408, 429, 500, 502, 503, 504] {
        let seen = send(request(Method::GET), move |n| status(if n < 3 { code } else { 200 }));
        assert_eq!((seen.status(), seen.attempts, seen.took), (200, 3, secs(3)), "{code}");
        let seen = send(request(Method::GET), move |_| status(code));
        assert_eq!((seen.status(), seen.attempts, seen.not_repeated()), (code, 3, None), "the last one is returned");
    }
}

#[test]
fn a_pause_that_is_asked_for_is_kept() {
    let seen = send(request(Method::GET), |n| if n == 1 { with_pause(503, "7") } else { status(200) });
    assert_eq!((seen.status(), seen.attempts), (200, 2));
    assert!((secs(7)..secs(8)).contains(&seen.took), "{:?}", seen.took);
    let seen = send(request(Method::GET), |_| with_pause(202, "7"));
    assert_eq!((seen.attempts, seen.took), (1, secs(0)), "a 202 says when to look again");
}

#[test]
fn what_is_not_idempotent_is_sent_again_only_if_nothing_was_done() {
    for method in [Method::POST, Method::PATCH] {
        let seen = send(request(method.clone()), |_| status(503));
        assert_eq!((seen.status(), seen.attempts), (503, 1));
        assert!(seen.not_repeated().unwrap().contains("not idempotent"));
        let seen = send(request(method.clone()), |n| status(if n < 3 { 429 } else { 200 }));
        assert_eq!((seen.status(), seen.attempts, seen.not_repeated()), (200, 3, None));
        let seen = send(request(method), |_| Err("reset"));
        assert_eq!((seen.result.unwrap_err().attempts(), seen.attempts), (1, 1));
    }
}

#[test]
fn a_key_or_the_callers_word_decide() {
    let busy_once = |n| status(if n == 1 { 503 } else { 200 });
    let mut keyed = request(Method::POST);
    keyed.headers_mut().insert("idempotency-key", "7e57".parse().unwrap());
    assert_eq!(send(keyed.clone(), busy_once).attempts, 2);
    keyed.extensions_mut().insert(Idempotent(false));
    assert_eq!(send(keyed, busy_once).attempts, 1);
    let mut declared = request(Method::POST);
    declared.extensions_mut().insert(Idempotent(true));
    assert_eq!(send(declared, busy_once).attempts, 2);
}

#[test]
fn an_error_that_proves_that_nothing_was_sent_allows_another_attempt() {
    let clock = Clock::manual();
    for (error, attempts) in [("connection refused", 3), ("reset", 1)] {
        let (inner, requests) = answering(move |n| if n < 3 { Err(error) } else { status(200) });
        let http = Http::new().unsent_if(|error: &&str| *error == "connection refused");
        let service = Layer::new(executor(&clock, retry())).protocol(http).layer(inner);
        let result = clock.block_on(service.oneshot(request(Method::POST)));
        assert_eq!((result.is_ok(), requests.lock().unwrap().len()), (attempts == 3, attempts), "{error}");
    }
}

#[test]
fn each_attempt_gets_the_whole_request_and_its_own_number() {
    let clock = Clock::manual();
    let (inner, requests) = answering(|n| status(if n < 3 { 503 } else { 200 }));
    let service = Layer::http(executor(&clock, (retry(), Timeout::secs(2)))).layer(inner);
    let mut sent = request(Method::PUT);
    *sent.version_mut() = Version::HTTP_2;
    sent.headers_mut().insert("x-tenant", "7".parse().unwrap());
    sent.extensions_mut().insert("kept");
    clock.block_on(service.oneshot(sent)).unwrap();
    for (request, number) in requests.lock().unwrap().drain(..).zip(1..) {
        assert_eq!((request.method(), request.version(), request.uri().path()), (&Method::PUT, Version::HTTP_2, "/7"));
        assert_eq!(
            (&request.headers()["x-tenant"], request.extensions().get()),
            (&"7".parse().unwrap(), Some(&"kept"))
        );
        let attempt = request.extensions().get::<Attempt>().unwrap().clone();
        assert_eq!((attempt.number(), attempt.deadline().is_some()), (number, true));
        assert_eq!(request.into_body().collect().now_or_never().unwrap().unwrap().to_bytes(), "7");
    }
}

#[test]
fn a_hedge_is_started_only_for_what_may_be_sent_twice() {
    for (method, calls) in [(Method::GET, 2), (Method::POST, 1)] {
        let clock = Clock::manual();
        let at = clock.clock();
        let count = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&count);
        let inner = tower::service_fn(move |_: Req| {
            counted.fetch_add(1, SeqCst);
            let at = at.clone();
            async move {
                at.sleep(secs(1)).await;
                status(200)
            }
        });
        let service = Layer::http(executor(&clock, Hedge::after(ms(10)))).layer(inner);
        assert_eq!(clock.block_on(service.oneshot(request(method))).unwrap().status(), 200);
        assert_eq!(count.load(SeqCst), calls);
    }
}

#[test]
fn a_body_that_cannot_be_copied_goes_out_once_and_the_answer_says_why() {
    let clock = Clock::manual();
    let calls = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&calls);
    let inner = tower::service_fn(move |request: Request<Replay<Full<Bytes>>>| {
        count.fetch_add(1, SeqCst);
        async {
            let body = request.into_body().collect().await.unwrap().to_bytes();
            assert_eq!(body.len(), 100, "all of it");
            status(503)
        }
    });
    let service = Layer::http(executor(&clock, retry())).layer(inner);
    for (most, attempts) in [(99, 1), (100, 3)] {
        let body = Replay::with_limit(Full::new(Bytes::from(vec![7; 100])), most);
        let response = clock.block_on(service.clone().oneshot(Request::put("/").body(body).unwrap())).unwrap();
        assert_eq!((response.status(), calls.swap(0, SeqCst)), (StatusCode::SERVICE_UNAVAILABLE, attempts));
        assert_eq!(response.not_repeated().is_some_and(|why| why.contains("longer")), attempts == 1);
    }
}

// --- what the caller brings

#[test]
fn the_context_of_a_request_is_in_its_extensions() {
    let clock = Clock::manual();
    let (inner, requests) = answering(|_| status(503));
    let service = Layer::http(executor(&clock, retry())).typed().layer(inner);
    let mut sent = request(Method::GET);
    sent.extensions_mut().insert(Context::new().with_max_attempts(2));
    assert_eq!(clock.block_on(service.clone().oneshot(sent)).unwrap().status(), 503);
    assert_eq!(requests.lock().unwrap().len(), 2);
    let mut sent = request(Method::GET);
    sent.extensions_mut().insert(Context::new().with_clock(&clock).with_timeout(ms(500)));
    assert_eq!(clock.block_on(service.oneshot(sent)).unwrap().status(), 503, "no wait beyond the deadline");
    assert_eq!(requests.lock().unwrap().len(), 3);
}

#[test]
fn an_error_without_an_answer_is_typed_or_boxed() {
    let seen = send(request(Method::GET), |_| Err("reset"));
    let error = seen.result.unwrap_err();
    assert_eq!((error.kind(), error.last()), (exhausted(Limit::Attempts), Some(&"reset")));
}

// --- bodies

/// A response whose body the test sends, behind a chain. The service keeps nothing of it.
struct Exchange {
    clock: ManualClock,
    sender: UnboundedSender<Sent>,
    response: Response<Body<Trickling>>,
}

fn exchange<P>(policies: P, http: Http, change: impl FnOnce(&mut Request<Full<Bytes>>, &ManualClock)) -> Exchange
where
    P: Policy<Response<Trickling>, &'static str> + 'static,
{
    let clock = Clock::manual();
    let (sender, receiver) = unbounded();
    let body = Mutex::new(Some(StreamBody::new(receiver)));
    let body = Arc::new(body);
    let inner = tower::service_fn(move |_: Req| {
        let body = body.lock().unwrap().take().unwrap();
        async { Ok::<_, &str>(Response::builder().header("x-kept", "7").body(body).unwrap()) }
    });
    let service = Layer::new(executor(&clock, policies)).protocol(http).layer(inner);
    let mut sent = request(Method::GET);
    change(&mut sent, &clock);
    let response = clock.block_on(service.oneshot(sent)).unwrap();
    Exchange { clock, sender, response }
}

fn given_up(error: &tower::BoxError) -> Kind {
    error.downcast_ref::<BodyError>().unwrap().kind()
}

#[test]
fn a_body_passes_with_its_trailers_and_its_head() {
    let Exchange { sender, response, .. } = exchange((), Http::new(), |_, _| {});
    assert_eq!(response.headers()["x-kept"], "7");
    sender.unbounded_send(Ok(Frame::data("to be".into()))).unwrap();
    let trailers = HeaderMap::from_iter([(http::header::ETAG, "7".parse().unwrap())]);
    sender.unbounded_send(Ok(Frame::trailers(trailers.clone()))).unwrap();
    let read = response.into_body().collect().now_or_never().unwrap().unwrap();
    assert_eq!(read.trailers(), Some(&trailers));
    assert_eq!(read.to_bytes(), "to be");
    assert!(sender.is_closed(), "it is given up with its trailers");
}

#[test]
fn a_permit_is_held_to_the_end_of_the_body() {
    for complete in [true, false] {
        let bulkhead = Bulkhead::new(1);
        let Exchange { sender, response, .. } = exchange(bulkhead.clone(), Http::new(), |_, _| {});
        assert_eq!(bulkhead.in_flight(), 1);
        if complete {
            drop(sender);
            let mut body = response.into_body();
            assert!(body.frame().now_or_never().unwrap().is_none());
            assert_eq!(bulkhead.in_flight(), 0, "while the body is held");
        } else {
            drop(response);
            assert_eq!(bulkhead.in_flight(), 0);
        }
    }
}

#[test]
fn an_answer_without_a_body_holds_nothing() {
    let clock = Clock::manual();
    let bulkhead = Bulkhead::new(1);
    let service = Layer::http(executor(&clock, bulkhead.clone())).layer(answering(|_| status(204)).0);
    let response = clock.block_on(service.oneshot(request(Method::GET))).unwrap();
    assert_eq!((bulkhead.in_flight(), response.body().is_end_stream()), (0, true));
    // The answer to a HEAD announces a body that does not come.
    let Exchange { response, .. } = exchange(bulkhead.clone(), Http::new(), |request, _| {
        *request.method_mut() = Method::HEAD;
    });
    assert_eq!((bulkhead.in_flight(), response.status().as_u16()), (0, 200));
}

#[test]
fn a_body_that_fails_is_a_late_failure_and_one_that_is_dropped_is_not() {
    for (fails, failures) in [(true, 1), (false, 0)] {
        let breaker = Breaker::new(BreakerConfig::default().rule(TripRule::consecutive(9)));
        let Exchange { sender, response, .. } = exchange(breaker.clone(), Http::new(), |_, _| {});
        if fails {
            sender.unbounded_send(Err(io::ErrorKind::ConnectionReset.into())).unwrap();
            let error = response.into_body().collect().now_or_never().unwrap().unwrap_err();
            assert_eq!(error.downcast_ref::<io::Error>().unwrap().kind(), io::ErrorKind::ConnectionReset);
        } else {
            drop(response);
        }
        assert_eq!(breaker.counts().consecutive_failures, failures);
    }
}

#[test]
fn what_the_caller_asks_for_ends_the_body_at_once() {
    let token = CancellationToken::new();
    let bring = token.clone();
    let Exchange { sender, response, .. } = exchange((), Http::new(), |request, _| {
        request.extensions_mut().insert(Context::new().with_token(bring));
    });
    let merged = response.cancellation().unwrap().clone();
    let mut body = response.into_body();
    assert!(body.frame().now_or_never().is_none());
    token.cancel();
    assert_eq!(merged.cause(), Some(Cause::Cancelled));
    let error = body.frame().now_or_never().unwrap().unwrap().unwrap_err();
    assert_eq!((given_up(&error), sender.is_closed()), (Kind::Cancelled, true));
    // A deadline.
    let Exchange { clock, response, sender: _sender } = exchange((), Http::new(), |request, clock| {
        request.extensions_mut().insert(Context::new().with_clock(clock).with_timeout(secs(3)));
    });
    let start = clock.now();
    let error = clock.block_on(response.into_body().collect()).unwrap_err();
    assert_eq!((given_up(&error), clock.now().since(start)), (Kind::DeadlineExceeded, secs(3)));
}

#[test]
fn a_body_that_stalls_is_given_up() {
    let took = |http: Http, change: fn(&mut Req, &ManualClock)| {
        let Exchange { clock, response, sender } = exchange((), http, change);
        let start = clock.now();
        let error = clock.block_on(response.into_body().collect()).unwrap_err();
        assert!(sender.is_closed());
        (given_up(&error), clock.now().since(start))
    };
    let timed_out = |limit| (Kind::TimedOut { limit }, limit);
    assert_eq!(took(Http::new(), |_, _| {}), timed_out(secs(30)));
    let http = Http::new().body_timeout(BodyTimeout::new().idle(secs(5)));
    assert_eq!(took(http, |_, _| {}), timed_out(secs(5)));
    assert_eq!(
        took(http, |request, _| {
            request.extensions_mut().insert(BodyTimeout::new().idle(secs(2)));
        }),
        timed_out(secs(2))
    );
}

#[test]
fn a_limit_over_the_body_goes_on_while_it_is_read() {
    let Exchange { clock, response, sender: _sender } =
        exchange(Timeout::secs(4).covering_body(), Http::new(), |_, _| {});
    let start = clock.now();
    let error = clock.block_on(response.into_body().collect()).unwrap_err();
    assert_eq!((given_up(&error), clock.now().since(start)), (Kind::TimedOut { limit: secs(4) }, secs(4)));
}

#[test]
fn a_limit_of_zero_is_refused() {
    let clock = Clock::manual();
    let http = Http::new().body_timeout(BodyTimeout::new().idle(secs(0)));
    let service = Layer::new(executor(&clock, ())).protocol(http).typed().layer(answering(|_| status(200)).0);
    let error = clock.block_on(service.oneshot(request(Method::GET))).unwrap_err();
    assert_eq!(error.kind(), Kind::Misconfigured);
}

#[test]
fn shutdown_ends_bodies_too() {
    let clock = Clock::manual();
    let billing = executor(&clock, ());
    let (sender, receiver) = unbounded::<Sent>();
    let body = Arc::new(Mutex::new(Some(StreamBody::new(receiver))));
    let inner = tower::service_fn(move |_: Req| {
        let body = body.lock().unwrap().take().unwrap();
        async { Ok::<_, &str>(Response::new(body)) }
    });
    let service = Layer::http(billing.clone()).layer(inner);
    let mut body = clock.block_on(service.oneshot(request(Method::GET))).unwrap().into_body();
    assert!(body.frame().now_or_never().is_none());
    billing.shutdown();
    let error = body.frame().now_or_never().unwrap().unwrap().unwrap_err();
    assert_eq!((given_up(&error), sender.is_closed()), (Kind::ShutDown, true));
}
