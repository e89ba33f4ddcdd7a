//! The codec policy: the layout of a transaction in the log, and how it is read back.

use stetfs_cache::PageRef;

use crate::error::Result;
use crate::ids::{BlockNr, CommitPoint, Stamp, TxId};
use crate::policy::{Encoded, LogTail, Medium, Place};
use crate::tx::Snapshot;

/// Takes blocks of a transaction that is still being laid out: the position of the first, in log
/// blocks from the transaction's start, and the blocks.
pub type Early<'a> = dyn FnMut(u64, &[PageRef]) -> Result<()> + 'a;

/// The position of an image in the log. The meaning of `flags` and `check` is the codec's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageRef {
    /// A log block, or a byte offset in a frame.
    pub at: u64,
    /// The codec's flags (jbd2: escaped).
    pub flags: u32,
    /// The codec's checksum of the stored image.
    pub check: u32,
    /// The place where the image is verbatim; none if it is packed or changed.
    pub place: Option<Place>,
}

/// A complete transaction found in a log.
#[derive(Clone, Debug)]
pub struct ScannedTx {
    /// The transaction.
    pub id: TxId,
    /// The transaction's place in the order of commits.
    pub stamp: Stamp,
    /// The stamp up to which the transaction supersedes records of files.
    pub floor: Stamp,
    /// The transactions of other lanes that it depends on.
    pub edges: CommitPoint,
    /// Images by home block.
    pub images: Vec<(BlockNr, ImageRef)>,
    /// Blocks whose older images are void.
    pub revokes: Vec<BlockNr>,
    /// The first log block.
    pub at: u64,
    /// The number of log blocks.
    pub blocks: u64,
}

/// The reason why a scan ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EndReason {
    /// The log was marked empty.
    Empty,
    /// The content at the next position is not the next transaction.
    NoNext(String),
    /// A transaction begins there but fails its checks: the usual trace of a crash.
    Torn(String),
    /// A transaction fails its checks although it was durable once: the device lost or changed it.
    Lost(String),
}

/// The contents of a log.
#[derive(Clone, Debug)]
pub struct Scan {
    /// Complete transactions, oldest first.
    pub txs: Vec<ScannedTx>,
    /// The reason why there is no further one.
    pub end: EndReason,
    /// The sequence of the next transaction.
    pub next_seq: u64,
}

/// The codec policy.
pub trait Codec: Send + Sync {
    /// The most log blocks that a transaction of so many images and revoked blocks takes.
    fn bound(&self, images: u64, revokes: u64) -> u64;
    /// Lays a transaction out. `early` may write blocks at once, while the rest is still being laid
    /// out. They must not make the transaction count before [`Medium::blocks`] writes the rest.
    ///
    /// # Errors
    /// The transaction cannot be expressed (for example a block number beyond the format's width);
    /// those of `early`.
    fn encode(&self, tx: &Snapshot, early: &mut Early<'_>) -> Result<Encoded>;
    /// The unit of logged changes, in bytes; none if whole blocks are logged. With a unit, images
    /// come with their base ([`Image::base`](crate::tx::Image)), and only what changed of a block
    /// since it was home is logged.
    fn change_unit(&self) -> Option<usize> {
        None
    }
    /// The most images of a transaction that takes at most a quarter of a ring of `ring` log
    /// blocks, of which `slack` are kept free.
    fn most_images(&self, ring: u64, slack: u64) -> u64 {
        let room = (ring / 4).saturating_sub(slack);
        let all = self.bound(room, 0).max(room).max(1);
        // Most of what images take beside themselves grows with their number (a block for each
        // chunk): in proportion they nearly fit.
        let mut most = room.saturating_mul(room) / all;
        while most > 0 && self.bound(most, 0) > room {
            most -= 1;
        }
        most
    }
    /// The size of an image, in bytes.
    ///
    /// # Errors
    /// The device's.
    fn image_bytes(&self, log: &dyn Medium) -> Result<u64> {
        let block = log.read(log.first(), 1)?;
        Ok(block.first().map_or(1, |page| page.len().max(1) as u64))
    }
    /// The codec's decision and its reason, as text for people.
    fn note(&self) -> Option<String> {
        None
    }
    /// Reads the log from its tail to its end. `progress` gets (done, of) in log blocks.
    ///
    /// # Errors
    /// The device's; `Corrupt` for a log that contradicts itself in a way no crash explains.
    fn scan(
        &self,
        log: &dyn Medium,
        tail: LogTail,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Scan>;
    /// Reads images back and checks them.
    ///
    /// # Errors
    /// The device's; [`crate::JournalError::Format`] if an image does not match its checksum.
    fn images(&self, log: &dyn Medium, tx: TxId, refs: &[ImageRef]) -> Result<Vec<PageRef>>;
}
