//! The system zones: blocks that hold the file system's own structures and never file data.

use std::ops::Range;

use stetfs_ondisk::ext4::group_desc::GroupDesc;
use stetfs_ondisk::ext4::superblock::Geometry as Layout;

use crate::error::{FsError, Result};
use crate::types::BlockNr;
use stetfs_ondisk::num::count32;

/// Sorted, disjoint block ranges (ext4: `system_blks`).
#[derive(Debug, Default)]
pub(crate) struct Zones(Vec<(BlockNr, BlockNr)>);

impl Zones {
    /// The zones of a volume with these group descriptors.
    ///
    /// # Errors
    /// `Corrupt` when two of them share a block.
    pub(crate) fn new<'a>(
        layout: &Layout,
        descs: impl Iterator<Item = &'a GroupDesc>,
    ) -> Result<Zones> {
        let mut list = Vec::new();
        let table = u64::from(layout.inode_table_blocks());
        for (group, desc) in descs.enumerate() {
            let group = count32(group);
            let first = layout.group_first_block(group);
            let head = u64::from(layout.group_super_overhead(group));
            if head > 0 {
                list.push((first, first + head));
            }
            list.push((desc.block_bitmap(), desc.block_bitmap().saturating_add(1)));
            list.push((desc.inode_bitmap(), desc.inode_bitmap().saturating_add(1)));
            list.push((desc.inode_table(), desc.inode_table().saturating_add(table)));
        }
        list.sort_unstable();
        if let Some(&[_, (start, _)]) = list.array_windows().find(|[a, b]| a.1 > b.0) {
            let detail = "two descriptors claim it for bitmaps or inode tables";
            return Err(FsError::corrupt("group descriptor", start, detail));
        }
        list.push((0, u64::from(layout.first_data_block) + 1));
        let mut zones = Zones(list);
        zones.merge();
        Ok(zones)
    }

    fn merge(&mut self) {
        self.0.sort_unstable();
        let mut out: Vec<(u64, u64)> = Vec::new();
        for (a, b) in self.0.drain(..) {
            match out.last_mut() {
                Some(last) if a <= last.1 => last.1 = last.1.max(b),
                _ => out.push((a, b)),
            }
        }
        out.shrink_to_fit();
        self.0 = out;
    }

    /// Adds further runs that belong to the file system, such as the journal's.
    pub(crate) fn add(&mut self, runs: impl Iterator<Item = (BlockNr, u64)>) {
        self.0
            .extend(runs.map(|(start, len)| (start, start.saturating_add(len))));
        self.merge();
    }

    /// The number of clusters, of `ratio` blocks each, that zones touch.
    pub(crate) fn clusters(&self, ratio: u64) -> u64 {
        let mut counted = 0;
        let mut seen = 0;
        for (start, end) in &self.0 {
            let (first, end) = ((start / ratio).max(seen), end.div_ceil(ratio));
            counted += end.saturating_sub(first);
            seen = end.max(seen);
        }
        counted
    }

    /// Whether the run touches a zone.
    pub(crate) fn touches(&self, start: BlockNr, len: u64) -> bool {
        self.within(start..start.saturating_add(len))
            .next()
            .is_some()
    }

    /// The parts of zones that lie in `range`.
    pub(super) fn within(&self, range: Range<BlockNr>) -> impl Iterator<Item = Range<BlockNr>> {
        let at = self.0.partition_point(|(_, end)| *end <= range.start);
        let zones = self.0.get(at..).unwrap_or_default().iter();
        zones
            .map(move |(start, end)| *start.max(&range.start)..*end.min(&range.end))
            .take_while(|part| !part.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_that_touch_a_zone_are_seen() {
        let mut z = Zones(vec![(10, 20), (0, 2), (20, 30)]);
        z.merge();
        z.add([(100, 5)].into_iter());
        assert_eq!(z.0, [(0, 2), (10, 30), (100, 105)]);
        assert!(z.touches(29, 1) && z.touches(5, 6) && z.touches(0, 1000) && z.touches(104, 1));
        assert_eq!((z.clusters(1), z.clusters(4)), (27, 1 + 6 + 2));
        assert!(!z.touches(30, 70) && !z.touches(2, 8) && !z.touches(105, 1));
    }
}
