//! What has happened, for a page that was not open then: an observer that counts, and a sample of the counts every so often.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Serialize;
use steadfast::Verdict;
use steadfast::error::{Kind, Limit};
use steadfast::event::{Event, RunEnd, Stopped, What};
use steadfast::snapshot::{ExecutorSnapshot, PolicySnapshot};

/// It takes what it is told by the runs, each in its own task, and gives it to whoever shows it.
#[derive(Default)]
pub(crate) struct History(Mutex<State>);

#[derive(Default)]
struct State {
    /// Since the last sample.
    recent: Tally,
    took: Vec<Duration>,
    totals: Tally,
    /// When the last sample ended: a busy machine makes some of them longer.
    sampled: Duration,
    samples: VecDeque<Sample>,
    log: VecDeque<Entry>,
    /// What was told since the last sample: only the sampler knows what time it is in the script.
    told: Vec<Told>,
    phase: &'static str,
}

/// How many calls there were and what became of them.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Tally {
    pub(crate) calls: u32,
    /// Answered by the dependency.
    pub(crate) fresh: u32,
    /// Answered by the fallback.
    pub(crate) old: u32,
    /// How often the dependency was asked.
    pub(crate) attempts: u32,
}

/// Some tenths of a second.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Sample {
    /// When it ended, in seconds of the script.
    at: f64,
    phase: &'static str,
    state: &'static str,
    calls_per_second: f64,
    attempts_per_second: f64,
    /// Of the calls that ended, the share that got a price from the dependency; none without calls.
    fresh: Option<f64>,
    /// The share that got any price.
    answered: Option<f64>,
    median_ms: Option<f64>,
    /// Of some ten calls; a percentile of so few would be the same.
    slowest_ms: Option<f64>,
    budget: f64,
}

/// A line of the page's log.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Entry {
    at: f64,
    kind: &'static str,
    text: String,
    /// How often it has happened since the last change of anything.
    count: u32,
}

struct Told {
    kind: &'static str,
    text: String,
}

/// A copy of what is there.
pub(crate) struct Seen {
    pub(crate) totals: Tally,
    pub(crate) samples: Vec<Sample>,
    pub(crate) log: Vec<Entry>,
}

impl History {
    /// Counts. A run waits for its observers, so the text of a line is made for what is seldom only.
    pub(crate) fn on_event(&self, event: &Event) {
        let mut state = self.state();
        match &event.what {
            What::AttemptStarted => state.recent.attempts += 1,
            What::RunFinished { end, stopped, elapsed, .. } => {
                state.recent.calls += 1;
                state.recent.fresh += u32::from(*end == RunEnd::Value(Verdict::Success));
                state.recent.old += u32::from(*end == RunEnd::Value(Verdict::Ignored));
                state.took.push(*elapsed);
                if let Some(text) = failure(*end, *stopped) {
                    state.told.push(Told { kind: "failure", text });
                }
            }
            What::Rejected { by, kind } => {
                state.told.push(Told { kind: "refusal", text: format!("{by} refuses: {}", words(kind.as_str())) });
            }
            What::Transition(change) => {
                let text = format!("{} → {}, {}", change.from, change.to, words(change.cause.as_str()));
                state.told.push(Told { kind: "transition", text });
            }
            _ => {}
        }
    }

    /// Ends a sample, so long after the script began.
    pub(crate) fn sample(&self, playing: Duration, phase: &'static str, now: &ExecutorSnapshot) {
        let mut state = self.state();
        let at = (playing.as_secs_f64() * 10.0).round() / 10.0;
        if state.phase != phase {
            state.phase = phase;
            state.write(at, Told { kind: "phase", text: format!("the dependency is {phase}") });
        }
        for told in std::mem::take(&mut state.told) {
            state.write(at, told);
        }
        let tally = std::mem::take(&mut state.recent);
        let mut took = std::mem::take(&mut state.took);
        took.sort_unstable();
        state.totals.add(tally);
        let lasted = playing.saturating_sub(std::mem::replace(&mut state.sampled, playing));
        let sample = Sample::of(at, phase, (tally, lasted), &took, now);
        state.samples.push_back(sample);
        while state.samples.front().is_some_and(|first| first.at < at - SECONDS) {
            state.samples.pop_front();
        }
    }

    pub(crate) fn seen(&self) -> Seen {
        let state = self.state();
        let (samples, log) = (state.samples.iter().cloned().collect(), state.log.iter().cloned().collect());
        Seen { totals: state.totals, samples, log }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Writes a line, or counts it if it is there already since the last change: hundreds of refusals are one line.
    fn write(&mut self, at: f64, told: Told) {
        let since = self.log.iter().rposition(|entry| matches!(entry.kind, "phase" | "transition")).unwrap_or(0);
        match self.log.iter_mut().skip(since).find(|entry| entry.text == told.text) {
            Some(entry) => entry.count += 1,
            None => self.log.push_back(Entry { at, kind: told.kind, text: told.text, count: 1 }),
        }
        if self.log.len() > LINES {
            self.log.pop_front();
        }
    }
}

impl Tally {
    fn add(&mut self, more: Tally) {
        self.calls += more.calls;
        self.fresh += more.fresh;
        self.old += more.old;
        self.attempts += more.attempts;
    }
}

impl Sample {
    fn of(
        at: f64,
        phase: &'static str,
        (tally, lasted): (Tally, Duration),
        took: &[Duration],
        now: &ExecutorSnapshot,
    ) -> Sample {
        let per_second = |n: u32| f64::from(n) / lasted.as_secs_f64();
        let share = |n: u32| (tally.calls > 0).then(|| f64::from(n) / f64::from(tally.calls));
        Sample {
            at,
            phase,
            state: breaker_state(now),
            calls_per_second: per_second(tally.calls),
            attempts_per_second: per_second(tally.attempts),
            fresh: share(tally.fresh),
            answered: share(tally.fresh + tally.old),
            median_ms: millis(took.get(took.len() / 2)),
            slowest_ms: millis(took.last()),
            budget: now.budget.as_ref().map_or(0.0, |budget| budget.available),
        }
    }
}

/// What the breaker of the chain says.
pub(crate) fn breaker_state(executor: &ExecutorSnapshot) -> &'static str {
    let breaker = |policy: &PolicySnapshot| match policy {
        PolicySnapshot::Breaker(breaker) => Some(breaker.state.as_str()),
        _ => None,
    };
    executor.policies.iter().find_map(breaker).unwrap_or("none")
}

fn failure(end: RunEnd, stopped: Option<Stopped>) -> Option<String> {
    match (end, stopped) {
        (RunEnd::Error(Kind::Exhausted { .. }), Some(Stopped::Limit(Limit::Budget))) => {
            Some("a call failed: no budget for a retry".to_owned())
        }
        (RunEnd::Error(kind), _) => Some(format!("a call failed: {}", words(kind.as_str()))),
        _ => None,
    }
}

fn words(name: &str) -> String {
    name.replace('_', " ")
}

/// To a tenth.
fn millis(time: Option<&Duration>) -> Option<f64> {
    time.map(|time| (time.as_secs_f64() * 10_000.0).round() / 10.0)
}

/// How far the samples go back.
const SECONDS: f64 = 30.0;
const LINES: usize = 60;
