//! A transaction as it goes into the log.

use std::time::Duration;

use stetfs_cache::PageRef;

/// What packing a transaction's images took.
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
    /// Blocks that went out early: they stand behind the first `early.0` of the body, `early.1` in
    /// number. Where these first ones are any they are its head, without which the others say
    /// nothing.
    pub early: (usize, u64),
    /// The block that makes the body count, when the format wants it written after a flush of the
    /// body. `None`: the body proves itself and one flush is enough.
    pub seal: Option<PageRef>,
    /// Where each image of the snapshot stands, log blocks from the transaction's start; `None` if
    /// not verbatim.
    pub verbatim: Vec<Option<u32>>,
    /// What it took.
    pub packing: Packing,
    /// What it is for a medium that is no device ([`Medium::unit`](super::Medium::unit)): whole
    /// units. Then there is no body.
    pub bytes: Vec<u8>,
    /// Units of that.
    pub units: u64,
}

impl Encoded {
    /// Log blocks it takes.
    pub fn blocks(&self) -> u64 {
        self.seal_at() + u64::from(self.seal.is_some()) + self.units
    }

    /// Where the seal stands: log blocks from the transaction's start.
    pub fn seal_at(&self) -> u64 {
        self.body.len() as u64 + self.early.1
    }

    /// The blocks of the body that are still to be written, and where: log blocks from the
    /// transaction's start.
    pub fn body(&self) -> impl Iterator<Item = (u64, &PageRef)> {
        let (after, early) = self.early;
        self.body.iter().enumerate().map(move |(i, page)| {
            let skip = if i < after { 0 } else { early };
            (i as u64 + skip, page)
        })
    }

    /// What of the [`body`](Self::body) stands behind its head; nothing where it has none.
    pub fn payload(&self) -> impl Iterator<Item = (u64, &PageRef)> {
        let (head, _) = self.early;
        let all = if head == 0 { usize::MAX } else { head };
        self.body().skip(all)
    }

    /// The [`payload`](Self::payload) went out.
    pub fn payload_went_out(&mut self) {
        let count = self.payload().count();
        self.early.1 += count as u64;
        self.body.truncate(self.body.len() - count);
    }
}
