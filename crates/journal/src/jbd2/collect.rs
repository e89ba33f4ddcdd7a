//! The scan of a jbd2 log for recovery: its complete transactions.

use stetfs_ondisk::jbd2::descriptor::{FLAG_ESCAPE, Tag};

use super::codec::Jbd2Codec;
use super::walk::{Record, RecordKind, walk};
use crate::error::Result;
use crate::ids::{CommitPoint, Lane, TxId};
use crate::policy::{EndReason, ImageRef, LogTail, Medium, Scan, ScannedTx};

/// Collects the complete transactions of a log.
///
/// # Errors
/// The device's.
pub(super) fn scan(
    codec: &Jbd2Codec,
    log: &dyn Medium,
    tail: LogTail,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Scan> {
    let mut found = Collected {
        log,
        tail,
        scan: Scan {
            txs: Vec::new(),
            end: EndReason::Empty,
            next_seq: tail.seq,
        },
        current: None,
        torn: None,
    };
    // With async_commit only the images themselves show whether a transaction is complete.
    let canary = &codec.canary;
    let check_images = codec.async_commit && !canary.skip_checksums && !canary.trust_seal;
    walk(codec, log, tail, check_images, progress, &mut |record| {
        found.add(record)
    })?;
    let Collected { mut scan, torn, .. } = found;
    if let Some((_, end)) = torn {
        scan.end = end;
    }
    Ok(scan)
}

struct Collected<'a> {
    log: &'a dyn Medium,
    tail: LogTail,
    scan: Scan,
    /// The transaction whose records are being read.
    current: Option<ScannedTx>,
    /// The transaction that is not complete, and the way the log ends there.
    torn: Option<(u64, EndReason)>,
}

impl Collected<'_> {
    fn add(&mut self, record: Record) -> Result<()> {
        if let Some((tid, end)) = &mut self.torn {
            // A torn transaction is a usual trace of a crash, unless a later one is committed.
            match (&record.kind, &end) {
                (RecordKind::Commit { valid: true, .. }, EndReason::Torn(why))
                    if record.tid != *tid =>
                {
                    *end = EndReason::Lost(format!("transaction {tid} was committed, but {why}"));
                }
                (RecordKind::Lost(why), EndReason::Torn(_)) => *end = EndReason::Lost(why.clone()),
                _ => {}
            }
            return Ok(());
        }
        let seq = self.scan.next_seq;
        let tx = self.current.get_or_insert_with(|| fresh(seq, record.at));
        let torn = |why: String| Some((record.tid, EndReason::Torn(why)));
        match record.kind {
            RecordKind::Descriptor { tags, intact } => {
                add_images(tx, self.log, record.at, &tags)?;
                if intact.contains(&false) {
                    let tid = record.tid;
                    self.torn = torn(format!(
                        "an image of transaction {tid} does not match its checksum"
                    ));
                }
            }
            RecordKind::Revoke(blocks) => {
                tx.blocks += 1;
                tx.revokes.extend(blocks);
            }
            RecordKind::Commit { valid: true, .. } => {
                tx.blocks += 1;
                self.scan.txs.extend(self.current.take());
                self.scan.next_seq += 1;
            }
            RecordKind::Commit { valid: false, .. } => {
                let tid = record.tid;
                self.torn = torn(format!("the checksum of transaction {tid} does not match"));
            }
            // Frames belong to another format. Fast commits are looked for elsewhere.
            RecordKind::Damaged(_)
            | RecordKind::FastCommit(_)
            | RecordKind::Frame { .. }
            | RecordKind::File { .. } => {}
            RecordKind::Lost(why) => self.scan.end = EndReason::Lost(why),
            RecordKind::End(why) => {
                self.scan.end = match self.tail.at {
                    None => EndReason::Empty,
                    Some(_) if tx.blocks > 0 => EndReason::Torn(why),
                    Some(_) => EndReason::NoNext(why),
                };
            }
        }
        Ok(())
    }
}

fn fresh(seq: u64, at: u64) -> ScannedTx {
    ScannedTx {
        id: TxId { lane: Lane(0), seq },
        stamp: seq,
        floor: 0,
        edges: CommitPoint::none(),
        images: Vec::new(),
        revokes: Vec::new(),
        at,
        blocks: 0,
    }
}

/// Adds the images that follow the descriptor in log block `at`.
fn add_images(tx: &mut ScannedTx, log: &dyn Medium, at: u64, tags: &[Tag]) -> Result<()> {
    tx.blocks += 1 + tags.len() as u64;
    for (tag, n) in tags.iter().zip(1..) {
        let at = log.advance(at, n);
        let is_verbatim = tag.flags & FLAG_ESCAPE == 0;
        let image = ImageRef {
            at,
            flags: tag.flags,
            check: tag.checksum,
            place: is_verbatim.then(|| log.place(at)).transpose()?,
        };
        tx.images.push((tag.block, image));
    }
    Ok(())
}
