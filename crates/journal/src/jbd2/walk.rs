//! Reading a jbd2 log record by record: for recovery, and for people (`stetfs dump journal`).

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
        Ok(self.window.get(to_usize(distance - self.base)).cloned())
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

/// Here the log ends.
fn end(at: u64, tid: u32, why: String) -> Record {
    record(at, tid, RecordKind::End(why))
}

/// How far a walk is.
struct Walk<'a> {
    codec: &'a Jbd2Codec,
    /// Images are read and checked.
    images: bool,
    reader: Reader<'a>,
    /// Log blocks from the tail on.
    distance: u64,
    /// The transaction that is expected.
    tid: u32,
    /// Of what is read of it.
    sum: TransactionSum,
    /// Why it cannot be replayed, if its commit block follows.
    senseless: Option<String>,
    /// When the newest whole transaction was committed, seconds.
    since: u64,
}

impl Walk<'_> {
    /// Reads the next record, at log block `at`, and what it says of its transaction; or the last
    /// record that there is.
    fn read(&mut self, at: u64) -> Result<ControlFlow<Record, (RecordKind, State)>> {
        let end = |why: &str| Ok(ControlFlow::Break(end(at, self.tid, why.into())));
        let Some(block) = self.reader.get(self.distance)? else {
            return end("once round the ring");
        };
        self.distance += 1;
        let config = &self.codec.config;
        let kind = match read_header(&block) {
            Some((kind, found)) if found == self.tid || self.codec.canary.any_sequence => kind,
            None => return self.stop(at, "no journal block here"),
            Some((_, found)) => {
                let why = format!("transaction {found} stands here, {} was expected", self.tid);
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
                return end("a journal superblock stands here");
            }
        };
        Ok(ControlFlow::Continue(read))
    }

    /// Reads the images behind a descriptor, as far as they are wanted.
    fn descriptor(&mut self, block: &[u8]) -> Result<RecordKind> {
        let config = &self.codec.config;
        let capacity = self.reader.log.capacity();
        let reads_images = self.images || config.csum == Csum::V1;
        let tags = descriptor::decode(config, block);
        self.sum.add(config, block);
        let mut intact = Vec::with_capacity(tags.len());
        for (tag, at) in tags.iter().zip(self.distance..) {
            if at >= capacity {
                self.senseless = Some("more images than the log has room for".into());
            }
            // Whoever brings it home proves it then.
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
                // What it revokes nobody knows: without it the transaction is not what was
                // committed.
                self.senseless = Some(e.to_string());
                RecordKind::Damaged(e.to_string())
            }
        }
    }

    /// The end of the log, unless what was committed goes on behind it.
    fn stop<T>(&mut self, at: u64, why: &str) -> Result<ControlFlow<Record, T>> {
        Ok(ControlFlow::Break(self.end_or_lost(at, why)?))
    }

    fn end_or_lost(&mut self, at: u64, why: &str) -> Result<Record> {
        match self.goes_on_behind(true)? {
            true => Ok(lost(self.tid, at, why)),
            false => Ok(end(at, self.tid, why.into())),
        }
    }

    /// See [`committed_behind`].
    fn goes_on_behind(&mut self, own: bool) -> Result<bool> {
        let (distance, tid, since) = (self.distance, self.tid, self.since);
        committed_behind(self.codec, &mut self.reader, distance, tid, own, since)
    }

    /// The last record of the log, if that ends behind the one at `at`.
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
                    return end(format!("{why}, which is older than the one before"));
                }
                // It was written when all before it stood, and its record lies in one sector, so no
                // crash explains it; with async_commit only the next transaction
                // tells that this one had been whole.
                if !self.codec.async_commit || self.goes_on_behind(false)? {
                    return lost(why);
                }
                // Where only commit blocks have checksums, the way to the next one must be walked.
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
    record(at, tid, RecordKind::Lost(why))
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
