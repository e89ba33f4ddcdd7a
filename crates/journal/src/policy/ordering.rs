//! The ordering policy: which lane a handle joins.
//!
//! The engine decides what it means that two lanes touch one block. While both transactions can
//! still change they are chained, and count together or not at all. If one is committing, the other
//! gets a one-directional edge to it.

use crate::ids::{Lane, Near};

/// The side that copies a page held by a commit's snapshot. No thread waits for either.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Copies {
    /// The thread that changes the page while the snapshot holds it.
    #[default]
    OnWrite,
    /// The commit, right after its snapshot: all pages that are shared (Z-Journal §3.2).
    Proactive,
}

/// The ordering policy.
pub trait Ordering: Send + Sync {
    /// Number of lanes, at least 1.
    fn lanes(&self) -> u16;
    /// Whether fewer lanes will do in a log too small for so many: the user did not ask for this
    /// number.
    fn may_be_fewer(&self) -> bool {
        false
    }
    /// The side that copies pages of snapshots.
    fn copies(&self) -> Copies {
        Copies::default()
    }
    /// Whether each lane takes space from its own part of the volume first, so that lanes share
    /// fewer blocks.
    fn keeps_apart(&self) -> bool {
        false
    }
    /// Whether each lane has commit leaders of its own, so that commits of lanes that share nothing
    /// go side by side. Else one leader at a time commits what all callers ask for.
    fn commits_apart(&self) -> bool {
        false
    }
    /// The lane of the calling thread's next handle, modulo the number of lanes of the log. `near`
    /// is the neighbourhood of its changes, if they have one.
    fn lane(&self, near: Option<Near>) -> Lane;
}

/// The policy with one lane: one compound transaction at a time, as in jbd2.
#[derive(Debug, Default)]
pub struct OneLane;

impl Ordering for OneLane {
    fn lanes(&self) -> u16 {
        1
    }
    fn lane(&self, _near: Option<Near>) -> Lane {
        Lane(0)
    }
}
