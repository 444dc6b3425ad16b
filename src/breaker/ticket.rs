use std::time::Duration;

use super::needs::Needs;
use super::transition::State;
use crate::error;
use crate::verdict::Verdict;

/// A breaker's state in one word: `generation: 57 | nothing: 4 | kind: 3`. (Tickets use what is free.)
///
/// Every change of state raises the generation, so no word ever comes back, and a verdict whose generation is the present
/// one is of the present period. A pause is no change of state: it turns `Closed` into `Paused` and back within one
/// generation, so that the calls that are under way still count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Word(pub(super) u64);

/// What a breaker does with calls, in as much detail as admission needs. `Closed` is zero: it is what every call tests for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(super) enum Kind {
    Closed = 0,
    /// Closed, but a dependency asked for patience.
    Paused,
    Open,
    HalfOpen,
    MetricsOnly,
    Disabled,
    Isolated,
}

impl Word {
    /// Closed, in generation 0.
    pub(super) const FIRST: Word = Word(Kind::Closed as u64);

    pub(super) fn kind(self) -> Kind {
        match self.0 & KIND_BITS {
            0 => Kind::Closed,
            1 => Kind::Paused,
            2 => Kind::Open,
            3 => Kind::HalfOpen,
            4 => Kind::MetricsOnly,
            5 => Kind::Disabled,
            _ => Kind::Isolated,
        }
    }

    pub(super) fn state(self) -> State {
        self.kind().state()
    }

    #[inline]
    pub(super) fn is_closed(self) -> bool {
        self.0 & KIND_BITS == Kind::Closed as u64
    }

    #[inline]
    pub(super) fn generation(self) -> u64 {
        self.0 >> GENERATION
    }

    /// Whether no change of state lies between the two words.
    #[inline]
    pub(super) fn is_same_period(self, other: Word) -> bool {
        self.generation() == other.generation()
    }

    /// The word of `kind` in the next generation.
    pub(super) fn next(self, kind: Kind) -> Word {
        Word((self.generation() + 1) << GENERATION | kind as u64)
    }

    /// The word of `kind` in the same generation.
    pub(super) fn within(self, kind: Kind) -> Word {
        Word(self.generation() << GENERATION | kind as u64)
    }
}

impl Kind {
    pub(super) fn state(self) -> State {
        match self {
            Kind::Closed | Kind::Paused => State::Closed,
            Kind::Open => State::Open,
            Kind::HalfOpen => State::HalfOpen,
            Kind::MetricsOnly => State::MetricsOnly,
            Kind::Disabled => State::Disabled,
            Kind::Isolated => State::Isolated,
        }
    }

    /// Whether a rule that is met opens the breaker.
    pub(super) fn may_trip(self) -> bool {
        matches!(self, Kind::Closed | Kind::Paused)
    }

    /// Whether calls are counted in the window.
    pub(super) fn counts(self) -> bool {
        self.may_trip() || self == Kind::MetricsOnly
    }
}

/// The admission of one call: the word under which it was admitted, and in the bits that a word leaves free what the call
/// needs.
///
/// To be settled exactly once, which is for its holder to see to; a ticket that is never settled costs a half-open
/// breaker one place until the trial deadline and nothing in the other states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket(u64);

impl Ticket {
    /// For who has none yet.
    pub(crate) const NONE: Ticket = Ticket(Word::FIRST.0);

    /// For who has settled the one that was held: of a kind that no breaker has.
    pub(crate) const SETTLED: Ticket = Ticket(KIND_BITS);

    #[inline]
    pub(super) fn new(word: Word, needs: Needs) -> Ticket {
        Ticket(word.0 | needs.0)
    }

    #[inline]
    pub(super) fn word(self) -> Word {
        Word(self.0 & !NEEDS_BITS)
    }

    /// Whether the breaker was simply closed.
    #[inline]
    pub(crate) fn is_of_closed(self) -> bool {
        self.word().is_closed()
    }

    /// Whether the breaker was simply closed and in use, and it does not matter how long the call takes.
    #[inline]
    pub(super) fn is_of_closed_at_once(self) -> bool {
        self.0 & (KIND_BITS | Needs::SETUP.and(Needs::START).0) == 0
    }

    /// Whether the breaker was simply closed, and no window counts the call, by whatever time.
    #[inline]
    pub(super) fn is_of_no_window(self) -> bool {
        self.0 & (KIND_BITS | NEEDS_BITS) == 0
    }

    /// Whether the call is a trial of a half-open breaker.
    #[inline]
    pub(crate) fn is_trial(self) -> bool {
        !self.is_of_closed() && self.word().kind() == Kind::HalfOpen
    }
}

/// The refusal of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    /// How long every call will be refused; none if a trial may end at any moment, or if it is for ever.
    pub(crate) retry_after: Option<Duration>,
    /// The breaker is closed, and refuses because the dependency asked for patience.
    pub(crate) is_pause: bool,
}

impl Refused {
    pub(super) fn kind(self) -> error::Kind {
        let retry_after = self.retry_after;
        if self.is_pause { error::Kind::RateLimited { retry_after } } else { error::Kind::CircuitOpen { retry_after } }
    }
}

/// How an admitted call ended, as far as a breaker cares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Success,
    Failure,
    /// It says nothing about the dependency.
    Nothing,
    /// The dependency asked for patience, perhaps for so long.
    Throttled(Option<Duration>),
    /// The caller gave up.
    Abandoned,
    /// Another lane of its hedge was faster.
    LostRace,
}

impl End {
    /// The breaker's columns of the table at [`Verdict`].
    #[inline]
    pub(super) fn of(verdict: Verdict) -> End {
        match verdict {
            Verdict::Success | Verdict::Permanent => End::Success,
            Verdict::Transient | Verdict::Fatal => End::Failure,
            Verdict::Throttled { retry_after } => End::Throttled(retry_after),
            Verdict::Ignored | Verdict::Rejected { .. } => End::Nothing,
        }
    }
}

pub(super) const KIND_WIDTH: u32 = 3;
const KIND_BITS: u64 = (1 << KIND_WIDTH) - 1;
const NEEDS_BITS: u64 = ((1 << Needs::WIDTH) - 1) << KIND_WIDTH;
const GENERATION: u32 = KIND_WIDTH + Needs::WIDTH;
