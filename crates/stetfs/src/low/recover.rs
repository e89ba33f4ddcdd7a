//! Recovering a volume without mounting it, and saying before what that would do.

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

/// Bytes of cache: what a recovery reads it hardly reads twice.
const CACHE_BYTES: u64 = 32 << 20;

/// How to recover.
#[derive(Clone, Debug, Default)]
pub struct RecoverOptions {
    /// Of a damaged journal bring home what is whole.
    pub salvage: bool,
    /// Records of synced files that are in a region ([`Source::nvm`]) are given up: it is lost.
    /// Files are as of the last commit then.
    pub without_nvm: bool,
    /// `home=`, how blocks go home. What else it says is of no use here.
    pub journal: Composition,
}

/// What recovery does, or would do.
#[derive(Clone, Debug, Default, Serialize)]
pub struct RecoveryInfo {
    /// Whether there is anything to do.
    pub needed: bool,
    /// Transactions replayed.
    pub transactions: u64,
    /// Blocks of them brought home.
    pub blocks: u64,
    /// Those of the blocks that the device shared.
    pub shared: u64,
    /// Those of the blocks that were written.
    pub copied: u64,
    /// File-level records applied.
    pub records: u64,
    /// Fast commits of Linux carried out.
    pub fast_commits: u64,
    /// Orphaned inodes that are deleted.
    pub deleted: u64,
    /// Orphaned inodes that are truncated.
    pub truncated: u64,
    /// Orphaned inodes that are left to e2fsck, for the volume has errors or they are damaged.
    pub orphans_left: u64,
    /// Transactions that do not count, for something they depend on is not in the journal.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dropped: Vec<String>,
    /// What of a damaged journal is left out: a thousand things, and how many more.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub damage: Vec<String>,
    /// The volume is marked as one with errors afterwards: e2fsck has to look at it.
    pub has_errors: bool,
    /// Why it fails; absent if it does not. Then nothing of the above is done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// The same as an error.
    #[serde(skip)]
    pub failure: Option<FsError>,
}

impl RecoveryInfo {
    /// A recovery that fails.
    pub(crate) fn refused(e: FsError) -> RecoveryInfo {
        RecoveryInfo {
            needed: true,
            problem: Some(e.to_string()),
            failure: Some(e),
            ..RecoveryInfo::default()
        }
    }

    /// Whether everything that was left to do is done; if not, e2fsck has to do the rest.
    pub fn is_complete(&self) -> bool {
        self.failure.is_none() && self.damage.is_empty() && self.orphans_left == 0
    }
}

/// What a recovery did.
#[derive(Clone, Debug, Serialize)]
pub struct Recovered {
    /// The volume.
    pub volume: String,
    /// What was found to do, and done.
    pub recovery: RecoveryInfo,
    /// How blocks went home, and why so; absent where there was nothing to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub home: Option<HomeInfo>,
}

/// Replays the journal of a volume, finishes what was interrupted, and leaves the
/// volume clean. A clean volume is not written to.
///
/// # Errors
/// The volume is in use, damaged, of an unknown kind, or a device failed: then the journal is as it
/// was, and recovery can be tried again. With [`RecoverOptions::salvage`] what is whole of a
/// damaged journal goes home, the rest is left out and told ([`RecoveryInfo::damage`]), and the
/// volume is marked as one with errors, for e2fsck to put in order.
///
/// `progress` gets (done, of), first in blocks of the log, then in blocks that go home.
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
        // Where nothing is to be done nothing need be written.
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

/// How a recovery of the volume on these devices brought blocks home.
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
