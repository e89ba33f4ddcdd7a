//! A StetFS log before a journal runs in it: how it is opened, and made in the journal inode.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;

use stetfs_ondisk::OnDiskError;
use stetfs_ondisk::jbd2::fast_commit::{End, FastCommit};
use stetfs_ondisk::jbd2::{IncompatFlags, JournalSuperblock};
use stetfs_ondisk::num::{count16, low32};
use stetfs_ondisk::stet::header::{
    COPY_BYTES, Lane as LaneHeader, LogHeader, copy_at, copy_blocks,
};

use super::codec::StetCodec;
use super::cut::{FILE_LANES_BYTES, cut};
use super::files::FileLanes;
use super::options::StetOptions;
use super::pace::Pace;
use super::ring::{Marks, SharedHeader, StetRing, write_copy};
use super::walk::walk;
use crate::canary::Canary;
use crate::compose::Composition;
use crate::error::Result;
use crate::ids::Lane;
use crate::jbd2::{Jbd2Ring, LogArea, LogSummary, Record, RecordKind};
use crate::log::{LogFormat, OpenLog};
use crate::policy::{CopyHome, Medium, OneLane, RecordLog, Scheme};
use crate::region::{self, Owner, RegionError, RegionLanes, RegionSource, RegionUse};

/// An opened StetFS log.
pub struct StetLog {
    pub(super) area: LogArea,
    /// The superblock in block 0 while the log is in use.
    sb: JournalSuperblock,
    pub(super) header: LogHeader,
    /// The records of files in a region; none if the header does not say so, or the region is not
    /// given.
    pub(super) records: Option<Arc<RegionLanes>>,
    /// Whether files are synced by transactions although the region has room for records.
    unrecorded: bool,
    canary: Canary,
}

impl StetLog {
    /// Reads the header of the log, which the jbd2 superblock `sb` announces.
    ///
    /// # Errors
    /// The device's; `Corrupt` if neither copy is valid, or if it is for another block size or
    /// volume.
    pub fn open(area: LogArea, sb: JournalSuperblock, canary: Canary) -> Result<StetLog> {
        let mut copies = Vec::new();
        for copy in 0..2 {
            let first = copy_at(copy, area.block_size());
            let pages = area.read(first..first + copy_blocks(area.block_size()))?;
            let mut bytes: Vec<u8> = pages.iter().flat_map(|p| p.iter().copied()).collect();
            bytes.truncate(COPY_BYTES);
            copies.push(LogHeader::decode(&bytes, area.blocks()));
        }
        let best = copies
            .iter()
            .flatten()
            .max_by_key(|header| match canary.older_header {
                true => u64::MAX - header.generation,
                false => header.generation,
            })
            .cloned();
        let header = match (best, copies.into_iter().next()) {
            (Some(header), _) => header,
            (None, Some(Err(e))) => return Err(e.into()),
            (None, _) => return Err(damaged("no copy of the header".into())),
        };
        if header.block_size != area.block_size() {
            return Err(damaged(format!(
                "it is for blocks of {} bytes, not {}",
                header.block_size,
                area.block_size()
            )));
        }
        if header.uuid != sb.s_uuid {
            return Err(damaged("it is for another volume".into()));
        }
        let files = header.lanes.iter().rev().take(header.file_lanes.into());
        let bytes = |lane: &LaneHeader| (lane.end - lane.first) * u64::from(header.block_size);
        if files.map(bytes).sum::<u64>() > FILE_LANES_BYTES {
            let most = FILE_LANES_BYTES >> 20;
            let what = format!("more than {most} MiB of lanes for records of files");
            return Err(damaged(what));
        }
        Ok(StetLog {
            area,
            sb,
            header,
            records: None,
            unrecorded: false,
            canary,
        })
    }

    /// Makes an empty log in the area of an empty jbd2 log with superblock `sb`, durably. From then
    /// on other programs refuse the volume, until the log is retired. The lanes for records of
    /// files are in `region`, if it is given.
    ///
    /// # Errors
    /// The device's and the region's; `Unsupported` if the area is too small for the lanes;
    /// `Region`.
    pub fn make(
        area: LogArea,
        sb: JournalSuperblock,
        options: &StetOptions,
        region: Option<&RegionUse>,
        canary: Canary,
    ) -> Result<StetLog> {
        let in_region = options.changes.is_some();
        if in_region && region.is_none() {
            return Err(RegionError::Needed.into());
        }
        let region = region.filter(|_| options.file_lanes > 0 || in_region);
        let in_log = StetOptions {
            file_lanes: if region.is_some() {
                0
            } else {
                options.file_lanes
            },
            ..*options
        };
        let size = area.block_size();
        let epoch = fresh_epoch();
        let mut lanes = match in_region {
            true => Vec::new(),
            false => cut_area(&area, &sb, epoch, &in_log, canary)?,
        };
        let held = region::Lanes {
            count: options.file_lanes,
            first: if in_region { 1 } else { count16(lanes.len()) },
            log: in_region,
        };
        let take = |used: &RegionUse| take(used, epoch, held, size, canary);
        let before = region.filter(|_| in_region || !canary.region_late);
        let mut records = before.map(take).transpose()?;
        if in_region {
            let lines = records.iter().filter_map(|region| region.log_lines());
            lanes.extend(lines.map(|lines| LaneHeader {
                first: lines.start,
                end: lines.end,
                tail_at: 0,
                tail_seq: 1,
            }));
        }
        let header = LogHeader {
            generation: 1,
            epoch,
            horizon: 0,
            uuid: sb.s_uuid,
            block_size: size,
            lanes,
            file_lanes: in_log.file_lanes,
            region: region.is_some(),
            in_region,
        };
        let (header, marked) = write_first(&area, header, sb)?;
        if canary.region_late && !in_region {
            records = region.map(take).transpose()?;
        }
        // The log names the region now.
        records.iter().try_for_each(|records| records.begin())?;
        Ok(StetLog {
            area,
            sb: marked,
            header,
            records,
            unrecorded: options.file_lanes == 0,
            canary,
        })
    }

    /// The header, as it was read or made.
    pub fn header(&self) -> &LogHeader {
        &self.header
    }

    /// The policies for this log. `options` give the way it is written, and `barrier` whether that
    /// is with barriers. The lanes are those that the log has.
    pub fn scheme(&self, options: &StetOptions, barrier: bool) -> Scheme {
        let shared = SharedHeader::new(self.area.clone(), self.header.clone());
        let all = count16(self.header.lanes.len());
        let lanes = all - self.header.file_lanes;
        let mut plain = self.sb;
        plain.set_incompat(self.sb.incompat() - IncompatFlags::STET);
        let mut in_use = self.sb;
        let mut marks = Some(Marks {
            plain: Jbd2Ring::superblock_page(&self.area, &mut plain),
            in_use: Jbd2Ring::superblock_page(&self.area, &mut in_use),
        });
        let pace = Arc::new(Pace::default());
        let mut ring = |i| StetRing::new(&shared, Lane(i), &pace, options.trim, marks.take());
        let media = (0..lanes)
            .filter_map(&mut ring)
            .map(|ring| Box::new(ring) as Box<dyn Medium>)
            .collect();
        let codec = StetCodec {
            block_size: self.area.block_size(),
            epoch: self.header.epoch,
            lanes,
            compression: options.compression,
            chunk: options.chunk,
            pace: Arc::clone(&pace),
            unordered: !barrier,
            canary: self.canary,
        };
        let rings: Vec<StetRing> = (lanes..all).filter_map(ring).collect();
        let in_region = self.records.clone().filter(|_| !self.unrecorded);
        let in_region = in_region.map(|r| r as Arc<dyn RecordLog>);
        let in_log = (!rings.is_empty())
            .then(|| Arc::new(FileLanes::new(codec.clone(), rings)) as Arc<dyn RecordLog>);
        let records = in_region.or(in_log);
        if self.header.in_region {
            return self.in_region(options, media, records);
        }
        Scheme {
            ordering: Box::new(OneLane),
            records,
            codec: Box::new(codec),
            media,
            home: Box::new(CopyHome),
        }
    }
}

/// The log format of StetFS.
pub struct StetFormat;

impl LogFormat for StetFormat {
    fn detect(&self, sb: &JournalSuperblock) -> bool {
        sb.incompat().contains(IncompatFlags::STET)
    }

    fn open(
        &self,
        area: LogArea,
        sb: &JournalSuperblock,
        canary: Canary,
    ) -> Result<Box<dyn OpenLog>> {
        Ok(Box::new(StetLog::open(area, *sb, canary)?))
    }

    fn make(
        &self,
        area: LogArea,
        sb: &JournalSuperblock,
        journal: &Composition,
        region: Option<&RegionUse>,
        barrier: bool,
        canary: Canary,
    ) -> Result<Scheme> {
        let options = StetOptions::of(journal, area.block_size());
        Ok(StetLog::make(area, *sb, &options, region, canary)?.scheme(&options, barrier))
    }
}

impl OpenLog for StetLog {
    fn summary(&self, superblock: LogSummary) -> LogSummary {
        let Some(first) = self.header.lanes.first() else {
            return superblock;
        };
        LogSummary {
            format: "stetfs",
            sequence: low32(first.tail_seq),
            start: first.tail_at,
            ..superblock
        }
    }

    /// Always true: recovery has to restore the plain jbd2 superblock.
    fn is_dirty(&self) -> bool {
        true
    }

    fn attach(&mut self, source: &RegionSource, uuid: [u8; 16]) -> Result<()> {
        let owner = Owner {
            uuid,
            epoch: self.header.epoch,
        };
        let first = count16(self.header.lanes.len());
        self.records = match source {
            _ if !self.header.region => None,
            RegionSource::None if self.header.in_region => {
                return Err(RegionError::LogNotNamed.into());
            }
            RegionSource::None => return Err(RegionError::NotNamed.into()),
            RegionSource::GivenUp => {
                tracing::warn!("the region is given up: data synced to it is lost");
                None
            }
            RegionSource::Open(region) => {
                let records = RegionLanes::open(Arc::clone(region), owner, first, self.canary);
                let records = records.map_err(|e| self.lost(e))?;
                let lane = self.header.lanes.first().map(|lane| lane.first..lane.end);
                if self.header.in_region && records.log_lines() != lane {
                    let why = "its log is not at the place that the volume's header names".into();
                    return Err(RegionError::LogLost(why).into());
                }
                Some(Arc::new(records))
            }
        };
        Ok(())
    }

    fn scheme(&self) -> Scheme {
        StetLog::scheme(self, &StetOptions::default(), true)
    }

    fn fast_commits(&self, _next_seq: u64) -> Result<Option<(Vec<FastCommit>, End)>> {
        Ok(None)
    }

    fn walk(&self, visit: &mut dyn FnMut(Record) -> Result<()>) -> Result<()> {
        walk(&OpenLog::scheme(self), self.header.block_size, visit)?;
        match self.header.region && self.records.is_none() {
            true => visit(Record {
                at: 0,
                tid: 0,
                lane: None,
                kind: RecordKind::End(
                    "records of files are in a region of persistent memory".into(),
                ),
            }),
            false => Ok(()),
        }
    }
}

/// Divides an area into the lanes that `options` ask for.
fn cut_area(
    area: &LogArea,
    sb: &JournalSuperblock,
    epoch: u64,
    options: &StetOptions,
    canary: Canary,
) -> Result<Vec<LaneHeader>> {
    let size = area.block_size();
    let first = copy_at(1, size) + copy_blocks(size);
    // The fast-commit blocks behind the ring stay unused.
    let end = u64::from(sb.ring_end()).min(area.blocks());
    let codec = StetCodec {
        block_size: size,
        epoch,
        lanes: options.lanes,
        compression: options.compression,
        chunk: options.chunk,
        pace: Arc::default(),
        unordered: false,
        canary,
    };
    cut(first, end, options, &codec)
}

/// Makes the lanes of a new log in its region.
fn take(
    used: &RegionUse,
    epoch: u64,
    held: region::Lanes,
    size: u32,
    canary: Canary,
) -> Result<Arc<RegionLanes>> {
    let owner = Owner {
        uuid: used.uuid,
        epoch,
    };
    let region = Arc::clone(&used.region);
    let made = RegionLanes::make(region, owner, held, size, used.barrier, canary);
    made.map(Arc::new)
}

/// Writes a new log's header, and then a superblock that announces it, each durably. Returns both
/// as written.
fn write_first(
    area: &LogArea,
    header: LogHeader,
    sb: JournalSuperblock,
) -> Result<(LogHeader, JournalSuperblock)> {
    // Both copies are written, because those of an older log must not outrank them.
    write_copy(area, &header, true)?;
    let header = LogHeader {
        generation: 2,
        ..header
    };
    write_copy(area, &header, true)?;
    let mut marked = sb;
    marked.set_incompat(sb.incompat() | IncompatFlags::STET);
    Jbd2Ring::write_superblock(area, &mut marked, true)?;
    Ok((header, marked))
}

fn damaged(detail: String) -> crate::JournalError {
    OnDiskError::Corrupt {
        what: "StetFS log header",
        detail,
    }
    .into()
}

/// A new epoch: 64 random bits from the operating system's randomness, so that no older log has the
/// same.
fn fresh_epoch() -> u64 {
    let mut hasher = RandomState::new().build_hasher();
    hasher.write_u32(std::process::id());
    hasher.finish()
}

impl std::fmt::Debug for StetLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StetLog")
            .field("header", &self.header)
            .finish_non_exhaustive()
    }
}
