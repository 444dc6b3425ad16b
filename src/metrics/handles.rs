//! The handles of one executor, each made once.

use std::sync::OnceLock;

use ::metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};

use super::names;

/// What an executor counts in.
pub(super) struct Handles {
    pub(super) executor: &'static str,
    pub(super) in_progress: Gauge,
    pub(super) run_attempts: Histogram,
    pub(super) attempt_duration: Histogram,
    pub(super) timeouts: Counter,
    pub(super) faults: Counter,
    runs: Cached<Counter, 1>,
    run_durations: Cached<Histogram, 1>,
    attempts: Cached<Counter, 1>,
    retries: Cached<Counter, 1>,
    hedges: Cached<Counter, 1>,
    fallbacks: Cached<Counter, 1>,
    reconfigurations: Cached<Counter, 1>,
    rejections: Cached<Counter, 3>,
    transitions: Cached<Counter, 3>,
    queue_waits: Cached<Histogram, 2>,
}

impl Handles {
    pub(super) fn new(executor: &'static str) -> Handles {
        names::describe();
        Handles {
            executor,
            in_progress: gauge!(names::RUNS_IN_PROGRESS, "executor" => executor),
            run_attempts: histogram!(names::RUN_ATTEMPTS, "executor" => executor),
            attempt_duration: histogram!(names::ATTEMPT_DURATION, "executor" => executor),
            timeouts: counter!(names::TIMEOUTS, "executor" => executor),
            faults: counter!(names::FAULTS, "executor" => executor),
            runs: Cached::default(),
            run_durations: Cached::default(),
            attempts: Cached::default(),
            retries: Cached::default(),
            hedges: Cached::default(),
            fallbacks: Cached::default(),
            reconfigurations: Cached::default(),
            rejections: Cached::default(),
            transitions: Cached::default(),
            queue_waits: Cached::default(),
        }
    }

    pub(super) fn run(&self, outcome: &'static str) {
        let make = || counter!(names::RUNS, "executor" => self.executor, "outcome" => outcome);
        self.runs.with([outcome], make, |runs| runs.increment(1));
    }

    pub(super) fn run_duration(&self, result: &'static str, seconds: f64) {
        let make = || histogram!(names::RUN_DURATION, "executor" => self.executor, "result" => result);
        self.run_durations.with([result], make, |durations| durations.record(seconds));
    }

    pub(super) fn attempt(&self, outcome: &'static str) {
        let make = || counter!(names::ATTEMPTS, "executor" => self.executor, "outcome" => outcome);
        self.attempts.with([outcome], make, |attempts| attempts.increment(1));
    }

    pub(super) fn retry(&self, verdict: &'static str) {
        let make = || counter!(names::RETRIES, "executor" => self.executor, "verdict" => verdict);
        self.retries.with([verdict], make, |retries| retries.increment(1));
    }

    pub(super) fn hedge(&self, event: &'static str) {
        let make = || counter!(names::HEDGES, "executor" => self.executor, "event" => event);
        self.hedges.with([event], make, |hedges| hedges.increment(1));
    }

    pub(super) fn fallback(&self, kind: &'static str) {
        let make = || counter!(names::FALLBACKS, "executor" => self.executor, "kind" => kind);
        self.fallbacks.with([kind], make, |fallbacks| fallbacks.increment(1));
    }

    pub(super) fn reconfiguration(&self, by: &'static str) {
        let make = || counter!(names::RECONFIGURATIONS, "executor" => self.executor, "by" => by);
        self.reconfigurations.with([by], make, |changes| changes.increment(1));
    }

    pub(super) fn rejection(&self, by: &'static str, policy: &'static str, kind: &'static str) {
        let executor = self.executor;
        let make =
            || counter!(names::REJECTIONS, "executor" => executor, "by" => by, "policy" => policy, "kind" => kind);
        self.rejections.with([by, policy, kind], make, |rejections| rejections.increment(1));
    }

    pub(super) fn transition(&self, policy: &'static str, from: &'static str, to: &'static str) {
        let executor = self.executor;
        let make =
            || counter!(names::TRANSITIONS, "executor" => executor, "policy" => policy, "from" => from, "to" => to);
        self.transitions.with([policy, from, to], make, |transitions| transitions.increment(1));
    }

    pub(super) fn queue_wait(&self, by: &'static str, policy: &'static str, seconds: f64) {
        let make = || histogram!(names::QUEUE_WAIT, "executor" => self.executor, "by" => by, "policy" => policy);
        self.queue_waits.with([by, policy], make, |waits| waits.record(seconds));
    }
}

/// Handles by the values of their labels. A label has few values, so they are found one after another, without a lock; those for
/// which there is no place left are made each time.
struct Cached<H, const LABELS: usize>([Labelled<H, LABELS>; PLACES]);

/// A place for a handle, and what it is labelled with.
type Labelled<H, const LABELS: usize> = OnceLock<([&'static str; LABELS], H)>;

impl<H, const LABELS: usize> Cached<H, LABELS> {
    fn with(&self, labels: [&'static str; LABELS], make: impl Fn() -> H, count: impl FnOnce(&H)) {
        for place in &self.0 {
            if place.get().is_none() {
                // Made before the place is taken: a recorder is foreign code. Of two threads one keeps its handle, and which
                // labels that has shows below.
                let _other_was_first = place.set((labels, make()));
            }
            match place.get() {
                Some((there, handle)) if *there == labels => return count(handle),
                _ => {}
            }
        }
        count(&make());
    }
}

impl<H, const LABELS: usize> Default for Cached<H, LABELS> {
    fn default() -> Self {
        Cached(std::array::from_fn(|_| OnceLock::new()))
    }
}

/// More than there are values of any label of this library.
const PLACES: usize = 32;
