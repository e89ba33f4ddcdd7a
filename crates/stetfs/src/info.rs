//! What a volume is, without opening it.

use std::path::Path;
use std::sync::Arc;

use serde::Serialize;
use stetfs_block::{BlockDevice, FileDevice, OpenOptions};
use stetfs_ext4::{Inspection, Result, inspect};
use stetfs_journal::{JournalConfig, Log, RecoveryOptions};
use stetfs_ondisk::ext4::features::{Compat, FeatureNames, Incompat};
use stetfs_ondisk::ext4::superblock::{ErrorPolicy, State, Superblock};
use stetfs_ondisk::uuid;

/// A volume that is not mounted. Sizes in bytes, counts as named.
#[derive(Clone, Debug, Serialize)]
pub struct VolumeInfo {
    /// Where it was looked at.
    pub volume: String,
    /// The label.
    pub label: String,
    /// The UUID.
    pub uuid: String,
    /// `clean`, `needs recovery`, `has errors` or `not unmounted cleanly`.
    pub state: &'static str,
    /// Why it cannot be mounted for writing; absent if it can.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// What to know before writing it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<&'static str>,
    /// Feature names, as dumpe2fs prints them.
    pub features: Vec<String>,
    /// Bytes in a block.
    pub block_size: u32,
    /// Blocks.
    pub blocks: u64,
    /// Free blocks, as the superblock says (right when the volume is clean).
    pub free_blocks: u64,
    /// Inodes.
    pub inodes: u32,
    /// Free inodes, as the superblock says.
    pub free_inodes: u32,
    /// Bytes of an on-disk inode.
    pub inode_size: u16,
    /// Where it was mounted last.
    pub last_mounted_on: String,
    /// `errors=` of the volume.
    pub on_errors: &'static str,
    /// Errors that were found since the last check.
    pub error_count: u32,
    /// The journal; absent on a volume without.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub journal: Option<JournalInfo>,
    /// What the next mount, or `recover`, will do.
    pub recovery: RecoveryInfo,
}

/// The journal of a volume.
#[derive(Clone, Debug, Serialize)]
pub struct JournalInfo {
    /// `jbd2` or `stetfs`.
    pub format: &'static str,
    /// Bytes of the log.
    pub size: u64,
    /// Features of the log.
    pub features: String,
    /// Whether there is nothing to replay.
    pub empty: bool,
    /// Number of the oldest transaction in it, or of the next.
    pub sequence: u32,
    /// Blocks of its fast-commit area.
    pub fast_commit_blocks: u32,
    /// Error that an earlier mount left in it (an errno).
    pub errno: i32,
    /// The most bytes that one write call changes whole in the preset `data`: what one transaction
    /// may hold, metadata included.
    pub largest_transaction: u64,
}

/// What recovery would do.
#[derive(Clone, Debug, Default, Serialize)]
pub struct RecoveryInfo {
    /// Whether there is anything to do.
    pub needed: bool,
    /// Transactions to replay.
    pub transactions: u64,
    /// Blocks to write home.
    pub blocks: u64,
    /// File-level records to apply.
    pub records: u64,
    /// Fast commits of Linux to carry out.
    pub fast_commits: u64,
    /// Orphaned inodes to delete or truncate, as far as the unreplayed volume shows.
    pub orphans: u64,
    /// Why it will fail; absent if it will not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// What of a damaged journal was left out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub damage: Vec<String>,
}

/// Describes the volume at `path`; changes nothing.
///
/// # Errors
/// The volume is in use, cannot be read, or is none.
pub fn info(path: &Path) -> Result<VolumeInfo> {
    let device = FileDevice::open(
        path,
        OpenOptions {
            read_only: true,
            ..Default::default()
        },
    )?;
    let found = inspect(Arc::new(device) as Arc<dyn BlockDevice>)?;
    let sb = &found.superblock;
    let recovery = recovery(&found);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut features = sb.compat().names();
    features.extend(sb.incompat().names());
    features.extend(sb.ro_compat().names());
    Ok(VolumeInfo {
        volume: path.display().to_string(),
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

/// Whether there is something to recover; the log is not read for it.
pub(crate) fn to_do(found: &Inspection) -> RecoveryInfo {
    let marked = found.superblock.incompat().contains(Incompat::RECOVER);
    let dirty = found.log.as_ref().is_some_and(Log::is_dirty);
    RecoveryInfo {
        needed: marked || dirty || found.orphans > 0,
        orphans: found.orphans,
        ..Default::default()
    }
}

/// What recovery would do, by doing it without writing.
pub(crate) fn recovery(found: &Inspection) -> RecoveryInfo {
    let mut info = to_do(found);
    if let Some(log) = found.log.as_ref().filter(|log| log.is_dirty()) {
        let how = RecoveryOptions {
            dry_run: true,
            ..RecoveryOptions::default()
        };
        match log.recover(found.superblock.blocks_count(), how, &mut |_, _| {}) {
            Ok(found) => {
                info.transactions = found.report.transactions;
                info.blocks = found.report.blocks;
                info.records = found.report.records;
                info.fast_commits = found.report.fast_commits;
            }
            Err(e) => info.problem = Some(e.to_string()),
        }
    }
    info
}
