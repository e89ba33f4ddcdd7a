//! The resize inode: it owns the blocks reserved for descriptors, so that the volume can grow.
//!
//! Its double indirect block names the reserved blocks of group 0. Each of those is an indirect
//! block that names its copies in the groups with a copy of the superblock.

use stetfs_ondisk::ext4::blockmap::{DIRECT, Shape, set_pointer};
use stetfs_ondisk::ext4::inode::{I_BLOCK_LEN, InodeFlags};
use stetfs_ondisk::ext4::superblock::{RESIZE_INO, SUPERBLOCK_OFFSET};
use stetfs_ondisk::num::{low32, to_usize};

use super::{HIDDEN, Inode, Maker};
use crate::error::Result;

impl Maker<'_> {
    pub(super) fn resize_inode(&mut self) -> Result<()> {
        let geo = &self.settled.geo;
        let per_block = u64::from(geo.block_size) / 4;
        let reserved = u64::from(geo.reserved_gdt_blocks);
        let desc_blocks = u64::from(geo.desc_blocks());
        let first = SUPERBLOCK_OFFSET / u64::from(geo.block_size) + 1 + desc_blocks;
        let backups: Vec<u32> = (1..geo.group_count).filter(|g| geo.has_super(*g)).collect();
        let step = u64::from(geo.blocks_per_group);

        let mut double = vec![0; self.block_len()];
        for at in 0..reserved {
            let nr = first + at;
            let slot = to_usize((desc_blocks + at) % per_block);
            set_pointer(&mut double, slot, low32(nr));
            let mut copies = vec![0; self.block_len()];
            for (slot, group) in backups.iter().enumerate() {
                set_pointer(&mut copies, slot, low32(nr + u64::from(*group) * step));
            }
            self.files.blocks.push((nr, copies));
        }
        let nr = self.room.one()?;
        self.files.blocks.push((nr, double));
        let mut i_block = [0; I_BLOCK_LEN];
        set_pointer(&mut i_block, DIRECT + 1, low32(nr));

        let shape = Shape::new(self.kind.block_size);
        let spanned = DIRECT as u64 + shape.span(1) + shape.span(2);
        let owned = 1 + reserved * (1 + backups.len() as u64);
        let sectors = u64::from(self.kind.block_size / 512) * u64::from(self.kind.ratio);
        let new = Inode {
            ino: RESIZE_INO,
            mode: HIDDEN,
            owner: (0, 0),
            links: 1,
            flags: InodeFlags::empty(),
            size: spanned * u64::from(self.kind.block_size),
            sectors: owned * sectors,
        };
        self.inode(&new, &i_block)
    }
}
