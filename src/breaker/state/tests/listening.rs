//! What listeners are told: everything, in order, one at a time, and whatever they do.

use std::sync::atomic::AtomicUsize;
use std::sync::{Barrier, Mutex as StdMutex, OnceLock, PoisonError};
use std::thread;

use super::*;

pub(super) type Log = Arc<StdMutex<Vec<Transition>>>;

pub(super) fn logging(config: BreakerConfig) -> (BreakerConfig, Log) {
    let log = Log::default();
    let writer = Arc::clone(&log);
    (config.on_transition(move |change| push(&writer, change)), log)
}

pub(super) fn entries(log: &Log) -> Vec<Transition> {
    log.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

fn push(log: &Log, change: Transition) {
    log.lock().unwrap_or_else(PoisonError::into_inner).push(change);
}

#[test]
fn a_transition_says_what_changed_when_and_why() {
    let (config, log) = logging(rate(2));
    let core = breaker(config);
    call(&core, End::Success, at(0));
    call(&core, End::Failure, at(500));
    assert!(acquire(&core, at(600)).is_err());
    call(&core, End::Success, at(30_700));
    let closed = Counts { calls: 2, failures: 1, ..Counts::default() };
    let open = Counts { rejected: 1, ..Counts::default() };
    let half_open = Counts { calls: 1, consecutive_successes: 1, rejected: 1, ..Counts::default() };
    let change = |from, to, cause, counts, at| {
        let open_for = (to == State::Open).then_some(OPEN_TIME);
        Transition { from, to, cause, counts, at, open_for, key: None }
    };
    let expected = [
        change(State::Closed, State::Open, Cause::FailureRate, closed, at(500)),
        change(State::Open, State::HalfOpen, Cause::OpenTimeOver, open, at(30_700)),
        change(State::HalfOpen, State::Closed, Cause::TrialsSucceeded, half_open, at(30_700)),
    ];
    assert_eq!(entries(&log), expected);
}

#[test]
fn every_way_to_reopen_has_its_cause() {
    let flood = |core: &Core, trial: Ticket| {
        core.settle(trial, End::Nothing, at(30_000));
        (0..10).for_each(|_| call(core, End::Nothing, at(30_000)));
    };
    type Ending<'a> = &'a dyn Fn(&Core, Ticket);
    let endings: [(Cause, Ending<'_>); 4] = [
        (Cause::TrialFailed, &|core, trial| {
            core.settle(trial, End::Failure, at(30_000));
        }),
        (Cause::TrialAbandoned, &|core, trial| {
            core.settle(trial, End::Abandoned, at(30_000));
        }),
        (Cause::TrialExpired, &|core, _| {
            assert!(acquire(core, at(61_000)).is_err());
        }),
        (Cause::TrialsWithoutVerdict, &flood),
    ];
    for (cause, ending) in endings {
        let (config, log) = logging(consecutive(1));
        let (core, trial) = with_trial(config);
        ending(&core, trial);
        let last = entries(&log).pop().expect("re-opened");
        assert_eq!((last.from, last.to, last.cause), (State::HalfOpen, State::Open, cause));
        let when = if cause == Cause::TrialExpired { at(60_000) } else { at(30_000) };
        assert_eq!(last.at, when, "{cause:?}");
    }
}

#[test]
fn several_listeners_are_told_in_the_order_in_which_they_were_added() {
    let told = Arc::new(StdMutex::new(Vec::new()));
    let config = (0..3).fold(consecutive(1), |config, number| {
        let told = Arc::clone(&told);
        config.on_transition(move |_| told.lock().expect("no panic").push(number))
    });
    call(&breaker(config), End::Failure, at(0));
    assert_eq!(*told.lock().expect("no panic"), [0, 1, 2]);
}

#[test]
fn callback_reads_breaker_deadlock() {
    let shared: Arc<OnceLock<Core>> = Arc::default();
    let told = Arc::new(AtomicUsize::new(0));
    let (listened, count) = (Arc::clone(&shared), Arc::clone(&told));
    let config = consecutive(1).on_transition(move |change| {
        let core = listened.get().expect("made before its first call");
        assert_eq!(core.state(change.at), change.to);
        assert_eq!(core.counts(change.at).calls, 0);
        assert_eq!(core.remaining_open(change.at).is_zero(), change.to != State::Open);
        if change.to != State::Closed {
            assert!(acquire(core, change.at).is_err(), "refused while {}", change.to);
        }
        count.fetch_add(1, Ordering::Relaxed);
    });
    let core = shared.get_or_init(|| breaker(config));
    call(core, End::Failure, at(0));
    call(core, End::Success, at(30_000));
    assert_eq!(told.load(Ordering::Relaxed), 3, "no callback stopped at an assertion");
}

#[test]
fn what_a_listener_causes_is_told_after_its_return() {
    let shared: Arc<OnceLock<Core>> = Arc::default();
    let told = Arc::new(StdMutex::new(Vec::new()));
    let (listened, lines) = (Arc::clone(&shared), Arc::clone(&told));
    let config = consecutive(1).on_transition(move |change| {
        let line = |text: &str| lines.lock().expect("no panic").push(format!("{text} {}", change.to));
        line("begin");
        if change.to == State::Open {
            call(listened.get().expect("made before its first call"), End::Success, at(30_000));
        }
        line("end");
    });
    call(shared.get_or_init(|| breaker(config)), End::Failure, at(0));
    let expected = ["begin open", "end open", "begin half-open", "end half-open", "begin closed", "end closed"];
    assert_eq!(*told.lock().expect("no panic"), expected);
}

/// Each thread trips, waits on its own clock for the trial, and closes or re-opens.
#[test]
fn callback_order_lost() {
    const THREADS: u64 = 8;
    let running = Arc::new(AtomicUsize::new(0));
    let guard = Arc::clone(&running);
    let (config, log) = logging(consecutive(1).trials(2).on_transition(move |_| {
        assert_eq!(guard.fetch_add(1, Ordering::SeqCst), 0, "callbacks overlap");
        thread::yield_now();
        guard.fetch_sub(1, Ordering::SeqCst);
    }));
    let core = breaker(config);
    let clock = AtomicU64::new(0);
    let barrier = Barrier::new(THREADS as usize);
    thread::scope(|scope| {
        for number in 0..THREADS {
            let (core, clock, barrier) = (&core, &clock, &barrier);
            scope.spawn(move || {
                barrier.wait();
                for round in 0..2_500 {
                    let now = at(clock.fetch_add(7_000, Ordering::SeqCst));
                    let end = if (round + number) % 3 == 0 { End::Success } else { End::Failure };
                    if let Ok(ticket) = acquire(core, now) {
                        core.settle(ticket, end, now);
                    }
                }
            });
        }
    });
    let log = entries(&log);
    assert!(log.len() > 1_000, "{} transitions", log.len());
    assert_eq!(log[0].from, State::Closed);
    assert!(log.windows(2).all(|pair| pair[0].to == pair[1].from));
    assert_eq!(log.last().map(|last| last.to), Some(core.word().state()));
    assert_eq!(running.load(Ordering::SeqCst), 0);
    assert_eq!(core.word().generation(), log.len() as u64, "none is missing");
}

#[test]
fn callback_panics() {
    let config = consecutive(1).on_transition(|_| std::panic::resume_unwind(Box::new("listener")));
    let (config, log) = logging(config);
    let core = breaker(config);
    for round in 0..3 {
        call(&core, End::Failure, at(round * 60_000));
        assert_eq!(core.state(at(round * 60_000)), State::Open, "the change is complete");
        call(&core, End::Success, at(round * 60_000 + 30_000));
        assert_eq!(core.state(at(round * 60_000 + 30_000)), State::Closed, "the place was freed");
    }
    assert_eq!(entries(&log).len(), 9, "the listener after it and later changes are served");
}

#[test]
fn a_listener_may_panic_while_its_thread_unwinds() {
    struct SettlesOnDrop(Core, Ticket);
    impl Drop for SettlesOnDrop {
        fn drop(&mut self) {
            self.0.settle(self.1, End::Abandoned, at(30_000));
            assert_eq!(self.0.state(at(30_000)), State::Open);
        }
    }
    let config = consecutive(1).on_transition(|_| std::panic::resume_unwind(Box::new("listener")));
    let (core, trial) = with_trial(config);
    let outcome = thread::spawn(move || {
        let _permit = SettlesOnDrop(core, trial);
        std::panic::resume_unwind(Box::new("operation"));
    });
    let payload = outcome.join().expect_err("the operation panicked");
    assert_eq!(payload.downcast_ref::<&str>(), Some(&"operation"));
}

#[test]
fn settings_that_panic_when_dropped_leave_the_listeners_working() {
    struct Throws;
    impl Drop for Throws {
        fn drop(&mut self) {
            if !thread::panicking() {
                std::panic::resume_unwind(Box::new("settings"));
            }
        }
    }
    let told = Arc::new(AtomicUsize::new(0));
    let count = || {
        let told = Arc::clone(&told);
        move || _ = told.fetch_add(1, Ordering::Relaxed)
    };
    let (later, first) = (count(), count());
    let later = consecutive(1).on_transition(move |_| later());
    let shared: Arc<OnceLock<Arc<Family>>> = Arc::default();
    let (throws, family) = (Throws, Arc::clone(&shared));
    let config = consecutive(1).on_transition(move |_| {
        let _owned = &throws;
        first();
        // What delivers this change has the last share in these settings then.
        family.get().expect("made before").reconfigure(later.clone()).expect("valid");
    });
    let family = shared.get_or_init(|| Arc::new(Family::new(config, false)));
    let core = Core::new(Arc::clone(family), None);
    call(&core, End::Failure, at(0));
    assert_eq!((told.load(Ordering::Relaxed), core.state(at(0))), (1, State::Open));
    call(&core, End::Success, at(30_000));
    assert_eq!((told.load(Ordering::Relaxed), core.state(at(30_000))), (3, State::Closed));
}

/// Others wait for the one who makes what a breaker needs that has tripped, so nothing of the user's may run in there.
#[test]
fn no_settings_are_dropped_while_a_breaker_is_made_ready_to_open() {
    thread_local! {
        static TRIPPING: std::cell::RefCell<Option<Arc<Core>>> = const { std::cell::RefCell::new(None) };
    }
    static TOO_EARLY: AtomicUsize = AtomicUsize::new(0);
    struct Watches;
    impl Drop for Watches {
        fn drop(&mut self) {
            let tripping = TRIPPING.with_borrow(Option::clone);
            TOO_EARLY.fetch_add(usize::from(tripping.is_some_and(|core| core.rare.get().is_none())), Ordering::Relaxed);
        }
    }
    let config = || {
        let watches = Watches;
        consecutive(1).on_transition(move |_| _ = &watches)
    };
    let family = Arc::new(Family::new(config(), true));
    let is_done = std::sync::atomic::AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                family.reconfigure(config()).expect("valid");
            }
        });
        for _ in 0..100_000 {
            let core = Arc::new(Core::new(Arc::clone(&family), None));
            TRIPPING.set(Some(Arc::clone(&core)));
            call(&core, End::Failure, at(0));
            TRIPPING.set(None);
        }
        is_done.store(true, Ordering::Relaxed);
    });
    assert_eq!(TOO_EARLY.load(Ordering::Relaxed), 0);
}
