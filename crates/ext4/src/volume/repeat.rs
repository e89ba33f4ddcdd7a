//! Volumes that become the same when the same is done to them (`epoch=`).
//!
//! * Every time is the one that was given, and none that a caller sets is later. Access times are
//!   always it: those of the source of a copy say who looked at it.
//! * Generations of inodes begin with what the volume's UUID, the epoch and the number of mounts
//!   make.
//! * What is freed is not handed out again while there is other room (`space/held`): when a commit
//!   ends is up to the threads. `groups=core` does nothing, for which lane it is may be up to the
//!   processor. It is discarded, for whether it was written before is, too.
//! * When the volume is closed, its log is cleared: where commits ended, their times and what
//!   StetFS's own log draws at random is gone with it. In use it is as random as ever, so no
//!   record of an earlier log can count.
//!
//! Two callers at once are not put into an order.

use stetfs_journal::{BlockNr, Log};
use stetfs_ondisk::ext4::superblock::Superblock;
use stetfs_ondisk::ext4::time::Timestamp;
use stetfs_ondisk::num::low32;

use super::log::VolumeLog;
use super::shared::Volume;
use crate::error::{FsError, Result};
use crate::types::FsOptions;

/// The latest second since 1970 that inodes of 256 bytes can name.
pub const MAX_EPOCH: u64 = 0x3_7FFF_FFFF;

/// # Errors
/// `Unsupported` for options with which it cannot be so.
pub(super) fn check(opts: &FsOptions) -> Result<()> {
    match opts.epoch {
        Some(epoch) if epoch > MAX_EPOCH => Err(FsError::Unsupported(format!(
            "an epoch after second {MAX_EPOCH}, the last that inodes can name"
        ))),
        _ => Ok(()),
    }
}

/// Where generations begin: differs from mount to mount.
pub(super) fn seed(sb: &Superblock, epoch: Option<u64>) -> u32 {
    let mixed = |hash: u32, byte: &u8| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
    match epoch {
        Some(epoch) => {
            let mounts = sb.mnt_count.get().to_le_bytes();
            let epoch = epoch.to_le_bytes();
            let all = sb.uuid.iter().chain(&epoch).chain(&mounts);
            all.fold(0x811C_9DC5, mixed)
        }
        None => {
            let t = std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
            low32(t.as_secs()).rotate_left(16) ^ t.subsec_nanos() ^ std::process::id()
        }
    }
}

/// Where the log is, on the volume or behind it.
pub(super) fn log_runs(
    log: Option<&VolumeLog>,
    external: Option<&[(BlockNr, u64)]>,
) -> Vec<(BlockNr, u64)> {
    match log {
        Some(log) if log.runs.is_empty() => external.unwrap_or_default().to_vec(),
        Some(log) => log.runs.clone(),
        None => Vec::new(),
    }
}

impl Volume {
    /// What becomes of a time of the last change that a caller sets.
    pub(crate) fn repeated_mtime(&self, set: Timestamp) -> Timestamp {
        match self.opts.epoch {
            Some(_) => set.min(self.now()),
            None => set,
        }
    }

    /// What becomes of an access time that a caller sets.
    pub(crate) fn repeated_atime(&self, set: Timestamp) -> Timestamp {
        match self.opts.epoch {
            Some(_) => self.now(),
            None => set,
        }
    }

    /// Takes out of the log, which is empty, what is left of its use.
    pub(super) fn clear_log(&self) -> Result<()> {
        let runs = self.sb.log_runs.get().map_or(&[][..], Vec::as_slice);
        if self.opts.epoch.is_none() || runs.is_empty() {
            return Ok(());
        }
        let device = self.cache.device().clone();
        Log::open(device, self.geo.block_size, runs, self.opts.canary)?.clear()?;
        Ok(())
    }
}
