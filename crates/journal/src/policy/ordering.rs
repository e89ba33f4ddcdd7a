//! Which lane a handle joins, and what it means when two lanes touch one block.

use crate::ids::{Lane, TxId};

/// The phase of the other transaction that lists the block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtherPhase {
    /// Still taking changes.
    Running,
    /// Waiting for its last handles; its snapshot comes in a moment.
    Locked,
    /// Snapshot taken, not yet valid.
    Committing,
}

/// What a change to a block of another lane's transaction entails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    /// Both depend on each other: all or nothing.
    Chain,
    /// Ours depends on the other.
    Edge,
    /// Wait for the other's snapshot, then look again.
    Wait,
}

/// The ordering policy.
pub trait Ordering: Send + Sync {
    /// Number of lanes, at least 1.
    fn lanes(&self) -> u16;
    /// The lane of the calling thread's next handle.
    fn lane(&self) -> Lane;
    /// What to do when `mine` changes a block that `other`, of another lane, lists.
    fn share(&self, mine: TxId, other: TxId, phase: OtherPhase) -> Share;
}

/// One lane: one compound transaction at a time, as jbd2 has it.
#[derive(Debug, Default)]
pub struct OneLane;

impl Ordering for OneLane {
    fn lanes(&self) -> u16 {
        1
    }
    fn lane(&self) -> Lane {
        Lane(0)
    }
    fn share(&self, _mine: TxId, _other: TxId, phase: OtherPhase) -> Share {
        // Only reached with several lanes; the rule of decision 6 is the only sound answer there.
        match phase {
            OtherPhase::Running => Share::Chain,
            OtherPhase::Locked => Share::Wait,
            OtherPhase::Committing => Share::Edge,
        }
    }
}
