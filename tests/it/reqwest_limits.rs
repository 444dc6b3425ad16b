//! How long a body may take, and how much of it may be read within the attempt. Real servers; time is the manual clock's.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::HeaderMap;
use http_body_util::BodyExt;
use reqwest::{Body, Response};
use steadfast::breaker::{Breaker, BreakerConfig, State, TripRule};
use steadfast::clock::{Clock, ManualClock};
use steadfast::error::Kind;
use steadfast::policy::{Call, End, Next, Outcome, Settings};
use steadfast::reqwest::{BodyTimeout, Error, RequestBuilder};
use steadfast::{CancellationToken, Classified, Context, Policy, Retry, Timeout, Verdict};
use tokio::io::AsyncWriteExt;

use crate::reqwest_body::Ends;
use crate::reqwest_server::{
    Http1, Http2, Protocol, Server, Trickle, client, read_request, reply, settle, trickle, trickling, until,
};
use crate::support::{secs, timed_out};

/// A response of which the test sends the body.
struct Slow {
    clock: ManualClock,
    trickle: Trickle,
    response: Response,
    _server: Server,
}

impl Slow {
    async fn begin<P>(
        protocol: Protocol,
        policies: P,
        headers: &'static [(&'static str, &'static str)],
        change: impl FnOnce(RequestBuilder) -> RequestBuilder,
    ) -> Slow
    where
        P: Policy<Response, reqwest::Error> + 'static,
    {
        let clock = Clock::manual();
        let (server, trickle) = trickling(protocol, headers).await;
        let http = client(protocol, &clock, policies).body_timeout(BodyTimeout::new().idle(secs(10)).total(secs(60)));
        let response = change(http.get(server.url())).send().await.unwrap();
        Slow { clock, trickle, response, _server: server }
    }

    /// Waits for data while `time` passes, and gives what the reader then sees, if anything.
    async fn wait(&mut self, time: Duration) -> Option<Error> {
        let mut reading = tokio_test::task::spawn(self.response.chunk());
        assert!(reading.poll().is_pending(), "there is data");
        self.clock.advance(time);
        match reading.poll() {
            std::task::Poll::Ready(answer) => Some(answer.unwrap_err().into()),
            std::task::Poll::Pending => None,
        }
    }

    async fn more(&mut self) {
        self.trickle.send("more");
        assert_eq!(self.response.chunk().await.unwrap().unwrap(), "more");
    }
}

const EVENTS: &[(&str, &str)] = &[("content-type", "text/event-stream")];

#[tokio::test]
async fn a_client_limits_the_bodies_of_all_its_responses() {
    for protocol in [Http1, Http2] {
        let mut slow = Slow::begin(protocol, (), &[], |request| request).await;
        assert!(slow.wait(secs(9)).await.is_none());
        slow.more().await;
        let error = slow.wait(secs(10)).await.unwrap();
        assert_eq!((error.kind(), error.last().unwrap().is_timeout()), (timed_out(secs(10)), true), "{protocol:?}");
        let shown = format!("{:#}", anyhow::Error::from(error));
        assert!(shown.starts_with("timed out after 10 s (after 1 attempt"), "{shown}");
        assert!(shown.contains("no data of the response body for 10s"), "{shown}");
    }
}

#[tokio::test]
async fn a_body_that_trickles_is_ended_by_the_limit_on_the_whole() {
    for protocol in [Http1, Http2] {
        let mut slow = Slow::begin(protocol, (), &[], |request| request).await;
        for _ in 0..6 {
            assert!(slow.wait(secs(9)).await.is_none());
            slow.more().await;
        }
        let error = slow.wait(secs(6)).await.unwrap();
        assert_eq!(error.kind(), timed_out(secs(60)), "{protocol:?}");
        assert_eq!(error.last().unwrap().verdict(), Verdict::Transient);
        let shown = format!("{:#}", anyhow::Error::from(error));
        assert!(shown.contains("response body not complete after 60s"), "{shown}");
        assert_eq!(slow.clock.sleepers(), 0, "while the response is still held");
    }
}

#[tokio::test]
async fn a_limit_on_the_whole_that_has_passed_comes_before_data_that_is_there() {
    let mut slow = Slow::begin(Http1, (), &[], |request| request).await;
    slow.trickle.send("more");
    settle().await;
    slow.clock.advance(secs(60));
    let error = Error::from(slow.response.chunk().await.unwrap_err());
    assert_eq!(error.kind(), timed_out(secs(60)));
}

#[tokio::test]
async fn the_limits_of_a_request_come_before_those_of_its_client() {
    let longer = BodyTimeout::new().idle(secs(100));
    let mut slow = Slow::begin(Http1, (), &[], |request| request.body_timeout(longer)).await;
    assert!(slow.wait(secs(59)).await.is_none());
    let error = slow.wait(secs(1)).await.unwrap();
    assert_eq!(error.kind(), timed_out(secs(60)), "what the request does not set is the client's");

    let never = BodyTimeout::new().idle(Duration::MAX).total(Duration::MAX);
    let mut slow = Slow::begin(Http1, (), &[], |request| request.body_timeout(never)).await;
    assert!(slow.wait(secs(100_000)).await.is_none());
    assert_eq!(slow.clock.sleepers(), 0, "it waits for no time");
    slow.more().await;
}

#[tokio::test]
async fn streams_have_the_limits_of_their_request_alone() {
    for protocol in [Http1, Http2] {
        let marked = Slow::begin(protocol, (), &[], RequestBuilder::streaming).await;
        let events = Slow::begin(protocol, (), EVENTS, |request| request).await;
        for mut slow in [marked, events] {
            for _ in 0..3 {
                assert!(slow.wait(secs(3600)).await.is_none());
                slow.more().await;
            }
        }
        let limit = BodyTimeout::new().idle(secs(90));
        let marked = Slow::begin(protocol, (), &[], |request| request.streaming().body_timeout(limit)).await;
        let events = Slow::begin(protocol, (), EVENTS, |request| request.body_timeout(limit)).await;
        for mut slow in [marked, events] {
            assert!(slow.wait(secs(89)).await.is_none());
            slow.more().await;
            assert_eq!(slow.wait(secs(90)).await.unwrap().kind(), timed_out(secs(90)));
        }
    }
}

#[tokio::test]
async fn the_callers_deadline_ends_a_stream_too() {
    let clock = Clock::manual();
    let (server, _trickle) = trickling(Http1, EVENTS).await;
    let cx = Context::new().with_clock(&clock).with_timeout(secs(10));
    let http = client(Http1, &clock, ());
    let mut response = http.get(server.url()).context(&cx).send().await.unwrap();
    let mut reading = tokio_test::task::spawn(response.chunk());
    assert!(reading.poll().is_pending());
    clock.advance(secs(10));
    let error = Error::from(reading.await.unwrap_err());
    assert_eq!(error.kind(), Kind::DeadlineExceeded);
}

#[tokio::test]
async fn limits_of_zero_send_nothing() {
    let clock = Clock::manual();
    let server = Server::quick(Http1, |_| reply(200, "")).await;
    let zero = BodyTimeout::new().total(Duration::ZERO);
    let by_request = client(Http1, &clock, ()).get(server.url()).body_timeout(zero);
    let by_client = client(Http1, &clock, ()).body_timeout(BodyTimeout::new().idle(Duration::ZERO)).get(server.url());
    for (request, field) in [(by_request, "BodyTimeout::total"), (by_client, "BodyTimeout::idle")] {
        let error = request.send().await.unwrap_err();
        assert_eq!(error.kind(), Kind::Misconfigured);
        assert!(error.to_string().contains(field), "{error}");
    }
    assert_eq!(server.accepted(), 0);
}

#[tokio::test]
async fn a_timeout_that_covers_the_body_ends_it_in_the_middle() {
    for protocol in [Http1, Http2] {
        let breaker = Breaker::new(BreakerConfig::default().rule(TripRule::consecutive(1)));
        let ends = Ends::default();
        let chain = (ends.clone(), Timeout::secs(8).covering_body(), breaker.clone());
        let mut slow = Slow::begin(protocol, chain, &[], |request| request).await;
        assert!(slow.wait(secs(7)).await.is_none());
        slow.more().await;
        assert_eq!(breaker.state(), State::Closed);
        let error = slow.wait(secs(1)).await.unwrap();
        assert_eq!((error.kind(), error.verdict()), (timed_out(secs(8)), Verdict::Transient), "{protocol:?}");
        until(|| slow.trickle.is_given_up()).await;
        assert_eq!((ends.take(), breaker.state()), (vec![End::TimedOut], State::Open));
    }
}

#[tokio::test]
async fn of_several_limits_that_cover_the_body_the_earliest_counts() {
    let chain = (Timeout::secs(20).covering_body(), Timeout::secs(5).covering_body(), Timeout::secs(1));
    let mut slow = Slow::begin(Http1, chain, &[], |request| request).await;
    assert_eq!(slow.wait(secs(5)).await.unwrap().kind(), timed_out(secs(5)));

    let chain = (Timeout::secs(5), Timeout::secs(20).covering_body());
    let mut slow =
        Slow::begin(Http1, chain, &[], |request| request.body_timeout(BodyTimeout::new().idle(secs(15)))).await;
    assert!(slow.wait(secs(14)).await.is_none(), "the limit that does not cover it has done its work");
    slow.more().await;
    assert_eq!(slow.wait(secs(6)).await.unwrap().kind(), timed_out(secs(20)));
}

#[tokio::test]
async fn a_covering_limit_inside_of_a_retry_is_the_attempts_and_outside_the_runs() {
    for (inside, left) in [(true, 10), (false, 6)] {
        let clock = Clock::manual();
        let (slow, answer) = trickle();
        let answer = Mutex::new(Some(answer));
        let server =
            Server::quick(Http1, move |n| if n == 1 { reply(503, "") } else { answer.lock().unwrap().take().unwrap() })
                .await;
        let limit = Timeout::secs(10).covering_body();
        let (outer, inner) = if inside { (None, Some(limit)) } else { (Some(limit), None) };
        let http = client(Http1, &clock, (outer, Retry::fixed(secs(4)), inner));
        let sent = tokio::spawn(http.get(server.url()).send());
        until(|| server.received() == 1 && clock.sleepers() > 0).await;
        settle().await;
        clock.advance(secs(4));
        let mut response = sent.await.unwrap().unwrap();
        let mut reading = tokio_test::task::spawn(response.chunk());
        assert!(reading.poll().is_pending());
        clock.advance(secs(left) - Duration::from_nanos(1));
        assert!(reading.poll().is_pending(), "{inside}");
        clock.advance(Duration::from_nanos(1));
        assert_eq!(Error::from(reading.await.unwrap_err()).kind(), timed_out(secs(10)));
        until(|| slow.is_given_up()).await;
    }
}

#[tokio::test]
async fn a_covering_limit_leaves_a_body_alone_that_is_read_in_time() {
    let chain = Timeout::secs(5).covering_body();
    let slow = Slow::begin(Http1, chain, &[], |request| request).await;
    slow.trickle.send("all");
    drop(slow.trickle);
    assert_eq!(slow.response.text().await.unwrap(), "all");
    assert_eq!(slow.clock.sleepers(), 0);
}

/// A policy of one's own that leaves a limit behind.
struct Until(Duration);

impl Settings for Until {}

impl<T: Send, E: Send> Policy<T, E> for Until {
    async fn run<N: Next<T, E>>(&self, call: Call<'_, E>, next: N) -> Outcome<T, E> {
        let at = call.now() + self.0;
        let mut outcome = next.call(call).await;
        outcome.tail_mut().end_at(at, self.0);
        outcome
    }
}

#[tokio::test]
async fn any_policy_can_leave_a_limit_for_the_body() {
    let mut slow = Slow::begin(Http2, (Until(secs(4)), Until(secs(3))), &[], |request| request).await;
    assert_eq!(slow.wait(secs(3)).await.unwrap().kind(), timed_out(secs(3)));
}

/// The first answer's body breaks off, the second one's does not.
async fn broken_once(protocol: Protocol) -> Server {
    Server::quick(protocol, |n| {
        let (trickle, answer) = trickle();
        trickle.send("whole");
        if n == 1 {
            trickle.fail();
        } else {
            drop(trickle);
        }
        answer
    })
    .await
}

#[tokio::test]
async fn a_buffered_body_that_breaks_off_is_asked_for_again() {
    for protocol in [Http1, Http2] {
        let clock = Clock::manual();
        let server = broken_once(protocol).await;
        let breaker = Breaker::default();
        let http = client(protocol, &clock, (Retry::immediate(), breaker.clone()));
        let response = http.get(server.url()).buffered(100).send().await.unwrap();
        assert_eq!((server.received(), response.content_length()), (2, Some(5)), "{protocol:?}");
        assert_eq!(response.url().as_str(), server.url());
        assert_eq!(response.text().await.unwrap(), "whole");
        assert_eq!((breaker.counts().calls, breaker.counts().failures), (2, 1));

        let server = broken_once(protocol).await;
        let error = http.post(server.url()).buffered(100).send().await.unwrap_err();
        assert_eq!((server.received(), error.attempts()), (1, 1), "a POST may have been done");
        assert_eq!((error.kind(), error.last().unwrap().verdict()), (Kind::Failed, Verdict::Transient));
    }
}

#[tokio::test]
async fn a_timeout_covers_a_buffered_body() {
    for protocol in [Http1, Http2] {
        let clock = Clock::manual();
        let held = Arc::new(Mutex::new(Vec::new()));
        let server = Server::quick(protocol, {
            let held = Arc::clone(&held);
            move |n| {
                let (trickle, answer) = trickle();
                trickle.send("half");
                if n == 1 {
                    held.lock().unwrap().push(trickle);
                }
                answer
            }
        })
        .await;
        let http = client(protocol, &clock, (Retry::immediate(), Timeout::secs(5)));
        let sent = tokio::spawn(http.get(server.url()).buffered(100).send());
        // The limit of the attempt, and the idle limit of the body once it is read.
        until(|| server.received() == 1 && clock.sleepers() == 2).await;
        clock.advance(secs(5));
        let response = sent.await.unwrap().unwrap();
        assert_eq!((server.received(), response.text().await.unwrap().as_str()), (2, "half"), "{protocol:?}");
        until(|| held.lock().unwrap()[0].is_given_up()).await;
        assert_eq!(clock.sleepers(), 0);
    }
}

#[tokio::test]
async fn a_buffered_body_that_stalls_ends_in_a_timeout_without_any_policy() {
    for headers in [&[][..], EVENTS] {
        let clock = Clock::manual();
        let (server, trickle) = trickling(Http2, headers).await;
        trickle.send("half");
        let sent = tokio::spawn(client(Http2, &clock, ()).get(server.url()).buffered(100).send());
        until(|| clock.sleepers() > 0).await;
        clock.advance(secs(30));
        let error = sent.await.unwrap().unwrap_err();
        assert_eq!((error.kind(), error.attempts()), (timed_out(secs(30)), 1));
        assert!(error.last().unwrap().is_timeout());
        assert_eq!(error.last().unwrap().url().unwrap().as_str(), server.url());
    }
}

#[tokio::test]
async fn a_body_larger_than_the_buffer_is_a_permanent_error() {
    for protocol in [Http1, Http2] {
        for announced in [true, false] {
            let server = Server::quick(protocol, move |_| {
                if announced {
                    return reply(200, "123456");
                }
                let (trickle, answer) = trickle();
                trickle.send("123");
                trickle.send("456");
                answer
            })
            .await;
            let http = client(protocol, &Clock::manual(), Retry::immediate());
            let error = http.get(server.url()).buffered(5).send().await.unwrap_err();
            assert_eq!((error.kind(), error.attempts(), server.received()), (Kind::Failed, 1, 1));
            assert_eq!(error.last().unwrap().verdict(), Verdict::Permanent);
            let shown = format!("{:#}", anyhow::Error::from(error));
            assert!(shown.contains("response body larger than 5 bytes"), "{shown}");
            let response = http.get(server.url()).buffered(6).send().await.unwrap();
            assert_eq!(response.text().await.unwrap(), "123456");
        }
    }
}

#[tokio::test]
async fn a_failure_is_worth_what_its_status_says_also_if_it_is_larger_than_the_buffer() {
    let server = Server::quick(Http1, |n| if n == 1 { reply(503, "long") } else { reply(404, "long") }).await;
    let http = client(Http1, &Clock::manual(), Retry::immediate());
    let error = http.get(server.url()).buffered(2).send().await.unwrap_err();
    assert_eq!((server.received(), error.attempts()), (2, 2), "503 is asked again, 404 is not");
    let response = http.get(server.url()).buffered(4).send().await.unwrap();
    assert_eq!((response.status().as_u16(), response.text().await.unwrap().as_str()), (404, "long"));
}

#[tokio::test]
async fn a_buffered_body_leaves_nothing_to_be_held_and_keeps_its_trailers() {
    let (server, trickle) = trickling(Http2, &[("content-type", "text/plain; charset=iso-8859-1")]).await;
    let mut trailers = HeaderMap::new();
    trailers.insert("checksum", "7".parse().unwrap());
    trickle.send(&b"caf\xe9"[..]);
    trickle.end_with(trailers.clone());
    let ends = Ends::default();
    let http = client(Http2, &Clock::manual(), ends.clone());
    let response = http.get(server.url()).buffered(100).send().await.unwrap();
    assert_eq!(ends.take(), [], "the policies were told that nothing outlives the run");
    let body = http::Response::<Body>::from(response).into_body().collect().await.unwrap();
    assert_eq!(body.trailers(), Some(&trailers));
    assert_eq!(body.to_bytes(), &b"caf\xe9"[..]);

    let empty = Server::quick(Http1, |_| reply(204, "")).await;
    let response = client(Http1, &Clock::manual(), ()).get(empty.url()).buffered(0).send().await.unwrap();
    assert_eq!(response.status(), 204);
}

#[tokio::test]
async fn the_callers_token_ends_a_request_whose_body_is_buffered() {
    let clock = Clock::manual();
    let (server, trickle) = trickling(Http1, &[]).await;
    trickle.send("half");
    let token = CancellationToken::new();
    let cx = Context::new().with_token(token.clone());
    let http = client(Http1, &clock, Retry::immediate());
    let sent = tokio::spawn(http.get(server.url()).context(&cx).buffered(100).send());
    until(|| clock.sleepers() > 0).await;
    token.cancel();
    let error = sent.await.unwrap().unwrap_err();
    assert!(error.is_cancelled(), "{error:?}");
    until(|| trickle.is_given_up() && server.open() == 0).await;
    assert_eq!(clock.sleepers(), 0);
}

#[tokio::test]
async fn a_truncated_body_fails_for_a_reader_and_is_retried_when_buffered() {
    let server = Server::raw(|mut stream, connection| async move {
        read_request(&mut stream).await;
        let whole: &[u8] = if connection <= 2 { b"12345" } else { b"1234567890" };
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n").await;
        let _ = stream.write_all(whole).await;
    })
    .await;
    let http = client(Http1, &Clock::manual(), Retry::immediate());
    let response = http.get(server.url()).send().await.unwrap();
    let error = Error::from(response.bytes().await.unwrap_err());
    assert_eq!((error.kind(), error.verdict()), (Kind::Failed, Verdict::Transient));
    let response = http.get(server.url()).buffered(100).send().await.unwrap();
    assert_eq!((response.text().await.unwrap().as_str(), server.accepted()), ("1234567890", 3));
}
