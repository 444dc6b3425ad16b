//! Bucket changes: how long single calls take while the window of a closed breaker moves on.
//!
//! A mean over many calls hides what one of thousands costs, so here each call is timed by itself: back to back, as a busy
//! program makes them, and so far apart that each call meets a new bucket. Beside them are the same calls through a window that
//! does not move, and a reading of the timer with nothing between.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::harness::{Answers, Effort, Subject, Threads, Work};
use crate::peers::Can;
use crate::peers::steadfast::{self, Steadfast};
use crate::peers::steadfast_two_steps::{self as two_steps, TwoSteps};

/// What a filter on the command line is compared with.
pub const NAME: &str = "breaker-rollover";

/// How long the calls of one subject took.
pub struct Rolled {
    pub pace: &'static Pace,
    pub subject: &'static str,
    /// The width of a bucket of its window; the timer has none.
    pub bucket: Option<Duration>,
    pub threads: usize,
    pub times: Times,
}

/// How calls follow one another.
pub struct Pace {
    pub name: &'static str,
    apart: Duration,
    /// One after another without a pause for other subjects, in each round.
    calls: u64,
    /// Of the rounds of other cases.
    share: usize,
}

/// How often each time was measured, in ns.
#[derive(Default)]
pub struct Times(BTreeMap<u64, u64>);

/// Measures both paces. The subjects take turns as those of other cases do.
pub fn measure(threads: &Threads, effort: Effort) -> Can<Vec<Rolled>> {
    let mut all = Vec::new();
    for pace in &PACES {
        let mut rolled = subjects(pace)?;
        for round in 0..effort.rounds / pace.share {
            for turn in 0..rolled.len() {
                let i = (round + turn) % rolled.len();
                let (Rolled { times, .. }, subject) = &mut rolled[i];
                times.add(threads.each(subject, pace.calls, pace.apart));
            }
        }
        all.extend(rolled.into_iter().map(|(rolled, _)| rolled));
    }
    Ok(all)
}

fn subjects(pace: &'static Pace) -> Can<Vec<(Rolled, Subject)>> {
    let subject = |subject, bucket, work, threads| {
        let rolled = Rolled { pace, subject, bucket, threads, times: Times::default() };
        (rolled, Subject { name: format!("{NAME}: {subject}"), work, threads, answers: Answers::ALL })
    };
    let mut all = vec![subject("the timer alone", None, Work::new(|_, calls| calls), 1)];
    for bucket in [MOVES, STANDS] {
        for threads in [1, 2] {
            let executor = Steadfast::on_fast_clock().rolling(bucket)?;
            all.push(subject(steadfast::FAST_CLOCK, Some(bucket), executor, threads));
            let alone = TwoSteps::on_fast_clock().rolling(bucket)?;
            all.push(subject(two_steps::FAST_CLOCK, Some(bucket), alone, threads));
        }
    }
    Ok(all)
}

impl Times {
    fn add(&mut self, times: Vec<u64>) {
        for time in times {
            *self.0.entry(time).or_default() += 1;
        }
    }

    pub fn count(&self) -> u64 {
        self.0.values().sum()
    }

    pub fn mean(&self) -> f64 {
        let total: u64 = self.0.iter().map(|(time, count)| time * count).sum();
        total as f64 / self.count() as f64
    }

    /// The time within which such a part of the calls ended; the longest of all for 1.
    pub fn quantile(&self, part: f64) -> u64 {
        let mut missing = (part * self.count() as f64).ceil() as u64;
        for (time, count) in &self.0 {
            match missing.checked_sub(*count) {
                None | Some(0) => return *time,
                Some(left) => missing = left,
            }
        }
        0
    }
}

/// The shortest bucket that there is, and one that outlasts the run.
const MOVES: Duration = Duration::from_millis(1);
const STANDS: Duration = Duration::from_secs(3600);

static PACES: [Pace; 2] = [
    // Some thousands of calls meet the same bucket.
    Pace { name: "back to back", apart: Duration::ZERO, calls: 20_000, share: 1 },
    Pace { name: "one for each bucket", apart: MOVES, calls: 20, share: 2 },
];
