//! Rest: the log is as after an unmount, and is not used until the journal wakes (ext4's
//! `freeze_fs`).
//!
//! * **rest.R1** While the journal rests no handle is open, no record is under way, and no
//!   transaction, image, record or tail reaches the device. Handles wait at the gate, and records
//!   find no room. A write that happens all the same is a bug, and stops the journal, in release
//!   builds, too.
//!
//! ```text
//!          go_to_rest (gate closed)      log retired
//!   awake ────────────────────▶ closing ─────────────▶ resting
//!     ▲                            │ a failure             │ resume
//!     ├────────────────────────────┘                       ▼
//!     └──────────────────── open_gate ◀──────────────── resumed
//! ```

use super::Engine;
use crate::error::{JournalError, Result};
use crate::policy;

impl Engine {
    /// Has `commit_all` commit everything, writes everything home, and retires the log. The gate is
    /// closed from the start.
    ///
    /// # Errors
    /// The first failure; the gate is then open again.
    pub(crate) fn go_to_rest(&self, commit_all: impl FnOnce() -> Result<()>) -> Result<()> {
        self.close_gate();
        let rested = commit_all().and_then(|()| self.retire_at_rest());
        if rested.is_err() {
            self.open_gate();
        }
        rested
    }

    fn retire_at_rest(&self) -> Result<()> {
        if self.base.config.canary.freeze_in_log {
            return Ok(());
        }
        self.empty_log()?;
        self.retire()?;
        self.records.gate().rests(true);
        Ok(())
    }

    /// Marks the log as in use again; it starts where it ended.
    ///
    /// # Errors
    /// The device's; `Aborted` if there is something in the log: it was used while the journal
    /// rested (rest.R1).
    pub(crate) fn resume(&self) -> Result<()> {
        if self.records.gate().is_resting() && self.space.is_used() {
            return Err(at_rest("a transaction is in the log"));
        }
        policy::resume(self.records.log(), self.space.media())?;
        self.records.gate().rests(false);
        let tails = self.space.tails_at_heads();
        self.set_tails(self.space.media().zip(tails))
    }

    /// Frees the records that were held: they are applied and committed, and the log's header says
    /// so.
    ///
    /// # Errors
    /// The device's.
    pub(crate) fn release_horizon(&self) -> Result<()> {
        let horizon = self.lanes.now();
        self.records.release(horizon);
        self.space.set_horizon(horizon, self.clock.has_barrier())
    }

    /// Ends the use of the journal: has `commit_all` commit everything, writes everything home and
    /// retires the log, then stops.
    ///
    /// # Errors
    /// The first failure; the log then keeps what is not home. If the journal had stopped before,
    /// the error that stopped it.
    pub(crate) fn end(&self, commit_all: impl FnOnce() -> Result<()>) -> Result<()> {
        let stopped = self.base.has_stopped();
        // A sync that was requested before must write no record to a log that others may use by
        // then.
        self.close_gate();
        let mut result = match stopped {
            true => self.base.stopped_by().map_or(Ok(()), Err),
            false => commit_all(),
        };
        let commits = self.syncs.close_commits();
        // A log at rest is already empty and retired.
        if !stopped && !self.records.gate().is_resting() {
            result = result
                .and_then(|()| self.empty_log())
                .and_then(|()| self.retire());
        }
        self.base.stop(None);
        drop(commits);
        result
    }

    /// Closes the gate: no handle and no record begins. Returns once no record is under way.
    pub(crate) fn close_gate(&self) {
        if !self.base.config.canary.use_at_rest {
            self.records.gate().close(|| self.base.has_stopped());
        }
    }

    /// Opens the gate: handles and records continue.
    pub(crate) fn open_gate(&self) {
        self.records.gate().open();
        self.lanes.wake();
    }

    /// Checks that something may be written (rest.R1).
    ///
    /// # Errors
    /// `Aborted` if the journal rests.
    pub(crate) fn must_be_awake(&self, what: &str) -> Result<()> {
        match self.records.gate().is_resting() {
            true => Err(at_rest(what)),
            false => Ok(()),
        }
    }
}

fn at_rest(what: &str) -> JournalError {
    JournalError::Aborted(format!("rest.R1: {what} while the journal rests"))
}
