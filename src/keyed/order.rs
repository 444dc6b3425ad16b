//! The order of use of the entries of a part, as lists over their slots.

use super::places::growth;

/// One of the lists. Every slot is in one of them, and each is in the order of use.
///
/// What would be a loss is put aside when it is found to be the least recently used. Without lists of their own, such entries
/// would gather at the end at which room is sought, and hide the others. They are looked at again in rounds, for which there
/// are two lists of each kind: what the present round has seen, and what it has yet to see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum List {
    /// What was not put aside.
    Recent = 0,
    /// Put aside while somebody held it.
    Held = 1,
    /// Of those, what the present round has seen.
    HeldSeen = 2,
    /// Put aside while it held calls back.
    Kept = 3,
    /// Of those, what the present round has seen.
    KeptSeen = 4,
}

/// Doubly linked lists. Each is a ring that begins and ends at a link of its own, so that taking a slot out needs to know
/// neither the list nor its ends.
#[derive(Debug)]
pub(super) struct Order {
    links: Vec<Link>,
    /// How many slots there will be, about.
    share: usize,
}

/// Indices of links.
#[derive(Clone, Copy, Debug)]
struct Link {
    older: u32,
    newer: u32,
}

impl Order {
    pub(super) fn new(share: usize) -> Order {
        let end = |list| Link { older: list, newer: list };
        Order { links: (0..ENDS as u32).map(end).collect(), share }
    }

    /// Puts a slot that is in no list at the newest end of one.
    #[inline]
    pub(super) fn push(&mut self, list: List, slot: usize) {
        let (end, link) = (list as u32, index(slot));
        if link as usize == self.links.len() {
            self.reserve();
            self.links.push(Link { older: link, newer: link });
        }
        let newest = std::mem::replace(&mut self.links[end as usize].older, link);
        self.links[newest as usize].newer = link;
        self.links[link as usize] = Link { older: newest, newer: end };
    }

    /// Takes a slot out of its list.
    #[inline]
    pub(super) fn take(&mut self, slot: usize) {
        let Link { older, newer } = self.links[index(slot) as usize];
        self.links[older as usize].newer = newer;
        self.links[newer as usize].older = older;
    }

    /// Moves a slot to the newest end of a list.
    #[inline]
    pub(super) fn renew(&mut self, list: List, slot: usize) {
        if self.links[list as usize].older == index(slot) {
            return;
        }
        self.take(slot);
        self.push(list, slot);
    }

    /// Moves a slot to the oldest end of a list.
    pub(super) fn age(&mut self, list: List, slot: usize) {
        self.take(slot);
        let (end, link) = (list as u32, index(slot));
        let oldest = std::mem::replace(&mut self.links[end as usize].newer, link);
        self.links[oldest as usize].older = link;
        self.links[link as usize] = Link { older: end, newer: oldest };
    }

    /// Moves all slots of one list to the newest end of another, in their order.
    pub(super) fn append(&mut self, from: List, to: List) {
        let (end, new_end) = (from as u32, to as u32);
        let Link { older: newest, newer: oldest } = self.links[end as usize];
        if oldest == end {
            return;
        }
        let before = std::mem::replace(&mut self.links[new_end as usize].older, newest);
        self.links[before as usize].newer = oldest;
        self.links[oldest as usize].older = before;
        self.links[newest as usize].newer = new_end;
        self.links[end as usize] = Link { older: end, newer: end };
    }

    /// The least recently used slot of a list.
    pub(super) fn oldest(&self, list: List) -> Option<usize> {
        slot(self.links[list as usize].newer)
    }

    /// The slot that was used next after this one.
    pub(super) fn newer(&self, of: usize) -> Option<usize> {
        slot(self.links[index(of) as usize].newer)
    }

    fn reserve(&mut self) {
        if self.links.len() == self.links.capacity() {
            self.links.reserve_exact(growth(self.links.len() - ENDS, self.share));
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "a map has at most a thousand million slots")]
fn index(slot: usize) -> u32 {
    (slot + ENDS) as u32
}

fn slot(index: u32) -> Option<usize> {
    (index as usize).checked_sub(ENDS)
}

/// The links at which the lists begin and end.
const ENDS: usize = 5;

#[cfg(all(test, not(steadfast_loom)))]
mod tests {
    use super::*;

    const SHARE: usize = 100;

    fn slots(order: &Order, list: List) -> Vec<usize> {
        std::iter::successors(order.oldest(list), |&slot| order.newer(slot)).collect()
    }

    #[test]
    fn slots_are_listed_from_the_least_recently_used_on() {
        let mut order = Order::new(SHARE);
        (0..4).for_each(|slot| order.push(List::Recent, slot));
        assert_eq!(slots(&order, List::Recent), [0, 1, 2, 3]);
        order.renew(List::Recent, 1);
        order.renew(List::Recent, 1);
        order.renew(List::Recent, 0);
        assert_eq!(slots(&order, List::Recent), [2, 3, 1, 0]);
        assert!(slots(&order, List::Kept).is_empty());
    }

    #[test]
    fn a_slot_moves_between_lists_and_comes_back_after_it_was_taken() {
        let mut order = Order::new(SHARE);
        (0..4).for_each(|slot| order.push(List::Recent, slot));
        order.renew(List::Kept, 2);
        order.renew(List::Kept, 0);
        order.take(3);
        assert_eq!((slots(&order, List::Recent), slots(&order, List::Kept)), (vec![1], vec![2, 0]));
        order.push(List::Recent, 3);
        order.renew(List::Recent, 2);
        assert_eq!((slots(&order, List::Recent), slots(&order, List::Kept)), (vec![1, 3, 2], vec![0]));
    }

    #[test]
    fn a_slot_becomes_the_least_recently_used_one() {
        let mut order = Order::new(SHARE);
        (0..3).for_each(|slot| order.push(List::Recent, slot));
        order.push(List::Held, 3);
        for slot in [3, 1, 1, 0] {
            order.age(List::Recent, slot);
        }
        assert_eq!(slots(&order, List::Recent), [0, 1, 3, 2]);
        assert!(slots(&order, List::Held).is_empty());
        order.renew(List::Recent, 0);
        assert_eq!(slots(&order, List::Recent), [1, 3, 2, 0]);
    }

    #[test]
    fn a_whole_list_moves_behind_another() {
        let mut order = Order::new(SHARE);
        (0..2).for_each(|slot| order.push(List::Kept, slot));
        (2..5).for_each(|slot| order.push(List::KeptSeen, slot));
        order.append(List::KeptSeen, List::Kept);
        order.append(List::KeptSeen, List::Kept);
        assert_eq!(slots(&order, List::Kept), [0, 1, 2, 3, 4]);
        assert!(slots(&order, List::KeptSeen).is_empty());
        order.append(List::Kept, List::KeptSeen);
        order.renew(List::Kept, 3);
        order.push(List::KeptSeen, 5);
        assert_eq!((slots(&order, List::Kept), slots(&order, List::KeptSeen)), (vec![3], vec![0, 1, 2, 4, 5]));
    }

    #[test]
    fn the_links_take_no_more_room_than_they_may_need() {
        let mut order = Order::new(SHARE);
        (0..SHARE).for_each(|slot| order.push(List::Recent, slot));
        assert!(order.links.capacity() <= SHARE + ENDS, "{}", order.links.capacity());
        (SHARE..SHARE + 5).for_each(|slot| order.push(List::Recent, slot));
        assert!(order.links.capacity() <= SHARE + SHARE / 8 + ENDS, "{}", order.links.capacity());
    }
}
