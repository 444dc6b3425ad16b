//! How many entries a map may have, over all of its parts.

use crate::sync::{AtomicU64, Ordering};

/// As many places as a map may have entries. Whoever puts one in takes a place before, and gives it back after it was taken
/// out; so at no moment are there more entries than places, and however the hashes fall, all places can be filled.
///
/// A line of its own: it is written only when keys come and go, and what it is apart from is read by every look-up.
#[repr(align(128))]
pub(super) struct Places {
    /// A count and nothing else: what it counts is in the parts, under their locks. So its order does not matter.
    taken: AtomicU64,
    most: u64,
}

/// A place that was taken for an entry. It is given back if nothing is put in.
#[must_use]
pub(super) struct Place<'a> {
    of: &'a Places,
    is_filled: bool,
}

impl Places {
    pub(super) fn new(most: usize) -> Places {
        Places { taken: AtomicU64::new(0), most: most as u64 }
    }

    /// How many are taken: never more than there are.
    pub(super) fn taken(&self) -> usize {
        usize::try_from(self.taken.load(Ordering::Relaxed)).unwrap_or(usize::MAX)
    }

    pub(super) fn are_half_taken(&self) -> bool {
        self.taken.load(Ordering::Relaxed) > self.most / 2
    }

    pub(super) fn take(&self) -> Option<Place<'_>> {
        let one_more = |taken: u64| (taken < self.most).then(|| taken + 1);
        let was = self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more);
        was.ok().map(|_| Place { of: self, is_filled: false })
    }

    /// The place of an entry that was taken out.
    pub(super) fn of_one_gone(&self) -> Place<'_> {
        Place { of: self, is_filled: false }
    }
}

impl Place<'_> {
    /// An entry is in it.
    pub(super) fn fill(mut self) {
        self.is_filled = true;
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if !self.is_filled {
            self.of.taken.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// For how many more than `len` a part should make room: for as many again, as always, but for no more than its share of the
/// places. Few parts get more than that, and not many more: an eighth.
pub(super) fn growth(len: usize, share: usize) -> usize {
    if len < share { len.clamp(1, share - len) } else { (len / 8).max(1) }
}

#[cfg(all(test, not(steadfast_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_taken_once_and_given_back() {
        let places = Places::new(2);
        let first = places.take().expect("free");
        places.take().expect("free").fill();
        assert!(places.take().is_none());
        assert_eq!(places.taken(), 2);
        drop(first);
        assert_eq!((places.taken(), places.are_half_taken()), (1, false));
        places.take().expect("free").fill();
        assert!(places.are_half_taken());
        drop(places.of_one_gone());
        assert_eq!(places.taken(), 1);
        assert!(Places::new(0).take().is_none());
    }

    #[test]
    fn room_grows_up_to_the_share_and_slowly_beyond_it() {
        let steps = |from: usize, share| std::iter::successors(Some(from), move |len| Some(len + growth(*len, share)));
        assert_eq!(steps(0, 13).take(7).collect::<Vec<_>>(), [0, 1, 2, 4, 8, 13, 14]);
        assert_eq!(steps(500, 512).take(4).collect::<Vec<_>>(), [500, 512, 576, 648]);
    }
}
