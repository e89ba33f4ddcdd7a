//! Frames: the units of the log. Each holds one transaction or file-level record and begins with a
//! block: head, table, and the images in chunks.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{checksum, pieces};
use crate::error::{Result, corrupt};
use crate::num::{count32, to_usize};

const WHAT: &str = "StetFS log frame";
const MAGIC: [u8; 8] = *b"stetfrm1";
/// Flag: written without barriers, so a valid frame proves nothing about the frames before it.
const UNORDERED: u32 = 1;
/// Offset of `sum`.
const SUM_AT: usize = 8;
/// Bytes of the head; the table follows.
pub const HEAD_BYTES: usize = size_of::<RawHead>();
/// Maximum raw bytes of one chunk.
pub const MAX_CHUNK: usize = 16 << 20;
/// Maximum bytes of a table: 2 million blocks, more than the memory of any journal allows in a
/// transaction.
pub const MAX_TABLE: usize = 16 << 20;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawHead {
    magic: [u8; 8],
    sum: U64,
    epoch: U64,
    seq: U64,
    stamp: U64,
    nanoseconds: U64,
    lane: U16,
    kind: U16,
    blocks: U32,
    table_bytes: U32,
    images: U32,
    revokes: U32,
    edges: U32,
    chunks: U32,
    flags: U32,
    floor: U64,
    record_bytes: U32,
    padding: U32,
}

const _: () = assert!(HEAD_BYTES == 96);

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawChunk {
    sum: U64,
    stored: U32,
    raw: U32,
    codec: u8,
    padding: [u8; 7],
}

const _: () = assert!(size_of::<RawChunk>() == 24);

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawEdge {
    lane: U16,
    padding: [u8; 6],
    seq: U64,
}

const _: () = assert!(size_of::<RawEdge>() == 16);

/// The encoding of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Stored {
    /// Uncompressed.
    Raw = 0,
    /// An LZ4 block.
    Lz4 = 1,
    /// A Zstandard frame.
    Zstd = 2,
}

impl Stored {
    fn from_u8(value: u8) -> Option<Stored> {
        [Stored::Raw, Stored::Lz4, Stored::Zstd]
            .into_iter()
            .find(|s| *s as u8 == value)
    }
}

/// A chunk: some images, stored together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Checksum of the stored bytes.
    pub sum: u64,
    /// Bytes in the log.
    pub stored: u32,
    /// Bytes of the images.
    pub raw: u32,
    /// The encoding.
    pub how: Stored,
}

/// The kinds of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Kind {
    /// A transaction.
    Transaction = 1,
    /// A file-level record.
    Record = 2,
}

impl Kind {
    fn from_u16(value: u16) -> Option<Kind> {
        [Kind::Transaction, Kind::Record]
            .into_iter()
            .find(|k| *k as u16 == value)
    }
}

/// A frame's head and table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The kind.
    pub kind: Kind,
    /// The log's epoch.
    pub epoch: u64,
    /// The lane's sequence.
    pub seq: u64,
    /// Its stamp in the order of commits.
    pub stamp: u64,
    /// Wall-clock time, nanoseconds since 1970.
    pub nanoseconds: u64,
    /// The lane.
    pub lane: u16,
    /// Whether it was written without barriers: then a valid frame proves nothing about the frames
    /// before it.
    pub unordered: bool,
    /// The chunks, in the order of the payload.
    pub chunks: Vec<Chunk>,
    /// Dependencies: lane and sequence.
    pub edges: Vec<(u16, u64)>,
    /// Home blocks of the images, in the order of the chunks' raw bytes.
    pub images: Vec<u64>,
    /// Revoked blocks: their older images are void.
    pub revokes: Vec<u64>,
    /// Of a transaction: the stamp up to which it, or an older one, contains the file-level
    /// records. Of a record: the sequence up to which the frames of its lane were durable when it
    /// was written.
    pub floor: u64,
    /// The body of a file-level record ([`super::record`]).
    pub record: Vec<u8>,
}

/// The number of items of each kind in a table.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Chunks.
    pub chunks: usize,
    /// Edges.
    pub edges: usize,
    /// Images.
    pub images: usize,
    /// Revoked blocks.
    pub revokes: usize,
    /// Bytes of a file-level record.
    pub record: usize,
}

impl Counts {
    /// Bytes of the table.
    fn bytes(&self) -> Option<usize> {
        self.chunks
            .checked_mul(size_of::<RawChunk>())?
            .checked_add(self.edges.checked_mul(size_of::<RawEdge>())?)?
            .checked_add(self.images.checked_mul(8)?)?
            .checked_add(self.revokes.checked_mul(8)?)?
            .checked_add(self.record)
    }

    /// Blocks of a head and table; the payload begins behind them.
    #[must_use]
    pub fn head_blocks(&self, block_size: usize) -> usize {
        let table = self.bytes().unwrap_or(usize::MAX - HEAD_BYTES);
        pieces(HEAD_BYTES + table, block_size)
    }
}

/// The offset in bytes of a chunk that follows content up to `end`: verbatim images begin with a
/// block, all others follow at once.
#[must_use]
pub fn place(end: u64, how: Stored, block_size: u64) -> u64 {
    match how {
        Stored::Raw => end.next_multiple_of(block_size.max(1)),
        Stored::Lz4 | Stored::Zstd => end,
    }
}

impl Frame {
    /// The number of items of each kind in the table.
    #[must_use]
    pub fn counts(&self) -> Counts {
        Counts {
            chunks: self.chunks.len(),
            edges: self.edges.len(),
            images: self.images.len(),
            revokes: self.revokes.len(),
            record: self.record.len(),
        }
    }

    /// Blocks of the head and table.
    #[must_use]
    pub fn head_blocks(&self, block_size: usize) -> usize {
        self.counts().head_blocks(block_size)
    }

    /// The offsets of the chunks, in order, and then the end of the last one: bytes from the start
    /// of the frame.
    #[must_use]
    pub fn places(&self, block_size: usize) -> Vec<u64> {
        let size = block_size.max(1) as u64;
        let mut end = self.head_blocks(block_size) as u64 * size;
        let mut places: Vec<u64> = self
            .chunks
            .iter()
            .map(|chunk| {
                let start = place(end, chunk.how, size);
                end = start + u64::from(chunk.stored);
                start
            })
            .collect();
        places.push(end);
        places
    }

    /// Blocks of the whole frame.
    #[must_use]
    pub fn blocks(&self, block_size: usize) -> u64 {
        let end = self.places(block_size).last().copied().unwrap_or_default();
        end.div_ceil(block_size.max(1) as u64)
    }

    /// The head and table as whole blocks.
    #[must_use]
    pub fn encode(&self, block_size: usize) -> Vec<u8> {
        let table = self.counts().bytes();
        let head = RawHead {
            magic: MAGIC,
            sum: 0.into(),
            epoch: self.epoch.into(),
            seq: self.seq.into(),
            stamp: self.stamp.into(),
            nanoseconds: self.nanoseconds.into(),
            lane: self.lane.into(),
            kind: (self.kind as u16).into(),
            blocks: count32(to_usize(self.blocks(block_size))).into(),
            table_bytes: count32(table.unwrap_or(usize::MAX)).into(),
            images: count32(self.images.len()).into(),
            revokes: count32(self.revokes.len()).into(),
            edges: count32(self.edges.len()).into(),
            chunks: count32(self.chunks.len()).into(),
            flags: (if self.unordered { UNORDERED } else { 0 }).into(),
            floor: self.floor.into(),
            record_bytes: count32(self.record.len()).into(),
            padding: 0.into(),
        };
        let size = self.head_blocks(block_size) * block_size;
        let mut out = Vec::with_capacity(size);
        out.extend_from_slice(head.as_bytes());
        for chunk in &self.chunks {
            let raw = RawChunk {
                sum: chunk.sum.into(),
                stored: chunk.stored.into(),
                raw: chunk.raw.into(),
                codec: chunk.how as u8,
                padding: [0; 7],
            };
            out.extend_from_slice(raw.as_bytes());
        }
        for (lane, seq) in &self.edges {
            let raw = RawEdge {
                lane: (*lane).into(),
                padding: [0; 6],
                seq: (*seq).into(),
            };
            out.extend_from_slice(raw.as_bytes());
        }
        for nr in self.images.iter().chain(&self.revokes) {
            out.extend_from_slice(&nr.to_le_bytes());
        }
        out.extend_from_slice(&self.record);
        let sum = checksum(&out);
        crate::bytes::put(&mut out, SUM_AT, &sum.to_le_bytes());
        out.resize(size, 0);
        out
    }
}

/// The fields in the first block of a frame, not verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Glance {
    /// The log's epoch.
    pub epoch: u64,
    /// The lane.
    pub lane: u16,
    /// The lane's sequence.
    pub seq: u64,
    /// Blocks of the head and table.
    pub head_blocks: u64,
    /// Blocks of the whole frame.
    pub blocks: u64,
    /// See [`Frame::unordered`].
    pub unordered: bool,
}

/// Whether a frame may begin in this block: a search for frames looks at that first.
pub fn may_begin_in(block: &[u8]) -> bool {
    block.starts_with(&MAGIC)
}

/// Reads the first block of a possible frame. `capacity` is the number of blocks of its lane. A
/// frame has no more images than its lane has blocks, even if compressed: its writer reserves room
/// for the uncompressed images.
///
/// # Errors
/// `Corrupt`, with the content found instead.
pub fn glance(block: &[u8], capacity: u64) -> Result<Glance> {
    let head = raw_head(block)?;
    let head_bytes = HEAD_BYTES as u64 + u64::from(head.table_bytes.get());
    let head_blocks = head_bytes.div_ceil(block.len().max(1) as u64);
    let blocks = u64::from(head.blocks.get());
    if head_blocks > blocks || blocks > capacity {
        return Err(corrupt!(
            WHAT,
            "a head of {head_blocks} blocks in a frame of {blocks} in a lane of {capacity}"
        ));
    }
    let (table, images) = (head.table_bytes.get(), u64::from(head.images.get()));
    if images > capacity || table as usize > MAX_TABLE {
        return Err(corrupt!(
            WHAT,
            "{images} images and a table of {table} bytes in a lane of {capacity} blocks"
        ));
    }
    Ok(Glance {
        epoch: head.epoch.get(),
        lane: head.lane.get(),
        seq: head.seq.get(),
        head_blocks,
        blocks,
        unordered: head.flags.get() & UNORDERED != 0,
    })
}

fn raw_head(bytes: &[u8]) -> Result<RawHead> {
    let (head, _) =
        RawHead::read_from_prefix(bytes).map_err(|_| corrupt!(WHAT, "{} bytes", bytes.len()))?;
    if head.magic != MAGIC {
        return Err(corrupt!(WHAT, "no frame starts here"));
    }
    Ok(head)
}

/// Decodes head and table from whole blocks, and verifies their checksum. The chunks have checksums
/// of their own.
///
/// # Errors
/// `Corrupt`: the checksum does not match, or the numbers contradict each other.
pub fn decode(bytes: &[u8], block_size: usize) -> Result<Frame> {
    let head = raw_head(bytes)?;
    let end = HEAD_BYTES.saturating_add(head.table_bytes.get() as usize);
    let mut blank = bytes.get(..end).unwrap_or(bytes).to_vec();
    crate::bytes::put(&mut blank, SUM_AT, &[0; 8]);
    if checksum(&blank) != head.sum.get() {
        return Err(corrupt!(WHAT, "checksum of the head does not match"));
    }
    decode_unproven(bytes, block_size)
}

/// The same without the checksum: a fault for canaries, to show that verification is needed.
///
/// # Errors
/// `Corrupt`: the numbers contradict each other.
pub fn decode_unproven(bytes: &[u8], block_size: usize) -> Result<Frame> {
    let head = raw_head(bytes)?;
    let table = head.table_bytes.get() as usize;
    let whole = bytes
        .get(..HEAD_BYTES.saturating_add(table))
        .ok_or_else(|| corrupt!(WHAT, "a table of {table} bytes in {}", bytes.len()))?;
    let [chunks, edges, images, revokes, record] = [
        head.chunks,
        head.edges,
        head.images,
        head.revokes,
        head.record_bytes,
    ]
    .map(|n| n.get() as usize);
    let counts = Counts {
        chunks,
        edges,
        images,
        revokes,
        record,
    };
    if counts.bytes() != Some(table) {
        return Err(corrupt!(WHAT, "a table of {table} bytes for {counts:?}"));
    }
    let kind = Kind::from_u16(head.kind.get());
    let (Some(kind), 0) = (kind, head.flags.get() & !UNORDERED) else {
        return Err(crate::error::OnDiskError::Unsupported {
            feature: format!(
                "StetFS log frame of kind {} with flags {:#x}",
                head.kind.get(),
                head.flags.get()
            ),
        });
    };
    let rest = whole.get(HEAD_BYTES..).unwrap_or_default();
    let short = |_| corrupt!(WHAT, "the table is too short");
    let (raw_chunks, rest) =
        <[RawChunk]>::ref_from_prefix_with_elems(rest, chunks).map_err(|e| short(e.to_string()))?;
    let (raw_edges, rest) =
        <[RawEdge]>::ref_from_prefix_with_elems(rest, edges).map_err(|e| short(e.to_string()))?;
    let (raw_images, rest) =
        <[U64]>::ref_from_prefix_with_elems(rest, images).map_err(|e| short(e.to_string()))?;
    let (raw_revokes, record) =
        <[U64]>::ref_from_prefix_with_elems(rest, revokes).map_err(|e| short(e.to_string()))?;
    let chunk = |raw| decode_chunk(raw, block_size);
    let chunks = raw_chunks.iter().map(chunk).collect::<Result<Vec<_>>>()?;
    let raw_bytes: u64 = chunks.iter().map(|chunk| u64::from(chunk.raw)).sum();
    if raw_bytes != images as u64 * block_size as u64 {
        return Err(corrupt!(WHAT, "{raw_bytes} bytes for {images} images"));
    }
    check_once(raw_images)?;
    let frame = Frame {
        kind,
        epoch: head.epoch.get(),
        seq: head.seq.get(),
        stamp: head.stamp.get(),
        nanoseconds: head.nanoseconds.get(),
        lane: head.lane.get(),
        unordered: head.flags.get() & UNORDERED != 0,
        chunks,
        edges: raw_edges
            .iter()
            .map(|e| (e.lane.get(), e.seq.get()))
            .collect(),
        images: raw_images.iter().map(|n| n.get()).collect(),
        revokes: raw_revokes.iter().map(|n| n.get()).collect(),
        floor: head.floor.get(),
        record: record.to_vec(),
    };
    if frame.blocks(block_size) != u64::from(head.blocks.get()) {
        return Err(corrupt!(
            WHAT,
            "{} blocks, but its parts take {}",
            head.blocks.get(),
            frame.blocks(block_size)
        ));
    }
    Ok(frame)
}

fn decode_chunk(chunk: &RawChunk, block_size: usize) -> Result<Chunk> {
    let how = Stored::from_u8(chunk.codec)
        .ok_or_else(|| corrupt!(WHAT, "a chunk stored in way {}", chunk.codec))?;
    let (stored, raw) = (chunk.stored.get(), chunk.raw.get());
    if raw == 0
        || raw as usize > MAX_CHUNK
        || !(raw as usize).is_multiple_of(block_size.max(1))
        || stored > raw
        || (how == Stored::Raw && stored != raw)
    {
        return Err(corrupt!(WHAT, "a chunk of {raw} bytes stored in {stored}"));
    }
    Ok(Chunk {
        sum: chunk.sum.get(),
        stored,
        raw,
        how,
    })
}

/// Refuses two images of one block.
fn check_once(images: &[U64]) -> Result<()> {
    let mut homes: Vec<u64> = images.iter().map(|n| n.get()).collect();
    homes.sort_unstable();
    match homes.array_windows().find(|[a, b]| a == b) {
        Some([nr, _]) => Err(corrupt!(WHAT, "two images of block {nr}")),
        None => Ok(()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frame(images: usize) -> Frame {
        let chunks = (0..images)
            .map(|i| Chunk {
                sum: i as u64 * 3,
                stored: if i % 2 == 0 { 1024 } else { 300 },
                raw: 1024,
                how: if i % 2 == 0 { Stored::Raw } else { Stored::Lz4 },
            })
            .collect();
        Frame {
            kind: if images == 1 {
                Kind::Record
            } else {
                Kind::Transaction
            },
            epoch: 5,
            seq: 6,
            stamp: 7,
            nanoseconds: 8,
            lane: 1,
            unordered: images == 5,
            chunks,
            edges: vec![(0, 4), (3, 9)],
            images: (0..images as u64).map(|i| i * 17).collect(),
            revokes: vec![1, 2, 3],
            floor: 99,
            record: vec![images as u8; images % 7],
        }
    }

    #[test]
    fn round_trip() {
        for images in [0, 1, 5, 200] {
            let frame = frame(images);
            let bytes = frame.encode(1024);
            assert_eq!(bytes.len(), frame.head_blocks(1024) * 1024);
            assert_eq!(decode(&bytes, 1024), Ok(frame.clone()));
            let glance = glance(&bytes[..1024], 1000).unwrap();
            assert_eq!(
                (glance.head_blocks, glance.blocks),
                (bytes.len() as u64 / 1024, frame.blocks(1024))
            );
        }
    }

    #[test]
    fn frames_longer_than_their_lane_are_refused() {
        assert!(glance(&frame(200).encode(1024)[..1024], 100).is_err());
    }

    #[test]
    fn a_frame_claims_no_more_than_its_lane_has() {
        let mut large = frame(40);
        for chunk in &mut large.chunks {
            (chunk.stored, chunk.how) = (10, Stored::Zstd);
        }
        let bytes = large.encode(1024);
        assert!(large.blocks(1024) < 39);
        assert!(glance(&bytes[..1024], 40).is_ok());
        assert!(glance(&bytes[..1024], 39).is_err());
        let revokes = vec![0; MAX_TABLE / 8];
        let bytes = Frame {
            revokes,
            ..frame(0)
        }
        .encode(1024);
        assert!(glance(&bytes[..1024], 1 << 40).is_err());
    }

    #[test]
    fn a_frame_has_one_image_of_a_block() {
        let mut twice = frame(40);
        twice.images[3] = twice.images[30];
        let wrong = decode(&twice.encode(1024), 1024).unwrap_err();
        assert!(wrong.to_string().contains("two images of block"), "{wrong}");
    }

    proptest! {
        #[test]
        fn any_changed_byte_is_noticed(images in 0usize..80, at: usize, by in 1u8..) {
            let mut bytes = frame(images).encode(1024);
            let used = HEAD_BYTES + images * 32 + 2 * 16 + 3 * 8 + images % 7;
            bytes[at % used] ^= by;
            prop_assert!(decode(&bytes, 1024).is_err());
        }

        #[test]
        fn noise_is_no_frame(mut bytes in proptest::collection::vec(any::<u8>(), 0..4000)) {
            let n = bytes.len().min(8);
            bytes[..n].copy_from_slice(&MAGIC[..n]);
            prop_assert!(decode(&bytes, 1024).is_err());
            let _ = glance(&bytes, 100);
        }
    }
}
