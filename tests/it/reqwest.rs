//! Requests through a chain: what is sent, how often, and what comes of it. Real servers; time is the manual clock's.

use std::time::Duration;

use http::Method;
use steadfast::clock::Clock;
use steadfast::reqwest::{Client, Error, RequestBuilderExt, ResponseExt};
use steadfast::{Classified, Context, Executor, Hedge, Retry, Timeout, Verdict};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::reqwest_server::{Http1, Http2, Server, client, executor, plain, read_request, reply, until};
use crate::support::{secs, timed_out};

type Sent = tokio::task::JoinHandle<Result<::reqwest::Response, Error>>;

fn send(http: &Client, method: Method, server: &Server) -> Sent {
    tokio::spawn(http.request(method, server.url()).body("7").send())
}

/// The same, with a key if it is `keyed`.
fn send_keyed(http: &Client, method: Method, keyed: bool, server: &Server) -> Sent {
    let request = http.request(method, server.url()).body("7");
    let request = if keyed { request.header("Idempotency-Key", "7e57") } else { request };
    tokio::spawn(request.send())
}

/// The snippet of the documentation, as a program writes it.
#[tokio::test]
async fn json_is_read_from_a_real_response() -> Result<(), Error> {
    let server = Server::quick(Http1, |n| if n == 1 { reply(503, "") } else { reply(200, "[1,2,3]") }).await;
    let billing = Executor::builder("billing")
        .policies((Retry::immediate(), Timeout::new(Duration::from_secs(2))))
        .build()
        .unwrap();
    let url = server.url();

    let http = steadfast::reqwest::Client::new(plain(Http1), billing);
    let report: Vec<u32> = http.get(url).send().await?.json().await?;
    assert_eq!(report, [1, 2, 3]);
    assert_eq!(server.received(), 2);
    Ok(())
}

#[tokio::test]
async fn errors_go_into_anyhow() {
    async fn report(http: &Client, url: String) -> anyhow::Result<Vec<u32>> {
        Ok(http.get(url).send().await?.json().await?)
    }
    let clock = Clock::manual();
    let server = Server::quick(Http1, |_| reply(200, "no json")).await;
    let http = client(Http1, &clock, Retry::immediate());
    let error = report(&http, server.url()).await.unwrap_err();
    assert!(error.downcast_ref::<::reqwest::Error>().unwrap().is_decode());
    let error = report(&http, "http://".to_owned()).await.unwrap_err();
    assert!(error.downcast_ref::<Error>().unwrap().last().unwrap().is_builder());
}

#[tokio::test]
async fn a_plain_request_goes_through_a_chain_too() {
    let clock = Clock::manual();
    let server = Server::quick(Http1, |n| if n == 1 { reply(503, "") } else { reply(200, "there") }).await;
    let search = executor(&clock, Retry::immediate());
    let request = plain(Http1).get(server.url());
    let response = request.send_with(&search, &Context::new()).await.unwrap();
    assert!(response.cancellation().is_some());
    assert_eq!(response.text().await.unwrap(), "there");
    assert_eq!(server.received(), 2);
}

#[tokio::test]
async fn post_retried_after_timeout_no_answer() {
    let policies = (Retry::immediate().max_attempts(3), Timeout::secs(10));
    let cases = [(Method::POST, false, 1), (Method::POST, true, 3), (Method::GET, false, 3)];
    for (protocol, (method, keyed, tries)) in
        [Http1, Http2].into_iter().flat_map(|protocol| cases.clone().map(|case| (protocol, case)))
    {
        let clock = Clock::manual();
        let server = Server::start(protocol, |_| std::future::pending()).await;
        let http = client(protocol, &clock, policies.clone());
        let sent = send_keyed(&http, method.clone(), keyed, &server);
        for n in 1..=tries {
            until(|| server.received() == n && clock.sleepers() > 0).await;
            clock.advance(secs(10));
        }
        let error = sent.await.unwrap().unwrap_err();
        assert_eq!((error.kind(), error.attempts() as usize), (timed_out(secs(10)), tries), "{method}");
        assert_eq!(server.received(), tries, "{method}");
    }
}

/// What waits for an answer that never comes is hedged if it may be sent twice, and its connection closed once it has lost.
#[tokio::test]
async fn a_get_is_hedged_and_the_loser_leaves_no_connection_and_a_post_is_not() {
    for method in [Method::GET, Method::POST] {
        let clock = Clock::manual();
        let server =
            Server::start(
                Http1,
                |n| async move { if n == 1 { std::future::pending().await } else { reply(200, "quick") } },
            );
        let server = server.await;
        let http = client(Http1, &clock, (Hedge::after(secs(1)), Timeout::secs(10)));
        let sent = send(&http, method.clone(), &server);
        until(|| server.received() == 1 && clock.sleepers() > 0).await;
        clock.advance(secs(1));
        if method == Method::GET {
            assert_eq!(sent.await.unwrap().unwrap().text().await.unwrap(), "quick");
            until(|| server.open() == 1).await;
            assert_eq!((server.received(), server.accepted()), (2, 2));
        } else {
            clock.advance(secs(9));
            assert_eq!(sent.await.unwrap().unwrap_err().kind(), timed_out(secs(10)));
            assert_eq!(server.received(), 1);
        }
    }
}

#[tokio::test]
async fn post_retried_after_timeout_reset() {
    for (method, keyed, tries) in
        [(Method::POST, false, 1), (Method::POST, true, 3), (Method::PATCH, false, 1), (Method::GET, false, 3)]
    {
        let clock = Clock::manual();
        // With data left unread a closed socket is a reset one.
        let server = Server::raw(|stream, _| async move { until_whole_request(&stream).await }).await;
        let http = client(Http1, &clock, Retry::immediate().max_attempts(3));
        let error = send_keyed(&http, method.clone(), keyed, &server).await.unwrap().unwrap_err();
        assert_eq!(error.attempts() as usize, tries, "{method}: {error}");
        assert_eq!(server.accepted(), tries, "{method}");
        assert_eq!(error.last().unwrap().verdict(), Verdict::Transient, "{method}");
    }
}

#[tokio::test]
async fn post_retried_after_timeout_503() {
    let cases = [(Http1, Method::POST, 1), (Http1, Method::GET, 3), (Http2, Method::POST, 1), (Http2, Method::GET, 3)];
    for (protocol, method, tries) in cases {
        let clock = Clock::manual();
        let server = Server::quick(protocol, |_| reply(503, "busy")).await;
        let http = client(protocol, &clock, Retry::immediate().max_attempts(3));
        let response = send(&http, method.clone(), &server).await.unwrap().unwrap();
        assert_eq!(response.status(), 503);
        assert_eq!(response.not_repeated().is_some(), method == Method::POST, "{method}");
        assert_eq!(server.received(), tries, "{method}");
    }
}

#[tokio::test]
async fn a_post_is_repeated_with_a_key_by_request_and_after_429() {
    for protocol in [Http1, Http2] {
        let http = client(protocol, &Clock::manual(), Retry::immediate().max_attempts(3));
        let busy = Server::quick(protocol, |_| reply(503, "")).await;
        let keyed = http.post(busy.url()).header("Idempotency-Key", "7e57");
        assert_eq!(keyed.send().await.unwrap().status(), 503);
        assert_eq!(busy.received(), 3, "{protocol:?}");
        assert_eq!(busy.requests()[2].headers["idempotency-key"], "7e57");

        let busy = Server::quick(protocol, |_| reply(503, "")).await;
        http.post(busy.url()).idempotent(true).send().await.unwrap();
        assert_eq!(busy.received(), 3, "{protocol:?}");

        let full = Server::quick(protocol, |n| reply(if n < 3 { 429 } else { 201 }, "")).await;
        assert_eq!(http.post(full.url()).send().await.unwrap().status(), 201);
        assert_eq!(full.received(), 3, "{protocol:?}");
    }
}

#[tokio::test]
async fn connection_closed_before_message() {
    for (method, tries) in [(Method::GET, 2), (Method::POST, 1)] {
        let clock = Clock::manual();
        // The first connection is kept alive after one answer, and closed on the next request; all others answer.
        let server = Server::raw(|mut stream, connection| async move {
            for n in 1.. {
                read_request(&mut stream).await;
                if connection == 1 && n == 2 {
                    return;
                }
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
            }
        })
        .await;
        let http = client(Http1, &clock, Retry::immediate().max_attempts(3));
        assert_eq!(http.get(server.url()).send().await.unwrap().text().await.unwrap(), "ok");

        let answer = send(&http, method.clone(), &server).await.unwrap();
        assert_eq!(server.accepted(), tries, "{method}");
        match answer {
            Ok(response) => assert_eq!((method, response.text().await.unwrap().as_str()), (Method::GET, "ok")),
            Err(error) => assert_eq!((method, error.attempts()), (Method::POST, 1), "{error}"),
        }
    }
}

#[tokio::test]
async fn a_post_that_an_http2_server_has_refused_is_repeated() {
    let cases = [
        (h2::Reason::REFUSED_STREAM, true, Verdict::Transient),
        (h2::Reason::CANCEL, false, Verdict::Transient),
        (h2::Reason::ENHANCE_YOUR_CALM, false, Verdict::Throttled { retry_after: None }),
    ];
    for (reason, repeated, verdict) in cases {
        let server = Server::raw(move |stream, _| async move {
            let mut connection = h2::server::handshake(stream).await.unwrap();
            let mut requests = 0;
            while let Some(Ok((_request, mut respond))) = connection.accept().await {
                requests += 1;
                if requests == 1 {
                    respond.send_reset(reason);
                } else {
                    respond.send_response(http::Response::new(()), true).unwrap();
                }
            }
        })
        .await;
        let http = client(Http2, &Clock::manual(), Retry::immediate().max_attempts(3));
        match http.post(server.url()).body("7").send().await {
            Ok(response) => assert!(repeated && response.status() == 200, "{reason:?}"),
            Err(error) => {
                assert!(!repeated && error.attempts() == 1, "{reason:?}: the server may have acted on it");
                assert_eq!(error.last().unwrap().verdict(), verdict);
            }
        }
    }
}

#[tokio::test]
async fn settings_hold_on_every_attempt() {
    let clock = Clock::manual();
    let server = Server::quick(Http1, |n| reply(if n < 2 { 503 } else { 200 }, "")).await;
    let http = client(Http1, &clock, Retry::immediate());
    let request = http
        .put(server.url())
        .header("x-tenant", "7")
        .bearer_auth("secret")
        .query(&[("page", 3)])
        .form(&[("page", 4)])
        .map(|inner| inner.header("x-more", "1"));
    let response = request.send().await.unwrap();
    assert_eq!(response.url().query(), Some("page=3"));
    let requests = server.requests();
    assert_eq!(requests.len(), 2);
    for request in requests {
        assert_eq!(request.headers["x-tenant"], "7");
        assert_eq!(request.headers["authorization"], "Bearer secret");
        assert_eq!(request.headers["x-more"], "1");
        assert_eq!(request.body, "page=4");
    }
}

#[tokio::test]
async fn a_cancelled_context_sends_nothing() {
    let clock = Clock::manual();
    let server = Server::quick(Http1, |_| reply(200, "")).await;
    let http = client(Http1, &clock, Retry::immediate());
    let token = steadfast::CancellationToken::new();
    token.cancel();
    let cx = Context::new().with_token(token);
    let error = http.get(server.url()).context(&cx).send().await.unwrap_err();
    assert!(error.is_cancelled());
    assert_eq!((server.accepted(), error.attempts()), (0, 0));
}

#[tokio::test]
async fn a_client_needs_no_type_and_can_be_spawned() {
    struct Service {
        http: Client,
    }
    fn is_shareable<T: Send + Sync + Clone + 'static>(_: &T) {}
    let longer = Timeout::with(|attempt| Duration::from_secs(attempt.number().into()));
    let service = Service { http: client(Http1, &Clock::manual(), (Retry::immediate(), longer)) };
    is_shareable(&service.http);
    assert_eq!(format!("{:?}", service.http), r#"Client { executor: "billing", .. }"#);
}

/// Waits until a request with its one byte of body, if any, is there, without taking it.
async fn until_whole_request(stream: &TcpStream) {
    let mut seen = [0; 1024];
    loop {
        let n = stream.peek(&mut seen).await.unwrap_or(0);
        if n == 0 || seen[..n].ends_with(b"\r\n\r\n7") {
            return;
        }
        tokio::task::yield_now().await;
    }
}
