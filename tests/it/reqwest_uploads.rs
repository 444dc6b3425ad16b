//! Request bodies: sent whole each time, or once. Real servers; time is the manual clock's.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use bytes::Bytes;
use futures::channel::mpsc::unbounded;
use futures::{StreamExt, TryStreamExt};
use http::Method;
use reqwest::Body;
use steadfast::clock::Clock;
use steadfast::reqwest::{Client, ResponseExt};
use steadfast::{Retry, Timeout};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

use crate::reqwest_server::{Http1, Http2, Protocol, Received, Server, client, plain, read_head, reply, until};
use crate::support::{secs, timed_out};

fn stream(chunks: &'static [&'static str]) -> Body {
    Body::wrap_stream(futures::stream::iter(chunks.iter().map(|chunk| Ok::<_, io::Error>(*chunk))))
}

async fn busy_twice(protocol: Protocol) -> Server {
    Server::quick(protocol, |n| reply(if n < 3 { 503 } else { 200 }, "")).await
}

fn three_times(protocol: Protocol) -> Client {
    client(protocol, &Clock::manual(), Retry::immediate().max_attempts(3))
}

#[tokio::test]
async fn retry_sends_empty_body() {
    for protocol in [Http1, Http2] {
        let body = Bytes::from((0..=u8::MAX).cycle().take(100_000).collect::<Vec<_>>());
        for (length, sliced) in [(37, false), (100_000, false), (100_000, true)] {
            let server = busy_twice(protocol).await;
            let request = three_times(protocol).slice_uploads(sliced).put(server.url());
            let request = match length {
                37 => request.json(&[("invoice", "7"), ("state", "paid it")]),
                _ => request.body(body.clone()),
            };
            assert_eq!(request.send().await.unwrap().status(), 200);
            let requests = server.requests();
            assert_eq!(requests.len(), 3);
            for request in &requests {
                assert_eq!((request.method.clone(), request.body.len()), (Method::PUT, length), "{protocol:?}");
                assert!(request.body == requests[0].body && (length == 37 || request.body == body));
                assert_eq!(request.headers["content-length"], length.to_string().as_str());
            }
        }
    }
}

#[tokio::test]
async fn a_body_that_is_made_for_each_attempt_can_be_a_stream() {
    for protocol in [Http1, Http2] {
        let server = busy_twice(protocol).await;
        let made = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&made);
        let request = three_times(protocol).put(server.url()).body_with(move || {
            counted.fetch_add(1, SeqCst);
            stream(&["to be ", "continued"])
        });
        let response = request.send().await.unwrap();
        assert_eq!((response.status().as_u16(), response.not_repeated()), (200, None));
        assert_eq!(made.load(SeqCst), 3);
        assert!(server.requests().iter().all(|request| request.body == "to be continued"), "{protocol:?}");
    }
}

#[tokio::test]
async fn a_body_that_is_made_does_not_make_a_post_idempotent() {
    let server = busy_twice(Http1).await;
    let response = three_times(Http1).post(server.url()).body_with(|| "7").send().await.unwrap();
    assert_eq!((response.status().as_u16(), server.received()), (503, 1));
    assert!(response.not_repeated().unwrap().contains("not idempotent"));
}

#[tokio::test]
async fn of_several_bodies_the_last_one_counts() {
    let server = Server::quick(Http1, |_| reply(200, "")).await;
    let http = three_times(Http1);
    http.put(server.url()).body("first").body_with(|| "second").send().await.unwrap();
    http.put(server.url()).body_with(|| "first").body("third").send().await.unwrap();
    http.put(server.url()).body_with(|| "first").json(&4).send().await.unwrap();
    http.put(server.url()).body(stream(&["first"])).body_with(|| "fifth").send().await.unwrap();
    let bodies: Vec<_> = server.requests().into_iter().map(|request| request.body).collect();
    assert_eq!(bodies, ["second", "third", "4", "fifth"]);
}

#[tokio::test]
async fn streaming_body_not_clonable() {
    for protocol in [Http1, Http2] {
        for (status, method) in [(200, Method::POST), (200, Method::PUT), (503, Method::POST), (503, Method::PUT)] {
            let server = Server::quick(protocol, move |_| reply(status, "answer")).await;
            let request = three_times(protocol).request(method, server.url()).body(stream(&["to be ", "continued"]));
            let response = request.send().await.unwrap();
            assert_eq!(response.status().as_u16(), status);
            let why = (status == 503).then_some("the request body is a stream, which can be sent only once");
            assert_eq!(response.not_repeated(), why);
            assert_eq!(response.text().await.unwrap(), "answer");
            let requests = server.requests();
            assert_eq!((requests.len(), &requests[0].body), (1, &Bytes::from("to be continued")), "{protocol:?}");
        }
    }
}

fn form() -> reqwest::multipart::Form {
    let film = reqwest::multipart::Part::stream(stream(&["to be ", "continued"]));
    reqwest::multipart::Form::new().text("title", "seven").part("film", film)
}

#[tokio::test]
async fn streaming_body_not_clonable_multipart() {
    for protocol in [Http1, Http2] {
        for (status, method) in [(200, Method::POST), (200, Method::PUT), (503, Method::POST), (503, Method::PUT)] {
            let server = Server::quick(protocol, move |_| reply(status, "answer")).await;
            let request = three_times(protocol).request(method.clone(), server.url());
            let response = request.map(|inner| inner.multipart(form())).send().await.unwrap();
            assert_eq!(response.status().as_u16(), status, "{protocol:?} {method}");
            let why = (status == 503).then_some("the request body is a stream, which can be sent only once");
            assert_eq!(response.not_repeated(), why, "{protocol:?} {method}");
            assert_eq!(response.text().await.unwrap(), "answer");
            let requests = server.requests();
            assert_eq!(requests.len(), 1, "{protocol:?} {method}");
            assert_is_form(&requests[0]);
        }
    }
}

fn assert_is_form(request: &Received) {
    let kind = request.headers["content-type"].to_str().unwrap();
    let boundary = kind.strip_prefix("multipart/form-data; boundary=").unwrap();
    let text = std::str::from_utf8(&request.body).unwrap();
    assert!(text.starts_with(&format!("--{boundary}\r\n")) && text.ends_with(&format!("--{boundary}--\r\n")), "{text}");
    assert!(text.contains("\r\nseven\r\n") && text.contains("\r\nto be continued\r\n"), "{text}");
}

/// As the documentation of `body_with` says.
#[tokio::test]
async fn a_form_that_is_put_together_before_is_sent_again() {
    for protocol in [Http1, Http2] {
        let server = busy_twice(protocol).await;
        let form = form();
        let kind = format!("multipart/form-data; boundary={}", form.boundary());
        let chunks: Vec<Bytes> = form.into_stream().try_collect().await.unwrap();
        let request = three_times(protocol).put(server.url()).header("content-type", kind).body(chunks.concat());
        assert_eq!(request.send().await.unwrap().status(), 200);
        let requests = server.requests();
        assert_eq!(requests.len(), 3, "{protocol:?}");
        requests.iter().for_each(assert_is_form);
        assert!(requests.iter().all(|request| request.body == requests[0].body));
    }
}

async fn read_up_to(stream: &mut TcpStream, most: usize) -> usize {
    let (mut n, mut buffer) = (0, vec![0; 64 << 10]);
    while n < most {
        let room = buffer.len().min(most - n);
        match stream.read(&mut buffer[..room]).await {
            Ok(0) | Err(_) => break,
            Ok(read) => n += read,
        }
    }
    n
}

#[tokio::test]
async fn replay_duplicates_first_chunk() {
    for run in 0..20 {
        // The first stream is refused before any of its body has come.
        let (bodies, mut accepted) = unbounded();
        let server = Server::raw(move |stream, _| {
            let bodies = bodies.clone();
            async move {
                let mut connection = h2::server::handshake(stream).await.unwrap();
                let mut requests = 0;
                while let Some(Ok((request, mut respond))) = connection.accept().await {
                    requests += 1;
                    if requests == 1 {
                        respond.send_reset(h2::Reason::REFUSED_STREAM);
                        continue;
                    }
                    let bodies = bodies.clone();
                    tokio::spawn(async move {
                        let (mut body, mut read) = (request.into_body(), Vec::new());
                        while let Some(Ok(data)) = body.data().await {
                            let _ = body.flow_control().release_capacity(data.len());
                            read.extend(data);
                        }
                        bodies.unbounded_send(read).unwrap();
                        respond.send_response(http::Response::new(()), true).unwrap();
                    });
                }
            }
        })
        .await;
        // What is sent comes late: after the refusal, and for the attempt that is running then.
        let late = Arc::new(std::sync::Mutex::new(Vec::new()));
        let senders = Arc::clone(&late);
        let request = three_times(Http2).put(server.url()).body_with(move || {
            let (sender, receiver) = unbounded::<io::Result<&str>>();
            senders.lock().unwrap().push(sender);
            Body::wrap_stream(receiver)
        });
        let sent = tokio::spawn(request.send());
        until(|| late.lock().unwrap().len() == 2).await;
        for sender in late.lock().unwrap().drain(..) {
            let _ = sender.unbounded_send(Ok("once "));
            let _ = sender.unbounded_send(Ok("and whole"));
        }
        assert_eq!(sent.await.unwrap().unwrap().status(), 200, "run {run}");
        assert_eq!(accepted.next().await.unwrap(), b"once and whole");
    }
}

#[tokio::test]
async fn replay_buffer_unbounded() {
    const CHUNK: usize = 64 << 10;
    for retries in [true, false] {
        let alive = Arc::new(AtomicUsize::new(0));
        let most = Arc::new(AtomicUsize::new(0));
        let server = Server::raw({
            move |mut stream, _| async move {
                use tokio::io::AsyncWriteExt;
                let head = read_head(&mut stream).await;
                assert!(head.contains("transfer-encoding: chunked"), "{head}");
                // The last chunk is empty.
                let (mut n, mut end, mut buffer) = (0, Vec::new(), vec![0; 64 << 10]);
                while !end.ends_with(b"\r\n0\r\n\r\n") {
                    let read = stream.read(&mut buffer).await.unwrap();
                    n += read;
                    end.extend(&buffer[..read]);
                    end.drain(..end.len().saturating_sub(7));
                }
                assert!(n > 10 << 20, "all of it");
                let _ = stream.write_all(b"HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n").await;
            }
        })
        .await;
        // Each chunk counts for as long as anybody holds it.
        let chunks = futures::stream::iter(0..160).map({
            let (alive, most) = (Arc::clone(&alive), Arc::clone(&most));
            move |_| {
                let now = alive.fetch_add(1, SeqCst) + 1;
                most.fetch_max(now, SeqCst);
                Ok::<_, io::Error>(Bytes::from_owner(Counted(vec![7; CHUNK], Arc::clone(&alive))))
            }
        });
        let retry = retries.then(|| Retry::immediate().max_attempts(3));
        let http = client(Http1, &Clock::manual(), retry);
        let response = http.put(server.url()).body(Body::wrap_stream(chunks)).send().await.unwrap();
        assert_eq!((response.status().as_u16(), server.accepted()), (503, 1));
        assert_eq!(response.not_repeated().is_some(), retries);
        // What is held is in the buffer of the connection, on its way to the socket; nothing is kept for another attempt.
        assert!(most.load(SeqCst) <= 16, "{} chunks were held at once", most.load(SeqCst));
        until(|| alive.load(SeqCst) == 0).await;
    }
}

struct Counted(Vec<u8>, Arc<AtomicUsize>);

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.1.fetch_sub(1, SeqCst);
    }
}

#[tokio::test]
async fn an_upload_in_slices_breaks_off_when_its_request_is_given_up() {
    const SIZE: usize = 32 << 20;
    for sliced in [true, false] {
        let (go, wait) = tokio::sync::watch::channel(false);
        let delivered = Arc::new(AtomicUsize::new(0));
        let (seen, is_over) = (Arc::clone(&delivered), Arc::new(AtomicUsize::new(0)));
        let over = Arc::clone(&is_over);
        let server = Server::raw(move |mut stream, _| {
            let (mut wait, seen, over) = (wait.clone(), Arc::clone(&seen), Arc::clone(&over));
            async move {
                read_head(&mut stream).await;
                wait.wait_for(|go| *go).await.unwrap();
                seen.store(read_up_to(&mut stream, SIZE).await, SeqCst);
                over.store(1, SeqCst);
            }
        })
        .await;
        let clock = Clock::manual();
        let http = client(Http1, &clock, Timeout::secs(1)).slice_uploads(sliced);
        let sent = tokio::spawn(http.put(server.url()).body(vec![7; SIZE]).send());
        until(|| server.accepted() == 1 && clock.sleepers() == 1).await;
        crate::reqwest_server::settle().await;
        clock.advance(secs(1));
        assert_eq!(sent.await.unwrap().unwrap_err().kind(), timed_out(secs(1)));
        crate::reqwest_server::settle().await;
        go.send(true).unwrap();
        until(|| is_over.load(SeqCst) == 1).await;
        let delivered = delivered.load(SeqCst);
        assert_eq!(delivered < SIZE, sliced, "{delivered} bytes were delivered");
    }
}

/// Settings of the request that reqwest keeps outside of its headers.
#[tokio::test(start_paused = true)]
async fn the_timeout_of_a_request_holds_on_every_attempt() {
    let server = Server::start(Http1, |_| std::future::pending()).await;
    let api = steadfast::Executor::builder("api").policies(Retry::immediate().max_attempts(3)).build().unwrap();
    let http = Client::new(plain(Http1), api);
    // The paused clock of tokio moves on when only sockets are waited for.
    let error = http.get(server.url()).timeout(Duration::from_secs(5)).send().await.unwrap_err();
    assert_eq!(error.attempts(), 3);
    assert!(error.last().unwrap().is_timeout());
}
