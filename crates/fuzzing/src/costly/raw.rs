//! Changes of a volume's structures as bytes, with their checksums.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use stetfs_ondisk::ext4::checksum::ChecksumMode;
use stetfs_ondisk::ext4::group_desc::{self, GroupDesc};
use stetfs_ondisk::ext4::inode::InodeView;
use stetfs_ondisk::ext4::superblock::{Geometry, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock};

use super::made::BLOCK;

/// Mode of a file that every user may read.
pub(super) const FILE: u16 = 0o100_644;
/// Mode of a directory.
pub(super) const DIR: u16 = 0o040_755;

/// The image of a volume.
pub(super) struct Raw {
    file: File,
    sb: Superblock,
    pub(super) layout: Geometry,
    checksums: ChecksumMode,
}

impl Raw {
    pub(super) fn open(path: &Path) -> Raw {
        let file = File::options().read(true).write(true).open(path).unwrap();
        let mut bytes = vec![0; SUPERBLOCK_SIZE];
        file.read_exact_at(&mut bytes, SUPERBLOCK_OFFSET).unwrap();
        let sb = Superblock::decode(&bytes).unwrap();
        Raw {
            file,
            layout: sb.geometry().unwrap(),
            checksums: sb.checksum_mode(),
            sb,
        }
    }

    /// Changes the superblock.
    pub(super) fn superblock(&mut self, change: impl FnOnce(&mut Superblock)) {
        change(&mut self.sb);
        let mut bytes = vec![0; SUPERBLOCK_SIZE];
        self.file
            .read_exact_at(&mut bytes, SUPERBLOCK_OFFSET)
            .unwrap();
        self.sb.update_checksum();
        self.sb.encode(&mut bytes).unwrap();
        self.file.write_all_at(&bytes, SUPERBLOCK_OFFSET).unwrap();
    }

    pub(super) fn block(&self, nr: u64) -> Vec<u8> {
        let mut bytes = vec![0; BLOCK];
        self.file
            .read_exact_at(&mut bytes, nr * BLOCK as u64)
            .unwrap();
        bytes
    }

    /// Writes the first bytes of a block.
    pub(super) fn put(&self, nr: u64, bytes: &[u8]) {
        assert!(bytes.len() <= BLOCK);
        self.file.write_all_at(bytes, nr * BLOCK as u64).unwrap();
    }

    /// The place of a group's descriptor: block, and offset in it in bytes.
    fn place(&self, group: u32) -> (u64, usize) {
        self.layout.desc_position(group).unwrap()
    }

    pub(super) fn descriptor(&self, group: u32) -> GroupDesc {
        let (nr, at) = self.place(group);
        let len = usize::from(self.layout.desc_size);
        GroupDesc::decode(&self.block(nr)[at..at + len]).unwrap()
    }

    pub(super) fn put_descriptor(&self, group: u32, desc: &GroupDesc) {
        let (nr, at) = self.place(group);
        let mut block = self.block(nr);
        let bytes = &mut block[at..at + usize::from(self.layout.desc_size)];
        desc.encode(bytes).unwrap();
        group_desc::update_checksum(bytes, group, &self.checksums).unwrap();
        self.put(nr, &block);
    }

    /// Marks blocks as in use, on a volume whose bitmaps have no checksums.
    pub(super) fn in_use(&self, blocks: std::ops::Range<u64>) {
        for nr in blocks {
            let group = self.layout.group_of_block(nr).unwrap();
            let bit = self.layout.bit_of_block(nr).unwrap();
            let mut desc = self.descriptor(group);
            self.set_bit(desc.block_bitmap(), bit);
            desc.set_free_clusters(desc.free_clusters() - 1);
            self.put_descriptor(group, &desc);
        }
    }

    /// Marks inodes as in use, as [`in_use`](Self::in_use) does blocks.
    pub(super) fn inodes_in_use(&self, inodes: std::ops::Range<u32>) {
        for ino in inodes {
            let (group, index) = self.layout.locate_inode(ino).unwrap();
            let mut desc = self.descriptor(group);
            self.set_bit(desc.inode_bitmap(), index);
            desc.set_free_inodes(desc.free_inodes() - 1);
            self.put_descriptor(group, &desc);
        }
    }

    /// Sets a bit that must be clear.
    fn set_bit(&self, bitmap: u64, bit: u32) {
        let mut bytes = self.block(bitmap);
        let byte = &mut bytes[bit as usize / 8];
        assert_eq!(*byte & 1 << (bit % 8), 0, "bit {bit} of block {bitmap}");
        *byte |= 1 << (bit % 8);
        self.put(bitmap, &bytes);
    }

    fn slot(&self, ino: u32) -> u64 {
        let (group, index) = self.layout.locate_inode(ino).unwrap();
        let table = self.descriptor(group).inode_table();
        let (nr, at) = self.layout.inode_position(table, index);
        nr * BLOCK as u64 + at as u64
    }

    pub(super) fn inode(&self, ino: u32) -> InodeView<Vec<u8>> {
        let mut bytes = vec![0; usize::from(self.layout.inode_size)];
        self.file.read_exact_at(&mut bytes, self.slot(ino)).unwrap();
        InodeView::new(bytes).unwrap()
    }

    /// Changes an inode.
    pub(super) fn change(&self, ino: u32, change: impl FnOnce(&mut InodeView<Vec<u8>>)) {
        let mut inode = self.inode(ino);
        change(&mut inode);
        inode.update_checksum(ino, &self.checksums);
        self.file
            .write_all_at(inode.bytes(), self.slot(ino))
            .unwrap();
    }

    /// The seed of the checksums of an inode's blocks.
    pub(super) fn seed(&self, ino: u32) -> Option<u32> {
        self.inode(ino).csum_seed(ino, &self.checksums)
    }
}
