//! No log: for volumes without a journal (ext2, `^has_journal`).
//!
//! A commit writes the transaction's images home, after the data that they make reachable, with a
//! flush between and one behind: what was synced stands on the device where it belongs. Nothing
//! makes a commit whole or absent: a crash during one can leave the volume inconsistent, and e2fsck
//! puts that right, as after a crash of the kernel's ext2.
//!
//! The scheme is the engine's usual one with a log that takes no space: codec and medium share the
//! images of the one commit under way, and the home policy has nothing left to do.

use std::collections::HashSet;
use std::sync::Arc;

use stetfs_block::{BlockDevice, WriteList};
use stetfs_cache::PageRef;
use stetfs_sync::plain::Mutex;

use crate::engine::{Journal, JournalConfig};
use crate::error::{JournalError, Result};
use crate::head::Cache;
use crate::ids::{BlockNr, TxId};
use crate::policy::{
    Codec, Early, Encoded, EndReason, Home, HomeImage, ImageRef, LogTail, Medium, OneLane, Place,
    Scan, Scheme, Sent, Standing,
};
use crate::tx::Snapshot;

/// Blocks of the log that is not there; only bounds how large a transaction may be, and memory
/// bounds that more tightly.
const ENDLESS: u64 = 1 << 32;
/// Where each transaction "begins".
const START: LogTail = LogTail {
    seq: 1,
    at: Some(0),
};

/// The images of the transaction that commits, sorted by home block.
type UnderWay = Arc<Mutex<Vec<(BlockNr, PageRef)>>>;

impl Journal {
    /// A journal that logs nothing: commits go home.
    ///
    /// # Errors
    /// Thread creation.
    pub fn without_log(cache: Arc<Cache>, config: JournalConfig) -> Result<Arc<Journal>> {
        let images = UnderWay::default();
        let medium = Nowhere {
            device: cache.device().clone(),
            images: images.clone(),
        };
        let scheme = Scheme {
            ordering: Box::new(OneLane),
            codec: Box::new(Unlogged { images }),
            media: vec![Box::new(medium)],
            home: Box::new(AtHome),
            records: None,
        };
        Journal::start(cache, scheme, config)
    }
}

/// A transaction takes no log blocks.
struct Unlogged {
    images: UnderWay,
}

impl Codec for Unlogged {
    fn bound(&self, _images: u64, _revokes: u64) -> u64 {
        0
    }

    fn encode(&self, tx: &Snapshot, _early: &mut Early<'_>) -> Result<Encoded> {
        let mut images: Vec<_> = tx.images.iter().map(|i| (i.nr, i.page.clone())).collect();
        images.sort_unstable_by_key(|(nr, _)| *nr);
        *self.images.lock() = images;
        Ok(Encoded {
            verbatim: vec![None; tx.images.len()],
            ..Encoded::default()
        })
    }

    fn scan(
        &self,
        _log: &dyn Medium,
        tail: LogTail,
        _progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Scan> {
        Ok(Scan {
            txs: Vec::new(),
            end: EndReason::Empty,
            next_seq: tail.seq,
        })
    }

    fn images(&self, _log: &dyn Medium, _tx: TxId, _refs: &[ImageRef]) -> Result<Vec<PageRef>> {
        Err(nothing_logged())
    }
}

struct Nowhere {
    device: Arc<dyn BlockDevice>,
    images: UnderWay,
}

impl Medium for Nowhere {
    fn first(&self) -> u64 {
        0
    }

    fn end(&self) -> u64 {
        ENDLESS
    }

    fn blocks<'a>(&self, _at: u64, _tx: &'a Encoded, _barrier: bool) -> Result<WriteList<'a>> {
        Ok(WriteList::new())
    }

    fn seal(&self, _at: u64, _tx: &Encoded, barrier: bool) -> Result<()> {
        let flush = || if barrier { self.device.flush() } else { Ok(()) };
        flush()?;
        let images = std::mem::take(&mut *self.images.lock());
        let mut list = WriteList::new();
        for (nr, page) in &images {
            list.push(nr * page.len() as u64, page);
        }
        list.submit(&*self.device)?;
        Ok(flush()?)
    }

    fn place(&self, _at: u64) -> Result<Place> {
        Err(nothing_logged())
    }

    fn write_early(&self, _at: u64, _blocks: &[PageRef]) -> Result<()> {
        Ok(())
    }

    fn one_flush(&self) -> bool {
        false
    }

    fn set_tail(&self, _tail: LogTail, _barrier: bool) -> Result<()> {
        Ok(())
    }

    fn note_tail(&self, _tail: LogTail) {}

    fn tail(&self) -> LogTail {
        START
    }

    fn read(&self, _at: u64, _count: u64) -> Result<Vec<PageRef>> {
        Err(nothing_logged())
    }
}

fn nothing_logged() -> JournalError {
    JournalError::Aborted("there is no log to read".into())
}

/// Committed images are home.
struct AtHome;

impl Home for AtHome {
    fn send(&self, _device: &dyn BlockDevice, images: &[HomeImage]) -> Result<Sent> {
        let copied = images.len() as u64;
        Ok(Sent { shared: 0, copied })
    }

    fn send_standing(
        &self,
        _device: &dyn BlockDevice,
        _block: u64,
        images: &[Standing],
    ) -> Result<HashSet<BlockNr>> {
        Ok(images.iter().map(|image| image.nr).collect())
    }
}
