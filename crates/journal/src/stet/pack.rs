//! The packing of chunks by several threads, which delivers them in order as they become ready.

use std::collections::BTreeMap;

use stetfs_cache::PageRef;
use stetfs_sync::timed::{
    atomic::{AtomicUsize, Ordering},
    thread,
};

use super::compress::{Compression, Packed, pack_one};
use super::pace::Pace;
use crate::error::Result;

/// The total size in bytes below which the calling thread packs all chunks alone, because starting
/// threads would cost more.
const ALONE: usize = 256 << 10;
/// The most threads.
const THREADS: usize = 4;

/// Packs each group of images. `take` gets the chunks in order, in the calling thread, while later
/// ones are still being packed.
///
/// # Errors
/// The errors of `take`.
pub(super) fn pack(
    how: Compression,
    pace: &Pace,
    groups: &[&[PageRef]],
    take: &mut dyn FnMut(usize, Packed) -> Result<()>,
) -> Result<()> {
    let total: usize = groups.iter().flat_map(|g| g.iter()).map(|p| p.len()).sum();
    let threads = stetfs_sync::processors().min(THREADS).min(groups.len());
    if total < ALONE || threads < 2 || how == Compression::None {
        for (i, group) in groups.iter().enumerate() {
            take(i, pack_one(how, pace, group))?;
        }
        return Ok(());
    }
    let next = AtomicUsize::new(0);
    let (send, ready) = stetfs_sync::timed::channel::unbounded();
    thread::scope(|scope| {
        for _ in 0..threads {
            let (send, next) = (send.clone(), &next);
            scope.spawn(move || {
                stetfs_sync::run_anywhere();
                loop {
                    let i = next.fetch_add(1, Ordering::Relaxed);
                    let Some(group) = groups.get(i) else { break };
                    // After an error no chunk is taken any more.
                    if send.send((i, pack_one(how, pace, group))).is_err() {
                        break;
                    }
                }
            });
        }
        drop(send);
        let mut early = BTreeMap::new();
        for (i, group) in groups.iter().enumerate() {
            let packed = loop {
                if let Some(packed) = early.remove(&i) {
                    break packed;
                }
                match ready.recv() {
                    Ok((j, packed)) => drop(early.insert(j, packed)),
                    // The thread that packed it has died: the chunk is stored raw.
                    Err(_) => break pack_one(Compression::None, pace, group),
                }
            };
            take(i, packed)?;
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use stetfs_cache::Page;
    use stetfs_ondisk::stet::checksum;

    use super::super::compress::unpack;
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
    fn packs_and_unpacks_in_order() {
        for how in ["none", "lz4", "zstd", "auto"] {
            let how: Compression = how.parse().unwrap_or_default();
            for (noise, count) in [(false, 200), (true, 200), (false, 3), (true, 3)] {
                let pages = pages(count, noise);
                let groups: Vec<&[PageRef]> = pages.chunks(16).collect();
                let mut seen = 0;
                let result = pack(how, &Pace::default(), &groups, &mut |i, packed| {
                    assert_eq!(i, seen);
                    seen += 1;
                    let raw: Vec<u8> = groups[i].iter().flat_map(|p| p.to_vec()).collect();
                    let stored = packed.bytes.clone().unwrap_or_else(|| raw.clone());
                    let small = how != Compression::None && !noise;
                    assert_eq!(packed.bytes.is_some(), small, "{how:?} {noise}");
                    assert_eq!(packed.chunk.stored as usize, stored.len());
                    assert_eq!(packed.chunk.sum, checksum(&stored));
                    assert_eq!(unpack(&packed.chunk, &stored), Some(raw));
                    Ok(())
                });
                assert!(result.is_ok());
                assert_eq!(seen, groups.len());
            }
        }
    }

    #[test]
    fn an_error_ends_it() {
        let pages = pages(300, false);
        let groups: Vec<&[PageRef]> = pages.chunks(8).collect();
        let mut taken = 0;
        let result = pack(Compression::Lz4, &Pace::default(), &groups, &mut |_, _| {
            taken += 1;
            Err(crate::JournalError::ReadOnly)
        });
        assert!(result.is_err());
        assert_eq!(taken, 1);
    }
}
