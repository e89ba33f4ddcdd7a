//! SQLite transactions of one row, through the `sqlite3` program.
//!
//! It uses the program, not the library, so that any build of SQLite can be measured, e.g. one with
//! batch atomic writes.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::measured::{Measured, Meter, Outcome};
use super::shared::Shared;
use crate::compare::Better;
use crate::compare::{Sizes, Target};

/// Number of rows before the start, so that the B-tree has some depth.
const ROWS: u32 = 10_000;

fn sqlite3(program: &Path, database: &Path, script: &str) -> Result<String> {
    let mut child = Command::new(program)
        .args(["-batch", "-bail"])
        .arg(database)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run {}", program.display()))?;
    // sqlite3 prints almost nothing while it reads, so writing all input first cannot block.
    if let Some(mut input) = child.stdin.take() {
        input.write_all(script.as_bytes())?;
    }
    let out = child.wait_with_output()?;
    ensure!(
        out.status.success(),
        "sqlite3 failed: {}",
        String::from_utf8_lossy(&out.stderr)
    );
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}

pub(super) fn transactions(
    target: &Target,
    dir: &Path,
    sizes: &Sizes,
    shared: &Shared,
    journal_mode: &str,
) -> Result<Outcome> {
    let database = dir.join("data.db");
    let prepare = format!(
        "PRAGMA journal_mode={journal_mode};\n\
         CREATE TABLE t(id INTEGER PRIMARY KEY, v BLOB);\n\
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {ROWS})\n\
         INSERT INTO t SELECT i, randomblob(100) FROM n;\n"
    );
    sqlite3(&shared.sqlite3, &database, &prepare)?;

    let insert = "INSERT INTO t(v) VALUES(randomblob(100));\n".repeat(sizes.transactions as usize);
    let script = format!("PRAGMA journal_mode={journal_mode};\nPRAGMA synchronous=FULL;\n{insert}");
    let meter = Meter::start(target)?;
    sqlite3(&shared.sqlite3, &database, &script)?;
    let value = f64::from(sizes.transactions) / meter.seconds();
    let below = meter.below(f64::from(sizes.transactions))?;
    let count = sqlite3(&shared.sqlite3, &database, "SELECT count(*) FROM t;\n")?;
    ensure!(
        count.trim() == (ROWS + sizes.transactions).to_string(),
        "the table has {} rows",
        count.trim()
    );
    Ok(vec![Measured {
        title: format!("SQLite {journal_mode}, FULL"),
        unit: "tx/s".into(),
        better: Better::Higher,
        value,
        below,
    }])
}
