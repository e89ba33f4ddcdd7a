//! Freezing and thawing.

use std::sync::Arc;

use parking_lot::MutexGuard;
use stetfs::low::FsError;

use super::{CLOSED, VolumeFs};
use crate::held_back::Frozen;
use crate::ops::FileSystem;

impl VolumeFs {
    /// Brings everything home and marks the volume clean; from then on changes wait until
    /// [`thaw`](Self::thaw), and the device is not written to. Reads go on.
    ///
    /// # Errors
    /// EBUSY when it is frozen already. The volume's; nothing is held back then.
    pub fn freeze(&self) -> Result<(), FsError> {
        let _turn = self.held_back.turn();
        let volume = self.volume().ok_or(CLOSED)?;
        // Most of it while others go on.
        volume.fs().write_data_home()?;
        // Where requests come by rings, each that is held back keeps an entry.
        self.held_back.prepare();
        crate::wire::spare_all();
        // Before the threads that serve have to wait for the volume, else they would then wait for
        // the thaw.
        if !self.held_back.begin() {
            return Err(FsError::Errno(libc::EBUSY));
        }
        let open = self.volume.write();
        let frozen = open.as_ref().ok_or(CLOSED).and_then(|v| v.fs().freeze());
        drop(open);
        if frozen.is_err() {
            self.go_on();
        }
        frozen
    }

    /// Lets changes go on.
    ///
    /// # Errors
    /// EINVAL when it is not frozen. The volume's; it is read-only then.
    pub fn thaw(&self) -> Result<(), FsError> {
        self.thaw_in(&self.held_back.turn())
    }

    /// The same in a turn of the caller's.
    pub(super) fn thaw_in(&self, _turn: &MutexGuard<'_, ()>) -> Result<(), FsError> {
        if self.frozen().is_none() {
            return Err(FsError::Errno(libc::EINVAL));
        }
        let thawed = self.volume().ok_or(CLOSED).and_then(|v| v.fs().thaw());
        self.go_on();
        thawed
    }

    /// Since when it is frozen, if it is.
    pub fn frozen(&self) -> Option<Frozen> {
        self.held_back.since()
    }

    /// Does what was held back: requests by a thread of their own, for one may have to wait.
    fn go_on(&self) {
        self.atomic.touch_all();
        let Some(waiting) = self.held_back.end() else {
            return;
        };
        for fh in waiting.closed {
            self.release(fh);
        }
        for (ino, nlookup) in waiting.forgotten {
            self.forget(ino, nlookup);
        }
        // Whoever serves holds it.
        let Some(this) = self.this.upgrade() else {
            return;
        };
        let requests = Arc::new(parking_lot::Mutex::new(waiting.requests));
        let serve = {
            let requests = Arc::clone(&requests);
            move || {
                for request in std::mem::take(&mut *requests.lock()) {
                    request(&this);
                }
            }
        };
        let thread = std::thread::Builder::new().name("thaw".into()).spawn(serve);
        if let Err(e) = thread {
            tracing::warn!("no thread for what was held back: {e}");
            for request in std::mem::take(&mut *requests.lock()) {
                request(self);
            }
        }
    }
}
