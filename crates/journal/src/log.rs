//! A volume's log before a journal runs in it: what it holds, its recovery, its start.
//!
//! The file system knows where the log lies; which scheme wrote it shows here, and only here.

use std::sync::Arc;

use stetfs_block::BlockDevice;
use stetfs_cache::PageRef;
use stetfs_ondisk::jbd2::IncompatFlags;

use crate::engine::{Canary, Journal, JournalConfig, max_tx};
use crate::error::Result;
use crate::head::Cache;
use crate::ids::BlockNr;
use crate::jbd2::{Jbd2Log, LogArea};
use crate::policy::Scheme;
use crate::recovery::{Recovery, RecoveryOptions, replay, scan};
use crate::stet::{self, StetLog, StetOptions};

pub use crate::jbd2::{Features as LogFeatures, LogSummary, Record, RecordKind};

/// How a journal is to be written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// As the kernel does.
    #[default]
    Jbd2,
    /// In StetFS's own log.
    Stet(StetOptions),
}

/// A log that was opened.
pub struct Log {
    jbd2: Jbd2Log,
    /// What lies behind the superblock, if it is not jbd2's.
    stet: Option<StetLog>,
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
        Log::open_area(LogArea::new(device, block_size, runs), canary)
    }

    fn open_area(area: LogArea, canary: Canary) -> Result<Log> {
        let jbd2 = Jbd2Log::open(area.clone(), canary)?;
        let sb = jbd2.superblock();
        let stet = if sb.incompat().contains(IncompatFlags::STET) {
            Some(StetLog::open(area, *sb, canary)?)
        } else {
            None
        };
        Ok(Log { jbd2, stet, canary })
    }

    /// What the header says.
    pub fn summary(&self) -> LogSummary {
        let summary = self.jbd2.summary();
        let lanes = self.stet.as_ref().map(|log| &log.header().lanes[..]);
        let Some([first, ..]) = lanes else {
            return summary;
        };
        LogSummary {
            format: "stetfs",
            sequence: first.tail_seq as u32,
            start: first.tail_at as u32,
            ..summary
        }
    }

    /// Whether there may be something to replay, or to put right.
    pub fn is_dirty(&self) -> bool {
        self.stet.is_some() || self.jbd2.is_dirty()
    }

    /// Forgets the error that the last user of the log stopped with, durably.
    ///
    /// # Errors
    /// The device's.
    pub fn clear_errno(&mut self) -> Result<()> {
        self.jbd2.clear_errno()
    }

    /// The policies for reading the log as it is.
    fn scheme(&self) -> Scheme {
        match &self.stet {
            Some(log) => log.scheme(&StetOptions::default(), true),
            None => self.jbd2.scheme(),
        }
    }

    /// Replays the log into the volume of `blocks` blocks, and empties it: it is a plain, empty jbd2
    /// log then, unless there are file-level records to be applied, which stay in it ([`Log::resume`]), or fast commits,
    /// which do so too ([`Log::commit_images`]). `progress` gets (done, of) in log blocks and images.
    ///
    /// # Errors
    /// Those of [`recover`](crate::recover); `Unsupported` for fast commits of later writers.
    pub fn recover(
        &self,
        blocks: u64,
        how: RecoveryOptions,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Recovery> {
        let scheme = self.scheme();
        let device = self.jbd2.device();
        let how = RecoveryOptions {
            canary: self.canary,
            ..how
        };
        let scans = scan(&scheme, progress)?;
        let fast = match (&self.stet, &scans[..]) {
            (None, [ring]) => Some(self.jbd2.fast_commits(ring.next_seq)?),
            _ => None,
        };
        let found = replay(&scheme, scans, fast, &**device, blocks, how, progress)?;
        if !how.dry_run && found.records.is_empty() && found.fast_commits.is_empty() {
            scheme.media.iter().try_for_each(|m| m.retire())?;
        }
        Ok(found)
    }

    /// Puts the transaction that fast commits are part of into the log that [`recover`](Self::recover) left them in, as
    /// `images` of blocks by number; they count no longer, and [`recover`](Self::recover) has to be called again. The log
    /// must have been opened again since.
    ///
    /// # Errors
    /// The device's; `Unsupported`, and nothing changed, if it is larger than the log.
    pub fn commit_images(&self, images: Vec<(BlockNr, PageRef)>) -> Result<()> {
        self.jbd2.commit_images(images)
    }

    /// Starts a journal in the log that [`recover`](Self::recover) left records in, which stay alive until
    /// [`Journal::release_horizon`].
    ///
    /// # Errors
    /// Thread creation.
    pub fn resume(
        self,
        cache: Arc<Cache>,
        recovery: &Recovery,
        config: JournalConfig,
    ) -> Result<Arc<Journal>> {
        let config = JournalConfig {
            first_stamp: recovery.last_stamp,
            hold_horizon: Some(recovery.horizon),
            ..config
        };
        Journal::start(cache, self.scheme(), config)
    }

    /// The most blocks that one transaction of a journal in this log may hold: what one write call
    /// can change at once.
    pub fn max_transaction(&self, config: &JournalConfig) -> u64 {
        max_tx(
            &self.scheme(),
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
        Log::open_area(self.jbd2.area().clone(), self.canary)
    }

    /// Starts a journal in the empty log.
    ///
    /// # Errors
    /// The device's. `Corrupt` if the log is not empty; `Unsupported` if it cannot hold the format.
    pub fn start(
        mut self,
        cache: Arc<Cache>,
        features: LogFeatures,
        format: LogFormat,
        config: JournalConfig,
    ) -> Result<Arc<Journal>> {
        self.jbd2.align(features)?;
        let scheme = match format {
            LogFormat::Jbd2 => self.jbd2.scheme(),
            LogFormat::Stet(options) => {
                let (area, sb) = (self.jbd2.area().clone(), *self.jbd2.superblock());
                StetLog::make(area, sb, &options, self.canary)?.scheme(&options, config.barrier)
            }
        };
        Journal::start(cache, scheme, config)
    }

    /// Visits the records of the log from its tail on, [`RecordKind::End`] last; images are read and
    /// checked.
    ///
    /// # Errors
    /// The device's; `Corrupt` for damage that no crash explains.
    pub fn walk(&self, visit: &mut dyn FnMut(Record) -> Result<()>) -> Result<()> {
        if self.stet.is_some() {
            return stet::walk(&self.scheme(), visit);
        }
        self.jbd2.walk(visit)
    }
}
