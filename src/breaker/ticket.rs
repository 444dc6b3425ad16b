use std::time::Duration;

use super::transition::State;

/// A breaker's state in one word: `generation: 62 | state: 2`.
///
/// Every change of state raises the generation, so no word ever comes back and two equal words mean that nothing
/// happened in between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Word(pub(super) u64);

impl Word {
    /// Closed, in generation 0.
    pub(super) const FIRST: Word = Word(CLOSED);

    #[inline]
    pub(super) fn state(self) -> State {
        match self.0 & STATE_BITS {
            CLOSED => State::Closed,
            OPEN => State::Open,
            _ => State::HalfOpen,
        }
    }

    #[inline]
    pub(super) fn is_closed(self) -> bool {
        self.0 & STATE_BITS == CLOSED
    }

    #[inline]
    pub(super) fn generation(self) -> u64 {
        self.0 >> STATE_WIDTH
    }

    /// The word of `state` in the next generation.
    pub(super) fn next(self, state: State) -> Word {
        let bits = match state {
            State::Closed => CLOSED,
            State::Open => OPEN,
            State::HalfOpen => HALF_OPEN,
        };
        Word((self.generation() + 1) << STATE_WIDTH | bits)
    }
}

/// The admission of one call: the word under which it was admitted.
///
/// To be settled exactly once, which is for its holder to see to; a ticket that is never settled costs a half-open
/// breaker one place until the trial deadline and nothing in the other states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket {
    pub(super) word: Word,
}

impl Ticket {
    /// Whether the call is a trial of a half-open breaker.
    #[inline]
    pub(crate) fn is_trial(self) -> bool {
        !self.word.is_closed()
    }
}

/// The refusal of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    /// How long every call will be refused; none if a trial may end at any moment, or if it is for ever.
    pub(crate) retry_after: Option<Duration>,
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
}

const STATE_WIDTH: u32 = 2;
const STATE_BITS: u64 = (1 << STATE_WIDTH) - 1;
const CLOSED: u64 = 0;
const OPEN: u64 = 1;
const HALF_OPEN: u64 = 2;
