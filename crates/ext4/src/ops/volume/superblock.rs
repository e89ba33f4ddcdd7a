//! The volume's label and identity.

use crate::error::{FsError, Result};
use crate::fs::Fs;
use std::ops::Range;
use std::sync::atomic::Ordering;
use stetfs_ondisk::ext4::features::Compat;

/// The most bytes of the volume's name.
const LABEL_MAX: usize = 16;

impl Fs {
    /// The volume's name, up to 16 bytes.
    ///
    /// # Errors
    /// The superblock's copy in memory is missing (the device failed).
    pub fn label(&self) -> Result<Vec<u8>> {
        Ok(self.vol.sb.current()?.label().to_vec())
    }

    /// Sets the volume's name. On return it is durable, and at its home location, where other
    /// programs read it (blkid).
    ///
    /// # Errors
    /// EINVAL above 16 bytes; EROFS; errors of the device or the journal.
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

    /// The place of the MMP block that this mount updates: bytes of the device. `None` without the
    /// feature, and for a read-only mount.
    pub fn mmp_range(&self) -> Option<Range<u64>> {
        Some(self.vol.sb.claim.as_ref()?.range())
    }

    /// Whether the volume has a journal.
    pub fn has_journal(&self) -> bool {
        self.vol.geo.compat.contains(Compat::HAS_JOURNAL)
    }

    /// Whether the volume was marked clean before this mount.
    pub fn was_clean(&self) -> bool {
        self.vol.sb.was_valid
    }

    /// Whether the volume is read-only now.
    pub fn is_read_only(&self) -> bool {
        self.vol.sb.read_only.load(Ordering::Acquire)
    }
}
