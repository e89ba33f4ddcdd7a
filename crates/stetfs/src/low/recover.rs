//! Recovery of a volume without mounting it.

use std::sync::Arc;

use serde::Serialize;
use stetfs_block::OpenOptions;
use stetfs_ext4::{Fs, FsError, FsOptions, Result, inspect};
use stetfs_journal::Composition;
use stetfs_journal::region::RegionSource;
use stetfs_ondisk::ext4::superblock::State;

use super::external::{self, Devices, Views, is_only_read};
use super::home::HomeInfo;
use super::part::Source;
use super::region;

/// Size of the cache, bytes; small, because recovery seldom reads a block twice.
const CACHE_BYTES: u64 = 32 << 20;

/// Options of a recovery.
#[derive(Clone, Debug, Default)]
pub struct RecoverOptions {
    /// Replay the undamaged part of a damaged journal.
    pub salvage: bool,
    /// Give up the records of synced files in a region ([`Source::nvm`]), which is lost. Files are
    /// then as of the last commit.
    pub without_nvm: bool,
    /// The composition whose `home=` says how blocks are written to their home locations. Its other
    /// options do not matter.
    pub journal: Composition,
}

/// The report of a recovery, done or predicted.
#[derive(Clone, Debug, Default, Serialize)]
pub struct RecoveryInfo {
    /// Whether there is anything to do.
    pub needed: bool,
    /// Number of transactions replayed.
    pub transactions: u64,
    /// Number of their blocks written to home locations.
    pub blocks: u64,
    /// Number of those blocks that the device shared.
    pub shared: u64,
    /// Number of those blocks that were copied.
    pub copied: u64,
    /// Number of file-level records applied.
    pub records: u64,
    /// Number of fast commits of Linux carried out.
    pub fast_commits: u64,
    /// Number of orphaned inodes deleted.
    pub deleted: u64,
    /// Number of orphaned inodes truncated.
    pub truncated: u64,
    /// Number of orphaned inodes left to e2fsck, because the volume has errors or they are damaged.
    pub orphans_left: u64,
    /// Transactions that do not count, because one that they depend on is not in the journal.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dropped: Vec<String>,
    /// Omissions from a damaged journal: a thousand at most, and the number of further ones.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub damage: Vec<String>,
    /// The volume is marked as one with errors afterwards: e2fsck must check it.
    pub has_errors: bool,
    /// The reason for a failure; absent on success. After a failure nothing of the above is done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// The failure as an error.
    #[serde(skip)]
    pub failure: Option<FsError>,
}

impl RecoveryInfo {
    /// The report of a recovery that fails.
    pub(crate) fn refused(e: FsError) -> RecoveryInfo {
        RecoveryInfo {
            needed: true,
            problem: Some(e.to_string()),
            failure: Some(e),
            ..RecoveryInfo::default()
        }
    }

    /// Whether everything is done; if not, e2fsck must do the rest.
    pub fn is_complete(&self) -> bool {
        self.failure.is_none() && self.damage.is_empty() && self.orphans_left == 0
    }
}

/// The result of a recovery.
#[derive(Clone, Debug, Serialize)]
pub struct Recovered {
    /// The volume.
    pub volume: String,
    /// The report.
    pub recovery: RecoveryInfo,
    /// The way in which blocks were written to home locations, and the reason; absent if there was
    /// nothing to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub home: Option<HomeInfo>,
}

/// Replays the journal of a volume, finishes interrupted operations, and leaves the volume clean. A
/// clean volume is not written to.
///
/// # Errors
/// The volume is in use, damaged, or of an unknown kind, or a device failed: then the journal is as
/// it was, and recovery can be tried again. With [`RecoverOptions::salvage`] the undamaged part of
/// a journal is replayed, the rest is left out and reported ([`RecoveryInfo::damage`]), and the
/// volume is marked as one with errors, for e2fsck to repair.
///
/// `progress` gets (done, total), first in blocks of the log, then in blocks written to home
/// locations.
pub fn recover(
    source: &Source,
    how: &RecoverOptions,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Recovered> {
    let open = |read_only| {
        let how = OpenOptions {
            read_only,
            ..OpenOptions::default()
        };
        external::devices(source, how)
    };
    let devices = match open(false) {
        // A device that can only be read is enough if there is nothing to do.
        Err(e) if is_only_read(&e) => {
            let devices = open(true)?;
            let (device, journal) = external::any(devices.clone());
            if inspect(device, journal)?.unfinished {
                return Err(e);
            }
            devices
        }
        other => other?,
    };
    let region = match (&source.nvm, how.without_nvm) {
        (_, true) => RegionSource::GivenUp,
        (None, false) => RegionSource::None,
        (Some(at), false) => RegionSource::Open(region::open(at)?),
    };
    let recovery = run(external::any(devices.clone()), region, how, progress)?;
    let home = recovery.needed.then(|| home(&devices, how)).transpose()?;
    Ok(Recovered {
        volume: source.path.display().to_string(),
        recovery,
        home,
    })
}

/// The way in which a recovery on these devices wrote blocks to home locations.
fn home((disk, journal): &Devices, how: &RecoverOptions) -> Result<HomeInfo> {
    let block = inspect(disk.view(), None)?
        .superblock
        .geometry()?
        .block_size;
    Ok(HomeInfo::of(&how.journal, disk, journal.is_some(), block))
}

/// Recovers the volume on the first of the devices.
///
/// # Errors
/// As [`recover`].
pub(crate) fn run(
    (device, journal): Views,
    region: RegionSource,
    how: &RecoverOptions,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<RecoveryInfo> {
    let mut recovery = RecoveryInfo {
        needed: inspect(Arc::clone(&device), journal.clone())?.unfinished,
        ..RecoveryInfo::default()
    };
    if recovery.needed {
        let options = FsOptions {
            salvage: how.salvage,
            journal: how.journal.way_home(),
            region,
            cache_bytes: CACHE_BYTES,
            ..FsOptions::default()
        };
        let fs = Fs::open_with(Arc::clone(&device), journal, options, progress)?;
        fs.unmount()?;
        if let Some(report) = fs.recovered() {
            recovery.transactions = report.transactions;
            recovery.blocks = report.blocks;
            recovery.shared = report.shared;
            recovery.copied = report.blocks - report.shared;
            recovery.records = report.records;
            recovery.fast_commits = report.fast_commits;
            recovery.dropped = report.dropped.iter().map(ToString::to_string).collect();
            recovery.damage = report.damage.lines();
        }
        let orphans = fs.orphans_finished();
        recovery.deleted = orphans.deleted;
        recovery.truncated = orphans.truncated;
        recovery.orphans_left = orphans.left;
    }
    let after = inspect(device, None)?.superblock;
    recovery.has_errors = after.state().contains(State::ERROR_FS);
    Ok(recovery)
}
