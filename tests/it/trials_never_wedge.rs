//! No trial can wedge a breaker: not one that never reports, not a stream, not one that panics. Every way of making a call
//! is tried: two-step permits, a chain, and a chain whose operation gives a stream.

use std::io::{self, ErrorKind};
use std::mem::ManuallyDrop;
use std::pin::Pin;
use std::task::{Context as TaskContext, Poll};

use futures::channel::mpsc::{self, UnboundedReceiver, UnboundedSender};
use futures::{Stream, StreamExt};
use steadfast::breaker::{Cause, GuardedStream, Permit, State};
use steadfast::{CancellationToken, Classified, Executor, Retry, Timeout, Verdict, try_do};

use crate::breakers::{
    Bench, OPEN_TIME, Trial, consecutive, counting, hangs_for_ever, logging, panic_of, panics, with_trial,
};
use crate::support::{beside, ms, secs};

type Message = io::Result<u32>;
type Classify = fn(&io::Error) -> Verdict;
type Guarded = GuardedStream<UnboundedReceiver<Message>, Classify>;

/// The server's end of a stream. The stream ends when it is dropped.
type Server = UnboundedSender<Message>;

/// Opens a stream through a breaker.
type Opener = fn(&Bench) -> (Server, Guarded);

const OPENERS: [Opener; 2] = [by_permit, by_chain];

fn by_permit(bench: &Bench) -> (Server, Guarded) {
    let permit = bench.breaker.try_acquire().unwrap();
    let (server, stream) = mpsc::unbounded();
    (server, permit.guard_stream(stream, Classified::verdict))
}

fn by_chain(bench: &Bench) -> (Server, Guarded) {
    let chain = (Retry::immediate(), &bench.breaker, Timeout::secs(1));
    let (server, stream) = bench.through(chain, async |_| io::Result::Ok(mpsc::unbounded())).unwrap();
    (server, bench.breaker.guard_stream(stream, Classified::verdict))
}

/// What the stream has for its reader now.
fn next(stream: &mut Guarded) -> Option<Message> {
    match stream.poll_next_unpin(&mut TaskContext::from_waker(std::task::Waker::noop())) {
        Poll::Ready(item) => Some(item.expect("the server holds the stream")),
        Poll::Pending => None,
    }
}

#[test]
fn wedge_recovery() {
    let (config, log) = logging(consecutive(1));
    let (bench, trial) = with_trial(config);
    let granted = bench.clock.now();
    // Never reports, and is not even dropped.
    let _never_reports = ManuallyDrop::new(trial);
    bench.clock.advance(OPEN_TIME - ms(1));
    assert_eq!((bench.breaker.state(), bench.is_refused()), (State::HalfOpen, true));
    bench.clock.advance(ms(1));
    assert_eq!(bench.breaker.state(), State::Open, "it has expired, whether or not a call has looked");
    assert_eq!(bench.breaker.remaining_open(), OPEN_TIME);
    bench.clock.advance(secs(10));
    let rejected = bench.breaker.try_acquire().unwrap_err();
    assert_eq!(rejected.retry_after(), Some(OPEN_TIME - secs(10)), "from the expiry on");
    let expired = log.entries().pop().unwrap();
    assert_eq!((expired.cause, expired.at), (Cause::TrialExpired, granted + OPEN_TIME));

    bench.clock.advance(OPEN_TIME - secs(10));
    bench.succeed();
    assert_eq!(bench.breaker.state(), State::Closed);
}

#[test]
fn wedge_recovery_with_a_chain() {
    let bench = Bench::half_open(consecutive(1));
    // The transport never returns, and its caller waits for ever.
    let chain = (Retry::immediate(), &bench.breaker);
    let mut hung = tokio_test::task::spawn(try_do(&bench.cx, |_| hangs_for_ever(), chain));
    tokio_test::assert_pending!(hung.poll());
    assert!(bench.is_refused());
    bench.clock.advance(OPEN_TIME * 2);
    tokio_test::assert_pending!(hung.poll());
    bench.succeed();
    assert_eq!(bench.breaker.state(), State::Closed);
    drop(hung);
    assert_eq!((bench.breaker.state(), bench.is_refused()), (State::Closed, false), "its end is nobody's business");
}

#[test]
fn expired_trial_verdict_is_ignored() {
    let ends: [fn(Permit); 4] = [Permit::success, Permit::failure, Permit::ignore, drop];
    for end in ends {
        let (config, log) = logging(consecutive(1));
        let (bench, stale) = with_trial(config);
        bench.clock.advance(OPEN_TIME * 2);
        let trial = bench.breaker.try_acquire().unwrap();
        let transitions = log.entries().len();
        end(stale);
        assert_eq!((bench.breaker.state(), log.entries().len()), (State::HalfOpen, transitions));
        assert!(bench.is_refused(), "the place of the newer trial is still taken");
        trial.success();
        assert_eq!((bench.breaker.state(), bench.counted()), (State::Closed, (0, 0)));
    }
}

#[test]
fn expired_trial_verdict_is_ignored_and_still_reaches_its_caller() {
    let bench = Bench::half_open(consecutive(1));
    let clock = bench.clock.clock();
    let slow = async |_| {
        clock.sleep(OPEN_TIME * 2).await;
        Ok::<_, ()>("late")
    };
    let look = async {
        clock.sleep(OPEN_TIME).await;
        assert!(bench.breaker.try_acquire().is_err());
    };
    let run = try_do(&bench.cx, slow, &bench.breaker);
    assert_eq!(bench.clock.block_on(beside(look, run)).unwrap(), "late");
    assert_eq!(bench.breaker.state(), State::HalfOpen, "and does not close the breaker");
}

#[test]
fn abandoned_stream() {
    for open in OPENERS {
        let bench = Bench::half_open(consecutive(1));
        let (server, stream) = open(&bench);
        // No message was ever read, and none will be.
        drop(stream);
        assert!(server.is_closed());
        assert_eq!(bench.breaker.state(), State::Closed, "it could be opened, which was the verdict");
        (0..10).for_each(|_| bench.succeed());
    }
}

#[test]
fn abandoned_stream_that_was_not_open_yet() {
    let bench = Bench::half_open(consecutive(1));
    let token = CancellationToken::new();
    let cx = bench.cx.clone().with_token(token.clone());
    let mut opening = tokio_test::task::spawn(try_do(&cx, |_| hangs_for_ever(), &bench.breaker));
    tokio_test::assert_pending!(opening.poll());
    token.cancel();
    assert!(tokio_test::assert_ready!(opening.poll()).unwrap_err().is_cancelled());
    assert_eq!(bench.after_trial(), Trial::Reopened, "for one open time, and not for ever");
    bench.clock.advance(OPEN_TIME);
    bench.succeed();
    assert_eq!(bench.breaker.state(), State::Closed);
}

#[test]
fn long_lived_stream() {
    for open in OPENERS {
        let bench = Bench::half_open(consecutive(1));
        let (server, mut stream) = open(&bench);
        for number in 0..24 {
            assert!(next(&mut stream).is_none(), "healthy and quiet");
            bench.succeed();
            let (_other_server, mut other) = open(&bench);
            assert!(next(&mut other).is_none());
            bench.clock.advance(secs(3_600));
            server.unbounded_send(Ok(number)).unwrap();
            assert_eq!(next(&mut stream).unwrap().unwrap(), number);
        }
        assert_eq!((bench.breaker.state(), bench.breaker.counts().rejected), (State::Closed, 0));
    }
}

#[test]
fn per_message_failures_still_trip() {
    const THRESHOLD: u32 = 5;
    for open in OPENERS {
        let (config, log) = logging(consecutive(THRESHOLD));
        let bench = Bench::half_open(config);
        let (server, mut stream) = open(&bench);
        assert_eq!(bench.breaker.state(), State::Closed);
        let fail = |stream: &mut Guarded, kind: ErrorKind| {
            server.unbounded_send(Err(kind.into())).unwrap();
            assert_eq!(next(stream).unwrap().unwrap_err().kind(), kind, "the reader gets it as it is");
        };
        // Says something about the request, and not about the connection.
        (0..20).for_each(|_| fail(&mut stream, ErrorKind::NotFound));
        for _ in 1..THRESHOLD {
            fail(&mut stream, ErrorKind::ConnectionReset);
            server.unbounded_send(Ok(7)).unwrap();
            assert_eq!(next(&mut stream).unwrap().unwrap(), 7);
        }
        assert_eq!(bench.breaker.state(), State::Closed);
        fail(&mut stream, ErrorKind::ConnectionReset);
        assert_eq!(bench.breaker.state(), State::Open);
        assert_eq!(log.entries().pop().unwrap().cause, Cause::ConsecutiveFailures);

        // It goes on, and has nothing to say on the breaker's way back.
        bench.clock.advance(OPEN_TIME);
        fail(&mut stream, ErrorKind::ConnectionReset);
        let trial = bench.breaker.try_acquire().unwrap();
        (0..THRESHOLD * 2).for_each(|_| fail(&mut stream, ErrorKind::ConnectionReset));
        assert_eq!(bench.breaker.state(), State::HalfOpen);
        trial.success();
        assert_eq!((bench.breaker.state(), bench.breaker.counts().consecutive_failures), (State::Closed, 0));
    }
}

#[test]
fn messages_are_one_call_however_many_they_are() {
    for open in OPENERS {
        let bench = Bench::closed(counting());
        let (server, mut stream) = open(&bench);
        for number in 0..1_000 {
            server.unbounded_send(Ok(number)).unwrap();
            assert_eq!(next(&mut stream).unwrap().unwrap(), number);
        }
        assert_eq!(bench.counted(), (1, 0));
        drop(server);
        assert_eq!(bench.clock.block_on(stream.next()).map(|_| ()), None, "the end is the end");
        assert_eq!(bench.counted(), (1, 0));
    }
}

#[test]
fn panic_safety() {
    type Call = fn(&Bench);
    let calls: [Call; 4] = [
        |bench| drop(bench.run(async |_| panics::<Result<(), ()>>())),
        // With policies around, a limit inside, and a wait before the panic.
        |bench| {
            let clock = bench.clock.clock();
            let chain = (Retry::immediate(), &bench.breaker, Timeout::secs(60));
            let call = async |_| {
                clock.sleep(secs(1)).await;
                panics::<Result<(), ()>>()
            };
            drop(bench.through(chain, call));
        },
        |bench| {
            let executor = Executor::builder("x").policies(bench.breaker.clone()).clock(&bench.clock).build().unwrap();
            drop(bench.clock.block_on(executor.run(async |_| panics::<Result<(), ()>>())));
        },
        |bench| {
            let builder = Executor::builder("x").policies(bench.breaker.clone()).clock(&bench.clock);
            let executor = builder.build().unwrap().erase();
            drop(bench.clock.block_on(executor.run(async |_| panics::<Result<(), ()>>())));
        },
    ];
    for call in calls {
        let (config, log) = logging(consecutive(1));
        let bench = Bench::half_open(config);
        assert_eq!(panic_of(|| call(&bench)), "the operation's own");
        assert_eq!(log.entries().pop().unwrap().cause, Cause::TrialFailed, "a failure, and not just an end");
        assert_eq!(bench.after_trial(), Trial::Reopened);
        bench.clock.advance(OPEN_TIME);
        bench.succeed();
        assert_eq!(bench.breaker.state(), State::Closed);
    }
}

#[test]
fn panic_safety_with_a_permit() {
    let (config, log) = logging(consecutive(1));
    let (bench, trial) = with_trial(config);
    let call = move || {
        let result: Result<(), ()> = panics();
        if result.is_ok() { trial.success() } else { trial.failure() }
    };
    assert_eq!(panic_of(call), "the operation's own");
    assert_eq!(log.entries().pop().unwrap().cause, Cause::TrialAbandoned, "nobody has said how it ended");
    assert_eq!(bench.after_trial(), Trial::Reopened);
    bench.clock.advance(OPEN_TIME);
    bench.succeed();
    assert_eq!(bench.breaker.state(), State::Closed);
}

/// Panics when it is read.
struct Panics;

impl Stream for Panics {
    type Item = Message;

    fn poll_next(self: Pin<&mut Self>, _: &mut TaskContext<'_>) -> Poll<Option<Message>> {
        panics()
    }
}

#[test]
fn panic_safety_with_a_stream() {
    let (bench, trial) = with_trial(consecutive(1));
    let mut stream = trial.guard_stream(Panics, Classified::verdict as Classify);
    assert_eq!(panic_of(|| drop(bench.clock.block_on(stream.next()))), "the operation's own");
    drop(stream);
    bench.succeed();
    assert_eq!(bench.breaker.state(), State::Closed);
}
