//! Every await can be the last: chains of all kinds, dropped at every single poll in turn, leave nothing behind.
//!
//! All ordered pairs and triples of policies (and each alone) run every script of an operation. A run is polled so many times on
//! the manual clock, which moves on to the next timer as `block_on` does, and then it ends: it is dropped or cancelled, right after
//! the poll or just before the next one when something has woken it already, or its executor is shut down. Then all gauges have to
//! stand where they stood before.
//!
//! ```sh
//! cargo test --all-features --test it drop_everywhere -- --nocapture    # says how many points there were
//! ```

use std::any::Any;
use std::fmt;
use std::future::pending;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::task::Poll;
use std::time::Duration;

use futures::{Stream, StreamExt, stream};
use steadfast::breaker::{BreakerConfig, TripRule};
use steadfast::chain::BoxPolicy;
use steadfast::clock::{Clock, ManualClock};
use steadfast::limit::{BulkheadConfig, BulkheadPermit, RateLimiterConfig};
use steadfast::operation::{Fault, faults};
use steadfast::policy::{Call, Frame, Next, Outcome, Policy, Reason, Settings};
use steadfast::retry::Jitter;
use steadfast::{
    Attempt, Breaker, Budget, Bulkhead, CancellationToken, Executor, Hedge, RateLimiter, Retry, Timeout, Verdict, judge,
};
use tokio_test::task::{Spawn, spawn};

use crate::support::{ms, pending_times};

#[test]
fn drop_everywhere_one_policy_or_two() {
    let points = count(chains_of(1).chain(chains_of(2)));
    report("one or two policies", points, 14_000);
}

#[test]
fn drop_everywhere_three_policies_from_a_retry_or_a_hedge_on() {
    let points = count(chains_of(3).filter(|chain| multiplies(chain[0])));
    report("three policies, the first may repeat", points, 30_000);
}

#[test]
fn drop_everywhere_three_policies_from_any_other_on() {
    let points = count(chains_of(3).filter(|chain| !multiplies(chain[0])));
    report("three policies, the first does not repeat", points, 80_000);
}

#[test]
fn drop_everywhere_a_stream_that_a_breaker_guards() {
    let chains = chains_of(1).chain(chains_of(2));
    let points = chains.map(|chain| points_of(&Case { chain, script: Script::Streams, crowded: false })).sum();
    report("guarded streams", points, 2_000);
}

/// The harness has to be able to fail.
#[test]
#[should_panic(expected = "an operation, a value or an error lives on")]
fn what_is_left_behind_is_noticed() {
    let case = Case { chain: vec![Part::Timeout], script: Script::Hangs, crowded: false };
    let stage = Stage::of(&case).unwrap();
    let _left_behind = Arc::clone(&stage.live);
    stage.check(&case, 0);
}

fn report(what: &str, points: usize, least: usize) {
    println!("drop everywhere: {what}: dropped at {points} points");
    assert!(points >= least, "{what}: only {points} points, {least} were expected");
}

/// Through how many points the chains went, with every script.
fn count(chains: impl Iterator<Item = Vec<Part>>) -> usize {
    let mut points = 0;
    for chain in chains {
        let queues = chain.iter().any(|part| matches!(part, Part::RateLimiter | Part::Bulkhead));
        for script in Script::ALL {
            let case = Case { chain: chain.clone(), script, crowded: false };
            points += points_of(&case);
            if queues && script.waits() {
                points += points_of(&Case { crowded: true, ..case });
            }
        }
    }
    points
}

/// Ends one case at every poll in turn, in each way, and says how many points that were.
fn points_of(case: &Case) -> usize {
    let mut points = 0;
    for ending in Ending::ALL {
        let mut polls = 0;
        // A judging policy outside of those that read its verdict is refused.
        while let Some(stage) = Stage::of(case) {
            points += 1;
            if stage.play(case, ending, polls) == Played::ToTheEnd {
                break;
            }
            polls += 1;
            assert!(polls < 200, "{case:?} does not end");
        }
    }
    points
}

/// What is run, and beside whom.
#[derive(Clone, Debug)]
struct Case {
    chain: Vec<Part>,
    script: Script,
    /// Whether others wait for the same limits, behind the run.
    crowded: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Part {
    Retry,
    Timeout,
    Breaker,
    HalfOpen,
    Hedge,
    RateLimiter,
    Bulkhead,
    Judge,
    Custom,
}

impl Part {
    const ALL: [Part; 9] = [
        Part::Retry,
        Part::Timeout,
        Part::Breaker,
        Part::HalfOpen,
        Part::Hedge,
        Part::RateLimiter,
        Part::Bulkhead,
        Part::Judge,
        Part::Custom,
    ];
}

fn multiplies(part: Part) -> bool {
    matches!(part, Part::Retry | Part::Hedge)
}

/// All chains of so many policies, in every order, the same one several times included.
fn chains_of(length: u32) -> impl Iterator<Item = Vec<Part>> {
    let parts = Part::ALL.len();
    (0..parts.pow(length)).map(move |index| (0..length).map(|at| Part::ALL[index / parts.pow(at) % parts]).collect())
}

/// What the operation does.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Script {
    Ready,
    Pending,
    FailsThenOk,
    FailsLate,
    Throttled,
    Hangs,
    HangsThenOk,
    Panics,
    /// Ends with a stream, which is read.
    Streams,
}

impl Script {
    const ALL: [Script; 8] = [
        Script::Ready,
        Script::Pending,
        Script::FailsThenOk,
        Script::FailsLate,
        Script::Throttled,
        Script::Hangs,
        Script::HangsThenOk,
        Script::Panics,
    ];

    fn waits(self) -> bool {
        matches!(self, Script::Pending | Script::FailsThenOk | Script::Hangs)
    }

    /// One call of it, the `nth` of its run.
    async fn call(self, nth: u32, clock: Clock, live: Live) -> Result<Answer, Fault<Trouble>> {
        let fail = |live| Err(Fault::Transient(Trouble { _live: live }));
        let takes_time = async {
            pending_times(1).await;
            clock.sleep(ms(3)).await;
        };
        match self {
            Script::Ready => {}
            Script::FailsThenOk if nth == 1 => return fail(live),
            Script::FailsLate => {
                takes_time.await;
                return fail(live);
            }
            Script::Throttled if nth == 1 => return Err(Fault::Throttled(Trouble { _live: live }, Some(ms(4)))),
            Script::Hangs => pending().await,
            Script::HangsThenOk if nth == 1 => pending().await,
            Script::Panics => {
                takes_time.await;
                // Not a `panic!`: the hook would print each of them.
                resume_unwind(Box::new(THROWN))
            }
            _ => takes_time.await,
        }
        Ok(Answer { live })
    }
}

/// How a run is ended before its end.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Ending {
    /// Dropped right after a poll.
    Dropped,
    /// Dropped when it was woken, before it could do anything about that.
    DroppedWoken,
    /// Its token is cancelled.
    Cancelled,
    /// Its token is cancelled when it was woken, before it could do anything about that.
    CancelledWoken,
    /// Its executor is shut down.
    ShutDown,
}

impl Ending {
    const ALL: [Ending; 5] =
        [Ending::Dropped, Ending::DroppedWoken, Ending::Cancelled, Ending::CancelledWoken, Ending::ShutDown];
}

#[derive(PartialEq)]
enum Played {
    /// The run was ended in the middle.
    InPart,
    /// The run came to its end before it was to be ended, or to where nothing but its caller can end it.
    ToTheEnd,
}

/// Held by whatever must not outlive a run: one for each operation, value and error.
type Live = Arc<()>;

struct Answer {
    live: Live,
}

struct Trouble {
    _live: Live,
}

impl fmt::Debug for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("trouble")
    }
}

/// One executor, the policies of its chain with all their gauges, and the time.
struct Stage {
    clock: ManualClock,
    live: Live,
    executor: Executor<Vec<BoxPolicy<Answer, Trouble>>>,
    breakers: Vec<Breaker>,
    limiters: Vec<RateLimiter>,
    bulkheads: Vec<Bulkhead>,
    budget: Budget,
    token: CancellationToken,
    /// How often the operation was started, and how often as a retry or a hedge.
    started: AtomicU32,
    extra: AtomicU32,
}

/// Those outside of the run.
#[derive(Default)]
struct Others {
    /// Permits that they have at the beginning.
    permits: Vec<BulkheadPermit>,
    /// Those who wait behind the run.
    waiting: Vec<Other>,
}

struct Other {
    /// Says whether it got what it waited for.
    call: Spawn<BoxFuture<bool>>,
    /// Whether it waits for the time, and not only for those before it.
    for_time: bool,
}

type BoxFuture<T> = Pin<Box<dyn Future<Output = T>>>;

impl Stage {
    /// Sets the stage: bulkheads are full, limiters empty, breakers as asked. `None` if there can be no such chain.
    fn of(case: &Case) -> Option<Stage> {
        let clock = Clock::manual();
        let (live, budget) = (Live::default(), Budget::ratio(0.1).initial(BUDGET).floor(Duration::MAX));
        let (mut breakers, mut limiters, mut bulkheads) = (Vec::new(), Vec::new(), Vec::new());
        let mut half_open = Vec::new();
        let mut policies = Vec::new();
        for part in &case.chain {
            policies.push(match part {
                Part::Retry => BoxPolicy::new(Retry::fixed(ms(5)).jitter(Jitter::None).max_attempts(2)),
                Part::Timeout => BoxPolicy::new(Timeout::new(ms(30))),
                Part::Breaker | Part::HalfOpen => {
                    let breaker = breaker();
                    if *part == Part::HalfOpen {
                        half_open.push(breaker.clone());
                    }
                    breakers.push(breaker.clone());
                    BoxPolicy::new(breaker)
                }
                Part::Hedge => BoxPolicy::new(Hedge::after(ms(10))),
                Part::RateLimiter => {
                    let config = RateLimiterConfig::per(1, ms(10)).max_wait(ms(100));
                    limiters.push(RateLimiter::new(config));
                    BoxPolicy::new(limiters[limiters.len() - 1].clone())
                }
                Part::Bulkhead => {
                    bulkheads.push(Bulkhead::with(BulkheadConfig::new(1).queue(4).max_wait(ms(20))));
                    BoxPolicy::new(bulkheads[bulkheads.len() - 1].clone())
                }
                Part::Judge => BoxPolicy::new(judge::attempts_for(3, |_: &Trouble| true)),
                Part::Custom => BoxPolicy::new(Custom(Arc::clone(&live))),
            });
        }
        let builder = Executor::builder("stage").policies(policies).clock(&clock).budget(budget.clone());
        let Ok(executor) = builder.build() else {
            assert!(case.chain.contains(&Part::Judge), "{case:?} is refused");
            return None;
        };
        half_open.iter().for_each(Breaker::force_open);
        clock.advance(OPEN_FOR);
        limiters.iter().for_each(|limiter| limiter.try_acquire().unwrap());
        for bulkhead in &bulkheads {
            bulkhead.bind(&clock).unwrap();
        }
        let (token, started, extra) = Default::default();
        Some(Stage { clock, live, executor, breakers, limiters, bulkheads, budget, token, started, extra })
    }

    /// Runs the case for so many polls and ends it then.
    fn play(&self, case: &Case, ending: Ending, polls: usize) -> Played {
        let permits = self.bulkheads.iter().map(|bulkhead| bulkhead.try_acquire().unwrap()).collect();
        let mut others = Others { permits, waiting: Vec::new() };
        let cx = self.executor.context().with_token(self.token.clone());
        let mut run = spawn(self.run(case.script, &cx));
        let mut played = Played::InPart;
        for poll in 0..polls {
            if poll > 0 && !self.pass_time(&run, &mut others) || !poll_once(&mut run) {
                played = Played::ToTheEnd;
                break;
            }
            if poll == 0 && case.crowded {
                self.join_behind(&mut others);
            }
            if poll == 1 {
                others.permits.clear();
            }
        }
        match ending {
            _ if played == Played::ToTheEnd => {}
            Ending::Dropped => {}
            Ending::DroppedWoken => drop(polls > 0 && self.pass_time(&run, &mut others)),
            Ending::Cancelled => self.end_by(case, &mut run, CancellationToken::cancel),
            Ending::CancelledWoken => {
                let _is_woken = polls > 0 && self.pass_time(&run, &mut others);
                self.end_by(case, &mut run, CancellationToken::cancel);
            }
            Ending::ShutDown => self.end_by(case, &mut run, |_| self.executor.shutdown()),
        }
        let before = self.clock.now();
        drop(run);
        others.permits.clear();
        assert_eq!(self.clock.now(), before);
        self.others_go_on(case, others, polls);
        self.check(case, polls);
        played
    }

    /// The run, and what its caller does with the result.
    async fn run(&self, script: Script, cx: &steadfast::Context) {
        let operation = faults(|attempt: Attempt| {
            let nth = self.started.fetch_add(1, Relaxed) + 1;
            self.extra.fetch_add(u32::from(attempt.is_retry() || attempt.is_hedge()), Relaxed);
            script.call(nth, self.clock.clock(), Arc::clone(&self.live))
        });
        let result = self.executor.run_with(cx, operation).await;
        pending_times(1).await;
        if script == Script::Streams
            && let (Ok(answer), Some(breaker)) = (&result, self.breakers.first())
        {
            let items = items(self.clock.clock(), Arc::clone(&answer.live));
            breaker.guard_stream(items, |_| Verdict::Transient).for_each(|_| std::future::ready(())).await;
        }
    }

    /// A run that is ended from outside ends in its next poll, whatever it is doing, and starts nothing any more.
    fn end_by(&self, case: &Case, run: &mut Spawn<impl Future<Output = ()>>, end: impl FnOnce(&CancellationToken)) {
        let started = self.started.load(Relaxed);
        end(&self.token);
        // What comes after the run is its caller's, who takes one poll more.
        let goes_on = poll_once(run) && poll_once(run);
        assert!(!goes_on || case.script == Script::Streams, "{case:?} goes on after its end");
        assert_eq!(self.started.load(Relaxed), started, "{case:?} starts something after its end");
        assert_eq!(self.executor.waiting(), 0, "{case:?} waits after its end");
    }

    /// Lets others act and the time go on until the run is woken; false if it never will be.
    fn pass_time(&self, run: &Spawn<impl Future<Output = ()>>, others: &mut Others) -> bool {
        loop {
            others.act();
            if run.is_woken() {
                return true;
            }
            if !self.clock.advance_to_next() {
                let released = !mem::take(&mut others.permits).is_empty();
                if !released {
                    return false;
                }
            }
        }
    }

    /// Others come to the same limits, and stand behind the run where that waits.
    fn join_behind(&self, others: &mut Others) {
        for bulkhead in self.bulkheads.clone() {
            let call: BoxFuture<bool> = Box::pin(async move { bulkhead.acquire().await.is_ok() });
            others.waiting.push(Other { call: spawn(call), for_time: false });
        }
        for limiter in self.limiters.clone() {
            let call: BoxFuture<bool> = Box::pin(async move { limiter.acquire().await.is_ok() });
            others.waiting.push(Other { call: spawn(call), for_time: true });
        }
        others.waiting.retain_mut(|other| other.call.poll().is_pending());
    }

    /// The run is gone, and those behind it move up: each of them was woken or waits for the time, and gets what it waits for.
    fn others_go_on(&self, case: &Case, mut others: Others, polls: usize) {
        while !others.waiting.is_empty() {
            let served = others.act();
            assert!(served, "{case:?} after {polls} polls: one who waited behind was refused");
            let in_time = others.waiting.iter().all(|other| other.for_time);
            assert!(in_time, "{case:?} after {polls} polls: one waits for a permit that is free");
            if !others.waiting.is_empty() {
                assert!(
                    self.clock.advance_to_next(),
                    "{case:?} after {polls} polls: one who waits behind is forgotten"
                );
            }
        }
    }

    /// All gauges stand where they stood.
    fn check(&self, case: &Case, polls: usize) {
        let at = format_args!("{case:?} after {polls} polls");
        assert_eq!(
            Arc::strong_count(&self.live),
            1 + self.customs(case),
            "{at}: an operation, a value or an error lives on"
        );
        assert_eq!(self.clock.sleepers(), 0, "{at}: a timer is left");
        assert_eq!(self.executor.waiting(), 0, "{at}: a run is still waiting");
        for bulkhead in &self.bulkheads {
            assert_eq!((bulkhead.in_flight(), bulkhead.queued()), (0, 0), "{at}: permits and queue of a bulkhead");
        }
        for limiter in &self.limiters {
            assert_eq!(limiter.queued(), 0, "{at}: queue of a limiter");
        }
        let (started, extra) = (self.started.load(Relaxed), self.extra.load(Relaxed));
        let left = self.budget.available();
        assert!(left >= BUDGET.saturating_sub(extra), "{at}: {left} tokens are left after {extra} extra attempts");
        assert!(left <= BUDGET - started.saturating_sub(1), "{at}: {left} tokens are left after {started} attempts");
        // A trial that was lost would keep its place, or have it taken away an hour after it began: later than this.
        self.clock.advance(OPEN_FOR);
        for breaker in &self.breakers {
            let permit = breaker.try_acquire();
            assert!(permit.is_ok(), "{at}: {:?} admits nobody: {permit:?}", breaker.state());
        }
    }

    /// Policies that hold a share of `live` for as long as they exist.
    fn customs(&self, case: &Case) -> usize {
        case.chain.iter().filter(|part| **part == Part::Custom).count()
    }
}

impl Others {
    /// Polls those who were woken; false if one of them was refused.
    fn act(&mut self) -> bool {
        let mut served = true;
        self.waiting.retain_mut(|other| {
            let polled = if other.call.is_woken() { other.call.poll() } else { Poll::Pending };
            served &= polled != Poll::Ready(false);
            polled.is_pending()
        });
        served
    }
}

/// Polls a run once; false if it has ended, be it with a panic of its operation.
fn poll_once(run: &mut Spawn<impl Future<Output = ()>>) -> bool {
    let thrown = |thrown: Box<dyn Any + Send>| match thrown.downcast_ref() {
        Some(&THROWN) => false,
        _ => resume_unwind(thrown),
    };
    catch_unwind(AssertUnwindSafe(|| run.poll().is_pending())).unwrap_or_else(thrown)
}

/// Three items, the last of which is an error.
fn items(clock: Clock, live: Live) -> impl Stream<Item = Result<u32, &'static str>> {
    stream::unfold((0, clock, live), |(n, clock, live)| async move {
        clock.sleep(ms(2)).await;
        let item = if n < 2 { Ok(n) } else { Err("broke off") };
        (n < 3).then(|| (item, (n + 1, clock, live)))
    })
    .boxed()
}

fn breaker() -> Breaker {
    Breaker::new(BreakerConfig::default().rule(TripRule::consecutive(3)).open_for(OPEN_FOR))
}

/// A policy of a user's: holds something before, while and after it runs the rest in a frame of its own.
struct Custom(Live);

impl Settings for Custom {}

impl<T: Send, E: Send> Policy<T, E> for Custom {
    async fn run<N: Next<T, E>>(&self, call: Call<'_, E>, next: N) -> Outcome<T, E> {
        let _held = Arc::clone(&self.0);
        pending_times(1).await;
        let refused = || Outcome::rejected(steadfast::Error::refused(steadfast::error::Kind::Overloaded));
        if call.ended().is_some() {
            return refused();
        }
        let frame = Frame::inside(call);
        let outcome = {
            let mut inner = std::pin::pin!(next.call(call.within(&frame)));
            let mut patience = std::pin::pin!(call.clock().sleep(ms(40)));
            std::future::poll_fn(|cx| {
                if let Poll::Ready(outcome) = inner.as_mut().poll(cx) {
                    return Poll::Ready(Some(outcome));
                }
                patience.as_mut().poll(cx).map(|()| {
                    frame.give_up(Reason::TimedOut);
                    None
                })
            })
            .await
        };
        pending_times(1).await;
        outcome.unwrap_or_else(refused)
    }
}

const THROWN: &str = "the operation panics";

/// As many as the retries and hedges of three policies may cost.
const BUDGET: u32 = 8;

/// Longer than any run takes.
const OPEN_FOR: Duration = Duration::from_secs(3600);
