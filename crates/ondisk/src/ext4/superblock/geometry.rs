//! The geometry of a volume, computed from the superblock: sizes, counts, and the positions of each
//! group's metadata.

use super::{DYNAMIC_REV, GOOD_OLD_FIRST_INO, MAGIC, SUPERBLOCK_OFFSET, Superblock};
use crate::error::{OnDiskError, Result, corrupt};
use crate::ext4::features::{Compat, Incompat, RoCompat};
use crate::ext4::group_desc::{DESC_SIZE_64BIT, GroupDesc, MIN_DESC_SIZE};
use crate::num::{count16, low32};
use core::ops::Range;

/// Validated sizes and counts of a volume; arithmetic on them cannot overflow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Geometry {
    /// Bytes in a block: a power of two from 1024 to 65536.
    pub block_size: u32,
    /// Blocks in a cluster; 1 without bigalloc.
    pub blocks_per_cluster: u32,
    /// Blocks on the volume.
    pub blocks_count: u64,
    /// First block that belongs to a group.
    pub first_data_block: u32,
    /// Blocks in every group except perhaps the last.
    pub blocks_per_group: u32,
    /// Clusters in every group except perhaps the last; a block bitmap has that many bits.
    pub clusters_per_group: u32,
    /// Inodes in every group.
    pub inodes_per_group: u32,
    /// Inodes on the volume.
    pub inodes_count: u32,
    /// First inode that is not reserved.
    pub first_inode: u32,
    /// Bytes in an inode: a power of two from 128 to the block size.
    pub inode_size: u16,
    /// Bytes in a group descriptor.
    pub desc_size: u16,
    /// Number of groups.
    pub group_count: u32,
    /// Descriptor blocks reserved for growth after each descriptor table.
    pub reserved_gdt_blocks: u16,
    /// With `meta_bg`, the first meta block group; else `None`.
    pub first_meta_bg: Option<u32>,
    backups: Backups,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Backups {
    All,
    Sparse,
    Sparse2([u32; 2]),
}

fn bad(detail: String) -> OnDiskError {
    OnDiskError::Corrupt {
        what: "superblock",
        detail,
    }
}

/// The size of a block in bytes, and of a cluster in blocks.
fn units(sb: &Superblock) -> Result<(u32, u32)> {
    let log_block = sb.log_block_size.get();
    if log_block > 6 {
        return Err(bad(format!("block size 2^(10+{log_block})")));
    }
    let block_size = 1024u32 << log_block;
    let log_cluster = sb.log_cluster_size.get();
    let blocks_per_cluster = match log_cluster.checked_sub(log_block) {
        Some(shift) if has_clusters(sb) && log_cluster <= 20 => 1u32 << shift,
        Some(0) => 1,
        _ => {
            return Err(bad(format!(
                "cluster size 2^(10+{log_cluster}) with block size {block_size}"
            )));
        }
    };
    Ok((block_size, blocks_per_cluster))
}

fn has_clusters(sb: &Superblock) -> bool {
    sb.ro_compat().contains(RoCompat::BIGALLOC)
}

/// Checks that a bitmap block has a bit for each cluster of a group.
fn check_groups(sb: &Superblock, block_size: u32, blocks_per_cluster: u32) -> Result<()> {
    let blocks_per_group = sb.blocks_per_group.get();
    let clusters_per_group = sb.clusters_per_group.get();
    let bitmap_bits = block_size * 8;
    if clusters_per_group == 0
        || clusters_per_group > bitmap_bits
        || !clusters_per_group.is_multiple_of(8)
        || u64::from(blocks_per_group)
            != u64::from(clusters_per_group) * u64::from(blocks_per_cluster)
    {
        return Err(bad(format!(
            "{blocks_per_group} blocks and {clusters_per_group} clusters per group \
             ({blocks_per_cluster} blocks per cluster, bitmap of {bitmap_bits} bits)"
        )));
    }
    Ok(())
}

/// The size of an inode in bytes, after a check that inodes fit their blocks and their bitmap.
fn inode_size(sb: &Superblock, block_size: u32) -> Result<u16> {
    let dynamic = sb.rev_level.get() >= DYNAMIC_REV;
    let inode_size = if dynamic { sb.inode_size.get() } else { 128 };
    if !inode_size.is_power_of_two() || inode_size < 128 || u32::from(inode_size) > block_size {
        return Err(bad(format!("inode size {inode_size}")));
    }
    let first_inode = sb.first_inode();
    if first_inode < GOOD_OLD_FIRST_INO {
        return Err(bad(format!("first inode {first_inode}")));
    }
    let inodes_per_block = block_size / u32::from(inode_size);
    let inodes_per_group = sb.inodes_per_group.get();
    if inodes_per_group < inodes_per_block || inodes_per_group > block_size * 8 {
        return Err(bad(format!("{inodes_per_group} inodes per group")));
    }
    Ok(inode_size)
}

/// The size of a group descriptor in bytes.
fn desc_size(sb: &Superblock) -> Result<u16> {
    if !sb.incompat().contains(Incompat::BIT64) {
        return Ok(count16(MIN_DESC_SIZE));
    }
    let size = sb.desc_size.get();
    if usize::from(size) < DESC_SIZE_64BIT || size > 1024 || !size.is_power_of_two() {
        return Err(bad(format!("descriptor size {size}")));
    }
    Ok(size)
}

/// The number of groups, from the numbers of blocks and inodes.
fn group_count(sb: &Superblock, block_size: u32) -> Result<u32> {
    let blocks_count = sb.blocks_count();
    let first_data_block = sb.first_data_block.get();
    // A 1 KiB-block volume leaves the boot block out of group 0, except with bigalloc.
    let boot_block = u32::from(block_size == 1024 && !has_clusters(sb));
    if first_data_block != boot_block && !(block_size == 1024 && first_data_block <= 1) {
        return Err(bad(format!(
            "first data block {first_data_block} with block size {block_size}"
        )));
    }
    let data_blocks = blocks_count
        .checked_sub(u64::from(first_data_block))
        .filter(|n| *n > 0)
        .ok_or_else(|| {
            bad(format!(
                "{blocks_count} blocks, the first of them {first_data_block}"
            ))
        })?;
    // The last byte must have a signed 64-bit offset, as in files and devices.
    if blocks_count > (i64::MAX as u64) / u64::from(block_size) {
        return Err(bad(format!("{blocks_count} blocks of {block_size} bytes")));
    }
    let per_group = sb.blocks_per_group.get();
    let groups = data_blocks.div_ceil(u64::from(per_group));
    let groups = u32::try_from(groups)
        .map_err(|_| bad(format!("{blocks_count} blocks in groups of {per_group}")))?;
    let (inodes, per_group) = (sb.inodes_count.get(), sb.inodes_per_group.get());
    if u64::from(groups) * u64::from(per_group) != u64::from(inodes) {
        return Err(bad(format!(
            "{inodes} inodes for {groups} groups of {per_group}"
        )));
    }
    Ok(groups)
}

impl Superblock {
    /// Decodes and validates the 1024 bytes at [`SUPERBLOCK_OFFSET`]. It neither verifies the
    /// checksum (see [`verify_checksum`](Self::verify_checksum)) nor refuses features, which is
    /// left to the mount.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let sb = Self::decode_unchecked(bytes)?;
        sb.geometry()?;
        Ok(sb)
    }

    /// Validates the superblock and computes the volume's geometry.
    pub fn geometry(&self) -> Result<Geometry> {
        Geometry::from_superblock(self)
    }
}

impl Geometry {
    fn from_superblock(sb: &Superblock) -> Result<Self> {
        if sb.magic.get() != MAGIC {
            return Err(bad(format!(
                "magic {:#06x} instead of {MAGIC:#06x}",
                sb.magic.get()
            )));
        }
        if sb.rev_level.get() > DYNAMIC_REV {
            return Err(OnDiskError::Unsupported {
                feature: format!("revision level {}", sb.rev_level.get()),
            });
        }
        let (block_size, blocks_per_cluster) = units(sb)?;
        check_groups(sb, block_size, blocks_per_cluster)?;
        let reserved_gdt_blocks = sb.reserved_gdt_blocks.get();
        if u64::from(reserved_gdt_blocks) > u64::from(block_size) / 4 {
            return Err(bad(format!(
                "{reserved_gdt_blocks} reserved descriptor blocks"
            )));
        }
        let backups = if sb.compat().contains(Compat::SPARSE_SUPER2) {
            Backups::Sparse2(sb.backup_bgs.map(|g| g.get()))
        } else if sb.ro_compat().contains(RoCompat::SPARSE_SUPER) {
            Backups::Sparse
        } else {
            Backups::All
        };
        let has_meta_groups = sb.incompat().contains(Incompat::META_BG);
        let geo = Geometry {
            block_size,
            blocks_per_cluster,
            blocks_count: sb.blocks_count(),
            first_data_block: sb.first_data_block.get(),
            blocks_per_group: sb.blocks_per_group.get(),
            clusters_per_group: sb.clusters_per_group.get(),
            inodes_per_group: sb.inodes_per_group.get(),
            inodes_count: sb.inodes_count.get(),
            first_inode: sb.first_inode(),
            inode_size: inode_size(sb, block_size)?,
            desc_size: desc_size(sb)?,
            group_count: group_count(sb, block_size)?,
            reserved_gdt_blocks,
            first_meta_bg: has_meta_groups.then(|| sb.first_meta_bg.get()),
            backups,
        };
        if geo.first_meta_bg.is_some_and(|m| m > geo.desc_blocks()) {
            return Err(bad(format!(
                "first meta block group {} of {}",
                sb.first_meta_bg.get(),
                geo.desc_blocks()
            )));
        }
        Ok(geo)
    }

    /// All block numbers that a pointer may hold. Block `first_data_block` and below are never
    /// data.
    #[must_use]
    pub fn valid_blocks(&self) -> Range<u64> {
        u64::from(self.first_data_block) + 1..self.blocks_count
    }

    /// Inodes in a block of the inode table.
    #[must_use]
    pub fn inodes_per_block(&self) -> u32 {
        self.block_size / u32::from(self.inode_size)
    }

    /// Blocks in one group's inode table.
    #[must_use]
    pub fn inode_table_blocks(&self) -> u32 {
        self.inodes_per_group.div_ceil(self.inodes_per_block())
    }

    /// Descriptors in a block.
    #[must_use]
    pub fn descs_per_block(&self) -> u32 {
        self.block_size / u32::from(self.desc_size)
    }

    /// Blocks that all descriptors need.
    #[must_use]
    pub fn desc_blocks(&self) -> u32 {
        self.group_count.div_ceil(self.descs_per_block())
    }

    /// Group of a block, or `None` outside the volume.
    #[must_use]
    pub fn group_of_block(&self, block: u64) -> Option<u32> {
        let rel = block
            .checked_sub(u64::from(self.first_data_block))
            .filter(|_| block < self.blocks_count)?;
        u32::try_from(rel / u64::from(self.blocks_per_group)).ok()
    }

    /// Bit of a block's cluster in its group's block bitmap, or `None` outside the volume.
    #[must_use]
    pub fn bit_of_block(&self, block: u64) -> Option<u32> {
        let rel = block
            .checked_sub(u64::from(self.first_data_block))
            .filter(|_| block < self.blocks_count)?;
        u32::try_from(rel % u64::from(self.blocks_per_group) / u64::from(self.blocks_per_cluster))
            .ok()
    }

    /// First block of a group.
    #[must_use]
    pub fn group_first_block(&self, group: u32) -> u64 {
        u64::from(self.first_data_block) + u64::from(group) * u64::from(self.blocks_per_group)
    }

    /// Blocks of a group: fewer in the last one, none past it.
    #[must_use]
    pub fn group_blocks(&self, group: u32) -> Range<u64> {
        let start = self.group_first_block(group).min(self.blocks_count);
        start..(start + u64::from(self.blocks_per_group)).min(self.blocks_count)
    }

    /// Number of clusters that a group has: further bits of its block bitmap are padding.
    #[must_use]
    pub fn group_clusters(&self, group: u32) -> u32 {
        let r = self.group_blocks(group);
        // At most `blocks_per_group`, of 32 bits.
        low32(r.end - r.start).div_ceil(self.blocks_per_cluster)
    }

    /// Group and index in that group's table of inode `ino`, or `None` if there is no such inode.
    #[must_use]
    pub fn locate_inode(&self, ino: u32) -> Option<(u32, u32)> {
        let i = ino.checked_sub(1).filter(|_| ino <= self.inodes_count)?;
        Some((i / self.inodes_per_group, i % self.inodes_per_group))
    }

    /// Block and byte offset in it of an inode, given the group's inode table
    /// ([`GroupDesc::inode_table`]) and the index from [`locate_inode`](Self::locate_inode).
    #[must_use]
    pub fn inode_position(&self, inode_table: u64, index: u32) -> (u64, usize) {
        let per = self.inodes_per_block();
        (
            inode_table.saturating_add(u64::from(index / per)),
            (index % per) as usize * usize::from(self.inode_size),
        )
    }

    /// Whether a group holds a copy of the superblock.
    #[must_use]
    pub fn has_super(&self, group: u32) -> bool {
        match self.backups {
            Backups::All => true,
            Backups::Sparse => group_has_super(group),
            Backups::Sparse2(bgs) => group == 0 || bgs.contains(&group),
        }
    }

    /// Number of descriptor blocks (without reserved ones) at the start of a group, after its
    /// superblock if any.
    #[must_use]
    pub fn group_desc_blocks(&self, group: u32) -> u32 {
        match self.first_meta_bg {
            Some(first) if group / self.descs_per_block() >= first => {
                // In a meta group the first, second and last group hold the one descriptor block.
                let per = self.descs_per_block();
                u32::from(group % per <= 1 || group % per == per - 1)
            }
            Some(first) => {
                if self.has_super(group) {
                    first
                } else {
                    0
                }
            }
            None => {
                if self.has_super(group) {
                    self.desc_blocks()
                } else {
                    0
                }
            }
        }
    }

    /// Number of blocks of a group for the superblock copy, descriptors and reserved descriptor
    /// blocks; they come first in the group.
    #[must_use]
    pub fn group_super_overhead(&self, group: u32) -> u32 {
        let sb = u32::from(self.has_super(group));
        let in_meta = self
            .first_meta_bg
            .is_some_and(|first| group / self.descs_per_block() >= first);
        let reserved = if sb == 1 && !in_meta {
            u32::from(self.reserved_gdt_blocks)
        } else {
            0
        };
        sb + self.group_desc_blocks(group) + reserved
    }

    /// Block that holds the primary copy of descriptor `group`, and the byte offset in it;
    /// `None` if there is no such group.
    #[must_use]
    pub fn desc_position(&self, group: u32) -> Option<(u64, usize)> {
        if group >= self.group_count {
            return None;
        }
        let per = self.descs_per_block();
        let (nr, offset) = (
            group / per,
            (group % per) as usize * usize::from(self.desc_size),
        );
        let block = match self.first_meta_bg {
            Some(first) if nr >= first && nr > 0 => {
                let first_group = nr * per;
                self.group_first_block(first_group) + u64::from(self.has_super(first_group))
            }
            // Block 0 holds the boot sector and the superblock when blocks are larger than 1 KiB;
            // with 1 KiB bigalloc the superblock is block 1 of group 0, which starts at block 0.
            _ => {
                let sb_block = SUPERBLOCK_OFFSET / u64::from(self.block_size);
                sb_block + 1 + u64::from(nr)
            }
        };
        (block < self.blocks_count).then_some((block, offset))
    }

    /// Checks that a descriptor's bitmaps and inode table lie inside the volume and its counts are
    /// possible.
    pub fn check_group_desc(&self, group: u32, desc: &GroupDesc) -> Result<()> {
        let valid = self.valid_blocks();
        let table_end = desc
            .inode_table()
            .checked_add(u64::from(self.inode_table_blocks()));
        let what = "group descriptor";
        if !valid.contains(&desc.block_bitmap()) {
            return Err(corrupt!(
                what,
                "group {group}: block bitmap at {}",
                desc.block_bitmap()
            ));
        }
        if !valid.contains(&desc.inode_bitmap()) {
            return Err(corrupt!(
                what,
                "group {group}: inode bitmap at {}",
                desc.inode_bitmap()
            ));
        }
        if !valid.contains(&desc.inode_table()) || table_end.is_none_or(|e| e > valid.end) {
            return Err(corrupt!(
                what,
                "group {group}: inode table at {}",
                desc.inode_table()
            ));
        }
        if desc.free_clusters() > self.group_clusters(group)
            || desc.free_inodes() > self.inodes_per_group
            || desc.itable_unused() > self.inodes_per_group
            || desc.used_dirs() > self.inodes_per_group
        {
            return Err(corrupt!(
                what,
                "group {group}: {} free clusters, {} free and {} unused inodes, {} directories",
                desc.free_clusters(),
                desc.free_inodes(),
                desc.itable_unused(),
                desc.used_dirs()
            ));
        }
        Ok(())
    }
}

/// The sparse_super rule: groups 0, 1 and the powers of 3, 5 and 7 hold a superblock copy.
#[must_use]
pub fn group_has_super(group: u32) -> bool {
    let is_power = |base: u32| {
        let mut g = group;
        while g > 1 && g.is_multiple_of(base) {
            g /= base;
        }
        g == 1
    };
    group <= 1 || is_power(3) || is_power(5) || is_power(7)
}

#[cfg(test)]
mod tests {
    use super::group_has_super;

    #[test]
    fn sparse_groups() {
        let with: Vec<u32> = (0..130).filter(|g| group_has_super(*g)).collect();
        assert_eq!(with, [0, 1, 3, 5, 7, 9, 25, 27, 49, 81, 125]);
    }
}
