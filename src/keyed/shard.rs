//! One part of a map: a table of slots, the entries in them, and the order of their use.

use std::array;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use hashbrown::HashTable;
use slab::Slab;

use super::member::Member;
use super::member::sealed::Standing;
use super::order::{List, Order};
use crate::clock::Moment;

/// A bounded map of the keys with some hashes.
pub(super) struct Shard<P> {
    /// Slots, by the hashes of their keys. They are half as large as pointers, and the keys are stored once.
    table: HashTable<u32>,
    entries: Slab<Entry<P>>,
    order: Order,
    capacity: usize,
    evictions: u64,
}

/// One key and its policy.
pub(super) struct Entry<P> {
    key: Arc<str>,
    member: P,
}

/// What has left a shard, to be dropped outside of its lock: entries that made room, or the one that was not needed.
pub(super) type Left<P> = [Option<Entry<P>>; MOST_LEFT];

impl<P> Entry<P> {
    pub(super) fn new(key: Arc<str>, member: P) -> Entry<P> {
        Entry { key, member }
    }

    pub(super) fn into_member(self) -> P {
        self.member
    }
}

impl<P> Shard<P> {
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn evictions(&self) -> u64 {
        self.evictions
    }
}

impl<P: Member> Shard<P> {
    pub(super) fn new(capacity: usize) -> Shard<P> {
        Shard { table: HashTable::new(), entries: Slab::new(), order: Order::new(capacity), capacity, evictions: 0 }
    }

    /// The member of a key, which is the most recently used one after this.
    #[inline(always)]
    pub(super) fn get(&mut self, hash: u64, key: &str) -> Option<P> {
        let (slot, entry) = find(&self.table, &self.entries, hash, key)?;
        self.order.renew(List::Recent, slot);
        Some(entry.member.clone())
    }

    pub(super) fn peek(&self, hash: u64, key: &str) -> Option<P> {
        let (_, entry) = find(&self.table, &self.entries, hash, key)?;
        Some(entry.member.clone())
    }

    pub(super) fn keys(&self) -> Vec<Arc<str>> {
        self.entries.iter().map(|(_, entry)| Arc::clone(&entry.key)).collect()
    }

    /// The member of the key of `new`, which is put in if nobody has been faster, and if there is or can be made room.
    pub(super) fn get_or_insert(
        &mut self,
        hash: u64,
        new: Entry<P>,
        now: Moment,
        rehash: &dyn Fn(&str) -> u64,
    ) -> (P, Left<P>) {
        let mut left = array::from_fn(|_| None);
        if let Some(known) = self.get(hash, &new.key) {
            left[0] = Some(new);
            return (known, left);
        }
        let member = new.member.clone();
        if self.len() > self.capacity / 2 {
            let (evicted, cleared) = left.split_at_mut(1);
            self.tidy(cleared, now, rehash);
            if self.len() >= self.capacity {
                evicted[0] = self.evict(now, rehash);
            }
        }
        if self.len() < self.capacity {
            self.insert(hash, new, rehash);
        } else {
            left[1] = Some(new);
        }
        (member, left)
    }

    pub(super) fn remove(&mut self, hash: u64, key: &str) -> Option<Entry<P>> {
        let (slot, _) = find(&self.table, &self.entries, hash, key)?;
        Some(self.take(hash, slot))
    }

    /// Takes those of the least recently used entries out that are equal to new ones, and puts those aside that hold calls
    /// back. Done long before there is no room, so that a search for room does not find those alone.
    fn tidy(&mut self, cleared: &mut [Option<Entry<P>>], now: Moment, rehash: &dyn Fn(&str) -> u64) {
        let mut places = cleared.iter_mut();
        for list in [List::Kept, List::Recent] {
            for _ in 0..SAMPLE {
                let Some(oldest) = self.order.oldest(list) else { break };
                match self.standing(oldest, now) {
                    Standing::Fresh => {
                        let Some(place) = places.next() else { break };
                        let hash = rehash(&self.entries[oldest].key);
                        *place = Some(self.take(hash, oldest));
                    }
                    Standing::Engaged | Standing::Pinned if list == List::Recent => self.keep(oldest),
                    _ => break,
                }
            }
        }
    }

    /// Takes the entry out whose loss means least, of a few that were least recently used.
    fn evict(&mut self, now: Moment, rehash: &dyn Fn(&str) -> u64) -> Option<Entry<P>> {
        let idle = [self.find_idle(List::Kept, now), self.find_idle(List::Recent, now)];
        // The first of equals: what was put aside was used even less recently.
        let least = idle.into_iter().flatten().min_by_key(|&(standing, _)| standing);
        let slot = least.map(|(_, slot)| slot).or_else(|| self.find_engaged(now))?;
        self.evictions += 1;
        let hash = rehash(&self.entries[slot].key);
        Some(self.take(hash, slot))
    }

    /// The first of the least recently used entries of a list that holds nobody back, one that is equal to a new one above all.
    /// Those that do are put aside, and are not in the way of the next search.
    fn find_idle(&mut self, list: List, now: Moment) -> Option<(Standing, usize)> {
        let mut idle = None;
        let mut next = self.order.oldest(list);
        for _ in 0..SAMPLE {
            let Some(slot) = next else { break };
            next = self.order.newer(slot);
            match self.standing(slot, now) {
                Standing::Fresh | Standing::Unused => return Some((Standing::Fresh, slot)),
                Standing::Idle => idle = idle.or(Some((Standing::Idle, slot))),
                Standing::Engaged | Standing::Pinned if list == List::Recent => self.keep(slot),
                Standing::Engaged | Standing::Pinned => {}
            }
        }
        idle
    }

    /// The least recently used of the kept entries that may go. Those that may not are put where the search comes last.
    fn find_engaged(&mut self, now: Moment) -> Option<usize> {
        for _ in 0..SAMPLE {
            let oldest = self.order.oldest(List::Kept)?;
            if self.standing(oldest, now) != Standing::Pinned {
                return Some(oldest);
            }
            self.keep(oldest);
        }
        None
    }

    fn keep(&mut self, slot: usize) {
        self.order.renew(List::Kept, slot);
    }

    /// What the loss of an entry would mean. One that somebody holds is not equal to a new one: its use may be about to show.
    fn standing(&self, slot: usize, now: Moment) -> Standing {
        let member = &self.entries[slot].member;
        // In this order: whoever has let go of it meanwhile has shown by then what the use came to.
        let held = member.is_held();
        fence(Ordering::Acquire);
        let standing = member.standing(now);
        if standing < Standing::Idle && held { Standing::Idle } else { standing }
    }

    fn insert(&mut self, hash: u64, entry: Entry<P>, rehash: &dyn Fn(&str) -> u64) {
        if self.entries.len() == self.entries.capacity() {
            // Twice as many, as always, but no more than there can ever be.
            let room = self.capacity - self.entries.len();
            self.entries.reserve_exact(self.entries.len().clamp(1, room.max(1)));
        }
        let slot = self.entries.insert(entry);
        let entries = &self.entries;
        self.table.insert_unique(hash, slot as u32, |&slot| rehash(&entries[slot as usize].key));
        self.order.push(List::Recent, slot);
    }

    fn take(&mut self, hash: u64, slot: usize) -> Entry<P> {
        if let Ok(place) = self.table.find_entry(hash, |&at| at as usize == slot) {
            place.remove();
        }
        self.order.take(slot);
        self.entries.remove(slot)
    }
}

/// The entry of a key, and its slot.
#[inline(always)]
fn find<'a, P>(
    table: &HashTable<u32>,
    entries: &'a Slab<Entry<P>>,
    hash: u64,
    key: &str,
) -> Option<(usize, &'a Entry<P>)> {
    let mut found = None;
    table.find(hash, |&slot| {
        let entry = &entries[slot as usize];
        let is_it = *entry.key == *key;
        if is_it {
            found = Some((slot as usize, entry));
        }
        is_it
    })?;
    found
}

/// How many entries of each list an insertion tidies up, and looks at again if there is no room: 8. Of that many keys that
/// nobody has used for longest one is idle in all but an attack, and then the list of those that are put aside takes care.
const SAMPLE: usize = 8;

/// How many entries that are equal to new ones an insertion clears away: 2, one more than it adds.
const MOST_CLEARED: usize = 2;

const MOST_LEFT: usize = 1 + MOST_CLEARED;
