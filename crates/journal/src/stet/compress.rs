//! Chunks of images: they are stored together, and compressed where that pays.

use std::cell::RefCell;
use std::str::FromStr;
use std::time::Duration;

use stetfs_cache::PageRef;
use stetfs_ondisk::num::{approx, count32};
use stetfs_ondisk::stet::checksum;
use stetfs_ondisk::stet::frame::{Chunk, Stored};
use stetfs_sync::timed::Instant;
use xxhash_rust::xxh3::Xxh3;

use super::pace::Pace;

/// The compression of chunks (`compress=`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// None: images are in the log verbatim.
    #[default]
    None,
    /// LZ4.
    Lz4,
    /// Zstandard, level 1.
    Zstd,
    /// The choice that makes a chunk durable first, by the measured speeds of device and codecs.
    Auto,
}

impl Compression {
    const ALL: [(Compression, &'static str); 4] = [
        (Compression::None, "none"),
        (Compression::Lz4, "lz4"),
        (Compression::Zstd, "zstd"),
        (Compression::Auto, "auto"),
    ];
}

impl FromStr for Compression {
    type Err = String;

    fn from_str(text: &str) -> Result<Compression, String> {
        Compression::ALL
            .into_iter()
            .find(|(_, name)| *name == text)
            .map(|(how, _)| how)
            .ok_or_else(|| "must be none, lz4, zstd or auto".to_owned())
    }
}

/// The largest part of its size that a chunk may take compressed; otherwise it is stored raw.
const WORTH: f64 = 14.0 / 16.0;
const ZSTD_LEVEL: i32 = 1;
/// The size of the sample of a chunk that is compressed first, in bytes.
const SAMPLE: usize = 4096;
/// The number of places that the sample is taken from, so that one odd page does not decide.
const SAMPLES: usize = 4;

/// The most memory that a thread keeps for the next chunk, in bytes.
const KEPT: usize = 1 << 20;

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// The buffers of a thread that compresses. They are reused, because the system has to clear new
/// memory, which takes as long as compressing.
#[derive(Default)]
struct Scratch {
    raw: Vec<u8>,
    packed: Vec<u8>,
    zstd: Option<zstd::bulk::Compressor<'static>>,
}

impl Scratch {
    /// Compresses images of `len` bytes together; none on an error.
    fn compress(&mut self, how: Stored, images: &[PageRef], len: usize) -> Option<&[u8]> {
        self.raw.clear();
        self.raw.reserve_exact(len);
        images.iter().for_each(|p| self.raw.extend_from_slice(p));
        let most = lz4_flex::block::get_maximum_output_size(len);
        if self.packed.len() < most {
            self.packed.resize(most, 0);
        }
        let packed = &mut self.packed[..];
        let size = match how {
            Stored::Zstd => {
                let zstd = match &mut self.zstd {
                    Some(zstd) => zstd,
                    none => none.insert(zstd::bulk::Compressor::new(ZSTD_LEVEL).ok()?),
                };
                zstd.compress_to_buffer(&self.raw, packed).ok()?
            }
            Stored::Lz4 => lz4_flex::block::compress_into(&self.raw, packed).ok()?,
            Stored::Raw => return None,
        };
        self.packed.get(..size)
    }

    /// Frees the memory that only long chunks need.
    fn shrink(&mut self) {
        if self.packed.len() > KEPT {
            (self.raw, self.packed) = Default::default();
        }
    }
}

/// A chunk ready for the log.
pub(super) struct Packed {
    pub(super) chunk: Chunk,
    /// The stored bytes; none if the chunk is the images themselves.
    pub(super) bytes: Option<Vec<u8>>,
    /// The processor time of packing.
    pub(super) time: Duration,
}

/// The processor time of the calling thread.
fn processor_time() -> Duration {
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(used).unwrap_or_default()
}

/// Packs the images of one chunk.
pub(super) fn pack_one(how: Compression, pace: &Pace, images: &[PageRef]) -> Packed {
    let started = processor_time();
    let raw: usize = images.iter().map(|p| p.len()).sum();
    let smaller = match how {
        Compression::None => None,
        _ => compress(how, pace, images, raw),
    };
    let (sum, stored, how, bytes) = match smaller {
        Some((how, bytes)) => (checksum(&bytes), bytes.len(), how, Some(bytes)),
        None => {
            let mut sum = Xxh3::new();
            images.iter().for_each(|image| sum.update(image));
            (sum.digest(), raw, Stored::Raw, None)
        }
    };
    Packed {
        chunk: Chunk {
            sum,
            stored: count32(stored),
            raw: count32(raw),
            how,
        },
        bytes,
        time: processor_time().saturating_sub(started),
    }
}

/// Compresses images of `len` bytes together; none if that does not pay.
fn compress(
    how: Compression,
    pace: &Pace,
    images: &[PageRef],
    len: usize,
) -> Option<(Stored, Vec<u8>)> {
    let leaves = sampled(images, len);
    if leaves >= 1.0 {
        return None;
    }
    let how = match how {
        Compression::None => return None,
        Compression::Lz4 => Stored::Lz4,
        Compression::Zstd => Stored::Zstd,
        Compression::Auto => pace.choose(leaves),
    };
    if how == Stored::Raw {
        return None;
    }
    SCRATCH.with_borrow_mut(|scratch| {
        let started = Instant::now();
        let bytes = scratch.compress(how, images, len);
        let worth = bytes.and_then(|bytes| {
            pace.compressed(how, len, started.elapsed());
            (share(bytes.len(), len) <= WORTH).then(|| (how, bytes.to_vec()))
        });
        scratch.shrink();
        worth
    })
}

/// The part that `some` bytes are of `all`.
fn share(some: usize, all: usize) -> f64 {
    approx(some as u64) / approx(all.max(1) as u64)
}

/// The part of a chunk's bytes that LZ4 leaves, measured on a sample. Data that LZ4 cannot shrink
/// is compressed already, and not worth a full attempt. A chunk that is not much larger than the
/// sample is not sampled; its part is taken as a half.
fn sampled(images: &[PageRef], len: usize) -> f64 {
    if len <= SAMPLE * SAMPLES {
        return 0.5;
    }
    let mut sample = Vec::with_capacity(SAMPLE);
    for i in 0..SAMPLES {
        // Each sample is from a different part of its image, because images often begin alike.
        let image = images.get(i * images.len() / SAMPLES).map(|p| &p[..]);
        let part = image.and_then(|p| {
            p.chunks(SAMPLE / SAMPLES)
                .nth(i % (p.len() * SAMPLES / SAMPLE).max(1))
        });
        sample.extend_from_slice(part.unwrap_or_default());
    }
    share(lz4_flex::block::compress(&sample).len(), sample.len())
}

/// The raw bytes of a chunk whose checksum was verified; `None` if they cannot be unpacked, or not
/// to the chunk's size.
pub(super) fn unpack(chunk: &Chunk, stored: &[u8]) -> Option<Vec<u8>> {
    let raw = chunk.raw as usize;
    let bytes = match chunk.how {
        Stored::Raw => stored.to_vec(),
        Stored::Lz4 => lz4_flex::block::decompress(stored, raw).ok()?,
        Stored::Zstd => zstd::bulk::decompress(stored, raw).ok()?,
    };
    (bytes.len() == raw).then_some(bytes)
}
