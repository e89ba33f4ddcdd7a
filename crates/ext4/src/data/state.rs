//! What an open volume holds of file data.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::atomic::GroupMemory;
use super::dirty_set::DirtySet;
use super::failures::{Failures, Told};
use super::precedence::Precedence;
use super::syncers::Syncers;
use crate::durability::SyncReasons;
use crate::types::FsOptions;

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
    pub(super) wanted: Arc<Wanted>,
    /// The flusher runs: it starts with the first need of it.
    pub(super) started: AtomicBool,
    pub(super) thread: Mutex<Option<JoinHandle<()>>>,
    /// Home writes that failed, of all files …
    pub(crate) failures: Failures,
    /// … and which of them syncs of all told of.
    pub(crate) told: Told,
}

/// How the flusher is told. It outlives the volume by a moment, so it is shared.
#[derive(Default)]
pub(super) struct Wanted {
    state: Mutex<State>,
    signal: Condvar,
    /// The flusher looks at the age of dirty data by itself: it need not be told of more.
    pub(super) watching: AtomicBool,
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
    pub(super) fn flush(&self) {
        let mut state = self.state.lock();
        if !state.flush {
            state.flush = true;
            self.signal.notify_all();
        }
    }

    pub(super) fn quit(&self) {
        self.state.lock().quit = true;
        self.signal.notify_all();
    }

    /// Waits until there may be something to write home: until it is told so or, while it watches,
    /// for this time. Says no at the end.
    pub(super) fn next(&self, look: Duration) -> bool {
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
