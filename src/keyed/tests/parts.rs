//! A map in parts: one capacity for all of them.

use super::*;

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
