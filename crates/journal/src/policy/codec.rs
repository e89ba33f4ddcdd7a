//! How a transaction looks in the log, and how it is read back.

use stetfs_cache::PageRef;

use crate::error::Result;
use crate::ids::{BlockNr, CommitPoint, Stamp, TxId};
use crate::policy::{Encoded, LogTail, Medium, Place};
use crate::tx::Snapshot;

/// Takes blocks of a transaction that is still being laid out: where they stand in it (log blocks
/// from its start), and the blocks.
pub type Early<'a> = dyn FnMut(u64, &[PageRef]) -> Result<()> + 'a;

/// Where an image stands in the log. The meaning of `flags` and `check` is the codec's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageRef {
    /// Log block (or byte offset in a frame).
    pub at: u64,
    /// Codec's flags (jbd2: escaped).
    pub flags: u32,
    /// Codec's checksum of the stored image.
    pub check: u32,
    /// Where it stands verbatim; none where it is packed or changed.
    pub place: Option<Place>,
}

/// A whole transaction found in a log.
#[derive(Clone, Debug)]
pub struct ScannedTx {
    /// Which one.
    pub id: TxId,
    /// Its place in the order of commits.
    pub stamp: Stamp,
    /// The stamp up to which file-level records are superseded with it.
    pub floor: Stamp,
    /// What it depends on in other lanes.
    pub edges: CommitPoint,
    /// Images by home block.
    pub images: Vec<(BlockNr, ImageRef)>,
    /// Blocks whose older images are void.
    pub revokes: Vec<BlockNr>,
    /// First log block.
    pub at: u64,
    /// Log blocks.
    pub blocks: u64,
}

/// Why a scan ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EndReason {
    /// The log was empty to begin with.
    Empty,
    /// What stands at the next position is not the next transaction.
    NoNext(String),
    /// A transaction began but did not prove itself: the usual trace of a crash.
    Torn(String),
    /// It does not prove itself although it was durable once: the device lost or changed it.
    Lost(String),
}

/// What a log holds.
#[derive(Clone, Debug)]
pub struct Scan {
    /// Whole transactions, oldest first.
    pub txs: Vec<ScannedTx>,
    /// Why there is no further one.
    pub end: EndReason,
    /// Sequence for the next transaction.
    pub next_seq: u64,
}

/// The codec policy.
pub trait Codec: Send + Sync {
    /// Upper bound of the log blocks for a transaction of so many images and revoked blocks.
    fn bound(&self, images: u64, revokes: u64) -> u64;
    /// Lays a transaction out. What `early` is given may be written at once, while the rest is
    /// still being laid out; it must not count before what is left to [`Medium::blocks`] is
    /// written.
    ///
    /// # Errors
    /// If it cannot be expressed (for example a block number beyond the format's width), and
    /// `early`'s.
    fn encode(&self, tx: &Snapshot, early: &mut Early<'_>) -> Result<Encoded>;
    /// Whether only what changed of a block is logged: then images come with their base
    /// ([`Image::base`](crate::tx::Image)), and what is logged of a block is all that changed since
    /// it was home. In units of so many bytes.
    fn change_unit(&self) -> Option<usize> {
        None
    }
    /// The most images that a transaction may have, so that it takes a quarter of a ring of so many
    /// log blocks, of which `slack` are kept free.
    fn most_images(&self, ring: u64, slack: u64) -> u64 {
        let quarter = ring / 4;
        let overhead = self.bound(quarter, 0).saturating_sub(quarter) + slack;
        quarter.saturating_sub(overhead)
    }
    /// Bytes of an image.
    ///
    /// # Errors
    /// The device's.
    fn image_bytes(&self, log: &dyn Medium) -> Result<u64> {
        let block = log.read(log.first(), 1)?;
        Ok(block.first().map_or(1, |page| page.len().max(1) as u64))
    }
    /// For people: what it decides, and why.
    fn note(&self) -> Option<String> {
        None
    }
    /// Reads the log from its tail to where it ends.
    ///
    /// # Errors
    /// The device's, or a log that contradicts itself in a way no crash explains.
    fn scan(
        &self,
        log: &dyn Medium,
        tail: LogTail,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Scan>;
    /// Reads images back, checked.
    ///
    /// # Errors
    /// The device's, or [`crate::JournalError::Format`] if an image does not match its checksum.
    fn images(&self, log: &dyn Medium, tx: TxId, refs: &[ImageRef]) -> Result<Vec<PageRef>>;
}
