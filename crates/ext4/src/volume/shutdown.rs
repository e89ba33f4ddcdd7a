//! Ending all changes at once, as a power cut would, by request (`EXT4_IOC_SHUTDOWN`).

use std::sync::atomic::Ordering;

use stetfs_journal::{JournalError, Wait};

use super::shared::Volume;
use crate::error::{FsError, Result};
use crate::fs::Fs;
use crate::types::{Done, GoingDown, Ino};

impl Fs {
    /// Shuts the volume down: from now on nothing reaches it, and changes and reads of files answer
    /// EIO; what the journal holds is replayed when the volume is opened next. `how` says what
    /// is made durable before. No damage is noted. Further calls do nothing.
    ///
    /// `done` is told when it is down, from any thread; of an error if what was to be durable
    /// before is not. The volume is down in either case.
    pub fn go_down(&self, how: GoingDown, done: Done) {
        if self.vol.usable().is_err() || how == GoingDown::AtOnce || self.vol.writable().is_err() {
            self.stop_all();
            return done(Ok(()));
        }
        let data: Vec<Ino> = match how {
            GoingDown::Synced => self.dirty_inodes(),
            _ => Vec::new(),
        };
        let fs = self.me.clone();
        let answer = Box::new(move |r: std::result::Result<(), JournalError>| {
            let lost = fs.upgrade().and_then(|fs| {
                fs.stop_all();
                fs.untold_failure()
            });
            done(r.map_err(FsError::from).and(lost.map_or(Ok(()), Err)));
        });
        if how == GoingDown::Synced
            && let Err(e) = self.data.write_lazy_times()
        {
            tracing::warn!("access times are lost: {e}");
        }
        self.vol
            .journal
            .sync(self.vol.journal.everything(), data, Wait::Deferred, answer);
    }

    fn stop_all(&self) {
        if self.vol.sb.down.swap(true, Ordering::AcqRel) {
            return;
        }
        // So that the journal's end is not noted as an error of the volume.
        self.vol.sb.read_only.store(true, Ordering::Release);
        self.vol.journal.abort(JournalError::Aborted(
            "the volume was shut down on request".into(),
        ));
    }
}

impl Volume {
    /// Whether the volume takes part in anything still.
    ///
    /// # Errors
    /// EIO after [`go_down`](Fs::go_down).
    pub(crate) fn usable(&self) -> Result<()> {
        if self.sb.down.load(Ordering::Acquire) {
            return Err(FsError::Errno(libc::EIO));
        }
        Ok(())
    }

    /// Why nothing can be made durable any more, if the journal stopped.
    pub(crate) fn stopped(&self) -> Option<FsError> {
        match self.usable() {
            Err(e) => Some(e),
            Ok(()) => self.journal.aborted().map(FsError::from),
        }
    }

    /// The answer to a sync of a volume that takes no more changes: why something may not be
    /// durable. While the volume is being closed this waits for how that went. No lock may be
    /// held.
    pub(crate) fn sync_after_end(&self) -> Result<()> {
        if let Some(e) = self.stopped() {
            return Err(e);
        }
        match self.sb.closed.load(Ordering::Acquire) {
            true => self.sb.closing.lock().clone().unwrap_or(Ok(())),
            false => Ok(()),
        }
    }
}
