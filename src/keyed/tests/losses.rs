//! Random histories, before each new key of which it is known what there is to lose.

use std::collections::BTreeMap;
use std::sync::Weak;

use super::*;
use crate::rng::Rng;

/// A map, and the members that it was seen to make: what they say of themselves, and perhaps a handle.
struct History {
    map: Keyed<Told>,
    members: BTreeMap<usize, (Weak<State>, Option<Told>)>,
    rng: Rng,
    /// How many evictions cost what.
    costs: [u32; STANDINGS.len()],
}

impl History {
    fn new(seed: u64) -> History {
        let rng = Rng::seeded(seed);
        let parts = 1 << below(&rng, 3);
        let capacity = parts * (1 + below(&rng, 8));
        History {
            map: Keyed::with_parts((), capacity, parts),
            members: BTreeMap::new(),
            rng,
            costs: Default::default(),
        }
    }

    /// What the loss of each key that is there would cost.
    fn there(&self) -> BTreeMap<usize, Standing> {
        let cost = |(&key, (state, handle)): (&usize, &(Weak<State>, Option<Told>))| {
            let standing = STANDINGS[state.upgrade()?.standing.load(Relaxed) as usize];
            self.map.peek(&key.to_string())?;
            Some((key, if handle.is_some() { standing.max(Standing::InUse) } else { standing }))
        };
        self.members.iter().filter_map(cost).collect()
    }

    /// Asks for a key, and holds what that costs against what there was to choose from.
    fn get(&mut self, key: usize) -> Told {
        let (before, evictions) = (self.there(), self.map.evictions());
        let member = self.map.get(&key.to_string());
        let after = self.there();
        let (capacity, is_kept) = (self.map.capacity(), self.map.peek(&key.to_string()).is_some());
        assert_eq!(self.map.len(), self.map.keys().len());
        assert!(self.map.len() <= capacity);
        let gone: Vec<Standing> =
            before.iter().filter(|(key, _)| !after.contains_key(key)).map(|(_, &cost)| cost).collect();
        let evicted = self.map.evictions() - evictions;
        let cleared = gone.len() as u64 - evicted;
        assert!(evicted <= 1 && cleared <= 2);
        assert!(gone.is_empty() || !before.contains_key(&key), "a key that is there needs no room");
        assert!(evicted == 0 || before.len() == capacity, "there was a place left");
        if let Some(&cost) = gone.iter().max().filter(|_| evicted == 1) {
            let least = before.values().min().expect("one is gone");
            assert_eq!(cost.max(Standing::Idle), (*least).max(Standing::Idle), "{before:?} lost {gone:?}");
            self.costs[cost as usize] += 1;
        }
        let pinned = before.values().filter(|&&cost| cost == Standing::Pinned).count();
        assert!(is_kept || pinned == capacity, "not kept beside {before:?}");
        member
    }

    fn go_on(&mut self, share_that_matters: f64) {
        let key = below(&self.rng, 3 * self.map.capacity());
        let member = self.get(key);
        let matters = self.rng.unit() < share_that_matters;
        let standing = if matters { 4 + below(&self.rng, 2) } else { below(&self.rng, 3) };
        member.stands(STANDINGS[standing]);
        let handle = (self.rng.unit() < 0.3).then(|| member.clone());
        self.members.insert(key, (Arc::downgrade(&member.0), handle));
        // Others change while nobody looks.
        for (state, handle) in self.members.values_mut() {
            if self.rng.unit() < 0.05 {
                *handle = None;
            }
            if let Some(state) = state.upgrade().filter(|_| self.rng.unit() < 0.05) {
                Told(state).stands(STANDINGS[below(&self.rng, 3)]);
            }
        }
    }
}

fn below(rng: &Rng, count: usize) -> usize {
    (rng.unit() * count as f64) as usize
}

#[test]
fn nothing_goes_while_something_else_would_be_less_of_a_loss() {
    let mut costs = [0; STANDINGS.len()];
    for seed in 0..100 {
        let mut history = History::new(seed);
        let share_that_matters = history.rng.unit();
        (0..300).for_each(|_| history.go_on(share_that_matters));
        costs.iter_mut().zip(history.costs).for_each(|(sum, count)| *sum += count);
    }
    let seen = [Standing::Idle, Standing::InUse, Standing::Engaged].map(|cost| costs[cost as usize]);
    assert!(seen.iter().all(|&count| count > 100), "the histories come to everything: {seen:?}");
}
