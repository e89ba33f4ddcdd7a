//! The reading of single frames: their heads, and images from their chunks.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use stetfs_cache::{Page, PageRef};
use stetfs_ondisk::num::to_usize;
use stetfs_ondisk::stet::checksum;
use stetfs_ondisk::stet::frame::{self, Frame};
use stetfs_ondisk::{OnDiskError, error::Result as OnDiskResult};
use stetfs_sync::timed::thread;

use super::codec::StetCodec;
use super::compress::unpack;
use crate::error::{Result, lost};
use crate::policy::{ImageRef, Medium};

/// The most threads that unpack chunks.
const THREADS: usize = 8;
/// The most memory for reading, in bytes: unpacked chunks, and pieces that wait for the threads. If
/// chunks are long there are fewer threads.
const MEMORY: u64 = 64 << 20;

/// The most bytes of chunks that are read together.
const PIECE: u64 = 2 << 20;
/// The most bytes between two chunks that are read together: a second request would take longer.
const GAP: u64 = 64 << 10;

/// The error for a damaged frame.
pub(super) fn corrupt(at: u64, frame: &Frame, what: String) -> OnDiskError {
    OnDiskError::Corrupt {
        what: "StetFS log frame",
        detail: format!(
            "frame {} of lane {} at log block {at}: {what}",
            frame.seq, frame.lane
        ),
    }
}

impl StetCodec {
    /// The frame whose head and table are in these blocks, after a check of their checksum.
    pub(super) fn head(&self, bytes: &[u8]) -> OnDiskResult<Frame> {
        if self.canary.skip_checksums {
            frame::decode_unproven(bytes, self.size())
        } else {
            frame::decode(bytes, self.size())
        }
    }

    /// Reads and checks the head of the frame at `at`.
    fn read_head(&self, log: &dyn Medium, at: u64) -> Result<Frame> {
        let mut bytes = Vec::new();
        log.read_bytes(at, 1, &mut bytes)?;
        let glance = frame::glance(&bytes, log.capacity())?;
        if glance.head_blocks > 1 {
            log.read_bytes(log.advance(at, 1), glance.head_blocks - 1, &mut bytes)?;
        }
        Ok(self.head(&bytes)?)
    }

    /// Whether a chunk's stored bytes match its checksum.
    pub(super) fn chunk_is_whole(&self, frame: &Frame, index: usize, stored: &[u8]) -> bool {
        self.canary.skip_checksums
            || frame
                .chunks
                .get(index)
                .is_some_and(|chunk| checksum(stored) == chunk.sum)
    }

    /// Reads `len` bytes, `place` bytes after the start of the frame at `at`.
    pub(super) fn read_bytes(
        &self,
        log: &dyn Medium,
        at: u64,
        place: u64,
        len: u32,
    ) -> Result<Vec<u8>> {
        let size = self.size() as u64;
        let (first, skip) = (place / size, to_usize(place % size));
        let count = (skip as u64 + u64::from(len)).div_ceil(size);
        let mut bytes = Vec::new();
        log.read_bytes(log.advance(at, first), count, &mut bytes)?;
        bytes.drain(..skip.min(bytes.len()));
        bytes.truncate(len as usize);
        Ok(bytes)
    }
}

/// A frame's head, and the positions of its chunks ([`Frame::places`]).
struct Head {
    frame: Frame,
    places: Vec<u64>,
}

/// A chunk with wanted images.
struct Wanted<'f> {
    frame: &'f Frame,
    /// The log block of the frame.
    at: u64,
    index: usize,
    /// The position in the piece, in bytes.
    skip: usize,
    /// The images wanted from it, each with its index in the answer.
    images: Vec<(u32, usize)>,
}

/// Chunks that are read together.
struct Piece<'f> {
    /// The first log block.
    at: u64,
    blocks: u64,
    chunks: Vec<Wanted<'f>>,
}

impl StetCodec {
    /// The wanted images of a piece, each with its index in the answer.
    fn unpack(&self, bytes: &[u8], piece: &Piece<'_>) -> Result<Vec<(usize, PageRef)>> {
        let mut out = Vec::new();
        for wanted in &piece.chunks {
            let (at, frame, index) = (wanted.at, wanted.frame, wanted.index);
            let no = |what: String| corrupt(at, frame, format!("chunk {index} {what}"));
            let chunk = frame
                .chunks
                .get(index)
                .ok_or_else(|| no("is not there".into()))?;
            let stored = bytes
                .get(wanted.skip..wanted.skip + chunk.stored as usize)
                .unwrap_or_default();
            if !self.chunk_is_whole(frame, index, stored) {
                return Err(no("does not match its checksum".into()).into());
            }
            let raw = unpack(chunk, stored).ok_or_else(|| no("cannot be decompressed".into()))?;
            for (image, to) in &wanted.images {
                let from = *image as usize * self.size();
                let bytes = raw
                    .get(from..from + self.size())
                    .ok_or_else(|| no(format!("has no image {image}")))?;
                out.push((*to, Arc::new(Page::copy_of(bytes))));
            }
        }
        Ok(out)
    }

    /// The chunks of these images, in the order of the log; chunks close together become one piece.
    fn pieces<'f>(
        &self,
        log: &dyn Medium,
        heads: &'f BTreeMap<u64, Head>,
        refs: &[ImageRef],
    ) -> Result<Vec<Piece<'f>>> {
        let size = self.size() as u64;
        let mut chunks: BTreeMap<(u64, u32), Vec<(u32, usize)>> = BTreeMap::new();
        for (to, image) in refs.iter().enumerate() {
            let images = chunks.entry((image.at, image.flags)).or_default();
            images.push((image.check, to));
        }
        let mut pieces: Vec<Piece<'f>> = Vec::new();
        for ((at, index), images) in chunks {
            let Some(Head { frame, places }) = heads.get(&at) else {
                return Err(lost(format!("the frame at log block {at} was not read")).into());
            };
            let index = index as usize;
            let Some((place, chunk)) = places.get(index).zip(frame.chunks.get(index)) else {
                return Err(corrupt(at, frame, format!("chunk {index} is not there")).into());
            };
            let (place, stored) = (*place, u64::from(chunk.stored));
            let first = log.advance(at, place / size);
            let blocks = (place % size + stored).div_ceil(size);
            let last = pieces.last_mut().filter(|p| {
                let end = p.at + p.blocks;
                first + 1 >= end
                    && (first + blocks - p.at) * size <= PIECE
                    && first.saturating_sub(end) * size <= GAP
            });
            let mut wanted = Wanted {
                frame,
                at,
                index,
                skip: to_usize(place % size),
                images,
            };
            match last {
                Some(piece) => {
                    wanted.skip += to_usize((first - piece.at) * size);
                    piece.blocks = piece.blocks.max(first + blocks - piece.at);
                    piece.chunks.push(wanted);
                }
                None => pieces.push(Piece {
                    at: first,
                    blocks,
                    chunks: vec![wanted],
                }),
            }
        }
        Ok(pieces)
    }
}

/// Reads images. The calling thread reads the log in its order, while other threads check and
/// unpack what was read.
///
/// # Errors
/// The device's; `Corrupt` for a frame that fails its check now.
pub(super) fn images(
    codec: &StetCodec,
    log: &dyn Medium,
    refs: &[ImageRef],
) -> Result<Vec<PageRef>> {
    let mut heads: BTreeMap<u64, Head> = BTreeMap::new();
    for image in refs {
        if let Entry::Vacant(entry) = heads.entry(image.at) {
            let frame = codec.read_head(log, image.at)?;
            let places = frame.places(codec.size());
            entry.insert(Head { frame, places });
        }
    }
    let pieces = codec.pieces(log, &heads, refs)?;
    let read = |piece: &Piece<'_>| {
        let mut bytes = Vec::new();
        log.read_bytes(piece.at, piece.blocks, &mut bytes)?;
        Ok::<_, crate::JournalError>(bytes)
    };
    // A thread holds a piece and what it unpacks from it, while another piece waits for it.
    let longest = pieces.iter().map(|piece| {
        let chunk = |wanted: &Wanted<'_>| wanted.frame.chunks.get(wanted.index).map(|c| c.raw);
        let raw = piece.chunks.iter().filter_map(chunk).max().unwrap_or(0);
        2 * piece.blocks * codec.size() as u64 + u64::from(raw)
    });
    let in_memory = MEMORY / longest.max().unwrap_or(0).max(1);
    let threads = stetfs_sync::processors()
        .min(THREADS)
        .min(to_usize(in_memory));
    let mut found = if pieces.len() < 2 || threads < 2 {
        let mut found = Vec::with_capacity(refs.len());
        for piece in &pieces {
            found.extend(codec.unpack(&read(piece)?, piece)?);
        }
        found
    } else {
        unpack_beside(codec, &pieces, read, threads)?
    };
    if found.len() != refs.len() {
        let missing = refs.len() - found.len().min(refs.len());
        return Err(crate::JournalError::Aborted(format!(
            "{missing} images were not read"
        )));
    }
    found.sort_unstable_by_key(|(to, _)| *to);
    Ok(found.into_iter().map(|(_, page)| page).collect())
}

/// Reads the pieces in the calling thread, in their order, and has `threads` others check and
/// unpack them.
///
/// # Errors
/// The errors of `read`; `Corrupt` for a damaged frame.
fn unpack_beside(
    codec: &StetCodec,
    pieces: &[Piece<'_>],
    read: impl Fn(&Piece<'_>) -> Result<Vec<u8>>,
    threads: usize,
) -> Result<Vec<(usize, PageRef)>> {
    thread::scope(|scope| {
        let (send, receive) =
            stetfs_sync::timed::channel::bounded::<(Vec<u8>, &Piece<'_>)>(threads);
        let workers: Vec<_> = (0..threads)
            .map(|_| {
                let receive = receive.clone();
                scope.spawn(move || {
                    stetfs_sync::run_anywhere();
                    let mut out = Vec::new();
                    for (bytes, piece) in receive {
                        out.extend(codec.unpack(&bytes, piece)?);
                    }
                    Ok::<_, crate::JournalError>(out)
                })
            })
            .collect();
        drop(receive);
        let (mut found, mut result) = (Vec::new(), Ok(()));
        for piece in pieces {
            match read(piece) {
                Ok(bytes) => {
                    // All workers have ended; their errors say why.
                    if send.send((bytes, piece)).is_err() {
                        break;
                    }
                }
                Err(e) => {
                    result = Err(e);
                    break;
                }
            }
        }
        drop(send);
        for worker in workers {
            found.extend(worker.join().map_err(|_| {
                crate::JournalError::Aborted("a thread that decompresses the log panicked".into())
            })??);
        }
        result.map(|()| found)
    })
}
