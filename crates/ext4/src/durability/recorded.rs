//! Which blocks of a file records hold, as they are or as they were.

use std::collections::{BTreeMap, BTreeSet};

use stetfs_journal::Stamp;

/// Blocks that records of a file hold. What a sync asks costs as much as what changed since the
/// last one, however many records there are.
#[derive(Default)]
pub(super) struct Recorded {
    /// The newest record that holds the block, as it is or as it was.
    blocks: BTreeMap<u32, Stamp>,
    /// Those of them that have changed since.
    older: BTreeSet<u32>,
    /// Records up to this are forgotten.
    horizon: Stamp,
}

impl Recorded {
    /// Whether a record holds the block as it is.
    pub(super) fn is_current(&self, lblk: u32) -> bool {
        self.blocks.contains_key(&lblk) && !self.older.contains(&lblk)
    }

    /// The newest record that holds the block, as it is or as it was.
    pub(super) fn of(&self, lblk: u32) -> Option<Stamp> {
        self.blocks.get(&lblk).copied()
    }

    /// Blocks that have changed since the newest record that holds them.
    pub(super) fn older(&self) -> &BTreeSet<u32> {
        &self.older
    }

    /// Whether `older` is what it is to be.
    pub(super) fn is_consistent(&self) -> bool {
        self.older.iter().all(|lblk| self.blocks.contains_key(lblk))
    }

    /// A record holds the block as it is.
    pub(super) fn add(&mut self, lblk: u32, record: Stamp) {
        self.blocks.insert(lblk, record);
        self.older.remove(&lblk);
    }

    /// The block changed.
    pub(super) fn changed(&mut self, lblk: u32) {
        if self.blocks.contains_key(&lblk) {
            self.older.insert(lblk);
        }
    }

    /// Forgets the records that are not alive, and calls `gone` for each block that one of them
    /// held. Those up to `horizon` are not.
    pub(super) fn prune(
        &mut self,
        horizon: Stamp,
        is_alive: impl Fn(Stamp) -> bool,
        mut gone: impl FnMut(u32),
    ) {
        // Records are forgotten at the horizon, and it only rises; but for a deliberate fault,
        // with which none is alive.
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
