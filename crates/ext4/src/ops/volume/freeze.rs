//! Freezing and thawing.

use crate::data::WritebackPriority;
use crate::error::Result;
use crate::fs::Fs;

impl Fs {
    /// Writes everything back, empties the journal and marks the volume clean, as
    /// [`unmount`](Self::unmount) does. Then every change waits in [`throttle`](Self::throttle)
    /// until [`thaw`](Self::thaw). Reads go on, without new access times. Files without a name are
    /// on the orphan list, as after a crash. Called with no operation under way. Until the thaw the
    /// caller holds back [`forget`](Self::forget) and closes of files, because they may delete.
    ///
    /// # Errors
    /// EBUSY when the volume is already frozen; failure to write everything back. Nothing is held
    /// back then.
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

    /// Leaves no work to be done: everything is written back or hidden, the log is empty, and the
    /// volume is marked clean.
    fn bring_to_rest(&self) -> Result<()> {
        self.vol.notes_through_journal()?;
        self.reap_values();
        self.data.write_lazy_times()?;
        self.data
            .write_home(&self.dirty_inodes(), WritebackPriority::Awaited)?;
        // Blocks that could not be written back must not be read from the device from here on.
        self.data.hide_lost();
        if let Err(e) = self.vol.journal.rest() {
            // The log still has what is not written back: it stays as it is, for the next opening.
            self.vol.journal.abort(e.clone());
            return Err(e.into());
        }
        let marked = self.mark_clean();
        if marked.is_err() {
            // A volume that may be marked clean must not be written to.
            self.wake()?;
        }
        marked
    }

    /// Marks the volume as in use, and allows changes again.
    ///
    /// # Errors
    /// EINVAL when it is not frozen; errors of the device: then the volume turns read-only, and
    /// changes are still refused.
    pub fn thaw(&self) -> Result<()> {
        let _turn = self.vol.sb.frost.turn.lock();
        if !self.is_frozen() {
            return Err(crate::FsError::Errno(libc::EINVAL));
        }
        let woken = match self.vol.writable() {
            Ok(()) => self.wake(),
            // The volume is read-only, or was shut down meanwhile: the journal stays at rest.
            Err(_) => Ok(()),
        };
        self.go_on();
        // Writes errors that were found meanwhile, if the volume is read-only because of them.
        if self.vol.writable().is_err()
            && let Err(e) = self.vol.notes_home()
        {
            tracing::error!("the superblock could not be updated: {e}");
        }
        woken
    }

    /// Allows changes and background work again.
    fn go_on(&self) {
        self.vol.sb.frost.thaw();
        self.data.look_again();
    }

    /// Wakes the journal, after the volume is marked as in use.
    fn wake(&self) -> Result<()> {
        let resumed = self.vol.journal.resume().map_err(crate::FsError::from);
        let marked = resumed.and_then(|()| match self.vol.opts.canary.thaw_unmarked {
            true => Ok(()),
            false => self.mark_in_use(),
        });
        match &marked {
            Ok(()) => self.vol.journal.wake(),
            // A volume that is not marked as in use must not be changed.
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
