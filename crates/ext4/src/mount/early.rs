//! Reading the volume before it is open, straight from the device: recovery needs these parts, and
//! may still replay them.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use stetfs_block::BlockDevice;
use stetfs_ondisk::ext4::blockmap::Shape;
use stetfs_ondisk::ext4::checksum::ChecksumMode;
use stetfs_ondisk::ext4::extent::{self, Expect, Extent, NodeRef};
use stetfs_ondisk::ext4::group_desc::{self, GroupDesc, GroupFlags};
use stetfs_ondisk::ext4::inode::{InodeFlags, InodeView};
use stetfs_ondisk::ext4::superblock::{Geometry as Layout, Superblock};

use crate::data::Found;
use crate::data::maps::blockmap::{self, Indirect};
use crate::error::{FsError, Result};
use crate::types::{BlockNr, Ino, ROOT_INO};

/// The most extents of a journal or an orphan file; no real one has more.
const MAX_EXTENTS: usize = 1 << 16;

/// A volume that is read before it is open.
pub(super) struct Early<'a> {
    pub(super) device: &'a dyn BlockDevice,
    pub(super) layout: &'a Layout,
    pub(super) checksums: ChecksumMode,
}

/// Refuses a volume that is larger than its device.
///
/// # Errors
/// `Corrupt`.
pub(super) fn check_size(layout: &Layout, device: &dyn BlockDevice) -> Result<()> {
    let bytes = layout
        .blocks_count
        .saturating_mul(u64::from(layout.block_size));
    if bytes > device.size() {
        let detail = format!(
            "the volume has {bytes} bytes, but its device only {}",
            device.size()
        );
        return Err(FsError::corrupt("superblock", 0, detail));
    }
    Ok(())
}

/// The indirect blocks of an inode of such a volume.
struct EarlyMap<'a> {
    early: &'a Early<'a>,
    ino: Ino,
}

impl Indirect for EarlyMap<'_> {
    fn read<R>(&self, nr: BlockNr, f: impl FnOnce(&[u8]) -> R) -> Result<R> {
        if !self.early.layout.valid_blocks().contains(&nr) {
            let detail = format!("inode {}: not on the volume", self.ino);
            return Err(FsError::corrupt("block map", nr, detail));
        }
        Ok(f(&self.early.block(nr)?))
    }

    fn shape(&self) -> Shape {
        Shape::new(self.early.layout.block_size)
    }

    fn ino(&self) -> u32 {
        self.ino
    }
}

/// The most bytes of blocks that are kept while many inodes are read.
const HELD: usize = 8 << 20;

/// Blocks that were read and are kept.
#[derive(Default)]
pub(super) struct Held(HashMap<u64, Vec<u8>>);

impl<'a> Early<'a> {
    pub(super) fn new(device: &'a dyn BlockDevice, layout: &'a Layout, sb: &Superblock) -> Self {
        Early {
            device,
            layout,
            checksums: sb.checksum_mode(),
        }
    }
}

impl Early<'_> {
    pub(super) fn block(&self, nr: u64) -> Result<Vec<u8>> {
        let mut bytes = vec![0; self.layout.block_size as usize];
        self.device
            .read(nr * u64::from(self.layout.block_size), &mut bytes)?;
        Ok(bytes)
    }

    /// All group descriptors, checked.
    pub(super) fn descriptors(&self) -> Result<Vec<GroupDesc>> {
        let mut held = Held::default();
        (0..self.layout.group_count)
            .map(|group| self.descriptor(group, &mut held))
            .collect()
    }

    /// A block. `held` keeps it for the next call.
    fn held<'h>(&self, nr: u64, held: &'h mut Held) -> Result<&'h [u8]> {
        if !held.0.contains_key(&nr) && held.0.len() >= HELD / self.layout.block_size as usize {
            held.0.clear();
        }
        Ok(match held.0.entry(nr) {
            Entry::Occupied(block) => block.into_mut(),
            Entry::Vacant(place) => place.insert(self.block(nr)?),
        })
    }

    /// One group descriptor, checked.
    fn descriptor(&self, group: u32, held: &mut Held) -> Result<GroupDesc> {
        let bad = |nr: u64, detail: &str| {
            FsError::corrupt("group descriptor", nr, format!("group {group}: {detail}"))
        };
        let (nr, offset) = self
            .layout
            .desc_position(group)
            .ok_or_else(|| bad(0, "lies outside the volume"))?;
        let block = self.held(nr, held)?;
        let bytes = block
            .get(offset..offset + usize::from(self.layout.desc_size))
            .ok_or_else(|| bad(nr, "past the end of its block"))?;
        if !group_desc::verify_checksum(bytes, group, &self.checksums) {
            return Err(bad(nr, "checksum does not match"));
        }
        let mut desc = GroupDesc::decode(bytes)?;
        if self.checksums == ChecksumMode::None {
            // Without checksums these flags mean nothing, and bitmaps are never initialised later.
            let unused = GroupFlags::INODE_UNINIT | GroupFlags::BLOCK_UNINIT;
            desc.set_flags(desc.flags() - unused);
        }
        self.layout
            .check_group_desc(group, &desc)
            .map_err(|e| bad(nr, &e.to_string()))?;
        Ok(desc)
    }

    /// The bytes of an inode, checked.
    pub(super) fn inode(&self, ino: Ino) -> Result<InodeView<Box<[u8]>>> {
        self.one_of_many(ino, &mut Held::default())
    }

    /// The bytes of an inode, checked, for a caller that reads many inodes.
    pub(super) fn one_of_many(&self, ino: Ino, held: &mut Held) -> Result<InodeView<Box<[u8]>>> {
        let bad =
            |nr: u64, detail: &str| FsError::corrupt("inode", nr, format!("inode {ino}: {detail}"));
        let (group, index) = self
            .layout
            .locate_inode(ino)
            .ok_or_else(|| bad(0, "no such inode"))?;
        let desc = self.descriptor(group, held)?;
        let (nr, offset) = self.layout.inode_position(desc.inode_table(), index);
        let block = self.held(nr, held)?;
        let slot = block
            .get(offset..offset + usize::from(self.layout.inode_size))
            .unwrap_or_default();
        let view = InodeView::new(Box::<[u8]>::from(slot))?;
        if !view.verify_checksum(ino, &self.checksums) {
            return Err(bad(nr, "checksum does not match"));
        }
        view.check(ino, self.layout)
            .map_err(|e| bad(nr, &e.to_string()))?;
        Ok(view)
    }

    /// Checks that there is a root directory, because without it no file can be reached.
    ///
    /// # Errors
    /// `Corrupt`.
    pub(super) fn check_root(&self) -> Result<()> {
        let root = self.inode(ROOT_INO)?;
        if root.is_dir() && root.links() > 0 {
            return Ok(());
        }
        let detail = format!(
            "the root (inode {ROOT_INO}) is not a directory: mode {:o}, {} links",
            root.mode(),
            root.links()
        );
        Err(FsError::corrupt("inode", 0, detail))
    }

    /// The runs of an inode's blocks, (first block, count) in file order. The file has no holes and
    /// no unwritten blocks, like a journal and an orphan file.
    pub(super) fn runs(&self, ino: Ino, inode: &InodeView<Box<[u8]>>) -> Result<Vec<(u64, u64)>> {
        let bad =
            |detail: String| FsError::corrupt("extent tree", 0, format!("inode {ino}: {detail}"));
        let blocks = inode.size() / u64::from(self.layout.block_size);
        if inode.flags().contains(InodeFlags::INLINE_DATA) {
            return Err(bad("its data is in the inode".into()));
        }
        // A damaged map could name the same block again and again.
        if blocks > self.layout.blocks_count {
            return Err(bad(format!(
                "it has {blocks} blocks, more than the volume ({})",
                self.layout.blocks_count
            )));
        }
        let extents = if inode.flags().contains(InodeFlags::EXTENTS) {
            let seed = inode.csum_seed(ino, &self.checksums);
            let expect = Expect::root(self.layout.valid_blocks());
            let mut extents = Vec::new();
            self.walk(inode.i_block(), &expect, seed, &mut extents)?;
            extents
        } else {
            self.mapped(ino, inode, blocks)?
        };
        let mut runs = Vec::new();
        let mut at = 0;
        for e in extents {
            if at >= blocks {
                break;
            }
            if u64::from(e.block) != at || e.unwritten {
                return Err(bad(format!("block {at} has no content")));
            }
            let len = u64::from(e.len).min(blocks - at);
            runs.push((e.start, len));
            at += len;
        }
        if at < blocks {
            return Err(bad(format!("only {at} of its {blocks} blocks are mapped")));
        }
        let mut sorted = runs.clone();
        sorted.sort_unstable();
        if let Some([(start, len), (next, _)]) = sorted
            .array_windows()
            .find(|[(start, len), (next, _)]| start + len > *next)
        {
            let both = format!("{len} blocks from {start} on, and others from {next} on");
            return Err(bad(format!("it maps blocks twice: {both}")));
        }
        Ok(runs)
    }

    /// The extents of a block-mapped inode up to its first hole.
    fn mapped(&self, ino: Ino, inode: &InodeView<Box<[u8]>>, blocks: u64) -> Result<Vec<Extent>> {
        let map = EarlyMap { early: self, ino };
        let valid = self.layout.valid_blocks();
        let mut extents = Vec::new();
        let mut at = 0;
        while at < blocks {
            let block = u32::try_from(at).map_err(|_| FsError::Errno(libc::EFBIG))?;
            let Found::Extent(e) = blockmap::find(&map, inode.i_block(), block, u32::MAX)? else {
                break;
            };
            if !valid.contains(&e.start) || e.start + u64::from(e.len) > valid.end {
                return Err(FsError::corrupt(
                    "block map",
                    e.start,
                    format!("inode {ino}: {} blocks extend beyond the volume", e.len),
                ));
            }
            at = e.logical_end();
            extents.push(e);
            if extents.len() > MAX_EXTENTS {
                return Err(FsError::corrupt(
                    "block map",
                    e.start,
                    format!("inode {ino}: too many runs of blocks"),
                ));
            }
        }
        Ok(extents)
    }

    /// Collects the extents below a node. The depth falls with every level (checked by the node),
    /// so the recursion is bounded.
    fn walk(
        &self,
        bytes: &[u8],
        expect: &Expect,
        seed: Option<u32>,
        out: &mut Vec<Extent>,
    ) -> Result<()> {
        let node = NodeRef::new(bytes)?;
        node.check(expect)?;
        out.extend(node.extents());
        for (i, index) in node.indexes().enumerate() {
            let below = node.expect_child(i, expect).ok_or_else(|| {
                FsError::corrupt(
                    "extent tree",
                    index.child,
                    "an index entry that is out of order",
                )
            })?;
            if out.len() > MAX_EXTENTS {
                return Err(FsError::corrupt(
                    "extent tree",
                    index.child,
                    "too many extents",
                ));
            }
            let block = self.block(index.child)?;
            if !extent::verify_block_checksum(seed, &block) {
                return Err(FsError::corrupt(
                    "extent tree",
                    index.child,
                    "checksum does not match",
                ));
            }
            self.walk(&block, &below, seed, out)?;
        }
        Ok(())
    }
}
