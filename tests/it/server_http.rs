//! The layers in front of real servers, hyper and axum, over HTTP/1 and HTTP/2: what clients see, and what they leave behind.

#![expect(clippy::unwrap_used, reason = "the helpers of a test may say in one word that something went wrong")]

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::routing::get;
use http::Request;
use hyper::body::Incoming;
use steadfast::clock::Clock;
use steadfast::limit::BulkheadConfig;
use steadfast::server::{DeadlineLayer, Key, RateLimitLayer};
use steadfast::{Bulkhead, Context, Keyed};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tower::Layer;

use crate::reqwest_server::{Http1, Http2, plain, settle, until};
use crate::server_support::{
    Handler, TIMEOUT, answers, bulkhead_layer, data, deadline_layer, hello, rate_limit, serve, slow_rate, stream,
};
use crate::support::secs;

fn retry_after(response: &reqwest::Response) -> Option<&str> {
    response.headers().get("retry-after").map(|value| value.to_str().unwrap())
}

#[tokio::test]
async fn refusals_reach_the_client_and_its_connection_is_kept() {
    for protocol in [Http1, Http2] {
        let clock = Clock::manual();
        let handler = Handler::default();
        let limits = Keyed::new(slow_rate());
        let layer = RateLimitLayer::new(limits, Key::peer()).clock(&clock);
        let server = serve(protocol, layer.layer(handler.clone())).await;
        let client = plain(protocol);
        for (status, again) in [(200, None), (429, Some("1")), (429, Some("1"))] {
            let response = client.post(server.url()).body("some").send().await.unwrap();
            assert_eq!((response.status().as_u16(), retry_after(&response)), (status, again), "{protocol:?}");
            let expected = if status == 200 { "hello" } else { "" };
            assert_eq!(response.text().await.unwrap(), expected, "{protocol:?}");
        }
        clock.advance(secs(1));
        assert_eq!(client.get(server.url()).send().await.unwrap().text().await.unwrap(), "hello");
        assert_eq!((handler.calls(), server.accepted()), (2, 1), "{protocol:?}");
    }
}

#[tokio::test]
async fn a_client_that_disconnects_leaves_the_queue_at_once() {
    for protocol in [Http1, Http2] {
        let clock = Clock::manual();
        let bulkhead = Bulkhead::with(BulkheadConfig::new(1).queue(5).max_wait(secs(60)));
        let held = bulkhead.try_acquire().unwrap();
        let (limits, layer) = rate_limit(&clock, slow_rate().max_wait(secs(60)));
        limits.get("").bind(&clock).unwrap();
        limits.get("").try_acquire().unwrap();
        let handler = Handler::default();
        let by_bulkhead = serve(protocol, bulkhead_layer(&clock, &bulkhead).layer(handler.clone())).await;
        let by_rate = serve(protocol, layer.layer(handler.clone())).await;
        let queued = || (bulkhead.queued(), limits.peek("").unwrap().queued());

        let (one, other) = (plain(protocol), plain(protocol));
        let leaves = [tokio::spawn(one.get(by_bulkhead.url()).send()), tokio::spawn(one.get(by_rate.url()).send())];
        until(|| queued() == (1, 1)).await;
        let stays = [tokio::spawn(other.get(by_bulkhead.url()).send()), tokio::spawn(other.get(by_rate.url()).send())];
        until(|| queued() == (2, 2)).await;
        leaves.iter().for_each(tokio::task::JoinHandle::abort);
        until(|| queued() == (1, 1)).await;
        // The place of the one that left goes to the one behind it.
        drop(held);
        clock.advance(secs(1));
        for stays in stays {
            assert_eq!(stays.await.unwrap().unwrap().text().await.unwrap(), "hello", "{protocol:?}");
        }
        until(|| bulkhead.in_flight() == 0).await;
        assert_eq!((queued(), handler.calls()), ((0, 0), 2), "{protocol:?}: who left is not served");
    }
}

#[tokio::test]
async fn a_permit_is_held_to_the_end_of_the_body_on_the_wire() {
    for protocol in [Http1, Http2] {
        let clock = Clock::manual();
        let bulkhead = Bulkhead::new(1);
        let senders = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&senders);
        let inner = answers(move |_: Request<Incoming>| {
            let (sender, response) = stream();
            kept.lock().unwrap().push(sender);
            std::future::ready(response)
        });
        let server = serve(protocol, bulkhead_layer(&clock, &bulkhead).layer(inner)).await;
        let client = plain(protocol);
        let last = || senders.lock().unwrap().last().unwrap().clone();

        // Read to its end.
        let mut response = client.get(server.url()).send().await.unwrap();
        last().unbounded_send(data("begin")).unwrap();
        assert_eq!(response.chunk().await.unwrap().unwrap(), "begin");
        settle().await;
        assert_eq!(bulkhead.in_flight(), 1, "{protocol:?}");
        let refused = plain(protocol).get(server.url()).send().await.unwrap();
        assert_eq!((refused.status().as_u16(), retry_after(&refused)), (503, Some("1")), "{protocol:?}");
        senders.lock().unwrap().clear();
        assert_eq!(response.bytes().await.unwrap(), "");
        until(|| bulkhead.in_flight() == 0).await;

        // Dropped by its client.
        let response = client.get(server.url()).send().await.unwrap();
        assert_eq!(bulkhead.in_flight(), 1, "{protocol:?}");
        drop(response);
        until(|| bulkhead.in_flight() == 0).await;
        assert!(last().is_closed(), "{protocol:?}: and the handler's body is gone");

        // An answer to HEAD.
        let response = client.head(server.url()).send().await.unwrap();
        until(|| bulkhead.in_flight() == 0).await;
        assert_eq!(response.status(), 200);
    }
}

#[tokio::test]
async fn a_deadline_answers_504_and_a_client_that_leaves_cancels_the_context() {
    for protocol in [Http1, Http2] {
        let clock = Clock::manual();
        let told = Arc::new(Mutex::new(Vec::<Context>::new()));
        let noted = Arc::clone(&told);
        let inner = answers(move |request: Request<Incoming>| {
            noted.lock().unwrap().push(request.extensions().get::<Context>().unwrap().clone());
            std::future::pending()
        });
        let server = serve(protocol, deadline_layer(&clock).layer(inner)).await;
        let client = plain(protocol);
        let asked = |n| told.lock().unwrap().len() == n;

        let late = tokio::spawn(client.get(server.url()).header(TIMEOUT, "3").send());
        until(|| asked(1) && clock.sleepers() == 1).await;
        clock.advance(secs(3));
        assert_eq!(late.await.unwrap().unwrap().status(), 504, "{protocol:?}");

        let leaves = tokio::spawn(client.get(server.url()).send());
        until(|| asked(2)).await;
        let cx = told.lock().unwrap().last().unwrap().clone();
        assert!(!cx.token().unwrap().is_cancelled());
        leaves.abort();
        // What a handler has spawned with it ends.
        cx.token().unwrap().cancelled().await;
    }
}

#[tokio::test]
async fn axum_takes_the_layers_and_knows_its_peers() {
    let clock = Clock::manual();
    let bulkhead = Bulkhead::new(10);
    let rate_limit = RateLimitLayer::new(Keyed::new(slow_rate()), Key::connect_info()).clock(&clock);
    let deadline = DeadlineLayer::new().default_limit(secs(10)).clock(&clock);
    let handler =
        |axum::Extension(cx): axum::Extension<Context>| async move { format!("{:?}", cx.remaining().unwrap()) };
    let app = Router::new().route("/", get(handler));
    let app = app.layer(bulkhead_layer(&clock, &bulkhead)).layer(rate_limit).layer(deadline);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let service = app.into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async move { axum::serve(listener, service).await });

    for protocol in [Http1, Http2] {
        let response = plain(protocol).get(&url).send().await.unwrap();
        assert_eq!((response.status().as_u16(), response.text().await.unwrap().as_str()), (200, "10s"), "{protocol:?}");
        // Another connection, and the same peer.
        let refused = plain(protocol).get(&url).send().await.unwrap();
        assert_eq!((refused.status().as_u16(), retry_after(&refused)), (429, Some("1")), "{protocol:?}");
        clock.advance(secs(1));
    }
    until(|| bulkhead.in_flight() == 0).await;
}

#[tokio::test]
async fn an_upgraded_connection_holds_no_permit() {
    let clock = Clock::manual();
    let bulkhead = Bulkhead::new(1);
    let handler = |mut request: axum::extract::Request| async move {
        let upgrade = hyper::upgrade::on(&mut request);
        tokio::spawn(async move {
            let mut io = hyper_util::rt::TokioIo::new(upgrade.await.unwrap());
            let mut ping = [0; 4];
            io.read_exact(&mut ping).await.unwrap();
            io.write_all(b"pong").await.unwrap();
        });
        let mut response = http::Response::new(axum::body::Body::empty());
        *response.status_mut() = http::StatusCode::SWITCHING_PROTOCOLS;
        response.headers_mut().insert("connection", http::HeaderValue::from_static("upgrade"));
        response.headers_mut().insert("upgrade", http::HeaderValue::from_static("ping"));
        response
    };
    let app = Router::new().route("/", get(handler)).layer(bulkhead_layer(&clock, &bulkhead));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });

    let mut connection = TcpStream::connect(address).await.unwrap();
    connection.write_all(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: ping\r\n\r\n").await.unwrap();
    let head = crate::reqwest_server::read_head(&mut connection).await;
    assert!(head.starts_with("http/1.1 101"), "{head}");
    assert_eq!(bulkhead.in_flight(), 0, "as documented");
    connection.write_all(b"ping").await.unwrap();
    let mut pong = [0; 4];
    connection.read_exact(&mut pong).await.unwrap();
    assert_eq!(&pong, b"pong");
}

#[tokio::test]
async fn a_client_that_leaves_in_the_middle_of_an_upload_is_noticed_by_its_reader() {
    use http_body_util::BodyExt as _;
    let clock = Clock::manual();
    let bulkhead = Bulkhead::new(1);
    let inner = answers(|request: Request<Incoming>| async {
        let _ = request.into_body().collect().await;
        hello()
    });
    let server = serve(Http1, bulkhead_layer(&clock, &bulkhead).layer(inner)).await;
    let mut connection = TcpStream::connect(server.address()).await.unwrap();
    connection.write_all(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\nhalf").await.unwrap();
    until(|| bulkhead.in_flight() == 1).await;
    drop(connection);
    until(|| bulkhead.in_flight() == 0).await;
}
