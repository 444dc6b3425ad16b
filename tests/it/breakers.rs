//! What the tests of the circuit breaker share: breakers in a given state, what one call does to them, and policies that
//! end what is inside of them.

use std::future::{pending, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use steadfast::breaker::{Breaker, BreakerConfig, Permit, State, Transition, TripRule};
use steadfast::clock::ManualClock;
use steadfast::error::Kind;
use steadfast::operation::{Answer, Fault};
use steadfast::policy::{Call, Frame, Next, Outcome, Policy, Reason, Settings};
use steadfast::{Attempt, Context, Error, Verdict, try_do};

use crate::support::{at_rest, secs};

pub(crate) const OPEN_TIME: Duration = Duration::from_secs(30);

/// Opens for 30 s after so many failures in a row.
pub(crate) fn consecutive(failures: u32) -> BreakerConfig {
    BreakerConfig::default().rule(TripRule::consecutive(failures)).open_for(OPEN_TIME)
}

/// Counts all calls of the last minutes, and opens for 30 s after three failures in a row.
pub(crate) fn counting() -> BreakerConfig {
    let rate = TripRule::failure_rate(1.0).window(60, secs(60)).minimum_calls(1_000_000);
    BreakerConfig::default().rule(rate.or(TripRule::consecutive(3))).open_for(OPEN_TIME)
}

/// The same settings, and all their transitions.
pub(crate) fn logging(config: BreakerConfig) -> (BreakerConfig, Log) {
    let log = Log::default();
    let lines = log.clone();
    (config.on_transition(move |transition| lines.0.lock().unwrap().push(transition)), log)
}

#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<Transition>>>);

impl Log {
    pub(crate) fn entries(&self) -> Vec<Transition> {
        self.0.lock().unwrap().clone()
    }

    pub(crate) fn states(&self) -> Vec<State> {
        self.entries().iter().map(|transition| transition.to).collect()
    }
}

/// A breaker, the clock that it is bound to and a context on that.
pub(crate) struct Bench {
    pub(crate) clock: ManualClock,
    pub(crate) cx: Context,
    pub(crate) breaker: Breaker,
}

impl Bench {
    pub(crate) fn closed(config: BreakerConfig) -> Bench {
        let (clock, cx) = at_rest();
        let breaker = Breaker::new(config);
        breaker.bind(&clock).unwrap();
        Bench { clock, cx, breaker }
    }

    /// Has just opened.
    pub(crate) fn open(config: BreakerConfig) -> Bench {
        let bench = Bench::closed(config);
        bench.trip();
        bench
    }

    /// The next call is a trial.
    pub(crate) fn half_open(config: BreakerConfig) -> Bench {
        let bench = Bench::open(config);
        bench.clock.advance(bench.breaker.remaining_open());
        assert_eq!(bench.breaker.state(), State::HalfOpen);
        bench
    }

    /// Fails until it is open.
    pub(crate) fn trip(&self) {
        while self.breaker.state() != State::Open {
            self.breaker.try_acquire().expect("a place").failure();
        }
    }

    /// Runs an operation through the breaker alone.
    pub(crate) fn run<T, E, F, Fut>(&self, f: F) -> Result<T, Error<E>>
    where
        T: Send,
        E: Send,
        F: Fn(Attempt) -> Fut + Sync,
        Fut: Future<Output: Answer<T, E>> + Send,
    {
        self.through(&self.breaker, f)
    }

    /// Runs an operation through a chain.
    pub(crate) fn through<T, E, F, Fut>(&self, policies: impl Policy<T, E>, f: F) -> Result<T, Error<E>>
    where
        T: Send,
        E: Send,
        F: Fn(Attempt) -> Fut + Sync,
        Fut: Future<Output: Answer<T, E>> + Send,
    {
        self.clock.block_on(try_do(&self.cx, f, policies))
    }

    pub(crate) fn succeed(&self) {
        self.run(|_| async { Ok::<_, ()>(()) }).unwrap();
    }

    pub(crate) fn fail(&self) {
        assert_eq!(self.run(|_| async { Err::<(), _>(()) }).unwrap_err().kind(), Kind::Failed);
    }

    /// A call that ends like this: `S` for a success, `F` for a failure.
    pub(crate) fn call(&self, end: char) {
        match end {
            'S' => self.succeed(),
            'F' => self.fail(),
            other => panic!("an end that is not known here: {other}"),
        }
    }

    pub(crate) fn is_refused(&self) -> bool {
        self.run(|_| async { Ok::<_, ()>(()) }).is_err_and(|error| error.is_circuit_open())
    }

    /// Calls and failures in the window.
    pub(crate) fn counted(&self) -> (u64, u64) {
        let counts = self.breaker.counts();
        (counts.calls, counts.failures)
    }
}

/// What one call did to a closed breaker.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Closed {
    Success,
    Failure,
    Nothing,
}

/// What one call did to a half-open breaker whose trial it was.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Trial {
    /// The breaker closed.
    Succeeded,
    /// The breaker opened again, for the whole open time.
    Reopened,
    /// The place is free again.
    PlaceBack,
}

/// What `call` does to a closed breaker, and to a half-open one.
pub(crate) fn effects(call: impl Fn(&Bench)) -> (Closed, Trial) {
    let effects = effects_of(counting(), call);
    assert_eq!(effects.0.len(), 1, "one call");
    (effects.0[0], effects.1)
}

/// What `call`, which may go through the breaker several times, does to a closed breaker and a half-open one with these
/// further settings.
pub(crate) fn effects_of(config: BreakerConfig, call: impl Fn(&Bench)) -> (Vec<Closed>, Trial) {
    let closed = Bench::closed(config.clone());
    call(&closed);
    assert_eq!(closed.breaker.state(), State::Closed);
    let effect = match closed.counted() {
        (0, 0) => vec![Closed::Nothing],
        (calls, failures) => [(Closed::Success, calls - failures), (Closed::Failure, failures)]
            .into_iter()
            .flat_map(|(effect, times)| vec![effect; times as usize])
            .collect(),
    };
    let half_open = Bench::half_open(config);
    let refused = half_open.breaker.counts().rejected;
    call(&half_open);
    assert_eq!(half_open.breaker.counts().rejected, refused, "the call was the trial");
    (effect, half_open.after_trial())
}

impl Bench {
    pub(crate) fn after_trial(&self) -> Trial {
        match self.breaker.state() {
            State::Closed => Trial::Succeeded,
            State::Open => {
                assert_eq!(self.breaker.remaining_open(), OPEN_TIME, "counted from the end of the trial");
                Trial::Reopened
            }
            State::HalfOpen => {
                let place = self.breaker.try_acquire().expect("the place is free");
                assert!(place.is_trial());
                place.ignore();
                Trial::PlaceBack
            }
            other => panic!("a state that is not known here: {other}"),
        }
    }
}

/// Waits for a place in a local queue before it calls the rest of the chain.
pub(crate) struct Queue(pub(crate) Duration);

impl Settings for Queue {}

impl<T: Send, E: Send> Policy<T, E> for Queue {
    async fn run<N: Next<T, E>>(&self, call: Call<'_, E>, next: N) -> Outcome<T, E> {
        call.clock().sleep(self.0).await;
        next.call(call).await
    }
}

/// Drops what is inside of it after a second, for a reason that it states, or for none.
pub(crate) struct GivesUp(pub(crate) Option<Reason>);

impl Settings for GivesUp {}

impl<T: Send, E: Send> Policy<T, E> for GivesUp {
    async fn run<N: Next<T, E>>(&self, call: Call<'_, E>, next: N) -> Outcome<T, E> {
        let frame = Frame::inside(call);
        let mut inside = Box::pin(next.call(call.within(&frame)));
        let mut timer = pin!(call.clock().sleep(secs(1)));
        let ended = poll_fn(|cx| match inside.as_mut().poll(cx) {
            Poll::Ready(outcome) => Poll::Ready(Some(outcome)),
            Poll::Pending => timer.as_mut().poll(cx).map(|()| None),
        });
        if let Some(outcome) = ended.await {
            return outcome;
        }
        if let Some(reason) = self.0 {
            frame.give_up(reason);
        }
        drop(inside);
        Outcome::new(Err(Error::refused(Kind::Overloaded)), Verdict::Ignored)
    }
}

/// Runs two tries at once, as a hedge does, and takes the one that ends first.
pub(crate) struct Races;

impl Settings for Races {}

impl<T: Send, E: Send> Policy<T, E> for Races {
    async fn run<N: Next<T, E>>(&self, call: Call<'_, E>, next: N) -> Outcome<T, E> {
        let (first, second) = (Frame::inside(call), Frame::inside(call));
        let mut lanes = (Box::pin(next.call(call.within(&first))), Box::pin(next.call(call.within(&second))));
        let (outcome, loser) = poll_fn(|cx| {
            if let Poll::Ready(outcome) = lanes.0.as_mut().poll(cx) {
                return Poll::Ready((outcome, &second));
            }
            lanes.1.as_mut().poll(cx).map(|outcome| (outcome, &first))
        })
        .await;
        loser.give_up(Reason::LostRace);
        outcome
    }
}

/// What the caller of a panicking run gets: the payload.
pub(crate) fn panic_of(run: impl FnOnce()) -> &'static str {
    let payload = catch_unwind(AssertUnwindSafe(run)).expect_err("a panic goes on to the caller");
    payload.downcast_ref::<&'static str>().copied().expect("the payload of the panic is kept")
}

/// Unwinds without a word on standard error.
pub(crate) fn panics<T>() -> T {
    std::panic::resume_unwind(Box::new("the operation's own"))
}

pub(crate) async fn hangs_for_ever() -> Result<(), &'static str> {
    pending().await
}

/// Every fault, with what it does to a breaker.
pub(crate) fn every_fault() -> Vec<(Fault<&'static str>, Closed, Trial)> {
    vec![
        (Fault::Permanent("answered"), Closed::Success, Trial::Succeeded),
        (Fault::Transient("failed"), Closed::Failure, Trial::Reopened),
        (Fault::Fatal("failed for good"), Closed::Failure, Trial::Reopened),
        (Fault::Throttled("busy", None), Closed::Nothing, Trial::PlaceBack),
        (Fault::Ignored("local"), Closed::Nothing, Trial::PlaceBack),
    ]
}

/// Every verdict, with what it does to a breaker.
pub(crate) fn every_verdict() -> [(Verdict, Closed, Trial); 7] {
    [
        (Verdict::Success, Closed::Success, Trial::Succeeded),
        (Verdict::Permanent, Closed::Success, Trial::Succeeded),
        (Verdict::Transient, Closed::Failure, Trial::Reopened),
        (Verdict::Fatal, Closed::Failure, Trial::Reopened),
        (Verdict::Throttled { retry_after: None }, Closed::Nothing, Trial::PlaceBack),
        (Verdict::Ignored, Closed::Nothing, Trial::PlaceBack),
        (Verdict::Rejected { retry_after: None }, Closed::Nothing, Trial::PlaceBack),
    ]
}

/// A half-open breaker and its only trial, which has just begun.
pub(crate) fn with_trial(config: BreakerConfig) -> (Bench, Permit) {
    let bench = Bench::half_open(config);
    let trial = bench.breaker.try_acquire().unwrap();
    assert!(trial.is_trial());
    (bench, trial)
}
