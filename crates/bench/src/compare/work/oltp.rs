//! Small transactions on PostgreSQL, by pgbench: each changes a row of three tables and adds one to a fourth, and is durable
//! when it returns.

use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::{Measured, Meter, Outcome, Shared, checked, output};
use crate::compare::report::Better;
use crate::compare::{Sizes, Target};

/// The server's memory for pages: less than the tables, so that pages are written all the time.
const BUFFERS: &str = "16MB";
/// Bytes of write-ahead log between checkpoints: several in a round, as over hours with the default.
const LOG: &str = "128MB";

/// Whether the server may leave out full images of pages in its log: where its writes of pages cannot be torn.
fn full_page_writes(target: &Target) -> bool {
    !target.whole_writes()
}

/// Which targets have which setting.
pub(super) fn note(targets: &[Target]) -> String {
    let with = |on: bool| -> Vec<&str> {
        let same = targets.iter().filter(|t| full_page_writes(t) == on);
        same.map(Target::name).collect()
    };
    let (on, off) = (with(true), with(false));
    let mut out = "OLTP: full_page_writes is ".to_owned();
    match (on.is_empty(), off.is_empty()) {
        (_, true) => out.push_str("on everywhere"),
        (true, _) => {
            out.push_str("off everywhere: a write of a page is whole or absent after a crash")
        }
        _ => {
            out.push_str("off where a write of a page is whole or absent after a crash (");
            out.push_str(&off.join(", "));
            out.push_str("), on elsewhere");
        }
    }
    out
}

/// What pgbench says of a run.
struct Run {
    transactions: u32,
    per_second: f64,
}

impl Run {
    fn read(printed: &str) -> Option<Self> {
        // "number of transactions actually processed: 812", with "/1000" if a number was asked for.
        let after = |what: &str| {
            printed
                .lines()
                .filter_map(|l| l.strip_prefix(what))
                .next_back()
        };
        let transactions = after("number of transactions actually processed: ")?;
        let per_second = after("tps = ")?;
        Some(Self {
            transactions: transactions.split('/').next()?.trim().parse().ok()?,
            per_second: per_second.split(' ').next()?.parse().ok()?,
        })
    }
}

pub(super) fn pgbench(
    target: &Target,
    dir: &Path,
    sizes: &Sizes,
    shared: &Shared,
) -> Result<Outcome> {
    let (postgres, clients) = (shared.postgres()?, sizes.oltp.clients);
    let data = dir.join("data");
    postgres.init(&data)?;
    let on = |yes: bool| if yes { "on" } else { "off" }.to_owned();
    let settings = [
        ("shared_buffers", BUFFERS.to_owned()),
        ("max_wal_size", LOG.to_owned()),
        ("max_connections", (clients + 10).to_string()),
        ("fsync", on(true)),
        ("synchronous_commit", on(true)),
        ("full_page_writes", on(full_page_writes(target))),
        // Rounds are to be alike.
        ("autovacuum", on(false)),
    ];
    let server = postgres.start(&data, &settings)?;
    let scale = sizes.oltp.scale.to_string();
    checked(server.client("pgbench").args(["-i", "-q", "-s", &scale]))?;
    let ask = |query: &str| output(server.client("psql").args(["-qAtXc", query]));
    ask("CHECKPOINT")?;

    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = threads.min(clients as usize).to_string();
    let (clients_text, seconds) = (
        clients.to_string(),
        sizes.profile_seconds.max(1).to_string(),
    );
    let meter = Meter::start(target)?;
    let printed = output(server.client("pgbench").args([
        "-n",
        "-M",
        "prepared",
        "-c",
        &clients_text,
        "-j",
        &threads,
        "-T",
        &seconds,
    ]))?;
    let run = Run::read(&printed).with_context(|| format!("pgbench printed: {printed}"))?;
    let below = meter.below(f64::from(run.transactions))?;

    let rows = ask("SELECT count(*) FROM pgbench_history")?;
    ensure!(
        run.transactions > 0 && rows.trim() == run.transactions.to_string(),
        "pgbench ran {} transactions, and the table has {} rows",
        run.transactions,
        rows.trim()
    );
    server.stop()?;
    Ok(vec![Measured {
        title: format!("PostgreSQL, {clients} clients"),
        unit: "tx/s",
        better: Better::Higher,
        value: run.per_second,
        below,
    }])
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
        assert_eq!(run.transactions, 812);
        assert!((run.per_second - 811.25).abs() < 1e-9);
        let old = "number of transactions actually processed: 80/80\ntps = 79.5 (including connections establishing)\n\
            tps = 80.5 (excluding connections establishing)\n";
        let run = Run::read(old).unwrap();
        assert_eq!(run.transactions, 80);
        assert!((run.per_second - 80.5).abs() < 1e-9);
        assert!(Run::read("pgbench: error").is_none());
    }

    #[test]
    fn the_setting_is_told() {
        let target = |name: &str, whole| Target::new(name, "/tmp").with_whole_writes(whole);
        let text = note(&[target("kernel", false), target("ours", true)]);
        assert!(text.contains("(ours), on elsewhere"), "{text}");
        assert!(note(&[target("a", false)]).ends_with("on everywhere"));
        assert!(note(&[target("a", true)]).contains("off everywhere"));
    }
}
