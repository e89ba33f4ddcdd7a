//! Background write-back: old dirty data goes home, what is written as a stream behind its writer, and all of it when there
//! is much.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use stetfs_block::WriteList;
use stetfs_journal::JournalError;

use super::dirty::DirtySet;
use super::precedence::{Haste, Precedence};
use super::record::SyncReasons;
use super::syncers::Syncers;
use crate::error::{FsError, Result};
use crate::fs::Fs;
use crate::types::{FsOptions, Ino};

/// Dirty data older than this goes home (the kernel: `dirty_expire_centisecs`).
const OLD: Duration = Duration::from_secs(30);

/// The file data part of an open volume.
pub(crate) struct DataState {
    pub(super) dirty: DirtySet,
    /// Why files were synced by commits although they have records.
    pub(super) reasons: SyncReasons,
    /// Where files are synced by records.
    pub(super) syncers: Syncers,
    /// Such syncs go before what is written home in the background.
    pub(super) precedence: Precedence,
    wanted: Arc<Wanted>,
    /// The flusher runs: it starts with the first need of it.
    started: AtomicBool,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// Inodes whose access time is newer in memory than in the journal.
    pub(super) lazy: AtomicU64,
}

/// How the flusher is told. It outlives the volume by a moment, so it is shared.
#[derive(Default)]
struct Wanted {
    state: Mutex<(Flush, Quit)>,
    signal: Condvar,
}

type Flush = bool;
type Quit = bool;

impl DataState {
    /// Without dirty data.
    pub(crate) fn new(opts: &FsOptions) -> DataState {
        DataState {
            dirty: DirtySet::new(opts),
            reasons: SyncReasons::default(),
            syncers: Syncers::default(),
            precedence: Precedence::default(),
            wanted: Arc::default(),
            started: AtomicBool::new(false),
            thread: Mutex::new(None),
            lazy: AtomicU64::new(0),
        }
    }

    /// Dirty bytes now.
    pub(crate) fn dirty_bytes(&self) -> u64 {
        self.dirty.bytes()
    }
}

impl Drop for DataState {
    fn drop(&mut self) {
        self.wanted.quit();
    }
}

impl Wanted {
    fn quit(&self) {
        self.state.lock().1 = true;
        self.signal.notify_all();
    }
}

impl Fs {
    /// Wakes the thread that writes data home in the background. Says no if there is none.
    pub(super) fn wake_flusher(&self) -> bool {
        if !self.data.started.load(Ordering::Acquire)
            && !self.data.started.swap(true, Ordering::AcqRel)
        {
            let (fs, wanted) = (self.me.clone(), self.data.wanted.clone());
            let thread = std::thread::Builder::new()
                .name("stet-flush".into())
                .spawn(move || run(&fs, &wanted));
            match thread {
                Ok(thread) => *self.data.thread.lock() = Some(thread),
                Err(e) => {
                    // Then commits and syncs alone write data home; the next need tries again.
                    tracing::warn!("no thread for background write-back: {e}");
                    self.data.started.store(false, Ordering::Release);
                    return false;
                }
            }
        }
        let mut state = self.data.wanted.state.lock();
        if !state.0 {
            state.0 = true;
            self.data.wanted.signal.notify_all();
        }
        true
    }

    /// Ends background write-back: afterwards its thread holds nothing of the volume any more.
    pub(crate) fn stop_flusher(&self) {
        self.data.wanted.quit();
        let thread = self.data.thread.lock().take();
        if let Some(thread) = thread
            && thread.thread().id() != std::thread::current().id()
            && thread.join().is_err()
        {
            tracing::error!("background write-back panicked");
        }
    }

    /// Sees to it that old dirty data goes home; to be called about once a second.
    pub(crate) fn write_old_data(&self) {
        if self.data.dirty.bytes() > 0 {
            self.wake_flusher();
        }
    }

    /// Holds a writer back while there is more dirty data than the bound. An inode's lock may be
    /// held, a handle not.
    ///
    /// # Errors
    /// EROFS once the volume is read-only.
    pub(crate) fn throttle_data(&self) -> Result<()> {
        while self.data.dirty.is_full() {
            self.writable()?;
            if !self.wake_flusher() {
                self.flush_old(Instant::now())?;
            }
            self.data.dirty.wait_for_room(Duration::from_millis(100));
        }
        Ok(())
    }

    /// Writes home the dirty data of these inodes, and `also` in the last batch of it. The device has
    /// it on return; no flush.
    ///
    /// # Errors
    /// A failed write; the journal is to stop.
    pub(crate) fn write_home(
        &self,
        inos: &[Ino],
        also: &WriteList<'_>,
        haste: Haste,
    ) -> Result<(), JournalError> {
        self.flush_inodes(inos, also, haste).map_err(|e| match e {
            FsError::Device(cause) => JournalError::Device(cause),
            FsError::Journal(e) => e,
            other => JournalError::Aborted(other.to_string()),
        })
    }
}

fn run(fs: &Weak<Fs>, wanted: &Wanted) {
    stetfs_sync::run_anywhere();
    loop {
        {
            let mut state = wanted.state.lock();
            while !state.0 && !state.1 {
                wanted.signal.wait(&mut state);
            }
            if state.1 {
                return;
            }
            state.0 = false;
        }
        let Some(fs) = fs.upgrade() else { return };
        let much = fs.data.dirty.bytes() > fs.data.dirty.much();
        let until = if much {
            Some(Instant::now())
        } else {
            Instant::now().checked_sub(OLD)
        };
        let written = fs
            .flush_streams()
            .and_then(|()| until.map_or(Ok(()), |until| fs.flush_old(until)));
        if let Err(FsError::Device(cause)) = written {
            tracing::error!("file data could not be written: {cause}");
            fs.journal.abort(JournalError::Device(cause));
        }
    }
}
