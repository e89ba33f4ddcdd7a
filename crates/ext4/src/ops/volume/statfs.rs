//! Space and counters.

use crate::fs::Fs;
use crate::types::{FsStats, StatFs};

impl Fs {
    /// The answer of statfs(2), as the kernel's ext4 gives it.
    pub fn statfs(&self) -> StatFs {
        let ratio = u64::from(self.vol.geo.ratio());
        let bfree = self.space.free_blocks_count() * ratio;
        let withheld = self.vol.sb.reserved_blocks() + self.vol.sb.kept_clusters() * ratio;
        // The kernel combines the two halves of the UUID.
        let (a, b) = self.vol.geo.uuid.split_at(8);
        let half = |b: &[u8]| b.try_into().map_or(0, u64::from_le_bytes);
        StatFs {
            block_size: self.vol.geo.block_size,
            blocks: self
                .vol
                .geo
                .blocks_count
                .saturating_sub(self.vol.sb.overhead),
            bfree,
            bavail: bfree.saturating_sub(withheld),
            files: u64::from(self.vol.geo.inodes_count),
            ffree: self.space.free_inodes_count(),
            namelen: 255,
            fsid: half(a) ^ half(b),
        }
    }

    /// Counters since the volume was opened.
    pub fn stats(&self) -> FsStats {
        let (inodes, lookups) = self.inodes.counts();
        let (groups_searched, words_searched) = self.space.search_cost();
        FsStats {
            cache: self.vol.cache.stats(),
            journal: self.vol.journal.stats(),
            latency: self.vol.journal.latency(),
            packing_note: self.vol.journal.codec_note(),
            sync_reasons: self.data.sync_reasons(),
            groups_searched,
            words_searched,
            dirty_bytes: self.data.dirty_bytes(),
            inodes,
            lookups,
            failed: self
                .vol
                .sb
                .failures
                .get()
                .map(|all| all.snapshot())
                .unwrap_or_default(),
        }
    }
}
