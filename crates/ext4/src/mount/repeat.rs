//! Reproducible volumes (`epoch=`): the same operations make the same bytes.
//!
//! * Every time is the given epoch; a caller cannot set a later one. An access time is always the
//!   epoch: that of the source of a copy depends on its readers.
//! * Generations of inodes begin with a hash of the volume's UUID, the epoch and the number of
//!   mounts.
//! * Freed space is not allocated again while there is other room (`space/held`), because the end
//!   of a commit depends on the threads. `groups=core` has no effect, because the lane may depend
//!   on the processor. Freed space is discarded, because whether it was written before also varies.
//! * When the volume is closed, its log is cleared, and with it the borders and times of commits
//!   and the random numbers of StetFS's own log. While in use, the log is as random as ever, so
//!   that no record of an earlier log can count.
//!
//! Concurrent callers are not ordered.

use stetfs_journal::{BlockNr, Log};
use stetfs_ondisk::ext4::superblock::Superblock;
use stetfs_ondisk::ext4::time::Timestamp;
use stetfs_ondisk::num::low32;

use super::log::VolumeLog;
use crate::error::{FsError, Result};
use crate::types::FsOptions;
use crate::volume::shared::Volume;

/// The latest second since 1970 that inodes of 256 bytes can represent.
pub const MAX_EPOCH: u64 = 0x3_7FFF_FFFF;

/// Checks the options.
///
/// # Errors
/// `Unsupported` for an epoch that cannot be represented.
pub(super) fn check(opts: &FsOptions) -> Result<()> {
    match opts.epoch {
        Some(epoch) if epoch > MAX_EPOCH => Err(FsError::Unsupported(format!(
            "epoch= is later than second {MAX_EPOCH}, the last that inodes can store"
        ))),
        _ => Ok(()),
    }
}

/// The seed of generations: it differs between mounts.
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

/// The place of the log, on the volume or behind it.
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
    /// The modification or change time for a time that a caller sets.
    pub(crate) fn repeated_mtime(&self, set: Timestamp) -> Timestamp {
        match self.opts.epoch {
            Some(_) => set.min(self.now()),
            None => set,
        }
    }

    /// The access time for a time that a caller sets.
    pub(crate) fn repeated_atime(&self, set: Timestamp) -> Timestamp {
        match self.opts.epoch {
            Some(_) => self.now(),
            None => set,
        }
    }

    /// Clears the remains in the log, which is empty.
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
