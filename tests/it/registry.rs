//! The registry: executors by name from one configuration, made once, changed together.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use steadfast::breaker::{BreakerConfig, State, TripRule};
use steadfast::clock::ManualClock;
use steadfast::limit::BulkheadConfig;
use steadfast::registry::{Registry, RegistryConfig};
use steadfast::standard::StandardConfig;
use steadfast::{Retry, StandardChain};

use crate::support::{Recorder, at_rest, secs};

fn registry(clock: &ManualClock, config: RegistryConfig) -> Registry {
    let clock = clock.clone();
    Registry::with(config, move |builder| builder.clock(&clock)).unwrap()
}

/// With so many permits, to tell one configuration from another.
fn with(permits: usize) -> StandardConfig {
    StandardConfig::default().bulkhead(BulkheadConfig::new(permits))
}

fn permits(registry: &Registry) -> Vec<(&'static str, usize)> {
    let all = registry.executors();
    all.iter().map(|executor| (executor.name(), executor.policies().bulkhead().permits())).collect()
}

async fn down(_: steadfast::Attempt) -> Result<(), &'static str> {
    Err("down")
}

#[test]
fn executors_are_made_from_the_configuration_and_found_by_name() {
    let (clock, _) = at_rest();
    let config = RegistryConfig::default().executor("search", with(3)).executor("billing", with(5));
    let registry = registry(&clock, config);
    assert_eq!(registry.names(), ["billing", "search"]);
    assert_eq!(permits(&registry), [("billing", 5), ("search", 3)]);
    assert!(registry.get("mail").is_none());
    let search = registry.get("search").unwrap();
    let _failed = clock.block_on(search.run(down));
    let again = registry.clone().get_or_create("search").unwrap();
    assert_eq!(again.policies().breaker().counts().failures, 3, "the same executor");
}

#[test]
fn other_names_get_the_defaults_once() {
    let (clock, _) = at_rest();
    let registry = registry(&clock, RegistryConfig::default().defaults(with(7)));
    let mail = registry.get_or_create("mail").unwrap();
    mail.policies().breaker().isolate();
    let again = registry.get_or_create("mail").unwrap();
    assert_eq!(again.policies().breaker().state(), State::Isolated);
    assert_eq!(permits(&registry), [("mail", 7)]);
    let refused = registry.get_or_create("").unwrap_err();
    assert_eq!(refused.field(), "name");
}

#[test]
fn threads_that_ask_at_once_get_the_same_executor() {
    let (clock, _) = at_rest();
    let registry = registry(&clock, RegistryConfig::default());
    let (ready, isolated) = (Barrier::new(4), AtomicUsize::new(0));
    thread::scope(|scope| {
        for n in 0..4 {
            let (registry, ready, isolated) = (&registry, &ready, &isolated);
            scope.spawn(move || {
                ready.wait();
                let executor = registry.get_or_create("mail").unwrap();
                if n == 0 {
                    executor.policies().breaker().isolate();
                }
                ready.wait();
                isolated.fetch_add(usize::from(executor.policies().breaker().state() == State::Isolated), Relaxed);
            });
        }
    });
    assert_eq!(isolated.load(Relaxed), 4);
}

#[test]
fn every_executor_is_prepared() {
    let (clock, _) = at_rest();
    let (recorder, on) = (Recorder::default(), clock.clone());
    let seen = recorder.clone();
    let config = RegistryConfig::default().executor("billing", with(1));
    let registry =
        Registry::with(config, move |builder| builder.clock(&on).observe(seen.clone()).unbudgeted()).unwrap();
    for name in ["billing", "mail"] {
        let executor = registry.get_or_create(name).unwrap();
        assert!(executor.budget().is_none());
        clock.block_on(executor.run(|_| async { Ok::<_, ()>(()) })).unwrap();
    }
    let events = recorder.whole_events();
    for name in ["billing", "mail"] {
        assert!(events.iter().any(|event| event.executor.is_some_and(|of| of.as_str() == name)), "{name}");
    }
}

#[test]
fn the_first_bad_setting_is_named_with_its_dependency() {
    let bad = || RegistryConfig::default().executor("billing", with(5)).executor("search", with(0));
    let refused = Registry::from_config(bad()).unwrap_err();
    assert_eq!(refused.to_string(), "executors.search.bulkhead.permits = 0: must be from 1 to 2,147,483,647");
    let refused = Registry::from_config(RegistryConfig::default().defaults(with(0))).unwrap_err();
    assert_eq!(refused.part(), "defaults.bulkhead");
    let refused = Registry::from_config(RegistryConfig::default().executor("", with(1))).unwrap_err();
    assert_eq!(refused.field(), "name");
}

#[test]
fn a_reload_changes_all_makes_what_is_new_and_keeps_what_was_counted() {
    let (clock, _) = at_rest();
    let config = RegistryConfig::default().defaults(with(7)).executor("billing", with(5)).executor("search", with(3));
    let registry = registry(&clock, config);
    let mail = registry.get_or_create("mail").unwrap();
    let billing = registry.get("billing").unwrap();
    let _failed = clock.block_on(billing.run(down));
    let next = RegistryConfig::default().defaults(with(70)).executor("billing", with(50)).executor("auth", with(20));
    registry.reload(next).unwrap();
    let all = [("auth", 20), ("billing", 50), ("mail", 70), ("search", 70)];
    assert_eq!(permits(&registry), all, "search is named no more, and goes by the defaults");
    assert_eq!(mail.policies().bulkhead().permits(), 70, "handles from before are the same executors");
    assert_eq!(billing.policies().breaker().counts().failures, 3);
    assert_eq!(permits(&registry.clone()), all);
    assert_eq!(registry.get_or_create("new").unwrap().policies().bulkhead().permits(), 70);
}

#[test]
fn a_bad_reload_changes_nothing_anywhere() {
    let (clock, _) = at_rest();
    let config = RegistryConfig::default().executor("billing", with(5)).executor("search", with(3));
    let registry = registry(&clock, config);
    let (before, config) = (registry.snapshot(), registry.config());
    let base = || RegistryConfig::default().executor("billing", with(50));
    let other_window = with(3).breaker(BreakerConfig::default().rule(TripRule::failure_rate(0.5).window(2, secs(30))));
    for (bad, said) in [
        (base().executor("search", with(0)), "executors.search.bulkhead.permits = 0"),
        (base().executor("search", with(3).attempt_timeout(Duration::ZERO)), "executors.search.attempt_timeout = 0s"),
        (base().executor("search", other_window), "executors.search.breaker.rule.window = 2 x 30s: cannot be changed"),
        (base().executor("search", with(3).budget(None)), "executors.search.budget = off: cannot be turned"),
        (base().executor("", with(3)), "executors..name = \"\": must not be empty"),
        (base().defaults(with(0)), "defaults.bulkhead.permits = 0"),
    ] {
        let refused = registry.reload(bad).unwrap_err().to_string();
        assert!(refused.starts_with(said), "{refused}");
        assert_eq!(registry.snapshot(), before);
        assert!(Arc::ptr_eq(&registry.config(), &config));
    }
}

#[test]
fn a_bad_file_changes_nothing() {
    let (clock, _) = at_rest();
    let registry = registry(&clock, toml::from_str("[executors.billing.bulkhead]\npermits = 5").unwrap());
    let reload = |text: &str| {
        let config = toml::from_str::<RegistryConfig>(text).map_err(|error| error.to_string())?;
        registry.reload(config).map_err(|error| error.to_string())
    };
    let typo = reload("[executors.billing.bulkhead]\npermit = 6").unwrap_err();
    assert!(typo.contains("line 2") && typo.contains("unknown field `permit`"), "{typo}");
    assert!(reload("[executors.billing.bulkhead]\npermits = 0").unwrap_err().contains("permits = 0: must be"));
    assert_eq!(permits(&registry), [("billing", 5)]);
    reload("[executors.billing.bulkhead]\npermits = 6").unwrap();
    assert_eq!(permits(&registry), [("billing", 6)]);
}

/// As `standard::reloading_under_load_loses_no_permit_and_forgets_no_count`, for all executors at once, and with bad configurations
/// in between.
#[test]
fn reloads_good_and_bad_under_load_lose_no_permit_and_forget_no_count() {
    const CALLS: u64 = 3_000;
    let (clock, _) = at_rest();
    let numbers = |permits| {
        let never = TripRule::failure_rate(1.0).window(10, secs(3)).minimum_calls(u32::MAX);
        let once = Retry::immediate().max_attempts(1);
        with(permits).retry(once).breaker(BreakerConfig::default().rule(never))
    };
    let config =
        |permits| RegistryConfig::default().executor("billing", numbers(permits)).executor("search", numbers(permits));
    let registry = registry(&clock, config(2));
    let last = thread::scope(|scope| {
        let callers = ["billing", "search"].map(|name| {
            let (executor, clock) = (registry.get(name).unwrap(), &clock);
            scope.spawn(move || {
                for _ in 0..CALLS {
                    assert_eq!(clock.block_on(executor.run(down)).unwrap_err().last(), Some(&"down"));
                }
            })
        });
        let mut reloads = 0;
        while reloads < 500 || callers.iter().any(|caller| !caller.is_finished()) {
            registry.reload(config(2 + reloads % 7)).unwrap();
            let before = registry.config();
            let refused = registry.reload(config(9).executor("search", numbers(0))).unwrap_err();
            assert_eq!(refused.to_string(), "executors.search.bulkhead.permits = 0: must be from 1 to 2,147,483,647");
            assert!(Arc::ptr_eq(&registry.config(), &before));
            reloads += 1;
            thread::yield_now();
        }
        2 + (reloads - 1) % 7
    });
    assert_eq!(permits(&registry), [("billing", last), ("search", last)]);
    for executor in registry.executors() {
        let (bulkhead, counts) = (executor.policies().bulkhead(), executor.policies().breaker().counts());
        assert_eq!((bulkhead.in_flight(), bulkhead.queued()), (0, 0));
        assert_eq!(
            (counts.calls, counts.failures),
            (CALLS, CALLS),
            "the clock stands still, so nothing leaves the window"
        );
    }
}

#[test]
fn reloads_and_new_executors_beside_each_other_leave_one_configuration() {
    let (clock, _) = at_rest();
    let registry = registry(&clock, RegistryConfig::default().defaults(with(1)));
    thread::scope(|scope| {
        for n in 1..3_usize {
            let registry = &registry;
            scope.spawn(move || {
                for round in 0..200 {
                    registry.reload(RegistryConfig::default().defaults(with(n * 1_000 + round))).unwrap();
                }
            });
        }
        let registry = &registry;
        scope.spawn(move || (0..100).for_each(|n| drop(registry.get_or_create(&format!("dependency {n}")).unwrap())));
    });
    let all = permits(&registry);
    assert_eq!(all.len(), 100);
    let last = all[0].1;
    assert!(last == 1_199 || last == 2_199, "{last}");
    assert!(all.iter().all(|(_, permits)| *permits == last), "{all:?}");
}

#[test]
fn the_state_of_all_is_data() {
    let (clock, _) = at_rest();
    let config = RegistryConfig::default().executor("billing", with(5)).executor("search", with(3));
    let registry = registry(&clock, config);
    let search = registry.get("search").unwrap();
    let config = search.config().retry(Retry::immediate().max_attempts(1));
    search.reconfigure(config).unwrap();
    (0..10).for_each(|_| drop(clock.block_on(search.run(down))));
    let seen = serde_json::to_value(registry.snapshot()).unwrap();
    assert_eq!((&seen[0]["name"], &seen[1]["name"]), (&"billing".into(), &"search".into()));
    assert_eq!(seen[0]["policies"][3]["state"], "closed");
    let breaker = &seen[1]["policies"][3];
    assert_eq!((&breaker["state"], &breaker["remaining_open_seconds"]), (&"open".into(), &5.0.into()));
    assert_eq!(seen[1]["policies"][0]["permits"], 3);
}

#[test]
fn one_policy_serves_no_two_clocks() {
    let (clock, other) = (at_rest().0, at_rest().0);
    let chain = StandardChain::new(StandardConfig::default());
    let build = |clock: &ManualClock| {
        let builder = steadfast::Executor::builder("shared").policies(chain.clone());
        builder.clock(clock).build().map(drop).map_err(|refused| refused.field())
    };
    assert_eq!(build(&clock), Ok(()));
    assert_eq!(build(&clock), Ok(()));
    assert_eq!(build(&other), Err("clock"));
}
