//! The decision of a rate limiter, without its clock, its callers and its queue: the generic cell rate algorithm.
//!
//! A bucket holds up to `burst` tokens and gains one each interval. Instead of its level it remembers one moment: when it will
//! be full. What is missing is the *debt*, the time from now until then; an admission moves the moment by what it costs, and is
//! possible if the debt does not become more than a whole bucket. Nothing has to be done as time goes by.

use std::time::Duration;

use crate::clock::Moment;

/// How fast a bucket fills and how much it holds, in eighths of a nanosecond.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rate {
    /// For one token.
    pub(super) interval: u64,
    /// For a whole bucket.
    pub(super) burst: u64,
}

impl Rate {
    /// A bucket that holds nothing.
    pub(super) const NOTHING: Rate = Rate { interval: 1, burst: 0 };

    /// `tokens` in each `period`, and as much as `burst` at once. Slower by less than an eighth of a nanosecond for each token
    /// where that does not divide. `None` if the bucket would take too long to fill.
    pub(super) fn new(tokens: u64, period: Duration, burst: u64) -> Option<Rate> {
        let units = period.as_nanos().checked_mul(u128::from(UNITS_PER_NANO))?;
        let interval = units.div_ceil(u128::from(tokens.max(1))).max(1);
        let burst = interval.checked_mul(u128::from(burst)).filter(|&burst| burst <= u128::from(MOST_UNITS))?;
        Some(Rate { interval: u64::try_from(interval).ok()?, burst: u64::try_from(burst).ok()? })
    }

    /// How many tokens a whole bucket is.
    pub(super) fn tokens(self) -> u64 {
        self.burst / self.interval
    }

    /// How many tokens come in each second.
    pub(super) fn per_second(self) -> f64 {
        (1_000_000_000 * UNITS_PER_NANO) as f64 / self.interval as f64
    }

    /// What `weight` tokens cost, if they can be had at once.
    #[inline(always)]
    fn cost(self, weight: u64) -> Option<u64> {
        weight.checked_mul(self.interval).filter(|&cost| cost <= self.burst)
    }
}

/// A moment as the balances of an era tell it, in the same units and place.
///
/// Each change of the rate begins an era, and so does a clock that has stepped back. What an era adds to its moments makes all of its
/// balances later than those before it, and within an era each admission makes the balance later; a bucket that was never used counts
/// its changes instead. So no balance ever comes again, and who has seen one knows the rate that it was counted at. (Until eras have added
/// up to 36 years, or a bucket that was never used was changed a million times, which no admission lasts for.)
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark(u64);

impl Mark {
    #[inline(always)]
    pub(super) fn new(now: Moment, era: u64) -> Mark {
        Mark(wrapped(now).wrapping_add(era))
    }
}

/// When a bucket will be full, and whether somebody waits for it: full at, in eighths of a nanosecond and modulo 2^63: 63 |
/// waiting: 1.
///
/// Only differences to the present matter, so the moment may wrap around: it is told apart within 18 years. A bucket that
/// nobody has asked for longer may look as if the clock had stepped back, and is then empty instead of full. The least moments,
/// 0.13 ms of the 36 years, are a bucket that was never used, and is full on any clock: they count the changes of its rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Balance(pub(super) u64);

impl Balance {
    pub(super) const UNUSED: Balance = Balance(0);
    pub(super) const WAITING: u64 = 1;

    /// That of a bucket which will be full in `debt` units.
    #[inline]
    pub(super) fn owing(now: Mark, debt: u64) -> Balance {
        let full_at = now.0.wrapping_add(debt << WAITING_BITS);
        // Not taken for a bucket that was never used.
        Balance(full_at.max(UNUSED_BALANCES << WAITING_BITS))
    }

    #[inline]
    pub(super) fn is_unused(self) -> bool {
        self.0 >> WAITING_BITS < UNUSED_BALANCES
    }

    #[inline]
    pub(super) fn is_waiting(self) -> bool {
        self.0 & Balance::WAITING != 0
    }

    #[inline]
    pub(super) fn with_waiting(self, waiting: bool) -> Balance {
        Balance(self.0 & !Balance::WAITING | if waiting { Balance::WAITING } else { 0 })
    }

    /// The units until the bucket is full.
    #[inline]
    pub(super) fn debt(self, now: Mark) -> u64 {
        if self.is_unused() {
            return 0;
        }
        let left = (self.0 & !Balance::WAITING).wrapping_sub(now.0).cast_signed() >> WAITING_BITS;
        left.max(0).cast_unsigned()
    }

    /// One that was never used, after another change.
    pub(super) fn next_unused(self) -> Balance {
        Balance((((self.0 >> WAITING_BITS) + 1) % UNUSED_BALANCES) << WAITING_BITS)
    }

    /// How much the era after this balance has to add to its moments, so that one which owes `debt` is later than this one.
    pub(super) fn next_era(self, now: Moment, era: u64, debt: u64) -> u64 {
        if self.is_unused() {
            return era;
        }
        let next = Balance::owing(Mark::new(now, era), debt);
        let late = (self.0 & !Balance::WAITING).wrapping_sub(next.0).cast_signed();
        if late < 0 { era } else { era.wrapping_add(late.cast_unsigned()).wrapping_add(1 << WAITING_BITS) }
    }

    /// What a bucket owes at another rate with the same number of tokens, or with as many as it then holds. One that was never
    /// used is full.
    pub(super) fn converted(self, from: Rate, to: Rate, now: Mark) -> u64 {
        if self.is_unused() {
            return 0;
        }
        let left = u128::from(from.burst.saturating_sub(self.debt(now)));
        let left = left * u128::from(to.interval) / u128::from(from.interval);
        let left = u64::try_from(left).unwrap_or(u64::MAX).min(to.burst);
        to.burst - left
    }
}

/// What a bucket says to a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// Admitted, and this is the new balance.
    Now(Balance),
    /// Not before this time has passed.
    After(Duration),
    /// The bucket never holds as much.
    Never,
    /// The clock has stepped back. Time begins anew, with an empty bucket.
    SteppedBack,
}

impl Answer {
    /// How long it takes until the tokens are there; `None` is for ever.
    pub(super) fn wait(self) -> Option<Duration> {
        match self {
            Answer::Now(_) => Some(Duration::ZERO),
            Answer::After(wait) => Some(wait),
            Answer::Never | Answer::SteppedBack => None,
        }
    }
}

/// The balance after `weight` tokens were taken at `now`, if they are there and nobody waits: what nearly every caller wants to
/// know. All others [`ask`].
#[inline(always)]
pub(super) fn take(balance: Balance, rate: Rate, now: Mark, weight: u64) -> Option<Balance> {
    // Every bucket holds one token, but the one that holds nothing, which refuses it below.
    let cost = if weight == 1 { rate.interval } else { rate.cost(weight)? };
    // Neither is more than a quarter of what 64 bits hold.
    let debt = balance.debt(now) + cost;
    (debt <= rate.burst).then(|| Balance::owing(now, debt))
}

/// Whether `weight` tokens can be had at `now`, after `ahead` others.
pub(super) fn ask(balance: Balance, rate: Rate, now: Mark, ahead: u64, weight: u64) -> Answer {
    let Some(cost) = rate.cost(weight) else { return Answer::Never };
    let debt = balance.debt(now);
    if debt > rate.burst.saturating_add(TOLERATED_STEP) {
        return Answer::SteppedBack;
    }
    // More than a whole bucket is owed only to a reading that is older than that of the last admission.
    let debt = debt.min(rate.burst);
    let needed = ahead.saturating_mul(rate.interval).saturating_add(cost).saturating_add(debt);
    match needed.checked_sub(rate.burst) {
        None | Some(0) => Answer::Now(Balance::owing(now, debt + cost).with_waiting(balance.is_waiting())),
        Some(short) => Answer::After(Duration::from_nanos(short.div_ceil(UNITS_PER_NANO))),
    }
}

#[inline]
fn wrapped(now: Moment) -> u64 {
    now.nanos() << (UNITS_PER_NANO.ilog2() + WAITING_BITS)
}

/// Fine enough to keep ten million tokens a second to within 0.13 %, coarse enough for a moment to wrap around only after 36
/// years.
const UNITS_PER_NANO: u64 = 8;

const WAITING_BITS: u32 = 1;

/// How many moments stand for a bucket that was never used.
const UNUSED_BALANCES: u64 = 1 << 20;

/// The longest time that a bucket may take to fill, in units: ten years, so that debts and the wrapping moment keep apart.
const MOST_UNITS: u64 = super::config::MAX_FILL_TIME.as_secs() * 1_000_000_000 * UNITS_PER_NANO;

/// How far a reading of the clock may lie behind those of other threads: 1 s. Up to that, time is taken to stand still. More is
/// a clock that has stepped back, or one reading that was far ahead; then the bucket begins anew, as an empty one, since to
/// wait until the clock has caught up might take years.
const TOLERATED_STEP: u64 = 1_000_000_000 * UNITS_PER_NANO;

#[cfg(all(test, not(steadfast_loom)))]
mod tests;
