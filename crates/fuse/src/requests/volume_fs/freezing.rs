//! Freezing and thawing a mounted volume.

use std::sync::Arc;

use parking_lot::MutexGuard;
use stetfs::low::FsError;

use super::{CLOSED, VolumeFs};
use crate::api::ops::FileSystem;
use crate::requests::held_back::Frozen;
use crate::transport::ring::slot::spare_all;

impl VolumeFs {
    /// Writes everything back and marks the volume clean. From then on changes wait until
    /// [`thaw`](Self::thaw), and the device is not written to. Reads go on.
    ///
    /// # Errors
    /// EBUSY if it is frozen already. The volume's error; nothing is held back then.
    pub fn freeze(&self) -> Result<(), FsError> {
        let _turn = self.held_back.turn();
        let volume = self.volume().ok_or(CLOSED)?;
        // Most of the data, while requests go on.
        volume.fs().write_data_home()?;
        // With rings, each request that is held back keeps an entry.
        self.held_back.prepare();
        spare_all();
        // Before the serving threads have to wait for the volume, as they would otherwise wait for
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

    /// Ends the freeze.
    ///
    /// # Errors
    /// EINVAL if it is not frozen. The volume's error; it is read-only then.
    pub fn thaw(&self) -> Result<(), FsError> {
        self.thaw_in(&self.held_back.turn())
    }

    /// The same in the caller's turn.
    pub(super) fn thaw_in(&self, _turn: &MutexGuard<'_, ()>) -> Result<(), FsError> {
        if self.frozen().is_none() {
            return Err(FsError::Errno(libc::EINVAL));
        }
        let thawed = self.volume().ok_or(CLOSED).and_then(|v| v.fs().thaw());
        self.go_on();
        thawed
    }

    /// The state of the freeze, if it is frozen.
    pub fn frozen(&self) -> Option<Frozen> {
        self.held_back.since()
    }

    /// Serves the requests that were held back, in a thread of their own, as a request may have to
    /// wait.
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
        // The serving threads hold it.
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
            tracing::warn!("cannot start the thread that serves the requests held back: {e}");
            for request in std::mem::take(&mut *requests.lock()) {
                request(self);
            }
        }
    }
}
