//! Conversion between plain images and Android sparse images.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use rustix::fs::SeekFrom;
use rustix::io::Errno;

use super::map::{
    BadSparse, CHUNK_HEAD, CRC32, DONT_CARE, FILE_HEAD, FILL, Head, RAW, SPARSE_MAGIC,
};
use super::repeat;

/// Bytes moved per step, unless a block is larger.
const PIECE: usize = 1 << 20;
/// Maximum bytes of a raw chunk, which `fastboot` sends in one piece.
const MAX_RAW: u64 = 64 << 20;

/// The error of a conversion.
#[derive(Debug, thiserror::Error)]
pub enum SparseError {
    /// The source is no readable sparse image.
    #[error(transparent)]
    Bad(#[from] BadSparse),
    /// The source could not be read, or the target not written.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// A checksum in the image does not match.
    #[error("the sparse image is damaged: the checksum of its first {0} blocks does not match")]
    Checksum(u32),
    /// The image has more fill bytes than allowed.
    #[error(
        "chunk {chunk} would write {bytes} bytes that are not in the sparse image ({all} with \
         those before it), more than the {max} allowed"
    )]
    Fill {
        /// Number of the chunk, from 0.
        chunk: u64,
        /// Bytes that it fills.
        bytes: u64,
        /// Bytes filled by all chunks up to it.
        all: u64,
        /// Maximum number of filled bytes.
        max: u64,
    },
    /// The format has no blocks of this size.
    #[error("blocks of {0} bytes: the size must be a multiple of 4, at most 64 MiB")]
    Block(u32),
    /// There are more blocks than the format can count.
    #[error("{0} bytes are more blocks than a sparse image can have; choose larger blocks")]
    Large(u64),
}

/// The treatment of zero blocks when a sparse image is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Zeroes {
    /// Stored as fills with zeros, which overwrite the target.
    #[default]
    Fill,
    /// Left out (don't care): for a target that is known to be empty.
    Skip,
}

/// The result of a conversion, in blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Packed {
    /// Bytes of a block.
    pub block: u32,
    /// Blocks of the image.
    pub blocks: u32,
    /// Blocks stored as raw data.
    pub raw: u32,
    /// Blocks stored as a repeated word of four bytes.
    pub filled: u32,
    /// Blocks left out.
    pub skipped: u32,
}

/// Checks the limit of filled bytes before anything is written, as a small image can demand a huge
/// target. Zeros do not count: they become holes. Returns whether the image has checksums.
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

/// The checksum of `bytes` bytes of a repeated word, a multiple of four. It is computed by
/// doubling, as there may be more bytes than could be read.
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

/// Converts the sparse image `from` to a plain one in `to`, an empty file, durably. Don't-care
/// blocks become zeros, and zeros become holes. Checksums are checked. At most `max_fill` bytes are
/// written that are not in the sparse image.
///
/// # Errors
/// [`SparseError`]; the content of `to` is then useless.
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
        // An unwritten part of the target reads as zeros already.
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

/// The content of the blocks of a chunk.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Raw,
    Fill(u32),
    DontCare,
}

/// A sparse image under construction.
struct Maker<'a> {
    to: &'a File,
    /// The offset of the next byte.
    at: u64,
    /// The open chunk: its content, its blocks, the offset of its header.
    chunk: Option<(Kind, u32, u64)>,
    chunks: u32,
    done: Packed,
}

impl Maker<'_> {
    /// Adds blocks of a kind; `bytes` is the data of raw ones.
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

    /// Ends the open chunk.
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

    /// Writes the file's header, last.
    fn finish(&mut self) -> io::Result<()> {
        self.end()?;
        let mut head = Vec::with_capacity(usize::from(FILE_HEAD));
        head.extend(SPARSE_MAGIC.to_le_bytes());
        for half in [1, 0, FILE_HEAD, CHUNK_HEAD] {
            head.extend(half.to_le_bytes());
        }
        // The whole image has no checksum.
        for word in [self.done.block, self.done.blocks, self.chunks, 0] {
            head.extend(word.to_le_bytes());
        }
        self.to.write_all_at(&head, 0)?;
        self.to.sync_all()
    }
}

/// Converts the plain image `from` to a sparse one in `to`, an empty file, durably. The last block
/// is padded with zeros.
///
/// # Errors
/// [`SparseError`]; the content of `to` is then useless.
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
        // A hole reads as zeros up to the next data.
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

/// The offset of the first data at or behind `at`; `u64::MAX` if there is none.
fn data_from(file: &File, at: u64) -> io::Result<u64> {
    match rustix::fs::seek(file, SeekFrom::Data(at)) {
        Ok(data) => Ok(data),
        Err(Errno::NXIO) => Ok(u64::MAX),
        // The file system or device does not report holes.
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
