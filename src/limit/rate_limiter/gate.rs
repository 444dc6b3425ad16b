//! The bucket of a rate limiter and those who wait for it.
//!
//! # Protocol
//! `balance` is the bucket, one word: when it will be full, and a bit that says whether anybody waits ([`Balance`]). Nobody
//! waits as a rule, and then a caller is admitted by one compare-and-swap of that word; a refusal changes nothing. While the bit
//! is set only the holder of the lock of `queue` changes the word: who finds the bit set goes to the lock, and a
//! compare-and-swap expects it clear. So whoever came first is admitted first, and under the lock the word can simply be
//! stored. The bit is set and cleared under the lock only, and is clear whenever the queue is empty and the lock is free.
//!
//! Those who wait are admitted by their own polls: the first of them finds its tokens, takes them, leaves the queue and wakes the
//! next one. Nothing is ever reserved, so who leaves early has nothing to give back.
//!
//! # Orderings
//! * An admission publishes nothing but the new balance, and the order of changes to one word is all that it needs. It could be
//!   `Relaxed` throughout if the rate never changed.
//! * A change of the rate sets the bit, fences with `Release`, stores the rate, and stores a balance that never was there before
//!   ([`Mark`]), with `Release`. An admission loads the balance with `Acquire`, loads the rate, fences with `Acquire`, and swaps
//!   the balance. If it has read anything of the new rate, the two fences make the set bit visible to the swap, which fails,
//!   unless the new balance is what was loaded; and then the load has acquired the whole of the new rate. If it has read
//!   anything of the old rate, the balance that it has loaded is of before the change, so the swap fails if the change is done,
//!   however many more follow: that balance does not come again.
//! * A refusal swaps nothing, and loads the balance once more where an admission swaps it: after the fence. What makes the swap
//!   fail makes this load see another balance, by the same argument, since it follows a load of the same word. It may miss a
//!   change that is done while it runs, but then it has read nothing of it, and refuses by the rate from before.
//! * All other stores of the word under the lock are `Release` too, so that one of them, which ends the release sequence of the
//!   change, hands the new rate on: its holder has the rate from the lock.
//! * Wakers are foreign code: they are called and dropped when the lock is free and everything is as it should be, and a panic in
//!   one goes no further. They are handed over by the lock. A caller joins the queue and looks at the balance in one critical
//!   section, and whoever makes him the first does so in another: either the first has found that he is the first, or his waker is
//!   found.

mod queue;
mod readings;

use std::task::Waker;
use std::time::Duration;

use self::queue::{Queue, Waiting};
use super::super::line::{Ticket, Waiter};
use super::gcra::{Answer, Balance, Mark, Rate, ask, take};
use crate::clock::Moment;
use crate::shield::{discard, wake_all};
use crate::sync::{AtomicU64, Mutex, MutexGuard, Ordering, fence, lock};

/// What an admission needs comes first, for as few lines of memory as there can be.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Gate {
    balance: AtomicU64,
    interval: AtomicU64,
    burst: AtomicU64,
    /// What the present era adds to its moments; part of the rate as far as the protocol goes.
    era: AtomicU64,
    queue: Mutex<Queue>,
}

/// What somebody waits for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub(super) weight: u64,
    /// The last moment at which it is of use.
    pub(super) until: Moment,
}

/// A balance, and the rate and the present that were read after it, before a fence.
#[derive(Clone, Copy, Debug)]
struct Seen {
    balance: Balance,
    rate: Rate,
    at: Mark,
}

/// Why a caller was not admitted at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Held {
    /// The tokens come in after this time.
    Short(Duration),
    /// Others wait, or the clock has stepped back: the queue knows more.
    AskQueue,
    /// There are never as many tokens.
    Never,
}

/// What the queue says to a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Admitted,
    /// To be told how long it would have to wait; `None` is for ever.
    Refused(Option<Duration>),
    /// It is the first, and its tokens are there at this moment.
    FirstUntil(Moment),
    /// Others are before it.
    Behind,
}

impl Gate {
    /// A full bucket.
    pub(super) fn new(rate: Rate) -> Gate {
        Gate {
            balance: AtomicU64::new(Balance::UNUSED.0),
            interval: AtomicU64::new(rate.interval),
            burst: AtomicU64::new(rate.burst),
            era: AtomicU64::new(0),
            queue: Mutex::new(Queue::new()),
        }
    }

    /// Admits a caller whose tokens are there, if nobody waits.
    #[inline]
    pub(super) fn pass(&self, weight: u64, now: Moment) -> Result<(), Held> {
        loop {
            let held = match self.try_admit(weight, now) {
                Ok(true) => return Ok(()),
                Ok(false) => None,
                Err(seen) => self.held(seen, weight),
            };
            if let Some(held) = held {
                return Err(held);
            }
        }
    }

    /// [`pass`](Gate::pass) without a word on why not: so much is made part of the caller.
    #[inline(always)]
    pub(super) fn admit(&self, weight: u64, now: Moment) -> bool {
        match self.try_admit(weight, now) {
            Ok(swapped) => swapped || self.insist(weight, now),
            Err(_) => false,
        }
    }

    /// Admits a caller from whom others have taken the balance.
    // A loop of its own, so that its caller needs none of what it keeps.
    #[cold]
    #[inline(never)]
    fn insist(&self, weight: u64, now: Moment) -> bool {
        loop {
            match self.try_admit(weight, now) {
                Ok(true) => return true,
                Ok(false) => {}
                Err(_) => return false,
            }
        }
    }

    /// Takes the tokens if they are there and nobody waits, unless somebody changes the balance meanwhile: then `false`.
    #[inline(always)]
    fn try_admit(&self, weight: u64, now: Moment) -> Result<bool, Seen> {
        let balance = Balance(self.balance.load(Ordering::Acquire));
        let (rate, at) = (self.rate(), self.mark(now));
        fence(Ordering::Acquire);
        let next = if balance.is_waiting() { None } else { take(balance, rate, at, weight) };
        let next = next.ok_or(Seen { balance, rate, at })?;
        let swap = self.balance.compare_exchange_weak(balance.0, next.0, Ordering::Relaxed, Ordering::Relaxed);
        Ok(swap.is_ok())
    }

    /// Why a caller is held up that was not admitted; `None` if the balance is not that any more which was seen, since the rate need
    /// not be that of the balance then.
    #[cold]
    #[inline(never)]
    fn held(&self, Seen { balance, rate, at }: Seen, weight: u64) -> Option<Held> {
        if balance.is_waiting() {
            return Some(Held::AskQueue);
        }
        if self.balance.load(Ordering::Relaxed) != balance.0 {
            return None;
        }
        Some(match ask(balance, rate, at, 0, weight) {
            Answer::After(wait) => Held::Short(wait),
            Answer::Never => Held::Never,
            Answer::SteppedBack | Answer::Now(_) => Held::AskQueue,
        })
    }

    /// Admits a caller, refuses it, or puts it into `place`, if there are fewer than `most` others.
    pub(super) fn join(
        &self,
        place: &mut Option<Ticket>,
        asked: Asked,
        most: usize,
        now: Moment,
        waker: Waker,
    ) -> Step {
        let mut waker = Some(waker);
        let step = self.join_locked(place, asked, most, now, &mut waker);
        discard(waker);
        step
    }

    /// Takes the waker if it is needed.
    fn join_locked(
        &self,
        place: &mut Option<Ticket>,
        asked: Asked,
        most: usize,
        now: Moment,
        waker: &mut Option<Waker>,
    ) -> Step {
        let mut queue = lock(&self.queue);
        let (balance, answer) = self.ask_alone(now, queue.weight(), asked.weight);
        let wait = match answer {
            Answer::Now(next) if queue.is_empty() => {
                self.open(&queue, next);
                return Step::Admitted;
            }
            Answer::Now(_) => Some(Duration::ZERO),
            Answer::After(wait) => Some(wait),
            Answer::Never | Answer::SteppedBack => None,
        };
        let in_time = wait.is_some_and(|wait| now + wait <= asked.until);
        let step = if in_time && queue.len() < most {
            let Waiting { line, weight } = queue.waiting();
            *place = waker.take().map(|waker| line.join(asked, waker));
            *weight = weight.saturating_add(asked.weight);
            if line.len() == 1 { Step::FirstUntil(now + wait.unwrap_or_default()) } else { Step::Behind }
        } else {
            Step::Refused(wait)
        };
        self.open(&queue, balance);
        step
    }

    /// Admits a caller that does not wait, or says how long it would have to; `None` is for ever.
    #[cold]
    pub(super) fn try_join(&self, weight: u64, now: Moment) -> Result<(), Option<Duration>> {
        let asked = Asked { weight, until: now };
        match self.join(&mut None, asked, 0, now, Waker::noop().clone()) {
            Step::Refused(wait) => Err(wait),
            Step::Admitted | Step::FirstUntil(_) | Step::Behind => Ok(()),
        }
    }

    /// Looks whether a caller that waits in `place` may go, and takes it out of there unless it waits on.
    pub(super) fn poll(&self, place: &mut Option<Ticket>, asked: Asked, now: Moment, waker: Waker) -> Step {
        let Some(ticket) = *place else { return Step::Refused(None) };
        let mut waker = Some(waker);
        let mut queue = lock(&self.queue);
        if queue.waiting().line.get(ticket).is_none() {
            // The rate has changed and does not let it in in time.
            *place = None;
            return Step::Refused(self.wait_behind(&queue, now, asked.weight));
        }
        if !queue.waiting().line.is_first(ticket) {
            waker = waker.and_then(|waker| queue.waiting().line.register(ticket, waker));
            drop(queue);
            discard(waker);
            return Step::Behind;
        }
        let (balance, answer) = self.ask_alone(now, 0, asked.weight);
        let (step, balance) = match answer {
            Answer::Now(next) => (Step::Admitted, next),
            Answer::After(wait) if now + wait <= asked.until => {
                waker = waker.and_then(|waker| queue.waiting().line.register(ticket, waker));
                self.open(&queue, balance);
                drop(queue);
                discard(waker);
                return Step::FirstUntil(now + wait);
            }
            refused => (Step::Refused(refused.wait()), balance),
        };
        *place = None;
        self.leave_locked(queue, ticket, balance);
        discard(waker);
        step
    }

    /// Takes a caller out that gives up.
    #[cold]
    pub(super) fn leave(&self, ticket: Ticket) {
        let queue = lock(&self.queue);
        let balance = Balance(self.balance.load(Ordering::Relaxed));
        self.leave_locked(queue, ticket, balance);
    }

    /// Takes a caller out, and wakes who is the first after it. It leaves the lock.
    fn leave_locked(&self, mut queue: MutexGuard<'_, Queue>, ticket: Ticket, balance: Balance) {
        let Waiting { line, weight } = queue.waiting();
        let was_first = line.is_first(ticket);
        let left = line.leave(ticket);
        let next = if was_first { line.take_first_waker() } else { None };
        if let Some(left) = &left {
            *weight = weight.saturating_sub(left.what.weight);
            self.open(&queue, balance);
        }
        drop(queue);
        wake_all(next);
        discard(left);
    }

    /// Fills the bucket at another rate from now on; at the same one, nothing changes. The tokens in it stay, as far as it then
    /// holds them. Whoever would now have to wait for longer than it may is woken to be refused.
    ///
    /// Nobody has asked a bucket whose clock is not bound. `now` is none then, and `is_unbound` still has to say so under the
    /// lock: `false`, with nothing changed, if it does not.
    pub(super) fn reconfigure(&self, rate: Rate, now: Option<Moment>, is_unbound: impl Fn() -> bool) -> bool {
        let mut queue = lock(&self.queue);
        let old = self.rate();
        if rate == old {
            return true;
        }
        let Some(now) = now else {
            return is_unbound() && self.reconfigure_unused(&queue, rate);
        };
        let seen = self.close();
        let debt = seen.converted(old, rate, self.mark(now));
        let next = self.begin_era(rate, seen, now, debt);
        let hopeless = queue.retain(|asked, ahead| {
            let wait = ask(next, rate, self.mark(now), ahead, asked.weight).wait();
            wait.is_some_and(|wait| now + wait <= asked.until)
        });
        let first = queue.take_first_waker();
        self.open(&queue, next);
        drop(queue);
        wake_all(first.into_iter().chain(hopeless.into_iter().filter_map(Waiter::into_waker)));
        true
    }

    /// A bucket that was never used is full at any time and rate. A caller may come just now, and then this one is not.
    fn reconfigure_unused(&self, queue: &Queue, rate: Rate) -> bool {
        let seen = self.close();
        let is_unused = seen.is_unused();
        if is_unused {
            fence(Ordering::Release);
            self.interval.store(rate.interval, Ordering::Relaxed);
            self.burst.store(rate.burst, Ordering::Relaxed);
        }
        self.open(queue, if is_unused { seen.next_unused() } else { seen });
        is_unused
    }

    /// Counts at `rate` from now on, with a balance that never was there: that of a bucket which owes `debt`. The gate is closed.
    fn begin_era(&self, rate: Rate, seen: Balance, now: Moment, debt: u64) -> Balance {
        let era = seen.next_era(now, self.era.load(Ordering::Relaxed), debt);
        fence(Ordering::Release);
        self.interval.store(rate.interval, Ordering::Relaxed);
        self.burst.store(rate.burst, Ordering::Relaxed);
        self.era.store(era, Ordering::Relaxed);
        Balance::owing(Mark::new(now, era), debt).with_waiting(seen.is_waiting())
    }

    #[inline]
    fn rate(&self) -> Rate {
        Rate { interval: self.interval.load(Ordering::Relaxed), burst: self.burst.load(Ordering::Relaxed) }
    }

    /// The present, as the balances of this era tell it.
    #[inline]
    fn mark(&self, now: Moment) -> Mark {
        Mark::new(now, self.era.load(Ordering::Relaxed))
    }

    /// Keeps all out who do not hold the lock, which the caller does, and gives the balance.
    fn close(&self) -> Balance {
        Balance(self.balance.fetch_or(Balance::WAITING, Ordering::Relaxed))
    }

    /// The new balance; lets others in again if nobody waits.
    fn open(&self, queue: &Queue, balance: Balance) {
        let balance = balance.with_waiting(!queue.is_empty());
        self.balance.store(balance.0, Ordering::Release);
    }

    /// Closes the gate and asks; the caller holds the lock, and opens the gate with the balance or the one of the answer. If the
    /// clock has stepped back, time begins anew with another balance.
    fn ask_alone(&self, now: Moment, ahead: u64, weight: u64) -> (Balance, Answer) {
        let (seen, rate) = (self.close(), self.rate());
        match ask(seen, rate, self.mark(now), ahead, weight) {
            Answer::SteppedBack => {
                let anew = self.begin_era(rate, seen, now, rate.burst);
                (anew, ask(anew, rate, self.mark(now), ahead, weight))
            }
            answer => (seen, answer),
        }
    }

    /// How long a caller would have to wait behind all others; `None` is for ever. It changes nothing, so the gate may be open.
    fn wait_behind(&self, queue: &Queue, now: Moment, weight: u64) -> Option<Duration> {
        let (rate, at) = (self.rate(), self.mark(now));
        let seen = Balance(self.balance.load(Ordering::Relaxed));
        match ask(seen, rate, at, queue.weight(), weight) {
            // Who asks alone would make it this one.
            Answer::SteppedBack => ask(Balance::owing(at, rate.burst), rate, at, queue.weight(), weight).wait(),
            answer => answer.wait(),
        }
    }
}

#[cfg(all(test, steadfast_loom))]
mod loom_models;

#[cfg(all(test, not(steadfast_loom)))]
mod tests;
