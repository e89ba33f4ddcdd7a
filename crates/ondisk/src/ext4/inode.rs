//! Inodes ("Index Nodes" in the ext4 documentation): typed access to the raw bytes of one slot of
//! an inode table.
//!
//! [`InodeView`] works on any byte container: [`InodeRef`] and [`InodeMut`] borrow a slot of a
//! table block, and `InodeView<Box<[u8]>>` owns a copy. Fields past byte 128 exist only as far as
//! `i_extra_isize` reaches; getters of absent fields return `None` or zero and setters have no
//! effect.

mod edit;
mod new;
mod raw;
#[cfg(test)]
mod tests;

pub use new::NewInode;
pub use raw::{InodeFlags, S_IFMT};

use super::checksum::{ChecksumMode, ext4_crc32c, inode_seed};
use super::dirent::FileType;
use super::superblock::Geometry;
use super::time::Timestamp;
use crate::bytes::{le16, le32, too_short};
use crate::error::{Result, corrupt};
use crate::num::count16;
use core::mem::offset_of;
use core::ops::Range;
use raw::{RawInode, S_IFDIR, S_IFLNK, S_IFREG};

/// Size in bytes of an inode without extra fields, and of the part that every inode has.
pub const GOOD_OLD_INODE_SIZE: usize = 128;
/// `i_extra_isize` of an inode that has all fields known to StetFS, bytes.
pub const FULL_EXTRA_ISIZE: u16 = count16(size_of::<RawInode>() - GOOD_OLD_INODE_SIZE);
/// Size of `i_block`, bytes.
pub const I_BLOCK_LEN: usize = 60;
/// Largest link count; a directory with more has link count 1 (`dir_nlink`).
pub const LINK_MAX: u16 = 65000;

const WHAT: &str = "inode";
const I_BLOCK: usize = offset_of!(RawInode, block);

/// A device number, as held by character and block device inodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct DeviceNumber {
    /// Major number, 12 bits.
    pub major: u32,
    /// Minor number, 20 bits.
    pub minor: u32,
}

/// One inode in a byte container. The length is checked once, at construction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InodeView<B>(B);

/// A borrowed inode.
pub type InodeRef<'a> = InodeView<&'a [u8]>;
/// A mutably borrowed inode.
pub type InodeMut<'a> = InodeView<&'a mut [u8]>;

impl<B: AsRef<[u8]>> InodeView<B> {
    /// Wraps the bytes of one inode: exactly the volume's inode size, at least 128. Any content is
    /// accepted; see [`check`](Self::check).
    pub fn new(bytes: B) -> Result<Self> {
        let len = bytes.as_ref().len();
        if len < GOOD_OLD_INODE_SIZE {
            return Err(too_short(WHAT, len, GOOD_OLD_INODE_SIZE));
        }
        Ok(InodeView(bytes))
    }

    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.0.as_ref()
    }

    /// Returns the container.
    pub fn into_inner(self) -> B {
        self.0
    }

    fn u16_at(&self, off: usize) -> u16 {
        le16(self.bytes(), off).unwrap_or(0)
    }

    fn u32_at(&self, off: usize) -> u32 {
        le32(self.bytes(), off).unwrap_or(0)
    }

    /// Whether `len` bytes at `off` lie inside the fields this inode has (`EXT4_FITS_IN_INODE`).
    fn has(&self, off: usize, len: usize) -> bool {
        off + len <= GOOD_OLD_INODE_SIZE + usize::from(self.extra_isize())
    }

    fn extra_u32(&self, off: usize) -> Option<u32> {
        self.has(off, 4).then(|| self.u32_at(off))
    }

    /// `i_extra_isize`: bytes past 128 that hold fields. Zero in a 128-byte inode, and when the
    /// stored value is impossible (no multiple of 4, or past the end), which
    /// [`check`](Self::check) reports.
    #[must_use]
    pub fn extra_isize(&self) -> u16 {
        self.stored_extra_isize()
            .filter(|e| self.extra_isize_is_valid(*e))
            .unwrap_or(0)
    }

    fn stored_extra_isize(&self) -> Option<u16> {
        (self.bytes().len() >= GOOD_OLD_INODE_SIZE + 4)
            .then(|| self.u16_at(offset_of!(RawInode, extra_isize)))
    }

    fn extra_isize_is_valid(&self, e: u16) -> bool {
        // The field includes itself and its neighbour, so 1 to 3 are impossible.
        e.is_multiple_of(4) && GOOD_OLD_INODE_SIZE + usize::from(e) <= self.bytes().len()
    }

    /// `i_mode`: file type and permissions.
    #[must_use]
    pub fn mode(&self) -> u16 {
        self.u16_at(offset_of!(RawInode, mode))
    }

    /// Type of the file; [`FileType::Unknown`] for a free or corrupt inode.
    #[must_use]
    pub fn file_type(&self) -> FileType {
        FileType::from_mode(u32::from(self.mode()))
    }

    /// Whether this is a directory.
    #[must_use]
    pub fn is_dir(&self) -> bool {
        self.mode() & S_IFMT == S_IFDIR
    }

    /// Whether this is a regular file.
    #[must_use]
    pub fn is_regular(&self) -> bool {
        self.mode() & S_IFMT == S_IFREG
    }

    /// Whether this is a symbolic link.
    #[must_use]
    pub fn is_symlink(&self) -> bool {
        self.mode() & S_IFMT == S_IFLNK
    }

    /// Owner, 32 bits.
    #[must_use]
    pub fn uid(&self) -> u32 {
        u32::from(self.u16_at(offset_of!(RawInode, uid)))
            | u32::from(self.u16_at(offset_of!(RawInode, uid_high))) << 16
    }

    /// Group, 32 bits.
    #[must_use]
    pub fn gid(&self) -> u32 {
        u32::from(self.u16_at(offset_of!(RawInode, gid)))
            | u32::from(self.u16_at(offset_of!(RawInode, gid_high))) << 16
    }

    /// Size, bytes. Not more than `i64::MAX` once [`check`](Self::check) has passed.
    #[must_use]
    pub fn size(&self) -> u64 {
        u64::from(self.u32_at(offset_of!(RawInode, size_lo)))
            | u64::from(self.u32_at(offset_of!(RawInode, size_high))) << 32
    }

    /// `i_links_count`.
    #[must_use]
    pub fn links(&self) -> u16 {
        self.u16_at(offset_of!(RawInode, links_count))
    }

    /// Space in use, in units of 512 bytes. `huge_file` is the volume's feature, `block_size` in
    /// bytes.
    #[must_use]
    pub fn blocks_512(&self, huge_file: bool, block_size: u32) -> u64 {
        let lo = u64::from(self.u32_at(offset_of!(RawInode, blocks_lo)));
        if !huge_file {
            return lo;
        }
        let n = lo | u64::from(self.u16_at(offset_of!(RawInode, blocks_high))) << 32;
        if self.flags().contains(InodeFlags::HUGE_FILE) {
            n.saturating_mul(u64::from(block_size / 512))
        } else {
            n
        }
    }

    /// `i_flags`.
    #[must_use]
    pub fn flags(&self) -> InodeFlags {
        InodeFlags::from_bits_retain(self.u32_at(offset_of!(RawInode, flags)))
    }

    /// `i_generation`.
    #[must_use]
    pub fn generation(&self) -> u32 {
        self.u32_at(offset_of!(RawInode, generation))
    }

    /// Block of extended attributes (`i_file_acl`), 48 bits; 0 if there is none.
    #[must_use]
    pub fn file_acl(&self) -> u64 {
        u64::from(self.u32_at(offset_of!(RawInode, file_acl_lo)))
            | u64::from(self.u16_at(offset_of!(RawInode, file_acl_high))) << 32
    }

    /// `i_dtime`: deletion time in seconds, or the next orphan's inode number.
    #[must_use]
    pub fn dtime(&self) -> u32 {
        self.u32_at(offset_of!(RawInode, dtime))
    }

    /// `i_version`: counts changes; 32 bits if the high half does not fit.
    #[must_use]
    pub fn version(&self) -> u64 {
        let hi = self
            .extra_u32(offset_of!(RawInode, version_hi))
            .unwrap_or(0);
        u64::from(self.u32_at(offset_of!(RawInode, version))) | u64::from(hi) << 32
    }

    /// The number of entries that refer to an inode with an attribute's value (`EA_INODE`). The
    /// high half is in the field `i_ctime`, the low one in `i_version`.
    #[must_use]
    pub fn value_refs(&self) -> u64 {
        u64::from(self.u32_at(offset_of!(RawInode, ctime))) << 32
            | u64::from(self.u32_at(offset_of!(RawInode, version)))
    }

    /// The checksum of the value ([`value_hash`](super::xattr::value_hash)) in an inode with an
    /// attribute's value, in the field `i_atime`.
    #[must_use]
    pub fn value_hash(&self) -> u32 {
        self.u32_at(offset_of!(RawInode, atime))
    }

    /// Project number, if the inode has the field.
    #[must_use]
    pub fn project(&self) -> Option<u32> {
        self.extra_u32(offset_of!(RawInode, projid))
    }

    fn time(&self, seconds: usize, extra: usize) -> Timestamp {
        Timestamp::decode(self.u32_at(seconds), self.extra_u32(extra))
    }

    /// Last access.
    #[must_use]
    pub fn atime(&self) -> Timestamp {
        self.time(
            offset_of!(RawInode, atime),
            offset_of!(RawInode, atime_extra),
        )
    }

    /// Last change of the inode.
    #[must_use]
    pub fn ctime(&self) -> Timestamp {
        self.time(
            offset_of!(RawInode, ctime),
            offset_of!(RawInode, ctime_extra),
        )
    }

    /// Last change of the content.
    #[must_use]
    pub fn mtime(&self) -> Timestamp {
        self.time(
            offset_of!(RawInode, mtime),
            offset_of!(RawInode, mtime_extra),
        )
    }

    /// Creation time, if the inode has the field.
    #[must_use]
    pub fn crtime(&self) -> Option<Timestamp> {
        let seconds = self.extra_u32(offset_of!(RawInode, crtime))?;
        Some(Timestamp::decode(
            seconds,
            self.extra_u32(offset_of!(RawInode, crtime_extra)),
        ))
    }

    /// `i_block`: an extent tree's root, a block map, a short symbolic link or a device number.
    #[must_use]
    pub fn i_block(&self) -> &[u8] {
        self.bytes()
            .get(I_BLOCK..I_BLOCK + I_BLOCK_LEN)
            .unwrap_or_default()
    }

    /// Target of a symbolic link in `i_block` ("fast symlink"); `None` if it lies in blocks or the
    /// inode is no symbolic link.
    #[must_use]
    pub fn inline_symlink(&self) -> Option<&[u8]> {
        let len = usize::try_from(self.size())
            .ok()
            .filter(|n| *n < I_BLOCK_LEN)?;
        let elsewhere = InodeFlags::EXTENTS | InodeFlags::INLINE_DATA;
        if !self.is_symlink() || self.flags().intersects(elsewhere) {
            return None;
        }
        self.i_block().get(..len)
    }

    /// Device number of a character or block device: the 16-bit encoding in word 0 of `i_block`,
    /// or if that is zero the 32-bit one in word 1.
    #[must_use]
    pub fn device(&self) -> DeviceNumber {
        match self.u32_at(I_BLOCK) {
            0 => {
                let dev = self.u32_at(I_BLOCK + 4);
                DeviceNumber {
                    major: (dev >> 8) & 0xfff,
                    minor: (dev & 0xff) | ((dev >> 12) & 0xf_ff00),
                }
            }
            dev => DeviceNumber {
                major: (dev >> 8) & 0xff,
                minor: dev & 0xff,
            },
        }
    }

    /// Byte range of the in-inode extended attributes in [`bytes`](Self::bytes), magic number
    /// included; `None` if the inode has no room for any.
    #[must_use]
    pub fn xattr_range(&self) -> Option<Range<usize>> {
        let extra = Some(self.extra_isize()).filter(|e| *e != 0)?;
        let start = GOOD_OLD_INODE_SIZE + usize::from(extra);
        // Room for the magic number and one terminating zero word.
        (start + 8 <= self.bytes().len()).then(|| start..self.bytes().len())
    }

    /// The in-inode extended attributes, at [`xattr_range`](Self::xattr_range).
    #[must_use]
    pub fn xattr_area(&self) -> Option<&[u8]> {
        self.bytes().get(self.xattr_range()?)
    }

    /// Checks the properties that every user of inode `ino` relies on: a possible `i_extra_isize`,
    /// a known file type, a size below 2⁶³ and an attribute block inside the volume. Only for
    /// inodes in use; the checksum is not verified.
    pub fn check(&self, ino: u32, geometry: &Geometry) -> Result<()> {
        if let Some(e) = self
            .stored_extra_isize()
            .filter(|e| !self.extra_isize_is_valid(*e))
        {
            return Err(corrupt!(
                WHAT,
                "{ino}: extra size {e} in {} bytes",
                self.bytes().len()
            ));
        }
        if self.file_type() == FileType::Unknown {
            return Err(corrupt!(WHAT, "{ino}: mode {:o}", self.mode()));
        }
        if i64::try_from(self.size()).is_err() {
            return Err(corrupt!(WHAT, "{ino}: size {}", self.size()));
        }
        if self.file_acl() != 0 && !geometry.valid_blocks().contains(&self.file_acl()) {
            return Err(corrupt!(WHAT, "{ino}: attribute block {}", self.file_acl()));
        }
        Ok(())
    }

    /// Seed of the checksums of everything that belongs to this inode, with `metadata_csum`.
    #[must_use]
    pub fn csum_seed(&self, ino: u32, mode: &ChecksumMode) -> Option<u32> {
        Some(inode_seed(mode.metadata_seed()?, ino, self.generation()))
    }

    fn has_checksum_hi(&self) -> bool {
        self.has(offset_of!(RawInode, checksum_hi), 2)
    }

    /// The correct checksum of the inode; `None` without `metadata_csum`. In an inode without the
    /// high half only the low 16 bits count, and the high ones are zero here.
    #[must_use]
    pub fn compute_checksum(&self, ino: u32, mode: &ChecksumMode) -> Option<u32> {
        const LO: usize = offset_of!(RawInode, checksum_lo);
        const HI: usize = offset_of!(RawInode, checksum_hi);
        let at = |r: Range<usize>| self.bytes().get(r).unwrap_or_default();
        let len = self.bytes().len();
        let mut csum = ext4_crc32c(self.csum_seed(ino, mode)?, at(0..LO));
        csum = ext4_crc32c(csum, &[0, 0]);
        if !self.has_checksum_hi() {
            return Some(ext4_crc32c(csum, at(LO + 2..len)) & 0xffff);
        }
        csum = ext4_crc32c(csum, at(LO + 2..HI));
        csum = ext4_crc32c(csum, &[0, 0]);
        Some(ext4_crc32c(csum, at(HI + 2..len)))
    }

    /// Whether the checksum is valid (always, without `metadata_csum`).
    #[must_use]
    pub fn verify_checksum(&self, ino: u32, mode: &ChecksumMode) -> bool {
        let lo = u32::from(self.u16_at(offset_of!(RawInode, checksum_lo)));
        let hi = if self.has_checksum_hi() {
            self.u16_at(offset_of!(RawInode, checksum_hi))
        } else {
            0
        };
        self.compute_checksum(ino, mode)
            .is_none_or(|c| c == lo | u32::from(hi) << 16)
    }

    /// The words of `i_block` in a block map; absent ones are zero.
    #[must_use]
    pub fn block_map(&self) -> [u32; 15] {
        core::array::from_fn(|i| self.u32_at(I_BLOCK + 4 * i))
    }
}

/// Whether a slot of the inode table was never used: it is all zeros, which has no valid checksum.
#[must_use]
pub fn is_blank(bytes: &[u8]) -> bool {
    bytes.iter().all(|b| *b == 0)
}
