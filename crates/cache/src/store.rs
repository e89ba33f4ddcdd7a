//! The buffer cache: shards over a device, with read-ahead and statistics.

use std::sync::Arc;

use stetfs_block::{BlockDevice, ReadList, Result};
use stetfs_sync::timed::{
    Mutex,
    atomic::{AtomicU64, Ordering},
};

use crate::block::Block;
use crate::page::Page;
use crate::policy::{Costs, PolicyKind, Shape};
use crate::shard::Shard;

/// Size and policy of a cache.
#[derive(Clone, Copy, Debug)]
pub struct CacheConfig {
    /// Bytes in a block (and a page): 1, 2 or 4 KiB … 64 KiB.
    pub block_size: usize,
    /// Upper bound of clean pages, in bytes. Held (dirty or pinned) pages may exceed it for a
    /// moment.
    pub capacity: u64,
    /// The policy that chooses the block to evict.
    pub policy: PolicyKind,
}

/// Counters since the cache was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// Look-ups that found the block loaded.
    pub hits: u64,
    /// Look-ups that read from the device.
    pub misses: u64,
    /// Blocks evicted to make room for others.
    pub evictions: u64,
    /// File blocks written back.
    pub written: u64,
    /// Runs of adjacent blocks in which they were written.
    pub write_runs: u64,
    /// Blocks in the cache now.
    pub blocks: u64,
    /// Bytes held by pages now.
    pub bytes: u64,
}

const SHARDS: usize = 64;

/// Minimum capacity of a shard in erase blocks, under a policy that works by erase block.
const ERASE_BLOCKS: usize = 8;

/// Minimum capacity of a shard in blocks.
const LEAST: usize = 4;

/// Blocks evicted from a shard under one hold of its lock when the cache shrinks.
const STEP: u64 = 256;

/// Default size of an erase block in bytes.
const ERASE_BLOCK: u64 = 4 << 20;

/// A buffer cache over a device, sharded by block number, or by erase block under a policy that
/// works by erase block.
pub struct Cache<X> {
    device: Arc<dyn BlockDevice>,
    block_size: usize,
    shards: Box<[Mutex<Shard<X>>]>,
    /// Number of adjacent blocks that share a shard.
    neighbours: u64,
    /// Whether the policy tracks dirty blocks.
    minds_dirt: bool,
    hits: AtomicU64,
    misses: AtomicU64,
    evictions: AtomicU64,
    written: AtomicU64,
    write_runs: AtomicU64,
}

/// The capacity in pages of each of `shards` shards.
fn each(pages: usize, shards: usize) -> usize {
    (pages / shards).max(LEAST)
}

impl<X: Default> Cache<X> {
    /// An empty cache over `device`, with erase blocks of the default size.
    pub fn new(device: Arc<dyn BlockDevice>, config: CacheConfig) -> Cache<X> {
        Cache::with_erase_block(device, config, ERASE_BLOCK)
    }

    /// An empty cache over `device`, with erase blocks of `erase_block` bytes.
    pub fn with_erase_block(
        device: Arc<dyn BlockDevice>,
        config: CacheConfig,
        erase_block: u64,
    ) -> Cache<X> {
        let block_size = config.block_size.max(1) as u64;
        let pages = (config.capacity / block_size) as usize;
        let erase_block = (erase_block / block_size).max(1);
        let (shards, neighbours) = match config.policy.by_erase_block() {
            true => {
                let room = pages / (ERASE_BLOCKS * erase_block as usize);
                (room.clamp(1, SHARDS), erase_block)
            }
            false => (SHARDS, 1),
        };
        let shape = Shape {
            capacity: each(pages, shards),
            erase_block,
            costs: Costs::default(),
        };
        Cache {
            device,
            block_size: config.block_size,
            shards: (0..shards)
                .map(|_| Mutex::new(Shard::new(config.policy, shape)))
                .collect(),
            neighbours,
            minds_dirt: config.policy.minds_dirt(),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            evictions: AtomicU64::new(0),
            written: AtomicU64::new(0),
            write_runs: AtomicU64::new(0),
        }
    }

    /// Bytes in a block.
    pub fn block_size(&self) -> usize {
        self.block_size
    }

    /// The device below.
    pub fn device(&self) -> &Arc<dyn BlockDevice> {
        &self.device
    }

    fn shard(&self, nr: u64) -> &Mutex<Shard<X>> {
        // If sharded by block, runs of 64 blocks spread evenly, and adjacent blocks go to different
        // shards.
        let nr = if self.neighbours == 1 {
            nr
        } else {
            nr / self.neighbours
        };
        &self.shards[(nr % self.shards.len() as u64) as usize]
    }

    /// The block with its content, read from the device if it is not cached.
    ///
    /// # Errors
    /// The device's read error; the block stays unloaded and a later call tries again.
    pub fn read(&self, nr: u64) -> Result<Arc<Block<X>>> {
        let block = self.get(nr);
        if block.load(&*self.device, self.block_size)? {
            self.misses.fetch_add(1, Ordering::Relaxed);
        } else {
            self.hits.fetch_add(1, Ordering::Relaxed);
        }
        Ok(block)
    }

    /// The block without reading it, for a caller that sets its content.
    pub fn get(&self, nr: u64) -> Arc<Block<X>> {
        let (block, evicted) = self.shard(nr).lock().get_or_insert(nr);
        if evicted > 0 {
            self.evictions.fetch_add(evicted, Ordering::Relaxed);
        }
        block
    }

    /// The block if it is cached with content.
    pub fn lookup(&self, nr: u64) -> Option<Arc<Block<X>>> {
        let block = self.shard(nr).lock().get(nr).cloned()?;
        block.peek()?;
        self.hits.fetch_add(1, Ordering::Relaxed);
        Some(block)
    }

    /// The block if it is cached, loaded or not. Does not count as a use.
    pub fn find(&self, nr: u64) -> Option<Arc<Block<X>>> {
        self.shard(nr).lock().find(nr).cloned()
    }

    /// Reads ahead: loads the blocks of `first..first + count` that are not cached, in one batch.
    ///
    /// # Errors
    /// The device's read error; nothing is cached then.
    pub fn prefetch(&self, first: u64, count: u64) -> Result<()> {
        let missing: Vec<u64> = (first..first.saturating_add(count))
            // `peek` runs outside the shard's lock: another thread may hold the block's lock for
            // long.
            .filter(|nr| self.find(*nr).is_none_or(|block| block.peek().is_none()))
            .collect();
        let mut pages: Vec<Page> = missing
            .iter()
            .map(|_| Page::to_be_read(self.block_size))
            .collect();
        // A concurrent write could create, commit, write back and evict one of these blocks while
        // the batch is under way. Arcs taken before the read (cache.C2) keep such newer content in
        // place.
        let blocks: Vec<_> = missing.iter().map(|nr| self.get(*nr)).collect();
        let mut reads = ReadList::new();
        for (page, nr) in pages.iter_mut().zip(&missing) {
            reads.push(nr * self.block_size as u64, page);
        }
        reads.submit(&*self.device)?;
        for (block, page) in blocks.iter().zip(pages) {
            block.fill(page);
        }
        self.misses
            .fetch_add(missing.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Drops a block whose content no longer matters (it was freed). Existing holders keep theirs.
    pub fn forget(&self, nr: u64) {
        self.shard(nr).lock().remove(nr);
    }

    /// A block became dirty with data that is written back later.
    pub fn dirtied(&self, nr: u64) {
        if self.minds_dirt {
            self.shard(nr).lock().dirtied(nr);
        }
    }

    /// The data of these blocks, in ascending order, has been written back.
    pub fn written(&self, nrs: impl Iterator<Item = u64>) {
        let (mut blocks, mut runs, mut last) = (0, 0, None);
        for nr in nrs {
            blocks += 1;
            runs += u64::from(last.is_none_or(|last| last + 1 != nr));
            last = Some(nr);
            if self.minds_dirt {
                self.shard(nr).lock().written(nr);
            }
        }
        self.written.fetch_add(blocks, Ordering::Relaxed);
        self.write_runs.fetch_add(runs, Ordering::Relaxed);
    }

    /// Drops every block that only the cache holds: a cold cache, for tests and benchmarks.
    pub fn drop_clean(&self) {
        for shard in &self.shards {
            shard.lock().drop_clean();
        }
    }

    /// Sets the upper bound of clean pages, in bytes. Surplus blocks are evicted before this
    /// returns, except held ones. Concurrent callers wait for one short step at most. The policy's
    /// internal divisions keep the sizes of the first bound.
    pub fn set_capacity(&self, bytes: u64) {
        let pages = bytes / self.block_size.max(1) as u64;
        let each = each(pages as usize, self.shards.len());
        for shard in &self.shards {
            shard.lock().set_capacity(each);
            loop {
                let gone = shard.lock().shrink(STEP);
                self.evictions.fetch_add(gone, Ordering::Relaxed);
                if gone == 0 {
                    break;
                }
            }
        }
    }

    /// Current counters and sizes.
    pub fn stats(&self) -> CacheStats {
        let blocks: u64 = self.shards.iter().map(|s| s.lock().len() as u64).sum();
        CacheStats {
            hits: self.hits.load(Ordering::Relaxed),
            misses: self.misses.load(Ordering::Relaxed),
            evictions: self.evictions.load(Ordering::Relaxed),
            written: self.written.load(Ordering::Relaxed),
            write_runs: self.write_runs.load(Ordering::Relaxed),
            blocks,
            bytes: blocks * self.block_size as u64,
        }
    }
}
