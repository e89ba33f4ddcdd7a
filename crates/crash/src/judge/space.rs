//! Oracle 7: each block has one owner, and bitmaps, counts and the orphan list agree.
//!
//! It reads the bytes of a closed volume without the file system under test; only the layouts are
//! shared.

use std::collections::HashSet;

use stetfs::low::{BlockDevice, MemDevice};
use stetfs_ondisk::ext4::blockmap::{DIRECT, MAX_LEVELS, pointer};
use stetfs_ondisk::ext4::extent::{Index, NodeRef};
use stetfs_ondisk::ext4::features::Incompat;
use stetfs_ondisk::ext4::group_desc::{GroupDesc, GroupFlags};
use stetfs_ondisk::ext4::inode::{I_BLOCK_LEN, InodeFlags, InodeView};
use stetfs_ondisk::ext4::superblock::{Geometry, Superblock};
use stetfs_ondisk::ext4::{bitmap, orphan_file};

/// The owner of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Owner {
    /// Superblock, group descriptors, and copies and reserves of them.
    Super,
    /// Block or inode bitmap.
    Bitmap,
    /// Part of an inode table.
    InodeTable,
    /// The journal.
    Journal,
    /// Node of an extent tree, or indirect block.
    ExtentNode,
    /// Extended attributes.
    Xattr,
    /// Content of a directory.
    Directory,
    /// Target of a symbolic link.
    Symlink,
    /// Data of a file.
    Data,
    /// Content of the file system's own inodes.
    Reserved,
    /// Block of multiple mount protection.
    Mmp,
}

/// The inode of reserved descriptor blocks, with an old-style block map.
const RESIZE_INO: u32 = 7;
/// Greatest depth of an extent tree.
const DEPTH_MAX: u16 = 5;

/// The owner of each block, by block number; `None` for a free block.
#[derive(Debug, Default)]
pub struct Owners(Vec<Option<Owner>>);

impl Owners {
    fn of(&self, nr: u64) -> Option<Owner> {
        *self.0.get(usize::try_from(nr).ok()?)?
    }

    /// Gives a block to an owner. Returns the former one.
    fn insert(&mut self, nr: u64, owner: Owner) -> Option<Owner> {
        let slot = self.0.get_mut(usize::try_from(nr).ok()?)?;
        slot.replace(owner)
    }

    /// All owned blocks, in order.
    pub fn iter(&self) -> impl Iterator<Item = (u64, Owner)> {
        let numbered = (0..).zip(&self.0);
        numbered.filter_map(|(nr, owner)| Some((nr, (*owner)?)))
    }
}

struct Volume<'d> {
    device: &'d MemDevice,
    geo: Geometry,
    sb: Superblock,
    owners: Owners,
    xattrs: HashSet<u64>,
}

fn said(e: impl std::fmt::Display) -> String {
    e.to_string()
}

impl Volume<'_> {
    fn bytes(&self, offset: u64, len: usize) -> Result<Vec<u8>, String> {
        let mut bytes = vec![0; len];
        self.device.read(offset, &mut bytes).map_err(said)?;
        Ok(bytes)
    }

    fn block(&self, nr: u64) -> Result<Vec<u8>, String> {
        let size = self.geo.block_size;
        self.bytes(nr * u64::from(size), size as usize)
    }

    fn own(&mut self, nr: u64, owner: Owner) -> Result<(), String> {
        if !(u64::from(self.geo.first_data_block)..self.geo.blocks_count).contains(&nr) {
            return Err(format!(
                "{owner:?} in block {nr}, which is not on the volume"
            ));
        }
        match self.owners.insert(nr, owner) {
            None => Ok(()),
            Some(other) => Err(format!("block {nr} is {owner:?} and {other:?}")),
        }
    }

    fn desc(&self, group: u32) -> Result<GroupDesc, String> {
        let (block, offset) = self
            .geo
            .desc_position(group)
            .ok_or_else(|| format!("there is no descriptor of group {group}"))?;
        let at = block * u64::from(self.geo.block_size) + offset as u64;
        GroupDesc::decode(&self.bytes(at, usize::from(self.geo.desc_size))?).map_err(said)
    }

    fn inode(&self, desc: &GroupDesc, index: u32) -> Result<Vec<u8>, String> {
        let (block, offset) = self.geo.inode_position(desc.inode_table(), index);
        let at = block * u64::from(self.geo.block_size) + offset as u64;
        self.bytes(at, usize::from(self.geo.inode_size))
    }

    fn metadata(&mut self, group: u32, desc: &GroupDesc) -> Result<(), String> {
        let first = self.geo.group_first_block(group);
        for i in 0..self.geo.group_super_overhead(group) {
            self.own(first + u64::from(i), Owner::Super)?;
        }
        self.own(desc.block_bitmap(), Owner::Bitmap)?;
        self.own(desc.inode_bitmap(), Owner::Bitmap)?;
        for i in 0..self.geo.inode_table_blocks() {
            self.own(desc.inode_table() + u64::from(i), Owner::InodeTable)?;
        }
        Ok(())
    }

    fn tree(&mut self, bytes: &[u8], depth: Option<u16>, owner: Owner) -> Result<(), String> {
        let node = NodeRef::new(bytes).map_err(said)?;
        if node.depth() > DEPTH_MAX || depth.is_some_and(|d| d != node.depth()) {
            return Err(format!("an extent node of depth {}", node.depth()));
        }
        if node.is_leaf() {
            for extent in node.extents() {
                for i in 0..extent.len {
                    self.own(extent.start + u64::from(i), owner)?;
                }
            }
            return Ok(());
        }
        let children: Vec<Index> = node.indexes().collect();
        let below = node.depth() - 1;
        for index in children {
            self.own(index.child, Owner::ExtentNode)?;
            let block = self.block(index.child)?;
            self.tree(&block, Some(below), owner)?;
        }
        Ok(())
    }

    fn inode_blocks(&mut self, ino: u32, bytes: &[u8]) -> Result<(), String> {
        let view = InodeView::new(bytes).map_err(said)?;
        let acl = view.file_acl();
        if acl != 0 && self.xattrs.insert(acl) {
            self.own(acl, Owner::Xattr)?;
        }
        if ino == RESIZE_INO {
            // The reserved blocks are counted as descriptors; only the block of its map is
            // additional.
            let map = u64::from(view.block_map()[13]);
            return if map == 0 {
                Ok(())
            } else {
                self.own(map, Owner::Reserved)
            };
        }
        // A short target is stored in place of the block numbers.
        let is_target = view.is_symlink() && view.size() < I_BLOCK_LEN as u64;
        let has_map = view.is_regular() || view.is_dir() || (view.is_symlink() && !is_target);
        let is_tree = view.flags().contains(InodeFlags::EXTENTS);
        if view.flags().contains(InodeFlags::INLINE_DATA) || !(is_tree || has_map) {
            return Ok(());
        }
        let owner = if ino == self.sb.journal_inum.get() {
            Owner::Journal
        } else if ino < self.geo.first_inode && ino != stetfs::low::ROOT_INO {
            Owner::Reserved
        } else if view.is_dir() {
            Owner::Directory
        } else if view.is_symlink() {
            Owner::Symlink
        } else {
            Owner::Data
        };
        match is_tree {
            true => self.tree(view.i_block(), None, owner),
            false => self.block_map(view.i_block(), owner),
        }
    }

    fn block_map(&mut self, root: &[u8], owner: Owner) -> Result<(), String> {
        for index in 0..DIRECT + MAX_LEVELS as usize {
            let levels = (index + 1).saturating_sub(DIRECT);
            self.numbered(u64::from(pointer(root, index)), levels, owner)?;
        }
        Ok(())
    }

    /// Takes a block that a block map names, with `levels` of indirect blocks above the data.
    fn numbered(&mut self, nr: u64, levels: usize, owner: Owner) -> Result<(), String> {
        match (nr, levels) {
            (0, _) => return Ok(()),
            (_, 0) => return self.own(nr, owner),
            _ => self.own(nr, Owner::ExtentNode)?,
        }
        let block = self.block(nr)?;
        (0..block.len() / 4).try_for_each(|at| {
            let below = u64::from(pointer(&block, at));
            self.numbered(below, levels - 1, owner)
        })
    }

    fn orphans(&self) -> Result<(), String> {
        let listed = self.sb.last_orphan.get();
        if listed != 0 {
            return Err(format!(
                "inode {listed} is on the orphan list of a closed volume"
            ));
        }
        Ok(())
    }
}

/// The owners of all blocks, after all checks. Volumes with clusters (bigalloc) are left to e2fsck.
///
/// # Errors
/// The first contradiction.
pub fn check(device: &MemDevice) -> Result<Owners, String> {
    let mut head = vec![0; 1024];
    device.read(1024, &mut head).map_err(said)?;
    let sb = Superblock::decode(&head).map_err(said)?;
    if sb.incompat().contains(Incompat::RECOVER) {
        return Err("a closed volume is marked for recovery".into());
    }
    let geo = sb.geometry().map_err(said)?;
    if geo.blocks_per_cluster > 1 {
        return Ok(Owners::default());
    }
    if geo.blocks_count > device.size() / u64::from(geo.block_size) {
        return Err("the volume is larger than its device".into());
    }
    let blocks = usize::try_from(geo.blocks_count).map_err(said)?;
    let mut v = Volume {
        device,
        geo,
        sb,
        owners: Owners(vec![None; blocks]),
        xattrs: HashSet::new(),
    };
    v.orphans()?;
    let mut inodes_used: Vec<Vec<bool>> = Vec::new();
    let mut dirs: Vec<u32> = Vec::new();
    let mut descs = Vec::new();
    for group in 0..v.geo.group_count {
        let desc = v.desc(group)?;
        v.metadata(group, &desc)
            .map_err(|e| format!("group {group}: {e}"))?;
        descs.push(desc);
    }
    if v.sb.incompat().contains(Incompat::MMP) {
        v.own(v.sb.mmp_block.get(), Owner::Mmp)?;
    }
    let orphan_file = v.sb.orphan_file_inum.get();
    for (group, desc) in (0..).zip(&descs) {
        let per = v.geo.inodes_per_group;
        let mut used = vec![false; per as usize];
        let mut dirs_here = 0;
        let uninit = desc.flags().contains(GroupFlags::INODE_UNINIT);
        for index in 0..if uninit { 0 } else { per } {
            let ino = group * per + index + 1;
            let bytes = v.inode(desc, index)?;
            let view = InodeView::new(bytes.as_slice()).map_err(said)?;
            let reserved = ino < v.geo.first_inode;
            if view.links() == 0 && !reserved && ino != orphan_file {
                continue;
            }
            if let Some(slot) = used.get_mut(index as usize) {
                *slot = true;
            }
            dirs_here += u32::from(view.is_dir());
            v.inode_blocks(ino, &bytes)
                .map_err(|e| format!("inode {ino}: {e}"))?;
            if ino == orphan_file && orphan_file != 0 {
                v.orphan_slots(&bytes)?;
            }
        }
        inodes_used.push(used);
        dirs.push(dirs_here);
    }
    v.compare(&descs, &inodes_used, &dirs)?;
    Ok(v.owners)
}

impl Volume<'_> {
    fn orphan_slots(&self, inode: &[u8]) -> Result<(), String> {
        let view = InodeView::new(inode).map_err(said)?;
        // The orphan file is small: it has a few blocks, by number, if it has no extents.
        let blocks: Vec<u64> = match view.flags().contains(InodeFlags::EXTENTS) {
            true => {
                let node = NodeRef::new(view.i_block()).map_err(said)?;
                let all = node.extents().map(|e| (e.start, u64::from(e.len)));
                all.flat_map(|(start, len)| start..start + len).collect()
            }
            false => {
                let numbers = (0..DIRECT).map(|i| u64::from(pointer(view.i_block(), i)));
                numbers.filter(|nr| *nr != 0).collect()
            }
        };
        for nr in blocks {
            let block = self.block(nr)?;
            if let Some((_, ino)) = orphan_file::used(&block).next() {
                return Err(format!(
                    "inode {ino} is in the orphan file of a closed volume"
                ));
            }
        }
        Ok(())
    }

    /// Compares the bitmaps and counts with the owners that were found.
    fn compare(
        &self,
        descs: &[GroupDesc],
        inodes: &[Vec<bool>],
        dirs: &[u32],
    ) -> Result<(), String> {
        let (mut free_blocks, mut free_inodes) = (0u64, 0u64);
        for (group, ((desc, used), dirs)) in (0..).zip(descs.iter().zip(inodes).zip(dirs)) {
            let blocks = self.geo.group_blocks(group);
            let map = match desc.flags().contains(GroupFlags::BLOCK_UNINIT) {
                true => None,
                false => Some(self.block(desc.block_bitmap())?),
            };
            let mut free = 0u64;
            for (bit, nr) in blocks.enumerate() {
                let owner = self.owners.of(nr);
                free += u64::from(owner.is_none());
                let marked = map
                    .as_ref()
                    .map_or(owner.is_some(), |m| bitmap::is_set(m, bit));
                if marked != owner.is_some() {
                    return Err(match owner {
                        Some(owner) => format!("block {nr} is {owner:?}, but free in the bitmap"),
                        None => {
                            format!("block {nr} is used in the bitmap, but nothing refers to it")
                        }
                    });
                }
            }
            let map = match desc.flags().contains(GroupFlags::INODE_UNINIT) {
                true => None,
                false => Some(self.block(desc.inode_bitmap())?),
            };
            for (bit, used) in used.iter().enumerate() {
                let ino = group * self.geo.inodes_per_group + bit as u32 + 1;
                if map
                    .as_ref()
                    .is_some_and(|m| bitmap::is_set(m, bit) != *used)
                {
                    return Err(format!(
                        "inode {ino} is {}, but the bitmap disagrees",
                        if *used { "used" } else { "free" }
                    ));
                }
            }
            let spare = used.iter().filter(|u| !**u).count() as u64;
            let counted = (
                u64::from(desc.free_clusters()),
                u64::from(desc.free_inodes()),
                desc.used_dirs(),
            );
            if counted != (free, spare, *dirs) {
                return Err(format!(
                    "group {group} counts {counted:?} free blocks, free inodes, directories; there are {:?}",
                    (free, spare, dirs)
                ));
            }
            free_blocks += free;
            free_inodes += spare;
        }
        let counted = (
            self.sb.free_blocks_count(),
            u64::from(self.sb.free_inodes_count.get()),
        );
        if counted != (free_blocks, free_inodes) {
            return Err(format!(
                "the superblock counts {counted:?} free blocks and inodes; there are {:?}",
                (free_blocks, free_inodes)
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::volume::base;

    #[test]
    fn a_fresh_volume_agrees_and_changed_ones_do_not() {
        for block in [1024, 4096] {
            let base = base(block).unwrap();
            let owners = check(&base.image).unwrap();
            let count = |o: Owner| owners.iter().filter(|(_, x)| *x == o).count();
            assert_eq!(count(Owner::Journal), 1024);
            assert!(count(Owner::Directory) >= 6, "{}", count(Owner::Directory));
            for (nr, owner) in owners.iter() {
                if !matches!(owner, Owner::Bitmap) {
                    continue;
                }
                let at = nr * u64::from(block) + 3;
                let image = base.image.fork();
                let mut byte = [0];
                image.read(at, &mut byte).unwrap();
                image.write(at, &[byte[0] ^ 0x10]).unwrap();
                let why = check(&image).unwrap_err();
                assert!(why.contains("the bitmap"), "{why}");
            }
            // This overwrites the count of free blocks in the superblock.
            let image = base.image.fork();
            image.write(1024 + 0x0C, &[1, 2, 3, 4]).unwrap();
            assert!(check(&image).is_err());
        }
    }
}
