//! Reading single frames: their heads, and images out of their chunks.

use std::collections::BTreeMap;
use std::num::NonZero;
use std::thread;

use stetfs_cache::PageRef;
use stetfs_ondisk::stet::checksum;
use stetfs_ondisk::stet::frame::{self, Frame};
use stetfs_ondisk::{OnDiskError, error::Result as OnDiskResult};

use super::codec::StetCodec;
use super::compress::unpack;
use super::payload::page_of;
use crate::error::Result;
use crate::policy::{ImageRef, Medium};

/// Threads that unpack chunks, at most.
const THREADS: usize = 8;

/// Some of the images of one chunk: where it is, and for each image its place in the chunk and in the answer.
type Wanted = ((u64, u32), Vec<(u32, usize)>);

/// The bytes of some pages, one after the other.
pub(super) fn joined(pages: &[PageRef]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(pages.iter().map(|p| p.len()).sum());
    for page in pages {
        bytes.extend_from_slice(page);
    }
    bytes
}

/// What is wrong with a frame.
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
    /// The head and table in these blocks, proven.
    pub(super) fn head(&self, bytes: &[u8]) -> OnDiskResult<Frame> {
        if self.skip_checksums {
            frame::decode_unproven(bytes, self.size())
        } else {
            frame::decode(bytes, self.size())
        }
    }

    /// Reads and proves the head of the frame at `at`.
    fn read_head(&self, log: &dyn Medium, at: u64) -> Result<Frame> {
        let first = joined(&log.read(at, 1)?);
        let glance = frame::glance(&first, log.capacity())?;
        Ok(self.head(&joined(&log.read(at, glance.head_blocks)?))?)
    }

    /// Whether a chunk's stored bytes are those that were written.
    pub(super) fn chunk_is_whole(&self, frame: &Frame, index: usize, stored: &[u8]) -> bool {
        self.skip_checksums
            || frame
                .chunks
                .get(index)
                .is_some_and(|chunk| checksum(stored) == chunk.sum)
    }

    /// Reads the stored bytes of chunk `index`, and proves them.
    pub(super) fn read_stored(
        &self,
        log: &dyn Medium,
        at: u64,
        frame: &Frame,
        index: usize,
    ) -> Result<OnDiskResult<Vec<u8>>> {
        let size = self.size() as u64;
        let places = frame.places(self.size());
        let (Some(chunk), Some(place)) = (frame.chunks.get(index), places.get(index)) else {
            return Ok(Err(corrupt(at, frame, format!("no chunk {index}"))));
        };
        let (first, skip) = (place / size, (place % size) as usize);
        let count = (skip as u64 + u64::from(chunk.stored)).div_ceil(size);
        let mut bytes = joined(&log.read(log.advance(at, first), count)?);
        bytes.drain(..skip.min(bytes.len()));
        bytes.truncate(chunk.stored as usize);
        if !self.chunk_is_whole(frame, index, &bytes) {
            let what = format!("chunk {index} does not match its checksum");
            return Ok(Err(corrupt(at, frame, what)));
        }
        Ok(Ok(bytes))
    }

    /// The wanted images of one chunk, by their place in the answer.
    fn unpack(
        &self,
        log: &dyn Medium,
        frame: &Frame,
        ((at, index), wanted): &Wanted,
    ) -> Result<Vec<(usize, PageRef)>> {
        let stored = self.read_stored(log, *at, frame, *index as usize)??;
        let raw = frame
            .chunks
            .get(*index as usize)
            .and_then(|chunk| unpack(chunk, &stored))
            .ok_or_else(|| corrupt(*at, frame, format!("chunk {index} cannot be decompressed")))?;
        wanted
            .iter()
            .map(|(image, to)| {
                let from = *image as usize * self.size();
                let bytes = raw
                    .get(from..from + self.size())
                    .ok_or_else(|| corrupt(*at, frame, format!("no image {image} in {index}")))?;
                Ok((*to, page_of(self.size(), bytes)))
            })
            .collect()
    }
}

/// Reads images, each chunk once, several chunks at a time.
///
/// # Errors
/// The device's; `Corrupt` for a frame that does not prove itself any more.
pub(super) fn images(
    codec: &StetCodec,
    log: &dyn Medium,
    refs: &[ImageRef],
) -> Result<Vec<PageRef>> {
    let mut chunks: BTreeMap<(u64, u32), Vec<(u32, usize)>> = BTreeMap::new();
    for (to, image) in refs.iter().enumerate() {
        let wanted = chunks.entry((image.at, image.flags)).or_default();
        wanted.push((image.check, to));
    }
    let mut frames: BTreeMap<u64, Frame> = BTreeMap::new();
    for (at, _) in chunks.keys() {
        if !frames.contains_key(at) {
            frames.insert(*at, codec.read_head(log, *at)?);
        }
    }
    let chunks: Vec<Wanted> = chunks.into_iter().collect();
    let some = |mine: &[Wanted]| -> Result<Vec<(usize, PageRef)>> {
        let mut out = Vec::new();
        for wanted in mine {
            if let Some(frame) = frames.get(&wanted.0.0) {
                out.extend(codec.unpack(log, frame, wanted)?);
            }
        }
        Ok(out)
    };
    let threads = thread::available_parallelism()
        .map_or(1, NonZero::get)
        .min(THREADS);
    let each = chunks.len().div_ceil(threads).max(4);
    let mut found = if chunks.len() <= each {
        some(&chunks)?
    } else {
        thread::scope(|scope| {
            let workers: Vec<_> = chunks
                .chunks(each)
                .map(|mine| (mine, scope.spawn(move || some(mine))))
                .collect();
            let mut out = Vec::with_capacity(refs.len());
            for (mine, worker) in workers {
                // What a thread that died left undone is done here.
                out.extend(worker.join().unwrap_or_else(|_| some(mine))?);
            }
            Ok::<_, crate::JournalError>(out)
        })?
    };
    found.sort_unstable_by_key(|(to, _)| *to);
    Ok(found.into_iter().map(|(_, page)| page).collect())
}
