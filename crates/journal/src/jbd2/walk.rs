//! The walk over a jbd2 log, record by record: for recovery, and for people (`stetfs dump
//! journal`).

use std::ops::ControlFlow;

use stetfs_cache::PageRef;
use stetfs_ondisk::jbd2::block::{read_header, verify_tail};
use stetfs_ondisk::jbd2::commit::TransactionSum;
use stetfs_ondisk::jbd2::descriptor::{self, Tag};
use stetfs_ondisk::jbd2::fast_commit::Change;
use stetfs_ondisk::jbd2::superblock::Csum;
use stetfs_ondisk::jbd2::{BlockType, commit, revoke};
use stetfs_ondisk::num::{low32, to_usize};
use stetfs_ondisk::stet::record::FileRecord;

use super::codec::Jbd2Codec;
use crate::error::Result;
use crate::policy::{LogTail, Medium};

/// The log blocks of the first piece, read at a new place. Each further piece is twice as long, up
/// to [`WINDOW`].
const FIRST: u64 = 4;
/// The log blocks of the longest piece.
const WINDOW: u64 = 256;
/// A read that starts at most so many log blocks behind the last piece counts as its continuation.
const GAP: u64 = 16;

/// One record of the log.
#[derive(Clone, Debug)]
pub struct Record {
    /// Log block.
    pub at: u64,
    /// Transaction: jbd2's tid, or a frame's sequence.
    pub tid: u64,
    /// Lane of a StetFS log; none for jbd2's log, and for the end of all records of files.
    pub lane: Option<u16>,
    /// The kind, with its contents.
    pub kind: RecordKind,
}

/// The kinds of records.
#[derive(Clone, Debug)]
pub enum RecordKind {
    /// The tags of the images in the log blocks that follow, one each.
    Descriptor {
        /// The tags.
        tags: Vec<Tag>,
        /// Whether each image matches its checksum (true without checksums).
        intact: Vec<bool>,
    },
    /// Revoked blocks.
    Revoke(Vec<u64>),
    /// The end of a transaction.
    Commit {
        /// The wall-clock time, in seconds and nanoseconds.
        time: (u64, u32),
        /// Whether its checksum is right.
        valid: bool,
    },
    /// A fast commit of Linux: its changes, in order.
    FastCommit(Vec<Change>),
    /// A complete transaction of the StetFS log.
    Frame {
        /// The place in the order of commits.
        stamp: u64,
        /// The number of log blocks.
        blocks: u64,
        /// The home blocks of the images.
        images: Vec<u64>,
        /// Revoked blocks.
        revokes: Vec<u64>,
        /// The transactions that it depends on: lanes and sequences.
        edges: Vec<(u16, u64)>,
    },
    /// A record of a file that no transaction supersedes.
    File {
        /// The place in the order of commits.
        stamp: u64,
        /// The number of log blocks.
        blocks: u64,
        /// The contents; none if they cannot be decoded.
        record: Option<Box<FileRecord>>,
        /// The home blocks of its data blocks.
        pages: Vec<u64>,
    },
    /// A block of the expected transaction that fails its checks.
    Damaged(String),
    /// The log ends here although durable content followed: the device lost or changed it.
    Lost(String),
    /// The end of the log, with the reason.
    End(String),
}

/// Reads single log blocks through a window.
struct Reader<'a> {
    log: &'a dyn Medium,
    /// The log block at which the tail is, from which distances count.
    start: u64,
    window: Vec<PageRef>,
    /// The distance of the window from `start`.
    base: u64,
    /// The number of blocks of the last piece that was read.
    piece: u64,
}

impl Reader<'_> {
    /// The block `distance` blocks after the tail; `None` once around the ring.
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
        Ok(self.window.get(to_usize(distance - self.base)).cloned())
    }
}

/// Visits the records from the tail on, [`RecordKind::End`] or [`RecordKind::Lost`] last. `images`
/// says whether images are read and checked, too; otherwise all of `intact` is true. `progress`
/// gets (done, of) in log blocks.
///
/// # Errors
/// The device's, and those of `visit`.
pub fn walk(
    codec: &Jbd2Codec,
    log: &dyn Medium,
    tail: LogTail,
    images: bool,
    progress: &mut dyn FnMut(u64, u64),
    visit: &mut dyn FnMut(Record) -> Result<()>,
) -> Result<()> {
    let tid = low32(tail.seq);
    let Some(start) = tail.at else {
        return visit(end(log.first(), tid, "the log is empty".into()));
    };
    let mut walk = Walk {
        codec,
        images,
        reader: Reader {
            log,
            start,
            window: Vec::new(),
            base: 0,
            piece: 0,
        },
        distance: 0,
        tid,
        sum: TransactionSum::default(),
        senseless: None,
        since: 0,
    };
    loop {
        progress(walk.distance, log.capacity());
        let at = log.advance(start, walk.distance);
        let (kind, state) = match walk.read(at)? {
            ControlFlow::Continue(read) => read,
            ControlFlow::Break(last) => return visit(last),
        };
        visit(record(at, walk.tid, kind))?;
        if let Some(last) = walk.last_behind(at, state)? {
            return visit(last);
        }
    }
}

fn record(at: u64, tid: u32, kind: RecordKind) -> Record {
    Record {
        at,
        tid: tid.into(),
        lane: None,
        kind,
    }
}

/// The record for the end of the log.
fn end(at: u64, tid: u32, why: String) -> Record {
    record(at, tid, RecordKind::End(why))
}

/// The state of a walk.
struct Walk<'a> {
    codec: &'a Jbd2Codec,
    /// Whether images are read and checked.
    images: bool,
    reader: Reader<'a>,
    /// The number of log blocks read so far, from the tail on.
    distance: u64,
    /// The expected transaction.
    tid: u32,
    /// The checksum over the blocks of the transaction so far.
    sum: TransactionSum,
    /// The reason why the transaction cannot be replayed even if its commit block follows.
    senseless: Option<String>,
    /// The commit time of the newest complete transaction, in seconds.
    since: u64,
}

impl Walk<'_> {
    /// Reads the next record, at log block `at`. Returns it with the state of its transaction, or
    /// the last record of the log.
    fn read(&mut self, at: u64) -> Result<ControlFlow<Record, (RecordKind, State)>> {
        let end = |why: &str| Ok(ControlFlow::Break(end(at, self.tid, why.into())));
        let Some(block) = self.reader.get(self.distance)? else {
            return end("the whole ring was read");
        };
        self.distance += 1;
        let config = &self.codec.config;
        let kind = match read_header(&block) {
            Some((kind, found)) if found == self.tid || self.codec.canary.any_sequence => kind,
            None => return self.stop(at, "no journal block found"),
            Some((_, found)) => {
                let why = format!("found transaction {found} where {} was expected", self.tid);
                return self.stop(at, &why);
            }
        };
        let has_tail = config.csum.in_blocks() && !self.codec.canary.skip_checksums;
        let read = match kind {
            BlockType::Descriptor if has_tail && !verify_tail(config.seed, &block) => {
                damaged("checksum of a descriptor does not match")
            }
            BlockType::Revoke if has_tail && !verify_tail(config.seed, &block) => {
                damaged("checksum of a revoke block does not match")
            }
            BlockType::Descriptor => (self.descriptor(&block)?, State::Open),
            BlockType::Revoke => (self.revokes(&block), State::Open),
            BlockType::Commit => {
                let time = commit::time(&block);
                let valid =
                    self.codec.canary.skip_checksums || commit::verify(config, &block, self.sum);
                let state = State::Committed(valid, time.0);
                (RecordKind::Commit { time, valid }, state)
            }
            BlockType::SuperblockV1 | BlockType::SuperblockV2 => {
                return end(&format!(
                    "found a journal superblock where transaction {} was expected",
                    self.tid
                ));
            }
        };
        Ok(ControlFlow::Continue(read))
    }

    /// Reads a descriptor, and the images behind it if they are wanted.
    fn descriptor(&mut self, block: &[u8]) -> Result<RecordKind> {
        let config = &self.codec.config;
        let capacity = self.reader.log.capacity();
        let reads_images = self.images || config.csum == Csum::V1;
        let tags = descriptor::decode(config, block);
        self.sum.add(config, block);
        let mut intact = Vec::with_capacity(tags.len());
        for (tag, at) in tags.iter().zip(self.distance..) {
            if at >= capacity {
                self.senseless =
                    Some("the transaction has more images than the log can hold".into());
            }
            // Unread images are checked when they are written home.
            intact.push(match reads_images {
                false => at < capacity,
                true => self.reader.get(at)?.is_some_and(|image| {
                    self.sum.add(config, &image);
                    !self.images || self.codec.image_matches(self.tid, tag.checksum, &image)
                }),
            });
        }
        self.distance += tags.len() as u64;
        Ok(RecordKind::Descriptor { tags, intact })
    }

    fn revokes(&mut self, block: &[u8]) -> RecordKind {
        match revoke::decode(&self.codec.config, block) {
            Ok(blocks) => RecordKind::Revoke(blocks),
            Err(e) => {
                // The blocks that it revokes are unknown, and without them the transaction is not
                // what was committed.
                self.senseless = Some(e.to_string());
                RecordKind::Damaged(e.to_string())
            }
        }
    }

    /// The last record of the log: `End`, or `Lost` if committed content follows.
    fn stop<T>(&mut self, at: u64, why: &str) -> Result<ControlFlow<Record, T>> {
        Ok(ControlFlow::Break(self.end_or_lost(at, why)?))
    }

    fn end_or_lost(&mut self, at: u64, why: &str) -> Result<Record> {
        match self.goes_on_behind(true)? {
            true => Ok(lost(self.tid, at, why)),
            false => Ok(end(at, self.tid, why.into())),
        }
    }

    /// As [`committed_behind`], from the present position on.
    fn goes_on_behind(&mut self, own: bool) -> Result<bool> {
        let (distance, tid, since) = (self.distance, self.tid, self.since);
        committed_behind(self.codec, &mut self.reader, distance, tid, own, since)
    }

    /// The last record of the log, if the log ends with the record at `at`.
    fn last_behind(&mut self, at: u64, state: State) -> Result<Option<Record>> {
        let tid = self.tid;
        let lost = |why: &str| Ok(Some(lost(tid, at, why)));
        let end = |why: String| Ok(Some(end(at, tid, why)));
        match state {
            State::Open => return Ok(None),
            State::Damaged(why) => return self.end_or_lost(at, &why).map(Some),
            State::Committed(true, time) => {
                if let Some(why) = &self.senseless {
                    return lost(why);
                }
                self.since = time;
            }
            State::Committed(false, time) => {
                let why = "checksum of a commit block does not match";
                if time < self.since {
                    return end(format!("{why}, and it is older than the one before"));
                }
                // The commit block was written when all before it was durable, and its record lies
                // in one sector, so no crash explains the damage. With async_commit only the next
                // transaction shows that this one was complete.
                if !self.codec.async_commit || self.goes_on_behind(false)? {
                    return lost(why);
                }
                // If only commit blocks have checksums, the records up to the next one have to be
                // walked.
                if self.codec.config.csum != Csum::V1 {
                    return end(why.into());
                }
            }
        }
        self.sum = TransactionSum::default();
        self.tid = self.tid.wrapping_add(1);
        Ok(None)
    }
}

fn damaged(why: &str) -> (RecordKind, State) {
    let state = State::Damaged(why.into());
    (RecordKind::Damaged(why.into()), state)
}

/// The state of a transaction after one of its records.
enum State {
    /// The transaction continues.
    Open,
    /// The transaction cannot continue.
    Damaged(String),
    /// The transaction ends: whether its checksum is right, and its commit time in seconds.
    Committed(bool, u64),
}

/// The record for a transaction of which the device lost or changed a part after it was committed.
fn lost(tid: u32, at: u64, why: &str) -> Record {
    let why = format!("transaction {tid} was committed, but in log block {at}: {why}");
    record(at, tid, RecordKind::Lost(why))
}

/// Whether a valid commit block behind `distance` proves that transaction `tid` was durable. The
/// next transaction's commit block always does (with barriers); if `own`, the transaction's own
/// does, too, but not with async_commit. The device has then lost durable content.
///
/// Every log that a crash left ends somewhere, so this must be cheap if nothing follows. At most
/// one descriptor's images are between two records of a transaction. So if no record of these two
/// transactions comes within that many blocks (2 MiB with blocks of 4 KiB), the search ends. Two
/// damaged records in a row thus hide what is behind them.
///
/// A commit before `since` is not of this log, but of an older one in its place.
fn committed_behind(
    codec: &Jbd2Codec,
    reader: &mut Reader<'_>,
    mut distance: u64,
    tid: u32,
    own: bool,
    since: u64,
) -> Result<bool> {
    // Without checksums in blocks, a data block could look like a commit block.
    if !codec.config.csum.in_blocks() || codec.canary.skip_checksums {
        return Ok(false);
    }
    let next = tid.wrapping_add(1);
    // The smallest tag has 8 bytes.
    let most_images = u64::from(codec.config.block_size) / 8;
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
