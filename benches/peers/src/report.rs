//! The figures, for people and for programs.

use serde_json::{Value, json};

use crate::cases::{Counted, On, Results, Timed};
use crate::harness::Cost;
use crate::harness::Effort;
use crate::parts::Part;
use crate::peers::all;
use crate::rollover::{self, Rolled};
use crate::targets::Checked;

pub fn markdown(results: &Results, targets: &[Checked]) -> String {
    let mut text = heading(results);
    for group in results.timed.chunk_by(|a, b| a.case.group == b.case.group) {
        text += &format!("\n## {}\n\n", group[0].case.group);
        let cases = group.chunk_by(|a, b| a.case.name == b.case.name);
        text.extend(cases.clone().map(|case| format!("* `{}`: {}\n", case[0].case.name, case[0].case.title)));
        text += &format!("\n{TIMED_HEAD}");
        text.extend(cases.map(timed_rows));
    }
    if !results.rolled.is_empty() {
        text += &format!(
            "\n## Bucket changes\n\n* `{}`: closed, time window, single calls\n\n{ROLLED_HEAD}",
            rollover::NAME
        );
        text.extend(results.rolled.iter().map(rolled_row));
    }
    if !results.counted.is_empty() {
        text += "\n## Memory\n\n";
        let quantities = results.counted.chunk_by(|a, b| a.quantity.name == b.quantity.name);
        text.extend(
            quantities.clone().map(|rows| format!("* `{}`: {}\n", rows[0].quantity.name, rows[0].quantity.title)),
        );
        text += &format!("\n{COUNTED_HEAD}");
        text.extend(quantities.map(counted_rows));
    }
    if !targets.is_empty() {
        text += &format!("\n## Targets\n\n{TARGETS_HEAD}");
        text.extend(targets.iter().map(target_row));
    }
    text += &format!("\n## Parts\n\n{PARTS_HEAD}");
    text.extend(results.parts.iter().map(part_row));
    text
}

pub fn json(results: &Results, targets: &[Checked]) -> String {
    let timed = results.timed.iter().map(|timed| {
        let costs = match &timed.costs {
            Ok([one, two, apart]) => {
                json!({ "threads_1": cost(one), "threads_2": cost(two), "threads_2_apart": cost(apart) })
            }
            Err(reason) => json!({ "cannot": reason }),
        };
        json!({ "case": timed.case.name, "subject": timed.peer, "costs": costs })
    });
    let counted = results.counted.iter().map(|counted| match counted.bytes {
        Ok(bytes) => json!({ "quantity": counted.quantity.name, "subject": counted.peer, "bytes": bytes }),
        Err(reason) => json!({ "quantity": counted.quantity.name, "subject": counted.peer, "cannot": reason }),
    });
    let targets = targets.iter().map(|target| {
        json!({
            "case": target.case,
            "threads": if target.on == On::OneThread { 1 } else { 2 },
            "subject": target.subject,
            "unit": target.unit,
            "measured": target.figures.measured,
            "measured_by_medians": target.figures.by_medians,
            "bound": target.bound,
            "bound_ns": target.figures.bound_ns,
            "met": target.is_met(),
        })
    });
    let parts = results.parts.iter().map(|part| json!({ "part": part.name, "cost": cost(&part.cost) }));
    let report = json!({
        "effort": results.effort.name,
        "passes": results.effort.passes,
        "rounds": results.effort.rounds,
        "load_before": results.load,
        "versions": versions().into_iter().collect::<serde_json::Map<_, _>>(),
        "timed": timed.collect::<Vec<_>>(),
        "rolled": results.rolled.iter().map(rolled).collect::<Vec<_>>(),
        "counted": counted.collect::<Vec<_>>(),
        "targets": targets.collect::<Vec<_>>(),
        "parts": parts.collect::<Vec<_>>(),
    });
    format!("{report:#}\n")
}

fn cost(cost: &Cost) -> Value {
    let Cost { median_ns, min_ns, allocations, bytes } = cost;
    json!({ "median_ns": median_ns, "min_ns": min_ns, "allocations": allocations, "bytes": bytes })
}

fn rolled(rolled: &Rolled) -> Value {
    let Rolled { clock, calls, form, threads, times } = rolled;
    json!({
        "clock": clock,
        "calls": calls,
        "form": form,
        "threads": threads,
        "timed": times.count(),
        "mean_ns": times.mean(),
        "mean_within_p99.9_ns": times.mean_within(0.999),
        "p50_ns": times.quantile(0.5),
        "p99_ns": times.quantile(0.99),
        "p99.9_ns": times.quantile(0.999),
        "max_ns": times.quantile(1.0),
    })
}

fn heading(results: &Results) -> String {
    let Results { effort, load, .. } = results;
    let version = |(name, version): (String, Value)| format!("{name} {}", version.as_str().unwrap_or("?"));
    let versions: Vec<_> = versions().into_iter().map(version).collect();
    let load = load.map_or("unknown".to_owned(), |load| load.to_string());
    let Effort { name, passes, rounds } = effort;
    let versions = versions.join(", ");
    format!(
        "# What a call costs\n\nA {name} run, {passes} passes of {rounds} rounds, load before {load}. {versions}.\n"
    )
}

fn timed_rows(case: &[Timed]) -> String {
    let name = case[0].case.name;
    let row = |timed: &Timed| {
        let [one, two, apart] = timed.costs.ok()?;
        let times = [one.median_ns, one.min_ns, two.median_ns, two.min_ns, apart.median_ns].map(ns).join(" | ");
        let (allocations, bytes) = (short(one.allocations), short(one.bytes));
        Some(format!("| {name} | {} | {times} | {allocations} | {bytes} |\n", timed.peer))
    };
    let cannot = refusals(case.iter().filter_map(|timed| Some((timed.costs.err()?, timed.peer))));
    let cannot = cannot.map(|(reason, peers)| format!("| {name} | {peers} | cannot: {reason} | | | | | | |\n"));
    case.iter().filter_map(row).chain(cannot).collect()
}

fn counted_rows(quantity: &[Counted]) -> String {
    let name = quantity[0].quantity.name;
    let row = |counted: &Counted| Some(format!("| {name} | {} | {:.0} |\n", counted.peer, counted.bytes.ok()?));
    let cannot = refusals(quantity.iter().filter_map(|counted| Some((counted.bytes.err()?, counted.peer))));
    let cannot = cannot.map(|(reason, peers)| format!("| {name} | {peers} | cannot: {reason} |\n"));
    quantity.iter().filter_map(row).chain(cannot).collect()
}

/// Those who cannot, by their reasons.
fn refusals<'a>(cannot: impl Iterator<Item = (&'a str, &'a str)>) -> impl Iterator<Item = (&'a str, String)> {
    let mut reasons: Vec<(&str, String)> = Vec::new();
    for (reason, peer) in cannot {
        match reasons.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, peers)) => *peers += &format!(", {peer}"),
            None => reasons.push((reason, peer.to_owned())),
        }
    }
    reasons.into_iter()
}

fn rolled_row(rolled: &Rolled) -> String {
    let Rolled { clock, calls, form, threads, times } = rolled;
    let means = [times.mean(), times.mean_within(0.999)].map(ns).join(" | ");
    let quantiles = [0.5, 0.99, 0.999, 1.0].map(|part| times.quantile(part).to_string()).join(" | ");
    format!("| {calls} | {clock} | {form} | {threads} | {} | {means} | {quantiles} |\n", times.count())
}

fn target_row(target: &Checked) -> String {
    let Checked { case, on, subject, unit, figures, bound } = target;
    let verdict = if target.is_met() { "met" } else { "missed" };
    let on = if *on == On::OneThread { "" } else { ", two threads" };
    let by_medians = figures.by_medians.map_or_else(String::new, short);
    let (measured, bound, bound_ns) =
        (short(figures.measured), short(*bound), figures.bound_ns.map_or_else(String::new, ns));
    format!("| {verdict} | {case}{on} | {subject} | {measured} {unit} | {by_medians} | {bound} | {bound_ns} |\n")
}

fn part_row(part: &Part) -> String {
    let Part { name, cost } = part;
    format!("| {name} | {} | {} |\n", ns(cost.median_ns), ns(cost.min_ns))
}

/// Three digits are more than a shared machine gives.
fn ns(time: f64) -> String {
    match time {
        ..10.0 => format!("{time:.1}"),
        _ => format!("{time:.0}"),
    }
}

fn short(number: f64) -> String {
    let text = format!("{number:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Versions as they were built, from the lock file.
fn versions() -> Vec<(String, Value)> {
    let mut packages: Vec<_> = all().iter().filter_map(|peer| peer.package()).collect();
    packages.dedup();
    let version = |package: &str| {
        let entry = format!("name = \"{package}\"\nversion = \"");
        let (_, rest) = LOCK.split_once(&entry)?;
        rest.split('"').next()
    };
    packages.into_iter().map(|package| (package.to_owned(), Value::from(version(package)))).collect()
}

const LOCK: &str = include_str!("../../../Cargo.lock");

const TIMED_HEAD: &str = "\
| case | subject | ns, 1 thread | min | ns, 2 threads | min | apart | allocations | bytes |
|---|---|--:|--:|--:|--:|--:|--:|--:|
";

const COUNTED_HEAD: &str = "\
| quantity | subject | bytes |
|---|---|--:|
";

const ROLLED_HEAD: &str = "\
| calls | clock | breaker in | threads | timed | mean, ns | mean to p99.9 | p50 | p99 | p99.9 | max |
|---|---|---|--:|--:|--:|--:|--:|--:|--:|--:|
";

const TARGETS_HEAD: &str = "\
| | case | subject | measured | by medians | at most | that is, ns |
|---|---|---|--:|--:|--:|--:|
";

const PARTS_HEAD: &str = "\
| part | ns, 1 thread | min |
|---|--:|--:|
";
