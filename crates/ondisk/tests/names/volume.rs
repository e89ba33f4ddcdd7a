//! An image in memory, read with this crate alone.

use std::ops::Range;
use std::path::Path;

use stetfs_ondisk::ext4::checksum::ChecksumMode;
use stetfs_ondisk::ext4::dirent::DirLayout;
use stetfs_ondisk::ext4::extent::Node;
use stetfs_ondisk::ext4::features::{Incompat, RoCompat};
use stetfs_ondisk::ext4::group_desc::GroupDesc;
use stetfs_ondisk::ext4::htree::IndexLayout;
use stetfs_ondisk::ext4::inode::InodeView;
use stetfs_ondisk::ext4::superblock::{Geometry, Superblock};

pub struct Volume {
    bytes: Vec<u8>,
    pub sb: Superblock,
    pub geo: Geometry,
    pub csum: ChecksumMode,
}

impl Volume {
    pub fn read(path: &Path) -> Volume {
        let bytes = std::fs::read(path).unwrap();
        let sb = Superblock::decode(&bytes[1024..2048]).unwrap();
        Volume {
            geo: sb.geometry().unwrap(),
            csum: sb.checksum_mode(),
            bytes,
            sb,
        }
    }

    pub fn write(&self, path: &Path) {
        std::fs::write(path, &self.bytes).unwrap();
    }

    fn range(&self, nr: u64) -> Range<usize> {
        let size = self.geo.block_size as usize;
        let at = usize::try_from(nr).unwrap() * size;
        at..at + size
    }

    pub fn block(&self, nr: u64) -> &[u8] {
        &self.bytes[self.range(nr)]
    }

    pub fn block_mut(&mut self, nr: u64) -> &mut [u8] {
        let range = self.range(nr);
        &mut self.bytes[range]
    }

    fn inode_range(&self, ino: u32) -> Range<usize> {
        let (group, index) = self.geo.locate_inode(ino).unwrap();
        let (block, at) = self.geo.desc_position(group).unwrap();
        let desc_size = usize::from(self.geo.desc_size);
        let desc = GroupDesc::decode(&self.block(block)[at..at + desc_size]).unwrap();
        let (block, at) = self.geo.inode_position(desc.inode_table(), index);
        let start = self.range(block).start + at;
        start..start + usize::from(self.geo.inode_size)
    }

    pub fn inode(&self, ino: u32) -> InodeView<&[u8]> {
        let inode = InodeView::new(&self.bytes[self.inode_range(ino)]).unwrap();
        assert!(inode.verify_checksum(ino, &self.csum), "inode {ino}");
        inode
    }

    /// Changes an inode and updates its checksum.
    pub fn change_inode(&mut self, ino: u32, change: impl FnOnce(&mut InodeView<&mut [u8]>)) {
        let (range, csum) = (self.inode_range(ino), self.csum);
        let mut inode = InodeView::new(&mut self.bytes[range]).unwrap();
        change(&mut inode);
        inode.update_checksum(ino, &csum);
    }

    /// The blocks of a directory, in order.
    pub fn dir_blocks(&self, ino: u32) -> Vec<u64> {
        let inode = self.inode(ino);
        let mut blocks = Vec::new();
        self.extent_blocks(inode.i_block(), &mut blocks);
        let size = u64::from(self.geo.block_size);
        assert_eq!(
            inode.size(),
            blocks.len() as u64 * size,
            "a directory has no holes"
        );
        blocks
    }

    fn extent_blocks(&self, node: &[u8], out: &mut Vec<u64>) {
        let node = Node::new(node).unwrap();
        for e in node.extents() {
            assert_eq!(e.block as usize, out.len());
            out.extend(e.start..e.start + u64::from(e.len));
        }
        for i in node.indexes() {
            self.extent_blocks(self.block(i.child), out);
        }
    }

    pub fn dir_layout(&self) -> DirLayout {
        DirLayout {
            tail: self.csum.metadata_seed().is_some(),
            filetype: self.sb.incompat().contains(Incompat::FILETYPE),
            max_inode: self.geo.inodes_count,
        }
    }

    pub fn index_layout(&self) -> IndexLayout {
        IndexLayout {
            tail: self.csum.metadata_seed().is_some(),
            max_levels: if self.sb.incompat().contains(Incompat::LARGEDIR) {
                2
            } else {
                1
            },
        }
    }

    /// Seed of the checksums of an inode's blocks, if there are any.
    pub fn seed(&self, ino: u32) -> Option<u32> {
        self.inode(ino).csum_seed(ino, &self.csum)
    }

    pub fn has_checksums(&self) -> bool {
        self.sb.ro_compat().contains(RoCompat::METADATA_CSUM)
    }
}
