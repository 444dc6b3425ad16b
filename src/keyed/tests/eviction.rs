//! Which keys make room for others.

use super::*;

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
    (51..90).for_each(|key| drop(map.get(&key.to_string())));
    let mut gone: Vec<usize> = Vec::new();
    for added in 0..8 {
        gone.extend(gone_after(&map, &format!("y{added}"), 100));
    }
    assert!(gone.contains(&7), "it was used less recently than {gone:?}");
    assert!(gone.iter().all(|&key| key == 7 || key >= 90), "{gone:?}");
}

#[test]
fn of_those_that_were_let_go_of_the_least_recently_used_one_goes_first() {
    let map = beginning(Standing::Idle, 0, 100);
    let held: Vec<Told> = (0..50).map(|key| map.peek(&key.to_string()).expect("there")).collect();
    assert_eq!(gone_after(&map, "x", 100), [50]);
    drop(held);
    let gone: Vec<usize> = (0..60).flat_map(|added| gone_after(&map, &format!("y{added}"), 100)).collect();
    assert_eq!(gone, (0..50).chain(51..61).collect::<Vec<_>>());
}

#[test]
fn one_that_stood_behind_an_idle_one_does_not_go_before_it() {
    use Standing::{Engaged, Idle};
    let map = standing(&[Idle, Idle, Engaged, Idle]);
    assert_eq!(gone_after(&map, "x", 4), [0]);
    map.peek("2").expect("kept").stands(Idle);
    map.get("x").stands(Idle);
    assert_eq!(gone_after(&map, "y", 4), [1]);
}

#[test]
fn one_equal_to_a_new_one_goes_before_an_idle_one_beside_it() {
    use Standing::{Engaged, Fresh, Idle};
    for engaged in [0, 8, 9, 14, 15, 16, 17, 30] {
        let all: Vec<Standing> = std::iter::repeat_n(Engaged, engaged).chain([Idle, Idle, Fresh]).collect();
        let map = beginning(Idle, 0, all.len());
        all.iter().enumerate().for_each(|(key, standing)| map.peek(&key.to_string()).expect("there").stands(*standing));
        assert_eq!(gone_after(&map, "x", all.len()), [engaged + 2], "behind {engaged} engaged ones");
    }
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
    let map = beginning(Standing::Pinned, 50, 50);
    map.peek("49").expect("kept").stands(Standing::Engaged);
    assert_eq!(gone_after(&map, "x", 50), [49]);
    let map = beginning(Standing::Pinned, 4_000, 4_000);
    map.peek("3999").expect("kept").stands(Standing::Engaged);
    let tries = (0..20).take_while(|_| map.get("x").0.number != map.get("x").0.number).count();
    assert!((1..20).contains(&tries), "each search goes on where the last one has ended");
    assert!(map.peek("3999").is_none());
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
