//! What operators see: the state of an executor and of every policy of its chain, as data.

use std::future::pending;
use std::sync::Arc;

use serde_json::json;
use steadfast::breaker::{BreakerConfig, State, TripRule};
use steadfast::chain::BoxPolicy;
use steadfast::limit::{BulkheadConfig, RateLimiterConfig};
use steadfast::policy::{Call, Next, Outcome, Policy, Settings};
use steadfast::snapshot::{CustomSnapshot, Lifecycle, PolicySnapshot};
use steadfast::{Breaker, Budget, Bulkhead, Executor, Hedge, Keyed, RateLimiter, Retry, Timeout};

use crate::support::{at_rest, ms, secs};

#[test]
fn every_policy_of_a_chain_is_shown_from_the_outside_in() {
    let (clock, _) = at_rest();
    let chain = (
        Bulkhead::with(BulkheadConfig::new(2).queue(5)).named("places"),
        Timeout::secs(30),
        Retry::exponential(),
        (RateLimiter::new(RateLimiterConfig::per(120, secs(60)).burst(10)), Breaker::default()),
        Hedge::after(ms(20)),
        Timeout::with(|_| secs(1)),
    );
    let executor = Executor::builder("all").policies(chain).clock(&clock).build().unwrap();
    let seen = serde_json::to_value(executor.snapshot()).unwrap();
    let counts = json!({
        "calls": 0, "failures": 0, "slow": 0, "slow_given_up": 0,
        "consecutive_failures": 0, "consecutive_successes": 0, "rejected": 0,
    });
    let policies = json!([
        { "policy": "bulkhead", "name": "places", "permits": 2, "in_flight": 0, "queued": 0 },
        { "policy": "timeout", "limit_seconds": 30.0, "covers_body": false },
        { "policy": "retry", "max_attempts": 3, "backoff": "exponential", "base_seconds": 0.2, "cap_seconds": 30.0,
          "max_elapsed_seconds": null },
        { "policy": "rate_limiter", "name": null, "available": 10, "burst": 10, "per_second": 2.0, "queued": 0 },
        { "policy": "breaker", "name": null, "state": "closed", "remaining_open_seconds": 0.0, "counts": counts },
        { "policy": "hedge", "delay_seconds": 0.02, "max": 1 },
        { "policy": "timeout", "limit_seconds": null, "covers_body": false },
    ]);
    let budget = json!({ "form": "tokens", "available": 2.0, "cap": 10 });
    let executor = json!({
        "name": "all", "lifecycle": "open", "waiting": 0, "budget": budget, "policies": policies,
    });
    assert_eq!(seen, executor);
}

#[test]
fn an_erased_executor_shows_the_same() {
    let (clock, _) = at_rest();
    let chain = (Retry::immediate(), Some(Arc::new(Breaker::default())), None::<Timeout>, Bulkhead::new(1));
    let executor = Executor::builder("erased").policies(chain).clock(&clock).build().unwrap();
    let erased = executor.erase();
    assert_eq!(erased.snapshot(), executor.snapshot());
    assert_eq!(erased.erase().snapshot().policies.len(), 3, "a policy that is not there is not shown");
}

#[test]
fn boxed_and_borrowed_policies_show_what_is_in_them() {
    let (clock, _) = at_rest();
    let breaker = Breaker::default();
    let boxed: Vec<BoxPolicy<(), ()>> = vec![BoxPolicy::new(Timeout::secs(1)), BoxPolicy::new(breaker.clone())];
    let executor = Executor::builder("boxed").policies((&breaker, boxed)).clock(&clock).build().unwrap();
    let seen = executor.snapshot().policies;
    let kinds = seen.iter().map(|policy| match policy {
        PolicySnapshot::Timeout(_) => "timeout",
        PolicySnapshot::Breaker(_) => "breaker",
        _ => "other",
    });
    assert_eq!(kinds.collect::<Vec<_>>(), ["breaker", "timeout", "breaker"]);
}

#[test]
fn a_snapshot_shows_what_is_under_way_and_what_was_counted() {
    let (clock, _) = at_rest();
    let breaker = Breaker::new(BreakerConfig::default().rule(TripRule::consecutive(2)).open_for(secs(5)));
    let bulkhead = Bulkhead::with(BulkheadConfig::new(1).queue(1));
    let chain = (bulkhead, Retry::fixed(secs(1)), breaker);
    let executor = Executor::builder("under way").policies(chain).clock(&clock).build().unwrap();
    let mut runs = [(); 2].map(|()| tokio_test::task::spawn(executor.run(|_| pending::<Result<(), ()>>())));
    assert!(runs.iter_mut().all(|run| run.poll().is_pending()));
    let seen = executor.snapshot();
    assert_eq!(seen.waiting, 2);
    let PolicySnapshot::Bulkhead(places) = &seen.policies[0] else { panic!("outermost") };
    assert_eq!((places.permits, places.in_flight, places.queued), (1, 1, 1));
    drop(runs);
    let _failed = clock.block_on(executor.run(|_| async { Err::<(), _>("down") }));
    let seen = executor.snapshot();
    let PolicySnapshot::Breaker(breaker) = &seen.policies[2] else { panic!("innermost") };
    assert_eq!((breaker.state, breaker.counts.rejected), (State::Open, 1));
    assert_eq!(breaker.remaining_open, secs(4), "opened by the retry, a second ago");
    // Two deposits of a tenth, and a retry that the breaker refused, so that it cost nothing.
    let budget = seen.budget.unwrap();
    assert!((budget.available - 1.2).abs() < 0.05, "{budget:?}");
    executor.close();
    assert_eq!(executor.snapshot().lifecycle, Lifecycle::Closed);
    executor.shutdown();
    assert_eq!(executor.snapshot().lifecycle, Lifecycle::ShutDown);
}

#[test]
fn maps_and_budgets_show_how_full_they_are() {
    let keyed: Keyed<Breaker> = Keyed::with_capacity(BreakerConfig::default(), 2);
    for key in ["a", "b", "c"] {
        drop(keyed.get(key));
    }
    let seen = serde_json::to_value(keyed.snapshot()).unwrap();
    assert_eq!(seen, json!({ "of": "breaker", "len": 2, "capacity": 2, "evictions": 1 }));
    let limits: Keyed<RateLimiter> = Keyed::new(RateLimiterConfig::per_second(1));
    assert_eq!(limits.snapshot().of, "rate_limiter");
    let seen = serde_json::to_value(Budget::concurrent(0.5).min(4).snapshot()).unwrap();
    assert_eq!(seen, json!({ "form": "in_flight", "available": 4.0, "cap": null }));
}

#[test]
fn what_is_for_ever_has_no_number() {
    let breaker = Breaker::default();
    breaker.bind(&at_rest().0).unwrap();
    breaker.isolate();
    let seen = serde_json::to_value(breaker.snapshot()).unwrap();
    assert_eq!((&seen["state"], &seen["remaining_open_seconds"]), (&json!("isolated"), &json!(null)));
}

struct Counter(u32);

impl Settings for Counter {
    fn snapshots(&self, all: &mut Vec<PolicySnapshot>) {
        let values = vec![("calls", f64::from(self.0))];
        all.push(PolicySnapshot::Custom(CustomSnapshot { policy: "counter", values }));
    }
}

impl<T: Send, E: Send> Policy<T, E> for Counter {
    async fn run<N: Next<T, E>>(&self, call: Call<'_, E>, next: N) -> Outcome<T, E> {
        next.call(call).await
    }
}

#[test]
fn a_policy_of_ones_own_shows_its_numbers() {
    let (clock, _) = at_rest();
    let executor = Executor::builder("custom").policies(Counter(3)).clock(&clock).build().unwrap();
    let seen = serde_json::to_value(&executor.snapshot().policies[0]).unwrap();
    assert_eq!(seen, json!({ "policy": "custom", "kind": "counter", "values": { "calls": 3.0 } }));
}
