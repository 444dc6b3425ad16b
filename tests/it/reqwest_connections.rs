//! What becomes of connections: kept where that is cheap, and given up where not. And the rest of a response that has to stay
//! as it was. Real servers; time is the manual clock's.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Method, StatusCode};
use reqwest::Response;
use steadfast::breaker::{BreakerConfig, State, TripRule};
use steadfast::clock::Clock;
use steadfast::error::Kind;
use steadfast::policy::{Call, End, Next, Outcome, Policy, Settings};
use steadfast::reqwest::{Client, Error};
use steadfast::{Breaker, Context, Keyed, Retry};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::reqwest_body::Ends;
use crate::reqwest_server::{
    Http1, Http2, Reply, Server, Trickle, client, read_request, reply, reply_with, settle, trickle, trickling, until,
};
use crate::support::{ms, secs};

/// A 503 of so many bytes, whose length is announced or not.
fn busy(length: usize, announced: bool) -> Reply {
    if announced {
        return reply(503, vec![b'x'; length]);
    }
    let (trickle, mut busy) = trickle();
    *busy.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    trickle.send(vec![b'x'; length]);
    busy
}

#[tokio::test]
async fn discarded_response_leaks_connection() {
    // Up to 64 KiB are read to their end, and the connection is used again; more is broken off.
    for (length, announced, runs) in
        [(60 << 10, true, 100), (60 << 10, false, 100), (100 << 10, false, 1000), (100 << 10, true, 200)]
    {
        let clock = Clock::manual();
        let server =
            Server::quick(Http1, move |n| if n % 2 == 1 { busy(length, announced) } else { reply(200, "there") }).await;
        let http = client(Http1, &clock, Retry::fixed(secs(1)));
        for run in 1..=runs {
            let sent = tokio::spawn(http.get(server.url()).send());
            // The drain has a timer too, so this is after it.
            until(|| server.received() == 2 * run - 1 && clock.sleepers() == 1).await;
            clock.advance(secs(1));
            assert_eq!(sent.await.unwrap().unwrap().text().await.unwrap(), "there");
        }
        assert_eq!(server.received(), 2 * runs);
        assert!(server.most_open() <= 3, "{} sockets at once", server.most_open());
        if length < 64 << 10 {
            assert_eq!((server.accepted(), server.most_open()), (1, 1), "{length} bytes, announced: {announced}");
        }
    }
}

/// A server whose first answer is a 503 that never ends.
async fn endless(protocol: crate::reqwest_server::Protocol) -> (Server, Arc<Mutex<Vec<Trickle>>>) {
    let held = Arc::new(Mutex::new(Vec::new()));
    let server = Server::quick(protocol, {
        let held = Arc::clone(&held);
        move |n| {
            if n > 1 {
                return reply(200, "there");
            }
            let (trickle, mut busy) = trickle();
            *busy.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
            trickle.send("b");
            held.lock().unwrap().push(trickle);
            busy
        }
    })
    .await;
    (server, held)
}

#[tokio::test]
async fn draining_never_prolongs_a_wait_by_more_than_5_ms() {
    for (wait, until_next) in [(0, 5), (1, 5), (4, 5), (5, 5), (6, 6), (20, 20), (60, 60)] {
        let clock = Clock::manual();
        let (server, _held) = endless(Http1).await;
        let retry = if wait == 0 { Retry::immediate() } else { Retry::fixed(ms(wait)) };
        let sent = tokio::spawn(client(Http1, &clock, retry).get(server.url()).send());
        until(|| server.received() == 1 && clock.sleepers() == 2).await;
        clock.advance(ms(until_next) - Duration::from_nanos(1));
        settle().await;
        assert_eq!(server.received(), 1, "a wait of {wait} ms");
        clock.advance(Duration::from_nanos(1));
        assert_eq!(sent.await.unwrap().unwrap().text().await.unwrap(), "there", "a wait of {wait} ms");
    }
}

#[tokio::test]
async fn a_response_that_never_ends_is_drained_for_50_ms_at_most() {
    let clock = Clock::manual();
    let (server, held) = endless(Http1).await;
    let sent = tokio::spawn(client(Http1, &clock, Retry::fixed(secs(1))).get(server.url()).send());
    until(|| clock.sleepers() == 2).await;
    let given_up = || held.lock().unwrap()[0].is_given_up();
    clock.advance(ms(49));
    settle().await;
    assert!(!given_up());
    clock.advance(ms(1));
    until(given_up).await;
    assert_eq!(server.received(), 1, "the wait goes on");
    clock.advance(ms(950));
    assert_eq!(sent.await.unwrap().unwrap().text().await.unwrap(), "there");
}

#[tokio::test]
async fn over_http2_a_response_is_given_up_at_once() {
    let clock = Clock::manual();
    let (server, held) = endless(Http2).await;
    let response = client(Http2, &clock, Retry::immediate()).get(server.url()).send().await.unwrap();
    assert_eq!(response.text().await.unwrap(), "there");
    until(|| held.lock().unwrap()[0].is_given_up()).await;
    assert_eq!((server.accepted(), server.received()), (1, 2));
}

#[tokio::test]
async fn last_response_lost() {
    for protocol in [Http1, Http2] {
        let server = Server::quick(protocol, |n| reply(503, format!("busy {n}"))).await;
        let http = client(protocol, &Clock::manual(), Retry::immediate().max_attempts(3));
        let response = http.get(server.url()).send().await.unwrap();
        assert_eq!(response.status(), 503);
        assert_eq!(response.text().await.unwrap(), "busy 3");
        assert_eq!(server.received(), 3);

        // 429 is kept too, and a success in the end comes through.
        let server = Server::quick(protocol, |n| reply(if n < 6 { 429 } else { 200 }, format!("{n}"))).await;
        let last = http.get(server.url()).send().await.unwrap();
        assert_eq!((last.status().as_u16(), last.text().await.unwrap().as_str()), (429, "3"));
        let response = http.get(server.url()).send().await.unwrap();
        assert_eq!((response.status().as_u16(), response.text().await.unwrap().as_str()), (200, "6"));
    }
}

#[tokio::test]
async fn bodies_that_fail_late_open_a_breaker_and_cancelled_ones_do_not() {
    for protocol in [Http1, Http2] {
        let breaker = Breaker::new(BreakerConfig::default().rule(TripRule::consecutive(2)));
        let clock = Clock::manual();
        let held = Arc::new(Mutex::new(Vec::new()));
        let server = Server::quick(protocol, {
            let held = Arc::clone(&held);
            move |_| {
                let (trickle, answer) = trickle();
                trickle.send("begin");
                held.lock().unwrap().push(trickle);
                answer
            }
        })
        .await;
        let http = client(protocol, &clock, (Retry::immediate(), breaker.clone()));
        let begin = async || {
            let token = steadfast::CancellationToken::new();
            let cx = Context::new().with_token(token.clone());
            let mut response = http.get(server.url()).context(&cx).send().await.unwrap();
            assert_eq!(response.chunk().await.unwrap().unwrap(), "begin");
            (response, token, held.lock().unwrap().pop().unwrap())
        };
        for _ in 0..3 {
            let (mut response, token, _trickle) = begin().await;
            token.cancel();
            assert!(Error::from(response.chunk().await.unwrap_err()).is_cancelled());
            drop(begin().await);
        }
        assert_eq!((breaker.state(), breaker.counts().failures), (State::Closed, 0));
        // Both are under way: the success of headers that come in between would begin the count anew.
        let (mut one, _, first) = begin().await;
        let (mut two, _, second) = begin().await;
        first.fail();
        assert!(one.chunk().await.is_err());
        assert_eq!(breaker.state(), State::Closed);
        second.fail();
        assert!(two.chunk().await.is_err());
        assert_eq!(breaker.state(), State::Open, "{protocol:?}");
        let refused = http.get(server.url()).send().await.unwrap_err();
        assert!(refused.is_circuit_open() && refused.attempts() == 0);
    }
}

#[tokio::test]
async fn the_charset_of_a_text_is_kept() {
    for protocol in [Http1, Http2] {
        let server = Server::quick(protocol, |_| {
            let mut answer = reply(200, &b"caf\xe9"[..]);
            answer.headers_mut().insert("content-type", "text/plain; charset=iso-8859-1".parse().unwrap());
            answer
        })
        .await;
        let http = client(protocol, &Clock::manual(), ());
        assert_eq!(http.get(server.url()).send().await.unwrap().text().await.unwrap(), "café");
        assert_eq!(http.get(server.url()).buffered(9).send().await.unwrap().text().await.unwrap(), "café");
    }
}

#[tokio::test]
async fn a_connection_can_be_upgraded() {
    let server = Server::raw(|mut stream, _| async move {
        read_request(&mut stream).await;
        stream
            .write_all(b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n")
            .await
            .unwrap();
        let mut said = [0; 5];
        stream.read_exact(&mut said).await.unwrap();
        stream.write_all(&said).await.unwrap();
    })
    .await;
    let ends = Ends::default();
    let http = client(Http1, &Clock::manual(), ends.clone());
    let request = http.get(server.url()).header("connection", "upgrade").header("upgrade", "echo");
    let response = request.send().await.unwrap();
    assert_eq!(response.status(), StatusCode::SWITCHING_PROTOCOLS);
    assert_eq!(ends.take(), [End::Complete], "there is no body");
    let mut upgraded = response.upgrade().await.unwrap();
    upgraded.write_all(b"hello").await.unwrap();
    let mut heard = [0; 5];
    upgraded.read_exact(&mut heard).await.unwrap();
    assert_eq!(&heard, b"hello");
}

/// Remembers the keys of the calls that it sees.
#[derive(Clone, Default)]
struct Keys(Arc<Mutex<Vec<Option<String>>>>);

impl Settings for Keys {}

impl<T: Send, E: Send> Policy<T, E> for Keys {
    async fn run<N: Next<T, E>>(&self, call: Call<'_, E>, next: N) -> Outcome<T, E> {
        self.0.lock().unwrap().push(call.context().key().map(str::to_owned));
        next.call(call).await
    }
}

#[tokio::test]
async fn the_host_of_a_request_is_its_key_if_asked_for() {
    let server =
        Server::quick(Http1, |n| if n == 2 { reply_with(302, "location", "/there") } else { reply(200, "") }).await;
    let keys = Keys::default();
    let clock = Clock::manual();
    let http = client(Http1, &clock, keys.clone());
    http.get(server.url()).send().await.unwrap();
    let http = http.per_host();
    http.get(server.url()).send().await.unwrap();
    let cx = Context::new().with_clock(&clock).with_timeout(secs(10)).with_key("tenant 7");
    http.get(server.url()).context(&cx).send().await.unwrap();
    let url = server.url();
    http.execute(reqwest::Request::new(Method::GET, url.parse().unwrap())).await.unwrap();
    let host = Some(server.address().to_string());
    assert_eq!(*keys.0.lock().unwrap(), [None, host.clone(), Some("tenant 7".to_owned()), host]);
}

#[tokio::test]
async fn what_ends_a_call_early_ends_it_at_once() {
    for protocol in [Http1, Http2] {
        // Whichever is shorter: the caller's deadline, or the limit of the chain.
        for (deadline, limit, kind) in [(3, 5, Kind::DeadlineExceeded), (5, 3, Kind::TimedOut { limit: secs(3) })] {
            let clock = Clock::manual();
            let server = Server::start(protocol, |_| std::future::pending()).await;
            let http = client(protocol, &clock, steadfast::Timeout::secs(limit));
            let cx = Context::new().with_clock(&clock).with_timeout(secs(deadline));
            let sent = tokio::spawn(http.get(server.url()).context(&cx).send());
            until(|| server.received() == 1 && clock.sleepers() > 0).await;
            clock.advance(secs(3));
            assert_eq!(sent.await.unwrap().unwrap_err().kind(), kind, "{protocol:?}");
        }
    }
}

/// Responses fit whatever takes one.
#[tokio::test]
async fn a_response_is_as_good_as_one_of_reqwest() {
    async fn status_and_text(response: Response) -> Result<String, reqwest::Error> {
        response.error_for_status()?.text().await
    }
    let server = Server::quick(Http1, |n| if n == 1 { reply(404, "no") } else { reply(200, "there") }).await;
    let http: Client = client(Http1, &Clock::manual(), ());
    let error = status_and_text(http.get(server.url()).send().await.unwrap()).await.unwrap_err();
    assert_eq!((error.status().unwrap().as_u16(), error.url().unwrap().as_str()), (404, server.url().as_str()));
    assert_eq!(status_and_text(http.get(server.url()).send().await.unwrap()).await.unwrap(), "there");
}

#[tokio::test]
async fn one_host_that_fails_does_not_close_the_door_to_another() {
    for protocol in [Http1, Http2] {
        let clock = Clock::manual();
        let broken = Server::quick(protocol, |_| reply(503, "")).await;
        let well = Server::quick(protocol, |_| reply(200, "there")).await;
        let breakers = Keyed::<Breaker>::new(BreakerConfig::default().rule(TripRule::consecutive(3)));
        let policies = (Retry::immediate().max_attempts(3), breakers.clone());
        let http = client(protocol, &clock, policies).per_host();
        assert_eq!(http.get(broken.url()).send().await.unwrap().status(), 503);
        let refused = http.get(broken.url()).send().await.unwrap_err();
        assert!(refused.is_circuit_open(), "{protocol:?}");
        assert_eq!((broken.received(), refused.attempts()), (3, 0));
        for _ in 0..5 {
            assert_eq!(http.get(well.url()).send().await.unwrap().text().await.unwrap(), "there");
        }
        let state = |server: &Server| breakers.peek(&server.address().to_string()).unwrap().state();
        assert_eq!((state(&broken), state(&well), breakers.len()), (State::Open, State::Closed, 2));
    }
}

#[tokio::test]
async fn a_body_that_fails_late_counts_for_its_host() {
    let (server, body) = trickling(Http2, &[]).await;
    let breakers = Keyed::<Breaker>::new(BreakerConfig::default().rule(TripRule::consecutive(1)));
    let http = client(Http2, &Clock::manual(), breakers.clone()).per_host();
    let mut response = http.get(server.url()).send().await.unwrap();
    body.send("half");
    response.chunk().await.unwrap();
    body.fail();
    assert!(response.chunk().await.is_err());
    let host = server.address().to_string();
    assert_eq!(breakers.peek(&host).unwrap().state(), State::Open);
    assert!(http.get(server.url()).send().await.unwrap_err().is_circuit_open());
}

#[tokio::test]
async fn a_breaker_pauses_all_calls_to_a_host_for_as_long_as_it_asks() {
    let clock = Clock::manual();
    let server =
        Server::quick(Http1, |n| if n == 1 { reply_with(429, "retry-after", "7") } else { reply(200, "there") }).await;
    let breaker = Breaker::new(BreakerConfig::default().pause_on_retry_after(secs(60)));
    let http = client(Http1, &clock, breaker.clone());
    assert_eq!(http.get(server.url()).send().await.unwrap().status(), 429);
    let refused = http.get(server.url()).send().await.unwrap_err();
    assert_eq!(refused.kind(), Kind::RateLimited { retry_after: Some(secs(7)) });
    clock.advance(secs(7));
    assert_eq!(http.get(server.url()).send().await.unwrap().status(), 200);
    assert_eq!((server.received(), breaker.state()), (2, State::Closed));
}

#[tokio::test]
async fn a_breaker_does_not_pause_unless_it_is_told_to() {
    let clock = Clock::manual();
    let server = Server::quick(Http1, |_| reply_with(429, "retry-after", "7")).await;
    let http = client(Http1, &clock, Breaker::default());
    for _ in 0..3 {
        assert_eq!(http.get(server.url()).send().await.unwrap().status(), 429);
    }
    assert_eq!(server.received(), 3);
}

/// A hundred calls a second, for ten seconds, to an origin that is dead and says when to come back.
#[tokio::test]
async fn a_dead_origin_that_asks_for_a_pause_gets_one() {
    let clock = Clock::manual();
    let server = Server::quick(Http1, |_| reply_with(503, "retry-after", "5")).await;
    let breaker = Breaker::new(BreakerConfig::default().pause_on_retry_after(secs(30)));
    let http = client(Http1, &clock, breaker.clone());
    for _ in 0..1_000 {
        let _refused_or_503 = http.get(server.url()).send().await;
        clock.advance(ms(10));
    }
    assert_eq!((server.received(), breaker.state()), (2, State::Closed));
    assert_eq!(breaker.counts().rejected, 998);
}
