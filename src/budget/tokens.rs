//! The token form of a budget: one atomic word.
//!
//! # The word
//!
//! `ticks: 32 | balance: 32`. The balance counts ten-thousandths of a token. A tick is the time in which the floor gives one
//! of them back, so what is due since the last draw is the number of ticks since then, and nothing has to be multiplied or
//! rounded. Only draws look at the time; between two of them the balance only grows, and the smaller of a sum and the cap
//! is the same in whatever order the parts are added: so a deposit needs no clock.
//!
//! # A full balance is not written
//!
//! A deposit into a full balance changes nothing and is one load. Without that every first attempt would write a word that
//! all threads share; with it the word stays in the cache of each of them for as long as retries are rare.
//!
//! # Wrapping
//!
//! An idle time of more than 2³² ticks (298 days at one token a minute) counts as what is left of it after whole rounds: less
//! comes back than was due, never more. Two threads may read the clock in one order and swap in the other, so a tick that
//! is a little behind the word's is no time at all, and not a whole round.
//!
//! # Orderings
//!
//! All accesses are `Relaxed`. The word guards no other memory: who draws a token learns nothing from it but that there was
//! one. All changes are made by swaps of the whole word, which have one order whatever their ordering, so no token is drawn
//! twice and none is lost. A deposit that sees a full balance counts as having come before the draw that is under way.

use std::time::Duration;

use super::UNIT;
use crate::clock::Moment;
use crate::sync::{AtomicU64, Ordering::Relaxed};

/// Tokens for retries and hedges.
pub(super) struct Tokens {
    word: AtomicU64,
    deposit: u32,
    cap: u32,
    /// Nanoseconds; `None` without a floor.
    tick: Option<u64>,
}

impl Tokens {
    /// All amounts in ten-thousandths of a token; one token comes back `every` so often, or never if that is `MAX`.
    pub(super) fn new(deposit: u32, cap: u32, initial: u32, every: Duration) -> Tokens {
        let every = u64::try_from(every.as_nanos()).ok();
        let tick = every.map(|every| (every / u64::from(UNIT)).max(1));
        Tokens { word: AtomicU64::new(Word { ticks: None, balance: initial }.pack()), deposit, cap, tick }
    }

    /// The floor gives from `now` on. Later calls change nothing.
    pub(super) fn begin(&self, now: Moment) {
        let begun = |word| match (Word::unpack(word), self.ticks(now)) {
            (Word { ticks: None, balance }, ticks @ Some(_)) => Some(Word { ticks, balance }.pack()),
            _ => None,
        };
        let _begun_before = self.word.fetch_update(Relaxed, Relaxed, begun);
    }

    /// A first attempt is made.
    #[inline]
    pub(super) fn deposit(&self) {
        if Word::unpack(self.word.load(Relaxed)).balance < self.cap {
            self.add(self.deposit);
        }
    }

    /// Draws one token, if there is one. A refusal writes nothing.
    #[must_use]
    pub(super) fn draw(&self, now: Moment) -> bool {
        self.word.fetch_update(Relaxed, Relaxed, |word| self.drawn(Word::unpack(word), now).map(Word::pack)).is_ok()
    }

    /// Gives back a token that was not used.
    pub(super) fn give_back(&self) {
        self.add(UNIT);
    }

    /// What is there at `now`, in ten-thousandths of a token.
    pub(super) fn balance(&self, now: Moment) -> u32 {
        self.refilled(Word::unpack(self.word.load(Relaxed)), now).balance
    }

    #[cold]
    fn add(&self, amount: u32) {
        let added = |word| {
            let Word { ticks, balance } = Word::unpack(word);
            let more = balance.saturating_add(amount).min(self.cap);
            (more != balance).then(|| Word { ticks, balance: more }.pack())
        };
        // `Err` is a balance that is full already.
        let _full = self.word.fetch_update(Relaxed, Relaxed, added);
    }

    fn drawn(&self, word: Word, now: Moment) -> Option<Word> {
        let Word { ticks, balance } = self.refilled(word, now);
        Some(Word { ticks, balance: balance.checked_sub(UNIT)? })
    }

    /// With what the floor has given since the last draw.
    fn refilled(&self, word: Word, now: Moment) -> Word {
        let (Some(before), Some(ticks)) = (word.ticks, self.ticks(now)) else { return word };
        let due = ticks.wrapping_sub(before);
        if due > BEHIND {
            return word;
        }
        Word { ticks: Some(ticks), balance: word.balance.saturating_add(due).min(self.cap) }
    }

    /// `None` without a floor. Zero stands for "not begun", so that tick is counted as the one after it.
    fn ticks(&self, now: Moment) -> Option<u32> {
        Some(((now.nanos() / self.tick?) as u32).max(1))
    }
}

#[derive(Clone, Copy)]
struct Word {
    /// Of the last draw, or of the beginning; `None` before that.
    ticks: Option<u32>,
    balance: u32,
}

impl Word {
    #[inline]
    fn unpack(word: u64) -> Word {
        let ticks = (word >> 32) as u32;
        Word { ticks: (ticks != 0).then_some(ticks), balance: word as u32 }
    }

    #[inline]
    fn pack(self) -> u64 {
        u64::from(self.ticks.unwrap_or(0)) << 32 | u64::from(self.balance)
    }
}

/// A difference of more ticks than this is a step back.
const BEHIND: u32 = u32::MAX - (1 << 28);

#[cfg(all(test, not(steadfast_loom)))]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn at(secs: u64) -> Moment {
        Moment::from_nanos(86_400_000_000_000) + Duration::from_secs(secs)
    }

    /// As [`Budget::ratio`](crate::budget::Budget::ratio) by default, bound at the start.
    fn tokens(initial: u32, every: Duration) -> Tokens {
        let tokens = Tokens::new(UNIT / 10, 10 * UNIT, initial * UNIT, every);
        tokens.begin(at(0));
        tokens
    }

    fn draws(tokens: &Tokens, now: Moment) -> usize {
        std::iter::repeat_with(|| tokens.draw(now)).take_while(|drawn| *drawn).count()
    }

    #[test]
    fn ten_deposits_of_a_tenth_are_one_token() {
        let tokens = tokens(0, Duration::MAX);
        (0..9).for_each(|_| tokens.deposit());
        assert!(!tokens.draw(at(0)));
        tokens.deposit();
        assert_eq!(draws(&tokens, at(0)), 1);
    }

    #[test]
    fn a_balance_never_exceeds_its_cap() {
        let tokens = tokens(2, MINUTE);
        (0..1_000_000).for_each(|_| tokens.deposit());
        assert_eq!(tokens.balance(at(0)), 10 * UNIT);
        tokens.give_back();
        assert_eq!(draws(&tokens, at(1_000_000)), 10);
    }

    #[test]
    fn the_floor_gives_one_token_a_minute_whatever_happens_between() {
        let tokens = tokens(2, MINUTE);
        assert_eq!(draws(&tokens, at(0)), 2);
        for second in 1..60 {
            assert!(!tokens.draw(at(second)), "{second}");
        }
        assert_eq!(draws(&tokens, at(60)), 1);
        assert_eq!(draws(&tokens, at(60 + 330)), 5);
        assert_eq!(draws(&tokens, at(60 + 360)), 1);
    }

    #[test]
    fn a_clock_that_was_read_before_another_draw_gives_nothing_back() {
        let tokens = tokens(2, MINUTE);
        assert!(tokens.draw(at(100)));
        assert_eq!(draws(&tokens, at(90)), 2);
        assert_eq!(draws(&tokens, at(100)), 0);
    }

    #[test]
    fn a_year_without_a_draw_gives_no_more_than_was_due() {
        let tokens = tokens(0, MINUTE);
        assert_eq!(draws(&tokens, at(365 * 86_400)), 10);
        assert_eq!(draws(&tokens, at(365 * 86_400)), 0);
    }

    #[test]
    fn a_token_that_is_given_back_can_be_drawn_again() {
        let tokens = tokens(1, MINUTE);
        for _ in 0..3 {
            assert_eq!(draws(&tokens, at(0)), 1);
            tokens.give_back();
        }
        assert_eq!(tokens.balance(at(0)), UNIT);
    }
}

#[cfg(all(test, steadfast_loom))]
mod loom_models {
    use loom::sync::Arc;
    use loom::thread;

    use super::*;

    fn now() -> Moment {
        Moment::from_nanos(86_400_000_000_000)
    }

    fn tokens(initial: u32, cap: u32) -> Arc<Tokens> {
        Arc::new(Tokens::new(UNIT, cap * UNIT, initial * UNIT, Duration::MAX))
    }

    #[test]
    fn loom_one_token_is_drawn_once() {
        loom::model(|| {
            let tokens = tokens(1, 1);
            let other = thread::spawn({
                let tokens = Arc::clone(&tokens);
                move || tokens.draw(now())
            });
            let here = tokens.draw(now());
            let there = other.join().expect("a model thread does not panic");
            assert!(here ^ there);
            assert_eq!(tokens.balance(now()), 0);
        });
    }

    #[test]
    fn loom_deposits_and_draws_that_race_lose_nothing() {
        loom::model(|| {
            let tokens = tokens(1, 9);
            let other = thread::spawn({
                let tokens = Arc::clone(&tokens);
                move || {
                    let drawn = tokens.draw(now());
                    if drawn {
                        tokens.give_back();
                    }
                }
            });
            tokens.deposit();
            let drawn = tokens.draw(now());
            other.join().expect("a model thread does not panic");
            assert!(drawn, "two tokens for two draws");
            assert_eq!(tokens.balance(now()), UNIT);
        });
    }

    #[test]
    fn loom_a_full_balance_takes_no_more() {
        loom::model(|| {
            let tokens = tokens(1, 1);
            let other = thread::spawn({
                let tokens = Arc::clone(&tokens);
                move || tokens.deposit()
            });
            let drawn = tokens.draw(now());
            other.join().expect("a model thread does not panic");
            assert!(drawn);
            // The deposit came before the draw, and found the balance full, or after it.
            assert!([0, UNIT].contains(&tokens.balance(now())));
        });
    }
}
