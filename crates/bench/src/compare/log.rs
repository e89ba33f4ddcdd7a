//! The counters of a StetFS mount's journal, from `stetfs stat`.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use stetfs::low::Fs;

use super::program::output;

/// The counters used here, as `stetfs stat --json` shows them below `journal`.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub(crate) struct LogCounters {
    commits: u64,
    bytes_logged: u64,
    bytes_packed: u64,
    packing_micros: u64,
    waits_locked: u64,
    waiting_locked_micros: u64,
    waits_room: u64,
    waiting_room_micros: u64,
    copies: u64,
    copying_micros: u64,
    shared: u64,
    copied: u64,
}

#[derive(Deserialize)]
struct Stat {
    journal: LogCounters,
}

impl LogCounters {
    /// Reads them from the server of the mount at `dir`, with the program `stetfs`.
    pub(super) fn ask(stetfs: &Path, dir: &Path) -> Result<Self> {
        let text = output(Command::new(stetfs).args(["stat", "--json"]).arg(dir))?;
        let stat: Stat = serde_json::from_str(&text)
            .with_context(|| format!("the counters of {}", dir.display()))?;
        Ok(stat.journal)
    }

    /// The counters of a volume that is open in this process.
    pub(crate) fn of(fs: &Fs) -> Self {
        let j = fs.stats().journal;
        Self {
            commits: j.commits,
            bytes_logged: j.bytes_logged,
            bytes_packed: j.bytes_packed,
            packing_micros: j.packing_micros,
            waits_locked: j.waits_locked,
            waiting_locked_micros: j.waiting_locked_nanos / 1000,
            waits_room: j.waits_room,
            waiting_room_micros: j.waiting_room_nanos / 1000,
            copies: j.copies,
            copying_micros: j.copying_nanos / 1000,
            shared: j.shared,
            copied: j.copied,
        }
    }

    /// Waits and copies of changes since `earlier`, per operation; `None` after a remount.
    pub(crate) fn waits_since(self, earlier: Self, operations: f64) -> Option<Waits> {
        let per = |field: fn(&Self) -> u64| {
            let since = field(&self).checked_sub(field(&earlier))?;
            Some(since as f64 / operations.max(1.0))
        };
        Some(Waits {
            locked: per(|c| c.waits_locked)?,
            locked_micros: per(|c| c.waiting_locked_micros)?,
            room: per(|c| c.waits_room)?,
            room_micros: per(|c| c.waiting_room_micros)?,
            copies: per(|c| c.copies)?,
            copying_micros: per(|c| c.copying_micros)?,
        })
    }

    /// The activity of the log since `earlier`; `None` if there was no commit.
    pub(crate) fn since(self, earlier: Self) -> Option<Packing> {
        // Counters start again with a remount.
        let since = |field: fn(&Self) -> u64| field(&self).checked_sub(field(&earlier));
        let commits = since(|c| c.commits)? as f64;
        let images = since(|c| c.bytes_packed)? as f64;
        (commits > 0.0 && images > 0.0).then_some(())?;
        Some(Packing {
            commits,
            ratio: since(|c| c.bytes_logged)? as f64 / images,
            micros: since(|c| c.packing_micros)? as f64 / commits,
            shared: since(|c| c.shared)? as f64,
            copied: since(|c| c.copied)? as f64,
        })
    }
}

/// Waits and copies of changes, per operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Waits {
    /// Waits for a transaction's snapshot.
    pub locked: f64,
    /// Time of these waits, microseconds.
    pub locked_micros: f64,
    /// Waits for space in the log.
    pub room: f64,
    /// Time of these waits, microseconds.
    pub room_micros: f64,
    /// Pages copied because a snapshot held them.
    pub copies: f64,
    /// Time of these copies, microseconds.
    pub copying_micros: f64,
}

impl Waits {
    /// Whether any of them is not zero.
    pub(super) fn any(&self) -> bool {
        self.locked + self.room + self.copies > 0.0
    }
}

/// The compression of a workload's transactions in the log, and their way to home locations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Packing {
    /// Transactions committed.
    pub commits: f64,
    /// Bytes written to the log divided by the bytes of the images in it. Headers, tables and
    /// padding to whole blocks count.
    pub ratio: f64,
    /// Processor time of compression, microseconds per transaction.
    pub micros: f64,
    /// Blocks that checkpoints shared with their home locations.
    #[serde(default)]
    pub shared: f64,
    /// Blocks that checkpoints copied to their home locations.
    #[serde(default)]
    pub copied: f64,
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
            ..LogCounters::default()
        };
        let then = LogCounters {
            shared: 5,
            copied: 6,
            ..at(10, 1_000, 1_000, 100)
        };
        let now = LogCounters {
            shared: 12,
            copied: 8,
            ..at(14, 5_000, 9_000, 900)
        };
        let packing = now.since(then).unwrap();
        let want = Packing {
            commits: 4.0,
            ratio: 0.5,
            micros: 200.0,
            shared: 7.0,
            copied: 2.0,
        };
        assert_eq!(packing, want);
        assert_eq!(at(3, 5, 5, 5).since(at(3, 5, 5, 5)), None);
        assert_eq!(at(1, 1, 1, 1).since(at(3, 5, 5, 5)), None, "mounted again");
        let waited = |n| LogCounters {
            waits_locked: n,
            copying_micros: 10 * n,
            ..LogCounters::default()
        };
        let want = Waits {
            locked: 0.5,
            copying_micros: 5.0,
            ..Waits::default()
        };
        assert_eq!(waited(5).waits_since(waited(3), 4.0), Some(want));
        assert_eq!(waited(3).waits_since(waited(5), 4.0), None, "mounted again");
    }
}
