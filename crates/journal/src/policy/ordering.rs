//! Which lane a handle joins. What it means that two lanes touch one block is the engine's: while both can still change they
//! are chained, all or nothing; on what is committing the other depends.

use crate::ids::Lane;

/// The ordering policy.
pub trait Ordering: Send + Sync {
    /// Number of lanes, at least 1.
    fn lanes(&self) -> u16;
    /// The lane of the calling thread's next handle.
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
