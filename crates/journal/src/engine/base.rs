//! The base of the engine: the device, the cache, the settings and the counters that all its parts
//! use. It also stops the journal, on an error or at shutdown.

use std::sync::{Arc, OnceLock, Weak};

use stetfs_block::{BlockDevice, WriteList};
use stetfs_sync::plain::{
    Mutex,
    atomic::{AtomicBool, Ordering},
};

use super::config::{FileState, JournalConfig};
use crate::error::{JournalError, Result};
use crate::head::Cache;
use crate::ids::{BlockNr, Ino};
use crate::policy::Codec;
use crate::stats::{Counters, Times};

/// The parts of an engine in which threads wait. They are woken when the journal stops.
pub(super) trait Wake: Send + Sync {
    /// Wakes every thread that waits in the journal.
    fn wake_all(&self);
}

/// The fields that all parts of an engine use.
pub(crate) struct Base {
    pub(crate) device: Arc<dyn BlockDevice>,
    pub(crate) cache: Arc<Cache>,
    pub(crate) codec: Box<dyn Codec>,
    /// [`Codec::change_unit`], which does not change.
    pub(crate) change_unit: Option<usize>,
    pub(crate) config: JournalConfig,
    pub(crate) counters: Counters,
    pub(crate) times: Times,
    files: OnceLock<Weak<dyn FileState>>,
    waiters: OnceLock<Weak<dyn Wake>>,
    /// Set once the journal stopped, by error or shutdown.
    stopped: AtomicBool,
    why: Mutex<Option<JournalError>>,
    /// The threads are to end.
    quit: AtomicBool,
}

impl Base {
    pub(super) fn new(cache: Arc<Cache>, codec: Box<dyn Codec>, config: JournalConfig) -> Base {
        Base {
            device: cache.device().clone(),
            cache,
            change_unit: codec.change_unit(),
            codec,
            config,
            counters: Counters::default(),
            times: Times::default(),
            files: OnceLock::new(),
            waiters: OnceLock::new(),
            stopped: AtomicBool::new(false),
            why: Mutex::new(None),
            quit: AtomicBool::new(false),
        }
    }

    /// The size of a block, in bytes.
    pub(crate) fn block_size(&self) -> u64 {
        self.cache.block_size() as u64
    }

    /// A place where a test may stop the threads of this journal.
    pub(crate) fn point(&self, name: &'static str) {
        stetfs_sync::point(self, name);
    }

    /// Registers the file system. Only the first call counts.
    pub(crate) fn attach(&self, files: Weak<dyn FileState>) {
        let _ = self.files.set(files);
    }

    /// Registers the waiting parts. Only the first call counts.
    pub(super) fn wakes(&self, waiters: Weak<dyn Wake>) {
        let _ = self.waiters.set(waiters);
    }

    /// Writes home the dirty data of these inodes, and the log blocks `log` together with its first
    /// batch. The device has all of it on return; there is no flush.
    ///
    /// # Errors
    /// The device's, or the file system's.
    pub(crate) fn write_data(&self, inos: &[Ino], log: &WriteList<'_>) -> Result<()> {
        let device = &*self.device;
        let mut unsent = (!log.is_empty()).then_some(log);
        let mut logged = Ok(());
        let files = self.files.get().and_then(Weak::upgrade);
        if let Some(files) = files.filter(|_| !inos.is_empty()) {
            files.hand_out(inos, &mut |batch| {
                let Some(log) = unsent.take() else {
                    return batch.submit(device);
                };
                let mut both = WriteList::new();
                both.extend(batch);
                both.extend(log);
                // One error stands for both, so each is written once more by itself.
                both.submit(device).or_else(|_| {
                    logged = log.submit(device);
                    batch.submit(device)
                })
            })?;
        }
        if let Some(log) = unsent {
            logged = log.submit(device);
        }
        Ok(logged?)
    }

    pub(crate) fn has_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// Checks that the journal can be used.
    ///
    /// # Errors
    /// `Aborted` once it has stopped.
    pub(crate) fn check(&self) -> Result<()> {
        match self.has_stopped() {
            true => Err(self.stop_error()),
            false => Ok(()),
        }
    }

    /// Stops the journal. With an error, the file system is told; without one, this is a shutdown.
    /// Only the first call counts.
    pub(crate) fn stop(&self, why: Option<JournalError>) {
        {
            let mut slot = self.why.lock();
            if self.stopped.swap(true, Ordering::AcqRel) {
                return;
            }
            slot.clone_from(&why);
        }
        if let Some(why) = why {
            tracing::error!("the journal stops: {why}");
            if let Some(files) = self.files.get().and_then(Weak::upgrade) {
                files.aborted(&why);
            }
        }
        if let Some(waiters) = self.waiters.get().and_then(Weak::upgrade) {
            waiters.wake_all();
        }
    }

    /// The error that stopped the journal; none if it runs, or if a shutdown stopped it.
    pub(crate) fn stopped_by(&self) -> Option<JournalError> {
        self.why.lock().clone()
    }

    /// The error for a call after the stop.
    pub(crate) fn stop_error(&self) -> JournalError {
        match self.stopped_by() {
            Some(why) => JournalError::Aborted(why.to_string()),
            None => JournalError::Aborted("the volume was unmounted".into()),
        }
    }

    /// Has the threads end. The caller wakes them.
    pub(super) fn quit(&self) {
        self.quit.store(true, Ordering::Release);
    }

    pub(super) fn quits(&self) -> bool {
        self.quit.load(Ordering::Acquire)
    }

    pub(crate) fn no_content(&self, nr: BlockNr) -> JournalError {
        JournalError::Aborted(format!(
            "internal error: block {nr} is changed before it was read"
        ))
    }
}
