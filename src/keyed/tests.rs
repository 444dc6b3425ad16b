mod eviction;
mod losses;
mod parts;

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
