//! The layers for servers without a network: who is let in, what is answered, and what is held for how long.

#![expect(clippy::unwrap_used, reason = "the helpers of a test may say in one word that something went wrong")]

use std::convert::Infallible;
use std::net::SocketAddr;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use http::{HeaderMap, HeaderValue, Method, Request, Response};
use http_body::Body as _;
use http_body_util::{BodyExt, Empty};
use hyper::body::Frame;
use steadfast::error::Kind;
use steadfast::limit::{BulkheadConfig, MAX_PERMITS, RateLimiterConfig};
use steadfast::server::{BulkheadLayer, Key, MAX_KEY_LEN, RateLimitLayer};
use steadfast::{Bulkhead, Context, Keyed, Priority, RateLimiter, Refusal};
use tower::{Layer, Service};

use crate::server_support::{
    API_KEY, Given, Handler, answer, answers, bulkhead_layer, call, clock, data, frame, get, get_with, grpc, header,
    hello, now, rate_limit, seen, seen_grpc, slow_rate, stream,
};
use crate::support::{ms, secs};

fn key(name: &str) -> Request<()> {
    get_with(API_KEY, name)
}

#[test]
fn a_key_that_comes_too_often_is_refused_and_others_are_not() {
    let clock = clock();
    let handler = Handler::default();
    let (limits, layer) = rate_limit(&clock, RateLimiterConfig::per_second(1).burst(2));
    let mut service = layer.layer(handler.clone());
    assert_eq!(seen(&answer(&mut service, key("alice"))), (200, None));
    assert_eq!(seen(&answer(&mut service, key("alice"))), (200, None));
    assert_eq!(seen(&answer(&mut service, key("alice"))), (429, Some("1")));
    assert_eq!(seen(&answer(&mut service, key("bob"))), (200, None));
    assert_eq!((handler.calls(), limits.len()), (3, 2));
    clock.advance(secs(1));
    assert_eq!(seen(&answer(&mut service, key("alice"))), (200, None));
}

#[test]
fn retry_after_is_in_whole_seconds_rounded_up_and_never_too_early() {
    let clock = clock();
    let (_, layer) = rate_limit(&clock, RateLimiterConfig::per(1, ms(2_500)));
    let mut service = layer.layer(Handler::default());
    assert_eq!(seen(&answer(&mut service, key("alice"))), (200, None));
    for (passes, seconds) in [(0, "3"), (499, "3"), (1, "2"), (1_000, "1"), (999, "1")] {
        clock.advance(ms(passes));
        assert_eq!(seen(&answer(&mut service, key("alice"))), (429, Some(seconds)));
    }
    clock.advance(ms(1));
    assert_eq!(seen(&answer(&mut service, key("alice"))), (200, None));
}

#[test]
fn grpc_is_answered_in_its_own_terms_and_with_the_exact_pushback() {
    let clock = clock();
    let handler = Handler::default();
    let (_, layer) = rate_limit(&clock, RateLimiterConfig::per(1, ms(2_500)));
    let mut service = layer.layer(handler.clone());
    assert_eq!(answer(&mut service, grpc()).status(), 200);
    clock.advance(Duration::from_micros(100_001));
    let refused = answer(&mut service, grpc());
    assert_eq!(seen_grpc(&refused), (Some("8"), Some("2400")));
    assert_eq!(header(&refused, "content-type"), Some("application/grpc+proto"));
    assert_eq!(header(&refused, "grpc-message"), Some("rate limited, free in 2.4 s"));
    assert!(refused.body().is_end_stream(), "trailers only");
    assert_eq!(handler.calls(), 1);
}

#[test]
fn a_request_that_is_never_let_in_is_told_so() {
    let clock = clock();
    let config = slow_rate().weigh_by(|cx| if cx.priority() < Priority::Normal { 2 } else { 1 });
    let (_, layer) = rate_limit(&clock, config);
    let mut service = layer.layer(Handler::default());
    let heavy = |mut request: Request<()>| {
        request.extensions_mut().insert(Context::new().with_clock(&clock).with_priority(Priority::Low));
        request
    };
    assert_eq!(seen_grpc(&answer(&mut service, heavy(grpc()))), (Some("8"), Some("-1")));
    assert_eq!(seen(&answer(&mut service, heavy(get()))), (429, None));
    assert_eq!(seen(&answer(&mut service, get())), (200, None), "it has taken nothing");
}

#[test]
fn weights_of_the_settings_count() {
    let clock = clock();
    let (_, layer) = rate_limit(&clock, RateLimiterConfig::per_second(1).burst(4).weight(2));
    let mut service = layer.layer(Handler::default());
    assert_eq!(seen(&answer(&mut service, get())), (200, None));
    assert_eq!(seen(&answer(&mut service, get())), (200, None));
    assert_eq!(seen(&answer(&mut service, get())), (429, Some("2")));
}

#[test]
fn the_refusal_is_in_the_extensions() {
    let clock = clock();
    let (_, layer) = rate_limit(&clock, slow_rate());
    let mut service = layer.layer(Handler::default());
    answer(&mut service, get());
    let refused = answer(&mut service, get());
    let refusal = refused.extensions().get::<Refusal>().unwrap();
    assert_eq!(refusal.kind(), Kind::RateLimited { retry_after: Some(secs(1)) });
    assert_eq!(refused.body().size_hint().exact(), Some(0));
}

#[test]
fn requests_without_a_key_share_one_limit() {
    let clock = clock();
    let (_, layer) = rate_limit(&clock, slow_rate());
    let mut service = layer.layer(Handler::default());
    assert_eq!(seen(&answer(&mut service, get())), (200, None));
    assert_eq!(seen(&answer(&mut service, get())), (429, Some("1")));
    assert_eq!(seen(&answer(&mut service, key(""))), (429, Some("1")), "the empty key is theirs");
    assert_eq!(seen(&answer(&mut service, key("alice"))), (200, None));
}

#[test]
fn peers_are_told_apart_by_address_and_networks_of_ipv6_are_one_peer() {
    let clock = clock();
    let from = |peer: &str| {
        let mut request = get();
        request.extensions_mut().insert(peer.parse::<SocketAddr>().unwrap());
        request
    };
    let limits = || Keyed::<RateLimiter>::new(slow_rate());
    let mut service = RateLimitLayer::new(limits(), Key::peer()).clock(&clock).layer(Handler::default());
    let cases = [
        ("192.0.2.1:1000", 200),
        ("192.0.2.1:2000", 429),
        ("[::ffff:192.0.2.1]:1000", 429),
        ("192.0.2.2:1000", 200),
        ("[2001:db8:0:1::1]:1000", 200),
        ("[2001:db8:0:1::2]:1000", 429),
        ("[2001:db8:0:2::1]:1000", 200),
    ];
    for (peer, status) in cases {
        assert_eq!(answer(&mut service, from(peer)).status(), status, "{peer}");
    }
    let mut service =
        RateLimitLayer::new(limits(), Key::peer().ipv6_prefix(128)).clock(&clock).layer(Handler::default());
    for (peer, status) in [("[2001:db8:0:1::1]:1", 200), ("[2001:db8:0:1::2]:1", 200), ("[2001:db8:0:1::2]:2", 429)] {
        assert_eq!(answer(&mut service, from(peer)).status(), status, "{peer}");
    }
}

#[test]
fn a_function_finds_the_key_and_a_proxy_is_believed_only_if_the_function_does() {
    let clock = clock();
    let key = Key::address(|head| {
        let peer = head.extensions.get::<SocketAddr>()?.ip();
        let forwarded = head.headers.get("x-forwarded-for").filter(|_| peer.is_loopback());
        forwarded.map_or(Some(peer), |value| value.to_str().ok()?.rsplit(',').next()?.trim().parse().ok())
    });
    let mut service = RateLimitLayer::new(Keyed::new(slow_rate()), key).clock(&clock).layer(Handler::default());
    let from = |peer: &str, forwarded: &str| {
        let mut request = get_with(http::HeaderName::from_static("x-forwarded-for"), forwarded);
        request.extensions_mut().insert(peer.parse::<SocketAddr>().unwrap());
        request
    };
    assert_eq!(answer(&mut service, from("127.0.0.1:1", "6.6.6.1, 192.0.2.1")).status(), 200);
    assert_eq!(answer(&mut service, from("127.0.0.1:1", "6.6.6.2, 192.0.2.1")).status(), 429, "what a client makes up");
    assert_eq!(answer(&mut service, from("192.0.2.9:1", "192.0.2.2")).status(), 200);
    assert_eq!(answer(&mut service, from("192.0.2.9:1", "192.0.2.3")).status(), 429);

    let by_path = Key::by(|head| Some(head.uri.path().to_owned()));
    let mut service = RateLimitLayer::new(Keyed::new(slow_rate()), by_path).clock(&clock).layer(Handler::default());
    let path = |path: &str| Request::builder().uri(path).body(()).unwrap();
    assert_eq!(answer(&mut service, path("/a?1")).status(), 200);
    assert_eq!(answer(&mut service, path("/a?2")).status(), 429);
    assert_eq!(answer(&mut service, path("/b")).status(), 200);
}

#[test]
fn long_keys_and_keys_that_are_no_text_are_kept_short() {
    let clock = clock();
    let (limits, layer) = rate_limit(&clock, slow_rate());
    let mut service = layer.layer(Handler::default());
    let long = "k".repeat(10_000);
    let longest = "k".repeat(MAX_KEY_LEN);
    let binary = |value: &[u8]| {
        let mut request = get();
        request.headers_mut().insert(API_KEY, HeaderValue::from_bytes(value).unwrap());
        request
    };
    for _ in 0..2 {
        let status = if limits.is_empty() { 200 } else { 429 };
        assert_eq!(answer(&mut service, key(&format!("{long}1"))).status(), status);
        assert_eq!(answer(&mut service, key(&format!("{long}2"))).status(), status, "it is another key");
        assert_eq!(answer(&mut service, key(&longest)).status(), status);
        assert_eq!(answer(&mut service, binary(b"\xff\xfe")).status(), status);
        assert_eq!(answer(&mut service, binary(b"\xff\xff")).status(), status);
    }
    let keys = limits.keys();
    assert_eq!(keys.len(), 5);
    assert!(keys.iter().all(|key| key.len() <= MAX_KEY_LEN), "{keys:?}");
    assert!(keys.iter().any(|key| **key == *longest));
}

#[test]
fn a_million_keys_stay_within_the_bound_and_free_nobody_who_is_throttled() {
    let clock = clock();
    let limits = Keyed::<RateLimiter>::new(RateLimiterConfig::per(2, secs(3_600)));
    // Two threads, each with a layer of its own over the same limits.
    let asker = || {
        let number = Arc::new(AtomicU32::new(0));
        let found = Arc::clone(&number);
        let layer = RateLimitLayer::new(limits.clone(), Key::by(move |_| Some(found.load(SeqCst).to_string())));
        // As little as can be beside the layer: a million calls of unoptimised code.
        let empty = |_| std::future::ready(Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new())));
        let mut service = layer.clock(&clock).layer(tower::service_fn(empty));
        move |n| {
            number.store(n, SeqCst);
            service.call(get()).now_or_never().unwrap().unwrap().status().as_u16()
        }
    };
    let throttled = 0..50;
    let mut ask = asker();
    for n in throttled.clone() {
        assert_eq!([ask(n), ask(n), ask(n)], [200, 200, 429], "{n}");
    }
    let attack = |keys: Range<u32>| {
        let mut ask = asker();
        for n in keys {
            assert_eq!(ask(n), 200);
            if n % 1_000 == 0 {
                clock.advance(ms(1));
                assert!(limits.len() <= limits.capacity(), "{n}");
            }
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| attack(1_000..501_000));
        attack(501_000..1_001_000);
    });
    assert!(limits.evictions() > 990_000, "{}", limits.evictions());
    for n in throttled {
        assert_eq!(ask(n), 429, "{n}");
    }
}

#[test]
fn whoever_goes_on_asking_stays_throttled_although_every_other_key_drains_its_bucket() {
    let clock = clock();
    let limits = Keyed::<RateLimiter>::with_capacity(RateLimiterConfig::per(1, secs(3_600)), 1_000);
    let mut service = RateLimitLayer::new(limits, Key::header(API_KEY)).clock(&clock).layer(Handler::default());
    assert_eq!(answer(&mut service, key("alice")).status(), 200);
    for n in 0..20_000 {
        assert_eq!(answer(&mut service, key(&n.to_string())).status(), 200);
        if n % 100 == 0 {
            assert_eq!(answer(&mut service, key("alice")).status(), 429, "{n}");
        }
    }
}

#[test]
fn a_request_may_wait_for_its_rate_and_one_that_leaves_leaves_no_trace() {
    let clock = clock();
    let handler = Handler::default();
    let (limits, layer) = rate_limit(&clock, slow_rate().max_wait(secs(2)));
    let mut service = layer.layer(handler.clone());
    assert_eq!(answer(&mut service, key("alice")).status(), 200);
    let mut first = call(&mut service, key("alice"));
    let mut second = call(&mut service, key("alice"));
    assert!(first.poll().is_pending());
    assert!(second.poll().is_pending());
    let limiter = limits.peek("alice").unwrap();
    assert_eq!(limiter.queued(), 2);
    assert_eq!(seen(&answer(&mut service, key("alice"))), (429, Some("3")), "two are before it");
    drop(first);
    assert_eq!(limiter.queued(), 1);
    clock.advance(ms(999));
    assert!(second.poll().is_pending());
    clock.advance(ms(1));
    assert!(second.is_woken());
    assert_eq!(now(&mut second).status(), 200, "in the place of the first");
    assert_eq!((handler.calls(), limiter.queued()), (2, 0));
}

#[test]
fn a_full_bulkhead_refuses_with_the_time_that_it_is_told() {
    let clock = clock();
    let bulkhead = Bulkhead::new(1);
    let held = bulkhead.try_acquire().unwrap();
    let handler = Handler::default();
    let mut service = bulkhead_layer(&clock, &bulkhead).layer(handler.clone());
    assert_eq!(seen(&answer(&mut service, get())), (503, Some("1")));
    assert_eq!(seen_grpc(&answer(&mut service, grpc())), (Some("14"), Some("1000")));
    let mut service = bulkhead_layer(&clock, &bulkhead).retry_after(ms(4_200)).layer(handler.clone());
    let refused = answer(&mut service, get());
    assert_eq!(seen(&refused), (503, Some("5")));
    assert_eq!(refused.extensions().get::<Refusal>().unwrap().retry_after(), Some(ms(4_200)));
    assert_eq!(seen_grpc(&answer(&mut service, grpc())), (Some("14"), Some("4200")));
    assert_eq!(handler.calls(), 0);
    drop(held);
    assert_eq!(answer(&mut service, get()).status(), 200);
}

/// A bulkhead of one, and a service whose body is what `response` gives.
fn with_body(
    response: Response<Given>,
) -> (
    Bulkhead,
    impl Service<Request<()>, Response = Response<steadfast::server::Body<Given>>, Error = std::convert::Infallible>,
) {
    let bulkhead = Bulkhead::new(1);
    let response = Arc::new(Mutex::new(Some(response)));
    let service = answers(move |_| std::future::ready(response.lock().unwrap().take().unwrap_or_else(hello)));
    (bulkhead.clone(), BulkheadLayer::new(bulkhead).layer(service))
}

#[test]
fn a_permit_is_held_to_the_last_frame_of_the_body() {
    let (sender, response) = stream();
    let (bulkhead, mut service) = with_body(response);
    let mut body = answer(&mut service, get()).into_body();
    sender.unbounded_send(data("a")).unwrap();
    assert_eq!(frame(&mut body).unwrap().unwrap().into_data().unwrap(), "a");
    assert_eq!(bulkhead.in_flight(), 1);
    assert_eq!(answer(&mut service, get()).status(), 503);
    drop(sender);
    assert!(frame(&mut body).is_none());
    assert_eq!(bulkhead.in_flight(), 0, "although the body is still held");
    assert!(frame(&mut body).is_none(), "nor does it matter that it is polled again");

    // A body that knows its end: with its last data.
    let (bulkhead, mut service) = with_body(hello());
    let mut body = answer(&mut service, get()).into_body();
    assert_eq!(bulkhead.in_flight(), 1);
    assert_eq!(frame(&mut body).unwrap().unwrap().into_data().unwrap(), "hello");
    assert_eq!((bulkhead.in_flight(), body.is_end_stream()), (0, true));
}

#[test]
fn a_permit_ends_with_trailers_errors_and_the_body_that_is_dropped() {
    let (sender, response) = stream();
    let (bulkhead, mut service) = with_body(response);
    let mut body = answer(&mut service, get()).into_body();
    sender.unbounded_send(Ok(Frame::trailers(HeaderMap::new()))).unwrap();
    assert!(frame(&mut body).unwrap().unwrap().is_trailers());
    assert_eq!(bulkhead.in_flight(), 0);

    let (sender, response) = stream();
    let (bulkhead, mut service) = with_body(response);
    let mut body = answer(&mut service, get()).into_body();
    sender.unbounded_send(Err("the disk is gone".into())).unwrap();
    assert_eq!(frame(&mut body).unwrap().unwrap_err().to_string(), "the disk is gone");
    assert_eq!(bulkhead.in_flight(), 0);

    let (_sender, response) = stream();
    let (bulkhead, mut service) = with_body(response);
    let response = answer(&mut service, get());
    assert_eq!(bulkhead.in_flight(), 1);
    drop(response);
    assert_eq!(bulkhead.in_flight(), 0);
}

#[test]
fn a_permit_ends_with_the_headers_if_there_is_no_body_to_come() {
    let empty = || Response::new(Empty::new().map_err(|never| match never {}).boxed());
    let (bulkhead, mut service) = with_body(empty());
    let _response = answer(&mut service, get());
    assert_eq!(bulkhead.in_flight(), 0);

    let (_sender, response) = stream();
    let (bulkhead, mut service) = with_body(response);
    let head = Request::builder().method(Method::HEAD).body(()).unwrap();
    let _response = answer(&mut service, head);
    assert_eq!(bulkhead.in_flight(), 0);

    let mut upgrade = empty();
    *upgrade.status_mut() = http::StatusCode::SWITCHING_PROTOCOLS;
    let (bulkhead, mut service) = with_body(upgrade);
    let _response = answer(&mut service, get());
    assert_eq!(bulkhead.in_flight(), 0);
}

#[test]
fn a_body_says_of_itself_what_the_one_inside_does() {
    let (_, mut service) = with_body(hello());
    let body = answer(&mut service, get()).into_body();
    assert_eq!(body.size_hint().exact(), Some(5));
    assert!(!body.is_end_stream());
    drop(body);
    let head = Request::builder().method(Method::HEAD).body(()).unwrap();
    assert_eq!(answer(&mut service, head).into_body().size_hint().exact(), Some(5), "for the content length");
}

#[test]
fn a_handler_that_panics_gives_its_permit_back() {
    let bulkhead = Bulkhead::new(1);
    let inner = answers(|_| async { std::panic::resume_unwind(Box::new("on purpose")) });
    let mut service = BulkheadLayer::new(bulkhead.clone()).layer(inner);
    let mut response = call(&mut service, get());
    assert_eq!(bulkhead.in_flight(), 1);
    assert!(catch_unwind(AssertUnwindSafe(|| drop(response.poll()))).is_err());
    drop(response);
    assert_eq!(bulkhead.in_flight(), 0);
}

#[test]
fn aborted_queue_entry_holds_slot() {
    let clock = clock();
    let bulkhead = Bulkhead::with(BulkheadConfig::new(1).queue(2));
    let handler = Handler::default();
    let mut service = bulkhead_layer(&clock, &bulkhead).layer(handler.clone());
    let a = answer(&mut service, get());
    let mut b = call(&mut service, get());
    let mut c = call(&mut service, get());
    assert!(b.poll().is_pending() && c.poll().is_pending());
    assert_eq!(seen(&answer(&mut service, get())), (503, Some("1")), "the queue is full");
    drop(b);
    let mut d = call(&mut service, get());
    assert!(d.poll().is_pending());
    drop(a);
    assert!(c.is_woken() && !d.is_woken());
    drop(now(&mut c));
    drop(now(&mut d));
    assert_eq!((handler.calls(), bulkhead.in_flight(), bulkhead.queued()), (3, 0, 0));
}

#[test]
fn a_request_that_waits_too_long_for_a_permit_is_refused() {
    let clock = clock();
    let bulkhead = Bulkhead::with(BulkheadConfig::new(1).queue(1).max_wait(secs(1)));
    let _held = bulkhead.try_acquire().unwrap();
    let handler = Handler::default();
    let mut service = bulkhead_layer(&clock, &bulkhead).layer(handler.clone());
    let mut waits = call(&mut service, get());
    assert!(waits.poll().is_pending());
    clock.advance(secs(1));
    assert_eq!(seen(&now(&mut waits)), (503, Some("1")));
    assert_eq!((handler.calls(), bulkhead.queued()), (0, 0));
}

#[test]
fn settings_that_cannot_work_are_found_by_check_and_answer_500() {
    let clock = clock();
    let limits = |n, capacity| Keyed::<RateLimiter>::with_capacity(RateLimiterConfig::per_second(n), capacity);
    let by_key = || Key::header(API_KEY);
    let layers = [
        (RateLimitLayer::new(limits(0, 10), by_key()), "per"),
        (RateLimitLayer::new(limits(1, 0), by_key()), "capacity"),
        (RateLimitLayer::new(limits(1, 10), by_key().ipv6_prefix(64)), "ipv6_prefix"),
    ];
    for (layer, field) in layers {
        let handler = Handler::default();
        let layer = layer.clock(&clock);
        let mut service = layer.layer(handler.clone());
        assert_eq!(layer.check().unwrap_err().field(), field);
        let refused = answer(&mut service, get());
        assert_eq!(seen(&refused), (500, None), "{field}");
        assert_eq!(refused.extensions().get::<Refusal>().unwrap().config().unwrap().field(), field);
        let refused = answer(&mut service, grpc());
        assert_eq!(seen_grpc(&refused), (Some("13"), None));
        assert_eq!(header(&refused, "grpc-message"), Some("misconfigured"), "no details for clients");
        assert_eq!(handler.calls(), 0);
    }
    let bound = limits(1, 10);
    assert!(RateLimitLayer::new(bound.clone(), by_key()).clock(&clock).check().is_ok());
    assert_eq!(RateLimitLayer::new(bound, by_key()).check().unwrap_err().field(), "clock");
}

#[test]
fn zero_permits_hang() {
    let clock = clock();
    for permits in [0, MAX_PERMITS + 1, usize::MAX] {
        let bulkhead = Bulkhead::with(BulkheadConfig::new(permits).queue(10));
        let layer = bulkhead_layer(&clock, &bulkhead);
        assert_eq!(layer.check().unwrap_err().field(), "permits");
        let handler = Handler::default();
        assert_eq!(seen(&answer(&mut layer.layer(handler.clone()), get())), (500, None));
        assert_eq!(handler.calls(), 0);
    }
}
