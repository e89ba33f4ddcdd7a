//! The superblock while the volume is open.

use std::ops::Range;
use std::sync::atomic::Ordering;

use stetfs_journal::Handle;
use stetfs_ondisk::ext4::features::Compat;
use stetfs_ondisk::ext4::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock};

use super::early::write_superblock;
use super::shared::Volume;
use crate::error::{FsError, Result};
use crate::fs::Fs;

/// Bytes of the volume's name.
const LABEL_MAX: usize = 16;

impl Volume {
    /// Changes the superblock within a transaction. One credit.
    pub(crate) fn change_super(
        &self,
        h: &Handle<'_>,
        change: impl FnOnce(&mut Superblock),
    ) -> Result<()> {
        // Notes of errors go past the journal, and would not fit changes (`patch_super_home`).
        let mut page = h.modify_whole(&self.sb.block)?;
        self.sb.change(&mut page, change)
    }

    /// Changes the superblock in memory and at its home, durably, past the journal: only while the
    /// log is empty and nobody has a handle.
    pub(super) fn write_super(&self, change: impl FnOnce(&mut Superblock)) -> Result<()> {
        let device = self.cache.device();
        let before = self.super_at_home()?;
        let mut sb = self.sb.current()?;
        change(&mut sb);
        let written = write_superblock(&**device, &sb, &before)?;
        let mut write = self.sb.block.write();
        let (page, _) = write
            .page_mut()
            .ok_or_else(|| FsError::corrupt("superblock", self.sb.block_nr(), "not in memory"))?;
        self.sb.change(page, |sb| *sb = written)
    }

    fn super_at_home(&self) -> Result<Superblock> {
        let mut bytes = vec![0; SUPERBLOCK_SIZE];
        self.cache.device().read(SUPERBLOCK_OFFSET, &mut bytes)?;
        Ok(Superblock::decode_unchecked(&bytes)?)
    }

    /// Changes some fields of the superblock at its home only, durably: for notes of errors after
    /// the journal stopped. What is in memory may hold changes that must never get there.
    pub(super) fn patch_super_home(&self, change: impl FnOnce(&mut Superblock)) -> Result<()> {
        let before = self.super_at_home()?;
        let mut sb = before.clone();
        change(&mut sb);
        let device = self.sb.last_word.get().unwrap_or(self.cache.device());
        write_superblock(&**device, &sb, &before).map(drop)
    }

    /// Whether changes may be made.
    ///
    /// # Errors
    /// EIO after [`go_down`](Fs::go_down), ESHUTDOWN after unmount, EROFS on a volume that is
    /// read-only or became so.
    pub(crate) fn writable(&self) -> Result<()> {
        self.usable()?;
        if self.sb.closed.load(Ordering::Acquire) {
            return Err(FsError::Errno(libc::ESHUTDOWN));
        }
        if self.sb.read_only.load(Ordering::Acquire) {
            return Err(FsError::Errno(libc::EROFS));
        }
        Ok(())
    }
}

impl Fs {
    /// The volume's name, up to 16 bytes.
    ///
    /// # Errors
    /// The superblock's copy in memory is gone (the device failed).
    pub fn label(&self) -> Result<Vec<u8>> {
        Ok(self.vol.sb.current()?.label().to_vec())
    }

    /// Gives the volume a name. It is durable on return, and at its home, where others look for it
    /// (blkid).
    ///
    /// # Errors
    /// EINVAL above 16 bytes, EROFS, or the device or the journal failed.
    pub fn set_label(&self, label: &[u8]) -> Result<()> {
        if label.len() > LABEL_MAX {
            return Err(FsError::Errno(libc::EINVAL));
        }
        self.throttle()?;
        let h = self.vol.journal.begin(1)?;
        self.vol.change_super(&h, |sb| sb.set_label(label))?;
        let point = h.stop();
        self.vol.journal.commit(&point)?;
        Ok(self.vol.journal.checkpoint()?)
    }

    /// Where the block of the multiple mount protection lies that this volume keeps up: bytes of
    /// the device. `None` without the feature, and of a volume that is only read.
    pub fn mmp_range(&self) -> Option<Range<u64>> {
        Some(self.vol.sb.claim.as_ref()?.range())
    }

    /// Whether the volume has a journal.
    pub fn has_journal(&self) -> bool {
        self.vol.geo.compat.contains(Compat::HAS_JOURNAL)
    }

    /// Whether it was marked clean before this mount.
    pub fn was_clean(&self) -> bool {
        self.vol.sb.was_valid
    }

    /// Whether the volume takes no changes now.
    pub fn is_read_only(&self) -> bool {
        self.vol.sb.read_only.load(Ordering::Acquire)
    }
}
