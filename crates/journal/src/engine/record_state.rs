//! The state of records of files: their log, the stamp up to which commits supersede them, and the
//! inodes whose data only records hold. Their rules are in [`crate::records`].

use std::collections::HashMap;
use std::sync::Arc;

use stetfs_sync::plain::{
    Instant, Mutex, MutexGuard,
    atomic::{AtomicU64, Ordering},
};

use crate::gate::RestGate;
use crate::ids::{Ino, Stamp};
use crate::policy::RecordLog;

/// Records of files, as the engine knows them.
pub(crate) struct RecordState {
    log: Option<Arc<dyn RecordLog>>,
    /// Valid transactions supersede records up to this stamp.
    superseded: AtomicU64,
    /// See [`JournalConfig::hold_horizon`](super::config::JournalConfig::hold_horizon).
    held: Mutex<Option<Stamp>>,
    recorded: Mutex<Recorded>,
    /// Closed while the journal rests.
    gate: Arc<RestGate>,
}

/// Inodes whose newest data is in records, while their home locations may be older (record.F4).
#[derive(Default)]
pub(crate) struct Recorded {
    /// Each inode with the stamp of the oldest such record.
    inodes: HashMap<Ino, Stamp>,
    /// The time of the first of them.
    since: Option<Instant>,
}

impl Recorded {
    pub(crate) fn add(&mut self, ino: Ino, stamp: Stamp) {
        self.inodes.entry(ino).or_insert(stamp);
        self.since.get_or_insert_with(Instant::now);
    }
}

impl RecordState {
    pub(super) fn new(log: Option<Arc<dyn RecordLog>>, held: Option<Stamp>) -> RecordState {
        RecordState {
            log,
            superseded: AtomicU64::new(0),
            held: Mutex::new(held),
            recorded: Mutex::default(),
            gate: Arc::default(),
        }
    }

    /// The log of records, if the scheme has one.
    pub(crate) fn log(&self) -> Option<&dyn RecordLog> {
        self.log.as_deref()
    }

    /// The gate of handles and records.
    pub(crate) fn gate(&self) -> &Arc<RestGate> {
        &self.gate
    }

    /// The stamp up to which valid transactions supersede records, as recovery will see it.
    pub(crate) fn horizon(&self) -> Stamp {
        let held = self.held();
        held.unwrap_or_else(|| self.superseded.load(Ordering::Acquire))
    }

    /// The horizon that is held while recovered records are being applied.
    pub(super) fn held(&self) -> Option<Stamp> {
        *self.held.lock()
    }

    /// Ends the holding of the horizon: the records are applied and durable. It is at least
    /// `horizon` now.
    pub(crate) fn release(&self, horizon: Stamp) {
        *self.held.lock() = None;
        self.supersede(horizon);
    }

    /// Notes that valid transactions supersede records up to this stamp.
    pub(super) fn supersede(&self, upto: Stamp) {
        self.superseded.fetch_max(upto, Ordering::AcqRel);
    }

    /// The notes of recorded data, locked: the stamp of a record is drawn and noted under one lock
    /// (record.F4).
    pub(crate) fn recorded(&self) -> MutexGuard<'_, Recorded> {
        self.recorded.lock()
    }

    /// Takes the inodes with a record up to `floor`. The caller has all their data written home
    /// before a transaction with that floor counts.
    pub(super) fn take_recorded(&self, floor: Stamp) -> Vec<Ino> {
        let mut recorded = self.recorded.lock();
        let taken = recorded.inodes.extract_if(|_, stamp| *stamp <= floor);
        let taken = taken.map(|(ino, _)| ino).collect();
        if recorded.inodes.is_empty() {
            recorded.since = None;
        }
        taken
    }

    /// The time since which records hold data. A periodic commit is due by it even if nothing else
    /// has changed.
    pub(super) fn recorded_since(&self) -> Option<Instant> {
        self.recorded.lock().since
    }
}
