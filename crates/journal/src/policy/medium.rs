//! The medium policy: a lane's log as a ring of blocks, and how it is written, sealed and trimmed.

use std::time::Duration;

use stetfs_block::WriteList;
use stetfs_cache::PageRef;

use crate::error::Result;
use crate::ids::{Lane, Stamp};
use crate::policy::{Encoded, Place};

/// The start of the live part of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogTail {
    /// Sequence of the oldest live transaction (or of the next one, if the log is empty).
    pub seq: u64,
    /// The log block where it starts; `None` if the log is empty.
    pub at: Option<u64>,
}

/// The medium policy: one lane's log. Positions are log blocks in `first()..end()`, wrapping.
pub trait Medium: Send + Sync {
    /// The lane.
    fn lane(&self) -> Lane {
        Lane(0)
    }
    /// Ends the use of an empty log: leaves it as other programs expect to find it.
    ///
    /// # Errors
    /// The device's.
    fn retire(&self) -> Result<()> {
        Ok(())
    }
    /// Takes the log into use again after [`retire`](Self::retire), durably.
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
    /// The size of a log block in bytes, if it is not a block of the volume.
    fn unit(&self) -> Option<u64> {
        None
    }
    /// The writes of a transaction at `at` that come before [`seal`](Self::seal). They may be
    /// joined with writes of others.
    ///
    /// # Errors
    /// The log has no such blocks.
    fn blocks<'a>(&self, at: u64, tx: &'a Encoded, barrier: bool) -> Result<WriteList<'a>>;
    /// The part of [`blocks`](Self::blocks) that may be written together with data that must be
    /// durable ahead of the transaction (ordered data): it does not make the transaction count.
    ///
    /// # Errors
    /// As [`blocks`](Self::blocks).
    fn payload<'a>(&self, at: u64, tx: &'a Encoded) -> Result<WriteList<'a>> {
        let _ = (at, tx);
        Ok(WriteList::new())
    }
    /// Whether a flush of the device seals: a transaction is durable once one that began after its
    /// [`blocks`](Self::blocks) were written has ended, or once they are written with FUA. One
    /// flush is then enough for all transactions written before it. Data that must be durable
    /// before the transaction counts (ordered data) needs a flush of its own.
    fn flush_seals(&self) -> bool;
    /// Makes a transaction at `at` durable by the rules of its format, once its
    /// [`blocks`](Self::blocks) are written, where no flush seals. With `barrier`, all earlier
    /// writes to the device are durable on return, too.
    ///
    /// # Errors
    /// The device's; it is then unknown whether the transaction is durable.
    fn seal(&self, at: u64, tx: &Encoded, barrier: bool) -> Result<()> {
        let _ = (at, tx, barrier);
        Ok(())
    }
    /// Notes that a write of so many bytes to the log, with the writes joined to it, took `time`.
    fn sent(&self, bytes: u64, time: Duration) {
        let _ = (bytes, time);
    }
    /// Writes blocks of a transaction early. They do not make it count before [`seal`](Self::seal).
    ///
    /// # Errors
    /// The device's.
    fn write_early(&self, at: u64, blocks: &[PageRef]) -> Result<()>;
    /// The place of a log block that holds an image verbatim; whether it does is the codec's
    /// statement.
    ///
    /// # Errors
    /// The log has no such block.
    fn place(&self, at: u64) -> Result<Place>;
    /// The places where images of a transaction at `at` are verbatim, in the order of the images.
    ///
    /// # Errors
    /// As [`place`](Self::place).
    fn places(&self, at: u64, tx: &Encoded) -> Result<Vec<Option<Place>>> {
        let images = tx.verbatim.iter();
        let place = |i: u32| self.place(self.advance(at, u64::from(i)));
        images.map(|image| image.map(place).transpose()).collect()
    }
    /// Sets the stamp up to which records of files are superseded. The next
    /// [`set_tail`](Self::set_tail) writes it. It never falls.
    fn set_horizon(&self, horizon: Stamp) {
        let _ = horizon;
    }
    /// The recorded horizon.
    fn horizon(&self) -> Stamp {
        0
    }
    /// Records the start of the live log, durably with `barrier`. Only then is the space before it
    /// reusable.
    ///
    /// # Errors
    /// The device's.
    fn set_tail(&self, tail: LogTail, barrier: bool) -> Result<()>;
    /// As [`set_tail`](Self::set_tail), but the next such call of any lane of the log writes it: so
    /// several tails move together.
    fn note_tail(&self, tail: LogTail);
    /// Disposes of `count` blocks from `at` on, which [`set_tail`](Self::set_tail) left behind and
    /// which are not written again yet.
    ///
    /// # Errors
    /// The device's.
    fn trim(&self, at: u64, count: u64) -> Result<()> {
        let _ = (at, count);
        Ok(())
    }
    /// The recorded start of the live log.
    fn tail(&self) -> LogTail;
    /// Reads log blocks from `at` on, wrapping.
    ///
    /// # Errors
    /// The device's.
    fn read(&self, at: u64, count: u64) -> Result<Vec<PageRef>>;
    /// As [`read`](Self::read), and appends the bytes to `to`. An error may leave zeroes there.
    ///
    /// # Errors
    /// The device's.
    fn read_bytes(&self, at: u64, count: u64, to: &mut Vec<u8>) -> Result<()> {
        let pages = self.read(at, count)?;
        to.reserve(pages.iter().map(|page| page.len()).sum());
        pages.iter().for_each(|page| to.extend_from_slice(page));
        Ok(())
    }

    /// The position `by` blocks after `at`.
    fn advance(&self, at: u64, by: u64) -> u64 {
        let len = self.end() - self.first();
        self.first() + (at - self.first() + by) % len
    }
    /// The number of blocks in the ring.
    fn capacity(&self) -> u64 {
        self.end() - self.first()
    }
}

/// Records the starts of lanes of one log, and the horizon, in one write. A crash leaves all of
/// them or none: recovery of one lane depends on the starts of others.
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
