//! Which lane a handle joins. What it means that two lanes touch one block is the engine's: while
//! both can still change they are chained, all or nothing; on what is committing the other depends.

use crate::ids::Lane;

/// Who copies a page that a commit's snapshot holds. Nobody waits for it either way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Copies {
    /// Whoever changes it while the snapshot holds it.
    #[default]
    OnWrite,
    /// The commit, when its snapshot is taken: all pages of it (Z-Journal §3.2).
    Proactive,
}

/// The ordering policy.
pub trait Ordering: Send + Sync {
    /// Number of lanes, at least 1.
    fn lanes(&self) -> u16;
    /// Whether fewer will do where the log has not the room for so many: nobody asked for this
    /// number.
    fn may_be_fewer(&self) -> bool {
        false
    }
    /// Who copies pages of snapshots.
    fn copies(&self) -> Copies {
        Copies::default()
    }
    /// Whether each lane takes space from a part of the volume of its own first, so that lanes
    /// share fewer blocks.
    fn keeps_apart(&self) -> bool {
        false
    }
    /// The lane of the calling thread's next handle; one beyond those that the log has counts from
    /// the first again.
    fn lane(&self) -> Lane;
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
}
