//! What a policy must say of itself to have one of it for each key.

use std::sync::Arc;

use self::sealed::{Sealed, Standing};
use crate::clock::Moment;

/// A stateful policy of which there can be one for each key, in a [`Keyed`](super::Keyed). Sealed: these are the stateful
/// policies of this crate whose state belongs to a dependency or a caller.
pub trait Member: Clone + Send + Sync + Sealed + 'static {
    /// The settings that all members of one map share.
    type Config;

    /// What kind of policy it is, as a snapshot names it.
    #[doc(hidden)]
    const KIND: &'static str;

    /// What all members of one map share, so that 100,000 of them do not each hold a copy.
    #[doc(hidden)]
    type Family: Send + Sync + 'static;

    #[doc(hidden)]
    fn family(config: Self::Config) -> Self::Family;

    /// A new member, for a key if it is to be kept.
    #[doc(hidden)]
    fn join(family: &Self::Family, key: Option<&Arc<str>>) -> Self;

    /// The time by which members are judged. Asked outside of every lock, since a clock may be a user's.
    #[doc(hidden)]
    fn now(family: &Self::Family) -> Moment;

    /// What the loss of the member would mean. It is asked under the lock of a map, so it must not look at a clock, call foreign
    /// code or use the map; `now` may be somewhat early or late.
    #[doc(hidden)]
    fn standing(&self, now: Moment) -> Standing;

    /// Whether there are other handles of this member. Asked under the lock of the map, which has one of them.
    #[doc(hidden)]
    fn is_held(&self) -> bool;
}

pub(crate) mod sealed {
    //! For the crate's own policies only.

    #[expect(unnameable_types, reason = "sealed: `Member` is for policies of this crate")]
    pub trait Sealed {}

    /// What the loss of a member would mean, the least first.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    #[expect(unnameable_types, reason = "sealed: `Member` is for policies of this crate")]
    pub enum Standing {
        /// Nothing: it was used, and is equal to a new one by now.
        Fresh,
        /// Nothing: it was never used. Its first call may be on its way, so it is not cleared away before it is in the way.
        Unused,
        /// Something, but it holds nobody back: a closed breaker that has counted calls, a bucket that is not full.
        Idle,
        /// Somebody holds it: there are calls under way, or handles. A map finds that by itself; no member says so.
        InUse,
        /// It holds calls back: an open breaker, a drained bucket.
        Engaged,
        /// Somebody relies on its being found again: a trial is running. It is not evicted.
        #[cfg_attr(not(test), allow(dead_code, reason = "not every policy has such a state"))]
        Pinned,
    }
}
