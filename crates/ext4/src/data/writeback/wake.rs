//! The call to the thread of background write-back, which starts it when it is first needed.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::data::store::DataStore;

/// The number of checks of the age of dirty data within that age, and the bounds of their interval.
const LOOKS: u32 = 8;
const SHORTEST: Duration = Duration::from_millis(10);
const LONGEST: Duration = Duration::from_secs(1);

impl DataStore {
    /// Wakes the background write-back thread. Returns `false` if there is none.
    pub(in crate::data) fn wake_write_back(&self) -> bool {
        if !self.state.started.load(Ordering::Acquire)
            && !self.state.started.swap(true, Ordering::AcqRel)
        {
            let (store, wanted) = (self.me.clone(), self.state.wanted.clone());
            let write_back = self.write_back;
            let look = (self.early_age() / LOOKS).clamp(SHORTEST, LONGEST);
            let thread = stetfs_sync::timed::thread::Builder::new()
                .name("stet-flush".into())
                .spawn(move || write_back(&store, &wanted, look));
            match thread {
                Ok(thread) => *self.state.thread.lock() = Some(thread),
                Err(e) => {
                    // Then only commits and syncs write data back; the next call tries again.
                    tracing::warn!("cannot start the thread for background write-back: {e}");
                    self.state.started.store(false, Ordering::Release);
                    return false;
                }
            }
        }
        self.state.wanted.flush();
        true
    }

    /// The age at which data is written back early: data that has already waited elsewhere, or that
    /// a commit may overtake.
    pub(crate) fn early_age(&self) -> Duration {
        let commit = Duration::from_secs(u64::from(self.vol.opts.commit_secs));
        commit.min(self.vol.opts.dirty_expire)
    }
}
