//! Upper bounds of the blocks that recovery needs to apply a record (replay.A3).
//!
//! Recovery applies the record to the state of the last commit, or to one between that and the
//! state in which the record was written. The bounds hold for all of these states.

use stetfs_ondisk::ext4::extent::MAX_DEPTH;
use stetfs_ondisk::ext4::htree::NodeKind;
use stetfs_ondisk::ext4::inode::{InodeFlags, LINK_MAX};
use stetfs_ondisk::stet::record::FileRecord;

use crate::data::maps::credits::append_dir_space;
use crate::data::store::DataStore;
use crate::durability::NAMES;
use crate::inode::InodeBody;

/// The most blocks by which a directory grows for one name: a leaf, and each level of its index.
const DIR_BLOCKS: u32 = 4;
/// Blocks of a new directory, and of a directory whose entries move out of its inode: entries,
/// attributes.
const FIRST_BLOCKS: u64 = 2;
/// The least number of extents that a node has room for after a split: half of those of a block of
/// 1 KiB.
const ROOM: u64 = 40;

impl DataStore {
    /// The most blocks that applying this record of a file with this map takes beyond those that
    /// the record names.
    pub(in crate::data) fn redo_space(&self, body: &InodeBody, record: &FileRecord) -> u64 {
        if self.vol.opts.canary.redo_unpromised {
            return 0;
        }
        let nodes = record.dirs.iter().chain([&record.file]);
        let names = nodes.filter(|node| node.name.is_some()).count() as u64;
        let a_name = append_dir_space(DIR_BLOCKS) + FIRST_BLOCKS;
        names * a_name + self.map_redo_space(body, record)
    }

    /// Blocks for the map. With extents, each run goes into one place of the tree, and each range
    /// has two ends. Each place may split its leaf, and some places the nodes above.
    fn map_redo_space(&self, body: &InodeBody, record: &FileRecord) -> u64 {
        let runs = || record.ranges.iter().flat_map(|range| &range.runs);
        if record.ranges.is_empty() {
            return 0;
        }
        if !body.flags().contains(InodeFlags::EXTENTS) {
            return runs()
                .map(|run| self.map_space(body, u64::from(run.len)))
                .sum();
        }
        let places = runs().count() as u64 + 2 * record.ranges.len() as u64;
        places + places / ROOM + u64::from(MAX_DEPTH) + 1
    }

    /// Whether a directory, in its state of the last commit, can surely take the names that records
    /// make in it. A directory does not shrink, so it had no more blocks then than now. And too few
    /// of its names were removed since for it to have been full of subdirectories.
    pub(crate) fn redo_has_room(&self, dir: &InodeBody) -> bool {
        let geo = &self.vol.geo;
        let index = geo.index_layout();
        let block_size = geo.block_size as usize;
        let limit = |kind| index.limit(kind, block_size) as u64;
        // An index is never full before all its nodes are half full, because nodes are split.
        let half = limit(NodeKind::Node) / 2;
        let least = half.pow(u32::from(index.max_levels)) * limit(NodeKind::Root);
        let most = least.min(geo.max_dir_size() >> geo.block_bits);
        let links = u64::from(dir.links()) + NAMES as u64;
        links < u64::from(LINK_MAX) && dir.size() >> geo.block_bits < most / 2
    }
}
