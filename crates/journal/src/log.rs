//! A volume's log before a journal runs in it: what it holds, its recovery, its start.
//!
//! The file system knows where the log lies; which scheme wrote it shows here, and only here.

use std::sync::Arc;

use stetfs_block::BlockDevice;

use crate::engine::{Canary, Journal, JournalConfig, max_tx};
use crate::error::Result;
use crate::head::Cache;
use crate::ids::BlockNr;
use crate::jbd2::{self, Jbd2Log, LogArea};
use crate::policy::Medium;
use crate::recovery::{RecoveryReport, recover};

pub use crate::jbd2::{Features as LogFeatures, LogSummary, Record, RecordKind};

/// A log that was opened.
pub struct Log {
    jbd2: Jbd2Log,
    canary: Canary,
}

impl Log {
    /// Reads and checks the log's header. The log lies in `runs` of blocks (first, count), in order.
    ///
    /// # Errors
    /// The device's; `Corrupt` or `Unsupported` for what the header says.
    pub fn open(
        device: Arc<dyn BlockDevice>,
        block_size: u32,
        runs: &[(BlockNr, u64)],
        canary: Canary,
    ) -> Result<Log> {
        let area = LogArea::new(device, block_size, runs);
        Ok(Log {
            jbd2: Jbd2Log::open(area, canary)?,
            canary,
        })
    }

    /// What the header says.
    pub fn summary(&self) -> LogSummary {
        self.jbd2.summary()
    }

    /// Whether there may be something to replay.
    pub fn is_dirty(&self) -> bool {
        self.jbd2.is_dirty()
    }

    /// Replays the log into the volume of `blocks` blocks, and empties it. With `dry_run` nothing is
    /// written. `progress` gets (done, of) in log blocks and images.
    ///
    /// # Errors
    /// Those of [`recover`]; `Unsupported` for fast commits, which stay as they are.
    pub fn recover(
        &self,
        blocks: u64,
        dry_run: bool,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<RecoveryReport> {
        self.jbd2.check_fast_commits()?;
        let device = self.jbd2.device();
        recover(
            &self.jbd2.scheme(),
            &**device,
            blocks,
            self.canary,
            dry_run,
            progress,
        )
    }

    /// The most blocks that one transaction of a journal in this log may hold: what one write call
    /// can change at once.
    pub fn max_transaction(&self, config: &JournalConfig) -> u64 {
        max_tx(
            &self.jbd2.scheme(),
            0,
            config.memory,
            u64::from(self.summary().block_size),
        )
    }

    /// The log again, after a replay changed it.
    ///
    /// # Errors
    /// As [`Log::open`].
    pub fn reopen(&self) -> Result<Log> {
        Ok(Log {
            jbd2: Jbd2Log::open(self.jbd2.area().clone(), self.canary)?,
            canary: self.canary,
        })
    }

    /// Starts a journal in the empty log.
    ///
    /// # Errors
    /// The device's. `Corrupt` if the log is not empty.
    pub fn start(
        self,
        cache: Arc<Cache>,
        features: LogFeatures,
        config: JournalConfig,
    ) -> Result<Arc<Journal>> {
        Journal::start(cache, self.jbd2.prepare(features)?, config)
    }

    /// Visits the records of the log from its tail on, [`RecordKind::End`] last; images are read and
    /// checked.
    ///
    /// # Errors
    /// The device's; `Corrupt` for damage that no crash explains.
    pub fn walk(&self, visit: &mut dyn FnMut(Record) -> Result<()>) -> Result<()> {
        let ring = self.jbd2.ring();
        jbd2::walk(
            &self.jbd2.codec(),
            &ring,
            ring.tail(),
            true,
            &mut |_, _| {},
            visit,
        )
    }
}
