//! One policy for each key: a circuit breaker for each host, a rate limit for each user.
//!
//! Keys come from outside and there may be any number of them, so the map is bounded: see [`Keyed`] for what happens when it
//! is full.

pub(crate) mod member;
mod order;
mod places;
mod room;
mod shard;

use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

pub use self::member::Member;
use self::places::Places;
use self::shard::{Entry, Shard};
use crate::error::ConfigError;
use crate::policy::{Call, Next, Outcome, Policy, Settings, Site};
use crate::snapshot::{KeyedSnapshot, PolicySnapshot};
use crate::sync::{Mutex, MutexGuard, lock};

/// Sends every call through the policy of its key: [`Context::with_key`](crate::Context::with_key). Calls without a key share
/// that of the empty key, which is a key like any other.
///
/// A handle: clones share the map. The policies are made when they are first asked for, all from the same settings.
///
/// # When it is full
/// It never has more keys than its capacity, and none makes room for another before there are that many. Then a new key takes
/// the place of an idle one. If there is none, it takes that of one that somebody holds, as every call does that is under way;
/// if there is none of those either, that of one that holds calls back (an open breaker, a drained bucket). One with a trial
/// under way, or isolated by hand, does not go at all. Of equals the least recently used one goes, but of the first few idle
/// ones rather one whose policy is equal to a new one. Calls that are under way keep the policy that they began with; a key that
/// comes back gets a new one.
///
/// So whoever makes up keys cannot make the map grow, and has to drain a bucket for each place that he wants to take from
/// another drained one.
///
/// Beyond half of its capacity, each new key also clears away up to two keys that were used and whose policies are equal to new
/// ones by now. (A breaker that counts failures in a row alone, and has seen none, passes for one that was never used.)
///
/// What a new key costs has a bound, and so has what can be known of the others:
///
/// * Keys that are found to be held, or to hold calls back, are put aside, and count as that until they are used or looked at
///   again. Each new key looks at 8 of each kind again; where there is no idle key, at all of them, as long as that makes no more
///   than 32 looks for each new key so far, of which up to 1,024 are saved up.
/// * A search goes past 1,024 keys of a part that have to be put aside, or must not go, and no further. If there are more that it
///   has not come to, or if there are no others, the new key gets a policy that is not kept: its calls are not refused, and count
///   for nothing. The next new key goes on from there.
///
/// A map for at least twice [`MIN_SHARD_CAPACITY`] keys is divided into up to 16 parts, by hash, each with its own lock and its
/// own order of use. The parts share the capacity, however the hashes fall. Room is made in the part of the new key if there is
/// an idle key in it, else in another one; and likewise for keys that are held or hold calls back, if none is idle anywhere.
///
/// # Size
/// About 90 bytes for a key of up to 24 bytes, and what the policy itself takes.
#[must_use = "a policy does nothing until it is part of a chain"]
pub struct Keyed<P: Member>(Arc<Shared<P>>);

struct Shared<P: Member> {
    family: P::Family,
    /// A power of two of them.
    parts: Box<[Part<P>]>,
    /// Seeded for each map: keys come from outside, and must not be made to collide.
    hasher: RandomState,
    capacity: usize,
    places: Places,
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
        let parts = (usable(capacity) / MIN_SHARD_CAPACITY).clamp(1, MAX_SHARDS);
        Keyed::with_parts(config, capacity, 1 << parts.ilog2())
    }

    fn with_parts(config: P::Config, capacity: usize, parts: usize) -> Keyed<P> {
        let usable = usable(capacity);
        let (share, rest) = (usable / parts, usable % parts);
        let part = |number| Part(Mutex::new(Shard::new(share + usize::from(number < rest))));
        Keyed(Arc::new(Shared {
            family: P::family(config),
            parts: (0..parts).map(part).collect(),
            hasher: RandomState::new(),
            capacity,
            places: Places::new(usable),
        }))
    }

    /// The policy of `key`, which counts as used by this. It is made if there is none.
    #[must_use]
    pub fn get(&self, key: &str) -> P {
        let hash = self.0.hash(key);
        let home = self.0.home_of(hash);
        let known = self.0.part(home).get(hash, key);
        known.unwrap_or_else(|| self.add(home, hash, key))
    }

    /// The policy of `key`, if there is one. Does not count as a use.
    #[must_use]
    pub fn peek(&self, key: &str) -> Option<P> {
        let hash = self.0.hash(key);
        self.0.part(self.0.home_of(hash)).peek(hash, key)
    }

    /// Takes the policy of `key` out: the next call with that key gets a new one. Calls that are under way keep it.
    pub fn remove(&self, key: &str) -> Option<P> {
        let hash = self.0.hash(key);
        let removed = self.0.part(self.0.home_of(hash)).remove(hash, key)?;
        drop(self.0.places.of_one_gone());
        Some(removed.into_member())
    }

    /// How many keys there are; at most [`capacity`](Keyed::capacity). Takes no lock.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.places.taken()
    }

    /// Whether there is no key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many keys have made room for others. If it rises, there are more keys than the capacity.
    #[must_use]
    pub fn evictions(&self) -> u64 {
        self.0.parts.iter().map(|part| lock(&part.0).evictions()).sum()
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
        self.0.parts.iter().flat_map(|part| lock(&part.0).keys()).collect()
    }

    /// The policy of a key that was not there a moment ago.
    #[cold]
    fn add(&self, home: usize, hash: u64, key: &str) -> P {
        // The clock and the allocator are asked before the lock.
        let now = P::now(&self.0.family);
        let key = Arc::from(key);
        let member = P::join(&self.0.family, Some(&key));
        self.0.admit(home, hash, Entry::new(key, member), now)
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

    /// The part in which the key with that hash is, if it is anywhere.
    #[inline]
    fn home_of(&self, hash: u64) -> usize {
        // Bits that the table of a part makes no use of.
        self.in_turn((hash >> 32) as usize)
    }

    /// A part, by a number that goes round.
    #[inline]
    fn in_turn(&self, number: usize) -> usize {
        number & (self.parts.len() - 1)
    }

    #[inline]
    fn part(&self, number: usize) -> MutexGuard<'_, Shard<P>> {
        lock(&self.parts[number].0)
    }
}

/// What a map with this capacity has: one that cannot work keeps nothing.
fn usable(capacity: usize) -> usize {
    if check_capacity(capacity).is_ok() { capacity } else { 0 }
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

/// A map is divided only if each part has a share of at least this many keys: 256. Each part has an order of use of its own: the
/// smaller it is, the less does the one that was used least recently in it say of the whole map.
pub const MIN_SHARD_CAPACITY: usize = 256;

/// More threads than this seldom ask for keys at the same moment.
const MAX_SHARDS: usize = 16;

#[cfg(all(test, not(steadfast_loom)))]
mod tests;
