//! The volume's journal: where it lies, its recovery, its start.

use std::sync::Arc;

use stetfs_block::BlockDevice;
use stetfs_journal::jbd2::{Features, Jbd2Log, LogArea};
use stetfs_journal::{Cache, Canary, Journal, JournalConfig, recover};
use stetfs_ondisk::ext4::features::{Compat, Incompat, RoCompat};
use stetfs_ondisk::ext4::superblock::Superblock;

use super::early::Early;
use crate::error::{FsError, Result};
use crate::types::FsOptions;

/// The log before it runs.
pub(super) struct VolumeLog {
    log: Jbd2Log,
    /// Its blocks on the volume, for the system zones.
    pub(super) runs: Vec<(u64, u64)>,
}

/// Finds the log; `None` on a volume without.
pub(super) fn find(device: &Arc<dyn BlockDevice>, early: &Early<'_>, sb: &Superblock) -> Result<Option<VolumeLog>> {
    if !sb.compat().contains(Compat::HAS_JOURNAL) {
        return Ok(None);
    }
    let ino = sb.journal_inum.get();
    if ino == 0 {
        return Err(FsError::Unsupported("a journal on another device".into()));
    }
    let runs = early.runs(ino, &early.inode(ino)?)?;
    let area = LogArea::new(device.clone(), early.layout.block_size, &runs);
    Ok(Some(VolumeLog { log: Jbd2Log::open(area, Canary::default())?, runs }))
}

impl VolumeLog {
    /// Whether there may be something to replay.
    pub(super) fn is_dirty(&self) -> bool {
        self.log.is_dirty()
    }

    /// Number of blocks.
    pub(super) fn blocks(&self) -> u64 {
        self.runs.iter().map(|(_, n)| n).sum()
    }

    /// Replays the log and empties it.
    pub(super) fn replay(&self, blocks: u64) -> Result<()> {
        self.log.check_fast_commits()?;
        let report = recover(&self.log.scheme(), &**self.log.device(), blocks, Canary::default(), false, &mut |_, _| {})?;
        tracing::info!(transactions = report.transactions, blocks = report.blocks, "journal recovered");
        Ok(())
    }

    /// The log again, after a replay changed it.
    pub(super) fn reopen(self) -> Result<VolumeLog> {
        let log = Jbd2Log::open(self.log.area().clone(), Canary::default())?;
        Ok(VolumeLog { log, runs: self.runs })
    }

    /// Starts a journal in the empty log.
    pub(super) fn start(self, cache: Arc<Cache>, sb: &Superblock, opts: &FsOptions) -> Result<Arc<Journal>> {
        let features = Features {
            checksums: sb.ro_compat().contains(RoCompat::METADATA_CSUM),
            wide: sb.incompat().contains(Incompat::BIT64),
            async_commit: opts.async_commit,
        };
        let config = JournalConfig { commit_secs: opts.commit_secs, barrier: opts.barrier, ..JournalConfig::default() };
        Ok(Journal::start(cache, self.log.prepare(features)?, config)?)
    }
}
