//! A strict parser of Prometheus' text format.

use std::collections::{BTreeMap, BTreeSet};

/// A sample: name, labels and value.
#[derive(Debug)]
pub(crate) struct Sample {
    pub(crate) name: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) value: f64,
}

fn is_name(name: &str, colons: bool) -> bool {
    let fine = |c: char| c.is_ascii_alphanumeric() || c == '_' || (colons && c == ':');
    name.chars().all(fine) && name.starts_with(|c: char| !c.is_ascii_digit())
}

/// Reads `name="value",…` up to the closing brace; also returns the rest of the text.
fn labels(text: &str) -> (BTreeMap<String, String>, &str) {
    let mut all = BTreeMap::new();
    let mut rest = text;
    loop {
        let (name, after) = rest.split_once("=\"").unwrap();
        assert!(is_name(name, false), "{name:?} is no name of a label");
        let mut value = String::new();
        let mut chars = after.char_indices();
        let end = loop {
            match chars.next().expect("a label's value does not end") {
                (at, '"') => break at,
                (_, '\\') => value.push(match chars.next().unwrap().1 {
                    'n' => '\n',
                    c @ ('\\' | '"') => c,
                    c => panic!("\\{c} is no escape"),
                }),
                (_, c) => value.push(c),
            }
        };
        assert!(all.insert(name.to_owned(), value).is_none(), "{name} twice");
        rest = &after[end + 1..];
        match rest.split_at(1) {
            (",", more) => rest = more,
            ("}", more) => return (all, more),
            other => panic!("{other:?} behind a label"),
        }
    }
}

/// Reads the text exposition format by its rules (version 0.0.4): HELP and TYPE appear once per
/// metric and before its samples, the samples of a metric are adjacent and unique, and histogram
/// buckets add up to `+Inf`, which is the count.
pub(crate) fn parse(text: &str) -> Vec<Sample> {
    assert!(text.ends_with('\n'), "the last line has an end");
    let mut helped = BTreeSet::new();
    let mut types: BTreeMap<String, String> = BTreeMap::new();
    let mut current = String::new();
    let mut samples: Vec<Sample> = Vec::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap();
            assert!(helped.insert(name.to_owned()) && !help.is_empty(), "{line}");
            assert!(!types.contains_key(name), "{line}");
            continue;
        }
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert!(is_name(name, true) && name.starts_with("stetfs_"), "{line}");
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
            assert!(helped.contains(name), "{line}");
            assert!(types.insert(name.into(), kind.into()).is_none(), "{line}");
            name.clone_into(&mut current);
            continue;
        }
        let (name, rest) = line.split_once('{').unwrap();
        let (labels, rest) = labels(rest);
        let value: f64 = rest.strip_prefix(' ').unwrap().parse().unwrap();
        assert!(
            labels.contains_key("volume") && labels.contains_key("mountpoint"),
            "{line}"
        );
        let kind = &types[&current];
        let part = name
            .strip_prefix(current.as_str())
            .expect("of the metric above");
        match kind.as_str() {
            "histogram" => assert!(["_bucket", "_sum", "_count"].contains(&part), "{line}"),
            "counter" => assert!(part.is_empty() && name.ends_with("_total"), "{line}"),
            _ => assert!(part.is_empty() && !name.ends_with("_total"), "{line}"),
        }
        assert!(value >= 0.0, "{line}");
        let same = |s: &Sample| s.name == name && s.labels == labels;
        assert!(!samples.iter().any(same), "{line} twice");
        let name = name.to_owned();
        samples.push(Sample {
            name,
            labels,
            value,
        });
    }
    for (name, kind) in &types {
        match kind.as_str() {
            "histogram" => check_histogram(name, &samples),
            _ => assert!(samples.iter().any(|s| s.name == *name), "{name} is empty"),
        }
    }
    samples
}

fn check_histogram(name: &str, samples: &[Sample]) {
    let counts: Vec<&Sample> = of(samples, &format!("{name}_count"));
    assert!(!counts.is_empty(), "{name} is empty");
    for count in counts {
        let buckets = of(samples, &format!("{name}_bucket"));
        let mut last = (f64::NEG_INFINITY, 0.0);
        for bucket in buckets {
            let mut labels = bucket.labels.clone();
            let up_to: f64 = labels.remove("le").unwrap().parse().unwrap();
            if labels != count.labels {
                continue;
            }
            assert!(up_to > last.0 && bucket.value >= last.1, "{bucket:?}");
            last = (up_to, bucket.value);
        }
        assert_eq!(last, (f64::INFINITY, count.value), "{name}");
        let sums = of(samples, &format!("{name}_sum"));
        assert!(sums.iter().any(|s| s.labels == count.labels), "{name}");
    }
}

pub(crate) fn of<'a>(samples: &'a [Sample], name: &str) -> Vec<&'a Sample> {
    samples.iter().filter(|s| s.name == name).collect()
}

/// The value of this mount with this label, if there is one.
pub(crate) fn at(samples: &[Sample], name: &str, dir: &str, label: Option<(&str, &str)>) -> f64 {
    let is = |s: &&&Sample| {
        s.labels["mountpoint"] == dir
            && label.is_none_or(|(name, value)| s.labels.get(name).is_some_and(|l| l == value))
    };
    let all = of(samples, name);
    let found: Vec<&&Sample> = all.iter().filter(is).collect();
    assert_eq!(found.len(), 1, "{name} {label:?}: {found:?}");
    found[0].value
}
