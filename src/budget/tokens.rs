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
//! # Other numbers
//!
//! The ticks of the word are in the unit that `tick` says, so the two must change together. A change takes the ticks out of the
//! word, which then is one that has not begun, and draws from it as ever but refills nothing; stores the numbers; and puts ticks
//! of the new unit in. A draw loads the word before the unit. If it finds a word from before the change, its swap fails, since
//! the word is another one by then; if it finds one without ticks, it has no use for the unit; and if it finds new ticks, it has
//! acquired the new unit with them. (A thread that is held up over the whole change, and over others that bring the very same
//! word back, refills by the old unit, once and to the cap at most.) The cap and the deposit go by themselves: who
//! takes an old one is as good as one who came earlier.
//!
//! # Orderings
//!
//! The change of the numbers is told by a `Release` swap, to whoever loads the word `Acquire` for the ticks. All other accesses
//! are `Relaxed`. The word guards no other memory: who draws a token learns nothing from it but that there was
//! one. All changes are made by swaps of the whole word, which have one order whatever their ordering, so no token is drawn
//! twice and none is lost. A deposit that sees a full balance counts as having come before the draw that is under way.

use super::config::TokenSettings;
use super::{UNIT, in_units};
use crate::clock::Moment;
use crate::sync::AtomicU64;
use crate::sync::Ordering::{Acquire, Relaxed, Release};

/// Tokens for retries and hedges.
pub(super) struct Tokens {
    word: AtomicU64,
    deposit: AtomicU64,
    cap: AtomicU64,
    /// Nanoseconds; zero without a floor.
    tick: AtomicU64,
}

/// What a budget of tokens is held to, in ten-thousandths of a token.
#[derive(Clone, Copy)]
pub(super) struct Numbers {
    deposit: u32,
    cap: u32,
    /// In which one ten-thousandth comes back, in nanoseconds; zero for never.
    tick: u64,
}

impl Numbers {
    pub(super) fn of(ratio: f64, settings: &TokenSettings) -> Numbers {
        let every = u64::try_from(settings.floor.as_nanos()).ok();
        let tick = every.map_or(0, |every| (every / u64::from(UNIT)).max(1));
        Numbers { deposit: in_units(ratio), cap: settings.cap.saturating_mul(UNIT), tick }
    }
}

impl Tokens {
    /// With so many whole tokens to begin with.
    pub(super) fn new(numbers: Numbers, initial: u32) -> Tokens {
        let Numbers { deposit, cap, tick } = numbers;
        let word = Word { ticks: None, balance: initial.saturating_mul(UNIT) };
        let number = |number: u32| AtomicU64::new(u64::from(number));
        let (word, tick) = (AtomicU64::new(word.pack()), AtomicU64::new(tick));
        Tokens { word, deposit: number(deposit), cap: number(cap), tick }
    }

    /// Takes other numbers; what is there stays, as far as the new cap holds it. One at a time, and not beside
    /// [`begin`](Tokens::begin); `NEVER` if that has not been yet.
    pub(super) fn reconfigure(&self, next: Numbers, now: Moment) {
        let Numbers { deposit, cap, tick } = next;
        let stopped = |word| {
            let Word { balance, .. } = self.refilled(Word::unpack(word), now);
            Some(Word { ticks: None, balance }.pack())
        };
        // `stopped` is never `None`, so there is no error.
        let (Ok(before) | Err(before)) = self.word.fetch_update(Relaxed, Relaxed, stopped);
        self.deposit.store(u64::from(deposit), Relaxed);
        self.cap.store(u64::from(cap), Relaxed);
        self.tick.store(tick, Relaxed);
        let ticks = if now.is_never() { None } else { self.ticks(now) };
        let begun = |word| {
            let balance = Word::unpack(word).balance.min(cap);
            let begun = Word { ticks, balance }.pack();
            // Another word than before, for the sake of a draw that was held up.
            let begun = if begun == before { Word { ticks: ticks.map(after), balance }.pack() } else { begun };
            Some(begun)
        };
        let _begun = self.word.fetch_update(Release, Relaxed, begun);
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
        if Word::unpack(self.word.load(Relaxed)).balance < self.cap() {
            self.add(self.deposit.load(Relaxed) as u32);
        }
    }

    /// Draws one token, if there is one. A refusal writes nothing.
    #[must_use]
    pub(super) fn draw(&self, now: Moment) -> bool {
        self.word.fetch_update(Relaxed, Acquire, |word| self.drawn(Word::unpack(word), now).map(Word::pack)).is_ok()
    }

    /// Gives back a token that was not used.
    pub(super) fn give_back(&self) {
        self.add(UNIT);
    }

    /// What is there at `now`, in ten-thousandths of a token.
    pub(super) fn balance(&self, now: Moment) -> u32 {
        self.refilled(Word::unpack(self.word.load(Acquire)), now).balance
    }

    /// The most that is kept, in ten-thousandths of a token.
    #[inline]
    pub(super) fn cap(&self) -> u32 {
        self.cap.load(Relaxed) as u32
    }

    #[cold]
    fn add(&self, amount: u32) {
        let added = |word| {
            let Word { ticks, balance } = Word::unpack(word);
            let more = balance.saturating_add(amount).min(self.cap());
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
        Word { ticks: Some(ticks), balance: word.balance.saturating_add(due).min(self.cap()) }
    }

    /// `None` without a floor. Zero stands for "not begun", so that tick is counted as the one after it.
    fn ticks(&self, now: Moment) -> Option<u32> {
        let tick = self.tick.load(Relaxed);
        (tick > 0).then(|| ((now.nanos() / tick) as u32).max(1))
    }
}

/// The next tick that is one.
fn after(ticks: u32) -> u32 {
    ticks.wrapping_add(1).max(1)
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
    use std::time::Duration;

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn at(secs: u64) -> Moment {
        Moment::from_nanos(86_400_000_000_000) + Duration::from_secs(secs)
    }

    fn numbers(ratio: f64, cap: u32, floor: Duration) -> Numbers {
        Numbers::of(ratio, &TokenSettings { cap, initial: 0, floor })
    }

    /// As [`Budget::ratio`](crate::budget::Budget::ratio) by default, bound at the start.
    fn tokens(initial: u32, every: Duration) -> Tokens {
        let tokens = Tokens::new(numbers(0.1, 10, every), initial);
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
    fn other_numbers_leave_the_balance_as_far_as_it_fits() {
        let tokens = tokens(2, MINUTE);
        (0..60).for_each(|_| tokens.deposit());
        tokens.reconfigure(numbers(0.5, 4, Duration::from_secs(10)), at(30));
        // Two to begin with, sixty tenths and half a minute's half: more than four.
        assert_eq!(tokens.balance(at(30)), 4 * UNIT);
        assert_eq!(draws(&tokens, at(30)), 4);
        tokens.deposit();
        assert_eq!(tokens.balance(at(30)), UNIT / 2);
        assert_eq!(draws(&tokens, at(40)), 1, "one comes back in ten seconds now");
        tokens.reconfigure(numbers(0.5, 4, Duration::MAX), at(40));
        assert_eq!(tokens.balance(at(4_000)), UNIT / 2);
        tokens.reconfigure(numbers(0.5, 4, MINUTE), at(4_000));
        assert_eq!(tokens.balance(at(4_060)), UNIT + UNIT / 2);
    }

    #[test]
    fn what_has_not_begun_does_not_begin_by_other_numbers() {
        let tokens = Tokens::new(numbers(0.1, 10, MINUTE), 2);
        tokens.reconfigure(numbers(0.1, 10, Duration::from_secs(1)), Moment::NEVER);
        assert_eq!(tokens.balance(Moment::NEVER), 2 * UNIT);
        tokens.begin(at(0));
        assert_eq!(tokens.balance(at(3)), 5 * UNIT);
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
    use std::time::Duration;

    use loom::sync::Arc;
    use loom::thread;

    use super::*;

    fn now() -> Moment {
        Moment::from_nanos(86_400_000_000_000)
    }

    fn tokens(initial: u32, cap: u32) -> Arc<Tokens> {
        Arc::new(Tokens::new(numbers(cap, Duration::MAX), initial))
    }

    fn numbers(cap: u32, floor: Duration) -> Numbers {
        Numbers::of(1.0, &TokenSettings { cap, initial: 0, floor })
    }

    #[test]
    fn loom_a_draw_beside_a_change_refills_by_the_old_time_or_by_the_new_one() {
        loom::model(|| {
            let second = Duration::from_secs(1);
            let tokens = Arc::new(Tokens::new(numbers(9, second), 1));
            tokens.begin(now());
            let other = thread::spawn({
                let tokens = Arc::clone(&tokens);
                // A token has come in by the old time, and none by the new one.
                move || tokens.draw(now() + second)
            });
            tokens.reconfigure(numbers(9, 1_000 * second), now() + second);
            let drawn = other.join().expect("a model thread does not panic");
            assert!(drawn);
            assert_eq!(tokens.balance(now() + second), UNIT);
        });
    }

    #[test]
    fn loom_deposits_and_draws_beside_a_change_lose_nothing() {
        loom::model(|| {
            let tokens = tokens(1, 9);
            let other = thread::spawn({
                let tokens = Arc::clone(&tokens);
                move || {
                    tokens.deposit();
                    tokens.draw(now())
                }
            });
            tokens.reconfigure(numbers(5, Duration::MAX), now());
            assert!(other.join().expect("a model thread does not panic"));
            assert_eq!((tokens.balance(now()), tokens.cap()), (UNIT, 5 * UNIT));
        });
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
