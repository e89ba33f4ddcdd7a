//! A description of a volume that is not open.

use std::sync::Arc;

use serde::Serialize;
use stetfs_block::{BlockDevice, BlockError, OpenOptions, Overlay};
use stetfs_ext4::{Result, inspect};
use stetfs_journal::{JournalConfig, Log};
use stetfs_ondisk::ext4::features::{Compat, FeatureNames};
use stetfs_ondisk::ext4::superblock::{ErrorPolicy, State, Superblock};
use stetfs_ondisk::uuid;

use super::external::{self, Devices};
use super::home::HomeInfo;
use super::host::Host;
use super::part::{PartInfo, Source};
use super::recover::{self, RecoverOptions, RecoveryInfo};
use super::region;

/// A volume that is not mounted. Sizes are in bytes.
#[derive(Clone, Debug, Serialize)]
pub struct VolumeInfo {
    /// The path or address of the volume.
    pub volume: String,
    /// The part of it, unless it is the whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub part: Option<PartInfo>,
    /// The label.
    pub label: String,
    /// The UUID.
    pub uuid: String,
    /// `clean`, `needs recovery`, `has errors` or `not unmounted cleanly`.
    pub state: &'static str,
    /// The reason why it cannot be mounted for writing; absent if it can.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// Warnings for writers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<&'static str>,
    /// Feature names, as dumpe2fs prints them.
    pub features: Vec<String>,
    /// Size of a block, bytes.
    pub block_size: u32,
    /// Number of blocks.
    pub blocks: u64,
    /// Number of free blocks, by the superblock (exact if the volume is clean).
    pub free_blocks: u64,
    /// Number of inodes.
    pub inodes: u32,
    /// Number of free inodes, by the superblock.
    pub free_inodes: u32,
    /// Size of an on-disk inode, bytes.
    pub inode_size: u16,
    /// The directory where it was last mounted.
    pub last_mounted_on: String,
    /// The volume's setting of `errors=`.
    pub on_errors: &'static str,
    /// Number of errors found since the last check.
    pub error_count: u32,
    /// The journal; absent on a volume without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub journal: Option<JournalInfo>,
    /// The way in which a mount with `home=share` (`journal=afs`) would write blocks to their home
    /// locations.
    pub home_share: HomeInfo,
    /// The recovery that the next mount, or `recover`, will perform.
    pub recovery: RecoveryInfo,
}

/// The journal of a volume.
#[derive(Clone, Debug, Serialize)]
pub struct JournalInfo {
    /// `jbd2` or `stetfs`.
    pub format: &'static str,
    /// Size of the log, bytes.
    pub size: u64,
    /// Features of the log.
    pub features: String,
    /// Whether there is nothing to replay.
    pub empty: bool,
    /// Number of the oldest transaction in it, or of the next if it is empty.
    pub sequence: u32,
    /// Size of its fast-commit area, blocks.
    pub fast_commit_blocks: u32,
    /// The error that an earlier mount recorded in it (an errno).
    pub errno: i32,
    /// Most bytes that one write call changes atomically with the preset `data`: the limit of one
    /// transaction, metadata included.
    pub largest_transaction: u64,
}

/// The state that the last user of a volume left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeftBehind {
    /// Nothing to do.
    Clean,
    /// A journal to be replayed, or orphans.
    ToRecover,
    /// No journal, and perhaps an inconsistent volume.
    ToCheck,
}

/// The state in which a volume was left.
///
/// # Errors
/// As [`info`].
pub fn left_behind(source: &Source) -> Result<LeftBehind> {
    let how = OpenOptions {
        read_only: true,
        ..Default::default()
    };
    let (device, journal) = external::any(external::devices(source, how)?);
    let found = inspect(device, journal)?;
    let sb = &found.superblock;
    Ok(if !sb.compat().contains(Compat::HAS_JOURNAL) {
        match sb.state().contains(State::VALID_FS) {
            true => LeftBehind::Clean,
            false => LeftBehind::ToCheck,
        }
    } else if found.unfinished {
        LeftBehind::ToRecover
    } else {
        LeftBehind::Clean
    })
}

/// Describes a volume; changes nothing.
///
/// # Errors
/// The volume is in use, cannot be read, or is not ext4.
pub fn info(source: &Source) -> Result<VolumeInfo> {
    let how = OpenOptions {
        read_only: true,
        ..Default::default()
    };
    let devices = external::devices(source, how)?;
    let (device, on) = external::any(devices.clone());
    let found = inspect(device, on)?;
    let sb = &found.superblock;
    let recovery = match found.unfinished {
        true => recovery(&devices, source).unwrap_or_else(RecoveryInfo::refused),
        false => RecoveryInfo {
            has_errors: sb.state().contains(State::ERROR_FS),
            ..RecoveryInfo::default()
        },
    };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut features = sb.compat().names();
    features.extend(sb.incompat().names());
    features.extend(sb.ro_compat().names());
    Ok(VolumeInfo {
        volume: source.path.display().to_string(),
        part: devices.0.span.map(PartInfo::from),
        label: text(sb.label()),
        uuid: uuid::text(&sb.uuid),
        state: state(sb, &recovery),
        refused: found.refused.as_ref().map(ToString::to_string),
        warnings: warnings(sb),
        features,
        block_size: sb.geometry()?.block_size,
        blocks: sb.blocks_count(),
        free_blocks: sb.free_blocks_count(),
        inodes: sb.inodes_count.get(),
        free_inodes: sb.free_inodes_count.get(),
        inode_size: sb.geometry()?.inode_size,
        last_mounted_on: text(sb.last_mounted_on()),
        on_errors: match sb.error_policy() {
            ErrorPolicy::Continue => "continue",
            ErrorPolicy::RemountRo => "remount-ro",
            ErrorPolicy::Panic => "panic",
        },
        error_count: sb.error_count.get(),
        journal: found.log.as_ref().map(journal),
        home_share: HomeInfo::of_sharing(
            &devices.0,
            devices.1.is_some(),
            sb.geometry()?.block_size,
        ),
        recovery,
    })
}

fn warnings(sb: &Superblock) -> Vec<&'static str> {
    let mut warnings = Vec::new();
    if !sb.compat().contains(Compat::HAS_JOURNAL) {
        warnings.push(
            "no journal: what is synced is durable, but a crash can leave the volume inconsistent, for e2fsck to repair",
        );
        if !sb.state().contains(State::VALID_FS) {
            warnings.push("not unmounted cleanly, and no journal to recover from: run e2fsck");
        }
    }
    warnings
}

fn state(sb: &Superblock, recovery: &RecoveryInfo) -> &'static str {
    if sb.state().contains(State::ERROR_FS) {
        "has errors"
    } else if recovery.needed {
        "needs recovery"
    } else if sb.state().contains(State::VALID_FS) {
        "clean"
    } else {
        "not unmounted cleanly"
    }
}

fn journal(log: &Log) -> JournalInfo {
    let summary = log.summary();
    let block = u64::from(summary.block_size);
    JournalInfo {
        format: summary.format,
        size: summary.blocks * block,
        features: summary.features,
        empty: !log.is_dirty(),
        sequence: summary.sequence,
        fast_commit_blocks: summary.fc_blocks,
        errno: summary.errno,
        largest_transaction: log.max_transaction(&JournalConfig::default()) * block,
    }
}

/// Most bytes that a trial recovery changes in memory …
const TRIAL_MEMORY: u64 = 32 << 20;
/// … and in total: the rest goes to an unnamed file in the directory for temporary files.
const TRIAL: u64 = 4 << 30;

/// The report of a recovery, obtained by recovering over an overlay.
///
/// # Errors
/// The errors of the recovery.
fn recovery((disk, journal): &Devices, source: &Source) -> Result<RecoveryInfo> {
    if disk.is_sparse() {
        let path = source.path.clone();
        return Err(BlockError::Sparse { path }.into());
    }
    let over = |host: &Host, view: Arc<dyn BlockDevice>| {
        host.check_writable()?;
        Ok::<_, BlockError>(Arc::new(Overlay::with_room(view, TRIAL_MEMORY, TRIAL)))
    };
    let volume = over(&disk.host, disk.view())?;
    let log = journal.as_ref().map(|j| over(j, j.device())).transpose()?;
    let dry = (
        volume.clone() as Arc<dyn BlockDevice>,
        log.clone().map(|l| l as Arc<dyn BlockDevice>),
    );
    let region = source.nvm.as_ref().map(region::copy).transpose()?;
    let region = region.unwrap_or_default();
    let done = recover::run(dry, region, &RecoverOptions::default(), &mut |_, _| {})?;
    disk.check_room(&volume.changed())?;
    if let (Some(device), Some(log)) = (journal, log) {
        device.check_room(&log.changed())?;
    }
    Ok(done)
}
