//! The text format of Prometheus, read as strictly as it is specified.

use std::collections::{BTreeMap, HashMap, HashSet};

/// One number.
#[derive(Debug)]
pub(crate) struct Sample {
    pub(crate) name: String,
    labels: BTreeMap<String, String>,
    pub(crate) value: f64,
}

/// All numbers of a page. Panics with the line that is none.
pub(crate) fn parse(page: &str) -> Vec<Sample> {
    assert!(page.ends_with('\n'));
    let mut kinds = HashMap::new();
    let (mut samples, mut seen) = (Vec::new(), HashSet::new());
    for line in page.lines().filter(|line| !line.is_empty()) {
        if let Some(comment) = line.strip_prefix("# ") {
            let (keyword, rest) = comment.split_once(' ').unwrap_or_else(|| panic!("{line}"));
            let (name, said) = rest.split_once(' ').unwrap_or_else(|| panic!("{line}"));
            assert!(is_name(name) && ["HELP", "TYPE"].contains(&keyword), "{line}");
            if keyword == "TYPE" {
                assert!(["counter", "gauge", "histogram"].contains(&said), "{line}");
                assert_eq!(kinds.insert(name.to_owned(), said.to_owned()), None, "a second TYPE: {line}");
            }
            continue;
        }
        let sample = read(line);
        let family = [&*sample.name, family(&sample.name)].into_iter().find_map(|name| kinds.get(name));
        assert!(family.is_some(), "no TYPE stands before {line}");
        assert!(seen.insert((sample.name.clone(), sample.labels.clone())), "a second time: {line}");
        samples.push(sample);
    }
    histograms_add_up(&samples);
    samples
}

fn family(name: &str) -> &str {
    ["_bucket", "_count", "_sum"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name)
}

/// `name{label="value",..} 1.5`, without a time: nothing here gives one.
fn read(line: &str) -> Sample {
    let (series, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("{line}"));
    let (name, labels) = match series.split_once('{') {
        Some((name, rest)) => (name, rest.strip_suffix('}').unwrap_or_else(|| panic!("{line}"))),
        None => (series, ""),
    };
    assert!(is_name(name), "{line}");
    // No value of ours has a comma, a quote or a backslash in it.
    let labels = labels.split(',').filter(|label| !label.is_empty()).map(|label| {
        let (key, value) = label.split_once('=').unwrap_or_else(|| panic!("{line}"));
        let value =
            value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap_or_else(|| panic!("{line}"));
        assert!(is_name(key) && !value.contains(['"', '\\']), "{line}");
        (key.to_owned(), value.to_owned())
    });
    let labels = labels.collect();
    Sample { name: name.to_owned(), labels, value: value.parse().unwrap_or_else(|_| panic!("{line}")) }
}

fn is_name(name: &str) -> bool {
    let mut characters = name.chars();
    characters.next().is_some_and(|first| first.is_ascii_alphabetic() || first == '_')
        && characters.all(|other| other.is_ascii_alphanumeric() || other == '_')
}

/// Buckets only grow, and the last one has all that were counted.
fn histograms_add_up(samples: &[Sample]) {
    let mut last = HashMap::new();
    for sample in samples.iter().filter(|sample| sample.name.ends_with("_bucket")) {
        let mut labels = sample.labels.clone();
        let bound: f64 = labels.remove("le").unwrap().parse().unwrap();
        let before = last.insert((family(&sample.name), labels), (bound, sample.value));
        assert!(before.is_none_or(|(low, count)| low < bound && count <= sample.value), "{sample:?}");
    }
    for ((family, labels), (bound, count)) in last {
        assert_eq!(bound, f64::INFINITY, "{family}");
        let counted = samples.iter().find(|it| it.name == format!("{family}_count") && it.labels == labels);
        assert_eq!(counted.unwrap().value, count, "{family}");
    }
}
