//! The gate of a log: while it is closed, no handle and no record begins. `engine/rest.rs` uses it
//! to bring the journal to rest.

use std::fmt;
use std::sync::Arc;

use stetfs_sync::plain::{
    Condvar, Mutex,
    atomic::{AtomicBool, Ordering},
};

/// The gate's state.
#[derive(Default)]
pub(crate) struct RestGate {
    /// No handle and no record may begin.
    closed: AtomicBool,
    /// The log is retired: it is as an unmount leaves it.
    resting: AtomicBool,
    /// The number of records between their reservation and their end.
    records: Mutex<u64>,
    /// Signalled when the last record ends, or the journal stops.
    idle: Condvar,
}

/// The right to write one record.
pub(crate) struct RecordUse(Arc<RestGate>);

impl fmt::Debug for RecordUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RecordUse")
    }
}

impl Drop for RecordUse {
    fn drop(&mut self) {
        let mut records = self.0.records.lock();
        *records -= 1;
        if *records == 0 {
            self.0.idle.notify_all();
        }
    }
}

impl RestGate {
    /// Whether handles have to wait.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Whether the log is retired.
    pub(crate) fn is_resting(&self) -> bool {
        self.resting.load(Ordering::Acquire)
    }

    /// Begins a record; none while the gate is closed.
    pub(crate) fn begin_record(self: &Arc<Self>) -> Option<RecordUse> {
        let mut records = self.records.lock();
        if self.is_closed() {
            return None;
        }
        *records += 1;
        drop(records);
        Some(RecordUse(Arc::clone(self)))
    }

    /// Closes the gate. Returns once no record is under way, or once `stopped` says that the
    /// journal stopped.
    pub(crate) fn close(&self, stopped: impl Fn() -> bool) {
        let mut records = self.records.lock();
        self.closed.store(true, Ordering::Release);
        while *records > 0 && !stopped() {
            self.idle.wait(&mut records);
        }
    }

    /// Notes that the log is retired (`true`), or in use again.
    pub(crate) fn rests(&self, resting: bool) {
        self.resting.store(resting, Ordering::Release);
    }

    /// Opens the gate: handles and records may begin.
    pub(crate) fn open(&self) {
        self.rests(false);
        self.closed.store(false, Ordering::Release);
    }

    /// Wakes a waiting [`close`](Self::close), which then sees that the journal stopped.
    pub(crate) fn stop(&self) {
        let _records = self.records.lock();
        self.idle.notify_all();
    }
}
