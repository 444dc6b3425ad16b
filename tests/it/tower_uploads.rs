//! Request bodies through the tower layer, to real servers: sent whole each time, or once.

use std::io;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures::StreamExt;
use http::{Request, Response};
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::{Body, Frame, Incoming};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{Client, Error as SendError};
use hyper_util::rt::TokioExecutor;
use steadfast::clock::Clock;
use steadfast::tower::{CloneRequest, Http, Layer, Replay, ResponseExt};
use steadfast::{Executor, Retry};
use tokio::io::AsyncReadExt;
use tower::{Layer as _, ServiceExt};

use crate::reqwest_server::{Http1, Http2, Protocol, Server, read_head, reply};

const CHUNK: usize = 16 << 10;
const UPLOAD: usize = 10 << 20;

type Streamed = UnsyncBoxBody<Bytes, io::Error>;

/// Bytes that tell where they belong.
fn bytes(length: usize) -> Bytes {
    (0..length).map(|at| (at / 7 % 251) as u8).collect()
}

/// A body that is not there before it is asked for.
fn stream(length: usize) -> Streamed {
    let whole = bytes(length);
    let chunks = (0..length.div_ceil(CHUNK)).map(move |n| whole.slice(n * CHUNK..length.min((n + 1) * CHUNK)));
    let chunks = futures::stream::iter(chunks).map(|chunk| Ok(Frame::data(chunk)));
    BodyExt::boxed_unsync(StreamBody::new(chunks))
}

/// hyper's own client, which sends nothing again by itself.
fn client<B>(protocol: Protocol) -> Client<HttpConnector, B>
where
    B: Body + Send,
    B::Data: Send,
{
    let mut builder = Client::builder(TokioExecutor::new());
    builder.retry_canceled_requests(false).http2_only(protocol == Http2).build_http()
}

/// Sends a body three times at most.
async fn put<B>(protocol: Protocol, server: &Server, body: B) -> Result<Response<steadfast::tower::Body<Incoming>>, u32>
where
    B: Body<Data = Bytes> + CloneRequest + Send + Unpin + 'static,
    B::Error: Into<tower::BoxError>,
{
    let clock = Clock::manual();
    let retry = Retry::immediate().max_attempts(3);
    let uploads = Executor::builder("uploads").policies(retry).unbudgeted().clock(&clock).build().unwrap();
    let http = Http::new().unsent_if(SendError::is_connect);
    let service = Layer::new(uploads).protocol(http).typed().layer(client(protocol));
    let request = Request::put(server.url()).body(body).unwrap();
    service.oneshot(request).await.map_err(|error| error.attempts())
}

async fn busy_twice(protocol: Protocol) -> Server {
    Server::quick(protocol, |n| reply(if n < 3 { 503 } else { 200 }, "")).await
}

#[tokio::test]
async fn an_upload_of_10_mib_is_never_repeated_empty_or_truncated() {
    for protocol in [Http1, Http2] {
        // From a stream there is one request, and the answer says why.
        let server = busy_twice(protocol).await;
        let response = put(protocol, &server, Replay::new(stream(UPLOAD))).await.unwrap();
        assert_eq!(response.status(), 503);
        assert!(response.not_repeated().unwrap().contains("longer"), "{:?}", response.not_repeated());
        let requests = server.requests();
        assert!(requests.len() == 1 && requests[0].body == bytes(UPLOAD), "{protocol:?}: {}", requests.len());
        // From memory there are three, all of them whole.
        let server = busy_twice(protocol).await;
        let response = put(protocol, &server, Full::new(bytes(UPLOAD))).await.unwrap();
        assert_eq!((response.status().as_u16(), response.not_repeated()), (200, None));
        let requests = server.requests();
        assert_eq!(requests.len(), 3, "{protocol:?}");
        assert!(requests.iter().all(|request| request.body == bytes(UPLOAD)), "{protocol:?}");
    }
}

#[tokio::test]
async fn a_short_stream_is_repeated_whole() {
    for protocol in [Http1, Http2] {
        for length in [0, 1, CHUNK, 4 * CHUNK] {
            let server = busy_twice(protocol).await;
            let response = put(protocol, &server, Replay::new(stream(length))).await.unwrap();
            assert_eq!((response.status().as_u16(), response.not_repeated()), (200, None), "{protocol:?} {length}");
            let requests = server.requests();
            assert_eq!(requests.len(), 3);
            assert!(requests.iter().all(|request| request.body == bytes(length)), "{protocol:?} {length}");
        }
        let server = busy_twice(protocol).await;
        let response = put(protocol, &server, Replay::new(stream(4 * CHUNK + 1))).await.unwrap();
        assert_eq!((response.status().as_u16(), server.received()), (503, 1), "{protocol:?}: one byte too many");
    }
}

/// Reads `most` bytes of the first body and then resets the connection; afterwards whole ones of `length`.
async fn reset_once(most: usize, length: usize) -> (Server, Arc<Mutex<Vec<usize>>>) {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let read = Arc::clone(&seen);
    let server = Server::raw(move |mut stream, connection| {
        let read = Arc::clone(&read);
        async move {
            read_head(&mut stream).await;
            let wanted = if connection == 1 { most } else { length };
            let (mut n, mut buffer) = (0, vec![0; 64 << 10]);
            while n < wanted {
                let room = buffer.len().min(wanted - n);
                match stream.read(&mut buffer[..room]).await {
                    Ok(0) | Err(_) => break,
                    Ok(read) => n += read,
                }
            }
            read.lock().unwrap().push(n);
            if connection > 1 {
                use tokio::io::AsyncWriteExt;
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
            }
        }
    })
    .await;
    (server, seen)
}

#[tokio::test]
async fn an_upload_that_was_cut_off_is_sent_again_whole_or_not_at_all() {
    let (server, read) = reset_once(300 << 10, UPLOAD).await;
    assert_eq!(put(Http1, &server, Full::new(bytes(UPLOAD))).await.unwrap().status(), 200);
    assert_eq!(*read.lock().unwrap(), [300 << 10, UPLOAD]);
    let (server, read) = reset_once(300 << 10, UPLOAD).await;
    assert_eq!(put(Http1, &server, Replay::new(stream(UPLOAD))).await.unwrap_err(), 1);
    assert_eq!((&*read.lock().unwrap(), server.accepted()), (&vec![300 << 10], 1));
}
