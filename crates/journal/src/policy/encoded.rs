//! The encoded form of a transaction, as it goes into the log.

use std::time::Duration;

use stetfs_cache::PageRef;

/// The result of packing a transaction's images: chunks by their form, and the time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Packing {
    /// Chunks stored as they are.
    pub raw: u64,
    /// Chunks stored as LZ4.
    pub lz4: u64,
    /// Chunks stored as Zstandard.
    pub zstd: u64,
    /// Processor time.
    pub time: Duration,
}

/// A transaction as log blocks.
#[derive(Default)]
pub struct Encoded {
    /// The blocks in log order.
    pub body: Vec<PageRef>,
    /// Blocks that were written early: they follow the first `early.0` blocks of the body, and are
    /// `early.1` in number. If `early.0` is not 0, those first blocks are the transaction's head,
    /// without which the rest has no meaning.
    pub early: (usize, u64),
    /// The block that makes the body count, if the format has it written after a flush of the body.
    /// `None` if the body proves itself, so that one flush is enough.
    pub seal: Option<PageRef>,
    /// The position of each image of the snapshot, in log blocks from the transaction's start;
    /// `None` if it is not verbatim.
    pub verbatim: Vec<Option<u32>>,
    /// The packing of the images.
    pub packing: Packing,
    /// The transaction's bytes for a medium that is no block device
    /// ([`Medium::unit`](super::Medium::unit)), in whole units. There is then no body.
    pub bytes: Vec<u8>,
    /// The number of units in `bytes`.
    pub units: u64,
}

impl Encoded {
    /// The number of log blocks, or units, that it takes.
    pub fn blocks(&self) -> u64 {
        self.seal_at() + u64::from(self.seal.is_some()) + self.units
    }

    /// The position of the seal, in log blocks from the transaction's start.
    pub fn seal_at(&self) -> u64 {
        self.body.len() as u64 + self.early.1
    }

    /// The blocks of the body that are still to be written, each with its position in log blocks
    /// from the transaction's start.
    pub fn body(&self) -> impl Iterator<Item = (u64, &PageRef)> {
        let (after, early) = self.early;
        self.body.iter().enumerate().map(move |(i, page)| {
            let skip = if i < after { 0 } else { early };
            (i as u64 + skip, page)
        })
    }

    /// The part of the [`body`](Self::body) behind its head; empty if there is no head.
    pub fn payload(&self) -> impl Iterator<Item = (u64, &PageRef)> {
        let (head, _) = self.early;
        let all = if head == 0 { usize::MAX } else { head };
        self.body().skip(all)
    }

    /// Notes that the [`payload`](Self::payload) was written.
    pub fn payload_went_out(&mut self) {
        let count = self.payload().count();
        self.early.1 += count as u64;
        self.body.truncate(self.body.len() - count);
    }
}
