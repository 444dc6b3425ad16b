//! The judgement on an outcome, packed into one word.

use std::time::Duration;

use super::Verdict;

/// A verdict and a mark in one word: `wait: 59 | mark: 2 | kind: 3`.
///
/// Outcomes are moved through every layer of every call. A [`Verdict`] that is moved is written in pieces, since its `Duration`
/// has four bytes of padding, and read back as a whole: the processor has to wait for that, at each layer, also if there is no
/// wait in it. A word is moved in a register.
///
/// The wait is in nanoseconds, plus one: zero stands for none. More than eighteen years are for ever, `Duration::MAX`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ruling(u64);

/// What the judgement on an outcome has to say beside the verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    None,
    /// An `attempts_for` has counted the error.
    Counted,
    /// No further attempt may follow, as when an `attempts_for` has seen as many errors of its kind as it allows.
    Stop,
    /// The run is being ended from outside.
    Ended,
}

impl Ruling {
    pub(crate) const TRANSIENT: Ruling = Ruling(TRANSIENT);

    #[inline]
    pub(crate) fn of(verdict: Verdict) -> Ruling {
        match verdict {
            Verdict::Success => Ruling(SUCCESS),
            Verdict::Transient => Ruling(TRANSIENT),
            Verdict::Fatal => Ruling(FATAL),
            Verdict::Throttled { retry_after } => Ruling(THROTTLED | pack(retry_after)),
            Verdict::Permanent => Ruling(PERMANENT),
            Verdict::Ignored => Ruling(IGNORED),
            Verdict::Rejected { retry_after } => Ruling(REJECTED | pack(retry_after)),
        }
    }

    #[inline]
    pub(crate) fn verdict(self) -> Verdict {
        match self.kind() {
            SUCCESS => Verdict::Success,
            TRANSIENT => Verdict::Transient,
            FATAL => Verdict::Fatal,
            THROTTLED => Verdict::Throttled { retry_after: unpack(self.0) },
            PERMANENT => Verdict::Permanent,
            IGNORED => Verdict::Ignored,
            _ => Verdict::Rejected { retry_after: unpack(self.0) },
        }
    }

    #[inline]
    pub(crate) fn mark(self) -> Mark {
        match self.0 >> MARK_SHIFT & 3 {
            0 => Mark::None,
            1 => Mark::Counted,
            2 => Mark::Stop,
            _ => Mark::Ended,
        }
    }

    #[inline]
    pub(crate) fn with_mark(self, mark: Mark) -> Ruling {
        Ruling(self.0 & !(3 << MARK_SHIFT) | (mark as u64) << MARK_SHIFT)
    }

    /// The same mark with another verdict.
    #[inline]
    pub(crate) fn with_verdict(self, verdict: Verdict) -> Ruling {
        Ruling::of(verdict).with_mark(self.mark())
    }

    /// Whether the verdict is `Success`.
    #[inline]
    pub(crate) fn is_success(self) -> bool {
        self.kind() == SUCCESS
    }

    /// Whether the dependency answered: see [`Verdict::is_answer`].
    #[inline]
    pub(crate) fn is_answer(self) -> bool {
        self.kind() <= PERMANENT
    }

    /// Whether no further attempt is worth making: whatever it was, it is not `Transient`, `Throttled` or `Rejected`.
    #[inline]
    pub(crate) fn is_final(self) -> bool {
        self.kind() <= IGNORED
    }

    #[inline]
    fn kind(self) -> u64 {
        self.0 & 7
    }
}

// In an order in which the questions of the hot path are comparisons.
const SUCCESS: u64 = 0;
const PERMANENT: u64 = 1;
const FATAL: u64 = 2;
const IGNORED: u64 = 3;
const TRANSIENT: u64 = 4;
const THROTTLED: u64 = 5;
const REJECTED: u64 = 6;

const MARK_SHIFT: u32 = 3;
const WAIT_SHIFT: u32 = 5;
const FOR_EVER: u64 = u64::MAX >> WAIT_SHIFT;

#[inline]
fn pack(wait: Option<Duration>) -> u64 {
    let nanos = |wait: Duration| u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX).saturating_add(1).min(FOR_EVER);
    wait.map_or(0, nanos) << WAIT_SHIFT
}

#[inline]
fn unpack(word: u64) -> Option<Duration> {
    match word >> WAIT_SHIFT {
        0 => None,
        FOR_EVER => Some(Duration::MAX),
        wait => Some(Duration::from_nanos(wait - 1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAITS: [Option<Duration>; 6] = [
        None,
        Some(Duration::ZERO),
        Some(Duration::from_nanos(1)),
        Some(Duration::from_millis(1_500)),
        Some(Duration::from_secs(18 * 365 * 24 * 3_600)),
        Some(Duration::MAX),
    ];

    fn all() -> impl Iterator<Item = Verdict> {
        let plain =
            [Verdict::Success, Verdict::Transient, Verdict::Fatal, Verdict::Permanent, Verdict::Ignored].into_iter();
        let waiting = WAITS
            .into_iter()
            .flat_map(|retry_after| [Verdict::Throttled { retry_after }, Verdict::Rejected { retry_after }]);
        plain.chain(waiting)
    }

    #[test]
    fn a_verdict_comes_back_as_it_was_with_any_mark() {
        for verdict in all() {
            for mark in [Mark::None, Mark::Counted, Mark::Stop, Mark::Ended] {
                let ruling = Ruling::of(verdict).with_mark(mark);
                assert_eq!((ruling.verdict(), ruling.mark()), (verdict, mark));
                let other = ruling.with_verdict(Verdict::Fatal);
                assert_eq!((other.verdict(), other.mark()), (Verdict::Fatal, mark));
            }
        }
    }

    #[test]
    fn the_questions_are_those_of_the_verdict() {
        for verdict in all() {
            let ruling = Ruling::of(verdict).with_mark(Mark::Stop);
            assert_eq!(ruling.is_answer(), verdict.is_answer(), "{verdict:?}");
            assert_eq!(ruling.is_success(), verdict == Verdict::Success, "{verdict:?}");
            let again = matches!(verdict, Verdict::Transient | Verdict::Throttled { .. } | Verdict::Rejected { .. });
            assert_eq!(ruling.is_final(), !again, "{verdict:?}");
        }
    }

    #[test]
    fn a_wait_of_more_than_eighteen_years_is_for_ever() {
        let verdict = Verdict::Throttled { retry_after: Some(Duration::from_secs(600_000_000)) };
        assert_eq!(Ruling::of(verdict).verdict(), Verdict::Throttled { retry_after: Some(Duration::MAX) });
    }
}
