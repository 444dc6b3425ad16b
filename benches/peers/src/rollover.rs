//! Bucket changes: how long single calls take while the window of a closed breaker moves on.
//!
//! A mean over many calls hides what one of thousands costs, so here each call is timed by itself: through a window that moves
//! on once a millisecond, and on a clock that is moved by hand, so that each call is the first of a bucket. Beside them are the
//! same calls through a window that stands, and a reading of the timer with nothing between.

use std::collections::BTreeMap;
use std::future::pending;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use steadfast::Clock;
use steadfast::clock::TimeSource;

use crate::harness::{Answers, Before, Effort, Subject, Threads, Work};
use crate::peers::steadfast::Steadfast;
use crate::peers::steadfast_two_steps::TwoSteps;
use crate::peers::{Can, Peer};

/// What a filter on the command line is compared with.
pub const NAME: &str = "breaker-rollover";

/// How long the calls of one subject took.
pub struct Rolled {
    pub clock: &'static str,
    pub calls: &'static str,
    pub form: &'static str,
    pub threads: usize,
    pub times: Times,
}

/// How often each time was measured, in ns.
#[derive(Default)]
pub struct Times(BTreeMap<u64, u64>);

/// Measures single calls. The subjects take turns as those of other cases do.
pub fn measure(threads: &Threads, effort: Effort) -> Can<Vec<Rolled>> {
    let mut subjects = subjects()?;
    for round in 0..effort.passes * effort.rounds {
        for turn in 0..subjects.len() {
            let i = (round + turn) % subjects.len();
            let Single { rolled, subject, before } = &mut subjects[i];
            rolled.times.add(threads.each(subject, CALLS, before));
        }
    }
    Ok(subjects.into_iter().map(|single| single.rolled).collect())
}

/// What is timed call by call.
struct Single {
    rolled: Rolled,
    subject: Subject,
    before: Before,
}

fn subjects() -> Can<Vec<Single>> {
    let mut all = vec![single("", "none: the timer alone", "", Work::new(|_, calls| calls), 1, idle())];
    for threads in [1, 2] {
        for (calls, bucket) in [("in buckets of 1 ms", BUCKET), ("in one bucket", LONG_BUCKET)] {
            for (form, work) in forms(&Clock::fast(), bucket)? {
                all.push(single("fast", calls, form, work, threads, idle()));
            }
        }
        for (calls, step) in [("each in a bucket of its own", BUCKET), ("in one bucket", Duration::ZERO)] {
            let hand = Hand::default();
            for (form, work) in forms(&Clock::custom(hand.clone()), BUCKET)? {
                let hand = hand.clone();
                all.push(single("by hand", calls, form, work, threads, Arc::new(move || hand.advance(step))));
            }
        }
    }
    Ok(all)
}

/// A breaker in an executor, and one alone.
fn forms(clock: &Clock, bucket: Duration) -> Can<[(&'static str, Work); 2]> {
    let executor = Steadfast::on(clock.clone(), "executor");
    let alone = TwoSteps::on(clock.clone(), "two steps");
    Ok([(executor.name(), executor.rolling(bucket)?), (alone.name(), alone.rolling(bucket)?)])
}

fn single(
    clock: &'static str,
    calls: &'static str,
    form: &'static str,
    work: Work,
    threads: usize,
    before: Before,
) -> Single {
    let rolled = Rolled { clock, calls, form, threads, times: Times::default() };
    let subject = Subject { name: format!("{NAME}: {form}"), works: vec![work; threads], answers: Answers::ALL };
    Single { rolled, subject, before }
}

fn idle() -> Before {
    Arc::new(|| {})
}

/// A clock that moves only when it is told to.
#[derive(Clone, Default)]
struct Hand(Arc<AtomicU64>);

impl Hand {
    /// By nothing, too: then two threads get in each other's way as they do when it moves.
    fn advance(&self, step: Duration) {
        self.0.fetch_add(step.as_nanos() as u64, Ordering::Relaxed);
    }
}

impl TimeSource for Hand {
    fn now(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::Relaxed))
    }

    fn sleep_until(&self, _: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(pending())
    }

    fn wall(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH
    }
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
        self.mean_within(1.0)
    }

    /// The mean of the quickest, such a part of all: without the calls in which the system did something else.
    pub fn mean_within(&self, part: f64) -> f64 {
        let longest = self.quantile(part);
        let within = || self.0.range(..=longest);
        let total: u64 = within().map(|(time, count)| time * count).sum();
        let count: u64 = within().map(|(_, count)| count).sum();
        total as f64 / count as f64
    }

    /// The time within which such a part of the calls ended; that of the longest for 1.
    pub fn quantile(&self, part: f64) -> u64 {
        let enough = part * self.count() as f64;
        let mut seen = 0;
        let reached = self.0.iter().find(|(_, count)| {
            seen += **count;
            seen as f64 >= enough
        });
        reached.map_or(0, |(time, _)| *time)
    }
}

/// The shortest that there is. Some thousands of calls fit in.
const BUCKET: Duration = Duration::from_millis(1);

/// It outlasts the run.
const LONG_BUCKET: Duration = Duration::from_secs(3600);

/// Of one subject before it is the turn of the next.
const CALLS: u64 = 10_000;
