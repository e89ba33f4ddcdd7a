//! `DataState`: the state of file data in memory of an open volume.

use std::sync::Arc;
use std::time::Duration;

use stetfs_sync::timed::{
    Condvar, Mutex,
    atomic::{AtomicBool, Ordering},
    thread::JoinHandle,
};

use super::syncs::syncers::Syncers;
use super::writeback::dirty_set::DirtySet;
use super::writeback::precedence::Precedence;
use crate::durability::SyncReasons;
use crate::state::failures::{Failures, Told};
use crate::state::group_memory::GroupMemory;
use crate::types::FsOptions;

/// The state of file data of an open volume.
pub(crate) struct DataState {
    pub(super) dirty: DirtySet,
    /// Memory of atomic groups.
    pub(crate) groups: GroupMemory,
    /// Counts of syncs by commit although files have records, by reason.
    pub(super) reasons: SyncReasons,
    /// Threads that sync files by records.
    pub(crate) syncers: Syncers,
    /// Precedence of such syncs over background write-back.
    pub(super) precedence: Precedence,
    pub(super) wanted: Arc<Wanted>,
    /// The write-back thread runs: it starts when it is first needed.
    pub(super) started: AtomicBool,
    pub(super) thread: Mutex<Option<JoinHandle<()>>>,
    /// Failed write-backs of all files.
    pub(crate) failures: Failures,
    /// The failures that syncs of the whole volume have reported.
    pub(crate) told: Told,
}

/// Signals for the write-back thread. They are shared, because the thread outlives the volume by a
/// moment.
#[derive(Default)]
pub(super) struct Wanted {
    state: Mutex<State>,
    signal: Condvar,
    /// The thread checks the age of dirty data at intervals, and needs no signal for more data.
    pub(super) watching: AtomicBool,
}

#[derive(Default)]
struct State {
    flush: bool,
    quit: bool,
}

impl DataState {
    /// The state without dirty data.
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

    /// Whether the thread checks the age of dirty data at intervals.
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

    /// Waits for a signal or, while it watches, for this interval. Returns `false` at the end.
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
