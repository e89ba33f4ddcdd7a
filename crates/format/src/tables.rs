//! Group descriptors and bitmaps.

use std::ops::Range;

use stetfs_ondisk::ext4::bitmap;
use stetfs_ondisk::ext4::checksum::ChecksumMode;
use stetfs_ondisk::ext4::group_desc::{GroupDesc, GroupFlags};
use stetfs_ondisk::ext4::superblock::Geometry;
use stetfs_ondisk::num::{bounded32, count32, to_usize};

use crate::batch::Batch;
use crate::error::Result;
use crate::files::Files;
use crate::groups::{Flex, GroupPlace, Groups, within};
use crate::settle::Settled;

/// Sums over all groups.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Totals {
    pub(crate) free_clusters: u64,
    pub(crate) free_inodes: u64,
    /// Clusters with metadata of groups.
    pub(crate) metadata_clusters: u64,
}

/// The writer of descriptors and bitmaps.
pub(crate) struct Tables<'a> {
    settled: &'a Settled,
    files: &'a Files,
    groups: &'a Groups<'a>,
    checksums: ChecksumMode,
    /// Whether the inode tables are zero.
    zeroed: bool,
    totals: Totals,
    /// Descriptors that are not written yet, in whole blocks: all of them, or with `meta_bg` those
    /// of one meta group.
    descs: Vec<u8>,
}

impl<'a> Tables<'a> {
    pub(crate) fn new(
        settled: &'a Settled,
        files: &'a Files,
        groups: &'a Groups<'a>,
        zeroed: bool,
    ) -> Self {
        Tables {
            settled,
            files,
            groups,
            checksums: settled.sb.checksum_mode(),
            zeroed,
            totals: Totals::default(),
            descs: Vec::new(),
        }
    }

    /// Writes the bitmaps of all groups and, with `meta_bg`, the descriptors. Returns the sums, and
    /// the descriptors that are not written.
    ///
    /// # Errors
    /// The device's.
    pub(crate) fn write(mut self, out: &mut Batch<'_>) -> Result<(Totals, Vec<u8>)> {
        for number in 0..self.groups.count() {
            let flex = self.groups.flex(number)?;
            for (group, place) in (flex.first_group..).zip(&flex.places) {
                self.group(group, place, &flex, out)?;
            }
        }
        let geo = &self.settled.geo;
        if geo.first_meta_bg.is_some() {
            self.send_meta_group(geo.group_count - 1, out)?;
        } else {
            let len = self.descs.len().next_multiple_of(block_len(geo));
            self.descs.resize(len, 0);
        }
        Ok((self.totals, self.descs))
    }

    fn group(
        &mut self,
        group: u32,
        place: &GroupPlace,
        flex: &Flex,
        out: &mut Batch<'_>,
    ) -> Result<()> {
        let geo = &self.settled.geo;
        let desc_len = usize::from(geo.desc_size);
        let mut desc = GroupDesc::zeroed(desc_len);
        desc.set_block_bitmap(place.block_bitmap);
        desc.set_inode_bitmap(place.inode_bitmap);
        desc.set_inode_table(place.inode_table);
        let mut flags = GroupFlags::empty();
        if self.checksums != ChecksumMode::None && self.zeroed {
            flags |= GroupFlags::INODE_ZEROED;
        }
        flags |= self.block_bitmap(group, place, flex, &mut desc, out)?;
        flags |= self.inode_bitmap(group, place, &mut desc, out)?;
        desc.set_flags(flags);
        let at = self.descs.len();
        self.descs.resize(at + desc_len, 0);
        if let Some(bytes) = self.descs.get_mut(at..) {
            desc.encode_with_checksum(bytes, group, &self.checksums)?;
        }
        let is_last_of_block = (group + 1).is_multiple_of(geo.descs_per_block());
        if geo.first_meta_bg.is_some() && is_last_of_block {
            self.send_meta_group(group, out)?;
        }
        Ok(())
    }

    /// Makes the block bitmap, and writes it unless the group is left as never used
    /// (`BLOCK_UNINIT`): then nothing is in use but its own metadata.
    fn block_bitmap(
        &mut self,
        group: u32,
        place: &GroupPlace,
        flex: &Flex,
        desc: &mut GroupDesc,
        out: &mut Batch<'_>,
    ) -> Result<GroupFlags> {
        let geo = &self.settled.geo;
        let bounds = geo.group_blocks(group);
        let clusters = geo.group_clusters(group);
        let metadata: Vec<_> = within(&flex.metadata, &bounds).collect();
        let data: Vec<_> = within(&self.files.taken, &bounds).collect();
        let is_last = group + 1 == geo.group_count;
        let untouched = self.checksums != ChecksumMode::None
            && !is_last
            && blocks(&metadata) + blocks(&data) == self.own_blocks(group, place);
        if untouched && metadata.is_empty() {
            desc.set_free_clusters(clusters);
            self.totals.free_clusters += u64::from(clusters);
            return Ok(GroupFlags::BLOCK_UNINIT);
        }
        let mut map = vec![0; block_len(geo)];
        let mut set = |ranges: &[Range<u64>]| {
            let bits = ranges.iter().map(|r| bits(geo, bounds.start, r));
            bits.map(|bits| bitmap::set_range(&mut map, bits)).sum()
        };
        let of_metadata: usize = set(&metadata);
        let of_files: usize = set(&data);
        let free = clusters - count32(of_metadata + of_files);
        desc.set_free_clusters(free);
        self.totals.free_clusters += u64::from(free);
        self.totals.metadata_clusters += of_metadata as u64;
        if untouched {
            return Ok(GroupFlags::BLOCK_UNINIT);
        }
        bitmap::set_padding(&mut map, to_usize(u64::from(clusters)));
        if let Some(seed) = self.checksums.metadata_seed() {
            desc.set_block_bitmap_csum(bitmap::checksum(seed, &map, geo.clusters_per_group));
        }
        out.push(place.block_bitmap, map)?;
        Ok(GroupFlags::empty())
    }

    /// Blocks of the group itself that hold its own metadata.
    fn own_blocks(&self, group: u32, place: &GroupPlace) -> u64 {
        let geo = &self.settled.geo;
        let bounds = geo.group_blocks(group);
        let table_end = place.inode_table + u64::from(geo.inode_table_blocks());
        let own = [
            self.groups.head(group),
            place.block_bitmap..place.block_bitmap + 1,
            place.inode_bitmap..place.inode_bitmap + 1,
            place.inode_table..table_end,
        ];
        let inside = own.map(|r| r.start.max(bounds.start)..r.end.min(bounds.end));
        blocks(&inside)
    }

    fn inode_bitmap(
        &mut self,
        group: u32,
        place: &GroupPlace,
        desc: &mut GroupDesc,
        out: &mut Batch<'_>,
    ) -> Result<GroupFlags> {
        let geo = &self.settled.geo;
        let used = if group == 0 { self.settled.last_ino } else { 0 };
        let free = geo.inodes_per_group - used;
        desc.set_free_inodes(free);
        desc.set_used_dirs(if group == 0 { 2 } else { 0 });
        self.totals.free_inodes += u64::from(free);
        if self.checksums != ChecksumMode::None {
            desc.set_itable_unused(free);
            if used == 0 {
                return Ok(GroupFlags::INODE_UNINIT);
            }
        }
        let mut map = vec![0; block_len(geo)];
        let len = |n: u32| to_usize(u64::from(n));
        bitmap::set_range(&mut map, 0..len(used));
        bitmap::set_padding(&mut map, len(geo.inodes_per_group));
        if let Some(seed) = self.checksums.metadata_seed() {
            desc.set_inode_bitmap_csum(bitmap::checksum(seed, &map, geo.inodes_per_group));
        }
        out.push(place.inode_bitmap, map)?;
        Ok(GroupFlags::empty())
    }

    /// Writes the block of descriptors that ends with that of `last`, in the three groups of its
    /// meta group that have a copy.
    fn send_meta_group(&mut self, last: u32, out: &mut Batch<'_>) -> Result<()> {
        if self.descs.is_empty() {
            return Ok(());
        }
        let geo = &self.settled.geo;
        let per_block = geo.descs_per_block();
        let first = last / per_block * per_block;
        let mut block = std::mem::take(&mut self.descs);
        block.resize(block_len(geo), 0);
        let copies = [first, first + 1, first + per_block - 1];
        let mut done = None;
        for group in copies.into_iter().filter(|g| *g < geo.group_count) {
            let Some((primary, _)) = geo.desc_position(first) else {
                continue;
            };
            let nr = match group == first {
                true => primary,
                false => geo.group_first_block(group) + u64::from(geo.has_super(group)),
            };
            if done != Some(nr) {
                out.push(nr, block.clone())?;
            }
            done = Some(nr);
        }
        Ok(())
    }
}

/// Bytes of a block.
fn block_len(geo: &Geometry) -> usize {
    to_usize(u64::from(geo.block_size))
}

/// Number of blocks in the ranges; an inverted one has none.
fn blocks(ranges: &[Range<u64>]) -> u64 {
    let lens = ranges.iter().map(|r| r.end.saturating_sub(r.start));
    lens.sum()
}

/// The bits of a range of blocks in the bitmap of a group that begins with block `start`.
fn bits(geo: &Geometry, start: u64, range: &Range<u64>) -> Range<usize> {
    let ratio = geo.blocks_per_cluster;
    let first = bounded32(range.start - start) / ratio;
    let end = bounded32(range.end - start).div_ceil(ratio);
    to_usize(u64::from(first))..to_usize(u64::from(end))
}
