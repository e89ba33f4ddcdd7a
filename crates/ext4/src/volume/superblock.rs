//! Changes of the superblock while the volume is open.

use std::sync::atomic::Ordering;

use stetfs_journal::Handle;
use stetfs_ondisk::ext4::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock};

use super::shared::Volume;
use super::super_bytes::write_superblock;
use crate::error::{FsError, Result};

impl Volume {
    /// Changes the superblock within a transaction. One credit.
    pub(crate) fn change_super(
        &self,
        h: &Handle<'_>,
        change: impl FnOnce(&mut Superblock),
    ) -> Result<()> {
        // The whole block is logged: error notes are written past the journal, so a logged part
        // would not match them (`patch_super_home`).
        let mut page = h.modify_whole(&self.sb.block)?;
        self.sb.change(&mut page, change)
    }

    /// Changes the superblock in memory and at its home location, durably and past the journal.
    /// Only while the log is empty and no handle is open.
    pub(crate) fn write_super(&self, change: impl FnOnce(&mut Superblock)) -> Result<()> {
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

    /// Changes some fields of the superblock at its home location only, durably: for error notes
    /// after the journal stopped. The superblock in memory may have changes that must never be
    /// written.
    pub(super) fn patch_super_home(&self, change: impl FnOnce(&mut Superblock)) -> Result<()> {
        let before = self.super_at_home()?;
        let mut sb = before.clone();
        change(&mut sb);
        let device = self.sb.last_word.get().unwrap_or(self.cache.device());
        write_superblock(&**device, &sb, &before).map(drop)
    }

    /// Checks that changes are allowed.
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
