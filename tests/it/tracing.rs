//! What a subscriber is told: spans, who is inside of which, and events with their fields.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::future::{pending, ready};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex};

use steadfast::breaker::{BreakerConfig, TripRule};
use steadfast::tracing::Tracing;
use steadfast::{Breaker, Executor, Retry, Timeout};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Subscriber, info, info_span};
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{Layer, Registry};

use crate::support::{Script, at_rest, err, everything_happens, hangs, ok, secs};

/// An event, or a span that was closed, with the names of the spans around it from the outside in.
#[derive(Clone, Debug)]
struct Line {
    level: Level,
    message: String,
    around: Vec<&'static str>,
    fields: Fields,
}

type Fields = BTreeMap<&'static str, String>;

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<Line>>>);

struct Reads<'a>(&'a mut Fields);

impl Visit for Reads<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name(), format!("{value:?}").trim_matches('"').to_owned());
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Log {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, cx: Context<'_, S>) {
        let mut fields = Fields::new();
        attributes.record(&mut Reads(&mut fields));
        cx.span(id).unwrap().extensions_mut().insert(fields);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, cx: Context<'_, S>) {
        let span = cx.span(id).unwrap();
        values.record(&mut Reads(span.extensions_mut().get_mut::<Fields>().unwrap()));
    }

    fn on_event(&self, event: &Event<'_>, cx: Context<'_, S>) {
        let mut fields = Fields::new();
        event.record(&mut Reads(&mut fields));
        let scope = cx.event_scope(event).into_iter().flat_map(tracing_subscriber::registry::Scope::from_root);
        let around = scope.map(|span| span.name()).collect();
        let message = fields.remove("message").unwrap_or_default();
        self.0.lock().unwrap().push(Line { level: *event.metadata().level(), message, around, fields });
    }

    fn on_close(&self, id: Id, cx: Context<'_, S>) {
        let span = cx.span(&id).unwrap();
        let around = span.scope().skip(1).map(|span| span.name()).collect();
        let fields = span.extensions().get::<Fields>().unwrap().clone();
        let message = format!("closed {}", span.name());
        self.0.lock().unwrap().push(Line { level: *span.metadata().level(), message, around, fields });
    }
}

fn logged(run: impl FnOnce()) -> Vec<Line> {
    let log = Log::default();
    tracing::subscriber::with_default(Registry::default().with(log.clone()), run);
    let lines = log.0.lock().unwrap();
    lines.clone()
}

fn messages(lines: &[Line]) -> Vec<(Level, &str)> {
    lines.iter().map(|line| (line.level, line.message.as_str())).collect()
}

#[test]
fn a_run_is_a_span_and_each_decision_an_event_in_it() {
    let lines = logged(|| {
        let (clock, _) = at_rest();
        let builder = Executor::builder("billing").policies((Retry::fixed(secs(1)), Timeout::secs(2))).clock(&clock);
        let executor = builder.observe(Tracing::new()).build().unwrap();
        let script = Script::new(&clock, [err("down"), hangs(), ok(7)]);
        let _outer = info_span!("request").entered();
        assert_eq!(clock.block_on(executor.run(|_| script.call_plain())).unwrap(), 7);
    });
    let expected = [
        (Level::TRACE, "attempt started"),
        (Level::DEBUG, "attempt finished"),
        (Level::INFO, "retry scheduled"),
        (Level::TRACE, "attempt started"),
        (Level::DEBUG, "attempt abandoned"),
        (Level::INFO, "timed out"),
        (Level::INFO, "retry scheduled"),
        (Level::TRACE, "attempt started"),
        (Level::DEBUG, "attempt finished"),
        (Level::DEBUG, "run finished"),
        (Level::INFO, "closed run"),
        (Level::INFO, "closed request"),
    ];
    assert_eq!(messages(&lines), expected);
    assert!(lines[..10].iter().all(|line| line.around == ["request", "run"]));
    let retry = &lines[2].fields;
    let read = ["executor", "attempt", "hedge", "delay_ms", "verdict"].map(|field| retry[field].as_str());
    assert_eq!(read, ["billing", "1", "0", "1000.0", "transient"]);
    let (run, read) = (&lines[10], ["executor", "outcome", "attempts", "elapsed_ms"]);
    assert_eq!(read.map(|field| run.fields[field].as_str()), ["billing", "success", "3", "4000.0"]);
    assert_eq!(run.around, ["request"]);
}

#[test]
fn everything_that_happens_has_a_line_with_its_fields() {
    let lines = logged(|| everything_happens(|name| Executor::builder(name).observe(Tracing::new())));
    let words: BTreeSet<_> = lines.iter().map(|line| line.message.as_str()).collect();
    let expected = [
        ["admitted", "attempt abandoned", "attempt finished", "attempt started", "breaker changed", "breaker opened"],
        ["closed run", "fault injected", "fell back", "hedge lost", "hedge started", "hedge won"],
        ["queued", "reconfigured", "rejected", "retry scheduled", "run finished", "timed out"],
    ];
    assert_eq!(words, expected.into_iter().flatten().collect());
    for (message, fields) in [
        ("admitted", &[("by", "bulkhead"), ("waited_ms", "3000.0")][..]),
        ("fell back", &[("error", "timed_out")]),
        ("hedge won", &[("hedge", "1")]),
        ("queued", &[("by", "bulkhead")]),
        ("reconfigured", &[("by", "standard"), ("executor", "billing")]),
        ("timed out", &[("limit_ms", "2000.0"), ("attempt", "2"), ("executor", "billing")]),
    ] {
        let line = lines.iter().find(|line| line.message == message).unwrap();
        fields.iter().for_each(|(field, value)| assert_eq!(line.fields[field], *value, "{line:?}"));
    }
    let outside: BTreeSet<_> =
        lines.iter().filter(|line| line.around.is_empty()).map(|line| line.message.as_str()).collect();
    assert_eq!(outside, ["closed run", "reconfigured"].into(), "all else is in the span of its run");
}

#[test]
fn an_operation_that_panics_is_an_error_in_the_log() {
    let lines = logged(|| {
        let (clock, _) = at_rest();
        let executor = Executor::builder("billing").clock(&clock).observe(Tracing::new()).build().unwrap();
        let run = executor.run(|_| async { resume_unwind(Box::new("its own")) as Result<(), ()> });
        assert!(catch_unwind(AssertUnwindSafe(|| clock.block_on(run))).is_err());
    });
    let ended = lines.iter().find(|line| line.message == "attempt abandoned").unwrap();
    assert_eq!((ended.level, ended.fields["why"].as_str()), (Level::ERROR, "panicked"));
    assert_eq!(lines.last().unwrap().fields["outcome"], "panicked");
}

#[test]
fn what_the_operation_logs_is_in_the_span_of_its_run_and_what_others_log_is_not() {
    let lines = logged(|| {
        let (clock, _) = at_rest();
        let executor = Executor::builder("billing").clock(&clock).observe(Tracing::new()).build().unwrap();
        let now = clock.clock();
        let run = executor.run(async |_| {
            info!("before");
            now.sleep(secs(1)).await;
            info_span!("inner").in_scope(|| info!("after"));
            Ok::<_, ()>(())
        });
        let mut run = tokio_test::task::spawn(run);
        assert!(run.poll().is_pending());
        info!("between");
        clock.advance(secs(1));
        assert!(run.poll().is_ready());
    });
    let around = |message: &str| lines.iter().find(|line| line.message == message).unwrap().around.clone();
    assert_eq!(around("before"), ["run"]);
    assert_eq!(around("after"), ["run", "inner"]);
    assert!(around("between").is_empty());
}

#[test]
fn a_run_that_is_dropped_or_fails_closes_its_span_and_says_so() {
    let lines = logged(|| {
        let (clock, _) = at_rest();
        let executor = Executor::builder("billing").clock(&clock).observe(Tracing::new()).build().unwrap();
        let mut run = tokio_test::task::spawn(executor.run(|_| pending::<Result<(), ()>>()));
        assert!(run.poll().is_pending());
        drop(run);
        let _ = clock.block_on(executor.run(|_| ready(Err::<(), _>("secret"))));
    });
    let ends: Vec<_> =
        lines.iter().filter(|line| line.message == "closed run").map(|line| &line.fields["outcome"]).collect();
    assert_eq!(ends, ["dropped", "failed"]);
    let finished = lines.iter().filter(|line| line.message == "run finished");
    assert!(finished.clone().all(|line| line.level == Level::INFO) && finished.count() == 2);
    assert!(!format!("{lines:?}").contains("secret"), "errors are the caller's");
}

#[test]
fn a_breaker_that_opens_is_a_warning() {
    let lines = logged(|| {
        let (clock, _) = at_rest();
        let config = BreakerConfig::default().rule(TripRule::consecutive(1)).open_for(secs(5));
        let builder = Executor::builder("billing").policies(Breaker::new(config).named("ledger")).clock(&clock);
        let executor = builder.observe(Tracing::new()).build().unwrap();
        let run = |answer: Result<i32, &'static str>| clock.block_on(executor.run(|_| ready(answer)));
        let _ = (run(Err("down")), run(Ok(7)));
        clock.advance(secs(5));
        assert_eq!(run(Ok(7)).unwrap(), 7);
    });
    let of = |message: &str| lines.iter().filter(|line| line.message == message).cloned().collect::<Vec<_>>();
    let (opened, changed, rejected) = (of("breaker opened"), of("breaker changed"), of("rejected"));
    assert_eq!((opened.len(), changed.len(), rejected.len()), (1, 2, 1));
    assert_eq!((opened[0].level, changed[0].level), (Level::WARN, Level::INFO));
    let read = ["policy", "from", "to", "cause", "failures"].map(|field| opened[0].fields[field].as_str());
    assert_eq!(read, ["ledger", "closed", "open", "consecutive_failures", "0"]);
    assert_eq!((rejected[0].fields["by"].as_str(), rejected[0].fields["kind"].as_str()), ("breaker", "circuit_open"));
}
