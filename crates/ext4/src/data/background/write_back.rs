//! Background write-back: of old dirty data, of streams behind their writers, and of all dirty data
//! when there is much.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use stetfs_journal::JournalError;

use crate::data::state::Wanted;
use crate::data::store::DataStore;
use crate::error::Result;
use crate::inode::InodeStore;

impl DataStore {
    /// A store without dirty data.
    pub(crate) fn new(inodes: Arc<InodeStore>) -> Arc<DataStore> {
        DataStore::with(inodes, run)
    }

    /// Resumes background write-back after a time in which it was held.
    pub(crate) fn look_again(&self) {
        if self.state.dirty.needs_care() {
            self.wake_write_back();
        }
    }

    /// Ends background write-back: afterwards its thread holds no reference to the volume.
    pub(crate) fn stop_write_back(&self) {
        self.state.wanted.quit();
        let thread = self.state.thread.lock().take();
        if let Some(thread) = thread
            && thread.thread().id() != stetfs_sync::timed::thread::current().id()
            && thread.join().is_err()
        {
            tracing::error!("background write-back panicked");
        }
    }

    /// Makes a writer wait while there is more dirty data than the bound. The caller may hold an
    /// inode's lock, but no handle.
    ///
    /// # Errors
    /// EROFS once the volume is read-only.
    pub(crate) fn throttle_data(&self) -> Result<()> {
        while self.state.dirty.is_full() {
            self.vol.writable()?;
            if !self.wake_write_back() {
                self.write_back_old(true)?;
            }
            self.state.dirty.wait_for_room(Duration::from_millis(100));
        }
        Ok(())
    }

    /// Adapts the bound of dirty data to a new cache size, bytes.
    pub(crate) fn set_cache_bytes(&self, bytes: u64) {
        self.state.dirty.set_cache_bytes(bytes);
        self.wake_write_back();
    }

    /// Writes back old data and streams, and all data when there is much.
    fn write_back(&self) -> Result<(), JournalError> {
        self.write_back_streams()?;
        self.write_back_old(self.state.dirty.bytes() > self.state.dirty.much())?;
        self.hide_lost();
        Ok(())
    }
}

/// The thread of background write-back.
pub(in crate::data) fn run(store: &Weak<DataStore>, wanted: &Wanted, look: Duration) {
    stetfs_sync::run_anywhere();
    while wanted.next(look) {
        let Some(store) = store.upgrade() else { return };
        // Nothing is written to a volume that has stopped or is frozen; a thaw wakes this thread
        // again. A failed write-back has stopped the volume, too.
        let goes_on = store.vol.writable().is_ok()
            && store
                .vol
                .sb
                .frost
                .work()
                .is_some_and(|_working| store.write_back().is_ok());
        wanted.watching.store(false, Ordering::SeqCst);
        // A writer counts its dirty data first, and then checks whether the data is watched.
        if goes_on && store.state.dirty.needs_care() {
            wanted.watching.store(true, Ordering::SeqCst);
        }
    }
}
