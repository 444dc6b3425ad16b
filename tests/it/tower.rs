//! The tower layer: readiness, clones, errors, contexts, and the reported bugs of other layers.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, join_all};
use steadfast::breaker::{BreakerConfig, State, TripRule};
use steadfast::clock::{Clock, ManualClock};
use steadfast::error::{BoxError, Kind, Limit, Opaque};
use steadfast::executor::{AnyError, AnyValue};
use steadfast::judge::{by_error, classify, retry_if};
use steadfast::limit::{Bulkhead, BulkheadConfig, RateLimiter, RateLimiterConfig};
use steadfast::policy::Settings;
use steadfast::tower::{CloneRequest, Layer};
use steadfast::{
    Breaker, CancellationToken, Classified, Context, Error, Executor, Hedge, Policy, Retry, Timeout, Verdict,
};
use tower::limit::ConcurrencyLimit;
use tower::{Layer as _, Service, ServiceExt};

use crate::support::{Script, Step, beside, err, exhausted, hangs, ms, ok, pending_times, secs, timed_out};
use crate::tower_service::{Log, Strict};

fn executor<P: Settings>(clock: &ManualClock, policies: P) -> Executor<P> {
    Executor::builder("billing").policies(policies).unbudgeted().clock(clock).build().unwrap()
}

type Steps = Vec<Step<u32, &'static str>>;
type Scripted = Arc<Script<u32, &'static str>>;
type Answer = BoxFuture<'static, Result<u32, &'static str>>;

/// A strict service that does what its steps say.
fn strict(
    clock: &ManualClock,
    steps: impl Into<Steps>,
) -> (Strict<impl Fn() -> Answer + Clone + Send + 'static>, Scripted) {
    let script = Arc::new(Script::new(clock, steps));
    let scripted = Arc::clone(&script);
    let answer = move || {
        let script = Arc::clone(&scripted);
        async move { script.call_plain().await }.boxed()
    };
    (Strict::new(answer), script)
}

/// What became of one call, and of all that it has held.
fn run<P>(policies: P, steps: impl Into<Steps>) -> (Result<u32, Error<&'static str>>, Arc<Log>, Duration)
where
    P: Policy<u32, &'static str> + 'static,
{
    let clock = Clock::manual();
    let (inner, script) = strict(&clock, steps);
    let log = inner.log();
    let service = Layer::new(executor(&clock, policies)).typed().layer(inner);
    let result = clock.block_on(service.oneshot(7_u32));
    assert_eq!((log.reserved(), log.in_flight(), clock.sleepers()), (0, 0, 0), "something is left");
    (result, log, script.elapsed())
}

fn retry() -> Retry {
    Retry::immediate().max_attempts(3)
}

/// A service that is ready at once, or cannot be.
fn ready<S: Service<u32>>(service: &mut S) -> Result<&mut S, S::Error> {
    service.ready().now_or_never().unwrap()
}

// --- the contract of readiness

/// Three calls, each through its own clone, of which the first fails twice.
fn three_calls<P>(policies: P) -> usize
where
    P: Policy<u32, &'static str> + 'static,
{
    let clock = Clock::manual();
    let (inner, _) = strict(&clock, [err("reset"), err("reset"), ok(3)]);
    let log = inner.log();
    let mut service = Layer::new(executor(&clock, policies)).layer(inner);
    clock.block_on(async {
        for _ in 0..3 {
            let _ = ServiceExt::<u32>::ready(&mut service).await.unwrap().call(7).await;
            // A clone of an instance that was polled ready is not.
            let mut clone = ServiceExt::<u32>::ready(&mut service).await.unwrap().clone();
            let _ = ServiceExt::<u32>::ready(&mut clone).await.unwrap().call(7).await;
        }
    });
    drop(service);
    assert_eq!((log.reserved(), log.in_flight()), (0, 0));
    log.calls()
}

#[test]
fn call_on_unreadied_clone() {
    assert_eq!(three_calls(()), 6);
    assert_eq!(three_calls(retry()), 8);
    assert_eq!(three_calls(Timeout::secs(1)), 6);
    assert_eq!(three_calls(Breaker::default()), 6);
    assert_eq!(three_calls(Hedge::after(ms(10))), 7);
    assert_eq!(three_calls(Bulkhead::new(1)), 6);
    assert_eq!(three_calls(RateLimiter::new(RateLimiterConfig::per_second(1).max_wait(secs(9)))), 6);
    let all = (Bulkhead::new(1), retry(), Breaker::default(), Hedge::after(ms(10)), Timeout::secs(1));
    assert_eq!(three_calls(all), 8);
}

#[test]
fn the_instance_that_was_polled_ready_is_the_one_that_is_called() {
    let (result, log, _) = run((), [ok(3)]);
    assert_eq!((result.unwrap(), log.polls(), log.calls()), (3, 1, 1), "a clone would have been polled again");
}

#[test]
fn retry_and_hedge_clones_unreadied() {
    let (result, log, _) = run(retry(), [err("reset"), err("reset"), ok(3)]);
    assert_eq!((result.unwrap(), log.polls(), log.calls()), (3, 3, 3));
    let slow = || [ok(1).after(ms(100)), ok(2).after(ms(5))];
    let (result, log, took) = run(Hedge::after(ms(10)), slow());
    assert_eq!((result.unwrap(), log.polls(), log.calls(), took), (2, 2, 2, ms(15)));
    // With room for one the hedge waits for its turn, in vain.
    let clock = Clock::manual();
    let (inner, script) = strict(&clock, slow());
    let limited = ConcurrencyLimit::new(inner, 1);
    let service = Layer::new(executor(&clock, Hedge::after(ms(10)))).typed().layer(limited);
    assert_eq!(clock.block_on(service.clone().oneshot(7)).unwrap(), 1);
    assert_eq!((script.calls(), script.elapsed()), (vec![ms(0)], ms(100)));
    assert_eq!(clock.block_on(service.oneshot(7)).unwrap(), 2, "its place is free");
}

#[test]
fn ready_error_and_spare_reservation() {
    let clock = Clock::manual();
    let (inner, _) = strict(&clock, [err("reset")]);
    // Of the caller's own question.
    let broken = inner.clone().ready(|_| Poll::Ready(Err("the worker is gone")));
    let mut service = Layer::new(executor(&clock, retry())).typed().layer(broken);
    let error = ready(&mut service).err().unwrap();
    assert_eq!((error.kind(), error.last()), (Kind::Failed, Some(&"the worker is gone")));
    // Of the question for a further attempt, which is an attempt that failed.
    let log = inner.log();
    let gone_later = inner.ready(|polls| Poll::Ready(if polls == 2 { Ok(()) } else { Err("the worker is gone") }));
    let mut service = Layer::new(executor(&clock, retry())).typed().layer(gone_later);
    ready(&mut service).unwrap();
    let error = clock.block_on(service.call(7)).unwrap_err();
    assert_eq!((error.kind(), error.last()), (exhausted(Limit::Attempts), Some(&"the worker is gone")));
    assert_eq!((error.attempts(), log.polls(), log.calls()), (3, 4, 1), "it must not spin");
}

#[test]
fn what_was_reserved_for_a_call_that_is_not_made_is_given_back() {
    let clock = Clock::manual();
    let (inner, _) = strict(&clock, [hangs()]);
    let log = inner.log();
    let mut service = Layer::new(executor(&clock, retry())).layer(inner);
    ready(&mut service).unwrap();
    assert_eq!(log.reserved(), 1);
    let call = service.call(7);
    assert_eq!(log.reserved(), 1, "it goes with the call");
    drop(call);
    assert_eq!(log.reserved(), 0);
    ready(&mut service).unwrap();
    drop(service);
    assert_eq!((log.reserved(), log.calls()), (0, 0));
}

#[test]
fn a_call_that_is_refused_gives_back_what_was_reserved_for_it() {
    let clock = Clock::manual();
    let (inner, _) = strict(&clock, [ok(3)]);
    let log = inner.log();
    let breaker = Breaker::default();
    let service = Layer::new(executor(&clock, (retry(), breaker.clone()))).typed().layer(inner);
    assert_eq!(clock.block_on(service.clone().oneshot(7)).unwrap(), 3);
    breaker.isolate();
    assert!(clock.block_on(service.oneshot(7)).unwrap_err().is_circuit_open());
    assert_eq!((log.polls(), log.calls(), log.reserved()), (2, 1, 0));
}

#[test]
fn a_call_that_waits_for_its_turn_holds_nothing_inside() {
    let clock = Clock::manual();
    // The first call fails, and its second attempt needs the place inside that the call behind it was given.
    let (inner, script) = strict(&clock, [err("reset"), ok(2), ok(3)]);
    let limited = ConcurrencyLimit::new(inner, 1);
    let line = Bulkhead::with(BulkheadConfig::new(1).queue(9).max_wait(Duration::MAX));
    let policies = (line, Retry::fixed(secs(1)));
    let service = Layer::new(executor(&clock, policies)).typed().layer(limited);
    let calls = join_all([service.clone().oneshot(7), service.oneshot(7)]);
    let results: Vec<_> = clock.block_on(calls).into_iter().map(Result::unwrap).collect();
    assert_eq!((results, script.calls()), (vec![2, 3], vec![ms(0), secs(1), secs(1)]));
}

#[test]
fn back_pressure_passes_through() {
    let clock = Clock::manual();
    let (inner, _) = strict(&clock, [hangs()]);
    let limited = ConcurrencyLimit::new(inner, 1);
    let service = Layer::new(executor(&clock, retry())).layer(limited);
    let (mut first, mut second) = (service.clone(), service);
    let call = ready(&mut first).unwrap().call(7);
    assert!(ServiceExt::<u32>::ready(&mut second).now_or_never().is_none(), "the place inside is taken");
    drop(call);
    assert!(ServiceExt::<u32>::ready(&mut second).now_or_never().is_some());
}

#[test]
fn a_service_that_is_never_ready_again_is_waited_for_within_the_limit_of_the_attempt() {
    let clock = Clock::manual();
    let (inner, _) = strict(&clock, [err("reset")]);
    let log = inner.log();
    let inner = inner.ready(|polls: usize| if polls == 1 { Poll::Ready(Ok(())) } else { Poll::Pending });
    let service = Layer::new(executor(&clock, (retry(), Timeout::secs(1)))).typed().layer(inner);
    let start = clock.now();
    let error = clock.block_on(service.oneshot(7)).unwrap_err();
    assert_eq!((error.kind(), clock.now().since(start)), (timed_out(secs(1)), secs(2)));
    assert!(log.polls() <= 5, "{} polls", log.polls());
}

#[test]
fn a_call_dropped_at_any_poll_gives_everything_back() {
    for polls in 0..6 {
        let clock = Clock::manual();
        let log = {
            let inner = Strict::new(|| async {
                pending_times(1).await;
                Err::<u32, _>("reset")
            });
            let log = inner.log();
            let policies = (Bulkhead::new(1), retry(), Breaker::default());
            let mut service = Layer::new(executor(&clock, policies)).typed().layer(inner);
            let mut call = ready(&mut service).unwrap().call(7);
            for _ in 0..polls {
                if (&mut call).now_or_never().is_some() {
                    break;
                }
            }
            drop(call);
            assert!(ready(&mut service).unwrap().call(7).now_or_never().is_none());
            log
        };
        assert_eq!((log.reserved(), log.in_flight(), clock.sleepers()), (0, 0, 0), "dropped after {polls}");
    }
}

// --- limits, as a layer

#[test]
fn only_last_waiter_woken() {
    let clock = Clock::manual();
    let order = Arc::new(Mutex::new(Vec::new()));
    let start = clock.now();
    let (now, seen) = (clock.clone(), Arc::clone(&order));
    let inner = tower::service_fn(move |caller: u32| {
        seen.lock().unwrap().push((caller, now.now().since(start)));
        async { Ok::<_, BoxError>(()) }
    });
    let limit = RateLimiter::new(RateLimiterConfig::per_second(1).max_wait(secs(60)));
    let service = Layer::new(executor(&clock, limit)).layer(inner);
    let calls = join_all((0..6).map(|caller| service.clone().oneshot(caller)));
    assert!(clock.block_on(calls).iter().all(Result::is_ok));
    let expected: Vec<_> = (0..6).map(|caller| (caller, secs(caller.into()))).collect();
    assert_eq!(*order.lock().unwrap(), expected);
}

#[test]
fn second_wait_treated_as_admission() {
    let clock = Clock::manual();
    let (inner, script) = strict(&clock, [ok(1)]);
    let limit = RateLimiter::new(RateLimiterConfig::per_second(10).max_wait(secs(20)));
    let service = Layer::new(executor(&clock, limit)).layer(inner);
    let calls = join_all((0..100).map(|_| service.clone().oneshot(7)));
    assert!(clock.block_on(calls).iter().all(Result::is_ok));
    let calls = script.calls();
    assert!(calls.windows(11).all(|window| window[10] - window[0] >= secs(1) || window[0] == ms(0)), "{calls:?}");
    assert_eq!((calls.len(), script.elapsed() <= secs(10)), (100, true));
}

#[test]
fn ready_does_not_reserve() {
    let clock = Clock::manual();
    let (inner, _) = strict(&clock, [ok(1).after(secs(1))]);
    let log = inner.log();
    let bulkhead = Bulkhead::with(BulkheadConfig::new(5).queue(50).max_wait(secs(60)));
    let mut services = vec![Layer::new(executor(&clock, bulkhead.clone())).typed().layer(inner); 50];
    for service in &mut services {
        ready(service).unwrap();
    }
    assert_eq!(bulkhead.in_flight(), 0);
    let mut calls: Vec<_> = services.iter_mut().map(|service| service.call(7)).collect();
    for call in &mut calls {
        assert!(call.now_or_never().is_none());
    }
    assert_eq!((log.in_flight(), bulkhead.in_flight()), (5, 5));
    // 20 are dropped, the five that run among them.
    calls.drain(..20);
    assert_eq!((log.in_flight(), bulkhead.in_flight()), (0, 0), "their places are free");
    assert!(clock.block_on(join_all(calls)).iter().all(Result::is_ok));
    assert_eq!((log.most(), log.in_flight(), bulkhead.in_flight(), log.calls()), (5, 0, 0, 35));
}

#[test]
fn a_service_that_is_full_is_asked_again_only_when_it_says_so() {
    let clock = Clock::manual();
    let asked = Arc::new(AtomicUsize::new(0));
    let (inner, _) = strict(&clock, [ok(1).after(secs(1))]);
    let service = Layer::new(executor(&clock, retry())).layer(ConcurrencyLimit::new(inner, 1));
    let mut waiting = service.clone();
    let count = Arc::clone(&asked);
    let waits = async move {
        std::future::poll_fn(|cx| {
            count.fetch_add(1, SeqCst);
            Service::<u32>::poll_ready(&mut waiting, cx)
        })
        .await
        .unwrap();
        waiting.call(7).await.unwrap()
    };
    let (first, second) = clock.block_on(futures::future::join(service.oneshot(7), waits));
    assert_eq!((first.unwrap(), second), (1, 1));
    assert!(asked.load(SeqCst) <= 4, "{} polls", asked.load(SeqCst));
}

#[test]
fn cancelled_probe_sticks() {
    let clock = Clock::manual();
    let (inner, _) = strict(&clock, [err("down"), ok(2).after(secs(2)), ok(3)]);
    let breaker = Breaker::new(BreakerConfig::default().rule(TripRule::consecutive(1)).open_for(secs(5)));
    let service = Layer::new(executor(&clock, breaker.clone())).typed().layer(inner);
    let call = || service.clone().oneshot(7);
    clock.block_on(call()).unwrap_err();
    clock.advance(secs(7));
    let mut probe = call();
    assert!((&mut probe).now_or_never().is_none());
    clock.advance(secs(1));
    drop(probe);
    clock.advance(ms(100));
    assert!(clock.block_on(call()).unwrap_err().is_circuit_open(), "an abandoned trial opens it again");
    clock.advance(secs(5));
    assert_eq!((clock.block_on(call()).unwrap(), breaker.state()), (3, State::Closed));
}

// --- errors

#[test]
fn an_error_is_a_boxed_error_of_the_chain() {
    let clock = Clock::manual();
    let (inner, _) = strict(&clock, [err("reset")]);
    let service = Layer::new(executor(&clock, retry())).layer(inner);
    let boxed: BoxError = clock.block_on(service.oneshot(7)).unwrap_err();
    let error = boxed.downcast_ref::<Error<Opaque>>().unwrap();
    assert_eq!((error.kind(), error.attempts()), (exhausted(Limit::Attempts), 3));
    assert_eq!(boxed.to_string(), "billing: gave up: no attempts left (after 3 attempts; last error: reset)");
}

#[test]
fn a_typed_layer_keeps_the_error_of_the_service() {
    let (result, ..) = run(retry(), [err("reset")]);
    assert_eq!(result.unwrap_err().into_last(), Some("reset"));
}

#[test]
fn a_chain_around_a_chain_knows_what_the_inner_one_has_said() {
    let clock = Clock::manual();
    let (inner, script) = strict(&clock, [ok(3)]);
    let closed = executor(&clock, ());
    closed.close();
    let service = Layer::new(executor(&clock, retry())).layer(Layer::new(closed).layer(inner));
    let error = clock.block_on(service.oneshot(7)).unwrap_err();
    let error = error.downcast_ref::<Error<Opaque>>().unwrap();
    assert_eq!((error.attempts(), script.calls().len()), (1, 0), "what ended from outside is not tried again");
}

#[test]
fn a_judgement_is_the_word_of_every_policy() {
    let clock = Clock::manual();
    let once = executor(&clock, retry()).erase();
    let (inner, script) = strict(&clock, [err("no such page")]);
    let service = Layer::new(once.clone()).judge(retry_if(|error: &&str| *error == "reset")).typed().layer(inner);
    assert_eq!(clock.block_on(service.oneshot(7)).unwrap_err().kind(), Kind::Failed);
    assert_eq!(script.calls().len(), 1);
    // Values too.
    let (inner, script) = strict(&clock, [ok(503), ok(200)]);
    let busy = classify(|result: &Result<u32, Error<&str>>| match result {
        Ok(503) | Err(_) => Verdict::Transient,
        Ok(_) => Verdict::Success,
    });
    let service = Layer::new(once).judge(busy).layer(inner);
    assert_eq!((clock.block_on(service.oneshot(7)).unwrap(), script.calls().len()), (200, 2));
}

#[derive(Debug)]
struct Down(Verdict);

impl Classified for Down {
    fn verdict(&self) -> Verdict {
        self.0
    }
}

#[test]
fn errors_that_know_their_verdict_are_asked() {
    let clock = Clock::manual();
    for (verdict, attempts) in [(Verdict::Permanent, 1), (Verdict::Fatal, 1), (Verdict::Transient, 3)] {
        let inner = tower::service_fn(move |_: u32| async move { Err::<(), _>(Down(verdict)) });
        let service = Layer::new(executor(&clock, retry())).judge(by_error()).typed().layer(inner);
        assert_eq!(clock.block_on(service.oneshot(7)).unwrap_err().attempts(), attempts, "{verdict:?}");
    }
}

#[test]
fn a_rule_that_cannot_work_ends_the_call_before_anything_is_started() {
    let clock = Clock::manual();
    let (inner, script) = strict(&clock, [ok(3)]);
    let never = steadfast::judge::attempts_for(0, |_: &&str| true);
    let service = Layer::new(executor(&clock, retry())).judge(never).typed().layer(inner);
    assert_eq!(clock.block_on(service.oneshot(7)).unwrap_err().kind(), Kind::Misconfigured);
    assert_eq!(script.calls().len(), 0);
}

// --- what the caller brings

#[test]
fn each_request_brings_its_context() {
    let clock = Clock::manual();
    let (inner, _) = strict(&clock, [hangs()]);
    let on = clock.clone();
    let layer = Layer::new(executor(&clock, retry()))
        .with_context(move |limit: &Duration| Context::new().with_clock(&on).with_timeout(*limit))
        .typed();
    let service = layer.layer(inner);
    let start = clock.now();
    let error = clock.block_on(service.oneshot(secs(3))).unwrap_err();
    assert_eq!((error.kind(), clock.now().since(start)), (Kind::DeadlineExceeded, secs(3)));
}

#[test]
fn a_deadline_counts_from_the_call() {
    let clock = Clock::manual();
    let (inner, script) = strict(&clock, [ok(3)]);
    let on = clock.clone();
    let mut service = Layer::new(executor(&clock, ()))
        .with_context(move |_: &u32| Context::new().with_clock(&on).with_timeout(secs(1)))
        .typed()
        .layer(inner);
    let call = ready(&mut service).unwrap().call(7);
    clock.advance(secs(2));
    assert_eq!(clock.block_on(call).unwrap_err().kind(), Kind::DeadlineExceeded);
    assert_eq!(script.calls().len(), 0);
}

#[test]
fn a_token_ends_a_call_in_the_middle_and_shutdown_ends_all() {
    let clock = Clock::manual();
    let (inner, _) = strict(&clock, [hangs()]);
    let log = inner.log();
    let billing = executor(&clock, retry());
    let service = Layer::new(billing.clone())
        .with_context(|token: &CancellationToken| Context::new().with_token(token.clone()))
        .typed()
        .layer(inner);
    let token = CancellationToken::new();
    let (stop, at) = (token.clone(), clock.clock());
    let cancel = async move {
        at.sleep(secs(1)).await;
        stop.cancel();
    };
    let error = clock.block_on(beside(cancel, service.clone().oneshot(token))).unwrap_err();
    assert_eq!((error.is_cancelled(), log.in_flight()), (true, 0));
    billing.shutdown();
    let error = clock.block_on(service.oneshot(CancellationToken::new())).unwrap_err();
    assert_eq!((error.kind(), log.calls()), (Kind::ShutDown, 1));
}

#[test]
fn a_context_is_for_its_own_call() {
    let clock = Clock::manual();
    let (inner, script) = strict(&clock, [err("reset")]);
    let service = Layer::new(executor(&clock, retry()))
        .with_context(|most: &u32| Context::new().with_max_attempts(*most))
        .typed()
        .layer(inner);
    for (most, calls) in [(1, 1), (9, 4), (2, 6)] {
        clock.block_on(service.clone().oneshot(most)).unwrap_err();
        assert_eq!(script.calls().len(), calls, "at most {most}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_calls_get_their_own_answers() {
    let tries = Arc::new(Mutex::new(std::collections::HashMap::new()));
    let inner = tower::service_fn(move |caller: u32| {
        let mut tries = tries.lock().unwrap();
        let count = tries.entry(caller).or_insert(0);
        *count += 1;
        let result = if *count < 3 { Err("reset") } else { Ok(caller) };
        async move {
            tokio::task::yield_now().await;
            result
        }
    });
    let patient = Breaker::new(BreakerConfig::default().rule(TripRule::consecutive(1_000_000)));
    let chain = Executor::builder("shared").unbudgeted().policies((Bulkhead::new(1_000), retry(), patient));
    let chain = chain.build().unwrap();
    let service = Layer::new(chain).typed().layer(inner);
    let calls = (0..500).map(|caller| tokio::spawn(service.clone().oneshot(caller)));
    let answers = join_all(calls.collect::<Vec<_>>()).await;
    for (caller, answer) in (0..).zip(answers) {
        assert_eq!(answer.unwrap().unwrap(), caller);
    }
}

#[test]
fn what_refuses_a_call_says_so_through_the_layer() {
    fn refused<P: Policy<u32, &'static str> + 'static>(clock: &ManualClock, policy: P) -> Error<&'static str> {
        let (inner, script) = strict(clock, [hangs(), ok(3)]);
        let service = Layer::new(executor(clock, policy)).typed().layer(inner);
        let mut first = service.clone().oneshot(7);
        assert!((&mut first).now_or_never().is_none());
        let error = clock.block_on(service.oneshot(7)).unwrap_err();
        assert_eq!(script.calls().len(), 1);
        error
    }
    let clock = Clock::manual();
    assert!(matches!(refused(&clock, Bulkhead::new(1)).kind(), Kind::BulkheadFull { .. }));
    let once = RateLimiter::new(RateLimiterConfig::per_second(1).burst(1));
    assert_eq!(refused(&clock, once).retry_after(), Some(secs(1)));
}

// --- requests that cannot be copied

/// Can be copied for as long as the flag says so.
struct Upload(Arc<AtomicUsize>);

impl CloneRequest for Upload {
    fn try_clone(&self) -> Option<Upload> {
        self.can_clone().ok().map(|()| Upload(Arc::clone(&self.0)))
    }

    fn can_clone(&self) -> Result<(), &'static str> {
        if self.0.load(SeqCst) == 0 { Ok(()) } else { Err("it was sent on") }
    }
}

#[test]
fn only_the_first_attempt_may_have_what_cannot_be_copied() {
    for (from_the_beginning, attempts) in [(1, 1), (0, 2)] {
        let clock = Clock::manual();
        let sent_on = Arc::new(AtomicUsize::new(from_the_beginning));
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&calls);
        // The second attempt sends more of it than can be kept.
        let inner = tower::service_fn(move |upload: Upload| {
            let call = counted.fetch_add(1, SeqCst) + 1;
            upload.0.fetch_add(call / 2, SeqCst);
            async { Err::<(), _>("reset") }
        });
        let service = Layer::new(executor(&clock, Retry::immediate().max_attempts(9))).typed().layer(inner);
        let error = clock.block_on(service.oneshot(Upload(Arc::clone(&sent_on)))).unwrap_err();
        assert_eq!((error.last(), error.attempts(), calls.load(SeqCst)), (Some(&"reset"), attempts, attempts as usize));
    }
}

#[test]
fn a_hedge_that_finds_no_request_leaves_the_first_alone() {
    let clock = Clock::manual();
    let sent_on = Arc::new(AtomicUsize::new(0));
    let at = clock.clock();
    let inner = tower::service_fn(move |_: Upload| {
        let at = at.clone();
        async move {
            at.sleep(secs(1)).await;
            Ok::<_, &str>("whole")
        }
    });
    // The hedge has to wait inside, and by then the request cannot be copied any more.
    let flag = Arc::clone(&sent_on);
    let limited = ConcurrencyLimit::new(inner, 2);
    let mut spare = limited.clone();
    let service = Layer::new(executor(&clock, Hedge::after(ms(10)))).typed().layer(limited);
    let call = service.oneshot(Upload(sent_on));
    let at = clock.clock();
    let beside_it = async {
        at.sleep(ms(5)).await;
        std::future::poll_fn(|cx| Service::<Upload>::poll_ready(&mut spare, cx)).await.unwrap();
        at.sleep(ms(15)).await;
        flag.store(1, SeqCst);
        drop(spare);
    };
    assert_eq!(clock.block_on(beside(beside_it, call)).unwrap(), "whole");
}

// --- every kind of executor

#[test]
fn typed_and_erased_executors_do_the_same() {
    fn calls<P>(executor: Executor<P>, clock: &ManualClock) -> Vec<Duration>
    where
        P: Policy<u32, &'static str> + 'static,
    {
        let (inner, script) = strict(clock, [err("reset"), hangs(), ok(3)]);
        let service = Layer::new(executor).layer(inner);
        assert_eq!(clock.block_on(service.oneshot(7)).unwrap(), 3);
        script.calls()
    }
    fn erased<P: Policy<AnyValue, AnyError> + 'static>(executor: &Executor<P>) -> Executor {
        executor.erase()
    }
    let clock = Clock::manual();
    let typed = executor(&clock, (retry(), Timeout::secs(1)));
    assert_eq!(calls(typed.clone(), &clock), [ms(0), ms(0), secs(1)]);
    assert_eq!(calls(erased(&typed), &clock), [ms(0), ms(0), secs(1)]);
}
