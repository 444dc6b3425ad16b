//! The deadline layer without a network: whose deadline, who is told, and what ends.

#![expect(clippy::unwrap_used, reason = "the helpers of a test may say in one word that something went wrong")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{HeaderName, Request};
use http_body::Body as _;
use steadfast::clock::ManualClock;
use steadfast::error::Kind;
use steadfast::limit::BulkheadConfig;
use steadfast::server::DeadlineLayer;
use steadfast::{Bulkhead, CancellationToken, Context, Priority, Refusal};
use tower::{Layer, Service};

use crate::server_support::{
    Handler, TIMEOUT, answer, answers, bulkhead_layer, call, clock, data, deadline_layer, frame, get, get_with, grpc,
    header, hello, now, rate_limit, seen, seen_grpc, slow_rate, stream,
};
use crate::support::{ms, secs};

fn asking(timeout: &str) -> Request<()> {
    get_with(TIMEOUT, timeout)
}

fn grpc_asking(timeout: &str) -> Request<()> {
    let mut request = grpc();
    request.headers_mut().insert("grpc-timeout", timeout.parse().unwrap());
    request
}

/// What handlers were told; they never answer.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<Vec<Context>>>);

impl Told {
    fn left(&self) -> Option<Duration> {
        self.last().remaining()
    }

    fn is_cancelled(&self) -> bool {
        self.last().token().unwrap().is_cancelled()
    }

    fn last(&self) -> Context {
        self.0.lock().unwrap().last().unwrap().clone()
    }

    fn note(&self, request: &Request<()>) {
        self.0.lock().unwrap().push(request.extensions().get::<Context>().unwrap().clone());
    }
}

/// A service that never answers, behind the layer.
fn hanging(
    layer: DeadlineLayer,
) -> (
    Told,
    impl Service<
        Request<()>,
        Response = http::Response<steadfast::server::Body<crate::server_support::Given>>,
        Error = std::convert::Infallible,
        Future: Send,
    >,
) {
    let told = Told::default();
    let noted = told.clone();
    let service = answers(move |request: Request<()>| {
        noted.note(&request);
        std::future::pending()
    });
    (told, layer.layer(service))
}

#[test]
fn the_deadline_of_the_client_ends_the_request_and_is_passed_on() {
    let clock = clock();
    let (told, mut service) = hanging(deadline_layer(&clock));
    let mut late = call(&mut service, asking("2.5"));
    assert!(late.poll().is_pending());
    assert_eq!((told.left(), told.is_cancelled()), (Some(ms(2_500)), false));
    clock.advance(ms(2_499));
    assert!(!late.is_woken() && late.poll().is_pending());
    clock.advance(ms(1));
    assert!(late.is_woken());
    let response = now(&mut late);
    assert_eq!(seen(&response), (504, None));
    assert_eq!(response.extensions().get::<Refusal>().unwrap().kind(), Kind::DeadlineExceeded);
    assert!(told.is_cancelled(), "what the handler has spawned is told");
}

#[test]
fn where_the_limit_comes_from() {
    let clock = clock();
    let left = |layer: DeadlineLayer, request: Request<()>| {
        let (told, mut service) = hanging(layer);
        drop(call(&mut service, request));
        told.left()
    };
    let plain = || deadline_layer(&clock);
    assert_eq!(left(plain(), get()), None);
    assert_eq!(left(plain(), asking("3")), Some(secs(3)));
    let limited = || plain().default_limit(secs(10)).longest(secs(60));
    assert_eq!(left(limited(), get()), Some(secs(10)));
    assert_eq!(left(limited(), asking("59")), Some(secs(59)));
    assert_eq!(left(limited(), asking("61")), Some(secs(60)));
    assert_eq!(left(limited(), asking("99999999999999999999999")), Some(secs(60)));
    assert_eq!(left(plain().longest(secs(60)), get()), Some(secs(60)), "whatever it asks for");
    for garbage in ["", "soon", "-1", "1e3", "NaN", "1s", "\u{ff}"] {
        assert_eq!(left(limited(), asking(garbage)), Some(secs(10)), "{garbage}");
    }
    let millis = || limited().millis_header(HeaderName::from_static("x-timeout-ms"));
    let asking_millis = |value| get_with(HeaderName::from_static("x-timeout-ms"), value);
    assert_eq!(left(millis(), asking_millis("250")), Some(ms(250)));
    assert_eq!(left(millis(), asking_millis("0.5")), Some(secs(10)));
    let computed = || limited().limit_by(|head| (head.uri.path() == "/report").then_some(secs(30)));
    assert_eq!(left(computed(), Request::builder().uri("/report").body(()).unwrap()), Some(secs(30)));
    assert_eq!(left(computed(), get()), Some(secs(10)));
    // gRPC has a header of its own, which is not read elsewhere.
    assert_eq!(left(computed(), grpc_asking("1500m")), Some(ms(1_500)));
    assert_eq!(left(limited(), grpc_asking("123456789S")), Some(secs(10)));
    assert_eq!(left(limited(), get_with(HeaderName::from_static("grpc-timeout"), "1S")), Some(secs(10)));
}

#[test]
fn a_request_whose_time_is_over_does_not_reach_the_handler() {
    let clock = clock();
    let handler = Handler::default();
    let mut service = deadline_layer(&clock).layer(handler.clone());
    assert_eq!(seen(&answer(&mut service, asking("0"))), (504, None));
    assert_eq!(seen_grpc(&answer(&mut service, grpc_asking("0n"))), (Some("4"), None));
    assert_eq!(handler.calls(), 0);
    assert_eq!(answer(&mut service, grpc_asking("1n")).status(), 200);
}

#[test]
fn an_answer_that_is_ready_is_given_however_late_it_is() {
    let clock = clock();
    let inner = answers(|_| async { hello() });
    let mut service = deadline_layer(&clock).layer(inner);
    let mut late = call(&mut service, asking("1"));
    clock.advance(secs(2));
    assert_eq!(now(&mut late).status(), 200);
}

#[test]
fn a_client_that_leaves_cancels_the_context_and_an_answer_does_not() {
    let clock = clock();
    let (told, mut service) = hanging(deadline_layer(&clock));
    let mut request = call(&mut service, get());
    assert!(request.poll().is_pending() && !told.is_cancelled());
    drop(request);
    assert!(told.is_cancelled());

    let told = Told::default();
    let noted = told.clone();
    let mut service = deadline_layer(&clock).layer(answers(move |request: Request<()>| {
        noted.note(&request);
        async { hello() }
    }));
    // Read to its end.
    let mut body = answer(&mut service, get()).into_body();
    assert_eq!(frame(&mut body).unwrap().unwrap().into_data().unwrap(), "hello");
    drop(body);
    assert!(!told.is_cancelled(), "work that goes on may go on");
    // Given up while it is read.
    let response = answer(&mut service, get());
    assert!(!told.is_cancelled());
    drop(response);
    assert!(told.is_cancelled());
    // Without a body to come.
    let head = Request::builder().method(http::Method::HEAD).body(()).unwrap();
    drop(answer(&mut service, head));
    assert!(!told.is_cancelled());
}

/// A server that has written the last byte of a length drops the body, and asks for no end of it.
#[test]
fn a_body_is_complete_with_the_last_byte_of_its_length() {
    let clock = clock();
    let told = Told::default();
    let noted = told.clone();
    let (sender, mut response) = stream();
    response.headers_mut().insert(http::header::CONTENT_LENGTH, 9.into());
    let response = Arc::new(Mutex::new(Some(response)));
    let mut service = deadline_layer(&clock).layer(answers(move |request: Request<()>| {
        noted.note(&request);
        std::future::ready(response.lock().unwrap().take().unwrap())
    }));
    let mut body = answer(&mut service, get()).into_body();
    for (text, is_open) in [("begin", true), ("more", false)] {
        sender.unbounded_send(data(text)).unwrap();
        assert!(frame(&mut body).unwrap().unwrap().is_data());
        assert_eq!(!sender.is_closed(), is_open, "after {text:?}");
    }
    drop(body);
    assert!(!told.is_cancelled());
}

#[test]
fn a_context_from_outside_is_kept_and_the_earlier_deadline_counts() {
    let clock = clock();
    let token = CancellationToken::new();
    let with = |mut request: Request<()>, timeout| {
        let cx = Context::new().with_clock(&clock).with_timeout(timeout).with_priority(Priority::High);
        request.extensions_mut().insert(cx.with_key("tenant").with_token(token.clone()));
        request
    };
    let (told, mut service) = hanging(deadline_layer(&clock));
    drop(call(&mut service, with(asking("5"), secs(3))));
    assert_eq!(
        (told.left(), told.last().priority(), told.last().key()),
        (Some(secs(3)), Priority::High, Some("tenant"))
    );
    assert!(told.is_cancelled() && !token.is_cancelled(), "its token is its own");
    let mut request = call(&mut service, with(asking("5"), secs(8)));
    assert!(request.poll().is_pending());
    assert_eq!((told.left(), told.is_cancelled()), (Some(secs(5)), false));
    token.cancel();
    assert!(told.is_cancelled(), "and ends with the one outside");
}

#[test]
fn a_wait_ends_with_the_deadline_of_its_request_and_one_in_vain_is_not_begun() {
    let clock = clock();
    let bulkhead = Bulkhead::with(BulkheadConfig::new(1).queue(5).max_wait(secs(60)));
    let _held = bulkhead.try_acquire().unwrap();
    let handler = Handler::default();
    let mut service = deadline_layer(&clock).layer(bulkhead_layer(&clock, &bulkhead).layer(handler.clone()));
    let mut waits = call(&mut service, asking("2"));
    assert!(waits.poll().is_pending());
    assert_eq!(bulkhead.queued(), 1);
    clock.advance(secs(2));
    assert_eq!(seen(&now(&mut waits)), (504, None));
    assert_eq!((bulkhead.queued(), handler.calls()), (0, 0));

    let (limits, layer) = rate_limit(&clock, slow_rate().max_wait(secs(60)));
    let mut service = deadline_layer(&clock).layer(layer.layer(handler.clone()));
    assert_eq!(answer(&mut service, asking("0.5")).status(), 200);
    assert_eq!(seen(&answer(&mut service, asking("0.5"))), (429, Some("1")), "at once");
    assert_eq!(limits.peek("").unwrap().queued(), 0);
    let mut waits = call(&mut service, asking("1.5"));
    assert!(waits.poll().is_pending());
    clock.advance(secs(1));
    assert_eq!(now(&mut waits).status(), 200);
}

/// A response with a body that goes on, to a request with a limit of one second.
fn streaming(
    clock: &ManualClock,
    layer: DeadlineLayer,
    request: Request<()>,
) -> (
    futures::channel::mpsc::UnboundedSender<Result<hyper::body::Frame<bytes::Bytes>, crate::server_support::BoxError>>,
    steadfast::server::Body<crate::server_support::Given>,
) {
    let (sender, response) = stream();
    let response = Arc::new(Mutex::new(Some(response)));
    let inner = answers(move |_| std::future::ready(response.lock().unwrap().take().unwrap()));
    let mut body = answer(&mut layer.layer(inner), request).into_body();
    sender.unbounded_send(data("begin")).unwrap();
    assert!(frame(&mut body).unwrap().unwrap().is_data());
    clock.advance(ms(999));
    sender.unbounded_send(data("more")).unwrap();
    assert!(frame(&mut body).unwrap().unwrap().is_data());
    (sender, body)
}

#[test]
fn a_stream_of_grpc_ends_with_its_deadline_in_its_trailers() {
    let clock = clock();
    let (sender, mut body) = streaming(&clock, deadline_layer(&clock), grpc_asking("1S"));
    clock.advance(ms(1));
    // What is there is late too.
    sender.unbounded_send(data("late")).unwrap();
    let trailers = frame(&mut body).unwrap().unwrap().into_trailers().unwrap();
    assert_eq!(trailers.get("grpc-status").unwrap(), "4");
    assert_eq!(trailers.get("grpc-message").unwrap(), "deadline exceeded");
    assert!(sender.is_closed(), "the handler's body is gone at once");
    assert!(frame(&mut body).is_none() && body.is_end_stream());
}

#[test]
fn a_body_that_is_waited_for_is_woken_by_its_deadline() {
    let clock = clock();
    let (_sender, mut body) = streaming(&clock, deadline_layer(&clock), grpc_asking("1S"));
    let mut next = tokio_test::task::spawn(http_body_util::BodyExt::frame(&mut body));
    assert!(next.poll().is_pending());
    clock.advance(ms(1));
    assert!(next.is_woken());
    assert!(next.poll().is_ready());
}

#[test]
fn over_http_the_limit_ends_with_the_headers_unless_it_covers_the_body() {
    let clock = clock();
    let (sender, mut body) = streaming(&clock, deadline_layer(&clock), asking("1"));
    clock.advance(secs(60));
    sender.unbounded_send(data("long after")).unwrap();
    assert!(frame(&mut body).unwrap().unwrap().is_data());

    let (sender, mut body) = streaming(&clock, deadline_layer(&clock).covering_body(), asking("1"));
    clock.advance(ms(1));
    let error = frame(&mut body).unwrap().unwrap_err();
    assert_eq!(error.downcast_ref::<Refusal>().unwrap().kind(), Kind::DeadlineExceeded);
    assert!(sender.is_closed());
    assert!(frame(&mut body).is_none());
}

#[test]
fn limits_of_zero_are_refused() {
    let clock = clock();
    for (layer, field) in [
        (deadline_layer(&clock).default_limit(Duration::ZERO), "default_limit"),
        (deadline_layer(&clock).longest(Duration::ZERO), "longest"),
    ] {
        assert_eq!(layer.check().unwrap_err().field(), field);
        let handler = Handler::default();
        let refused = answer(&mut layer.layer(handler.clone()), asking("1"));
        assert_eq!((seen(&refused), header(&refused, "grpc-status"), handler.calls()), ((500, None), None, 0));
    }
}
