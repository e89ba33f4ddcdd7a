//! Holding all changes back, with the volume on its device as a clean unmount leaves it
//! (ext4's `freeze_fs`), and going on.

use std::sync::atomic::Ordering;

use super::shared::Volume;
use crate::data::WritebackPriority;
use crate::error::Result;
use crate::fs::Fs;

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
        let _turn = self.vol.sb.frost.turn.lock();
        if self.is_frozen() {
            return Err(crate::FsError::Errno(libc::EBUSY));
        }
        if self.vol.opts.read_only {
            self.vol.sb.frost.freeze();
            return Ok(());
        }
        self.vol.writable()?;
        self.vol.sb.frost.hold_work();
        let frozen = self.bring_to_rest();
        match &frozen {
            Ok(()) => self.vol.sb.frost.freeze(),
            Err(_) => self.go_on(),
        }
        frozen
    }

    /// Leaves nothing to be done: everything is home or hidden, the log retired, and the volume
    /// marked clean.
    fn bring_to_rest(&self) -> Result<()> {
        self.vol.notes_through_journal()?;
        self.reap_values();
        self.data.write_lazy_times()?;
        self.data
            .write_home(&self.dirty_inodes(), WritebackPriority::Awaited)?;
        // Blocks that did not get home must not be read from the device as it is from here on.
        self.data.hide_lost();
        if let Err(e) = self.vol.journal.rest() {
            // The log still holds what is not home: it stays as it is, for the next opening.
            self.vol.journal.abort(e.clone());
            return Err(e.into());
        }
        let marked = self.mark_clean();
        if marked.is_err() {
            // What may be marked clean is not to be written to.
            self.wake()?;
        }
        marked
    }

    /// Marks the volume as in use, and lets changes go on.
    ///
    /// # Errors
    /// EINVAL when it is not frozen. The device's: the volume turns read-only then, and changes
    /// go on to be refused.
    pub fn thaw(&self) -> Result<()> {
        let _turn = self.vol.sb.frost.turn.lock();
        if !self.is_frozen() {
            return Err(crate::FsError::Errno(libc::EINVAL));
        }
        let woken = match self.vol.writable() {
            Ok(()) => self.wake(),
            // Read-only, or shut down meanwhile: there is nothing to go on with.
            Err(_) => Ok(()),
        };
        self.go_on();
        // Errors that were found meanwhile, of a volume that is read-only for them.
        if self.vol.writable().is_err()
            && let Err(e) = self.vol.notes_home()
        {
            tracing::error!("the superblock could not be told: {e}");
        }
        woken
    }

    /// Changes and background work go on.
    fn go_on(&self) {
        self.vol.sb.frost.thaw();
        self.data.look_again();
    }

    /// Has the journal go on, once the volume says that it is in use.
    fn wake(&self) -> Result<()> {
        let resumed = self.vol.journal.resume().map_err(crate::FsError::from);
        let marked = resumed.and_then(|()| match self.vol.opts.canary.thaw_unmarked {
            true => Ok(()),
            false => self.mark_in_use(),
        });
        match &marked {
            Ok(()) => self.vol.journal.wake(),
            // What is not marked as in use is not to be changed.
            Err(e) => self
                .vol
                .journal
                .abort(stetfs_journal::JournalError::Aborted(format!(
                    "the volume could not be thawed: {e}"
                ))),
        }
        marked
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use stetfs_block::BlockDevice;
    use stetfs_testkit::Mkfs;

    use crate::error::FsError;
    use crate::fs::Fs;
    use crate::testing::{fsck, mkfs};
    use crate::types::{FsOptions, OnError};

    /// Of several at once one freezes the volume, and one thaws it.
    #[test]
    fn freezes_take_turns() {
        let disk = mkfs(32, &Mkfs::blocks(4096));
        let fs = Fs::open(disk.clone(), FsOptions::default()).unwrap();
        for _ in 0..20 {
            let times = |turn: fn(&Fs) -> bool| {
                std::thread::scope(|scope| {
                    let all: Vec<_> = (0..3).map(|_| scope.spawn(|| turn(&fs))).collect();
                    let done = all.into_iter().map(|thread| thread.join().unwrap());
                    done.filter(|done| *done).count()
                })
            };
            assert_eq!(times(|fs| fs.freeze().is_ok()), 1);
            fsck(&disk);
            assert_eq!(times(|fs| fs.thaw().is_ok()), 1);
        }
        fs.unmount().unwrap();
    }

    /// Errors are noted in the superblock: of a frozen volume at the thaw, also where they make it
    /// read-only.
    #[test]
    fn errors_that_are_found_wait_for_the_thaw() {
        for on_error in [OnError::Continue, OnError::RemountRo] {
            let disk = mkfs(32, &Mkfs::blocks(4096));
            let opts = FsOptions {
                commit_secs: 3600,
                on_error: Some(on_error),
                ..FsOptions::default()
            };
            let fs = Fs::open(disk.clone(), opts).unwrap();
            fs.freeze().unwrap();
            let frozen = disk.to_vec();
            fs.vol
                .report(&FsError::corrupt("a test", 0, "found while frozen"));
            let read_only = on_error == OnError::RemountRo;
            assert_eq!(fs.vol.writable().is_err(), read_only);
            assert!(disk.to_vec() == frozen, "{on_error:?}");
            fsck(&disk);
            fs.thaw().unwrap();
            fs.unmount().unwrap_or_else(|e| assert!(read_only, "{e}"));
            let mut noted = [0; 4];
            disk.read(1024 + 0x194, &mut noted).unwrap();
            assert!(u32::from_le_bytes(noted) > 0, "{on_error:?}");
        }
    }
}
