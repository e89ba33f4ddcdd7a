//! The blocks of a file that records hold, in their present or an older state.

use std::collections::{BTreeMap, BTreeSet};

use stetfs_journal::Stamp;

/// The blocks that records of a file hold. The cost of a sync depends on what changed since the
/// last one, not on the number of records.
#[derive(Default)]
pub(super) struct Recorded {
    /// The newest record that holds the block, in its present or an older state.
    blocks: BTreeMap<u32, Stamp>,
    /// The blocks that have changed since their record.
    older: BTreeSet<u32>,
    /// Records up to this stamp are forgotten.
    horizon: Stamp,
}

impl Recorded {
    /// Whether a record holds the block in its present state.
    pub(super) fn is_current(&self, lblk: u32) -> bool {
        self.blocks.contains_key(&lblk) && !self.older.contains(&lblk)
    }

    /// The newest record that holds the block, in its present or an older state.
    pub(super) fn of(&self, lblk: u32) -> Option<Stamp> {
        self.blocks.get(&lblk).copied()
    }

    /// Blocks that have changed since the newest record that holds them.
    pub(super) fn older(&self) -> &BTreeSet<u32> {
        &self.older
    }

    /// Whether `older` is a subset of `blocks`.
    pub(super) fn is_consistent(&self) -> bool {
        self.older.iter().all(|lblk| self.blocks.contains_key(lblk))
    }

    /// Notes that a record holds the block in its present state.
    pub(super) fn add(&mut self, lblk: u32, record: Stamp) {
        self.blocks.insert(lblk, record);
        self.older.remove(&lblk);
    }

    /// Notes that the block changed.
    pub(super) fn changed(&mut self, lblk: u32) {
        if self.blocks.contains_key(&lblk) {
            self.older.insert(lblk);
        }
    }

    /// Forgets records that are not alive, among them all up to `horizon`, and calls `gone` for
    /// each block of such a record.
    pub(super) fn prune(
        &mut self,
        horizon: Stamp,
        is_alive: impl Fn(Stamp) -> bool,
        mut gone: impl FnMut(u32),
    ) {
        // Records end only at the horizon, which never falls. The exception is a deliberate fault,
        // with which no record is alive.
        if horizon == self.horizon && is_alive(Stamp::MAX) {
            return;
        }
        self.horizon = horizon;
        let older = &mut self.older;
        self.blocks.retain(|lblk, record| {
            let alive = is_alive(*record);
            if !alive {
                older.remove(lblk);
                gone(*lblk);
            }
            alive
        });
    }
}
