//! Counters of the block device below a target.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use stetfs_block::Stats;
use stetfs_flash::ftl;

/// Requests at a block device, from its `stat` file in sysfs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Counters {
    /// Write requests. Linux counts a separate flush, an empty write, among them; simulated flash
    /// does not.
    pub writes: f64,
    /// Flush requests.
    pub flushes: f64,
    /// KiB written.
    pub written_kib: f64,
    /// KiB read.
    pub read_kib: f64,
}

impl From<Stats> for Counters {
    fn from(stats: Stats) -> Self {
        Self {
            writes: stats.writes as f64,
            flushes: stats.flushes as f64,
            written_kib: stats.bytes_written as f64 / 1024.0,
            read_kib: stats.bytes_read as f64 / 1024.0,
        }
    }
}

/// Wear of simulated flash during a piece of work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Worn {
    /// Pages programmed per page that the host wrote.
    pub waf: f64,
    /// Blocks erased per thousand operations.
    pub erases: f64,
    /// Pages shared per operation.
    pub shares: f64,
}

impl Worn {
    /// The difference between two readings of the counters, for `operations` operations.
    pub(super) fn since(now: ftl::Counters, then: ftl::Counters, operations: f64) -> Self {
        let grew = |of: fn(&ftl::Counters) -> u64| of(&now).saturating_sub(of(&then)) as f64;
        Self {
            waf: grew(|c| c.programs) / grew(|c| c.host_writes).max(1.0),
            erases: grew(|c| c.erases + c.map_erases) * 1000.0 / operations.max(1.0),
            shares: grew(|c| c.host_shares) / operations.max(1.0),
        }
    }
}

impl Counters {
    /// Reads the counters of the device with this sysfs directory.
    pub(super) fn read(sysfs: &Path) -> Option<Self> {
        let text = fs::read_to_string(sysfs.join("stat")).ok()?;
        let field: Vec<f64> = text
            .split_whitespace()
            .filter_map(|f| f.parse().ok())
            .collect();
        // Documentation/block/stat.rst: fields 2 and 6 count sectors of 512 bytes, field 15
        // flushes.
        Some(Self {
            writes: *field.get(4)?,
            flushes: *field.get(15)?,
            written_kib: field.get(6)? / 2.0,
            read_kib: field.get(2)? / 2.0,
        })
    }

    /// The requests since `earlier`, per operation.
    pub(super) fn since(self, earlier: Self, operations: f64) -> Self {
        let per = |now: f64, then: f64| (now - then) / operations.max(1.0);
        Self {
            writes: per(self.writes, earlier.writes),
            flushes: per(self.flushes, earlier.flushes),
            written_kib: per(self.written_kib, earlier.written_kib),
            read_kib: per(self.read_kib, earlier.read_kib),
        }
    }
}

/// The sysfs directory of the block device that holds `dir`: its own device, or (for a FUSE mount)
/// the source in the mount table.
pub(super) fn below(dir: &Path) -> Option<PathBuf> {
    let number = fs::metadata(dir).ok()?.dev();
    let sysfs = PathBuf::from(format!(
        "/sys/dev/block/{}:{}",
        rustix::fs::major(number),
        rustix::fs::minor(number)
    ));
    if sysfs.join("stat").exists() {
        return Some(sysfs);
    }
    let table = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let dir = dir.canonicalize().ok()?;
    let source = table.lines().rev().find_map(|line| {
        let mut fields = line.split(' ');
        (Path::new(fields.nth(4)?) == dir).then(|| line.split(" - ").nth(1)?.split(' ').nth(1))?
    })?;
    of_node(Path::new(source))
}

/// The sysfs directory of a block device node.
pub(super) fn of_node(node: &Path) -> Option<PathBuf> {
    let number = fs::metadata(node).ok()?.rdev();
    let sysfs = PathBuf::from(format!(
        "/sys/dev/block/{}:{}",
        rustix::fs::major(number),
        rustix::fs::minor(number)
    ));
    sysfs.join("stat").exists().then_some(sysfs)
}
