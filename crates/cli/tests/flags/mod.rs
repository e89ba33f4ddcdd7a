//! The flag matrix: every inode flag, mount option and feature that promises or refuses something,
//! with every operation that has to honour it, and with a crash where durability is the promise.
//!
//! The expected results are those of the kernel, recorded by `scripts/flag-matrix` (`kernel.txt`).
//! `exceptions.txt` lists the cells that may differ, each with its reason; a listed cell that no
//! longer differs fails the test.

mod forms;
mod ops;
mod rows;
mod run;
mod table;

use std::collections::BTreeSet;
use std::path::Path;

use crate::common::stetfs_with;
use rows::Row;
use run::Subject;
use stetfs_testkit::Mounter;
use table::Table;

const KERNEL: &str = include_str!("kernel.txt");
const EXCEPTIONS: &str = include_str!("exceptions.txt");

/// Rows with these names (`*` at the end matches any ending), of the standard rows or, with
/// `STETFS_FLAGS=all`, of all rows.
fn rows(names: &str) -> Vec<Row> {
    let long = std::env::var_os("STETFS_FLAGS").is_some_and(|rows| rows == "all");
    let all = rows::all().into_iter();
    all.filter(|row| matches(names, &row.name) && (long || !row.long))
        .collect()
}

/// The first two columns of lines `ROWS<tab>OPERATIONS<tab>REASON`.
fn exceptions() -> Vec<(&'static str, &'static str)> {
    let lines = EXCEPTIONS
        .lines()
        .filter(|l| !l.is_empty() && !l.starts_with('#'));
    lines
        .map(|line| {
            let fields: Vec<&str> = line.split('\t').collect();
            assert!(
                fields.len() == 3 && !fields[2].is_empty(),
                "no reason: {line:?}"
            );
            (fields[0], fields[1])
        })
        .collect()
}

/// Whether a list of names, and of beginnings of names with `*`, contains this one.
fn matches(list: &str, name: &str) -> bool {
    list.split(", ").any(|one| match one.strip_suffix('*') {
        Some(beginning) => name.starts_with(beginning),
        None => one == name,
    })
}

/// Runs the rows on StetFS with these options, and fails with all cells that fall short of the
/// kernel's.
#[track_caller]
fn honours(rows: &[Row], options: &'static str) {
    let subject = Subject {
        mounter: stetfs_with,
        options,
    };
    let (table, ops, exceptions) = (Table::read(KERNEL), ops::all(), exceptions());
    let (mut wrong, mut cells) = (Vec::new(), 0);
    let mut needed = BTreeSet::new();
    let mut asked = BTreeSet::new();
    for row in rows {
        for (op, outcome) in run::run(row, &ops, &subject) {
            cells += 1;
            let kernel = table.cell(&row.name, &op).unwrap_or_else(|| {
                panic!("{}, {op}: not recorded; run scripts/flag-matrix", row.name)
            });
            let short = outcome.falls_short_of(kernel);
            let exception = exceptions
                .iter()
                .find(|(r, o)| matches(r, &row.name) && matches(o, &op));
            match (short, exception) {
                (None, None) => {}
                (Some(short), None) => wrong.push(format!("{}, {op}\n    {short}", row.name)),
                (Some(_), Some(e)) => {
                    asked.insert(e);
                    needed.insert(e);
                }
                (None, Some(e)) => {
                    asked.insert(e);
                }
            }
        }
    }
    for (row, op) in asked.difference(&needed) {
        wrong.push(format!("{row}, {op}: an exception that nothing needs"));
    }
    println!("{cells} cells");
    assert!(
        wrong.is_empty(),
        "{options}: {} of {cells} cells\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

#[test]
fn plain_files_and_each_flag() {
    honours(&rows("plain"), "");
}

#[test]
fn flags_of_files() {
    honours(&rows("file *"), "");
}

#[test]
fn flags_of_directories() {
    honours(&rows("directory *"), "");
}

#[test]
fn options_of_mounts() {
    honours(&rows("-o *"), "");
}

#[test]
fn options_and_features_of_volumes() {
    honours(&rows("tune2fs *, -O *"), "");
}

/// Synchronous files and directories are durable at once with other logs, …
#[test]
fn what_is_synchronous_with_other_logs() {
    honours(&rows(SYNCHRONOUS), "journal=ldj,sync=file");
    honours(&rows(SYNCHRONOUS), "journal=ijournal");
}

/// … and with other modes of the kernel's cache.
#[test]
fn what_is_synchronous_with_other_caches() {
    honours(&rows("file +S"), "writeback_cache");
    honours(&rows("file +S"), "direct_io");
}

const SYNCHRONOUS: &str = "file +S, directory +S, directory +D, directory +ScDAdjt";

/// Records the kernel's results; run by `scripts/flag-matrix`.
#[test]
#[ignore = "asks the kernel, and writes kernel.txt"]
fn record() {
    let kernel = Subject {
        mounter: Mounter::ext4,
        options: "",
    };
    let ops = ops::all();
    let rows = rows::all().into_iter();
    let sections = rows.map(|row| {
        let begun = std::time::Instant::now();
        let cells = run::run(&row, &ops, &kernel);
        println!(
            "{}: {} cells in {:?}",
            row.name,
            cells.len(),
            begun.elapsed()
        );
        (row.name, cells)
    });
    let said = |program: &str, args: &[&str]| {
        let out = std::process::Command::new(program)
            .args(args)
            .output()
            .unwrap();
        String::from_utf8_lossy(&out.stdout).trim().to_owned()
    };
    let head = format!(
        "# What ext4 of Linux {} did on {}. Written by scripts/flag-matrix; not to be edited.\n\
         # [row], then: operation, result, changes, what a crash left. A row lists what differs from [plain].\n",
        said("uname", &["-r"]),
        said("date", &["-u", "+%Y-%m-%d"]),
    );
    let text = Table(sections.collect()).write(&head);
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/flags/kernel.txt");
    std::fs::write(file, text).unwrap();
}
