//! Rest: the log of a journal is as after an unmount, and nobody uses it until the journal wakes
//! (ext4's `freeze_fs`).
//!
//! * **rest.R1** While the journal rests no handle is open, no record is under way, and no
//!   transaction, image, record or tail reaches the device. Handles wait at the gate, and records
//!   find no room; a write all the same is a state that cannot be, and stops the journal, in
//!   release builds, too.
//!
//! ```text
//!          go_to_rest (gate closed)      log retired
//!   awake ────────────────────▶ closing ─────────────▶ resting
//!     ▲                            │ a failure             │ resume
//!     ├────────────────────────────┘                       ▼
//!     └──────────────────── open_gate ◀──────────────── resumed
//! ```

use super::Inner;
use super::checkpoint_list::LaneLog;
use crate::error::{JournalError, Result};
use crate::policy::{self, LogTail};

impl Inner {
    /// Has `commit_all` commit everything, brings it home, and retires the log. The gate is closed
    /// from the begin on.
    ///
    /// # Errors
    /// The first failure; the gate is open again then.
    pub(super) fn go_to_rest(&self, commit_all: impl FnOnce() -> Result<()>) -> Result<()> {
        self.close_gate();
        let rested = commit_all().and_then(|()| self.retire_at_rest());
        if rested.is_err() {
            self.open_gate();
        }
        rested
    }

    fn retire_at_rest(&self) -> Result<()> {
        if self.config.canary.freeze_in_log {
            return Ok(());
        }
        self.empty_log()?;
        self.retire()?;
        self.gate.rests(true);
        Ok(())
    }

    /// The log is in use again, and begins where it ended.
    ///
    /// # Errors
    /// The device's. Something is in the log: it was used while the journal rested (rest.R1).
    pub(super) fn resume(&self) -> Result<()> {
        if self.gate.is_resting() {
            let is_used = |lane: &LaneLog| !lane.live.is_empty() || !lane.durable.is_empty();
            if self.log.lock().lanes.iter().any(is_used) {
                return Err(at_rest("a transaction is in the log"));
            }
        }
        let media = || self.lanes.iter().map(|lane| &*lane.medium);
        policy::resume(self.records.as_deref(), media())?;
        self.gate.rests(false);
        let tail = |lane: &LaneLog| LogTail {
            seq: lane.next_seq,
            at: Some(lane.head),
        };
        let tails: Vec<LogTail> = self.log.lock().lanes.iter().map(tail).collect();
        self.set_tails(media().zip(tails))
    }

    /// No handle and no record begins from here on. Returns once no record is under way.
    pub(super) fn close_gate(&self) {
        if !self.config.canary.use_at_rest {
            self.gate.close(|| self.has_stopped());
        }
    }

    /// Handles and records go on.
    pub(super) fn open_gate(&self) {
        self.gate.open();
        for lane in &self.lanes {
            lane.wake();
        }
    }

    /// Sees to it that something may be written (rest.R1).
    ///
    /// # Errors
    /// The journal rests.
    pub(super) fn must_be_awake(&self, what: &str) -> Result<()> {
        match self.gate.is_resting() {
            true => Err(at_rest(what)),
            false => Ok(()),
        }
    }
}

fn at_rest(what: &str) -> JournalError {
    JournalError::Aborted(format!("rest.R1: {what} while the journal rests"))
}
