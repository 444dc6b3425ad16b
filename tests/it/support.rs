//! What the tests share: a clock, scripted operations, a recorder of events, one scenario run in every way, and one in which
//! everything happens.

use std::fmt::Debug;
use std::future::{poll_fn, ready};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context as TaskContext, Poll, Wake, Waker};
use std::time::Duration;

use steadfast::breaker::{BreakerConfig, TripRule};
use steadfast::clock::{Clock, ManualClock, Moment};
use steadfast::error::{Kind, Limit};
use steadfast::event::{Event, Observer, What};
use steadfast::executor::{AnyError, AnyValue, Builder};
use steadfast::judge::classify;
use steadfast::limit::BulkheadConfig;
use steadfast::operation::{Fault, faults};
use steadfast::policy::{Outcome, Policy};
use steadfast::standard::StandardConfig;
use steadfast::tower::Layer;
use steadfast::{
    Breaker, Bulkhead, CancellationToken, Chaos, Context, Error, Executor, Fallback, Hedge, Retry, StandardChain,
    Timeout, Verdict, try_do,
};
use tower::{Layer as _, Service, ServiceExt};

use crate::tower_service::Strict;

pub(crate) fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(crate) fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

pub(crate) fn mins(mins: u64) -> Duration {
    secs(60 * mins)
}

/// A new manual clock, and a plain context on it.
pub(crate) fn at_rest() -> (ManualClock, Context) {
    let clock = Clock::manual();
    let cx = Context::new().with_clock(&clock);
    (clock, cx)
}

pub(crate) fn exhausted(by: Limit) -> Kind {
    Kind::Exhausted { by }
}

pub(crate) fn timed_out(limit: Duration) -> Kind {
    Kind::TimedOut { limit }
}

/// One call of a scripted operation: how long it takes and how it ends.
#[derive(Clone, Debug)]
pub(crate) struct Step<T, E> {
    takes: Duration,
    /// `None` is never.
    end: Option<Result<T, Fault<E>>>,
}

pub(crate) fn ok<T, E>(value: T) -> Step<T, E> {
    ends(Ok(value))
}

/// A plain error, which is taken to be worth another attempt.
pub(crate) fn err<T, E>(error: E) -> Step<T, E> {
    ends(Err(Fault::Transient(error)))
}

pub(crate) fn permanent<T, E>(error: E) -> Step<T, E> {
    ends(Err(Fault::Permanent(error)))
}

pub(crate) fn throttled<T, E>(error: E, pause: Duration) -> Step<T, E> {
    ends(Err(Fault::Throttled(error, Some(pause))))
}

pub(crate) fn ends<T, E>(end: Result<T, Fault<E>>) -> Step<T, E> {
    Step { takes: Duration::ZERO, end: Some(end) }
}

pub(crate) fn hangs<T, E>() -> Step<T, E> {
    Step { takes: Duration::ZERO, end: None }
}

impl<T, E> Step<T, E> {
    pub(crate) fn after(self, takes: Duration) -> Step<T, E> {
        Step { takes, ..self }
    }
}

/// An operation that does what its steps say, one for each call and the last one ever after, and remembers when it was
/// called.
pub(crate) struct Script<T, E> {
    steps: Vec<Step<T, E>>,
    clock: ManualClock,
    start: Moment,
    calls: Mutex<Vec<Duration>>,
}

impl<T: Clone, E: Clone> Script<T, E> {
    pub(crate) fn new(clock: &ManualClock, steps: impl Into<Vec<Step<T, E>>>) -> Script<T, E> {
        Script { steps: steps.into(), clock: clock.clone(), start: clock.now(), calls: Mutex::default() }
    }

    fn next(&self) -> Step<T, E> {
        let mut calls = self.calls.lock().unwrap();
        calls.push(self.clock.now().since(self.start));
        self.steps[(calls.len() - 1).min(self.steps.len() - 1)].clone()
    }

    /// The next step on the thread of the caller, which it holds for as long as it takes. It must not be one that hangs.
    pub(crate) fn block(&self) -> Result<T, Fault<E>> {
        let step = self.next();
        self.clock.advance(step.takes);
        step.end.expect("nothing can end a function that hangs")
    }

    pub(crate) async fn call(&self) -> Result<T, Fault<E>> {
        let step = self.next();
        self.clock.clock().sleep(step.takes).await;
        match step.end {
            Some(end) => end,
            None => std::future::pending().await,
        }
    }

    /// The next step for an operation without marks: what the error is worth is left out.
    pub(crate) async fn call_plain(&self) -> Result<T, E> {
        self.call().await.map_err(plain)
    }

    /// When it was called, since the script was made.
    pub(crate) fn calls(&self) -> Vec<Duration> {
        self.calls.lock().unwrap().clone()
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.clock.now().since(self.start)
    }
}

fn plain<E>(fault: Fault<E>) -> E {
    match fault {
        Fault::Transient(error) | Fault::Fatal(error) | Fault::Permanent(error) => error,
        Fault::Throttled(error, _) | Fault::Ignored(error) => error,
        other => panic!("a fault that is not known here: {}", std::any::type_name_of_val(&other)),
    }
}

/// One run as its caller sees it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Seen<T, E> {
    pub(crate) result: Result<T, Failure<E>>,
    /// When the operation was called, since the run began.
    pub(crate) calls: Vec<Duration>,
    pub(crate) took: Duration,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Failure<E> {
    pub(crate) kind: Kind,
    pub(crate) last: Option<E>,
    pub(crate) attempts: u32,
    pub(crate) retry_after: Option<Duration>,
    pub(crate) history: Vec<E>,
}

impl<T: Debug, E: Debug + Clone> Seen<T, E> {
    pub(crate) fn failure(&self) -> &Failure<E> {
        self.result.as_ref().expect_err("the run was expected to fail")
    }

    pub(crate) fn kind(&self) -> Kind {
        self.failure().kind
    }

    pub(crate) fn last(&self) -> Option<E> {
        self.failure().last.clone()
    }
}

impl<E: Clone> Failure<E> {
    pub(crate) fn of(error: &Error<E>) -> Failure<E> {
        Failure {
            kind: error.kind(),
            last: error.last().cloned(),
            attempts: error.attempts(),
            retry_after: error.retry_after(),
            history: error.history().cloned().collect(),
        }
    }
}

/// A chain, and how its caller behaves.
pub(crate) struct Scenario<'a, P> {
    /// Boxed, so that all scenarios of one kind of chain are compiled once.
    policies: Box<dyn Fn() -> P + 'a>,
    context: Box<dyn Fn(Context) -> Context>,
    cancelled_at: Option<Duration>,
}

/// How often [`Scenario::everywhere`] runs a scenario in which every operation comes to its own end, alone.
pub(crate) const WAYS: usize = 5;

/// How often [`Scenario::everywhere`] runs one in which an operation is cut off, or another lane started.
pub(crate) const ASYNC_WAYS: usize = 4;

/// A scenario for the chain that `policies` makes, anew for each way of running it.
pub(crate) fn scenario<'a, P>(policies: impl Fn() -> P + 'a) -> Scenario<'a, P> {
    Scenario { policies: Box::new(policies), context: Box::new(|cx| cx), cancelled_at: None }
}

impl<P> Scenario<'_, P> {
    pub(crate) fn context(mut self, change: impl Fn(Context) -> Context + 'static) -> Self {
        self.context = Box::new(change);
        self
    }

    pub(crate) fn cancelled_at(mut self, at: Duration) -> Self {
        self.cancelled_at = Some(at);
        self
    }

    /// Runs it through `try_do`, an executor, an erased executor, a tower layer around a service that insists on being polled
    /// ready, and without async if no operation is cut off, and asserts that their callers see the same.
    pub(crate) fn everywhere<T, E>(&self, steps: impl Into<Vec<Step<T, E>>>) -> Seen<T, E>
    where
        P: Policy<T, E> + Policy<AnyValue, AnyError> + 'static,
        T: Clone + Debug + PartialEq + Send + Sync + 'static,
        E: Clone + Debug + PartialEq + Send + Sync + 'static,
    {
        let steps = steps.into();
        let (seen, events) = self.typed_with_events(steps.clone());
        let recorder = Recorder::default();
        let erased = self.run(steps.clone(), |clock, cx, script| {
            let executor = self.executor(clock, &recorder).erase();
            async move { executor.run_with(&cx, faults(|_| script.call())).await }
        });
        assert_eq!(erased, seen, "an erased executor and `try_do` differ");
        assert_eq!(recorder.events(), events, "the events of an erased executor differ");
        let recorder = Recorder::default();
        let by_layer = self.run(steps, |clock, cx, script| {
            let service = scripted(self.executor(clock, &recorder).erase(), script);
            async move { service.oneshot(cx).await.map_err(|error| error.map(plain)) }
        });
        assert_eq!(by_layer, seen, "a tower layer and `try_do` differ");
        assert_eq!(recorder.events(), events, "the events of a tower layer differ");
        seen
    }

    /// [`everywhere`](Scenario::everywhere) for chains that fit one error type only, and so cannot be erased.
    pub(crate) fn typed<T, E>(&self, steps: impl Into<Vec<Step<T, E>>>) -> Seen<T, E>
    where
        P: Policy<T, E>,
        T: Clone + Debug + PartialEq + Send + Sync,
        E: Clone + Debug + PartialEq + Send + Sync,
    {
        self.typed_with_events(steps.into()).0
    }

    fn typed_with_events<T, E>(&self, steps: Vec<Step<T, E>>) -> (Seen<T, E>, Vec<(u32, What)>)
    where
        P: Policy<T, E>,
        T: Clone + Debug + PartialEq + Send + Sync,
        E: Clone + Debug + PartialEq + Send + Sync,
    {
        let seen = self.run(steps.clone(), |_, cx, script| async move {
            try_do(&cx, faults(|_| script.call()), (self.policies)()).await
        });
        let recorder = Recorder::default();
        let by_executor = self.run(steps.clone(), |clock, cx, script| {
            let executor = self.executor(clock, &recorder);
            async move { executor.run_with(&cx, faults(|_| script.call())).await }
        });
        assert_eq!(by_executor, seen, "an executor and `try_do` differ");
        // What is cut off, or would have another one beside it, is another story there.
        let is_another = |(_, what): &(u32, What)| matches!(what, What::AttemptAbandoned { .. } | What::HedgeStarted);
        if !recorder.events().iter().any(is_another) {
            let blocking = Recorder::default();
            assert_eq!(self.blocking(steps, &blocking), seen, "`run_blocking` differs");
            assert_eq!(blocking.events(), recorder.events(), "the events of `run_blocking` differ");
        }
        (seen, recorder.events())
    }

    fn blocking<T, E>(&self, steps: Vec<Step<T, E>>, recorder: &Recorder) -> Seen<T, E>
    where
        P: Policy<T, E>,
        T: Clone + Send + Sync,
        E: Clone + Send + Sync,
    {
        let (clock, cx) = at_rest();
        let token = CancellationToken::new();
        let cx = (self.context)(cx.with_seed(SEED).with_token(token.clone()));
        let script = Script::new(&clock, steps);
        let executor = self.executor(&clock, recorder);
        // Nothing else runs on this thread: the clock itself cancels.
        let mut cancel = self.cancelled_at.map(|at| Box::pin(clock.clock().sleep(at)));
        if let Some(cancel) = &mut cancel {
            let waker = Waker::from(Arc::new(Cancels(token.clone())));
            if cancel.as_mut().poll(&mut TaskContext::from_waker(&waker)).is_ready() {
                token.cancel();
            }
        }
        let result = executor.run_blocking_with(&cx, |_| Outcome::from(script.block()));
        drop(cancel);
        assert_eq!(clock.sleepers(), 0, "a timer is left behind");
        Seen { result: result.map_err(|error| Failure::of(&error)), calls: script.calls(), took: script.elapsed() }
    }

    fn executor(&self, clock: &ManualClock, recorder: &Recorder) -> Executor<P>
    where
        P: steadfast::policy::Settings,
    {
        // `try_do` has no budget either.
        let builder = Executor::builder("scenario").policies((self.policies)()).unbudgeted();
        builder.clock(clock).observe(recorder.clone()).build().unwrap()
    }

    fn run<'s, T, E, F>(
        &self,
        steps: Vec<Step<T, E>>,
        run: impl FnOnce(&ManualClock, Context, Arc<Script<T, E>>) -> F,
    ) -> Seen<T, E>
    where
        F: Future<Output = Result<T, Error<E>>> + 's,
        T: Clone,
        E: Clone,
    {
        let (clock, cx) = at_rest();
        let token = CancellationToken::new();
        let cx = (self.context)(cx.with_seed(SEED).with_token(token.clone()));
        let script = Arc::new(Script::new(&clock, steps));
        let (result, took) = clock.block_on(async {
            let cancel = async {
                match self.cancelled_at {
                    Some(at) => clock.clock().sleep(at).await,
                    None => std::future::pending().await,
                }
                token.cancel();
            };
            let result = beside(cancel, run(&clock, cx, Arc::clone(&script))).await;
            (result, script.elapsed())
        });
        assert_eq!(clock.sleepers(), 0, "a timer is left behind");
        Seen { result: result.map_err(|error| Failure::of(&error)), calls: script.calls(), took }
    }
}

/// A script as a tower service behind the chain of `executor`. What the caller brings is the request.
fn scripted<T, E>(
    executor: Executor,
    script: Arc<Script<T, E>>,
) -> impl Service<Context, Response = T, Error = Error<Fault<E>>>
where
    T: Clone + Send + Sync + 'static,
    E: Clone + Debug + Send + Sync + 'static,
{
    let worth = |result: &Result<T, Error<Fault<E>>>| match result.as_ref().map_err(Error::last) {
        Ok(_) => Verdict::Success,
        Err(Some(Fault::Fatal(_))) => Verdict::Fatal,
        Err(Some(Fault::Permanent(_))) => Verdict::Permanent,
        Err(Some(Fault::Throttled(_, retry_after))) => Verdict::Throttled { retry_after: *retry_after },
        Err(Some(Fault::Ignored(_))) => Verdict::Ignored,
        Err(_) => Verdict::Transient,
    };
    let layer = Layer::new(executor).judge(classify(worth)).with_context(|cx: &Context| cx.clone()).typed();
    layer.layer(Strict::new(move || {
        let script = Arc::clone(&script);
        async move { script.call().await }
    }))
}

struct Cancels(CancellationToken);

impl Wake for Cancels {
    fn wake(self: Arc<Self>) {
        self.0.cancel();
    }
}

/// Drives `run` to its end, and `side` beside it for as long as that takes.
pub(crate) async fn beside<R>(side: impl Future<Output = ()>, run: impl Future<Output = R>) -> R {
    let (mut side, mut run) = (pin!(side), pin!(run));
    let mut side_done = false;
    poll_fn(|cx| {
        side_done = side_done || side.as_mut().poll(cx).is_ready();
        run.as_mut().poll(cx)
    })
    .await
}

/// A future that is pending `times` times, and woken at once each time.
pub(crate) async fn pending_times(times: usize) {
    let mut left = times;
    poll_fn(|cx| {
        if left == 0 {
            return Poll::Ready(());
        }
        left -= 1;
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// An observer that keeps what it sees.
#[derive(Clone, Default)]
pub(crate) struct Recorder(Arc<Mutex<Vec<Event>>>);

impl Observer for Recorder {
    fn on_event(&self, event: &Event) {
        self.0.lock().unwrap().push(event.clone());
    }
}

impl Recorder {
    /// Every event with the number of its try.
    pub(crate) fn events(&self) -> Vec<(u32, What)> {
        let events = self.0.lock().unwrap();
        events.iter().map(|event| (event.attempt, event.what.clone())).collect()
    }

    pub(crate) fn whole_events(&self) -> Vec<Event> {
        self.0.lock().unwrap().clone()
    }
}

/// All scenarios draw the same jitter.
const SEED: u64 = 7;

/// Makes executors of the name "billing", on a manual clock, with what `start` begins, and lets all happen to them that an observer
/// can be told of.
pub(crate) fn everything_happens(start: impl Fn(&str) -> Builder<()>) {
    let (clock, _) = at_rest();
    let start = || start("billing").unbudgeted().clock(&clock);

    let chain = (Fallback::value(0), Retry::fixed(secs(1)).max_attempts(2), Timeout::secs(2));
    let (falls_back, script) = (start().policies(chain).build().unwrap(), Script::new(&clock, [err("down"), hangs()]));
    assert_eq!(clock.block_on(falls_back.run(|_| script.call_plain())).unwrap(), 0);

    let (hedges, script) =
        (start().policies(Hedge::after(ms(10))).build().unwrap(), Script::new(&clock, [hangs(), ok(7)]));
    assert_eq!(clock.block_on(hedges.run::<_, &str, _, _>(|_| script.call_plain())).unwrap(), 7);

    let breaker = Breaker::new(BreakerConfig::default().rule(TripRule::consecutive(1)).open_for(secs(5)));
    let breaks = start().policies(breaker.named("ledger")).build().unwrap();
    let answer = |answer: Result<i32, &'static str>| drop(clock.block_on(breaks.run(|_| ready(answer))));
    for each in [Err("down"), Ok(7)] {
        answer(each);
    }
    clock.advance(secs(5));
    answer(Ok(7));

    let place = Bulkhead::with(BulkheadConfig::new(1).queue(5).max_wait(secs(60)));
    let (waits, held) = (start().policies(place.clone()).build().unwrap(), place.try_acquire().unwrap());
    let mut run = tokio_test::task::spawn(waits.run(|_| ready(Ok::<_, &str>(7))));
    assert!(run.poll().is_pending());
    clock.advance(secs(3));
    drop(held);
    assert!(run.poll().is_ready());

    let troubled = start().policies(Chaos::fail(1.0, || "on purpose")).build().unwrap();
    assert!(clock.block_on(troubled.run(|_| ready(Ok(7)))).is_err());

    let standard = start().policies(StandardChain::new(StandardConfig::default())).build().unwrap();
    standard.reconfigure(StandardConfig::default()).unwrap();
}

/// Numbers that the seed decides (SplitMix64, Steele, Lea and Flood 2014), for models of load.
pub(crate) struct Dice(AtomicU64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Dice {
        Dice(AtomicU64::new(seed))
    }

    /// From `[0, 1)`, evenly.
    pub(crate) fn unit(&self) -> f64 {
        let state = self.0.fetch_add(GOLDEN, Ordering::Relaxed).wrapping_add(GOLDEN);
        let mixed = (state ^ state >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((mixed ^ mixed >> 31) >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// From the standard normal distribution (Box and Muller 1958).
    pub(crate) fn normal(&self) -> f64 {
        let (radius, angle) = (1.0 - self.unit(), self.unit());
        (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
    }
}

const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;
