//! Calls of a generated client whose channel has a chain around it: real servers; time is the manual clock's.

use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::task::Poll;

use futures::{FutureExt, StreamExt};
use steadfast::breaker::State;
use steadfast::clock::{Clock, ManualClock};
use steadfast::error::{Full, Kind};
use steadfast::policy::Policy;
use steadfast::tonic::{Layer, Pushback, Service, StatusExt};
use steadfast::{Breaker, Bulkhead, CancellationToken, Context, Executor, Hedge, RateLimiter, Retry, Timeout, Verdict};
use tonic::body::Body;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};

use crate::breakers::{OPEN_TIME, consecutive};
use crate::reqwest_server::{self, settle, until};
use crate::support::{at_rest, ms, secs};
use crate::tonic_echo::{EchoClient, SAY};
use crate::tonic_server::{Server, channel, executor, fails, fails_late, feed, pushes_back, text, with_time};

pub(crate) type Client<P> = EchoClient<Service<Channel, P>>;

/// A client of `server` whose unary method is read within the attempt.
pub(crate) fn client<P>(server: &Server, executor: Executor<P>) -> Client<P>
where
    P: Policy<http::Response<Body>, Status> + 'static,
{
    EchoClient::new(Layer::new(executor).unary(|path| path == SAY).around(server.channel()))
}

/// One without a word about its methods.
fn all_streams<P>(server: &Server, executor: Executor<P>) -> Client<P>
where
    P: Policy<http::Response<Body>, Status> + 'static,
{
    EchoClient::new(Layer::new(executor).around(server.channel()))
}

async fn say<P>(client: &Client<P>) -> Result<String, Status>
where
    P: Policy<http::Response<Body>, Status> + 'static,
{
    Ok(client.clone().say("hello".to_owned()).await?.into_inner())
}

/// [`say`], while the time moves on.
async fn say_in_time<P>(clock: &ManualClock, client: &Client<P>) -> Result<String, Status>
where
    P: Policy<http::Response<Body>, Status> + 'static,
{
    let client = client.clone();
    with_time(clock, async move { say(&client).await }).await
}

#[tokio::test]
async fn what_may_help_is_tried_again() {
    for code in [Code::Unavailable, Code::DeadlineExceeded, Code::ResourceExhausted] {
        let server = Server::quick(move |n| if n < 3 { fails(code) } else { text("hello") }).await;
        let (clock, _) = at_rest();
        let client = client(&server, executor(&clock, Retry::exponential()));
        assert_eq!(say_in_time(&clock, &client).await.unwrap(), "hello", "{code:?}");
        assert_eq!(server.metadata("grpc-previous-rpc-attempts"), [None, Some("1".into()), Some("2".into())]);
    }
}

#[tokio::test]
async fn the_last_status_of_the_server_stays_as_it_is() {
    for fail in [fails as fn(Code) -> _, |code| fails_late(&[], code)] {
        let server = Server::quick(move |_| fail(Code::Unavailable)).await;
        let client = client(&server, executor(&Clock::manual(), Retry::immediate().max_attempts(3)));
        let status = say(&client).await.unwrap_err();
        assert_eq!((status.code(), status.refusal(), server.received()), (Code::Unavailable, None, 3));
        assert!(["the server says so", "in the trailers"].contains(&status.message()));
    }
}

#[tokio::test]
async fn an_answer_that_cannot_change_is_neither_retried_nor_a_failure() {
    for fail in [fails as fn(Code) -> _, |code| fails_late(&[], code), |code| fails_late(&["half"], code)] {
        let server = Server::quick(move |_| fail(Code::InvalidArgument)).await;
        let breaker = Breaker::new(consecutive(1));
        let client = client(&server, executor(&Clock::manual(), (Retry::exponential(), breaker.clone())));
        for _ in 0..3 {
            assert_eq!(say(&client).await.unwrap_err().code(), Code::InvalidArgument);
        }
        assert_eq!((server.received(), breaker.state()), (3, State::Closed));
    }
}

#[tokio::test]
async fn grpc_status_in_http_200() {
    let failing = [fails as fn(Code) -> _, |code| fails_late(&[], code), |code| fails_late(&["half"], code)];
    for fail in failing {
        let server = Server::quick(move |n| if n < 3 { fail(Code::Unavailable) } else { text("hello") }).await;
        let breaker = Breaker::default();
        let policies = (Retry::immediate().max_attempts(3), breaker.clone());
        assert_eq!(say(&client(&server, executor(&Clock::manual(), policies))).await.unwrap(), "hello");
        assert_eq!((server.received(), breaker.counts().failures, breaker.counts().calls), (3, 2, 3));
    }
}

#[tokio::test]
async fn grpc_status_in_http_200_of_a_method_that_is_not_known_to_be_unary() {
    // In the headers it is seen by a retry; in the trailers it comes too late for one, and a breaker hears of it.
    let server = Server::quick(|n| if n == 1 { fails(Code::Unavailable) } else { text("hello") }).await;
    let retried = all_streams(&server, executor(&Clock::manual(), Retry::immediate()));
    assert_eq!((say(&retried).await.unwrap().as_str(), server.received()), ("hello", 2));

    for (code, failures) in [(Code::Unavailable, 1), (Code::Internal, 1), (Code::InvalidArgument, 0), (Code::Ok, 0)] {
        let server = Server::quick(move |_| fails_late(&["half"], code)).await;
        let breaker = Breaker::new(consecutive(2));
        let client = all_streams(&server, executor(&Clock::manual(), (Retry::immediate(), breaker.clone())));
        let said = say(&client).await.map_err(|status| status.code());
        assert_eq!(said.is_ok(), code == Code::Ok);
        assert_eq!((server.received(), breaker.counts().consecutive_failures), (1, failures), "{code:?}");
    }
}

#[tokio::test]
async fn pushback_negative_or_garbage() {
    for code in [Code::Unavailable, Code::ResourceExhausted] {
        for pushback in ["-1", "abc", "", "2147483648"] {
            let server = Server::quick(move |_| pushes_back(code, pushback)).await;
            let retry = || Retry::exponential().max_attempts(3);
            let retried = client(&server, executor(&Clock::manual(), retry()));
            assert_eq!((say(&retried).await.unwrap_err().code(), server.received()), (code, 1), "{pushback:?}");

            let (clock, _) = at_rest();
            let hedged = client(&server, executor(&clock, (Hedge::after(ms(10)).max(2), retry())));
            let status = say(&hedged).await.unwrap_err();
            assert_eq!((status.code(), server.received(), clock.sleepers()), (code, 2, 0), "{pushback:?}");
        }
    }
}

#[tokio::test]
async fn pushback_decides_when() {
    for (pushback, earliest, latest) in [("0", ms(0), ms(0)), ("250", ms(250), ms(275))] {
        let server =
            Server::quick(move |n| if n == 1 { pushes_back(Code::Unavailable, pushback) } else { text("hello") }).await;
        let (clock, _) = at_rest();
        let breaker = Breaker::new(consecutive(1));
        let client = client(&server, executor(&clock, (Retry::fixed(secs(60)), breaker.clone())));
        let start = clock.now();
        assert_eq!(say_in_time(&clock, &client).await.unwrap(), "hello");
        let took = clock.now().since(start);
        assert!((earliest..=latest).contains(&took), "{pushback}: {took:?}");
        assert_eq!(breaker.state(), State::Closed, "who asks for a pause has not failed");
    }
}

#[tokio::test]
async fn an_open_breaker_is_unavailable_and_says_for_how_long() {
    let server = Server::quick(|_| fails(Code::Unavailable)).await;
    let (clock, _) = at_rest();
    let client = client(&server, executor(&clock, Breaker::new(consecutive(1))));
    assert_eq!(say(&client).await.unwrap_err().refusal(), None);
    clock.advance(secs(10));
    let status = say(&client).await.unwrap_err();
    assert_eq!((status.code(), server.received()), (Code::Unavailable, 1));
    let left = OPEN_TIME - secs(10);
    assert_eq!(status.pushback(), Some(Pushback::After(left)));
    assert_eq!(status.refusal().unwrap().kind(), Kind::CircuitOpen { retry_after: Some(left) });
    assert_eq!(status.message(), "echo: circuit breaker open, next trial in 20 s");
}

#[tokio::test]
async fn local_limits_are_resource_exhausted() {
    let server = Server::quick(|_| feed().1).await;
    let limited = client(&server, executor(&Clock::manual(), RateLimiter::per_second(1)));
    assert!(limited.clone().watch("".to_owned()).await.is_ok());
    let status = limited.clone().watch("".to_owned()).await.unwrap_err();
    assert_eq!((status.code(), status.pushback()), (Code::ResourceExhausted, Some(Pushback::After(secs(1)))));

    let full = client(&server, executor(&Clock::manual(), Bulkhead::new(1)));
    let running = full.clone().watch("".to_owned()).await.unwrap();
    let status = full.clone().watch("".to_owned()).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert_eq!(status.refusal().unwrap().kind(), Kind::BulkheadFull { why: Full::Queue });
    drop(running);
    assert!(full.clone().watch("".to_owned()).await.is_ok());
    assert_eq!(server.received(), 3);
}

#[tokio::test]
async fn a_time_limit_is_deadline_exceeded() {
    let server = Server::start(|_| std::future::pending()).await;
    let (clock, _) = at_rest();
    let client = client(&server, executor(&clock, Timeout::secs(2)));
    let call = tokio::spawn(async move { say(&client).await });
    until(|| server.running() == 1).await;
    clock.advance(secs(2));
    let status = call.await.unwrap().unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded);
    assert_eq!(status.refusal().unwrap().kind(), Kind::TimedOut { limit: secs(2) });
    until(|| server.running() == 0).await;
}

#[tokio::test]
async fn a_limit_covers_a_unary_answer_to_its_end() {
    let (feed, reply) = feed();
    let reply = Mutex::new(Some(reply));
    let server = Server::quick(move |_| reply.lock().unwrap().take().unwrap()).await;
    let (clock, _) = at_rest();
    let breaker = Breaker::default();
    let client = client(&server, executor(&clock, (breaker.clone(), Timeout::secs(2))));
    let call = tokio::spawn(async move { say(&client).await });
    until(|| server.received() == 1).await;
    feed.send("hello");
    settle().await;
    clock.advance(secs(2));
    assert_eq!(call.await.unwrap().unwrap_err().code(), Code::DeadlineExceeded);
    assert_eq!(breaker.counts().failures, 1);
    until(|| feed.is_given_up()).await;
}

#[tokio::test]
async fn the_timeout_of_a_request_is_the_deadline_of_its_run() {
    let server = Server::quick(|_| fails(Code::Unavailable)).await;
    let (clock, _) = at_rest();
    let retry = Retry::fixed(secs(2)).jitter(steadfast::retry::Jitter::None).unlimited();
    let client = client(&server, executor(&clock, (retry, Timeout::secs(3))));
    let mut request = Request::new("hello".to_owned());
    request.set_timeout(secs(5));
    let start = clock.now();
    let mut sender = client.clone();
    let status = with_time(&clock, async move { sender.say(request).await }).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "there was no time for another attempt");
    assert_eq!(clock.now().since(start), secs(4));
    let limits: Vec<u64> = server
        .metadata("grpc-timeout")
        .into_iter()
        .map(|limit| limit.unwrap().strip_suffix('u').unwrap().parse().unwrap())
        .collect();
    // The limit of the attempt, and then what is left of the caller's, who counts on another clock for a moment.
    assert_eq!(limits[0], 3_000_000);
    assert!((2_900_000..=3_000_000).contains(&limits[1]) && (900_000..=1_000_000).contains(&limits[2]), "{limits:?}");
}

#[tokio::test]
async fn a_limit_of_the_server_is_no_cancellation() {
    // What a tonic server says when `grpc-timeout` has passed.
    for in_headers in [true, false] {
        let server = Server::quick(move |n| match n {
            1 if in_headers => Err(Status::cancelled("Timeout expired")),
            1 => Ok(futures::stream::iter([Err(Status::cancelled("Timeout expired"))]).boxed()),
            _ => fails(Code::Cancelled),
        })
        .await;
        let client = client(&server, executor(&Clock::manual(), ()));
        let status = say(&client).await.unwrap_err();
        assert_eq!((status.code(), status.message()), (Code::DeadlineExceeded, "Timeout expired"), "{in_headers}");
        assert_eq!(say(&client).await.unwrap_err().code(), Code::Cancelled);
    }
}

#[tokio::test]
async fn a_limit_of_the_channel_is_no_cancellation() {
    let server = Server::start(|_| std::future::pending()).await;
    let endpoint = tonic::transport::Endpoint::from_shared(format!("http://{}", server.address())).unwrap();
    let channel = endpoint.timeout(ms(1)).connect_lazy();
    let breaker = Breaker::default();
    let layer = Layer::new(executor(&Clock::manual(), breaker.clone()));
    let status = EchoClient::new(layer.around(channel)).say("hello".to_owned()).await.unwrap_err();
    assert_eq!((status.code(), breaker.counts().failures), (Code::DeadlineExceeded, 1));
}

#[tokio::test]
async fn who_calls_can_cancel_and_its_context_is_for_one_call() {
    let server = Server::quick(|n| if n < 3 { fails(Code::Unavailable) } else { text("hello") }).await;
    let (clock, _) = at_rest();
    let client = client(&server, executor(&clock, Retry::fixed(secs(1))));
    let token = CancellationToken::new();
    let mut request = Request::new("hello".to_owned());
    request.extensions_mut().insert(Context::new().with_token(token.clone()));
    let mut sender = client.clone();
    let call = tokio::spawn(async move { sender.say(request).await });
    until(|| clock.sleepers() == 1).await;
    token.cancel();
    let status = call.await.unwrap().unwrap_err();
    assert_eq!((status.code(), server.received()), (Code::Cancelled, 1));
    assert_eq!(say_in_time(&clock, &client).await.unwrap(), "hello");
}

#[tokio::test]
async fn a_closed_executor_is_unavailable() {
    let server = Server::quick(|_| text("hello")).await;
    let executor = executor(&Clock::manual(), ());
    let client = client(&server, executor.clone());
    executor.close();
    let status = say(&client).await.unwrap_err();
    assert_eq!((status.code(), status.refusal().unwrap().kind()), (Code::Unavailable, Kind::ShutDown));
    assert_eq!(server.received(), 0);
}

/// What the server got of a request of `bytes` in each of its attempts.
async fn uploaded(bytes: usize, attempts: usize) -> (Vec<usize>, Result<String, Code>) {
    let got = Arc::new(Mutex::new(Vec::new()));
    let server = Server::start({
        let got = Arc::clone(&got);
        move |mut served| {
            let got = Arc::clone(&got);
            async move {
                let message = served.messages.message().await?.unwrap_or_default();
                got.lock().unwrap().push(message.len());
                if served.number < attempts { fails(Code::Unavailable) } else { text("done") }
            }
        }
    })
    .await;
    let mut client = client(&server, executor(&Clock::manual(), Retry::immediate()));
    let said = client.say("x".repeat(bytes)).await;
    let got = got.lock().unwrap().clone();
    (got, said.map(tonic::Response::into_inner).map_err(|status| status.code()))
}

#[tokio::test]
async fn a_request_is_sent_again_as_it_was_or_not_at_all() {
    assert_eq!(uploaded(0, 3).await, (vec![0, 0, 0], Ok("done".to_owned())));
    assert_eq!(uploaded(60_000, 3).await, (vec![60_000; 3], Ok("done".to_owned())));
    assert_eq!(uploaded(1 << 20, 3).await, (vec![1 << 20], Err(Code::Unavailable)), "over the bound");
}

#[tokio::test]
async fn a_call_that_must_not_be_made_twice_is_only_if_it_never_left() {
    let server = Server::quick(|_| fails(Code::Unavailable)).await;
    let layer = Layer::new(executor(&Clock::manual(), Retry::immediate())).once(|path| path == SAY);
    let mut client = EchoClient::new(layer.around(server.channel()));
    assert_eq!(client.say("hello".to_owned()).await.unwrap_err().code(), Code::Unavailable);
    assert_eq!(server.received(), 1);
    assert_eq!(client.watch("hello".to_owned()).await.unwrap_err().code(), Code::Unavailable);
    assert_eq!(server.received(), 4);

    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let gone = channel(listener.local_addr().unwrap());
    drop(listener);
    let breaker = Breaker::default();
    let layer = Layer::new(executor(&Clock::manual(), (Retry::immediate(), breaker.clone()))).once(|_| true);
    let status = EchoClient::new(layer.around(gone)).say("hello".to_owned()).await.unwrap_err();
    assert!(status.was_not_sent());
    assert_eq!(breaker.counts().calls, 3);
}

/// HTTP/2 breaks off an answer with the words with which it refuses a request. The answer was there, so the request was not refused.
#[tokio::test]
async fn a_call_whose_answer_is_reset_was_sent() {
    let server = reqwest_server::Server::raw(|stream, _| async move {
        let mut connection = h2::server::handshake(stream).await.unwrap();
        while let Some(Ok((_request, mut respond))) = connection.accept().await {
            let head = http::Response::builder().header("content-type", "application/grpc").body(()).unwrap();
            let mut body = respond.send_response(head, false).unwrap();
            tokio::spawn(async move {
                // Until the head is on its way: a reset takes back what is not.
                settle().await;
                body.send_reset(h2::Reason::REFUSED_STREAM);
            });
        }
    })
    .await;
    for (once, attempts) in [(true, 1), (false, 3)] {
        let breaker = Breaker::default();
        let executor = executor(&Clock::manual(), (Retry::immediate(), breaker.clone()));
        let layer = Layer::new(executor).unary(|_| true).once(move |_| once);
        let mut client = EchoClient::new(layer.around(channel(server.address())));
        assert!(!client.say("hello".to_owned()).await.unwrap_err().was_not_sent());
        assert_eq!(breaker.counts().calls, attempts);
    }
}

#[tokio::test]
async fn an_answer_that_is_too_long_to_be_read_within_the_attempt_is_handed_on() {
    let length = 3 << 20;
    let messages = move || futures::stream::repeat_with(move || Ok("x".repeat(length))).take(3);
    let server = Server::quick(move |_| {
        let broken = futures::stream::iter([Err(Status::unavailable("in the end"))]);
        Ok(messages().chain(broken).boxed())
    })
    .await;
    let breaker = Breaker::default();
    let layer = Layer::new(executor(&Clock::manual(), (Retry::immediate(), breaker.clone()))).unary(|_| true);
    let mut stream =
        EchoClient::new(layer.around(server.channel())).watch("hello".to_owned()).await.unwrap().into_inner();
    for _ in 0..3 {
        assert_eq!(stream.message().await.unwrap().unwrap().len(), length);
    }
    assert_eq!(breaker.counts().failures, 0);
    assert_eq!(stream.message().await.unwrap_err().code(), Code::Unavailable);
    assert_eq!((server.received(), breaker.counts().failures), (1, 1), "as that of a stream");
}

#[tokio::test]
async fn a_service_may_mean_something_else_by_its_codes() {
    let server = Server::quick(|n| if n == 1 { fails(Code::Aborted) } else { text("hello") }).await;
    let layer = Layer::new(executor(&Clock::manual(), Retry::immediate()))
        .codes(|code| (code == Code::Aborted).then_some(Verdict::Transient));
    let mut client = EchoClient::new(layer.around(server.channel()));
    assert_eq!(client.say("hello".to_owned()).await.unwrap().into_inner(), "hello");
    assert_eq!(server.received(), 2);
}

#[tokio::test]
async fn a_hedge_wins_and_the_loser_is_given_up() {
    let server =
        Server::start(
            |served| async move { if served.number == 1 { std::future::pending().await } else { text("hello") } },
        )
        .await;
    let (clock, _) = at_rest();
    let client = client(&server, executor(&clock, Hedge::after(secs(1))));
    let call = tokio::spawn(async move { say(&client).await });
    until(|| server.running() == 1 && clock.sleepers() == 1).await;
    clock.advance(secs(1));
    assert_eq!(call.await.unwrap().unwrap(), "hello");
    until(|| server.running() == 0).await;
    assert_eq!(server.metadata("grpc-previous-rpc-attempts"), [None, Some("1".into())]);
}

#[tokio::test]
async fn a_call_that_is_dropped_at_any_poll_gives_everything_back() {
    let server = Server::quick(|n| if n % 2 == 1 { fails(Code::Unavailable) } else { text("hello") }).await;
    let (clock, _) = at_rest();
    let bulkhead = Bulkhead::new(1);
    let breaker = Breaker::new(consecutive(1_000));
    let policies = (bulkhead.clone(), Retry::immediate(), breaker.clone(), Timeout::secs(2));
    let client = client(&server, executor(&clock, policies));
    let mut answered = 0;
    for polls in 0..200 {
        let mut call = Box::pin(say(&client));
        for _ in 0..polls {
            if poll_fn(|cx| Poll::Ready(call.as_mut().poll(cx))).await.is_ready() {
                answered += 1;
                break;
            }
            tokio::task::yield_now().await;
        }
        drop(call);
        assert_eq!((bulkhead.available(), clock.sleepers()), (1, 0), "after {polls} polls");
    }
    assert!(answered > 0, "some go through to the end");
    until(|| server.running() == 0).await;
    assert_eq!(breaker.state(), State::Closed);
}

#[tokio::test]
async fn calls_at_the_same_time_do_not_disturb_each_other() {
    let server = Server::quick(|n| if n % 3 == 1 { fails(Code::Unavailable) } else { text("hello") }).await;
    let client = client(&server, executor(&Clock::manual(), Retry::immediate().max_attempts(50)));
    let calls = (0..100).map(|_| say(&client));
    assert!(futures::future::join_all(calls).await.into_iter().all(|said| said.unwrap() == "hello"));
    assert_eq!(server.received(), 150);
}

#[tokio::test]
async fn an_erased_executor_fits_into_a_field() {
    struct Users {
        client: EchoClient<Service<Channel>>,
    }
    let server = Server::quick(|n| if n == 1 { fails(Code::Unavailable) } else { text("hello") }).await;
    let erased = executor(&Clock::manual(), (Retry::immediate(), Breaker::default())).erase();
    let mut users = Users { client: client(&server, erased) };
    assert_eq!(users.client.say("hello".to_owned()).await.unwrap().into_inner(), "hello");
}

#[tokio::test]
async fn a_panic_of_the_service_is_a_failure_and_goes_on() {
    #[derive(Clone)]
    struct Panics;
    impl tower::Service<http::Request<Body>> for Panics {
        type Response = http::Response<Body>;
        type Error = Status;
        type Future = std::future::Ready<Result<http::Response<Body>, Status>>;

        fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Status>> {
            std::task::Poll::Ready(Ok(()))
        }

        fn call(&mut self, _: http::Request<Body>) -> Self::Future {
            panic!("the transport's own")
        }
    }
    let breaker = Breaker::new(consecutive(1));
    let layer = Layer::new(executor(&Clock::manual(), (Retry::immediate(), breaker.clone())));
    let mut client = EchoClient::new(layer.around(Panics));
    let call = std::panic::AssertUnwindSafe(client.say("hello".to_owned())).catch_unwind();
    assert_eq!(*call.await.unwrap_err().downcast::<&str>().unwrap(), "the transport's own");
    assert_eq!(breaker.state(), State::Open);
}
