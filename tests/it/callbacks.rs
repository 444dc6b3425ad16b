//! A user's callback that panics: who sees it, and that nothing is broken afterwards.

use std::collections::HashSet;
use std::future::{pending, ready};
use std::mem::{Discriminant, discriminant};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;

use steadfast::breaker::{BreakerConfig, State, TripRule};
use steadfast::clock::ManualClock;
use steadfast::error::{Kind, Limit};
use steadfast::event::{CutOff, Event, Observer, RunEnd, RunId, What};
use steadfast::judge::{attempts_for, classify, retry_after, retry_if};
use steadfast::limit::BulkheadConfig;
use steadfast::policy::{Policy, Settings};
use steadfast::standard::StandardConfig;
use steadfast::{Breaker, Bulkhead, Error, Executor, Hedge, Retry, Timeout, Verdict, try_do};

use crate::support::{Recorder, at_rest, exhausted, ms, secs};

/// Panics at the first time that it is asked.
#[derive(Clone, Default)]
struct Bomb(Arc<AtomicU32>);

impl Bomb {
    fn tick(&self) {
        assert!(self.0.fetch_add(1, Ordering::Relaxed) > 0, "the callback's own");
    }
}

type Run<'a> = Box<dyn FnMut(&ManualClock) -> Result<(), Error<&'static str>> + 'a>;

fn runs<P: Policy<(), &'static str> + Settings>(executor: &Executor<P>) -> Run<'_> {
    Box::new(|clock| clock.block_on(executor.run(|_| async { Err("down") })))
}

/// The first run panics to its caller, and the second works.
fn reaches_the_caller<P: Policy<(), &'static str> + Settings>(policies: P) {
    let (clock, _) = at_rest();
    let executor = Executor::builder("bomb").policies(policies).clock(&clock).build().unwrap();
    let mut run = runs(&executor);
    assert!(catch_unwind(AssertUnwindSafe(|| run(&clock))).is_err(), "the panic reaches the caller");
    assert_eq!(clock.sleepers(), 0);
    let error = run(&clock).unwrap_err();
    assert_eq!(error.last(), Some(&"down"), "the next call works");
    drop(run);
    assert_eq!(executor.waiting(), 0);
}

/// Both runs give the operation's error.
fn is_contained<P: Policy<(), &'static str> + Settings>(policies: P, observer: impl steadfast::event::Observer) {
    let (clock, _) = at_rest();
    let builder = Executor::builder("bomb").policies(policies).unbudgeted().observe(observer);
    let executor = builder.clock(&clock).build().unwrap();
    let mut run = runs(&executor);
    for _ in 0..2 {
        let error = run(&clock).unwrap_err();
        assert_eq!((error.kind(), error.last()), (exhausted(Limit::Attempts), Some(&"down")));
    }
}

#[test]
fn callback_panics() {
    is_contained(Retry::immediate().on_retry(|_| panic!("each time")), Recorder::default());
    is_contained(Retry::immediate(), |_: &Event| panic!("each time"));
}

/// Case `callback-panics`, for every kind of event: the state is changed, the place of the trial free, and the next call works.
#[test]
fn an_observer_that_panics_at_every_event_harms_nothing() {
    let (clock, _) = at_rest();
    let (breaker, bulkhead) = (trips_at_once(), Bulkhead::with(BulkheadConfig::new(2).queue(1)));
    let chain = (Retry::fixed(secs(1)), Hedge::after(ms(1)), breaker.clone(), bulkhead.clone(), Timeout::secs(2));
    let kinds = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&kinds);
    let observer = move |event: &Event| {
        seen.lock().unwrap().push(std::mem::discriminant(&event.what));
        resume_unwind(Box::new("each time"))
    };
    let builder = Executor::builder("bomb").policies(chain).unbudgeted().clock(&clock);
    let executor = builder.observe(observer).build().unwrap();
    let error = clock.block_on(executor.run(|_| async { Err::<(), _>("down") })).unwrap_err();
    assert_eq!(error.last(), Some(&"down"));
    assert_eq!((breaker.state(), bulkhead.in_flight(), bulkhead.queued()), (State::Open, 0, 0));
    clock.advance(secs(5));
    let slow = executor.run(|attempt| {
        let answer = clock.clock().sleep(ms(10));
        async move {
            answer.await;
            Ok::<_, &str>(attempt.number())
        }
    });
    assert_eq!(clock.block_on(slow).unwrap(), 1);
    assert_eq!((breaker.state(), bulkhead.in_flight(), clock.sleepers()), (State::Closed, 0, 0));
    let mut kinds = kinds.lock().unwrap().clone();
    kinds.dedup();
    assert!(kinds.len() > 8, "{kinds:?}");
}

fn trips_at_once() -> Breaker {
    Breaker::new(BreakerConfig::default().rule(TripRule::consecutive(1)).open_for(secs(5)))
}

#[test]
fn an_observer_that_panics_does_not_keep_others_from_seeing() {
    let (clock, _) = at_rest();
    let recorder = Recorder::default();
    let builder = Executor::builder("bomb").observe(|_: &Event| panic!("each time")).observe(recorder.clone());
    let executor = builder.clock(&clock).build().unwrap();
    clock.block_on(executor.run(|_| async { Ok::<_, ()>(()) })).unwrap();
    assert_eq!(recorder.events().len(), 4);
}

/// Panics whatever it is asked.
struct Broken;

impl Observer for Broken {
    fn on_event(&self, _: &Event) {
        resume_unwind(Box::new("each time"))
    }

    fn is_enabled(&self) -> bool {
        resume_unwind(Box::new("each time"))
    }

    fn span(&self, _: RunId) -> Option<Arc<::tracing::Span>> {
        resume_unwind(Box::new("each time"))
    }
}

#[test]
fn an_observer_that_panics_whatever_it_is_asked_harms_nothing() {
    let (clock, _) = at_rest();
    let recorder = Recorder::default();
    let alone = Executor::builder("bomb").observe(Broken).clock(&clock).build().unwrap();
    let builder = Executor::builder("bomb").observe(Broken).observe(recorder.clone()).observe(Broken);
    let executor = builder.clock(&clock).build().unwrap();
    for executor in [alone, executor] {
        assert_eq!(clock.block_on(executor.run(|_| async { Ok::<_, ()>(7) })).unwrap(), 7);
    }
    assert_eq!(recorder.events().len(), 4);
}

#[test]
fn a_change_of_settings_is_made_whatever_an_observer_does() {
    let (clock, _) = at_rest();
    let recorder = Recorder::default();
    let builder = Executor::standard("bomb").clock(&clock).observe(Broken).observe(recorder.clone());
    let executor = builder.build().unwrap();
    executor.reconfigure(StandardConfig::default().bulkhead(BulkheadConfig::new(7))).unwrap();
    assert_eq!(executor.policies().bulkhead().permits(), 7);
    assert_eq!(recorder.events().len(), 1);
}

#[test]
fn wherever_an_observer_blocks_others_go_on_with_the_same_executor() {
    let mut blocked_at = Vec::new();
    while let Some(what) = others_go_on_while_blocked_at(blocked_at.len()) {
        blocked_at.push(what);
    }
    assert!(blocked_at.iter().collect::<HashSet<_>>().len() >= 11, "{blocked_at:?}");
}

/// A run whose observer blocks at its `nth` event, for as long as another thread needs for runs of its own and for a look at the
/// state. Gives what the event was, if there are so many.
fn others_go_on_while_blocked_at(nth: usize) -> Option<Discriminant<What>> {
    let (clock, _) = at_rest();
    let breaker = Breaker::new(BreakerConfig::default().rule(TripRule::consecutive(3)).open_for(secs(5)));
    let bulkhead = Bulkhead::with(BulkheadConfig::new(1).queue(9));
    let chain = (Retry::fixed(secs(1)), Hedge::after(ms(1)), breaker, bulkhead, Timeout::secs(2));
    let (tell, told) = mpsc::channel();
    let (let_go, may_go) = mpsc::channel::<()>();
    let (count, tells, may_go) = (AtomicUsize::new(0), tell.clone(), Mutex::new(may_go));
    let builder =
        Executor::builder("blocks").policies(chain).unbudgeted().clock(&clock).observe(move |event: &Event| {
            if count.fetch_add(1, Ordering::Relaxed) == nth {
                tells.send(Some(discriminant(&event.what))).unwrap();
                let _until_it_is_dropped = may_go.lock().unwrap().recv();
            }
        });
    let executor = builder.build().unwrap();
    let (theirs, their_clock) = (executor.clone(), clock.clone());
    let blocked = thread::spawn(move || {
        let first_fails_and_second_hangs = theirs.run(|attempt| {
            let fails = their_clock.clock().sleep(ms(5));
            async move {
                fails.await;
                if attempt.is_retry() { pending().await } else { Err::<(), _>("down") }
            }
        });
        let error = their_clock.block_on(first_fails_and_second_hangs).unwrap_err();
        let _nobody_waits_any_more = tell.send(None);
        error.kind()
    });
    let what = told.recv().unwrap();
    if what.is_some() {
        let (end, ended) = mpsc::channel();
        thread::spawn(move || {
            (0..3).for_each(|_| drop(clock.block_on(executor.run(|_| ready(Ok::<_, &str>(()))))));
            end.send(executor.snapshot().policies.len()).unwrap();
        });
        // Time only for a thread that would wait for ever.
        assert_eq!(ended.recv_timeout(secs(60)), Ok(5), "blocked at {what:?}, the event {nth}");
    }
    drop(let_go);
    assert!(matches!(
        blocked.join().unwrap(),
        Kind::CircuitOpen { .. } | Kind::BulkheadFull { .. } | Kind::TimedOut { .. }
    ));
    what
}

#[test]
fn a_panic_in_a_predicate_reaches_the_caller() {
    let bomb = Bomb::default();
    reaches_the_caller((
        Retry::fixed(secs(1)),
        retry_if(move |_: &&str| {
            bomb.tick();
            true
        }),
    ));
    let bomb = Bomb::default();
    reaches_the_caller((
        Retry::fixed(secs(1)),
        retry_after(move |_: &&str| {
            bomb.tick();
            None
        }),
    ));
    let bomb = Bomb::default();
    reaches_the_caller((
        Retry::fixed(secs(1)),
        attempts_for(2, move |_: &&str| {
            bomb.tick();
            true
        }),
    ));
    let bomb = Bomb::default();
    reaches_the_caller((
        Retry::fixed(secs(1)),
        classify(move |_: &Result<(), Error<&str>>| {
            bomb.tick();
            Verdict::Transient
        }),
    ));
}

#[test]
fn a_panic_in_a_computed_wait_or_limit_reaches_the_caller() {
    let bomb = Bomb::default();
    reaches_the_caller(Retry::custom(move |_, _| {
        bomb.tick();
        secs(1)
    }));
    let bomb = Bomb::default();
    reaches_the_caller((
        Retry::fixed(secs(1)),
        Timeout::with(move |_| {
            bomb.tick();
            secs(1)
        }),
    ));
}

#[test]
fn a_panic_in_the_operation_reaches_the_caller_at_every_place() {
    let (clock, _) = at_rest();
    let executor =
        Executor::builder("bomb").policies((Retry::fixed(secs(1)), Timeout::secs(9))).clock(&clock).build().unwrap();
    let now = clock.clock();
    let in_the_call = || clock.block_on(executor.run(|_| -> std::future::Ready<Result<(), ()>> { panic!("its own") }));
    let in_the_first_poll = || clock.block_on(executor.run(|_| async { panic!("its own") as Result<(), ()> }));
    let in_a_later_poll = || {
        clock.block_on(executor.run(async |_| {
            now.sleep(secs(1)).await;
            panic!("its own") as Result<(), ()>
        }))
    };
    let panics: [&dyn Fn() -> Result<(), Error<()>>; 3] = [&in_the_call, &in_the_first_poll, &in_a_later_poll];
    for run in panics {
        assert!(catch_unwind(AssertUnwindSafe(run)).is_err());
        assert_eq!((clock.sleepers(), executor.waiting()), (0, 0));
    }
    assert_eq!(clock.block_on(executor.run(|_| async { Ok::<_, ()>(7) })).unwrap(), 7);
}

#[test]
fn observers_hear_of_earlier_attempts_of_the_one_that_panics_and_of_the_end() {
    let (clock, _) = at_rest();
    let recorder = Recorder::default();
    let builder = Executor::builder("bomb").policies(Retry::fixed(secs(1)));
    let executor = builder.clock(&clock).observe(recorder.clone()).build().unwrap();
    let run = executor.run(async |attempt| {
        assert!(!attempt.is_retry(), "its own");
        Err::<(), _>("down")
    });
    assert!(catch_unwind(AssertUnwindSafe(|| clock.block_on(run))).is_err());
    let seen = recorder.events();
    let end = What::RunFinished { end: RunEnd::Panicked, stopped: None, attempts: 2, elapsed: secs(1) };
    let last = [(2, What::AttemptStarted), (2, What::AttemptAbandoned { why: CutOff::Panicked }), (2, end)];
    assert_eq!(seen[4..], last, "{seen:?}");
}

#[test]
fn a_callback_may_run_another_call_of_the_same_executor() {
    let (clock, cx) = at_rest();
    let inner_clock = clock.clone();
    let retry = Retry::immediate().max_attempts(2).on_retry(move |_| {
        let cx = steadfast::Context::new().with_clock(&inner_clock);
        let inner = try_do(&cx, |_| async { Ok::<_, ()>(7) }, Retry::immediate());
        assert_eq!(inner_clock.block_on(inner).unwrap(), 7);
    });
    let error = clock.block_on(try_do(&cx, |_| async { Err::<(), _>("down") }, retry)).unwrap_err();
    assert_eq!((error.kind(), error.attempts()), (exhausted(Limit::Attempts), 2));
    assert_ne!(error.kind(), Kind::Failed);
}
