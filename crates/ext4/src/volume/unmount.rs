//! Syncing everything, and the end of use.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use stetfs_journal::{CommitPoint, FileState, JournalError, Wait};

use crate::data::WritebackPriority;
use crate::error::{FsError, Result};
use crate::fs::Fs;
use crate::types::{Done, Ino};

impl Fs {
    /// Registers with the journal.
    pub(super) fn attach(&self) {
        let data: Arc<dyn FileState> = self.data.clone();
        self.vol.journal.attach(Arc::downgrade(&data));
    }

    pub(super) fn dirty_inodes(&self) -> Vec<Ino> {
        self.inodes
            .all()
            .iter()
            .filter(|i| !i.dirty.is_clean())
            .map(|i| i.ino)
            .collect()
    }

    /// Makes everything durable that was done before the call; `done` is told from the journal's
    /// side. It gets the error, once, after data of any file could not be written home.
    pub fn sync_all(&self, done: Done) {
        // Of a frozen volume everything is home.
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

    /// All that was done before the call, for a sync: a point, and the files with data that no
    /// transaction takes along.
    pub(crate) fn done_before(&self) -> (CommitPoint, Vec<Ino>) {
        let point = self.vol.journal.everything();
        // With data in the journal, other data is ordered before its transaction.
        match self.vol.opts.journal.data().keeps_whole() {
            true => (point, Vec::new()),
            false => (point, self.dirty_inodes()),
        }
    }

    /// Makes durable every change of names and inodes that was made before the call, with the data
    /// that they make reachable; `done` is told from the journal's side.
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

    /// Writes all dirty data home. Of what could not be written the files remember that.
    ///
    /// # Errors
    /// What the journal cannot go on without; it has stopped.
    pub fn write_data_home(&self) -> Result<()> {
        if self.vol.writable().is_err() {
            return Ok(());
        }
        Ok(self
            .data
            .write_home(&self.dirty_inodes(), WritebackPriority::Awaited)?)
    }

    /// Data of some file could not be written home, and no sync of all told of it; now it is told.
    pub(super) fn untold_failure(&self) -> Option<FsError> {
        self.data.untold_failure()
    }

    /// To be called by every operation that changes something, before it takes a lock: waits until
    /// there is room for more changes, and for a frozen volume to be thawed.
    ///
    /// # Errors
    /// EROFS, ESHUTDOWN.
    pub fn throttle(&self) -> Result<()> {
        self.vol.pass_frost();
        self.vol.writable()?;
        self.vol.notes_through_journal()?;
        self.reap_values();
        self.data.throttle_data()?;
        self.vol.journal.throttle()?;
        Ok(())
    }

    /// Remembers in the superblock where the volume is mounted (`s_last_mounted`).
    pub fn set_last_mounted(&self, path: &[u8]) -> Result<()> {
        self.throttle()?;
        let h = self.vol.journal.begin(1)?;
        self.vol.change_super(&h, |sb| sb.set_last_mounted_on(path))
    }

    /// Ends the use of the volume: everything home, the journal empty, the superblock clean, no
    /// thread of ours left. Operations under way are to be over; later ones fail. Further calls
    /// repeat the answer.
    ///
    /// # Errors
    /// What did not get home; the journal then still holds it, and the next mount replays it. File
    /// data that could not be written is lost: the volume is closed clean then.
    pub fn unmount(&self) -> Result<()> {
        let mut outcome = self.vol.sb.closing.lock();
        outcome
            .get_or_insert_with(|| {
                // Closing may change something before it is done.
                if self.is_frozen()
                    && let Err(e) = self.thaw()
                {
                    tracing::error!("cannot thaw: {e}");
                }
                self.forget_unlinked();
                self.reap_values();
                if let Err(e) = self.data.write_lazy_times() {
                    tracing::warn!("access times are lost: {e}");
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

    /// Deletes what has no name and is not held open: the kernel does not forget each inode when it
    /// lets go of a volume.
    fn forget_unlinked(&self) {
        let unlinked =
            |i: &Arc<crate::inode::Inode>| i.unlinked.load(Ordering::Acquire).then_some(i.ino);
        let inos: Vec<Ino> = self.inodes.all().iter().filter_map(unlinked).collect();
        for ino in inos {
            self.forget(ino, u64::MAX);
        }
    }

    fn close(&self) -> Result<()> {
        self.data.stop_flusher();
        if self.vol.usable().is_err() {
            // As asked for: the log stays, to be replayed. This ends the journal's threads.
            let _ = self.vol.journal.shutdown();
            return Ok(());
        }
        // Nobody can ask any more for what fails from here on.
        self.untold_failure();
        let home = match self.vol.journal.aborted() {
            Some(why) => Err(why),
            None => self
                .data
                .write_home(&self.dirty_inodes(), WritebackPriority::Awaited),
        };
        self.data.hide_lost();
        if let Err(e) = home {
            // It is stopped: this only ends its threads.
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
