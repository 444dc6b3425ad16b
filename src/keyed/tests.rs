use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use super::member::sealed::{Sealed, Standing};
use super::*;
use crate::clock::{Clock, Moment};
use crate::{Context, try_do};

/// A member that stands as it is told, and counts its calls.
#[derive(Clone)]
struct Told(Arc<State>);

struct State {
    standing: AtomicU32,
    calls: AtomicU32,
    number: u64,
    family: Arc<Births>,
}

#[derive(Default)]
struct Births {
    made: AtomicU64,
    dropped: AtomicU64,
}

impl Drop for State {
    fn drop(&mut self) {
        self.family.dropped.fetch_add(1, Relaxed);
    }
}

const STANDINGS: [Standing; 6] =
    [Standing::Fresh, Standing::Unused, Standing::Idle, Standing::InUse, Standing::Engaged, Standing::Pinned];

impl Sealed for Told {}

impl Member for Told {
    const KIND: &'static str = "test";
    type Config = ();
    type Family = Arc<Births>;

    fn family((): ()) -> Arc<Births> {
        Arc::default()
    }

    fn join(family: &Arc<Births>, _: Option<&Arc<str>>) -> Told {
        let number = family.made.fetch_add(1, Relaxed);
        let (standing, calls) = (AtomicU32::new(Standing::Unused as u32), AtomicU32::new(0));
        Told(Arc::new(State { standing, calls, number, family: Arc::clone(family) }))
    }

    fn now(_: &Arc<Births>) -> Moment {
        Moment::NEVER
    }

    fn standing(&self, _: Moment) -> Standing {
        STANDINGS[self.0.standing.load(Relaxed) as usize]
    }

    fn is_held(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }
}

impl Told {
    fn stands(&self, standing: Standing) {
        self.0.standing.store(standing as u32, Relaxed);
    }
}

impl Settings for Told {}

impl<T: Send, E: Send> Policy<T, E> for Told {
    async fn run<N: Next<T, E>>(&self, call: Call<'_, E>, next: N) -> Outcome<T, E> {
        self.0.calls.fetch_add(1, Relaxed);
        next.call(call).await
    }
}

/// A map with one key for each standing, the least recently used first; the keys are numbers.
fn standing(standings: &[Standing]) -> Keyed<Told> {
    let map = Keyed::<Told>::with_capacity((), standings.len());
    for (key, standing) in standings.iter().enumerate() {
        map.get(&key.to_string()).stands(*standing);
    }
    map
}

/// Adds a key and says which numbers have left.
fn gone_after(map: &Keyed<Told>, added: &str, numbers: usize) -> Vec<usize> {
    let before: Vec<usize> = (0..numbers).filter(|key| map.peek(&key.to_string()).is_some()).collect();
    let _added = map.get(added);
    before.into_iter().filter(|key| map.peek(&key.to_string()).is_none()).collect()
}

#[test]
fn a_key_has_one_member_and_clones_share_the_map() {
    let map = Keyed::<Told>::new(());
    let again = map.clone();
    assert_eq!(map.get("a").0.number, again.get("a").0.number);
    assert_ne!(map.get("a").0.number, map.get("b").0.number);
    assert_eq!((map.len(), map.evictions(), map.capacity()), (2, 0, DEFAULT_CAPACITY));
    let mut keys = map.keys();
    keys.sort();
    assert_eq!(keys, ["a".into(), "b".into()]);
    assert!(!map.is_empty() && Keyed::<Told>::new(()).is_empty());
}

#[test]
fn peek_neither_makes_nor_uses_and_remove_makes_room() {
    use Standing::Idle;
    let map = standing(&[Idle, Idle]);
    assert!(map.peek("x").is_none() && map.remove("x").is_none());
    assert!(map.peek("0").is_some());
    assert_eq!(gone_after(&map, "x", 2), [0], "peeking is no use");
    let removed = map.remove("x").expect("it was there");
    assert_eq!((map.len(), removed.0.number), (1, 2));
    assert_ne!(map.get("x").0.number, removed.0.number);
    assert_eq!((map.len(), map.evictions()), (2, 1));
}

#[test]
fn the_least_costly_loss_goes_first_and_of_equals_the_least_recently_used() {
    use Standing::{Engaged, Fresh, Idle, Pinned, Unused};
    for (standings, first) in [
        (&[Engaged, Idle, Fresh][..], 2),
        (&[Pinned, Engaged, Idle, Unused], 3),
        (&[Idle, Fresh, Unused], 1),
        (&[Pinned, Engaged, Idle], 2),
        (&[Pinned, Engaged, Engaged], 1),
        (&[Idle, Idle, Engaged], 0),
        (&[Engaged; 20], 0),
    ] {
        let map = standing(standings);
        assert_eq!(gone_after(&map, "x", standings.len()), [first], "{standings:?}");
        assert_eq!((map.len(), map.evictions()), (standings.len(), 1));
    }
}

#[test]
fn the_order_of_use_decides_among_any_number_of_engaged_ones() {
    let map = standing(&[Standing::Engaged; 40]);
    for key in [3, 0, 17] {
        let _used = map.get(&key.to_string());
    }
    let mut gone = Vec::new();
    for added in 0..30 {
        let key = format!("x{added}");
        gone.extend(gone_after(&map, &key, 40));
        map.get(&key).stands(Standing::Engaged);
    }
    let expected: Vec<usize> = (0..40).filter(|key| ![3, 0, 17].contains(key)).take(30).collect();
    assert_eq!(gone, expected);
}

#[test]
fn engaged_ones_outlive_any_number_of_new_keys() {
    let capacity = 64;
    let map = Keyed::<Told>::with_capacity((), capacity);
    let engaged = |key: usize| format!("engaged{key}");
    (0..capacity / 2).for_each(|key| map.get(&engaged(key)).stands(Standing::Engaged));
    for attack in 0..10_000 {
        map.get(&format!("attack{attack}")).stands(Standing::Idle);
        assert!(map.len() <= capacity);
    }
    assert!((0..capacity / 2).all(|key| map.peek(&engaged(key)).is_some()));
    assert_eq!(map.evictions(), 10_000 - capacity as u64 / 2);
}

/// A map for as many keys, of which the least recently used ones stand like that, and all others are idle.
fn beginning(standing: Standing, count: usize, capacity: usize) -> Keyed<Told> {
    let map = Keyed::<Told>::with_parts((), capacity, 1);
    (0..capacity).for_each(|key| map.get(&key.to_string()).stands(Standing::Idle));
    (0..count).for_each(|key| map.peek(&key.to_string()).expect("there").stands(standing));
    map
}

#[test]
fn no_run_of_engaged_ones_hides_the_idle_ones_behind_it() {
    for count in [1, 7, 8, 9, 15, 16, 17, 160, 300, 1_000] {
        for standing in [Standing::Engaged, Standing::Pinned] {
            let map = beginning(standing, count, count + 100);
            for added in 0..100 {
                let key = format!("x{added}");
                assert_eq!(gone_after(&map, &key, count + 100), [count + added], "{standing:?}, {count} of them");
                map.get(&key).stands(Standing::Engaged);
            }
            assert_eq!((map.len(), map.evictions()), (count + 100, 100));
        }
    }
}

#[test]
fn a_search_that_is_too_long_takes_nothing_and_goes_on_with_the_next_key() {
    let map = beginning(Standing::Engaged, 4_000, 4_001);
    let kept = |key: &str| {
        map.get(key).stands(Standing::Idle);
        map.peek(key).is_some()
    };
    // Of the part, a key looks at 1,024 in its place and as many when the other places are asked, and puts 8 aside before.
    assert_eq!([kept("x"), kept("y")], [false, true], "the new key is served, and not kept");
    assert!((0..4_000).all(|key| map.peek(&key.to_string()).is_some()) && map.peek("4000").is_none());
    assert_eq!((map.len(), map.evictions()), (4_001, 1));
}

#[test]
fn what_somebody_holds_goes_after_the_idle_ones_and_before_the_engaged_ones() {
    for count in [1, 8, 16, 300] {
        let map = beginning(Standing::Idle, 0, count + 20);
        let held: Vec<Told> = (0..count).map(|key| map.peek(&key.to_string()).expect("there")).collect();
        (count..count + 10).for_each(|key| map.peek(&key.to_string()).expect("there").stands(Standing::Engaged));
        for added in 0..10 {
            let key = format!("x{added}");
            assert_eq!(gone_after(&map, &key, count + 20), [count + 10 + added], "{count} are held");
            map.get(&key).stands(Standing::Engaged);
        }
        assert_eq!(gone_after(&map, "y", count + 20), [0], "there is no idle one left");
        assert_eq!(map.get("0").0.calls.load(Relaxed), 0);
        assert_eq!(Arc::strong_count(&held[0].0), 1, "it lives on with whoever holds it");
    }
}

#[test]
fn handles_that_are_kept_for_ever_make_the_map_no_larger_and_go_in_the_order_of_use() {
    let capacity = 300;
    let map = Keyed::<Told>::with_capacity((), capacity);
    let hold = |key: usize| {
        let member = map.get(&key.to_string());
        member.stands(Standing::Idle);
        assert!(map.len() <= capacity);
        member
    };
    let handles: Vec<Told> = (0..10 * capacity).map(hold).collect();
    let there: Vec<usize> = (0..handles.len()).filter(|key| map.peek(&key.to_string()).is_some()).collect();
    assert_eq!(there, (9 * capacity..10 * capacity).collect::<Vec<_>>());
    assert_eq!(map.evictions(), 9 * capacity as u64);
}

#[test]
fn what_was_held_goes_like_all_others_when_it_is_let_go_of() {
    let map = beginning(Standing::Idle, 0, 100);
    let mut held: Vec<Told> = (0..50).map(|key| map.peek(&key.to_string()).expect("there")).collect();
    assert_eq!(gone_after(&map, "x", 100), [50]);
    drop(held.remove(7));
    let used = (51..90).map(|key| map.get(&key.to_string())).count();
    assert_eq!(used, 39);
    let mut gone: Vec<usize> = Vec::new();
    for added in 0..8 {
        gone.extend(gone_after(&map, &format!("y{added}"), 100));
    }
    assert!(gone.contains(&7), "it was used less recently than {gone:?}");
    assert!(gone.iter().all(|&key| key == 7 || key >= 90), "{gone:?}");
}

#[test]
fn one_of_many_that_were_put_aside_is_found_as_soon_as_it_is_idle() {
    for put_aside in [Standing::Engaged, Standing::Idle] {
        let map = Keyed::<Told>::with_parts((), 500, 1);
        let add = |key: usize| {
            let member = map.get(&key.to_string());
            member.stands(put_aside);
            member
        };
        let mut handles: Vec<Option<Told>> = (0..500).map(|key| Some(add(key))).collect();
        if put_aside == Standing::Engaged {
            handles.clear();
        }
        for idle in [250, 499, 3] {
            map.peek(&idle.to_string()).expect("kept").stands(Standing::Idle);
            if let Some(handle) = handles.get_mut(idle) {
                *handle = None;
            }
            assert_eq!(gone_after(&map, &format!("x{idle}"), 500), [idle]);
            map.get(&format!("x{idle}")).stands(Standing::Engaged);
        }
    }
}

#[test]
fn kept_ones_that_are_engaged_no_more_go_like_all_others() {
    use Standing::{Engaged, Idle};
    let map = standing(&[Engaged, Engaged, Idle]);
    assert_eq!(gone_after(&map, "x", 3), [2]);
    map.peek("0").expect("kept").stands(Idle);
    map.get("x").stands(Engaged);
    assert_eq!(gone_after(&map, "y", 3), [0]);
}

#[test]
fn if_only_trials_are_found_the_new_key_is_not_kept() {
    let map = standing(&[Standing::Pinned; 3]);
    let (first, second) = (map.get("x"), map.get("x"));
    assert_ne!(first.0.number, second.0.number);
    assert!(map.peek("x").is_none());
    assert_eq!((map.len(), map.evictions()), (3, 0));
    map.peek("1").expect("kept").stands(Standing::Engaged);
    assert_eq!(map.get("x").0.number, map.get("x").0.number);
    assert!(map.peek("1").is_none());
}

#[test]
fn a_trial_is_found_past_any_number_of_others() {
    let map = standing(&[Standing::Pinned; 50]);
    map.peek("49").expect("kept").stands(Standing::Engaged);
    let tries = (0..20).take_while(|_| map.get("x").0.number != map.get("x").0.number).count();
    assert!(tries < 20, "each search goes on where the last one has ended");
    assert!(map.peek("49").is_none());
}

#[test]
fn what_is_equal_to_new_ones_is_cleared_away_beyond_half_of_the_capacity() {
    let map = Keyed::<Told>::with_capacity((), 100);
    (0..90).for_each(|key| map.get(&format!("old{key}")).stands(Standing::Fresh));
    assert!(map.len() <= 52, "{}", map.len());
    let mut most = 0;
    for key in 0..100 {
        map.get(&format!("new{key}")).stands(Standing::Idle);
        most = map.len().max(most);
    }
    assert_eq!((map.len(), map.evictions()), (100, 0), "cleared away is not evicted");
    assert!((0..90).all(|key| map.peek(&format!("old{key}")).is_none()));
}

#[test]
fn what_was_never_used_or_is_held_is_not_cleared_away() {
    let map = Keyed::<Told>::with_capacity((), 10);
    (0..10).for_each(|key| drop(map.get(&key.to_string())));
    assert_eq!((map.len(), map.evictions()), (10, 0));
    let map = Keyed::<Told>::with_capacity((), 10);
    let held: Vec<Told> = (0..10).map(|key| map.get(&key.to_string())).collect();
    held.iter().for_each(|member| member.stands(Standing::Fresh));
    assert_eq!(gone_after(&map, "x", 10), [0], "it is full, and all are held");
}

/// Case `eviction-skips-empty-key`.
#[test]
fn the_empty_key_is_a_key_like_any_other() {
    let map = Keyed::<Told>::with_capacity((), 2);
    for key in ["", "one", "two", "three", ""] {
        map.get(key).stands(Standing::Idle);
        assert!(map.len() <= 2);
    }
    assert!(map.peek("").is_some() && map.peek("three").is_some());
    assert_eq!(map.evictions(), 3);
}

#[test]
fn calls_go_through_the_member_of_their_key() {
    let clock = Clock::manual();
    let map = Keyed::<Told>::new(());
    let call = |cx: Context| {
        let done = clock.block_on(try_do(&cx, |_| async { Ok::<_, ()>(()) }, &map));
        done.expect("nothing refuses");
    };
    let cx = Context::new().with_clock(&clock);
    call(cx.clone().with_key("a"));
    call(cx.clone().with_key("a"));
    call(cx.clone().with_key("b"));
    call(cx);
    let calls = |key| map.peek(key).expect("called").0.calls.load(Relaxed);
    assert_eq!((calls("a"), calls("b"), calls("")), (2, 1, 1));
}

#[test]
fn capacities_that_cannot_work_are_refused_and_keep_nothing() {
    for capacity in [0, MAX_CAPACITY + 1, usize::MAX] {
        let map = Keyed::<Told>::with_capacity((), capacity);
        let refused = map.validate(&mut Site::new(&Clock::tokio())).expect_err("refused");
        assert_eq!((refused.field(), refused.value()), ("capacity", &*capacity.to_string()));
        assert_ne!(map.get("a").0.number, map.get("a").0.number);
        assert!(map.is_empty());
    }
    for capacity in [1, MAX_CAPACITY] {
        let map = Keyed::<Told>::with_capacity((), capacity);
        assert!(map.validate(&mut Site::new(&Clock::tokio())).is_ok());
    }
}

#[test]
fn the_parts_of_a_map_have_its_capacity_together() {
    for capacity in [1, 2, 255, 256, 511, 512, 1_000, 8_192, 8_193, 100_000] {
        let map = Keyed::<Told>::with_capacity((), capacity);
        assert!(map.0.parts.len().is_power_of_two() && map.0.parts.len() <= MAX_SHARDS);
        let add = |key: usize| map.get(&key.to_string()).stands(Standing::Idle);
        (0..capacity).for_each(add);
        assert_eq!((map.len(), map.keys().len(), map.evictions()), (capacity, capacity, 0), "all of it can be used");
        add(capacity);
        assert_eq!((map.len(), map.evictions()), (capacity, 1));
        (capacity + 1..2 * capacity).for_each(add);
        assert_eq!((map.len(), map.keys().len(), map.evictions()), (capacity, capacity, capacity as u64));
    }
}

#[test]
fn one_part_can_have_all_places_and_gives_them_to_others() {
    let map = Keyed::<Told>::with_parts((), 512, 2);
    let [one, other] = [0, 1].map(|part| {
        let keys = (0..).map(|key: u32| key.to_string());
        keys.filter(|key| map.0.home_of(map.0.hash(key)) == part).take(513).collect::<Vec<_>>()
    });
    one[..512].iter().for_each(|key| map.get(key).stands(Standing::Idle));
    assert_eq!((map.len(), map.evictions()), (512, 0));
    map.get(&other[0]).stands(Standing::Idle);
    assert_eq!((map.len(), map.evictions()), (512, 1), "the other part has nothing that could go");
    assert!(map.peek(&one[0]).is_none() && map.peek(&one[1]).is_some(), "the least recently used one made room");
    map.peek(&other[0]).expect("kept").stands(Standing::Engaged);
    map.get(&other[1]).stands(Standing::Engaged);
    assert!(map.peek(&other[0]).is_some() && map.peek(&one[1]).is_none(), "there is an idle one elsewhere");
    one[2..512].iter().for_each(|key| map.peek(key).expect("kept").stands(Standing::Pinned));
    map.get(&one[0]).stands(Standing::Idle);
    assert!(map.peek(&other[0]).is_none(), "nothing else may go");
    assert_eq!((map.len(), map.keys().len(), map.evictions()), (512, 512, 3));
}

#[test]
fn nothing_is_lost_or_kept_twice_under_threads() {
    for parts in [1, 2, 16] {
        lose_nothing_under_threads(parts);
    }
}

fn lose_nothing_under_threads(parts: usize) {
    let map = Keyed::<Told>::with_parts((), 1_000, parts);
    let births = Arc::clone(&map.0.family);
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let map = &map;
            scope.spawn(move || {
                let rng = crate::rng::Rng::seeded(thread);
                for _ in 0..20_000 {
                    let key = (rng.unit() * 3_000.0) as u32;
                    let member = map.get(&key.to_string());
                    let standing = (rng.unit() * STANDINGS.len() as f64) as usize;
                    member.stands(STANDINGS[standing]);
                    if key.is_multiple_of(50) {
                        drop(map.remove(&key.to_string()));
                    }
                    assert!(map.len() <= 1_000);
                }
            });
        }
    });
    let keys = map.keys();
    assert_eq!(keys.len(), map.len());
    assert!(keys.iter().all(|key| map.peek(key).is_some()));
    let alive = births.made.load(Relaxed) - births.dropped.load(Relaxed);
    assert_eq!(alive, map.len() as u64);
    drop(map);
    assert_eq!(births.made.load(Relaxed), births.dropped.load(Relaxed));
}

/// A key of the map as the test has it: its member, how it stands by itself, and perhaps a handle.
struct Model {
    watched: std::sync::Weak<State>,
    handle: Option<Told>,
}

impl Model {
    fn standing(&self) -> Option<Standing> {
        let state = self.watched.upgrade()?;
        let standing = STANDINGS[state.standing.load(Relaxed) as usize];
        Some(if self.handle.is_some() { standing.max(Standing::InUse) } else { standing })
    }
}

/// Random histories, with a plain count of what there is to lose before each new key.
#[test]
fn nothing_goes_while_something_else_would_be_less_of_a_loss() {
    let mut evictions_of = [0; STANDINGS.len()];
    for history in 0..400 {
        let rng = crate::rng::Rng::seeded(history);
        let below = |count: usize| (rng.unit() * count as f64) as usize;
        let parts = 1 << below(3);
        let capacity = parts * (1 + below(8));
        let map = Keyed::<Told>::with_parts((), capacity, parts);
        let mut models = std::collections::BTreeMap::<String, Model>::new();
        // Some histories have many that may not go, some have few.
        let matter = rng.unit();
        for _ in 0..300 {
            let key = below(3 * capacity).to_string();
            let is_there = map.peek(&key).is_some();
            let there = |models: &std::collections::BTreeMap<String, Model>| {
                let standing =
                    |(key, model): (&String, &Model)| Some((key.clone(), map.peek(key).and(model.standing())?));
                models.iter().filter_map(standing).collect::<Vec<_>>()
            };
            let before = there(&models);
            let evictions = map.evictions();
            let member = map.get(&key);
            let after = there(&models);
            let gone: Vec<_> = before.iter().filter(|one| !after.iter().any(|other| other.0 == one.0)).collect();
            assert!(!is_there || gone.is_empty(), "a key that is there needs no room");
            let evicted = usize::try_from(map.evictions() - evictions).expect("few");
            assert!(evicted == 0 || before.len() + 2 > capacity, "there was room");
            let worst = gone.iter().map(|one| one.1).max();
            let least = before.iter().map(|one| one.1).min();
            let class = |standing: Standing| standing.max(Standing::Idle);
            if evicted == 1 {
                assert_eq!(worst.map(class), least.map(class), "history {history}: {before:?} lost {gone:?}");
                evictions_of[worst.expect("one is gone") as usize] += 1;
            }
            assert!(evicted <= 1 && gone.len() <= evicted + 2);
            if !is_there && map.peek(&key).is_none() {
                let pinned = before.iter().filter(|one| one.1 == Standing::Pinned).count();
                assert!(pinned >= capacity.min(8), "history {history}: not kept beside {before:?}");
            }
            let choice = if rng.unit() < matter { 4 + below(2) } else { below(3) };
            member.stands(STANDINGS[choice]);
            let handle = (rng.unit() < 0.3).then(|| member.clone());
            models.insert(key, Model { watched: Arc::downgrade(&member.0), handle });
            // Others change while nobody looks.
            for model in models.values_mut() {
                if rng.unit() < 0.05 {
                    model.handle = None;
                }
                if let Some(state) = model.watched.upgrade().filter(|_| rng.unit() < 0.05) {
                    Told(state).stands(STANDINGS[below(3)]);
                }
            }
            assert_eq!(map.len(), map.keys().len());
        }
    }
    let by = |standing: Standing| evictions_of[standing as usize];
    let seen = [Standing::Idle, Standing::InUse, Standing::Engaged].map(by);
    assert!(seen.iter().all(|&count| count > 100), "the histories come to everything: {seen:?}");
}

#[test]
fn an_entry_takes_about_90_bytes() {
    assert_eq!(size_of::<shard::Entry<Told>>(), 24);
    let count = 10_000;
    let keys: Vec<String> = (0..count).map(|key| format!("host-{key}")).collect();
    let map = Keyed::<Told>::with_capacity((), 2 * count);
    let used = allocation_counter::measure(|| keys.iter().for_each(|key| drop(map.get(key))));
    let member = size_of::<State>() + 2 * size_of::<usize>();
    let each = used.bytes_current as f64 / count as f64 - member as f64;
    assert!(each < 95.0, "{each}");
}
