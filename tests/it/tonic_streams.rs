//! Streams of messages through a chain: that they could be opened is the verdict, and what comes later is out of band. Real
//! servers; time is the manual clock's.

use std::sync::Mutex;

use futures::StreamExt;
use futures::channel::mpsc::unbounded;
use steadfast::breaker::{Breaker, BreakerConfig, State, TripRule};
use steadfast::clock::Clock;
use steadfast::policy::Policy;
use steadfast::tonic::{Layer, StatusExt};
use steadfast::{Bulkhead, CancellationToken, Context, Retry, Timeout};
use tonic::body::Body;
use tonic::{Code, Request, Status, Streaming};

use crate::breakers::{Bench, OPEN_TIME, consecutive, counting};
use crate::reqwest_server::{self, settle, until};
use crate::support::{at_rest, secs};
use crate::tonic_echo::{CHAT, COLLECT, EchoClient, SAY};
use crate::tonic_layer::{Client, client};
use crate::tonic_server::{Feed, Reply, Server, channel, executor, fails, fails_late, feed, text};

/// Opens a stream; what the server sends comes when the test sends it.
async fn watch<P>(client: &Client<P>) -> Result<Streaming<String>, Status>
where
    P: Policy<http::Response<Body>, Status> + 'static,
{
    Ok(client.clone().watch("clock".to_owned()).await?.into_inner())
}

async fn say<P>(client: &Client<P>) -> Result<String, Status>
where
    P: Policy<http::Response<Body>, Status> + 'static,
{
    Ok(client.clone().say("hello".to_owned()).await?.into_inner())
}

/// A server that answers every call of its stream with the same feed, and of its unary method with a text.
async fn feeding() -> (Server, Feed) {
    let (feed, reply) = feed();
    let reply = Mutex::new(Some(reply));
    let server = Server::start(move |served| {
        let answer: Reply = match served.path.as_str() {
            SAY => text("hello"),
            _ => reply.lock().unwrap().take().unwrap_or_else(|| fails(Code::Unimplemented)),
        };
        std::future::ready(answer)
    })
    .await;
    (server, feed)
}

#[tokio::test]
async fn abandoned_stream() {
    let bench = Bench::half_open(consecutive(1));
    let (server, feed) = feeding().await;
    let client = client(&server, executor(&bench.clock, (Retry::immediate(), bench.breaker.clone())));
    // No message was ever read, and none will be.
    drop(watch(&client).await.unwrap());
    assert_eq!(bench.breaker.state(), State::Closed, "it could be opened, which was the verdict");
    for _ in 0..10 {
        assert_eq!(say(&client).await.unwrap(), "hello");
    }
    until(|| feed.is_given_up()).await;
}

#[tokio::test]
async fn abandoned_stream_that_was_not_open_yet() {
    let bench = Bench::half_open(consecutive(1));
    let server =
        Server::start(
            |served| async move { if served.number == 1 { std::future::pending().await } else { text("hello") } },
        )
        .await;
    let client = client(&server, executor(&bench.clock, bench.breaker.clone()));
    let opening = tokio::spawn({
        let client = client.clone();
        async move { watch(&client).await }
    });
    until(|| server.running() == 1).await;
    opening.abort();
    until(|| server.running() == 0).await;
    assert_eq!(say(&client).await.unwrap_err().code(), Code::Unavailable, "for one open time, and not for ever");
    bench.clock.advance(OPEN_TIME);
    assert_eq!(say(&client).await.unwrap(), "hello");
    assert_eq!(bench.breaker.state(), State::Closed);
}

#[tokio::test]
async fn long_lived_stream() {
    let bench = Bench::half_open(consecutive(1));
    let (server, feed) = feeding().await;
    let policies = (Retry::immediate(), bench.breaker.clone(), Timeout::secs(10));
    let client = client(&server, executor(&bench.clock, policies));
    let mut stream = watch(&client).await.unwrap();
    for number in 0..24 {
        assert_eq!(say(&client).await.unwrap(), "hello", "admitted beside the stream");
        bench.clock.advance(secs(3_600));
        feed.send(number.to_string());
        assert_eq!(stream.message().await.unwrap().unwrap(), number.to_string(), "no limit of an attempt ends it");
    }
    assert_eq!((bench.breaker.state(), bench.breaker.counts().rejected), (State::Closed, 0));
    drop(feed);
    assert_eq!(stream.message().await.unwrap(), None);
    assert_eq!(server.metadata("grpc-timeout")[0], None, "nor does the server get to hear of one");
}

/// A server whose streams have two messages, and then a status.
async fn breaking(codes: impl Fn(usize) -> Code + Send + Sync + 'static) -> Server {
    Server::quick(move |n| fails_late(&["a", "b"], codes(n))).await
}

/// Reads a stream of [`breaking`] to its end.
async fn read(mut stream: Streaming<String>) -> Code {
    assert_eq!(stream.message().await.unwrap().unwrap(), "a");
    assert_eq!(stream.message().await.unwrap().unwrap(), "b");
    stream.message().await.unwrap_err().code()
}

#[tokio::test]
async fn per_message_failures_still_trip() {
    const THRESHOLD: usize = 5;
    let bench = Bench::half_open(consecutive(5));
    let server = breaking(|n| if n <= 20 { Code::NotFound } else { Code::Unavailable }).await;
    let client = client(&server, executor(&bench.clock, (Retry::immediate(), bench.breaker.clone())));
    // Says something about the request, and not about the server.
    for _ in 0..20 {
        assert_eq!(read(watch(&client).await.unwrap()).await, Code::NotFound, "the reader gets it as it is");
    }
    let mut streams = Vec::new();
    for _ in 0..THRESHOLD {
        streams.push(watch(&client).await.unwrap());
    }
    for (failures, stream) in streams.into_iter().enumerate() {
        let counts = bench.breaker.counts();
        assert_eq!((bench.breaker.state(), counts.consecutive_failures), (State::Closed, failures as u64));
        assert_eq!(read(stream).await, Code::Unavailable);
    }
    assert_eq!(bench.breaker.state(), State::Open);
    let refused = watch(&client).await.unwrap_err();
    assert_eq!((refused.code(), server.received()), (Code::Unavailable, 25));
    assert!(refused.refusal().is_some());
}

#[tokio::test]
async fn streams_that_break_one_after_the_other_trip_by_their_share() {
    let (clock, _) = at_rest();
    let rule = TripRule::failure_rate(0.5).window(10, secs(1)).minimum_calls(10);
    let breaker = Breaker::new(BreakerConfig::default().rule(rule));
    let server = breaking(|_| Code::Unavailable).await;
    let client = client(&server, executor(&clock, breaker.clone()));
    for _ in 0..5 {
        assert_eq!(breaker.state(), State::Closed);
        assert_eq!(read(watch(&client).await.unwrap()).await, Code::Unavailable);
    }
    assert_eq!(breaker.state(), State::Open, "each was opened, and broke: one call of two has failed");
}

/// What a server does after it has sent the head of an answer.
type Rest = fn(h2::SendStream<bytes::Bytes>);

/// Opens a stream at a server that sends a head with this status, and then does what `rest` says. Gives how the stream ended, and
/// what breakers have heard of it before and after.
async fn broken(status: u16, rest: Rest) -> (Result<Option<String>, Status>, (u64, u64)) {
    let server = reqwest_server::Server::raw(move |stream, _| async move {
        let mut connection = h2::server::handshake(stream).await.unwrap();
        while let Some(Ok((_request, mut respond))) = connection.accept().await {
            let head = http::Response::builder().status(status).header("content-type", "application/grpc");
            rest(respond.send_response(head.body(()).unwrap(), false).unwrap());
        }
    })
    .await;
    let breaker = Breaker::default();
    let layer = Layer::new(executor(&Clock::manual(), (Retry::immediate(), breaker.clone())));
    let mut client = EchoClient::new(layer.around(channel(server.address())));
    let mut stream = client.watch("clock".to_owned()).await.unwrap().into_inner();
    let before = breaker.counts().failures;
    (stream.message().await, (before, breaker.counts().failures))
}

#[tokio::test]
async fn a_stream_that_breaks_off_is_a_failure() {
    // Without a status at its end, or with a part of a message, or with a reset.
    let (ended, failures) = broken(200, |mut body| body.send_data("".into(), true).unwrap()).await;
    assert_eq!((ended.unwrap_err().code(), failures), (Code::Unknown, (0, 1)));
    let (ended, failures) = broken(200, |mut body| body.send_data("half".into(), true).unwrap()).await;
    assert!(ended.is_err());
    assert_eq!(failures, (0, 1));
    let reset: Rest = |mut body| {
        tokio::spawn(async move {
            // Until the head is on its way: a reset takes back what is not.
            settle().await;
            body.send_reset(h2::Reason::INTERNAL_ERROR);
        });
    };
    let (ended, failures) = broken(200, reset).await;
    assert!(ended.is_err());
    assert_eq!(failures, (0, 1));
}

/// Something on the way has cut it off: a server that has nothing to say gives a status.
#[tokio::test]
async fn an_answer_that_ends_with_its_head_and_has_no_status_is_a_failure() {
    let server = reqwest_server::Server::raw(move |stream, _| async move {
        let mut connection = h2::server::handshake(stream).await.unwrap();
        while let Some(Ok((_request, mut respond))) = connection.accept().await {
            let head = http::Response::builder().header("content-type", "application/grpc");
            respond.send_response(head.body(()).unwrap(), true).unwrap();
        }
    })
    .await;
    let breaker = Breaker::default();
    let layer = Layer::new(executor(&Clock::manual(), (Retry::immediate(), breaker.clone())));
    let mut client = EchoClient::new(layer.around(channel(server.address())));
    let _ended = client.watch("clock".to_owned()).await;
    let counts = breaker.counts();
    assert_eq!((counts.calls, counts.failures), (1, 1), "UNKNOWN: not tried again");
}

#[tokio::test]
async fn an_answer_of_something_in_front_of_the_server_is_judged_by_its_head_alone() {
    let page: Rest = |mut body| body.send_data("<html>".into(), true).unwrap();
    let (ended, failures) = broken(404, page).await;
    assert!(ended.is_err());
    assert_eq!(failures, (0, 0), "UNIMPLEMENTED");
    let (ended, failures) = broken(503, page).await;
    assert!(ended.is_err());
    assert_eq!(failures, (3, 3), "UNAVAILABLE, three times");
}

#[tokio::test]
async fn messages_are_one_call_however_many_they_are() {
    let bench = Bench::closed(counting());
    let (server, feed) = feeding().await;
    let client = client(&server, executor(&bench.clock, bench.breaker.clone()));
    let mut stream = watch(&client).await.unwrap();
    for number in 0..100 {
        feed.send(number.to_string());
        assert_eq!(stream.message().await.unwrap().unwrap(), number.to_string());
    }
    drop(feed);
    assert_eq!(stream.message().await.unwrap(), None);
    assert_eq!(bench.counted(), (1, 0));
}

#[tokio::test]
async fn both_sides_of_a_stream_go_on_after_it_was_opened() {
    for method in [CHAT, COLLECT] {
        let bench = Bench::half_open(consecutive(1));
        let server = Server::start(|mut served| async move {
            if served.path == CHAT {
                return Ok(served.messages.map(|text| text.map(|text| text.to_uppercase())).boxed());
            }
            let mut all = String::new();
            while let Some(text) = served.messages.message().await? {
                all.push_str(&text);
            }
            text(all)
        })
        .await;
        let mut client = client(&server, executor(&bench.clock, (Retry::immediate(), bench.breaker.clone())));
        let (sender, receiver) = unbounded();
        let send = |text: &str| sender.unbounded_send(text.to_owned()).unwrap();
        if method == CHAT {
            let mut answers = client.chat(receiver).await.unwrap().into_inner();
            assert_eq!(bench.breaker.state(), State::Closed);
            for text in ["a", "b", "c"] {
                send(text);
                assert_eq!(answers.message().await.unwrap().unwrap(), text.to_uppercase());
            }
            drop(sender);
            assert_eq!(answers.message().await.unwrap(), None);
        } else {
            let collected = tokio::spawn(async move { client.collect(receiver).await });
            ["a", "b", "c"].into_iter().for_each(send);
            drop(sender);
            assert_eq!(collected.await.unwrap().unwrap().into_inner(), "abc");
        }
        assert_eq!(server.received(), 1);
    }
}

#[tokio::test]
async fn a_place_is_held_to_the_end_of_a_stream_however_it_ends() {
    let bulkhead = Bulkhead::new(1);
    let (clock, _) = at_rest();
    let executor = executor(&clock, bulkhead.clone());
    /// Ends a stream, and gives it back if it can still be read.
    type Ending = fn(Streaming<String>, Feed) -> Option<Streaming<String>>;
    let ends: [Ending; 3] = [
        |stream, feed| {
            drop(feed);
            Some(stream)
        },
        |stream, feed| {
            feed.fail(Code::Internal);
            Some(stream)
        },
        |stream, _| {
            drop(stream);
            None
        },
    ];
    for end in ends {
        let (server, feed) = feeding().await;
        let client = client(&server, executor.clone());
        let stream = watch(&client).await.unwrap();
        feed.send("here");
        settle().await;
        assert_eq!(bulkhead.available(), 0);
        if let Some(mut stream) = end(stream, feed) {
            assert_eq!(stream.message().await.unwrap().unwrap(), "here");
            assert_eq!(bulkhead.available(), 0);
            assert!(matches!(stream.message().await, Ok(None) | Err(_)));
            assert_eq!(bulkhead.available(), 1, "while the reader still holds it");
        }
        assert_eq!(bulkhead.available(), 1);
    }
    // A unary call gives it back with its answer.
    let (server, _feed) = feeding().await;
    assert_eq!(say(&client(&server, executor)).await.unwrap(), "hello");
    assert_eq!(bulkhead.available(), 1);
}

#[tokio::test]
async fn a_stream_ends_when_it_is_asked_to_and_says_why() {
    let asked = [Code::Cancelled, Code::Unavailable, Code::DeadlineExceeded];
    for code in asked {
        let (server, feed) = feeding().await;
        let (clock, _) = at_rest();
        let breaker = Breaker::default();
        let executor = executor(&clock, breaker.clone());
        let mut client = client(&server, executor.clone());
        let token = CancellationToken::new();
        let mut request = Request::new("clock".to_owned());
        request.extensions_mut().insert(Context::new().with_token(token.clone()));
        request.set_timeout(secs(60));
        let mut stream = client.watch(request).await.unwrap().into_inner();
        feed.send("here");
        assert_eq!(stream.message().await.unwrap().unwrap(), "here");
        let waiting = tokio::spawn(async move { (stream.message().await, stream) });
        settle().await;
        match code {
            Code::Cancelled => token.cancel(),
            Code::Unavailable => executor.shutdown(),
            _ => clock.advance(secs(60)),
        }
        let (ended, _stream) = waiting.await.unwrap();
        let status = ended.unwrap_err();
        assert_eq!(status.code(), code);
        assert!(status.refusal().is_some());
        until(|| feed.is_given_up()).await;
        assert_eq!(breaker.counts().failures, 0, "not the server's fault");
        assert!(server.metadata("grpc-timeout")[0].is_some(), "the server is told of the caller's deadline");
    }
}
