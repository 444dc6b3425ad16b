//! Bodies that outlive the policies: what ends them, what does not, and who is told. Real servers; time is the manual
//! clock's.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "the helpers of a test may say in one word that something went wrong"
)]

use std::sync::{Arc, Mutex};

use http::HeaderMap;
use http_body::Body as _;
use http_body_util::BodyExt;
use reqwest::{Body, Response};
use steadfast::clock::{Clock, ManualClock};
use steadfast::error::Kind;
use steadfast::policy::{Call, End, Guard, Next, Outcome, Policy, Settings};
use steadfast::reqwest::{BodyError, DEFAULT_IDLE_LIMIT, Error, ResponseExt};
use steadfast::{CancellationToken, Cause, Classified, Context, Retry, Timeout, Verdict};

use crate::reqwest_server::{
    Http1, Http2, Protocol, Reply, Server, Trickle, client, executor, plain, reply, reply_with, settle, trickling,
    until,
};
use crate::support::{secs, timed_out};

/// Remembers how bodies ended: what a bulkhead or a breaker leaves in the tail.
#[derive(Clone, Default)]
pub(crate) struct Ends(Arc<Mutex<Vec<End>>>);

impl Ends {
    pub(crate) fn take(&self) -> Vec<End> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

impl Settings for Ends {}

impl<T: Send, E: Send> Policy<T, E> for Ends {
    async fn run<N: Next<T, E>>(&self, call: Call<'_, E>, next: N) -> Outcome<T, E> {
        let mut outcome = next.call(call).await;
        if call.streams() && outcome.result.is_ok() {
            outcome.tail_mut().push(self.clone());
        }
        outcome
    }
}

impl Guard for Ends {
    fn end(&mut self, end: End) {
        self.0.lock().unwrap().push(end);
    }
}

/// A body of which the first part is read, and the rest waited for.
struct Reading {
    clock: ManualClock,
    server: Server,
    trickle: Trickle,
    response: Response,
    ends: Ends,
}

impl Reading {
    async fn begin(protocol: Protocol, cx: &Context) -> Reading {
        let clock = Clock::manual();
        Reading::begin_on(&clock, protocol, cx, &[]).await
    }

    async fn begin_on(
        clock: &ManualClock,
        protocol: Protocol,
        cx: &Context,
        headers: &'static [(&'static str, &'static str)],
    ) -> Reading {
        let (server, trickle) = trickling(protocol, headers).await;
        let ends = Ends::default();
        let policies = (Retry::immediate(), ends.clone(), Timeout::secs(5));
        let http = client(protocol, clock, policies);
        let mut response = http.get(server.url()).context(cx).send().await.unwrap();
        trickle.send("begin");
        assert_eq!(response.chunk().await.unwrap().unwrap(), "begin");
        assert_eq!(ends.take(), []);
        Reading { clock: clock.clone(), server, trickle, response, ends }
    }

    /// Waits for more data until `act` has done what ends that, and gives what the reader then sees. The response is still
    /// held when the server learns of it.
    async fn until_ended(&mut self, act: impl FnOnce()) -> Error {
        let error = {
            let mut reading = tokio_test::task::spawn(self.response.chunk());
            assert!(reading.poll().is_pending());
            act();
            assert!(reading.is_woken());
            match reading.poll() {
                std::task::Poll::Ready(answer) => answer.unwrap_err(),
                std::task::Poll::Pending => panic!("the read goes on"),
            }
        };
        until(|| self.trickle.is_given_up()).await;
        assert!(self.response.chunk().await.unwrap().is_none(), "nothing follows the error");
        error.into()
    }
}

#[tokio::test]
async fn wrapper_loses_content_length() {
    for protocol in [Http1, Http2] {
        let answer = |n: usize| -> Reply {
            match n % 5 {
                // To HEAD: the length of what GET would give.
                2 => reply_with(200, "content-length", "5"),
                3 => reply(204, ""),
                4 => reply(304, ""),
                0 => reply(200, ""),
                _ => reply(200, "hello"),
            }
        };
        let server = Server::quick(protocol, answer).await;
        let plain = plain(protocol);
        let ends = Ends::default();
        let http = client(protocol, &Clock::manual(), ends.clone());
        let methods = [http::Method::GET, http::Method::HEAD, http::Method::GET, http::Method::GET, http::Method::GET];
        // First without us, then through the chain.
        let mut seen = Vec::new();
        for method in methods.iter().cloned() {
            let response = plain.request(method, server.url()).send().await.unwrap();
            seen.push(shape(response).await);
        }
        for (method, expected) in methods.into_iter().zip(seen) {
            let response = http.request(method.clone(), server.url()).send().await.unwrap();
            let over = ends.take();
            let case = format!("{protocol:?} {method} {}", response.status());
            assert_eq!(response.remote_addr(), Some(server.address()), "{case}");
            let shape = shape(response).await;
            assert_eq!(shape, expected, "{case}");
            let empty = shape.body.is_empty();
            assert_eq!(over, if empty { vec![End::Complete] } else { vec![] }, "{case}: told before it is read");
            assert_eq!(ends.take(), if empty { vec![] } else { vec![End::Complete] }, "{case}");
            if method == http::Method::GET && shape.status == 200 && !empty {
                assert_eq!(shape.content_length, Some(5));
            }
        }
    }
}

#[derive(Debug, PartialEq)]
struct Shape {
    status: u16,
    version: http::Version,
    headers: Vec<(String, Vec<u8>)>,
    url: String,
    content_length: Option<u64>,
    is_over: bool,
    body: bytes::Bytes,
    left: (u64, Option<u64>, bool),
}

async fn shape(response: Response) -> Shape {
    let headers = response.headers().iter().filter(|(name, _)| *name != "date");
    let headers = headers.map(|(name, value)| (name.to_string(), value.as_bytes().to_vec())).collect();
    let (url, content_length) = (response.url().to_string(), response.content_length());
    let (parts, mut body) = http::Response::<Body>::from(response).into_parts();
    let is_over = body.is_end_stream();
    let mut read = Vec::new();
    while let Some(frame) = body.frame().await {
        read.extend(frame.unwrap().into_data().unwrap());
    }
    let hint = body.size_hint();
    Shape {
        status: parts.status.as_u16(),
        version: parts.version,
        headers,
        url,
        content_length,
        is_over,
        body: read.into(),
        left: (hint.lower(), hint.upper(), body.is_end_stream()),
    }
}

#[tokio::test]
async fn trailers_pass_through_and_come_before_the_end() {
    let cx = Context::new();
    let mut reading = Reading::begin(Http2, &cx).await;
    reading.trickle.send("end");
    assert_eq!(reading.response.chunk().await.unwrap().unwrap(), "end");
    let mut body = http::Response::<Body>::from(reading.response).into_body();
    assert_eq!(reading.ends.take(), []);
    let mut trailers = HeaderMap::new();
    trailers.insert("checksum", "7".parse().unwrap());
    reading.trickle.end_with(trailers.clone());
    let frame = body.frame().await.unwrap().unwrap();
    assert_eq!(frame.into_trailers().unwrap(), trailers);
    assert!(body.frame().await.is_none());
    assert_eq!(reading.ends.take(), [End::Complete]);
}

#[tokio::test]
async fn the_tail_ends_with_the_last_data() {
    for protocol in [Http1, Http2] {
        let server = Server::quick(protocol, |_| reply(200, "hello")).await;
        let ends = Ends::default();
        let http = client(protocol, &Clock::manual(), ends.clone());
        let mut response = http.get(server.url()).send().await.unwrap();
        assert_eq!(ends.take(), []);
        assert_eq!(response.chunk().await.unwrap().unwrap(), "hello");
        let over = http::Response::<Body>::from(response).into_body().is_end_stream();
        assert_eq!(ends.take(), if over { [End::Complete] } else { [End::Dropped] }, "{protocol:?}");
        if protocol == Http1 {
            assert!(over, "the length was announced");
        }
    }
}

#[tokio::test]
async fn the_callers_token_ends_a_body_at_once() {
    for protocol in [Http1, Http2] {
        let token = CancellationToken::new();
        let cx = Context::new().with_token(token.clone());
        let mut reading = Reading::begin(protocol, &cx).await;
        let error = reading.until_ended(|| token.cancel()).await;
        assert_eq!((error.kind(), error.attempts()), (Kind::Cancelled, 1));
        let line = error.to_string();
        assert!(line.starts_with("cancelled (after 1 attempt; last error: error decoding response body"), "{line}");
        let last = error.into_last().unwrap();
        assert_eq!((last.verdict(), last.is_timeout()), (Verdict::Ignored, false));
        assert_eq!(reading.ends.take(), [End::Cancelled]);
        assert_eq!(reading.response.cancellation().unwrap().cause(), Some(Cause::Cancelled));
        if protocol == Http1 {
            until(|| reading.server.open() == 0).await;
        }
    }
}

#[tokio::test]
async fn a_cancelled_body_gives_nothing_that_is_there_already() {
    let token = CancellationToken::new();
    let cx = Context::new().with_token(token.clone());
    let mut reading = Reading::begin(Http1, &cx).await;
    reading.trickle.send("more");
    settle().await;
    token.cancel();
    assert!(!reading.trickle.is_given_up(), "held and not read, it has not noticed");
    let error = Error::from(reading.response.chunk().await.unwrap_err());
    assert!(error.is_cancelled());
}

#[tokio::test]
async fn json_text_and_bytes_say_why_the_body_ended() {
    let clock = Clock::manual();
    let token = CancellationToken::new();
    let cx = Context::new().with_token(token.clone());
    let Reading { response, .. } = Reading::begin_on(&clock, Http1, &cx, &[]).await;
    let mut reading = tokio_test::task::spawn(response.json::<u32>());
    assert!(reading.poll().is_pending());
    token.cancel();
    assert!(reading.is_woken());
    let error = reading.await.unwrap_err();
    let mut cause = std::error::Error::source(&error);
    while let Some(inner) = cause {
        if let Some(guard) = inner.downcast_ref::<BodyError>() {
            assert_eq!(guard.to_string(), "response body given up: cancelled");
            return;
        }
        cause = inner.source();
    }
    panic!("no BodyError in {error:?}");
}

#[tokio::test]
async fn the_merged_token_ends_this_body_alone() {
    let token = CancellationToken::new();
    let cx = Context::new().with_token(token.clone());
    let mut one = Reading::begin(Http2, &cx).await;
    let mut two = Reading::begin(Http2, &cx).await;
    let merged = one.response.cancellation().unwrap().clone();
    assert!(!merged.is_cancelled());
    let error = one.until_ended(|| merged.cancel()).await;
    assert!(error.is_cancelled() && merged.is_cancelled() && !token.is_cancelled());
    two.trickle.send("more");
    assert_eq!(two.response.chunk().await.unwrap().unwrap(), "more");
    let error = two.until_ended(|| token.cancel()).await;
    assert!(error.is_cancelled());
}

#[tokio::test]
async fn shutdown_ends_live_bodies() {
    let clock = Clock::manual();
    let (server, trickle) = trickling(Http1, &[]).await;
    let billing = executor(&clock, Retry::immediate());
    let http = steadfast::reqwest::Client::new(plain(Http1), billing.clone());
    let mut response = http.get(server.url()).send().await.unwrap();
    let merged = response.cancellation().unwrap().clone();
    billing.close();
    let mut drained = tokio_test::task::spawn(billing.drained());
    let error = {
        let mut reading = tokio_test::task::spawn(response.chunk());
        assert!(reading.poll().is_pending());
        assert_eq!(billing.waiting(), 1);
        assert!(drained.poll().is_pending(), "closing lets a body go on");
        billing.shutdown();
        assert!(reading.is_woken());
        Error::from(reading.await.unwrap_err())
    };
    assert_eq!((error.kind(), merged.cause()), (Kind::ShutDown, Some(Cause::ShutDown)));
    assert_eq!(billing.waiting(), 0);
    assert!(drained.poll().is_ready());
    until(|| trickle.is_given_up() && server.open() == 0).await;
}

/// Puts a response of its own in the place of any other, whose body comes when the test sends it.
struct Replaces(Mutex<Option<Body>>);

impl Settings for Replaces {}

impl<E: Send> Policy<Response, E> for Replaces {
    async fn run<N: Next<Response, E>>(&self, call: Call<'_, E>, next: N) -> Outcome<Response, E> {
        let outcome = next.call(call).await;
        assert!(outcome.result.is_ok());
        let body = self.0.lock().unwrap().take().unwrap();
        Outcome::success(Response::from(http::Response::new(body)))
    }
}

#[tokio::test]
async fn a_response_of_a_policy_is_guarded_whatever_it_is_in_the_place_of() {
    for protocol in [Http1, Http2] {
        for (method, buffered) in [(http::Method::GET, false), (http::Method::HEAD, false), (http::Method::GET, true)] {
            let server = Server::quick(protocol, |_| reply(200, "hello")).await;
            let (sender, receiver) = futures::channel::mpsc::unbounded::<std::io::Result<&str>>();
            let replaces = Replaces(Mutex::new(Some(Body::wrap_stream(receiver))));
            let clock = Clock::manual();
            let token = CancellationToken::new();
            let cx = Context::new().with_clock(&clock).with_token(token.clone());
            let request = client(protocol, &clock, replaces).request(method.clone(), server.url()).context(&cx);
            let request = if buffered { request.buffered(100) } else { request };
            let mut response = request.send().await.unwrap();
            sender.unbounded_send(Ok("cached")).unwrap();
            assert_eq!(response.chunk().await.unwrap().unwrap(), "cached", "{protocol:?} {method} {buffered}");
            let mut reading = tokio_test::task::spawn(response.chunk());
            assert!(reading.poll().is_pending());
            assert_eq!(clock.sleepers(), 1, "{protocol:?} {method} {buffered}: it may not stall either");
            token.cancel();
            let error = Error::from(reading.await.unwrap_err());
            assert!(error.is_cancelled() && sender.is_closed(), "{protocol:?} {method} {buffered}");
        }
    }
}

#[tokio::test]
async fn drained_waits_for_bodies_that_are_waited_for_and_for_no_others() {
    for protocol in [Http1, Http2] {
        let clock = Clock::manual();
        let (server, trickle) = trickling(protocol, &[]).await;
        let billing = executor(&clock, Retry::immediate());
        let http = steadfast::reqwest::Client::new(plain(protocol), billing.clone());
        let mut response = http.get(server.url()).send().await.unwrap();
        trickle.send("begin");
        settle().await;
        billing.close();
        assert!(tokio_test::task::spawn(billing.drained()).poll().is_ready(), "it is held, and nobody reads it");
        assert_eq!(response.chunk().await.unwrap().unwrap(), "begin");

        let mut drained = tokio_test::task::spawn(billing.drained());
        let mut reading = tokio_test::task::spawn(response.chunk());
        assert!(reading.poll().is_pending());
        assert!(drained.poll().is_pending(), "{protocol:?}: its reader waits for data");
        trickle.send("end");
        assert_eq!(reading.await.unwrap().unwrap(), "end");
        assert!(drained.poll().is_pending(), "it is the same body between two chunks of it");
        drop(trickle);
        while let Some(data) = response.chunk().await.unwrap() {
            assert!(data.is_empty(), "HTTP/2 may end with a frame of its own");
        }
        assert!(drained.is_woken() && drained.poll().is_ready(), "{protocol:?}: while the response is still held");
    }
}

#[tokio::test]
async fn the_callers_deadline_covers_the_body() {
    for protocol in [Http1, Http2] {
        let clock = Clock::manual();
        let cx = Context::new().with_clock(&clock).with_timeout(secs(10));
        let mut reading = Reading::begin_on(&clock, protocol, &cx, &[]).await;
        clock.advance(secs(9));
        reading.trickle.send("more");
        assert_eq!(reading.response.chunk().await.unwrap().unwrap(), "more");
        let error = reading.until_ended(|| clock.advance(secs(1))).await;
        assert_eq!(error.kind(), Kind::DeadlineExceeded);
        let last = error.into_last().unwrap();
        assert_eq!((last.is_timeout(), last.verdict()), (true, Verdict::Ignored));
        assert_eq!(reading.ends.take(), [End::Cancelled]);
    }
}

#[tokio::test]
async fn a_body_that_stalls_is_given_up() {
    for protocol in [Http1, Http2] {
        let clock = Clock::manual();
        let mut reading = Reading::begin_on(&clock, protocol, &Context::new(), &[]).await;
        for _ in 0..3 {
            clock.advance(secs(29));
            assert!(tokio_test::task::spawn(reading.response.chunk()).poll().is_pending());
            clock.advance(secs(29));
            reading.trickle.send("more");
            assert_eq!(reading.response.chunk().await.unwrap().unwrap(), "more", "data resets the limit");
        }
        let error = reading.until_ended(|| clock.advance(DEFAULT_IDLE_LIMIT)).await;
        assert_eq!((error.kind(), error.is_timeout()), (timed_out(secs(30)), true), "{protocol:?}");
        let last = error.into_last().unwrap();
        assert_eq!((last.is_timeout(), last.verdict()), (true, Verdict::Transient));
        assert_eq!(reading.ends.take(), [End::TimedOut]);
    }
}

#[tokio::test]
async fn a_stream_of_events_may_rest() {
    for protocol in [Http1, Http2] {
        let clock = Clock::manual();
        let headers = &[("content-type", "text/event-stream")];
        let mut reading = Reading::begin_on(&clock, protocol, &Context::new(), headers).await;
        for _ in 0..3 {
            let mut waiting = tokio_test::task::spawn(reading.response.chunk());
            assert!(waiting.poll().is_pending());
            assert_eq!(clock.sleepers(), 0);
            clock.advance(secs(3600));
            assert!(!waiting.is_woken());
            reading.trickle.send("data: 7");
            assert_eq!(waiting.await.unwrap().unwrap(), "data: 7");
        }
    }
}

#[tokio::test]
async fn a_dropped_body_frees_its_socket() {
    for protocol in [Http1, Http2] {
        let reading = Reading::begin(protocol, &Context::new()).await;
        assert_eq!(reading.server.open(), 1);
        drop(reading.response);
        assert_eq!(reading.ends.take(), [End::Dropped]);
        until(|| reading.trickle.is_given_up()).await;
        assert_eq!(reading.clock.sleepers(), 0);
        if protocol == Http1 {
            until(|| reading.server.open() == 0).await;
        }
    }
}

#[tokio::test]
async fn a_body_that_breaks_off_is_a_late_failure() {
    for protocol in [Http1, Http2] {
        let mut reading = Reading::begin(protocol, &Context::new()).await;
        reading.trickle.clone().fail();
        let error = Error::from(reading.response.chunk().await.unwrap_err());
        assert_eq!((error.kind(), error.verdict()), (Kind::Failed, Verdict::Transient));
        let mut cause: Option<&dyn std::error::Error> = error.last().map(|last| last as _);
        while let Some(inner) = cause.filter(|cause| !cause.is::<hyper::Error>()) {
            cause = inner.source();
        }
        assert!(cause.is_some(), "the error of hyper is lost");
        assert_eq!(reading.ends.take(), [End::Failed]);
    }
}

#[tokio::test]
async fn a_response_that_is_retried_ends_its_tail() {
    let server = Server::quick(Http1, |n| reply(if n == 1 { 503 } else { 200 }, "x")).await;
    let ends = Ends::default();
    let http = client(Http1, &Clock::manual(), (Retry::immediate(), ends.clone()));
    let response = http.get(server.url()).send().await.unwrap();
    assert_eq!(ends.take(), [End::Dropped]);
    response.bytes().await.unwrap();
    assert_eq!(ends.take(), [End::Complete]);
}

#[tokio::test]
async fn a_finished_body_holds_nothing() {
    let clock = Clock::manual();
    let (server, trickle) = trickling(Http1, &[]).await;
    let billing = executor(&clock, ());
    let http = steadfast::reqwest::Client::new(plain(Http1), billing.clone());
    let mut response = http.get(server.url()).send().await.unwrap();
    assert!(tokio_test::task::spawn(response.chunk()).poll().is_pending());
    assert_eq!((billing.waiting(), clock.sleepers()), (1, 1));
    drop(trickle);
    assert!(response.chunk().await.unwrap().is_none());
    assert_eq!((billing.waiting(), clock.sleepers()), (0, 0), "while the response is still held");
}
