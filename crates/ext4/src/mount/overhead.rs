//! The overhead: blocks that the kernel's statfs does not count as data blocks.

use stetfs_ondisk::ext4::superblock::{Geometry as Layout, Superblock};

use crate::space::Zones;

/// The overhead, blocks: as mke2fs stored it in the superblock, or else counted. `zones` are the
/// volume's own blocks.
pub(super) fn overhead(
    sb: &Superblock,
    layout: &Layout,
    zones: &Zones,
    journal_blocks: u64,
) -> u64 {
    let ratio = u64::from(layout.blocks_per_cluster.max(1));
    let stored = u64::from(sb.overhead_clusters.get());
    if stored > 0 && stored <= layout.blocks_count {
        return stored * ratio;
    }
    if ratio > 1 {
        return zones.clusters(ratio) * ratio;
    }
    let per_group = u64::from(layout.inode_table_blocks()) + 2;
    let groups: u64 = (0..layout.group_count)
        .map(|g| u64::from(layout.group_super_overhead(g)) + per_group)
        .sum();
    u64::from(layout.first_data_block) + groups + journal_blocks
}
