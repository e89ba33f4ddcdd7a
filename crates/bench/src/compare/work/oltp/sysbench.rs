//! MariaDB under sysbench.

use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::super::database::{Server, mariadb};
use super::super::{Meter, Outcome, Shared, output};
use super::{done, pages_can_tear, protection};
use crate::compare::{Oltp, Sizes, Target};

/// Its best-known load: ten reads by key, four of ranges, two updates, a deletion and an insertion a transaction.
const LOAD: &str = "oltp_read_write";
const DATABASE: &str = "bench";
const TABLES: u32 = 4;
/// Rows of a table by the scale: 10 makes tables of about 50 MB in all, with their index.
const ROWS: u32 = 5_000;
/// The server's memory for pages: less than the tables, so that pages are written all the time.
const BUFFERS: &str = "32M";
/// Bytes of redo log: several times around in a round, as over hours with the default.
const LOG: &str = "32M";
/// How it writes its pages. The kernel's file systems are faster with their cache below the server than with the default, `O_DIRECT`.
const FLUSH: &str = "fsync";

/// How the targets' servers are set.
pub(in super::super) fn note(targets: &[Target]) -> String {
    let protection = protection("innodb_doublewrite", targets);
    format!("MariaDB: innodb_flush_method is {FLUSH}; {protection}")
}

/// What sysbench says of a run.
struct Run {
    transactions: u32,
    per_second: f64,
}

impl Run {
    fn read(printed: &str) -> Option<Self> {
        // "    transactions:                        10694  (534.28 per sec.)"
        let mut lines = printed.lines().map(str::trim);
        let line = lines.find_map(|l| l.strip_prefix("transactions:"))?;
        let (transactions, rate) = line.split_once('(')?;
        Some(Self {
            transactions: transactions.trim().parse().ok()?,
            per_second: rate.split(' ').next()?.parse().ok()?,
        })
    }
}

fn ask(server: &Server<'_>, statements: &str) -> Result<String> {
    output(&mut mariadb::client(server, statements))
}

/// A statement that counts rows, or reads a counter of the server.
fn count(server: &Server<'_>, statement: &str) -> Result<u64> {
    let printed = ask(server, statement)?;
    let last = printed.split_whitespace().next_back().unwrap_or_default();
    last.parse()
        .with_context(|| format!("a count, not {printed:?}"))
}

fn commits(server: &Server<'_>) -> Result<u64> {
    count(server, "SHOW GLOBAL STATUS LIKE 'Com_commit'")
}

/// All tables, each as `each` puts it.
fn tables(each: impl Fn(u32) -> String, between: &str) -> String {
    (1..=TABLES).map(each).collect::<Vec<_>>().join(between)
}

/// sysbench, for the tables of this size.
fn sysbench(server: &Server<'_>, size: Oltp, extra: &[String]) -> Result<String> {
    let mut command = mariadb::sysbench(server, LOAD, DATABASE);
    command
        .arg(format!("--tables={TABLES}"))
        .arg(format!("--table-size={}", rows(size)))
        .args(extra);
    output(&mut command)
}

fn rows(size: Oltp) -> u32 {
    size.scale * ROWS
}

/// Makes the tables, on the device when this returns.
fn fill(server: &Server<'_>, size: Oltp) -> Result<()> {
    ask(server, &format!("CREATE DATABASE {DATABASE}"))?;
    sysbench(server, size, &["prepare".to_owned()])?;
    let all = tables(|i| format!("{DATABASE}.sbtest{i}"), ", ");
    ask(server, &format!("FLUSH TABLES {all} FOR EXPORT")).map(drop)
}

fn bench(server: &Server<'_>, size: Oltp) -> Result<Run> {
    let options = [
        format!("--threads={}", size.clients),
        format!("--time={}", size.seconds),
        "run".to_owned(),
    ];
    let printed = sysbench(server, size, &options)?;
    Run::read(&printed).with_context(|| format!("sysbench printed: {printed}"))
}

pub(in super::super) fn run(
    target: &Target,
    dir: &Path,
    sizes: &Sizes,
    shared: &Shared,
) -> Result<Outcome> {
    let (programs, size) = (shared.mariadb()?, sizes.oltp);
    let data = dir.join("data");
    let on = |yes: bool| if yes { "ON" } else { "OFF" }.to_owned();
    let settings = [
        ("innodb-buffer-pool-size", BUFFERS.to_owned()),
        ("innodb-log-file-size", LOG.to_owned()),
        ("innodb-flush-method", FLUSH.to_owned()),
        ("innodb-flush-log-at-trx-commit", "1".to_owned()),
        ("innodb-doublewrite", on(pages_can_tear(target))),
        ("max-connections", (size.clients + 10).to_string()),
    ];
    mariadb::init(programs, &data, &settings)?;
    let server = mariadb::start(programs, &data, &settings)?;
    fill(&server, size)?;

    let before = commits(&server)?;
    let meter = Meter::start(target)?;
    let run = bench(&server, size)?;
    let below = meter.below(f64::from(run.transactions))?;

    let (told, known) = (u64::from(run.transactions), commits(&server)? - before);
    // Each client may end between a commit and counting it.
    ensure!(
        told > 0 && (told..=told + u64::from(size.clients)).contains(&known),
        "sysbench ran {told} transactions, and the server knows of {known}"
    );
    // Each transaction deletes a row and puts one in its place.
    let all = tables(
        |i| format!("SELECT id FROM {DATABASE}.sbtest{i}"),
        " UNION ALL ",
    );
    let left = count(&server, &format!("SELECT COUNT(*) FROM ({all}) a"))?;
    let made = u64::from(TABLES * rows(size));
    ensure!(left == made, "of {made} rows {left} are left");
    server.stop()?;
    Ok(done("MariaDB, sysbench", size, run.per_second, below))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn what_sysbench_prints() {
        let printed = "SQL statistics:\n    queries performed:\n        read:   149716\n\
            \x20   transactions:                        10694  (534.28 per sec.)\n\
            \x20   queries:                             213880 (10685.60 per sec.)\n";
        let run = Run::read(printed).unwrap();
        assert_eq!(run.transactions, 10694);
        assert!((run.per_second - 534.28).abs() < 1e-9);
        assert!(Run::read("FATAL: unable to connect").is_none());
    }
}
