//! Where records of files go: what a sync of one file makes durable by itself, while the running
//! transaction stays open.

use std::collections::BTreeMap;

use stetfs_cache::PageRef;

use crate::error::Result;
use crate::gate::RecordUse;
use crate::ids::{BlockNr, Stamp, TxId};

/// What a record takes of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordSize {
    /// Bytes of its body.
    pub bytes: usize,
    /// Data blocks that come with it.
    pub pages: usize,
}

/// Space and a place in the order of commits for one record. It must be written: a gap reads as
/// damage.
#[must_use]
#[derive(Debug)]
pub struct RecordPlace {
    /// Which of the log's lanes.
    pub(crate) lane: usize,
    /// Where in the log it begins, in the log's own unit.
    pub(crate) at: u64,
    /// Its sequence in the lane.
    pub(crate) seq: u64,
    /// Its place in the order of commits.
    pub(crate) stamp: Stamp,
    /// Stamp of the record before it in the lane.
    pub(crate) before: Stamp,
    /// Up to this sequence the records of its lane were durable.
    pub(crate) settled: u64,
    /// What was durable before, in all lanes: of transactions sequences, of records stamps.
    pub(crate) durable: Vec<(u16, u64)>,
    /// Keeps the journal from rest.
    pub(crate) in_use: Option<RecordUse>,
}

impl RecordPlace {
    /// The record's place in the order of commits.
    pub fn stamp(&self) -> Stamp {
        self.stamp
    }
}

/// A record that recovery found, and that no transaction holds.
#[derive(Clone, Debug)]
pub struct LoggedRecord {
    /// Its lane, and its sequence there.
    pub id: TxId,
    /// Byte of the log where it begins, and how many it takes.
    pub at: u64,
    /// See `at`.
    pub bytes: u64,
    /// Its place in the order of commits.
    pub stamp: Stamp,
    /// The record (`stetfs_ondisk::stet::record`).
    pub body: Vec<u8>,
    /// Data blocks, and what they are to hold.
    pub pages: Vec<(BlockNr, PageRef)>,
}

/// What a scan of the log found.
#[derive(Debug, Default)]
pub struct FoundRecords {
    /// By stamp.
    pub records: Vec<LoggedRecord>,
    /// Whole records that a transaction holds.
    pub superseded: u64,
    /// The highest stamp of all.
    pub last: Stamp,
    /// A record that was durable is not there any more.
    pub lost: Option<String>,
    /// What records say was durable: of each lane of transactions the highest sequence, while
    /// scanning also of each lane of records the highest stamp.
    pub durable: BTreeMap<u16, u64>,
}

/// A log of records of files. A record's space is free again once it is superseded, that is, once
/// the transaction is valid that holds what it holds (record.F3).
pub trait RecordLog: Send + Sync {
    /// Whether a record costs less than to write its data home and to flush the device.
    fn is_cheap(&self) -> bool {
        false
    }

    /// Lanes: as many threads write records without waiting for each other.
    fn lanes(&self) -> usize;

    /// Takes space for a record in a lane (modulo their number); `stamp` gives its place in the
    /// order. Records up to `horizon` are superseded; these transactions are durable. `None` if
    /// there is no room.
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

    /// Writes the record to its place, durably, and settles it: a later one may say that it was.
    /// `flush` makes durable what the device has, for all who ask at once; a log that is
    /// durable by itself does not call it. Gives the bytes it took.
    ///
    /// # Errors
    /// The log's, and those of `flush`; `Aborted` when the place is none of this log's.
    fn write_durably(
        &self,
        place: &RecordPlace,
        body: &[u8],
        pages: &[(BlockNr, PageRef)],
        flush: &dyn Fn() -> Result<()>,
    ) -> Result<u64>;

    /// Reads the whole records above `horizon`.
    ///
    /// # Errors
    /// The log's.
    fn scan(&self, horizon: Stamp) -> Result<FoundRecords>;

    /// Ends the use of the log, durably: no record in it is needed any more.
    ///
    /// # Errors
    /// The log's.
    fn retire(&self) -> Result<()>;

    /// After [`retire`](Self::retire): the use of the log goes on, durably said.
    ///
    /// # Errors
    /// The log's.
    fn resume(&self) -> Result<()>;
}
