//! Background write-back: old dirty data goes home, what is written as a stream behind its writer,
//! and all of it when there is much.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use stetfs_journal::JournalError;

use super::atomic::GroupMemory;
use super::dirty_set::DirtySet;
use super::failures::{Failures, Told};
use super::precedence::Precedence;
use super::syncers::Syncers;
use crate::durability::SyncReasons;
use crate::error::Result;
use crate::fs::Fs;
use crate::types::FsOptions;

/// How often the age of dirty data is looked at: so many times within the age, and within bounds.
const LOOKS: u32 = 8;
const SHORTEST: Duration = Duration::from_millis(10);
const LONGEST: Duration = Duration::from_secs(1);

/// The file data part of an open volume.
pub(crate) struct DataState {
    pub(super) dirty: DirtySet,
    /// What atomic groups keep in memory.
    pub(super) groups: GroupMemory,
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
    /// Home writes that failed, of all files …
    pub(crate) failures: Failures,
    /// … and which of them syncs of all told of.
    pub(crate) told: Told,
}

/// How the flusher is told. It outlives the volume by a moment, so it is shared.
#[derive(Default)]
struct Wanted {
    state: Mutex<State>,
    signal: Condvar,
    /// The flusher looks at the age of dirty data by itself: it need not be told of more.
    watching: AtomicBool,
}

#[derive(Default)]
struct State {
    flush: bool,
    quit: bool,
}

impl DataState {
    /// Without dirty data.
    pub(crate) fn new(opts: &FsOptions) -> DataState {
        DataState {
            dirty: DirtySet::new(opts),
            groups: GroupMemory::default(),
            reasons: SyncReasons::default(),
            syncers: Syncers::default(),
            precedence: Precedence::default(),
            wanted: Arc::default(),
            started: AtomicBool::new(false),
            thread: Mutex::new(None),
            lazy: AtomicU64::new(0),
            failures: Failures::default(),
            told: Told::default(),
        }
    }

    /// Whether somebody sees to it that what is dirty goes home when it is old.
    pub(super) fn is_watched(&self) -> bool {
        self.wanted.watching.load(Ordering::SeqCst)
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
    fn flush(&self) {
        let mut state = self.state.lock();
        if !state.flush {
            state.flush = true;
            self.signal.notify_all();
        }
    }

    fn quit(&self) {
        self.state.lock().quit = true;
        self.signal.notify_all();
    }

    /// Waits until there may be something to write home: until it is told so or, while it watches,
    /// for this time. Says no at the end.
    fn next(&self, look: Duration) -> bool {
        let mut state = self.state.lock();
        while !state.flush && !state.quit {
            if !self.watching.load(Ordering::SeqCst) {
                self.signal.wait(&mut state);
            } else if self.signal.wait_for(&mut state, look).timed_out() {
                break;
            }
        }
        state.flush = false;
        !state.quit
    }
}

impl Fs {
    /// Wakes the thread that writes data home in the background. Says no if there is none.
    pub(super) fn wake_flusher(&self) -> bool {
        if !self.data.started.load(Ordering::Acquire)
            && !self.data.started.swap(true, Ordering::AcqRel)
        {
            let (fs, wanted) = (self.me.clone(), self.data.wanted.clone());
            let look = (self.early_age() / LOOKS).clamp(SHORTEST, LONGEST);
            let thread = std::thread::Builder::new()
                .name("stet-flush".into())
                .spawn(move || run(&fs, &wanted, look));
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
        self.data.wanted.flush();
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

    /// Holds a writer back while there is more dirty data than the bound. An inode's lock may be
    /// held, a handle not.
    ///
    /// # Errors
    /// EROFS once the volume is read-only.
    pub(crate) fn throttle_data(&self) -> Result<()> {
        while self.data.dirty.is_full() {
            self.writable()?;
            if !self.wake_flusher() {
                self.flush_old(true)?;
            }
            self.data.dirty.wait_for_room(Duration::from_millis(100));
        }
        Ok(())
    }

    /// Writes home what is old, what is written as a stream, and all of it when there is much.
    fn write_back(&self) -> Result<(), JournalError> {
        self.flush_streams()?;
        self.flush_old(self.data.dirty.bytes() > self.data.dirty.much())?;
        self.hide_lost();
        Ok(())
    }
}

fn run(fs: &Weak<Fs>, wanted: &Wanted, look: Duration) {
    stetfs_sync::run_anywhere();
    while wanted.next(look) {
        let Some(fs) = fs.upgrade() else { return };
        // Nothing reaches a volume that has stopped. A failure has stopped it, too.
        let goes_on = fs.writable().is_ok() && fs.write_back().is_ok();
        wanted.watching.store(false, Ordering::SeqCst);
        // Whoever makes data dirty counts it first, and then looks whether it is watched.
        if goes_on && fs.data.dirty.needs_care() {
            wanted.watching.store(true, Ordering::SeqCst);
        }
    }
}
