//! The figures, for people and for programs.

use serde_json::{Value, json};

use crate::cases::{CASES, Counted, Results, Timed};
use crate::harness::Cost;
use crate::peers::all;
use crate::targets::Checked;

pub fn markdown(results: &Results, targets: &[Checked]) -> String {
    let mut text = heading(results);
    let mut groups: Vec<_> = CASES.iter().map(|case| case.group).collect();
    groups.dedup();
    for group in groups {
        let rows: Vec<_> = results.timed.iter().filter(|timed| timed.case.group == group).collect();
        if !rows.is_empty() {
            text += &format!("\n## {group}\n\n{TIMED_HEAD}");
            text.extend(rows.iter().map(|timed| timed_row(timed)));
        }
    }
    if !results.counted.is_empty() {
        text += &format!("\n## Memory\n\n{COUNTED_HEAD}");
        text.extend(results.counted.iter().map(counted_row));
    }
    if !targets.is_empty() {
        text += &format!("\n## Targets\n\n{TARGETS_HEAD}");
        text.extend(targets.iter().map(target_row));
    }
    text
}

pub fn json(results: &Results, targets: &[Checked]) -> String {
    let timed = results.timed.iter().map(|timed| {
        let costs = match &timed.costs {
            Ok([one, two]) => json!({ "threads_1": cost(one), "threads_2": cost(two) }),
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
            "threads": target.threads,
            "subject": target.subject,
            "unit": target.unit,
            "measured": target.measured,
            "bound": target.bound,
            "met": target.is_met(),
        })
    });
    let report = json!({
        "effort": results.effort.name,
        "rounds": results.effort.rounds,
        "versions": versions().into_iter().collect::<serde_json::Map<_, _>>(),
        "timed": timed.collect::<Vec<_>>(),
        "counted": counted.collect::<Vec<_>>(),
        "targets": targets.collect::<Vec<_>>(),
    });
    format!("{report:#}\n")
}

fn cost(cost: &Cost) -> Value {
    let Cost { median_ns, min_ns, allocations, bytes } = cost;
    json!({ "median_ns": median_ns, "min_ns": min_ns, "allocations": allocations, "bytes": bytes })
}

fn heading(results: &Results) -> String {
    let versions: Vec<_> =
        versions().iter().map(|(name, version)| format!("{name} {}", version.as_str().unwrap_or("?"))).collect();
    let (name, rounds) = (results.effort.name, results.effort.rounds);
    format!("# What a call costs\n\nA {name} run, {rounds} rounds. {}.\n", versions.join(", "))
}

fn timed_row(timed: &Timed) -> String {
    let (title, peer) = (timed.case.title, timed.peer);
    match &timed.costs {
        Ok([one, two]) => format!(
            "| {title} | {peer} | {} | {} | {} | {} | {} | {} |\n",
            ns(one.median_ns),
            ns(one.min_ns),
            ns(two.median_ns),
            ns(two.min_ns),
            short(one.allocations),
            short(one.bytes),
        ),
        Err(reason) => format!("| {title} | {peer} | cannot: {reason} | | | | | |\n"),
    }
}

fn counted_row(counted: &Counted) -> String {
    let (title, peer) = (counted.quantity.title, counted.peer);
    match counted.bytes {
        Ok(bytes) => format!("| {title} | {peer} | {bytes:.0} |\n"),
        Err(reason) => format!("| {title} | {peer} | cannot: {reason} |\n"),
    }
}

fn target_row(target: &Checked) -> String {
    let Checked { case, threads, subject, unit, measured, bound } = target;
    let verdict = if target.is_met() { "met" } else { "missed" };
    let on = if *threads == 1 { "" } else { ", two threads" };
    format!("| {verdict} | {case}{on} | {subject} | {} {unit} | {} |\n", short(*measured), short(*bound))
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
| case | subject | ns, 1 thread | min | ns, 2 threads | min | allocations | bytes |
|---|---|--:|--:|--:|--:|--:|--:|
";

const COUNTED_HEAD: &str = "\
| what | subject | bytes |
|---|---|--:|
";

const TARGETS_HEAD: &str = "\
| | case | subject | measured | at most |
|---|---|---|--:|--:|
";
