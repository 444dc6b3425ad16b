//! One part of a map: a table of slots, the entries in them, and the order of their use.

mod eviction;

use std::sync::Arc;

use hashbrown::HashTable;
use slab::Slab;

pub(super) use self::eviction::{Cleared, Search, Unfinished};
use super::member::Member;
use super::order::{List, Order};
use super::places::growth;

/// The keys with some hashes.
pub(super) struct Shard<P> {
    /// Slots, by the hashes of their keys. They are half as large as pointers, and the keys are stored once.
    table: HashTable<u32>,
    entries: Slab<Entry<P>>,
    order: Order,
    /// Of the places of the map. If other parts have fewer entries than that, this one may have more.
    share: usize,
    evictions: u64,
    /// How many looks at what was put aside are paid for.
    paid: u32,
}

/// One key and its policy.
pub(super) struct Entry<P> {
    key: Arc<str>,
    member: P,
}

impl<P: Clone> Entry<P> {
    pub(super) fn new(key: Arc<str>, member: P) -> Entry<P> {
        Entry { key, member }
    }

    pub(super) fn key(&self) -> &str {
        &self.key
    }

    pub(super) fn member(&self) -> P {
        self.member.clone()
    }

    pub(super) fn into_member(self) -> P {
        self.member
    }
}

impl<P> Shard<P> {
    pub(super) fn evictions(&self) -> u64 {
        self.evictions
    }
}

impl<P: Member> Shard<P> {
    pub(super) fn new(share: usize) -> Shard<P> {
        Shard {
            table: HashTable::new(),
            entries: Slab::new(),
            order: Order::new(share),
            share,
            evictions: 0,
            paid: eviction::PAID_AT_MOST,
        }
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

    /// Puts an entry in whose key is not there.
    pub(super) fn insert(&mut self, hash: u64, entry: Entry<P>, hash_of: &dyn Fn(&str) -> u64) {
        if self.entries.len() == self.entries.capacity() {
            self.entries.reserve_exact(growth(self.entries.len(), self.share));
        }
        let slot = self.entries.insert(entry);
        let entries = &self.entries;
        self.table.insert_unique(hash, slot as u32, |&slot| hash_of(&entries[slot as usize].key));
        self.order.push(List::Recent, slot);
    }

    pub(super) fn remove(&mut self, hash: u64, key: &str) -> Option<Entry<P>> {
        let (slot, _) = find(&self.table, &self.entries, hash, key)?;
        Some(self.take(hash, slot))
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
