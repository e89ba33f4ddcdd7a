//! A sparse image of a plain one, and a plain one of it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use rustix::fs::SeekFrom;
use rustix::io::Errno;

use super::map::{
    BadSparse, CHUNK_HEAD, CRC32, DONT_CARE, FILE_HEAD, FILL, Head, RAW, SPARSE_MAGIC,
};
use super::repeat;

/// Bytes that are moved at once, unless a block has more.
const PIECE: usize = 1 << 20;
/// Bytes of a raw chunk at most: what is sent at once.
const MAX_RAW: u64 = 64 << 20;

/// Why an image could not be converted.
#[derive(Debug, thiserror::Error)]
pub enum SparseError {
    /// What is converted is no sparse image that could be read.
    #[error(transparent)]
    Bad(#[from] BadSparse),
    /// What is converted could not be read, or what is made written.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// A checksum in it is of something else.
    #[error("the sparse image is damaged: the checksum of its first {0} blocks is another")]
    Checksum(u32),
    /// It has more blocks to be filled than was allowed.
    #[error(
        "chunk {chunk} would write {bytes} bytes that are not in the sparse image ({all} with \
         those before it), and {max} are allowed"
    )]
    Fill {
        /// Its number, from 0.
        chunk: u64,
        /// Bytes that it fills.
        bytes: u64,
        /// The same of all up to it.
        all: u64,
        /// Bytes that may be filled.
        max: u64,
    },
    /// Blocks of this size cannot be.
    #[error("blocks of {0} bytes: they are a multiple of 4, and 64 MiB at most")]
    Block(u32),
    /// There are too many blocks for the format.
    #[error("{0} bytes are more blocks than a sparse image can have; take larger ones")]
    Large(u64),
}

/// What becomes of blocks that are all zeroes when a sparse image is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Zeroes {
    /// They are filled with zeroes, whatever was there.
    #[default]
    Fill,
    /// They are left out (don't care): for a target that is known to be empty.
    Skip,
}

/// What was converted, in blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Packed {
    /// Bytes of a block.
    pub block: u32,
    /// Blocks of the image.
    pub blocks: u32,
    /// Those whose bytes are in the sparse image.
    pub raw: u32,
    /// Those that repeat four bytes.
    pub filled: u32,
    /// Those that are left out.
    pub skipped: u32,
}

/// Whether the image has checksums. Few bytes of it say how many are to be filled: they are added
/// up before anything is written. Zeroes are none, for they become holes.
fn look_through(
    from: &File,
    head: &Head,
    file: &(&File, u64),
    max_fill: u64,
) -> Result<bool, SparseError> {
    let (mut has_checksums, mut all) = (false, 0u64);
    let mut number = 0;
    head.chunks(file, &mut |_, chunk| {
        has_checksums |= chunk.kind == CRC32;
        let bytes = u64::from(chunk.blocks) * u64::from(head.block);
        if chunk.kind == FILL && word_at(from, chunk.at)? != 0 {
            all = all.saturating_add(bytes);
            if all > max_fill {
                let (chunk, max) = (number, max_fill);
                return Err(SparseError::Fill {
                    chunk,
                    bytes,
                    all,
                    max,
                });
            }
        }
        number += 1;
        Ok(())
    })?;
    Ok(has_checksums)
}

fn word_at(from: &File, at: u64) -> io::Result<u32> {
    let mut word = [0; 4];
    from.read_exact_at(&mut word, at)?;
    Ok(u32::from_le_bytes(word))
}

/// The checksum of so many bytes of a word again and again, a multiple of four: by doubling, for
/// they may be more than could be read.
pub(super) fn checksum_of_repeated(word: u32, bytes: u64) -> crc32fast::Hasher {
    let mut all = crc32fast::Hasher::new();
    let mut part = crc32fast::Hasher::new();
    part.update(&word.to_le_bytes());
    let mut words = bytes / 4;
    while words > 0 {
        if words & 1 == 1 {
            all.combine(&part);
        }
        part.combine(&part.clone());
        words >>= 1;
    }
    all
}

/// Makes of a sparse image a plain one in `to`, an empty file, durably: what nobody cares for is
/// zeroes, and zeroes are holes. Checksums are looked at. At most `max_fill` bytes are written that
/// are not in the sparse image.
///
/// # Errors
/// [`SparseError`]; what is in `to` is then of no use.
pub fn unpack(from: &File, to: &File, max_fill: u64) -> Result<Packed, SparseError> {
    let file = (from, from.metadata()?.len());
    let head = Head::read(&file)?;
    let has_checksums = look_through(from, &head, &file, max_fill)?;
    to.set_len(head.size())?;
    let mut buf = vec![0; PIECE];
    let mut crc = crc32fast::Hasher::new();
    let mut done = Packed {
        block: head.block,
        blocks: head.blocks,
        ..Packed::default()
    };
    head.chunks(&file, &mut |first, chunk| {
        let mut at = u64::from(first) * u64::from(head.block);
        let mut left = u64::from(chunk.blocks) * u64::from(head.block);
        let mut word = 0;
        match chunk.kind {
            RAW => done.raw += chunk.blocks,
            FILL => {
                word = word_at(from, chunk.at)?;
                done.filled += chunk.blocks;
            }
            DONT_CARE => done.skipped += chunk.blocks,
            _ => {
                return match word_at(from, chunk.at)? == crc.clone().finalize() {
                    true => Ok(()),
                    false => Err(SparseError::Checksum(first)),
                };
            }
        }
        let is_raw = chunk.kind == RAW;
        if !is_raw && has_checksums {
            crc.combine(&checksum_of_repeated(word, left));
        }
        // What is not written is zeroes already.
        if !is_raw && word == 0 {
            return Ok(());
        }
        if !is_raw {
            repeat(word, 0, &mut buf);
        }
        let mut source = chunk.at;
        while left > 0 {
            let len = usize::try_from(left).unwrap_or(PIECE).min(PIECE);
            let piece = buf.get_mut(..len).unwrap_or_default();
            if is_raw {
                from.read_exact_at(piece, source)?;
                source += len as u64;
                if has_checksums {
                    crc.update(piece);
                }
            }
            to.write_all_at(piece, at)?;
            at += len as u64;
            left -= len as u64;
        }
        Ok(())
    })?;
    to.sync_all()?;
    Ok(done)
}

/// What blocks hold, as a chunk says it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Raw,
    Fill(u32),
    DontCare,
}

/// The sparse image while it is made.
struct Maker<'a> {
    to: &'a File,
    /// Where the next byte goes.
    at: u64,
    /// The chunk that grows: what it holds, its blocks, where its head goes.
    chunk: Option<(Kind, u32, u64)>,
    chunks: u32,
    done: Packed,
}

impl Maker<'_> {
    /// Blocks of a kind; `bytes` are those of raw ones.
    fn add(&mut self, kind: Kind, blocks: u32, bytes: &[u8]) -> io::Result<()> {
        let room = |so_far: u32| match kind {
            Kind::Raw => u64::from(so_far) * u64::from(self.done.block) < MAX_RAW,
            _ => true,
        };
        match &mut self.chunk {
            Some((last, so_far, _)) if *last == kind && room(*so_far) => *so_far += blocks,
            _ => {
                self.end()?;
                self.chunk = Some((kind, blocks, self.at));
                self.at += u64::from(CHUNK_HEAD);
            }
        }
        let total = match kind {
            Kind::Raw => &mut self.done.raw,
            Kind::Fill(_) => &mut self.done.filled,
            Kind::DontCare => &mut self.done.skipped,
        };
        *total += blocks;
        self.to.write_all_at(bytes, self.at)?;
        self.at += bytes.len() as u64;
        Ok(())
    }

    /// Ends the chunk that grows.
    fn end(&mut self) -> io::Result<()> {
        let Some((kind, blocks, at)) = self.chunk.take() else {
            return Ok(());
        };
        let (kind, word) = match kind {
            Kind::Raw => (RAW, None),
            Kind::Fill(word) => (FILL, Some(word.to_le_bytes())),
            Kind::DontCare => (DONT_CARE, None),
        };
        if let Some(word) = word {
            self.to.write_all_at(&word, self.at)?;
            self.at += word.len() as u64;
        }
        let total = u32::try_from(self.at - at).map_err(io::Error::other)?;
        let mut head = Vec::with_capacity(usize::from(CHUNK_HEAD));
        head.extend(kind.to_le_bytes());
        head.extend([0; 2]);
        head.extend(blocks.to_le_bytes());
        head.extend(total.to_le_bytes());
        self.chunks += 1;
        self.to.write_all_at(&head, at)
    }

    /// The file's head, last.
    fn finish(&mut self) -> io::Result<()> {
        self.end()?;
        let mut head = Vec::with_capacity(usize::from(FILE_HEAD));
        head.extend(SPARSE_MAGIC.to_le_bytes());
        for half in [1, 0, FILE_HEAD, CHUNK_HEAD] {
            head.extend(half.to_le_bytes());
        }
        // No checksum of the whole.
        for word in [self.done.block, self.done.blocks, self.chunks, 0] {
            head.extend(word.to_le_bytes());
        }
        self.to.write_all_at(&head, 0)?;
        self.to.sync_all()
    }
}

/// Makes of the plain image `from` a sparse one in `to`, an empty file, durably. The last block is
/// made whole with zeroes.
///
/// # Errors
/// [`SparseError`]; what is in `to` is then of no use.
pub fn pack(from: &File, to: &File, block: u32, zeroes: Zeroes) -> Result<Packed, SparseError> {
    let size = block as usize;
    if block == 0 || !block.is_multiple_of(4) || size > MAX_RAW as usize {
        return Err(SparseError::Block(block));
    }
    let len = from.metadata()?.len();
    let blocks = len.div_ceil(u64::from(block));
    let mut maker = Maker {
        to,
        at: u64::from(FILE_HEAD),
        chunk: None,
        chunks: 0,
        done: Packed {
            block,
            blocks: u32::try_from(blocks).map_err(|_| SparseError::Large(len))?,
            ..Packed::default()
        },
    };
    let zero = match zeroes {
        Zeroes::Fill => Kind::Fill(0),
        Zeroes::Skip => Kind::DontCare,
    };
    let mut buf = vec![0; size.max(PIECE / size * size)];
    let mut next = 0;
    while next < blocks {
        let at = next * u64::from(block);
        // What is a hole up to some block is zeroes.
        let data = data_from(from, at)? / u64::from(block);
        if data > next {
            let hole = u32::try_from(data.min(blocks) - next).map_err(io::Error::other)?;
            maker.add(zero, hole, &[])?;
            next += u64::from(hole);
            continue;
        }
        let piece = (blocks - next).min((buf.len() / size) as u64);
        let piece = buf.get_mut(..piece as usize * size).unwrap_or_default();
        let there = usize::try_from(len - at)
            .unwrap_or(usize::MAX)
            .min(piece.len());
        let (read, behind) = piece.split_at_mut(there);
        from.read_exact_at(read, at)?;
        behind.fill(0);
        for bytes in piece.chunks_exact(size) {
            match repeated(bytes) {
                Some(0) => maker.add(zero, 1, &[])?,
                Some(word) => maker.add(Kind::Fill(word), 1, &[])?,
                None => maker.add(Kind::Raw, 1, bytes)?,
            }
            next += 1;
        }
    }
    maker.finish()?;
    Ok(maker.done)
}

/// Where there is data from `at` on; far behind the end if there is none.
fn data_from(file: &File, at: u64) -> io::Result<u64> {
    match rustix::fs::seek(file, SeekFrom::Data(at)) {
        Ok(data) => Ok(data),
        Err(Errno::NXIO) => Ok(u64::MAX),
        // Of a file system or a device that does not say.
        Err(Errno::INVAL) => Ok(at),
        Err(e) => Err(e.into()),
    }
}

/// The word that the bytes repeat, if they do.
fn repeated(bytes: &[u8]) -> Option<u32> {
    let (first, rest) = bytes.split_first_chunk::<4>()?;
    let same = |four: &[u8]| four == first;
    rest.chunks(4).all(same).then(|| u32::from_le_bytes(*first))
}
