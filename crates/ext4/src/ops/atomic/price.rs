//! The cost of a group's commit: the numbers and their sums.

use std::collections::BTreeSet;
use std::ops::Add;

/// The most that changes need.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cost {
    /// Blocks that change, except those of allocations.
    pub(super) blocks: u64,
    /// Allocations of data.
    pub(super) allocations: u64,
    /// Clusters for data.
    pub(super) clusters: u64,
    /// Early blocks for file blocks that were not mapped before.
    pub(super) grown: u64,
    /// Blocks that maps may need for themselves.
    pub(super) nodes: u64,
}

/// The values of a file's early blocks that the cost of the commit depends on.
#[derive(Clone, Debug, Default)]
pub(super) struct EarlySum {
    /// Number of runs.
    pub(super) places: u64,
    /// Groups of the volume with these blocks, and with the blocks that they replace.
    pub(super) groups: BTreeSet<u32>,
    /// Blocks for file blocks that were not mapped before.
    pub(super) grown: u64,
}

impl EarlySum {
    /// The sum with other early blocks.
    pub(super) fn and(&self, mut other: EarlySum) -> EarlySum {
        other.groups.extend(&self.groups);
        EarlySum {
            places: self.places + other.places,
            grown: self.grown + other.grown,
            groups: other.groups,
        }
    }
}

impl Add for Cost {
    type Output = Cost;
    fn add(self, other: Cost) -> Cost {
        Cost {
            blocks: self.blocks.saturating_add(other.blocks),
            allocations: self.allocations.saturating_add(other.allocations),
            clusters: self.clusters.saturating_add(other.clusters),
            grown: self.grown.saturating_add(other.grown),
            nodes: self.nodes.saturating_add(other.nodes),
        }
    }
}

impl Cost {
    /// The most clusters by which the usage of the owners grows.
    pub(super) fn charged(&self) -> u64 {
        self.clusters.saturating_add(self.grown)
    }

    /// Clusters of the volume to be promised.
    pub(super) fn space(&self) -> u64 {
        self.clusters.saturating_add(self.nodes)
    }
}
