//! Requests through bulkheads, rate limiters, breakers and hedges, whose calls end only with their bodies. Real servers; time is
//! the manual clock's.

use std::sync::{Arc, Mutex};

use http::Method;
use reqwest::Response;
use steadfast::breaker::{Breaker, BreakerConfig, TripRule};
use steadfast::clock::{Clock, ManualClock};
use steadfast::error::{Full, Kind};
use steadfast::limit::{BulkheadConfig, RateLimiterConfig};
use steadfast::reqwest::{BodyTimeout, Error, ResponseExt};
use steadfast::{Bulkhead, CancellationToken, Context, Hedge, Keyed, RateLimiter, Retry, Timeout, fallback};

use crate::reqwest_server::{
    Http1, Http2, Protocol, Server, Trickle, client, reply, settle, settle_briefly, trickle, until,
};
use crate::support::{ms, secs};

/// A server whose bodies the test sends, and the sending end of each.
async fn many_trickling(protocol: Protocol) -> (Server, Arc<Mutex<Vec<Trickle>>>) {
    let bodies = Arc::new(Mutex::new(Vec::new()));
    let server = Server::quick(protocol, {
        let bodies = Arc::clone(&bodies);
        move |_| {
            let (trickle, answer) = trickle();
            trickle.send("begin");
            bodies.lock().unwrap().push(trickle);
            answer
        }
    })
    .await;
    (server, bodies)
}

/// The ways in which a body ends.
#[derive(Clone, Copy, Debug)]
enum BodyEnd {
    Read,
    Dropped,
    Cancelled,
    Broken,
    Stalled,
}

impl BodyEnd {
    /// Brings it about, and gives what the reader then sees, if that is an error.
    async fn reach(
        self,
        held: &mut Option<Response>,
        body: Trickle,
        token: &CancellationToken,
        clock: &ManualClock,
    ) -> Option<reqwest::Error> {
        match self {
            BodyEnd::Read => drop(body),
            BodyEnd::Dropped => *held = None,
            BodyEnd::Cancelled => token.cancel(),
            BodyEnd::Broken => body.fail(),
            BodyEnd::Stalled => {
                let mut reading = tokio_test::task::spawn(held.as_mut()?.chunk());
                assert!(reading.poll().is_pending());
                clock.advance(secs(10));
            }
        }
        held.as_mut()?.chunk().await.err()
    }
}

#[tokio::test]
async fn a_bulkhead_is_full_while_a_body_is_read_and_free_after_any_end() {
    for protocol in [Http1, Http2] {
        let (clock, places) = (Clock::manual(), Bulkhead::new(1));
        let (server, bodies) = many_trickling(protocol).await;
        let http = client(protocol, &clock, (Retry::immediate().max_attempts(3), places.clone(), Timeout::secs(5)))
            .body_timeout(BodyTimeout::new().idle(secs(10)));
        for end in [BodyEnd::Read, BodyEnd::Dropped, BodyEnd::Cancelled, BodyEnd::Broken, BodyEnd::Stalled] {
            let token = CancellationToken::new();
            let cx = Context::new().with_clock(&clock).with_token(token.clone());
            let mut response = http.get(server.url()).context(&cx).send().await.unwrap();
            assert_eq!(response.chunk().await.unwrap().unwrap(), "begin");
            let sent = server.received();

            let refused = http.get(server.url()).send().await.unwrap_err();
            assert_eq!((refused.kind(), refused.attempts()), (Kind::BulkheadFull { why: Full::Queue }, 0));
            settle().await;
            assert_eq!(server.received(), sent, "{protocol:?}: a full bulkhead sends nothing");

            let body = bodies.lock().unwrap().pop().unwrap();
            let mut held = Some(response);
            let failed = end.reach(&mut held, body, &token, &clock).await;
            let fails = matches!(end, BodyEnd::Cancelled | BodyEnd::Broken | BodyEnd::Stalled);
            assert_eq!(failed.is_some(), fails, "{protocol:?}, {end:?}");
            // The response is still held, unless dropping it was the end.
            assert_eq!((places.in_flight(), clock.sleepers()), (0, 0), "{protocol:?}, {end:?}");
        }
        assert_eq!(server.received(), 5, "{protocol:?}");
    }
}

#[tokio::test]
async fn who_waits_for_a_place_gets_it_when_the_body_before_has_ended() {
    for protocol in [Http1, Http2] {
        let clock = Clock::manual();
        let places = Bulkhead::with(BulkheadConfig::new(1).queue(1).max_wait(secs(60)));
        let (server, bodies) = many_trickling(protocol).await;
        let http = client(protocol, &clock, places.clone());
        let first = http.get(server.url()).send().await.unwrap();
        let second = tokio::spawn(http.get(server.url()).send());
        until(|| places.queued() == 1).await;
        settle().await;
        assert_eq!((server.received(), places.in_flight()), (1, 1), "{protocol:?}");
        bodies.lock().unwrap().clear();
        assert_eq!(first.text().await.unwrap(), "begin");
        let second = second.await.unwrap().unwrap();
        assert_eq!((server.received(), places.in_flight()), (2, 1), "{protocol:?}");
        drop(second);
        assert_eq!(places.in_flight(), 0, "{protocol:?}");
    }
}

#[tokio::test]
async fn nothing_that_has_no_body_to_read_keeps_its_place() {
    for protocol in [Http1, Http2] {
        let places = Bulkhead::new(1);
        let server = Server::quick(protocol, |n| reply(if n % 2 == 0 { 404 } else { 200 }, "there")).await;
        let http = client(protocol, &Clock::manual(), places.clone());
        let mut held = vec![http.request(Method::HEAD, server.url()).send().await.unwrap()];
        held.push(http.get(server.url()).buffered(9).send().await.unwrap());
        assert!(http.get("http://").send().await.is_err());
        assert_eq!(places.in_flight(), 0, "{protocol:?}: {held:?}");
        let failure: Response = http.get(server.url()).send().await.unwrap();
        assert_eq!(places.in_flight(), 1, "{protocol:?}");
        assert_eq!(failure.error_for_status().map(drop).ok(), Some(()));
        let failure = http.get(server.url()).send().await.unwrap();
        assert!(failure.error_for_status().is_err(), "which drops the body");
        assert_eq!(places.in_flight(), 0, "{protocol:?}");
    }
}

#[tokio::test]
async fn an_open_breaker_in_a_retry_sends_nothing() {
    for protocol in [Http1, Http2] {
        let clock = Clock::manual();
        let breaker = Breaker::new(BreakerConfig::default().rule(TripRule::consecutive(1)).open_for(secs(600)));
        let server = Server::quick(protocol, |_| reply(503, "")).await;
        let retry = Retry::fixed(secs(1)).max_attempts(3);
        let http = client(protocol, &clock, (retry, breaker));
        let sent = tokio::spawn(http.get(server.url()).send());
        let refused = end_of(sent, &clock).await.unwrap_err();
        assert!(refused.is_circuit_open(), "{refused:?}");
        assert_eq!((refused.attempts(), server.received()), (1, 1), "{protocol:?}: the second attempt is refused");
        let refused = end_of(tokio::spawn(http.get(server.url()).send()), &clock).await.unwrap_err();
        assert!(refused.is_circuit_open(), "{refused:?}");
        assert_eq!((refused.attempts(), server.received()), (0, 1), "{protocol:?}");
    }
}

#[tokio::test]
async fn a_fallback_response_replaces_a_429_and_is_guarded_like_any_other() {
    for protocol in [Http1, Http2] {
        let (clock, places) = (Clock::manual(), Bulkhead::new(1));
        let server = Server::quick(protocol, |n| reply(if n == 1 { 404 } else { 429 }, "refused")).await;
        let stale = fallback(|error: &Error| {
            let body = format!("stale, since it {error}");
            async move { Ok(Response::from(http::Response::new(body))) }
        });
        let policies = (stale, Retry::immediate().max_attempts(3), places.clone());
        let http = client(protocol, &clock, policies);
        assert_eq!(http.get(server.url()).send().await.unwrap().status(), 404, "{protocol:?}: it is an answer");

        let token = CancellationToken::new();
        let cx = Context::new().with_clock(&clock).with_token(token.clone());
        let response = http.get(server.url()).context(&cx).send().await.unwrap();
        assert_eq!((response.status().as_u16(), server.received()), (200, 4), "{protocol:?}");
        assert_eq!(places.in_flight(), 0, "{protocol:?}: nobody reads the 429");
        assert!(response.cancellation().is_some());
        let text = response.text().await.unwrap();
        assert_eq!(text, "stale, since it billing: gave up: no attempts left (after 3 attempts)");

        token.cancel();
        let error = http.get(server.url()).context(&cx).send().await.unwrap_err();
        assert!(error.is_cancelled(), "{protocol:?}: {error:?}");
    }
}

/// What a request ends with, while time passes.
async fn end_of(
    sent: tokio::task::JoinHandle<Result<Response, Error>>,
    clock: &ManualClock,
) -> Result<Response, Error> {
    while !sent.is_finished() {
        settle_briefly().await;
        if clock.sleepers() > 0 {
            clock.advance(ms(100));
        }
    }
    sent.await.unwrap()
}

#[tokio::test]
async fn one_host_over_its_rate_does_not_hold_back_another() {
    for protocol in [Http1, Http2] {
        let clock = Clock::manual();
        let busy = Server::quick(protocol, |_| reply(200, "there")).await;
        let quiet = Server::quick(protocol, |_| reply(200, "there")).await;
        let rates = Keyed::<RateLimiter>::new(RateLimiterConfig::per_second(1).burst(2));
        let http = client(protocol, &clock, rates.clone()).per_host();
        let get =
            async |server: &Server| http.get(server.url()).send().await.map(|response| response.status().as_u16());

        assert_eq!((get(&busy).await.unwrap(), get(&busy).await.unwrap()), (200, 200));
        let refused = get(&busy).await.unwrap_err();
        assert_eq!(refused.kind(), Kind::RateLimited { retry_after: Some(secs(1)) }, "{protocol:?}");
        assert_eq!((refused.attempts(), busy.received()), (0, 2), "{protocol:?}");
        assert_eq!((get(&quiet).await.unwrap(), get(&quiet).await.unwrap()), (200, 200));
        clock.advance(secs(1));
        assert_eq!(get(&busy).await.unwrap(), 200);
        assert_eq!((busy.received(), quiet.received(), rates.len()), (3, 2, 2), "{protocol:?}");
    }
}

#[tokio::test]
async fn while_one_host_is_waited_for_another_is_asked() {
    for protocol in [Http1, Http2] {
        let clock = Clock::manual();
        let busy = Server::quick(protocol, |_| reply(200, "there")).await;
        let quiet = Server::quick(protocol, |_| reply(200, "there")).await;
        let rate = RateLimiterConfig::per_second(1).burst(1).max_wait(secs(5));
        let http = client(protocol, &clock, Keyed::<RateLimiter>::new(rate)).per_host();
        http.get(busy.url()).send().await.unwrap();
        let waits = tokio::spawn(http.get(busy.url()).send());
        until(|| clock.sleepers() > 0).await;
        assert_eq!(http.get(quiet.url()).send().await.unwrap().status(), 200);
        settle().await;
        assert_eq!((busy.received(), quiet.received()), (1, 1), "{protocol:?}");
        clock.advance(secs(1));
        assert_eq!(waits.await.unwrap().unwrap().status(), 200);
        assert_eq!(busy.received(), 2, "{protocol:?}");
    }
}

/// Each lane is admitted by itself, so that a bulkhead of one place makes do with the first.
#[tokio::test]
async fn a_hedge_that_finds_no_place_leaves_the_first_request_alone() {
    for protocol in [Http1, Http2] {
        let (clock, places) = (Clock::manual(), Bulkhead::new(1));
        let go = Arc::new(tokio::sync::Semaphore::new(0));
        let server = Server::start(protocol, {
            let go = Arc::clone(&go);
            move |_| {
                let go = Arc::clone(&go);
                async move { go.acquire().await.map(|_| reply(200, "there")).unwrap() }
            }
        })
        .await;
        let http = client(protocol, &clock, (Hedge::after(secs(1)), places.clone()));
        let sent = tokio::spawn(http.get(server.url()).send());
        until(|| server.received() == 1 && clock.sleepers() > 0).await;
        clock.advance(secs(1));
        settle().await;
        assert_eq!((server.received(), places.in_flight()), (1, 1), "{protocol:?}");
        go.add_permits(1);
        let response = sent.await.unwrap().unwrap();
        assert_eq!(places.in_flight(), 1, "{protocol:?}: to the end of the body");
        assert_eq!(response.text().await.unwrap(), "there");
        assert_eq!((places.in_flight(), server.received()), (0, 1), "{protocol:?}");
    }
}
