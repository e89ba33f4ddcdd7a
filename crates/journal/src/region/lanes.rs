//! Lanes of records in a region: rings of lines, which the threads that sync files write to
//! themselves.

use std::ops::Range;
use std::sync::Arc;

use stetfs_cache::{Page, PageRef};
use stetfs_nvm::Region;
use stetfs_ondisk::num::count16;
use stetfs_ondisk::stet::region::{
    Counts, HEAD_BYTES, LANES_AT, LINE, RECORD_MAGIC, RecordHead, RestSum, SEAL_AT, State, Table,
};

use super::claim::{Claim, Held, Owner};
use super::error::RegionError;
use super::log::ChangesLog;
use super::round::Round;
use crate::canary::Canary;
use crate::error::{JournalError, Result};
use crate::ids::{BlockNr, Lane, Stamp, TxId};
use crate::policy::{
    FoundRecords, InLane, LoggedRecord, RecordLane, RecordLog, RecordPlace, RecordSize,
};

/// The fewest bytes of a lane.
const LEAST: u64 = 16 << 10;
/// The fewest blocks that a log of transactions can hold, so that a transaction holds an operation.
const LEAST_LOG: u64 = 512;

/// The lanes that a region is to have.
#[derive(Clone, Copy, Debug)]
pub struct Lanes {
    /// The most lanes of records.
    pub count: u16,
    /// The number of the first lane of records; lower numbers are lanes of transactions.
    pub first: u16,
    /// Whether transactions are in the region, too.
    pub log: bool,
}

/// The records of files in a region.
pub struct RegionLanes {
    region: Arc<dyn Region>,
    claim: Claim,
    /// The number of the first lane; lower numbers are lanes of transactions.
    first: u16,
    lanes: Vec<RecordLane>,
    block_size: usize,
    /// Whether there are no barriers, so that it is unknown which transactions are durable.
    unordered: bool,
    canary: Canary,
}

impl RegionLanes {
    /// Takes an empty region for a mount, durably, with these lanes. Pages have `block_size` bytes.
    ///
    /// # Errors
    /// The region's; [`RegionError`] if it is not empty, or too small.
    pub fn make(
        region: Arc<dyn Region>,
        owner: Owner,
        Lanes { count, first, log }: Lanes,
        block_size: u32,
        barrier: bool,
        canary: Canary,
    ) -> Result<RegionLanes> {
        let size = region.size();
        // The log of transactions takes half.
        let (least, share) = match log {
            true => (2 * LEAST_LOG * u64::from(block_size), 2),
            false => (LEAST, 1),
        };
        let room = size.saturating_sub(LANES_AT);
        if room < least {
            let least = LANES_AT + least;
            return Err(RegionError::TooSmall { size, least }.into());
        }
        let fit = u16::try_from(room / share / LEAST).unwrap_or(u16::MAX);
        let held = Held {
            lanes: count.clamp(1, fit),
            log,
            block_size,
        };
        let claim = Claim::take(Arc::clone(&region), owner, held)?;
        Ok(RegionLanes::of(region, claim, first, !barrier, canary))
    }

    /// Opens the region of a mount that ended in a crash, for reading.
    ///
    /// # Errors
    /// The region's; [`RegionError::Lost`] if it is not of this mount.
    pub fn open(
        region: Arc<dyn Region>,
        owner: Owner,
        first: u16,
        canary: Canary,
    ) -> Result<RegionLanes> {
        let claim = Claim::find(Arc::clone(&region), owner)?;
        Ok(RegionLanes::of(region, claim, first, false, canary))
    }

    fn of(
        region: Arc<dyn Region>,
        claim: Claim,
        first: u16,
        unordered: bool,
        canary: Canary,
    ) -> RegionLanes {
        let header = claim.header();
        let lanes = u64::from(header.lanes);
        // The region's size bounds what a damaged header can claim.
        let all = header.lanes_room();
        let each = (all.end - all.start) / lanes / LINE as u64 * LINE as u64;
        let room = |i| all.start + i * each..all.start + (i + 1) * each;
        RegionLanes {
            region,
            claim,
            first,
            lanes: (0..lanes).map(|i| RecordLane::new(room(i))).collect(),
            block_size: header.block_size as usize,
            unordered,
            canary,
        }
    }

    /// The log of transactions, if there is one in the region.
    pub(crate) fn log(&self) -> Option<ChangesLog> {
        ChangesLog::of(Arc::clone(&self.region), &self.claim.header(), self.canary)
    }

    /// The lines of the log of transactions.
    pub(crate) fn log_lines(&self) -> Option<Range<u64>> {
        self.log().map(|log| log.lines())
    }

    /// Marks, durably, that there may be records. By then the volume's log names the region.
    ///
    /// # Errors
    /// The region's.
    pub fn begin(&self) -> Result<()> {
        self.claim.set_state(State::InUse)
    }

    /// The lane of a place.
    fn lane_of(&self, place: &RecordPlace) -> Result<&RecordLane> {
        self.lanes.get(place.lane).ok_or_else(|| {
            let lane = place.lane;
            JournalError::Aborted(format!(
                "a record for lane {lane}, but the region has no such lane"
            ))
        })
    }

    fn number(&self, lane: usize) -> u16 {
        self.first + count16(lane)
    }

    /// The statements of a record about other lanes: the newest durable items that must still be
    /// there.
    fn durable(&self, horizon: Stamp, transactions: &[TxId]) -> Vec<(u16, u64)> {
        if self.unordered {
            return Vec::new();
        }
        let records = self.lanes.iter().enumerate().filter_map(|(i, lane)| {
            let stamp = lane.durable(horizon)?;
            Some((self.number(i), stamp))
        });
        let transactions = transactions.iter().map(|id| (id.lane.0, id.seq));
        transactions.chain(records).collect()
    }

    /// Stores all of a record except its seal. Returns the record's bytes and the seal (region.R1).
    fn store(
        &self,
        lane: &RecordLane,
        place: &RecordPlace,
        body: &[u8],
        pages: &[(BlockNr, PageRef)],
    ) -> Result<(u64, u64)> {
        let table = Table {
            durable: place.durable.clone(),
            blocks: pages.iter().map(|(nr, _)| *nr).collect(),
            body: body.to_vec(),
        };
        let counts = table.counts();
        let table = table.encode();
        let rest = || std::iter::once(&table[..]).chain(pages.iter().map(|(_, page)| &page[..]));
        let mut sum = RestSum::default();
        rest().for_each(|part| sum.add(part));
        let head = RecordHead {
            epoch: self.claim.header().epoch,
            seq: place.seq,
            stamp: place.stamp,
            at: place.at,
            lane: self.number(place.lane),
            before: place.before,
            settled: if self.unordered { 0 } else { place.settled },
            counts,
            rest_sum: sum.sum(),
        };
        let (head, seal) = head.encode();
        let round = self.round(lane);
        round.store(place.at, &head)?;
        if self.canary.region_seal_early {
            self.seal(place.at, seal)?;
        }
        let mut stored = head.len() as u64;
        for part in rest() {
            round.store(round.advance(place.at, stored), part)?;
            stored += part.len() as u64;
        }
        Ok((stored, seal))
    }

    fn seal(&self, at: u64, seal: u64) -> Result<()> {
        Ok(self.region.store_u64(at + SEAL_AT as u64, seal)?)
    }

    /// The ring of a lane.
    fn round(&self, lane: &RecordLane) -> Round<'_> {
        Round {
            region: &*self.region,
            room: lane.room(),
        }
    }

    /// The heads of sealed records of this log in a lane; every line is searched.
    fn heads(&self, number: u16, lane: &RecordLane) -> Result<Vec<RecordHead>> {
        let round = self.round(lane);
        let epoch = self.claim.header().epoch;
        let mut found = Vec::new();
        round.search(&RECORD_MAGIC, &mut |at| {
            let bytes = round.read(at, HEAD_BYTES as u64)?;
            let head = <&[u8; HEAD_BYTES]>::try_from(&bytes[..]);
            if let Some(Ok((head, true))) = head.ok().map(RecordHead::decode) {
                let is_ours = head.epoch == epoch || self.canary.region_any_epoch;
                if is_ours && (head.lane, head.at) == (number, at) {
                    found.push(head);
                }
            }
            Ok(false)
        })?;
        found.sort_unstable_by_key(|head| head.seq);
        Ok(found)
    }

    fn scan_lane(
        &self,
        number: u16,
        lane: &RecordLane,
        horizon: Stamp,
        out: &mut FoundRecords,
    ) -> Result<()> {
        let mut live = self.heads(number, lane)?;
        out.last = live.iter().map(|head| head.stamp).fold(out.last, u64::max);
        let all = live.len();
        live.retain(|head| head.stamp > horizon);
        out.superseded += (all - live.len()) as u64;
        let room = lane.room();
        let taken: u64 = live.iter().map(|h| h.counts.bytes(self.block_size)).sum();
        if taken > room.end - room.start {
            out.lost = Some(format!(
                "records of {taken} bytes in lane {number}, which has only {}",
                room.end - room.start
            ));
            return Ok(());
        }
        let in_lane: Vec<InLane> = live
            .iter()
            .map(|head| InLane {
                seq: head.seq,
                before: head.before,
                settled: head.settled,
            })
            .collect();
        out.check_lane(number, horizon, &in_lane);
        for head in live {
            match self.load(lane, &head)? {
                Some((record, durable)) => {
                    out.note_durable(durable);
                    out.records.push(record);
                }
                None => {
                    // region.R3
                    out.lost = Some(format!(
                        "record {} of lane {number} was synced, but does not match its checksum",
                        head.seq
                    ));
                }
            }
        }
        Ok(())
    }

    /// The record with this head, and its statements about durable items; none if it fails its
    /// check.
    #[allow(clippy::type_complexity)]
    fn load(
        &self,
        lane: &RecordLane,
        head: &RecordHead,
    ) -> Result<Option<(LoggedRecord, Vec<(u16, u64)>)>> {
        let bytes = head.counts.bytes(self.block_size);
        let round = self.round(lane);
        let rest = round.advance(head.at, HEAD_BYTES as u64);
        let rest = round.read(rest, bytes - HEAD_BYTES as u64)?;
        let mut sum = RestSum::default();
        sum.add(&rest);
        if sum.sum() != head.rest_sum {
            return Ok(None);
        }
        let (table, pages) = rest.split_at(head.counts.table_bytes().min(rest.len()));
        let Ok(table) = Table::decode(table, head.counts) else {
            return Ok(None);
        };
        let pages = pages.chunks(self.block_size.max(1));
        let pages = pages.map(|page| Arc::new(Page::copy_of(page)));
        let record = LoggedRecord {
            id: TxId {
                lane: Lane(head.lane),
                seq: head.seq,
            },
            at: head.at,
            bytes,
            stamp: head.stamp,
            body: table.body,
            pages: table.blocks.into_iter().zip(pages).collect(),
        };
        Ok(Some((record, table.durable)))
    }
}

impl RecordLog for RegionLanes {
    fn is_cheap(&self) -> bool {
        true
    }

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
        let counts = Counts {
            durable: transactions.len() + self.lanes.len(),
            pages: size.pages,
            body: size.bytes,
        };
        let durable = || self.durable(horizon, transactions);
        let space = self.lanes.get(lane)?;
        let bytes = counts.bytes(self.block_size);
        let reuse_all = self.canary.reuse_records;
        space.reserve(lane, bytes, horizon, reuse_all, stamp, durable)
    }

    fn is_half_full(&self, lane: usize, horizon: Stamp) -> bool {
        let lane = self.lanes.get(lane % self.lanes.len().max(1));
        lane.is_some_and(|lane| lane.is_half_full(horizon, self.canary.reuse_records))
    }

    /// Calls no flush: everything on the device that the record relies on is durable (record.F2).
    fn write_durably(
        &self,
        place: &RecordPlace,
        body: &[u8],
        pages: &[(BlockNr, PageRef)],
        _flush: &dyn Fn() -> Result<()>,
    ) -> Result<u64> {
        let lane = self.lane_of(place)?;
        let (bytes, seal) = self.store(lane, place, body, pages)?;
        self.round(lane).flush(place.at, bytes)?;
        if !self.canary.region_unfenced {
            self.region.fence()?;
        }
        self.seal(place.at, seal)?;
        self.region.flush(place.at..place.at + LINE as u64)?;
        if !self.canary.record_volatile {
            self.region.fence()?;
        }
        lane.settle(place.seq);
        Ok(bytes)
    }

    fn scan(&self, horizon: Stamp) -> Result<FoundRecords> {
        let mut found = FoundRecords::default();
        for (i, lane) in self.lanes.iter().enumerate() {
            self.scan_lane(self.number(i), lane, horizon, &mut found)?;
        }
        found.check_between(self.first, horizon);
        Ok(found)
    }

    fn retire(&self) -> Result<()> {
        self.claim.set_state(State::Empty)
    }

    fn resume(&self) -> Result<()> {
        self.begin()
    }
}
