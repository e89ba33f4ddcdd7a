//! Access to the blocks of a journal, to change them.

use std::sync::Arc;

use fastrand::Rng;
use stetfs::low::{BlockDevice, MemDevice};
use stetfs_ondisk::jbd2::{Config, JournalSuperblock};
use stetfs_testkit::Image;
use zerocopy::IntoBytes;

use super::judge::Dirty;

/// A journal inside a volume.
pub struct Log {
    /// The block numbers of the journal on the volume.
    blocks: Vec<u64>,
    size: usize,
    pub sb: JournalSuperblock,
    /// Log blocks with records, oldest first: headers, and the blocks that follow them.
    pub live: Vec<usize>,
    /// The log blocks in `live` that begin with a header.
    pub heads: Vec<usize>,
    /// The number of the first transaction that is not replayed.
    pub end: u32,
}

impl Log {
    /// Finds the journal; `None` if it is not on the volume, or its map has blocks of its own.
    pub fn find(dirty: &Dirty) -> Option<Log> {
        if dirty.journal.is_some() {
            return None;
        }
        let image = Image::sparse(0).unwrap();
        dirty.volume.save(image.path()).unwrap();
        let blocks: Vec<u64> = image
            .debugfs_of_damaged("blocks <8>")
            .unwrap()
            .split_whitespace()
            .map(|nr| nr.parse().unwrap())
            .collect();
        let found = stetfs::low::inspect(Arc::new(dirty.volume.fork()), None).unwrap();
        let size = found.superblock.geometry().unwrap().block_size;
        let log = found.log?;
        let mut bytes = vec![0; size as usize];
        dirty
            .volume
            .read(blocks.first()? * u64::from(size), &mut bytes)
            .unwrap();
        let sb = JournalSuperblock::decode(&bytes, size, blocks.len() as u64).ok()?;
        if sb.s_maxlen.get() as usize != blocks.len() {
            return None;
        }
        let (mut heads, mut tid) = (Vec::new(), 0);
        log.walk(&mut |record| {
            heads.push(record.at as usize);
            tid = record.tid;
            Ok(())
        })
        .unwrap();
        // The last header marks the end of the log.
        let end = heads.pop()?;
        let mut log = Log {
            blocks,
            size: size as usize,
            sb,
            live: Vec::new(),
            heads,
            end: tid as u32,
        };
        let mut at = sb.s_start.get() as usize;
        while at != 0 && at != end {
            log.live.push(at);
            at = log.moved(at, 1);
        }
        (!log.live.is_empty()).then_some(log)
    }

    /// The range of log blocks that form the ring.
    pub fn ring(&self) -> std::ops::Range<usize> {
        self.sb.s_first.get() as usize..self.sb.ring_end() as usize
    }

    /// The log block `by` blocks further in the ring.
    pub fn moved(&self, at: usize, by: usize) -> usize {
        let ring = self.ring();
        ring.start + (at - ring.start + by) % ring.len()
    }

    pub fn config(&self) -> Config {
        self.sb.config()
    }

    pub fn read(&self, volume: &MemDevice, at: usize) -> Vec<u8> {
        let mut bytes = vec![0; self.size];
        let from = self.blocks[at] * self.size as u64;
        volume.read(from, &mut bytes).unwrap();
        bytes
    }

    pub fn write(&self, volume: &MemDevice, at: usize, bytes: &[u8]) {
        let to = self.blocks[at] * self.size as u64;
        volume.write(to, bytes).unwrap();
    }

    /// Writes the superblock back, with its checksum.
    pub fn write_superblock(&mut self, volume: &MemDevice) {
        self.sb.update_checksum();
        let mut bytes = self.read(volume, 0);
        bytes[..1024].copy_from_slice(self.sb.as_bytes());
        self.write(volume, 0, &bytes);
    }

    /// Moves everything in the ring, so that it wraps elsewhere, mostly within `live`; returns the
    /// distance in blocks.
    pub fn rotate(&mut self, dirty: &Dirty, rng: &mut Rng) -> usize {
        let ring = self.ring();
        let start = self.sb.s_start.get() as usize;
        let by = if rng.u8(0..4) == 0 {
            rng.usize(..ring.len())
        } else {
            let back = rng.usize(1..=self.live.len().min(ring.len()));
            (2 * ring.len() - (start - ring.start) - back) % ring.len()
        };
        let all: Vec<Vec<u8>> = ring
            .clone()
            .map(|at| self.read(&dirty.volume, at))
            .collect();
        for (at, bytes) in ring.zip(&all) {
            self.write(&dirty.volume, self.moved(at, by), bytes);
        }
        let moved = |at: &usize| self.moved(*at, by);
        let (live, heads) = (
            self.live.iter().map(moved).collect(),
            self.heads.iter().map(moved).collect(),
        );
        self.sb.s_start = (self.moved(start, by) as u32).into();
        (self.live, self.heads) = (live, heads);
        self.write_superblock(&dirty.volume);
        by
    }
}
