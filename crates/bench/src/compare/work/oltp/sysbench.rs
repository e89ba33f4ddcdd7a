//! MariaDB under sysbench.

use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::super::database::{Server, mariadb};
use super::super::measured::{Meter, Outcome};
use super::super::shared::Shared;
use super::{done, protection};
use crate::compare::program::output;
use crate::compare::{Oltp, Sizes, Target};

const DATABASE: &str = "bench";
/// The server's page cache: smaller than the tables, so that pages are written all the time.
const BUFFERS: &str = "32M";
/// Bytes of redo log: it wraps several times in a round, as in hours with the default.
const LOG: &str = "32M";
/// The method of writing pages. The kernel's file systems are faster with their cache below the
/// server than with the default, `O_DIRECT`.
const FLUSH: &str = "fsync";

/// A load of sysbench.
pub(in super::super) struct Load {
    /// The title in the report.
    title: &'static str,
    script: Script,
    /// Its tables, with their database.
    tables: &'static [&'static str],
    /// Rows per table (nodes for LinkBench) and unit of scale: scale 10 makes tables of about 50 MB
    /// in all, with their indexes.
    rows: u32,
    /// Fails unless the tables are as they must be after so many transactions, with that many
    /// commits.
    check: fn(&Server<'_>, Oltp, u64, u64) -> Result<()>,
}

enum Script {
    /// A script of sysbench, by its name.
    Own(&'static str),
    /// The text of a script.
    Lua(&'static str),
}

/// sysbench's best-known load: ten reads by key, four of ranges, two updates, a deletion and an
/// insertion per transaction.
pub(in super::super) const READ_WRITE: Load = Load {
    title: "MariaDB, sysbench",
    script: Script::Own("oltp_read_write"),
    tables: &[
        "bench.sbtest1",
        "bench.sbtest2",
        "bench.sbtest3",
        "bench.sbtest4",
    ],
    rows: 5_000,
    check: |server, size, told, known| {
        // Each client may end between a commit and counting it.
        ensure!(
            (told..=told + u64::from(size.clients)).contains(&known),
            "sysbench ran {told} transactions, and the server knows of {known}"
        );
        // Each transaction replaces the row that it deletes.
        let each = READ_WRITE.tables.iter();
        let each: Vec<String> = each.map(|t| format!("SELECT id FROM {t}")).collect();
        let all = each.join(" UNION ALL ");
        let left = count(server, &format!("SELECT COUNT(*) FROM ({all}) a"))?;
        let made = u64::from(READ_WRITE.tables.len() as u32 * READ_WRITE.rows * size.scale);
        ensure!(left == made, "of {made} rows {left} are left");
        Ok(())
    },
};

/// A load like LinkBench's: seven of ten operations are reads.
pub(in super::super) const LINKBENCH: Load = Load {
    title: "MariaDB, LinkBench mix",
    script: Script::Lua(include_str!("linkbench.lua")),
    tables: &["bench.nodetable", "bench.linktable", "bench.counttable"],
    rows: 4_000,
    check: |server, _, told, known| {
        ensure!(
            (1..=told).contains(&known),
            "of {told} operations {known} were transactions"
        );
        // A change of a link changes its count in the same transaction.
        let wrong = count(
            server,
            "SELECT COUNT(*) FROM bench.counttable c LEFT JOIN (SELECT id1, COUNT(*) n FROM bench.linktable \
             WHERE visibility = 1 GROUP BY id1) l ON c.id = l.id1 WHERE c.count <> COALESCE(l.n, 0)",
        )?;
        ensure!(
            wrong == 0,
            "{wrong} nodes have another number of links than is counted"
        );
        Ok(())
    },
};

/// The settings of the targets' servers.
pub(in super::super) fn note(targets: &[Target]) -> String {
    let protection = protection("innodb_doublewrite", targets);
    format!("MariaDB: innodb_flush_method is {FLUSH}; {protection}")
}

/// The results that sysbench prints.
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

/// Runs sysbench with its load, on tables of this size.
fn sysbench(server: &Server<'_>, load: &Load, size: Oltp, extra: &[String]) -> Result<String> {
    let script = match load.script {
        Script::Own(name) => name.to_owned(),
        Script::Lua(text) => server.place("load.lua", text)?.display().to_string(),
    };
    let mut command = mariadb::sysbench(server, &script, DATABASE);
    command
        .arg(format!("--tables={}", load.tables.len()))
        .arg(format!("--table-size={}", size.scale * load.rows))
        .args(extra);
    output(&mut command)
}

/// Makes the tables; they are on the device when this returns.
fn fill(server: &Server<'_>, load: &Load, size: Oltp) -> Result<()> {
    ask(server, &format!("CREATE DATABASE {DATABASE}"))?;
    sysbench(server, load, size, &["prepare".to_owned()])?;
    let all = load.tables.join(", ");
    ask(server, &format!("FLUSH TABLES {all} FOR EXPORT")).map(drop)
}

fn bench(server: &Server<'_>, load: &Load, size: Oltp) -> Result<Run> {
    let options = [
        format!("--threads={}", size.clients),
        format!("--time={}", size.seconds),
        "run".to_owned(),
    ];
    let printed = sysbench(server, load, size, &options)?;
    Run::read(&printed).with_context(|| format!("sysbench printed: {printed}"))
}

pub(in super::super) fn run(
    target: &Target,
    dir: &Path,
    sizes: &Sizes,
    shared: &Shared,
    load: &Load,
) -> Result<Outcome> {
    let (programs, size) = (shared.mariadb()?, sizes.oltp);
    let data = dir.join("data");
    let on = |yes: bool| if yes { "ON" } else { "OFF" }.to_owned();
    let settings = [
        ("innodb-buffer-pool-size", BUFFERS.to_owned()),
        ("innodb-log-file-size", LOG.to_owned()),
        ("innodb-flush-method", FLUSH.to_owned()),
        ("innodb-flush-log-at-trx-commit", "1".to_owned()),
        ("innodb-doublewrite", on(target.protects())),
        ("max-connections", (size.clients + 10).to_string()),
    ];
    mariadb::init(programs, &data, &settings)?;
    let server = mariadb::start(programs, &data, &settings)?;
    fill(&server, load, size)?;

    let before = commits(&server)?;
    let meter = Meter::start(target)?;
    let run = bench(&server, load, size)?;
    let below = meter.below(f64::from(run.transactions))?;

    let (told, known) = (u64::from(run.transactions), commits(&server)? - before);
    ensure!(told > 0, "sysbench ran nothing");
    (load.check)(&server, size, told, known)?;
    server.stop()?;
    Ok(done(load.title, size, run.per_second, below))
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
