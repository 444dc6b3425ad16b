//! One policy for each key: a circuit breaker for each host, a rate limit for each user.
//!
//! Keys come from outside and there may be any number of them, so the map is bounded: see [`Keyed`] for what happens when it
//! is full.

pub(crate) mod member;
mod order;
mod shard;

use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

pub use self::member::Member;
use self::shard::Shard;
use crate::error::ConfigError;
use crate::policy::{Call, Next, Outcome, Policy, Settings, Site};
use crate::snapshot::{KeyedSnapshot, PolicySnapshot};
use crate::sync::{Mutex, lock};

/// Sends every call through the policy of its key: [`Context::with_key`](crate::Context::with_key). Calls without a key share
/// that of the empty key, which is a key like any other.
///
/// A handle: clones share the map. The policies are made when they are first asked for, all from the same settings.
///
/// # When it is full
/// It never has more keys than its capacity. A new key takes the place of one whose policy is equal to a new one; else of one
/// that is idle; else of the least recently used one. A policy whose loss would let through what it holds back (an open
/// breaker, a drained bucket) goes last, and one with a trial under way not at all. Calls that are under way keep the policy
/// that they began with; a key that comes back gets a new one.
///
/// So whoever makes up keys cannot make the map grow, and has to drain a bucket for each place that he wants to take from
/// another drained one.
///
/// The search looks at a constant number of keys, from the least recently used on, and never at all of them. If it finds only
/// trials, the new key gets a policy that is not kept: its calls are not refused, and count for nothing. Beyond half of its
/// capacity, each new key also clears away up to two keys that were used and whose policies are equal to new ones by now.
///
/// A map of more than [`MIN_SHARD_CAPACITY`] keys is divided into up to 16 parts, by hash, each with its share of the capacity,
/// its own lock and its own order of use.
///
/// # Size
/// About 90 bytes for a key of up to 24 bytes, and what the policy itself takes.
#[must_use = "a policy does nothing until it is part of a chain"]
pub struct Keyed<P: Member>(Arc<Shared<P>>);

struct Shared<P: Member> {
    family: P::Family,
    /// A power of two of them.
    shards: Box<[Part<P>]>,
    /// Seeded for each map: keys come from outside, and must not be made to collide.
    hasher: RandomState,
    capacity: usize,
}

/// A line of its own, so that threads do not disturb one another.
#[repr(align(128))]
struct Part<P>(Mutex<Shard<P>>);

impl<P: Member> Keyed<P> {
    /// One policy for each key, for up to [`DEFAULT_CAPACITY`] keys. Settings that cannot work are refused where it is used, as
    /// the policy itself would refuse them.
    pub fn new(config: P::Config) -> Keyed<P> {
        Keyed::with_capacity(config, DEFAULT_CAPACITY)
    }

    /// One policy for each key, for up to `capacity` keys: from 1 to [`MAX_CAPACITY`]. Other capacities are refused where it is
    /// used; a map with one keeps nothing.
    pub fn with_capacity(config: P::Config, capacity: usize) -> Keyed<P> {
        let usable = if check_capacity(capacity).is_ok() { capacity } else { 0 };
        let parts = (usable / MIN_SHARD_CAPACITY).clamp(1, MAX_SHARDS);
        let parts = 1 << parts.ilog2();
        let (share, rest) = (usable / parts, usable % parts);
        let part = |number| Part(Mutex::new(Shard::new(share + usize::from(number < rest))));
        let shards = (0..parts).map(part).collect();
        Keyed(Arc::new(Shared { family: P::family(config), shards, hasher: RandomState::new(), capacity }))
    }

    /// The policy of `key`, which counts as used by this. It is made if there is none.
    #[must_use]
    pub fn get(&self, key: &str) -> P {
        let hash = self.0.hash(key);
        let shard = self.shard(hash);
        let known = lock(shard).get(hash, key);
        known.unwrap_or_else(|| self.add(shard, hash, key))
    }

    /// The policy of `key`, if there is one. Does not count as a use.
    #[must_use]
    pub fn peek(&self, key: &str) -> Option<P> {
        let hash = self.0.hash(key);
        lock(self.shard(hash)).peek(hash, key)
    }

    /// Takes the policy of `key` out: the next call with that key gets a new one. Calls that are under way keep it.
    pub fn remove(&self, key: &str) -> Option<P> {
        let hash = self.0.hash(key);
        let removed = lock(self.shard(hash)).remove(hash, key);
        removed.map(shard::Entry::into_member)
    }

    /// How many keys there are; at most [`capacity`](Keyed::capacity).
    #[must_use]
    pub fn len(&self) -> usize {
        self.sum(Shard::len)
    }

    /// Whether there is no key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many keys have made room for others. If it rises, there are more keys than the capacity.
    #[must_use]
    pub fn evictions(&self) -> u64 {
        self.sum(Shard::evictions)
    }

    /// How many keys there may be.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.0.capacity
    }

    /// How full the map is, as data. What is in it is not shown: there may be many.
    #[must_use]
    pub fn snapshot(&self) -> KeyedSnapshot {
        KeyedSnapshot { of: P::KIND, len: self.len(), capacity: self.capacity(), evictions: self.evictions() }
    }

    /// The keys that there are, in no order. It copies all of them: for an operator, not for every call.
    #[must_use]
    pub fn keys(&self) -> Vec<Arc<str>> {
        self.0.shards.iter().flat_map(|part| lock(&part.0).keys()).collect()
    }

    /// The policy of a key that was not there a moment ago.
    #[cold]
    fn add(&self, shard: &Mutex<Shard<P>>, hash: u64, key: &str) -> P {
        // The clock and the allocator are asked before the lock, and what made room is dropped after it.
        let now = P::now(&self.0.family);
        let key = Arc::from(key);
        let member = P::join(&self.0.family, Some(&key));
        let entry = shard::Entry::new(key, member);
        let rehash = |key: &str| self.0.hash(key);
        let (member, _left) = lock(shard).get_or_insert(hash, entry, now, &rehash);
        member
    }

    fn shard(&self, hash: u64) -> &Mutex<Shard<P>> {
        let shards = &self.0.shards;
        // Bits that the table of a shard makes no use of.
        let number = (hash >> 32) as usize & (shards.len() - 1);
        &shards[number].0
    }

    fn sum<N: std::iter::Sum<N>>(&self, count: impl Fn(&Shard<P>) -> N) -> N {
        self.0.shards.iter().map(|part| count(&lock(&part.0))).sum()
    }

    /// A key of its own for what is too long to be kept as one, or is no text. Nobody outside can tell which; two of them are
    /// the same by an accident of 128 bits.
    #[cfg(feature = "server")]
    pub(crate) fn fingerprint(&self, long: &[u8]) -> String {
        let half = |number: u8| self.0.hasher.hash_one((number, long));
        format!("#{:016x}{:016x}", half(0), half(1))
    }

    pub(crate) fn family(&self) -> &P::Family {
        &self.0.family
    }

    /// A policy like all others, that is not kept: to ask what is the same for all.
    pub(crate) fn sample(&self) -> P {
        P::join(&self.0.family, None)
    }
}

impl<P: Member> Shared<P> {
    /// Of the bytes alone: what a `str` adds to them keeps it apart from others behind it, and there are none.
    #[inline]
    fn hash(&self, key: &str) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        hasher.write(key.as_bytes());
        hasher.finish()
    }
}

fn check_capacity(capacity: usize) -> Result<(), ConfigError> {
    if (1..=MAX_CAPACITY).contains(&capacity) {
        return Ok(());
    }
    Err(ConfigError::new("capacity", capacity, "must be from 1 to 1,000,000,000"))
}

impl<P: Member + Settings> Settings for Keyed<P> {
    fn validate(&self, site: &mut Site<'_>) -> Result<(), ConfigError> {
        check_capacity(self.0.capacity)?;
        self.sample().validate(site)
    }

    fn limit(&self, inner: Option<Duration>) -> Option<Duration> {
        self.sample().limit(inner)
    }

    fn snapshots(&self, all: &mut Vec<PolicySnapshot>) {
        all.push(PolicySnapshot::Keyed(self.snapshot()));
    }
}

impl<T: Send, E: Send, P: Member + Policy<T, E>> Policy<T, E> for Keyed<P> {
    fn run<N: Next<T, E>>(&self, call: Call<'_, E>, next: N) -> impl Future<Output = Outcome<T, E>> + Send {
        async move {
            let member = self.get(call.key().unwrap_or_default());
            member.run(call, next).await
        }
    }
}

impl<P: Member> Clone for Keyed<P> {
    fn clone(&self) -> Keyed<P> {
        Keyed(Arc::clone(&self.0))
    }
}

impl<P: Member> fmt::Debug for Keyed<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (len, capacity) = (self.len(), self.capacity());
        f.debug_struct("Keyed").field("len", &len).field("capacity", &capacity).finish_non_exhaustive()
    }
}

/// How many keys a map has room for: 8,192. Enough for the hosts and tenants of most services, and with a breaker each no more
/// than 3 MB.
pub const DEFAULT_CAPACITY: usize = 8_192;

/// The largest capacity: a thousand million keys.
pub const MAX_CAPACITY: usize = 1_000_000_000;

/// A map is divided only if each part has room for at least this many keys: 256. Hashing fills parts unevenly, and the smaller
/// they are, the earlier one of them is full.
pub const MIN_SHARD_CAPACITY: usize = 256;

/// More threads than this seldom ask for keys at the same moment.
const MAX_SHARDS: usize = 16;

#[cfg(all(test, not(steadfast_loom)))]
mod tests;
