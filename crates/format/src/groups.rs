//! The places of the metadata of groups.
//!
//! A flex group is 2^`s_log_groups_per_flex` groups, one without `flex_bg`. The bitmaps and inode
//! tables of its groups lie behind the descriptors of its first group: block bitmaps, inode
//! bitmaps, tables. What does not fit there continues in its next groups. Flex groups are computed
//! one at a time, so that a volume of millions of groups takes no memory.

use std::ops::Range;

use stetfs_ondisk::ext4::superblock::{Geometry, Superblock};

use crate::error::{Result, size};

/// The groups of a new volume.
#[derive(Debug, Clone)]
pub(crate) struct Groups<'a> {
    geo: &'a Geometry,
    /// Groups of a flex group.
    flex: u32,
}

/// The bitmaps and the table of one group, block numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GroupPlace {
    pub(crate) block_bitmap: u64,
    pub(crate) inode_bitmap: u64,
    pub(crate) inode_table: u64,
}

/// The layout of one flex group.
#[derive(Debug, Clone)]
pub(crate) struct Flex {
    pub(crate) first_group: u32,
    /// By group.
    pub(crate) places: Vec<GroupPlace>,
    /// Blocks of metadata, sorted and disjoint.
    pub(crate) metadata: Vec<Range<u64>>,
    /// All other blocks, sorted and disjoint.
    pub(crate) free: Vec<Range<u64>>,
}

impl<'a> Groups<'a> {
    pub(crate) fn new(geo: &'a Geometry, sb: &Superblock) -> Groups<'a> {
        Groups {
            geo,
            flex: 1 << sb.log_groups_per_flex,
        }
    }

    /// Number of flex groups.
    pub(crate) fn count(&self) -> u32 {
        self.geo.group_count.div_ceil(self.flex)
    }

    /// Blocks at the start of a group for the superblock, descriptors and reserved descriptors.
    pub(crate) fn head(&self, group: u32) -> Range<u64> {
        let start = self.geo.group_first_block(group);
        let mut end = start + u64::from(self.geo.group_super_overhead(group));
        // With clusters the boot block belongs to group 0, and the superblock is in block 1.
        if group == 0 && self.geo.block_size == 1024 && self.geo.first_data_block == 0 {
            end += 1;
        }
        start..end.min(self.geo.group_blocks(group).end)
    }

    /// Lays out a flex group.
    ///
    /// # Errors
    /// Its metadata does not fit.
    pub(crate) fn flex(&self, number: u32) -> Result<Flex> {
        let first_group = number * self.flex;
        let end = (first_group + self.flex).min(self.geo.group_count);
        let groups = first_group..end;
        let mut metadata = Vec::new();
        let mut free: Vec<Range<u64>> = Vec::new();
        for group in groups.clone() {
            let head = self.head(group);
            let rest = head.end..self.geo.group_blocks(group).end;
            match free.last_mut() {
                Some(last) if last.end == rest.start => last.end = rest.end,
                _ => free.push(rest),
            }
            if !head.is_empty() {
                metadata.push(head);
            }
        }
        let mut take = |len: u64| take(&mut free, &mut metadata, len);
        let bitmaps = |take: &mut dyn FnMut(u64) -> Option<u64>| -> Option<Vec<u64>> {
            groups.clone().map(|_| take(1)).collect()
        };
        let table = u64::from(self.geo.inode_table_blocks());
        let places = (|| {
            let of_blocks = bitmaps(&mut take)?;
            let of_inodes = bitmaps(&mut take)?;
            let tables: Option<Vec<u64>> = groups.clone().map(|_| take(table)).collect();
            let both = of_blocks.into_iter().zip(of_inodes).zip(tables?);
            Some(
                both.map(|((block_bitmap, inode_bitmap), inode_table)| GroupPlace {
                    block_bitmap,
                    inode_bitmap,
                    inode_table,
                }),
            )
        })();
        let Some(places) = places else {
            return size(format!(
                "the metadata of groups {first_group} to {} does not fit in them: give the volume \
                 more room or fewer inodes (--inode-ratio)",
                end - 1
            ));
        };
        let places = places.collect();
        metadata.sort_by_key(|r| r.start);
        free.retain(|r| !r.is_empty());
        Ok(Flex {
            first_group,
            places,
            metadata: merged(metadata),
            free,
        })
    }
}

/// Takes `len` blocks from the first range that has them.
fn take(free: &mut [Range<u64>], taken: &mut Vec<Range<u64>>, len: u64) -> Option<u64> {
    let from = free.iter_mut().find(|r| r.end - r.start >= len)?;
    let start = from.start;
    from.start += len;
    taken.push(start..from.start);
    Some(start)
}

/// The same blocks in as few ranges as possible.
fn merged(sorted: Vec<Range<u64>>) -> Vec<Range<u64>> {
    let mut all: Vec<Range<u64>> = Vec::new();
    for range in sorted {
        match all.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => all.push(range),
        }
    }
    all
}

/// The parts of sorted, disjoint ranges inside `bounds`.
pub(crate) fn within<'r>(
    sorted: &'r [Range<u64>],
    bounds: &Range<u64>,
) -> impl Iterator<Item = Range<u64>> + 'r {
    let (start, end) = (bounds.start, bounds.end);
    let from = sorted.partition_point(|r| r.end <= start);
    sorted
        .get(from..)
        .unwrap_or_default()
        .iter()
        .take_while(move |r| r.start < end)
        .map(move |r| r.start.max(start)..r.end.min(end))
}
