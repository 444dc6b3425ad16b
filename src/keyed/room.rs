//! How a new key gets a place, in whichever part of the map somebody has to go for it.

use super::Shared;
use super::member::Member;
use super::member::sealed::Standing;
use super::places::Place;
use super::shard::{Cleared, Entry, Search, Unfinished};
use crate::clock::Moment;

impl<P: Member> Shared<P> {
    /// The member of the key of `new`, which is put in if nobody has been faster and there is or can be made room. No lock is
    /// held beside another, and what leaves is dropped under none.
    pub(super) fn admit(&self, home: usize, hash: u64, new: Entry<P>, now: Moment) -> P {
        let hash_of = |key: &str| self.hash(key);
        let search = Search { now, hash_of: &hash_of };
        let new = match self.admit_at_home(home, hash, new, &search) {
            Ok(member) => return member,
            Err(new) => new,
        };
        let Some((place, _evicted)) = self.make_room(home, &search) else { return new.into_member() };
        let mut part = self.part(home);
        if let Some(known) = part.get(hash, new.key()) {
            return known;
        }
        let member = new.member();
        part.insert(hash, new, &hash_of);
        place.fill();
        member
    }

    /// Without a look at other parts, which is enough as long as there is a place left, or an idle entry in this part.
    fn admit_at_home(&self, home: usize, hash: u64, new: Entry<P>, search: &Search<'_>) -> Result<P, Entry<P>> {
        // Declared before the lock is taken, so that what is in them is dropped after it.
        let cleared: Cleared<P>;
        let mut evicted = None;
        let mut part = self.part(home);
        if let Some(known) = part.get(hash, new.key()) {
            return Ok(known);
        }
        if self.places.are_half_taken() {
            cleared = part.tidy(search);
            cleared.iter().flatten().for_each(|_| drop(self.places.of_one_gone()));
        }
        let place = self.places.take().or_else(|| {
            evicted = part.evict(Standing::Idle, search).ok().flatten();
            evicted.is_some().then(|| self.places.of_one_gone())
        });
        let Some(place) = place else { return Err(new) };
        let member = new.member();
        part.insert(hash, new, search.hash_of);
        place.fill();
        Ok(member)
    }

    /// Takes the entry out whose loss means least, in the first part that has such a one, from `home` on. Its place is passed on:
    /// nobody else can take it meanwhile.
    fn make_room(&self, home: usize, search: &Search<'_>) -> Option<(Place<'_>, Entry<P>)> {
        for most in [Standing::Idle, Standing::InUse, Standing::Engaged] {
            let mut is_finished = true;
            for step in 0..self.parts.len() {
                let found = self.part(self.in_turn(home + step)).evict(most, search);
                match found {
                    Ok(Some(entry)) => return Some((self.places.of_one_gone(), entry)),
                    Ok(None) => {}
                    Err(Unfinished) => is_finished = false,
                }
            }
            if !is_finished {
                return None;
            }
        }
        None
    }
}
