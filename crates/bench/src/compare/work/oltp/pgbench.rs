//! PostgreSQL under pgbench.

use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::super::database::{Server, postgres};
use super::super::measured::{Meter, Outcome};
use super::super::shared::Shared;
use super::loads::Load;
use super::{done, protection};
use crate::compare::program::{checked, output};
use crate::compare::{Oltp, Sizes, Target};

/// The server's page cache: smaller than the tables, so that pages are written all the time.
const BUFFERS: &str = "16MB";
/// Bytes of write-ahead log between checkpoints: several checkpoints in a round, as in hours with
/// the default.
const LOG: &str = "128MB";

/// The sync method of its log: a write and its sync are one call, and one request if each request
/// is a round trip to another process. The kernel's file systems are not slower with it than with
/// the default, `fdatasync`.
const SYNC: &str = "open_datasync";

/// The settings of the targets' servers.
pub(in super::super) fn note(targets: &[Target]) -> String {
    let protection = protection("full_page_writes", targets);
    format!("PostgreSQL: wal_sync_method is {SYNC}; {protection}")
}

/// The results that pgbench prints.
struct Run {
    transactions: u32,
    /// Transactions of the first script, if there are several.
    first: Option<u32>,
    per_second: f64,
}

impl Run {
    fn read(printed: &str) -> Option<Self> {
        // "number of transactions actually processed: 812", with "/1000" if a number was requested.
        let after = |what: &str| {
            printed
                .lines()
                .filter_map(|l| l.strip_prefix(what))
                .next_back()
        };
        let transactions = after("number of transactions actually processed: ")?;
        let per_second = after("tps = ")?;
        // " - 406 transactions (50.0% of total, tps = 405.3)", a line for each script in their
        // order.
        let of_scripts = |l: &str| {
            let (number, rest) = l.strip_prefix(" - ")?.split_once(' ')?;
            rest.starts_with("transactions (")
                .then(|| number.parse().ok())?
        };
        Some(Self {
            transactions: transactions.split('/').next()?.trim().parse().ok()?,
            first: printed.lines().find_map(of_scripts),
            per_second: per_second.split(' ').next()?.parse().ok()?,
        })
    }
}

/// Makes the tables of a load; they are on the device when this returns.
fn fill(server: &Server<'_>, load: &Load, scale: &str) -> Result<()> {
    match load.tables {
        None => checked(postgres::client(server, "pgbench").args(["-i", "-q", "-s", scale]))?,
        Some(tables) => {
            let script = server.place("tables.sql", tables)?;
            let variable = format!("scale={scale}");
            let mut psql = postgres::client(server, "psql");
            psql.args(["-qAtX1", "-v", "ON_ERROR_STOP=1", "-v", &variable, "-f"]);
            checked(psql.arg(script))?;
            ask(server, "ANALYZE")?;
        }
    }
    ask(server, "CHECKPOINT").map(drop)
}

fn ask(server: &Server<'_>, query: &str) -> Result<String> {
    output(postgres::client(server, "psql").args(["-qAtXc", query]))
}

fn bench(server: &Server<'_>, load: &Load, size: Oltp, scale: &str) -> Result<Run> {
    // pgbench counts transactions of several scripts without a lock between its threads, so some
    // would be missing.
    let threads = match load.scripts.len() {
        0 | 1 => std::thread::available_parallelism().map_or(1, usize::from),
        _ => 1,
    };
    let threads = threads.min(size.clients as usize);
    let mut pgbench = postgres::client(server, "pgbench");
    pgbench.args(["-n", "-M", "prepared"]);
    for (option, value) in [
        ("-c", size.clients.to_string()),
        ("-j", threads.to_string()),
        ("-T", size.seconds.to_string()),
        ("-D", format!("scale={scale}")),
    ] {
        pgbench.args([option, &value]);
    }
    for (i, script) in load.scripts.iter().enumerate() {
        let path = server.place(&format!("{i}.sql"), script.text)?;
        let weighted = format!("{}@{}", path.display(), script.weight);
        pgbench.args(["-f", &weighted]);
    }
    let printed = output(&mut pgbench)?;
    Run::read(&printed).with_context(|| format!("pgbench printed: {printed}"))
}

pub(in super::super) fn run(
    target: &Target,
    dir: &Path,
    sizes: &Sizes,
    shared: &Shared,
    load: &Load,
) -> Result<Outcome> {
    let (programs, clients) = (shared.postgres()?, sizes.oltp.clients);
    let data = dir.join("data");
    postgres::init(programs, &data)?;
    let on = |yes: bool| if yes { "on" } else { "off" }.to_owned();
    let settings = [
        ("shared_buffers", BUFFERS.to_owned()),
        ("max_wal_size", LOG.to_owned()),
        ("max_connections", (clients + 10).to_string()),
        ("fsync", on(true)),
        ("wal_sync_method", SYNC.to_owned()),
        ("synchronous_commit", on(true)),
        ("full_page_writes", on(target.protects())),
        // Rounds must be alike.
        ("autovacuum", on(false)),
    ];
    let server = postgres::start(programs, &data, &settings)?;
    let scale = sizes.oltp.scale.to_string();
    fill(&server, load, &scale)?;

    let meter = Meter::start(target)?;
    let run = bench(&server, load, sizes.oltp, &scale)?;
    let below = meter.below(f64::from(run.transactions))?;

    let told = run.first.unwrap_or(run.transactions);
    let known = ask(&server, load.done)?;
    let known: u64 = known
        .trim()
        .parse()
        .with_context(|| format!("a count, not {known:?}"))?;
    // Each client may end between a commit and counting it.
    let told = u64::from(told);
    ensure!(
        told > 0 && (told..=told + u64::from(clients)).contains(&known),
        "pgbench ran {told} transactions, and the tables know of {known}"
    );
    server.stop()?;
    Ok(done(load.title, sizes.oltp, run.per_second, below))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn what_pgbench_prints() {
        let new = "pgbench (15.4)\nnumber of transactions actually processed: 812\nnumber of failed transactions: 0 (0.000%)\n\
            latency average = 9.8 ms\ninitial connection time = 5.1 ms\ntps = 811.25 (without initial connection time)\n";
        let run = Run::read(new).unwrap();
        assert_eq!((run.transactions, run.first), (812, None));
        assert!((run.per_second - 811.25).abs() < 1e-9);
        let mixed = "number of transactions actually processed: 812\ntps = 811.25 (without initial connection time)\n\
            SQL script 1: /a b\n - weight: 1 (targets 50.0% of total)\n - 406 transactions (50.0% of total, tps = 405.3)\n\
            SQL script 2: /c\n - weight: 1 (targets 50.0% of total)\n - 401 transactions (49.9% of total, tps = 404.3)\n";
        assert_eq!(Run::read(mixed).unwrap().first, Some(406));
        let old = "number of transactions actually processed: 80/80\ntps = 79.5 (including connections establishing)\n\
            tps = 80.5 (excluding connections establishing)\n";
        let run = Run::read(old).unwrap();
        assert_eq!(run.transactions, 80);
        assert!((run.per_second - 80.5).abs() < 1e-9);
        assert!(Run::read("pgbench: error").is_none());
    }
}
