//! Holding all changes back, with the volume on its device as a clean unmount leaves it
//! (ext4's `freeze_fs`), and going on.

use std::sync::atomic::Ordering;

use stetfs_ondisk::ext4::features::{Compat, Incompat, RoCompat};
use stetfs_ondisk::ext4::superblock::State;

use super::shared::Volume;
use crate::data::WritebackPriority;
use crate::error::Result;
use crate::fs::Fs;
use stetfs_ondisk::num::bounded32;

impl Fs {
    /// Brings everything home, empties the journal and marks the volume clean, as
    /// [`unmount`](Self::unmount) does; then every change waits until [`thaw`](Self::thaw), in
    /// [`throttle`](Self::throttle). Reads go on, without new access times. Files that have no name
    /// any more are on the orphan list, as after a crash. To be called with no operation under way;
    /// until the thaw the caller keeps [`forget`](Self::forget) and the closing of files back, for
    /// they may delete.
    ///
    /// # Errors
    /// Nothing is held back then: EBUSY when it is frozen already; what did not get home.
    pub fn freeze(&self) -> Result<()> {
        if self.is_frozen() {
            return Err(crate::FsError::Errno(libc::EBUSY));
        }
        if self.vol.opts.read_only {
            self.vol.sb.frost.set(true);
            return Ok(());
        }
        self.vol.writable()?;
        self.vol.notes_through_journal()?;
        self.reap_values();
        self.data.write_lazy_times()?;
        self.data
            .write_home(&self.dirty_inodes(), WritebackPriority::Awaited)?;
        if let Err(e) = self.vol.journal.rest() {
            // The log still holds what is not home: it stays as it is, for the next opening.
            self.vol.journal.abort(e.clone());
            return Err(e.into());
        }
        let marked = self.mark_clean();
        match &marked {
            Ok(()) => self.vol.sb.frost.set(true),
            // What may be marked clean is not to be written to.
            Err(_) => self.wake()?,
        }
        marked
    }

    fn mark_clean(&self) -> Result<()> {
        let now = u64::try_from(self.vol.now().sec).unwrap_or(0);
        let no_orphans = self.inodes.orphans().file_is_empty(self.vol.geo.block_size);
        let blocks = self.space.free_blocks_count() * u64::from(self.vol.geo.ratio());
        let inodes = self.space.free_inodes_count();
        let was_valid = self.vol.sb.was_valid;
        self.vol.write_super(|sb| {
            sb.set_incompat(sb.incompat() - Incompat::RECOVER);
            if was_valid {
                sb.set_state(sb.state() | State::VALID_FS);
            }
            if no_orphans {
                sb.set_ro_compat(sb.ro_compat() - RoCompat::ORPHAN_PRESENT);
            }
            sb.set_free_blocks_count(blocks);
            sb.free_inodes_count.set(bounded32(inodes));
            sb.set_write_time(now);
        })
    }

    /// Marks the volume as in use, and lets changes go on.
    ///
    /// # Errors
    /// EINVAL when it is not frozen. The device's: the volume turns read-only then, and changes
    /// go on to be refused.
    pub fn thaw(&self) -> Result<()> {
        if !self.is_frozen() {
            return Err(crate::FsError::Errno(libc::EINVAL));
        }
        let woken = match self.vol.writable() {
            Ok(()) => self.wake(),
            // Read-only, or shut down meanwhile: there is nothing to go on with.
            Err(_) => Ok(()),
        };
        self.vol.sb.frost.set(false);
        woken
    }

    fn wake(&self) -> Result<()> {
        let journaled = self.vol.geo.compat.contains(Compat::HAS_JOURNAL);
        let orphan_file = self.inodes.orphans().has_file();
        let woken = self.vol.journal.wake().map_err(crate::FsError::from);
        if self.vol.opts.canary.thaw_unmarked {
            return woken;
        }
        let woken = woken.and_then(|()| {
            self.vol.write_super(|sb| {
                if journaled {
                    sb.set_incompat(sb.incompat() | Incompat::RECOVER);
                } else {
                    sb.set_state(sb.state() - State::VALID_FS);
                }
                if orphan_file {
                    sb.set_ro_compat(sb.ro_compat() | RoCompat::ORPHAN_PRESENT);
                }
            })
        });
        if let Err(e) = &woken {
            // What is not marked as in use is not to be changed.
            self.vol
                .journal
                .abort(stetfs_journal::JournalError::Aborted(format!(
                    "the volume could not be thawed: {e}"
                )));
        }
        woken
    }

    /// Whether changes are held back.
    pub fn is_frozen(&self) -> bool {
        self.vol.is_frozen()
    }
}

impl Volume {
    /// Whether changes are held back.
    pub(crate) fn is_frozen(&self) -> bool {
        self.sb.frost.frozen.load(Ordering::Acquire)
    }

    /// Returns once changes may be made.
    pub(super) fn pass_frost(&self) {
        self.sb.frost.pass();
    }
}
