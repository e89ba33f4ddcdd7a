//! The blocks that applying a record may take of the volume at most (replay.A3).
//!
//! The record is applied to the older state of the last commit, or to what is between that and the
//! state that it was written in. The bounds hold for all of these states.

use stetfs_ondisk::ext4::extent::MAX_DEPTH;
use stetfs_ondisk::ext4::htree::NodeKind;
use stetfs_ondisk::ext4::inode::{InodeFlags, LINK_MAX};
use stetfs_ondisk::stet::record::FileRecord;

use super::credits::append_dir_space;
use super::store::DataStore;
use crate::durability::NAMES;
use crate::inode::InodeBody;

/// Blocks that a directory grows by for one name, at most: a leaf, and each level of its index.
const DIR_BLOCKS: u32 = 4;
/// Blocks of a new directory, and of one whose entries move out of its inode: entries, attributes.
const FIRST_BLOCKS: u64 = 2;
/// Extents that a node of a tree which was just split has room for, at least: half of those of a
/// block of 1 KiB.
const ROOM: u64 = 40;

impl DataStore {
    /// Blocks that applying this record of a file with this map may take beyond those that it
    /// names.
    pub(super) fn redo_space(&self, body: &InodeBody, record: &FileRecord) -> u64 {
        if self.vol.opts.canary.redo_unpromised {
            return 0;
        }
        let nodes = record.dirs.iter().chain([&record.file]);
        let names = nodes.filter(|node| node.name.is_some()).count() as u64;
        let a_name = append_dir_space(DIR_BLOCKS) + FIRST_BLOCKS;
        names * a_name + self.map_redo_space(body, record)
    }

    /// Blocks for the map. With extents a run is put into one place of the tree, and a range has
    /// two ends; each place can have to split its leaf, and some of them the nodes above.
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

    /// Whether a directory, as it was at the last commit, certainly can take the names that records
    /// make in it. Directories do not shrink, so it had no more blocks than now; and not so many
    /// of its names went since that it was full of subdirectories.
    pub(crate) fn redo_has_room(&self, dir: &InodeBody) -> bool {
        let geo = &self.vol.geo;
        let index = geo.index_layout();
        let block_size = geo.block_size as usize;
        let limit = |kind| index.limit(kind, block_size) as u64;
        // An index is full at the earliest when all its nodes are half full: they were split.
        let half = limit(NodeKind::Node) / 2;
        let least = half.pow(u32::from(index.max_levels)) * limit(NodeKind::Root);
        let most = least.min(geo.max_dir_size() >> geo.block_bits);
        let links = u64::from(dir.links()) + NAMES as u64;
        links < u64::from(LINK_MAX) && dir.size() >> geo.block_bits < most / 2
    }
}
