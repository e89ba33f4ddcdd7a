//! Records of files, as the log sees them: the sync of one file makes such a record durable by
//! itself, while the running transaction stays open.

use std::collections::BTreeMap;

use stetfs_cache::PageRef;

use crate::error::Result;
use crate::gate::RecordUse;
use crate::ids::{BlockNr, Stamp, TxId};

/// The size of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordSize {
    /// The bytes of its body.
    pub bytes: usize,
    /// The number of its data blocks.
    pub pages: usize,
}

/// Reserved space and a place in the order of commits, for one record. The record must be written:
/// a gap reads as damage.
#[must_use]
#[derive(Debug)]
pub struct RecordPlace {
    /// The lane.
    pub(crate) lane: usize,
    /// The start of the record in the log, in the log's own unit.
    pub(crate) at: u64,
    /// Its sequence in the lane.
    pub(crate) seq: u64,
    /// Its place in the order of commits.
    pub(crate) stamp: Stamp,
    /// The stamp of the record before it in the lane.
    pub(crate) before: Stamp,
    /// The sequence up to which all records of its lane were durable.
    pub(crate) settled: u64,
    /// The newest durable item of each other lane: the sequence of a transaction, or the stamp of a
    /// record.
    pub(crate) durable: Vec<(u16, u64)>,
    /// Keeps the journal from coming to rest.
    pub(crate) in_use: Option<RecordUse>,
}

impl RecordPlace {
    /// The record's place in the order of commits.
    pub fn stamp(&self) -> Stamp {
        self.stamp
    }
}

/// A record that recovery found, and that no transaction supersedes.
#[derive(Clone, Debug)]
pub struct LoggedRecord {
    /// Its lane, and its sequence there.
    pub id: TxId,
    /// The first byte in the log.
    pub at: u64,
    /// The number of bytes in the log.
    pub bytes: u64,
    /// Its place in the order of commits.
    pub stamp: Stamp,
    /// The body (`stetfs_ondisk::stet::record`).
    pub body: Vec<u8>,
    /// Data blocks with their content.
    pub pages: Vec<(BlockNr, PageRef)>,
}

/// The records that a scan of the log found.
#[derive(Debug, Default)]
pub struct FoundRecords {
    /// The records, by stamp.
    pub records: Vec<LoggedRecord>,
    /// The number of complete records that a transaction supersedes.
    pub superseded: u64,
    /// The highest stamp of all records.
    pub last: Stamp,
    /// The description of a record that was durable and is missing, if there is one.
    pub lost: Option<String>,
    /// The statements of records about what was durable: for each lane of transactions the highest
    /// sequence; during the scan also for each lane of records the highest stamp.
    pub durable: BTreeMap<u16, u64>,
}

/// A log of records of files. A record's space is free again once the record is superseded: a valid
/// transaction holds all that the record describes (record.F3).
pub trait RecordLog: Send + Sync {
    /// Whether a record costs less than writing its data home and flushing the device.
    fn is_cheap(&self) -> bool {
        false
    }

    /// The number of lanes: so many threads can write records without waiting for each other.
    fn lanes(&self) -> usize;

    /// Takes space for a record in a lane (modulo their number). `stamp` draws its place in the
    /// order. Records up to `horizon` are superseded, and `transactions` are the newest durable
    /// ones. `None` if there is no room.
    fn reserve(
        &self,
        lane: usize,
        size: RecordSize,
        horizon: Stamp,
        transactions: &[TxId],
        stamp: &dyn Fn() -> Stamp,
    ) -> Option<RecordPlace>;

    /// Whether more than half of a lane is in use.
    fn is_half_full(&self, lane: usize, horizon: Stamp) -> bool;

    /// Writes a record to its place, durably, and settles it: later records may state that it was
    /// durable. `flush` makes earlier writes to the device durable, for all concurrent callers at
    /// once; a log that is durable by itself does not call it. Returns the bytes written.
    ///
    /// # Errors
    /// The log's, and those of `flush`; `Aborted` if the place is not of this log.
    fn write_durably(
        &self,
        place: &RecordPlace,
        body: &[u8],
        pages: &[(BlockNr, PageRef)],
        flush: &dyn Fn() -> Result<()>,
    ) -> Result<u64>;

    /// Reads the complete records above `horizon`.
    ///
    /// # Errors
    /// The log's.
    fn scan(&self, horizon: Stamp) -> Result<FoundRecords>;

    /// Ends the use of the log, durably: no record in it is needed any more.
    ///
    /// # Errors
    /// The log's.
    fn retire(&self) -> Result<()>;

    /// Takes the log into use again after [`retire`](Self::retire), durably.
    ///
    /// # Errors
    /// The log's.
    fn resume(&self) -> Result<()>;
}
