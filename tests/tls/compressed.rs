//! Bodies that reqwest decompresses, or could. With that feature there is another body around those of all responses, which says
//! less of its end. Real servers over both protocols; time is the manual clock's.

#[allow(dead_code, reason = "the other tests need more of it")]
#[path = "../it/reqwest_server.rs"]
mod reqwest_server;

use http::{HeaderValue, Method, StatusCode};
use reqwest_server::{Http1, Http2, Protocol, Reply, Server, reply, settle, trickling};
use steadfast::breaker::{Breaker, BreakerConfig, State, TripRule};
use steadfast::clock::{Clock, ManualClock};
use steadfast::error::Kind;
use steadfast::reqwest::{Client, Error};
use steadfast::{Bulkhead, Classified, Retry, Verdict};

fn compressed(body: &'static [u8]) -> Reply {
    let mut answer = reply(200, body);
    answer.headers_mut().insert("content-encoding", HeaderValue::from_static("gzip"));
    answer
}

/// `hello`, as gzip has it.
const HELLO: &[u8] = &[
    0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff, 1, 5, 0, 0xfa, 0xff, b'h', b'e', b'l', b'l', b'o', 0x86, 0xa6, 0x10, 0x36,
    5, 0, 0, 0,
];

fn client<P>(protocol: Protocol, clock: &ManualClock, policies: P) -> Client
where
    P: steadfast::Policy<reqwest::Response, reqwest::Error> + 'static,
{
    // Every client wants one here, and nobody asks it. Whichever test comes first.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest_server::client(protocol, clock, policies)
}

fn by_one_failure() -> Breaker {
    Breaker::new(BreakerConfig::default().rule(TripRule::consecutive(1)))
}

#[tokio::test]
async fn a_compressed_body_is_read_as_what_it_was() {
    for protocol in [Http1, Http2] {
        let server = Server::quick(protocol, |_| compressed(HELLO)).await;
        let places = Bulkhead::new(1);
        let http = client(protocol, &Clock::manual(), places.clone());
        let response = http.get(server.url()).send().await.unwrap();
        assert_eq!(places.in_flight(), 1, "{protocol:?}");
        assert_eq!(response.text().await.unwrap(), "hello", "{protocol:?}");
        assert_eq!(places.in_flight(), 0, "{protocol:?}");
        let response = http.get(server.url()).buffered(100).send().await.unwrap();
        assert_eq!((response.text().await.unwrap().as_str(), places.in_flight()), ("hello", 0), "{protocol:?}");
        // The limit is on what is kept.
        let error = http.get(server.url()).buffered(4).send().await.unwrap_err();
        assert!(format!("{:#}", anyhow::Error::from(error)).contains("larger than 4 bytes"));
    }
}

#[tokio::test]
async fn a_body_that_cannot_be_decompressed_is_permanent_and_no_failure_of_the_server() {
    for protocol in [Http1, Http2] {
        let server = Server::quick(protocol, |_| compressed(b"this is not gzip")).await;
        let breaker = by_one_failure();
        let http = client(protocol, &Clock::manual(), (Retry::immediate().max_attempts(3), breaker.clone()));
        let response = http.get(server.url()).send().await.unwrap();
        let error = Error::from(response.bytes().await.unwrap_err());
        assert_eq!((error.kind(), error.verdict()), (Kind::Failed, Verdict::Permanent), "{protocol:?}: {error:?}");
        assert!(error.last().unwrap().is_decode());
        let text = format!("{:#}", anyhow::Error::from(error));
        assert!(text.starts_with("error decoding response body") && text.contains("gzip"), "{text}");

        let error = http.get(server.url()).buffered(100).send().await.unwrap_err();
        assert_eq!((error.attempts(), error.verdict()), (1, Verdict::Permanent), "{protocol:?}: {error:?}");
        assert_eq!((server.received(), breaker.state()), (2, State::Closed), "{protocol:?}: it answered");
    }
}

#[tokio::test]
async fn a_compressed_body_that_breaks_off_is_a_failure_of_the_connection() {
    for protocol in [Http1, Http2] {
        let (server, body) = trickling(protocol, &[("content-encoding", "gzip")]).await;
        let breaker = by_one_failure();
        let http = client(protocol, &Clock::manual(), breaker.clone());
        let response = http.get(server.url()).send().await.unwrap();
        body.send(&HELLO[..20]);
        settle().await;
        body.fail();
        let error = Error::from(response.bytes().await.unwrap_err());
        assert_eq!((error.kind(), error.verdict()), (Kind::Failed, Verdict::Transient), "{protocol:?}: {error:?}");
        assert_eq!(breaker.state(), State::Open, "{protocol:?}");
    }
}

/// The end of a body is known by what is left of it.
#[tokio::test]
async fn what_has_no_data_left_keeps_no_place() {
    for protocol in [Http1, Http2] {
        let answer = |n: usize| match n {
            1 => reply(204, ""),
            2 => reply(304, ""),
            3 => reply(200, ""),
            _ => reply(200, "hello"),
        };
        let server = Server::quick(protocol, answer).await;
        let places = Bulkhead::new(1);
        let http = client(protocol, &Clock::manual(), places.clone());
        for status in [StatusCode::NO_CONTENT, StatusCode::NOT_MODIFIED, StatusCode::OK] {
            let held = http.get(server.url()).send().await.unwrap();
            assert_eq!((held.status(), places.in_flight()), (status, 0), "{protocol:?}: while it is held");
        }
        let held = http.request(Method::HEAD, server.url()).send().await.unwrap();
        assert_eq!((&held.headers()["content-length"], places.in_flight()), (&HeaderValue::from(5), 0), "{protocol:?}");
        let mut held = http.get(server.url()).send().await.unwrap();
        assert_eq!(places.in_flight(), 1);
        assert_eq!(held.chunk().await.unwrap().unwrap(), "hello");
        assert_eq!(places.in_flight(), 0, "{protocol:?}: with the last data");
        assert!(held.chunk().await.unwrap().is_none());
    }
}
