//! A volume's log before a journal runs in it: its contents, its recovery, its start.
//!
//! The file system knows where the log lies. Only this module knows which scheme wrote it.

use std::sync::Arc;

use stetfs_block::BlockDevice;
use stetfs_cache::PageRef;
use stetfs_ondisk::jbd2::JournalSuperblock;
use stetfs_ondisk::jbd2::fast_commit::{End, FastCommit};

use crate::canary::Canary;
use crate::compose::{Composition, Make, PARTS};
use crate::engine::config::JournalConfig;
use crate::error::Result;
use crate::head::Cache;
use crate::ids::BlockNr;
use crate::jbd2::{Jbd2Format, Jbd2Log, LogArea};
use crate::journal::Journal;
use crate::limits::max_tx;
use crate::policy::{Home, Scheme};
use crate::recovery::{Recovery, RecoveryOptions, Verdict, judge, replay};
use crate::region::{RegionSource, RegionUse};
use crate::scan::scan;

pub use crate::jbd2::{Features as LogFeatures, LogSummary, Record, RecordKind};

/// A log format. Every log lies behind a jbd2 superblock, in which a format other than jbd2 leaves
/// its mark.
pub trait LogFormat: Sync {
    /// Whether the log behind this superblock has this format.
    fn detect(&self, sb: &JournalSuperblock) -> bool;
    /// Reads the log's header.
    ///
    /// # Errors
    /// The device's; `Corrupt` for what the header says.
    fn open(
        &self,
        area: LogArea,
        sb: &JournalSuperblock,
        canary: Canary,
    ) -> Result<Box<dyn OpenLog>>;
    /// Makes an empty log in an area whose jbd2 log is empty, durably, and returns the policies for
    /// a journal in it. The caller replaces their ordering and home by those of the composition.
    /// Records of files, if there are any, go to `region`, if it is given.
    ///
    /// # Errors
    /// The device's; `Unsupported` if the area cannot hold it; `Region`.
    fn make(
        &self,
        area: LogArea,
        sb: &JournalSuperblock,
        journal: &Composition,
        region: Option<&RegionUse>,
        barrier: bool,
        canary: Canary,
    ) -> Result<Scheme>;
}

/// A log whose header was read.
pub trait OpenLog: Send + Sync {
    /// Adds to the superblock's summary what the header says.
    fn summary(&self, superblock: LogSummary) -> LogSummary;
    /// Whether there may be something to replay, or to repair.
    fn is_dirty(&self) -> bool;
    /// Gives the log the region of the volume with this UUID, where its records of files are if it
    /// says that they are in one.
    ///
    /// # Errors
    /// The region's; `Region` if it is not the right one.
    fn attach(&mut self, region: &RegionSource, uuid: [u8; 16]) -> Result<()>;
    /// The policies for reading the log as it is.
    fn scheme(&self) -> Scheme;
    /// The fast commits that follow transactions of which the next would be `next_seq`, and the
    /// reason why there is no further one; none if the format has no fast commits.
    ///
    /// # Errors
    /// The device's.
    fn fast_commits(&self, next_seq: u64) -> Result<Option<(Vec<FastCommit>, End)>>;
    /// See [`Log::walk`].
    ///
    /// # Errors
    /// The device's; `Corrupt` for damage that no crash explains.
    fn walk(&self, visit: &mut dyn FnMut(Record) -> Result<()>) -> Result<()>;
}

/// An opened log.
pub struct Log {
    jbd2: Jbd2Log,
    /// The log in its own format.
    open: Box<dyn OpenLog>,
    /// The region, and the volume's UUID; none while the log is only inspected.
    region: Option<(RegionSource, [u8; 16])>,
    canary: Canary,
}

impl Log {
    /// Reads and checks the log's header. The log lies in `runs` of blocks (first, count), in
    /// order.
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
        let formats = PARTS.iter().filter_map(|part| match part.make {
            Make::Codec(format) => Some(format),
            _ => None,
        });
        let found = formats.into_iter().find(|f| f.detect(jbd2.superblock()));
        let format = found.unwrap_or(&Jbd2Format);
        let open = format.open(area, jbd2.superblock(), canary)?;
        Ok(Log {
            jbd2,
            open,
            region: None,
            canary,
        })
    }

    /// Gives the log the region of the volume with this UUID, for the records of files in it and
    /// for later ones.
    ///
    /// # Errors
    /// The region's; `Region` if the records are in another region.
    pub fn attach(&mut self, region: &RegionSource, uuid: [u8; 16]) -> Result<()> {
        self.region = Some((region.clone(), uuid));
        self.open.attach(region, uuid)
    }

    /// The contents of the header.
    pub fn summary(&self) -> LogSummary {
        self.open.summary(self.jbd2.summary())
    }

    /// Whether there may be something to replay, or to repair.
    pub fn is_dirty(&self) -> bool {
        self.open.is_dirty()
    }

    /// Clears the error that the last user of the log recorded in it, durably.
    ///
    /// # Errors
    /// The device's.
    pub fn clear_errno(&mut self) -> Result<()> {
        self.jbd2.clear_errno()
    }

    /// Replays the log into the volume of `blocks` blocks, and empties it: it is then a plain,
    /// empty jbd2 log. Records of files that are to be applied stay in it ([`Log::resume`]), and so
    /// do fast commits ([`Log::commit_images`]). `home` brings images to their home locations.
    /// `progress` gets (done, of) in log blocks and images.
    ///
    /// # Errors
    /// The errors of [`recover`](crate::recover); `Unsupported` for fast commits of a newer format.
    pub fn recover(
        &self,
        blocks: u64,
        how: RecoveryOptions,
        home: Box<dyn Home>,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Recovery> {
        let scheme = Scheme {
            home,
            ..self.open.scheme()
        };
        let device = self.jbd2.device();
        let how = RecoveryOptions {
            canary: self.canary,
            ..how
        };
        let scans = scan(&scheme, progress)?;
        let fast = match &scans[..] {
            [ring] => self.open.fast_commits(ring.next_seq)?,
            _ => None,
        };
        let found = replay(&scheme, scans, fast, &**device, blocks, how, progress)?;
        if !how.dry_run && found.records.is_empty() && found.fast_commits.is_empty() {
            scheme.retire()?;
        }
        Ok(found)
    }

    /// Puts a transaction in place of the fast commits that [`recover`](Self::recover) left in the
    /// log. `images` are its blocks by number. The fast commits no longer count, and
    /// [`recover`](Self::recover) has to be called again. The log must have been reopened since the
    /// first recovery.
    ///
    /// # Errors
    /// The device's; `Unsupported`, with nothing changed, if the transaction is larger than the
    /// log.
    pub fn commit_images(&self, images: Vec<(BlockNr, PageRef)>) -> Result<()> {
        self.jbd2.commit_images(images)
    }

    /// Starts a journal in the log in which [`recover`](Self::recover) left records. They stay
    /// alive until [`Journal::release_horizon`].
    ///
    /// # Errors
    /// As [`Journal::start`].
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
        Journal::start(cache, self.open.scheme(), config)
    }

    /// The most blocks that one transaction of a journal in this log may hold. It bounds what one
    /// write call can change at once.
    pub fn max_transaction(&self, config: &JournalConfig) -> u64 {
        let scheme = self.open.scheme();
        let ring = scheme.media.first().map_or(0, |m| m.capacity());
        let block_size = u64::from(self.summary().block_size);
        max_tx(&*scheme.codec, ring, config.memory, block_size)
    }

    /// Makes the log, which is empty, as one that was never used, durably. It can then begin with
    /// its first sequence number again.
    ///
    /// # Errors
    /// The device's; `Corrupt` if it is not empty.
    pub fn clear(&mut self) -> Result<()> {
        self.jbd2.clear()
    }

    /// Opens the log again, after a replay changed it.
    ///
    /// # Errors
    /// As [`Log::open`].
    pub fn reopen(&self) -> Result<Log> {
        let mut again = Log::open_area(self.jbd2.area().clone(), self.canary)?;
        if let Some((region, uuid)) = &self.region {
            again.attach(region, *uuid)?;
        }
        Ok(again)
    }

    /// Starts a journal in the empty log.
    ///
    /// # Errors
    /// The device's. `Corrupt` if the log is not empty; `Unsupported` if it cannot hold the format.
    pub fn start(
        mut self,
        cache: Arc<Cache>,
        features: LogFeatures,
        journal: &Composition,
        config: JournalConfig,
    ) -> Result<Arc<Journal>> {
        self.jbd2.align(features)?;
        let (area, sb) = (self.jbd2.area().clone(), self.jbd2.superblock());
        let region = match &self.region {
            Some((RegionSource::Open(region), uuid)) => Some(RegionUse {
                region: Arc::clone(region),
                uuid: *uuid,
                barrier: config.barrier,
            }),
            _ => None,
        };
        let format = journal.format();
        let made = format.make(
            area,
            sb,
            journal,
            region.as_ref(),
            config.barrier,
            self.canary,
        )?;
        let scheme = Scheme {
            ordering: journal.ordering(),
            home: journal.home(),
            ..made
        };
        Journal::start(cache, scheme, config)
    }

    /// Visits the records of the log from its tail on; images are read and checked. The last record
    /// of each lane is its end ([`RecordKind::End`], or [`RecordKind::Lost`] for damage).
    ///
    /// # Errors
    /// The device's; `Corrupt` for damage that no crash explains.
    pub fn walk(&self, visit: &mut dyn FnMut(Record) -> Result<()>) -> Result<()> {
        self.open.walk(visit)
    }

    /// The verdict of [`recover`](Self::recover) on each transaction; for a damaged log the verdict
    /// of a salvaging recovery. Images are not read.
    ///
    /// # Errors
    /// The device's; `Corrupt` for damage that no crash explains.
    pub fn judge(&self) -> Result<Verdict> {
        judge(scan(&self.open.scheme(), &mut |_, _| {})?)
    }
}
