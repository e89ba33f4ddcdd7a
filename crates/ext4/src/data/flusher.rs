//! Background write-back: old dirty data goes home, what is written as a stream behind its writer,
//! and all of it when there is much.

use std::sync::Weak;
use std::sync::atomic::Ordering;
use std::time::Duration;

use stetfs_journal::JournalError;

use super::state::Wanted;
use super::store::DataStore;
use crate::error::Result;

/// How often the age of dirty data is looked at: so many times within the age, and within bounds.
const LOOKS: u32 = 8;
const SHORTEST: Duration = Duration::from_millis(10);
const LONGEST: Duration = Duration::from_secs(1);

impl DataStore {
    /// Wakes the thread that writes data home in the background. Says no if there is none.
    pub(super) fn wake_flusher(&self) -> bool {
        if !self.state.started.load(Ordering::Acquire)
            && !self.state.started.swap(true, Ordering::AcqRel)
        {
            let (store, wanted) = (self.me.clone(), self.state.wanted.clone());
            let look = (self.early_age() / LOOKS).clamp(SHORTEST, LONGEST);
            let thread = std::thread::Builder::new()
                .name("stet-flush".into())
                .spawn(move || run(&store, &wanted, look));
            match thread {
                Ok(thread) => *self.state.thread.lock() = Some(thread),
                Err(e) => {
                    // Then commits and syncs alone write data home; the next need tries again.
                    tracing::warn!("no thread for background write-back: {e}");
                    self.state.started.store(false, Ordering::Release);
                    return false;
                }
            }
        }
        self.state.wanted.flush();
        true
    }

    /// Has background write-back see to what there is, after a time in which it was held.
    pub(crate) fn look_again(&self) {
        if self.state.dirty.needs_care() {
            self.wake_flusher();
        }
    }

    /// Ends background write-back: afterwards its thread holds nothing of the volume any more.
    pub(crate) fn stop_flusher(&self) {
        self.state.wanted.quit();
        let thread = self.state.thread.lock().take();
        if let Some(thread) = thread
            && thread.thread().id() != std::thread::current().id()
            && thread.join().is_err()
        {
            tracing::error!("background write-back panicked");
        }
    }

    /// Holds a writer back while there is more dirty data than the bound. An inode's lock may be
    /// held, a handle not.
    ///
    /// # Errors
    /// EROFS once the volume is read-only.
    pub(crate) fn throttle_data(&self) -> Result<()> {
        while self.state.dirty.is_full() {
            self.vol.writable()?;
            if !self.wake_flusher() {
                self.flush_old(true)?;
            }
            self.state.dirty.wait_for_room(Duration::from_millis(100));
        }
        Ok(())
    }

    /// The cache has another bound from now on, bytes, and dirty data with it.
    pub(crate) fn set_cache_bytes(&self, bytes: u64) {
        self.state.dirty.set_cache_bytes(bytes);
        self.wake_flusher();
    }

    /// Writes home what is old, what is written as a stream, and all of it when there is much.
    fn write_back(&self) -> Result<(), JournalError> {
        self.flush_streams()?;
        self.flush_old(self.state.dirty.bytes() > self.state.dirty.much())?;
        self.hide_lost();
        Ok(())
    }
}

fn run(store: &Weak<DataStore>, wanted: &Wanted, look: Duration) {
    stetfs_sync::run_anywhere();
    while wanted.next(look) {
        let Some(store) = store.upgrade() else { return };
        // Nothing reaches a volume that has stopped, or is frozen: who thaws it has this thread
        // look again. A failure has stopped it, too.
        let goes_on = store.vol.writable().is_ok()
            && store
                .vol
                .sb
                .frost
                .work()
                .is_some_and(|_working| store.write_back().is_ok());
        wanted.watching.store(false, Ordering::SeqCst);
        // Whoever makes data dirty counts it first, and then looks whether it is watched.
        if goes_on && store.state.dirty.needs_care() {
            wanted.watching.store(true, Ordering::SeqCst);
        }
    }
}
