//! The order of use of the entries of a shard, as two lists over their slots.

/// Which of the two lists. Every slot is in one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum List {
    /// In the order of use.
    Recent = 0,
    /// What was found to hold calls back when it was the least recently used, in the order of use too. Without a list of their
    /// own, such entries would gather at the end at which room is sought, and hide the others.
    Kept = 1,
}

/// Two doubly linked lists. Each is a ring that begins and ends at a link of its own, so that taking a slot out needs to know
/// neither the list nor its ends.
#[derive(Debug)]
pub(super) struct Order {
    links: Vec<Link>,
    /// How many slots there may be.
    room: usize,
}

/// Indices of links.
#[derive(Clone, Copy, Debug)]
struct Link {
    older: u32,
    newer: u32,
}

impl Order {
    pub(super) fn new(room: usize) -> Order {
        let end = |list| Link { older: list, newer: list };
        Order { links: vec![end(List::Recent as u32), end(List::Kept as u32)], room }
    }

    /// Puts a slot that is in no list at the newest end of one.
    #[inline]
    pub(super) fn push(&mut self, list: List, slot: usize) {
        let (end, link) = (list as u32, index(slot));
        if link as usize == self.links.len() {
            reserve(&mut self.links, self.room + ENDS);
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

    /// The least recently used slot of a list.
    pub(super) fn oldest(&self, list: List) -> Option<usize> {
        slot(self.links[list as usize].newer)
    }

    /// The slot that was used next after this one.
    pub(super) fn newer(&self, of: usize) -> Option<usize> {
        slot(self.links[index(of) as usize].newer)
    }
}

#[expect(clippy::cast_possible_truncation, reason = "a map has at most a thousand million slots")]
fn index(slot: usize) -> u32 {
    (slot + ENDS) as u32
}

fn slot(index: u32) -> Option<usize> {
    (index as usize).checked_sub(ENDS)
}

/// Room for one more: twice as much as there is, as always, but no more than there can ever be.
fn reserve<T>(list: &mut Vec<T>, most: usize) {
    if list.len() == list.capacity() {
        list.reserve_exact(most.saturating_sub(list.len()).clamp(1, list.len()));
    }
}

/// The links at which the lists begin and end.
const ENDS: usize = 2;

#[cfg(all(test, not(steadfast_loom)))]
mod tests {
    use super::*;

    const ROOM: usize = 100;

    fn slots(order: &Order, list: List) -> Vec<usize> {
        std::iter::successors(order.oldest(list), |&slot| order.newer(slot)).collect()
    }

    #[test]
    fn slots_are_listed_from_the_least_recently_used_on() {
        let mut order = Order::new(ROOM);
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
        let mut order = Order::new(ROOM);
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
    fn the_links_take_no_more_room_than_they_may_need() {
        let mut order = Order::new(ROOM);
        (0..ROOM).for_each(|slot| order.push(List::Recent, slot));
        assert!(order.links.capacity() <= ROOM + ENDS, "{}", order.links.capacity());
    }
}
