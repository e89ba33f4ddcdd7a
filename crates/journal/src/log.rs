//! A volume's log before a journal runs in it: what it holds, its recovery, its start.
//!
//! The file system knows where the log lies; which scheme wrote it shows here, and only here.

use std::sync::Arc;

use stetfs_block::BlockDevice;
use stetfs_cache::PageRef;
use stetfs_ondisk::jbd2::JournalSuperblock;
use stetfs_ondisk::jbd2::fast_commit::{End, FastCommit};

use crate::compose::{Composition, Make, PARTS};
use crate::engine::{Canary, Journal, JournalConfig, max_tx};
use crate::error::Result;
use crate::head::Cache;
use crate::ids::BlockNr;
use crate::jbd2::{Jbd2Format, Jbd2Log, LogArea};
use crate::policy::{Home, Scheme};
use crate::recovery::{Recovery, RecoveryOptions, Verdict, judge, replay};
use crate::region::{RegionSource, RegionUse};
use crate::scan::scan;

pub use crate::jbd2::{Features as LogFeatures, LogSummary, Record, RecordKind};

/// A format of logs. All lie behind a jbd2 superblock, in which one that is not jbd2's own has left
/// its mark.
pub trait LogFormat: Sync {
    /// Whether the log behind this superblock is written so.
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
    /// Makes an empty log in an area whose jbd2 log is empty, durably, and gives the policies for a
    /// journal in it. Ordering and home are the composition's; what is put there for them does
    /// not count. Where there are records of files, they go to `region`, if there is one.
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
    /// What the header says beyond what the superblock does.
    fn summary(&self, superblock: LogSummary) -> LogSummary;
    /// Whether there may be something to replay, or to put right.
    fn is_dirty(&self) -> bool;
    /// Has the log find its records of files in the region of the volume with this UUID, if it says
    /// that they are in one.
    ///
    /// # Errors
    /// The region's; `Region` if it is not the one.
    fn attach(&mut self, region: &RegionSource, uuid: [u8; 16]) -> Result<()>;
    /// The policies for reading the log as it is.
    fn scheme(&self) -> Scheme;
    /// Fast commits that stand behind transactions of which the next would be `next_seq`, and why
    /// there is no further one; none where the format has none.
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

/// A log that was opened.
pub struct Log {
    jbd2: Jbd2Log,
    /// The same in its format.
    open: Box<dyn OpenLog>,
    /// The region, and the volume's UUID; none as long as the log is only looked at.
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

    /// Gives the log of the volume with this UUID its region, for records of files that are there,
    /// and for those to come.
    ///
    /// # Errors
    /// The region's; `Region` if records are in a region, and this is not it.
    pub fn attach(&mut self, region: &RegionSource, uuid: [u8; 16]) -> Result<()> {
        self.region = Some((region.clone(), uuid));
        self.open.attach(region, uuid)
    }

    /// What the header says.
    pub fn summary(&self) -> LogSummary {
        self.open.summary(self.jbd2.summary())
    }

    /// Whether there may be something to replay, or to put right.
    pub fn is_dirty(&self) -> bool {
        self.open.is_dirty()
    }

    /// Forgets the error that the last user of the log stopped with, durably.
    ///
    /// # Errors
    /// The device's.
    pub fn clear_errno(&mut self) -> Result<()> {
        self.jbd2.clear_errno()
    }

    /// Replays the log into the volume of `blocks` blocks, and empties it: it is a plain, empty
    /// jbd2 log then, unless there are file-level records to be applied, which stay in it
    /// ([`Log::resume`]), or fast commits, which do so too ([`Log::commit_images`]). Images
    /// reach their homes by `home`. `progress` gets (done, of) in log blocks and images.
    ///
    /// # Errors
    /// Those of [`recover`](crate::recover); `Unsupported` for fast commits of later writers.
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

    /// Puts the transaction that fast commits are part of into the log that
    /// [`recover`](Self::recover) left them in, as `images` of blocks by number; they count no
    /// longer, and [`recover`](Self::recover) has to be called again. The log must have been
    /// opened again since.
    ///
    /// # Errors
    /// The device's; `Unsupported`, and nothing changed, if it is larger than the log.
    pub fn commit_images(&self, images: Vec<(BlockNr, PageRef)>) -> Result<()> {
        self.jbd2.commit_images(images)
    }

    /// Starts a journal in the log that [`recover`](Self::recover) left records in, which stay
    /// alive until [`Journal::release_horizon`].
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
        Journal::start(cache, self.open.scheme(), config)
    }

    /// The most blocks that one transaction of a journal in this log may hold: what one write call
    /// can change at once.
    pub fn max_transaction(&self, config: &JournalConfig) -> u64 {
        let scheme = self.open.scheme();
        let ring = scheme.media.first().map_or(0, |m| m.capacity());
        let block_size = u64::from(self.summary().block_size);
        max_tx(&*scheme.codec, ring, config.memory, block_size)
    }

    /// Has the log, which is empty, be as one that was never used, durably. Nothing of its use is
    /// left, so it can begin with its first sequence number again.
    ///
    /// # Errors
    /// The device's; `Corrupt` if it is not empty.
    pub fn clear(&mut self) -> Result<()> {
        self.jbd2.clear()
    }

    /// The log again, after a replay changed it.
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

    /// Visits the records of the log from its tail on, [`RecordKind::End`] last; images are read
    /// and checked.
    ///
    /// # Errors
    /// The device's; `Corrupt` for damage that no crash explains.
    pub fn walk(&self, visit: &mut dyn FnMut(Record) -> Result<()>) -> Result<()> {
        self.open.walk(visit)
    }

    /// What [`recover`](Self::recover) would make of each transaction; of a damaged log, when it is
    /// to be salvaged. Images are not read.
    ///
    /// # Errors
    /// The device's; `Corrupt` for damage that no crash explains.
    pub fn judge(&self) -> Result<Verdict> {
        judge(scan(&self.open.scheme(), &mut |_, _| {})?)
    }
}
