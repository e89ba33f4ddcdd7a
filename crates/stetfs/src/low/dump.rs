//! The records of a volume's journal, for people and scripts.

use serde::Serialize;
use stetfs_block::OpenOptions;
use stetfs_ext4::{FsError, Result, find_log};
use stetfs_journal::{Lane, Record, RecordKind, TxId, Verdict};

use super::external;
use super::fast_commit::FastChange;
use super::part::Source;

/// One record of a journal.
#[derive(Clone, Debug, Serialize)]
pub struct JournalRecord {
    /// Block of the log where it begins.
    pub log_block: u64,
    /// Number of the transaction.
    pub transaction: u64,
    /// Lane of a StetFS log; `None` in a jbd2 log, and for statements about all records of files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lane: Option<u16>,
    /// The kind of the record, with its content.
    #[serde(flatten)]
    pub kind: JournalRecordKind,
}

/// The kinds of records.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "record", rename_all = "lowercase")]
pub enum JournalRecordKind {
    /// Tags of the block images that follow it.
    Descriptor {
        /// The images.
        images: Vec<JournalImage>,
    },
    /// Blocks whose older images must not be replayed.
    Revoke {
        /// The blocks.
        blocks: Vec<u64>,
    },
    /// End of a transaction.
    Commit {
        /// Time of the commit, seconds since 1970.
        time: f64,
        /// Whether its checksum is right.
        valid: bool,
        /// Images of the transaction that recovery would write to their home locations; `None`: the
        /// transaction does not count.
        home: Option<u64>,
    },
    /// A fast commit of Linux.
    #[serde(rename = "fast commit")]
    FastCommit {
        /// Its changes, in order.
        changes: Vec<FastChange>,
    },
    /// A whole transaction of the StetFS log.
    Frame {
        /// Its place in the order of commits.
        stamp: u64,
        /// Log blocks it takes.
        blocks: u64,
        /// Home locations of its images, block numbers.
        images: Vec<u64>,
        /// Blocks whose older images must not be replayed.
        revokes: Vec<u64>,
        /// Lanes and transactions it depends on.
        edges: Vec<(u16, u64)>,
        /// Images that recovery would write to their home locations: those that no later
        /// transaction replaces or frees.
        home: u64,
        /// Recovery would drop the transaction, because this one, by lane and number, is missing or
        /// does not count either.
        dropped: Option<(u16, u64)>,
    },
    /// A file-level record that no transaction supersedes.
    File {
        /// Its place in the order of commits.
        stamp: u64,
        /// Log blocks it takes.
        blocks: u64,
        /// Inode number of the file; 0 if the record cannot be read.
        inode: u32,
        /// Directory and name to be created.
        #[serde(skip_serializing_if = "Option::is_none")]
        name: Option<(u32, String)>,
        /// Inode numbers of directories to be created.
        directories: Vec<u32>,
        /// Ranges of file blocks that changed: first and number.
        ranges: Vec<(u32, u32)>,
        /// Home locations of the data blocks in it, block numbers.
        data: Vec<u64>,
    },
    /// A block of the expected transaction that is not valid.
    Damaged {
        /// The reason.
        why: String,
        /// The block had been durable, so no crash explains it: recovery refuses the log, unless it
        /// is to salvage.
        lost: bool,
    },
    /// The end of the log.
    End {
        /// The reason.
        why: String,
    },
}

/// An image in the log.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct JournalImage {
    /// Its home location, a block number of the volume.
    pub block: u64,
    /// Whether the image is escaped, because the block begins like a journal block.
    pub escaped: bool,
    /// The checksum in the tag.
    pub checksum: u32,
    /// Whether the image matches the checksum.
    pub valid: bool,
}

/// jbd2's `JBD2_FLAG_ESCAPE`.
const ESCAPED: u32 = 1;

impl From<Record> for JournalRecord {
    fn from(record: Record) -> JournalRecord {
        let kind = match record.kind {
            RecordKind::Descriptor { tags, intact } => JournalRecordKind::Descriptor {
                images: tags
                    .into_iter()
                    .zip(intact)
                    .map(|(tag, valid)| JournalImage {
                        block: tag.block,
                        escaped: tag.flags & ESCAPED != 0,
                        checksum: tag.checksum,
                        valid,
                    })
                    .collect(),
            },
            RecordKind::Revoke(blocks) => JournalRecordKind::Revoke { blocks },
            RecordKind::Commit {
                time: (sec, nsec),
                valid,
            } => JournalRecordKind::Commit {
                time: sec as f64 + f64::from(nsec) / 1e9,
                valid,
                home: None,
            },
            RecordKind::FastCommit(changes) => JournalRecordKind::FastCommit {
                changes: changes.into_iter().map(FastChange::from).collect(),
            },
            RecordKind::Frame {
                stamp,
                blocks,
                images,
                revokes,
                edges,
            } => JournalRecordKind::Frame {
                stamp,
                blocks,
                images,
                revokes,
                edges,
                home: 0,
                dropped: None,
            },
            RecordKind::File {
                stamp,
                blocks,
                record,
                pages,
            } => {
                let record = record.as_deref();
                let name = record.and_then(|r| r.file.name.as_ref());
                JournalRecordKind::File {
                    stamp,
                    blocks,
                    inode: record.map_or(0, |r| r.file.ino),
                    name: name.map(|n| (n.parent, n.name.escape_ascii().to_string())),
                    directories: record
                        .map_or_else(Vec::new, |r| r.dirs.iter().map(|d| d.ino).collect()),
                    ranges: record.map_or_else(Vec::new, |r| {
                        r.ranges.iter().map(|r| (r.first, r.count)).collect()
                    }),
                    data: pages,
                }
            }
            RecordKind::Damaged(why) => JournalRecordKind::Damaged { why, lost: false },
            RecordKind::Lost(why) => JournalRecordKind::Damaged { why, lost: true },
            RecordKind::End(why) => JournalRecordKind::End { why },
        };
        JournalRecord {
            log_block: record.at,
            transaction: record.tid,
            lane: record.lane,
            kind,
        }
    }
}

impl JournalRecord {
    /// Adds the outcome of recovery to the record.
    fn judged(mut self, verdict: &Verdict) -> JournalRecord {
        let id = TxId {
            lane: Lane(self.lane.unwrap_or(0)),
            seq: self.transaction,
        };
        match &mut self.kind {
            // The verdict continues the count of transactions where jbd2's sequence numbers wrap.
            JournalRecordKind::Commit {
                home, valid: true, ..
            } => {
                let wrapped = TxId {
                    seq: id.seq + (1 << 32),
                    ..id
                };
                let known = verdict.home.get(&id).or(verdict.home.get(&wrapped));
                *home = known.copied();
            }
            JournalRecordKind::Frame { home, dropped, .. } => {
                *home = verdict.home.get(&id).copied().unwrap_or(0);
                let lacks = verdict.dropped.binary_search_by_key(&id, |d| d.tx).ok();
                let lacks = lacks.and_then(|at| verdict.dropped.get(at));
                *dropped = lacks.map(|d| (d.needs.lane.0, d.needs.seq));
            }
            _ => {}
        }
        self
    }
}

/// Passes the records of a volume's journal to `show`, in order; changes nothing. The last record
/// states why the log ends there. Returns the format of the log: `jbd2` or `stetfs`.
///
/// # Errors
/// The volume is in use, cannot be read, is not ext4 or has no journal; the log contradicts itself
/// in a way that no crash explains.
pub fn dump_journal(source: &Source, show: &mut dyn FnMut(JournalRecord)) -> Result<&'static str> {
    let how = OpenOptions {
        read_only: true,
        ..Default::default()
    };
    let (device, journal) = external::any(external::devices(source, how)?);
    let log = find_log(device, journal)?
        .ok_or_else(|| FsError::Unsupported("a volume without a journal".into()))?;
    let verdict = log.judge()?;
    log.walk(&mut |record| {
        show(JournalRecord::from(record).judged(&verdict));
        Ok(())
    })?;
    Ok(log.summary().format)
}
