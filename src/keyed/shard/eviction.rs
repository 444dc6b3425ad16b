//! Which entry of a part makes room for a new one.
//!
//! Entries that hold calls back, or that somebody holds, are put aside when a search comes upon them, and are in the way of no
//! other. A search goes past any run of them, and takes a constant number of looks in the long run: an entry comes back among
//! those that a search looks at when it is used, put in or found to be idle, and that has paid for putting it aside again. (Only
//! where nothing is left but trials does each new key look at all of them.) What was put aside is looked at again in rounds: a
//! few with each new key, and when there is nothing else to take as many as new keys have paid for.
//!
//! No search looks at more than a bounded number of entries, since the part is locked. One that has to stop takes nothing, rather
//! than something whose loss matters while there may be something idle; the next one goes on where it has ended.

use std::sync::atomic::{Ordering, fence};

use super::super::member::Member;
use super::super::member::sealed::Standing;
use super::super::order::List;
use super::{Entry, Shard};
use crate::clock::Moment;

/// What a search has to know that is not asked under a lock.
pub(in super::super) struct Search<'a> {
    pub(in super::super) now: Moment,
    pub(in super::super) hash_of: &'a dyn Fn(&str) -> u64,
}

/// There are entries that a search has not come to.
pub(in super::super) struct Unfinished;

/// Entries that were cleared away, to be dropped outside of the lock.
pub(in super::super) type Cleared<P> = [Option<Entry<P>>; MOST_CLEARED];

impl<P: Member> Shard<P> {
    /// Takes those of the least recently used entries out that are equal to new ones, and puts those aside whose loss would
    /// matter more than that of others. Done with each new key long before there is no room.
    pub(in super::super) fn tidy(&mut self, search: &Search<'_>) -> Cleared<P> {
        self.paid = (self.paid + PAID_BY_NEW_KEY).min(PAID_AT_MOST);
        self.look_again_at_a_few(search.now);
        let mut cleared = Cleared::default();
        let mut places = cleared.iter_mut();
        for _ in 0..SAMPLE {
            let Some(oldest) = self.order.first() else { break };
            match self.standing(oldest, search.now) {
                Standing::Fresh => {
                    let Some(place) = places.next() else { break };
                    *place = Some(self.take_out(oldest, search));
                }
                Standing::Unused | Standing::Idle => break,
                matters => self.put_aside(oldest, matters),
            }
        }
        cleared
    }

    /// Takes the entry out whose loss means least, if it means no more than `most`.
    pub(in super::super) fn evict(
        &mut self,
        most: Standing,
        search: &Search<'_>,
    ) -> Result<Option<Entry<P>>, Unfinished> {
        let Some(slot) = self.find_least(most, search.now)? else { return Ok(None) };
        self.evictions += 1;
        Ok(Some(self.take_out(slot, search)))
    }

    fn find_least(&mut self, most: Standing, now: Moment) -> Result<Option<usize>, Unfinished> {
        if let Some(slot) = self.find_idle(now)?.or_else(|| self.find_released(now)) {
            return Ok(Some(slot));
        }
        if most >= Standing::InUse
            && let Some(slot) = self.find_held(now)?
        {
            return Ok(Some(slot));
        }
        Ok(if most >= Standing::Engaged { self.find_engaged(now) } else { None })
    }

    /// The least recently used entry that is idle, or one of the few behind it if that is equal to a new one.
    ///
    /// What is put aside here is in the way of an idle one, and so was used less recently than all that is not put aside. What is
    /// behind an idle one is in nobody's way, and stays.
    fn find_idle(&mut self, now: Moment) -> Result<Option<usize>, Unfinished> {
        let mut idle = None;
        let mut looks = MOST_LOOKS;
        let mut next = self.order.first();
        while let Some(slot) = next {
            if looks == 0 {
                return idle.map(Some).ok_or(Unfinished);
            }
            looks -= 1;
            next = self.order.next(slot);
            match self.standing(slot, now) {
                Standing::Fresh | Standing::Unused => return Ok(Some(slot)),
                Standing::Idle if idle.is_none() => (idle, looks) = (Some(slot), looks.min(SAMPLE - 1)),
                matters if idle.is_none() => self.put_aside(slot, matters),
                _ => {}
            }
        }
        Ok(idle)
    }

    /// The first of those that were put aside that is idle by now, as far as looking for it is paid for.
    fn find_released(&mut self, now: Moment) -> Option<usize> {
        for (to_see, seen) in ASIDE {
            // The rest of the present round, and a whole one if that was not all.
            let rounds = if self.order.oldest(seen).is_some() { 2 } else { 1 };
            for _ in 0..rounds {
                while let Some(slot) = self.order.oldest(to_see) {
                    self.paid = self.paid.checked_sub(1)?;
                    if self.look_again(slot, now) {
                        return Some(slot);
                    }
                }
                self.order.append(seen, to_see);
            }
        }
        None
    }

    /// The least recently used of those that were put aside because somebody held them.
    fn find_held(&mut self, now: Moment) -> Result<Option<usize>, Unfinished> {
        for _ in 0..MOST_LOOKS {
            let oldest = self.order.oldest(List::HeldSeen).or_else(|| self.order.oldest(List::Held));
            let Some(slot) = oldest else { return Ok(None) };
            match self.standing(slot, now) {
                standing @ (Standing::Engaged | Standing::Pinned) => self.put_aside(slot, standing),
                _ => return Ok(Some(slot)),
            }
        }
        Err(Unfinished)
    }

    /// The least recently used of those that were put aside because they held calls back, if it may go. Those that may not are
    /// put where the search comes last, and if it comes to the first of them again there are no others.
    fn find_engaged(&mut self, now: Moment) -> Option<usize> {
        let mut first_pinned = None;
        for _ in 0..MOST_LOOKS {
            let slot = self.order.oldest(List::KeptSeen).or_else(|| self.order.oldest(List::Kept))?;
            if first_pinned == Some(slot) {
                return None;
            }
            match self.standing(slot, now) {
                Standing::Pinned => self.put_aside(slot, Standing::Pinned),
                _ => return Some(slot),
            }
            first_pinned = first_pinned.or(Some(slot));
        }
        None
    }

    fn put_aside(&mut self, slot: usize, standing: Standing) {
        let list = if standing == Standing::InUse { List::Held } else { List::Kept };
        self.order.renew(list, slot);
    }

    fn look_again_at_a_few(&mut self, now: Moment) {
        for (to_see, seen) in ASIDE {
            if self.order.oldest(to_see).is_none() {
                self.order.append(seen, to_see);
            }
            for _ in 0..SAMPLE {
                let Some(slot) = self.order.oldest(to_see) else { break };
                self.look_again(slot, now);
            }
        }
    }

    /// Looks again at an entry that was put aside, and says whether it is idle by now. Such a one goes before all that were not
    /// put aside.
    fn look_again(&mut self, slot: usize, now: Moment) -> bool {
        match self.standing(slot, now) {
            Standing::InUse => self.order.renew(List::HeldSeen, slot),
            Standing::Engaged | Standing::Pinned => self.order.renew(List::KeptSeen, slot),
            Standing::Fresh | Standing::Unused | Standing::Idle => {
                self.order.renew(List::Released, slot);
                return true;
            }
        }
        false
    }

    /// What the loss of an entry would mean. One that somebody holds is not equal to a new one: its use may be about to show.
    fn standing(&self, slot: usize, now: Moment) -> Standing {
        let member = &self.entries[slot].member;
        // In this order: whoever has let go of it meanwhile has shown by then what the use came to.
        let is_held = member.is_held();
        fence(Ordering::Acquire);
        let standing = member.standing(now);
        if is_held { standing.max(Standing::InUse) } else { standing }
    }

    fn take_out(&mut self, slot: usize, search: &Search<'_>) -> Entry<P> {
        let hash = (search.hash_of)(&self.entries[slot].key);
        self.take(hash, slot)
    }
}

/// What was put aside: what the present round has yet to see, and what it has seen.
const ASIDE: [(List, List); 2] = [(List::Held, List::HeldSeen), (List::Kept, List::KeptSeen)];

/// How many entries a new key makes somebody look at, of each kind: 8.
const SAMPLE: usize = 8;

/// How many entries a search for room goes past: 1,024, so that the part is not locked for long. Only as many uses of entries
/// that are held or hold calls back can make another search take as many looks, or as many trials at once, and nothing else.
const MOST_LOOKS: usize = 1_024;

/// How many looks at what was put aside a new key pays for: 32. What is not needed at once is saved up, so that a part of the
/// default size is looked at as a whole when its last idle entry is gone.
const PAID_BY_NEW_KEY: u32 = 32;

/// How many may be paid for: as many as a search may take.
pub(super) const PAID_AT_MOST: u32 = MOST_LOOKS as u32;

/// How many entries that are equal to new ones a new key clears away: 2, one more than it adds.
const MOST_CLEARED: usize = 2;
