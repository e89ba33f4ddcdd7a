//! The fast-commit area: changes of single files that Linux's ext4 made durable after the last
//! transaction of the ring ("Fast commits" in the ext4 documentation). Unlike the rest of jbd2 it
//! is little-endian.
//!
//! The area is a sequence of *fast commits*. Each begins with a block and is a sequence of tags
//! with values (TLVs): changes, and a tail. The tail names the transaction that the changes are
//! part of, and has a crc32c over everything since the previous tail. The first tag of the first
//! fast commit is the head. No TLV crosses a block: a pad fills the rest of a block, and the tail
//! takes the rest of its block.

use crate::bytes::{le16, le32};
use crate::error::{OnDiskError, Result};
use crate::ext4::checksum::ext4_crc32c;
use crate::ext4::dirent::NAME_MAX;
use crate::ext4::extent::Extent;
use crate::ext4::inode::GOOD_OLD_INODE_SIZE;

/// Bytes of tag and length in front of each value.
const TLV_LEN: usize = 4;
/// Meaningful bytes in the value of a head or a tail.
const HEAD_LEN: usize = 8;
/// Bytes before a name: parent and inode.
const NAME_AT: usize = 8;

/// `EXT4_FC_TAG_*`.
mod tag {
    pub(super) const ADD_RANGE: u16 = 1;
    pub(super) const DEL_RANGE: u16 = 2;
    pub(super) const CREATE: u16 = 3;
    pub(super) const LINK: u16 = 4;
    pub(super) const UNLINK: u16 = 5;
    pub(super) const INODE: u16 = 6;
    pub(super) const PAD: u16 = 7;
    pub(super) const TAIL: u16 = 8;
    pub(super) const HEAD: u16 = 9;
}

/// A name in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The directory's inode.
    pub parent: u32,
    /// The inode that the name refers to.
    pub ino: u32,
    /// The name, 1 to 255 bytes.
    pub name: Vec<u8>,
}

/// One change of a fast commit. It describes the resulting state, not an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// The file has these blocks (`EXT4_FC_TAG_ADD_RANGE`).
    AddRange {
        /// The file's inode.
        ino: u32,
        /// The mapping.
        extent: Extent,
    },
    /// The file has no blocks in this range (`EXT4_FC_TAG_DEL_RANGE`).
    DelRange {
        /// The file's inode.
        ino: u32,
        /// First logical block.
        block: u32,
        /// Number of blocks.
        len: u32,
    },
    /// A new inode has this name (`EXT4_FC_TAG_CREAT`).
    Create(Entry),
    /// The name exists (`EXT4_FC_TAG_LINK`).
    Link(Entry),
    /// The name does not exist (`EXT4_FC_TAG_UNLINK`).
    Unlink(Entry),
    /// The inode has these bytes (`EXT4_FC_TAG_INODE`): the first 128 and the extra ones, or all of
    /// it with inline data.
    Inode {
        /// Its number.
        ino: u32,
        /// Its bytes.
        bytes: Vec<u8>,
    },
}

/// One fast commit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FastCommit {
    /// Its first block, relative to the start of the area.
    pub at: u64,
    /// Its changes, in order.
    pub changes: Vec<Change>,
}

/// The head at the start of the area.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FastCommitHead {
    /// Feature bits of the writer.
    pub features: u32,
    /// The transaction that the fast commits are part of.
    pub tid: u32,
}

/// The head tag at the start of the area's first block, if there is one.
#[must_use]
pub fn head(block: &[u8]) -> Option<FastCommitHead> {
    let (kind, value) = tlv(block, 0)?;
    (kind == tag::HEAD && value.len() == HEAD_LEN).then_some(())?;
    Some(FastCommitHead {
        features: le32(value, 0)?,
        tid: le32(value, 4)?,
    })
}

/// The tag at `at` and its value.
fn tlv(block: &[u8], at: usize) -> Option<(u16, &[u8])> {
    let (kind, len) = (le16(block, at)?, usize::from(le16(block, at + 2)?));
    Some((kind, block.get(at + TLV_LEN..at + TLV_LEN + len)?))
}

fn entry(value: &[u8]) -> Option<Entry> {
    let name = value.get(NAME_AT..)?;
    (1..=NAME_MAX).contains(&name.len()).then(|| Entry {
        parent: le32(value, 0).unwrap_or(0),
        ino: le32(value, 4).unwrap_or(0),
        name: name.to_vec(),
    })
}

/// Decodes the change of a tag; `None` when the value's length is impossible.
fn change(kind: u16, value: &[u8]) -> Option<Change> {
    Some(match kind {
        tag::ADD_RANGE if value.len() == 16 => Change::AddRange {
            ino: le32(value, 0)?,
            extent: Extent::from_entry(value.get(4..)?)?,
        },
        tag::DEL_RANGE if value.len() == 12 => Change::DelRange {
            ino: le32(value, 0)?,
            block: le32(value, 4)?,
            len: le32(value, 8)?,
        },
        tag::CREATE => Change::Create(entry(value)?),
        tag::LINK => Change::Link(entry(value)?),
        tag::UNLINK => Change::Unlink(entry(value)?),
        tag::INODE if value.len() >= 4 + GOOD_OLD_INODE_SIZE => Change::Inode {
            ino: le32(value, 0)?,
            bytes: value.get(4..)?.to_vec(),
        },
        _ => return None,
    })
}

/// The end of the area's valid content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// No fast commit follows: the rest is older, or empty.
    NoNext,
    /// A fast commit began but has no valid checksum: the usual trace of a crash.
    Torn(String),
    /// A fast commit has no valid checksum although a later one has: the device lost or changed it.
    Lost(String),
}

/// Reads the blocks of the area one after the other.
#[derive(Debug)]
pub struct Scanner {
    tid: u32,
    /// Number of blocks read.
    blocks: u64,
    /// The checksum since the last tail.
    crc: u32,
    /// The fast commit that is being read.
    pending: FastCommit,
    commits: Vec<FastCommit>,
    end: Option<End>,
    /// Fault for canaries: checksums are ignored.
    unproven: bool,
}

impl Scanner {
    /// A scanner for fast commits of transaction `tid`.
    #[must_use]
    pub fn new(tid: u32) -> Scanner {
        Scanner {
            tid,
            blocks: 0,
            crc: 0,
            pending: FastCommit::default(),
            commits: Vec::new(),
            end: None,
            unproven: false,
        }
    }

    /// Fault for canaries: fast commits count whatever their checksum.
    #[must_use]
    pub fn unproven(mut self, unproven: bool) -> Scanner {
        self.unproven = unproven;
        self
    }

    /// Discards the partly read fast commit: the next one begins with the next block.
    fn restart(&mut self) -> FastCommit {
        self.crc = 0;
        let next = FastCommit {
            at: self.blocks,
            changes: Vec::new(),
        };
        core::mem::replace(&mut self.pending, next)
    }

    /// Reads the area's next block.
    ///
    /// # Errors
    /// `Unsupported` when the writer used a feature that this version does not know.
    pub fn block(&mut self, block: &[u8]) -> Result<()> {
        if self.blocks == 0 {
            match head(block) {
                Some(head) if head.tid == self.tid && head.features != 0 => {
                    return Err(OnDiskError::Unsupported {
                        feature: format!("fast commits with features {:#x}", head.features),
                    });
                }
                Some(head) if head.tid == self.tid => {}
                // The area is empty, unless a later fast commit proves that there was one here.
                _ => self.end = Some(End::NoNext),
            }
        }
        self.blocks += 1;
        if let Err(why) = self.tags(block) {
            self.restart();
            self.end.get_or_insert(why);
        }
        Ok(())
    }

    fn tags(&mut self, block: &[u8]) -> core::result::Result<(), End> {
        let torn = |at: usize, what: &str| {
            End::Torn(format!(
                "{what} at byte {at} of block {} of the fast-commit area",
                self.blocks - 1
            ))
        };
        let mut at = 0;
        while at + TLV_LEN <= block.len() {
            let (kind, value) =
                tlv(block, at).ok_or_else(|| torn(at, "a tag without its value"))?;
            let end = at + TLV_LEN + value.len();
            match kind {
                tag::TAIL => {
                    let sum = block.get(at..at + TLV_LEN + 4);
                    let sum = sum.map(|bytes| ext4_crc32c(self.crc, bytes));
                    let (tid, stored) = (le32(value, 0), le32(value, 4));
                    if tid != Some(self.tid) {
                        return Err(End::NoNext);
                    }
                    if (stored.is_none() || sum != stored) && !self.unproven {
                        return Err(torn(at, "a tail whose checksum does not match"));
                    }
                    self.commit();
                    return Ok(());
                }
                tag::HEAD => match head(block.get(at..).unwrap_or_default()) {
                    Some(head) if head.tid == self.tid => {}
                    _ => return Err(End::NoNext),
                },
                tag::PAD => {}
                kind => match change(kind, value) {
                    Some(change) => self.pending.changes.push(change),
                    None => return Err(torn(at, "no tag that means something")),
                },
            }
            self.crc = ext4_crc32c(self.crc, block.get(at..end).unwrap_or_default());
            at = end;
        }
        Ok(())
    }

    /// Completes a fast commit whose tail is valid.
    fn commit(&mut self) {
        let whole = self.restart();
        let what = match &self.end {
            None => return self.commits.push(whole),
            Some(End::Torn(what)) => what,
            Some(End::NoNext) => "what stands before it is older",
            Some(End::Lost(_)) => return,
        };
        let why = format!(
            "transaction {} has a later fast commit, but {what}",
            self.tid
        );
        self.end = Some(End::Lost(why));
    }

    /// The fast commits found, in order, and the end of the valid content.
    #[must_use]
    pub fn finish(self) -> (Vec<FastCommit>, End) {
        let end = self.end.unwrap_or(match self.pending.changes.is_empty() {
            true => End::NoNext,
            false => End::Torn("the fast-commit area ends before a fast commit does".into()),
        });
        (self.commits, end)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const SIZE: usize = 1024;

    /// A writer of fast commits as Linux makes them.
    #[derive(Default)]
    struct Writer {
        blocks: Vec<Vec<u8>>,
        at: usize,
        crc: u32,
    }

    impl Writer {
        fn put(&mut self, kind: u16, value: &[u8]) {
            if self.blocks.is_empty() || self.at == SIZE {
                self.blocks.push(vec![0; SIZE]);
                self.at = 0;
            }
            if self.at + 2 * TLV_LEN + value.len() > SIZE {
                let pad = vec![0; SIZE - self.at - TLV_LEN];
                self.raw(tag::PAD, &pad);
                self.blocks.push(vec![0; SIZE]);
                self.at = 0;
            }
            self.raw(kind, value);
        }

        fn raw(&mut self, kind: u16, value: &[u8]) {
            let mut bytes = kind.to_le_bytes().to_vec();
            bytes.extend((value.len() as u16).to_le_bytes());
            bytes.extend(value);
            self.crc = ext4_crc32c(self.crc, &bytes);
            let block = self.blocks.last_mut().unwrap();
            block[self.at..self.at + bytes.len()].copy_from_slice(&bytes);
            self.at += bytes.len();
        }

        fn head(&mut self, features: u32, tid: u32) {
            self.put(
                tag::HEAD,
                &[features.to_le_bytes(), tid.to_le_bytes()].concat(),
            );
        }

        fn tail(&mut self, tid: u32) {
            let at = self.at;
            let rest = SIZE - at - TLV_LEN;
            let mut bytes = tag::TAIL.to_le_bytes().to_vec();
            bytes.extend((rest as u16).to_le_bytes());
            bytes.extend(tid.to_le_bytes());
            let sum = ext4_crc32c(self.crc, &bytes);
            bytes.extend(sum.to_le_bytes());
            self.blocks.last_mut().unwrap()[at..at + bytes.len()].copy_from_slice(&bytes);
            (self.at, self.crc) = (SIZE, 0);
        }

        fn name(&mut self, kind: u16, name: &[u8]) {
            self.put(
                kind,
                &[&2u32.to_le_bytes()[..], &12u32.to_le_bytes(), name].concat(),
            );
        }
    }

    fn scan(blocks: &[Vec<u8>]) -> Result<(usize, Vec<Change>, End)> {
        let mut scanner = Scanner::new(7);
        for block in blocks {
            scanner.block(block)?;
        }
        let (commits, end) = scanner.finish();
        assert!(commits.iter().zip([0, 1]).all(|(c, at)| c.at == at));
        let changes = commits.iter().flat_map(|c| c.changes.clone()).collect();
        Ok((commits.len(), changes, end))
    }

    fn sample() -> Writer {
        let mut w = Writer::default();
        w.head(0, 7);
        w.put(tag::INODE, &[&12u32.to_le_bytes()[..], &[1; 160]].concat());
        let extent = [0, 0, 0, 0, 2, 0x80, 1, 0, 5, 0, 0, 0];
        w.put(
            tag::ADD_RANGE,
            &[&12u32.to_le_bytes()[..], &extent].concat(),
        );
        w.name(tag::CREATE, b"a");
        w.tail(7);
        // A fast commit of two blocks.
        w.put(
            tag::DEL_RANGE,
            &[12u32, 3, 4].map(u32::to_le_bytes).concat(),
        );
        for i in 0..6 {
            w.name(tag::LINK, &[b'b' + i; 200]);
        }
        w.name(tag::UNLINK, b"a");
        w.tail(7);
        w
    }

    #[test]
    fn fast_commits_are_read_in_order() {
        let (commits, changes, end) = scan(&sample().blocks).unwrap();
        assert_eq!((commits, changes.len(), end), (2, 11, End::NoNext));
        let extent = Extent {
            block: 0,
            len: 2,
            start: (1 << 32) + 5,
            unwritten: true,
        };
        assert_eq!(changes[1], Change::AddRange { ino: 12, extent });
        assert!(matches!(&changes[2], Change::Create(e) if e.name == b"a" && e.parent == 2));
        let gone = Change::DelRange {
            ino: 12,
            block: 3,
            len: 4,
        };
        assert_eq!(changes[3], gone);
    }

    /// Flips every byte of every block: the earlier fast commits stay, the damaged one never
    /// counts, and if a later one exists the damage is reported.
    #[test]
    fn damage_never_counts_and_is_never_silent() {
        let blocks = sample().blocks;
        let (first, second) = (1, blocks.len());
        for nr in 0..second {
            for at in 0..SIZE {
                let mut damaged = blocks.clone();
                damaged[nr][at] ^= 0x41;
                let whole = scan(&damaged);
                let Ok((commits, _, end)) = whole else {
                    assert!(nr == 0 && (4..8).contains(&at), "block {nr}, byte {at}");
                    continue;
                };
                let last = nr >= first;
                let expected = usize::from(last);
                // The bytes behind a tail have no meaning.
                if commits == 2 {
                    let meaningful = damaged[nr].iter().rposition(|b| *b != 0).unwrap();
                    assert!(at >= meaningful, "block {nr}, byte {at} is not covered");
                    continue;
                }
                assert_eq!(commits, expected, "block {nr}, byte {at}");
                assert_eq!(matches!(end, End::Lost(_)), !last, "{nr} {at} {end:?}");
                assert!(!matches!(end, End::NoNext) || last, "{nr} {at}");
            }
        }
    }

    /// With the checksums ignored a torn change counts.
    #[test]
    fn a_fault_that_trusts_tails_is_seen() {
        let mut blocks = sample().blocks;
        // A byte in the value of the first change.
        blocks[0][60] ^= 0x41;
        let count = |unproven| {
            let mut scanner = Scanner::new(7).unproven(unproven);
            blocks.iter().for_each(|b| scanner.block(b).unwrap());
            scanner.finish().0.len()
        };
        assert_eq!((count(false), count(true)), (0, 2));
    }

    #[test]
    fn what_is_torn_or_older_ends_the_area() {
        let whole = sample().blocks;
        let (commits, _, end) = scan(&whole[..whole.len() - 1]).unwrap();
        assert_eq!(commits, 1);
        assert!(matches!(end, End::Torn(_)));
        let mut stale = whole.clone();
        let mut older = Writer::default();
        older.head(0, 6);
        older.name(tag::UNLINK, b"x");
        older.tail(6);
        stale.extend(older.blocks.clone());
        assert_eq!(scan(&stale).unwrap(), scan(&whole).unwrap());
        assert_eq!(scan(&older.blocks).unwrap(), (0, Vec::new(), End::NoNext));
        assert_eq!(
            scan(&[vec![0; SIZE]]).unwrap(),
            (0, Vec::new(), End::NoNext)
        );
        let mut unknown = Writer::default();
        unknown.head(4, 7);
        unknown.tail(7);
        assert!(matches!(
            scan(&unknown.blocks),
            Err(OnDiskError::Unsupported { .. })
        ));
    }
}
