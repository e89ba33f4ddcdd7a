//! Tests of `stetfs flash`: traces, runs, figures.
use std::path::Path;

use crate::common::daemon::{fails, json, ok};

fn path(dir: &Path, name: &str) -> String {
    dir.join(name).to_str().unwrap().to_owned()
}

#[test]
fn a_trace_is_converted_and_run() {
    let dir = tempfile::tempdir().unwrap();
    let (text, trace) = (path(dir.path(), "t.csv"), path(dir.path(), "t.trace"));
    let lines: String = (0..2000)
        .map(|i| {
            format!(
                "{i}.5,{},{}\n",
                if i % 3 == 0 { 'R' } else { 'W' },
                i * 37 % 900
            )
        })
        .collect();
    std::fs::write(&text, lines).unwrap();
    let info = json(&["flash", "trace", "convert", &text, "-o", &trace]);
    assert_eq!(info["requests"], 2000);
    assert_eq!(info, json(&["flash", "trace", "info", &trace]));
    let run = [
        "flash",
        "run",
        &trace,
        "--cache",
        "1M",
        "--capacity",
        "64M",
        "--erase-block",
        "256K",
        "--fresh",
    ];
    let all = json(&run);
    let outcomes = all["outcomes"].as_array().unwrap();
    assert_eq!(outcomes.len(), 10);
    for outcome in outcomes {
        let cache = &outcome["cache"];
        assert_eq!(outcome["pages"], 2000);
        assert_eq!(
            cache["hits"].as_u64().unwrap() + cache["misses"].as_u64().unwrap(),
            2000
        );
        assert_eq!(cache["writes"], outcome["device"]["flash"]["host_writes"]);
    }
    let one = json(&[&run[..], &["--policy", "ts-clock,lru", "--ftl", "page"]].concat());
    assert_eq!(one["outcomes"][0]["policy"], "ts-clock");
    assert_eq!(one["outcomes"].as_array().unwrap().len(), 2);
    // With one log block more erase blocks are erased than with eight.
    let erases = |ftl: &str| {
        let one = json(&[&run[..], &["--policy", "lru", "--ftl", ftl]].concat());
        one["outcomes"][0]["device"]["flash"]["erases"]
            .as_u64()
            .unwrap()
    };
    assert!(erases("bast,logs=1") > erases("bast,logs=8"));
}

#[test]
fn what_cannot_be_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let text = path(dir.path(), "t.csv");
    std::fs::write(&text, "1,R,5\n2,Q,5\n").unwrap();
    for (args, expected) in [
        (&["flash", "run", &text][..], "line 2"),
        (
            &[
                "flash",
                "run",
                "video",
                "--part",
                "0.01",
                "--capacity",
                "64M",
                "--fresh",
            ],
            "the trace reaches",
        ),
        (&["flash", "run", "video", "--policy", "best"], "gd-erase"),
        (&["flash", "figure", "2-1", "--cuts"], "figures 2-4"),
        (&["flash", "figure", "2-6", "--ftl", "bast"], "figures 2-4"),
        (&["flash", "figure", "2-1", "--caches", "4"], "figures 2-4"),
        (&["flash", "figure", "2-4", "--traces", "wal"], "layers"),
        (&["flash", "run", "video", "--ftl", "bast,logs=0"], "bast"),
    ] {
        fails(args, 1, &[expected]);
    }
    fails(&["flash", "run", "nothing.csv"], 3, &["nothing.csv"]);
}

#[test]
fn a_figure_has_the_papers_numbers_beside_ours() {
    let dir = tempfile::tempdir().unwrap();
    let out = path(dir.path(), "figures");
    let figure = json(&["flash", "figure", "2-5", "--quick", "--out", &out]);
    assert_eq!(figure["name"], "2-5");
    assert_eq!(figure["panels"][0]["series"].as_array().unwrap().len(), 10);
    let svg = std::fs::read_to_string(Path::new(&out).join("flash-2-5.svg")).unwrap();
    assert!(svg.contains("ts-clock") && svg.contains("</svg>"));
    assert!(svg.contains("cache and erase block 4 MiB; seed 1") && svg.contains("The paper:"));
    let text = ok(&["flash", "figure", "2-10", "--quick"]);
    for said in [
        "The paper: LRU and CFLRU write at random places",
        "What it says of the claims does not count",
    ] {
        assert!(text.contains(said), "{text}");
    }
}

#[test]
fn cleaning_by_copies_and_by_shares_moves_the_same() {
    let figure = json(&["flash", "figure", "3-10", "--quick"]);
    let moved = &figure["panels"][0]["series"];
    assert_eq!(moved[0]["points"], moved[1]["points"]);
    let points = moved[0]["points"].as_array().unwrap();
    // With a flush every 8 writes all pages are written in place, and there is nothing to clean.
    let counts: Vec<f64> = points.iter().map(|p| p[1].as_f64().unwrap()).collect();
    assert!(
        counts[0] == 0.0 && counts[1..].iter().all(|n| *n > 0.0),
        "{counts:?}"
    );
    let speed = &figure["panels"][1]["series"][0]["points"];
    assert_eq!(speed.as_array().unwrap().len(), counts.len());
}
