//! The lanes of records of files (i-lanes): small rings, which the threads that sync files write to
//! themselves.
//!
//! A record's space is free again once the record is superseded: a valid transaction holds all that
//! the record describes. Recovery reads every block of these lanes, so they have no tail.

use std::borrow::Cow;
use std::sync::Arc;

use stetfs_cache::PageRef;
use stetfs_ondisk::num::to_usize;
use stetfs_ondisk::stet::frame::{self, Counts, Frame, Kind};
use stetfs_sync::plain::Instant;

use super::codec::StetCodec;
use super::ring::StetRing;
use crate::error::{JournalError, Result};
use crate::ids::{BlockNr, Stamp, TxId};
use crate::policy::{
    FoundRecords, InLane, LoggedRecord, Medium, RecordLane, RecordLog, RecordPlace, RecordSize,
};

/// The lanes for records of one log.
pub struct FileLanes {
    codec: StetCodec,
    lanes: Vec<FileLane>,
}

struct FileLane {
    ring: StetRing,
    space: RecordLane,
}

impl FileLanes {
    pub(super) fn new(codec: StetCodec, rings: Vec<StetRing>) -> FileLanes {
        let lanes = rings.into_iter().map(|ring| FileLane {
            space: RecordLane::new(ring.first()..ring.end()),
            ring,
        });
        FileLanes {
            codec,
            lanes: lanes.collect(),
        }
    }

    /// The most log blocks of a record of so many bytes and pages.
    fn bound(&self, RecordSize { bytes, pages }: RecordSize) -> u64 {
        let chunks = pages.div_ceil(self.codec.per_chunk());
        let counts = Counts {
            chunks,
            edges: 1 + self.lanes.len() + usize::from(self.codec.lanes),
            images: pages,
            revokes: 0,
            record: bytes,
        };
        // A block may stay partly empty between a packed chunk and a raw one.
        (counts.head_blocks(self.codec.size()) + pages + chunks.saturating_sub(1)) as u64
    }

    /// The statements of a record about other lanes: the newest durable items that must still be
    /// there.
    fn durable(&self, horizon: Stamp, transactions: &[TxId]) -> Vec<(u16, u64)> {
        if self.codec.unordered {
            return Vec::new();
        }
        let records = self.lanes.iter().filter_map(|lane| {
            let stamp = lane.space.durable(horizon)?;
            Some((lane.ring.lane().0, stamp))
        });
        let transactions = transactions.iter().map(|id| (id.lane.0, id.seq));
        transactions.chain(records).collect()
    }

    /// Writes a record to its place, without a flush. Returns its bytes, and whether it is durable,
    /// which it is with FUA. Only the record itself has to become so: the caller has flushed
    /// everything that the record relies on.
    ///
    /// # Errors
    /// The device's.
    fn write(
        &self,
        place: &RecordPlace,
        record: &[u8],
        pages: &[(BlockNr, PageRef)],
    ) -> Result<(u64, bool)> {
        let Some(FileLane { ring, .. }) = self.lanes.get(place.lane) else {
            return Err(no_lane(place.lane));
        };
        let codec = &self.codec;
        let images: Vec<PageRef> = pages.iter().map(|(_, page)| Arc::clone(page)).collect();
        let lane = ring.lane().0;
        let frame = Frame {
            kind: Kind::Record,
            edges: std::iter::once((lane, place.before))
                .chain(place.durable.iter().copied())
                .collect(),
            images: pages.iter().map(|(nr, _)| *nr).collect(),
            // Without barriers it is unknown what is durable.
            floor: if codec.unordered { 0 } else { place.settled },
            record: record.to_vec(),
            ..codec.frame(lane, place.seq, place.stamp)
        };
        let encoded = codec.lay_out(frame, &images, &mut |from, blocks| {
            ring.write_early(ring.advance(place.at, from), blocks)
        })?;
        let mut list = ring.blocks(place.at, &encoded, false)?;
        let device = &**ring.area().device();
        let wanted = !codec.unordered && !codec.canary.record_volatile && encoded.early.1 == 0;
        let fua = wanted && device.has_fua();
        if fua {
            list.set_fua();
        }
        let started = Instant::now();
        list.submit(device)?;
        ring.sent(list.bytes(), started.elapsed());
        Ok((encoded.blocks() * codec.size() as u64, fua))
    }

    /// Notes that the record is durable.
    ///
    /// # Errors
    /// `Aborted` if the place is not of this log.
    fn settle(&self, place: &RecordPlace) -> Result<()> {
        let lane = self.lanes.get(place.lane);
        let lane = lane.ok_or_else(|| no_lane(place.lane))?;
        lane.space.settle(place.seq);
        Ok(())
    }

    fn scan_lane(&self, ring: &StetRing, horizon: Stamp, out: &mut FoundRecords) -> Result<()> {
        let mut live: Vec<(u64, Frame)> = Vec::new();
        let mut bytes = Vec::new();
        ring.read_bytes(ring.first(), ring.capacity(), &mut bytes)?;
        for at in ring.first()..ring.end() {
            let Some(frame) = self.record_at(ring, &bytes, at)? else {
                continue;
            };
            out.last = out.last.max(frame.stamp);
            out.note_durable(frame.edges.iter().skip(1).copied());
            if frame.stamp <= horizon {
                out.superseded += 1;
            } else {
                live.push((at, frame));
            }
        }
        live.sort_unstable_by_key(|(_, frame)| frame.seq);
        // Each record reserved space for all its images unpacked, so more than that is damage.
        let images: u64 = live.iter().map(|(_, f)| f.images.len() as u64).sum();
        if images > ring.capacity() {
            out.lost = Some(format!(
                "records of {images} blocks in lane {}, which has only {}",
                ring.lane().0,
                ring.capacity()
            ));
            return Ok(());
        }
        let in_lane = |(_, frame): &(u64, Frame)| InLane {
            seq: frame.seq,
            before: frame.edges.first().map_or(0, |(_, stamp)| *stamp),
            settled: frame.floor,
        };
        let in_lane: Vec<InLane> = live.iter().map(in_lane).collect();
        out.check_lane(ring.lane().0, horizon, &in_lane);
        for (at, frame) in live {
            out.records.push(self.load(ring, at, frame)?);
        }
        Ok(())
    }

    /// The record whose frame begins at log block `at`; none if a part of it fails its check.
    /// `bytes` is the content of the ring.
    fn record_at(&self, ring: &StetRing, bytes: &[u8], at: u64) -> Result<Option<Frame>> {
        let codec = &self.codec;
        let (before, from_here) = bytes.split_at(to_usize(at - ring.first()) * codec.size());
        let first = from_here.get(..codec.size()).unwrap_or_default();
        if !frame::may_begin_in(first) {
            return Ok(None);
        }
        let glance = match frame::glance(first, ring.capacity()) {
            Ok(g) if (g.epoch, g.lane) == (codec.epoch, ring.lane().0) => g,
            _ => return Ok(None),
        };
        let head = to_usize(glance.head_blocks) * codec.size();
        let head = match from_here.get(..head) {
            Some(head) => Cow::Borrowed(head),
            // It wraps, or is longer than the ring: then it fails its check.
            None => {
                let mut wrapped = [from_here, before].concat();
                wrapped.truncate(head);
                Cow::Owned(wrapped)
            }
        };
        let Ok(frame) = codec.head(&head) else {
            return Ok(None);
        };
        let ends = frame.places(codec.size());
        for (index, (chunk, from)) in frame.chunks.iter().zip(&ends).enumerate() {
            if codec.canary.record_unproven {
                break;
            }
            let stored = codec.read_bytes(ring, at, *from, chunk.stored)?;
            if !codec.chunk_is_whole(&frame, index, &stored) {
                return Ok(None);
            }
        }
        Ok((frame.kind == Kind::Record && frame.seq > 0).then_some(frame))
    }

    fn load(&self, ring: &StetRing, at: u64, frame: Frame) -> Result<LoggedRecord> {
        let refs = self.codec.image_refs(ring, &frame, at)?;
        let pages = super::read::images(&self.codec, ring, &refs)?;
        Ok(LoggedRecord {
            id: TxId {
                lane: ring.lane(),
                seq: frame.seq,
            },
            at: at * self.codec.size() as u64,
            bytes: frame.blocks(self.codec.size()) * self.codec.size() as u64,
            stamp: frame.stamp,
            body: frame.record,
            pages: frame.images.into_iter().zip(pages).collect(),
        })
    }
}

impl RecordLog for FileLanes {
    fn lanes(&self) -> usize {
        self.lanes.len()
    }

    fn reserve(
        &self,
        lane: usize,
        size: RecordSize,
        horizon: Stamp,
        transactions: &[TxId],
        stamp: &dyn Fn() -> Stamp,
    ) -> Option<RecordPlace> {
        let lane = lane % self.lanes.len().max(1);
        let durable = || self.durable(horizon, transactions);
        let reuse_all = self.codec.canary.reuse_records;
        let space = &self.lanes.get(lane)?.space;
        space.reserve(lane, self.bound(size), horizon, reuse_all, stamp, durable)
    }

    fn is_half_full(&self, lane: usize, horizon: Stamp) -> bool {
        let lane = self.lanes.get(lane % self.lanes.len().max(1));
        let reuse_all = self.codec.canary.reuse_records;
        lane.is_some_and(|lane| lane.space.is_half_full(horizon, reuse_all))
    }

    fn write_durably(
        &self,
        place: &RecordPlace,
        body: &[u8],
        pages: &[(BlockNr, PageRef)],
        flush: &dyn Fn() -> Result<()>,
    ) -> Result<u64> {
        let (bytes, is_durable) = self.write(place, body, pages)?;
        let canary = &self.codec.canary;
        if canary.settle_early {
            self.settle(place)?;
        }
        if !canary.record_volatile && !is_durable {
            flush()?;
        }
        if !canary.settle_early {
            self.settle(place)?;
        }
        Ok(bytes)
    }

    fn scan(&self, horizon: Stamp) -> Result<FoundRecords> {
        let mut found = FoundRecords::default();
        for lane in &self.lanes {
            self.scan_lane(&lane.ring, horizon, &mut found)?;
        }
        found.check_between(self.codec.lanes, horizon);
        Ok(found)
    }

    /// Does nothing: the media retire the log's header.
    fn retire(&self) -> Result<()> {
        Ok(())
    }

    fn resume(&self) -> Result<()> {
        Ok(())
    }
}

/// The error for a place in a lane that does not exist: the place is of another log.
fn no_lane(lane: usize) -> JournalError {
    JournalError::Aborted(format!(
        "a record for lane {lane}, but the log has no such lane"
    ))
}
