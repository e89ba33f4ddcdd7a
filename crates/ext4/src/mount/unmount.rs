//! Sync of the whole volume, and unmount.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use stetfs_journal::{CommitPoint, FileState, JournalError, Wait};

use crate::data::WritebackPriority;
use crate::error::{FsError, Result};
use crate::fs::Fs;
use crate::types::{Done, Ino};

impl Fs {
    /// Registers the file data with the journal.
    pub(super) fn attach(&self) {
        let data: Arc<dyn FileState> = self.data.clone();
        self.vol.journal.attach(Arc::downgrade(&data));
    }

    /// Makes everything durable that was done before the call; a thread of the journal calls
    /// `done`. After a failed write-back of any file's data, it gets the error once.
    pub fn sync_all(&self, done: Done) {
        // Everything of a frozen volume is at its home location.
        if self.vol.writable().is_err() || self.is_frozen() {
            return done(self.vol.sync_after_end());
        }
        if let Err(e) = self
            .vol
            .notes_through_journal()
            .and_then(|()| self.data.write_lazy_times())
        {
            return done(Err(e));
        }
        let fs = self.me.clone();
        let answer = Box::new(move |r: std::result::Result<(), JournalError>| {
            let lost = fs.upgrade().and_then(|fs| fs.untold_failure());
            done(r.map_err(FsError::from).and(lost.map_or(Ok(()), Err)));
        });
        self.vol.journal.sync(
            self.vol.journal.everything(),
            self.dirty_inodes(),
            Wait::Deferred,
            answer,
        );
    }

    /// All changes before the call, for a sync: a point, and the files whose data no transaction
    /// takes along.
    pub(crate) fn done_before(&self) -> (CommitPoint, Vec<Ino>) {
        let point = self.vol.journal.everything();
        // With data in the journal, other data is ordered before its transaction.
        match self.vol.opts.journal.data().keeps_whole() {
            true => (point, Vec::new()),
            false => (point, self.dirty_inodes()),
        }
    }

    /// Makes every change of names and inodes before the call durable, with the data that they make
    /// reachable; a thread of the journal calls `done`.
    pub fn commit_all(&self, done: Done) {
        if self.vol.writable().is_err() {
            return done(self.vol.sync_after_end());
        }
        let answer = Box::new(move |r: std::result::Result<(), JournalError>| {
            done(r.map_err(FsError::from));
        });
        let everything = self.vol.journal.everything();
        self.vol
            .journal
            .sync(everything, Vec::new(), Wait::Deferred, answer);
    }

    /// Writes back all dirty data. Files remember failures of their data.
    ///
    /// # Errors
    /// A failure that the journal cannot do without; it has stopped.
    pub fn write_data_home(&self) -> Result<()> {
        if self.vol.writable().is_err() {
            return Ok(());
        }
        Ok(self
            .data
            .write_home(&self.dirty_inodes(), WritebackPriority::Awaited)?)
    }

    /// A failed write-back of some file that no sync of the whole volume has reported yet; marks it
    /// as reported.
    pub(crate) fn untold_failure(&self) -> Option<FsError> {
        self.data.untold_failure()
    }

    /// Stores the mount point in the superblock (`s_last_mounted`).
    pub fn set_last_mounted(&self, path: &[u8]) -> Result<()> {
        self.throttle()?;
        let h = self.vol.journal.begin(1)?;
        self.vol.change_super(&h, |sb| sb.set_last_mounted_on(path))
    }

    /// Ends the use of the volume: writes everything back, empties the journal, marks the
    /// superblock clean, and ends all threads. Operations under way must have ended; later ones
    /// fail. Further calls return the same result.
    ///
    /// # Errors
    /// A failed write-back of metadata: the journal still has it, and the next mount replays it.
    /// Lost file data is reported, too, but then the volume is closed clean.
    pub fn unmount(&self) -> Result<()> {
        let mut outcome = self.vol.sb.closing.lock();
        outcome
            .get_or_insert_with(|| {
                // The unmount may change something before it is done.
                if self.is_frozen()
                    && let Err(e) = self.thaw()
                {
                    tracing::error!("cannot thaw: {e}");
                }
                self.forget_unlinked();
                self.reap_values();
                if let Err(e) = self.data.write_lazy_times() {
                    tracing::warn!("access times could not be written: {e}");
                }
                self.vol.sb.closed.store(true, Ordering::Release);
                stetfs_sync::point(&self.vol.sb, "closed");
                let result = if self.vol.opts.read_only {
                    Ok(())
                } else {
                    self.close()
                };
                self.vol.sb.read_only.store(true, Ordering::Release);
                result
            })
            .clone()
    }

    /// Deletes inodes without a name that are not open: at an unmount the kernel does not forget
    /// each inode.
    fn forget_unlinked(&self) {
        let unlinked =
            |i: &Arc<crate::inode::Inode>| i.unlinked.load(Ordering::Acquire).then_some(i.ino);
        let inos: Vec<Ino> = self.inodes.all().iter().filter_map(unlinked).collect();
        for ino in inos {
            self.forget(ino, u64::MAX);
        }
    }

    fn close(&self) -> Result<()> {
        self.data.stop_write_back();
        if self.vol.usable().is_err() {
            // After a requested shutdown the log stays, to be replayed. This ends the journal's
            // threads.
            let _ = self.vol.journal.shutdown();
            return Ok(());
        }
        // No later sync can report failures from here on.
        self.untold_failure();
        let home = match self.vol.journal.aborted() {
            Some(why) => Err(why),
            None => self
                .data
                .write_home(&self.dirty_inodes(), WritebackPriority::Awaited),
        };
        self.data.hide_lost();
        if let Err(e) = home {
            // The journal has stopped: this only ends its threads.
            let _ = self.vol.journal.shutdown();
            return Err(e.into());
        }
        self.vol.journal.shutdown()?;
        self.vol.clear_log()?;
        let lost = self.untold_failure();
        self.mark_clean()?;
        if let Some(claim) = &self.vol.sb.claim {
            claim.release()?;
        }
        lost.map_or(Ok(()), Err)
    }
}
