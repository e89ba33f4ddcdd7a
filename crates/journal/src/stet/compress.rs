//! Chunks: images stored together, compressed where it pays.

use std::thread;

use stetfs_cache::PageRef;
use stetfs_ondisk::stet::frame::{Chunk, Stored};
use xxhash_rust::xxh3::Xxh3;

/// What compresses chunks (`compress=`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// Nothing: images stand in the log verbatim.
    #[default]
    None,
    /// LZ4.
    Lz4,
    /// Zstandard, level 1.
    Zstd,
}

/// A chunk is compressed only if it then takes at most this many 16ths.
const WORTH_16THS: usize = 14;
/// Of a chunk, this much is tried first …
const SAMPLE: usize = 4096;
/// … and, so that a sample of one odd page does not decide, from so many places.
const SAMPLES: usize = 4;
/// Chunks below this total are compressed by the calling thread alone: starting threads costs more.
const ALONE: usize = 256 << 10;
/// Threads at most.
const THREADS: usize = 4;

/// A chunk ready for the log.
pub(super) struct Packed {
    pub(super) chunk: Chunk,
    /// The stored bytes, if they are not the images themselves.
    pub(super) bytes: Option<Vec<u8>>,
}

/// Packs each group of images.
pub(super) fn pack(how: Compression, groups: &[&[PageRef]]) -> Vec<Packed> {
    let total: usize = groups.iter().flat_map(|g| g.iter()).map(|p| p.len()).sum();
    let threads = thread::available_parallelism()
        .map_or(1, usize::from)
        .min(THREADS)
        .min(groups.len());
    if total < ALONE || threads < 2 || how == Compression::None {
        return groups.iter().map(|g| pack_one(how, g)).collect();
    }
    let each = groups.len().div_ceil(threads);
    thread::scope(|scope| {
        let workers: Vec<_> = groups
            .chunks(each)
            .map(|mine| scope.spawn(move || mine.iter().map(|g| pack_one(how, g)).collect()))
            .collect();
        workers
            .into_iter()
            .zip(groups.chunks(each))
            // A worker that died leaves its chunks raw.
            .flat_map(
                |(w, mine): (thread::ScopedJoinHandle<'_, Vec<Packed>>, _)| {
                    w.join().unwrap_or_else(|_| {
                        mine.iter()
                            .map(|g| pack_one(Compression::None, g))
                            .collect()
                    })
                },
            )
            .collect()
    })
}

fn pack_one(how: Compression, images: &[PageRef]) -> Packed {
    let raw: usize = images.iter().map(|p| p.len()).sum();
    if how != Compression::None {
        let mut joined = Vec::with_capacity(raw);
        for image in images {
            joined.extend_from_slice(image);
        }
        if let Some((stored, bytes)) = compress(how, &joined) {
            let chunk = Chunk {
                sum: stetfs_ondisk::stet::checksum(&bytes),
                stored: bytes.len() as u32,
                raw: raw as u32,
                how: stored,
            };
            return Packed {
                chunk,
                bytes: Some(bytes),
            };
        }
    }
    let mut sum = Xxh3::new();
    for image in images {
        sum.update(image);
    }
    Packed {
        chunk: Chunk {
            sum: sum.digest(),
            stored: raw as u32,
            raw: raw as u32,
            how: Stored::Raw,
        },
        bytes: None,
    }
}

/// The compressed bytes, if they are worth it.
fn compress(how: Compression, raw: &[u8]) -> Option<(Stored, Vec<u8>)> {
    let worth = |packed: usize, raw: usize| packed * 16 <= raw * WORTH_16THS;
    // A sample is always taken by LZ4: what it cannot make smaller at all is compressed already.
    let step = raw.len() / SAMPLES;
    if step > SAMPLE {
        let sample: Vec<u8> = (0..SAMPLES)
            .filter_map(|i| raw.get(i * step..i * step + SAMPLE / SAMPLES))
            .flatten()
            .copied()
            .collect();
        if lz4_flex::block::compress(&sample).len() >= sample.len() {
            return None;
        }
    }
    let (stored, bytes) = match how {
        Compression::None => return None,
        Compression::Lz4 => (Stored::Lz4, lz4_flex::block::compress(raw)),
        Compression::Zstd => (Stored::Zstd, zstd::bulk::compress(raw, 1).ok()?),
    };
    worth(bytes.len(), raw.len()).then_some((stored, bytes))
}

/// The raw bytes of a chunk whose sum was checked; `None` if they are not what the chunk says.
pub(super) fn unpack(chunk: &Chunk, stored: &[u8]) -> Option<Vec<u8>> {
    let raw = chunk.raw as usize;
    let bytes = match chunk.how {
        Stored::Raw => stored.to_vec(),
        Stored::Lz4 => lz4_flex::block::decompress(stored, raw).ok()?,
        Stored::Zstd => zstd::bulk::decompress(stored, raw).ok()?,
    };
    (bytes.len() == raw).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use stetfs_cache::Page;

    use super::*;

    fn pages(count: usize, noise: bool) -> Vec<PageRef> {
        let mut rng = fastrand::Rng::with_seed(7);
        (0..count)
            .map(|i| {
                let bytes: Vec<u8> = (0..4096)
                    .map(|j| {
                        if noise {
                            rng.u8(..)
                        } else {
                            (i + j / 64) as u8
                        }
                    })
                    .collect();
                Arc::new(Page::copy_of(&bytes))
            })
            .collect()
    }

    #[test]
    fn packs_and_unpacks() {
        for how in [Compression::None, Compression::Lz4, Compression::Zstd] {
            for noise in [false, true] {
                // Enough for several threads.
                let pages = pages(200, noise);
                let groups: Vec<&[PageRef]> = pages.chunks(16).collect();
                let packed = pack(how, &groups);
                assert_eq!(packed.len(), groups.len());
                for (packed, group) in packed.iter().zip(&groups) {
                    let raw: Vec<u8> = group.iter().flat_map(|p| p.to_vec()).collect();
                    let stored = packed.bytes.clone().unwrap_or_else(|| raw.clone());
                    let small = how != Compression::None && !noise;
                    assert_eq!(packed.bytes.is_some(), small, "{how:?} {noise}");
                    assert_eq!(packed.chunk.stored as usize, stored.len());
                    assert_eq!(packed.chunk.sum, stetfs_ondisk::stet::checksum(&stored));
                    assert_eq!(unpack(&packed.chunk, &stored), Some(raw));
                }
            }
        }
    }
}
