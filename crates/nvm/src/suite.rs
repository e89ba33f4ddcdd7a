//! The conformance suite: checks of every [`Region`] implementation, called by the tests of each.
//!
//! A check panics when the region is wrong. All are repeatable: the same seed makes the same calls.

use std::sync::atomic::{AtomicBool, Ordering};

use stetfs_block::BlockError;

use crate::{LINE, Region, WORD};

/// Runs all checks. The content before and after is unspecified. The region should have at least 4
/// KiB and not more than some MiB, as all of it is read often.
pub fn check_all(region: &dyn Region, seed: u64) {
    random_calls(region, seed, 400);
    words_are_little_endian(region);
    bounds_are_kept(region);
    parallel_stores_to_one_word(region);
    a_flag_shows_what_was_stored_before_it(region);
}

/// Random loads and stores of any size, aligned and not, with flushes and fences between, against a
/// model in memory.
pub fn random_calls(region: &dyn Region, seed: u64, rounds: u32) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let size = region.size();
    assert!(size >= 4096 && size.is_multiple_of(LINE));
    let mut model = vec![0; size as usize];
    rng.fill(&mut model);
    region.store(0, &model).unwrap();
    for round in 0..rounds {
        let unit = [1, WORD, LINE][rng.usize(..3)];
        let offset = rng.u64(..size) / unit * unit;
        let most = [24, 200, 3000][rng.usize(..3)];
        let len = rng.u64(..most).min(size - offset);
        let mine = offset as usize..(offset + len) as usize;
        match rng.u8(..10) {
            0..4 => {
                rng.fill(&mut model[mine.clone()]);
                region.store(offset, &model[mine]).unwrap();
            }
            4..7 => {
                let mut now = vec![0; len as usize];
                region.read(offset, &mut now).unwrap();
                assert_eq!(now, model[mine], "round {round}: {len} bytes at {offset}");
            }
            7 => region.flush(offset..offset + len).unwrap(),
            8 => region.persist(offset..offset + len).unwrap(),
            _ => region.fence().unwrap(),
        }
    }
    let mut all = vec![0; size as usize];
    region.read(0, &mut all).unwrap();
    assert!(all == model, "seed {seed}: the content differs at the end");
}

/// Words are little-endian and must be aligned.
pub fn words_are_little_endian(region: &dyn Region) {
    region.store_u64(8, 0x0102_0304_0506_0708).unwrap();
    let mut bytes = [0; 8];
    region.read(8, &mut bytes).unwrap();
    assert_eq!(bytes, [8, 7, 6, 5, 4, 3, 2, 1]);
    region.store(15, &[9]).unwrap();
    assert_eq!(region.load_u64(8).unwrap(), 0x0902_0304_0506_0708);
    for at in [1, 4, 15] {
        let unaligned = |e| assert!(matches!(e, BlockError::Unaligned { .. }), "{e}");
        unaligned(region.load_u64(at).unwrap_err());
        unaligned(region.store_u64(at, 0).unwrap_err());
    }
}

/// Calls beyond the end fail and change nothing.
pub fn bounds_are_kept(region: &dyn Region) {
    let size = region.size();
    let tail = size - 16;
    region.store(tail, &[7; 16]).unwrap();
    let beyond = |e| assert!(matches!(e, BlockError::OutOfRange { .. }), "{e}");
    for offset in [size - 15, size, size + 1, u64::MAX - 15, u64::MAX] {
        beyond(region.store(offset, &[1; 16]).unwrap_err());
        beyond(region.read(offset, &mut [0; 16]).unwrap_err());
        beyond(
            region
                .flush(offset..offset.saturating_add(16).max(size + 1))
                .unwrap_err(),
        );
    }
    for offset in [size, size + 8, u64::MAX - 7] {
        beyond(region.store_u64(offset, 1).unwrap_err());
        beyond(region.load_u64(offset).unwrap_err());
    }
    let mut now = [0; 16];
    region.read(tail, &mut now).unwrap();
    assert_eq!(now, [7; 16]);
    region.store(size, &[]).unwrap();
    region.read(size, &mut []).unwrap();
    region.persist(size..size).unwrap();
}

/// Concurrent stores to parts of one word do not overwrite each other.
pub fn parallel_stores_to_one_word(region: &dyn Region) {
    region.store_u64(0, 0).unwrap();
    std::thread::scope(|s| {
        for byte in 0..4u8 {
            s.spawn(move || {
                for value in 1..=200 {
                    region.store(2 * u64::from(byte), &[value; 2]).unwrap();
                    let mut now = [0; 2];
                    region.read(2 * u64::from(byte), &mut now).unwrap();
                    assert_eq!(now, [value; 2], "a neighbour's store took it");
                }
            });
        }
    });
    let mut now = [0; 8];
    region.read(0, &mut now).unwrap();
    assert_eq!(now, [200; 8]);
}

/// A reader that sees a flag sees the stores that its writer made before.
pub fn a_flag_shows_what_was_stored_before_it(region: &dyn Region) {
    region.store_u64(0, 0).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|s| {
        s.spawn(|| {
            for lap in 1..=500u64 {
                region.store(LINE, &lap.to_le_bytes().repeat(40)).unwrap();
                region.store_u64(0, lap).unwrap();
            }
            done.store(true, Ordering::Release);
        });
        while !done.load(Ordering::Acquire) {
            let lap = region.load_u64(0).unwrap();
            let mut words = [0; 320];
            region.read(LINE, &mut words).unwrap();
            let is_older = |word: &[u8]| u64::from_le_bytes(word.try_into().unwrap()) < lap;
            assert!(!words.chunks(8).any(is_older), "lap {lap}: {words:?}");
        }
    });
}
