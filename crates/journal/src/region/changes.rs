//! The codec that logs the changes of each block (`docs/format/region.md`).

use std::ops::Range;
use std::sync::Arc;

use stetfs_block::BlockDevice;
use stetfs_cache::{Page, PageRef};
use stetfs_ondisk::num::{count32, to_usize};
use stetfs_ondisk::stet::changes::{
    CHANGES_HEAD, ChangesHead, IMAGE_BYTES, RUN_BYTES, contents, image, put_image, put_revoke,
};
use stetfs_ondisk::stet::checksum;

use super::log::{ChangesLog, Next, UNIT};
use crate::error::{JournalError, Result, lost};
use crate::ids::{CommitPoint, Lane, TxId};
use crate::policy::{
    Codec, Early, Encoded, EndReason, ImageRef, LogTail, Medium, Scan, ScannedTx, Touched, WORD,
};
use crate::tx::{Image, Snapshot};

/// The lines that a transaction may need beyond its contents: its head, and the rest of its last
/// line.
const HEAD_LINES: u64 = (CHANGES_HEAD as u64).div_ceil(UNIT) + 1;

/// The codec of a log in a region.
pub(crate) struct ChangesCodec {
    /// The log; none if the region is given up.
    pub(crate) log: Option<ChangesLog>,
    /// The volume's device: logged changes are applied to the block at its home location.
    pub(crate) device: Arc<dyn BlockDevice>,
    pub(crate) block_size: u32,
    /// The unit of logged changes, in bytes: a word or more.
    pub(crate) unit: usize,
}

impl ChangesCodec {
    fn block(&self) -> usize {
        self.block_size as usize
    }

    /// The bytes of an image that is logged whole.
    fn whole_bytes(&self) -> u64 {
        (IMAGE_BYTES + RUN_BYTES + self.block()) as u64
    }

    /// Appends an image: its changes, or all of it if that is shorter.
    fn put(&self, rest: &mut Vec<u8>, image: &Image) {
        let page = &image.page;
        let (runs, fresh) = match &image.touched {
            Some(touched) => (touched.runs(1), false),
            // A new block is logged by its differences from zeroes, because most of it is zero.
            None => {
                let zero = Page::zeroed(self.block());
                (Touched::between(&zero, page, WORD).runs(1), true)
            }
        };
        if self.is_shorter(&runs) {
            return put_image(rest, image.nr, page, &runs, fresh);
        }
        let words = 0..self.block() / WORD;
        put_image(rest, image.nr, page, std::slice::from_ref(&words), false);
    }

    fn is_shorter(&self, runs: &[Range<usize>]) -> bool {
        let words: usize = runs.iter().map(ExactSizeIterator::len).sum();
        runs.len() * RUN_BYTES + words * WORD < RUN_BYTES + self.block()
    }

    /// The transaction with this head; none if the memory lost a part of it.
    fn load(&self, log: &ChangesLog, head: &ChangesHead, lane: Lane) -> Result<Option<ScannedTx>> {
        let Some(rest) = log.rest(head)? else {
            return Ok(None);
        };
        let Ok((revokes, images)) = contents(&rest, head, self.block()) else {
            return Ok(None);
        };
        let at = head.at / UNIT;
        let images = images.into_iter().map(|(nr, byte)| {
            let far = |_| {
                lost(format!(
                    "the image of block {nr} is at byte {byte} of transaction {}, beyond the limit",
                    head.seq
                ))
            };
            let image = ImageRef {
                at,
                flags: u32::try_from(byte).map_err(far)?,
                check: 0,
                place: None,
            };
            Ok((nr, image))
        });
        Ok(Some(ScannedTx {
            id: TxId {
                lane,
                seq: head.seq,
            },
            stamp: head.stamp,
            floor: head.floor,
            edges: CommitPoint::none(),
            images: images.collect::<Result<_>>()?,
            revokes,
            at,
            blocks: head.lines().unwrap_or(0),
        }))
    }

    /// The reason why a scan ends where transaction `seq` should be.
    fn end(&self, log: &ChangesLog, seq: u64, is_torn: bool) -> Result<EndReason> {
        // Transactions are sealed in order, so a later one proves that this one was there.
        if let Some(later) = log.find(seq)? {
            return Ok(EndReason::Lost(format!(
                "transaction {seq} was committed to the region (transaction {later} follows it), \
                 but it is missing"
            )));
        }
        Ok(match is_torn {
            true => EndReason::Torn(format!("transaction {seq} was not sealed")),
            false => EndReason::NoNext(format!("there is no transaction {seq}")),
        })
    }
}

impl Codec for ChangesCodec {
    fn bound(&self, images: u64, revokes: u64) -> u64 {
        let bytes = images * self.whole_bytes() + revokes * 8;
        HEAD_LINES + bytes.div_ceil(UNIT)
    }

    fn change_unit(&self) -> Option<usize> {
        Some(self.unit)
    }

    fn most_images(&self, ring: u64, slack: u64) -> u64 {
        let lines = (ring / 4).saturating_sub(HEAD_LINES + slack);
        lines * UNIT / self.whole_bytes()
    }

    fn image_bytes(&self, _log: &dyn Medium) -> Result<u64> {
        Ok(self.block_size.into())
    }

    fn encode(&self, tx: &Snapshot, _: &mut Early<'_>) -> Result<Encoded> {
        let mut rest = Vec::with_capacity(tx.images.len() * 256);
        tx.revokes.iter().for_each(|nr| put_revoke(&mut rest, *nr));
        tx.images
            .iter()
            .for_each(|image| self.put(&mut rest, image));
        let head = ChangesHead {
            epoch: self.log.as_ref().map_or(0, ChangesLog::epoch),
            seq: tx.id.seq,
            stamp: tx.stamp,
            floor: tx.floor,
            at: 0,
            rest_sum: checksum(&rest),
            rest_bytes: rest.len() as u64,
            images: count32(tx.images.len()),
            revokes: count32(tx.revokes.len()),
        };
        let mut bytes = head.encode().0.to_vec();
        bytes.append(&mut rest);
        let units = (bytes.len() as u64).div_ceil(UNIT);
        bytes.resize(to_usize(units * UNIT), 0);
        Ok(Encoded {
            verbatim: vec![None; tx.images.len()],
            bytes,
            units,
            ..Encoded::default()
        })
    }

    fn scan(
        &self,
        medium: &dyn Medium,
        tail: LogTail,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Scan> {
        let mut scan = Scan {
            txs: Vec::new(),
            end: EndReason::Empty,
            next_seq: tail.seq,
        };
        let Some(mut at) = tail.at else {
            return Ok(scan);
        };
        let Some(log) = &self.log else {
            let why = "the transactions are in a region that was given up";
            scan.end = EndReason::Lost(why.into());
            return Ok(scan);
        };
        let mut left = medium.capacity();
        scan.end = loop {
            progress(medium.capacity() - left, medium.capacity());
            let head = match log.next(at, scan.next_seq)? {
                Next::Sealed(head) => head,
                next => break self.end(log, scan.next_seq, next == Next::Torn)?,
            };
            let Some(tx) = self.load(log, &head, medium.lane())? else {
                break EndReason::Lost(format!(
                    "transaction {} in the region does not match its checksum",
                    head.seq
                ));
            };
            let Some(less) = left.checked_sub(tx.blocks) else {
                break EndReason::Lost("more transactions than the region holds".into());
            };
            left = less;
            at = medium.advance(at, tx.blocks);
            scan.next_seq += 1;
            scan.txs.push(tx);
        };
        Ok(scan)
    }

    /// The logged changes, applied to the content at home.
    fn images(&self, _: &dyn Medium, tx: TxId, refs: &[ImageRef]) -> Result<Vec<PageRef>> {
        let given_up = || JournalError::Aborted("the log's region was given up".into());
        let log = self.log.as_ref().ok_or_else(given_up)?;
        let Some(first) = refs.first() else {
            return Ok(Vec::new());
        };
        let damaged = || {
            lost(format!(
                "transaction {} in the region changed while it was read",
                tx.seq
            ))
        };
        let Next::Sealed(head) = log.next(first.at, tx.seq)? else {
            return Err(damaged().into());
        };
        let rest = log.rest(&head)?.ok_or_else(damaged)?;
        let mut pages = Vec::with_capacity(refs.len());
        for found in refs {
            let (changed, _) = image(&rest, found.flags as usize, self.block())?;
            let mut page = Page::zeroed(self.block());
            if !changed.fresh {
                let at = changed.nr * u64::from(self.block_size);
                self.device.read(at, &mut page)?;
            }
            changed.apply(&mut page);
            pages.push(Arc::new(page));
        }
        Ok(pages)
    }
}
