//! The order of use of the entries of a part, as lists over their slots.

use super::places::growth;

/// One of the lists. Every slot is in one of them, and each is in the order of use.
///
/// What would be a loss is put aside when it is found to be the least recently used. Without lists of their own, such entries
/// would gather at the end at which room is sought, and hide the others. They are looked at again in rounds, for which there
/// are two lists of each kind: what the present round has seen, and what it has yet to see. What is idle by then was used less
/// recently than all that was never put aside; it has a list of its own, which a search goes through first.
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
    /// Put aside, and found to be idle since.
    Released = 5,
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

    /// The least recently used slot of those that are not put aside.
    pub(super) fn first(&self) -> Option<usize> {
        self.oldest(List::Released).or_else(|| self.oldest(List::Recent))
    }

    /// The slot that was used next after this one, of those that are not put aside.
    pub(super) fn next(&self, after: usize) -> Option<usize> {
        match self.links[index(after) as usize].newer {
            END_OF_RELEASED => self.oldest(List::Recent),
            newer => slot(newer),
        }
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
const ENDS: usize = 6;

const END_OF_RELEASED: u32 = List::Released as u32;

#[cfg(all(test, not(steadfast_loom)))]
mod tests {
    use super::*;

    const SHARE: usize = 100;

    fn slots(order: &Order, list: List) -> Vec<usize> {
        std::iter::successors(order.oldest(list), |&of| slot(order.links[index(of) as usize].newer)).collect()
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
    fn what_was_released_comes_before_what_was_never_put_aside() {
        let mut order = Order::new(SHARE);
        let all = |order: &Order| std::iter::successors(order.first(), |&slot| order.next(slot)).collect::<Vec<_>>();
        assert!(all(&order).is_empty());
        (0..3).for_each(|slot| order.push(List::Recent, slot));
        (3..6).for_each(|slot| order.push(List::Held, slot));
        assert_eq!(all(&order), [0, 1, 2]);
        (3..5).for_each(|slot| order.renew(List::Released, slot));
        assert_eq!(all(&order), [3, 4, 0, 1, 2]);
        (0..3).for_each(|slot| order.take(slot));
        assert_eq!(all(&order), [3, 4]);
        order.renew(List::Recent, 3);
        assert_eq!(all(&order), [4, 3]);
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
