//! Shutdown on request (`EXT4_IOC_SHUTDOWN`): all changes end at once, as in a power cut.

use std::sync::atomic::Ordering;

use super::shared::Volume;
use crate::error::{FsError, Result};

impl Volume {
    /// Checks that the volume was not shut down.
    ///
    /// # Errors
    /// EIO after [`go_down`](Fs::go_down).
    pub(crate) fn usable(&self) -> Result<()> {
        if self.sb.down.load(Ordering::Acquire) {
            return Err(FsError::Errno(libc::EIO));
        }
        Ok(())
    }

    /// The reason why nothing can be made durable any more, if the volume was shut down or the
    /// journal stopped.
    pub(crate) fn stopped(&self) -> Option<FsError> {
        match self.usable() {
            Err(e) => Some(e),
            Ok(()) => self.journal.aborted().map(FsError::from),
        }
    }

    /// The answer to a sync of a volume that takes no more changes: an error if something may not
    /// be durable. While the volume is being closed this waits for the result. The caller holds no
    /// lock.
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
