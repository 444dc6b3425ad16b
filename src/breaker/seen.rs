use crate::window::Bucket;

/// What a look has found out: `epoch: 32 | enough: 1 | version: 7 | successes: 24`. See [`super::tally`].
#[derive(Clone, Copy)]
pub(super) struct Seen(pub(super) u64);

impl Seen {
    #[inline]
    pub(super) fn new(epoch: u32, enough: bool, version: u64, successes: u64) -> Self {
        let enough = if enough { ENOUGH } else { 0 };
        Seen(u64::from(epoch) << 32 | enough | version_bits(version) | successes.min(MOST_SUCCESSES))
    }

    #[inline]
    pub(super) fn is_enough_for(self, bucket: Bucket, version: u64) -> bool {
        // All but the successes, in one comparison.
        self.0 >> VERSION == Seen::new(bucket.epoch(), true, version, 0).0 >> VERSION
    }

    pub(super) fn successes_in(self, bucket: Bucket, version: u64) -> Option<u64> {
        self.is_of(bucket, version).then_some(self.0 & MOST_SUCCESSES)
    }

    #[inline]
    fn is_of(self, bucket: Bucket, version: u64) -> bool {
        (self.0 >> 32) as u32 == bucket.epoch() && self.0 & VERSION_BITS == version_bits(version)
    }
}

/// Versions that are told apart: 128, of which one epoch sees a few. They are even.
#[inline]
fn version_bits(version: u64) -> u64 {
    (version >> 1) << VERSION & VERSION_BITS
}

const ENOUGH: u64 = 1 << 31;
const VERSION: u32 = 24;
const VERSION_BITS: u64 = 0x7f << VERSION;
const MOST_SUCCESSES: u64 = (1 << VERSION) - 1;
