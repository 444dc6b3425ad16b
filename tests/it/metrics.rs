//! What a recorder is told, under which names and labels.

use std::collections::BTreeMap;
use std::future::{pending, ready};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit,
};
use steadfast::breaker::{BreakerConfig, TripRule};
use steadfast::clock::ManualClock;
use steadfast::limit::BulkheadConfig;
use steadfast::metrics::Metrics;
use steadfast::policy::{Policy, Settings};
use steadfast::{Breaker, Bulkhead, Executor, Hedge, Keyed, RateLimiter, Retry, Timeout};

use crate::support::{Script, at_rest, err, everything_happens, hangs, ms, ok, permanent, secs};

/// Runs something under a recorder of its own, and gives what was recorded: `name{label=value,..}` to value. A histogram has the
/// sum of its values, and their number under `name:count`.
fn recorded(run: impl FnOnce()) -> BTreeMap<String, f64> {
    let book = Book::default();
    metrics::with_local_recorder(&book, run);
    let all = book.0.lock().unwrap();
    all.clone()
}

/// A recorder that can be read.
#[derive(Clone, Default)]
struct Book(Arc<Mutex<BTreeMap<String, f64>>>);

/// What one handle writes to.
struct Line {
    book: Book,
    name: String,
}

impl Book {
    fn line(&self, key: &Key) -> Arc<Line> {
        let mut labels: Vec<_> = key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
        labels.sort_unstable();
        Arc::new(Line { book: self.clone(), name: format!("{}{{{}}}", key.name(), labels.join(",")) })
    }
}

impl Line {
    fn add(&self, suffix: &str, value: f64) {
        *self.book.0.lock().unwrap().entry(format!("{}{suffix}", self.name)).or_default() += value;
    }
}

impl Recorder for Book {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.line(key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.line(key))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.line(key))
    }
}

impl CounterFn for Line {
    fn increment(&self, value: u64) {
        self.add("", value as f64);
    }

    fn absolute(&self, _: u64) {
        unreachable!("nothing here counts so");
    }
}

impl GaugeFn for Line {
    fn increment(&self, value: f64) {
        self.add("", value);
    }

    fn decrement(&self, value: f64) {
        self.add("", -value);
    }

    fn set(&self, value: f64) {
        self.book.0.lock().unwrap().insert(self.name.clone(), value);
    }
}

impl HistogramFn for Line {
    fn record(&self, value: f64) {
        self.add("", value);
        self.add(":count", 1.0);
    }
}

fn executor<P: Policy<i32, &'static str> + Settings>(clock: &ManualClock, policies: P) -> Executor<P> {
    let builder = Executor::builder("billing").policies(policies).unbudgeted().clock(clock);
    builder.observe(Metrics::new()).build().unwrap()
}

#[test]
fn runs_attempts_and_retries_are_counted_by_how_they_ended() {
    let seen = recorded(|| {
        let (clock, _) = at_rest();
        let executor = executor(&clock, (Retry::fixed(secs(1)), Timeout::secs(2)));
        for steps in
            [vec![err("down"), hangs(), ok(7).after(ms(500))], vec![ok(7)], vec![permanent("gone")], vec![err("down")]]
        {
            let script = Script::new(&clock, steps);
            let _ = clock.block_on(executor.run(steadfast::faults(|_| script.call())));
        }
    });
    let expected = [
        ("steadfast_attempt_duration_seconds{executor=billing}", 0.5),
        ("steadfast_attempt_duration_seconds{executor=billing}:count", 7.0),
        ("steadfast_attempts_total{executor=billing,outcome=permanent}", 1.0),
        ("steadfast_attempts_total{executor=billing,outcome=success}", 2.0),
        ("steadfast_attempts_total{executor=billing,outcome=timed_out}", 1.0),
        ("steadfast_attempts_total{executor=billing,outcome=transient}", 4.0),
        ("steadfast_retries_total{executor=billing,verdict=transient}", 4.0),
        ("steadfast_run_attempts{executor=billing}", 8.0),
        ("steadfast_run_attempts{executor=billing}:count", 4.0),
        ("steadfast_run_duration_seconds{executor=billing,result=failure}", 2.0),
        ("steadfast_run_duration_seconds{executor=billing,result=failure}:count", 2.0),
        ("steadfast_run_duration_seconds{executor=billing,result=success}", 4.5),
        ("steadfast_run_duration_seconds{executor=billing,result=success}:count", 2.0),
        ("steadfast_runs_in_progress{executor=billing}", 0.0),
        ("steadfast_runs_total{executor=billing,outcome=exhausted}", 1.0),
        ("steadfast_runs_total{executor=billing,outcome=failed}", 1.0),
        ("steadfast_runs_total{executor=billing,outcome=success}", 2.0),
        ("steadfast_timeouts_total{executor=billing}", 1.0),
    ];
    assert_eq!(seen, expected.map(|(name, value)| (name.to_owned(), value)).into());
}

#[test]
fn breakers_hedges_and_waits_have_their_own() {
    let seen = recorded(|| {
        let (clock, _) = at_rest();
        let breaker = BreakerConfig::default().rule(TripRule::consecutive(1)).open_for(secs(5));
        let opens = executor(&clock, Breaker::new(breaker).named("ledger"));
        for _ in 0..3 {
            let _ = clock.block_on(opens.run(|_| ready(Err::<i32, _>("down"))));
        }
        clock.advance(secs(5));
        assert_eq!(clock.block_on(opens.run(|_| ready(Ok::<i32, &str>(7)))).unwrap(), 7);

        let hedges = executor(&clock, Hedge::after(ms(10)));
        let script = Script::new(&clock, [hangs::<i32, &str>(), ok(7)]);
        assert_eq!(clock.block_on(hedges.run(|_| script.call_plain())).unwrap(), 7);

        let bulkhead = Bulkhead::with(BulkheadConfig::new(1).queue(5));
        let waits = executor(&clock, bulkhead.clone());
        let permit = bulkhead.try_acquire().unwrap();
        let mut run = tokio_test::task::spawn(waits.run(|_| ready(Ok::<i32, &str>(7))));
        assert!(run.poll().is_pending());
        clock.advance(secs(3));
        drop(permit);
        assert!(run.poll().is_ready());
    });
    let of = |name: &str| seen.get(name).copied();
    let moved = |from, to| {
        of(&format!("steadfast_breaker_transitions_total{{executor=billing,from={from},policy=ledger,to={to}}}"))
    };
    assert_eq!(
        (moved("closed", "open"), moved("open", "half-open"), moved("half-open", "closed")),
        (Some(1.0), Some(1.0), Some(1.0))
    );
    assert_eq!(
        of("steadfast_rejections_total{by=breaker,executor=billing,kind=circuit_open,policy=ledger}"),
        Some(2.0)
    );
    let hedges =
        ["started", "won"].map(|event| of(&format!("steadfast_hedges_total{{event={event},executor=billing}}")));
    assert_eq!(hedges, [Some(1.0), Some(1.0)]);
    assert_eq!(of("steadfast_attempts_total{executor=billing,outcome=lost_race}"), Some(1.0));
    assert_eq!(of("steadfast_queue_wait_seconds{by=bulkhead,executor=billing,policy=bulkhead}"), Some(3.0));
}

/// The tables of the guide: all metrics, in alphabetical order, each with its labels.
fn documented() -> Vec<(&'static str, Vec<&'static str>)> {
    let guide = include_str!("../../src/metrics/guide.md");
    let rows = guide.lines().filter(|line| line.starts_with("| `steadfast_"));
    let mut all: Vec<_> = rows
        .map(|row| {
            let cells: Vec<_> = row.split('|').map(str::trim).collect();
            let further = cells[3].split(", ").map(|label| label.trim_matches('`')).filter(|label| !label.is_empty());
            let mut labels: Vec<_> = further.chain(["executor"]).collect();
            labels.sort_unstable();
            (cells[1].trim_matches('`'), labels)
        })
        .collect();
    all.sort();
    all
}

#[test]
fn every_metric_of_the_guide_is_recorded_with_its_labels_and_no_other_is() {
    let seen = recorded(|| {
        everything_happens(|name| Executor::builder(name).observe(Metrics::new()));
        let (clock, _) = at_rest();
        let parts = (
            Bulkhead::new(3),
            RateLimiter::per_second(5),
            Keyed::<Breaker>::new(BreakerConfig::default()),
            Breaker::default(),
        );
        let executor = Executor::builder("billing").policies(parts).clock(&clock).build().unwrap();
        steadfast::metrics::record(&executor.snapshot());
    });
    let series = seen.keys().map(|series| series.trim_end_matches(":count").split_once('{').unwrap());
    let mut recorded: Vec<_> = series
        .map(|(name, labels)| {
            (name, labels.split(',').map(|label| label.split_once('=').unwrap().0).collect::<Vec<_>>())
        })
        .collect();
    recorded.sort();
    recorded.dedup();
    assert_eq!(recorded, documented());
    for (series, value) in [
        ("steadfast_fallbacks_total{executor=billing,kind=timed_out}", 1.0),
        ("steadfast_faults_injected_total{executor=billing}", 1.0),
        ("steadfast_hedges_total{event=won,executor=billing}", 1.0),
        ("steadfast_reconfigurations_total{by=standard,executor=billing}", 1.0),
        ("steadfast_timeouts_total{executor=billing}", 1.0),
        ("steadfast_runs_total{executor=billing,outcome=ignored}", 1.0),
        ("steadfast_budget_available{executor=billing}", 2.0),
    ] {
        assert_eq!(seen.get(series), Some(&value), "{series}");
    }
}

#[test]
fn a_run_that_is_dropped_is_in_progress_no_more() {
    let seen = recorded(|| {
        let (clock, _) = at_rest();
        let executor = executor(&clock, ());
        let mut run = tokio_test::task::spawn(executor.run(|_| pending::<Result<i32, &str>>()));
        assert!(run.poll().is_pending());
    });
    assert_eq!(seen["steadfast_runs_in_progress{executor=billing}"], 0.0);
    assert_eq!(seen["steadfast_runs_total{executor=billing,outcome=dropped}"], 1.0);
    assert_eq!(seen["steadfast_attempts_total{executor=billing,outcome=dropped}"], 1.0);
}

#[test]
fn traffic_makes_no_series() {
    let count = |keys: u32| {
        recorded(|| {
            let (clock, _) = at_rest();
            let config = BreakerConfig::default().rule(TripRule::consecutive(1));
            let executor = Executor::builder("billing").policies((Retry::immediate(), Keyed::<Breaker>::new(config)));
            let executor = executor.unbudgeted().clock(&clock).observe(Metrics::new()).build().unwrap();
            for key in 0..keys {
                let cx = executor.context().with_key(format!("host-{key}"));
                for _ in 0..3 {
                    let text = format!("error number {key}");
                    let _ = clock.block_on(executor.run_with(&cx, |_| ready(Err::<(), _>(text.clone()))));
                }
            }
        })
        .len()
    };
    assert_eq!(count(100), count(1));
}

#[test]
fn of_the_states_of_a_breaker_exactly_one_is_at_one() {
    let (clock, _) = at_rest();
    let config = BreakerConfig::default().rule(TripRule::consecutive(1)).open_for(secs(5));
    let (first, second) = (Breaker::new(config.clone()), Breaker::new(config));
    let executor = executor(&clock, (first.clone(), second, Bulkhead::new(3), RateLimiter::per_second(5)));
    let seen = || recorded(|| steadfast::metrics::record(&executor.snapshot()));
    let at_one = |policy: &str| {
        let seen = seen();
        let of = |(name, _): &(&String, &f64)| {
            name.starts_with("steadfast_breaker_state") && name.contains(&format!("policy={policy},"))
        };
        let states: Vec<_> = seen.iter().filter(of).collect();
        assert_eq!((states.len(), states.iter().map(|(_, value)| **value).sum::<f64>()), (6, 1.0));
        let (name, _) = states.into_iter().find(|(_, value)| **value == 1.0).unwrap();
        name.split("state=").nth(1).unwrap().trim_end_matches('}').to_owned()
    };
    assert_eq!((at_one("breaker"), at_one("breaker_2")), ("closed".to_owned(), "closed".to_owned()));
    let _ = clock.block_on(executor.run(|_| ready(Err::<i32, _>("down"))));
    first.isolate();
    assert_eq!((at_one("breaker"), at_one("breaker_2")), ("isolated".to_owned(), "open".to_owned()));
    clock.advance(secs(5));
    assert_eq!(at_one("breaker_2"), "half-open");
    let seen = seen();
    assert_eq!(seen["steadfast_bulkhead_permits{executor=billing,policy=bulkhead,state=free}"], 3.0);
    assert_eq!(seen["steadfast_queue_length{by=bulkhead,executor=billing,policy=bulkhead}"], 0.0);
    assert_eq!(seen["steadfast_rate_limiter_tokens{executor=billing,policy=rate_limiter}"], 5.0);
    assert_eq!(seen["steadfast_runs_waiting{executor=billing}"], 0.0);
}

/// Counts how often somebody asks for a handle.
#[derive(Clone, Default)]
struct Registrations(Arc<AtomicU32>);

impl Registrations {
    fn one(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Recorder for Registrations {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        self.one();
        Counter::noop()
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        self.one();
        Gauge::noop()
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        self.one();
        Histogram::noop()
    }
}

#[test]
fn a_call_looks_nothing_up_by_name() {
    let registrations = Registrations::default();
    metrics::with_local_recorder(&registrations, || {
        let (clock, _) = at_rest();
        let executor = executor(&clock, (Retry::immediate(), Breaker::default(), Timeout::secs(2)));
        let run = |ends: Result<i32, &'static str>| clock.block_on(executor.run(|_| ready(ends)));
        let _ = (run(Ok(7)), run(Err("down")));
        let before = registrations.0.load(Ordering::Relaxed);
        assert!(before > 5);
        (0..2).for_each(|_| drop((run(Ok(7)), run(Err("down")))));
        assert_eq!(registrations.0.load(Ordering::Relaxed), before);
    });
}
