//! Reading a jbd2 log record by record: for recovery, and for people (`stetfs dump journal`).

use stetfs_cache::PageRef;
use stetfs_ondisk::jbd2::block::{read_header, verify_tail};
use stetfs_ondisk::jbd2::commit::TransactionSum;
use stetfs_ondisk::jbd2::descriptor::{self, FLAG_ESCAPE, Tag};
use stetfs_ondisk::jbd2::fast_commit::Change;
use stetfs_ondisk::jbd2::superblock::Csum;
use stetfs_ondisk::jbd2::{BlockType, commit, revoke};
use stetfs_ondisk::stet::record::FileRecord;

use super::codec::Jbd2Codec;
use crate::error::Result;
use crate::ids::{CommitPoint, Lane, TxId};
use crate::policy::{EndReason, ImageRef, LogTail, Medium, Scan, ScannedTx};

/// Log blocks read at a place far from what was read before; each further piece is twice as long …
const FIRST: u64 = 4;
/// … up to this.
const WINDOW: u64 = 256;
/// What lies between is read with them, up to so many blocks: another request would take longer.
const GAP: u64 = 16;

/// One record of the log.
#[derive(Clone, Debug)]
pub struct Record {
    /// Log block.
    pub at: u64,
    /// Transaction: jbd2's tid, or a frame's sequence.
    pub tid: u64,
    /// Lane of a StetFS log; none in jbd2's, and for what is said of all records of files.
    pub lane: Option<u16>,
    /// What it is.
    pub kind: RecordKind,
}

/// The kinds of records.
#[derive(Clone, Debug)]
pub enum RecordKind {
    /// Tags of the images in the log blocks that follow, one each.
    Descriptor {
        /// The tags.
        tags: Vec<Tag>,
        /// Whether each image matches its checksum (true without checksums).
        intact: Vec<bool>,
    },
    /// Revoked blocks.
    Revoke(Vec<u64>),
    /// End of the transaction.
    Commit {
        /// Wall clock, seconds and nanoseconds.
        time: (u64, u32),
        /// Whether its checksum is right.
        valid: bool,
    },
    /// A fast commit of Linux: what it says, in order.
    FastCommit(Vec<Change>),
    /// A whole transaction of the StetFS log.
    Frame {
        /// Its place in the order of commits.
        stamp: u64,
        /// Log blocks it takes.
        blocks: u64,
        /// Home blocks of its images.
        images: Vec<u64>,
        /// Revoked blocks.
        revokes: Vec<u64>,
        /// Lanes and sequences it depends on.
        edges: Vec<(u16, u64)>,
    },
    /// A file-level record that no transaction supersedes.
    File {
        /// Its place in the order of commits.
        stamp: u64,
        /// Log blocks it takes.
        blocks: u64,
        /// What it says, if that can be read.
        record: Option<Box<FileRecord>>,
        /// Data blocks that come with it.
        pages: Vec<u64>,
    },
    /// A block of the expected transaction that does not prove itself.
    Damaged(String),
    /// The log ends here although it went on: the device lost or changed what had been durable.
    Lost(String),
    /// Here the log ends.
    End(String),
}

/// Reads single log blocks through a window.
struct Reader<'a> {
    log: &'a dyn Medium,
    /// Blocks from the tail once round.
    start: u64,
    window: Vec<PageRef>,
    /// Distance of the window from `start`.
    base: u64,
    /// Blocks of the last piece that was read.
    piece: u64,
}

impl Reader<'_> {
    /// The block `distance` blocks after the tail; `None` once round.
    fn get(&mut self, distance: u64) -> Result<Option<PageRef>> {
        let capacity = self.log.capacity();
        if distance >= capacity {
            return Ok(None);
        }
        let end = self.base + self.window.len() as u64;
        if distance < self.base || distance >= end {
            self.piece = match distance.checked_sub(end) {
                Some(0..=GAP) => (self.piece * 2).clamp(FIRST, WINDOW),
                _ => FIRST,
            };
            let count = self.piece.min(capacity - distance);
            self.window = self
                .log
                .read(self.log.advance(self.start, distance), count)?;
            self.base = distance;
        }
        Ok(self.window.get((distance - self.base) as usize).cloned())
    }
}

/// Visits the records from the tail on, `End` last. `images` says whether to read and check the
/// images too (`intact` is all true otherwise).
///
/// # Errors
/// The device's.
pub fn walk(
    codec: &Jbd2Codec,
    log: &dyn Medium,
    tail: LogTail,
    images: bool,
    progress: &mut dyn FnMut(u64, u64),
    visit: &mut dyn FnMut(Record) -> Result<()>,
) -> Result<()> {
    let end = |at, tid: u32, why: String| Record {
        at,
        tid: tid.into(),
        lane: None,
        kind: RecordKind::End(why),
    };
    let mut tid = tail.seq as u32;
    let Some(start) = tail.at else {
        return visit(end(log.first(), tid, "the log is empty".into()));
    };
    let mut reader = Reader {
        log,
        start,
        window: Vec::new(),
        base: 0,
        piece: 0,
    };
    let mut distance = 0;
    let capacity = log.capacity();
    let tails = codec.config.csum.in_blocks() && !codec.canary.skip_checksums;
    let reads_images = images || codec.config.csum == Csum::V1;
    let mut sum = TransactionSum::default();
    // Why the transaction cannot be replayed, if its commit block follows.
    let mut senseless: Option<String> = None;
    // When the newest whole transaction was committed, seconds.
    let mut since = 0;
    loop {
        progress(distance, capacity);
        let at = log.advance(start, distance);
        let Some(block) = reader.get(distance)? else {
            return visit(end(at, tid, "once round the ring".into()));
        };
        distance += 1;
        let kind = match read_header(&block) {
            Some((kind, found)) if found == tid || codec.canary.any_sequence => kind,
            other => {
                let why = match other {
                    None => "no journal block here".to_owned(),
                    Some((_, found)) => {
                        format!("transaction {found} stands here, {tid} was expected")
                    }
                };
                // The end of the log, unless what was committed goes on behind it.
                if committed_behind(codec, &mut reader, distance, tid, true, since)? {
                    return visit(lost(tid, at, &why));
                }
                return visit(end(at, tid, why));
            }
        };
        let kind = match kind {
            BlockType::Descriptor | BlockType::Revoke
                if tails && !verify_tail(codec.config.seed, &block) =>
            {
                let what = if kind == BlockType::Descriptor {
                    "descriptor"
                } else {
                    "revoke block"
                };
                RecordKind::Damaged(format!("checksum of a {what} does not match"))
            }
            BlockType::Descriptor => {
                let tags = descriptor::decode(&codec.config, &block);
                sum.add(&codec.config, &block);
                let mut intact = Vec::with_capacity(tags.len());
                for (tag, at) in tags.iter().zip(distance..) {
                    if at >= capacity {
                        senseless = Some("more images than the log has room for".into());
                    }
                    // Whoever brings it home proves it then.
                    intact.push(match reads_images {
                        false => at < capacity,
                        true => reader.get(at)?.is_some_and(|image| {
                            sum.add(&codec.config, &image);
                            !images || codec.image_matches(tid, tag.checksum, &image)
                        }),
                    });
                }
                distance += tags.len() as u64;
                RecordKind::Descriptor { tags, intact }
            }
            BlockType::Revoke => match revoke::decode(&codec.config, &block) {
                Ok(blocks) => RecordKind::Revoke(blocks),
                Err(e) => {
                    // What it revokes nobody knows: without it the transaction is not what was
                    // committed.
                    senseless = Some(e.to_string());
                    visit(Record {
                        at,
                        tid: tid.into(),
                        lane: None,
                        kind: RecordKind::Damaged(e.to_string()),
                    })?;
                    continue;
                }
            },
            BlockType::Commit => RecordKind::Commit {
                time: commit::time(&block),
                valid: codec.canary.skip_checksums || commit::verify(&codec.config, &block, sum),
            },
            BlockType::SuperblockV1 | BlockType::SuperblockV2 => {
                return visit(end(at, tid, "a journal superblock stands here".into()));
            }
        };
        let state = match &kind {
            RecordKind::Damaged(why) => State::Damaged(why.clone()),
            RecordKind::Commit { valid, time } => State::Committed(*valid, time.0),
            _ => State::Open,
        };
        visit(Record {
            at,
            tid: tid.into(),
            lane: None,
            kind,
        })?;
        match state {
            State::Open => {}
            State::Damaged(why) => {
                if committed_behind(codec, &mut reader, distance, tid, true, since)? {
                    return visit(lost(tid, at, &why));
                }
                return visit(end(at, tid, why));
            }
            State::Committed(true, time) => {
                if let Some(why) = senseless {
                    return visit(lost(tid, at, &why));
                }
                since = time;
                sum = TransactionSum::default();
                tid = tid.wrapping_add(1);
            }
            State::Committed(false, time) => {
                let why = "checksum of a commit block does not match";
                if time < since {
                    let why = format!("{why}, which is older than the one before");
                    return visit(end(at, tid, why));
                }
                // It was written when all before it stood, and its record lies in one sector, so no
                // crash explains it; with async_commit only the next transaction
                // tells that this one had been whole.
                if !codec.async_commit
                    || committed_behind(codec, &mut reader, distance, tid, false, since)?
                {
                    return visit(lost(tid, at, why));
                }
                if codec.config.csum != Csum::V1 {
                    return visit(end(at, tid, why.into()));
                }
                // Where only commit blocks have checksums, the way to the next one must be walked.
                sum = TransactionSum::default();
                tid = tid.wrapping_add(1);
            }
        }
    }
}

/// What a record says of its transaction.
enum State {
    /// It goes on.
    Open,
    /// It cannot go on.
    Damaged(String),
    /// It ends here: whether its sum is right, and when it was committed, seconds.
    Committed(bool, u64),
}

/// A transaction of which the device lost or changed a part after it was committed.
fn lost(tid: u32, at: u64, why: &str) -> Record {
    let why = format!("transaction {tid} was committed, but in log block {at}: {why}");
    Record {
        at,
        tid: tid.into(),
        lane: None,
        kind: RecordKind::Lost(why),
    }
}

/// Whether a valid commit block behind `distance` says that transaction `tid` was durable. With
/// barriers the next transaction's always does, and, if `own`, its own too, but for async_commit:
/// then the device lost what it had promised to keep.
///
/// Every log that a crash left ends somewhere, so this must cost little where nothing follows: at
/// most one descriptor's images stand between two records of a transaction, so where no record of
/// these two comes within that many blocks (2 MiB with blocks of 4 KiB) none comes at all. Two
/// damaged records in a row thus hide what is behind them.
///
/// What was committed before `since` is not of this log, but of one that was here earlier.
fn committed_behind(
    codec: &Jbd2Codec,
    reader: &mut Reader<'_>,
    mut distance: u64,
    tid: u32,
    own: bool,
    since: u64,
) -> Result<bool> {
    // Without checksums of its own a data block could look like one.
    if !codec.config.csum.in_blocks() || codec.canary.skip_checksums {
        return Ok(false);
    }
    let next = tid.wrapping_add(1);
    // The smallest tag has 8 bytes.
    let most_images = codec.config.block_size as u64 / 8;
    let mut end = distance + most_images;
    while distance <= end
        && let Some(block) = reader.get(distance)?
    {
        if let Some((kind, found)) = read_header(&block)
            && (found == tid || found == next)
        {
            let tells = found == next || (own && !codec.async_commit);
            if tells
                && kind == BlockType::Commit
                && commit::time(&block).0 >= since
                && commit::verify(&codec.config, &block, TransactionSum::default())
            {
                return Ok(true);
            }
            end = distance + most_images + 1;
        }
        distance += 1;
    }
    Ok(false)
}

/// Collects the whole transactions of a log.
pub(super) fn scan(
    codec: &Jbd2Codec,
    log: &dyn Medium,
    tail: LogTail,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Scan> {
    let fresh = |seq: u64, at: u64| ScannedTx {
        id: TxId { lane: Lane(0), seq },
        stamp: seq,
        floor: 0,
        edges: CommitPoint::none(),
        images: Vec::new(),
        revokes: Vec::new(),
        at,
        blocks: 0,
    };
    let mut scan = Scan {
        txs: Vec::new(),
        end: EndReason::Empty,
        next_seq: tail.seq,
    };
    let mut current: Option<ScannedTx> = None;
    let mut torn: Option<(u64, EndReason)> = None;
    // With async_commit only the images themselves show whether a transaction is whole.
    let canary = &codec.canary;
    let check_images = codec.async_commit && !canary.skip_checksums && !canary.trust_seal;
    walk(codec, log, tail, check_images, progress, &mut |record| {
        if let Some((tid, end)) = &mut torn {
            // Torn it may be, but not if the next one waited for it.
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
        let seq = scan.next_seq;
        let tx = current.get_or_insert_with(|| fresh(seq, record.at));
        match record.kind {
            RecordKind::Descriptor { tags, intact } => {
                tx.blocks += 1 + tags.len() as u64;
                for (i, tag) in tags.iter().enumerate() {
                    let at = log.advance(record.at, 1 + i as u64);
                    tx.images.push((
                        tag.block,
                        ImageRef {
                            at,
                            flags: tag.flags,
                            check: tag.checksum,
                            place: (tag.flags & FLAG_ESCAPE == 0)
                                .then(|| log.place(at))
                                .transpose()?,
                        },
                    ));
                }
                if intact.contains(&false) {
                    let why = format!(
                        "an image of transaction {} does not match its checksum",
                        record.tid
                    );
                    torn = Some((record.tid, EndReason::Torn(why)));
                }
            }
            RecordKind::Revoke(blocks) => {
                tx.blocks += 1;
                tx.revokes.extend(blocks);
            }
            RecordKind::Commit { valid: true, .. } => {
                tx.blocks += 1;
                scan.txs.extend(current.take());
                scan.next_seq += 1;
            }
            RecordKind::Commit { valid: false, .. } => {
                let why = format!("the sum of transaction {} does not match", record.tid);
                torn = Some((record.tid, EndReason::Torn(why)));
            }
            // Frames are of another log, fast commits are looked for behind this one.
            RecordKind::Damaged(_)
            | RecordKind::FastCommit(_)
            | RecordKind::Frame { .. }
            | RecordKind::File { .. } => {}
            RecordKind::Lost(why) => scan.end = EndReason::Lost(why),
            RecordKind::End(why) => {
                scan.end = match tail.at {
                    None => EndReason::Empty,
                    Some(_) if tx.blocks > 0 => EndReason::Torn(why),
                    Some(_) => EndReason::NoNext(why),
                };
            }
        }
        Ok(())
    })?;
    if let Some((_, end)) = torn {
        scan.end = end;
    }
    Ok(scan)
}
