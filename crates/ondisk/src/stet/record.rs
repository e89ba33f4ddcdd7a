//! File-level records: the changes that one fsync makes durable of one file, including its new
//! parent directories (iJournaling, §5.2; here as operations, not as directory blocks). A record is
//! the body of a frame of kind 2.

use crate::error::{Result, corrupt};
use crate::ext4::extent::MAX_LEN;
use crate::num::{count16, count32, low32, to_usize};

const WHAT: &str = "file record";
/// Version of the encoding.
const VERSION: u8 = 1;
/// Longest name, bytes (`EXT4_NAME_LEN`).
const NAME_MAX: usize = 255;
/// Maximum number of runs in a record.
pub const MAX_RUNS: usize = 1024;
/// Flag in a run's length: allocated, but reads as zeros.
const UNWRITTEN: u32 = 1 << 31;

/// The name of a file or directory that is not committed yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// The directory's inode number.
    pub parent: u32,
    /// The name in that directory.
    pub name: Vec<u8>,
    /// Whether another inode may still have the name on disk: its unlink is not committed.
    pub replaces: bool,
}

/// An inode that the record makes or changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Inode number.
    pub ino: u32,
    /// Its slot of the inode table: the source of everything except links, blocks and mapping.
    pub inode: Vec<u8>,
    /// The name to be created, if it is not committed yet.
    pub name: Option<Name>,
}

/// A run: blocks that a range of the file maps to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// First file block.
    pub lblk: u32,
    /// Number of blocks, at most those of an extent (32,768).
    pub len: u32,
    /// First block on the volume.
    pub start: u64,
    /// Allocated, but reads as zeros.
    pub unwritten: bool,
}

/// A range of file blocks whose mapping changed: blocks that no run covers are holes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Range {
    /// First file block.
    pub first: u32,
    /// Number of file blocks.
    pub count: u32,
    /// The runs, ascending.
    pub runs: Vec<Run>,
}

/// A file-level record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileRecord {
    /// Directories that are not committed yet, from the top down.
    pub dirs: Vec<Node>,
    /// The file.
    pub file: Node,
    /// The changed ranges of its mapping.
    pub ranges: Vec<Range>,
    /// File blocks whose content is in the record, as the images of its frame, in that order.
    pub pages: Vec<u32>,
}

impl FileRecord {
    /// Encodes the record.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        out.extend_from_slice(&count16(self.dirs.len()).to_le_bytes());
        for node in self.dirs.iter().chain([&self.file]) {
            node.encode(&mut out);
        }
        out.extend_from_slice(&count32(self.ranges.len()).to_le_bytes());
        for range in &self.ranges {
            for number in [range.first, range.count, count32(range.runs.len())] {
                out.extend_from_slice(&number.to_le_bytes());
            }
            for run in &range.runs {
                let len = run.len | if run.unwritten { UNWRITTEN } else { 0 };
                out.extend_from_slice(&run.lblk.to_le_bytes());
                out.extend_from_slice(&len.to_le_bytes());
                out.extend_from_slice(&run.start.to_le_bytes());
            }
        }
        out.extend_from_slice(&count32(self.pages.len()).to_le_bytes());
        for page in &self.pages {
            out.extend_from_slice(&page.to_le_bytes());
        }
        out
    }

    /// Decodes a record. The caller checks the numbers against the volume.
    ///
    /// # Errors
    /// `Corrupt`: not a record, or one that contradicts itself.
    pub fn decode(bytes: &[u8]) -> Result<FileRecord> {
        let mut input = Input(bytes);
        if input.number::<1>()? != u64::from(VERSION) {
            return Err(corrupt!(WHAT, "of another version"));
        }
        let dirs = input.number::<2>()?;
        let dirs = (0..dirs)
            .map(|_| input.node())
            .collect::<Result<Vec<Node>>>()?;
        let file = input.node()?;
        let ranges = input.number::<4>()?;
        let ranges = input.ranges(ranges)?;
        let pages = input.number::<4>()?;
        let pages = (0..pages)
            .map(|_| input.u32())
            .collect::<Result<Vec<u32>>>()?;
        if !input.0.is_empty() {
            return Err(corrupt!(WHAT, "{} bytes behind its end", input.0.len()));
        }
        Ok(FileRecord {
            dirs,
            file,
            ranges,
            pages,
        })
    }

    /// All blocks of the volume that it maps: first and number.
    pub fn blocks(&self) -> impl Iterator<Item = (u64, u32)> {
        let runs = self.ranges.iter().flat_map(|r| &r.runs);
        runs.map(|r| (r.start, r.len))
    }
}

impl Node {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.ino.to_le_bytes());
        out.extend_from_slice(&count16(self.inode.len()).to_le_bytes());
        out.extend_from_slice(&self.inode);
        let name = self.name.as_ref();
        out.push(name.map_or(0, |n| u8::try_from(n.name.len()).unwrap_or(u8::MAX)));
        if let Some(name) = name {
            out.extend_from_slice(name.name.get(..NAME_MAX).unwrap_or(&name.name));
            out.extend_from_slice(&name.parent.to_le_bytes());
            out.push(u8::from(name.replaces));
        }
    }
}

/// The rest of the input.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn bytes(&mut self, count: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self
            .0
            .split_at_checked(count)
            .ok_or_else(|| corrupt!(WHAT, "it ends too early"))?;
        self.0 = rest;
        Ok(taken)
    }

    /// A number of `N` bytes, at most 8.
    fn number<const N: usize>(&mut self) -> Result<u64> {
        let bytes = self.bytes(N)?.iter().rev();
        Ok(bytes.fold(0, |n, b| n << 8 | u64::from(*b)))
    }

    fn u32(&mut self) -> Result<u32> {
        Ok(low32(self.number::<4>()?))
    }

    fn node(&mut self) -> Result<Node> {
        let ino = self.u32()?;
        let len = to_usize(self.number::<2>()?);
        let inode = self.bytes(len)?.to_vec();
        let name = match to_usize(self.number::<1>()?) {
            0 => None,
            len => Some(Name {
                name: self.bytes(len)?.to_vec(),
                parent: self.u32()?,
                replaces: self.number::<1>()? != 0,
            }),
        };
        Ok(Node { ino, inode, name })
    }

    fn ranges(&mut self, count: u64) -> Result<Vec<Range>> {
        let (mut ranges, mut runs, mut from) = (Vec::new(), 0, 0);
        for _ in 0..count {
            let range = self.range()?;
            runs += range.runs.len();
            if u64::from(range.first) < from {
                return Err(corrupt!(WHAT, "ranges that are over each other"));
            }
            if runs > MAX_RUNS {
                return Err(corrupt!(WHAT, "{runs} runs"));
            }
            from = u64::from(range.first) + u64::from(range.count);
            ranges.push(range);
        }
        Ok(ranges)
    }

    fn range(&mut self) -> Result<Range> {
        let (first, count, runs) = (self.u32()?, self.u32()?, self.u32()?);
        let end = u64::from(first) + u64::from(count);
        let mut range = Range {
            first,
            count,
            runs: Vec::new(),
        };
        let mut from = u64::from(first);
        for _ in 0..runs {
            let (lblk, len, start) = (self.u32()?, self.u32()?, self.number::<8>()?);
            let run = Run {
                lblk,
                len: len & !UNWRITTEN,
                start,
                unwritten: len & UNWRITTEN != 0,
            };
            let to = u64::from(lblk) + u64::from(run.len);
            if run.len == 0 || run.len > MAX_LEN || u64::from(lblk) < from || to > end {
                return Err(corrupt!(
                    WHAT,
                    "blocks {lblk} to {to} in a range from {first} to {end}"
                ));
            }
            from = to;
            range.runs.push(run);
        }
        Ok(range)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn record() -> FileRecord {
        let node = |ino: u32, name: Option<&[u8]>| Node {
            ino,
            inode: vec![ino as u8; 256],
            name: name.map(|name| Name {
                parent: 2,
                name: name.to_vec(),
                replaces: ino.is_multiple_of(2),
            }),
        };
        FileRecord {
            dirs: vec![node(12, Some(b"dir")), node(13, Some(&[b'x'; 255]))],
            file: node(14, None),
            ranges: vec![
                Range {
                    first: 0,
                    count: u32::MAX,
                    runs: vec![
                        Run {
                            lblk: 3,
                            len: 4,
                            start: 1 << 40,
                            unwritten: true,
                        },
                        Run {
                            lblk: 7,
                            len: 1,
                            start: 77,
                            unwritten: false,
                        },
                    ],
                },
                Range {
                    first: u32::MAX,
                    ..Range::default()
                },
            ],
            pages: vec![3, 9],
        }
    }

    #[test]
    fn round_trip() {
        assert_eq!(FileRecord::decode(&record().encode()), Ok(record()));
        assert_eq!(
            record().blocks().collect::<Vec<_>>(),
            [(1 << 40, 4), (77, 1)]
        );
    }

    #[test]
    fn runs_outside_their_range_are_refused() {
        let mut wrong = record();
        wrong.ranges[0].runs[1].lblk = 6;
        assert!(FileRecord::decode(&wrong.encode()).is_err());
        wrong.ranges[0].count = 5;
        assert!(FileRecord::decode(&wrong.encode()).is_err());
    }

    #[test]
    fn more_than_one_record_may_say_is_refused() {
        let with = |change: fn(&mut FileRecord)| {
            let mut record = record();
            change(&mut record);
            FileRecord::decode(&record.encode())
        };
        let said = |result: Result<FileRecord>| result.unwrap_err().to_string();
        let over = with(|record| record.ranges[1].first -= 1);
        assert!(said(over).contains("over each other"));
        let long = with(|record| record.ranges[0].runs[1].len = MAX_LEN + 1);
        assert!(said(long).contains("in a range"));
        let runs = |count: u32| {
            let run = |lblk| Run {
                lblk,
                len: 1,
                start: 9,
                unwritten: false,
            };
            (0..count).map(run).collect::<Vec<_>>()
        };
        let mut record = record();
        record.ranges[0].runs = runs(MAX_RUNS as u32);
        assert_eq!(FileRecord::decode(&record.encode()), Ok(record.clone()));
        record.ranges[0].runs = runs(MAX_RUNS as u32 + 1);
        assert!(said(FileRecord::decode(&record.encode())).contains("1025 runs"));
    }

    proptest! {
        #[test]
        fn what_is_cut_off_is_refused(at: usize) {
            let bytes = record().encode();
            prop_assert!(FileRecord::decode(&bytes[..at % bytes.len()]).is_err());
        }

        #[test]
        fn noise_does_no_harm(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
            let _ = FileRecord::decode(&bytes);
        }
    }
}
