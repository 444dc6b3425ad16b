//! The lanes of one try, polled in the task of the caller.

use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use pin_project::pin_project;

use super::Hedge;
use super::percentile::Percentile;
use crate::budget::Draw;
use crate::clock::Moment;
use crate::error::{Error, Kind};
use crate::event::What;
use crate::outcome::Mark;
use crate::policy::{Call, Next, Outcome, discard_now};
use crate::run::{Alarm, Reason};
use crate::verdict::Verdict;

/// Runs the first lane in place, and later ones in boxes, until one of them decides.
#[pin_project]
pub(super) struct Race<'a, 'run, T, E, N: Next<T, E>, F, S, L> {
    /// `None` once it has ended.
    #[pin]
    first: Option<F>,
    /// For the start of the next lane; `None` if none is to start by itself.
    #[pin]
    alarm: Option<Alarm<'run>>,
    hedge: &'a Hedge,
    /// Inside of the frame around all lanes.
    call: Call<'run, E>,
    next: N,
    /// Makes a later lane, whose type has no name.
    start: S,
    /// Made when the first lane has not decided at once: what a quick call needs is little, and is not moved about. If latencies are
    /// followed, made before the first poll, which may take long.
    lanes: Option<Lanes<'a, 'run, T, E, N, S, L>>,
}

/// Everything about the lanes that needs no pinning.
struct Lanes<'a, 'run, T, E, N: Next<T, E>, S, L> {
    hedge: &'a Hedge,
    call: Call<'run, E>,
    next: N,
    start: S,
    later: Vec<Lane<L>>,
    /// The outcome to end with if no lane decides, and its lane.
    held: Option<(u32, Outcome<T, E>)>,
    /// How many hedges may still be started.
    left: u32,
    /// How many lanes were started.
    started: u32,
    /// How many failures have asked for the next lane.
    due: u32,
    /// When the first lane began; `NEVER` if nobody follows latencies.
    begun: Moment,
    first_runs: bool,
    /// The first lane was pending after its first poll, or has failed in it.
    is_open: bool,
}

struct Lane<L> {
    number: u32,
    begun: Moment,
    future: Pin<Box<L>>,
}

impl<'a, 'run, T, E, N, F, S, L> Race<'a, 'run, T, E, N, F, S, L>
where
    T: Send,
    E: Send,
    N: Next<T, E>,
    S: Fn(Call<'run, E>, N, Option<Draw<'run>>) -> L + Copy,
    L: Future<Output = Outcome<T, E>>,
{
    #[inline(always)]
    pub(super) fn new(hedge: &'a Hedge, call: Call<'run, E>, next: N, first: F, start: S) -> Self {
        Race { first: Some(first), alarm: None, hedge, call, next, start, lanes: None }
    }
}

impl<'run, T, E, N, F, S, L> Future for Race<'_, 'run, T, E, N, F, S, L>
where
    T: Send,
    E: Send,
    N: Next<T, E>,
    F: Future<Output = Outcome<T, E>>,
    S: Fn(Call<'run, E>, N, Option<Draw<'run>>) -> L + Copy,
    L: Future<Output = Outcome<T, E>>,
{
    type Output = Outcome<T, E>;

    #[inline(always)]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Outcome<T, E>> {
        if self.lanes.is_none() && self.hedge.latencies().is_some() {
            self.as_mut().begin();
        }
        let mut this = self.as_mut().project();
        let core = this.call.scope().core;
        let beside = core.look_inside();
        let first = match this.first.as_mut().as_pin_mut() {
            Some(first) => first.poll(cx),
            None => Poll::Pending,
        };
        let polled = match first {
            Poll::Ready(outcome) if this.lanes.is_none() && decides(&outcome) => Poll::Ready(outcome),
            first => self.go_on(cx, first),
        };
        core.look_outside(beside);
        polled
    }
}

impl<'run, T, E, N, F, S, L> Race<'_, 'run, T, E, N, F, S, L>
where
    T: Send,
    E: Send,
    N: Next<T, E>,
    S: Fn(Call<'run, E>, N, Option<Draw<'run>>) -> L + Copy,
    L: Future<Output = Outcome<T, E>>,
{
    /// Takes the time at which the first lane begins, before its first poll takes any.
    #[cold]
    #[inline(never)]
    fn begin(self: Pin<&mut Self>) {
        let this = self.project();
        *this.lanes = Some(Lanes::new(this.hedge, *this.call, *this.next, *this.start, this.call.now()));
    }

    /// Everything but a first lane that decides alone. By value: a reference would keep the outcome of that in memory too.
    #[cold]
    #[inline(never)]
    fn go_on(self: Pin<&mut Self>, cx: &mut Context<'_>, first: Poll<Outcome<T, E>>) -> Poll<Outcome<T, E>> {
        let mut this = self.project();
        let (hedge, call, next, start) = (*this.hedge, *this.call, *this.next, *this.start);
        let lanes = this.lanes.get_or_insert_with(|| Lanes::new(hedge, call, next, start, Moment::NEVER));
        if let Poll::Ready(outcome) = first {
            this.first.set(None);
            lanes.first_runs = false;
            if let Some(decided) = lanes.ended(0, lanes.begun, outcome, cx) {
                return Poll::Ready(decided);
            }
        }
        if !lanes.is_open {
            let at = lanes.open();
            this.alarm.set(at);
        }
        let mut polled = 0;
        loop {
            if let Some(decided) = lanes.poll_later(cx, polled) {
                return Poll::Ready(decided);
            }
            polled = lanes.started;
            if !lanes.is_next_due(this.alarm.as_mut().as_pin_mut(), cx) || !lanes.start_next() {
                break;
            }
            let at = lanes.alarm();
            this.alarm.set(at);
        }
        if lanes.left == 0 {
            this.alarm.set(None);
        }
        match lanes.is_idle() {
            true => lanes.held.take().map_or(Poll::Pending, |(_, outcome)| Poll::Ready(outcome)),
            false => Poll::Pending,
        }
    }
}

impl<'a, 'run, T, E, N, S, L> Lanes<'a, 'run, T, E, N, S, L>
where
    T: Send,
    E: Send,
    N: Next<T, E>,
    S: Fn(Call<'run, E>, N, Option<Draw<'run>>) -> L + Copy,
    L: Future<Output = Outcome<T, E>>,
{
    fn new(hedge: &'a Hedge, call: Call<'run, E>, next: N, start: S, begun: Moment) -> Self {
        Lanes {
            hedge,
            call,
            next,
            start,
            later: Vec::new(),
            held: None,
            left: hedge.most(),
            started: 1,
            due: 0,
            begun,
            first_runs: true,
            is_open: false,
        }
    }

    /// The first lane is pending, or has failed: it may be hedged from now on.
    fn open(&mut self) -> Option<Alarm<'run>> {
        self.is_open = true;
        // A run that waits knows for how long, also if nothing more may start.
        let _first_look = self.call.now();
        if !self.may_start() {
            self.left = 0;
        }
        self.alarm()
    }

    /// The timer for the next lane, counted from now, if the time alone may start one.
    fn alarm(&mut self) -> Option<Alarm<'run>> {
        if self.left == 0 {
            return None;
        }
        let (call, now) = (self.call.in_lane(self.started - 1), self.call.now());
        let Some(delay) = self.hedge.delay_after(|| call.attempt(), now) else {
            self.left = 0;
            return None;
        };
        let scope = call.scope();
        Some(Alarm::new(scope, scope.alarm_at(now + delay)))
    }

    /// Polls the later lanes from number `from` on, until one decides.
    fn poll_later(&mut self, cx: &mut Context<'_>, from: u32) -> Option<Outcome<T, E>> {
        let mut index = self.later.partition_point(|lane| lane.number < from);
        while let Some(lane) = self.later.get_mut(index) {
            let Poll::Ready(outcome) = lane.future.as_mut().poll(cx) else {
                index += 1;
                continue;
            };
            let Lane { number, begun, .. } = self.later.remove(index);
            let decided = self.ended(number, begun, outcome, cx);
            if decided.is_some() {
                return decided;
            }
        }
        None
    }

    /// A lane has ended: gives its outcome back if that decides, and holds it otherwise.
    fn ended(
        &mut self,
        lane: u32,
        begun: Moment,
        outcome: Outcome<T, E>,
        cx: &mut Context<'_>,
    ) -> Option<Outcome<T, E>> {
        let verdict = outcome.verdict();
        if let Some(latencies) = self.hedge.latencies() {
            let kind = outcome.result.as_ref().err().map(Error::kind);
            self.learn(latencies, begun, verdict, kind);
        }
        if decides(&outcome) || outcome.is_stopped() {
            match self.call.ended() {
                // The run is being ended from outside: nobody has won.
                Some(cause) if outcome.mark() == Mark::Ended => self.call.scope().give_up(cause.into()),
                _ => self.won(lane, cx),
            }
            if !outcome.is_stopped() {
                // What a retry in another lane has given up for is not the reason why the run ends.
                self.call.frame().go_on();
            }
            return Some(outcome);
        }
        match verdict {
            Verdict::Throttled { .. } | Verdict::Rejected { .. } => self.left = 0,
            _ => self.due = self.due.saturating_add(1),
        }
        let rank = |lane, outcome: &Outcome<T, E>| (matches!(outcome.verdict(), Verdict::Rejected { .. }), lane);
        let given_up = match &self.held {
            Some((before, held)) if rank(*before, held) < rank(lane, &outcome) => Some(outcome),
            _ => self.held.replace((lane, outcome)).map(|(_, before)| before),
        };
        self.give_up(given_up, cx);
        None
    }

    /// What the end of a lane says of latencies. Its answer is one; if a limit inside has cut it off, it would have taken longer than
    /// that. A failure is neither: it has ended by itself, often more quickly than an answer, and no longer wait would have
    /// made it one. A refusal, and that of a limit that passes in a queue is one, was not sent. What is ended from outside of the lanes
    /// is dropped, and counted there.
    fn learn(&self, latencies: &Percentile, begun: Moment, verdict: Verdict, kind: Option<Kind>) {
        let sample = match (verdict, kind) {
            (Verdict::Rejected { .. }, _) => return,
            (_, Some(Kind::TimedOut { .. })) => Percentile::cut_off,
            (Verdict::Success | Verdict::Permanent, _) => Percentile::answered,
            _ => return,
        };
        // Not the time of this poll: an operation that does not wait takes all of its time within one.
        let now = self.call.scope().core.look();
        sample(latencies, now, now.since(begun));
    }

    /// Whether a lane is to be started now: one has failed, or the timer has fired.
    fn is_next_due(&mut self, alarm: Option<Pin<&mut Alarm<'run>>>, cx: &mut Context<'_>) -> bool {
        if self.left == 0 {
            return false;
        }
        if self.due > 0 {
            self.due -= 1;
            return true;
        }
        let inside = self.call.scope().core.armed();
        alarm.is_some_and(|alarm| alarm.poll(cx, inside).is_ready())
    }

    /// Starts the next lane, if that is allowed; if it is not, none will be.
    fn start_next(&mut self) -> bool {
        // A lane that was polled just now may have taken long: what starts late starts with the time that it is.
        self.call.scope().core.forget_now();
        let may_start = self.may_start();
        let budget = self.call.scope().core.budget().filter(|_| may_start);
        let draw = budget.and_then(|budget| budget.draw_at(|| self.call.now()));
        if !may_start || (budget.is_some() && draw.is_none()) {
            self.left = 0;
            return false;
        }
        let number = self.started;
        self.started += 1;
        self.left -= 1;
        let call = self.call.in_lane(number);
        call.emit(|| What::HedgeStarted);
        let future = Box::pin((self.start)(call, self.next, draw));
        self.later.push(Lane { number, begun: call.now(), future });
        true
    }

    /// The attempts of the run, those of lanes included that still wait for theirs.
    fn attempts(&self) -> u32 {
        let before = self.call.number().saturating_sub(1);
        self.call.scope().core.attempts().max(before.saturating_add(self.started))
    }

    fn may_start(&self) -> bool {
        let call = self.call;
        let scope = call.scope();
        !call.is_trial()
            && call.context().max_attempts().is_none_or(|most| self.attempts() < most)
            && self.next.repeat(None).is_ok()
            && call.ended().is_none()
            && (scope.deadline.is_never() || call.now() < scope.deadline)
    }

    /// A lane has decided: whatever still runs will be dropped in this poll, as soon as this race is.
    fn won(&mut self, lane: u32, cx: &mut Context<'_>) {
        if self.started > 1 {
            self.call.scope().give_up(Reason::LostRace);
            self.call.in_lane(lane).emit(|| What::HedgeWon);
            let first = self.first_runs.then_some(0);
            for loser in first.into_iter().chain(self.later.iter().map(|lane| lane.number)) {
                self.call.in_lane(loser).emit(|| What::HedgeLost);
            }
        }
        let held = self.held.take().map(|(_, outcome)| outcome);
        self.give_up(held, cx);
    }

    /// Gives up what a lane ended with. Nobody waits for that: what is not done in one poll is dropped.
    fn give_up(&self, outcome: Option<Outcome<T, E>>, cx: &mut Context<'_>) {
        if let Some(Ok(value)) = outcome.map(|outcome| outcome.result) {
            let _dropped = pin!(self.next.discard(value)).poll(cx);
        }
    }

    fn is_idle(&self) -> bool {
        !self.first_runs && self.later.is_empty()
    }
}

/// Whatever still runs was given up: by a lane that has decided, or from outside.
impl<T, E, N: Next<T, E>, S, L> Drop for Lanes<'_, '_, T, E, N, S, L> {
    #[inline]
    fn drop(&mut self) {
        if self.is_open {
            self.cut_off();
        }
    }
}

impl<T, E, N: Next<T, E>, S, L> Lanes<'_, '_, T, E, N, S, L> {
    #[cold]
    fn cut_off(&mut self) {
        if let Some(latencies) = self.hedge.latencies() {
            let now = self.call.now();
            let first = self.first_runs.then_some(self.begun);
            for begun in first.into_iter().chain(self.later.iter().map(|lane| lane.begun)) {
                latencies.cut_off(now, now.since(begun));
            }
        }
        match self.held.take().map(|(_, outcome)| outcome.result) {
            // Whoever ends the run says what the operation has said.
            Some(Err(error)) => self.call.keep_last(error, 0),
            Some(Ok(value)) => discard_now(self.next, value),
            None => {}
        }
    }
}

/// Whether a lane that ended with this ends the try.
#[inline]
fn decides<T, E>(outcome: &Outcome<T, E>) -> bool {
    outcome.ruling.is_final()
}
