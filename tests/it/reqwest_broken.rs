//! What breaks in the middle: connections in flight, answers that are cut off, uploads, and the limits of
//! reqwest itself. Real servers, over both protocols.

use std::future::pending;
use std::io;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures::StreamExt;
use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use http::Method;
use reqwest::{Body, Response};
use steadfast::breaker::{Breaker, BreakerConfig, State, TripRule};
use steadfast::clock::Clock;
use steadfast::error::{Kind, Limit};
use steadfast::reqwest::{BodyError, BodyTimeout, Client, Error};
use steadfast::{Classified, Executor, Retry, Verdict};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::reqwest_server::{
    Http1, Http2, Protocol, Server, client, read_head, read_request, reply, settle, trickle, trickling, until,
};
use crate::support::{exhausted, secs, timed_out};

const PROTOCOLS: [Protocol; 2] = [Http1, Http2];

fn three_times(protocol: Protocol) -> Client {
    client(protocol, &Clock::manual(), Retry::immediate().max_attempts(3))
}

fn shown(error: impl std::error::Error + Send + Sync + 'static) -> String {
    format!("{:#}", anyhow::Error::from(error)).to_lowercase()
}

/// A server whose connections end without a word once a request is there, but for the last one, which answers.
async fn closing_in_flight(protocol: Protocol, closed: usize) -> Server {
    Server::raw(move |mut stream, connection| async move {
        match protocol {
            Http1 => {
                read_request(&mut stream).await;
                if connection > closed {
                    let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nthere").await;
                }
            }
            Http2 => {
                let mut connected = h2::server::handshake(stream).await.unwrap();
                while let Some(Ok((_, mut respond))) = connected.accept().await {
                    if connection <= closed {
                        return;
                    }
                    let mut body = respond.send_response(http::Response::new(()), false).unwrap();
                    body.send_data(Bytes::from_static(b"there"), true).unwrap();
                }
            }
        }
    })
    .await
}

#[tokio::test]
async fn a_connection_that_is_closed_in_flight() {
    for protocol in PROTOCOLS {
        for (method, key, tries) in
            [(Method::GET, false, 3), (Method::PUT, false, 3), (Method::POST, false, 1), (Method::POST, true, 3)]
        {
            let server = closing_in_flight(protocol, 2).await;
            let request = three_times(protocol).request(method.clone(), server.url()).body("7");
            let request = if key { request.header("Idempotency-Key", "7e57") } else { request };
            let case = format!("{protocol:?} {method}, key: {key}");
            match request.send().await {
                Ok(response) => assert_eq!((response.text().await.unwrap().as_str(), tries), ("there", 3), "{case}"),
                Err(error) => {
                    assert_eq!((error.kind(), error.attempts(), tries), (Kind::Failed, 1, 1), "{case}: {error:?}");
                    assert_eq!(error.last().unwrap().verdict(), Verdict::Transient, "{case}");
                }
            }
            assert_eq!(server.accepted(), tries, "{case}");
        }
    }
}

/// A server that says only so much of its head, and closes the connection.
async fn half_a_head(protocol: Protocol) -> Server {
    Server::raw(move |mut stream, _| async move {
        match protocol {
            Http1 => {
                read_request(&mut stream).await;
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-le").await;
            }
            Http2 => {
                // Its preface, and the first bytes of a frame of headers for the first stream.
                let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
                let headers = [0, 0, 9, 1, 4, 0, 0, 0, 1, 0x88];
                until_request_is_there(&mut stream).await;
                let _ = stream.write_all(&settings).await;
                let _ = stream.write_all(&headers).await;
            }
        }
    })
    .await
}

/// Takes the preface of HTTP/2, and what follows it at once.
async fn until_request_is_there(stream: &mut TcpStream) {
    let (mut read, mut seen) = (0, [0; 1024]);
    while read < 100 {
        read += stream.read(&mut seen).await.unwrap();
    }
}

#[tokio::test]
async fn a_head_that_is_cut_off() {
    for protocol in PROTOCOLS {
        for (method, tries) in [(Method::GET, 3), (Method::POST, 1)] {
            let server = half_a_head(protocol).await;
            let breaker = Breaker::default();
            let policies = (Retry::immediate().max_attempts(3), breaker.clone());
            let http = client(protocol, &Clock::manual(), policies);
            let error = http.request(method.clone(), server.url()).body("7").send().await.unwrap_err();
            let case = format!("{protocol:?} {method}: {error:?}");
            let kind = if tries > 1 { exhausted(Limit::Attempts) } else { Kind::Failed };
            assert_eq!((error.kind(), error.attempts() as usize), (kind, tries), "{case}");
            assert_eq!((server.accepted(), breaker.counts().failures as usize), (tries, tries), "{case}");
        }
    }
}

/// Announces ten bytes, and sends five of them with its first `cut` answers.
async fn truncating(protocol: Protocol, cut: usize) -> Server {
    let requests = Arc::new(Mutex::new(0));
    Server::raw(move |mut stream, _| {
        let requests = Arc::clone(&requests);
        let next = move || {
            let mut requests = requests.lock().unwrap();
            *requests += 1;
            if *requests <= cut { &b"12345"[..] } else { b"1234567890" }
        };
        async move {
            match protocol {
                Http1 => {
                    read_request(&mut stream).await;
                    let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n").await;
                    let _ = stream.write_all(next()).await;
                }
                Http2 => {
                    let mut connected = h2::server::handshake(stream).await.unwrap();
                    while let Some(Ok((_, mut respond))) = connected.accept().await {
                        let head = http::Response::builder().header("content-length", "10").body(()).unwrap();
                        let mut body = respond.send_response(head, false).unwrap();
                        body.send_data(Bytes::from_static(next()), true).unwrap();
                    }
                }
            }
        }
    })
    .await
}

#[tokio::test]
async fn an_answer_that_is_truncated() {
    for protocol in PROTOCOLS {
        let server = truncating(protocol, usize::MAX).await;
        let breaker = Breaker::new(BreakerConfig::default().rule(TripRule::consecutive(1)));
        let http = client(protocol, &Clock::manual(), (Retry::immediate().max_attempts(3), breaker.clone()));
        let response = http.get(server.url()).send().await.unwrap();
        assert_eq!(breaker.state(), State::Closed);
        let error = Error::from(response.bytes().await.unwrap_err());
        assert_eq!((error.kind(), error.verdict()), (Kind::Failed, Verdict::Transient), "{protocol:?}: {error:?}");
        assert_eq!(breaker.state(), State::Open, "{protocol:?}: a late failure");

        // Read within the attempt it is asked for again, unless that is not safe.
        let server = truncating(protocol, 2).await;
        let response = three_times(protocol).get(server.url()).buffered(100).send().await.unwrap();
        assert_eq!(response.text().await.unwrap(), "1234567890", "{protocol:?}");
        let server = truncating(protocol, 2).await;
        let error = three_times(protocol).post(server.url()).buffered(100).send().await.unwrap_err();
        assert_eq!((error.kind(), error.attempts()), (Kind::Failed, 1), "{protocol:?}");
    }
}

const MIB: usize = 1 << 20;

/// Reads so many bytes of the first body and resets it then, and reads all of the others. Says how many bytes each had.
async fn resetting_an_upload(protocol: Protocol, most: usize) -> (Server, UnboundedReceiver<Vec<u8>>) {
    let (bodies, seen) = unbounded();
    let server = Server::raw(move |stream, connection| {
        let bodies = bodies.clone();
        async move {
            match protocol {
                Http1 => upload_over_http1(stream, connection, most, bodies).await,
                Http2 => upload_over_http2(stream, most, bodies).await,
            }
        }
    })
    .await;
    (server, seen)
}

async fn upload_over_http1(mut stream: TcpStream, connection: usize, most: usize, bodies: UnboundedSender<Vec<u8>>) {
    let head = read_head(&mut stream).await;
    let wanted = if connection == 1 { most } else { MIB };
    assert!(connection == 1 || head.contains("content-length: 1048576\r\n"), "{head}");
    let mut body = vec![0; wanted];
    stream.read_exact(&mut body).await.unwrap();
    bodies.unbounded_send(body).unwrap();
    // With data left unread a closed socket is a reset one.
    if connection > 1 {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
    }
}

async fn upload_over_http2(stream: TcpStream, most: usize, bodies: UnboundedSender<Vec<u8>>) {
    let mut connected = h2::server::handshake(stream).await.unwrap();
    let mut requests = 0;
    while let Some(Ok((request, mut respond))) = connected.accept().await {
        requests += 1;
        let (first, bodies) = (requests == 1, bodies.clone());
        tokio::spawn(async move {
            assert!(first || request.headers()["content-length"] == "1048576");
            let (mut body, mut read) = (request.into_body(), Vec::new());
            while read.len() < if first { most } else { usize::MAX }
                && let Some(Ok(data)) = body.data().await
            {
                let _ = body.flow_control().release_capacity(data.len());
                read.extend(data);
            }
            bodies.unbounded_send(read).unwrap();
            match first {
                true => respond.send_reset(h2::Reason::INTERNAL_ERROR),
                false => drop(respond.send_response(http::Response::new(()), true)),
            }
        });
    }
}

#[tokio::test]
async fn retry_sends_truncated_body() {
    let whole: Vec<u8> = (0..=u8::MAX).cycle().take(MIB).collect();
    for protocol in PROTOCOLS {
        let (server, mut bodies) = resetting_an_upload(protocol, 300 << 10).await;
        let response = three_times(protocol).put(server.url()).body(whole.clone()).send().await.unwrap();
        assert_eq!(response.status(), 200, "{protocol:?}");
        assert!(bodies.next().await.unwrap().len() >= 300 << 10);
        assert!(bodies.next().await.unwrap() == whole, "{protocol:?}: all of it, from its beginning");

        // From a reader: there is no second request.
        let (server, mut bodies) = resetting_an_upload(protocol, 300 << 10).await;
        let chunks: Vec<_> = whole.chunks(64 << 10).map(|chunk| Ok::<_, io::Error>(chunk.to_vec())).collect();
        let body = Body::wrap_stream(futures::stream::iter(chunks));
        let error = three_times(protocol).put(server.url()).body(body).send().await.unwrap_err();
        assert_eq!(error.attempts(), 1, "{protocol:?}: {error:?}");
        bodies.next().await.unwrap();
        settle().await;
        assert!(bodies.try_recv().is_err(), "{protocol:?}: nothing else is sent");
    }
}

/// A response whose body has begun and does not go on, by a client with limits of its own. From then on the clock of tokio is
/// paused: it moves on to the next limit when only sockets are waited for.
async fn stalled(protocol: Protocol, settings: ::reqwest::ClientBuilder, breaker: &Breaker) -> (Server, Response) {
    let (server, body) = trickling(protocol, &[]).await;
    let settings = settings.no_proxy();
    let settings = if protocol == Http2 { settings.http2_prior_knowledge() } else { settings };
    let api = Executor::builder("api").policies((Retry::immediate(), breaker.clone())).build().unwrap();
    // It has no limit here: what ends the body is one of reqwest's.
    let limits = BodyTimeout::new().idle(std::time::Duration::MAX);
    let http = Client::build(settings, api).unwrap().body_timeout(limits);
    let mut response = http.get(server.url()).send().await.unwrap();
    body.send("half");
    assert_eq!(response.chunk().await.unwrap().unwrap(), "half");
    // Nobody sends the rest, or its end.
    tokio::spawn(async move {
        let _held = body;
        pending::<()>().await;
    });
    tokio::time::pause();
    (server, response)
}

#[tokio::test]
async fn the_timeout_of_reqwest_itself_ends_a_body() {
    for protocol in PROTOCOLS {
        for settings in
            [::reqwest::Client::builder().timeout(secs(60)), ::reqwest::Client::builder().read_timeout(secs(60))]
        {
            let breaker = Breaker::new(BreakerConfig::default().rule(TripRule::consecutive(1)));
            let (server, response) = stalled(protocol, settings, &breaker).await;
            let error = Error::from(response.bytes().await.unwrap_err());
            assert_eq!((error.kind(), error.verdict()), (Kind::Failed, Verdict::Transient), "{protocol:?}: {error:?}");
            assert!(error.last().unwrap().is_timeout(), "{protocol:?}: {error:?}");
            assert!(shown(error).ends_with("operation timed out"));
            assert_eq!((server.received(), breaker.state()), (1, State::Open), "{protocol:?}");
            tokio::time::resume();
        }
    }
}

#[tokio::test]
async fn the_error_of_a_buffered_body_knows_its_attempts() {
    for protocol in PROTOCOLS {
        let clock = Clock::manual();
        let server = Server::quick(protocol, |n| if n < 3 { reply(503, "") } else { reply(200, "123456") }).await;
        let http = client(protocol, &clock, Retry::immediate().max_attempts(3));
        let error = http.get(server.url()).buffered(5).send().await.unwrap_err();
        assert_eq!((error.kind(), error.attempts()), (Kind::Failed, 3), "{protocol:?}");
        // The error of reqwest alone has no run any more, but the guard has been in it.
        let last = error.into_last().unwrap();
        let guard = std::iter::successors(Some(&last as &dyn std::error::Error), |error| error.source());
        assert_eq!(guard.filter(|cause| cause.is::<BodyError>()).count(), 1);
        let restored = Error::from(last);
        assert_eq!((restored.kind(), restored.attempts()), (Kind::Failed, 3), "{protocol:?}");
    }
}

#[tokio::test]
async fn a_buffered_body_that_stalls_twice_says_so_with_both_attempts() {
    for protocol in PROTOCOLS {
        let clock = Clock::manual();
        let held = Arc::new(Mutex::new(Vec::new()));
        let server = Server::quick(protocol, {
            let held = Arc::clone(&held);
            move |_| {
                let (body, answer) = trickle();
                held.lock().unwrap().push(body);
                answer
            }
        })
        .await;
        let http = client(protocol, &clock, Retry::immediate().max_attempts(2));
        let limits = BodyTimeout::new().idle(secs(7));
        let sent = tokio::spawn(http.get(server.url()).body_timeout(limits).buffered(100).send());
        for n in 1..=2 {
            until(|| server.received() == n && clock.sleepers() > 0).await;
            clock.advance(secs(7));
        }
        let error = sent.await.unwrap().unwrap_err();
        assert_eq!((error.kind(), error.attempts()), (timed_out(secs(7)), 2), "{protocol:?}: {error:?}");
        let restored = Error::from(error.into_last().unwrap());
        assert_eq!((restored.kind(), restored.attempts()), (timed_out(secs(7)), 2), "{protocol:?}");
    }
}
