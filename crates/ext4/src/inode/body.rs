//! The bytes of an inode and what they mean ("Index Nodes" in the ext4 documentation).

use std::ops::{Deref, DerefMut};

use stetfs_ondisk::ext4::features::Incompat;
use stetfs_ondisk::ext4::inode::{DeviceNumber, I_BLOCK_LEN, InodeFlags, InodeView};
use stetfs_ondisk::ext4::time::Timestamp;

use super::orphans::OrphanPlace;
use crate::error::{FsError, Result};
use crate::geometry::Geometry;
use crate::quota::Tally;
use crate::types::{FileType, Ino, ROOT_INO};

/// The on-disk inode, behind the inode's lock. Derefs to the typed view of its bytes, in-inode
/// attributes included; what needs the volume's features or types of ours has a method here. The
/// checksum inside is brought up to date by `InodeStore::write_inode` only.
pub(crate) struct InodeBody {
    view: InodeView<Box<[u8]>>,
    block_size: u32,
    /// Bytes.
    cluster_size: u32,
    huge_file: bool,
    /// The volume has values in inodes of their own, which count in `i_blocks` of those who refer
    /// to them.
    values: bool,
    /// What quota knows of it.
    pub(crate) tally: Tally,
    /// Where the orphan mechanism remembers this inode.
    pub(crate) orphan: Option<OrphanPlace>,
}

impl Deref for InodeBody {
    type Target = InodeView<Box<[u8]>>;
    fn deref(&self) -> &InodeView<Box<[u8]>> {
        &self.view
    }
}

impl DerefMut for InodeBody {
    fn deref_mut(&mut self) -> &mut InodeView<Box<[u8]>> {
        &mut self.view
    }
}

impl InodeBody {
    /// A body from the bytes of an inode table slot (`Geometry::inode_size` of them), which is
    /// taken to be counted as it is.
    pub(crate) fn new(raw: Box<[u8]>, geo: &Geometry) -> Result<InodeBody> {
        let mut body = InodeBody {
            view: InodeView::new(raw)?,
            block_size: geo.block_size,
            cluster_size: geo.cluster_size(),
            huge_file: geo.huge_file(),
            values: geo.incompat.contains(Incompat::EA_INODE),
            tally: Tally::default(),
            orphan: None,
        };
        body.tally.counted = body.usage();
        Ok(body)
    }

    /// The type; `None` if the mode holds none that exists.
    pub(crate) fn kind(&self) -> Option<FileType> {
        FileType::from_mode(u32::from(self.view.mode()))
    }

    /// Whether blocks of the volume are mapped to its content, however that is written down.
    pub(crate) fn is_mapped(&self) -> bool {
        let flags = self.view.flags();
        if flags.contains(InodeFlags::INLINE_DATA) {
            return false;
        }
        // A link's size may have been set to 0 before its block is taken away.
        let attributes = match self.view.file_acl() {
            0 => 0,
            _ => u64::from(self.cluster_size / 512),
        };
        let short = self.values && (1..I_BLOCK_LEN as u64).contains(&self.view.size());
        let link = self.view.is_symlink()
            && (flags.contains(InodeFlags::EXTENTS) || (!short && self.blocks() > attributes));
        link || self.view.is_regular() || self.view.is_dir()
    }

    /// Whether the inode holds its content itself.
    pub(crate) fn is_inline(&self) -> bool {
        self.view.flags().contains(InodeFlags::INLINE_DATA)
    }

    /// Refuses what can be read with a key only.
    ///
    /// # Errors
    /// ENOKEY for encrypted inodes.
    pub(crate) fn check_key(&self) -> Result<()> {
        if self.view.flags().contains(InodeFlags::ENCRYPT) {
            return Err(FsError::Errno(libc::ENOKEY));
        }
        Ok(())
    }

    /// Whether it holds nothing that would have to be freed: no content, no blocks.
    pub(crate) fn is_bare(&self) -> bool {
        self.blocks() == 0 && self.size() == 0
    }

    /// Space used, 512-byte units (`i_blocks`).
    pub(crate) fn blocks(&self) -> u64 {
        self.view.blocks_512(self.huge_file, self.block_size)
    }

    /// Sets the space used, 512-byte units.
    ///
    /// # Errors
    /// EFBIG when the volume cannot count that many.
    pub(crate) fn set_blocks(&mut self, n: u64) -> Result<()> {
        let (huge_file, block_size) = (self.huge_file, self.block_size);
        self.view
            .set_blocks_512(n, huge_file, block_size)
            .map_err(|_| FsError::Errno(libc::EFBIG))
    }

    /// Adds (or, negative, takes away) file-system blocks to the space used.
    ///
    /// # Errors
    /// EFBIG when the volume cannot count that many; `Corrupt` when more are taken than are used.
    pub(crate) fn add_blocks(&mut self, blocks: i64) -> Result<()> {
        let sectors = blocks.saturating_mul(i64::from(self.block_size / 512));
        let n = self.blocks().checked_add_signed(sectors).ok_or_else(|| {
            FsError::corrupt(
                "inode",
                0,
                format!("{} sectors in use, {} are freed", self.blocks(), -sectors),
            )
        })?;
        self.set_blocks(n)
    }

    /// Device number of a device node, as Linux' `makedev` packs it; 0 for other types.
    pub(crate) fn rdev(&self) -> u64 {
        if !matches!(
            self.kind(),
            Some(FileType::CharDevice | FileType::BlockDevice)
        ) {
            return 0;
        }
        let DeviceNumber { major, minor } = self.view.device();
        libc::makedev(major, minor)
    }

    /// Stores the device number of a device node.
    pub(crate) fn set_rdev(&mut self, rdev: u64) {
        self.view.set_device(DeviceNumber {
            major: libc::major(rdev),
            minor: libc::minor(rdev),
        });
    }

    /// Birth, or the last change of the inode where there is no room for a birth.
    pub(crate) fn birth(&self) -> Timestamp {
        self.view.crtime().unwrap_or_else(|| self.view.ctime())
    }

    /// Sets last change of the inode, as every change of it does.
    pub(crate) fn touch(&mut self, now: Timestamp) {
        self.view.set_ctime(now);
    }
}

/// Whether `ino` is a number that a name may lead to: the root, or not reserved.
pub(crate) fn is_ordinary(geo: &Geometry, ino: Ino) -> bool {
    ino == ROOT_INO || (ino >= geo.first_ino && ino <= geo.inodes_count)
}
