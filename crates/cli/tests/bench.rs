//! `stetfs bench compare --setup` as a user runs it, on what only mounts of StetFS have: packing, and whole writes for databases.

#![allow(clippy::unwrap_used)]

mod common;

use common::daemon::{fails, json};
use serde_json::Value;

#[track_caller]
fn metric<'r>(report: &'r Value, title: &str) -> &'r Vec<Value> {
    let metrics = report["metrics"].as_array().unwrap();
    let found = metrics.iter().find(|m| m["title"] == title);
    found.unwrap_or_else(|| panic!("no {title}: {report:#}"))["values"]
        .as_array()
        .unwrap()
}

#[test]
fn packing_and_full_pages_are_told() {
    let out = tempfile::tempdir().unwrap();
    let out = out.path().join("out");
    let line = format!(
        "bench compare --setup --image-size 256 --journal-size 16 --quick -r 1 -w postmark -w copy -w oltp \
         --postmark-files 300 --postmark-transactions 900 --clients 2 --scale 1 --copy-size 10 \
         --stetfs journal=ordered --stetfs journal=ldj,direct_io --out {}",
        out.display()
    );
    let report = json(&line.split_whitespace().collect::<Vec<_>>());
    let (kernel, ordered, ldj) = (0, 2, 3);

    let ratio =
        |title: &str, target: usize| metric(&report, title)[target]["log"]["ratio"].as_f64();
    assert_eq!(ratio("PostMark, transactions", kernel), None);
    assert!(ratio("PostMark, transactions", ordered).unwrap() >= 1.0);
    let packed = ratio("PostMark, transactions", ldj).unwrap();
    assert!(
        (0.05..0.8).contains(&packed),
        "pieces of the same text pack: {packed}"
    );
    let packed = ratio("copy, incompressible", ldj).unwrap();
    assert!(
        (0.9..1.1).contains(&packed),
        "random bytes do not: {packed}"
    );
    let log = &metric(&report, "PostMark, transactions")[ldj]["log"];
    assert!(log["micros"].as_f64().unwrap() > 0.0 && log["commits"].as_f64().unwrap() >= 1.0);

    // All of a copy is on the device when its time ends.
    for value in metric(&report, "copy, incompressible") {
        let written = value["device"]["written_kib"].as_f64().unwrap();
        assert!(written > 1_000.0, "{written} KiB of a mebibyte");
    }
    // Several clients may share a commit, but none goes without one.
    for value in metric(&report, "PostgreSQL, 2 clients") {
        assert!(value["median"].as_f64().unwrap() > 0.0);
        assert!(
            value["device"]["flushes"].as_f64().unwrap() > 0.4,
            "{value}"
        );
    }
    let note = report["notes"][0].as_str().unwrap();
    assert!(
        note.contains("(stetfs ldj,direct_io), on elsewhere"),
        "{note}"
    );
    let svg = std::fs::read_to_string(out.join("compare.svg")).unwrap();
    assert!(svg.contains("packed "), "the figure has table 2");
}

#[test]
fn wrong_settings_are_explained() {
    for (more, words) in [
        ("--postmark-sizes 9-8", "larger than"),
        ("--scale 0", "scale"),
        ("--clients 2000", "1 to 1000"),
    ] {
        let line = format!("bench compare a=/tmp -w names-1 {more}");
        fails(&line.split(' ').collect::<Vec<_>>(), 2, &[words]);
    }
}
