//! The root directory and `lost+found`.

use stetfs_ondisk::ext4::blockmap::DIRECT;
use stetfs_ondisk::ext4::dirent::{self, DirLayout, FileType};
use stetfs_ondisk::ext4::features::{Incompat, RoCompat};
use stetfs_ondisk::ext4::superblock::ROOT_INO;

use super::{Inode, Maker};
use crate::error::Result;
use crate::settle::LOST_FOUND_INO;

const S_IFDIR: u16 = 0o040_000;
/// Bytes that mke2fs gives `lost+found`, so that e2fsck need not allocate blocks for it.
const LOST_FOUND_BYTES: u64 = 16 << 10;

impl Maker<'_> {
    pub(super) fn directories(&mut self) -> Result<()> {
        let layout = self.layout();
        let mut first = vec![0; self.block_len()];
        dirent::init_dots(&mut first, &layout, ROOT_INO, ROOT_INO)?;
        let name = b"lost+found";
        dirent::insert(
            &mut first,
            &layout,
            name,
            LOST_FOUND_INO,
            FileType::Directory,
        )?;
        let root = Inode {
            ino: ROOT_INO,
            mode: S_IFDIR | self.options.root_mode & 0o7777,
            owner: self.options.root_owner,
            ..DIRECTORY
        };
        self.directory(Inode { links: 3, ..root }, vec![first])?;

        let mut first = vec![0; self.block_len()];
        dirent::init_dots(&mut first, &layout, LOST_FOUND_INO, ROOT_INO)?;
        let mut blocks = vec![first];
        // At least two, and at most those that need no indirect block.
        let wanted = (LOST_FOUND_BYTES / u64::from(self.kind.block_size)).max(2);
        while (blocks.len() as u64) < wanted.min(DIRECT as u64) {
            let mut block = vec![0; self.block_len()];
            dirent::init_empty(&mut block, &layout)?;
            blocks.push(block);
        }
        self.directory(DIRECTORY, blocks)
    }

    fn layout(&self) -> DirLayout {
        let sb = &self.settled.sb;
        DirLayout {
            tail: sb.ro_compat().contains(RoCompat::METADATA_CSUM),
            filetype: sb.incompat().contains(Incompat::FILETYPE),
            max_inode: sb.inodes_count.get(),
        }
    }

    fn directory(&mut self, mut new: Inode, content: Vec<Vec<u8>>) -> Result<()> {
        let seed = self.seed(new.ino);
        let map = self.file(new.ino, content.len() as u64)?;
        new.flags |= self.mapped();
        new.size = content.len() as u64 * u64::from(self.kind.block_size);
        new.sectors = map.sectors(self.kind);
        for (nr, mut block) in map.blocks().zip(content) {
            if let Some(seed) = seed {
                dirent::update_checksum(&mut block, seed)?;
            }
            self.files.blocks.push((nr, block));
        }
        self.count(new.owner, new.sectors);
        self.inode(&new, &map.i_block)
    }
}

/// `lost+found`, and what the root has in common with it.
const DIRECTORY: Inode = Inode {
    ino: LOST_FOUND_INO,
    mode: S_IFDIR | 0o700,
    owner: (0, 0),
    links: 2,
    flags: stetfs_ondisk::ext4::inode::InodeFlags::empty(),
    size: 0,
    sectors: 0,
};
