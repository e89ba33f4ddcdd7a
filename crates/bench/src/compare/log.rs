//! What the journal of a StetFS mount did meanwhile, from `stetfs stat`.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::work::output;

/// The counters that are used, as `stetfs stat --json` gives them below `journal`.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(super) struct LogCounters {
    commits: u64,
    bytes_logged: u64,
    bytes_packed: u64,
    packing_micros: u64,
}

#[derive(Deserialize)]
struct Stat {
    journal: LogCounters,
}

impl LogCounters {
    /// Asks the server of the mount at `dir`; `stetfs` is the program to ask with.
    pub(super) fn ask(stetfs: &Path, dir: &Path) -> Result<Self> {
        let text = output(Command::new(stetfs).args(["stat", "--json"]).arg(dir))?;
        let stat: Stat = serde_json::from_str(&text)
            .with_context(|| format!("the counters of {}", dir.display()))?;
        Ok(stat.journal)
    }

    /// What was done since `earlier`; none if nothing was committed.
    pub(super) fn since(self, earlier: Self) -> Option<Packing> {
        // Counters start again with a remount.
        let since = |field: fn(&Self) -> u64| field(&self).checked_sub(field(&earlier));
        let commits = since(|c| c.commits)? as f64;
        let images = since(|c| c.bytes_packed)? as f64;
        (commits > 0.0 && images > 0.0).then_some(())?;
        Some(Packing {
            commits,
            ratio: since(|c| c.bytes_logged)? as f64 / images,
            micros: since(|c| c.packing_micros)? as f64 / commits,
        })
    }
}

/// How the transactions of a workload went into the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Packing {
    /// Transactions committed.
    pub commits: f64,
    /// Bytes written to the log by bytes of the images in it. Heads, tables and padding to whole blocks count.
    pub ratio: f64,
    /// Processor time of packing, microseconds per transaction.
    pub micros: f64,
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn differences() {
        let at = |commits, bytes_logged, bytes_packed, packing_micros| LogCounters {
            commits,
            bytes_logged,
            bytes_packed,
            packing_micros,
        };
        let packing = at(14, 5_000, 9_000, 900)
            .since(at(10, 1_000, 1_000, 100))
            .unwrap();
        let want = Packing {
            commits: 4.0,
            ratio: 0.5,
            micros: 200.0,
        };
        assert_eq!(packing, want);
        assert_eq!(at(3, 5, 5, 5).since(at(3, 5, 5, 5)), None);
        assert_eq!(at(1, 1, 1, 1).since(at(3, 5, 5, 5)), None, "mounted again");
    }
}
