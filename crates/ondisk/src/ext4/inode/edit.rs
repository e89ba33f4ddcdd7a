//! Setters: they change an inode in place.

use super::raw::RawInode;
use super::{DeviceNumber, I_BLOCK, I_BLOCK_LEN, InodeFlags, InodeView};
use crate::bytes::put;
use crate::error::{OnDiskError, Result};
use crate::ext4::checksum::{ChecksumMode, ext4_crc32c};
use crate::ext4::time::Timestamp;
use crate::num::{high16, high32, low16, low32};
use core::mem::offset_of;

impl<B: AsRef<[u8]> + AsMut<[u8]>> InodeView<B> {
    /// The bytes, mutable.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.0.as_mut()
    }

    /// Stores `v` at `off`, which lies in the first 128 bytes or was checked with `has`.
    pub(super) fn put(&mut self, off: usize, v: &[u8]) {
        let stored = put(self.0.as_mut(), off, v);
        debug_assert!(stored.is_some());
    }

    fn put_extra_u32(&mut self, off: usize, v: u32) {
        if self.has(off, 4) {
            self.put(off, &v.to_le_bytes());
        }
    }

    fn put_split_16(&mut self, lo: usize, hi: usize, v: u32) {
        self.put(lo, &low16(v).to_le_bytes());
        self.put(hi, &high16(v).to_le_bytes());
    }

    /// Sets [`mode`](Self::mode).
    pub fn set_mode(&mut self, mode: u16) {
        self.put(offset_of!(RawInode, mode), &mode.to_le_bytes());
    }

    /// Sets [`uid`](Self::uid).
    pub fn set_uid(&mut self, uid: u32) {
        self.put_split_16(
            offset_of!(RawInode, uid),
            offset_of!(RawInode, uid_high),
            uid,
        );
    }

    /// Sets [`gid`](Self::gid).
    pub fn set_gid(&mut self, gid: u32) {
        self.put_split_16(
            offset_of!(RawInode, gid),
            offset_of!(RawInode, gid_high),
            gid,
        );
    }

    /// Sets [`size`](Self::size), bytes.
    pub fn set_size(&mut self, size: u64) {
        self.put(offset_of!(RawInode, size_lo), &low32(size).to_le_bytes());
        self.put(offset_of!(RawInode, size_high), &high32(size).to_le_bytes());
    }

    /// Sets [`links`](Self::links).
    pub fn set_links(&mut self, links: u16) {
        self.put(offset_of!(RawInode, links_count), &links.to_le_bytes());
    }

    /// Sets [`blocks_512`](Self::blocks_512) and with it the flag `HUGE_FILE`. Fails when the
    /// volume's features cannot express `n`.
    pub fn set_blocks_512(&mut self, n: u64, huge_file: bool, block_size: u32) -> Result<()> {
        let bits = if huge_file { 48 } else { 32 };
        let in_blocks = n / u64::from(block_size / 512).max(1);
        let (stored, huge) = if n >> bits == 0 {
            (n, false)
        } else if huge_file && in_blocks >> bits == 0 {
            (in_blocks, true)
        } else {
            return Err(OnDiskError::Unsupported {
                feature: format!("file of {n} sectors"),
            });
        };
        let mut flags = self.flags();
        flags.set(InodeFlags::HUGE_FILE, huge);
        self.set_flags(flags);
        self.put(
            offset_of!(RawInode, blocks_lo),
            &low32(stored).to_le_bytes(),
        );
        self.put(
            offset_of!(RawInode, blocks_high),
            &low16(high32(stored)).to_le_bytes(),
        );
        Ok(())
    }

    /// Sets [`flags`](Self::flags).
    pub fn set_flags(&mut self, flags: InodeFlags) {
        self.put(offset_of!(RawInode, flags), &flags.bits().to_le_bytes());
    }

    /// Sets [`generation`](Self::generation); every checksum of the inode's blocks depends on it.
    pub fn set_generation(&mut self, generation: u32) {
        self.put(offset_of!(RawInode, generation), &generation.to_le_bytes());
    }

    /// Sets [`file_acl`](Self::file_acl), cut to 48 bits.
    pub fn set_file_acl(&mut self, block: u64) {
        self.put(
            offset_of!(RawInode, file_acl_lo),
            &low32(block).to_le_bytes(),
        );
        self.put(
            offset_of!(RawInode, file_acl_high),
            &low16(high32(block)).to_le_bytes(),
        );
    }

    /// Sets [`dtime`](Self::dtime).
    pub fn set_dtime(&mut self, dtime: u32) {
        self.put(offset_of!(RawInode, dtime), &dtime.to_le_bytes());
    }

    /// Sets [`version`](Self::version).
    pub fn set_version(&mut self, version: u64) {
        self.put(offset_of!(RawInode, version), &low32(version).to_le_bytes());
        self.put_extra_u32(offset_of!(RawInode, version_hi), high32(version));
    }

    /// Sets [`value_refs`](Self::value_refs).
    pub fn set_value_refs(&mut self, refs: u64) {
        let (high, low) = (high32(refs), low32(refs));
        self.put(offset_of!(RawInode, ctime), &high.to_le_bytes());
        self.put_extra_u32(offset_of!(RawInode, ctime_extra), 0);
        self.set_version(u64::from(low));
    }

    /// Sets [`value_hash`](Self::value_hash).
    pub fn set_value_hash(&mut self, hash: u32) {
        self.put(offset_of!(RawInode, atime), &hash.to_le_bytes());
        // Software that reads it as a time must see positive seconds above 2³¹.
        self.put_extra_u32(offset_of!(RawInode, atime_extra), hash >> 31);
    }

    /// Sets [`project`](Self::project), if the inode has the field.
    pub fn set_project(&mut self, project: u32) {
        self.put_extra_u32(offset_of!(RawInode, projid), project);
    }

    fn set_time(&mut self, seconds: usize, extra: usize, t: Timestamp) {
        if self.has(extra, 4) {
            let (low, x) = t.encode();
            self.put(seconds, &low.to_le_bytes());
            self.put(extra, &x.to_le_bytes());
        } else {
            self.put(seconds, &t.encode_32().to_le_bytes());
        }
    }

    /// Sets [`atime`](Self::atime), clamped to what the inode can hold.
    pub fn set_atime(&mut self, t: Timestamp) {
        self.set_time(
            offset_of!(RawInode, atime),
            offset_of!(RawInode, atime_extra),
            t,
        );
    }

    /// Sets [`ctime`](Self::ctime), clamped to what the inode can hold.
    pub fn set_ctime(&mut self, t: Timestamp) {
        self.set_time(
            offset_of!(RawInode, ctime),
            offset_of!(RawInode, ctime_extra),
            t,
        );
    }

    /// Sets [`mtime`](Self::mtime), clamped to what the inode can hold.
    pub fn set_mtime(&mut self, t: Timestamp) {
        self.set_time(
            offset_of!(RawInode, mtime),
            offset_of!(RawInode, mtime_extra),
            t,
        );
    }

    /// Sets [`crtime`](Self::crtime), if the inode has the field.
    pub fn set_crtime(&mut self, t: Timestamp) {
        const SECONDS: usize = offset_of!(RawInode, crtime);
        if self.has(SECONDS, 4) {
            self.set_time(SECONDS, offset_of!(RawInode, crtime_extra), t);
        }
    }

    /// `i_block`, mutable.
    pub fn i_block_mut(&mut self) -> &mut [u8] {
        self.bytes_mut()
            .get_mut(I_BLOCK..I_BLOCK + I_BLOCK_LEN)
            .unwrap_or_default()
    }

    /// Stores a short symbolic link's target in `i_block` and sets the size; returns whether it
    /// fits (below 60 bytes).
    pub fn set_inline_symlink(&mut self, target: &[u8]) -> bool {
        if target.len() >= I_BLOCK_LEN {
            return false;
        }
        let block = self.i_block_mut();
        block.fill(0);
        for (to, from) in block.iter_mut().zip(target) {
            *to = *from;
        }
        self.set_flags(self.flags() - InodeFlags::EXTENTS - InodeFlags::INLINE_DATA);
        self.set_size(target.len() as u64);
        true
    }

    /// Stores [`device`](Self::device) in the encoding that the kernel uses; major and minor are
    /// cut to 12 and 20 bits.
    pub fn set_device(&mut self, dev: DeviceNumber) {
        let (major, minor) = (dev.major & 0xfff, dev.minor & 0xf_ffff);
        let (old, new) = if major < 256 && minor < 256 {
            ((major << 8) | minor, 0)
        } else {
            (0, (minor & 0xff) | (major << 8) | ((minor & !0xff) << 12))
        };
        self.i_block_mut().fill(0);
        self.put(I_BLOCK, &old.to_le_bytes());
        self.put(I_BLOCK + 4, &new.to_le_bytes());
    }

    /// The in-inode extended attributes, mutable.
    pub fn xattr_area_mut(&mut self) -> Option<&mut [u8]> {
        let range = self.xattr_range()?;
        self.bytes_mut().get_mut(range)
    }

    /// Stores the checksum, if the volume has checksums. Call it last.
    pub fn update_checksum(&mut self, ino: u32, mode: &ChecksumMode) {
        let Some(seed) = self.csum_seed(ino, mode) else {
            return;
        };
        // Checksum fields count as zero: with zeros in them one pass sums up the whole inode.
        self.put_checksum(0);
        let checksum = ext4_crc32c(seed, self.bytes());
        self.put_checksum(checksum);
        debug_assert!(self.verify_checksum(ino, mode), "the checksum of {ino}");
    }

    fn put_checksum(&mut self, checksum: u32) {
        self.put(
            offset_of!(RawInode, checksum_lo),
            &low16(checksum).to_le_bytes(),
        );
        if self.has_checksum_hi() {
            self.put(
                offset_of!(RawInode, checksum_hi),
                &high16(checksum).to_le_bytes(),
            );
        }
    }
}
