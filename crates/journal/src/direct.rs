//! The scheme without a log, for volumes without a journal (ext2, `^has_journal`).
//!
//! A commit writes the transaction's data, flushes, writes its images home, and flushes again:
//! synced content is durable at its home location. A commit is not atomic: a crash during one can
//! leave the volume inconsistent, and e2fsck repairs that, as after a crash of the kernel's ext2.
//!
//! The scheme is the engine's usual one with a log that takes no space: codec and medium share the
//! images of the one commit under way, and the home policy has nothing left to do.

use std::collections::HashSet;
use std::sync::Arc;

use stetfs_block::{BlockDevice, WriteList};
use stetfs_cache::PageRef;
use stetfs_sync::plain::Mutex;

use crate::engine::config::JournalConfig;
use crate::error::{JournalError, Result};
use crate::head::Cache;
use crate::ids::{BlockNr, TxId};
use crate::journal::Journal;
use crate::policy::{
    Codec, Early, Encoded, EndReason, Home, HomeImage, ImageRef, LogTail, Medium, OneLane, Place,
    Scan, Scheme, Sent, Standing,
};
use crate::tx::Snapshot;

/// The size of the absent log, in blocks. It only bounds how large a transaction may be, and memory
/// bounds that more tightly.
const ENDLESS: u64 = 1 << 32;
/// The tail that the absent log reports.
const START: LogTail = LogTail {
    seq: 1,
    at: Some(0),
};

/// The images of the transaction being committed, sorted by home block.
type UnderWay = Arc<Mutex<Vec<(BlockNr, PageRef)>>>;

impl Journal {
    /// A journal that logs nothing: a commit writes its images home.
    ///
    /// # Errors
    /// `Aborted` if a thread cannot be started.
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

/// A codec whose transactions take no log blocks.
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

    fn flush_seals(&self) -> bool {
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

/// A home policy with nothing to do: committed images are home already.
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
