//! The lanes of file-level records (i-lanes): small rings that the threads that sync files write to
//! themselves.
//!
//! A record's space is free again once the record is superseded, that is, once the transaction is
//! valid that holds what it holds. Recovery looks at every block of these lanes, so they have no
//! tail to keep.

use std::sync::Arc;

use stetfs_cache::PageRef;
use stetfs_ondisk::num::to_usize;
use stetfs_ondisk::stet::frame::{self, Counts, Frame, Kind};
use stetfs_sync::plain::Instant;

use super::codec::StetCodec;
use super::read::joined;
use super::ring::StetRing;
use crate::error::{JournalError, Result};
use crate::ids::{BlockNr, Stamp, TxId};
use crate::policy::{
    FoundRecords, InLane, LoggedRecord, Medium, RecordLane, RecordLog, RecordPlace, RecordSize,
};

/// The lanes.
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

    /// Log blocks of a record of so many bytes, with so many pages, at most.
    fn bound(&self, RecordSize { bytes, pages }: RecordSize) -> u64 {
        let chunks = pages.div_ceil(self.codec.per_chunk());
        let counts = Counts {
            chunks,
            edges: 1 + self.lanes.len() + usize::from(self.codec.lanes),
            images: pages,
            revokes: 0,
            record: bytes,
        };
        // A block may stay unfilled between a packed chunk and one that is stored as it is.
        (counts.head_blocks(self.codec.size()) + pages + chunks.saturating_sub(1)) as u64
    }

    /// What a record says of others: which of them the device must still have.
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

    /// Writes the record to its place, without a flush. Gives the bytes it took, and whether it is
    /// durable: where the device has FUA. A record promises nothing of other writes; who writes
    /// one has flushed what it needs.
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
            // Without barriers nobody knows what is durable.
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

    /// The record is durable.
    ///
    /// # Errors
    /// The place is none of this log's.
    fn settle(&self, place: &RecordPlace) -> Result<()> {
        let lane = self.lanes.get(place.lane);
        let lane = lane.ok_or_else(|| no_lane(place.lane))?;
        lane.space.settle(place.seq);
        Ok(())
    }

    fn scan_lane(&self, ring: &StetRing, horizon: Stamp, out: &mut FoundRecords) -> Result<()> {
        let mut live: Vec<(u64, Frame)> = Vec::new();
        let blocks = ring.read(ring.first(), ring.capacity())?;
        for at in ring.first()..ring.end() {
            let Some(frame) = self.record_at(ring, &blocks, at)? else {
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
        // Room was made for all of them unpacked, whatever they take.
        let images: u64 = live.iter().map(|(_, f)| f.images.len() as u64).sum();
        if images > ring.capacity() {
            out.lost = Some(format!(
                "records of {images} blocks in lane {}, which has {}",
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

    /// The record whose frame begins at log block `at`, if all of it proves itself.
    fn record_at(&self, ring: &StetRing, blocks: &[PageRef], at: u64) -> Result<Option<Frame>> {
        let codec = &self.codec;
        let count = blocks.len() as u64;
        let block = |at: u64| blocks.get(to_usize((at - ring.first()) % count.max(1)));
        let Some(first) = block(at) else {
            return Ok(None);
        };
        let glance = match frame::glance(first, ring.capacity()) {
            Ok(g) if (g.epoch, g.lane) == (codec.epoch, ring.lane().0) => g,
            _ => return Ok(None),
        };
        let head: Vec<PageRef> = (at..at + glance.head_blocks)
            .filter_map(block)
            .cloned()
            .collect();
        let Ok(frame) = codec.head(&joined(&head)) else {
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

    /// The log's header goes with the media.
    fn retire(&self) -> Result<()> {
        Ok(())
    }

    fn resume(&self) -> Result<()> {
        Ok(())
    }
}

/// The place names a lane that is not there: it came from another log.
fn no_lane(lane: usize) -> JournalError {
    JournalError::Aborted(format!(
        "a record for lane {lane}, which the log does not have"
    ))
}
