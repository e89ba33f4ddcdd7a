//! Measures a hit and a miss in the cache of a mounted volume (CLOCK): nanoseconds, the best of
//! five rounds. Run with `--release`.

use std::sync::Arc;
use std::time::Instant;

use stetfs_block::MemDevice;
use stetfs_cache::{Cache, CacheConfig, PolicyKind};

const BLOCK: usize = 4096;
/// Blocks of the cache.
const CAPACITY: u64 = 8192;
const LOOKS: u64 = 4_000_000;

fn best(mut round: impl FnMut() -> u64) -> f64 {
    let time = |round: &mut dyn FnMut() -> u64| {
        let begin = Instant::now();
        let done = round();
        begin.elapsed().as_nanos() as f64 / done as f64
    };
    (0..5)
        .map(|_| time(&mut round))
        .fold(f64::INFINITY, f64::min)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let device = Arc::new(MemDevice::new(CAPACITY * 8 * BLOCK as u64));
    let config = CacheConfig {
        block_size: BLOCK,
        capacity: CAPACITY * BLOCK as u64,
        policy: PolicyKind::Clock,
    };
    let cache: Cache<()> = Cache::new(device, config);
    // Half of the capacity, so that all of it stays.
    for nr in 0..CAPACITY / 2 {
        cache.read(nr)?;
    }
    let next = |i: u64| {
        let mixed = (i + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (mixed ^ mixed >> 32).wrapping_mul(0xD6E8_FEB8_6659_FD93) >> 20
    };
    let hit = best(|| {
        let found = (0..LOOKS).filter(|i| cache.lookup(next(*i) % (CAPACITY / 2)).is_some());
        found.count() as u64
    });
    let miss = best(|| {
        for i in 0..LOOKS / 8 {
            drop(cache.get(next(i) % (CAPACITY * 8)));
        }
        LOOKS / 8
    });
    println!(
        "hit {hit:.1} ns, use of which 7 of 8 miss {miss:.1} ns, {} evictions",
        cache.stats().evictions
    );
    Ok(())
}
