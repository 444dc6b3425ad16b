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

const STANDINGS: [Standing; 5] =
    [Standing::Fresh, Standing::Unused, Standing::Idle, Standing::Engaged, Standing::Pinned];

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
    assert_eq!(gone_after(&map, "x", 10), [0], "it is full, and held ones are idle");
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
        assert!(map.0.shards.len().is_power_of_two() && map.0.shards.len() <= MAX_SHARDS);
        for key in 0..2 * capacity + 100 {
            map.get(&key.to_string()).stands(Standing::Idle);
        }
        assert!(map.len() <= capacity, "{} of {capacity}", map.len());
        assert!(map.len() >= capacity - capacity / 50, "hashing fills every part: {} of {capacity}", map.len());
        assert_eq!(map.len() as u64 + map.evictions(), 2 * capacity as u64 + 100);
    }
}

#[test]
fn nothing_is_lost_or_kept_twice_under_threads() {
    let map = Keyed::<Told>::with_capacity((), 1_000);
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
