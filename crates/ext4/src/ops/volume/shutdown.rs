//! Shutdown of a volume on request.

use crate::error::FsError;
use crate::fs::Fs;
use crate::types::{Done, GoingDown, Ino};
use std::sync::atomic::Ordering;
use stetfs_journal::{JournalError, Wait};

impl Fs {
    /// Shuts the volume down: from now on nothing is written to it, and changes and reads of files
    /// fail with EIO. The next opening replays the journal. `how` names what is made durable first.
    /// No damage is noted. Further calls do nothing.
    ///
    /// `done` is called from any thread when the volume is down, with an error if something that
    /// was to be made durable is not. The volume is down in either case.
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
            tracing::warn!("access times could not be written: {e}");
        }
        self.vol
            .journal
            .sync(self.vol.journal.everything(), data, Wait::Deferred, answer);
    }

    fn stop_all(&self) {
        if self.vol.sb.down.swap(true, Ordering::AcqRel) {
            return;
        }
        // So that the journal's stop is not noted as an error of the volume.
        self.vol.sb.read_only.store(true, Ordering::Release);
        self.vol.journal.abort(JournalError::Aborted(
            "the volume was shut down on request".into(),
        ));
    }
}
