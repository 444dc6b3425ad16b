//! One breaker for each key: what fails with one shard, which keys make room for others, and what they have in common.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use steadfast::breaker::{Breaker, BreakerConfig, Cause, Permit, State, TripRule};
use steadfast::clock::{Clock, ManualClock};
use steadfast::error::Kind;
use steadfast::{Context, Error, Executor, Keyed, Retry, Timeout, Verdict, try_do};

use crate::breakers::{OPEN_TIME, consecutive, counting, logging};
use crate::support::{at_rest, secs};

/// Calls to shards, of which number 3 is dead, through breakers by shard.
struct Shards {
    clock: ManualClock,
    cx: Context,
    breakers: Keyed<Breaker>,
}

impl Shards {
    fn new(config: BreakerConfig, capacity: usize) -> Shards {
        let (clock, cx) = at_rest();
        let breakers = Keyed::with_capacity(config, capacity);
        breakers.bind(&clock).unwrap();
        Shards { clock, cx, breakers }
    }

    fn call(&self, key: &str, end: Result<u32, &'static str>) -> Result<u32, Error<&'static str>> {
        let cx = self.cx.clone().with_key(key);
        let chain = (Retry::immediate().max_attempts(1), &self.breakers, Timeout::secs(1));
        self.clock.block_on(try_do(&cx, async |_| end, chain))
    }

    fn succeed(&self, key: &str) {
        self.call(key, Ok(7)).unwrap();
    }

    fn fail(&self, key: &str) {
        assert_eq!(self.call(key, Err("down")).unwrap_err().last(), Some(&"down"));
    }

    /// The state of each key that there is.
    fn states(&self) -> BTreeMap<String, State> {
        let state = |key: &Arc<str>| self.breakers.peek(key).expect("it is there").state();
        self.breakers.keys().iter().map(|key| (key.to_string(), state(key))).collect()
    }

    fn keys(&self) -> Vec<String> {
        self.states().into_keys().collect()
    }
}

#[test]
fn a_dead_shard_opens_its_own_breaker_and_no_other() {
    let run = |shard_of: fn(u32) -> String| {
        let shards = Shards::new(BreakerConfig::default().rule(TripRule::failure_rate(0.1)), 100);
        let mut ok = 0;
        for number in 0..2_000 {
            let (key, end) = (shard_of(number), if number % 10 == 3 { Err("down") } else { Ok(number) });
            ok += u32::from(shards.call(&key, end).is_ok());
            shards.clock.advance(secs(10) / 2_000);
        }
        (ok, shards)
    };
    let (by_shard, shards) = run(|number| format!("shard-{}", number % 10));
    assert_eq!(by_shard, 1_800, "all that could succeed did");
    let open: Vec<_> = shards.states().into_iter().filter(|(_, state)| *state == State::Open).collect();
    assert_eq!(open, [("shard-3".to_owned(), State::Open)]);
    assert_eq!((shards.breakers.len(), shards.breakers.evictions()), (10, 0));
    // One breaker for all of them turns a tenth of an outage into a whole one.
    let (by_service, shards) = run(|_| "service".to_owned());
    assert_eq!(shards.states()["service"], State::Open);
    assert!(by_service < 30, "{by_service}");
}

#[test]
fn each_key_recovers_by_itself() {
    let shards = Shards::new(consecutive(2), 10);
    for (key, open_at) in [("a", 0), ("b", 10)] {
        shards.clock.advance(secs(open_at));
        (0..2).for_each(|_| shards.fail(key));
    }
    let error = shards.call("a", Ok(7)).unwrap_err();
    assert_eq!((error.is_circuit_open(), error.retry_after()), (true, Some(OPEN_TIME - secs(10))));
    shards.clock.advance(OPEN_TIME - secs(10));
    shards.succeed("a");
    assert_eq!(shards.states(), [("a".to_owned(), State::Closed), ("b".to_owned(), State::Open)].into());
    shards.succeed("a");
    assert!(shards.call("b", Ok(7)).unwrap_err().is_circuit_open());
}

#[test]
fn calls_without_a_key_share_the_empty_key() {
    let shards = Shards::new(consecutive(1), 10);
    let call = || {
        let run = try_do(&shards.cx, async |_| Err::<(), _>("down"), &shards.breakers);
        shards.clock.block_on(run).unwrap_err().is_circuit_open()
    };
    assert_eq!([call(), call()], [false, true]);
    assert!(shards.call("", Ok(7)).unwrap_err().is_circuit_open(), "it is a key like any other");
    shards.succeed("named");
    assert_eq!(shards.keys(), ["", "named"]);
}

#[test]
fn eviction_skips_empty_key() {
    let shards = Shards::new(consecutive(5), 2);
    for key in ["", "one", "two", "three"] {
        shards.succeed(key);
        assert!(shards.breakers.len() <= 2);
    }
    assert_eq!(shards.keys(), ["three", "two"], "the empty key went when its turn came");
}

#[test]
fn the_least_recently_used_key_makes_room() {
    let shards = Shards::new(counting(), 3);
    ["a", "b", "c"].iter().for_each(|key| shards.fail(key));
    shards.fail("a");
    shards.fail("d");
    assert_eq!((shards.keys().concat(), shards.breakers.evictions()), ("acd".to_owned(), 1));
    assert_eq!(shards.breakers.get("a").counts().failures, 2, "the others keep their counts");
    shards.fail("b");
    assert_eq!((shards.keys().concat(), shards.breakers.evictions()), ("abd".to_owned(), 2));
    assert_eq!(shards.breakers.get("b").counts().failures, 1, "a key that comes back begins anew");
}

#[test]
fn breakers_that_hold_calls_back_outlive_any_number_of_new_keys() {
    let shards = Shards::new(consecutive(1), 8);
    shards.fail("open");
    shards.breakers.get("isolated").isolate();
    shards.fail("on trial");
    shards.clock.advance(OPEN_TIME - secs(1));
    shards.fail("open later");
    shards.clock.advance(secs(1));
    let trial = shards.breakers.get("on trial").try_acquire().unwrap();
    assert!(trial.is_trial());
    let mut rejected = 0;
    for number in 0..1_000 {
        shards.succeed(&format!("new-{number}"));
        assert!(shards.breakers.len() <= 8);
        rejected += u32::from(shards.call("open later", Ok(7)).is_err());
        rejected += u32::from(shards.call("on trial", Ok(7)).is_err());
        rejected += u32::from(shards.call("isolated", Ok(7)).is_err());
    }
    assert_eq!(rejected, 3_000, "none of them was forgotten");
    assert_eq!(shards.breakers.peek("open").map(|breaker| breaker.state()), Some(State::HalfOpen));
    assert!(shards.breakers.evictions() > 900);
    trial.success();
    assert_eq!(shards.states()["on trial"], State::Closed);
}

#[test]
fn an_outage_of_many_hosts_is_remembered_while_there_are_idle_ones() {
    const CAPACITY: usize = 600;
    for down in [1, 8, 16, 160, 300] {
        let shards = Shards::new(consecutive(1), CAPACITY);
        let host = |number: usize| format!("host-{number}");
        (0..CAPACITY).for_each(|number| shards.succeed(&host(number)));
        (0..down).for_each(|number| shards.fail(&host(number)));
        // Nobody calls those that are down, and all others are in use.
        (down..CAPACITY).for_each(|number| shards.succeed(&host(number)));
        (0..200).for_each(|number| shards.succeed(&format!("new-{number}")));
        let is_open = |number: &usize| shards.breakers.peek(&host(*number)).map(|it| it.state()) == Some(State::Open);
        assert_eq!((0..down).filter(is_open).count(), down, "open breakers out of {down}");
        assert_eq!((shards.breakers.len(), shards.breakers.evictions()), (CAPACITY, 200));
    }
}

#[test]
fn a_breaker_with_a_call_in_flight_goes_after_the_idle_ones_and_before_the_open_ones() {
    let shards = Shards::new(consecutive(1), 4);
    let cx = shards.cx.clone().with_key("in flight");
    let mut call = tokio_test::task::spawn(try_do(&cx, |_| pending::<Result<(), ()>>(), &shards.breakers));
    tokio_test::assert_pending!(call.poll());
    let permit = shards.breakers.get("permit").try_acquire().unwrap();
    ["open", "idle"].iter().for_each(|key| shards.fail(key));
    shards.clock.advance(OPEN_TIME);
    shards.succeed("idle");
    (0..10).for_each(|number| shards.succeed(&format!("new-{number}")));
    assert_eq!(shards.keys(), ["in flight", "new-9", "open", "permit"]);
    shards.fail("new-9");
    shards.succeed("newer");
    assert_eq!(shards.keys(), ["new-9", "newer", "open", "permit"], "the least recently used of those in flight");
    permit.success();
    shards.fail("newer");
    shards.succeed("newest");
    assert_eq!(shards.keys(), ["new-9", "newer", "newest", "open"], "a permit that was used holds nothing");
}

#[test]
fn a_map_makes_room_when_it_is_full_and_not_before() {
    for _ in 0..20 {
        // Each map has a seed of its own.
        let breakers = Keyed::<Breaker>::new(consecutive(1));
        let capacity = breakers.capacity();
        (0..capacity).for_each(|key| breakers.get(&key.to_string()).record(Verdict::Success));
        assert_eq!((capacity, breakers.len(), breakers.evictions()), (8_192, capacity, 0));
        breakers.get("one more").record(Verdict::Success);
        assert_eq!((breakers.len(), breakers.evictions()), (capacity, 1));
    }
}

thread_local! {
    static ASKS_THE_MAP: Cell<bool> = const { Cell::new(false) };
}

/// Owned by a listener: its end is the user's code.
struct Owned(Arc<AtomicBool>);

impl Drop for Owned {
    fn drop(&mut self) {
        self.0.fetch_or(ASKS_THE_MAP.get(), Relaxed);
    }
}

#[test]
fn settings_that_were_replaced_are_not_dropped_by_a_search_for_room() {
    let under_lock = Arc::new(AtomicBool::new(false));
    let settings = || {
        let owned = Owned(Arc::clone(&under_lock));
        consecutive(1).open_backoff(2.0, secs(600)).on_transition(move |_| _ = &owned)
    };
    let shards = Shards::new(settings(), 20);
    let keys: Vec<String> = (0..20).map(|number| format!("key-{number}")).collect();
    keys.iter().for_each(|key| shards.fail(key));
    shards.clock.advance(OPEN_TIME);
    // Half of them have a trial under way, and half are closed and remember that they were open.
    let trials: Vec<Permit> = keys[..10].iter().map(|key| shards.breakers.get(key).try_acquire().unwrap()).collect();
    keys[10..].iter().for_each(|key| shards.succeed(key));
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Relaxed) {
                shards.breakers.reconfigure(settings()).unwrap();
            }
        });
        ASKS_THE_MAP.set(true);
        (0..20_000).for_each(|number| drop(shards.breakers.get(&format!("new-{number}"))));
        ASKS_THE_MAP.set(false);
        is_over.store(true, Relaxed);
    });
    assert!(!under_lock.load(Relaxed));
    drop(trials);
}

#[test]
fn with_nothing_but_trials_a_new_key_is_served_and_not_kept() {
    let shards = Shards::new(consecutive(1), 2);
    ["a", "b"].iter().for_each(|key| shards.fail(key));
    shards.clock.advance(OPEN_TIME);
    let trials = ["a", "b"].map(|key| shards.breakers.get(key).try_acquire().unwrap());
    shards.succeed("c");
    assert_eq!((shards.keys().concat(), shards.breakers.evictions()), ("ab".to_owned(), 0));
    trials.into_iter().for_each(Permit::success);
    assert_eq!(shards.states().into_values().collect::<Vec<_>>(), [State::Closed; 2]);
}

#[test]
fn a_call_under_way_keeps_the_breaker_of_a_key_that_is_gone() {
    let shards = Shards::new(counting(), 2);
    let mut run = Box::pin(async {
        let cx = shards.cx.clone().with_key("a");
        let call = async |_| {
            tokio::task::yield_now().await;
            Err::<(), _>("down")
        };
        try_do(&cx, call, &shards.breakers).await
    });
    let mut task = tokio_test::task::spawn(run.as_mut());
    tokio_test::assert_pending!(task.poll());
    let held = shards.breakers.remove("a").expect("it is there");
    assert_eq!(tokio_test::assert_ready!(task.poll()).unwrap_err().kind(), Kind::Failed);
    assert_eq!((held.counts().failures, shards.breakers.get("a").counts().failures), (1, 0));
}

#[test]
fn the_settings_of_all_keys_change_together() {
    let shards = Shards::new(counting(), 10);
    ["a", "b"].iter().for_each(|key| (0..2).for_each(|_| shards.fail(key)));
    let rate = TripRule::failure_rate(1.0).window(60, secs(60)).minimum_calls(3);
    shards.breakers.reconfigure(counting().rule(rate.clone()).open_for(secs(5))).unwrap();
    for key in ["a", "b"] {
        assert_eq!(shards.breakers.get(key).counts().failures, 2, "what was counted is kept");
        shards.fail(key);
        assert_eq!(shards.breakers.get(key).remaining_open(), secs(5));
    }
    (0..3).for_each(|_| shards.fail("made later"));
    assert_eq!(shards.states()["made later"], State::Open);
    let refused = shards.breakers.reconfigure(counting().rule(rate.window(60, secs(1)))).unwrap_err();
    assert_eq!(refused.to_string(), "window = 60 x 1s: cannot be changed while the breaker counts in it");
    // Through the handle of one key it is the same.
    shards.breakers.get("a").reconfigure(counting().open_for(secs(7))).unwrap();
    shards.breakers.get("b").force_close();
    (0..3).for_each(|_| shards.fail("b"));
    assert_eq!(shards.breakers.get("b").remaining_open(), secs(7));
}

#[test]
fn a_listener_sees_whose_breaker_it_is() {
    let (config, log) = logging(consecutive(1));
    let shards = Shards::new(config, 10);
    shards.fail("eu-1");
    shards.fail("us-7");
    shards.fail("");
    shards.clock.advance(OPEN_TIME);
    shards.succeed("us-7");
    shards.breakers.get("eu-1").isolate();
    let told: Vec<_> =
        log.entries().into_iter().map(|change| (change.key.expect("a key").to_string(), change.cause)).collect();
    let expected = [
        ("eu-1", Cause::ConsecutiveFailures),
        ("us-7", Cause::ConsecutiveFailures),
        ("", Cause::ConsecutiveFailures),
        ("us-7", Cause::OpenTimeOver),
        ("us-7", Cause::TrialsSucceeded),
        ("eu-1", Cause::Isolated),
    ];
    assert_eq!(told, expected.map(|(key, cause)| (key.to_owned(), cause)));
}

#[test]
fn settings_that_cannot_work_are_refused_where_the_map_is_used() {
    let (clock, cx) = at_rest();
    let refused = consecutive(0).check().unwrap_err();
    let capacity = Keyed::<Breaker>::with_capacity(consecutive(1), 0);
    let build = |map: &Keyed<Breaker>| Executor::builder("x").policies(map.clone()).clock(&clock).build().unwrap_err();
    let map = Keyed::<Breaker>::new(consecutive(0));
    assert_eq!(build(&map), refused);
    assert_eq!(build(&capacity).to_string(), "capacity = 0: must be from 1 to 1,000,000,000");
    let error = clock.block_on(try_do(&cx, async |_| Ok::<_, ()>(()), &map)).unwrap_err();
    assert_eq!((error.kind(), error.refusal().config()), (Kind::Misconfigured, Some(&refused)));
    assert_eq!(map.get("a").try_acquire().unwrap_err().config(), Some(&refused));
    assert_eq!(map.reconfigure(consecutive(1)).unwrap_err(), refused);
}

#[test]
fn all_keys_keep_to_one_clock() {
    let shards = Shards::new(consecutive(1), 10);
    assert_eq!(shards.breakers.bind(Clock::manual()).unwrap_err().field(), "clock");
    assert_eq!(shards.breakers.get("new").bind(Clock::manual()).unwrap_err().field(), "clock");
    shards.breakers.get("new").bind(&shards.clock).unwrap();
}

#[test]
fn a_map_under_threads_loses_no_failure() {
    let shards = Shards::new(counting(), 1_000);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for number in 0..4_000 {
                    let breaker = shards.breakers.get(&format!("key-{}", number % 100));
                    let permit = breaker.try_acquire().unwrap();
                    permit.record(Verdict::Success);
                }
            });
        }
    });
    let counts = shards.breakers.keys().iter().map(|key| shards.breakers.get(key).counts().calls).collect::<Vec<_>>();
    assert_eq!(counts, [160; 100]);
}

#[test]
fn a_key_that_was_never_used_is_not_cleared_away_whatever_its_breaker_counts() {
    let rules = [TripRule::consecutive(1), TripRule::failure_rate(0.5), TripRule::count_window(10, 0.5)];
    for rule in rules {
        let shards = Shards::new(BreakerConfig::default().rule(rule.clone()), 100);
        (0..100).for_each(|key| drop(shards.breakers.get(&key.to_string())));
        assert_eq!((shards.breakers.len(), shards.breakers.evictions()), (100, 0), "{rule:?}");
    }
}
