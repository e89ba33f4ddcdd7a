//! The on-disk inode in memory: its bytes and their meaning ("Index Nodes" in the ext4
//! documentation).

use std::ops::{Deref, DerefMut};

use stetfs_ondisk::ext4::features::Incompat;
use stetfs_ondisk::ext4::inode::{DeviceNumber, I_BLOCK_LEN, InodeFlags, InodeView};
use stetfs_ondisk::ext4::time::Timestamp;

use crate::error::{FsError, Result};
use crate::geometry::Geometry;
use crate::state::orphan_place::OrphanPlace;
use crate::state::tally::Tally;
use crate::types::{FileType, Ino, ROOT_INO};

/// The on-disk inode, behind the inode's lock. It derefs to the typed view of its bytes, in-inode
/// attributes included; its own methods need the volume's features or types of this crate. Only
/// `InodeStore::write_inode` brings the checksum in the bytes up to date.
pub(crate) struct InodeBody {
    view: InodeView<Box<[u8]>>,
    block_size: u32,
    /// Bytes.
    cluster_size: u32,
    huge_file: bool,
    /// The volume has values in inodes of their own (`ea_inode`). Each inode that refers to a value
    /// counts it in its own `i_blocks`.
    values: bool,
    /// The quota state of the inode.
    pub(crate) tally: Tally,
    /// The place of the inode in the orphan mechanism, if it is an orphan.
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
    /// A body from the bytes of an inode table slot (`Geometry::inode_size` of them). The accounts
    /// are taken to have counted the inode as these bytes have it.
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

    /// Whether the content is in blocks of the volume, mapped by extents or by a block map.
    pub(crate) fn is_mapped(&self) -> bool {
        let flags = self.view.flags();
        if flags.contains(InodeFlags::INLINE_DATA) {
            return false;
        }
        // The size of a symbolic link may have been set to 0 before its block is freed.
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

    /// Refuses an inode whose names or content need an encryption key.
    ///
    /// # Errors
    /// ENOKEY for encrypted inodes.
    pub(crate) fn check_key(&self) -> Result<()> {
        if self.view.flags().contains(InodeFlags::ENCRYPT) {
            return Err(FsError::Errno(libc::ENOKEY));
        }
        Ok(())
    }

    /// Whether nothing has to be freed with the inode: no content, no blocks.
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
                format!(
                    "{} sectors are freed, but only {} are in use",
                    -sectors,
                    self.blocks()
                ),
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

    /// The birth time; the time of the last inode change if the inode has no room for a birth time.
    pub(crate) fn birth(&self) -> Timestamp {
        self.view.crtime().unwrap_or_else(|| self.view.ctime())
    }

    /// Sets the time of the last inode change. Every change of the inode does this.
    pub(crate) fn touch(&mut self, now: Timestamp) {
        self.view.set_ctime(now);
    }
}

/// Whether a name may lead to the inode number `ino`: it is the root, or not reserved.
pub(crate) fn is_ordinary(geo: &Geometry, ino: Ino) -> bool {
    ino == ROOT_INO || (ino >= geo.first_ino && ino <= geo.inodes_count)
}
