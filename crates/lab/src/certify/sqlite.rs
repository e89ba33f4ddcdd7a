//! SQLite in WAL mode on a mount: its processes share memory.

use std::path::Path;
use std::process::{Command, Stdio};

use super::page::Section;

/// Number of processes, and of rows that each adds.
const PROCESSES: usize = 3;
const ROWS: usize = 100;

fn sqlite(database: &Path, sql: &str) -> std::io::Result<std::process::Child> {
    Command::new("sqlite3")
        .args(["-batch", "-bail", "-cmd", ".timeout 20000"])
        .arg(database)
        .arg(sql)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
}

/// Lets several processes add rows to one database in `dir` at once.
pub(super) fn section(dir: &Path, objections: &mut Vec<String>) -> Section {
    let how = format!("{PROCESSES} processes of sqlite3 add {ROWS} rows each, all at once");
    let mut section = Section::new("SQLite, WAL with shared memory", how);
    match try_it(&dir.join("certify.db")) {
        Ok(None) => section.row(
            "processes together",
            "every row is there; the database is whole",
        ),
        Ok(Some(wrong)) => {
            objections.push(format!("SQLite's WAL with several processes: {wrong}"));
            section.row("processes together", wrong);
        }
        Err(e) => section.row("not tried", format!("sqlite3: {e}")),
    }
    section
}

/// The fault that was found, if any.
fn try_it(database: &Path) -> std::io::Result<Option<String>> {
    let run = |sql: &str| -> std::io::Result<String> {
        let out = sqlite(database, sql)?.wait_with_output()?;
        let said = if out.status.success() {
            out.stdout
        } else {
            out.stderr
        };
        Ok(String::from_utf8_lossy(&said).trim().to_owned())
    };
    let made = run("PRAGMA journal_mode=WAL; CREATE TABLE t(who, n);")?;
    if made != "wal" {
        return Ok(Some(format!("SQLite cannot use it: {made}")));
    }
    let add = |who: usize| {
        let rows = (0..ROWS).map(|n| format!("INSERT INTO t VALUES({who},{n});"));
        sqlite(database, &rows.collect::<String>())
    };
    let all: Vec<_> = (0..PROCESSES).map(add).collect::<Result<_, _>>()?;
    for process in all {
        let out = process.wait_with_output()?;
        if !out.status.success() {
            return Ok(Some(String::from_utf8_lossy(&out.stderr).trim().to_owned()));
        }
    }
    let found = run("PRAGMA integrity_check; SELECT count(DISTINCT who*1000+n) FROM t;")?;
    let wanted = format!("ok\n{}", PROCESSES * ROWS);
    Ok((found != wanted).then(|| format!("wanted {wanted:?}, found {found:?}")))
}
