//! Tests of `stetfs bench compare --setup` with features that only mounts of StetFS have:
//! compression, and whole writes for databases.

use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;
use stetfs_testkit::wait_until;

use crate::common::daemon::{BINARY, fails, json};
use rustix::process::{Pid, Signal, kill_process};
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

    // A whole copy is on the device when its time ends.
    for value in metric(&report, "copy, incompressible") {
        let written = value["device"]["written_kib"].as_f64().unwrap();
        assert!(written > 1_000.0, "{written} KiB of a mebibyte");
    }
    // Several clients may share a commit, but each transaction needs one.
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

/// The benchmark serves the simulated devices itself: an immediate end would leave mounts that
/// cannot be taken down.
#[test]
fn an_interrupted_run_takes_everything_down() {
    let line = "bench compare --setup --model sata-ssd --image-size 256 --journal-size 16 --quick -r 1000 -w append-fsync \
                --kernel fast-commit --stetfs journal=ldj";
    let bench = Command::new(BINARY)
        .args(line.split_whitespace())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let traces = format!("/stetfs-test-{}-", bench.id());
    let left = || {
        let mounts = std::fs::read_to_string("/proc/mounts").unwrap();
        mounts.matches(&traces).count()
    };
    // Two devices, with a file system on each.
    wait_until("it mounts", || left() >= 4);
    thread::sleep(Duration::from_millis(300));
    let pid = Pid::from_raw(bench.id() as i32).unwrap();
    kill_process(pid, Signal::INT).unwrap();
    let out = bench.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(130), "{said}");
    assert!(said.contains("interrupted"), "{said}");
    assert_eq!(left(), 0);
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

/// On an XFS of its own an image can share its blocks; the counted writes are those of XFS.
#[test]
fn an_image_on_xfs_shares() {
    let line = "bench compare --setup --xfs --image-size 512 --journal-size 4 --quick -r 1 -w overwrite-fdatasync --syncs 2000 \
                --kernel ordered --stetfs journal=afs";
    let report = json(&line.split_whitespace().collect::<Vec<_>>());
    let values = metric(&report, "overwrite 4 KiB + fdatasync, p50");
    let log = &values[1]["log"];
    let [shared, copied] = ["shared", "copied"].map(|how| log[how].as_f64().unwrap());
    assert!(shared > 1_000.0 && copied == 0.0, "{log}");
    for value in values {
        let flushes = value["device"]["flushes"].as_f64().unwrap();
        assert!(
            flushes > 0.5,
            "each sync reaches the disk below XFS: {value}"
        );
    }
}

/// Nothing is prepared for a figure that does not run on XFS.
#[test]
fn what_is_not_mounted_is_not_run_on_xfs() {
    for figure in ["afs-3-5", "ldj-recovery", "zjournal"] {
        let words = ["bench", "figure", figure, "--device", "xfs"];
        fails(&words, 2, &["not run on xfs"]);
    }
}

/// A recovery that shares reads each image once and writes none; one that copies reads them twice.
/// A small log supports no claim.
#[test]
fn a_recovery_that_shares_is_measured_beside_one_that_copies() {
    let line = "bench figure afs-recovery --quick --device nvme-ssd";
    let figure = json(&line.split(' ').collect::<Vec<_>>());
    let parts = figure["parts"].as_array().unwrap();
    assert_eq!(
        parts.len(),
        4,
        "runs of two lengths, on a new and an aged device"
    );
    for part in parts {
        let title = part["title"].as_str().unwrap();
        assert!(title.ends_with("a small log: no claim"), "{title}");
        let ratio = |title| metric(&part["report"], title)[1]["ratio"].as_f64().unwrap();
        assert!(ratio("recovery") < 0.6, "{part:#}");
        assert!((0.5..0.7).contains(&ratio("of it reads")), "{part:#}");
        assert_eq!(ratio("blocks written home"), 0.0, "{part:#}");
    }
}
