//! Events are enough to tell the story of a run: for random chains, outcomes and callers, what is rebuilt from them is what
//! the operation, the listeners and the report say.

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::{Either, select};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed};
use steadfast::breaker::{BreakerConfig, State, Transition, TripRule};
use steadfast::chain::BoxPolicy;
use steadfast::clock::ManualClock;
use steadfast::event::{CutOff, Event, RunEnd, Stopped, What};
use steadfast::executor::Report;
use steadfast::judge::classify;
use steadfast::limit::{BulkheadConfig, RateLimiterConfig};
use steadfast::operation::{Fault, faults};
use steadfast::{
    Attempt, Breaker, Bulkhead, CancellationToken, Error, Executor, Fallback, Hedge, RateLimiter, Retry, Timeout,
    Verdict, op,
};

use crate::support::{Recorder, at_rest, beside, ms};

/// A policy of a random chain.
#[derive(Clone, Copy, Debug)]
enum Layer {
    Limit(u64),
    Retry(u32, u64),
    Hedge(u64),
    Breaker(u32, u64),
    /// By a share of calls, so that a success may open it.
    BreakerByShare(u64),
    Bulkhead,
    RateLimiter,
    Fallback,
}

/// How one attempt ends, after some milliseconds.
#[derive(Clone, Copy, Debug)]
enum Ends {
    Well,
    /// A value that only a judge finds bad.
    Badly,
    With(Mark),
    Never,
    Panics,
}

#[derive(Clone, Copy, Debug)]
enum Mark {
    Transient,
    Fatal,
    Permanent,
    Throttled,
    Ignored,
}

/// What the caller of a run does, after some milliseconds.
#[derive(Clone, Copy, Debug)]
enum Caller {
    Waits,
    Cancels(u64),
    Drops(u64),
    HasTime(u64),
}

/// How an attempt ended, as the operation knows.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Done {
    Judged(Verdict),
    Abandoned,
}

/// What the operation, and the listeners beside it, have seen.
#[derive(Default)]
struct Witnessed {
    attempts: Mutex<Vec<(u32, u32, Done)>>,
    retries: Mutex<Vec<(u32, Duration)>>,
    transitions: Mutex<Vec<(State, State)>>,
}

type Value = u32;
type Failure = &'static str;

fn layers() -> impl Strategy<Value = Vec<Layer>> {
    let layer = prop_oneof![
        (5_u64..80).prop_map(Layer::Limit),
        (1_u32..5, 0_u64..20).prop_map(|(most, wait)| Layer::Retry(most, wait)),
        (0_u64..30).prop_map(Layer::Hedge),
        (1_u32..4, 1_u64..60).prop_map(|(failures, open)| Layer::Breaker(failures, open)),
        (1_u64..60).prop_map(Layer::BreakerByShare),
        Just(Layer::Bulkhead),
        Just(Layer::RateLimiter),
        Just(Layer::Fallback),
    ];
    // One hedge: the lanes of one in another could not be told apart.
    let one_hedge = |layers: &Vec<Layer>| layers.iter().filter(|layer| matches!(layer, Layer::Hedge(_))).count() <= 1;
    prop::collection::vec(layer, 0..5).prop_filter("at most one hedge", one_hedge)
}

fn ends() -> impl Strategy<Value = (u64, Ends)> {
    let mark =
        prop::sample::select(&[Mark::Transient, Mark::Fatal, Mark::Permanent, Mark::Throttled, Mark::Ignored][..]);
    let end = prop_oneof![
        4 => Just(Ends::Well),
        2 => Just(Ends::Badly),
        8 => mark.prop_map(Ends::With),
        2 => Just(Ends::Never),
        1 => Just(Ends::Panics),
    ];
    (0_u64..40, end)
}

fn callers() -> impl Strategy<Value = Caller> {
    prop_oneof![
        4 => Just(Caller::Waits),
        1 => (0_u64..100).prop_map(Caller::Cancels),
        1 => (0_u64..100).prop_map(Caller::Drops),
        1 => (0_u64..100).prop_map(Caller::HasTime),
    ]
}

#[test]
fn the_story_of_a_run_can_be_told_from_its_events_alone() {
    let config = Config { cases: 400, failure_persistence: None, rng_seed: RngSeed::Fixed(7), ..Config::default() };
    let runs = prop::collection::vec(callers(), 1..5);
    proptest!(config, |(layers in layers(), judged in any::<bool>(), script in prop::collection::vec(ends(), 1..12), runs in runs)| {
        let world = World::new(&layers, judged, script);
        for caller in runs {
            world.run(caller);
            // Long enough for some open times and not for others.
            world.clock.advance(ms(30));
        }
        world.breaker_saw_what_was_told();
    });
}

/// An executor, its operation, and everybody who watches.
struct World {
    clock: ManualClock,
    recorder: Recorder,
    witnessed: Arc<Witnessed>,
    executor: Executor<Vec<BoxPolicy<Value, Failure>>>,
    script: Vec<(u64, Ends)>,
    judged: bool,
    told: Mutex<Vec<(State, State)>>,
}

impl World {
    fn new(layers: &[Layer], judged: bool, script: Vec<(u64, Ends)>) -> World {
        let (clock, _) = at_rest();
        let (recorder, witnessed) = (Recorder::default(), Arc::<Witnessed>::default());
        let mut chain: Vec<_> = layers.iter().map(|layer| policy(*layer, &witnessed)).collect();
        // Nothing may hang for ever.
        chain.insert(0, BoxPolicy::new(Timeout::millis(500)));
        if judged {
            chain.push(BoxPolicy::new(classify(judge)));
        }
        let builder = Executor::builder("story").policies(chain).unbudgeted().seed(7).clock(&clock);
        let executor = builder.observe(recorder.clone()).build().unwrap();
        World { clock, recorder, witnessed, executor, script, judged, told: Mutex::default() }
    }

    /// One run, whose events are compared with what was witnessed.
    fn run(&self, caller: Caller) {
        let before = self.recorder.whole_events().len();
        self.witnessed.attempts.lock().unwrap().clear();
        self.witnessed.retries.lock().unwrap().clear();
        let report = catch_unwind(AssertUnwindSafe(|| self.clock.block_on(self.called(caller))));
        let story = Story::of(&self.recorder.whole_events()[before..]);
        assert_eq!(story.attempts, *self.witnessed.attempts.lock().unwrap());
        assert_eq!(story.retries, *self.witnessed.retries.lock().unwrap());
        self.told.lock().unwrap().extend(&story.transitions);
        match report {
            Err(_) => assert_eq!(story.end, RunEnd::Panicked),
            Ok(None) => assert_eq!(story.end, RunEnd::Dropped),
            Ok(Some(report)) => story.ended_as(&report),
        }
    }

    async fn called(&self, caller: Caller) -> Option<Report<Value, Failure>> {
        let (token, clock) = (CancellationToken::new(), self.clock.clock());
        let mut cx = self.executor.context().with_token(token.clone());
        if let Caller::HasTime(after) = caller {
            cx = cx.with_timeout(ms(after));
        }
        let run = self.executor.run_report_with(&cx, op(faults(|attempt| self.attempt(attempt))));
        match caller {
            Caller::Waits | Caller::HasTime(_) => Some(run.await),
            Caller::Cancels(after) => {
                let cancel = async {
                    clock.sleep(ms(after)).await;
                    token.cancel();
                };
                Some(beside(cancel, run).await)
            }
            Caller::Drops(after) => match select(pin!(run), pin!(clock.sleep(ms(after)))).await {
                Either::Left((report, _)) => Some(report),
                Either::Right(_) => None,
            },
        }
    }

    async fn attempt(&self, attempt: Attempt) -> Result<Value, Fault<Failure>> {
        let mut witness = Witness::new(&self.witnessed, &attempt);
        let (takes, end) = self.script[witness.at % self.script.len()];
        self.clock.clock().sleep(ms(takes)).await;
        let answer = match end {
            Ends::Well => Ok(1),
            Ends::Badly => Ok(BAD),
            Ends::With(mark) => Err(mark.fault()),
            Ends::Never => std::future::pending().await,
            Ends::Panics => resume_unwind(Box::new("the operation's own")),
        };
        witness.done = Done::Judged(if self.judged { judge_answer(&answer) } else { own_verdict(&answer) });
        answer
    }

    /// The listeners of breakers hear of the same transitions, in the same order.
    fn breaker_saw_what_was_told(&self) {
        assert_eq!(*self.told.lock().unwrap(), *self.witnessed.transitions.lock().unwrap());
    }
}

fn policy(layer: Layer, witnessed: &Arc<Witnessed>) -> BoxPolicy<Value, Failure> {
    let seen = Arc::clone(witnessed);
    match layer {
        Layer::Limit(limit) => BoxPolicy::new(Timeout::millis(limit)),
        Layer::Retry(most, wait) => {
            let retry = Retry::fixed(ms(wait)).max_attempts(most);
            BoxPolicy::new(retry.on_retry(move |retry| seen.retries.lock().unwrap().push((retry.attempt, retry.delay))))
        }
        Layer::Hedge(after) => BoxPolicy::new(Hedge::after(ms(after)).max(2)),
        Layer::Breaker(failures, open) => breaker(TripRule::consecutive(failures), open, seen),
        Layer::BreakerByShare(open) => breaker(TripRule::failure_rate(0.5).minimum_calls(2), open, seen),
        Layer::Bulkhead => BoxPolicy::new(Bulkhead::with(BulkheadConfig::new(1).queue(2).max_wait(ms(20)))),
        Layer::RateLimiter => {
            let config = RateLimiterConfig::per_second(100).burst(2).max_wait(ms(15));
            BoxPolicy::new(RateLimiter::new(config))
        }
        Layer::Fallback => BoxPolicy::new(Fallback::value(INSTEAD)),
    }
}

fn breaker(rule: TripRule, open: u64, seen: Arc<Witnessed>) -> BoxPolicy<Value, Failure> {
    let saw = move |change: Transition| seen.transitions.lock().unwrap().push((change.from, change.to));
    BoxPolicy::new(Breaker::new(BreakerConfig::default().rule(rule).open_for(ms(open)).on_transition(saw)))
}

impl Mark {
    fn fault(self) -> Fault<Failure> {
        match self {
            Mark::Transient => Fault::Transient("transient"),
            Mark::Fatal => Fault::Fatal("fatal"),
            Mark::Permanent => Fault::Permanent("permanent"),
            Mark::Throttled => Fault::Throttled("throttled", Some(ms(10))),
            Mark::Ignored => Fault::Ignored("ignored"),
        }
    }
}

/// What the operation itself says.
fn own_verdict(answer: &Result<Value, Fault<Failure>>) -> Verdict {
    match answer {
        Ok(_) => Verdict::Success,
        Err(Fault::Transient(_)) => Verdict::Transient,
        Err(Fault::Fatal(_)) => Verdict::Fatal,
        Err(Fault::Permanent(_)) => Verdict::Permanent,
        Err(Fault::Throttled(_, retry_after)) => Verdict::Throttled { retry_after: *retry_after },
        Err(_) => Verdict::Ignored,
    }
}

/// A judge who sees everything otherwise.
fn judge(result: &Result<Value, Error<Failure>>) -> Verdict {
    match result {
        Ok(BAD) => Verdict::Transient,
        Ok(_) => Verdict::Success,
        Err(error) if error.last() == Some(&"permanent") => Verdict::Transient,
        Err(_) => Verdict::Fatal,
    }
}

fn judge_answer(answer: &Result<Value, Fault<Failure>>) -> Verdict {
    match answer {
        Ok(BAD) => Verdict::Transient,
        Ok(_) => Verdict::Success,
        Err(Fault::Permanent(_)) => Verdict::Transient,
        Err(_) => Verdict::Fatal,
    }
}

const BAD: Value = 13;

/// What fallbacks give.
const INSTEAD: Value = 99;

/// Writes down an attempt when it starts, and how it ended.
struct Witness<'a> {
    witnessed: &'a Witnessed,
    at: usize,
    done: Done,
}

impl<'a> Witness<'a> {
    fn new(witnessed: &'a Witnessed, attempt: &Attempt) -> Witness<'a> {
        let mut attempts = witnessed.attempts.lock().unwrap();
        attempts.push((attempt.number(), attempt.hedge(), Done::Abandoned));
        Witness { witnessed, at: attempts.len() - 1, done: Done::Abandoned }
    }
}

impl Drop for Witness<'_> {
    fn drop(&mut self) {
        self.witnessed.attempts.lock().unwrap()[self.at].2 = self.done;
    }
}

/// A run as its events tell it.
#[derive(Debug)]
struct Story {
    attempts: Vec<(u32, u32, Done)>,
    retries: Vec<(u32, Duration)>,
    transitions: Vec<(State, State)>,
    lanes: HashSet<(u32, u32)>,
    /// The lanes that were told to have lost.
    lost: HashSet<u32>,
    fell_back: bool,
    end: RunEnd,
    stopped: Option<Stopped>,
    counted: u32,
    elapsed: Duration,
}

impl Story {
    fn of(events: &[Event]) -> Story {
        let (first, last) = (events.first().expect("a run has events"), events.last().unwrap());
        assert_eq!(first.what, What::RunStarted);
        let What::RunFinished { end, stopped, attempts, elapsed } = last.what else { panic!("the last is {last:?}") };
        assert!(first.run.is_some() && events.iter().all(|event| event.run == first.run), "one run after the other");
        assert!(events.is_sorted_by_key(|event| event.at), "time goes back");
        let mut story = Story {
            attempts: Vec::new(),
            retries: Vec::new(),
            transitions: Vec::new(),
            lanes: HashSet::new(),
            lost: HashSet::new(),
            fell_back: false,
            end,
            stopped,
            counted: attempts,
            elapsed,
        };
        let mut running = Vec::new();
        events[1..events.len() - 1].iter().for_each(|event| story.go_on(event, &mut running));
        assert!(running.is_empty(), "attempts without an end: {running:?}");
        assert!(last.at.since(first.at) >= elapsed);
        assert_eq!(story.attempts.len(), attempts as usize);
        story
    }

    /// `running` are the attempts that have started and not ended, by their place among all.
    fn go_on(&mut self, event: &Event, running: &mut Vec<usize>) {
        let which = (event.attempt, event.hedge);
        match &event.what {
            What::AttemptStarted => {
                assert!(event.hedge == 0 || self.lanes.contains(&which) || event.attempt > 1, "a lane out of nowhere");
                running.push(self.attempts.len());
                self.attempts.push((which.0, which.1, Done::Abandoned));
            }
            What::AttemptFinished { .. } | What::AttemptAbandoned { .. } => {
                let is_it = |place: &usize| (self.attempts[*place].0, self.attempts[*place].1) == which;
                let place = running.iter().position(is_it).expect("an end belongs to a start");
                let place = running.remove(place);
                match event.what {
                    What::AttemptFinished { verdict } => self.attempts[place].2 = Done::Judged(verdict),
                    What::AttemptAbandoned { why: CutOff::LostRace } => assert!(self.lost.contains(&event.hedge)),
                    _ => {}
                }
            }
            What::RetryScheduled { delay, .. } => self.retries.push((event.attempt, *delay)),
            What::HedgeStarted => assert!(self.lanes.insert(which), "a lane is started once"),
            What::HedgeWon | What::HedgeLost => {
                assert!(event.hedge == 0 || self.lanes.contains(&which) || event.attempt > 1);
                if event.what == What::HedgeLost {
                    self.lost.insert(event.hedge);
                }
            }
            What::FellBack { .. } => self.fell_back = true,
            What::Transition(change) => self.transitions.push((change.from, change.to)),
            What::RunStarted | What::RunFinished { .. } => panic!("in the middle: {event:?}"),
            _ => {}
        }
    }

    fn ended_as(&self, report: &Report<Value, Failure>) {
        match (&report.result, self.end) {
            (Ok(INSTEAD), RunEnd::Value(verdict)) => assert_eq!((verdict, self.fell_back), (Verdict::Ignored, true)),
            // What the value is worth was said of the attempt that gave it.
            (Ok(_), RunEnd::Value(verdict)) => {
                assert!(self.attempts.iter().any(|attempt| attempt.2 == Done::Judged(verdict)), "{verdict:?}");
            }
            (Err(error), RunEnd::Error(kind)) => assert_eq!(error.kind(), kind),
            other => panic!("not the same end: {other:?}"),
        }
        let told = (self.counted, self.elapsed, self.stopped);
        assert_eq!(told, (report.attempts, report.elapsed, Some(report.stopped)));
    }
}
