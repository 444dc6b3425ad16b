//! The pause that a server asks for with `Retry-After`, over both protocols. Real servers; time is the manual clock's.

use std::time::Duration;

use http::header::RETRY_AFTER;
use http::{HeaderValue, Method};
use steadfast::clock::{Clock, ManualClock};
use steadfast::reqwest::Client;
use steadfast::retry::OnLongWait;
use steadfast::{Context, Retry};

use crate::reqwest_server::{Http1, Http2, Protocol, Reply, Server, client, reply, reply_with, settle, until};
use crate::support::secs;

const NANOSECOND: Duration = Duration::from_nanos(1);

/// The `Retry-After` headers of one answer.
type Values = &'static [&'static [u8]];

/// A refusal with these `Retry-After` headers, as they are.
fn asks(status: u16, values: &[&[u8]]) -> Reply {
    let mut refusal = reply(status, "");
    for value in values {
        refusal.headers_mut().append(RETRY_AFTER, HeaderValue::from_bytes(value).unwrap());
    }
    refusal
}

/// A server that asks for a pause once.
async fn asking_once(protocol: Protocol, status: u16, values: Values) -> Server {
    Server::quick(protocol, move |n| if n == 1 { asks(status, values) } else { reply(200, "there") }).await
}

fn both(cases: &[Values]) -> impl Iterator<Item = (Protocol, Values)> {
    [Http1, Http2].into_iter().flat_map(move |protocol| cases.iter().map(move |values| (protocol, *values)))
}

/// Asserts that the second request comes after `wait`, and not a nanosecond earlier.
async fn assert_waits(http: &Client, server: &Server, clock: &ManualClock, wait: Duration, case: &str) {
    let sent = tokio::spawn(http.request(Method::GET, server.url()).send());
    if wait > Duration::ZERO {
        until(|| server.received() == 1 && clock.sleepers() > 0).await;
        settle().await;
        clock.advance(wait - NANOSECOND);
        settle().await;
        assert_eq!(server.received(), 1, "{case}: too early");
        clock.advance(NANOSECOND);
    }
    assert_eq!(sent.await.unwrap().unwrap().text().await.unwrap(), "there", "{case}");
    assert_eq!(server.received(), 2, "{case}");
}

fn show(protocol: Protocol, values: &[&[u8]]) -> String {
    let values: Vec<_> = values.iter().map(|value| String::from_utf8_lossy(value)).collect();
    format!("{protocol:?} {values:?}")
}

const HUGE: [Values; 6] = [
    &[b"9223372036"],
    &[b"9223372037"],
    &[b"9223372036854775807"],
    &[b"18446744073709551615"],
    &[b"18446744073709551616"],
    &[b"9999999999999999999999999999999999999999"],
];

#[tokio::test]
async fn retry_after_huge_seconds() {
    for (protocol, values) in both(&HUGE) {
        let case = show(protocol, values);
        let (clock, retry) = (Clock::manual(), Retry::exponential().max_retry_after(secs(60)));
        let server = asking_once(protocol, 503, values).await;
        let start = clock.now();
        let http = client(protocol, &clock, retry.clone());
        assert_eq!(http.get(server.url()).send().await.unwrap().status(), 503, "{case}: longer than the cap");
        assert_eq!((server.received(), clock.now()), (1, start), "{case}");

        let server = asking_once(protocol, 503, values).await;
        let http = client(protocol, &clock, retry.on_long_wait(OnLongWait::Cap));
        assert_waits(&http, &server, &clock, secs(60), &case).await;
    }
}

#[tokio::test]
async fn retry_after_overflows_sleep() {
    for protocol in [Http1, Http2] {
        for (asked, limit) in [("9999999999", Duration::MAX), ("3600", Duration::MAX), ("3600", secs(60))] {
            let clock = Clock::manual();
            let server = Server::quick(protocol, move |_| reply_with(429, "retry-after", asked)).await;
            let http = client(protocol, &clock, Retry::exponential().max_retry_after(limit));
            let cx = Context::new().with_clock(&clock).with_timeout(secs(10));
            let start = clock.now();
            let response = http.get(server.url()).context(&cx).send().await.unwrap();
            assert_eq!(response.status(), 429);
            assert_eq!(response.headers()["retry-after"], asked, "the wanted delay is there to read");
            assert_eq!((server.received(), clock.now()), (1, start), "{protocol:?}");
        }
    }
}

#[tokio::test]
async fn retry_after_negative_or_past() {
    let past: [Values; 2] = [&[b"Wed, 21 Oct 2015 07:28:00 GMT"], &[b"0"]];
    let invalid: [Values; 2] = [&[b"-1"], &[b"-9223372036854775808"]];
    for (protocol, values) in both(&past) {
        let clock = Clock::manual();
        let server = asking_once(protocol, 429, values).await;
        let http = client(protocol, &clock, Retry::fixed(secs(1)));
        assert_waits(&http, &server, &clock, Duration::ZERO, &show(protocol, values)).await;
    }
    for (protocol, values) in both(&invalid) {
        let clock = Clock::manual();
        let server = asking_once(protocol, 429, values).await;
        let http = client(protocol, &clock, Retry::fixed(secs(1)));
        assert_waits(&http, &server, &clock, secs(1), &show(protocol, values)).await;
    }
}

#[tokio::test]
async fn retry_after_malformed_date() {
    let malformed: [Values; 11] = [
        &[b"soon"],
        &[b""],
        &[b"  "],
        &[b"1.5"],
        &[b"12abc"],
        &[b"1, 2"],
        &[b"Fri, 99 Foo 1999"],
        &[b"2020-01-01T00:00:07Z"],
        &[b"\xff\xfe"],
        &[b"7\xe9"],
        &[b"soon", b"never"],
    ];
    for (protocol, values) in both(&malformed) {
        let clock = Clock::manual();
        let server = asking_once(protocol, 503, values).await;
        let http = client(protocol, &clock, Retry::fixed(secs(1)));
        assert_waits(&http, &server, &clock, secs(1), &show(protocol, values)).await;
    }
}

/// 2020-01-01T00:00:00Z is where the wall clock of the tests begins.
#[tokio::test]
async fn retry_after_unit() {
    let two_seconds: [Values; 6] = [
        &[b"2"],
        &[b"Wed, 01 Jan 2020 00:00:02 GMT"],
        &[b"Wednesday, 01-Jan-20 00:00:02 GMT"],
        &[b"Wed Jan  1 00:00:02 2020"],
        &[b"soon", b"2"],
        &[b"2", b"1"],
    ];
    for (protocol, values) in both(&two_seconds) {
        let clock = Clock::manual();
        let server = asking_once(protocol, 429, values).await;
        // The limit takes away what is added so that clients do not come back together.
        let http = client(protocol, &clock, Retry::fixed(secs(9)).max_retry_after(secs(2)));
        assert_waits(&http, &server, &clock, secs(2), &show(protocol, values)).await;
    }
}

#[tokio::test]
async fn retry_after_larger_than_limit_option() {
    for (protocol, on_long_wait) in
        [Http1, Http2].into_iter().flat_map(|protocol| [OnLongWait::Cap, OnLongWait::Stop].map(|on| (protocol, on)))
    {
        let clock = Clock::manual();
        let server = Server::quick(protocol, |n| match n {
            1 => reply_with(503, "retry-after", "3600"),
            2 => reply_with(503, "retry-after", "99999999999999999999"),
            _ => reply(200, "there"),
        })
        .await;
        let retry = Retry::exponential().max_retry_after(secs(60)).on_long_wait(on_long_wait);
        let http = client(protocol, &clock, retry.clone()).clone();
        let sent = tokio::spawn(http.get(server.url()).send());
        if on_long_wait == OnLongWait::Cap {
            for n in 1..=2 {
                until(|| server.received() == n && clock.sleepers() > 0).await;
                settle().await;
                clock.advance(secs(60) - NANOSECOND);
                settle().await;
                assert_eq!(server.received(), n, "{protocol:?}: not before the cap");
                clock.advance(NANOSECOND);
            }
            assert_eq!(sent.await.unwrap().unwrap().text().await.unwrap(), "there");
        } else {
            let response = sent.await.unwrap().unwrap();
            assert_eq!((response.status().as_u16(), server.received()), (503, 1), "{protocol:?}");
            assert_eq!(response.headers()["retry-after"], "3600");
        }
    }
}

#[tokio::test]
async fn a_202_that_says_when_to_look_again_is_a_success() {
    for protocol in [Http1, Http2] {
        let clock = Clock::manual();
        let server = Server::quick(protocol, |_| reply_with(202, "retry-after", "2")).await;
        let response = client(protocol, &clock, Retry::immediate()).post(server.url()).send().await.unwrap();
        assert_eq!((response.status().as_u16(), server.received()), (202, 1), "{protocol:?}");
        assert_eq!(steadfast::reqwest::ResponseExt::not_repeated(&response), None);
    }
}
