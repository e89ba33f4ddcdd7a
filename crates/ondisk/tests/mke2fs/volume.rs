//! An image that mke2fs filled from a directory, and functions that read its blocks.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, symlink};
use stetfs_ondisk::ext4::checksum::ChecksumMode;
use stetfs_ondisk::ext4::extent::{Expect, Extent, NodeRef, verify_block_checksum};
use stetfs_ondisk::ext4::group_desc::GroupDesc;
use stetfs_ondisk::ext4::inode::InodeView;
use stetfs_ondisk::ext4::superblock::{Geometry, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock};
use stetfs_testkit::image::{Image, Mkfs};
use tempfile::TempDir;

const VOLUME_BYTES: u64 = 160 << 20;
/// Bytes of each written piece of the sparse file, and of each hole.
const PIECE: u64 = 4096;
const PIECES: u64 = 900;

/// The directory that mke2fs copies.
pub(crate) struct Source(TempDir);

impl Source {
    /// A small file, a directory, a short and a long symbolic link, and a sparse file of many
    /// extents.
    pub(crate) fn make() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("small"), b"abc").unwrap();
        fs::create_dir(at("dir")).unwrap();
        symlink("small", at("short")).unwrap();
        symlink("x".repeat(100), at("long")).unwrap();
        let sparse = File::create(at("sparse")).unwrap();
        for i in 0..PIECES {
            sparse
                .write_all_at(&[1 + (i % 251) as u8; PIECE as usize], i * 2 * PIECE)
                .unwrap();
        }
        Source(dir)
    }

    /// A volume with these files.
    pub(crate) fn volume(&self, mut mkfs: Mkfs) -> Volume {
        mkfs.args
            .extend(["-d".to_owned(), self.0.path().to_str().unwrap().to_owned()]);
        Volume::open(Image::make(VOLUME_BYTES, &mkfs).unwrap())
    }

    /// Content of one of the files.
    pub(crate) fn content(&self, name: &str) -> Vec<u8> {
        fs::read(self.0.path().join(name)).unwrap()
    }
}

/// An image with its decoded superblock.
pub(crate) struct Volume {
    pub(crate) image: Image,
    pub(crate) sb: Superblock,
    pub(crate) geo: Geometry,
    pub(crate) mode: ChecksumMode,
    file: File,
}

/// A mapped file: its extents and the depth of the tree.
pub(crate) struct Mapping {
    pub(crate) extents: Vec<Extent>,
    pub(crate) depth: u16,
    /// Blocks of the tree's nodes below the root.
    pub(crate) nodes: Vec<u64>,
}

impl Volume {
    fn open(image: Image) -> Self {
        let file = File::open(image.path()).unwrap();
        let mut bytes = [0; SUPERBLOCK_SIZE];
        file.read_exact_at(&mut bytes, SUPERBLOCK_OFFSET).unwrap();
        let sb = Superblock::decode(&bytes).unwrap();
        let (geo, mode) = (sb.geometry().unwrap(), sb.checksum_mode());
        Volume {
            image,
            sb,
            geo,
            mode,
            file,
        }
    }

    pub(crate) fn bytes(&self, offset: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.file.read_exact_at(&mut bytes, offset).unwrap();
        bytes
    }

    pub(crate) fn block(&self, nr: u64) -> Vec<u8> {
        assert!(nr < self.geo.blocks_count);
        self.bytes(
            nr * u64::from(self.geo.block_size),
            self.geo.block_size as usize,
        )
    }

    /// Bytes of group descriptor `group`.
    pub(crate) fn desc_bytes(&self, group: u32) -> Vec<u8> {
        let (block, at) = self.geo.desc_position(group).unwrap();
        self.block(block)[at..at + usize::from(self.geo.desc_size)].to_vec()
    }

    pub(crate) fn desc(&self, group: u32) -> GroupDesc {
        GroupDesc::decode(&self.desc_bytes(group)).unwrap()
    }

    pub(crate) fn inode(&self, ino: u32) -> InodeView<Vec<u8>> {
        let (group, index) = self.geo.locate_inode(ino).unwrap();
        let (block, at) = self
            .geo
            .inode_position(self.desc(group).inode_table(), index);
        InodeView::new(self.block(block)[at..at + usize::from(self.geo.inode_size)].to_vec())
            .unwrap()
    }

    /// Walks the extent tree of an inode and checks every node on the way.
    pub(crate) fn map(&self, ino: u32) -> Mapping {
        let inode = self.inode(ino);
        let seed = inode.csum_seed(ino, &self.mode);
        let root = NodeRef::new(inode.i_block()).unwrap();
        let mut mapping = Mapping {
            extents: Vec::new(),
            depth: root.depth(),
            nodes: Vec::new(),
        };
        self.walk(
            root,
            &Expect::root(self.geo.valid_blocks()),
            seed,
            &mut mapping,
        );
        mapping
    }

    fn walk(&self, node: NodeRef<'_>, expect: &Expect, seed: Option<u32>, mapping: &mut Mapping) {
        node.check(expect).unwrap();
        mapping.extents.extend(node.extents());
        for (i, index) in node.indexes().enumerate() {
            let block = self.block(index.child);
            assert!(
                verify_block_checksum(seed, &block),
                "node at {}",
                index.child
            );
            mapping.nodes.push(index.child);
            let child = NodeRef::new(&block[..]).unwrap();
            assert_eq!(child.first_block(0), Some(index.block));
            self.walk(child, &node.expect_child(i, expect).unwrap(), seed, mapping);
        }
    }

    /// Content of a file that is mapped by extents.
    pub(crate) fn read(&self, ino: u32) -> Vec<u8> {
        let size = self.inode(ino).size() as usize;
        let block_size = self.geo.block_size as usize;
        let mut content = vec![0; size.next_multiple_of(block_size)];
        for e in self.map(ino).extents.iter().filter(|e| !e.unwritten) {
            for k in 0..e.len {
                let at = (e.block + k) as usize * block_size;
                if let Some(to) = content.get_mut(at..at + block_size) {
                    to.copy_from_slice(&self.block(e.start + u64::from(k)));
                }
            }
        }
        content.truncate(size);
        content
    }

    /// Inode number of a path, from debugfs.
    pub(crate) fn ino(&self, path: &str) -> u32 {
        number_after(
            &self.image.debugfs(&format!("stat {path}")).unwrap(),
            "Inode:",
        )
    }

    /// Numbers of the inodes in use.
    pub(crate) fn used_inodes(&self) -> Vec<u32> {
        use stetfs_ondisk::ext4::bitmap;
        let mut used = Vec::new();
        for group in 0..self.geo.group_count {
            let desc = self.desc(group);
            if desc
                .flags()
                .contains(stetfs_ondisk::ext4::group_desc::GroupFlags::INODE_UNINIT)
            {
                continue;
            }
            let map = self.block(desc.inode_bitmap());
            let bits = (0..self.geo.inodes_per_group).filter(|i| bitmap::is_set(&map, *i as usize));
            used.extend(bits.map(|i| group * self.geo.inodes_per_group + i + 1));
        }
        used
    }
}

/// The word after `label` in `text`.
pub(crate) fn word_after<'a>(text: &'a str, label: &str) -> &'a str {
    let rest = text
        .split_once(label)
        .unwrap_or_else(|| panic!("no {label} in {text}"))
        .1;
    rest.split_whitespace().next().unwrap()
}

/// The decimal number after `label` in `text`.
pub(crate) fn number_after<T: std::str::FromStr>(text: &str, label: &str) -> T {
    word_after(text, label).parse().ok().unwrap()
}
