//! Which try of a run this is, in one word.

/// Which try this is, and what sort of run: `number: 32 | 0: 8 | lane: 16 | 0: 3 | flags: 5`.
///
/// One word, because it is handed inwards at every layer: with the numbers as fields of their own the compiler would copy a struct
/// each time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Which(u64);

impl Which {
    /// The first try, of a run that has these of its flags.
    #[inline]
    pub(crate) const fn first(run: u64, streams: bool) -> Which {
        let streams = if streams { STREAMS } else { 0 };
        Which(1 << NUMBER_SHIFT | run & PLAIN | streams)
    }

    #[inline]
    pub(crate) const fn number(self) -> u32 {
        (self.0 >> NUMBER_SHIFT) as u32
    }

    #[inline]
    pub(crate) const fn with_number(self, number: u32) -> Which {
        Which((number as u64) << NUMBER_SHIFT | self.0 & !(u64::MAX << NUMBER_SHIFT))
    }

    #[inline]
    pub(crate) const fn lane(self) -> u32 {
        (self.0 >> LANE_SHIFT & LANE) as u32
    }

    #[inline]
    pub(crate) const fn with_lane(self, lane: u32) -> Which {
        Which(self.0 & !(LANE << LANE_SHIFT) | (lane as u64 & LANE) << LANE_SHIFT)
    }

    #[inline]
    pub(crate) const fn has(self, flag: u64) -> bool {
        self.0 & flag != 0
    }

    #[inline]
    pub(crate) const fn with(self, flag: u64) -> Which {
        Which(self.0 | flag)
    }
}

/// Nobody observes the run, and its caller has brought nothing that ends or limits it. It is the run's own flag, carried along
/// where no memory has to be read for it.
pub(crate) const PLAIN: u64 = 1;

/// It is a trial of a half-open breaker.
pub(crate) const TRIAL: u64 = 1 << 1;

/// An adapter will hold the tail of its outcome.
pub(crate) const STREAMS: u64 = 1 << 2;

/// A policy around it judges, and tells of the end of the attempt.
pub(crate) const JUDGED: u64 = 1 << 3;

/// It is inside of a frame that counts what is started inside.
pub(crate) const COUNTED: u64 = 1 << 4;

const LANE: u64 = 0xFFFF;
const LANE_SHIFT: u32 = 8;
const NUMBER_SHIFT: u32 = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_are_kept_apart() {
        let which = Which::first(u64::MAX, true).with_number(u32::MAX).with_lane(7).with(TRIAL);
        assert_eq!((which.number(), which.lane()), (u32::MAX, 7));
        let which = which.with_number(2).with_lane(0xFFFF);
        assert_eq!((which.number(), which.lane()), (2, 0xFFFF));
        assert!(which.has(PLAIN) && which.has(TRIAL) && which.has(STREAMS));
        assert!(!which.has(JUDGED) && !which.has(COUNTED));
    }

    #[test]
    fn a_lane_has_sixteen_bits() {
        assert_eq!(Which::first(0, false).with_lane(0x1_0003).lane(), 3);
    }
}
