//! Where a lane's log lives: a ring of blocks, how it is written, sealed and trimmed.

use std::time::Duration;

use stetfs_block::WriteList;
use stetfs_cache::PageRef;

use crate::error::Result;
use crate::ids::{Lane, Stamp};
use crate::policy::{Encoded, Place};

/// Where the live part of a log begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogTail {
    /// Sequence of the oldest live transaction (or of the next one, if the log is empty).
    pub seq: u64,
    /// Log block where it starts; `None` when the log is empty.
    pub at: Option<u64>,
}

/// The medium policy: one lane's log. Positions are log blocks in `first()..end()`, wrapping.
pub trait Medium: Send + Sync {
    /// Which lane it is.
    fn lane(&self) -> Lane {
        Lane(0)
    }
    /// The log is empty and its use over: leaves it as others expect to find it.
    ///
    /// # Errors
    /// The device's.
    fn retire(&self) -> Result<()> {
        Ok(())
    }
    /// After [`retire`](Self::retire): the use of the log goes on, durably said.
    ///
    /// # Errors
    /// The device's.
    fn resume(&self) -> Result<()> {
        Ok(())
    }
    /// First log block of the ring.
    fn first(&self) -> u64;
    /// One past the last log block of the ring.
    fn end(&self) -> u64;
    /// Bytes of a log block, where that is no block of the volume.
    fn unit(&self) -> Option<u64> {
        None
    }
    /// What of a transaction at `at` goes out before [`seal`](Self::seal): its writes, which may go
    /// along with others'.
    ///
    /// # Errors
    /// It has no place in the log.
    fn blocks<'a>(&self, at: u64, tx: &'a Encoded, barrier: bool) -> Result<WriteList<'a>>;
    /// What of [`blocks`](Self::blocks) may go out before that which must be durable ahead of the
    /// transaction (ordered data), and along with it: the transaction does not count by it.
    ///
    /// # Errors
    /// As [`blocks`](Self::blocks).
    fn payload<'a>(&self, at: u64, tx: &'a Encoded) -> Result<WriteList<'a>> {
        let _ = (at, tx);
        Ok(WriteList::new())
    }
    /// Makes a transaction at `at` durable by the rules of its format, once its
    /// [`blocks`](Self::blocks) are written; everything written to the device before is durable
    /// too on return (with `barrier`). Where [`one_flush`](Self::one_flush) says so, that holds for
    /// transactions of other lanes of the log as well, and one call is enough for all.
    ///
    /// # Errors
    /// The device's; nothing can be said about the transaction then.
    fn seal(&self, at: u64, tx: &Encoded, barrier: bool) -> Result<()>;
    /// Blocks of so many bytes were written in that time, with what went along.
    fn sent(&self, bytes: u64, time: Duration) {
        let _ = (bytes, time);
    }
    /// Writes blocks of a transaction that [`seal`](Self::seal) is yet to make count.
    ///
    /// # Errors
    /// The device's.
    fn write_early(&self, at: u64, blocks: &[PageRef]) -> Result<()>;
    /// The place of a log block that holds an image verbatim: the codec's word is taken for that.
    ///
    /// # Errors
    /// The log has no such block.
    fn place(&self, at: u64) -> Result<Place>;
    /// Where the images of a transaction at `at` stand verbatim, in their order.
    ///
    /// # Errors
    /// As [`place`](Self::place).
    fn places(&self, at: u64, tx: &Encoded) -> Result<Vec<Option<Place>>> {
        let images = tx.verbatim.iter();
        let place = |i: u32| self.place(self.advance(at, u64::from(i)));
        images.map(|image| image.map(place).transpose()).collect()
    }
    /// Whether a commit goes out under one flush, seal and all: what must be durable before the
    /// transaction counts (ordered data) then needs a flush of its own.
    fn one_flush(&self) -> bool;
    /// The stamp up to which file-level records are superseded; goes out with the next
    /// [`set_tail`](Self::set_tail). It never falls.
    fn set_horizon(&self, horizon: Stamp) {
        let _ = horizon;
    }
    /// The recorded horizon.
    fn horizon(&self) -> Stamp {
        0
    }
    /// Durably records where the live log begins; only then is the space before it reusable.
    ///
    /// # Errors
    /// The device's.
    fn set_tail(&self, tail: LogTail, barrier: bool) -> Result<()>;
    /// The same, but it goes out with the next [`set_tail`](Self::set_tail) of any lane of the log:
    /// so several move together.
    fn note_tail(&self, tail: LogTail);
    /// Disposes of `count` blocks from `at` on, which [`set_tail`](Self::set_tail) left behind and
    /// nobody writes to yet.
    ///
    /// # Errors
    /// The device's.
    fn trim(&self, at: u64, count: u64) -> Result<()> {
        let _ = (at, count);
        Ok(())
    }
    /// The recorded beginning.
    fn tail(&self) -> LogTail;
    /// Reads log blocks from `at` on, wrapping.
    ///
    /// # Errors
    /// The device's.
    fn read(&self, at: u64, count: u64) -> Result<Vec<PageRef>>;

    /// The position `by` blocks after `at`.
    fn advance(&self, at: u64, by: u64) -> u64 {
        let len = self.end() - self.first();
        self.first() + (at - self.first() + by) % len
    }
    /// Blocks in the ring.
    fn capacity(&self) -> u64 {
        self.end() - self.first()
    }
}

/// Durably records where lanes of one log begin, and the horizon, in one write. A crash leaves all
/// of them or none: recovery of one lane asks where others begin.
///
/// # Errors
/// The device's.
pub fn set_tails<'m>(
    tails: impl Iterator<Item = (&'m dyn Medium, LogTail)>,
    horizon: Stamp,
    barrier: bool,
) -> Result<()> {
    let mut last: Option<(&dyn Medium, LogTail)> = None;
    for (medium, tail) in tails {
        medium.set_horizon(horizon);
        if let Some((medium, tail)) = last.replace((medium, tail)) {
            medium.note_tail(tail);
        }
    }
    match last {
        Some((medium, tail)) => medium.set_tail(tail, barrier),
        None => Ok(()),
    }
}
