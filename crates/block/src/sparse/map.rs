//! The block map of a sparse image: the place of each block's content.

use std::io;

use super::read_at::ReadAt;

/// The magic number in the first four bytes.
pub const SPARSE_MAGIC: u32 = 0xed26_ff3a;

/// Minimum size in bytes of the file's header, and of a chunk's.
pub(super) const FILE_HEAD: u16 = 28;
pub(super) const CHUNK_HEAD: u16 = 12;
/// Chunk kinds.
pub(super) const RAW: u16 = 0xcac1;
pub(super) const FILL: u16 = 0xcac2;
pub(super) const DONT_CARE: u16 = 0xcac3;
pub(super) const CRC32: u16 = 0xcac4;

/// Maximum size of a block in bytes: volumes have far smaller ones.
const MAX_BLOCK: u32 = 64 << 20;
/// Maximum number of runs: they are kept in memory, 16 bytes each. An image of 64 GiB has this many
/// if every other block is of another kind.
const MAX_RUNS: usize = 8 << 20;

/// The error for a file that is no readable sparse image.
#[derive(Debug, thiserror::Error)]
pub enum BadSparse {
    /// The file could not be read.
    #[error("it cannot be read: {0}")]
    Read(#[from] io::Error),
    /// The magic number is missing.
    #[error("it is not an Android sparse image")]
    Magic,
    /// The version of the format is not supported.
    #[error("version {0} of Android's sparse images is not known")]
    Version(u16),
    /// The image contradicts itself.
    #[error("the sparse image is damaged: {0}")]
    Damaged(String),
    /// The image has more runs than are kept in memory.
    #[error("the sparse image has more than {MAX_RUNS} runs of blocks")]
    TooMany,
}

/// The content of the blocks of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// Bytes of the file from this offset on.
    Raw(u64),
    /// A repeated word of four bytes.
    Fill(u32),
    /// Unspecified (don't care).
    DontCare,
}

/// The blocks from `first` up to the next run.
#[derive(Clone, Copy, Debug)]
struct Run {
    first: u32,
    kind: Kind,
    /// The offset of the data of raw blocks; the word of filled ones.
    value: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Raw,
    Fill,
    DontCare,
}

/// The header of the file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    pub(super) file_head: u16,
    pub(super) chunk_head: u16,
    pub(super) block: u32,
    pub(super) blocks: u32,
    pub(super) chunks: u32,
}

/// The header of a chunk.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chunk {
    pub(super) kind: u16,
    pub(super) blocks: u32,
    /// The offset of the data behind the header.
    pub(super) at: u64,
}

fn half(bytes: &[u8], at: usize) -> u16 {
    let both = bytes.get(at..).and_then(|b| b.first_chunk());
    both.map_or(0, |b| u16::from_le_bytes(*b))
}

fn word(bytes: &[u8], at: usize) -> u32 {
    let four = bytes.get(at..).and_then(|b| b.first_chunk());
    four.map_or(0, |b| u32::from_le_bytes(*b))
}

fn damaged<T>(what: impl Into<String>) -> Result<T, BadSparse> {
    Err(BadSparse::Damaged(what.into()))
}

impl Head {
    /// # Errors
    /// [`BadSparse`].
    pub(super) fn read(file: &impl ReadAt) -> Result<Head, BadSparse> {
        let mut bytes = [0; FILE_HEAD as usize];
        if file.len() < bytes.len() as u64 {
            return Err(BadSparse::Magic);
        }
        file.read_at(0, &mut bytes)?;
        if word(&bytes, 0) != SPARSE_MAGIC {
            return Err(BadSparse::Magic);
        }
        let head = Head {
            file_head: half(&bytes, 8),
            chunk_head: half(&bytes, 10),
            block: word(&bytes, 12),
            blocks: word(&bytes, 16),
            chunks: word(&bytes, 20),
        };
        match half(&bytes, 4) {
            1 => {}
            other => return Err(BadSparse::Version(other)),
        }
        if head.file_head < FILE_HEAD || head.chunk_head < CHUNK_HEAD {
            return damaged("its headers are too short");
        }
        if head.block == 0 || !head.block.is_multiple_of(4) || head.block > MAX_BLOCK {
            return damaged(format!("blocks of {} bytes", head.block));
        }
        Ok(head)
    }

    /// Size of the image in bytes.
    pub(super) fn size(&self) -> u64 {
        u64::from(self.blocks) * u64::from(self.block)
    }

    /// Visits the chunks in order, with the first block of each. All chunks must lie within the
    /// file.
    ///
    /// # Errors
    /// [`BadSparse`]; those of `visit`.
    pub(super) fn chunks<E: From<BadSparse>>(
        &self,
        file: &impl ReadAt,
        visit: &mut dyn FnMut(u32, Chunk) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut at = u64::from(self.file_head);
        let mut block = 0u32;
        for number in 0..self.chunks {
            let (chunk, end) = self.chunk(file, at, number)?;
            visit(block, chunk)?;
            let next = match chunk.kind {
                CRC32 => Some(block),
                _ => block.checked_add(chunk.blocks),
            };
            block = match next.filter(|next| *next <= self.blocks) {
                Some(next) => next,
                None => {
                    let what = format!("chunk {number} goes beyond the {} blocks", self.blocks);
                    return Err(BadSparse::Damaged(what).into());
                }
            };
            at = end;
        }
        if block != self.blocks {
            let what = format!("its chunks have {block} blocks in all, not {}", self.blocks);
            return Err(BadSparse::Damaged(what).into());
        }
        Ok(())
    }

    /// The chunk at byte `at`, and the offset of the next one.
    fn chunk(&self, file: &impl ReadAt, at: u64, number: u32) -> Result<(Chunk, u64), BadSparse> {
        let wrong = |what: &str| damaged(format!("chunk {number}, at byte {at}, {what}"));
        let mut bytes = [0; CHUNK_HEAD as usize];
        let fits = |end: Option<u64>| end.filter(|end| *end <= file.len());
        if fits(at.checked_add(u64::from(self.chunk_head))).is_none() {
            return wrong("is beyond the end of the file");
        }
        file.read_at(at, &mut bytes)?;
        let (kind, blocks, total) = (half(&bytes, 0), word(&bytes, 4), word(&bytes, 8));
        let Some(end) = fits(at.checked_add(u64::from(total))) else {
            return wrong("goes beyond the end of the file");
        };
        let Some(bytes) = u64::from(total).checked_sub(u64::from(self.chunk_head)) else {
            return wrong("is shorter than its header");
        };
        let wanted = match kind {
            RAW => u64::from(blocks) * u64::from(self.block),
            FILL | CRC32 => 4,
            DONT_CARE => 0,
            _ => return wrong(&format!("is of the unknown kind {kind:#06x}")),
        };
        if bytes != wanted {
            return wrong(&format!("has {bytes} bytes, not {wanted}"));
        }
        let at = end - bytes;
        let chunk = Chunk { kind, blocks, at };
        Ok((chunk, end))
    }
}

/// The block map of a sparse image.
#[derive(Debug)]
pub struct SparseMap {
    block: u32,
    size: u64,
    /// By first block.
    runs: Vec<Run>,
}

impl SparseMap {
    /// Whether a file is a sparse image, by its magic number.
    ///
    /// # Errors
    /// The error of reading the file.
    pub fn detect(file: &impl ReadAt) -> io::Result<bool> {
        let mut magic = [0; 4];
        if file.len() < u64::from(FILE_HEAD) {
            return Ok(false);
        }
        file.read_at(0, &mut magic)?;
        Ok(u32::from_le_bytes(magic) == SPARSE_MAGIC)
    }

    /// Reads the headers of all chunks. The data of raw chunks is not read, so checksums are not
    /// checked.
    ///
    /// # Errors
    /// [`BadSparse`].
    pub fn read(file: &impl ReadAt) -> Result<SparseMap, BadSparse> {
        let head = Head::read(file)?;
        let mut runs: Vec<Run> = Vec::new();
        head.chunks(file, &mut |first, chunk| {
            if chunk.kind == CRC32 || chunk.blocks == 0 {
                return Ok::<_, BadSparse>(());
            }
            let (kind, value) = match chunk.kind {
                RAW => (Kind::Raw, chunk.at),
                FILL => {
                    let mut word = [0; 4];
                    file.read_at(chunk.at, &mut word)?;
                    (Kind::Fill, u64::from(u32::from_le_bytes(word)))
                }
                _ => (Kind::DontCare, 0),
            };
            let goes_on =
                |last: &Run| last.kind == kind && kind != Kind::Raw && last.value == value;
            if runs.last().is_some_and(goes_on) {
                return Ok(());
            }
            if runs.len() >= MAX_RUNS {
                return Err(BadSparse::TooMany);
            }
            runs.push(Run { first, kind, value });
            Ok(())
        })?;
        Ok(SparseMap {
            block: head.block,
            size: head.size(),
            runs,
        })
    }

    /// Size of the image in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The content at byte `offset`, and the number of bytes from there to the end of its run.
    pub(super) fn at(&self, offset: u64) -> (Content, u64) {
        let block = u64::from(self.block);
        let start = |run: &Run| u64::from(run.first) * block;
        let next = self.runs.partition_point(|run| start(run) <= offset);
        let end = self.runs.get(next).map_or(self.size, start);
        let left = end.saturating_sub(offset);
        let Some(run) = next.checked_sub(1).and_then(|at| self.runs.get(at)) else {
            return (Content::DontCare, left);
        };
        let content = match run.kind {
            Kind::Raw => Content::Raw(run.value.saturating_add(offset - start(run))),
            Kind::Fill => Content::Fill(run.value as u32),
            Kind::DontCare => Content::DontCare,
        };
        (content, left)
    }
}
