//! Sizes of blocks, clusters, inodes and groups.

use stetfs_ondisk::ext4::features::{Incompat, RoCompat};
use stetfs_ondisk::ext4::inode::GOOD_OLD_INODE_SIZE;

use crate::error::{Result, options};
use crate::options::FormatOptions;
use crate::profile::Defaults;
use crate::rules::{Choice, Feature};
use crate::space::Space;

/// A flex group is 2^this groups.
pub(super) const LOG_FLEX: u8 = 4;

/// Most clusters of a group: free ones are counted in 16 bits, and a bitmap has whole bytes.
const MAX_CLUSTERS: u32 = 65528;

/// Sizes that everything else is counted in.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sizes {
    /// Bytes.
    pub(super) block_size: u32,
    /// Blocks of a cluster; 1 without `bigalloc`.
    pub(super) ratio: u32,
    /// Bytes.
    pub(super) inode_size: u16,
    /// Bytes.
    pub(super) desc_size: u32,
}

impl Sizes {
    pub(super) fn choose(
        space: Space,
        of: &FormatOptions,
        defaults: &Defaults,
        choice: &mut Choice<'_>,
    ) -> Result<Sizes> {
        let block_size = block_size(space, of, defaults, choice)?;
        let sizes = Sizes {
            block_size,
            ratio: ratio(of, block_size, choice)?,
            inode_size: inode_size(of, defaults, block_size, choice)?,
            desc_size: match choice.has(Feature::Incompat(Incompat::BIT64)) {
                true => 64,
                false => 32,
            },
        };
        if u64::from(sizes.clusters_per_group()) * u64::from(sizes.ratio) > u64::from(u32::MAX) {
            return options("clusters are too large: a group would have more than 2^32 blocks");
        }
        Ok(sizes)
    }

    /// Bytes of a cluster.
    pub(super) fn cluster_size(&self) -> u32 {
        self.block_size * self.ratio
    }

    /// Block 0 is the boot block where blocks have 1 KiB, except with clusters.
    pub(super) fn first_data_block(&self) -> u32 {
        u32::from(self.block_size == 1024 && self.ratio == 1)
    }

    pub(super) fn clusters_per_group(&self) -> u32 {
        (self.block_size * 8).min(MAX_CLUSTERS)
    }

    pub(super) fn blocks_per_group(&self) -> u32 {
        self.clusters_per_group() * self.ratio
    }

    pub(super) fn inodes_per_block(&self) -> u32 {
        self.block_size / u32::from(self.inode_size)
    }

    pub(super) fn descs_per_block(&self) -> u32 {
        self.block_size / self.desc_size
    }
}

fn block_size(
    space: Space,
    of: &FormatOptions,
    defaults: &Defaults,
    choice: &mut Choice<'_>,
) -> Result<u32> {
    let sector = space.sector;
    let size = match of.block_size {
        Some(size) => size,
        None if defaults.block_size < sector => {
            choice.notes.push(format!(
                "blocks of {sector} bytes: the device has sectors of that size"
            ));
            sector
        }
        None => defaults.block_size,
    };
    if !size.is_power_of_two() || !(1024..=65536).contains(&size) {
        return options(format!(
            "a block cannot have {size} bytes: give 1K, 2K, 4K, 8K, 16K, 32K or 64K"
        ));
    }
    if size < sector {
        return options(format!(
            "blocks of {size} bytes are smaller than the device's sectors of {sector}: give a \
             block size of {sector} or more"
        ));
    }
    if size > 4096 {
        choice.notes.push(format!(
            "blocks of {} KiB: Linux mounts them only where pages are that large, or since 6.19",
            size >> 10
        ));
    }
    if size > 32 << 10 {
        choice
            .notes
            .push("blocks of 64 KiB: StetFS does not mount the volume".into());
    }
    Ok(size)
}

/// Blocks of a cluster.
fn ratio(of: &FormatOptions, block_size: u32, choice: &mut Choice<'_>) -> Result<u32> {
    if !choice.has(Feature::RoCompat(RoCompat::BIGALLOC)) {
        return match of.cluster_size {
            Some(_) => options("a cluster size takes the feature bigalloc: add -O bigalloc"),
            None => Ok(1),
        };
    }
    // As mke2fs: clusters of 16 blocks.
    let size = of.cluster_size.unwrap_or(block_size * 16);
    let largest = 1 << 29;
    if !size.is_power_of_two() || size <= block_size || size > largest {
        return options(format!(
            "a cluster cannot have {size} bytes: give a power of two above the block size, at most \
             512M"
        ));
    }
    Ok(size / block_size)
}

/// Bytes of an inode. Those of 128 bytes have no room for some features.
fn inode_size(
    of: &FormatOptions,
    defaults: &Defaults,
    block_size: u32,
    choice: &mut Choice<'_>,
) -> Result<u16> {
    let size = of.inode_size.unwrap_or(defaults.inode_size);
    if !size.is_power_of_two() || size < 128 || u32::from(size) > block_size {
        return options(format!(
            "an inode cannot have {size} bytes: give a power of two from 128 to the block size"
        ));
    }
    if usize::from(size) == GOOD_OLD_INODE_SIZE {
        let why = "inodes of 128 bytes have no room for it";
        choice.without(Feature::RoCompat(RoCompat::EXTRA_ISIZE), why)?;
        choice.without(Feature::RoCompat(RoCompat::PROJECT), why)?;
        choice.without(Feature::Incompat(Incompat::INLINE_DATA), why)?;
        choice
            .notes
            .push("inodes of 128 bytes: their times end in 2038, without nanoseconds".into());
    }
    Ok(size)
}
