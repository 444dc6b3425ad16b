//! Calls of a plain tonic client in a chain: real servers; time is the manual clock's.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use steadfast::breaker::State;
use steadfast::clock::Clock;
use steadfast::judge::by_error;
use steadfast::policy::Policy;
use steadfast::tonic::{RequestExt, StatusExt};
use steadfast::{Breaker, Classified, Executor, Hedge, Retry, Timeout, Verdict};
use tonic::transport::Channel;
use tonic::{Code, Request, Status};

use crate::breakers::consecutive;
use crate::reqwest_server;
use crate::support::{at_rest, ms, secs};
use crate::tonic_echo::EchoClient;
use crate::tonic_server::{Server, channel, executor, fails, fails_late, pushes_back, text, with_time};

type Said = Result<String, steadfast::Error<Status>>;

/// As the documentation shows it.
async fn say<P: Policy<String, Status>>(echo: &Executor<P>, client: EchoClient<Channel>) -> Said {
    echo.run(|_| {
        let mut client = client.clone();
        async move { Ok::<_, Status>(client.say("hello".to_owned()).await?.into_inner()) }
    })
    .await
}

#[tokio::test]
async fn what_may_help_is_tried_again() {
    for code in [Code::Unavailable, Code::DeadlineExceeded, Code::ResourceExhausted] {
        let server = Server::quick(move |n| if n < 3 { fails(code) } else { text("hello") }).await;
        let (clock, _) = at_rest();
        let echo = executor(&clock, (Retry::exponential(), by_error()));
        let client = server.client();
        let said = with_time(&clock, async move { say(&echo, client).await }).await;
        assert_eq!((said.unwrap().as_str(), server.received()), ("hello", 3), "{code:?}");
    }
}

#[tokio::test]
async fn an_answer_that_cannot_change_is_neither_retried_nor_a_failure() {
    let answers = [
        Code::InvalidArgument,
        Code::NotFound,
        Code::AlreadyExists,
        Code::PermissionDenied,
        Code::FailedPrecondition,
        Code::Aborted,
        Code::OutOfRange,
        Code::Unimplemented,
        Code::Unauthenticated,
    ];
    for code in answers {
        let server = Server::quick(move |_| fails(code)).await;
        let breaker = Breaker::new(consecutive(1));
        let echo = executor(&Clock::manual(), (Retry::exponential(), breaker.clone(), by_error()));
        for _ in 0..3 {
            let status = Status::from(say(&echo, server.client()).await.unwrap_err());
            assert_eq!((status.code(), status.message()), (code, "the server says so"));
        }
        assert_eq!((server.received(), breaker.state()), (3, State::Closed), "{code:?}");
    }
}

#[tokio::test]
async fn a_server_that_failed_in_the_middle_is_a_failure_and_is_not_asked_again() {
    for code in [Code::Unknown, Code::Internal, Code::DataLoss] {
        let server = Server::quick(move |_| fails(code)).await;
        let breaker = Breaker::new(consecutive(1));
        let echo = executor(&Clock::manual(), (Retry::exponential(), breaker.clone(), by_error()));
        assert_eq!(Status::from(say(&echo, server.client()).await.unwrap_err()).code(), code);
        assert_eq!((server.received(), breaker.state()), (1, State::Open));
    }
}

#[tokio::test]
async fn grpc_status_in_http_200() {
    let unavailable = [fails as fn(Code) -> _, |code| fails_late(&[], code), |code| fails_late(&["half"], code)];
    for reply in unavailable {
        let server = Server::quick(move |_| reply(Code::Unavailable)).await;
        let breaker = Breaker::default();
        let policies = (Retry::immediate().max_attempts(3), breaker.clone(), by_error());
        let error = say(&executor(&Clock::manual(), policies), server.client()).await.unwrap_err();
        assert_eq!((error.attempts(), error.last().unwrap().code()), (3, Code::Unavailable));
        assert_eq!((server.received(), breaker.counts().failures), (3, 3));
    }
    let server = Server::quick(|_| text("hello")).await;
    let breaker = Breaker::default();
    let policies = (Retry::immediate().max_attempts(3), breaker.clone(), by_error());
    assert_eq!(say(&executor(&Clock::manual(), policies), server.client()).await.unwrap(), "hello");
    assert_eq!((server.received(), breaker.counts().failures, breaker.counts().calls), (1, 0, 1));
}

#[tokio::test]
async fn pushback_negative_or_garbage() {
    for code in [Code::Unavailable, Code::ResourceExhausted] {
        for pushback in ["-1", "abc", "", "2147483648"] {
            let server = Server::quick(move |_| pushes_back(code, pushback)).await;
            let retry = || Retry::exponential().max_attempts(3);
            let error = say(&executor(&Clock::manual(), (retry(), by_error())), server.client()).await.unwrap_err();
            assert_eq!((error.attempts(), server.received()), (1, 1), "{code:?}, {pushback:?}");

            // The hedge around it starts nothing either, at once or later.
            let (clock, _) = at_rest();
            let hedged = executor(&clock, (Hedge::after(ms(10)).max(2), retry(), by_error()));
            let client = server.client();
            let error = with_time(&clock, async move { say(&hedged, client).await }).await.unwrap_err();
            assert_eq!((error.last().unwrap().code(), server.received()), (code, 2), "{pushback:?}");
        }
    }
}

#[tokio::test]
async fn pushback_decides_when() {
    for code in [Code::Unavailable, Code::ResourceExhausted] {
        for (pushback, earliest, latest) in [("0", ms(0), ms(0)), ("250", ms(250), ms(275))] {
            let server = Server::quick(move |n| if n == 1 { pushes_back(code, pushback) } else { text("hello") }).await;
            let (clock, _) = at_rest();
            // A backoff that would be seen.
            let echo = executor(&clock, (Retry::fixed(secs(60)), by_error()));
            let (start, client) = (clock.now(), server.client());
            let said = with_time(&clock, async move { say(&echo, client).await }).await;
            let took = clock.now().since(start);
            assert_eq!(said.unwrap(), "hello");
            assert!((earliest..=latest).contains(&took), "{code:?}, {pushback}: {took:?}");
        }
    }
}

#[tokio::test]
async fn a_server_that_is_not_there_got_nothing() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let echo = executor(&Clock::manual(), (Retry::immediate().max_attempts(2), by_error()));
    let error = say(&echo, EchoClient::new(channel(address))).await.unwrap_err();
    let status = error.last().unwrap();
    assert_eq!((status.code(), status.verdict(), error.attempts()), (Code::Unavailable, Verdict::Transient, 2));
    assert!(status.was_not_sent());
    assert_eq!(status.refusal(), None);
}

/// Does `refuse` with every call.
async fn refusing(refuse: fn(&mut h2::server::SendResponse<bytes::Bytes>)) -> reqwest_server::Server {
    reqwest_server::Server::raw(move |stream, _| async move {
        let mut connection = h2::server::handshake(stream).await.unwrap();
        while let Some(Ok((_request, mut respond))) = connection.accept().await {
            refuse(&mut respond);
        }
    })
    .await
}

#[tokio::test]
async fn a_stream_that_was_refused_got_nothing_and_one_that_was_reset_may_have() {
    type Refuse = fn(&mut h2::server::SendResponse<bytes::Bytes>);
    let throttled = Verdict::Throttled { retry_after: None };
    let cases: [(Refuse, Verdict, bool); 4] = [
        (|respond| respond.send_reset(h2::Reason::REFUSED_STREAM), Verdict::Transient, true),
        (|respond| respond.send_reset(h2::Reason::INTERNAL_ERROR), Verdict::Transient, false),
        (|respond| respond.send_reset(h2::Reason::CANCEL), Verdict::Transient, false),
        (|respond| respond.send_reset(h2::Reason::ENHANCE_YOUR_CALM), throttled, false),
    ];
    for (refuse, verdict, certain) in cases {
        let server = refusing(refuse).await;
        let echo = executor(&Clock::manual(), by_error());
        let error = say(&echo, EchoClient::new(channel(server.address()))).await.unwrap_err();
        let status = error.last().unwrap();
        assert_eq!((status.verdict(), status.was_not_sent()), (verdict, certain), "{status:?}");
    }
}

#[tokio::test]
async fn a_stream_that_goaway_excludes_got_nothing() {
    let throttled = Verdict::Throttled { retry_after: None };
    for (reason, verdict) in [(h2::Reason::NO_ERROR, Verdict::Transient), (h2::Reason::ENHANCE_YOUR_CALM, throttled)] {
        // The request is not looked at: what is said holds for all streams from the first on.
        let server = reqwest_server::Server::raw(move |stream, _| async move {
            reqwest_server::until_request_is_there(&stream).await;
            let mut connection = h2::server::handshake(stream).await.unwrap();
            connection.abrupt_shutdown(reason);
            while let Some(Ok(_)) = connection.accept().await {}
        })
        .await;
        let echo = executor(&Clock::manual(), by_error());
        let error = say(&echo, EchoClient::new(channel(server.address()))).await.unwrap_err();
        let status = error.last().unwrap();
        assert_eq!((status.verdict(), status.was_not_sent()), (verdict, true), "{status:?}");
    }
}

#[tokio::test]
async fn a_connection_that_breaks_is_worth_another_attempt() {
    // Reads nothing, and goes.
    let server = reqwest_server::Server::raw(|stream, n| async move {
        if n == 1 {
            let mut connection = h2::server::handshake(stream).await.unwrap();
            drop(connection.accept().await);
        }
    })
    .await;
    let echo = executor(&Clock::manual(), by_error());
    let error = say(&echo, EchoClient::new(channel(server.address()))).await.unwrap_err();
    assert_eq!(error.last().unwrap().verdict(), Verdict::Transient, "{error:?}");
    assert!(!error.last().unwrap().was_not_sent());
}

#[tokio::test]
async fn the_server_learns_what_time_is_left_and_which_attempt_it_is() {
    let server = Server::quick(|n| if n < 3 { fails(Code::Unavailable) } else { text("hello") }).await;
    let (clock, cx) = at_rest();
    let cx = cx.with_timeout(ms(2_500));
    let echo =
        executor(&clock, (Retry::fixed(secs(1)).jitter(steadfast::retry::Jitter::None), Timeout::secs(2), by_error()));
    let client = server.client();
    let run = async move {
        let call = |attempt| {
            let mut client = client.clone();
            async move { client.say(Request::new("hello".to_owned()).for_attempt(&attempt)?).await }
        };
        echo.run_with(&cx, call).await.map(tonic::Response::into_inner)
    };
    assert_eq!(with_time(&clock, run).await.unwrap(), "hello");
    let seen = |name: &str| server.metadata(name).into_iter().map(Option::unwrap_or_default).collect::<Vec<_>>();
    assert_eq!(seen("grpc-timeout"), ["2000000u", "1500000u", "500000u"]);
    assert_eq!(seen("grpc-previous-rpc-attempts"), ["", "1", "2"]);
}

#[tokio::test]
async fn a_shorter_limit_of_the_request_stays_and_a_try_without_time_is_not_sent() {
    let (clock, cx) = at_rest();
    let echo = executor(&clock, (Timeout::secs(2), by_error()));
    let limits = echo.run_with(&cx, async |attempt| {
        let limit = |own: Duration| {
            let mut request = Request::new(());
            request.set_timeout(own);
            let metadata = request.for_attempt(&attempt)?.metadata().clone();
            Ok::<_, Status>(metadata.get("grpc-timeout").unwrap().to_str().unwrap().to_owned())
        };
        let limits = (limit(secs(1))?, limit(secs(3))?);
        clock.advance(secs(2));
        assert_eq!(limit(secs(1)).unwrap_err().code(), Code::DeadlineExceeded);
        Ok::<_, Status>(limits)
    });
    assert_eq!(limits.await.unwrap(), ("1000000u".to_owned(), "2000000u".to_owned()));
}

#[test]
fn deadline_hits_retry_timer() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).build().unwrap();
    let clock = Clock::manual();
    let retry = Retry::fixed(ms(1)).jitter(steadfast::retry::Jitter::None).unlimited();
    let echo = Arc::new(executor(&clock, (retry, by_error())));
    let calls: Vec<_> = (0..10_000)
        .map(|_| {
            let echo = Arc::clone(&echo);
            let cx = echo.context().with_timeout(ms(20));
            runtime.spawn(async move {
                let run = echo.run_with(&cx, |_| async { Err::<(), _>(Status::unavailable("down")) }).await;
                (Status::from(run.unwrap_err()).code(), echo.clock().now())
            })
        })
        .collect();
    let done = Arc::new(AtomicBool::new(false));
    let deadline = clock.now() + ms(20);
    let driver = std::thread::spawn({
        let (clock, done) = (clock.clone(), Arc::clone(&done));
        move || {
            while !done.load(SeqCst) {
                clock.advance_to_next();
                std::thread::yield_now();
            }
        }
    });
    let ended = runtime.block_on(futures::future::join_all(calls));
    done.store(true, SeqCst);
    driver.join().unwrap();
    for end in ended {
        let (code, at) = end.unwrap();
        assert!(matches!(code, Code::Unavailable | Code::DeadlineExceeded), "{code:?}");
        assert!(at <= deadline, "{at:?}");
    }
}
