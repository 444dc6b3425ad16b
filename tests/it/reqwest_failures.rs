//! What goes wrong, and what a user sees of it: the table of judged failures in the documentation of the module, line by
//! line. Real servers; time is the manual clock's.

use std::io;
use std::sync::Arc;

use http::{Method, StatusCode};
use reqwest::{Body, Response};
use steadfast::clock::Clock;
use steadfast::error::{BoxError, Kind, Limit};
use steadfast::reqwest::{Client, Error, ResponseExt};
use steadfast::{Breaker, Classified, Retry, Verdict};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::reqwest_server::{
    Http1, Http2, Protocol, Server, client, executor, read_request, reply, reply_with, settle, trickling,
    until_request_is_there,
};
use crate::support::exhausted;

const METHODS: [Method; 2] = [Method::GET, Method::POST];

fn three_times(protocol: Protocol) -> Client {
    client(protocol, &Clock::manual(), Retry::immediate().max_attempts(3))
}

async fn fails(http: &Client, method: &Method, url: &str) -> Error {
    http.request(method.clone(), url).body("7").send().await.unwrap_err()
}

/// The error as `anyhow` prints it, with its causes.
fn shown(error: impl std::error::Error + Send + Sync + 'static) -> String {
    format!("{:#}", anyhow::Error::from(error)).to_lowercase()
}

/// A failure of the operation itself that was worth all attempts, or only one, because the request may have been acted on.
fn assert_transient(error: &Error, attempts: u32) {
    let kind = if attempts > 1 { exhausted(Limit::Attempts) } else { Kind::Failed };
    assert_eq!((error.kind(), error.attempts()), (kind, attempts), "{error:?}");
    assert_eq!(error.last().unwrap().verdict(), Verdict::Transient, "{error:?}");
}

fn tries(method: &Method) -> u32 {
    if method == Method::POST { 1 } else { 3 }
}

#[tokio::test]
async fn wrapped_client_error_source_of_name_resolution() {
    struct Down;
    impl ::reqwest::dns::Resolve for Down {
        fn resolve(&self, _: ::reqwest::dns::Name) -> ::reqwest::dns::Resolving {
            Box::pin(async { Err(io::Error::other(io::Error::new(io::ErrorKind::TimedOut, "no name server")).into()) })
        }
    }
    let settings = || ::reqwest::Client::builder().no_proxy().dns_resolver(Arc::new(Down));
    for settings in [settings(), settings().http2_prior_knowledge()] {
        let retry = Retry::immediate().max_attempts(3);
        let http = Client::build(settings, executor(&Clock::manual(), retry)).unwrap();
        for method in METHODS {
            let error = fails(&http, &method, "http://billing.example/").await;
            assert_transient(&error, 3);
            assert!(error.last().unwrap().is_connect());
            assert!(shown(error).ends_with("no name server"));
        }
    }
}

/// By the resolver of the system. The name can be looked up nowhere: its first label is longer than DNS allows.
#[tokio::test]
async fn wrapped_client_error_source_of_a_name_that_does_not_exist() {
    let nowhere = format!("http://{}.invalid/", "x".repeat(64));
    for protocol in [Http1, Http2] {
        for method in METHODS {
            let breaker = Breaker::default();
            let policies = (Retry::immediate().max_attempts(3), breaker.clone());
            let error = fails(&client(protocol, &Clock::manual(), policies), &method, &nowhere).await;
            assert_transient(&error, 3);
            assert!(error.last().unwrap().is_connect(), "{error:?}");
            assert_eq!(breaker.counts().failures, 3, "nothing was sent, so a POST is tried again too");
            let line = error.to_string();
            assert!(line.contains("error sending request for url (http://xxx"), "{line}");
            let shown = shown(error);
            assert!(shown.contains("dns error"), "{shown}");
        }
    }
}

#[tokio::test]
async fn a_refused_connection() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let nobody = format!("http://{}/", listener.local_addr().unwrap());
    drop(listener);
    for protocol in [Http1, Http2] {
        for method in METHODS {
            let error = fails(&three_times(protocol), &method, &nobody).await;
            assert_transient(&error, 3);
            let line = error.to_string();
            assert!(line.starts_with("billing: gave up: no attempts left (after 3 attempts; last error: "), "{line}");
            assert!(shown(error).contains("connection refused"));
        }
    }
}

/// What rustls finds wrong reaches reqwest as an `io::Error` within another one. Here a layer of the connector says its words;
/// real handshakes are in a package of their own (`tests/tls`), which not everyone has to build.
#[tokio::test]
async fn a_failed_tls_handshake() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let nobody = format!("http://{}/", listener.local_addr().unwrap());
    drop(listener);
    for words in ["invalid peer certificate: UnknownIssuer", "received corrupt message of type InvalidContentType"] {
        let layer = tower::util::MapErrLayer::new(move |_: BoxError| -> BoxError {
            io::Error::other(io::Error::new(io::ErrorKind::InvalidData, words)).into()
        });
        let settings = || ::reqwest::Client::builder().no_proxy().connector_layer(layer.clone());
        for settings in [settings(), settings().http2_prior_knowledge()] {
            let breaker = Breaker::default();
            let policies = (Retry::immediate().max_attempts(3), breaker.clone());
            let http = Client::build(settings, executor(&Clock::manual(), policies)).unwrap();
            let error = http.get(&nobody).send().await.unwrap_err();
            assert_eq!((error.kind(), error.attempts()), (Kind::Failed, 1), "it would fail again");
            assert_eq!(error.last().unwrap().verdict(), Verdict::Permanent);
            assert_eq!(breaker.counts().failures, 0);
            assert!(shown(error).ends_with(&words.to_lowercase()));
        }
    }
}

#[tokio::test]
async fn a_reset_before_the_headers() {
    for method in METHODS {
        // With data left unread a closed socket is a reset one.
        let server = Server::raw(|stream, _| async move {
            let mut seen = [0; 1024];
            while !seen.ends_with(b"7") && stream.peek(&mut seen).await.unwrap_or(0) < 40 {
                tokio::task::yield_now().await;
            }
        })
        .await;
        let error = fails(&three_times(Http1), &method, &server.url()).await;
        assert_transient(&error, tries(&method));
        assert_eq!(server.accepted(), tries(&method) as usize);
        let shown = shown(error);
        assert!(shown.contains("connection reset") || shown.contains("connection closed"), "{shown}");
    }
    for method in METHODS {
        // The connection is gone after the request was accepted.
        let server = Server::raw(|stream, _| async move {
            let mut connection = h2::server::handshake(stream).await.unwrap();
            let _request = connection.accept().await;
        })
        .await;
        let error = fails(&three_times(Http2), &method, &server.url()).await;
        assert_transient(&error, tries(&method));
        assert_eq!(server.accepted(), tries(&method) as usize);
    }
}

#[tokio::test]
async fn a_reset_after_the_headers() {
    for protocol in [Http1, Http2] {
        let (server, trickle) = trickling(protocol, &[]).await;
        let breaker = Breaker::default();
        let http = client(protocol, &Clock::manual(), (Retry::immediate(), breaker.clone()));
        let mut response = http.get(server.url()).send().await.unwrap();
        trickle.send("half");
        assert_eq!(response.chunk().await.unwrap().unwrap(), "half");
        trickle.fail();
        let error = Error::from(response.chunk().await.unwrap_err());
        assert_eq!((error.kind(), error.verdict()), (Kind::Failed, Verdict::Transient), "{error:?}");
        assert_eq!(server.received(), 1, "what the caller reads is not asked for again");
        assert_eq!((breaker.counts().calls, breaker.counts().failures), (2, 1), "a late failure");
        let shown = shown(error);
        let expected = if protocol == Http1 { "error reading a body from connection" } else { "stream error received" };
        assert!(shown.contains(expected), "{shown}");
    }
}

#[tokio::test]
async fn a_truncated_body() {
    let answers: [&[u8]; 2] = [
        b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n12345",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\n12345\r\n",
    ];
    for answer in answers {
        let server = Server::raw(move |mut stream, _| async move {
            read_request(&mut stream).await;
            let _ = stream.write_all(answer).await;
        })
        .await;
        let response = three_times(Http1).get(server.url()).send().await.unwrap();
        let error = Error::from(response.text().await.unwrap_err());
        assert_eq!((error.kind(), error.verdict()), (Kind::Failed, Verdict::Transient), "{error:?}");
        let shown = shown(error);
        assert!(
            shown.contains("end of file before message length reached") || shown.contains("unexpected eof"),
            "{shown}"
        );
    }
    // Over HTTP/2 there is an end, but not the announced length.
    let server = Server::raw(|stream, _| async move {
        let mut connection = h2::server::handshake(stream).await.unwrap();
        while let Some(Ok((_, mut respond))) = connection.accept().await {
            let answer = http::Response::builder().header("content-length", "10").body(()).unwrap();
            let mut body = respond.send_response(answer, false).unwrap();
            body.send_data("12345".into(), true).unwrap();
        }
    })
    .await;
    let response = three_times(Http2).get(server.url()).send().await.unwrap();
    let error = Error::from(response.text().await.unwrap_err());
    assert_eq!((error.kind(), error.verdict()), (Kind::Failed, Verdict::Transient), "{error:?}");
}

#[tokio::test]
async fn wrapped_client_error_source_redirect_loop() {
    for protocol in [Http1, Http2] {
        for method in METHODS {
            // 307 asks for the same method and the same body at another place.
            let around = Server::quick(protocol, |_| reply_with(307, "location", "/again")).await;
            let breaker = Breaker::default();
            let policies = (Retry::immediate().max_attempts(3), breaker.clone());
            let error = fails(&client(protocol, &Clock::manual(), policies), &method, &around.url()).await;
            assert!(error.last().unwrap().is_redirect());
            assert_eq!((error.kind(), error.attempts()), (Kind::Failed, 1), "{protocol:?} {method}");
            assert_eq!((error.verdict(), error.last().unwrap().verdict()), (Verdict::Permanent, Verdict::Permanent));
            let counts = breaker.counts();
            assert_eq!((counts.calls, counts.failures), (1, 0), "{protocol:?} {method}: it answers");
            assert!(around.requests().iter().all(|request| request.method == method && request.body == "7"));
            assert!(shown(error).contains("too many redirects"));
        }
    }
}

#[tokio::test]
async fn wrapped_client_error_source_bad_url() {
    for protocol in [Http1, Http2] {
        for method in METHODS {
            let breaker = Breaker::default();
            let policies = (Retry::immediate().max_attempts(3), breaker.clone());
            let http = client(protocol, &Clock::manual(), policies);
            // The last two are seen only when they are sent.
            for bad in ["not a url", "http://", "http://[::1/", "ftp://billing.example/", "unix:/run/billing"] {
                let error = fails(&http, &method, bad).await;
                let last = error.last().unwrap();
                assert!(last.is_builder(), "{bad}: {last:?}");
                assert_eq!((error.kind(), error.attempts() <= 1), (Kind::Failed, true), "{method} {bad}");
                assert_eq!((error.verdict(), last.verdict()), (Verdict::Ignored, Verdict::Ignored), "{method} {bad}");
                assert!(shown(error).starts_with("b"), "builder error, or billing: builder error");
            }
            assert_eq!(
                (breaker.counts().calls, breaker.counts().failures),
                (0, 0),
                "{protocol:?}: of no server's making"
            );
        }
    }
}

#[tokio::test]
async fn wrapped_client_error_source_builder_and_decoding() {
    for protocol in [Http1, Http2] {
        let http = three_times(protocol);
        let error = http.get("http://billing.example/").header("x-bad", "\n").send().await.unwrap_err();
        assert_eq!((error.kind(), error.attempts(), error.verdict()), (Kind::Failed, 0, Verdict::Ignored));

        let text = Server::quick(protocol, |_| reply(200, "no json")).await;
        let error = http.get(text.url()).send().await.unwrap().json::<u32>().await.unwrap_err();
        assert_eq!(error.verdict(), Verdict::Permanent);
        assert_eq!(Error::from(error).kind(), Kind::Failed);
        assert_eq!(text.received(), 1);
    }
}

#[tokio::test]
async fn headers_that_are_too_large() {
    let server = Server::raw(|mut stream, _| async move {
        read_request(&mut stream).await;
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nx-large: ").await;
        let _ = stream.write_all(&vec![b'x'; 1 << 20]).await;
        // The client closes it.
        let _ = stream.read_to_end(&mut Vec::new()).await;
    })
    .await;
    let error = three_times(Http1).get(server.url()).send().await.unwrap_err();
    assert_transient(&error, 3);
    assert!(shown(error).contains("message head is too large"));

    // HTTP/2 says it in its own words.
    for (size, words) in [
        (1 << 15, "stream error detected"),
        (1 << 20, r#"excessive load generating behavior (b"too_many_continuations")"#),
    ] {
        let server = Server::quick(Http2, move |_| {
            let mut answer = reply(200, "");
            answer.headers_mut().insert("x-large", "x".repeat(size).parse().unwrap());
            answer
        })
        .await;
        for method in METHODS {
            let error = fails(&three_times(Http2), &method, &server.url()).await;
            assert_transient(&error, tries(&method));
            let shown = shown(error);
            assert!(shown.contains(words), "{size}: {shown}");
        }
    }
}

/// An HTTP/2 server that does `refuse` with its first `n` requests, and answers all others.
async fn http2(n: usize, refuse: fn(&mut h2::server::SendResponse<bytes::Bytes>)) -> Server {
    Server::raw(move |stream, _| async move {
        let mut connection = h2::server::handshake(stream).await.unwrap();
        let mut requests = 0;
        while let Some(Ok((_request, mut respond))) = connection.accept().await {
            requests += 1;
            if requests <= n {
                refuse(&mut respond);
            } else {
                respond.send_response(http::Response::new(()), true).unwrap();
            }
        }
    })
    .await
}

#[tokio::test]
async fn an_http2_stream_that_was_refused() {
    for method in METHODS {
        let server = http2(2, |respond| respond.send_reset(h2::Reason::REFUSED_STREAM)).await;
        let response = three_times(Http2).request(method.clone(), server.url()).body("7").send().await.unwrap();
        assert_eq!((response.status(), server.accepted()), (StatusCode::OK, 1));
        let server = http2(9, |respond| respond.send_reset(h2::Reason::REFUSED_STREAM)).await;
        let error = fails(&three_times(Http2), &method, &server.url()).await;
        assert_transient(&error, 3);
        assert!(shown(error).contains("refused stream"));
    }
}

#[tokio::test]
async fn an_http2_server_that_wants_calm() {
    for method in METHODS {
        let server = http2(9, |respond| respond.send_reset(h2::Reason::ENHANCE_YOUR_CALM)).await;
        let breaker = Breaker::default();
        let policies = (Retry::immediate().max_attempts(3), breaker.clone());
        let error = fails(&client(Http2, &Clock::manual(), policies), &method, &server.url()).await;
        assert_eq!(error.last().unwrap().verdict(), Verdict::Throttled { retry_after: None });
        assert_eq!((error.attempts(), breaker.counts().failures), (tries(&method), 0), "no failure for a breaker");
        assert!(shown(error).contains("excessive load"));
    }
}

#[tokio::test]
async fn an_http2_connection_that_was_closed_with_goaway() {
    for (reason, verdict) in [
        (h2::Reason::NO_ERROR, Verdict::Transient),
        (h2::Reason::ENHANCE_YOUR_CALM, Verdict::Throttled { retry_after: None }),
    ] {
        for method in METHODS {
            // The request is not looked at: what is said holds for all streams from the first on.
            let server = Server::raw(move |stream, _| async move {
                until_request_is_there(&stream).await;
                let mut connection = h2::server::handshake(stream).await.unwrap();
                connection.abrupt_shutdown(reason);
                while let Some(Ok(_)) = connection.accept().await {}
            })
            .await;
            let error = fails(&three_times(Http2), &method, &server.url()).await;
            assert_eq!(error.last().unwrap().verdict(), verdict, "{error:?}");
            assert_eq!((error.attempts(), server.accepted()), (3, 3), "nothing was done, so a POST is sent again");
        }
    }
}

#[tokio::test]
async fn connection_closed_before_message_while_it_was_idle() {
    for method in METHODS {
        let server = Server::raw(|mut stream, _| async move {
            read_request(&mut stream).await;
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
        })
        .await;
        let http = three_times(Http1);
        for connections in 1..=3 {
            let response = http.request(method.clone(), server.url()).body("7").send().await.unwrap();
            assert_eq!((response.status(), server.accepted()), (StatusCode::OK, connections), "{method}");
            drop(response);
            settle().await;
        }
    }
}

#[tokio::test]
async fn connection_closed_before_message_over_http2() {
    // The first connection serves one request and is then closed; the pool may not know yet.
    let server = Server::raw(|stream, number| async move {
        let mut connection = h2::server::handshake(stream).await.unwrap();
        let mut served = 0;
        while let Some(Ok((_request, mut respond))) = connection.accept().await {
            respond.send_response(http::Response::new(()), true).unwrap();
            served += 1;
            if number == 1 && served == 1 {
                connection.graceful_shutdown();
            }
        }
    })
    .await;
    let http = three_times(Http2);
    for method in [Method::GET, Method::GET, Method::POST] {
        let response = http.request(method, server.url()).body("7").send().await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
    }
    assert_eq!(server.accepted(), 2);
}

#[tokio::test]
async fn wrapped_client_error_source_of_the_own_request_body() {
    for protocol in [Http1, Http2] {
        let server = Server::quick(protocol, |_| reply(200, "")).await;
        let breaker = Breaker::default();
        let http = client(protocol, &Clock::manual(), (Retry::immediate(), breaker.clone()));
        let request = http.put(server.url()).body_with(|| {
            let failing =
                futures::stream::iter([Ok("some"), Err(io::Error::new(io::ErrorKind::ConnectionReset, "disk"))]);
            Body::wrap_stream(failing)
        });
        let error = request.send().await.unwrap_err();
        let last = error.last().unwrap();
        assert_eq!((error.attempts(), last.verdict()), (1, Verdict::Ignored), "{protocol:?}: {last:?}");
        assert_eq!(breaker.counts().failures, 0);
    }
}

#[tokio::test]
async fn post_retried_after_timeout_502() {
    for protocol in [Http1, Http2] {
        for (method, key, opt_in, expected) in [
            (Method::GET, false, false, 3),
            (Method::POST, false, false, 1),
            (Method::PATCH, false, false, 1),
            (Method::POST, true, false, 3),
            (Method::POST, false, true, 3),
        ] {
            let server = Server::quick(protocol, |_| reply(502, "bad gateway")).await;
            let mut request = three_times(protocol).request(method.clone(), server.url()).body("7");
            if key {
                request = request.header("Idempotency-Key", "7e57");
            }
            if opt_in {
                request = request.idempotent(true);
            }
            let response: Response = request.send().await.unwrap();
            assert_eq!(server.received(), expected, "{protocol:?} {method}, key: {key}, said so: {opt_in}");
            assert_eq!(response.not_repeated().is_some(), expected == 1);
            assert_eq!(response.text().await.unwrap(), "bad gateway", "the last response can be read");
            assert!(server.requests().iter().all(|request| request.body == "7"));
        }
    }
}

#[tokio::test]
async fn the_retries_of_reqwest_itself_are_off_in_a_client_that_is_built_here() {
    let server = http2(1, |respond| respond.send_reset(h2::Reason::REFUSED_STREAM)).await;
    let settings = || ::reqwest::Client::builder().no_proxy().http2_prior_knowledge();
    let http = Client::build(settings(), executor(&Clock::manual(), ())).unwrap();
    let error = http.get(server.url()).send().await.unwrap_err();
    assert_eq!((error.kind(), error.attempts()), (Kind::Failed, 1));

    // What it is protected from.
    let server = http2(1, |respond| respond.send_reset(h2::Reason::REFUSED_STREAM)).await;
    let hidden = Client::new(settings().build().unwrap(), executor(&Clock::manual(), ()));
    assert_eq!(hidden.get(server.url()).send().await.unwrap().status(), StatusCode::OK);
}

/// HTTP/2 breaks off a response with the words with which it refuses a request. The answer was there, so the request was not refused.
#[tokio::test]
async fn a_post_whose_buffered_answer_is_reset_is_not_sent_again() {
    let server = http2(9, |respond| {
        let mut body = respond.send_response(http::Response::new(()), false).unwrap();
        body.send_data(bytes::Bytes::from_static(b"half"), false).unwrap();
        tokio::spawn(async move {
            // Until the answer is on its way: a reset takes back what is not.
            settle().await;
            body.send_reset(h2::Reason::REFUSED_STREAM);
        });
    })
    .await;
    for (method, attempts) in [(Method::POST, 1), (Method::GET, 3)] {
        let request = three_times(Http2).request(method.clone(), server.url()).body("7").buffered(1_000);
        assert_eq!(request.send().await.unwrap_err().attempts(), attempts, "{method}");
    }
}
